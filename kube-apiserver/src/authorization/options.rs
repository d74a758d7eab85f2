//! Which authorizers a server has.

use std::path::PathBuf;
use std::time::Duration;

use generic_server::delegated::AccessReviewVersion;

use crate::deps::KindFeatures;

/// An authorizer that the options can name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AuthorizationMode {
    /// Kubelets may do what the pods of their nodes need.
    Node,
    /// Roles and bindings decide.
    Rbac,
    /// Everybody may do everything.
    AlwaysAllow,
    /// Nobody is authorized.
    AlwaysDeny,
    /// A file of policies decides.
    Abac,
    /// A server outside the cluster decides.
    Webhook,
}

/// Which authorizers there are.
#[derive(Debug, Clone)]
pub struct AuthorizationOptions {
    /// The authorizers, in order. `system:masters` may do everything before them.
    pub source: AuthorizationSource,
    /// The policies of ABAC.
    pub policy_file: Option<PathBuf>,
    /// The features of kinds that the rules of nodes are about.
    pub features: KindFeatures,
}

/// What names the authorizers.
#[derive(Debug, Clone)]
pub enum AuthorizationSource {
    /// Flags.
    Modes {
        /// The authorizers, in order.
        modes: Vec<AuthorizationMode>,
        /// The webhook, where it is one of them.
        webhook: Option<AuthorizationWebhookOptions>,
    },
    /// An `AuthorizationConfiguration`, which is read again while the server runs.
    File(PathBuf),
}

/// A webhook that says what users may do.
#[derive(Debug, Clone)]
pub struct AuthorizationWebhookOptions {
    /// A kubeconfig: the server, its certificate authority and the credentials.
    pub config_file: PathBuf,
    /// The form of the reviews.
    pub version: AccessReviewVersion,
    /// How long an allowed request is remembered; zero asks every time.
    pub authorized_ttl: Duration,
    /// How long any other answer is remembered; zero asks every time.
    pub unauthorized_ttl: Duration,
}
