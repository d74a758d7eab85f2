//! Options about TLS.

use std::path::{Path, PathBuf};

use generic_server::serve::{ConnectionLimits, TlsVersion, speaks_cipher_suite, speaks_curve};
use machinery::go;

use super::{Findings, KeyFiles};
use crate::options::TlsFlags;

/// Suites that Go knows and this server does not speak: without forward secrecy, or not authenticated encryption.
const UNSUPPORTED: [&str; 16] = [
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA",
    "TLS_ECDHE_ECDSA_WITH_RC4_128_SHA",
    "TLS_ECDHE_RSA_WITH_3DES_EDE_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256",
    "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_RC4_128_SHA",
    "TLS_RSA_WITH_3DES_EDE_CBC_SHA",
    "TLS_RSA_WITH_AES_128_CBC_SHA",
    "TLS_RSA_WITH_AES_128_CBC_SHA256",
    "TLS_RSA_WITH_AES_128_GCM_SHA256",
    "TLS_RSA_WITH_AES_256_CBC_SHA",
    "TLS_RSA_WITH_AES_256_GCM_SHA384",
    "TLS_RSA_WITH_RC4_128_SHA",
];
/// Key exchanges of Go: P-256, P-384, P-521, X25519, and hybrids with ML-KEM.
const GO_CURVES: [u16; 7] = [23, 24, 25, 29, 4587, 4588, 4589];
/// Go's older names.
const ALIASES: [(&str, &str); 2] = [
    (
        "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305",
        "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256",
    ),
    (
        "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305",
        "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256",
    ),
];

/// How TLS is spoken.
#[derive(Debug)]
pub(crate) struct TlsConfig {
    pub(crate) min_version: TlsVersion,
    pub(crate) cipher_suites: Vec<String>,
    pub(crate) curves: Vec<u16>,
    pub(crate) named: Vec<NamedFiles>,
    pub(crate) http2: bool,
    /// Requests that one HTTP/2 connection may have under way.
    streams: u32,
    /// Where the serving certificate is that no flag names by itself.
    directory: Option<PathBuf>,
    /// Other processes may listen on the port, too.
    pub(crate) shares_port: bool,
}

impl TlsConfig {
    /// The limits of connections.
    pub(crate) fn limits(&self) -> ConnectionLimits {
        ConnectionLimits {
            streams: self.streams,
            ..ConnectionLimits::default()
        }
    }

    /// The directory of `--cert-dir`, if this server can write there.
    fn writable_directory(&self) -> Option<&Path> {
        let directory = self.directory.as_deref().filter(|directory| directory.is_dir())?;
        let allowed = rustix::fs::access(directory, rustix::fs::Access::WRITE_OK);
        allowed.is_ok().then_some(directory)
    }

    /// Where a server keeps what it makes itself when objects are in etcd and no data directory is named.
    pub(crate) fn own_directory(&self) -> Option<PathBuf> {
        Some(self.writable_directory()?.join("kube-apiserver"))
    }

    /// The certificate of `--cert-dir`, if there is one, under upstream's name.
    pub(crate) fn in_directory(&self) -> Option<KeyFiles> {
        let directory = self.directory.as_ref()?;
        let files = KeyFiles {
            certificate: directory.join("apiserver.crt"),
            key: directory.join("apiserver.key"),
        };
        if files.certificate.exists() && files.key.exists() {
            return Some(files);
        }
        tracing::warn!(
            directory = %directory.display(),
            "--cert-dir: there is no apiserver.crt with apiserver.key; the server's own certificate is served"
        );
        None
    }
}

/// A certificate for some names; for those that it is of when there are none.
#[derive(Debug, Clone)]
pub(crate) struct NamedFiles {
    pub(crate) files: KeyFiles,
    pub(crate) names: Vec<String>,
}

impl TlsFlags {
    pub(super) fn read(self, found: &mut Findings) -> TlsConfig {
        let TlsFlags {
            tls_min_version: version,
            tls_cipher_suites: suites,
            tls_sni_cert_key: named,
            tls_curve_preferences: curves,
            http2_max_streams_per_connection: streams,
            cert_dir,
            permit_port_sharing,
            disable_http2_serving,
        } = self;
        let min_version = match version.as_deref().unwrap_or_default() {
            "" | "VersionTLS12" => TlsVersion::V12,
            "VersionTLS13" => TlsVersion::V13,
            old @ ("VersionTLS10" | "VersionTLS11") => {
                found.warn(format!("--tls-min-version={old}: TLS before 1.2 is not spoken"));
                TlsVersion::V12
            }
            other => {
                found.fault(format!(
                    "--tls-min-version: unknown tls version {}: it is VersionTLS12 or VersionTLS13",
                    go::quote(other)
                ));
                TlsVersion::V12
            }
        };
        TlsConfig {
            min_version,
            cipher_suites: cipher_suites(found, &suites),
            curves: curve_ids(found, &curves),
            named: named.iter().filter_map(|text| named_files(found, text)).collect(),
            http2: !disable_http2_serving,
            streams: match streams {
                0 => ConnectionLimits::default().streams,
                streams => streams,
            },
            directory: cert_dir.filter(|dir| !dir.as_os_str().is_empty()),
            shares_port: permit_port_sharing,
        }
    }
}

/// The key exchanges that are spoken, of those that are named.
fn curve_ids(found: &mut Findings, ids: &[i32]) -> Vec<u16> {
    let mut spoken = Vec::new();
    for id in ids {
        match u16::try_from(*id) {
            Ok(known) if speaks_curve(known) => spoken.push(known),
            Ok(known) if GO_CURVES.contains(&known) => {
                found.warn(format!("--tls-curve-preferences: {id} is not spoken"));
            }
            _ => found.fault(format!(
                "--tls-curve-preferences: {id} is no key exchange that Go knows"
            )),
        }
    }
    if spoken.is_empty() && !ids.is_empty() {
        found.fault("--tls-curve-preferences names no key exchange that is spoken");
    }
    spoken
}

/// The suites that are spoken, of those that are named.
fn cipher_suites(found: &mut Findings, names: &[String]) -> Vec<String> {
    let mut spoken = Vec::new();
    let names = names.iter().map(String::as_str).filter(|name| !name.is_empty());
    let (mut unsafe_ones, mut unknown) = (0, 0);
    for name in names {
        let alias = ALIASES.iter().find(|(old, _)| *old == name);
        let name = alias.map_or(name, |(_, name)| name);
        if speaks_cipher_suite(name) {
            spoken.push(name.to_string());
        } else if UNSUPPORTED.contains(&name) {
            unsafe_ones += 1;
            found.warn(format!(
                "--tls-cipher-suites: {name} is not spoken, since it is not safe"
            ));
        } else {
            unknown += 1;
            found.fault(format!(
                "--tls-cipher-suites: Cipher suite {name} not supported or doesn't exist"
            ));
        }
    }
    if spoken.is_empty() && unsafe_ones > 0 && unknown == 0 {
        found.fault("--tls-cipher-suites names no suite that is spoken");
    }
    spoken
}

fn named_files(found: &mut Findings, text: &str) -> Option<NamedFiles> {
    let mut refuse = |why: &str| {
        let text = go::quote(text);
        found.fault(format!(
            "invalid argument {text} for \"--tls-sni-cert-key\" flag: {why}"
        ));
        None
    };
    let (files, names) = match text.split_once(':') {
        Some((files, names)) => (files, Some(names.trim())),
        None => (text, None),
    };
    if names == Some("") {
        return refuse("empty names list is not allowed");
    }
    let parts: Vec<&str> = files.split(',').map(str::trim).collect();
    let [certificate, key] = parts[..] else {
        return refuse("expected comma separated certificate and key file paths");
    };
    let names = names.into_iter().flat_map(|names| names.split(','));
    Some(NamedFiles {
        files: KeyFiles {
            certificate: certificate.into(),
            key: key.into(),
        },
        names: names.map(|name| name.trim().to_ascii_lowercase()).collect(),
    })
}
