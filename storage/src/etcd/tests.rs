//! The engine against a real etcd: the conformance suite, broken connections, members that die.
//!
//! The binary is `$ETCD_BIN`, or `etcd` on the path; without one these tests pass and say loudly that they were skipped.
//! One member serves the whole suite, each case under its own prefix.

mod crash;
mod members;
mod partitions;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use test_tools::{Cluster, eventually};

use super::client::Client;
use super::compactor::Round;
use super::{EtcdOptions, open_etcd};
use crate::conformance::{Recorder, Subject};
use crate::{Op, Outcome, Revision, StorageError, Store, Txn};

fn options(endpoints: Vec<String>) -> EtcdOptions {
    EtcdOptions {
        endpoints,
        compaction_interval: Duration::ZERO,
        ..EtcdOptions::default()
    }
}

/// A subject on a member of its own: cases that compact would disturb others on a shared one.
async fn subject() -> Option<Subject> {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let cluster = Cluster::start(1).await?;
    let store = open_etcd(&options(cluster.endpoints())).unwrap();
    let prefix = format!("/suite/{}/", NEXT.fetch_add(1, Ordering::Relaxed));
    Some(Subject::remote(store, prefix).keeping(cluster))
}

crate::conformance_tests!(subject());

async fn write(store: &dyn Store, key: &str, value: String) -> Result<Outcome, StorageError> {
    let ops = vec![Op::Put {
        key: key.to_owned(),
        value: value.into(),
        ttl: None,
    }];
    store.commit(Txn { guards: vec![], ops }).await
}

async fn writes_again(store: &dyn Store, key: &str) -> Revision {
    eventually("that it writes again", || async {
        match write(store, key, "back".into()).await {
            Ok(Outcome::Committed(revision)) => Some(revision),
            _ => None,
        }
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn watches_resume_where_they_were_when_the_member_restarts() {
    let Some(mut cluster) = Cluster::start(1).await else {
        return;
    };
    let s = Subject::remote(open_etcd(&options(cluster.endpoints())).unwrap(), "/r/");
    let after = s.write("start", "x").await;
    let seen = Recorder::new();
    let _watch = s.store.watch(&s.key(""), after, seen.clone()).await.unwrap();
    let mut last = after;
    for round in 0..3 {
        for n in 0..10 {
            last = s.write("a", format!("{round}-{n}")).await;
        }
        if round == 1 {
            // Caught up when it breaks, and in the middle of things.
            seen.reach(last).await;
        }
        cluster.kill(0);
        cluster.start_member(0);
        eventually("that the member is back", || async { s.store.fresh().await.ok() }).await;
    }
    seen.reach(last).await;
    seen.look(|seen| {
        let found: Vec<_> = seen.events.iter().map(|event| event.kv.mod_revision.0).collect();
        assert_eq!(found, (after.0 + 1..=last.0).collect::<Vec<_>>());
    });
    s.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_goes_on_without_one_member() {
    let Some(mut cluster) = Cluster::start(3).await else {
        return;
    };
    let store = open_etcd(&options(cluster.endpoints())).unwrap();
    let other = open_etcd(&options(cluster.endpoints().into_iter().rev().collect())).unwrap();
    let after = eventually("that the cluster has a leader", || async {
        store.fresh().await.ok()
    })
    .await;
    let (seen, seen_by_other) = (Recorder::new(), Recorder::new());
    let _watch = store.watch("/c/", after, seen.clone()).await.unwrap();
    let _other = other.watch("/c/", after, seen_by_other.clone()).await.unwrap();

    // Every acknowledged write is seen, by both, in spite of faults of the members.
    let writing = async {
        let mut acked = Vec::new();
        for n in 0..300 {
            match write(&*store, "/c/n", format!("{n}")).await {
                Ok(Outcome::Committed(revision)) => acked.push((revision, n)),
                Ok(conflict) => panic!("{conflict:?}"),
                Err(StorageError::Uncertain(_) | StorageError::Unavailable { .. }) => {}
                Err(error) => panic!("{error:?}"),
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        acked
    };
    let harm = async {
        for victim in 0..2 {
            tokio::time::sleep(Duration::from_millis(300)).await;
            cluster.kill(victim);
            tokio::time::sleep(Duration::from_millis(300)).await;
            cluster.start_member(victim);
        }
    };
    let (acked, ()) = tokio::join!(writing, harm);
    assert!(acked.len() > 100, "only {} writes went through", acked.len());
    let last = acked.last().unwrap().0;
    for seen in [seen, seen_by_other] {
        seen.reach(last).await;
        seen.look(|seen| {
            assert!(
                seen.events
                    .is_sorted_by(|a, b| a.kv.mod_revision < b.kv.mod_revision)
            );
            let delivered: std::collections::HashMap<_, _> = seen
                .events
                .iter()
                .map(|event| (event.kv.mod_revision, event.kv.value.clone()))
                .collect();
            for (revision, n) in &acked {
                assert_eq!(
                    delivered.get(revision).map(|value| &value[..]),
                    Some(n.to_string().as_bytes())
                );
            }
        });
    }
    store.shutdown().await;
    other.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_absent_cluster_is_unavailable() {
    let nobody = EtcdOptions {
        timeout: Duration::from_millis(500),
        ..options(vec!["127.0.0.1:1".into()])
    };
    let store = open_etcd(&nobody).unwrap();
    let unavailable =
        |error: StorageError| assert!(matches!(error, StorageError::Unavailable { .. }), "{error:?}");
    unavailable(store.get("/a", None).await.unwrap_err());
    // It never left, so it certainly did not happen.
    unavailable(write(&*store, "/a", "x".into()).await.unwrap_err());
    unavailable(store.fresh().await.unwrap_err());
    store.shutdown().await;
}

#[tokio::test]
async fn senseless_options_are_refused() {
    #[track_caller]
    fn check(options: EtcdOptions, expected: &str) {
        let error = open_etcd(&options).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
    check(options(vec![]), "no etcd endpoint");
    check(
        options(vec!["ftp://host".into()]),
        "`ftp://host` is not an etcd endpoint",
    );
    check(
        options(vec!["http://[".into()]),
        "`http://[` is not an etcd endpoint",
    );
    let absent = std::path::PathBuf::from("/absent.pem");
    check(
        EtcdOptions {
            ca_file: Some(absent.clone()),
            ..options(vec!["a".into()])
        },
        "cannot read `/absent.pem`",
    );
    check(
        EtcdOptions {
            cert_file: Some(absent),
            ..options(vec!["a".into()])
        },
        "needs its key",
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_replica_compacts() {
    let Some(cluster) = Cluster::start(1).await else {
        return;
    };
    let s = Subject::remote(open_etcd(&options(cluster.endpoints())).unwrap(), "/c/");
    let clients: Vec<_> = (0..2)
        .map(|_| Client::new(&options(cluster.endpoints())).unwrap())
        .collect();
    let mut rounds = [Round::default(), Round::default()];
    let mut written = Vec::new();
    let mut compactions = 0;
    for _ in 0..4 {
        written.push(s.write("a", "x").await);
        for (round, client) in rounds.iter_mut().zip(&clients) {
            compactions += usize::from(round.turn(client).await.unwrap());
        }
    }
    // The first interval only takes note, each later one is one replica's.
    assert_eq!(compactions, 3);
    assert!(matches!(
        s.store.get("/c/a", Some(written[1])).await,
        Err(StorageError::Compacted { .. })
    ));
    assert!(s.read("a", Some(written[3])).await.is_some());
    let marker = s.store.get("compact_rev_key", None).await.unwrap().0.unwrap();
    let marked: u64 = std::str::from_utf8(&marker.value).unwrap().parse().unwrap();
    assert!(
        marked >= written[2].0 && marked < written[3].0,
        "{marked}, {written:?}"
    );
    s.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_share_leases() {
    let Some(cluster) = Cluster::start(1).await else {
        return;
    };
    let client = Client::new(&options(cluster.endpoints())).unwrap();
    let leases = super::Leases::new(Duration::from_secs(60));
    let hour = Duration::from_secs(3600);
    let first = leases.get(&client, hour).await.unwrap();
    assert_eq!(leases.get(&client, hour).await.unwrap(), first);
    assert_ne!(leases.get(&client, hour * 2).await.unwrap(), first);
    // Too short a time for a surplus: each key has its own.
    let short = Duration::from_secs(5);
    let one = leases.get(&client, short).await.unwrap();
    assert_ne!(leases.get(&client, short).await.unwrap(), one);
    leases.forget().await;
    assert_ne!(leases.get(&client, hour).await.unwrap(), first);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_are_encrypted_and_authenticated() {
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str| dir.path().join(name);
    let issue = |name: &str, issuer: Option<&rcgen::Issuer<'_, rcgen::KeyPair>>| {
        let key = rcgen::KeyPair::generate().unwrap();
        let mut params = rcgen::CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
        params.distinguished_name.push(rcgen::DnType::CommonName, name);
        let cert = match issuer {
            Some(issuer) => params.signed_by(&key, issuer).unwrap(),
            None => {
                params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
                params.self_signed(&key).unwrap()
            }
        };
        std::fs::write(file(&format!("{name}.crt")), cert.pem()).unwrap();
        std::fs::write(file(&format!("{name}.key")), key.serialize_pem()).unwrap();
        (params, key)
    };
    let (ca_params, ca_key) = issue("ca", None);
    let ca = rcgen::Issuer::new(ca_params, ca_key);
    issue("server", Some(&ca));
    issue("client", Some(&ca));
    issue("stranger", None);
    let path = |name: &str| file(name).to_str().unwrap().to_owned();
    let flags = [
        "--client-cert-auth",
        "--trusted-ca-file",
        &path("ca.crt"),
        "--cert-file",
        &path("server.crt"),
        "--key-file",
        &path("server.key"),
    ]
    .map(str::to_owned)
    .to_vec();
    let Some(cluster) = Cluster::start_with(1, "https", flags).await else {
        return;
    };
    let with = |ca: Option<&str>, client: Option<&str>| EtcdOptions {
        ca_file: ca.map(file),
        cert_file: client.map(|name| file(&format!("{name}.crt"))),
        key_file: client.map(|name| file(&format!("{name}.key"))),
        timeout: Duration::from_secs(2),
        ..options(cluster.endpoints())
    };
    let known = open_etcd(&with(Some("ca.crt"), Some("client"))).unwrap();
    assert!(write(&*known, "/a", "x".into()).await.is_ok());
    for refused in [
        with(Some("ca.crt"), None),
        with(None, Some("client")),
        with(Some("stranger.crt"), Some("client")),
    ] {
        let store = open_etcd(&refused).unwrap();
        let error = write(&*store, "/a", "y".into()).await.unwrap_err();
        assert!(
            matches!(
                error,
                StorageError::Unavailable { .. } | StorageError::Uncertain(_)
            ),
            "{error:?}"
        );
        store.shutdown().await;
    }
    assert_eq!(known.get("/a", None).await.unwrap().0.unwrap().value, "x");
    known.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watch_that_is_up_to_date_does_not_hold_up_others() {
    let Some(mut cluster) = Cluster::start(1).await else {
        return;
    };
    let s = Subject::remote(open_etcd(&options(cluster.endpoints())).unwrap(), "/u/");
    let after = s.write("quiet/a", "x").await;
    let behind = Recorder::new();
    let _behind = s
        .store
        .watch(&s.key("quiet/"), after, behind.clone())
        .await
        .unwrap();
    let newest = s.write("busy/a", "x").await;
    let ahead = Recorder::new();
    let _ahead = s
        .store
        .watch(&s.key("busy/"), newest, ahead.clone())
        .await
        .unwrap();
    // Nothing is written any more.
    assert_eq!(s.store.fresh_for(&s.key("quiet/")).await.unwrap(), newest);
    behind.reach(newest).await;
    // Nor after both have been recreated, one of them where it was left.
    let later = s.write("busy/a", "y").await;
    ahead.reach(later).await;
    cluster.kill(0);
    cluster.start_member(0);
    let fresh = eventually("that the member is back", || async {
        s.store.fresh_for(&s.key("quiet/")).await.ok()
    })
    .await;
    assert_eq!(fresh, later);
    behind.reach(later).await;
    behind.look(|seen| assert!(seen.events.is_empty()));
    ahead.look(|seen| assert_eq!(seen.events.len(), 1));
    s.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn quiet_watches_become_fresh_after_a_restart() {
    let Some(mut cluster) = Cluster::start(1).await else {
        return;
    };
    let s = Subject::remote(open_etcd(&options(cluster.endpoints())).unwrap(), "/q/");
    let after = s.write("busy/a", "x").await;
    let seen = Recorder::new();
    let _watch = s
        .store
        .watch(&s.key("quiet/"), after, seen.clone())
        .await
        .unwrap();
    cluster.kill(0);
    cluster.start_member(0);
    writes_again(&*s.store, "/q/busy/a").await;
    let fresh = s.store.fresh_for(&s.key("quiet/")).await.unwrap();
    assert!(fresh > after);
    seen.reach(fresh).await;
    // A delete alone moves things on, too.
    let gone = Revision(s.remove("busy/a").await.0);
    assert!(s.store.fresh().await.unwrap() >= gone);
    seen.reach(gone).await;
    seen.look(|seen| assert!(seen.events.is_empty()));
    s.finish().await;
}
