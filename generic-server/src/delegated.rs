//! The other side of aggregation: the requests of an extension API server to the main one. The user of a token (TokenReview),
//! permissions (SubjectAccessReview), and the front proxies to trust (the `extension-apiserver-authentication` ConfigMap).
//!
//! For extension servers; the control plane itself uses only the webhooks of authentication and authorization. Everything here is fail-closed: when the main server cannot
//! be asked, the answer is no.

mod access_review;
mod access_webhook;
mod answer;
mod authn;
mod authz;
mod client;
mod kubeconfig;
mod lookups;
pub(crate) mod retry;
mod seats;
mod token_review;
mod webhook;

pub use access_review::{AccessReviewVersion, spec as access_review_spec};
pub use access_webhook::{AccessWebhook, AccessWebhookMetrics, AccessWebhookOptions};
pub use answer::is_of_kind;
pub use authn::{FrontProxy, TokenReviews, Trust, front_proxy};
pub use authz::AccessReviews;
pub use client::{ClientError, KubeClient};
pub use kubeconfig::{Kubeconfig, KubeconfigError, ServerTrust};
pub use lookups::Lookups;
pub use retry::review;
pub use webhook::{ReviewVersion, TokenWebhook};
