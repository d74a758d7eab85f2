//! The gate: what must pass before a change lands, the same here and in CI.

use std::path::Path;
use std::process::Command;

use crate::{codegen, say, supply, tidy};

/// Tools that some tests need, and what is not tested without them.
const TOOLS: &[(&str, &str)] = &[
    ("etcd", "the etcd engine against a real etcd"),
    ("kubectl", "an unmodified kubectl against a running server"),
];

/// Formatting, dependencies, lints, repository rules, generated files, then all tests.
pub(crate) fn ci(root: &Path) -> Result<(), String> {
    step("formatting", || cargo(root, &["fmt", "--all", "--check"]))?;
    step("dependencies", || supply::check(root))?;
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
    step("repository rules", || tidy::run(root))?;
    step("generated files", || codegen::run(root, true))?;
    test(root, &[])
}

/// All tests; `args` go to the test runner. Its lines end the output, so the error is empty.
pub(crate) fn test(root: &Path, args: &[&str]) -> Result<(), String> {
    for (tool, what) in TOOLS {
        if !on_path(tool) {
            say(&format!("SKIPPED: {what}: there is no `{tool}` on the PATH"));
        }
    }
    say("==> tests");
    let mut command = vec!["test", "--workspace", "--locked", "--no-fail-fast"];
    command.extend(args);
    cargo(root, &command).map_err(|_| String::new())
}

fn step(name: &str, run: impl FnOnce() -> Result<(), String>) -> Result<(), String> {
    say(&format!("==> {name}"));
    run().map_err(|error| format!("{name}: {error}"))
}

pub(crate) fn cargo(root: &Path, args: &[&str]) -> Result<(), String> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let status = Command::new(cargo)
        .args(args)
        .current_dir(root)
        .status()
        .map_err(|error| format!("cannot run cargo: {error}"))?;
    if status.success() {
        Ok(())
    } else {
        Err(format!("cargo {} failed", args.first().unwrap_or(&"")))
    }
}

fn on_path(tool: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|dir| dir.join(tool).is_file())
}
