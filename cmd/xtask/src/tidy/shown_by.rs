//! `docs/compatibility.md` names the tests of its claims: each of them has to be in the tree.
//!
//! A name is what stands in backticks in the column `shown by`, and anywhere in a table what has a `::`: a path (or the end of
//! one) of the repository, or a test with the module that it is in, `integration: etcd::replicas_give_a_node_port_once`.

use std::collections::BTreeMap;

/// The column that names tests.
const COLUMN: &str = "shown by";

/// The tests and modules of the tree.
#[derive(Debug, Default)]
pub(super) struct Tree {
    paths: Vec<String>,
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
                self.tests.entry(name).or_default().push(path.to_owned());
            }
            if let Some(name) = word_after(line, "mod ") {
                self.modules.entry(name).or_default().push(path.to_owned());
            }
            is_test = false;
        }
    }

    /// Whether what a row names is there.
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
        let files = self.paths.iter().filter(|path| in_module(path, last));
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

    /// A file, a module or a folder by the end of its path.
    fn has_path(&self, name: &str) -> bool {
        let (file, folder) = (format!("/{name}.rs"), format!("/{name}/"));
        self.paths.iter().any(|path| {
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

/// The names in the tables that are nowhere in the tree, with their lines.
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
        #[track_caller]
        fn check(tree: &Tree, cell: &str, expected: &[&str]) {
            let document =
                format!("| feature | state | shown by |\n|---|---|---|\n| a `x::y` | works | {cell} |\n");
            let found = missing(&document, tree);
            let mut wanted = vec![(3, "x::y".to_owned())];
            wanted.extend(expected.iter().map(|name| (3, (*name).to_owned())));
            assert_eq!(found, wanted, "{cell}");
        }
        for good in [
            "",
            "`objects::a_test`",
            "`a_test`, by hand",
            "`integration: objects::inner`",
            "`integration/src`",
            "`src/objects.rs`",
        ] {
            check(&tree, good, &[]);
        }
        check(&tree, "`objects::no_test`", &["objects::no_test"]);
        check(&tree, "`other::a_test`, `gone`", &["other::a_test", "gone"]);
        check(&tree, "`bjects.rs/x`", &["bjects.rs/x"]);
        // Outside of tables everything goes.
        assert!(missing("`x::y`\n", &tree).is_empty());
    }
}
