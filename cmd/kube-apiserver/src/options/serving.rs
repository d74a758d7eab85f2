//! The flags about TLS, but for the certificate itself.

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
    /// Serves HTTP/1.1 alone.
    #[arg(long, default_value_t = false, action = ArgAction::Set, num_args = 0..=1, default_missing_value = "true", help_heading = SERVING, value_name = "BOOL", hide_possible_values = true)]
    pub disable_http2_serving: bool,
}
