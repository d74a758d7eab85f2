//! The options about kubelets, for `log`, `exec`, `attach`, `portforward` and the proxies.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use super::{MISC, duration};

/// How kubelets are reached: `--kubelet-*`.
#[derive(Debug, Clone, Args)]
pub struct KubeletFlags {
    /// The certificate that kubelets are shown.
    #[arg(long, requires = "kubelet_client_key", help_heading = MISC, value_name = "FILE")]
    pub kubelet_client_certificate: Option<PathBuf>,
    /// The key of the certificate that kubelets are shown.
    #[arg(long, requires = "kubelet_client_certificate", help_heading = MISC, value_name = "FILE")]
    pub kubelet_client_key: Option<PathBuf>,
    /// The authorities of kubelets' certificates; without them these are not verified.
    #[arg(long, help_heading = MISC, value_name = "FILE")]
    pub kubelet_certificate_authority: Option<PathBuf>,
    /// The types of a node's addresses by which its kubelet is reached, the preferred one first.
    #[arg(long, value_delimiter = ',', default_value = "Hostname,InternalDNS,InternalIP,ExternalDNS,ExternalIP", help_heading = MISC, value_name = "LIST")]
    pub kubelet_preferred_address_types: Vec<String>,
    /// How long a connection to a kubelet may take to come about. Upstream: without effect.
    #[arg(long, default_value = "5s", value_parser = duration, help_heading = MISC, value_name = "DURATION")]
    pub kubelet_timeout: Duration,
    /// Deprecated: the port of a kubelet whose node does not say it.
    #[arg(long, default_value_t = 10_250, help_heading = MISC, value_name = "NUMBER")]
    pub kubelet_port: u16,
}
