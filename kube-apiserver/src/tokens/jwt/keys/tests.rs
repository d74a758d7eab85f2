//! Key sets and tokens of every algorithm, which another library has signed with keys that are gone.

use serde_json::json;

use super::*;

fn signed() -> Value {
    serde_json::from_str(include_str!("signed.json")).expect("JSON")
}

fn token(name: &str) -> String {
    signed()["tokens"][name].as_str().expect(name).to_owned()
}

/// Whether these keys verify a token.
fn verifies(keys: &Value, token: &str) -> bool {
    let set = KeySet::parse(json!({"keys": keys}).to_string().as_bytes()).expect("a key set");
    set.verify(&Jws::parse(token).expect("a token"))
}

#[test]
fn every_algorithm_is_verified() {
    let keys = &signed()["keys"];
    for name in ALGORITHMS {
        assert!(verifies(keys, &token(name)), "{name}");
    }
    assert!(verifies(keys, &token("no kid")), "all keys are tried");
    assert!(
        Jws::parse(&token("critical")).is_err(),
        "an extension is not understood"
    );
    assert!(!verifies(keys, &token("another kid")), "the named key is the one");
    assert!(!verifies(&json!([]), &token("RS256")));
}

#[test]
fn changed_tokens_are_refused() {
    let keys = &signed()["keys"];
    #[track_caller]
    fn check(keys: &Value, token: &str) {
        assert!(!verifies(keys, token), "{token}");
    }
    for name in ["RS256", "PS384", "ES256", "ES384", "ES512"] {
        let token = token(name);
        let parts: Vec<&str> = token.split('.').collect();
        let [header, claims, signature] = parts[..] else {
            panic!("three parts");
        };
        let of = |header: &str| BASE64.encode(header);
        check(
            keys,
            &format!("{header}.{}.{signature}", of(r#"{"sub":"admin"}"#)),
        );
        check(keys, &format!("{header}.{claims}."));
        check(keys, &format!("{header}.{claims}.{}", BASE64.encode([0; 64])));
        check(keys, &format!("{header}.{claims}.{signature}AA"));
        for algorithm in ["none", "None", "", "HS256", "RS512", "EdDSA"] {
            let header = of(&format!(r#"{{"alg":"{algorithm}","kid":"rsa"}}"#));
            check(keys, &format!("{header}.{claims}.{signature}"));
            check(keys, &format!("{header}.{claims}."));
        }
    }
    // A public key is no secret that a token could be signed with.
    let public = keys[0]["n"].as_str().expect("a number");
    let (header, claims) = (
        BASE64.encode(r#"{"alg":"HS256","kid":"rsa"}"#),
        BASE64.encode("{}"),
    );
    let secret = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, public.as_bytes());
    let message = format!("{header}.{claims}");
    let tag = BASE64.encode(ring::hmac::sign(&secret, message.as_bytes()));
    check(keys, &format!("{message}.{tag}"));
}

#[test]
fn keys_that_cannot_be_used_are_passed_over() {
    let mut keys = signed()["keys"].clone();
    let all = keys.as_array_mut().expect("keys");
    for odd in [
        json!(1),
        json!({}),
        json!({"kty": "oct", "k": "AAAA"}),
        json!({"kty": "OKP", "crv": "Ed25519", "x": "AAAA"}),
        json!({"kty": "RSA", "n": "", "e": "AQAB"}),
        json!({"kty": "RSA", "n": "!", "e": "AQAB"}),
        json!({"kty": "RSA", "kid": "rsa", "n": "AQ", "e": "AQ"}),
        json!({"kty": "EC", "kid": "P-256", "crv": "P-256", "x": "AA", "y": "AA"}),
        json!({"kty": "EC", "crv": "P-256", "x": BASE64.encode([1; 33]), "y": "AA"}),
    ] {
        all.insert(0, odd);
    }
    for name in ["RS256", "ES256", "ES384"] {
        assert!(verifies(&keys, &token(name)), "{name}");
    }
}

#[test]
fn what_is_no_key_set_is_refused() {
    #[track_caller]
    fn check(body: &str, expected: Result<usize, &str>) {
        let outcome = KeySet::parse(body.as_bytes()).map(|set| set.0.len());
        assert_eq!(outcome, expected.map_err(str::to_owned), "{body}");
    }
    check("{}", Ok(0));
    check(r#"{"keys":null}"#, Ok(0));
    check(r#"{"keys":{}}"#, Err("keys is no list"));
    check("[]", Err("it is no object"));
    check("", Err("EOF while parsing a value at line 1 column 0"));
    let key = r#"{"kty":"RSA","n":"AQ","e":"AQ"}"#;
    let many = |count: usize| format!(r#"{{"keys":[{}]}}"#, vec![key; count].join(","));
    check(&many(limits::ISSUER_KEYS), Ok(limits::ISSUER_KEYS));
    check(&many(limits::ISSUER_KEYS + 1), Ok(limits::ISSUER_KEYS));
}
