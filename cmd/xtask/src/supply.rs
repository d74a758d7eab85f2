//! The dependencies: `cargo deny` with the repository's `deny.toml`.
//!
//! Bans, licences and sources are always checked, and need nothing but the lock file. Advisories need their database, which a gate without
//! a way to it does not have: then it says that they were not checked.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::{cargo, say};

/// The version that is installed where there is none. `deny.toml` is written for it.
const VERSION: &str = "0.20.2";

/// Checks the dependencies.
pub(crate) fn check(root: &Path) -> Result<(), String> {
    let program = installed(root)?;
    let deny = |checks: &[&str]| {
        let status = Command::new(&program)
            .args([
                "--all-features",
                "--locked",
                "--offline",
                "check",
                "--hide-inclusion-graph",
            ])
            .args(["--allow", "duplicate", "--allow", "license-not-encountered"])
            .args(checks)
            .current_dir(root)
            .status()
            .map_err(|error| format!("cannot run {}: {error}", program.display()))?;
        if status.success() {
            Ok(())
        } else {
            Err(format!("cargo deny check {} failed", checks.join(" ")))
        }
    };
    // Licences are read from the crates themselves, those for other systems included.
    cargo(root, &["fetch", "--locked"])?;
    deny(&["bans", "licenses", "sources"])?;
    if has_advisories() {
        return deny(&["advisories"]);
    }
    say(
        "NOT CHECKED: advisories of the dependencies: there is no database (`cargo deny fetch db` brings it)",
    );
    Ok(())
}

/// The program, built once into `target/`: it is a tool of the repository, and nothing of the machine's is needed or changed.
fn installed(root: &Path) -> Result<PathBuf, String> {
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
    let tools = target.join("tools");
    let program = tools.join("bin").join("cargo-deny");
    if is_wanted(&program) {
        return Ok(program);
    }
    if let Some(found) = on_path().filter(|found| is_wanted(found)) {
        return Ok(found);
    }
    say(&format!("building cargo-deny {VERSION}, once"));
    let tools = tools.to_string_lossy().into_owned();
    // Unoptimized: it runs for seconds, and an optimized build takes minutes more.
    cargo(
        root,
        &[
            "install",
            "cargo-deny",
            "--locked",
            "--debug",
            "--config",
            "profile.dev.debug=0",
            "--force",
            "--version",
            VERSION,
            "--root",
            &tools,
        ],
    )?;
    Ok(program)
}

fn is_wanted(program: &Path) -> bool {
    let output = Command::new(program).arg("--version").output();
    output.is_ok_and(|output| String::from_utf8_lossy(&output.stdout).trim().ends_with(VERSION))
}

fn on_path() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .map(|directory| directory.join("cargo-deny"))
        .find(|file| file.is_file())
}

/// Whether an advisory database has been fetched.
fn has_advisories() -> bool {
    let home = std::env::var_os("CARGO_HOME")
        .map(PathBuf::from)
        .or_else(|| std::env::home_dir().map(|home| home.join(".cargo")));
    let databases = home.map(|home| home.join("advisory-dbs"));
    databases
        .is_some_and(|directory| std::fs::read_dir(directory).is_ok_and(|mut files| files.next().is_some()))
}
