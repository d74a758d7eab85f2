//! Tokens of other issuers (OpenID Connect): the file of `--authentication-config`, the `--oidc-*` flags, and the authenticators that they
//! describe.
//!
//! Mirrors upstream's `plugin/pkg/authenticator/token/oidc`. An issuer becomes known in the background, so that the server starts without
//! it; until then its tokens are refused. A changed file counts when all its issuers are known.

mod authenticator;
mod claims;
mod client;
mod config;
mod distributed;
mod expressions;
mod file;
mod flags;
mod json;
mod keys;
mod metrics;
pub mod parsers;
mod provider;
mod url;
mod validation;
mod verifier;

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use arc_swap::ArcSwap;
use generic_server::authn::{TokenAuthenticator, TokenVerdict, server_audiences};
use generic_server::client::egress::EgressSelector;
use generic_server::metrics::Collect;
use generic_server::spawn::Tasks;
use machinery::go;

use authenticator::JwtAuthenticator;
use config::AuthenticationConfiguration;
use file::ConfigFile;
use keys::ALGORITHMS;
use metrics::JwtMetrics;
use verifier::untrusted_issuer;

pub(crate) use config::AnonymousConfig;
pub use flags::OidcOptions;

/// Where the configuration of JWT authenticators comes from.
#[derive(Debug, Clone, Default)]
pub enum JwtSource {
    /// There is none.
    #[default]
    None,
    /// The `--oidc-*` flags.
    Oidc(Box<OidcOptions>),
    /// The file of `--authentication-config`.
    File(PathBuf),
}

/// Authenticates tokens of the configured issuers.
#[derive(Debug)]
pub(crate) struct JwtAuthenticators {
    current: ArcSwap<Authenticators>,
    context: Context,
}

/// What all authenticators have in common.
#[derive(Debug)]
struct Context {
    /// The server's own, for which every user of a token is good.
    audiences: Vec<String>,
    /// The names of the signature algorithms.
    algorithms: Vec<String>,
    disallowed_issuers: Vec<String>,
    egress: EgressSelector,
    metrics: Arc<JwtMetrics>,
    tasks: Tasks,
}

/// The authenticators of one configuration, by issuer.
#[derive(Debug, Default)]
struct Authenticators(HashMap<String, JwtAuthenticator>);

/// The result of reading a source.
pub(crate) struct Loaded {
    /// `None` without a configuration.
    pub(crate) authenticators: Option<Arc<JwtAuthenticators>>,
    /// What the file says of anonymous requests.
    pub(crate) anonymous: Option<AnonymousConfig>,
    /// The file, to be followed.
    pub(crate) file: Option<Arc<ConfigFile>>,
}

impl JwtSource {
    /// Reads the configuration. `audiences`: the server's own; `disallowed_issuers`: those of service account tokens.
    ///
    /// # Errors
    /// The file cannot be read or has invalid content. The text names the flag.
    pub(crate) fn load(
        &self,
        audiences: &[String],
        disallowed_issuers: &[String],
        egress: &EgressSelector,
        tasks: &Tasks,
    ) -> Result<Loaded, String> {
        let (config, algorithms, file) = match self {
            JwtSource::None => {
                return Ok(Loaded {
                    authenticators: None,
                    anonymous: None,
                    file: None,
                });
            }
            JwtSource::Oidc(options) => {
                let config = options.configuration()?;
                (config, options.signing_algs.clone(), None)
            }
            JwtSource::File(path) => {
                let (config, data) = file::read(path).map_err(|why| {
                    let path = go::quote(&path.display().to_string());
                    format!(
                        "--authentication-config: failed to load authentication configuration from file {path}: {why}"
                    )
                })?;
                (config, ALGORITHMS.map(str::to_owned).to_vec(), Some((path, data)))
            }
        };
        let context = Context {
            audiences: audiences.to_vec(),
            algorithms,
            disallowed_issuers: disallowed_issuers.to_vec(),
            egress: egress.clone(),
            metrics: Arc::default(),
            tasks: tasks.clone(),
        };
        let anonymous = config.anonymous.clone();
        let current = context.authenticators(config).map_err(|why| {
            let given = match self {
                JwtSource::File(path) => format!(
                    "--authentication-config: {}",
                    go::quote(&path.display().to_string())
                ),
                JwtSource::Oidc(_) | JwtSource::None => "--oidc-*".to_string(),
            };
            format!("{given}: invalid authentication configuration: {why}")
        })?;
        let authenticators = Arc::new(JwtAuthenticators {
            current: ArcSwap::from_pointee(current),
            context,
        });
        let file = file.map(|(path, data)| {
            Arc::new(ConfigFile::new(
                path,
                data,
                anonymous.clone(),
                authenticators.clone(),
            ))
        });
        Ok(Loaded {
            authenticators: Some(authenticators),
            anonymous,
            file,
        })
    }
}

impl Context {
    fn authenticators(&self, config: AuthenticationConfiguration) -> Result<Authenticators, String> {
        let mappers = validation::validate(&config, &self.disallowed_issuers)?;
        let mut all = HashMap::new();
        for (config, mapper) in config.jwt.into_iter().zip(mappers) {
            let issuer = config.issuer.url.clone();
            let (algorithms, metrics, tasks) = (&self.algorithms, &self.metrics, &self.tasks);
            let made = JwtAuthenticator::new(config, mapper, algorithms, &self.egress, metrics, tasks)?;
            all.insert(issuer, made);
        }
        Ok(Authenticators(all))
    }
}

impl Authenticators {
    /// Gets to know the issuers in the background.
    fn start(&self) {
        self.0.values().for_each(JwtAuthenticator::start);
    }

    /// Whether tokens of all issuers can be verified; else why not.
    fn health(&self) -> Result<(), String> {
        let mut faults: Vec<String> = self.0.values().filter_map(|one| one.health().err()).collect();
        faults.sort_unstable();
        match faults.is_empty() {
            true => Ok(()),
            false => Err(go::aggregate(&faults).into_owned()),
        }
    }
}

impl JwtAuthenticators {
    /// Gets to know the issuers in the background.
    pub(crate) fn start(&self) {
        self.current.load().start();
    }

    /// Metrics of the authenticators and of their configuration.
    pub(crate) fn metrics(&self) -> Arc<dyn Collect> {
        self.context.metrics.clone()
    }

    /// Uses other authenticators from now on.
    fn replace(&self, new: Authenticators) {
        self.context
            .metrics
            .keep_issuers(new.0.keys().map(String::as_str));
        self.current.store(Arc::new(new));
    }
}

#[async_trait::async_trait]
impl TokenAuthenticator for JwtAuthenticators {
    async fn authenticate_token(&self, token: &str, audiences: &[String]) -> TokenVerdict {
        // The issuer decides which authenticator verifies the token; nothing else of it is used before that.
        let Some(issuer) = untrusted_issuer(token) else {
            return TokenVerdict::NotMine;
        };
        let current = self.current.load_full();
        let Some(authenticator) = current.0.get(&issuer) else {
            return TokenVerdict::NotMine;
        };
        let Some(good_for) = server_audiences(&self.context.audiences, audiences) else {
            return TokenVerdict::NotMine;
        };
        let start = Instant::now();
        let outcome = authenticator.authenticate(token).await;
        let metrics = &self.context.metrics;
        metrics.authenticated(&issuer, outcome.is_ok(), start.elapsed());
        match outcome {
            Ok(user) => TokenVerdict::User(user, good_for),
            Err(why) => TokenVerdict::Failed(why.into()),
        }
    }
}
