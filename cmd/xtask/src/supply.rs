//! The dependencies: `cargo deny` with the repository's `deny.toml`.
//!
//! Bans, licences and sources are always checked, and need nothing but the lock file. Advisories need their database, which is brought up
//! to date first. Where there is no way to it, a copy from before is used; without one the check is listed among those that were skipped.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant, SystemTime};

use crate::{cargo, say};

/// Where the advisories come from, as `cargo deny` has it.
const ADVISORIES: &str = "https://github.com/RustSec/advisory-db";
/// How long the source has to show that there is a way to it.
const REACH_TIMEOUT: Duration = Duration::from_secs(20);

/// The version that is installed where there is none. `deny.toml` is written for it.
const VERSION: &str = "0.20.2";

/// Checks the dependencies. Gives the checks that were skipped, each with the reason.
pub(crate) fn check(root: &Path) -> Result<Vec<String>, String> {
    let program = installed(root)?;
    let run = |args: &[&str], what: &str| {
        let status = Command::new(&program)
            .args(args)
            .current_dir(root)
            .status()
            .map_err(|error| format!("cannot run {}: {error}", program.display()))?;
        match status.success() {
            true => Ok(()),
            false => Err(format!("cargo deny {what} failed")),
        }
    };
    let deny = |checks: &[&str]| {
        let mut args = vec![
            "--all-features",
            "--locked",
            "--offline",
            "check",
            "--hide-inclusion-graph",
            "--allow",
            "duplicate",
            "--allow",
            "license-not-encountered",
        ];
        args.extend(checks);
        run(&args, &format!("check {}", checks.join(" ")))
    };
    // Licences are read from the crates themselves, those for other systems included.
    cargo(root, &["fetch", "--locked"])?;
    deny(&["bans", "licenses", "sources"])?;
    match advisories(is_reachable(ADVISORIES), fetched()) {
        Advisories::Fetch => run(&["fetch", "db"], "fetch db")?,
        Advisories::Use(age) => say(&format!(
            "{ADVISORIES} cannot be reached: advisories are those of {} ago",
            in_words(age)
        )),
        Advisories::Skip => {
            return Ok(vec![format!(
                "advisories of the dependencies: {ADVISORIES} cannot be reached, and no copy is there"
            )]);
        }
    }
    deny(&["advisories"])?;
    Ok(Vec::new())
}

/// What to do about the database of advisories.
#[derive(Debug, PartialEq, Eq)]
enum Advisories {
    Fetch,
    /// The copy that was fetched so long ago.
    Use(Duration),
    Skip,
}

fn advisories(reachable: bool, fetched: Option<Duration>) -> Advisories {
    match (reachable, fetched) {
        (true, _) => Advisories::Fetch,
        (false, Some(age)) => Advisories::Use(age),
        (false, None) => Advisories::Skip,
    }
}

/// Whether git finds a repository at a URL: with its proxies and certificates, and in a bounded time. A fetch that fails although it does is
/// a failure.
fn is_reachable(url: &str) -> bool {
    let asked = Command::new("git")
        .args(["ls-remote", "--exit-code", url, "HEAD"])
        .env("GIT_TERMINAL_PROMPT", "0")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    let Ok(mut asked) = asked else { return false };
    let until = Instant::now() + REACH_TIMEOUT;
    loop {
        match asked.try_wait() {
            Ok(Some(status)) => return status.success(),
            Ok(None) if Instant::now() < until => std::thread::sleep(Duration::from_millis(50)),
            Ok(None) | Err(_) => break,
        }
    }
    let _ = asked.kill();
    let _ = asked.wait();
    false
}

/// An age in its largest unit.
fn in_words(age: Duration) -> String {
    let hours = age.as_secs() / 3600;
    match hours {
        0..48 => format!("{hours} hours"),
        _ => format!("{} days", hours / 24),
    }
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

/// How long ago the newest database of advisories was fetched.
fn fetched() -> Option<Duration> {
    let home = std::env::var_os("CARGO_HOME")
        .map(PathBuf::from)
        .or_else(|| std::env::home_dir().map(|home| home.join(".cargo")));
    age_of(&home?.join("advisory-dbs"))
}

/// The age of the newest database in a directory.
fn age_of(databases: &Path) -> Option<Duration> {
    let modified = |file: PathBuf| file.metadata().ok()?.modified().ok();
    let times = std::fs::read_dir(databases)
        .ok()?
        .flatten()
        .filter(|entry| entry.path().is_dir())
        .filter_map(|entry| {
            let head = entry.path().join(".git").join("FETCH_HEAD");
            modified(head).or_else(|| modified(entry.path()))
        });
    let newest = times.max()?;
    Some(SystemTime::now().duration_since(newest).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn advisories_are_fetched_or_taken_from_before_or_skipped() {
        let age = Duration::from_secs(7200);
        assert_eq!(advisories(true, None), Advisories::Fetch);
        assert_eq!(advisories(true, Some(age)), Advisories::Fetch);
        assert_eq!(advisories(false, Some(age)), Advisories::Use(age));
        assert_eq!(advisories(false, None), Advisories::Skip);
        assert_eq!(in_words(age), "2 hours");
        assert_eq!(in_words(Duration::from_secs(50 * 3600)), "2 days");
    }

    #[test]
    fn what_is_no_repository_is_not_reachable() {
        let nothing = std::env::temp_dir().join(format!("no-repository-{}", std::process::id()));
        assert!(!is_reachable(&nothing.to_string_lossy()));
        assert!(!is_reachable("https://127.0.0.1:1/advisories"));
    }

    #[test]
    fn the_newest_database_counts() {
        let directory = std::env::temp_dir().join(format!("advisories-{}", std::process::id()));
        assert_eq!(age_of(&directory), None);
        std::fs::create_dir_all(&directory).expect("a temporary directory");
        assert_eq!(age_of(&directory), None);
        // A lock beside the databases is none.
        std::fs::write(directory.join("db.lock"), "").expect("a file");
        assert_eq!(age_of(&directory), None);
        let git = directory.join("db-1").join(".git");
        std::fs::create_dir_all(&git).expect("a directory");
        let head = std::fs::File::create(git.join("FETCH_HEAD")).expect("a file");
        let two_days = Duration::from_secs(48 * 3600);
        head.set_modified(SystemTime::now() - two_days).expect("a time");
        let age = age_of(&directory).expect("an age");
        let _ = std::fs::remove_dir_all(&directory);
        assert!(age >= two_days && age < two_days * 2, "{age:?}");
    }
}
