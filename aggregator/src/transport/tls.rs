//! TLS to extension servers: the trust they are verified against, and the certificate this server presents.
//!
//! Fail-closed: a bundle that cannot be read is an error that the caller reports, never a reason to trust anybody.

use std::sync::Arc;

use arc_swap::ArcSwap;
use generic_server::client::DeprecatedCertificates;
use generic_server::client::egress::Route;
use generic_server::client::trust::{self, TrustedPeers};
use rustls::client::{ResolvesClientCert, Resumption};
use rustls::sign::CertifiedKey;
use rustls::{ClientConfig, SignatureScheme};

use crate::remote::RemoteSpec;

/// The client certificate that is shown to extension servers; replaced when its files change, new connections show the new one.
pub type ProxyKey = Arc<ArcSwap<CertifiedKey>>;

/// How extension servers are reached.
#[derive(Debug, Clone)]
pub(crate) struct TransportSettings {
    pub(crate) key: ProxyKey,
    pub(crate) route: Route,
    pub(crate) certificates: Arc<DeprecatedCertificates>,
}

/// The settings for one APIService, without protocol negotiation; the error is shown to clients and in the condition.
pub(crate) fn client_config(spec: &RemoteSpec, settings: &TransportSettings) -> Result<ClientConfig, String> {
    let peers = match &spec.ca_bundle {
        _ if spec.insecure => TrustedPeers::Anyone,
        Some(bundle) => TrustedPeers::Bundle(bundle),
        None => TrustedPeers::System,
    };
    let own = FixedClientCert(settings.key.clone());
    let trusted = trust::counting_settings(peers, &settings.certificates)?;
    let mut config = trusted.with_client_cert_resolver(Arc::new(own));
    // A session that is taken up again would go on with the certificate that was shown at its beginning.
    config.resumption = Resumption::disabled();
    Ok(config)
}

/// Presents the front-proxy certificate, whatever authorities the server hints at.
#[derive(Debug)]
struct FixedClientCert(ProxyKey);

impl ResolvesClientCert for FixedClientCert {
    fn resolve(&self, _hints: &[&[u8]], _schemes: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        Some(self.0.load_full())
    }

    fn has_certs(&self) -> bool {
        true
    }
}
