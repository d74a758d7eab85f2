//! Members killed with SIGKILL under writes: what was acknowledged is there, and histories stay linearizable.
//!
//! A few rounds here; `STORAGE_CRASH_ROUNDS` sets another number.

use std::sync::Arc;
use std::time::Duration;

use test_tools::Cluster;
use test_tools::linearizable::History;

use super::{open_etcd, options, write, writes_again};
use crate::Store;
use crate::conformance::Racing;
use crate::etcd::EtcdOptions;

/// How long one call may take here.
const TIMEOUT: Duration = Duration::from_secs(1);
const CLIENTS: u64 = 6;
/// Operations of one client in one round.
const OPERATIONS: u64 = 30;

/// Each round one member is killed, one after the other, amid the clients' operations, and started again.
async fn killed(members: usize) {
    let Some(mut cluster) = Cluster::start(members).await else {
        return;
    };
    let rounds: u64 = std::env::var("STORAGE_CRASH_ROUNDS").map_or(3, |text| text.parse().unwrap());
    let on = |first: usize| -> Arc<dyn Store> {
        let mut endpoints = cluster.endpoints();
        endpoints.rotate_left(first);
        let options = EtcdOptions {
            timeout: TIMEOUT,
            ..options(endpoints)
        };
        open_etcd(&options).unwrap()
    };
    let stores = [on(0), on(members - 1)];
    writes_again(&*stores[0], "/elsewhere").await;
    let registers = stores.clone().map(Racing);
    let (mut all, mut unknown) = (0, 0);
    for round in 0..rounds {
        let key = format!("/killed/{round}");
        let history = History::default();
        let clients = (0..CLIENTS).map(|n| {
            let register = &registers[usize::from(n % 2 == 0)];
            history.run(register, &key, round * CLIENTS + n + 1, OPERATIONS)
        });
        let victim = usize::try_from(round).unwrap_or(0) % members;
        let harm = async {
            // The clients go on meanwhile.
            for n in 0..1 + round * 7 % 20 {
                let _ = write(&*stores[0], "/elsewhere", n.to_string()).await;
            }
            cluster.kill(victim);
            cluster.start_member(victim);
        };
        tokio::join!(futures_util::future::join_all(clients), harm);
        for store in &stores {
            writes_again(&**store, "/elsewhere").await;
        }
        for register in &registers {
            history.read_at_last(register, &key).await;
        }
        let counts = history.check();
        all += counts.0;
        unknown += counts.1;
    }
    println!(
        "etcd, {members} members: {rounds} kills, {all} operations are linearizable, {unknown} of unknown outcome"
    );
    for store in stores {
        store.shutdown().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_single_member_survives_kills() {
    killed(1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_members_survive_kills_of_one_after_the_other() {
    killed(3).await;
}
