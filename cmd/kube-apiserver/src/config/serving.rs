//! Options about TLS.

use generic_server::serve::{TlsVersion, speaks_cipher_suite};
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
    pub(crate) named: Vec<NamedFiles>,
    pub(crate) http2: bool,
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
                found.fault(format!("unknown tls version {}", go::quote(other)));
                TlsVersion::V12
            }
        };
        TlsConfig {
            min_version,
            cipher_suites: cipher_suites(found, &suites),
            named: named.iter().filter_map(|text| named_files(found, text)).collect(),
            http2: !disable_http2_serving,
        }
    }
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
            found.fault(format!("Cipher suite {name} not supported or doesn't exist"));
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
