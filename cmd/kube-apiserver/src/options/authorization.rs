//! The flags about authorization. Each is `None` or empty when it is not given, since a file excludes the others.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use generic_server::delegated::AccessReviewVersion;

use super::{AUTHORIZATION, duration};

/// An authorizer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum AuthorizationMode {
    /// Kubelets may do what the pods of their nodes need.
    #[value(name = "Node")]
    Node,
    /// By roles and bindings.
    #[value(name = "RBAC")]
    Rbac,
    /// Everybody is authorized.
    #[value(name = "AlwaysAllow")]
    AlwaysAllow,
    /// Nobody is authorized.
    #[value(name = "AlwaysDeny")]
    AlwaysDeny,
    /// By a file of policies.
    #[value(name = "ABAC")]
    Abac,
    /// By a server outside the cluster.
    #[value(name = "Webhook")]
    Webhook,
}

impl From<AuthorizationMode> for kube_apiserver::AuthorizationMode {
    fn from(mode: AuthorizationMode) -> Self {
        match mode {
            AuthorizationMode::Node => kube_apiserver::AuthorizationMode::Node,
            AuthorizationMode::Rbac => kube_apiserver::AuthorizationMode::Rbac,
            AuthorizationMode::AlwaysAllow => kube_apiserver::AuthorizationMode::AlwaysAllow,
            AuthorizationMode::AlwaysDeny => kube_apiserver::AuthorizationMode::AlwaysDeny,
            AuthorizationMode::Abac => kube_apiserver::AuthorizationMode::Abac,
            AuthorizationMode::Webhook => kube_apiserver::AuthorizationMode::Webhook,
        }
    }
}

/// The form of SubjectAccessReviews that a webhook takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum SubjectAccessReviewVersion {
    /// `authorization.k8s.io/v1`.
    #[value(name = "v1")]
    V1,
    /// `authorization.k8s.io/v1beta1`.
    #[value(name = "v1beta1")]
    V1beta1,
}

impl From<SubjectAccessReviewVersion> for AccessReviewVersion {
    fn from(version: SubjectAccessReviewVersion) -> Self {
        match version {
            SubjectAccessReviewVersion::V1 => AccessReviewVersion::V1,
            SubjectAccessReviewVersion::V1beta1 => AccessReviewVersion::V1beta1,
        }
    }
}

/// The authorizers.
#[derive(Debug, Clone, Default, Args)]
pub struct AuthorizationFlags {
    /// Authorizers in order: Node, RBAC, ABAC, Webhook, AlwaysAllow, AlwaysDeny; RBAC by default.
    #[arg(long, value_enum, value_delimiter = ',', help_heading = AUTHORIZATION, value_name = "LIST", hide_possible_values = true)]
    pub authorization_mode: Vec<AuthorizationMode>,
    /// An AuthorizationConfiguration (apiserver.config.k8s.io/v1) in place of the other flags: the authorizers in order.
    #[arg(long, help_heading = AUTHORIZATION, value_name = "FILE")]
    pub authorization_config: Option<PathBuf>,
    /// The policies of ABAC, one a line in JSON.
    #[arg(long, help_heading = AUTHORIZATION, value_name = "FILE")]
    pub authorization_policy_file: Option<PathBuf>,
    /// A kubeconfig of the webhook that authorizes requests: https, with a certificate authority.
    #[arg(long, help_heading = AUTHORIZATION, value_name = "FILE")]
    pub authorization_webhook_config_file: Option<PathBuf>,
    /// The version of SubjectAccessReviews sent to and expected from the webhook; v1beta1 by default.
    #[arg(long, value_enum, help_heading = AUTHORIZATION, value_name = "VERSION")]
    pub authorization_webhook_version: Option<SubjectAccessReviewVersion>,
    /// How long the webhook's answers that allow are kept; 5m by default.
    #[arg(long, value_parser = duration, help_heading = AUTHORIZATION, value_name = "DURATION")]
    pub authorization_webhook_cache_authorized_ttl: Option<Duration>,
    /// How long the webhook's other answers are kept; 30s by default.
    #[arg(long, value_parser = duration, help_heading = AUTHORIZATION, value_name = "DURATION")]
    pub authorization_webhook_cache_unauthorized_ttl: Option<Duration>,
}
