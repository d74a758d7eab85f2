//! Why a control plane did not start: one clear line each, and the exit code of the process.

use kube_apiserver::AccessError;
use storage::StorageError;

/// Why a control plane did not start. Display says what to do about it.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A flag's value, or a file that a flag names, is invalid.
    #[error("{0}")]
    Option(String),
    /// The data directory cannot be used.
    #[error("cannot use the data directory {place}: {}", store_text(.source))]
    Data {
        /// The directory.
        place: String,
        /// The fault.
        source: StorageError,
    },
    /// The store cannot be opened.
    #[error("cannot open the store in {place}: {}", store_text(.source))]
    Store {
        /// The directory, or the servers.
        place: String,
        /// The fault.
        source: StorageError,
    },
    /// Certificates and keys cannot be read or made.
    #[error("{}", chain(.0))]
    Pki(#[from] generic_server::pki::PkiError),
    /// The address cannot be listened on.
    #[error(
        "cannot listen on {address}: {source}; {}", listen_hint(.source)
    )]
    Listen {
        /// The address.
        address: std::net::SocketAddr,
        /// Why not.
        source: std::io::Error,
    },
    /// TLS cannot be set up.
    #[error("cannot set up TLS: {0}")]
    Tls(#[from] generic_server::serve::TlsError),
    /// The first objects of a cluster cannot be written.
    #[error("cannot write the initial objects of the cluster: {0}")]
    Bootstrap(generic_server::ApiError),
    /// The process cannot listen to signals.
    #[error("cannot listen to signals: {0}")]
    Signals(std::io::Error),
    /// A snapshot cannot be made or used.
    #[error("{0}")]
    Backup(String),
    /// The plane cannot be forked.
    #[error("cannot fork the control plane: {}", chain(.0))]
    Fork(StorageError),
    /// The plane cannot be put back to a snapshot.
    #[error("cannot reset the control plane: {}", chain(.0))]
    Reset(StorageError),
    /// Users cannot be authenticated or authorized as the options say.
    #[error("{0}")]
    Access(#[from] AccessError),
    /// A check has found something wrong: a line for each fault.
    #[error("{0}")]
    Check(String),
    /// A server that says that it is a stand-in for etcd cannot be used.
    #[error("{0}")]
    StandIn(String),
    /// The programs for envtest cannot be written.
    #[error("{0}")]
    Assets(String),
    /// The program is not whole.
    #[error("the program is built wrongly: {0}")]
    Build(&'static str),
}

/// What to change so that an address can be listened on.
fn listen_hint(error: &std::io::Error) -> &'static str {
    match error.kind() {
        std::io::ErrorKind::AddrNotAvailable => "name an address of this machine with --bind-address",
        _ => "name another port with --secure-port (0 picks a free one)",
    }
}

fn store_text(error: &StorageError) -> String {
    let hint = match error {
        StorageError::Locked(_) => "; stop it, or name another directory with --data-dir",
        StorageError::NewerFormat { .. } => {
            "; run the newer version, or name another directory with --data-dir"
        }
        StorageError::Gone(_) => {
            "; bring it back, restore a backup, or begin an empty one with --allow-empty"
        }
        StorageError::NoSpace(_) => "; free some space, or name another directory with --data-dir",
        _ => "",
    };
    format!("{}{hint}", chain(error))
}

/// An error with its causes.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}

impl StartError {
    /// The exit code of the process.
    pub fn exit_code(&self) -> u8 {
        match self {
            StartError::Option(_) | StartError::Access(AccessError::Option(_)) => 2,
            StartError::Data { .. }
            | StartError::Store { .. }
            | StartError::StandIn(_)
            | StartError::Pki(_) => 3,
            StartError::Listen { .. } => 4,
            StartError::Tls(_)
            | StartError::Bootstrap(_)
            | StartError::Signals(_)
            | StartError::Build(_)
            | StartError::Access(_)
            | StartError::Backup(_)
            | StartError::Fork(_)
            | StartError::Reset(_)
            | StartError::Assets(_)
            | StartError::Check(_) => 1,
        }
    }
}
