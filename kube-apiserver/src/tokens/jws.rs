//! Signed tokens in compact form (RFC 7515), taken apart. Nothing of them is verified here.

use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD as BASE64;
use machinery::limits;
use serde_json::Value;

/// A token's parts.
pub(super) struct Jws<'t> {
    /// What the signature is over.
    pub(super) signed: &'t str,
    pub(super) signature: Vec<u8>,
    pub(super) algorithm: String,
    /// The id of the key; empty when none is named.
    pub(super) key_id: String,
}

impl<'t> Jws<'t> {
    /// Takes a token apart, but for its payload.
    ///
    /// # Errors
    /// It is no token in compact form, or too long. The text holds nothing of it.
    pub(super) fn parse(token: &'t str) -> Result<Self, String> {
        if token.len() > limits::SIGNED_TOKEN_BYTES {
            return Err("it is too long".into());
        }
        let (signed, signature) = token.rsplit_once('.').ok_or("three parts are expected")?;
        let (header, payload) = signed.split_once('.').ok_or("three parts are expected")?;
        if payload.contains('.') {
            return Err("three parts are expected".into());
        }
        let header = decode(header)?;
        let header: Value = serde_json::from_slice(&header).map_err(|_| "the header is no JSON")?;
        let header = header.as_object().ok_or("the header is no object")?;
        let text = |key: &str| match header.get(key) {
            None | Some(Value::Null) => Ok(String::new()),
            Some(Value::String(text)) => Ok(text.clone()),
            Some(_) => Err(format!("{key} in the header is no string")),
        };
        // No extension is understood, so that one that has to be makes a token invalid.
        if header.contains_key("crit") {
            return Err("an extension in the header is not supported".into());
        }
        // What is signed is never a payload that is not encoded (RFC 7797).
        if header
            .get("b64")
            .is_some_and(|encoded| *encoded != Value::Bool(true))
        {
            return Err("b64 in the header is not true".into());
        }
        Ok(Jws {
            signed,
            signature: decode(signature)?,
            algorithm: text("alg")?,
            key_id: text("kid")?,
        })
    }

    /// The token's claims.
    ///
    /// # Errors
    /// They are no JSON object.
    pub(super) fn claims(&self) -> Result<serde_json::Map<String, Value>, String> {
        let payload = self.signed.rsplit('.').next().unwrap_or_default();
        match serde_json::from_slice(&decode(payload)?) {
            Ok(Value::Object(claims)) => Ok(claims),
            Ok(_) => Err("the claims are no object".into()),
            Err(_) => Err("the claims are no JSON".into()),
        }
    }
}

/// The claims of a token that is in compact form, without a look at its signature.
pub(super) fn unverified_claims(token: &str) -> Option<Value> {
    if token.len() > limits::SIGNED_TOKEN_BYTES {
        return None;
    }
    let mut parts = token.split('.');
    let (_, payload, _) = (parts.next()?, parts.next()?, parts.next()?);
    if parts.next().is_some() {
        return None;
    }
    serde_json::from_slice(&decode(payload).ok()?).ok()
}

fn decode(part: &str) -> Result<Vec<u8>, String> {
    BASE64.decode(part).map_err(|error| match error {
        base64::DecodeError::InvalidByte(at, _) | base64::DecodeError::InvalidLastSymbol(at, _) => {
            format!("illegal base64 data at input byte {at}")
        }
        _ => "illegal base64 data".into(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(header: &str, claims: &str) -> String {
        format!("{}.{}.c2ln", BASE64.encode(header), BASE64.encode(claims))
    }

    #[test]
    fn tokens_are_taken_apart() {
        let token = token(r#"{"alg":"ES256","kid":"k","typ":"JWT"}"#, r#"{"iss":"i"}"#);
        let jws = Jws::parse(&token).expect("a token");
        assert_eq!((&*jws.algorithm, &*jws.key_id), ("ES256", "k"));
        assert_eq!(jws.signature, b"sig");
        assert_eq!(format!("{}.c2ln", jws.signed), token);
        assert_eq!(jws.claims().expect("claims")["iss"], "i");
        assert_eq!(unverified_claims(&token).expect("claims")["iss"], "i");
    }

    #[test]
    fn the_length_of_tokens_is_bounded() {
        let of = |bytes: usize| format!("e30.e30.{}", "A".repeat(bytes - "e30.e30.".len()));
        let at = of(limits::SIGNED_TOKEN_BYTES);
        assert!(Jws::parse(&at).is_ok() && unverified_claims(&at).is_some());
        let past = of(limits::SIGNED_TOKEN_BYTES + 4);
        assert_eq!(Jws::parse(&past).err().as_deref(), Some("it is too long"));
        assert_eq!(unverified_claims(&past), None);
    }

    #[test]
    fn bad_tokens_are_refused() {
        #[track_caller]
        fn check(token: &str, expected: &str) {
            let why = match Jws::parse(token) {
                Ok(jws) => jws.claims().expect_err("it is bad"),
                Err(why) => why,
            };
            assert_eq!(why, expected, "{token}");
        }
        for header in [r#"{"alg":"RS256","b64":false}"#, r#"{"alg":"RS256","b64":null}"#] {
            check(&token(header, "{}"), "b64 in the header is not true");
        }
        for critical in [r#"["b64"]"#, "[]", "null"] {
            let header = format!(r#"{{"alg":"RS256","crit":{critical}}}"#);
            check(
                &token(&header, "{}"),
                "an extension in the header is not supported",
            );
        }
        check("", "three parts are expected");
        check("a.b", "three parts are expected");
        check("a.b.c.d", "three parts are expected");
        check("{}", "three parts are expected");
        check("!.e30.c2ln", "illegal base64 data at input byte 0");
        check("e30.e30.c2l!", "illegal base64 data at input byte 3");
        check("e30.e30.c2lnc", "illegal base64 data");
        check(&token("nothing", "{}"), "the header is no JSON");
        check(&token("[]", "{}"), "the header is no object");
        check(&token(r#"{"alg":1}"#, "{}"), "alg in the header is no string");
        check(&token(r#"{"kid":{}}"#, "{}"), "kid in the header is no string");
        check(&token("{}", "1"), "the claims are no object");
        check(&token("{}", "{"), "the claims are no JSON");
        check(&token("{}", &"[".repeat(90_000)), "the claims are no JSON");
    }
}
