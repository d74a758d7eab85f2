//! The certificates that this server shows: to its clients, and to extension servers. Those from files are followed.

use std::path::PathBuf;
use std::sync::Arc;

use aggregator::ProxyKey;
use arc_swap::ArcSwap;
use generic_server::pki::Pki;
use generic_server::reload::Reload;
use generic_server::serve::{CertifiedKey, Tls, TlsOptions, certified_key};

use crate::StartError;
use crate::config::{Config, KeyFiles};

/// A certificate and key that a flag names.
pub(crate) fn named_key(flag: &str, files: &KeyFiles) -> Result<Arc<CertifiedKey>, StartError> {
    certified_key(&files.certificate, &files.key).map_err(|error| {
        let mut text = format!("{flag}: {error}");
        let mut source = std::error::Error::source(&error);
        while let Some(cause) = source {
            text.push_str(&format!(": {cause}"));
            source = cause.source();
        }
        StartError::Option(text)
    })
}

/// The TLS of the listener: with the serving certificate that the options name, else with the server's own.
pub(super) fn serving_tls(config: &Config, pki: &Pki, reload: &mut Reload) -> Result<Arc<Tls>, StartError> {
    let Some(files) = config.serving.clone() else {
        return Ok(Arc::new(Tls::new(TlsOptions::new(pki.serving_key()?))?));
    };
    let key = named_key("--tls-cert-file, --tls-private-key-file", &files)?;
    let tls = Arc::new(Tls::new(TlsOptions::new(key))?);
    let kept = tls.clone();
    reload.watch("serving certificate", files.both(), move || {
        let key = certified_key(&files.certificate, &files.key).map_err(|error| error.to_string())?;
        kept.reload(TlsOptions::new(key))
            .map_err(|error| error.to_string())
    });
    Ok(tls)
}

/// The client certificate that vouches for this server to extension servers: the one that the options name, else its own.
pub(super) fn proxy_key(config: &Config, pki: &Pki, reload: &mut Reload) -> Result<ProxyKey, StartError> {
    let Some(files) = config.proxy_client.clone() else {
        return Ok(Arc::new(ArcSwap::new(pki.front_proxy_client.certified_key()?)));
    };
    let key = named_key("--proxy-client-cert-file, --proxy-client-key-file", &files)?;
    let current = Arc::new(ArcSwap::new(key));
    let kept = current.clone();
    reload.watch("proxy client certificate", files.both(), move || {
        let read = certified_key(&files.certificate, &files.key);
        read.map(|key| kept.store(key)).map_err(|error| error.to_string())
    });
    Ok(current)
}

/// Writes the administrator's kubeconfig into the data directory. None when the server's own certificates are not those that it
/// shows and trusts: then the file of an earlier start is removed, because it does not work any more.
pub(super) fn write_kubeconfig(config: &Config, pki: &Pki, url: &str) -> Result<Option<PathBuf>, StartError> {
    let Some(file) = config.data_dir.as_ref().map(|dir| dir.join("admin.kubeconfig")) else {
        return Ok(None);
    };
    if config.own_certificates() {
        pki.write_kubeconfig(&file, url)?;
        return Ok(Some(file));
    }
    match std::fs::remove_file(&file) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            tracing::warn!(file = %file.display(), %error, "a kubeconfig that does not work any more cannot be removed");
        }
        _ => {}
    }
    Ok(None)
}
