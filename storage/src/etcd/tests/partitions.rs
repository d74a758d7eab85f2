//! Several stores on one etcd whose wires are cut: writes end, watches neither lose nor repeat, and histories stay linearizable.

use std::sync::Arc;
use std::time::Duration;

use test_tools::linearizable::History;
use test_tools::{Cluster, Proxy};

use super::{open_etcd, options, write, writes_again};
use crate::conformance::{DEADLINE, Racing, Recorder};
use crate::etcd::EtcdOptions;
use crate::{StorageError, Store};

/// How long one call may take here.
const TIMEOUT: Duration = Duration::from_secs(1);

fn port_of(url: &str) -> u16 {
    url.rsplit(':').next().unwrap().parse().unwrap()
}

fn on(endpoints: Vec<String>) -> Arc<dyn Store> {
    let options = EtcdOptions {
        timeout: TIMEOUT,
        ..options(endpoints)
    };
    open_etcd(&options).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_stores_on_one_etcd_are_linearizable() {
    let Some(cluster) = Cluster::start(1).await else {
        return;
    };
    let stores = [on(cluster.endpoints()), on(cluster.endpoints())];
    let registers = stores.clone().map(Racing);
    let history = History::default();
    let clients = (0..8).map(|n| history.run(&registers[n % 2], "/linear/", n as u64 + 1, 60));
    futures_util::future::join_all(clients).await;
    history.read_at_last(&registers[0], "/linear/").await;
    let (all, _) = history.check();
    assert!(all > 400, "{all}");
    for store in stores {
        store.shutdown().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_is_cut_off_comes_back_where_it_was() {
    let Some(cluster) = Cluster::start(1).await else {
        return;
    };
    let proxy = Proxy::to(port_of(&cluster.endpoints()[0])).await;
    let near = on(cluster.endpoints());
    let far = on(vec![format!("http://127.0.0.1:{}", proxy.port())]);
    let after = near.fresh().await.unwrap();
    let seen: [Arc<Recorder>; 2] = [Recorder::new(), Recorder::new()];
    let _near = near.watch("/cut/", after, seen[0].clone()).await.unwrap();
    let _far = far.watch("/cut/", after, seen[1].clone()).await.unwrap();

    let history = History::default();
    let registers = [&near, &far].map(|store| Racing(store.clone()));
    let clients = (0..8).map(|n| history.run(&registers[n % 2], "/cut/raced", n as u64 + 1, 40));
    let harm = async {
        for _ in 0..3 {
            // The clients go on meanwhile.
            for _ in 0..20 {
                write(&*far, "/elsewhere", "before".into()).await.unwrap();
            }
            proxy.cut();
            // A write ends without an acknowledgement.
            let ended = tokio::time::timeout(DEADLINE, write(&*far, "/elsewhere", "x".into())).await;
            let error = ended.expect("within its time").unwrap_err();
            assert!(
                matches!(
                    error,
                    StorageError::Uncertain(_) | StorageError::Unavailable { .. }
                ),
                "{error:?}"
            );
            assert!(far.status().await.is_err(), "its health says so");
            assert!(write(&*near, "/cut/near", "x".into()).await.is_ok());
            proxy.heal();
            writes_again(&*far, "/cut/far").await;
        }
    };
    tokio::join!(futures_util::future::join_all(clients), harm);
    history.read_at_last(&registers[1], "/cut/raced").await;
    history.check();

    let last = writes_again(&*far, "/cut/last").await;
    let mut delivered = Vec::new();
    for seen in &seen {
        seen.reach(last).await;
        seen.look(|seen| {
            let events = seen.events.iter();
            delivered.push(
                events
                    .map(|event| (event.kv.mod_revision, event.kv.key.clone()))
                    .collect::<Vec<_>>(),
            );
        });
    }
    assert!(delivered[0].is_sorted() && !delivered[0].is_empty());
    assert_eq!(delivered[0], delivered[1], "both have seen the same, once each");
    near.shutdown().await;
    far.shutdown().await;
}
