//! The flags about TLS, but for the certificate itself.

use std::path::PathBuf;

use clap::{ArgAction, Args};

use super::SERVING;

/// How TLS is spoken.
#[derive(Debug, Clone, Default, Args)]
pub struct TlsFlags {
    /// The lowest version of TLS: VersionTLS12 or VersionTLS13; by default VersionTLS12.
    #[arg(long, help_heading = SERVING, value_name = "VERSION")]
    pub tls_min_version: Option<String>,
    /// Cipher suites of TLS 1.2, by their IANA names; all that are safe when empty.
    #[arg(long, value_delimiter = ',', help_heading = SERVING, value_name = "LIST")]
    pub tls_cipher_suites: Vec<String>,
    /// A certificate and key for some names, as CERT,KEY or CERT,KEY:NAME,NAME; *.example.com stands for one label. Repeated: the first counts.
    #[arg(long, help_heading = SERVING, value_name = "FILES")]
    pub tls_sni_cert_key: Vec<String>,
    /// Key exchanges by Go's numbers: 23 (P-256), 24 (P-384), 29 (X25519), 4588 (X25519MLKEM768); all of them when empty.
    #[arg(long, value_delimiter = ',', help_heading = SERVING, value_name = "LIST")]
    pub tls_curve_preferences: Vec<i32>,
    /// Requests that one HTTP/2 connection may have under way; 0 is 100.
    #[arg(long, default_value_t = 0, help_heading = SERVING, value_name = "NUMBER")]
    pub http2_max_streams_per_connection: u32,
    /// The directory of apiserver.crt and apiserver.key, which are served without --tls-cert-file; by default the server's own.
    #[arg(long, help_heading = SERVING, value_name = "DIR")]
    pub cert_dir: Option<PathBuf>,
    /// Lets other processes that ask for it, too, listen on the same port.
    #[arg(long, default_value_t = false, action = ArgAction::Set, num_args = 0..=1, default_missing_value = "true", help_heading = SERVING, value_name = "BOOL", hide_possible_values = true)]
    pub permit_port_sharing: bool,
    /// Serves HTTP/1.1 alone.
    #[arg(long, default_value_t = false, action = ArgAction::Set, num_args = 0..=1, default_missing_value = "true", help_heading = SERVING, value_name = "BOOL", hide_possible_values = true)]
    pub disable_http2_serving: bool,
}
