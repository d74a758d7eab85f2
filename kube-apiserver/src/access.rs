//! Authentication and authorization of the main API server: the authenticators and authorizers that its options name, over the
//! stored roles, accounts and tokens, and what keeps them in step with files and objects.

mod explain;
mod rbac;
mod tokens;
mod trust;
mod usage;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use generic_server::authn::anonymous::Anonymous;
use generic_server::authn::bearer::Bearer;
use generic_server::authn::issued::IssuedTokens;
use generic_server::authn::request_header::{RequestHeader, RequestHeaderOptions};
use generic_server::authn::token_metrics::TokenCacheMetrics;
use generic_server::authn::union::Authentication;
use generic_server::authn::x509::X509;
use generic_server::authn::{Authenticator, TokenAuthenticator};
use generic_server::authz::Authorizer;
use generic_server::client::egress::{EgressSelector, Network};
use generic_server::delegated::{Lookups, ReviewVersion};
use generic_server::directory::Directory;
use generic_server::endpoint::{Endpoint, StaticJson};
use generic_server::metrics::Metrics;
use generic_server::pki::Pki;
use generic_server::reload::Reload;
use generic_server::spawn::Tasks;
use tokio::sync::watch;

use crate::authorization::chain::AuthorizerChain;
use crate::authorization::node::NodeAuthorizer;
use crate::authorization::options::AuthorizationOptions;
use crate::bootstrap::ClusterAuthorities;
use crate::deps::{TokenIssuer, TokenLifetimes};
use crate::rbac::Rbac;
use crate::tokens::jwt::{AnonymousConfig, JwtAuthenticators, JwtSource};
use crate::tokens::service_account::{ExternalSigner, TokenMetrics};
use trust::Bundle;

pub use rbac::follow_rbac;

/// How users are authenticated and authorized.
#[derive(Debug, Clone)]
pub struct AccessOptions {
    /// CAs of client certificates; the server's own CA when unset.
    pub client_ca_file: Option<PathBuf>,
    /// A CSV file of static tokens.
    pub token_auth_file: Option<PathBuf>,
    /// Tokens that the process itself issues to clients that it makes.
    pub issued_tokens: Arc<IssuedTokens>,
    /// The webhook that is asked about other tokens.
    pub token_webhook: Option<TokenWebhookOptions>,
    /// Tokens of other issuers.
    pub jwt: JwtSource,
    /// Whether requests without credentials are `system:anonymous` rather than refused; `None` leaves it to the file of [`JwtSource::File`],
    /// and where that says nothing they are.
    pub anonymous: Option<bool>,
    /// CAs of front proxies; the server's own front-proxy CA when unset.
    pub front_proxy_ca_file: Option<PathBuf>,
    /// The names and headers of front proxies.
    pub front_proxy: RequestHeaderOptions,
    /// Service account tokens.
    pub tokens: TokenOptions,
    /// The authorizers.
    pub authorization: AuthorizationOptions,
    /// Bootstrap tokens, which are secrets of `kube-system`, are accepted.
    pub bootstrap_tokens: bool,
}

/// A webhook that says whose tokens are.
#[derive(Debug, Clone)]
pub struct TokenWebhookOptions {
    /// A kubeconfig: the server, its certificate authority and the credentials.
    pub config_file: PathBuf,
    /// The form of the reviews.
    pub version: ReviewVersion,
    /// How long its answers count; zero asks every time.
    pub cache_ttl: Duration,
}

/// Which service account tokens are issued and accepted.
#[derive(Debug, Clone)]
pub struct TokenOptions {
    /// The first issues, all are accepted.
    pub issuers: Vec<String>,
    /// Audiences of tokens that name none.
    pub audiences: Vec<String>,
    /// More keys that tokens may be signed with.
    pub key_files: Vec<PathBuf>,
    /// The key that signs; the server's own when unset.
    pub signing_key_file: Option<PathBuf>,
    /// The socket of a program that signs instead, and says which keys are trusted.
    pub signing_endpoint: Option<PathBuf>,
    /// How long they may hold.
    pub lifetimes: TokenLifetimes,
    /// Where the discovery document says that the keys are; this server by default.
    pub jwks_uri: Option<String>,
}

/// Why access cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum AccessError {
    /// A file that a flag names cannot be used. The text begins with the flag.
    #[error("{0}")]
    Option(String),
    /// Tokens cannot be hashed without randomness.
    #[error("the system has no source of randomness")]
    Randomness,
    /// A document about tokens is no JSON.
    #[error("a document about tokens cannot be written: {0}")]
    Document(serde_json::Error),
}

/// The authenticators and authorizers of a server.
#[derive(Debug)]
pub struct Access {
    /// All authenticators.
    pub authenticator: Arc<dyn Authenticator>,
    /// The authorizers, as one.
    authorizers: Arc<AuthorizerChain>,
    /// Which bearer tokens are accepted.
    pub tokens: Arc<dyn TokenAuthenticator>,
    /// Makes the tokens of service accounts.
    pub issuer: Arc<dyn TokenIssuer>,
    /// The authorities that extension servers read, kept in step with the files.
    pub cluster_authorities: watch::Receiver<ClusterAuthorities>,
    /// The documents about service account tokens, by path.
    pub endpoints: Vec<(&'static str, Arc<StaticJson>)>,
    /// The authenticator of client certificates, for its metrics.
    certificates: Arc<X509>,
    /// What the caches of tokens do.
    caches: Arc<TokenCacheMetrics>,
    /// The lookups of the token webhook, for their metrics.
    lookups: Option<Arc<Lookups>>,
    /// Tokens of other issuers, which are not asked for anything until [`Access::start`].
    jwt: Option<Arc<JwtAuthenticators>>,
    /// The program that signs service account tokens, which is not called until [`Access::connect`].
    external: Option<Arc<ExternalSigner>>,
    /// How service account tokens are used.
    token_metrics: Arc<TokenMetrics>,
}

impl Access {
    /// Reads the files that the options name and has `reload` follow them. Issuers and webhooks are reached as `egress` says. Tasks in the background are of `tasks`.
    ///
    /// # Errors
    /// A file that cannot be read or has invalid content.
    pub fn new(
        options: &AccessOptions,
        pki: &Pki,
        directory: &Arc<Directory>,
        egress: &EgressSelector,
        reload: &mut Reload,
        tasks: &Tasks,
    ) -> Result<Self, AccessError> {
        let clients = Bundle::new(
            ("--client-ca-file", options.client_ca_file.as_deref()),
            (&pki.ca.certificate, pki.file("ca.crt")),
        );
        let proxies = Bundle::new(
            (
                "--requestheader-client-ca-file",
                options.front_proxy_ca_file.as_deref(),
            ),
            (&pki.front_proxy_ca.certificate, pki.file("front-proxy-ca.crt")),
        );
        let authorities = clients.authorities("client CA", reload)?;
        let front_proxies = proxies.authorities("request header CA", reload)?;
        let cluster_authorities = cluster_authorities(clients, proxies, reload)?;
        let tokens::Tokens {
            authenticator: tokens,
            issuer,
            endpoints,
            caches,
            lookups,
            jwt,
            external,
            metrics: token_metrics,
            anonymous,
        } = tokens::build(options, pki, directory, egress, reload, tasks)?;
        let certificates = Arc::new(X509::new(authorities));
        let authenticators: Vec<Arc<dyn Authenticator>> = vec![
            Arc::new(RequestHeader::new(front_proxies, options.front_proxy.clone())),
            certificates.clone(),
            Arc::new(Bearer(tokens.clone())),
        ];
        let anonymous = anonymous_requests(options.anonymous, anonymous)?;
        let authorizers = AuthorizerChain::new(&options.authorization, egress.route(Network::ControlPlane))
            .map_err(AccessError::Option)?;
        let chain = authorizers.clone();
        reload.watch("authorization configuration", authorizers.file(), move || {
            chain.reload()
        });
        Ok(Access {
            authenticator: Arc::new(Authentication::new(authenticators, anonymous)),
            authorizers,
            tokens,
            issuer,
            cluster_authorities,
            endpoints,
            certificates,
            caches,
            lookups,
            jwt,
            external,
            token_metrics,
        })
    }

    /// Gets to know the program that signs service account tokens, where there is one.
    ///
    /// # Errors
    /// It cannot be asked, or its tokens do not hold as long as the options say.
    pub async fn connect(&self, tokens: &TokenOptions, tasks: &Tasks) -> Result<(), AccessError> {
        let Some(external) = &self.external else {
            return Ok(());
        };
        let connected = external.connect(tokens.lifetimes.most_seconds, tasks).await;
        connected.map_err(AccessError::Option)?;
        for warning in self.issuer.lifetimes().warnings() {
            tracing::warn!("{warning}");
        }
        Ok(())
    }

    /// The authorizers, as one.
    pub fn authorizer(&self) -> Arc<dyn Authorizer> {
        self.authorizers.clone()
    }

    /// What tells administrators about decisions, by path.
    pub fn debugging(&self) -> Vec<(&'static str, Arc<dyn Endpoint>)> {
        let explain: Arc<dyn Endpoint> = Arc::new(explain::Explain(self.authorizers.clone()));
        let usage = self.rbac().map(|rbac| {
            let usage: Arc<dyn Endpoint> = Arc::new(usage::UsageOfRules(rbac));
            (usage::PATH, usage)
        });
        [(explain::PATH, explain)].into_iter().chain(usage).collect()
    }

    /// The roles and bindings, where RBAC is among the authorizers. Empty until [`follow_rbac`].
    pub fn rbac(&self) -> Option<Arc<Rbac>> {
        self.authorizers.rbac()
    }

    /// The authorizer of kubelets, where Node is among them. It knows of no pod until [`crate::authorization::node::follow`].
    pub fn nodes(&self) -> Option<Arc<NodeAuthorizer>> {
        self.authorizers.nodes()
    }

    /// Gets to know the issuers of tokens in the background, and adds the metrics of authentication and authorization.
    pub fn start(&self, metrics: &Metrics) {
        self.authorizers.register(metrics);
        metrics.register(self.token_metrics.clone());
        metrics.register(self.caches.clone());
        metrics.register(self.certificates.clone());
        if let Some(external) = &self.external {
            metrics.register(external.metrics());
        }
        if let Some(lookups) = &self.lookups {
            metrics.register(lookups.clone());
        }
        if let Some(jwt) = &self.jwt {
            metrics.register(jwt.metrics());
            jwt.start();
        }
    }
}

/// Which requests without credentials are let in: by the flag, or by the file, not by both.
fn anonymous_requests(
    flag: Option<bool>,
    file: Option<AnonymousConfig>,
) -> Result<Option<Anonymous>, AccessError> {
    match (flag, file) {
        (Some(_), Some(_)) => Err(AccessError::Option(
            "anonymous: Forbidden: --anonymous-auth flag cannot be set when anonymous field is configured in authentication configuration file"
                .into(),
        )),
        (_, Some(file)) => Ok(file.enabled.then_some(Anonymous { paths: file.paths })),
        (flag, None) => Ok(flag.unwrap_or(true).then(Anonymous::default)),
    }
}

/// The authorities as they are published, read again when one of the files has changed.
fn cluster_authorities(
    clients: Bundle,
    proxies: Bundle,
    reload: &mut Reload,
) -> Result<watch::Receiver<ClusterAuthorities>, AccessError> {
    let read = move || -> Result<ClusterAuthorities, AccessError> {
        Ok(ClusterAuthorities {
            client: clients.pem()?,
            front_proxy: proxies.pem()?,
        })
    };
    let (sender, receiver) = watch::channel(read()?);
    reload.afterwards(move || {
        let now = read().map_err(|error| error.to_string())?;
        sender.send_if_modified(|before| std::mem::replace(before, now.clone()) != now);
        Ok(())
    });
    Ok(receiver)
}
