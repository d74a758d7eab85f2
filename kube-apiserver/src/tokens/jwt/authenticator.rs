//! The authenticator of one issuer's tokens.

use std::sync::Arc;

use generic_server::User;
use generic_server::authn::{TokenAuthenticator, TokenVerdict};
use generic_server::client::egress::{EgressSelector, Network, Route};
use generic_server::delegated::Lookups;
use generic_server::spawn::Tasks;
use machinery::go::quote;
use serde_json::{Map, Value};
use time::OffsetDateTime;

use super::claims::Mapping;
use super::client::IssuerClient;
use super::config::{Issuer, JwtConfig};
use super::distributed::ClaimResolver;
use super::expressions::Mapper;
use super::metrics::JwtMetrics;
use super::provider::Provider;
use super::verifier::{Unverified, Verifier};
use crate::blocking;

/// Verifies tokens of an issuer and says whose they are.
///
/// Most tokens are verified by keys that are known. The others wait for the network, and anybody can make a token that no key has signed: each
/// kind of them has its own bounded lookups, so that they cannot hold up those of users.
#[derive(Debug)]
pub(super) struct JwtAuthenticator {
    tokens: Arc<IssuerTokens>,
    /// Of tokens that no known key has signed.
    unknown_keys: Arc<Lookups>,
    /// Of verified tokens with claims that are elsewhere.
    distributed_claims: Arc<Lookups>,
}

/// The tokens of one issuer, the network included.
#[derive(Debug)]
struct IssuerTokens {
    provider: Arc<Provider>,
    verifier: Verifier,
    /// Where groups come from a claim, which may be distributed.
    resolver: Option<ClaimResolver>,
    mapping: Arc<Mapping>,
    tasks: Tasks,
}

/// The way to an issuer. A network that it names has to be configured, as upstream wants it.
fn route(issuer: &Issuer, egress: &EgressSelector) -> Result<Route, String> {
    let name = &*issuer.egress_selector_type;
    let Some((_, network)) = Network::ALL.iter().find(|(known, _)| *known == name) else {
        return Ok(Route::Direct);
    };
    match egress.configured(*network) {
        Some(route) => Ok(route.clone()),
        None if egress.is_given() => Err(format!(
            "oidc: egress lookup for {} is not configured",
            quote(name)
        )),
        None => Err(format!(
            "oidc: egress lookup required with egress selector type {}",
            quote(name)
        )),
    }
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
        egress: &EgressSelector,
        metrics: &Arc<JwtMetrics>,
        tasks: &Tasks,
    ) -> Result<Self, String> {
        let issuer = &config.issuer;
        let client = IssuerClient::new(&issuer.certificate_authority, &route(issuer, egress)?)?;
        let groups = &config.claim_mappings.groups.claim;
        let resolver = (!groups.is_empty()).then(|| ClaimResolver::new(groups, issuer, client.clone()));
        let provider = Provider::new(&issuer.url, &issuer.discovery_url, client, Some(metrics.clone()));
        let verifier = Verifier {
            algorithms: algorithms.to_vec(),
            audiences: issuer.audiences.clone(),
        };
        let tokens = Arc::new(IssuerTokens {
            provider,
            verifier,
            resolver,
            mapping: Arc::new(Mapping::new(config, mapper)),
            tasks: tasks.clone(),
        });
        Ok(JwtAuthenticator {
            unknown_keys: Lookups::new(tokens.clone(), Arc::default()),
            distributed_claims: Lookups::new(tokens.clone(), Arc::default()),
            tokens,
        })
    }

    /// Gets to know the issuer in the background.
    pub(super) fn start(&self) {
        self.tokens.provider.start(&self.tokens.tasks);
    }

    /// Whether tokens can be verified.
    ///
    /// # Errors
    /// Why not.
    pub(super) fn health(&self) -> Result<(), String> {
        self.tokens.provider.health().map_err(|why| {
            let issuer = quote(self.tokens.issuer());
            format!("oidc: authenticator for issuer {issuer} is not healthy: {why}")
        })
    }

    /// The user of a token that names this issuer.
    ///
    /// # Errors
    /// Why the token does not hold, for the log.
    pub(super) async fn authenticate(&self, token: &str) -> Result<User, String> {
        let tokens = &self.tokens;
        if !tokens.provider.is_known() {
            return Err("oidc: authenticator not initialized".into());
        }
        let known = tokens
            .verifier
            .verify_by_known_keys(&tokens.provider, tokens.issuer(), token, now());
        let lookups = match known {
            Ok(claims) if tokens.is_complete(&claims) => return tokens.user(token.len(), claims).await,
            Ok(_) => &self.distributed_claims,
            Err(Unverified::UnknownKey) => &self.unknown_keys,
            Err(Unverified::Refused(why)) => return Err(not_verified(&why)),
        };
        match lookups.authenticate_token(token, &[]).await {
            TokenVerdict::User(user, _) => Ok(user),
            TokenVerdict::Failed(refusal) => Err(refusal.why),
            TokenVerdict::NotMine => Err("oidc: the token is of no user".into()),
        }
    }
}

impl IssuerTokens {
    /// The issuer's URL.
    fn issuer(&self) -> &str {
        &self.mapping.config().issuer.url
    }

    /// Whether the claims can be used as they are. Those that are malformed are refused on the way to the network.
    fn is_complete(&self, claims: &Map<String, Value>) -> bool {
        let place = self.resolver.as_ref().map(|resolver| resolver.place(claims));
        matches!(place, None | Some(Ok(None)))
    }

    /// The user of a token, after all requests that this takes.
    async fn look_up(&self, token: &str) -> Result<User, String> {
        let verified = self.verifier.verify(&self.provider, self.issuer(), token, now());
        let mut claims = verified.await.map_err(|why| not_verified(&why))?;
        if let Some(resolver) = &self.resolver {
            resolver
                .expand(&mut claims, &self.verifier, &self.tasks, now())
                .await
                .map_err(|why| format!("oidc: could not expand distributed claims: {why}"))?;
        }
        self.user(token.len(), claims).await
    }

    /// The user of the verified claims of a token of so many bytes.
    async fn user(&self, bytes: usize, claims: Map<String, Value>) -> Result<User, String> {
        let mapping = self.mapping.clone();
        blocking::compute(bytes, move || mapping.user(claims)).await?
    }
}

#[async_trait::async_trait]
impl TokenAuthenticator for IssuerTokens {
    async fn authenticate_token(&self, token: &str, _audiences: &[String]) -> TokenVerdict {
        match self.look_up(token).await {
            Ok(user) => TokenVerdict::User(user, Vec::new()),
            Err(why) => TokenVerdict::Failed(why.into()),
        }
    }
}

fn not_verified(why: &str) -> String {
    format!("oidc: verify token: {why}")
}

fn now() -> i64 {
    OffsetDateTime::now_utc().unix_timestamp()
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use base64::Engine;
    use base64::prelude::BASE64_URL_SAFE_NO_PAD as BASE64;
    use futures_util::poll;
    use machinery::limits;
    use serde_json::json;
    use tokio::net::TcpListener;

    use super::super::keys::{ALGORITHMS, KeySet};
    use super::*;

    fn signed() -> Value {
        serde_json::from_str(include_str!("keys/signed.json")).expect("JSON")
    }

    /// Of an issuer with the keys of `signed`, which are at a URL.
    fn authenticator(url: &str) -> JwtAuthenticator {
        let keys = json!({"keys": signed()["keys"]}).to_string();
        let keys = KeySet::parse(keys.as_bytes()).expect("a key set");
        let mut config = JwtConfig::default();
        config.issuer.url = url.to_owned();
        let tokens = Arc::new(IssuerTokens {
            provider: Provider::known(url, url, keys),
            verifier: Verifier {
                algorithms: ALGORITHMS.map(str::to_owned).to_vec(),
                audiences: Vec::new(),
            },
            resolver: None,
            mapping: Arc::new(Mapping::new(config, Mapper::default())),
            tasks: Tasks::new(),
        });
        JwtAuthenticator {
            unknown_keys: Lookups::new(tokens.clone(), Arc::default()),
            distributed_claims: Lookups::new(tokens.clone(), Arc::default()),
            tokens,
        }
    }

    #[tokio::test]
    async fn a_stalled_issuer_holds_up_a_bounded_number_of_tokens() {
        // One task polls all of them: its budget is not the subject.
        tokio::task::unconstrained(stalled()).await;
    }

    async fn stalled() {
        // Connections are taken by the system, and nothing is ever said on them.
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let authenticator = authenticator(&format!("https://{address}"));
        let header = BASE64.encode(r#"{"alg":"ES256","kid":"P-256"}"#);
        let bad = |number: usize| format!("{header}.e30.{}", BASE64.encode(number.to_string()));
        let tokens: Vec<String> = (0..=limits::TOKEN_LOOKUPS_WAITING).map(bad).collect();
        let mut waiting: Vec<_> = tokens
            .iter()
            .take(limits::TOKEN_LOOKUPS_WAITING)
            .map(|token| Box::pin(authenticator.authenticate(token)))
            .collect();
        for one in &mut waiting {
            assert!(poll!(one).is_pending());
        }
        let past = authenticator
            .authenticate(&tokens[limits::TOKEN_LOOKUPS_WAITING])
            .await;
        assert_eq!(past, Err("too many tokens are being looked up".into()));
        // A token of a known key waits for nobody.
        let known = signed()["tokens"]["ES256"].as_str().expect("a token").to_owned();
        let why = authenticator
            .authenticate(&known)
            .await
            .expect_err("it names no issuer");
        assert!(
            why.starts_with("oidc: verify token: oidc: id token issued by a different provider"),
            "{why}"
        );
        waiting.pop();
        let mut past = Box::pin(authenticator.authenticate(&tokens[limits::TOKEN_LOOKUPS_WAITING]));
        assert!(poll!(&mut past).is_pending(), "one that is given up makes room");
    }
}
