//! `kube-apiserver backup` and `kube-apiserver restore`: snapshots of the embedded store, online from a running server or of a data
//! directory that no server uses, and data directories made of them. Values are in a snapshot as they are in the store: those that
//! are encrypted at rest stay so.

mod client;
mod serve;

use std::fs::OpenOptions as FileOptions;
use std::io::{BufWriter, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use clap::Parser;
use storage::{BackupInfo, DirectoryLock, EngineKind, OpenOptions, RestoreOptions, StorageError};

use crate::progress::Progress;
use crate::{Options, StartError};

pub(crate) use serve::Backups;

/// The path that a running server serves snapshots at.
pub(crate) const PATH: &str = "/backup";
/// The header with the number of damaged objects that a snapshot does not have.
const DAMAGED: &str = "x-damaged-objects";
/// How the names of the files begin that a snapshot is gathered in before it is handed out.
pub(crate) const UNFINISHED: &str = ".backup-";

/// Writes a snapshot of the store into a new file.
#[derive(Debug, Parser)]
#[command(name = "backup", bin_name = "kube-apiserver backup")]
pub struct BackupCommand {
    /// The new file.
    #[arg(long)]
    to: PathBuf,
    /// Asks the running server that this kubeconfig names, as a member of `system:masters`: a snapshot holds every secret.
    #[arg(long, conflicts_with = "data_dir")]
    kubeconfig: Option<PathBuf>,
    /// The data directory; with a server running on it, that one is asked as its administrator.
    #[arg(long)]
    data_dir: Option<PathBuf>,
    /// The engine of the data directory, `redb` or `sled`.
    #[arg(long, default_value = "redb", value_parser = ["redb", "sled"])]
    storage_backend: String,
}

/// Makes the store of a data directory from a snapshot.
#[derive(Debug, Parser)]
#[command(name = "restore", bin_name = "kube-apiserver restore")]
pub struct RestoreCommand {
    /// The snapshot.
    #[arg(long)]
    from: PathBuf,
    /// The data directory, which has no store yet. Certificates and keys may be there already.
    #[arg(long)]
    data_dir: Option<PathBuf>,
    /// The engine of the new store, `redb` or `sled`.
    #[arg(long, default_value = "redb", value_parser = ["redb", "sled"])]
    storage_backend: String,
}

fn engine(name: &str) -> EngineKind {
    match name {
        "sled" => EngineKind::Sled,
        _ => EngineKind::Redb,
    }
}

fn data_directory(given: Option<&Path>) -> Result<PathBuf, StartError> {
    let options = Options {
        data_dir: given.map(Path::to_path_buf),
        ..Options::defaults()
    };
    options.data_directory().map_err(StartError::Option)
}

fn store_error(place: &Path) -> impl Fn(StorageError) -> StartError + '_ {
    move |source| StartError::Store {
        place: place.display().to_string(),
        source,
    }
}

impl BackupCommand {
    /// Writes the snapshot and checks it. Returns the report.
    ///
    /// # Errors
    /// When the file is there already, the server does not answer with a snapshot, or the store cannot be read.
    pub async fn run(self) -> Result<String, StartError> {
        if self.to.exists() {
            return Err(StartError::Option(format!(
                "--to: {} is there already",
                self.to.display()
            )));
        }
        let mut partial = self.to.as_os_str().to_owned();
        partial.push(".partial");
        let _progress = Progress::begin("writing the snapshot", vec![self.to.clone(), partial.into()]);
        let info = match &self.kubeconfig {
            Some(kubeconfig) => online(kubeconfig, &self.to).await?,
            None => self.of_directory().await?,
        };
        Ok(format!("wrote {}", describe(&self.to, &info)))
    }

    async fn of_directory(&self) -> Result<BackupInfo, StartError> {
        let directory = data_directory(self.data_dir.as_deref())?;
        let kind = engine(&self.storage_backend);
        let dir = directory.join(kind.name());
        if !dir.exists() {
            return Err(StartError::Option(format!(
                "--data-dir: {} holds no {} store",
                directory.display(),
                kind.name()
            )));
        }
        let open = OpenOptions {
            engine: kind,
            dir: Some(dir),
            ..OpenOptions::default()
        };
        let offline = async {
            let _lock = DirectoryLock::acquire(&directory)?;
            let store = storage::open(open)?;
            let info = store.backup(&self.to).await;
            store.shutdown().await;
            info
        };
        match offline.await {
            Err(StorageError::Locked(_)) => online(&directory.join("admin.kubeconfig"), &self.to).await,
            done => done.map_err(store_error(&directory)),
        }
    }
}

/// A snapshot from a running server, under its name only once it is whole.
async fn online(kubeconfig: &Path, to: &Path) -> Result<BackupInfo, StartError> {
    let failed = |why: String| StartError::Backup(why);
    let mut partial = to.as_os_str().to_owned();
    partial.push(".partial");
    let partial = PathBuf::from(partial);
    let outcome = async {
        // The rest of an interrupted backup to the same place is replaced.
        let file = FileOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&partial)
            .map_err(|error| failed(format!("cannot write {}: {error}", partial.display())))?;
        let mut file = BufWriter::new(file);
        let damaged = client::fetch(kubeconfig, &mut file).await.map_err(failed)?;
        let file = file
            .into_inner()
            .map_err(|error| failed(format!("cannot write {}: {error}", partial.display())))?;
        file.sync_all()
            .map_err(|error| failed(format!("cannot write {}: {error}", partial.display())))?;
        let info = storage::inspect_backup(&partial).map_err(store_error(&partial))?;
        std::fs::rename(&partial, to)
            .map_err(|error| failed(format!("cannot write {}: {error}", to.display())))?;
        Ok(BackupInfo { damaged, ..info })
    }
    .await;
    if outcome.is_err() {
        // It may not be there.
        let _ = std::fs::remove_file(&partial);
    }
    outcome
}

impl RestoreCommand {
    /// Checks the snapshot and makes the store. Returns the report.
    ///
    /// # Errors
    /// When the snapshot is damaged, or there is a store already.
    pub async fn run(self) -> Result<String, StartError> {
        if let Err(error) = std::fs::File::open(&self.from) {
            let from = self.from.display();
            return Err(StartError::Option(format!("--from: cannot read {from}: {error}")));
        }
        let directory = data_directory(self.data_dir.as_deref())?;
        let kind = engine(&self.storage_backend);
        let dir = directory.join(kind.name());
        let open = OpenOptions {
            engine: kind,
            dir: Some(dir.clone()),
            ..OpenOptions::default()
        };
        let from = self.from.clone();
        let _progress = Progress::begin("restoring", vec![dir.clone()]);
        let restored = tokio::task::spawn_blocking(move || {
            // Nothing is made for a snapshot that cannot be used.
            storage::inspect_backup(&from)?;
            let _lock = DirectoryLock::acquire(&directory)?;
            storage::restore(&from, &RestoreOptions::new(open))
        });
        let info = restored
            .await
            .map_err(|_| StartError::Backup("the restore was interrupted".into()))?
            .map_err(store_error(&dir))?;
        Ok(format!(
            "restored {} into {}",
            describe(&self.from, &info),
            dir.display()
        ))
    }
}

fn describe(file: &Path, info: &BackupInfo) -> String {
    let left_out = match info.damaged {
        0 => String::new(),
        damaged => {
            format!("; WARNING: {damaged} damaged objects are left out, `kube-apiserver scrub` names them")
        }
    };
    format!(
        "{}: {} objects at revision {}, {} bytes{left_out}",
        file.display(),
        info.keys,
        info.revision,
        info.bytes
    )
}

/// Appends to the file that is being made.
fn append(file: &mut BufWriter<std::fs::File>, bytes: &[u8]) -> Result<(), String> {
    file.write_all(bytes)
        .map_err(|error| format!("cannot write the snapshot: {error}"))
}
