//! sled on a disk without a free byte, which is a file system in memory of this test's own.
//!
//! sled opens its files itself, so nothing can be put between it and the disk. The test runs its own binary again in a name space
//! where it may mount something; where that is not allowed it says that it was skipped.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use super::reopen;
use crate::conformance::Subject;
use crate::{EngineKind, RangeRequest, StorageError, Txn};

const DIR: &str = "STORAGE_FULL_DIR";
const PHASE: &str = "STORAGE_FULL_PHASE";

/// Fills the disk up to the last byte, stops, starts on it, and looks what is there once there is room.
const SCRIPT: &str = r#"
mount -t tmpfs -o size=24m tmpfs "$STORAGE_FULL_DIR" || exit 77
phase() { STORAGE_FULL_PHASE=$1 timeout 120 "$0" --exact mvcc::tests::sled_full::process_on_a_full_disk --nocapture; echo "exit $1 $?"; }
head -c 4194304 /dev/zero > "$STORAGE_FULL_DIR/filler"
phase fill
cat /dev/zero > "$STORAGE_FULL_DIR/rest" 2>/dev/null
phase start
rm "$STORAGE_FULL_DIR/filler" "$STORAGE_FULL_DIR/rest"
phase look
"#;

/// Not a test of its own: the process that finds no room.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn process_on_a_full_disk() {
    let Ok(dir) = std::env::var(DIR) else { return };
    let dir = Path::new(&dir).join("store");
    let store = match (
        std::env::var(PHASE).unwrap().as_str(),
        reopen(EngineKind::Sled, &dir),
    ) {
        ("start", opened) => {
            println!("\nstarted {opened:?}");
            return;
        }
        (_, opened) => opened.unwrap(),
    };
    let s = Subject::in_process(store);
    if std::env::var(PHASE).unwrap() == "look" {
        for (name, value) in s.list("", None).await {
            assert_eq!(value, vec![7; 3000]);
            println!("\nfound {name}");
        }
        s.write("more", vec![7; 3000]).await;
        return s.finish().await;
    }
    let put = |n: u32| {
        let ops = vec![s.put(&format!("k{n:05}"), vec![7; 3000])];
        s.store.commit(Txn { guards: vec![], ops })
    };
    let mut acked = 0;
    let failed = loop {
        match put(acked).await {
            Ok(_) => println!("\nacked k{acked:05}"),
            Err(error) => break error,
        }
        acked += 1;
    };
    println!("\nfailed {failed}");
    // Reads go on, or are refused with the reason where sled notices first; further writes say why they fail, and so do the store's
    // figures.
    let all = RangeRequest {
        prefix: s.key(""),
        ..RangeRequest::default()
    };
    match s.store.range(all).await {
        Ok(found) => assert!(found.kvs.len() >= acked as usize),
        Err(error) => assert!(matches!(error, StorageError::NoSpace(_)), "{error}"),
    }
    println!("\nrefused {}", put(acked).await.unwrap_err());
    assert!(s.store.status().await.is_err());
    s.finish().await;
    println!("\nstopped");
}

#[test]
fn sled_stops_and_loses_nothing_on_a_full_disk() {
    let Some(unshare) = test_tools::tool("unshare") else {
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    let output = Command::new(unshare)
        .args(["--user", "--map-root-user", "--mount", "sh", "-c", SCRIPT])
        .arg(std::env::current_exe().unwrap())
        .env(DIR, dir.path())
        .output()
        .unwrap();
    let text =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    if !text.contains("exit fill") {
        // Not every machine lets its users mount.
        test_tools::skipped(&format!("nothing can be mounted here: {}", text.trim()));
        return;
    }
    let said = |what: &str| -> BTreeSet<String> {
        let lines = text.lines().filter_map(|line| line.strip_prefix(what));
        lines.map(str::to_owned).collect()
    };
    // None of them hangs, and each ends by itself.
    assert_eq!(
        said("exit "),
        ["fill 0", "look 0", "start 0"].map(String::from).into(),
        "{text}"
    );
    assert!(text.contains("stopped"), "{text}");
    let (acked, found) = (said("acked "), said("found "));
    assert!(acked.len() > 500, "{}", acked.len());
    assert!(
        acked.is_subset(&found),
        "{:?} are lost",
        acked.difference(&found).collect::<Vec<_>>()
    );
    for what in ["failed ", "refused ", "started "] {
        println!("{what}{:?}", said(what));
    }
}
