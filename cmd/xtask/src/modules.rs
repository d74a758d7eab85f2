//! The arrows between modules: which top-level modules of a crate use which, and the circles among them.
//!
//! A crate's modules are layers as its crates are: shared modules lie below their users. Tests may reach anywhere. Items that a
//! crate re-exports at its root are not followed.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Which modules each module uses.
type Uses<'a> = BTreeMap<&'a str, BTreeSet<&'a str>>;

/// Checks every crate among the tracked files.
pub(crate) fn check(root: &Path, tracked: &[String], faults: &mut Vec<String>) {
    let mut crates: BTreeMap<&str, Vec<(&str, String)>> = BTreeMap::new();
    for name in tracked.iter().filter(|name| name.ends_with(".rs")) {
        let Some((folder, file)) = name.split_once("/src/") else {
            continue;
        };
        if tracked.contains(&format!("{folder}/Cargo.toml"))
            && let Ok(text) = std::fs::read_to_string(root.join(name))
        {
            crates.entry(folder).or_default().push((file, text));
        }
    }
    for (folder, files) in &crates {
        for circle in circles(&uses(files)) {
            let circle = circle.join(", ");
            faults.push(format!("{folder}: modules use each other in a circle: {circle}"));
        }
    }
}

/// The imports between modules of a crate. Files are named from its `src` on.
fn uses<'a>(files: &'a [(&'a str, String)]) -> Uses<'a> {
    let modules: BTreeSet<&str> = files
        .iter()
        .map(|(file, _)| top(file))
        .filter(|module| !matches!(*module, "lib" | "main" | "bin"))
        .collect();
    let tests: BTreeSet<String> = files
        .iter()
        .flat_map(|(file, text)| test_modules(file, text))
        .collect();
    let mut uses = Uses::new();
    for (file, text) in files {
        let own = top(file);
        let path = file.trim_end_matches(".rs");
        let is_test = tests.iter().any(|test| {
            path.strip_prefix(test.as_str())
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        });
        if is_test || !modules.contains(own) {
            continue;
        }
        for name in names(&code(text), path.split('/').count()) {
            if let Some(other) = modules.get(name.as_str()).filter(|other| **other != own) {
                uses.entry(own).or_default().insert(*other);
            }
        }
    }
    uses
}

/// The top-level module that a file belongs to.
fn top(file: &str) -> &str {
    let first = file.split('/').next().unwrap_or_default();
    first.trim_end_matches(".rs")
}

/// The modules in files of their own that a file declares for tests, as paths without `.rs`.
fn test_modules(file: &str, text: &str) -> Vec<String> {
    let within = match file.trim_end_matches(".rs") {
        "lib" | "main" => String::new(),
        module => format!("{module}/"),
    };
    let mut found = Vec::new();
    let mut lines = text.lines().map(str::trim);
    while let Some(line) = lines.next() {
        if line != "#[cfg(test)]" {
            continue;
        }
        let declared = lines
            .next()
            .and_then(|line| line.strip_suffix(';'))
            .unwrap_or_default();
        if let Some(("" | "pub(crate)" | "pub(super)" | "pub", name)) = declared
            .rsplit_once("mod ")
            .map(|(before, name)| (before.trim(), name))
        {
            found.push(format!("{within}{name}"));
        }
    }
    found
}

/// A file without comments and without its tests.
fn code(text: &str) -> String {
    let text = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    let lines = text
        .lines()
        .map(|line| line.split("//").next().unwrap_or_default());
    lines.collect::<Vec<_>>().join("\n")
}

/// The names that code takes from the root of its crate: by `crate::`, or by as many `super::` as the file is deep.
fn names(code: &str, depth: usize) -> Vec<String> {
    let mut found = Vec::new();
    for (root, repeated) in [("crate::", 1), ("super::", depth)] {
        let root = root.repeat(repeated);
        for (at, _) in code.match_indices(&root) {
            let before = code[..at].chars().next_back();
            if before.is_some_and(|c| c == ':' || c == '$' || c.is_alphanumeric() || c == '_') {
                continue;
            }
            found.extend(heads(&code[at + root.len()..]));
        }
    }
    found
}

/// The first names of a path, or of each path in braces.
fn heads(rest: &str) -> Vec<String> {
    let ident = |text: &str| -> String {
        let text = text.trim_start();
        text.chars()
            .take_while(|c| c.is_alphanumeric() || *c == '_')
            .collect()
    };
    let Some(list) = rest.strip_prefix('{') else {
        return vec![ident(rest)];
    };
    let mut found = vec![ident(list)];
    let mut depth = 0;
    for (at, c) in list.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth == 0 => break,
            '}' => depth -= 1,
            ',' if depth == 0 => found.push(ident(&list[at + 1..])),
            _ => {}
        }
    }
    found
}

/// Modules that reach each other, sorted.
fn circles<'a>(uses: &Uses<'a>) -> Vec<Vec<&'a str>> {
    let reach = |from: &'a str| {
        let mut seen = BTreeSet::new();
        let mut open = vec![from];
        while let Some(module) = open.pop() {
            for next in uses.get(module).into_iter().flatten() {
                if seen.insert(*next) {
                    open.push(next);
                }
            }
        }
        seen
    };
    let reached: BTreeMap<&str, BTreeSet<&str>> =
        uses.keys().map(|module| (*module, reach(module))).collect();
    let mut found: BTreeSet<Vec<&str>> = BTreeSet::new();
    for (module, all) in &reached {
        if all.contains(module) {
            let circle = all
                .iter()
                .filter(|other| reached.get(*other).is_some_and(|back| back.contains(module)));
            found.insert(circle.copied().collect());
        }
    }
    found.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(files: &[(&str, &str)], expected: &[&str]) {
        let files: Vec<(&str, String)> = files
            .iter()
            .map(|(file, text)| (*file, (*text).to_string()))
            .collect();
        let found: Vec<String> = circles(&uses(&files))
            .iter()
            .map(|circle| circle.join(" "))
            .collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn circles_are_found() {
        check(&[("a.rs", "use crate::b;"), ("b.rs", "")], &[]);
        check(
            &[("a.rs", "use crate::b;"), ("b.rs", "fn f() { crate::a::g() }")],
            &["a b"],
        );
        check(
            &[
                ("lib.rs", "mod a;\nmod b;\nmod c;\nuse crate::a;"),
                ("a.rs", "use crate::{\n    b::{X, Y},\n    c,\n};"),
                ("b.rs", "pub(crate) use crate::c::Z;"),
                ("c/deep.rs", "type T = crate::a::X;"),
            ],
            &["a b c"],
        );
        check(
            &[
                ("a.rs", "use crate::b::X;"),
                ("b.rs", "use crate::a::X;"),
                ("c.rs", "use crate::{d, a};"),
                ("d/e.rs", "use crate::c;"),
            ],
            &["a b", "c d"],
        );
    }

    #[test]
    fn the_root_is_reached_by_super_too() {
        check(&[("a.rs", "use super::b;"), ("b.rs", "use crate::a;")], &["a b"]);
        check(&[("a/x.rs", "use super::b;"), ("b.rs", "use crate::a;")], &[]);
        check(
            &[("a/x.rs", "use super::super::b;"), ("b.rs", "use crate::a;")],
            &["a b"],
        );
    }

    #[test]
    fn tests_comments_and_other_crates_do_not_count() {
        let other = ("b.rs", "use crate::a;");
        for text in [
            "// crate::b\n//! [`crate::b`]",
            "use other_crate::b; use $crate::b;",
            "#[cfg(test)]\nmod tests {\n    use crate::b;\n}",
        ] {
            check(&[("a.rs", text), other], &[]);
        }
        let tests = "use crate::b;";
        check(
            &[("a.rs", "#[cfg(test)]\nmod tests;"), ("a/tests.rs", tests), other],
            &[],
        );
        check(
            &[
                ("a.rs", "#[cfg(test)]\npub(crate) mod fixture;"),
                ("a/fixture.rs", tests),
                other,
            ],
            &[],
        );
        check(&[("lib.rs", "#[cfg(test)]\nmod a;"), ("a.rs", tests), other], &[]);
        check(&[("a.rs", "mod tests;"), ("a/tests.rs", tests), other], &["a b"]);
    }
}
