//! Tokens that no issuer has made, and ones that were changed on the way.

use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD as BASE64;
use serde_json::json;
use test_support::Issuer;

use super::{config, error, holder, server, user};

#[tokio::test]
async fn bad_tokens_are_refused() {
    let (issuer, directory) = (Issuer::start().await, tempfile::tempdir().expect("a directory"));
    let (plane, client) = server(directory.path(), &issuer, &config(&issuer, &json!({}))).await;
    let good = issuer.token(&json!({"sub": "jane"}));
    let parts: Vec<&str> = good.split('.').collect();
    let [header, claims, signature] = parts[..] else {
        panic!("three parts");
    };
    let of = |text: &str| BASE64.encode(text);
    let named = |members: &str| of(&format!("{{\"iss\":\"{}\"{members}}}", issuer.url()));
    let mut tokens: Vec<String> = vec![
        ".".into(),
        "..".into(),
        "...".into(),
        format!("{header}.{claims}"),
        format!("{header}.{claims}."),
        format!("{header}.{claims}.{signature}."),
        format!("{header}.{claims}.{signature}A"),
        format!(".{claims}.{signature}"),
        format!("{claims}.{claims}.{signature}"),
        format!("{}.{claims}.{signature}", of(r#"{"alg":"none"}"#)),
        format!("{}.{claims}.", of(r#"{"alg":"none"}"#)),
        format!("{}.{claims}.{signature}", of(r#"{"alg":"HS256","kid":"1"}"#)),
        format!("{}.{claims}.{signature}", of(r#"{"alg":["ES256"],"kid":"1"}"#)),
        format!("{}.{claims}.{signature}", of(r#"{"alg":"ES256","kid":1}"#)),
        format!("{}.{claims}.{signature}", of("[")),
        format!(
            "{header}.{}.{signature}",
            named(r#","sub":"admin","aud":"kubernetes""#)
        ),
        format!("{header}.{}.{signature}", named(r#","exp":{}"#)),
        format!("{header}.{}.{signature}", of(r#"{"iss":{"a":1}}"#)),
        format!("{header}.{}.{signature}", of("[]")),
        format!("{header}.{}.{signature}", of(&"[".repeat(50_000))),
        format!("{header}.{}.{signature}", "A".repeat(200_000)),
        "%".repeat(10_000),
        ".".repeat(10_000),
    ];
    // Every byte changed, every end.
    for at in 0..good.len() {
        let other = if good.as_bytes()[at] == b'A' { "B" } else { "A" };
        tokens.push(format!("{}{other}{}", &good[..at], &good[at + 1..]));
    }
    for end in (0..good.len()).step_by(16).filter(|end| *end > 0) {
        tokens.push(good[..end].to_owned());
    }
    for token in &tokens {
        let why = error(&client, token).await;
        assert!(!why.is_empty(), "{token}");
        assert!(
            !token.contains('.') || !why.contains(&token[..token.len().min(40)]),
            "{why}"
        );
    }
    for token in &tokens[..23] {
        let answer = holder(&plane, &client, token).get("/api").await;
        assert_eq!(answer.status, 401, "{token}");
    }
    assert_eq!(user(&plane, &client, &good).await["username"], "oidc:jane");
    plane.stop().await;
}
