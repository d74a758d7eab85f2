//! The parsers of tokens, of keys and of the configuration as functions of bytes alone, for fuzz targets: nothing is fetched, no file is
//! read, and the time is given.

use generic_server::User;
use serde_json::{Map, Value};

use super::super::jws::Jws;
use super::claims::Mapping;
use super::config::AuthenticationConfiguration;
use super::distributed::place;
use super::keys::{ALGORITHMS, KeySet};
use super::validation::validate;
use super::verifier::{Verifier, untrusted_issuer};

/// The issuer that a token names, unverified.
pub fn issuer_of(token: &str) -> Option<String> {
    untrusted_issuer(token)
}

/// The claims of a token, unverified.
///
/// # Errors
/// It is no token in compact form.
pub fn claims_of(token: &str) -> Result<Map<String, Value>, String> {
    Jws::parse(token)?.claims()
}

/// How many keys of a key set (RFC 7517) can be used, and the algorithm of the token where one of them has signed it.
///
/// # Errors
/// It is no key set, or the token is none.
pub fn signed_by(keys: &[u8], token: &str) -> Result<(usize, Option<String>), String> {
    let keys = KeySet::parse(keys)?;
    let jws = Jws::parse(token)?;
    let signed = keys.verify(&jws);
    Ok((keys.len(), signed.then_some(jws.algorithm)))
}

/// The user that verified claims make, by the first authenticator of an `AuthenticationConfiguration`; `None` without one. `now`: seconds since
/// the epoch.
///
/// # Errors
/// The configuration has faults, or the claims do not hold or make no user.
pub fn user_of(config: &[u8], claims: Map<String, Value>, now: i64) -> Result<Option<User>, String> {
    let config = AuthenticationConfiguration::parse(config)?;
    let mappers = validate(&config, &[])?;
    let Some((config, mapper)) = config.jwt.into_iter().zip(mappers).next() else {
        return Ok(None);
    };
    let verifier = Verifier {
        algorithms: ALGORITHMS.map(str::to_owned).to_vec(),
        audiences: config.issuer.audiences.clone(),
    };
    verifier.check(&claims, &config.issuer.url, now)?;
    let groups = &config.claim_mappings.groups.claim;
    if !groups.is_empty() {
        place(groups, &claims)?;
    }
    Mapping::new(config, mapper).user(claims).map(Some)
}
