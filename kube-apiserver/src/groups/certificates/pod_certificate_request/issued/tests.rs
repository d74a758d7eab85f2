use rcgen::{CertificateParams, DnType, Issuer, PKCS_ED25519, PublicKeyData, SanType};

use super::super::DAY;
use super::super::tests::{RESOURCE, asking, key_of, stub};
use super::*;
use crate::groups::check::kind;

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
    let found = Errors::collect(|errors| validate(errors, &again, &denied));
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
        let found = Errors::collect(|errors| validate(errors, &object, &request));
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
