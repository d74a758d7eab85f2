//! Opening the engines that objects are stored in.

use std::collections::HashMap;
use std::io;
use std::path::Path;
use std::sync::Arc;

use generic_server::client::egress::{EgressSelector, Network, Route};
use machinery::GroupResource;
use storage::{Dialer, DirectoryLock, OpenOptions, Store};

use crate::config::{Config, Engine, Etcd};
use crate::{StartError, backup};

/// Locks a data directory, whichever engine the server has: keys, certificates and the kubeconfig are in it, too.
///
/// # Errors
/// When another process has it, or it cannot be made.
pub(crate) fn lock(data_dir: &Path) -> Result<DirectoryLock, StartError> {
    DirectoryLock::acquire(data_dir).map_err(|source| StartError::Data {
        place: data_dir.display().to_string(),
        source,
    })
}

/// The engine of every resource without one of its own.
pub(super) fn open(config: &Config, egress: &EgressSelector) -> Result<Arc<dyn Store>, StartError> {
    let (kind, options) = match &config.storage.engine {
        Engine::Etcd(etcd) => return open_etcd(etcd, &etcd.servers, egress),
        Engine::Embedded {
            kind,
            retention,
            max_history,
            max_history_bytes,
            min_free_bytes,
            allow_empty,
            fsync,
        } => {
            let dir = config.data_dir.as_ref();
            let options = OpenOptions {
                engine: *kind,
                dir: dir.map(|directory| directory.join(kind.name())),
                retention: *retention,
                max_history: *max_history,
                max_history_bytes: *max_history_bytes,
                min_free_bytes: *min_free_bytes,
                allow_empty: *allow_empty,
                fsync: *fsync,
                ..OpenOptions::default()
            };
            (kind, options)
        }
    };
    if let Some(dir) = &options.dir {
        fits_a_new_store(dir, options.min_free_bytes)?;
    }
    let place = config.data_dir.as_deref().unwrap_or(Path::new(kind.name()));
    let store = storage::open(options).map_err(|source| StartError::Store {
        place: place.display().to_string(),
        source,
    })?;
    // The lock of the data directory says that no other server is writing a backup here.
    if let Some(directory) = &config.data_dir {
        match storage::remove_partial_backups(directory, backup::UNFINISHED) {
            Ok(0) => {}
            Ok(removed) => tracing::info!(removed, "removed files of interrupted backups"),
            Err(error) => tracing::warn!(%error, "cannot remove files of interrupted backups"),
        }
    }
    Ok(store)
}

/// Whether there is room for a new store; one that exists is read even when the disk is full.
fn fits_a_new_store(dir: &Path, min_free_bytes: u64) -> Result<(), StartError> {
    let parent = dir.ancestors().skip(1).find(|parent| parent.exists());
    let Some(parent) = parent.filter(|_| !dir.exists()) else {
        return Ok(());
    };
    // What cannot be asked for here is an error of opening the store, which names the directory.
    let Some(free) = storage::free_bytes(parent)
        .ok()
        .filter(|free| *free < min_free_bytes)
    else {
        return Ok(());
    };
    let mebibytes = |bytes: u64| bytes >> 20;
    Err(StartError::Option(format!(
        "--min-free-disk-mib={}: a new store has too little free space, {} MiB are free at `{}`",
        mebibytes(min_free_bytes),
        mebibytes(free),
        parent.display()
    )))
}

/// An engine on these servers, which are reached as `egress` says.
pub(crate) fn open_etcd(
    etcd: &Etcd,
    servers: &[String],
    egress: &EgressSelector,
) -> Result<Arc<dyn Store>, StartError> {
    let mut options = etcd.options(servers);
    if let Route::Proxy(proxy) = egress.route(Network::Etcd) {
        options.dialer = Some(Dialer::new(move |member| {
            let proxy = proxy.clone();
            async move { proxy.dial(&member).await.map_err(io::Error::other) }
        }));
    }
    storage::open_etcd(&options).map_err(|source| StartError::Store {
        place: servers.join(","),
        source,
    })
}

/// The engines of resources with servers of their own; those that name the same servers share one.
pub(super) fn open_overrides(
    engine: &Engine,
    egress: &EgressSelector,
) -> Result<HashMap<GroupResource, Arc<dyn Store>>, StartError> {
    let mut engines: HashMap<&[String], Arc<dyn Store>> = HashMap::new();
    let mut overrides = HashMap::new();
    let Engine::Etcd(etcd) = engine else {
        return Ok(overrides);
    };
    for (resource, servers) in &etcd.overrides {
        let engine = match engines.get(servers.as_slice()) {
            Some(engine) => engine.clone(),
            None => engines
                .entry(servers)
                .or_insert(open_etcd(etcd, servers, egress)?)
                .clone(),
        };
        overrides.insert(resource.clone(), engine);
    }
    Ok(overrides)
}
