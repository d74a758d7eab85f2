//! `docs/compatibility.md` names the tests of its claims: each of them has to be in the tree.
//!
//! A name is what stands in backticks in the column `shown by`, and anywhere in a table what has a `::`: a path (or the end of
//! one) of the repository that holds tests, or a test with the module that it is in,
//! `integration: etcd::replicas_give_a_node_port_once`. A row that works names at least one. A folder that is a crate, or the sources of
//! one, shows nothing in particular, and a test without its module has to be the only one of its name.

use std::collections::{BTreeMap, BTreeSet};

/// The column that names tests.
const COLUMN: &str = "shown by";

/// The tests and modules of the tree.
#[derive(Debug, Default)]
pub(super) struct Tree {
    paths: Vec<String>,
    /// The files that have tests.
    tested: BTreeSet<String>,
    /// The files in which a test of a name is.
    tests: BTreeMap<String, Vec<String>>,
    /// The files in which a module of a name is written out.
    modules: BTreeMap<String, Vec<String>>,
}

impl Tree {
    /// Adds a tracked file.
    pub(super) fn add(&mut self, path: &str, text: &str) {
        self.paths.push(path.to_owned());
        if !path.ends_with(".rs") {
            return;
        }
        let mut is_test = false;
        for line in text.lines().map(str::trim) {
            if line.starts_with("#[") {
                is_test |= line.starts_with("#[test") || line.starts_with("#[tokio::test");
                continue;
            }
            if let Some(name) = word_after(line, "fn ").filter(|_| is_test) {
                self.tested.insert(path.to_owned());
                self.tests.entry(name).or_default().push(path.to_owned());
            }
            if let Some(name) = word_after(line, "mod ") {
                self.modules.entry(name).or_default().push(path.to_owned());
            }
            is_test = false;
        }
    }

    /// Whether there is a test of the name that a row has, or tests in the file, folder or module.
    fn has(&self, name: &str) -> bool {
        // A crate may stand before the name: `integration: interop`.
        let name = name.rsplit_once(": ").map_or(name, |(_, name)| name);
        if name.contains('/') {
            return self.has_path(name.trim_end_matches('/'));
        }
        let (modules, last) = match name.rsplit_once("::") {
            Some((modules, last)) => (modules.split("::").collect(), last),
            None => (Vec::new(), name),
        };
        let nothing = Vec::new();
        let tests = self.tests.get(last).unwrap_or(&nothing);
        let written = self.modules.get(last).unwrap_or(&nothing);
        let written = written.iter().filter(|path| self.is_tested(path));
        let files = self
            .paths
            .iter()
            .filter(|path| in_module(path, last) && self.is_tested(path));
        if modules.is_empty() && tests.len() > 1 {
            return false;
        }
        tests
            .iter()
            .chain(written)
            .chain(files)
            .any(|path| modules.iter().all(|module| self.is_within(path, module)))
    }

    /// Whether a file is in a module, or has it.
    fn is_within(&self, path: &str, module: &str) -> bool {
        let written = self.modules.get(module);
        in_module(path, module) || written.is_some_and(|files| files.iter().any(|file| file == path))
    }

    /// Whether a folder is a crate, or the sources of one.
    fn is_crate(&self, name: &str) -> bool {
        let manifest = format!("/{name}/Cargo.toml");
        let mut paths = self.paths.iter().map(|path| format!("/{path}"));
        name.ends_with("/src") || paths.any(|path| path.ends_with(&manifest))
    }

    /// Whether a file has tests.
    fn is_tested(&self, path: &str) -> bool {
        self.tested.contains(path)
    }

    /// A file, a module or a folder with tests by the end of its path.
    fn has_path(&self, name: &str) -> bool {
        if self.is_crate(name) {
            return false;
        }
        let (file, folder) = (format!("/{name}.rs"), format!("/{name}/"));
        self.paths.iter().any(|path| {
            if !self.is_tested(path) {
                return false;
            }
            let path = format!("/{path}");
            path.ends_with(&format!("/{name}")) || path.ends_with(&file) || path.contains(&folder)
        })
    }
}

/// Whether a module is one of the folders of a path, or its file.
fn in_module(path: &str, module: &str) -> bool {
    path.trim_end_matches(".rs").split('/').any(|part| part == module)
}

/// The word behind a keyword, where a line declares something.
fn word_after(line: &str, keyword: &str) -> Option<String> {
    let at = line.find(keyword)?;
    let before = line[..at].trim_end();
    let declares = ["", "pub", "pub(crate)", "pub(super)", "async", "pub async"].contains(&before);
    let word = line[at + keyword.len()..].split(|c: char| !c.is_alphanumeric() && c != '_');
    word.into_iter().next().filter(|_| declares).map(str::to_owned)
}

/// The names in the tables of which the tree has no test, with their lines; an empty one for a row that works and names none.
pub(super) fn missing(document: &str, tree: &Tree) -> Vec<(usize, String)> {
    let mut out = Vec::new();
    let mut column = None;
    for (index, line) in document.lines().enumerate() {
        if !line.starts_with('|') {
            column = None;
            continue;
        }
        let cells: Vec<&str> = line.trim_matches('|').split(" | ").map(str::trim).collect();
        if column.is_none() {
            column = Some(cells.iter().position(|cell| *cell == COLUMN));
        }
        if let (Some(Some(shown_by)), Some(state)) = (column, cells.get(1))
            && state.starts_with("works")
            && !cells.get(shown_by).is_some_and(|cell| cell.contains('`'))
        {
            out.push((index + 1, String::new()));
        }
        for (at, cell) in cells.iter().enumerate() {
            let is_column = column == Some(Some(at));
            let quoted = cell.split('`').skip(1).step_by(2);
            for name in quoted.filter(|name| is_column || name.contains("::")) {
                if !tree.has(name) {
                    out.push((index + 1, name.to_owned()));
                }
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_in_the_tables_are_looked_for() {
        let mut tree = Tree::default();
        tree.add(
            "test/integration/src/objects.rs",
            "#[tokio::test]\nasync fn a_test() {}\nfn no_test() {}\nmod inner {}\n",
        );
        tree.add("test/integration/Cargo.toml", "");
        tree.add("test/integration/src/folder/one.rs", "#[test]\nfn twice() {}\n");
        tree.add("test/integration/src/folder/other.rs", "#[test]\nfn twice() {}\n");
        #[track_caller]
        fn check(tree: &Tree, cell: &str, expected: &[&str]) {
            let document =
                format!("| feature | state | shown by |\n|---|---|---|\n| a `x::y` | works | {cell} |\n");
            let found = missing(&document, tree);
            let names = expected.iter().filter(|name| name.is_empty()).chain(&["x::y"]);
            let names = names.chain(expected.iter().filter(|name| !name.is_empty()));
            let wanted: Vec<(usize, String)> = names.map(|name| (3, (*name).to_owned())).collect();
            assert_eq!(found, wanted, "{cell}");
        }
        check(&tree, "by hand", &[""]);
        for good in [
            "`objects::a_test`",
            "`a_test`, by hand",
            "`integration: objects::inner`",
            "`integration/src/folder`",
            "`src/objects.rs`",
        ] {
            check(&tree, good, &[]);
        }
        check(&tree, "`test/integration`", &["test/integration"]);
        check(&tree, "`integration/src`", &["integration/src"]);
        check(&tree, "`objects::no_test`", &["objects::no_test"]);
        check(&tree, "`other::a_test`, `gone`", &["other::a_test", "gone"]);
        check(&tree, "`bjects.rs/x`", &["bjects.rs/x"]);
        check(&tree, "`other::twice`", &[]);
        check(&tree, "`twice`", &["twice"]);
        tree.add("src/untested.rs", "fn no_test() {}\n");
        check(&tree, "`src/untested`", &["src/untested"]);
        // Outside of tables everything goes.
        assert!(missing("`x::y`\n", &tree).is_empty());
    }
}
