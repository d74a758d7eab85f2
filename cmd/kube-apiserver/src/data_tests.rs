//! The data directory: it has one owner, whatever the engine, and a store that is gone from it is not begun anew.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::json;
use test_support::Client;

use crate::builder::Builder;
use crate::check::check;
use crate::{ControlPlane, Options, StartError, StorageBackend};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

fn on(dir: &Path, engine: StorageBackend) -> Builder {
    let builder = ControlPlane::builder().on_free_port().data_dir(dir);
    builder.with(|options| {
        options.storage_backend = Some(engine);
        if engine == StorageBackend::Etcd3 {
            // Nobody listens there: a start that is refused does not get as far.
            options.etcd_servers = vec!["http://127.0.0.1:1".into()];
        }
    })
}

async fn refusal(builder: Builder) -> StartError {
    builder.start().await.map(|_| ()).expect_err("it is refused")
}

/// Every file below a directory, with its content.
fn content(dir: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut all = BTreeMap::new();
    for entry in std::fs::read_dir(dir).expect("a directory") {
        let path = entry.expect("an entry").path();
        match path.is_dir() {
            true => all.extend(content(&path)),
            false => _ = all.insert(path.clone(), std::fs::read(&path).expect("a file")),
        }
    }
    all
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_data_directory_has_one_owner_whatever_the_engines() {
    let engines = [
        StorageBackend::Redb,
        StorageBackend::Sled,
        StorageBackend::Memory,
        StorageBackend::Etcd3,
    ];
    for first in [StorageBackend::Redb, StorageBackend::Memory] {
        let dir = tempfile::tempdir().expect("a directory");
        let plane = on(dir.path(), first).start().await.expect("it starts");
        let files = || {
            let mut files = content(dir.path());
            // The store's own files change while it runs.
            files.retain(|path, _| !path.starts_with(dir.path().join("redb")));
            files
        };
        let before = files();
        assert!(before.contains_key(&dir.path().join("LOCK")), "{before:?}");
        for second in engines {
            let refused = refusal(on(dir.path(), second)).await;
            assert_eq!(refused.exit_code(), 3);
            let text = refused.to_string();
            let owner = format!("is locked by process {}; stop it", std::process::id());
            assert!(text.contains(&owner), "{second:?} beside {first:?}: {text}");
            assert!(
                files() == before,
                "{second:?} beside {first:?} has changed something"
            );
        }
        plane.stop().await;
        let plane = on(dir.path(), StorageBackend::Memory).start().await;
        plane.expect("it is free").stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_is_gone_beside_its_keys_is_not_begun_anew() {
    for (engine, name) in [(StorageBackend::Redb, "redb"), (StorageBackend::Sled, "sled")] {
        let dir = tempfile::tempdir().expect("a directory");
        let plane = on(dir.path(), engine).start().await.expect("it starts");
        let client = Client::from_kubeconfig(plane.kubeconfig().as_bytes());
        let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"}});
        let made = client.post(MAPS, &map).await.expect(201);
        let version = made["metadata"]["resourceVersion"].as_str().expect("a version");
        plane.stop().await;
        std::fs::remove_dir_all(dir.path().join(name)).expect("it was there");

        let options = Options {
            data_dir: Some(dir.path().to_path_buf()),
            storage_backend: Some(engine),
            ..Options::defaults()
        };
        let said = check(options).await.expect_err("it is missed").to_string();
        assert!(said.contains("is gone"), "{said}");
        let refused = refusal(on(dir.path(), engine)).await;
        assert_eq!(refused.exit_code(), 3);
        let text = refused.to_string();
        assert!(
            text.contains("the store is gone") && text.contains("--allow-empty"),
            "{text}"
        );
        for once in ["the store is gone", "restore a backup"] {
            assert_eq!(text.matches(once).count(), 1, "{text}");
        }

        let allowed = on(dir.path(), engine).with(|options| options.allow_empty = true);
        let plane = allowed.start().await.expect("it starts");
        let client = Client::from_kubeconfig(plane.kubeconfig().as_bytes());
        client.get(&format!("{MAPS}/m")).await.expect(404);
        // Those who watched the lost store list again.
        let mut watch = client
            .watch(&format!("{MAPS}?watch=1&resourceVersion={version}"))
            .await;
        let event = watch.next().await.expect("an event");
        assert_eq!(event["object"]["code"], 410, "{event}");
        plane.stop().await;
    }
}

/// The kubeconfig names the port, which is another one; it is no reason not to start that there is no room for it.
#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_kubeconfig_without_room_does_not_keep_a_server_from_starting() {
    let dir = tempfile::tempdir().expect("a directory");
    let start = async || {
        let plane = on(dir.path(), StorageBackend::Redb).start().await;
        plane.expect("it starts")
    };
    start().await.stop().await;
    let file = dir.path().join("admin.kubeconfig");
    let before = std::fs::read(&file).expect("a kubeconfig");
    let fresh = dir.path().join("admin.kubeconfig.new");
    std::os::unix::fs::symlink("/dev/full", fresh).expect("a link");
    let plane = start().await;
    assert!(std::fs::read(&file).expect("a kubeconfig") == before);
    let client = Client::from_kubeconfig(plane.kubeconfig().as_bytes());
    client.get("/readyz").await.expect(200);
    plane.stop().await;
    // Once there is room it is written.
    start().await.stop().await;
    assert!(std::fs::read(&file).expect("a kubeconfig") != before);
}
