//! Clients that race for a few keys see one register each. `STORAGE_LINEAR_OPERATIONS` sets how often each of them asks.

use test_tools::linearizable::History;

use super::on_disk;
use crate::EngineKind;
use crate::conformance::{Racing, Subject};

const CLIENTS: u64 = 8;

async fn races(s: Subject) {
    let operations: u64 = std::env::var("STORAGE_LINEAR_OPERATIONS")
        .ok()
        .map_or(60, |text| text.parse().unwrap());
    // Short histories, many of them: the check looks at each as a whole.
    let rounds = operations.div_ceil(60);
    let registers = Racing(s.store.clone());
    let mut all = 0;
    for round in 0..rounds {
        let history = History::default();
        let under = s.key(&format!("{round}/"));
        let clients =
            (0..CLIENTS).map(|client| history.run(&registers, &under, client + 1 + CLIENTS * round, 60));
        futures_util::future::join_all(clients).await;
        history.read_at_last(&registers, &under).await;
        let (count, unknown) = history.check();
        assert_eq!(unknown, 0);
        all += count;
    }
    println!("{:?}: {all} operations are linearizable", s.store);
    s.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn memory_is_linearizable() {
    races(Subject::in_process(crate::memory())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redb_is_linearizable() {
    races(on_disk(EngineKind::Redb).await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sled_is_linearizable() {
    races(on_disk(EngineKind::Sled).await).await;
}
