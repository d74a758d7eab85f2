use machinery::time::Timestamp;
use rcgen::{
    CertificateParams, DnType, Issuer, KeyPair, PKCS_ECDSA_P256_SHA256, PKCS_ECDSA_P384_SHA384, PKCS_ED25519,
    PublicKeyData, SanType, SignatureAlgorithm,
};
use ring::rand::SystemRandom;
use ring::signature::{self, EcdsaKeyPair, Ed25519KeyPair};
use serde_json::json;

use super::*;
use crate::groups::check::{kind, with_spec};

const RESOURCE: &str = "podcertificaterequests.certificates.k8s.io";

fn stub(key: &KeyPair) -> String {
    let params = CertificateParams::new(Vec::new()).unwrap();
    STANDARD.encode(params.serialize_request(key).unwrap().der())
}

fn key_of(algorithm: &'static SignatureAlgorithm) -> KeyPair {
    KeyPair::generate_for(algorithm).unwrap()
}

fn asking(over: &Value) -> Value {
    let spec = json!({"signerName": "example.com/s", "podName": "p", "podUID": "1", "serviceAccountName": "a",
        "serviceAccountUID": "2", "nodeName": "n", "nodeUID": "3"});
    with_spec(json!({"spec": spec}), over)
}

#[track_caller]
fn check(over: Value, expected: &[&str]) {
    kind(RESOURCE).create(&asking(&over), expected);
}

#[test]
fn requests_show_that_they_have_the_key() {
    for algorithm in [&PKCS_ECDSA_P256_SHA256, &PKCS_ECDSA_P384_SHA384, &PKCS_ED25519] {
        let key = key_of(algorithm);
        check(json!({"stubPKCS10Request": stub(&key)}), &[]);
        let mut bytes = STANDARD.decode(stub(&key)).unwrap();
        let last = bytes.len() - 1;
        bytes[last] ^= 1;
        check(
            json!({"stubPKCS10Request": STANDARD.encode(bytes)}),
            &["spec.stubPKCS10Request: Invalid value: invalid signature"],
        );
    }
    check(
        json!({"stubPKCS10Request": "AAAA"}),
        &["spec.stubPKCS10Request: Invalid value: must be a valid PKCS#10 CSR"],
    );
    check(
        json!({"stubPKCS10Request": STANDARD.encode(vec![0; KEY_BYTES + 1])}),
        &["spec.stubPKCS10Request: Too long: may not be more than 10240 bytes"],
    );
}

#[test]
fn keys_come_with_a_proof() {
    let one = "spec: Invalid value: exactly one of (stubPKCS10Request) or (pkixPublicKey, proofOfPossession) must be set";
    check(json!({}), &[one]);
    check(json!({"pkixPublicKey": "AAAA"}), &[one]);
    check(
        json!({"pkixPublicKey": "AAAA", "proofOfPossession": "AAAA"}),
        &[r#"spec.pkixPublicKey: Invalid value: "AAAA": must be a valid PKIX-serialized public key"#],
    );
    let ed25519 = key_of(&PKCS_ED25519);
    let signed = Ed25519KeyPair::from_pkcs8_maybe_unchecked(&ed25519.serialize_der()).unwrap();
    let p256 = key_of(&PKCS_ECDSA_P256_SHA256);
    let random = SystemRandom::new();
    let by_p256 = EcdsaKeyPair::from_pkcs8(
        &signature::ECDSA_P256_SHA256_ASN1_SIGNING,
        &p256.serialize_der(),
        &random,
    )
    .unwrap();
    let by_p256 = by_p256.sign(&random, b"1").unwrap();
    for (key, proof) in [
        (&ed25519, signed.sign(b"1").as_ref().to_vec()),
        (&p256, by_p256.as_ref().to_vec()),
    ] {
        let given = |proof: &[u8]| {
            json!({"pkixPublicKey": STANDARD.encode(key.subject_public_key_info()),
                "proofOfPossession": STANDARD.encode(proof)})
        };
        check(given(&proof), &[]);
        check(
            given(b"x"),
            &["spec.proofOfPossession: Invalid value: could not verify proof-of-possession signature"],
        );
    }
}

#[test]
fn requests_name_who_asks_and_for_how_long() {
    let key = stub(&key_of(&PKCS_ED25519));
    let with = |more: Value| {
        let mut all = json!({"stubPKCS10Request": key});
        all.as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        all
    };
    check(with(json!({"maxExpirationSeconds": LONGEST})), &[]);
    check(
        with(json!({"maxExpirationSeconds": LONGEST + 1})),
        &["spec.maxExpirationSeconds: Invalid value: 7862401: must be in the range [3600, 7862400]"],
    );
    check(
        with(json!({"signerName": "x.kubernetes.io/s", "maxExpirationSeconds": DAY + 1})),
        &["spec.maxExpirationSeconds: Invalid value: 86401: must be in the range [3600, 86400]"],
    );
    check(
        with(json!({"podUID": "", "nodeUID": "x".repeat(129), "unverifiedUserAnnotations": {"a": "b"}})),
        &[
            r#"spec.unverifiedUserAnnotations: Invalid value: "a": must be a domain-prefixed key (such as "acme.io/foo")"#,
            r#"spec.podUID: Invalid value: "": must not be empty"#,
            "spec.nodeUID: Too long: may not be more than 128 bytes",
        ],
    );
    let requests = kind(RESOURCE);
    let made = requests.created(&asking(&with(json!({}))));
    assert_eq!(made["spec"]["maxExpirationSeconds"], DAY);
    let change = json!({"spec": {"podName": "q"}});
    let errors = requests
        .updated("", &asking(&with(json!({}))), &change)
        .unwrap_err();
    assert!(
        errors[0]
            .starts_with(r#"spec: Invalid value: {"SignerName":"example.com/s","PodName":"q","PodUID":"1""#)
            && errors[0].ends_with(r#""UnverifiedUserAnnotations":null}: field is immutable"#),
        "{errors:?}"
    );
}

/// A status with a certificate that begins now and holds for so many seconds, and its times.
fn issued(key: &impl PublicKeyData, seconds: i64, name: &str) -> Value {
    let now = Timestamp::now().unix();
    let at = |seconds: i64| Timestamp::from_unix(now + seconds).to_rfc3339();
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.distinguished_name.push(DnType::CommonName, "pod");
    params.subject_alt_names = vec![SanType::DnsName(name.try_into().unwrap())];
    let date = |seconds: i64| {
        let date = Timestamp::from_unix(now + seconds).to_rfc3339();
        let number = |range: std::ops::Range<usize>| date[range].parse::<u8>().unwrap();
        rcgen::date_time_ymd(date[..4].parse().unwrap(), number(5..7), number(8..10))
            + std::time::Duration::from_secs(
                u64::from(number(11..13)) * 3600 + u64::from(number(14..16)) * 60 + u64::from(number(17..19)),
            )
    };
    (params.not_before, params.not_after) = (date(0), date(seconds));
    let authority = key_of(&PKCS_ED25519);
    let issuer = Issuer::new(CertificateParams::new(Vec::new()).unwrap(), authority);
    let certificate = params.signed_by(key, &issuer).unwrap();
    json!({"certificateChain": certificate.pem(), "notBefore": at(0), "notAfter": at(seconds),
        "beginRefreshAt": at(seconds / 2), "conditions": [condition("Issued", "True")]})
}

fn condition(kind: &str, status: &str) -> Value {
    json!({"type": kind, "status": status, "reason": "R", "message": "m", "lastTransitionTime": "2026-01-01T00:00:00Z"})
}

#[test]
fn a_request_is_issued_denied_or_failed_once() {
    let key = key_of(&PKCS_ED25519);
    let request = asking(&json!({"stubPKCS10Request": stub(&key)}));
    let requests = kind(RESOURCE);
    let update = |status: Value, expected: &[&str]| {
        requests.update_of("status", &request, &json!({"status": status}), expected)
    };
    update(issued(&key, 2 * HOUR, "a.b"), &[]);
    update(json!({"conditions": [condition("Denied", "True")]}), &[]);
    update(
        json!({"conditions": [condition("X", "True"), condition("Issued", "False"), condition("Denied", "True")]}),
        &[
            r#"status.conditions.[0].type: Unsupported value: "X": supported values: "Issued", "Denied", "Failed""#,
            r#"status.conditions.[1].status: Unsupported value: "False": supported values: "True""#,
            r#"status.conditions.[2].type: Invalid value: "Denied": There may be at most one condition with type "Issued", "Denied", or "Failed""#,
        ],
    );
    update(
        json!({"certificateChain": "x"}),
        &[
            r#"status: Invalid value: status is immutable unless transitioning to "Issued", "Denied", or "Failed""#,
        ],
    );
    update(
        json!({"certificateChain": "x", "conditions": [condition("Failed", "True")]}),
        &[
            "status: Invalid value: non-condition status fields must be empty when denying or failing the PodCertificateRequest",
        ],
    );
    let denied = json!({"spec": request["spec"], "status": {"conditions": [condition("Denied", "True")]}});
    let again = json!({"spec": request["spec"], "status": {"conditions": [condition("Failed", "True")]}});
    let found = Errors::collect(|errors| issued::validate(errors, &again, &denied));
    assert_eq!(
        found[0].to_string(),
        "status: Invalid value: immutable after PodCertificateRequest is issued, denied, or failed"
    );
}

#[test]
fn certificates_fit_their_request() {
    let key = key_of(&PKCS_ED25519);
    let request = asking(&json!({"stubPKCS10Request": stub(&key), "maxExpirationSeconds": DAY}));
    let errors = |status: Value| -> Vec<String> {
        let object = json!({"spec": request["spec"], "status": status});
        let found = Errors::collect(|errors| issued::validate(errors, &object, &request));
        found
            .iter()
            .map(|error| match error.field.as_str() {
                "status.certificateChain" => error.detail.clone(),
                _ => error.to_string(),
            })
            .collect()
    };
    let good = issued(&key, 2 * HOUR, "a.b");
    assert!(errors(good.clone()).is_empty());
    let with = |member: &str, value: Value| {
        let mut status = good.clone();
        status[member] = value;
        errors(status)
    };
    let chain = good["certificateChain"].as_str().unwrap().to_owned();
    assert_eq!(
        with("certificateChain", "x".into()),
        ["issued certificate chain must contain at least one certificate"]
    );
    let other = chain.replace("CERTIFICATE", "X509 CRL");
    assert_eq!(
        with("certificateChain", other.clone().into()),
        ["issued certificate chain must consist entirely of CERTIFICATE PEM blocks"]
    );
    assert_eq!(
        with("certificateChain", format!("{chain}{other}").into()),
        ["issued certificate chain must consist entirely of CERTFICATE PEM blocks"]
    );
    assert!(with("certificateChain", format!("{chain}{chain}").into()).is_empty());
    assert_eq!(
        errors(issued(&key_of(&PKCS_ED25519), 2 * HOUR, "a.b")),
        ["leaf certificate was not issued to the requested public key"]
    );
    assert_eq!(
        errors(issued(&key, 2 * HOUR, "a..b")),
        ["leaf certificate's DNSName should not contain '..'"]
    );
    assert_eq!(
        errors(issued(&key, HOUR - 1, "a")),
        ["leaf certificate lifetime must be >= 1 hour"]
    );
    assert_eq!(
        errors(issued(&key, DAY + 1, "a")),
        ["leaf certificate lifetime must be <= spec.maxExpirationSeconds (86400)"]
    );
    assert_eq!(
        with("beginRefreshAt", Value::Null),
        [
            "status.beginRefreshAt: Required value: must be present and in the range [notbefore+10min, notafter-10min]"
        ]
    );
    let early = with("beginRefreshAt", good["notBefore"].clone());
    assert!(
        early[0].ends_with("must be at least 10 minutes after status.notBefore"),
        "{early:?}"
    );
    let late = with("beginRefreshAt", good["notAfter"].clone());
    assert!(
        late[0].ends_with("must be at least 10 minutes before status.notAfter"),
        "{late:?}"
    );
    let odd = with("notBefore", good["notAfter"].clone());
    assert!(
        odd[0].ends_with("must be set to the NotBefore time encoded in the leaf certificate"),
        "{odd:?}"
    );
}

const HOUR: i64 = 60 * 60;
