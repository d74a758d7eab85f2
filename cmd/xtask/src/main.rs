//! Repository chores as code: `cargo xtask <ci | test | deny | tidy | docs | codegen [--check]>`.

mod ci;
mod codegen;
mod docs;
mod modules;
mod supply;
mod tidy;
mod unused;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

const USAGE: &str = "usage: cargo xtask <command>
  ci                  formatting, dependencies, lints, documentation, repository rules, generated files, tests
  test [ARGS]         all tests; ARGS go to cargo test
  deny                what is depended on: bans, licences, sources, and advisories as new as the network lets them be
  tidy                the repository's own rules
  docs                check the links of the documents, and build the book with mdbook
  codegen [--check]   write the facts about built-in types, or check that they are up to date";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    let root = root();
    let result = match words.as_slice() {
        ["ci"] => ci::ci(&root),
        ["test", args @ ..] => ci::test(&root, args),
        ["deny"] => supply::check(&root).map(|skipped| say(&ci::skipped_checks(&skipped))),
        ["tidy"] => tidy::run(&root),
        ["docs"] => tidy::tracked_files(&root).and_then(|files| docs::run(&root, &files)),
        ["codegen"] => codegen::run(&root, false),
        ["codegen", "--check"] => codegen::run(&root, true),
        _ => Err(USAGE.to_owned()),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // The test runner has said it all.
            if !error.is_empty() {
                say(&format!("xtask: {error}"));
            }
            ExitCode::FAILURE
        }
    }
}

/// The workspace's root.
fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).unwrap_or(here).to_path_buf()
}

/// Speaks to the terminal.
#[expect(clippy::print_stderr, reason = "a command line tool speaks to its terminal")]
fn say(message: &str) {
    eprintln!("{message}");
}

/// Runs cargo in the repository.
fn cargo(root: &Path, args: &[&str]) -> Result<(), String> {
    cargo_with(root, args, &[])
}

/// Runs cargo with more variables in its environment.
fn cargo_with(root: &Path, args: &[&str], variables: &[(&str, &str)]) -> Result<(), String> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let status = std::process::Command::new(cargo)
        .args(args)
        .envs(variables.iter().copied())
        .current_dir(root)
        .status()
        .map_err(|error| format!("cannot run cargo: {error}"))?;
    if status.success() {
        Ok(())
    } else {
        Err(format!("cargo {} failed", args.first().unwrap_or(&"")))
    }
}
