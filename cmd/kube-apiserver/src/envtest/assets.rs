//! `kube-apiserver envtest-assets`: the directory that `KUBEBUILDER_ASSETS` names.

use std::ffi::OsString;
use std::io::Write as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};

use clap::Parser;

use crate::StartError;

/// Names what this command has made, which it may replace.
const MARKER: &str = ".kube-apiserver-envtest";

/// Writes the directory that controller-runtime's envtest wants in KUBEBUILDER_ASSETS, and prints its path: kube-apiserver, a stand-in for
/// etcd, and the kubectl of the PATH.
#[derive(Debug, Parser)]
#[command(name = "envtest-assets", bin_name = "kube-apiserver envtest-assets")]
pub struct AssetsCommand {
    /// The directory; by default kube-apiserver/envtest in the user's cache directory.
    dir: Option<PathBuf>,
    /// Copies this program, and kubectl, rather than linking to them: for a directory that is moved to another machine.
    #[arg(long)]
    copy: bool,
}

/// What was written.
#[derive(Debug)]
pub struct Assets {
    /// The value for `KUBEBUILDER_ASSETS`, absolute.
    pub directory: PathBuf,
    /// What the user ought to know beside it.
    pub notes: Vec<String>,
}

impl AssetsCommand {
    /// Writes them. What is there already and was not written by this command is never replaced.
    ///
    /// # Errors
    /// When the directory cannot be made or written to, or holds programs of others by these names.
    pub fn run(self) -> Result<Assets, StartError> {
        let program = std::env::current_exe()
            .ok()
            .filter(|program| program.exists())
            .ok_or_else(|| {
                StartError::Assets("the file of this program is gone: call it again by its new path".into())
            })?;
        self.write(&program, std::env::var_os("PATH"))
    }

    fn write(self, program: &Path, path: Option<OsString>) -> Result<Assets, StartError> {
        let given = match self.dir {
            Some(dir) => dir,
            None => cache_directory()?,
        };
        let failed = |what: &str, error: std::io::Error| {
            StartError::Assets(format!("cannot {what} {}: {error}", given.display()))
        };
        let directory = std::path::absolute(&given).map_err(|error| failed("use the directory", error))?;
        std::fs::create_dir_all(&directory).map_err(|error| match directory.is_file() {
            true => StartError::Assets(format!("{} is a file: name a directory", given.display())),
            false => failed("make the directory", error),
        })?;
        let owner = std::fs::metadata(&directory).map_err(|error| failed("use the directory", error))?;
        if owner.uid() != rustix::process::geteuid().as_raw() {
            return Err(StartError::Assets(format!(
                "{} is another user's: name another directory",
                given.display()
            )));
        }
        let kubectl = kubectl(path, &directory);
        let own = match self.copy {
            // The directory can be moved.
            true => Entry::Link("kube-apiserver".into()),
            false => Entry::Link(program.into()),
        };
        let entry = |program: &Path| match self.copy {
            true => Entry::Copy(program.into()),
            false => Entry::Link(program.into()),
        };
        let mut entries = vec![("kube-apiserver", entry(program)), ("etcd", own)];
        entries.extend(kubectl.as_deref().map(|kubectl| ("kubectl", entry(kubectl))));
        // Called from there, it is what would be written.
        entries.retain(|(name, _)| directory.join(name) != program);
        write(&directory, &entries)?;
        let mut notes = Vec::new();
        if kubectl.is_none() {
            let directory = directory.display();
            notes.push(format!(
                "no kubectl is in the PATH: {directory} has none, and tests that call it fail"
            ));
        }
        Ok(Assets { directory, notes })
    }
}

/// One program of the directory.
#[derive(Debug)]
enum Entry {
    Link(PathBuf),
    Copy(PathBuf),
}

impl Entry {
    /// How it is noted by its name.
    fn line(&self, name: &str) -> String {
        match self {
            Entry::Link(to) => format!("{name} -> {}", to.display()),
            Entry::Copy(_) => name.to_string(),
        }
    }

    fn make(&self, at: &Path) -> std::io::Result<()> {
        match self {
            Entry::Link(to) => symlink(to, at),
            Entry::Copy(from) => std::fs::copy(from, at).map(drop),
        }
    }
}

/// Writes all of them, or none when one would replace what others have written.
fn write(directory: &Path, entries: &[(&str, Entry)]) -> Result<(), StartError> {
    let marker = directory.join(MARKER);
    let noted = std::fs::read_to_string(&marker).unwrap_or_default();
    for (name, wanted) in entries {
        let place = directory.join(name);
        let own = noted.lines().chain([&*wanted.line(name)]).any(|line| {
            let is = std::fs::read_link(&place)
                .map_or_else(|_| (*name).to_string(), |to| Entry::Link(to).line(name));
            line == is
        });
        if !own && std::fs::symlink_metadata(&place).is_ok() {
            return Err(StartError::Assets(format!(
                "{} is there and was not written by this command: remove it, or name another directory",
                place.display()
            )));
        }
    }
    let names: Vec<&str> = entries.iter().map(|(name, _)| *name).collect();
    let others = noted
        .lines()
        .filter(|line| !names.contains(&line.split(' ').next().unwrap_or_default()));
    let lines = entries.iter().map(|(name, entry)| entry.line(name));
    let after: Vec<String> = others.map(str::to_string).chain(lines).collect();
    // Before the programs, too: those of a run that is interrupted are known.
    note(&marker, noted.lines().chain(after.iter().map(String::as_str)))?;
    for (name, entry) in entries {
        put(&directory.join(name), |temporary| entry.make(temporary))?;
    }
    note(&marker, after.iter().map(String::as_str))
}

/// Writes down what is this command's.
fn note<'l>(marker: &Path, lines: impl Iterator<Item = &'l str>) -> Result<(), StartError> {
    let text: String = lines.flat_map(|line| [line, "\n"]).collect();
    put(marker, |temporary| {
        let mut file = std::fs::File::options();
        file.write(true)
            .create_new(true)
            .open(temporary)?
            .write_all(text.as_bytes())
    })
}

/// Makes a file beside its place and moves it there: a test that starts meanwhile finds the old or the new one, and a link that is there is
/// replaced rather than followed.
fn put(place: &Path, make: impl FnOnce(&Path) -> std::io::Result<()>) -> Result<(), StartError> {
    let name = place.file_name().unwrap_or_default().to_string_lossy();
    let temporary = place.with_file_name(format!(".{name}.{}", uuid::Uuid::new_v4()));
    let made = make(&temporary).and_then(|()| std::fs::rename(&temporary, place));
    made.map_err(|error| {
        // It may not have been made.
        let _ = std::fs::remove_file(&temporary);
        cannot_write(place, &error)
    })
}

fn cannot_write(place: &Path, error: &std::io::Error) -> StartError {
    StartError::Assets(format!("cannot write {}: {error}", place.display()))
}

/// The user's own directory for what can be made again.
fn cache_directory() -> Result<PathBuf, StartError> {
    let base = std::env::var_os("XDG_CACHE_HOME")
        .map(PathBuf::from)
        .filter(|dir| dir.is_absolute())
        .or_else(|| std::env::home_dir().map(|home| home.join(".cache")));
    base.map(|dir| dir.join("kube-apiserver/envtest"))
        .ok_or_else(|| StartError::Assets("there is no home directory: name a directory".into()))
}

/// The first kubectl of a search path that is not in the directory itself.
fn kubectl(path: Option<OsString>, directory: &Path) -> Option<PathBuf> {
    let own = directory.canonicalize().ok();
    std::env::split_paths(&path?)
        .filter(|dir| dir.is_absolute() && dir.canonicalize().ok() != own)
        .map(|dir| dir.join("kubectl"))
        .find(|file| {
            std::fs::metadata(file)
                .is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
        })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn program(dir: &Path, name: &str, content: &str) -> PathBuf {
        let file = dir.join(name);
        std::fs::create_dir_all(dir).expect("made");
        std::fs::write(&file, content).expect("written");
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755)).expect("allowed");
        file
    }

    fn command(dir: &Path, copy: bool) -> AssetsCommand {
        AssetsCommand {
            dir: Some(dir.into()),
            copy,
        }
    }

    fn read(dir: &Path) -> Vec<String> {
        let content = |name: &str| std::fs::read_to_string(dir.join(name)).unwrap_or_default();
        ["kube-apiserver", "etcd", "kubectl"].map(content).into()
    }

    #[test]
    fn links_and_copies_replace_each_other_and_nothing_else() {
        let parent = tempfile::tempdir().expect("a directory");
        let own = program(&parent.path().join("bin"), "own", "v1");
        program(&parent.path().join("a b"), "kubectl", "k");
        let path = Some(parent.path().join("a b").into_os_string());
        let dir = parent.path().join("the assets");
        let write = |copy| command(&dir, copy).write(&own, path.clone()).expect("written");

        let written = write(false);
        assert_eq!(
            (written.directory.as_path(), written.notes.len()),
            (dir.as_path(), 0)
        );
        assert_eq!(read(&dir), ["v1", "v1", "k"]);
        // Links follow a new build, copies do not.
        std::fs::write(&own, "v2").expect("written");
        assert_eq!(read(&dir), ["v2", "v2", "k"]);
        write(true);
        std::fs::remove_file(&own).expect("removed");
        let moved = parent.path().join("moved");
        std::fs::rename(&dir, &moved).expect("moved");
        assert_eq!(read(&moved), ["v2", "v2", "k"]);
        std::fs::rename(&moved, &dir).expect("moved back");
        std::fs::write(&own, "v3").expect("written");
        for copy in [true, false, false] {
            write(copy);
            assert_eq!(read(&dir), ["v3", "v3", "k"]);
        }

        std::fs::write(dir.join("mine"), "mine").expect("written");
        std::fs::remove_file(dir.join("etcd")).expect("removed");
        std::fs::write(dir.join("etcd"), "a real etcd").expect("written");
        std::fs::write(&own, "v4").expect("written");
        std::fs::remove_file(dir.join("kube-apiserver")).expect("removed");
        let other = command(&dir, true);
        let refused = other.write(&own, path.clone()).expect_err("it is another's");
        assert!(
            refused.to_string().contains("etcd is there and was not written"),
            "{refused}"
        );
        assert_eq!(read(&dir), ["", "a real etcd", "k"]);
        // Nor is a link of the user's own, whatever it leads to.
        std::fs::remove_file(dir.join("etcd")).expect("removed");
        symlink("/usr/bin/etcd", dir.join("etcd")).expect("linked");
        command(&dir, false)
            .write(&own, path.clone())
            .expect_err("it is another's");
        assert_eq!(std::fs::read_to_string(dir.join("mine")).expect("there"), "mine");
    }

    #[test]
    fn what_cannot_be_written_to_is_named() {
        let parent = tempfile::tempdir().expect("a directory");
        let own = program(parent.path(), "own", "v1");
        let file = parent.path().join("own");
        let refused = command(&file, false)
            .write(&own, None)
            .expect_err("a file")
            .to_string();
        assert!(refused.contains("own is a file: name a directory"), "{refused}");
        let below = command(&file.join("x"), false)
            .write(&own, None)
            .expect_err("below a file");
        assert!(below.to_string().contains("cannot make the directory"), "{below}");
    }

    #[test]
    fn kubectl_is_never_the_one_that_is_written() {
        let parent = tempfile::tempdir().expect("a directory");
        let own = program(parent.path(), "own", "v1");
        let dir = parent.path().join("assets");
        let inside = std::env::join_paths([&dir]).ok();
        program(&dir, "unrelated", "");
        symlink(parent.path().join("gone"), dir.join("kubectl")).expect("linked");
        let written = command(&dir, false).write(&own, inside).expect("written");
        assert!(written.notes[0].contains("no kubectl"), "{:?}", written.notes);
        // Called by its own link it does not make a link to itself.
        let linked = dir.join("kube-apiserver");
        command(&dir, false).write(&linked, None).expect("written");
        assert_eq!(std::fs::read_link(&linked).expect("a link"), own);
    }
}
