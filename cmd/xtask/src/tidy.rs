//! Rules of the repository that no compiler checks: which crate may depend on which, circles of modules, lint inheritance, links,
//! file sizes, tests beside kinds, tests of bounds.

mod bounds;
mod kinds;
mod shown_by;

use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::{docs, unused};

/// The longest a source file may be before it wants splitting.
const LONGEST_FILE: usize = 900;

/// The page of supported behaviour, with the tests that show it.
const COMPATIBILITY: &str = "docs/compatibility.md";

/// Which workspace crates each layer may depend on. A crate that is not listed is a tool or a test and may use any.
const ARROWS: &[(&str, &[&str])] = &[
    ("go-text", &[]),
    ("storage", &["go-text"]),
    ("machinery", &["go-text"]),
    ("kube-cel", &["go-text"]),
    ("generic-server", &["machinery", "kube-cel", "storage"]),
    ("kube-apiserver", SERVER),
    ("apiextensions-server", SERVER),
    ("aggregator", SERVER),
    (
        "control-plane",
        &[
            "aggregator",
            "kube-apiserver",
            "apiextensions-server",
            "generic-server",
            "machinery",
            "kube-cel",
            "storage",
        ],
    ),
];

/// The three servers know the library and never each other.
const SERVER: &[&str] = &["generic-server", "machinery", "kube-cel", "storage"];

/// Checks all rules; the error lists every fault.
pub(crate) fn run(root: &Path) -> Result<(), String> {
    let mut faults = Vec::new();
    let tracked = tracked_files(root)?;
    members(root, &tracked, &mut faults)?;
    let mut tree = shown_by::Tree::default();
    let mut bounds = bounds::Bounds::default();
    crate::modules::check(root, &tracked, &mut faults);
    docs::check(root, &tracked, &mut faults);
    for name in tracked {
        let path = root.join(&name);
        let Ok(text) = std::fs::read_to_string(&path) else {
            continue;
        };
        file(&name, &text, &mut faults);
        faults.extend(kinds::fault(&name, &text));
        tree.add(&name, &text);
        bounds.add(&name, &text);
    }
    faults.extend(bounds.faults());
    let document = std::fs::read_to_string(root.join(COMPATIBILITY)).unwrap_or_default();
    for (line, name) in shown_by::missing(&document, &tree) {
        faults.push(match name.is_empty() {
            true => format!("{COMPATIBILITY}:{line}: a row that works names no test"),
            false => format!("{COMPATIBILITY}:{line}: `{name}` is no test, and no file or module with tests"),
        });
    }
    if faults.is_empty() {
        return Ok(());
    }
    faults.sort();
    Err(format!("tidy:\n  {}", faults.join("\n  ")))
}

fn members(root: &Path, files: &[String], faults: &mut Vec<String>) -> Result<(), String> {
    let metadata: Value = serde_json::from_str(&output(
        root,
        "cargo",
        &["metadata", "--format-version", "1", "--no-deps", "--locked"],
    )?)
    .map_err(|error| format!("cargo metadata: {error}"))?;
    let packages = metadata["packages"].as_array().map_or(&[][..], Vec::as_slice);
    let names: Vec<&str> = packages.iter().filter_map(|p| p["name"].as_str()).collect();
    for package in packages {
        let name = package["name"].as_str().unwrap_or_default();
        let allowed = ARROWS.iter().find(|(known, _)| *known == name).map(|(_, to)| *to);
        for dependency in package["dependencies"].as_array().into_iter().flatten() {
            let target = dependency["name"].as_str().unwrap_or_default();
            // Tests may reach further than the code they test.
            let is_test = dependency["kind"] == "dev";
            if names.contains(&target)
                && !is_test
                && allowed.is_some_and(|allowed| !allowed.contains(&target))
            {
                faults.push(format!("{name} must not depend on {target}"));
            }
        }
        unused::check(root, package, files, faults);
        let manifest = package["manifest_path"].as_str().unwrap_or_default();
        let text = std::fs::read_to_string(manifest).unwrap_or_default();
        if !inherits_lints(&text) {
            faults.push(format!("{name}: its Cargo.toml lacks `[lints] workspace = true`"));
        }
    }
    Ok(())
}

fn inherits_lints(manifest: &str) -> bool {
    manifest
        .split("\n[")
        .any(|section| section.starts_with("lints]") && section.contains("workspace = true"))
}

fn file(name: &str, text: &str, faults: &mut Vec<String>) {
    let source = Path::new(name).extension().is_some_and(|e| e == "rs");
    let lines = text.lines().count();
    if source && lines > LONGEST_FILE {
        faults.push(format!("{name} has {lines} lines: split it along its nouns"));
    }
    if source && Path::new(name).file_name().is_some_and(|file| file == "mod.rs") {
        faults.push(format!("{name}: a module is `foo.rs` beside `foo/`"));
    }
    for (index, line) in text.lines().enumerate() {
        if let Some(path) = machine_path(line) {
            faults.push(format!(
                "{name}:{}: names a path of one machine: {path}",
                index + 1
            ));
        }
    }
    if name == "Cargo.lock" {
        for line in text.lines().filter(|line| line.starts_with("source = ")) {
            if !line.contains("github.com/rust-lang/crates.io-index") {
                faults.push(format!("Cargo.lock: not from crates.io: {line}"));
            }
        }
    }
}

/// A home or work folder of one person or machine.
fn machine_path(line: &str) -> Option<&str> {
    // Written in two parts, so that this file does not find itself.
    let folders = [
        concat!("/ho", "me/"),
        concat!("/Us", "ers/"),
        concat!("/wo", "rk/"),
    ];
    folders.into_iter().find(|folder| {
        line.match_indices(folder)
            .any(|(at, _)| at == 0 || line[..at].ends_with(['"', '\'', '`', ' ', '=', '(', ':']))
    })
}

pub(crate) fn tracked_files(root: &Path) -> Result<Vec<String>, String> {
    Ok(output(root, "git", &["ls-files"])?
        .lines()
        .map(str::to_owned)
        .collect())
}

fn output(root: &Path, program: &str, args: &[&str]) -> Result<String, String> {
    let output = Command::new(program)
        .args(args)
        .current_dir(root)
        .output()
        .map_err(|error| format!("cannot run {program}: {error}"))?;
    if !output.status.success() {
        return Err(format!(
            "{program} {} failed: {}",
            args.join(" "),
            String::from_utf8_lossy(&output.stderr)
        ));
    }
    String::from_utf8(output.stdout).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lints_are_inherited_or_not() {
        assert!(inherits_lints(
            "[package]\nname = \"a\"\n\n[lints]\nworkspace = true\n"
        ));
        assert!(!inherits_lints("[package]\nversion.workspace = true\n"));
        assert!(!inherits_lints(
            "[lints]\nrust = 1\n[dependencies]\nx.workspace = true\n"
        ));
    }

    #[test]
    fn machine_paths_are_distinguished() {
        let work = format!("x = \"{}a\"", concat!("/wo", "rk/"));
        assert!(machine_path(&work).is_some());
        assert!(machine_path("https://e.com/work/a").is_none());
        assert!(machine_path("docs/concepts/work").is_none());
    }

    #[test]
    fn every_crate_in_the_rules_is_one() {
        let known: Vec<&str> = ARROWS.iter().map(|(name, _)| *name).collect();
        for (_, targets) in ARROWS {
            assert!(targets.iter().all(|target| known.contains(target)));
        }
    }
}
