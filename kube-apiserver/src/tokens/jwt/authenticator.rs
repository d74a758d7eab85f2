//! The authenticator of one issuer's tokens.

use std::sync::Arc;

use generic_server::User;
use generic_server::spawn::Tasks;
use machinery::go::quote;
use time::OffsetDateTime;

use super::claims::Mapping;
use super::client::IssuerClient;
use super::config::JwtConfig;
use super::distributed::ClaimResolver;
use super::expressions::Mapper;
use super::metrics::JwtMetrics;
use super::provider::Provider;
use super::verifier::Verifier;
use crate::blocking;

/// Verifies tokens of an issuer and says whose they are.
#[derive(Debug)]
pub(super) struct JwtAuthenticator {
    provider: Arc<Provider>,
    verifier: Verifier,
    /// Where groups come from a claim, which may be distributed.
    resolver: Option<ClaimResolver>,
    mapping: Arc<Mapping>,
    tasks: Tasks,
}

impl JwtAuthenticator {
    /// An authenticator whose issuer is not known yet.
    ///
    /// # Errors
    /// The issuer's authorities cannot be used.
    pub(super) fn new(
        config: JwtConfig,
        mapper: Mapper,
        algorithms: &[String],
        metrics: &Arc<JwtMetrics>,
        tasks: &Tasks,
    ) -> Result<Self, String> {
        let issuer = &config.issuer;
        let client = IssuerClient::new(&issuer.certificate_authority)?;
        let groups = &config.claim_mappings.groups.claim;
        let resolver = (!groups.is_empty()).then(|| ClaimResolver::new(groups, issuer, client.clone()));
        let provider = Provider::new(&issuer.url, &issuer.discovery_url, client, Some(metrics.clone()));
        let verifier = Verifier {
            algorithms: algorithms.to_vec(),
            audiences: issuer.audiences.clone(),
        };
        Ok(JwtAuthenticator {
            provider,
            verifier,
            resolver,
            mapping: Arc::new(Mapping::new(config, mapper)),
            tasks: tasks.clone(),
        })
    }

    /// The issuer's URL.
    pub(super) fn issuer(&self) -> &str {
        &self.mapping.config().issuer.url
    }

    /// Gets to know the issuer in the background.
    pub(super) fn start(&self) {
        self.provider.start(&self.tasks);
    }

    /// Whether tokens can be verified.
    ///
    /// # Errors
    /// Why not.
    pub(super) fn health(&self) -> Result<(), String> {
        self.provider.health().map_err(|why| {
            let issuer = quote(self.issuer());
            format!("oidc: authenticator for issuer {issuer} is not healthy: {why}")
        })
    }

    /// The user of a token that names this issuer.
    ///
    /// # Errors
    /// Why the token does not hold, for the log.
    pub(super) async fn authenticate(&self, token: &str) -> Result<User, String> {
        if !self.provider.is_known() {
            return Err("oidc: authenticator not initialized".into());
        }
        let now = OffsetDateTime::now_utc().unix_timestamp();
        let verified = self.verifier.verify(&self.provider, self.issuer(), token, now);
        let mut claims = verified
            .await
            .map_err(|why| format!("oidc: verify token: {why}"))?;
        if let Some(resolver) = &self.resolver {
            resolver
                .expand(&mut claims, &self.verifier, &self.tasks, now)
                .await
                .map_err(|why| format!("oidc: could not expand distributed claims: {why}"))?;
        }
        let mapping = self.mapping.clone();
        blocking::compute(token.len(), move || mapping.user(claims)).await?
    }
}
