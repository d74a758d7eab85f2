//! The material that replicas on one store have to share: the authorities and the key that they sign with when no files are
//! given, and the certificate that pods verify them with.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use generic_server::pki::{self, Pki, PkiError, Shared};
use generic_server::registry::StorageFactory;
use generic_server::registry::cache::JsonCodec;
use generic_server::reload::Reload;
use machinery::GroupResource;
use storage::{Guard, Op, Outcome, Revision, StorageError, Txn};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::StartError;
use crate::config::{Config, Engine, KeyFiles};

/// Where it is, below the prefix. No name of an API group or resource has an underscore, so nobody lists it by accident.
const KEY: &str = "_servers/pki";
/// Replicas that start together write it once and read it as often as another was faster.
const ATTEMPTS: usize = 20;
/// How long a store that does not answer is waited for.
const STORE_TIMEOUT: Duration = Duration::from_secs(60);
/// How long to wait for a store that does not answer before it is asked again.
const RETRY_DELAY: Duration = Duration::from_secs(1);

/// Whether the server takes its authorities from the store: on one that others may use, unless all of them are given.
pub(crate) fn agrees(config: &Config) -> bool {
    let given = config.serving.is_some()
        && config.access.client_ca_file.is_some()
        && config.access.front_proxy_ca_file.is_some()
        && config.proxy_client.is_some()
        && (config.access.tokens.signing_key_file.is_some()
            || config.access.tokens.signing_endpoint.is_some());
    matches!(config.storage.engine, Engine::Etcd(_)) && !given
}

/// Writes the authorities and the key that all replicas have into this one's directory. The first brings its own. `place` is where the
/// store is, for the log.
///
/// # Errors
/// When the store cannot be read or written, or holds something else.
pub(crate) async fn agree(
    stores: &StorageFactory,
    place: &str,
    prefix: &str,
    directory: &Path,
) -> Result<(), StartError> {
    let deadline = Instant::now() + STORE_TIMEOUT;
    loop {
        match attempt(stores, prefix, directory).await {
            Err(StartError::Store {
                source: StorageError::Unavailable { message, .. },
                ..
            }) if Instant::now() < deadline => {
                tracing::warn!(
                    error = message,
                    store = place,
                    "the store does not answer, the start waits for it"
                );
                tokio::time::sleep(RETRY_DELAY).await;
            }
            done => return done,
        }
    }
}

async fn attempt(stores: &StorageFactory, prefix: &str, directory: &Path) -> Result<(), StartError> {
    let engine = stores.engine();
    let key = format!("{prefix}/{KEY}");
    // Encrypted as Secrets are.
    let codec = stores.codec_of(&GroupResource::new("", "secrets"), Arc::new(JsonCodec));
    let failed = |source: StorageError| StartError::Store {
        place: key.clone(),
        source,
    };
    let wrong = |why: String| StartError::Pki(PkiError::Issue(format!("{key} in the store: {why}")));
    for _ in 0..ATTEMPTS {
        let (found, _) = engine.get(&key, None).await.map_err(failed)?;
        let stored = match &found {
            Some(kv) => {
                codec.prepare(&kv.value).await;
                let value = kv.readable().map_err(|damage| wrong(damage.to_string()))?;
                let json = codec
                    .decode(&key, value)
                    .map_err(|error| wrong(error.to_string()))?;
                Some(Shared::from_json(&json).map_err(wrong)?)
            }
            None => None,
        };
        let mut shared = match &stored {
            Some(stored) => stored.clone(),
            None => Shared::of_directory(directory)?,
        };
        let rotated = shared.rotate()?;
        let stale = found.as_ref().is_some_and(|kv| codec.is_stale(&key, &kv.value));
        if found.is_none() || rotated || stale {
            let object = shared.to_json();
            let json = object.to_string().into_bytes().into();
            let value = codec
                .encode(&key, &object, &json)
                .map_err(|error| wrong(error.to_string()))?;
            let txn = Txn {
                guards: vec![Guard {
                    key: key.clone(),
                    mod_revision: found.as_ref().map_or(Revision(0), |kv| kv.mod_revision),
                }],
                ops: vec![Op::Put {
                    key: key.clone(),
                    value,
                    ttl: None,
                }],
            };
            match engine.commit(txn).await {
                Ok(Outcome::Committed(_)) => {}
                // Another replica was faster, or so it may be.
                Ok(Outcome::Conflict { .. }) | Err(StorageError::Uncertain(_)) => continue,
                Err(error @ StorageError::NoSpace(_)) => {
                    tracing::warn!(%error, "the authorities of the replicas cannot be written now");
                    // A stored value stays in force; without one, this server uses its own for now.
                    match stored {
                        Some(stored) => shared = stored,
                        None => return Ok(()),
                    }
                }
                Err(error) => return Err(failed(error)),
            }
        }
        if shared.write(directory)? {
            tracing::warn!(
                directory = %directory.display(),
                "the store holds other authorities than this server had; its own files are kept with the suffix .replaced"
            );
        }
        return Ok(());
    }
    Err(wrong("others keep changing it".into()))
}

/// The current content of `kube-root-ca.crt`: the server's own authority gets a successor in time.
///
/// # Errors
/// As for [`verifies`].
pub(crate) fn root_ca(
    config: &Config,
    pki: &Pki,
    reload: &mut Reload,
) -> Result<watch::Receiver<String>, StartError> {
    let (sender, receiver) = watch::channel(verifies(config, pki)?);
    if let (None, Some(file)) = (&config.serving, pki.file("ca.crt")) {
        reload.afterwards(move || {
            let now = std::fs::read_to_string(&file).map_err(|error| error.to_string())?;
            sender.send_if_modified(|before| std::mem::replace(before, now.clone()) != now);
            Ok(())
        });
    }
    Ok(receiver)
}

/// The certificate that pods verify this server with: its own authority, or that of the certificate that it was given.
///
/// # Errors
/// When a file cannot be read.
fn verifies(config: &Config, pki: &Pki) -> Result<String, StartError> {
    let Some(KeyFiles { certificate, .. }) = &config.serving else {
        return Ok(pki.ca.certificate.clone());
    };
    let read = |file: &Path| {
        let unreadable = |error| StartError::Option(format!("cannot read {}: {error}", file.display()));
        std::fs::read_to_string(file).map_err(unreadable)
    };
    let chain = read(certificate)?;
    let clients = config.access.client_ca_file.as_deref().map(read).transpose()?;
    let mut known = vec![chain.as_str(), pki.ca.certificate.as_str()];
    known.extend(clients.as_deref());
    Ok(pki::issuer_among(&chain, &known).map_or_else(
        || {
            tracing::warn!("the authority of --tls-cert-file is unknown: kube-root-ca.crt holds the certificate itself; append the chain up to its authority to the file");
            chain.clone()
        },
        str::to_string,
    ))
}

#[cfg(test)]
mod tests;
