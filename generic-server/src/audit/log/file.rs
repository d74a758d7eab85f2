//! A file of lines that is rotated by its size: what is full is renamed by the time, and old ones are compressed or removed.
//!
//! Names are those of upstream's library (lumberjack): `audit-2006-01-02T15-04-05.000.log` beside `audit.log`.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use machinery::time::Timestamp;
use parking_lot::Mutex;

use crate::audit::options::LogOptions;

/// A log file that is open.
#[derive(Debug)]
pub(super) struct LogFile {
    path: PathBuf,
    file: File,
    size: u64,
    /// Zero for no rotation.
    max_size: u64,
    old: Arc<OldFiles>,
}

/// What becomes of rotated files.
#[derive(Debug)]
struct OldFiles {
    path: PathBuf,
    max_age: Option<Duration>,
    /// Zero for all.
    max_backups: usize,
    compress: bool,
    /// One pass at a time.
    busy: Mutex<()>,
}

impl LogFile {
    /// Opens a file, or makes it and its directory.
    pub(super) fn open(path: &Path, options: &LogOptions) -> io::Result<Self> {
        if let Some(parent) = path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
            fs::DirBuilder::new().recursive(true).mode(0o700).create(parent)?;
        }
        if fs::metadata(path).is_ok_and(|meta| meta.file_type().is_fifo()) {
            let why = "a named pipe would hold requests up while nobody reads it";
            return Err(io::Error::other(why));
        }
        let file = append(path, 0o600)?;
        let size = file.metadata()?.len();
        let day = Duration::from_secs(24 * 60 * 60);
        let log = LogFile {
            path: path.to_owned(),
            file,
            size,
            max_size: options.max_size_mib.saturating_mul(1 << 20),
            old: Arc::new(OldFiles {
                path: path.to_owned(),
                max_age: (options.max_age_days > 0).then(|| day * options.max_age_days),
                max_backups: options.max_backups,
                compress: options.compress,
                busy: Mutex::new(()),
            }),
        };
        log.old.clone().tidy();
        Ok(log)
    }

    /// Writes lines. After an error none of the last ones is there in part.
    pub(super) fn write<'l>(&mut self, lines: impl Iterator<Item = &'l Bytes>) -> io::Result<()> {
        let mut text = Vec::new();
        for line in lines {
            let size = self.size + text.len() as u64;
            if self.max_size > 0 && size > 0 && size + line.len() as u64 + 1 > self.max_size {
                self.append(&mut text)?;
                self.rotate();
            }
            text.extend_from_slice(line);
            text.push(b'\n');
        }
        self.append(&mut text)
    }

    fn append(&mut self, text: &mut Vec<u8>) -> io::Result<()> {
        if let Err(error) = self.file.write_all(text) {
            // Half a line would take the next one with it. Another program may have cut the file.
            let _ = self.file.set_len(self.size);
            return Err(error);
        }
        self.size += text.len() as u64;
        text.clear();
        Ok(())
    }

    /// Goes on in a new file. Where that cannot be, the old one grows.
    fn rotate(&mut self) {
        let now = Timestamp::now().unix_nanos() / 1_000_000;
        let next = || -> io::Result<File> {
            let mode = self.file.metadata()?.permissions().mode();
            let free = (now..)
                .map(|milli| backup_name(&self.path, milli))
                .find(|name| !name.exists());
            fs::rename(&self.path, free.unwrap_or_default())?;
            append(&self.path, mode)
        };
        match next() {
            Ok(file) => {
                (self.file, self.size) = (file, 0);
                self.old.clone().tidy();
            }
            Err(error) => {
                tracing::error!(%error, path = %self.path.display(), "the audit log cannot be rotated");
            }
        }
    }
}

fn append(path: &Path, mode: u32) -> io::Result<File> {
    let existed = path.exists();
    let file = OpenOptions::new()
        .create(true)
        .append(true)
        .mode(mode)
        .open(path)?;
    if !existed {
        // Whatever the umask takes away.
        file.set_permissions(Permissions::from_mode(mode & 0o777))?;
    }
    Ok(file)
}

/// The parts of the file's name around the time.
fn affixes(path: &Path) -> (String, String) {
    let text = |part: Option<&std::ffi::OsStr>| part.unwrap_or_default().to_string_lossy().into_owned();
    let extension = text(path.extension());
    let extension = if extension.is_empty() {
        extension
    } else {
        format!(".{extension}")
    };
    (format!("{}-", text(path.file_stem())), extension)
}

fn backup_name(path: &Path, milli: i128) -> PathBuf {
    // 2006-01-02T15:04:05.000000Z
    let at = Timestamp::from_unix_nanos(milli * 1_000_000)
        .to_rfc3339_micro()
        .replace(':', "-");
    let (before, after) = affixes(path);
    path.with_file_name(format!("{before}{}{after}", at.get(..23).unwrap_or(&at)))
}

impl OldFiles {
    /// Removes and compresses in a thread of its own, so that writing goes on.
    fn tidy(self: Arc<Self>) {
        if self.max_backups == 0 && self.max_age.is_none() && !self.compress {
            return;
        }
        let thread = std::thread::Builder::new().name("audit-log-files".into());
        let spawned = thread.spawn(move || {
            if let Err(error) = self.pass() {
                tracing::error!(%error, path = %self.path.display(), "old audit logs cannot be removed or compressed");
            }
        });
        if let Err(error) = spawned {
            tracing::error!(%error, "old audit logs cannot be looked at");
        }
    }

    fn pass(&self) -> io::Result<()> {
        let _one = self.busy.lock();
        let now = Timestamp::now();
        let mut failed = Ok(());
        for (index, (at, path)) in self.backups()?.into_iter().enumerate() {
            let age = u64::try_from(now.unix().saturating_sub(at.unix())).unwrap_or_default();
            let many = self.max_backups > 0 && index >= self.max_backups;
            let done = match many || self.max_age.is_some_and(|most| age > most.as_secs()) {
                true => fs::remove_file(path),
                false if self.compress && path.extension().is_none_or(|e| e != "gz") => compress(&path),
                false => Ok(()),
            };
            // One file does not keep the others.
            failed = failed.and(done);
        }
        failed
    }

    /// The rotated files, the newest first.
    fn backups(&self) -> io::Result<Vec<(Timestamp, PathBuf)>> {
        let (before, after) = affixes(&self.path);
        let dir = self.path.parent().filter(|dir| !dir.as_os_str().is_empty());
        let mut found = Vec::new();
        for entry in fs::read_dir(dir.unwrap_or(Path::new(".")))? {
            let entry = entry?;
            // A directory or a link of such a name is no rotated log.
            if !entry.file_type()?.is_file() {
                continue;
            }
            let path = entry.path();
            let name = path
                .file_name()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned();
            let name = name.strip_suffix(".gz").unwrap_or(&name);
            let at = name
                .strip_prefix(&before)
                .and_then(|name| name.strip_suffix(&after));
            if let Some(at) = at.and_then(time_of) {
                found.push((at, path));
            }
        }
        found.sort_by(|a, b| b.cmp(a));
        Ok(found)
    }
}

/// The time in a name, in the form `2006-01-02T15-04-05.000`.
fn time_of(text: &str) -> Option<Timestamp> {
    let (day, time) = text.split_once('T').filter(|_| text.len() == 23)?;
    Timestamp::parse_rfc3339(&format!("{day}T{}Z", time.replace('-', ":")))
}

/// Compresses a file under another name first, so that no half of it is ever taken for the whole.
fn compress(path: &Path) -> io::Result<()> {
    let named = |suffix: &str| {
        let mut name = path.as_os_str().to_owned();
        name.push(suffix);
        PathBuf::from(name)
    };
    let mut from = File::open(path)?;
    let (new, done) = (named(".gz.new"), named(".gz"));
    let mode = from.metadata()?.permissions().mode();
    // One of a pass that was interrupted goes, and a link is not written through.
    match fs::remove_file(&new) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let to = OpenOptions::new()
        .create_new(true)
        .write(true)
        .mode(mode)
        .open(&new)?;
    let mut encoder = GzEncoder::new(to, Compression::default());
    io::copy(&mut from, &mut encoder)?;
    encoder.finish()?.sync_all()?;
    fs::rename(&new, &done)?;
    fs::remove_file(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::audit::options::{Batching, Format, Mode};

    fn options(max_size_mib: u64, max_backups: usize, compress: bool) -> LogOptions {
        LogOptions {
            path: None,
            format: Format::Json,
            max_age_days: 0,
            max_backups,
            max_size_mib,
            compress,
            mode: Mode::Blocking,
            batching: Batching {
                buffer_size: 1,
                max_size: 1,
                max_wait: Duration::ZERO,
                throttle: None,
            },
            truncation: None,
        }
    }

    #[test]
    fn full_files_are_rotated_and_old_ones_go() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("sub/audit.log");
        let mut log = LogFile::open(&path, &options(1, 2, true)).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let line = Bytes::from(vec![b'x'; 400 << 10]);
        // Two lines fit in a file.
        log.write([&line; 7].into_iter()).unwrap();
        log.old.pass().unwrap();
        let mut sizes: Vec<(bool, u64)> = fs::read_dir(path.parent().unwrap())
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .filter(|file| *file != path)
            .map(|file| {
                let is_gzip = file.extension().unwrap() == "gz";
                let mut text = Vec::new();
                io::copy(
                    &mut flate2::read::GzDecoder::new(File::open(file).unwrap()),
                    &mut text,
                )
                .unwrap();
                (is_gzip, text.len() as u64)
            })
            .collect();
        sizes.sort_unstable();
        let two = 2 * (line.len() as u64 + 1);
        assert_eq!(sizes, [(true, two), (true, two)]);
        assert_eq!(fs::metadata(&path).unwrap().len(), line.len() as u64 + 1);
        // A line that is larger than a file has one for itself.
        let huge = Bytes::from(vec![b'y'; 2 << 20]);
        log.write([&huge].into_iter()).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().len(), huge.len() as u64 + 1);
    }

    #[test]
    fn names_of_old_files() {
        let path = Path::new("/var/log/audit.log");
        let name = backup_name(path, 1_136_214_245_678);
        assert_eq!(name, Path::new("/var/log/audit-2006-01-02T15-04-05.678.log"));
        assert_eq!(
            time_of("2006-01-02T15-04-05.678").map(Timestamp::unix),
            Some(1_136_214_245)
        );
        assert_eq!(time_of("2006-01-02T15-04-05.678Z"), None);
        assert_eq!(
            backup_name(Path::new("a"), 0),
            Path::new("a-1970-01-01T00-00-00.000")
        );
    }
}
