//! A drop-in for the binaries of controller-runtime's envtest, which starts an `etcd` and a `kube-apiserver` with flags of its own: the
//! command that writes them (`assets`), and the stand-in for etcd that is one of them (`stand_in`).
//!
//! The stand-in stores nothing and does not speak etcd's protocol. It owns a directory, its `--data-dir`, and says so to an API server that
//! asks before it dials etcd (`recognise`). That server keeps its embedded store there, without fsync. So objects survive a restart of the API
//! server and go with etcd's directory, as they do with etcd itself.

mod assets;
mod parent;
mod recognise;
mod stand_in;

pub use assets::{Assets, AssetsCommand};
pub(crate) use recognise::{StandIn, recognise};
pub use stand_in::{is_etcd, run as run_etcd};

/// Where a stand-in says that it is one. Its answer goes on for as long as it lives.
const PATH: &str = "/stand-in-for-etcd";
/// The member of the answer that names the data directory.
const DIRECTORY: &str = "standInForEtcd";
/// The member of the answer that repeats the content of [`PROOF_FILE`].
const PROOF: &str = "proof";
/// A file of the data directory: whoever listens there may name any directory, so it has to be one that only this user can change.
const PROOF_FILE: &str = "STAND-IN-FOR-ETCD";
/// The API server's own directory below the stand-in's.
const SERVER_DIRECTORY: &str = "kube-apiserver";
