//! Tokens of other issuers, their keys, and the configuration that says whose they are.

use kube_apiserver::tokens::jwt::parsers::{claims_of, issuer_of, signed_by, user_of};
use machinery::limits;
use serde_json::Map;

use crate::halves;

/// Tokens of each kind of key, which no key has signed.
const UNSIGNED: [&str; 3] = [
    "eyJhbGciOiJSUzI1NiJ9.e30.c2ln",
    "eyJhbGciOiJFUzI1NiJ9.e30.c2ln",
    "eyJhbGciOiJub25lIn0.e30.",
];
/// The algorithms of keys that can be used.
const ALGORITHMS: [&str; 8] = [
    "ES256", "ES384", "PS256", "PS384", "PS512", "RS256", "RS384", "RS512",
];
/// When tokens are held against their times: that of the corpus.
const NOW: i64 = 1_800_000_000;

/// A key set, a NUL, and a token.
pub fn jws(data: &[u8]) {
    let (keys, token) = halves(data);
    let Ok(token) = std::str::from_utf8(token) else {
        return;
    };
    let (issuer, claims) = (issuer_of(token), claims_of(token));
    if let (Some(issuer), Ok(claims)) = (&issuer, &claims)
        && let Some(named) = claims.get("iss").and_then(serde_json::Value::as_str)
        && named != "accounts.google.com"
    {
        assert_eq!(named, issuer, "the issuer is one of the claims");
    }
    if let Ok((_, Some(algorithm))) = signed_by(keys, token) {
        assert!(ALGORITHMS.contains(&algorithm.as_str()), "signed by {algorithm}");
    }
}

/// A key set.
pub fn jwks(data: &[u8]) {
    for token in UNSIGNED {
        if let Ok((keys, signed)) = signed_by(data, token) {
            assert!(keys <= limits::ISSUER_KEYS, "a bounded number");
            assert_eq!(signed, None, "no key has signed {token}");
        }
    }
}

/// An `AuthenticationConfiguration`, a NUL, and the claims of a token that it is asked about.
pub fn authentication(data: &[u8]) {
    let (config, claims) = halves(data);
    let claims: Map<_, _> = serde_json::from_slice(claims).unwrap_or_default();
    let user = || user_of(config, claims.clone(), NOW);
    assert_eq!(user(), user(), "the same claims make the same user");
}
