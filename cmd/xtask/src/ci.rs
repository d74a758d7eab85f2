//! The gate: the checks that must pass before a change lands, the same here and in CI.

use std::collections::BTreeSet;
use std::path::Path;

use crate::{cargo, cargo_with, codegen, say, supply, tidy};

/// The variable that names the file in which tests list themselves when a program is not installed (`test/tools`).
const SKIPPED: &str = "SKIPPED_TESTS";

/// Formatting, dependencies, lints, documentation, repository rules, generated files, then all tests.
pub(crate) fn ci(root: &Path) -> Result<(), String> {
    step("formatting", || cargo(root, &["fmt", "--all", "--check"]))?;
    let mut skipped = Vec::new();
    step("dependencies", || {
        skipped = supply::check(root)?;
        Ok(())
    })?;
    step("lints", || {
        cargo(
            root,
            &[
                "clippy",
                "--workspace",
                "--all-targets",
                "--locked",
                "--",
                "-D",
                "warnings",
            ],
        )
    })?;
    step("documentation", || document(root))?;
    step("repository rules", || tidy::run(root))?;
    step("generated files", || codegen::run(root, true))?;
    let tested = test(root, &[]);
    say(&skipped_checks(&skipped));
    tested
}

/// Builds the documentation of the public items; a broken or private link fails.
fn document(root: &Path) -> Result<(), String> {
    let args = ["doc", "--workspace", "--no-deps", "--locked"];
    cargo_with(root, &args, &[("RUSTDOCFLAGS", "-D warnings")])
}

/// All tests, then a list of those that were skipped; `args` go to the test runner. Failures are in its output, so the error is
/// empty.
pub(crate) fn test(root: &Path, args: &[&str]) -> Result<(), String> {
    say("==> tests");
    let mut command = vec!["test", "--workspace", "--locked", "--no-fail-fast"];
    command.extend(args);
    let name = format!("skipped-tests-{}", std::process::id());
    let list = std::env::temp_dir().join(name);
    let outcome = cargo_with(root, &command, &[(SKIPPED, &list.to_string_lossy())]);
    // There is no file where nothing was skipped.
    let lines = std::fs::read_to_string(&list).unwrap_or_default();
    let _ = std::fs::remove_file(&list);
    say(&summary(&lines));
    outcome.map_err(|_| String::new())
}

/// How many tests were skipped, which, and why.
fn summary(lines: &str) -> String {
    let tests: BTreeSet<&str> = lines.lines().collect();
    let mut text = format!("==> {} tests skipped for want of a program", tests.len());
    for test in tests {
        text.push_str("\n    ");
        text.push_str(test);
    }
    text
}

/// How many checks were skipped, which, and why.
pub(crate) fn skipped_checks(skipped: &[String]) -> String {
    let mut text = format!("==> {} checks skipped for want of a network", skipped.len());
    for check in skipped {
        text.push_str("\n    ");
        text.push_str(check);
    }
    text
}

fn step(name: &str, run: impl FnOnce() -> Result<(), String>) -> Result<(), String> {
    say(&format!("==> {name}"));
    run().map_err(|error| format!("{name}: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn skipped_checks_are_counted_and_listed() {
        assert_eq!(skipped_checks(&[]), "==> 0 checks skipped for want of a network");
        assert_eq!(
            skipped_checks(&["advisories: no way".to_string()]),
            "==> 1 checks skipped for want of a network\n    advisories: no way"
        );
    }

    #[test]
    fn skipped_tests_are_counted_and_listed_once() {
        assert_eq!(summary(""), "==> 0 tests skipped for want of a program");
        assert_eq!(
            summary("b: no `etcd`\na: no `etcd`\nb: no `etcd`\n"),
            "==> 2 tests skipped for want of a program\n    a: no `etcd`\n    b: no `etcd`"
        );
    }
}
