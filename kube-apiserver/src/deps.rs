//! The dependencies of this server: stores, authorizer, token authenticators, and the address ranges of services.

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use generic_server::ApiError;
use generic_server::authn::TokenAuthenticator;
use generic_server::authz::Authorizer;
use generic_server::directory::Directory;
use generic_server::registry::StorageFactory;
use generic_server::registry::cache::StoredForm;
use machinery::time::GoDuration;

use crate::net::Cidr;
use crate::nodes::Nodes;
use crate::served::ServedApis;

/// A token that was made for a service account.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IssuedToken {
    /// The JWT.
    pub token: String,
    /// When it ends, RFC 3339.
    pub expiration: String,
    /// Its id (`jti`).
    pub id: String,
}

/// The claims of a service account's token.
#[derive(Debug, Clone, Default)]
pub struct TokenClaims {
    /// The service account's namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its uid.
    pub uid: String,
    /// The audiences of the token; empty: the server's own.
    pub audiences: Vec<String>,
    /// How long it holds.
    pub expiration_seconds: i64,
    /// The object whose end invalidates the token: kind (`Pod`, `Secret`, `Node`), name and uid.
    pub bound: Option<(String, String, String)>,
    /// The node of a bound pod: name and uid.
    pub node: Option<(String, String)>,
    /// It was asked for so many seconds alone, and holds longer: it says so in `warnafter`.
    pub warn_after: Option<i64>,
}

/// How long service account tokens may hold.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TokenLifetimes {
    /// The longest that may be asked for, in seconds (`--service-account-max-token-expiration`).
    pub most_seconds: Option<i64>,
    /// Tokens that pods are given by default hold for a year (`--service-account-extend-token-expiration`).
    pub extends: bool,
    /// How long such tokens hold at most, in seconds; as long as whoever signs them allows.
    pub most_extended_seconds: Option<i64>,
}

/// The expiration that asks for a token of a pod as kubelets mount it by default, in seconds.
pub(crate) const POD_TOKEN_SECONDS: i64 = 60 * 60 + 7;
/// How long such a token holds, so that clients go on that do not read it again.
pub(crate) const EXTENDED_SECONDS: i64 = 365 * 24 * 60 * 60;

impl TokenLifetimes {
    /// How long a token of a pod holds that is extended.
    pub(crate) fn extended_seconds(self) -> i64 {
        let most = self.most_extended_seconds;
        most.map_or(EXTENDED_SECONDS, |most| most.min(EXTENDED_SECONDS))
    }

    /// What does not go together where another program signs, in upstream's words.
    pub(crate) fn warnings(self) -> Vec<String> {
        let (Some(most), true) = (self.most_seconds, self.extends) else {
            return Vec::new();
        };
        let shown = GoDuration(most.saturating_mul(1_000_000_000));
        let mut warnings = Vec::new();
        if most < POD_TOKEN_SECONDS {
            warnings.push(format!(
                "service-account-extend-token-expiration is true, in order to correctly trigger safe transition logic, token lifetime supported by external-jwt-signer must be longer than {POD_TOKEN_SECONDS} seconds (currently {shown})"
            ));
        }
        if most < EXTENDED_SECONDS {
            warnings.push(format!(
                "service-account-extend-token-expiration is true, tokens validity will be caped at the smaller of {EXTENDED_SECONDS} seconds and maximum token lifetime supported by external-jwt-signer ({shown})"
            ));
        }
        warnings
    }
}

/// Makes service account tokens; the signing key stays in the implementation.
#[async_trait::async_trait]
pub trait TokenIssuer: Send + Sync + std::fmt::Debug {
    /// The audiences of tokens that name none.
    fn default_audiences(&self) -> Vec<String>;
    /// The bounds of what may be asked for.
    fn lifetimes(&self) -> TokenLifetimes {
        TokenLifetimes::default()
    }
    /// Signs a token. An issuer without a key answers an error.
    async fn issue(&self, claims: &TokenClaims) -> Result<IssuedToken, ApiError>;
}

/// Which of upstream's features of built-in kinds are on that can be off, each by the feature gate of its name. What they turn on is stores and
/// fields of other kinds, roles of the cluster and admission; whether a version is served is said by [`Deps::served`] besides.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct KindFeatures {
    /// `GenericWorkload`: Workloads, PodGroups and the `schedulingGroup` of pods.
    pub workloads: bool,
    /// `ClusterTrustBundle`.
    pub trust_bundles: bool,
    /// `ClusterTrustBundleProjection`: projected volumes of them.
    pub trust_bundle_projection: bool,
    /// `PodCertificateRequest`, with projected volumes of certificates.
    pub pod_certificates: bool,
    /// `DRAResourceClaimGranularStatusAuthorization`, which is on by default: parts of a claim's status need permissions of their own.
    pub granular_claim_status: bool,
    /// `DRADeviceTaintRules`.
    pub device_taint_rules: bool,
    /// `DRAResourcePoolStatus`: ResourcePoolStatusRequests.
    pub pool_status: bool,
    /// `StorageVersionAPI`.
    pub storage_versions: bool,
}

/// The dependencies of the built-in groups.
#[derive(Debug, Clone)]
pub struct Deps {
    /// Where objects are kept.
    pub storage: StorageFactory,
    /// The prefix of keys, without a final slash: `/registry`.
    pub prefix: String,
    /// The form of stored values.
    pub stored_form: StoredForm,
    /// Every store of the process; the built-in ones are registered by [`crate::groups`].
    pub directory: Arc<Directory>,
    /// Answers access reviews.
    pub authorizer: Arc<dyn Authorizer>,
    /// Answers token reviews.
    pub token_authenticator: Arc<dyn TokenAuthenticator>,
    /// Makes service account tokens.
    pub token_issuer: Arc<dyn TokenIssuer>,
    /// `--service-cluster-ip-range`: one, or one of each family, the first is the default family.
    pub service_cidrs: Vec<Cidr>,
    /// `--service-node-port-range`.
    pub node_ports: RangeInclusive<u16>,
    /// The versions and resources that are served. Stores of the others are there for the server itself.
    pub served: ServedApis,
    /// The StorageVersionMigration API is served and its controller runs.
    pub storage_migration: bool,
    /// `coordination.k8s.io/v1beta1` is served.
    pub lease_candidates: bool,
    /// The features of kinds that are on.
    pub features: KindFeatures,
    /// `--event-ttl`.
    pub event_ttl: Duration,
    /// `--bind-address`/`--advertise-address`: where the `kubernetes` service leads, and the port.
    pub advertise: (std::net::IpAddr, u16),
    /// The way to kubelets.
    pub nodes: Arc<Nodes>,
}
