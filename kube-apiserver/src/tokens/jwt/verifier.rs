//! Whether a token is one of an issuer, meant for this server, and holds now.
//!
//! Mirrors go-oidc's verifier, in its order and with its texts.

use machinery::field::show_text;
use machinery::go::quote;
use serde_json::{Map, Value};
use time::OffsetDateTime;
use time::macros::format_description;

use super::super::jws::{Jws, unverified_claims};
use super::json::{text, text_or_texts};
use super::provider::Provider;

/// How far in the future the beginning of a token may be: clocks differ.
const LEEWAY: i64 = 60;
/// Google's issuer, and as its tokens may spell it.
const GOOGLE: [&str; 2] = ["https://accounts.google.com", "accounts.google.com"];

/// The issuer that a token names, unverified.
pub(super) fn untrusted_issuer(token: &str) -> Option<String> {
    let claims = unverified_claims(token)?;
    match claims.as_object()?.get("iss") {
        None | Some(Value::Null) => Some(String::new()),
        Some(Value::String(issuer)) if issuer == GOOGLE[1] => Some(GOOGLE[0].to_owned()),
        Some(Value::String(issuer)) => Some(issuer.clone()),
        Some(_) => None,
    }
}

/// What is demanded of tokens.
#[derive(Debug, Clone)]
pub(super) struct Verifier {
    /// The names of the signature algorithms.
    pub(super) algorithms: Vec<String>,
    /// A token is for one of them at least.
    pub(super) audiences: Vec<String>,
}

/// Why a token was not verified by the keys that are known.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Unverified {
    /// None of them has signed it; the issuer may have newer ones.
    UnknownKey,
    /// It does not hold, whatever keys there are.
    Refused(String),
}

impl Verifier {
    /// The same as [`Self::verify`], by the keys that are known and without a request.
    ///
    /// # Errors
    /// Why not.
    pub(super) fn verify_by_known_keys(
        &self,
        provider: &Provider,
        issuer: &str,
        token: &str,
        now: i64,
    ) -> Result<Map<String, Value>, Unverified> {
        let jws = self.jws(token).map_err(Unverified::Refused)?;
        if !provider.has_signed(&jws) {
            return Err(Unverified::UnknownKey);
        }
        self.claims(&jws, issuer, now).map_err(Unverified::Refused)
    }

    /// The claims of a token that `issuer` has signed and that holds at `now`, in seconds since the epoch.
    ///
    /// # Errors
    /// Why it does not, for the log.
    pub(super) async fn verify(
        &self,
        provider: &Provider,
        issuer: &str,
        token: &str,
        now: i64,
    ) -> Result<Map<String, Value>, String> {
        let jws = self.jws(token)?;
        provider
            .verify(&jws)
            .await
            .map_err(|why| format!("failed to verify signature: {why}"))?;
        self.claims(&jws, issuer, now)
    }

    /// A token taken apart, of an algorithm that is allowed.
    fn jws<'t>(&self, token: &'t str) -> Result<Jws<'t>, String> {
        let jws = Jws::parse(token).map_err(|why| format!("oidc: malformed jwt: {why}"))?;
        if !self.algorithms.contains(&jws.algorithm) {
            return Err(format!(
                "oidc: id token signed with unsupported algorithm, expected {} got {}",
                list(&self.algorithms),
                show_text(&jws.algorithm)
            ));
        }
        Ok(jws)
    }

    /// The claims of a token whose signature is verified.
    fn claims(&self, jws: &Jws<'_>, issuer: &str, now: i64) -> Result<Map<String, Value>, String> {
        let claims = jws
            .claims()
            .map_err(|why| format!("oidc: failed to unmarshal claims: {why}"))?;
        self.check(&claims, issuer, now)?;
        Ok(claims)
    }

    /// Whether verified claims hold at `now`.
    ///
    /// # Errors
    /// Why they do not.
    pub(super) fn check(&self, claims: &Map<String, Value>, issuer: &str, now: i64) -> Result<(), String> {
        let undecodable = |why: String| format!("oidc: failed to unmarshal claims: {why}");
        let member = |name: &str| claims.get(name).unwrap_or(&Value::Null);
        let named = text(member("iss")).map_err(undecodable)?;
        let audiences = text_or_texts(member("aud")).map_err(undecodable)?;
        // As in upstream, a number that no time has is no end far away.
        let expires = seconds(member("exp"))
            .map_err(undecodable)?
            .map(|end| if end == i64::MAX { i64::MIN } else { end });
        seconds(member("iat")).map_err(undecodable)?;
        let not_before = seconds(member("nbf")).map_err(undecodable)?;
        distributed(claims)?;
        if named != issuer && [issuer, &*named] != GOOGLE {
            return Err(format!(
                "oidc: id token issued by a different provider, expected {} got {}",
                quote(issuer),
                quote(&named)
            ));
        }
        let meant = self.audiences.iter().any(|own| audiences.contains(own));
        if let ([own], false) = (&self.audiences[..], meant) {
            return Err(format!(
                "oidc: expected audience {} got {}",
                quote(own),
                list(&audiences)
            ));
        }
        let expires = expires.unwrap_or(i64::MIN);
        if expires < now {
            return Err(format!(
                "oidc: token is expired (Token Expiry: {})",
                date(expires)
            ));
        }
        if let Some(begins) = not_before.filter(|begins| now + LEEWAY < *begins) {
            return Err(format!(
                "oidc: current time {} before the nbf (not before) time: {}",
                date(now),
                date(begins)
            ));
        }
        if !meant {
            let mut own = self.audiences.clone();
            own.sort_unstable();
            return Err(format!(
                "oidc: expected audience in {} got {}",
                list(&own),
                list(&audiences)
            ));
        }
        Ok(())
    }
}

/// Each distributed claim names a source that is there.
fn distributed(claims: &Map<String, Value>) -> Result<(), String> {
    let Some(Value::Object(names)) = claims.get("_claim_names") else {
        return Ok(());
    };
    for source in names.values() {
        match source.as_str() {
            None | Some("") => return Err("oidc: failed to obtain source from claim name".into()),
            Some(source) => {
                let sources = claims.get("_claim_sources").and_then(Value::as_object);
                if !sources.is_some_and(|sources| sources.contains_key(source)) {
                    return Err("oidc: source does not exist".into());
                }
            }
        }
    }
    Ok(())
}

/// Seconds since the epoch: a number, which may have a fraction or stand in quotes.
fn seconds(value: &Value) -> Result<Option<i64>, String> {
    let number = match value {
        Value::Null => return Ok(None),
        Value::Number(number) => number.clone(),
        Value::String(text) => serde_json::from_str(text).map_err(|_| {
            format!(
                "json: invalid number literal, trying to unmarshal {}",
                quote(text)
            )
        })?,
        _ => return Err("json: a time is a number".into()),
    };
    // Casts saturate: a time beyond all others is one.
    #[allow(
        clippy::cast_possible_truncation,
        reason = "seconds since the epoch, saturating"
    )]
    let seconds = number
        .as_i64()
        .or_else(|| number.as_f64().map(|seconds| seconds as i64));
    Ok(seconds)
}

/// A time as Go prints it.
fn date(seconds: i64) -> String {
    let format = format_description!("[year]-[month]-[day] [hour]:[minute]:[second] +0000 UTC");
    let time = OffsetDateTime::from_unix_timestamp(seconds).ok();
    time.and_then(|time| time.format(format).ok())
        .unwrap_or_else(|| "unknown".into())
}

/// Texts as Go's `%q` prints a list of them.
fn list(texts: &[String]) -> String {
    let quoted: Vec<String> = texts.iter().map(|text| quote(text)).collect();
    format!("[{}]", quoted.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[track_caller]
    fn check(audiences: &[&str], change: Value, expected: Result<(), &str>) {
        let verifier = Verifier {
            algorithms: Vec::new(),
            audiences: audiences.iter().map(ToString::to_string).collect(),
        };
        let mut claims = json!({"iss": "https://i", "aud": "a", "exp": 1_000, "iat": 1});
        for (name, value) in change.as_object().expect("members") {
            claims[name] = value.clone();
        }
        let claims = claims.as_object().expect("claims");
        let outcome = verifier.check(claims, "https://i", 1_000);
        assert_eq!(outcome, expected.map_err(str::to_owned), "{change}");
    }

    #[test]
    fn claims_are_checked_in_upstreams_words() {
        let one = ["a"];
        check(&one, json!({}), Ok(()));
        check(&one, json!({"aud": ["b", "a"]}), Ok(()));
        check(
            &one,
            json!({"aud": ["b", "c"]}),
            Err(r#"oidc: expected audience "a" got ["b" "c"]"#),
        );
        check(
            &one,
            json!({"aud": null}),
            Err(r#"oidc: expected audience "a" got []"#),
        );
        check(
            &["c", "b"],
            json!({}),
            Err(r#"oidc: expected audience in ["b" "c"] got ["a"]"#),
        );
        check(&["c", "a"], json!({}), Ok(()));
        check(
            &one,
            json!({"aud": 1}),
            Err(
                "oidc: failed to unmarshal claims: json: cannot unmarshal number into Go value of type string",
            ),
        );
        check(
            &one,
            json!({"iss": "https://other"}),
            Err(r#"oidc: id token issued by a different provider, expected "https://i" got "https://other""#),
        );
        check(
            &one,
            json!({"exp": 999}),
            Err("oidc: token is expired (Token Expiry: 1970-01-01 00:16:39 +0000 UTC)"),
        );
        check(&one, json!({"exp": 1000.9}), Ok(()));
        check(&one, json!({"exp": "1000"}), Ok(()));
        check(
            &one,
            json!({"exp": 1e300}),
            Err("oidc: token is expired (Token Expiry: unknown)"),
        );
        check(
            &one,
            json!({"exp": "soon"}),
            Err(
                "oidc: failed to unmarshal claims: json: invalid number literal, trying to unmarshal \"soon\"",
            ),
        );
        check(
            &one,
            json!({"exp": null}),
            Err("oidc: token is expired (Token Expiry: unknown)"),
        );
        check(
            &one,
            json!({"exp": []}),
            Err("oidc: failed to unmarshal claims: json: a time is a number"),
        );
        check(&one, json!({"nbf": 1060}), Ok(()));
        check(
            &one,
            json!({"nbf": 1061}),
            Err(
                "oidc: current time 1970-01-01 00:16:40 +0000 UTC before the nbf (not before) time: 1970-01-01 00:17:41 +0000 UTC",
            ),
        );
        // An issue in the future alone is no fault, as upstream has it.
        check(&one, json!({"iat": 5_000}), Ok(()));
        check(
            &one,
            json!({"_claim_names": {"groups": "s"}}),
            Err("oidc: source does not exist"),
        );
        check(
            &one,
            json!({"_claim_names": {"groups": ""}}),
            Err("oidc: failed to obtain source from claim name"),
        );
    }

    #[test]
    fn issuers_are_read_without_trust() {
        #[track_caller]
        fn check(claims: &str, expected: Option<&str>) {
            use base64::Engine;
            let token = format!("e30.{}.", base64::prelude::BASE64_URL_SAFE_NO_PAD.encode(claims));
            assert_eq!(untrusted_issuer(&token).as_deref(), expected, "{claims}");
        }
        check(r#"{"iss":"i"}"#, Some("i"));
        check(
            r#"{"iss":"accounts.google.com"}"#,
            Some("https://accounts.google.com"),
        );
        check(r#"{"iss":1}"#, None);
        check("{}", Some(""));
        check("[]", None);
        check("", None);
    }
}
