use std::collections::HashMap;

use arc_swap::ArcSwap;
use base64::Engine;
use base64::prelude::{BASE64_STANDARD, BASE64_URL_SAFE_NO_PAD};
use parking_lot::Mutex;
use serde_json::json;

use super::*;

#[derive(Debug, Default)]
struct Objects(Mutex<HashMap<String, Value>>);

impl Objects {
    fn put(&self, kind: TokenObjectKind, namespace: &str, name: &str, object: Value) {
        self.0
            .lock()
            .insert(format!("{kind:?}/{namespace}/{name}"), object);
    }

    fn remove(&self, kind: TokenObjectKind, namespace: &str, name: &str) {
        self.0.lock().remove(&format!("{kind:?}/{namespace}/{name}"));
    }
}

#[async_trait::async_trait]
impl TokenObjects for Objects {
    async fn get(&self, kind: TokenObjectKind, namespace: &str, name: &str) -> Result<Option<Value>, String> {
        Ok(self
            .0
            .lock()
            .get(&format!("{kind:?}/{namespace}/{name}"))
            .cloned())
    }

    async fn used(&self, namespace: &str, secret: &str, day: &str) {
        let key = format!("{:?}/{namespace}/{secret}", TokenObjectKind::Secret);
        if let Some(secret) = self.0.lock().get_mut(&key) {
            secret["metadata"]["labels"][LAST_USED] = day.into();
        }
    }
}

const ISSUER: &str = "https://kubernetes.default.svc";

struct Fixture {
    issuer: TokenIssuer,
    checks: ServiceAccounts,
    objects: Arc<Objects>,
}

fn object(uid: &str) -> Value {
    json!({"metadata": {"uid": uid}})
}

fn fixture() -> Fixture {
    let pem = generic_server::pki::Pki::in_memory(&generic_server::pki::ServingNames::default())
        .unwrap()
        .service_account_key;
    let objects = Arc::new(Objects::default());
    objects.put(TokenObjectKind::ServiceAccount, "ns", "bot", object("u1"));
    let keys = Arc::new(PublicKeys::from_pem([pem.as_str()]).unwrap());
    let checks = ServiceAccounts::new(
        vec![ISSUER.into()],
        Arc::new(ArcSwap::new(keys)),
        vec![ISSUER.into()],
        objects.clone(),
    );
    let issuer = TokenIssuer::new(ISSUER, SigningKey::from_pem(&pem).unwrap());
    Fixture {
        issuer,
        checks,
        objects,
    }
}

fn reference(name: &str, uid: &str) -> ObjectRef {
    ObjectRef {
        name: name.into(),
        uid: uid.into(),
    }
}

fn claims() -> TokenClaims {
    TokenClaims {
        namespace: "ns".into(),
        service_account: reference("bot", "u1"),
        audiences: vec![ISSUER.into()],
        expiration_seconds: 3600,
        pod: None,
        secret: None,
        node: None,
        warn_after: None,
    }
}

impl Fixture {
    async fn ask(&self, token: &str, audiences: &[&str]) -> Result<(User, Vec<String>), String> {
        let audiences: Vec<String> = audiences.iter().map(|a| (*a).to_string()).collect();
        match self.checks.authenticate_token(token, &audiences).await {
            TokenVerdict::User(user, audiences) => Ok((user, audiences)),
            TokenVerdict::Failed(refusal) => Err(refusal.why),
            TokenVerdict::NotMine => Err("not mine".into()),
        }
    }

    async fn refusal(&self, claims: &TokenClaims) -> String {
        let token = self.issuer.issue(claims).unwrap().token;
        self.ask(&token, &[]).await.unwrap_err()
    }
}

#[tokio::test]
async fn good_tokens() {
    let f = fixture();
    let made = f.issuer.issue(&claims()).unwrap();
    let (user, audiences) = f.ask(&made.token, &[]).await.unwrap();
    assert_eq!(user.name, "system:serviceaccount:ns:bot");
    assert_eq!(user.uid, "u1");
    assert_eq!(
        user.groups,
        ["system:serviceaccounts", "system:serviceaccounts:ns"]
    );
    assert_eq!(
        user.extra["authentication.kubernetes.io/credential-id"],
        [format!("JTI={}", made.id)]
    );
    assert_eq!(audiences, [ISSUER]);

    f.objects.put(TokenObjectKind::Pod, "ns", "p", object("u2"));
    let bound = TokenClaims {
        pod: Some(reference("p", "u2")),
        node: Some(reference("n", "u3")),
        ..claims()
    };
    let token = f.issuer.issue(&bound).unwrap().token;
    let (user, _) = f.ask(&token, &[]).await.unwrap();
    assert_eq!(user.extra["authentication.kubernetes.io/pod-name"], ["p"]);
    assert_eq!(user.extra["authentication.kubernetes.io/node-name"], ["n"]);

    let other = TokenClaims {
        audiences: vec!["a".into(), "b".into()],
        ..claims()
    };
    let token = f.issuer.issue(&other).unwrap().token;
    assert_eq!(f.ask(&token, &["b", "c"]).await.unwrap().1, ["b"]);
    assert_eq!(
        f.ask(&token, &[]).await.unwrap_err(),
        "token audiences [\"a\" \"b\"] is invalid for the target audiences [\"https://kubernetes.default.svc\"]"
    );
}

#[tokio::test]
async fn bad_tokens() {
    let f = fixture();
    let token = f.issuer.issue(&claims()).unwrap().token;
    for foreign in ["", "x", "a.b.c", &token[..token.len() / 3], &format!("{token}.x")] {
        assert_eq!(f.ask(foreign, &[]).await.unwrap_err(), "not mine", "{foreign}");
    }
    let stranger = fixture().issuer.issue(&claims()).unwrap().token;
    assert_eq!(
        f.ask(&stranger, &[]).await.unwrap_err(),
        "invalid signature, no keys found"
    );

    // The same claims with the payload of another user, without a signature, and with `none`.
    let parts: Vec<&str> = token.split('.').collect();
    let payload = BASE64_URL_SAFE_NO_PAD.encode(json!({"iss": ISSUER, "sub": "system:admin"}).to_string());
    let forged = format!("{}.{payload}.{}", parts[0], parts[2]);
    assert_eq!(f.ask(&forged, &[]).await.unwrap_err(), "invalid signature");
    let none = BASE64_URL_SAFE_NO_PAD.encode(r#"{"alg":"none"}"#);
    assert_eq!(
        f.ask(&format!("{none}.{}.", parts[1]), &[]).await.unwrap_err(),
        "invalid signature"
    );

    let late = TokenClaims {
        expiration_seconds: -61,
        ..claims()
    };
    assert_eq!(f.refusal(&late).await, "service account token has expired");
    let skewed = TokenClaims {
        expiration_seconds: -30,
        ..claims()
    };
    assert!(f.ask(&f.issuer.issue(&skewed).unwrap().token, &[]).await.is_ok());

    let recreated = TokenClaims {
        service_account: reference("bot", "old"),
        ..claims()
    };
    assert_eq!(
        f.refusal(&recreated).await,
        "service account UID (u1) does not match claim (old)"
    );
    let gone = TokenClaims {
        service_account: reference("nobody", "u1"),
        ..claims()
    };
    assert_eq!(f.refusal(&gone).await, "serviceaccounts \"nobody\" not found");
    for bound in [
        TokenClaims {
            pod: Some(reference("p", "u")),
            ..claims()
        },
        TokenClaims {
            secret: Some(reference("s", "u")),
            ..claims()
        },
        TokenClaims {
            node: Some(reference("n", "u")),
            ..claims()
        },
    ] {
        assert_eq!(
            f.refusal(&bound).await,
            "service account token has been invalidated"
        );
    }
    let deleted = json!({"metadata": {"uid": "u1", "deletionTimestamp": "2001-01-01T00:00:00Z"}});
    f.objects
        .put(TokenObjectKind::ServiceAccount, "ns", "bot", deleted);
    assert_eq!(
        f.refusal(&claims()).await,
        "service account ns/bot has been deleted"
    );
}

#[tokio::test]
async fn tokens_in_secrets() {
    let f = fixture();
    let token = f.issuer.issue_legacy("ns", &reference("bot", "u1"), "s").unwrap();
    assert_eq!(
        f.ask(&token, &[]).await.unwrap_err(),
        "Token has been invalidated"
    );
    let secret = |content: &str| json!({"data": {"token": BASE64_STANDARD.encode(content)}});
    f.objects.put(TokenObjectKind::Secret, "ns", "s", secret("other"));
    assert_eq!(
        f.ask(&token, &[]).await.unwrap_err(),
        "Token does not match server's copy"
    );
    f.objects.put(TokenObjectKind::Secret, "ns", "s", secret(&token));
    let (user, audiences) = f.ask(&token, &[]).await.unwrap();
    assert_eq!((&*user.name, &*user.uid), ("system:serviceaccount:ns:bot", "u1"));
    assert_eq!(audiences, [ISSUER]);
    let annotations = |user: &User| user.notes.as_ref().expect("notes").annotations.clone();
    let annotation = |key: &str, value: &str| (format!("authentication.k8s.io/{key}"), value.to_string());
    let legacy = annotation("legacy-token", "system:serviceaccount:ns:bot");
    assert_eq!(
        annotations(&user),
        [legacy.clone(), annotation("legacy-token-manual-secret", "s")]
    );
    let named = json!({"metadata": {"uid": "u1"}, "secrets": [{"name": "s"}]});
    f.objects.put(TokenObjectKind::ServiceAccount, "ns", "bot", named);
    let (user, _) = f.ask(&token, &[]).await.unwrap();
    assert_eq!(
        annotations(&user),
        [
            legacy.clone(),
            annotation("legacy-token-autogenerated-secret", "s")
        ]
    );
    assert_eq!(user.notes.expect("notes").warnings.len(), 1);

    let labels = |labels: Value| {
        let mut labelled = secret(&token);
        labelled["metadata"]["labels"] = labels;
        f.objects.put(TokenObjectKind::Secret, "ns", "s", labelled);
    };
    let last_used = async || {
        let secret = f.objects.get(TokenObjectKind::Secret, "ns", "s").await.unwrap();
        secret.unwrap()["metadata"]["labels"][LAST_USED].clone()
    };
    let today = day_of(Timestamp::now());
    assert_eq!(last_used().await, today.as_str());
    labels(json!({LAST_USED: "2020-01-01"}));
    f.ask(&token, &[]).await.unwrap();
    assert_eq!(last_used().await, today.as_str());
    // Another server is ahead: it is not turned back.
    let tomorrow = day_of(Timestamp::now().plus(DAY));
    labels(json!({LAST_USED: tomorrow}));
    f.ask(&token, &[]).await.unwrap();
    assert_eq!(last_used().await, tomorrow.as_str());
    labels(json!({"kubernetes.io/legacy-token-invalid-since": "2026-01-01"}));
    let refused = f.ask(&token, &[]).await.unwrap_err();
    assert!(refused.contains("has been marked invalid"), "{refused}");
    // What is known of a refused token is recorded with the refusal.
    let TokenVerdict::Failed(refusal) = f.checks.authenticate_token(&token, &[]).await else {
        panic!("it is refused");
    };
    let invalidated = annotation("legacy-token-invalidated", "s/ns");
    assert_eq!(refusal.notes.expect("notes").annotations, [legacy, invalidated]);
    assert_eq!(last_used().await, today.as_str());

    f.objects.remove(TokenObjectKind::ServiceAccount, "ns", "bot");
    assert_eq!(
        f.ask(&token, &[]).await.unwrap_err(),
        "serviceaccounts \"bot\" not found"
    );
}

/// A throwaway 2048-bit key, as kubeadm makes them.
fn check_key(pem: &str, algorithm: &str) {
    let key = SigningKey::from_pem(pem).unwrap();
    // The signing key is among the key files, too.
    let keys = PublicKeys::from_pem([pem, pem]).unwrap();
    let token = key.sign_jwt(&json!({"a": 1})).unwrap();
    assert_eq!(keys.verify(&Jws::parse(&token).unwrap()), Ok(true), "{algorithm}");
    let jwks = keys.jwks();
    assert_eq!(jwks["keys"].as_array().map(Vec::len), Some(1), "published once");
    assert_eq!(jwks["keys"][0]["alg"], algorithm);
    assert_eq!(
        keys.discovery("i", "j")["id_token_signing_alg_values_supported"],
        json!([algorithm])
    );
}

/// A key of P-521 with a known number.
fn p521_pem() -> String {
    use p521::pkcs8::EncodePrivateKey;
    let mut number = [7; 66];
    number[0] = 0;
    let key = p521::SecretKey::from_slice(&number).unwrap();
    let der = key.to_pkcs8_der().unwrap();
    let text = BASE64_STANDARD.encode(der.as_bytes());
    format!("-----BEGIN PRIVATE KEY-----\n{text}\n-----END PRIVATE KEY-----\n")
}

#[test]
fn kinds_of_keys() {
    let es256 = rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).unwrap();
    check_key(&es256.serialize_pem(), "ES256");
    check_key(
        &rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P384_SHA384)
            .unwrap()
            .serialize_pem(),
        "ES384",
    );

    check_key(&p521_pem(), "ES512");

    // The public half alone gives the same id.
    let keys = PublicKeys::from_pem([es256.public_key_pem().as_str()]).unwrap();
    let token = SigningKey::from_pem(&es256.serialize_pem())
        .unwrap()
        .sign_jwt(&json!({}))
        .unwrap();
    assert_eq!(keys.verify(&Jws::parse(&token).unwrap()), Ok(true));

    for bad in [
        "",
        "nonsense",
        "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n",
    ] {
        assert!(SigningKey::from_pem(bad).is_err());
        assert!(PublicKeys::from_pem([bad]).is_err());
    }
}

#[tokio::test]
async fn uses_are_counted() {
    let f = fixture();
    let secret = |content: &str| json!({"data": {"token": BASE64_STANDARD.encode(content)}});
    let legacy = f.issuer.issue_legacy("ns", &reference("bot", "u1"), "s").unwrap();
    f.objects.put(TokenObjectKind::Secret, "ns", "s", secret(&legacy));
    f.ask(&legacy, &[]).await.unwrap();
    for (warn_after, times) in [(None, 1), (Some(60), 2), (Some(-60), 3)] {
        let claims = TokenClaims {
            warn_after,
            ..claims()
        };
        let token = f.issuer.issue(&claims).unwrap().token;
        for _ in 0..times {
            f.ask(&token, &[]).await.unwrap();
        }
    }
    let mut out = String::new();
    generic_server::metrics::Collect::collect(&*f.checks.metrics(), &mut out);
    for expected in [
        "serviceaccount_legacy_tokens_total 1\n",
        "serviceaccount_legacy_manual_token_uses_total 1\n",
        "serviceaccount_legacy_auto_token_uses_total 0\n",
        "serviceaccount_invalid_legacy_auto_token_uses_total 0\n",
        "serviceaccount_valid_tokens_total 2\n",
        "serviceaccount_stale_tokens_total 3\n",
    ] {
        assert!(out.contains(expected), "{expected}\n{out}");
    }
}
