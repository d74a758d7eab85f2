//! The client certificate that vouches for this server to extension servers: its own, or the one that the options name, read
//! anew when its files change.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use aggregator::ProxyKey;
use arc_swap::ArcSwap;
use generic_server::pki::Pki;
use generic_server::serve::certified_key;
use generic_server::spawn::Tasks;

use crate::{Options, StartError};

/// How often the files are looked at.
const EVERY: Duration = Duration::from_secs(30);

/// The certificate, kept current.
pub(crate) fn open(options: &Options, pki: &Pki, tasks: &Tasks) -> Result<ProxyKey, StartError> {
    let (Some(certificate), Some(key)) = (&options.proxy_client_cert_file, &options.proxy_client_key_file)
    else {
        return Ok(Arc::new(ArcSwap::new(pki.front_proxy_client.certified_key()?)));
    };
    let current = Arc::new(ArcSwap::new(certified_key(certificate, key)?));
    let (files, kept) = ((certificate.clone(), key.clone()), current.clone());
    tasks.spawn(
        "proxy client certificate",
        async move { follow(&files, &kept).await },
    );
    Ok(current)
}

async fn follow(files: &(PathBuf, PathBuf), current: &ProxyKey) {
    let mut seen = (modified(&files.0), modified(&files.1));
    loop {
        tokio::time::sleep(EVERY).await;
        let now = (modified(&files.0), modified(&files.1));
        if now == seen {
            continue;
        }
        match certified_key(&files.0, &files.1) {
            Ok(key) => {
                current.store(key);
                seen = now;
            }
            // Half-written, perhaps: the old one stays and the files are read again.
            Err(error) => tracing::warn!(%error, "the proxy client certificate cannot be read anew"),
        }
    }
}

fn modified(file: &Path) -> Option<SystemTime> {
    std::fs::metadata(file).and_then(|m| m.modified()).ok()
}
