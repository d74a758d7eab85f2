use rcgen::{
    CertificateParams, KeyPair, PKCS_ECDSA_P256_SHA256, PKCS_ECDSA_P384_SHA384, PKCS_ED25519, PublicKeyData,
    SignatureAlgorithm,
};
use ring::rand::SystemRandom;
use ring::signature::{self, EcdsaKeyPair, Ed25519KeyPair};
use serde_json::json;

use super::*;
use crate::groups::check::{kind, with_spec};

pub(super) const RESOURCE: &str = "podcertificaterequests.certificates.k8s.io";

pub(super) fn stub(key: &KeyPair) -> String {
    let params = CertificateParams::new(Vec::new()).unwrap();
    STANDARD.encode(params.serialize_request(key).unwrap().der())
}

pub(super) fn key_of(algorithm: &'static SignatureAlgorithm) -> KeyPair {
    KeyPair::generate_for(algorithm).unwrap()
}

pub(super) fn asking(over: &Value) -> Value {
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
