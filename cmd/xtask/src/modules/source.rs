//! A source file's declarations of modules, its definitions and imports, and the paths that it names.

use std::collections::BTreeSet;

use super::tokens::{Token, tokens};

/// A module in a file of its own, or within braces.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Source<'a> {
    /// Child modules in files of their own. Those for tests are left out.
    pub(super) declared: Vec<&'a str>,
    /// Child modules in braces.
    pub(super) inline: Vec<(&'a str, Source<'a>)>,
    /// Names of its own items.
    pub(super) items: Vec<&'a str>,
    /// Imports by the name that they have here.
    pub(super) imports: Vec<(&'a str, Vec<&'a str>)>,
    /// Modules whose names are all imported.
    pub(super) globs: Vec<Vec<&'a str>>,
    /// Paths that code names, imports aside. Single names too, since a glob may have brought them.
    pub(super) paths: BTreeSet<Vec<&'a str>>,
}

/// Reads a file, `None` if all of it is for tests.
pub(super) fn source(text: &str) -> Option<Source<'_>> {
    let tokens = tokens(text);
    let mut reader = Reader {
        tokens: &tokens,
        at: 0,
    };
    let source = reader.module();
    (!source.1).then_some(source.0)
}

struct Reader<'t, 'a> {
    tokens: &'t [Token<'a>],
    at: usize,
}

impl<'a> Reader<'_, 'a> {
    fn peek(&self, ahead: usize) -> Option<Token<'a>> {
        self.tokens.get(self.at + ahead).copied()
    }

    fn name(&self, ahead: usize) -> Option<&'a str> {
        match self.peek(ahead) {
            Some(Token::Name(name)) => Some(name),
            _ => None,
        }
    }

    fn is(&self, ahead: usize, sign: char) -> bool {
        self.peek(ahead) == Some(Token::Sign(sign))
    }

    /// Reads to the brace that ends the module, or to the end. Says too whether it is for tests.
    fn module(&mut self) -> (Source<'a>, bool) {
        let mut source = Source::default();
        let mut is_test = false;
        let mut depth = 0_usize;
        while let Some(token) = self.peek(0) {
            match token {
                Token::Sign('#') if self.is(1, '[') => {
                    if self.attribute(1) {
                        self.item();
                    }
                }
                Token::Sign('#') if self.is(1, '!') && self.is(2, '[') => is_test |= self.attribute(2),
                Token::Sign('{') => {
                    depth += 1;
                    self.at += 1;
                }
                Token::Sign('}') => {
                    self.at += 1;
                    if depth == 0 {
                        break;
                    }
                    depth -= 1;
                }
                Token::Name("mod") if self.is(2, ';') => {
                    source.declared.extend(self.name(1));
                    self.at += 3;
                }
                Token::Name("mod") if self.is(2, '{') => {
                    let name = self.name(1);
                    self.at += 3;
                    let (inner, inner_is_test) = self.module();
                    if let Some(name) = name.filter(|_| !inner_is_test) {
                        source.inline.push((name, inner));
                    }
                }
                Token::Name("use") => {
                    self.at += 1;
                    self.import(&mut source, Vec::new());
                }
                // A visibility's path.
                Token::Name("pub") if self.is(1, '(') => {
                    while self.peek(0).is_some_and(|token| token != Token::Sign(')')) {
                        self.at += 1;
                    }
                }
                Token::Name(name) => {
                    if depth == 0 {
                        source.items.extend(self.defined(name));
                    }
                    let path = self.names();
                    source.paths.insert(path);
                }
                // The name after it is a field, a method, a macro's argument, or of another crate.
                Token::Sign('.' | '$') | Token::Path => {
                    self.at += 1;
                    self.names();
                }
                Token::Sign(_) | Token::Literal => self.at += 1,
            }
        }
        (source, is_test)
    }

    /// Passes an attribute whose bracket is so far ahead, and says whether it leaves what follows to tests.
    fn attribute(&mut self, bracket: usize) -> bool {
        let names = [
            self.name(bracket + 1),
            self.name(bracket + 3),
            self.name(bracket + 5),
        ];
        self.at += bracket;
        self.group();
        matches!(
            names,
            [Some("cfg"), Some("test"), _] | [Some("cfg"), Some("all"), Some("test")]
        )
    }

    /// Passes brackets with their content.
    fn group(&mut self) {
        let mut depth = 0_usize;
        while let Some(token) = self.peek(0) {
            self.at += 1;
            match token {
                Token::Sign('(' | '[' | '{') => depth += 1,
                Token::Sign(')' | ']' | '}') => depth = depth.saturating_sub(1),
                _ => {}
            }
            if depth == 0 {
                break;
            }
        }
    }

    /// Passes an item: it ends with a semicolon or with braces.
    fn item(&mut self) {
        let mut is_import = false;
        while let Some(token) = self.peek(0) {
            match token {
                Token::Sign(';' | ',') => {
                    self.at += 1;
                    break;
                }
                Token::Sign('{') => {
                    self.group();
                    if !is_import {
                        break;
                    }
                }
                Token::Sign('(' | '[') => self.group(),
                Token::Sign('}') => break,
                Token::Name("use") => {
                    is_import = true;
                    self.at += 1;
                }
                _ => self.at += 1,
            }
        }
    }

    /// The name that a keyword defines.
    fn defined(&self, keyword: &str) -> Option<&'a str> {
        match keyword {
            "fn" | "struct" | "enum" | "union" | "trait" | "type" => self.name(1),
            "const" | "static" => self
                .name(1)
                .filter(|name| !matches!(*name, "fn" | "unsafe" | "async" | "extern" | "mut" | "_")),
            "macro_rules" if self.is(1, '!') => self.name(2),
            _ => None,
        }
    }

    /// Reads a path: names with `::` between them.
    fn names(&mut self) -> Vec<&'a str> {
        let mut path = Vec::new();
        while let Some(name) = self.name(0) {
            path.push(name);
            self.at += 1;
            if self.peek(0) != Some(Token::Path) || self.name(1).is_none() {
                break;
            }
            self.at += 1;
        }
        path
    }

    /// Reads the tree of an import below a path, up to the semicolon, comma or brace that ends it.
    fn import(&mut self, source: &mut Source<'a>, mut path: Vec<&'a str>) {
        if path.is_empty() && self.peek(0) == Some(Token::Path) {
            // Another crate by its absolute path.
            self.item();
            return;
        }
        while let Some(token) = self.peek(0) {
            match token {
                Token::Path => self.at += 1,
                Token::Name("as") => {
                    if let Some(name) = self.name(1) {
                        source.imports.push((name, path));
                    }
                    self.at += 2;
                    return;
                }
                Token::Name("self") if !path.is_empty() => self.at += 1,
                Token::Name(name) => {
                    path.push(name);
                    self.at += 1;
                }
                Token::Sign('*') => {
                    source.globs.push(path);
                    self.at += 1;
                    return;
                }
                Token::Sign('{') => {
                    self.at += 1;
                    while self.peek(0).is_some_and(|token| token != Token::Sign('}')) {
                        let before = self.at;
                        self.import(source, path.clone());
                        if self.is(0, ',') || self.at == before {
                            self.at += 1;
                        }
                    }
                    self.at += 1;
                    return;
                }
                Token::Sign(_) | Token::Literal => break,
            }
        }
        if let Some(name) = path.last() {
            source.imports.push((*name, path));
        }
        if self.is(0, ';') {
            self.at += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Says what was read in one line each.
    fn shown(source: &Source<'_>) -> String {
        fn joined<'a>(paths: impl IntoIterator<Item = &'a Vec<&'a str>>) -> String {
            let paths = paths.into_iter().filter(|path| path.len() > 1);
            let paths: Vec<String> = paths.map(|path| path.join("::")).collect();
            paths.join(" ")
        }
        let imports: Vec<String> = source
            .imports
            .iter()
            .map(|(name, path)| format!("{name}={}", path.join("::")))
            .collect();
        let inline: Vec<String> = source
            .inline
            .iter()
            .map(|(name, inner)| format!("{name}({})", shown(inner)))
            .collect();
        let parts = [
            source.declared.join(" "),
            inline.join(" "),
            source.items.join(" "),
            imports.join(" "),
            joined(&source.globs),
            joined(&source.paths),
        ];
        parts.join("|")
    }

    #[track_caller]
    fn check(text: &str, expected: &str) {
        assert_eq!(
            source(text).as_ref().map(shown).as_deref(),
            Some(expected),
            "{text}"
        );
    }

    #[test]
    fn modules_and_items() {
        check("mod a; pub(crate) mod b;", "a b|||||");
        check("mod a { mod b; fn f() {} } fn g() {}", "|a(b||f|||)|g|||");
        check(
            "const fn f() { const X: u8 = 1; } const Y: u8 = 2; static Z: u8 = 3;",
            "||f Y Z|||",
        );
        check(
            "struct S; impl S { fn f() {} } macro_rules! m { () => {} }",
            "||S m|||",
        );
    }

    #[test]
    fn imports() {
        check("use crate::a;", "|||a=crate::a||");
        check("pub use super::a::B as C;", "|||C=super::a::B||");
        check(
            "use a::{self, b::{c, D}, e as f,};",
            "|||a=a c=a::b::c D=a::b::D f=a::e||",
        );
        check("use crate::a::*; use {b::c};", "|||c=b::c|crate::a|");
        check("use ::a::{b, c}; use d::e;", "|||e=d::e||");
        check("fn f() { use a::b; }", "||f|b=a::b||");
    }

    #[test]
    fn paths() {
        check(
            "fn f() { crate::a::g::<u8>(super::b) }",
            "||f|||crate::a::g super::b",
        );
        check("type T = <a::B as c::D>::E;", "||T|||a::B c::D");
        check("fn f() { $crate::a::b(); x.y::<a::b>(); ::c::d() }", "||f|||a::b");
        check("pub(in crate::a) fn f() {}", "||f|||");
    }

    #[test]
    fn tests_are_left_out() {
        check("#[cfg(test)] mod a; mod b;", "b|||||");
        check("#[cfg(test)]\npub(crate) mod a { use b::c; } mod d;", "d|||||");
        check("#[cfg(test)] use a::{b, c}; use d::e;", "|||e=d::e||");
        check("#[cfg(all(test, unix))] fn f() { a::b() } fn g() {}", "||g|||");
        check(
            "#[cfg(test)] #[allow(unused)] fn f([u8; 2]) -> u8 { 1 } fn g() {}",
            "||g|||",
        );
        check("#[cfg(unix)] mod a;", "a|||||");
        check("#[cfg(any(test, feature = \"x\"))] mod a;", "a|||||");
        check("mod a { #![cfg(test)] } mod b;", "b|||||");
        assert_eq!(source("#![cfg(test)]\nuse a::b;"), None);
    }

    #[test]
    fn what_is_no_rust_ends() {
        for text in [
            "use",
            "use {",
            "mod",
            "#[",
            "}}",
            "fn f( {",
            "use a::{b, =}",
            "pub(",
            "a::",
            "::",
        ] {
            assert!(source(text).is_some(), "{text}");
        }
    }
}
