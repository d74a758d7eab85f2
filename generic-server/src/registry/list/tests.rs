use serde_json::{Value, json};

use super::token::Token;
use super::*;
use crate::handlers::fixture::{Fixture, fixture, request};
use crate::handlers::list::select;

#[test]
fn versions_are_read_as_go_reads_them() {
    let bad = |shown: &str, why: &str| {
        Err(format!(
            "resourceVersion: Invalid value: {shown}: strconv.ParseUint: parsing {shown}: {why}"
        ))
    };
    for (text, expected) in [
        ("", Ok(Revision(0))),
        ("0", Ok(Revision(0))),
        ("17", Ok(Revision(17))),
        ("abc", bad("\"abc\"", "invalid syntax")),
        ("-1", bad("\"-1\"", "invalid syntax")),
        ("+1", bad("\"+1\"", "invalid syntax")),
        (
            "99999999999999999999",
            bad("\"99999999999999999999\"", "value out of range"),
        ),
    ] {
        assert_eq!(parse_version(text), expected, "{text}");
    }
}

#[test]
fn tokens_are_upstreams() {
    let token = Token::at(Revision(7), "ns/a\0".into());
    assert_eq!(Token::decode(&token.encode()), Ok(token));
    // {"v":"meta.k8s.io/v1","rv":5,"start":"a"}, as upstream writes it.
    let theirs = Token::decode("eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6NSwic3RhcnQiOiJhIn0").expect("readable");
    assert_eq!(
        (theirs.revision(), theirs.start(), theirs.left()),
        (Some(Revision(5)), "a", None)
    );
    use base64::Engine;
    let encode = |text: &str| base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(text);
    for (text, expected) in [
        (
            encode(r#"{"v":"v0","rv":1,"start":"a"}"#),
            "server does not recognize this encoded version v0",
        ),
        (
            encode(r#"{"v":"meta.k8s.io/v1","rv":0,"start":"a"}"#),
            "incorrect encoded start resourceVersion",
        ),
        (
            encode(r#"{"v":"meta.k8s.io/v1","rv":1,"start":""}"#),
            "encoded start key empty",
        ),
        (
            encode(r#"{"v":"meta.k8s.io/v1","rv":1,"start":"../secrets/a"}"#),
            "continue key is not valid: ../secrets/a",
        ),
        (encode("[]"), "continue key is not valid"),
        ("!!!".into(), "illegal base64 data at input byte 0"),
    ] {
        let error = Token::decode(&text).expect_err("refused");
        assert!(
            error.starts_with("continue key is not valid") && error.contains(expected),
            "{error}"
        );
    }
}

struct Listed {
    names: Vec<String>,
    next: String,
    remaining: Value,
    version: String,
}

async fn list(fixture: &Fixture, namespace: &str, query: &str) -> Result<Listed, ApiError> {
    let (authorized, head) = request(namespace, query, &[]);
    let response = crate::handlers::list::handle(&fixture.resource, &authorized, &head).await?;
    let body = crate::handlers::fixture::json_of(response).await;
    let metadata = &body["metadata"];
    Ok(Listed {
        names: body["items"]
            .as_array()
            .expect("items")
            .iter()
            .map(|i| machinery::meta::name(i).to_string())
            .collect(),
        next: metadata["continue"].as_str().unwrap_or_default().into(),
        remaining: metadata["remainingItemCount"].clone(),
        version: metadata["resourceVersion"].as_str().expect("a version").into(),
    })
}

async fn filled() -> Fixture {
    let fixture = fixture(false);
    for (index, name) in ["a", "b", "c", "d", "e"].into_iter().enumerate() {
        let label = if index % 2 == 0 { "even" } else { "odd" };
        fixture
            .put("ns", name, label, if index < 2 { "n1" } else { "n2" })
            .await;
    }
    fixture.put("nt", "z", "even", "n1").await;
    fixture
}

#[tokio::test]
async fn selectors() {
    let fixture = filled().await;
    for (namespace, query, expected) in [
        ("ns", "", "abcde"),
        ("", "", "abcdez"),
        ("n", "", ""),
        ("ns", "labelSelector=l%3Deven", "ace"),
        ("", "labelSelector=l+notin+(even)", "bd"),
        ("", "fieldSelector=spec.nodeName%3Dn1", "abz"),
        ("ns", "fieldSelector=spec.nodeName!%3Dn1,metadata.name!%3Dc", "de"),
        ("", "fieldSelector=metadata.namespace%3Dnt", "z"),
        ("", "fieldSelector=metadata.namespace%3Dnt,metadata.name%3Dz", "z"),
        ("ns", "fieldSelector=metadata.name%3Dz", ""),
        ("ns/c", "", "c"),
        ("ns", "limit=0", "abcde"),
        ("ns", "limit=-1", "abcde"),
        ("ns", "resourceVersion=0&limit=1", "abcde"),
    ] {
        let listed = list(&fixture, namespace, query).await.expect("lists");
        assert_eq!(listed.names.concat(), expected, "{namespace} {query}");
    }
}

#[tokio::test]
async fn pages_show_one_moment() {
    let fixture = filled().await;
    let first = list(&fixture, "ns", "limit=2").await.expect("lists");
    assert_eq!(
        (first.names.concat().as_str(), &first.remaining),
        ("ab", &json!(3))
    );
    fixture.remove("ns", "d").await;
    fixture.put("ns", "cc", "odd", "n1").await;
    let second = list(&fixture, "ns", &format!("limit=2&continue={}", first.next))
        .await
        .expect("lists");
    assert_eq!(
        (second.names.concat().as_str(), &second.remaining),
        ("cd", &json!(1))
    );
    assert_eq!(second.version, first.version);
    let third = list(&fixture, "ns", &format!("continue={}", second.next))
        .await
        .expect("lists");
    assert_eq!((third.names.concat().as_str(), third.next.as_str()), ("e", ""));
    let exact = format!("resourceVersion={}&resourceVersionMatch=Exact", first.version);
    assert_eq!(
        list(&fixture, "ns", &exact).await.expect("lists").names.concat(),
        "abcde"
    );
    let narrowed = list(&fixture, "ns", "limit=1&labelSelector=l%3Dodd")
        .await
        .expect("lists");
    assert!(!narrowed.next.is_empty() && narrowed.remaining.is_null());
    let last = list(&fixture, "ns", "limit=5").await.expect("lists");
    assert_eq!((last.next.as_str(), &last.remaining), ("", &Value::Null));
}

#[tokio::test]
async fn an_expired_page_offers_to_go_on() {
    use storage::Store;
    let fixture = filled().await;
    let page = list(
        &fixture,
        "ns",
        "limit=2&resourceVersion=3&resourceVersionMatch=Exact",
    )
    .await
    .expect("lists");
    assert_eq!(page.names.concat(), "ab");
    // The snapshot kept for the page is gone, and so is the engine's history.
    let token = Token::at(Revision(2), "b\0".into()).encode();
    fixture.engine.compact(Revision(5)).await.expect("compacts");
    let error = list(&fixture, "ns", &format!("limit=2&continue={token}"))
        .await
        .err()
        .expect("gone");
    assert_eq!((error.code(), error.reason()), (410, Reason::Expired));
    let fresh = error.to_value()["metadata"]["continue"]
        .as_str()
        .expect("a token")
        .to_string();
    let rest = list(&fixture, "ns", &format!("continue={fresh}"))
        .await
        .expect("goes on");
    assert_eq!(rest.names.concat(), "cde");
    let error = list(&fixture, "ns", "resourceVersion=2&limit=1")
        .await
        .err()
        .expect("gone");
    assert_eq!(
        error.message(),
        "The resourceVersion for the provided list is too old."
    );
}

#[tokio::test(start_paused = true)]
async fn options_that_upstream_refuses() {
    let fixture = filled().await;
    let invalid = "ListOptions.meta.k8s.io \"\" is invalid: ";
    for (query, code, text) in [
        (
            "limit=abc",
            400,
            "strconv.ParseInt: parsing \"abc\": invalid syntax",
        ),
        ("limit=", 400, "strconv.ParseInt: parsing \"\": invalid syntax"),
        (
            "labelSelector=%21",
            400,
            "unable to parse requirement: found '', expected: identifier",
        ),
        (
            "fieldSelector=data.x%3D1",
            400,
            "field label not supported: data.x",
        ),
        (
            "fieldSelector=metadata.name",
            400,
            "invalid selector: 'metadata.name'; can't understand 'metadata.name'",
        ),
        (
            "resourceVersion=abc",
            400,
            "invalid resource version: resourceVersion: Invalid value: \"abc\": strconv.ParseUint: parsing \"abc\": invalid syntax",
        ),
        (
            "continue=e30&resourceVersion=5",
            400,
            "invalid continue token: continue key is not valid: server does not recognize this encoded version ",
        ),
        (
            "resourceVersionMatch=Bogus&resourceVersion=1",
            422,
            "resourceVersionMatch: Unsupported value: \"Bogus\": supported values: \"Exact\", \"NotOlderThan\", \"\"",
        ),
        (
            "resourceVersionMatch=Exact",
            422,
            "resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden unless resourceVersion is provided",
        ),
        (
            "resourceVersion=0&resourceVersionMatch=Exact",
            422,
            "resourceVersionMatch: Forbidden: resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"",
        ),
        (
            "sendInitialEvents=true",
            422,
            "sendInitialEvents: Forbidden: sendInitialEvents is forbidden for list",
        ),
        (
            "resourceVersion=10000",
            504,
            "Timeout: Too large resource version: 10000, current: 6",
        ),
        (
            "resourceVersion=10000&limit=1",
            504,
            "Timeout: Too large resource version: 10000, current: 6",
        ),
    ] {
        let error = list(&fixture, "ns", query).await.err().expect("refused");
        let prefix = if code == 422 { invalid } else { "" };
        assert_eq!(
            (error.code(), error.message()),
            (code, format!("{prefix}{text}").as_str()),
            "{query}"
        );
    }
    let custom = crate::handlers::fixture::fixture(true);
    let (authorized, head) = request("ns", "fieldSelector=spec.x%3D1", &[]);
    let error = select(&custom.resource, &authorized, &head)
        .await
        .expect_err("refused");
    assert_eq!(error.message(), "field label not supported: spec.x");
}
