//! Round trips, what is written, and what may not be read.

mod sealed;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use kms_plugin::Plugin;

use super::*;

const KEY: &[u8] = b"/registry/secrets/default/one";
const OTHER: &[u8] = b"/registry/secrets/default/two";
const PLAIN: &[u8] = b"{\"data\":{\"password\":\"c3dvcmRmaXNo\"}}";

fn transformer(name: &str, key: &[u8]) -> Arc<dyn Transformer> {
    match name {
        "aescbc" => Arc::new(AesCbc::new(key).unwrap()),
        "aesgcm" => Arc::new(AesGcm::new(key).unwrap()),
        "secretbox" => Arc::new(Secretbox::new(key).unwrap()),
        _ => Arc::new(Identity),
    }
}

/// A provider with named keys, as a configuration has it.
fn provider(name: &str, keys: &[(&str, &[u8])]) -> Prefixed {
    let keys = keys.iter().map(|(key_name, key)| Prefixed {
        prefix: format!("{key_name}:").into_bytes().into(),
        transformer: transformer(name, key),
    });
    Prefixed {
        prefix: format!("k8s:enc:{name}:v1:").into_bytes().into(),
        transformer: Arc::new(PrefixedTransformers::new("no matching key", keys.collect())),
    }
}

fn identity() -> Prefixed {
    Prefixed {
        prefix: Box::default(),
        transformer: Arc::new(Identity),
    }
}

fn all(providers: Vec<Prefixed>) -> PrefixedTransformers {
    PrefixedTransformers::new("no matching prefix found", providers)
}

fn contains(haystack: &[u8], needle: &[u8]) -> bool {
    haystack.windows(needle.len()).any(|window| window == needle)
}

fn failure(outcome: Result<Plain, TransformError>) -> String {
    outcome.unwrap_err().to_string()
}

#[test]
fn every_provider_hides_and_gives_back() {
    for (name, lengths) in [
        ("aescbc", &[16, 24, 32][..]),
        ("aesgcm", &[16, 24, 32]),
        ("secretbox", &[32]),
    ] {
        for length in lengths {
            let key = vec![7; *length];
            let one = all(vec![provider(name, &[("k1", &key)])]);
            for plain in [PLAIN, b"", &[0; 16], &[3; 1000]] {
                let stored = Bytes::from(one.write(plain, KEY).unwrap());
                assert!(stored.starts_with(format!("k8s:enc:{name}:v1:k1:").as_bytes()));
                assert!(plain.is_empty() || !contains(&stored, plain), "{name}");
                let read = one.read(&stored, KEY).unwrap();
                assert_eq!((&*read.data, read.stale), (plain, false), "{name}");
                assert_ne!(
                    one.write(plain, KEY).unwrap(),
                    stored,
                    "{name} takes a new nonce each time"
                );
            }
            let stored = one.write(PLAIN, KEY).unwrap();
            for length in 0..stored.len() {
                // Cut anywhere: an error or (an unauthenticated mode cut at a block) other bytes, but no panic.
                let cut = one.read(&Bytes::copy_from_slice(&stored[..length]), KEY);
                assert_ne!(cut.map(|p| p.data), Ok(Bytes::from_static(PLAIN)));
            }
        }
    }
}

#[test]
fn a_value_is_bound_to_its_key() {
    let gcm = all(vec![provider("aesgcm", &[("k1", &[7; 32])])]);
    let stored = gcm.write(PLAIN, KEY).unwrap().into();
    assert_eq!(
        failure(gcm.read(&stored, OTHER)),
        "cipher: message authentication failed"
    );
    // Upstream's other providers do not bind it, and are read as they are written.
    for name in ["aescbc", "secretbox"] {
        let one = all(vec![provider(name, &[("k1", &[7; 32])])]);
        let stored = one.write(PLAIN, KEY).unwrap().into();
        assert_eq!(one.read(&stored, OTHER).unwrap().data, PLAIN);
    }
}

#[test]
fn keys_and_providers_rotate() {
    let old = all(vec![provider("aescbc", &[("k1", &[1; 32])]), identity()]);
    let plain = Bytes::from_static(PLAIN);
    let first: Bytes = old.write(PLAIN, KEY).unwrap().into();
    assert!(
        old.read(&plain, KEY).unwrap().stale,
        "what lies there in clear text is to be rewritten"
    );

    let rotated = all(vec![
        provider("aescbc", &[("k2", &[2; 32]), ("k1", &[1; 32])]),
        identity(),
    ]);
    assert!(rotated.read(&first, KEY).unwrap().stale);
    let second: Bytes = rotated.write(PLAIN, KEY).unwrap().into();
    assert!(second.starts_with(b"k8s:enc:aescbc:v1:k2:"));
    assert!(!rotated.read(&second, KEY).unwrap().stale);
    assert_eq!(failure(old.read(&second, KEY)), "no matching key");

    // The same provider twice, and another key under the same name.
    let twice = all(vec![
        provider("aesgcm", &[("k1", &[3; 32])]),
        provider("aesgcm", &[("k1", &[4; 32])]),
    ]);
    let written = all(vec![provider("aesgcm", &[("k1", &[4; 32])])])
        .write(PLAIN, KEY)
        .unwrap();
    let read = twice.read(&written.into(), KEY).unwrap();
    assert_eq!((&*read.data, read.stale), (PLAIN, true));

    // Away from encryption: identity first.
    let off = all(vec![identity(), provider("aescbc", &[("k1", &[1; 32])])]);
    assert!(off.read(&first, KEY).unwrap().stale);
    assert_eq!(off.write(PLAIN, KEY).unwrap(), PLAIN);
    assert!(!off.read(&plain, KEY).unwrap().stale);

    // No identity: clear text is refused, and identity alone refuses what is encrypted.
    let strict = all(vec![provider("aescbc", &[("k1", &[1; 32])])]);
    assert_eq!(failure(strict.read(&plain, KEY)), "no matching prefix found");
    assert_eq!(
        failure(Identity.read(&first, KEY)),
        "identity transformer tried to read encrypted data"
    );
}

#[test]
fn secrets_are_not_printed() {
    let all = all(vec![provider("aesgcm", &[("k1", b"0123456789abcdef")])]);
    assert!(!format!("{all:?}").contains("0123456789abcdef"));
    assert!(!format!("{all:?}").contains("48, 49"));
}

/// Upstream's test of the extended nonce (a seed of 32 ones, an info of 32 twos and a nonce of 12 threes) is only a round
/// trip; here the derivation itself is checked against RFC 5869 (expand of test case 1).
#[test]
fn derivation_is_hkdf_expand() {
    let prk: [u8; 32] = [
        0x07, 0x77, 0x09, 0x36, 0x2c, 0x2e, 0x32, 0xdf, 0x0d, 0xdc, 0x3f, 0x0d, 0xc4, 0x7b, 0xba, 0x63, 0x90,
        0xb6, 0xc7, 0x3b, 0xb5, 0x0f, 0x9c, 0x31, 0x22, 0xec, 0x84, 0x4a, 0xd7, 0xc2, 0xb3, 0xe5,
    ];
    let info: [u8; 10] = [0xf0, 0xf1, 0xf2, 0xf3, 0xf4, 0xf5, 0xf6, 0xf7, 0xf8, 0xf9];
    let mut out = [0; 32];
    ring::hkdf::Prk::new_less_safe(ring::hkdf::HKDF_SHA256, &prk)
        .expand(&[&info], ring::hkdf::HKDF_SHA256)
        .unwrap()
        .fill(&mut out)
        .unwrap();
    assert_eq!(out[..8], [0x3c, 0xb2, 0x5f, 0x25, 0xfa, 0xac, 0xd5, 0x7a]);
}

fn kms(dir: &tempfile::TempDir) -> Arc<Kms> {
    Kms::new(KmsOptions {
        name: "test".into(),
        socket: dir.path().join("kms.sock"),
        timeout: Duration::from_millis(300),
    })
}

#[tokio::test]
async fn kms_writes_and_reads_and_rotates() {
    let dir = tempfile::tempdir().unwrap();
    let plugin = Plugin::listen(&dir.path().join("kms.sock"), "key-1").unwrap();
    let ours = kms(&dir);
    assert!(
        ours.write(PLAIN, KEY).is_err(),
        "nothing is written before the plugin has given a key"
    );
    ours.check().await.unwrap();
    let stored: Bytes = ours.write(PLAIN, KEY).unwrap().into();
    assert!(!contains(&stored, PLAIN));
    assert_eq!(
        ours.read(&stored, KEY).unwrap(),
        Plain {
            data: PLAIN.into(),
            stale: false
        }
    );
    assert_eq!(
        failure(ours.read(&stored, OTHER)),
        "cipher: message authentication failed"
    );
    for _ in 0..100 {
        ours.write(PLAIN, KEY).unwrap();
    }
    ours.check().await.unwrap();
    assert_eq!(plugin.calls(), (1, 0), "one seed for all values");

    // Another server, or this one after a restart: the plugin is asked once.
    let theirs = kms(&dir);
    theirs.check().await.unwrap();
    assert!(theirs.lacks_key(&stored));
    assert_eq!(theirs.read(&stored, KEY), Err(TransformError::KeyNeeded));
    theirs.prepare(&stored).await.unwrap();
    theirs.prepare(&stored).await.unwrap();
    assert_eq!(theirs.read(&stored, KEY).unwrap().data, PLAIN);
    assert_eq!(plugin.calls(), (2, 1));

    plugin.use_key("key-2");
    assert!(!ours.read(&stored, KEY).unwrap().stale, "not known yet");
    ours.check().await.unwrap();
    assert!(ours.read(&stored, KEY).unwrap().stale);
    let renewed: Bytes = ours.write(PLAIN, KEY).unwrap().into();
    assert!(!ours.read(&renewed, KEY).unwrap().stale);
}

#[tokio::test]
async fn kms_down_and_up_again() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("kms.sock");
    let plugin = Plugin::listen(&socket, "key-1").unwrap();
    let ours = kms(&dir);
    ours.check().await.unwrap();
    let stored: Bytes = ours.write(PLAIN, KEY).unwrap().into();
    drop(plugin);

    let error = ours.check().await.unwrap_err();
    assert!(
        error.starts_with("failed to perform status section of the healthz check for KMS Provider test"),
        "{error}"
    );
    assert_eq!(ours.health(), Err(error));
    assert_eq!(ours.read(&stored, KEY).unwrap().data, PLAIN, "reads go on");
    ours.write(PLAIN, KEY).unwrap();

    let late = kms(&dir);
    let error = late.prepare(&stored).await.unwrap_err().to_string();
    assert!(
        error.starts_with("failed to decrypt DEK, error: rpc error: code = DeadlineExceeded"),
        "{error}"
    );
    assert_eq!(
        failure(late.read(&stored, KEY)),
        error,
        "the answer counts for a moment"
    );

    let plugin = Plugin::listen(&socket, "key-1").unwrap();
    late.check().await.unwrap();
    late.prepare(&stored).await.unwrap();
    assert_eq!(late.read(&stored, KEY).unwrap().data, PLAIN);
    assert_eq!(late.health(), Ok(()));

    plugin.say("the vault is sealed");
    let error = late.check().await.unwrap_err();
    assert_eq!(
        error,
        "kmsv2 Provider test is not healthy, error: got unexpected healthz status: the vault is sealed"
    );
}

#[tokio::test]
async fn kms_refuses_invalid_envelopes() {
    let dir = tempfile::tempdir().unwrap();
    let _plugin = Plugin::listen(&dir.path().join("kms.sock"), "key-1").unwrap();
    let ours = kms(&dir);
    ours.check().await.unwrap();
    for bad in [&b""[..], b"x", b"\x0a\x01a", &[0xff; 64]] {
        let bad = Bytes::from_static(bad);
        assert!(matches!(ours.read(&bad, KEY), Err(TransformError::Failed(_))));
        assert!(matches!(ours.prepare(&bad).await, Err(TransformError::Failed(_))));
        assert!(!ours.lacks_key(&bad));
    }
}

/// Values that a kube-apiserver v1.36.2 wrote, with a key that is used for nothing else and the test plugin.
#[tokio::test]
async fn upstreams_values_are_read() {
    const SECRET: &[u8] = b"0123456789abcdef0123456789abcdef";
    let dir = tempfile::tempdir().unwrap();
    let _plugin = Plugin::listen(&dir.path().join("kms.sock"), "key-1").unwrap();
    let vault = kms(&dir);
    vault.check().await.unwrap();
    let providers = all(vec![
        Prefixed {
            prefix: b"k8s:enc:kms:v2:vault:"[..].into(),
            transformer: vault.clone(),
        },
        provider("aescbc", &[("k1", SECRET)]),
        provider("aesgcm", &[("k1", SECRET)]),
        provider("secretbox", &[("k1", SECRET)]),
    ]);
    let recorded: [(&str, &[u8], &str, bool); 4] = [
        (
            "/registry/secrets/shop/s-theirs",
            include_bytes!("tests/upstream/aescbc.bin"),
            "Secret",
            true,
        ),
        (
            "/registry/configmaps/shop/m-theirs",
            include_bytes!("tests/upstream/aesgcm.bin"),
            "ConfigMap",
            true,
        ),
        (
            "/registry/leases/shop/l-theirs",
            include_bytes!("tests/upstream/secretbox.bin"),
            "Lease",
            true,
        ),
        (
            "/registry/serviceaccounts/shop/a-theirs",
            include_bytes!("tests/upstream/kms.bin"),
            "ServiceAccount",
            false,
        ),
    ];
    for (key, stored, kind, stale) in recorded {
        let stored = Bytes::from_static(stored);
        providers.prepare(&stored).await.unwrap();
        let read = providers.read(&stored, key.as_bytes()).unwrap();
        assert!(read.data.starts_with(b"k8s\0"), "{key}");
        for word in [kind, "swordfish"] {
            assert!(contains(&read.data, word.as_bytes()), "{key} holds {word}");
        }
        // The first provider writes: values of the others are to be rewritten.
        assert_eq!(read.stale, stale, "{key}");
        // Upstream must read the same plaintext from values written here.
        let again: Bytes = providers.write(&read.data, key.as_bytes()).unwrap().into();
        assert_eq!(providers.read(&again, key.as_bytes()).unwrap().data, read.data);
    }
}
