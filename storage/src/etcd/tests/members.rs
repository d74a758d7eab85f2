//! Members of one etcd that are cut off from each other: a store on the side without a quorum neither acknowledges what is lost nor reads what
//! is old, and goes on where it was once the members meet again.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use test_tools::linearizable::History;
use test_tools::{Cluster, eventually};

use super::super::client::Client;
use super::super::messages::{STATUS, StatusRequest};
use super::{open_etcd, options, write, writes_again};
use crate::conformance::{Racing, Recorder};
use crate::etcd::EtcdOptions;
use crate::{Guard, Op, Outcome, Revision, StorageError, Store, Txn};

/// How long one call may take here.
const TIMEOUT: Duration = Duration::from_secs(1);
const MEMBERS: usize = 3;
/// Operations of one client in one history.
const OPERATIONS: u64 = 40;

#[derive(Clone, PartialEq, prost::Message)]
struct Header {
    #[prost(uint64, tag = "2")]
    member: u64,
}

/// A member's report of itself and of the leader.
#[derive(Clone, PartialEq, prost::Message)]
struct Status {
    #[prost(message, optional, tag = "1")]
    header: Option<Header>,
    #[prost(uint64, tag = "4")]
    leader: u64,
}

fn on(endpoints: Vec<String>) -> Arc<dyn Store> {
    let options = EtcdOptions {
        timeout: TIMEOUT,
        ..options(endpoints)
    };
    open_etcd(&options).unwrap()
}

/// The member that leads, as it says itself.
async fn leader(cluster: &Cluster) -> usize {
    let client = Client::new(&options(cluster.endpoints())).unwrap();
    eventually("that the cluster has a leader", || async {
        for member in 0..MEMBERS {
            let status: Result<Status, _> = client.call_member(member, STATUS, StatusRequest {}).await;
            let leads = |status: Status| {
                status.leader != 0 && status.header.is_some_and(|own| own.member == status.leader)
            };
            if status.is_ok_and(leads) {
                return Some(member);
            }
        }
        None
    })
    .await
}

/// Clients race on a member that is cut off from the others, on these, and on all; the member is the leader or one that follows it.
async fn cut_off(cuts_the_leader: bool) {
    let Some(cluster) = Cluster::start_behind_wires(MEMBERS).await else {
        return;
    };
    let operations = std::env::var("STORAGE_LINEAR_OPERATIONS").ok();
    let operations: u64 = operations.map_or(OPERATIONS, |text| text.parse().unwrap());
    let (mut all, mut unknown) = (0, 0);
    for round in 0..operations.div_ceil(OPERATIONS) {
        let counts = one_history(&cluster, cuts_the_leader, round).await;
        all += counts.0;
        unknown += counts.1;
    }
    println!("{all} operations are linearizable, {unknown} of unknown outcome");
}

async fn one_history(cluster: &Cluster, cuts_the_leader: bool, round: u64) -> (usize, usize) {
    let leads = leader(cluster).await;
    let victim = if cuts_the_leader {
        leads
    } else {
        (leads + 1) % MEMBERS
    };
    let mut endpoints = cluster.endpoints();
    // The victim first.
    endpoints.rotate_left(victim);
    let minority = on(endpoints[..1].to_vec());
    let majority = on(endpoints[1..].to_vec());
    let either = on(endpoints);
    let stores = [&minority, &majority, &either];

    let under = format!("/members/{round}/");
    let after = majority.fresh().await.unwrap();
    let mut watches = Vec::new();
    for store in stores {
        let seen = Recorder::new();
        watches.push((store.watch(&under, after, seen.clone()).await.unwrap(), seen));
    }
    let history = History::default();
    let registers = stores.map(|store| Racing(store.clone()));
    let first = round * 6 + 1;
    let raced = format!("{under}raced");
    let clients = (0..6).map(|n| history.run(&registers[n % 3], &raced, first + n as u64, OPERATIONS));
    let harm = async {
        for n in 0..20 {
            // The clients go on meanwhile.
            write(&*majority, "/elsewhere", n.to_string()).await.unwrap();
        }
        cluster.wire(victim).cut();
        // The other members go on, with a new leader where the old one was cut off, and so do stores connected to them.
        let key = format!("{under}while");
        writes_again(&*majority, &key).await;
        let newest = writes_again(&*either, &key).await;
        let error = write(&*minority, "/elsewhere", "x".into()).await.unwrap_err();
        assert!(
            matches!(
                error,
                StorageError::Uncertain(_) | StorageError::Unavailable { .. }
            ),
            "{error:?}"
        );
        let error = minority.get(&key, None).await.unwrap_err();
        assert!(matches!(error, StorageError::Unavailable { .. }), "{error:?}");
        assert!(minority.fresh().await.is_err());
        assert!(minority.status().await.is_err(), "its health says so");
        cluster.wire(victim).heal();
        let there = eventually("that the member reads again", || async {
            minority.get(&key, None).await.ok()
        })
        .await;
        assert!(there.0.unwrap().mod_revision >= newest, "it reads what is old");
    };
    tokio::join!(futures_util::future::join_all(clients), harm);
    let last = writes_again(&*minority, &format!("{under}last")).await;
    for registers in &registers {
        history.read_at_last(registers, &raced).await;
    }

    // Each watch has seen every change, once.
    let mut told = BTreeSet::new();
    for (_, seen) in &watches {
        seen.reach(last).await;
        seen.look(|seen| {
            let events = seen.events.iter();
            let events: Vec<_> = events
                .map(|event| (event.kv.mod_revision, event.kv.key.clone()))
                .collect();
            assert!(events.is_sorted() && !events.is_empty());
            told.insert(events);
        });
    }
    assert_eq!(told.len(), 1, "all have seen the same");
    drop(watches);
    for store in stores {
        store.shutdown().await;
    }
    history.check()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_that_is_cut_off_acknowledges_and_reads_nothing() {
    cut_off(true).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_follower_that_is_cut_off_acknowledges_and_reads_nothing() {
    cut_off(false).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_member_acknowledges_while_none_reaches_another() {
    let Some(cluster) = Cluster::start_behind_wires(MEMBERS).await else {
        return;
    };
    let store = on(cluster.endpoints());
    // Made once, although an attempt whose answer was lost may happen late.
    let acknowledged = eventually("that it is made", || async {
        let made = Txn {
            guards: vec![Guard {
                key: "/alone/a".into(),
                mod_revision: Revision(0),
            }],
            ops: vec![Op::Put {
                key: "/alone/a".into(),
                value: "x".into(),
                ttl: None,
            }],
        };
        match store.commit(made).await.ok()? {
            Outcome::Committed(revision) => Some(revision),
            Outcome::Conflict { current, .. } => Some(current?.mod_revision),
        }
    })
    .await;
    for member in 0..MEMBERS {
        cluster.wire(member).cut();
    }
    // Those that were connected to the leader may go on until it notices.
    eventually("that nothing is acknowledged", || async {
        write(&*store, "/alone/b", "x".into()).await.err()
    })
    .await;
    assert!(
        store.get("/alone/a", None).await.is_err(),
        "nobody vouches for it"
    );
    for member in 0..MEMBERS {
        cluster.wire(member).heal();
    }
    let (found, _) = eventually("that it is read again", || async {
        store.get("/alone/a", None).await.ok()
    })
    .await;
    assert_eq!(found.unwrap().mod_revision, acknowledged);
    writes_again(&*store, "/alone/b").await;
    store.shutdown().await;
}
