//! `kube-apiserver check` and `kube-apiserver scrub`: reports of damage, before a start or without one. Neither starts
//! or listens, and neither changes an object, unless it is told to drop what is lost already: opening the store may rewrite a damaged copy of `FORMAT` and migrate the directory, as a start does.

mod files;
mod store;

use std::path::PathBuf;

use clap::Parser;
use storage::EngineKind;

use crate::config::{Config, Engine};
use crate::envtest;
use crate::{Options, StartError};

/// Reads every record of a store that no server uses, and says which are damaged. A running server does so by itself
/// (`--scrub-interval`).
#[derive(Debug, Parser)]
#[command(name = "scrub", bin_name = "kube-apiserver scrub")]
pub struct ScrubCommand {
    /// The data directory.
    #[arg(long)]
    data_dir: Option<PathBuf>,
    /// The engine of the data directory, `redb` or `sled`.
    #[arg(long, default_value = "redb", value_parser = ["redb", "sled"])]
    storage_backend: String,
    /// Drop the changes whose keys cannot be read, and name them: a server on the store is ready again, without what they wrote. Copy the
    /// data directory before.
    #[arg(long)]
    drop_lost_changes: bool,
}

impl ScrubCommand {
    /// Reads everything once, after dropping what it is told to. Returns the report.
    ///
    /// # Errors
    /// When something is damaged, with a line for each, or the store cannot be read.
    pub async fn run(self) -> Result<String, StartError> {
        let options = Options {
            data_dir: self.data_dir,
            ..Options::defaults()
        };
        let directory = options.data_directory().map_err(StartError::Option)?;
        let kind = match self.storage_backend.as_str() {
            "sled" => EngineKind::Sled,
            _ => EngineKind::Redb,
        };
        let dropped = match self.drop_lost_changes {
            true => store::drop_lost(&directory, kind).await?,
            false => Vec::new(),
        };
        let mut found = store::of_directory(&directory, kind, store::Keys::default()).await?;
        // Whatever else is wrong, they are not named again.
        match found.faults.is_empty() {
            true => found.lines.splice(0..0, dropped),
            false => found.faults.splice(0..0, dropped),
        };
        found.outcome()
    }
}

/// Says whether a server could start with these options: the flags, then the files that they name and the stored objects. Faults of the
/// flags are told together, and those of files and store together when the flags are right.
///
/// # Errors
/// When something is wrong, with a line for each fault.
pub async fn check(options: Options) -> Result<String, StartError> {
    let mut config = Config::new(options).map_err(|faults| StartError::Check(faults.join("\n")))?;
    let mut found = Found::default();
    if let Engine::Etcd(etcd) = &config.storage.engine
        && let Some(stand_in) = envtest::recognise(etcd).await?
    {
        found.note(format!("{} is a stand-in for etcd, for tests", stand_in.url()));
        config.keep_in(stand_in.directory());
    }
    for warning in &config.warnings {
        found.note(warning.clone());
    }
    let egress = files::egress(&config, &mut found);
    files::look(&config, &egress, &mut found).await;
    store::look(&config, &egress, &mut found).await;
    found.outcome()
}

/// The findings so far.
#[derive(Debug, Default)]
struct Found {
    /// Findings that do not prevent a start.
    lines: Vec<String>,
    faults: Vec<String>,
}

impl Found {
    fn note(&mut self, line: impl Into<String>) {
        self.lines.push(line.into());
    }

    fn fault(&mut self, line: impl Into<String>) {
        self.faults.push(line.into());
    }

    /// A fault when it is one.
    fn took<T>(&mut self, outcome: Result<T, impl std::fmt::Display>) -> Option<T> {
        outcome.map_err(|error| self.fault(error.to_string())).ok()
    }

    fn outcome(self) -> Result<String, StartError> {
        match self.faults.is_empty() {
            true => Ok(self.lines.join("\n")),
            false => Err(StartError::Check(self.faults.join("\n"))),
        }
    }
}

#[cfg(test)]
mod tests;
