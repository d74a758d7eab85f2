//! The state that the resources of one server share.

use std::sync::Arc;
use std::time::Duration;

use crate::admission::AdmissionChain;
use crate::authz::Authorizer;

/// The state that all handlers of a server share.
#[derive(Debug, Clone)]
pub struct ServeEnv {
    /// The server's admission chain.
    pub admission: AdmissionChain,
    /// Asked again where a request turns out to need more than its verb (a PUT that creates).
    pub authorizer: Arc<dyn Authorizer>,
    /// The largest request body, in bytes (upstream: 3 MiB).
    pub max_body: usize,
    /// The least time that a watch without `timeoutSeconds` lives; the most is twice that (`--min-request-timeout`).
    pub min_request_timeout: Duration,
}

/// Upstream's default for [`ServeEnv::min_request_timeout`].
pub const MIN_REQUEST_TIMEOUT: Duration = Duration::from_secs(1800);
