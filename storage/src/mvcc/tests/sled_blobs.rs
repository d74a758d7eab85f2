//! Tests of the sled engine alone.

use super::{options, reopen};
use crate::EngineKind;
use crate::conformance::Subject;

/// sled never syncs its blob files, so nothing that was acknowledged may be in one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_goes_to_a_blob() {
    let dir = tempfile::tempdir().unwrap();
    // Longer than any that Kubernetes has.
    let long = "n".repeat(700);
    for round in 0..3u8 {
        let s = Subject::in_process(reopen(EngineKind::Sled, dir.path()).unwrap());
        for len in [0, 3_000, 4_096, 9_000, 60_000, 98_304, 120_000, 300_000] {
            for n in 0..8 {
                s.write(&format!("{len}/{n}/{long}"), vec![round | 1; len]).await;
            }
        }
        s.finish().await;
    }
    let blobs = std::fs::read_dir(dir.path().join("sled/blobs")).unwrap();
    assert_eq!(blobs.count(), 0);
    // The store is larger than the nodes that it is made of.
    let options = options(EngineKind::Sled, dir.path());
    assert!(crate::scrub(&options).unwrap().bytes > 10 << 20);
}

/// A start on a full disk leaves an empty snapshot of sled's page table.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unfinished_snapshot_does_not_prevent_a_start() {
    let dir = tempfile::tempdir().unwrap();
    for round in 0..2 {
        let s = Subject::in_process(reopen(EngineKind::Sled, dir.path()).unwrap());
        s.write(&format!("k{round}"), "x").await;
        assert_eq!(s.read("k0", None).await.unwrap().value, "x");
        s.finish().await;
        std::fs::write(dir.path().join("sled/snap.000000000000ABCD.generating"), "").unwrap();
    }
}
