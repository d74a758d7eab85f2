use std::path::Path;

use serde_json::json;
use storage::{Op, OpenOptions, Txn};

use super::*;
use crate::StorageBackend;

fn options(dir: &Path) -> Options {
    Options {
        data_dir: Some(dir.to_path_buf()),
        ..Options::defaults()
    }
}

async fn store(dir: &Path, values: &[(&str, &[u8])]) {
    let open = OpenOptions {
        dir: Some(dir.join("redb")),
        min_free_bytes: 0,
        ..OpenOptions::default()
    };
    let store = storage::open(open).expect("a store");
    for (key, value) in values {
        let ops = vec![Op::Put {
            key: (*key).into(),
            value: value.to_vec().into(),
            ttl: None,
        }];
        store.commit(Txn { guards: vec![], ops }).await.expect("stored");
    }
    store.shutdown().await;
}

/// Changes two bytes of a stored record that contains this text.
fn damage(dir: &Path, text: &str) {
    let file = dir.join("redb/store.redb");
    let mut bytes = std::fs::read(&file).expect("the store's file");
    let mut hits = 0;
    for at in 0..bytes.len() - text.len() {
        if bytes[at..].starts_with(text.as_bytes()) {
            bytes[at] ^= 1;
            bytes[at + 1] ^= 1;
            hits += 1;
        }
    }
    assert!(hits > 0, "{text} is stored as it is");
    std::fs::write(&file, bytes).expect("the store's file");
}

#[track_caller]
fn faults(outcome: Result<String, StartError>) -> Vec<String> {
    match outcome {
        Err(StartError::Check(lines)) => lines.lines().map(ToString::to_string).collect(),
        other => panic!("{other:?}"),
    }
}

fn map(name: &str, text: &str) -> Vec<u8> {
    let object = json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": name, "namespace": "a"}, "data": {"t": text}});
    object.to_string().into_bytes()
}

#[tokio::test]
async fn a_sound_store_is_reported() {
    let dir = tempfile::tempdir().expect("a directory");
    let report = check(options(dir.path())).await.expect("nothing is wrong");
    assert_eq!(report, "there is no store yet; a start makes one");
    assert!(!dir.path().join("redb").exists() && !dir.path().join("pki").exists());

    let values: [(&str, &[u8]); 5] = [
        ("/registry/configmaps/a/json", &map("json", "x")),
        ("/registry/configmaps/a/yaml", b"kind: ConfigMap\n"),
        ("/registry/secrets/a/sealed", b"k8s:enc:aescbc:v1:key:\xff\xff"),
        // Superseded: its damage does not count.
        ("/registry/configmaps/a/repaired", b"\xff\xff"),
        ("/registry/configmaps/a/repaired", &map("repaired", "x")),
    ];
    store(dir.path(), &values).await;
    let report = check(options(dir.path())).await.expect("nothing is wrong");
    assert!(
        report.contains("1 encrypted values were read") && report.contains("read 5 changes"),
        "{report}"
    );
    let scrub = ScrubCommand::parse_from(["scrub", "--data-dir", &dir.path().display().to_string()]);
    assert!(scrub.run().await.expect("sound").contains("read 5 changes"));
}

#[tokio::test]
async fn damage_is_named() {
    let dir = tempfile::tempdir().expect("a directory");
    let values: [(&str, &[u8]); 5] = [
        ("/registry/configmaps/a/one", &map("one", "unmistakable")),
        ("/registry/configmaps/a/words", b"these are words"),
        ("/registry/configmaps/a/two", &map("two", "other")),
        ("/registry/configmaps/a/torn", b"{\"kind\":\"Config"),
        ("/registry/configmaps/a/binary", b"k8s\0\xff"),
    ];
    store(dir.path(), &values).await;
    damage(dir.path(), "unmistakable");
    let found = faults(check(options(dir.path())).await);
    // One of the object, one of the page that it is in, and those of what are no objects.
    assert_eq!(found.len(), 5, "{found:?}");
    for (line, key, what) in [
        (0, "one: ", "fails its checksum"),
        (1, "redb: ", "1 pages are read as they are"),
        (2, "binary: ", "its protobuf envelope cannot be read"),
        (3, "torn: ", "its JSON cannot be read"),
        (4, "words: ", "neither protobuf, JSON nor YAML"),
    ] {
        assert!(
            found[line].contains(key) && found[line].contains(what),
            "{found:?}"
        );
    }
    let scrub = ScrubCommand::parse_from(["scrub", "--data-dir", &dir.path().display().to_string()]);
    assert_eq!(faults(scrub.run().await), found);
}

#[tokio::test]
async fn a_store_in_use_is_left_alone() {
    let dir = tempfile::tempdir().expect("a directory");
    let open = OpenOptions {
        dir: Some(dir.path().join("redb")),
        ..OpenOptions::default()
    };
    let running = storage::open(open).expect("a store");
    let found = faults(check(options(dir.path())).await);
    assert!(found[0].contains("cannot open the store"), "{found:?}");
    running.shutdown().await;
}

#[tokio::test]
async fn flags_and_files_are_looked_at() {
    let dir = tempfile::tempdir().expect("a directory");
    let write = |name: &str, text: &str| {
        let file = dir.path().join(name);
        std::fs::write(&file, text).expect("a file");
        Some(file)
    };
    let memory = || Options {
        storage_backend: Some(StorageBackend::Memory),
        ..Options::defaults()
    };
    let wrong = Options {
        service_cluster_ip_range: "nonsense".into(),
        etcd_prefix: "a//b".into(),
        ..memory()
    };
    assert_eq!(faults(check(wrong).await).len(), 2);
    let wrong = Options {
        tls_cert_file: write("tls.crt", "nonsense"),
        tls_private_key_file: write("tls.key", "nonsense"),
        client_ca_file: write("ca.crt", "nonsense"),
        encryption_provider_config: write("encryption.yaml", "nonsense"),
        ..memory()
    };
    let found = faults(check(wrong).await);
    for flag in [
        "--tls-cert-file",
        "--client-ca-file",
        "--encryption-provider-config",
    ] {
        assert!(
            found.iter().any(|line| line.starts_with(flag)),
            "{flag}: {found:?}"
        );
    }
    assert_eq!(check(memory()).await.expect("nothing is wrong"), "");
}

fn encryption(dir: &Path, secret: &str) -> Option<std::path::PathBuf> {
    let file = dir.join("encryption.yaml");
    let text = json!({"kind": "EncryptionConfiguration", "apiVersion": "apiserver.config.k8s.io/v1", "resources": [
        {"resources": ["secrets"], "providers": [
            {"aesgcm": {"keys": [{"name": "k", "secret": secret}]}}, {"identity": {}},
        ]},
    ]});
    std::fs::write(&file, text.to_string()).expect("a file");
    Some(file)
}

#[tokio::test]
async fn encrypted_values_are_looked_at_with_their_keys() {
    use storage::encryption::{AesGcm, Transformer};
    let dir = tempfile::tempdir().expect("a directory");
    let cipher = AesGcm::new(b"0123456789abcdef").expect("a key");
    let seal = |key: &str, plain: &[u8]| {
        let sealed = cipher.write(plain, key.as_bytes()).expect("sealed");
        [&b"k8s:enc:aesgcm:v1:k:"[..], &sealed].concat()
    };
    let (good, bad) = ("/registry/secrets/a/good", "/registry/secrets/a/bad");
    let (sound, broken) = (seal(good, &map("good", "x")), seal(bad, b"{\"kind\":"));
    store(dir.path(), &[(good, &sound), (bad, &broken)]).await;

    let report = check(options(dir.path()))
        .await
        .expect("nothing is known to be wrong");
    assert!(
        report.contains("2 encrypted values were read and not decrypted"),
        "{report}"
    );
    let with = |secret: &str| Options {
        encryption_provider_config: encryption(dir.path(), secret),
        ..options(dir.path())
    };
    // Decrypted values are checked like any others.
    let found = faults(check(with("MDEyMzQ1Njc4OWFiY2RlZg==")).await);
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(
        found[0].starts_with(bad) && found[0].contains("its JSON cannot be read"),
        "{found:?}"
    );
    // Another key reads neither, and reports each.
    let found = faults(check(with("ZmVkY2JhOTg3NjU0MzIxMA==")).await);
    assert_eq!(found.len(), 2, "{found:?}");
    assert!(
        found.iter().all(|line| line.contains("cannot be decrypted")),
        "{found:?}"
    );
}
