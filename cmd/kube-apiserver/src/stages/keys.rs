//! The certificates that this server shows: to its clients, and to extension servers. Those from files are followed.

use std::path::PathBuf;
use std::sync::Arc;

use aggregator::ProxyKey;
use arc_swap::ArcSwap;
use generic_server::pki::Pki;
use generic_server::reload::Reload;
use generic_server::serve::{
    CertifiedKey, SniCertificate, Tls, TlsOptions, certificate_names, certified_key,
};

use crate::StartError;
use crate::config::{Config, KeyFiles, NamedFiles, TlsConfig};
use crate::ui::CertificateSource;

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

/// The files that flags name, else those that the server keeps and renews itself, with what errors call them. `None` when there are
/// no files at all.
fn given_or_own(
    (flags, given): (&'static str, Option<&KeyFiles>),
    pki: &Pki,
    name: &str,
) -> Option<(&'static str, KeyFiles)> {
    if let Some(files) = given {
        return Some((flags, files.clone()));
    }
    let certificate = pki.file(&format!("{name}.crt"));
    let files = KeyFiles::of(certificate, pki.file(&format!("{name}.key")))?;
    Some(("the server's own certificate", files))
}

/// The TLS of the listener: with the serving certificate that the options name, else with the server's own.
pub(super) fn serving_tls(config: &Config, pki: &Pki, reload: &mut Reload) -> Result<Arc<Tls>, StartError> {
    let given = ("--tls-cert-file, --tls-private-key-file", config.serving.as_ref());
    let own = given_or_own(given, pki, "apiserver");
    let default = match &own {
        Some((what, files)) => named_key(what, files)?,
        None => pki.serving_key()?,
    };
    let mut options = tls_options(&config.tls, default.clone());
    options.sni = sni_certificates(&config.tls.named)?;
    let tls = Arc::new(Tls::new(options)?);
    let kept = tls.clone();
    let own = own.map(|(_, files)| files);
    let named = config.tls.named.clone();
    let shape = tls_options(&config.tls, default);
    let all = own.iter().chain(named.iter().map(|one| &one.files));
    let files: Vec<PathBuf> = all.flat_map(KeyFiles::both).collect();
    reload.watch("serving certificate", files, move || {
        let mut options = shape.clone();
        if let Some(files) = &own {
            options.default =
                certified_key(&files.certificate, &files.key).map_err(|error| error.to_string())?;
        }
        options.sni = sni_certificates(&named).map_err(|error| error.to_string())?;
        kept.reload(options).map_err(|error| error.to_string())
    });
    Ok(tls)
}

fn tls_options(config: &TlsConfig, default: Arc<CertifiedKey>) -> TlsOptions {
    TlsOptions {
        min_version: config.min_version,
        cipher_suites: config.cipher_suites.clone(),
        curves: config.curves.clone(),
        http2: config.http2,
        ..TlsOptions::new(default)
    }
}

/// The certificates for some names: those with names of their own before those that are known by what they are for.
pub(crate) fn sni_certificates(named: &[NamedFiles]) -> Result<Vec<SniCertificate>, StartError> {
    let mut all = Vec::with_capacity(named.len());
    for one in named {
        let certificate = named_key("--tls-sni-cert-key", &one.files)?;
        let names = match one.names.is_empty() {
            true => certificate_names(&certificate),
            false => one.names.clone(),
        };
        all.push((one.names.is_empty(), SniCertificate { names, certificate }));
    }
    all.sort_by_key(|(by_certificate, _)| *by_certificate);
    Ok(all.into_iter().map(|(_, one)| one).collect())
}

/// The client certificate that vouches for this server to extension servers: the one that the options name, else its own.
pub(super) fn proxy_key(config: &Config, pki: &Pki, reload: &mut Reload) -> Result<ProxyKey, StartError> {
    let flags = "--proxy-client-cert-file, --proxy-client-key-file";
    let given = (flags, config.proxy_client.as_ref());
    let Some((what, files)) = given_or_own(given, pki, "front-proxy-client") else {
        return Ok(Arc::new(ArcSwap::new(pki.front_proxy_client.certified_key()?)));
    };
    let key = named_key(what, &files)?;
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
        match pki.write_kubeconfig(&file, url) {
            // Requests are answered without it, and it is written again when certificates are renewed.
            Err(error) if error.is_full() => {
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "the administrator's kubeconfig cannot be written now"
                );
            }
            written => written?,
        }
        return Ok(Some(file));
    }
    match std::fs::remove_file(&file) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            tracing::warn!(file = %file.display(), %error, "an obsolete kubeconfig cannot be removed");
        }
        _ => {}
    }
    Ok(None)
}

/// The certificates whose ends the status page shows, by purpose: those that options name, else the server's own.
pub(super) fn shown(config: &Config, pki: &Pki) -> Vec<(&'static str, CertificateSource)> {
    let source = |given: Option<&PathBuf>, own: &str, pem: &str| {
        let file = given.cloned().or_else(|| pki.file(own));
        file.map_or_else(|| CertificateSource::Pem(pem.into()), CertificateSource::File)
    };
    let certificate = |files: &Option<KeyFiles>| files.as_ref().map(|files| files.certificate.clone());
    let (serving, proxy) = (certificate(&config.serving), certificate(&config.proxy_client));
    let access = &config.access;
    let mut all = vec![
        (
            "serving",
            source(serving.as_ref(), "apiserver.crt", &pki.serving.certificate),
        ),
        (
            "authority of clients",
            source(access.client_ca_file.as_ref(), "ca.crt", &pki.ca.certificate),
        ),
        (
            "client of extension servers",
            source(
                proxy.as_ref(),
                "front-proxy-client.crt",
                &pki.front_proxy_client.certificate,
            ),
        ),
        (
            "authority of front proxies",
            source(
                access.front_proxy_ca_file.as_ref(),
                "front-proxy-ca.crt",
                &pki.front_proxy_ca.certificate,
            ),
        ),
    ];
    let named = config.tls.named.iter();
    all.extend(named.map(|one| {
        (
            "serving, by name",
            CertificateSource::File(one.files.certificate.clone()),
        )
    }));
    if config.own_certificates() {
        all.push(("administrator", source(None, "admin.crt", &pki.admin.certificate)));
    }
    all
}
