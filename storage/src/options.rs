//! How to open an embedded store.

use std::path::PathBuf;
use std::time::Duration;

/// Which engine holds the data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum EngineKind {
    /// Nothing on disk; gone with the process.
    Memory,
    /// One redb file. The default.
    #[default]
    Redb,
    /// A sled 0.34 directory. docs/storage.md says what it does not promise.
    Sled,
}

impl EngineKind {
    /// The name in options, files and logs.
    pub fn name(self) -> &'static str {
        match self {
            EngineKind::Memory => "memory",
            EngineKind::Redb => "redb",
            EngineKind::Sled => "sled",
        }
    }
}

impl std::str::FromStr for EngineKind {
    type Err = String;

    fn from_str(name: &str) -> Result<EngineKind, String> {
        [EngineKind::Memory, EngineKind::Redb, EngineKind::Sled]
            .into_iter()
            .find(|kind| kind.name() == name)
            .ok_or_else(|| format!("unknown storage engine `{name}`, expected `redb`, `sled` or `memory`"))
    }
}

/// The options of [`open`](crate::open).
#[derive(Debug, Clone)]
pub struct OpenOptions {
    /// The engine.
    pub engine: EngineKind,
    /// Its directory; made if absent. Needed by all engines but memory.
    pub dir: Option<PathBuf>,
    /// How long history is kept: reads and watches may go back this far.
    pub retention: Duration,
    /// At most this many superseded changes are kept, however young.
    pub max_history: u64,
    /// At most about this many bytes of superseded values are kept, however young.
    pub max_history_bytes: u64,
    /// Writes are refused while the file system has less free space than this. Zero turns the check off.
    pub min_free_bytes: u64,
    /// The engine's page cache. Frequent readers, such as a watch cache, keep their own; this one serves the engine's inner pages
    /// and the values that are being replaced.
    pub cache_bytes: u64,
    /// The largest value taken.
    pub max_value_bytes: usize,
    /// Begins again where a store was and is not any more. Without it such a directory is refused with
    /// [`Gone`](crate::StorageError::Gone): a server that lost its disk must not come up as an empty cluster.
    pub allow_empty: bool,
    /// Whether a commit is on the disk before it is acknowledged. Without, an acknowledged commit survives the process and may be lost with
    /// the machine: for stores that a test makes and removes. Other engines than redb do not look at it.
    pub fsync: bool,
    /// A file of up to so many bytes has all its pages looked at as it is opened, and of a larger one those that lead to values. Other engines
    /// than redb do not look at it.
    pub verified_bytes: u64,
}

impl Default for OpenOptions {
    fn default() -> OpenOptions {
        OpenOptions {
            engine: EngineKind::default(),
            dir: None,
            retention: Duration::from_secs(5 * 60),
            max_history: 500_000,
            max_history_bytes: 1 << 30,
            min_free_bytes: 64 << 20,
            cache_bytes: 16 << 20,
            max_value_bytes: 8 << 20,
            allow_empty: false,
            fsync: true,
            verified_bytes: 64 << 20,
        }
    }
}
