//! `kube-apiserver backup` and `restore`: a state of one moment, taken while writes go on, that a new server serves.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::Value;
use test_support::{Client, eventually};
use tokio::process::Command;

use super::{MAPS, map, start};

async fn run(arguments: &[&str], files: &[(&str, &Path)]) -> (bool, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kube-apiserver"));
    command.args(arguments).kill_on_drop(true);
    for (flag, file) in files {
        command.arg(flag).arg(file);
    }
    let output = tokio::time::timeout(test_support::PATIENCE, command.output()).await;
    let output = output.expect("it ends").expect("it runs");
    let text = [output.stdout, output.stderr].concat();
    (
        output.status.success(),
        String::from_utf8_lossy(&text).into_owned(),
    )
}

/// The test's own ConfigMaps by name (the root CA is another one in a new data directory), and the list's resourceVersion.
async fn all(client: &Client) -> (BTreeMap<String, Value>, String) {
    let list = client.get(MAPS).await.expect(200);
    let items = list["items"].as_array().expect("items").iter();
    let maps = items.filter_map(|item| {
        let name = item["metadata"]["name"].as_str().expect("a name");
        name.starts_with("m-").then(|| (name.to_string(), item.clone()))
    });
    let version = list["metadata"]["resourceVersion"].as_str().expect("a version");
    (maps.collect(), version.to_string())
}

#[tokio::test]
async fn a_backup_is_restored() {
    let (dir, new) = (
        tempfile::tempdir().expect("a directory"),
        tempfile::tempdir().expect("a directory"),
    );
    let file = new.path().join("snapshot");
    let (mut child, client) = start(dir.path()).await;
    let writer = tokio::spawn({
        let client = client.clone();
        async move {
            for index in 0..10_000 {
                client.post(MAPS, &map(&format!("m-{index}"))).await.expect(201);
            }
        }
    });
    eventually("some writes", || async {
        (client.get(&format!("{MAPS}/m-16")).await.status == 200).then_some(())
    })
    .await;
    let (before, version) = all(&client).await;
    let (ok, text) = run(&["backup"], &[("--data-dir", dir.path()), ("--to", &file)]).await;
    assert!(ok, "{text}");
    let (ok, _) = run(&["backup"], &[("--data-dir", dir.path()), ("--to", &file)]).await;
    assert!(!ok, "a file is not written over");
    writer.abort();
    let (after, _) = all(&client).await;
    child.kill().await.expect("killed");
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        let mode = std::fs::metadata(&file).expect("a file").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    let (ok, text) = run(&["restore"], &[("--from", &file), ("--data-dir", dir.path())]).await;
    assert!(!ok, "a store is not written over: {text}");
    let data = new.path().join("data");
    let (ok, text) = run(&["restore"], &[("--from", &file), ("--data-dir", &data)]).await;
    assert!(ok, "{text}");
    let (_child, client) = start(&data).await;
    let (restored, _) = all(&client).await;
    for (name, object) in &before {
        assert_eq!(restored.get(name), Some(object));
    }
    for (name, object) in &restored {
        assert_eq!(after.get(name), Some(object));
    }
    // A client that watched before has to list again: revisions went far past those of the backup.
    let mut watch = client
        .watch(&format!("{MAPS}?watch=1&resourceVersion={version}"))
        .await;
    let event = watch.next().await.expect("an event");
    assert_eq!(
        (event["type"].as_str(), event["object"]["code"].as_u64()),
        (Some("ERROR"), Some(410))
    );
}
