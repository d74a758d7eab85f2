use kms_plugin::signer::{Answers, Signer};

use super::super::ObjectRef;
use super::*;

struct Fixture {
    _directory: tempfile::TempDir,
    program: Signer,
    signer: Arc<ExternalSigner>,
    tasks: Tasks,
}

fn fixture() -> Fixture {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("signer.sock");
    Fixture {
        program: Signer::listen(&socket, "one").unwrap(),
        signer: ExternalSigner::new("https://issuer", socket),
        _directory: directory,
        tasks: Tasks::new(),
    }
}

fn claims() -> TokenClaims {
    TokenClaims {
        namespace: "ns".into(),
        service_account: ObjectRef {
            name: "bot".into(),
            uid: "u1".into(),
        },
        audiences: vec!["a".into()],
        expiration_seconds: 600,
        pod: None,
        secret: None,
        node: None,
        warn_after: None,
    }
}

impl Fixture {
    async fn connected(asked: Option<i64>, answers: Answers) -> (Self, Result<(), String>) {
        let f = fixture();
        f.program.answer(answers);
        let connected = f.signer.connect(asked, &f.tasks).await;
        (f, connected)
    }
}

#[tokio::test]
async fn tokens_are_signed_by_the_program() {
    let (f, connected) = Fixture::connected(None, Answers::default()).await;
    connected.unwrap();
    assert_eq!(f.signer.most_seconds(), Some(86_400));
    let made = f.signer.issue(&claims()).await.unwrap();
    let jws = super::super::Jws::parse(&made.token).unwrap();
    assert_eq!((&*jws.algorithm, &*jws.key_id), ("ES256", "one"));
    let keys = f.signer.keys_for("one").await;
    assert_eq!(keys.verify(&jws), Ok(true));
    assert_eq!(keys.jwks()["keys"][0]["kid"], "one");
    let mut out = String::new();
    f.signer.metrics().collect(&mut out);
    for expected in [
        "apiserver_externaljwt_sign_request_total{code=\"OK\"} 1\n",
        "apiserver_externaljwt_fetch_keys_request_total{code=\"OK\"} 1\n",
        "apiserver_externaljwt_request_duration_seconds_count{method=\"/v1.ExternalJWTSigner/Sign\",code=\"OK\"} 1\n",
    ] {
        assert!(out.contains(expected), "{expected}\n{out}");
    }
}

#[tokio::test]
async fn programs_that_cannot_be_used_are_refused_at_the_start() {
    async fn check(asked: Option<i64>, change: impl Fn(&mut Answers), expected: &str) {
        let mut answers = Answers::default();
        change(&mut answers);
        let (_, connected) = Fixture::connected(asked, answers).await;
        assert_eq!(connected.unwrap_err(), expected);
    }
    const KEYS: &str = "while setting up external-jwt-signer: while initially filling key cache: while performing initial cache fill: while fetching token verification keys";
    check(
        None,
        |answers| answers.refresh_seconds = 0,
        &format!("{KEYS}: found invalid refresh hint (0s)"),
    )
    .await;
    check(
        None,
        |answers| answers.refresh_seconds = -3,
        &format!("{KEYS}: found invalid refresh hint (-3s)"),
    )
    .await;
    check(
        None,
        |answers| answers.dated = false,
        &format!("{KEYS}: invalid data timestamp"),
    )
    .await;
    check(
        None,
        |answers| answers.most_seconds = 599,
        "max token life supported by external-jwt-signer (599s) is less than acceptable (min 600s)",
    )
    .await;
    check(
        Some(86_401),
        |_| {},
        "service-account-max-token-expiration cannot be set longer than the token expiration supported by service-account-signing-endpoint: 24h0m1s > 24h0m0s",
    )
    .await;
    let f = fixture();
    f.program.withdraw_key("one");
    let why = f.signer.connect(None, &f.tasks).await.unwrap_err();
    assert_eq!(why, format!("{KEYS}: found no keys"));
    f.program.add_key(&"k".repeat(1025), false);
    let why = f.signer.connect(None, &f.tasks).await.unwrap_err();
    assert!(
        why.starts_with(&format!("{KEYS}: found invalid public key id")),
        "{why}"
    );
}

#[tokio::test]
async fn headers_and_signatures_are_judged() {
    let (f, connected) = Fixture::connected(None, Answers::default()).await;
    connected.unwrap();
    let refusal = async |header: &str, signature: Option<&str>| {
        f.program.answer(Answers {
            header: Some(header.into()),
            signature: signature.map(str::to_string),
            ..Answers::default()
        });
        f.signer.issue(&claims()).await.unwrap_err()
    };
    const HEADER: &str = "while validating header";
    let good = r#"{"alg":"ES256","kid":"one","typ":"JWT"}"#;
    for (header, expected) in [
        (r#"{"alg":"ES256","kid":"one"}"#, "bad type"),
        (r#"{"alg":"ES256","typ":"JWT"}"#, "key id missing"),
        (
            r#"{"alg":"none","kid":"one","typ":"JWT"}"#,
            r#"bad signing algorithm "none""#,
        ),
        (
            r#"{"alg":"HS256","kid":"one","typ":"JWT"}"#,
            r#"bad signing algorithm "HS256""#,
        ),
    ] {
        assert_eq!(refusal(header, None).await, format!("{HEADER}: {expected}"));
    }
    let long = format!(r#"{{"alg":"ES256","kid":"{}","typ":"JWT"}}"#, "k".repeat(1025));
    assert_eq!(
        refusal(&long, None).await,
        format!("{HEADER}: key id longer than 1 kb")
    );
    let more = r#"{"alg":"ES256","kid":"one","typ":"JWT","jku":"https://x"}"#;
    let why = refusal(more, None).await;
    assert!(
        why.starts_with(&format!("{HEADER}: while parsing header JSON")),
        "{why}"
    );
    assert_eq!(refusal(good, Some("")).await, "empty signature returned");
    // A key that is for old tokens alone.
    f.program.add_key("old", true);
    let withheld = r#"{"alg":"ES256","kid":"old","typ":"JWT"}"#;
    assert_eq!(
        refusal(withheld, None).await,
        format!("{HEADER}: key used for signing JWT (kid: old) is excluded from OIDC discovery docs")
    );
    let keys = f.signer.keys_for("old").await;
    assert_eq!(keys.jwks()["keys"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn unknown_keys_are_asked_for_once_in_a_pause() {
    let (f, connected) = Fixture::connected(None, Answers::default()).await;
    connected.unwrap();
    assert_eq!(f.program.calls().1, 1);
    for _ in 0..20 {
        assert!(!f.signer.keys_for("nobody's").await.knows("nobody's"));
    }
    assert_eq!(f.program.calls().1, 2);
    // A new key is found once the pause is over.
    f.program.add_key("two", false);
    *f.signer.fetched.lock().await = None;
    assert!(f.signer.keys_for("two").await.knows("two"));
    assert_eq!(f.program.calls().1, 3);
    // Those that are known cost nothing.
    f.signer.keys_for("one").await;
    assert_eq!(f.program.calls().1, 3);
}

#[tokio::test]
async fn keys_are_fetched_again_when_their_time_is_over() {
    let (f, connected) = Fixture::connected(
        None,
        Answers {
            refresh_seconds: 1,
            ..Answers::default()
        },
    )
    .await;
    connected.unwrap();
    let (sender, mut changes) = tokio::sync::mpsc::channel(8);
    f.signer.when_changed(move |keys| {
        let _ = sender.try_send(keys.ids().map(|(id, _)| id.to_string()).collect::<Vec<_>>());
    });
    f.program.add_key("two", false);
    f.program.withdraw_key("one");
    let deadline = Duration::from_secs(30);
    let changed = async {
        while let Some(ids) = changes.recv().await {
            if ids == ["two"] {
                return;
            }
        }
    };
    tokio::time::timeout(deadline, changed).await.unwrap();
    assert!(!f.signer.keys.load().knows("one"));
}
