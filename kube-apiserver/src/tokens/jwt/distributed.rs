//! Groups that a token names by the place where they are (OpenID Connect Core 1.0, section 5.6.2), fetched and verified.
//!
//! Mirrors upstream's claim resolver. The place is in a token that its issuer has signed; the answer is a token again, of an issuer that
//! becomes known in the background.

use std::collections::HashMap;
use std::sync::Arc;

use generic_server::spawn::Tasks;
use machinery::go::quote;
use machinery::limits;
use parking_lot::Mutex;
use serde_json::{Map, Value};

use super::client::IssuerClient;
use super::config::Issuer;
use super::provider::Provider;
use super::verifier::{Verifier, untrusted_issuer};

/// Resolves one claim.
#[derive(Debug)]
pub(super) struct ClaimResolver {
    claim: String,
    /// The issuer of the tokens that name the places.
    issuer: Issuer,
    client: IssuerClient,
    providers: Mutex<HashMap<String, Arc<Provider>>>,
}

impl ClaimResolver {
    pub(super) fn new(claim: &str, issuer: &Issuer, client: IssuerClient) -> Self {
        ClaimResolver {
            claim: claim.to_owned(),
            issuer: issuer.clone(),
            client,
            providers: Mutex::default(),
        }
    }

    /// Adds the claim, where the token has its place instead.
    ///
    /// # Errors
    /// The place is malformed, or gives no token with the claim.
    pub(super) async fn expand(
        &self,
        claims: &mut Map<String, Value>,
        verifier: &Verifier,
        tasks: &Tasks,
        now: i64,
    ) -> Result<(), String> {
        let Some((endpoint, token)) = self.place(claims)? else {
            return Ok(());
        };
        let value = self.resolve(&endpoint, &token, verifier, tasks, now).await?;
        claims.insert(self.claim.clone(), value);
        Ok(())
    }

    /// The URL that gives the claim, and the bearer token for it; `None` when the claim is there or no place is named.
    ///
    /// # Errors
    /// The place is malformed.
    pub(super) fn place(&self, claims: &Map<String, Value>) -> Result<Option<(String, String)>, String> {
        place(&self.claim, claims)
    }

    async fn resolve(
        &self,
        endpoint: &str,
        token: &str,
        verifier: &Verifier,
        tasks: &Tasks,
        now: i64,
    ) -> Result<Value, String> {
        let within = |why: String| format!("while getting distributed claim {}: {why}", quote(&self.claim));
        let answer = self
            .client
            .get(endpoint, Some(token).filter(|token| !token.is_empty()));
        let answer = answer.await.map_err(within)?;
        if !answer.status.is_success() {
            return Err(within(format!(
                "error while getting distributed claim JWT: {}",
                answer.status
            )));
        }
        let token = String::from_utf8(answer.body)
            .map_err(|_| within("could not decode distributed claim response".into()))?;
        let issuer = untrusted_issuer(&token).ok_or_else(|| {
            format!(
                "getting untrusted issuer from endpoint {endpoint} failed for claim {}: malformed token",
                quote(&self.claim)
            )
        })?;
        let provider = self
            .provider(&issuer, tasks)
            .map_err(|why| format!("verifying untrusted issuer {issuer} failed: {why}"))?;
        let verified = verifier.verify(&provider, &issuer, &token, now);
        let mut verified = verified
            .await
            .map_err(|why| format!("verify distributed claim token: {why}"))?;
        verified.remove(&self.claim).ok_or_else(|| {
            format!(
                "jwt returned by distributed claim endpoint {} did not contain claim: {}",
                quote(endpoint),
                self.claim
            )
        })
    }

    /// An issuer that is known. One that is not becomes known for later tokens.
    fn provider(&self, issuer: &str, tasks: &Tasks) -> Result<Arc<Provider>, String> {
        let mut providers = self.providers.lock();
        if let Some(found) = providers.get(issuer) {
            if found.is_known() {
                return Ok(found.clone());
            }
        } else if providers.len() >= limits::CLAIM_ISSUERS {
            return Err(format!(
                "more than {} issuers of distributed claims",
                limits::CLAIM_ISSUERS
            ));
        } else {
            let discovery_url = match issuer == self.issuer.url {
                true => &*self.issuer.discovery_url,
                false => "",
            };
            let provider = Provider::new(issuer, discovery_url, self.client.clone(), None);
            provider.start(tasks);
            providers.insert(issuer.to_owned(), provider);
        }
        Err(format!("verifier not initialized for issuer: {}", quote(issuer)))
    }
}

/// The URL that gives a claim, and the bearer token for it; `None` when the claim is there or no place is named.
///
/// # Errors
/// The place is malformed.
pub(super) fn place(claim: &str, claims: &Map<String, Value>) -> Result<Option<(String, String)>, String> {
    if claims.contains_key(claim) {
        return Ok(None);
    }
    let Some(names) = claims.get("_claim_names") else {
        return Ok(None);
    };
    let names = names
        .as_object()
        .ok_or("oidc: error parsing distributed claim names: they are no object")?;
    let sources = claims.get("_claim_sources").ok_or("oidc: no claim sources")?;
    let sources = sources
        .as_object()
        .ok_or("oidc: could not parse claim sources: they are no object")?;
    let Some(source) = names.get(claim) else {
        return Ok(None);
    };
    let source = source
        .as_str()
        .ok_or("oidc: error parsing distributed claim names: a name is no string")?;
    let found = sources.get(source).ok_or_else(|| {
        format!("id token _claim_names contained a source {source} missing in _claims_sources")
    })?;
    let text = |key: &str| match found.get(key) {
        None | Some(Value::Null) => Ok(String::new()),
        Some(Value::String(text)) => Ok(text.clone()),
        Some(_) => Err(format!("oidc: could not parse claim sources: {key} is no string")),
    };
    let (endpoint, token) = (text("endpoint")?, text("access_token")?);
    // Without one it may be an aggregated claim, which upstream passes over.
    Ok((!endpoint.is_empty()).then_some((endpoint, token)))
}

#[cfg(test)]
mod tests {
    use generic_server::client::egress::Route;
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check(claims: Value, expected: Result<Option<(&str, &str)>, &str>) {
        let place = place("groups", claims.as_object().expect("an object"));
        let expected = expected
            .map(|place| place.map(|(endpoint, token)| (endpoint.to_owned(), token.to_owned())))
            .map_err(str::to_owned);
        assert_eq!(place, expected, "{claims}");
    }

    #[test]
    fn places_are_read() {
        let source = json!({"s": {"endpoint": "https://e", "access_token": "t"}});
        check(json!({}), Ok(None));
        check(
            json!({"groups": ["a"], "_claim_names": {"groups": "s"}}),
            Ok(None),
        );
        check(
            json!({"_claim_names": {"groups": "s"}, "_claim_sources": source}),
            Ok(Some(("https://e", "t"))),
        );
        check(
            json!({"_claim_names": {"other": "s"}, "_claim_sources": source}),
            Ok(None),
        );
        check(
            json!({"_claim_names": {"groups": "s"}, "_claim_sources": {"s": {"JWT": "a"}}}),
            Ok(None),
        );
        check(json!({"_claim_names": {}}), Err("oidc: no claim sources"));
        check(
            json!({"_claim_names": {"groups": "x"}, "_claim_sources": source}),
            Err("id token _claim_names contained a source x missing in _claims_sources"),
        );
        check(
            json!({"_claim_names": 1, "_claim_sources": source}),
            Err("oidc: error parsing distributed claim names: they are no object"),
        );
        check(
            json!({"_claim_names": {"groups": "s"}, "_claim_sources": {"s": {"endpoint": 1}}}),
            Err("oidc: could not parse claim sources: endpoint is no string"),
        );
    }

    #[tokio::test]
    async fn the_issuers_of_claims_are_bounded() {
        let client = IssuerClient::new("", &Route::Direct).expect("a client");
        let resolver = ClaimResolver::new("groups", &Issuer::default(), client);
        let tasks = Tasks::new();
        let ask = |number: usize| {
            let issuer = format!("https://127.0.0.1:1/{number}");
            resolver
                .provider(&issuer, &tasks)
                .expect_err("it is not known yet")
        };
        for number in 0..limits::CLAIM_ISSUERS {
            assert!(ask(number).starts_with("verifier not initialized"), "{number}");
        }
        assert_eq!(
            ask(limits::CLAIM_ISSUERS),
            "more than 16 issuers of distributed claims"
        );
        assert!(ask(0).starts_with("verifier not initialized"));
        tasks.stop(std::time::Duration::ZERO).await;
    }
}
