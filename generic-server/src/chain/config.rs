//! The parts of a chain.

use std::sync::Arc;
use std::time::Duration;

use http::HeaderValue;

use crate::audit::Auditor;
use crate::authn::Authenticator;
use crate::authn::request_header::FrontProxyHeaders;
use crate::authz::Authorizer;
use crate::cpu::Pool;
use crate::delegate::Delegate;
use crate::endpoint::Endpoints;
use crate::filters::cors::Cors;
use crate::filters::max_in_flight::{Admit, MaxInFlight};
use crate::lifecycle::Lifecycle;
use crate::metrics::Metrics;

/// The parts of a chain.
#[derive(Debug)]
pub struct ChainConfig {
    /// The authenticator.
    pub authenticator: Arc<dyn Authenticator>,
    /// The authorizer.
    pub authorizer: Arc<dyn Authorizer>,
    /// The servers that answer.
    pub delegate: Arc<dyn Delegate>,
    /// Paths outside the API; they come before the delegate.
    pub endpoints: Endpoints,
    /// The server's life.
    pub lifecycle: Lifecycle,
    /// Where requests are counted.
    pub metrics: Arc<Metrics>,
    /// Where requests are recorded.
    pub audit: Arc<Auditor>,
    /// When requests may run.
    pub admit: Arc<dyn Admit>,
    /// Where long computations of requests run.
    pub cpu: Arc<Pool>,
    /// Which origins browsers may ask from.
    pub cors: Cors,
    /// `--request-timeout`.
    pub request_timeout: Duration,
    /// `--goaway-chance`.
    pub goaway_chance: f64,
    /// `--strict-transport-security-directives`, joined by `; `.
    pub hsts: Option<HeaderValue>,
    /// Objects are read and written as CBOR, too (`CBORServingAndStorage`).
    pub serves_cbor: bool,
    /// `--shutdown-send-retry-after`.
    pub shutdown_send_retry_after: bool,
    /// Configured front-proxy headers (`--requestheader-*`).
    pub front_proxy_headers: FrontProxyHeaders,
}

impl ChainConfig {
    /// Upstream's defaults around these.
    pub fn new(
        authenticator: Arc<dyn Authenticator>,
        authorizer: Arc<dyn Authorizer>,
        delegate: Arc<dyn Delegate>,
    ) -> Self {
        ChainConfig {
            authenticator,
            authorizer,
            delegate,
            endpoints: Endpoints::default(),
            lifecycle: Lifecycle::new(),
            metrics: Metrics::new(),
            audit: Arc::default(),
            admit: Arc::new(MaxInFlight::new(400, 200)),
            cpu: Pool::shared().clone(),
            cors: Cors::default(),
            request_timeout: Duration::from_secs(60),
            goaway_chance: 0.0,
            hsts: None,
            serves_cbor: false,
            shutdown_send_retry_after: false,
            front_proxy_headers: FrontProxyHeaders::default(),
        }
    }
}
