//! The arrows between modules: which modules of a crate use which, and the circles among them.
//!
//! A crate's modules are layers as its crates are: shared modules lie below their users. This holds among the children of every module:
//! where `a::c` names an item of `a::b`, or of a module within, there is an arrow from `c` to `b`, and the children of `a` must not reach
//! each other in a circle. A name leads to the module that defines it, through every `use` on the way: where `a` has `use b::X`,
//! `super::X` in `a::c` is an arrow from `c` to `b` too.
//!
//! Between a module and its own children there are no arrows: parents are composed of their children, and children may use what
//! their parent's file defines for all of them. Tests may reach anywhere.

mod source;
mod tokens;
mod tree;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use source::{Source, source};
use tree::Tree;

/// Which modules each module uses, among the children of one module, and where.
type Uses<'a> = BTreeMap<&'a str, BTreeMap<&'a str, String>>;

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
        for (parent, circle, arrows) in circles_of(files) {
            let within = if parent.is_empty() {
                String::new()
            } else {
                format!(" of `{parent}`")
            };
            let (circle, arrows) = (circle.join(", "), arrows.join("\n    "));
            faults.push(format!(
                "{folder}: modules{within} use each other in a circle: {circle}\n    {arrows}"
            ));
        }
    }
}

/// The circles in a crate: the parent of the modules, the modules, and the arrows among them with a place of each. Files are named from its
/// `src` on.
fn circles_of(files: &[(&str, String)]) -> Vec<(String, Vec<String>, Vec<String>)> {
    let sources: Vec<(&str, Source<'_>)> = files
        .iter()
        .filter_map(|(file, text)| Some((*file, source(text)?)))
        .collect();
    let tree = Tree::new(sources);
    let found = tree.uses();
    let mut levels: BTreeMap<&[&str], Uses<'_>> = BTreeMap::new();
    for found in &found {
        let shared = found
            .from
            .iter()
            .zip(&found.to)
            .take_while(|(a, b)| a == b)
            .count();
        if let (Some(from), Some(to)) = (found.from.get(shared), found.to.get(shared)) {
            let place = || format!("{}: {}", found.file, found.path.join("::"));
            let uses = levels.entry(&found.from[..shared]).or_default();
            uses.entry(from).or_default().entry(to).or_insert_with(place);
        }
    }
    let mut all = Vec::new();
    for (parent, uses) in levels {
        for circle in circles(&uses) {
            let mut arrows = Vec::new();
            for from in &circle {
                for (to, place) in uses
                    .get(from)
                    .into_iter()
                    .flatten()
                    .filter(|(to, _)| circle.contains(to))
                {
                    arrows.push(format!("{from} -> {to}, {place}"));
                }
            }
            all.push((
                parent.join("::"),
                circle.iter().map(ToString::to_string).collect(),
                arrows,
            ));
        }
    }
    all
}

/// Modules that reach each other, sorted.
fn circles<'a>(uses: &Uses<'a>) -> Vec<Vec<&'a str>> {
    let reach = |from: &'a str| {
        let mut seen = BTreeSet::new();
        let mut open = vec![from];
        while let Some(module) = open.pop() {
            for next in uses.get(module).into_iter().flat_map(BTreeMap::keys) {
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

    /// Checks the circles of a crate. Its root declares the modules that have files, unless it is among them.
    #[track_caller]
    fn check(files: &[(&str, &str)], expected: &[&str]) {
        let mut files: Vec<(&str, String)> = files
            .iter()
            .map(|(file, text)| (*file, (*text).to_string()))
            .collect();
        if !files.iter().any(|(file, _)| *file == "lib.rs") {
            let declared = files
                .iter()
                .filter_map(|(file, _)| file.strip_suffix(".rs"))
                .filter(|module| !module.contains('/'))
                .map(|module| format!("mod {module};"))
                .collect();
            files.push(("lib.rs", declared));
        }
        let found: Vec<String> = circles_of(&files)
            .iter()
            .map(|(parent, circle, _)| match parent.as_str() {
                "" => circle.join(" "),
                parent => format!("{parent}: {}", circle.join(" ")),
            })
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
                ("c.rs", "mod deep;"),
                ("c/deep.rs", "type T = crate::a::X;"),
            ],
            &["a b c"],
        );
        check(
            &[
                ("a.rs", "use crate::b::X;"),
                ("b.rs", "use crate::a::X;"),
                ("c.rs", "use crate::{d, a};"),
                ("d.rs", "mod e;"),
                ("d/e.rs", "use crate::c;"),
            ],
            &["a b", "c d"],
        );
    }

    #[test]
    fn the_root_is_reached_by_super_too() {
        check(&[("a.rs", "use super::b;"), ("b.rs", "use crate::a;")], &["a b"]);
        let (parent, other) = (("a.rs", "mod x;"), ("b.rs", "use crate::a;"));
        check(&[parent, ("a/x.rs", "use super::b;"), other], &[]);
        check(&[parent, ("a/x.rs", "use super::super::b;"), other], &["a b"]);
        check(&[("a.rs", "mod x { use super::super::b; }"), other], &["a b"]);
        check(&[("a.rs", "fn f() { super::b::g() }"), other], &["a b"]);
    }

    #[test]
    fn names_lead_through_the_root() {
        let root = (
            "lib.rs",
            "mod a; mod b; pub use a::X; pub use b::{Y as Z, W}; struct V;",
        );
        check(
            &[root, ("a.rs", "use crate::Z;"), ("b.rs", "use crate::X;")],
            &["a b"],
        );
        check(
            &[
                root,
                ("a.rs", "type T = crate::Z;"),
                ("b.rs", "fn f() { super::X::new() }"),
            ],
            &["a b"],
        );
        check(
            &[root, ("a.rs", "use crate::{W};"), ("b.rs", "use crate::Y;")],
            &[],
        );
        check(&[root, ("a.rs", "use crate::W;"), ("b.rs", "use crate::V;")], &[]);
        // The root's private import is seen by its modules.
        check(
            &[
                ("lib.rs", "mod a; mod b; use b::g;"),
                ("a.rs", "use super::g;"),
                ("b.rs", "use crate::a;"),
            ],
            &["a b"],
        );
        // Through another module, which is used as well.
        check(
            &[
                ("a.rs", "pub use crate::c::X;"),
                ("b.rs", "use crate::a::X;"),
                ("c.rs", "use crate::b;"),
            ],
            &["a b c"],
        );
    }

    #[test]
    fn names_lead_through_globs() {
        let root = ("lib.rs", "mod a; mod b; pub use b::*;");
        let parent = ("b.rs", "mod c; pub use c::*; use super::*;");
        let child = ("b/c.rs", "pub struct X; fn f() { crate::a::g() }");
        check(&[root, ("a.rs", "use crate::X;"), parent, child], &["a b"]);
        check(
            &[root, ("a.rs", "use crate::*; type T = X;"), parent, child],
            &["a b"],
        );
        check(&[root, ("a.rs", "use crate::*; type T = Y;"), parent, child], &[]);
        check(&[root, ("a.rs", "use crate::Y;"), parent, child], &[]);
        check(
            &[root, ("a.rs", "use other_crate::*; type T = X;"), parent, child],
            &[],
        );
    }

    #[test]
    fn circles_are_found_at_every_level() {
        let parent = "mod b; mod c; pub use b::X; fn shared() { c::f() }";
        check(
            &[
                ("a.rs", parent),
                ("a/b.rs", "use super::c::f;"),
                ("a/c.rs", "use super::X;"),
            ],
            &["a: b c"],
        );
        check(
            &[
                ("a.rs", parent),
                ("a/b.rs", "use crate::a::c;"),
                ("a/c.rs", "mod d;"),
                ("a/c/d.rs", "fn f() { super::super::b::g() }"),
            ],
            &["a: b c"],
        );
        check(
            &[("a.rs", "mod b { use super::c; } mod c { use super::b; }")],
            &["a: b c"],
        );
        // An import of a module brings its names.
        check(
            &[
                ("a.rs", parent),
                ("a/b.rs", "use crate::a; fn g() { a::c::f() }"),
                ("a/c.rs", "use super::b;"),
            ],
            &["a: b c"],
        );
        // A parent is composed of its children, which use what it defines.
        check(
            &[
                ("a.rs", parent),
                ("a/b.rs", "use super::shared;"),
                ("a/c.rs", "use crate::a::shared; use super::X;"),
            ],
            &[],
        );
    }

    #[test]
    fn modules_and_items_of_one_name() {
        let root = ("lib.rs", "mod a; mod b; pub use a::a; pub use b::b;");
        check(
            &[root, ("a.rs", "use crate::b;"), ("b.rs", "use crate::a::a;")],
            &["a b"],
        );
        check(&[root, ("a.rs", "use b::b;"), ("b.rs", "use crate::a::a;")], &[]);
        check(
            &[
                root,
                ("a.rs", "fn f(b: B) { b.a::<b>() }"),
                ("b.rs", "use crate::a;"),
            ],
            &[],
        );
    }

    #[test]
    fn tests_comments_and_other_crates_do_not_count() {
        let other = ("b.rs", "use crate::a;");
        for text in [
            "// crate::b\n//! [`crate::b`]",
            "use other_crate::b; use $crate::b;",
            "#[cfg(test)]\nmod tests {\n    use crate::b;\n}",
            "const TEXT: &str = \"crate::b\";",
            "#![cfg(test)]\nuse crate::b;",
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
                ("a/fixture.rs", "mod deep;"),
                ("a/fixture/deep.rs", tests),
                other,
            ],
            &[],
        );
        check(
            &[("lib.rs", "#[cfg(test)]\nmod a; mod b;"), ("a.rs", tests), other],
            &[],
        );
        check(&[("a.rs", "mod tests;"), ("a/tests.rs", tests), other], &["a b"]);
        check(
            &[("a.rs", "#[cfg(any(test, x))] mod y;"), ("a/y.rs", tests), other],
            &["a b"],
        );
    }

    #[test]
    fn imports_in_a_circle_end() {
        check(
            &[
                ("lib.rs", "mod a; mod b; use a::X; pub use b::*;"),
                ("a.rs", "pub use super::X; pub use crate::b::*; type T = Q;"),
                ("b.rs", "pub use crate::a::*; pub use super::*; type T = Q;"),
            ],
            &["a b"],
        );
    }
}
