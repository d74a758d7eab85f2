mod behind;
mod conformance;
mod past;
mod seeds;
mod vouching;

use std::ops::Bound;

use bytes::Bytes;
use machinery::{GroupKind, Reason, limits};
use serde_json::{Value, json};
use storage::{Event, EventKind, MvccStore, Op, Outcome, RangeRequest, Txn, WatchHandle, WatchSink};

use super::*;
use crate::registry::store::{ObjectStore, Written};
use crate::registry::strategy::SelectableField;

fn config() -> StoreConfig {
    StoreConfig {
        resource: GroupResource::new("", "pods"),
        kind: GroupKind::new("", "Pod"),
        prefix: "/registry/pods".into(),
        namespaced: true,
        fields: vec![
            SelectableField::path("spec.nodeName"),
            SelectableField::path("status.phase"),
        ],
        ttl: None,
    }
}

fn engine() -> Arc<MvccStore> {
    MvccStore::memory()
}

fn pod(namespace: &str, name: &str, node: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, "labels": {"b": "2", "a": "1"}, "uid": "u"},
        "data": {"metadata": {"x": "\"metadata\":{"}},
        "spec": {"nodeName": node},
    })
}

async fn put(engine: &Arc<MvccStore>, cache: Option<&Arc<ObjectCache>>, object: &Value) -> Revision {
    let store = ObjectStore::new(engine.clone(), config());
    let prepared = Prepared::from_value(store.config(), object, &JsonCodec).expect("a pod can be laid out");
    let (key, value) = (prepared.key().to_string(), prepared.stored().clone());
    let pending = cache.map(|cache| cache.expect(prepared));
    let ops = vec![Op::Put {
        key,
        value,
        ttl: None,
    }];
    let outcome = engine.commit(Txn { guards: vec![], ops }).await;
    let Ok(Outcome::Committed(revision)) = outcome else {
        panic!("nothing guards it")
    };
    if let (Some(pending), Some(cache)) = (pending, cache) {
        let entry = pending.finish(revision);
        let key = entry.key.clone();
        let cached = cache.snapshot().objects.get(&*key).cloned();
        assert!(
            cached.is_none_or(|c| c.revision != revision || Arc::ptr_eq(&c, &entry)),
            "the writer gets the cache's own entry"
        );
    }
    revision
}

async fn delete(engine: &Arc<MvccStore>, key: &str) -> Revision {
    let ops = vec![Op::Delete { key: key.into() }];
    match engine.commit(Txn { guards: vec![], ops }).await {
        Ok(Outcome::Committed(revision)) => revision,
        other => panic!("{other:?}"),
    }
}

async fn put_raw(engine: &Arc<MvccStore>, key: &str, value: &'static [u8]) -> Revision {
    let ops = vec![Op::Put {
        key: key.into(),
        value: Bytes::from_static(value),
        ttl: None,
    }];
    let txn = Txn { guards: vec![], ops };
    match engine.commit(txn).await {
        Ok(Outcome::Committed(revision)) => revision,
        other => panic!("{other:?}"),
    }
}

async fn start(engine: &Arc<MvccStore>) -> Arc<ObjectCache> {
    ObjectCache::start(engine.clone(), &config(), Arc::new(JsonCodec), Budget::standard())
        .await
        .expect("starts")
}

/// An entry is the same for bytes of any writer, in any order of members.
#[track_caller]
fn check_stored(stored: &str) {
    let key: Arc<str> = "/registry/pods/ns/p".into();
    let stored = Bytes::from(stored.to_string());
    let prepared = Prepared::from_stored(&config(), &key, &stored, &JsonCodec).expect("readable");
    for revision in [7, 10, 123_456] {
        let entry = prepared.finish(Revision(revision));
        for entry in [
            entry.clone(),
            prepared.finish(Revision(3)).at_revision(Revision(revision)),
        ] {
            let mut expected: Value = serde_json::from_slice(&stored).expect("JSON");
            expected["metadata"]["resourceVersion"] = revision.to_string().into();
            assert_eq!(entry.value(), expected);
            let metadata: Value =
                serde_json::from_slice(&[b"{", entry.metadata(), b"}"].concat()).expect("a slice of JSON");
            assert_eq!(metadata["metadata"], expected["metadata"]);
            let mut untyped: Value =
                serde_json::from_slice(&[b"{", entry.untyped()].concat()).expect("a slice of JSON");
            untyped["kind"] = expected["kind"].clone();
            untyped["apiVersion"] = expected["apiVersion"].clone();
            assert_eq!(untyped, expected);
            assert_eq!((entry.namespace(), entry.name()), ("ns", "p"));
        }
        assert_eq!(entry.labels().collect::<Vec<_>>(), [("a", "1"), ("b", "2")]);
        assert_eq!(entry.label("b"), Some("2"));
        assert_eq!((entry.field(0), entry.field(1), entry.field(2)), ("n1", "", ""));
    }
}

#[test]
fn entries_are_slices_of_their_json() {
    let own = Prepared::lay_out(&config(), "/registry/pods/ns/p".into(), &pod("ns", "p", "n1"));
    check_stored(std::str::from_utf8(own.expect("a pod").stored()).expect("text"));
    // As kube-apiserver writes custom resources, with its newline.
    check_stored(
        "{\"apiVersion\":\"v1\",\"kind\":\"Pod\",\"metadata\":{\"labels\":{\"a\":\"1\",\"b\":\"2\"},\"name\":\"p\",\"uid\":\"u\"},\"spec\":{\"nodeName\":\"n1\"}}\n",
    );
    // Another order, spaces, labels unsorted, nothing after resourceVersion.
    check_stored(
        r#"{"spec":{"nodeName":"n1"},"metadata":{"name":"p","labels":{"b":"2","a":"1"}},"kind":"Pod","apiVersion":"v1"}"#,
    );
    check_stored(
        r#"{"kind":"Pod","apiVersion":"v1", "metadata" : {"name":"p","labels":{"b":"2","a":"1"},"resourceVersion":"5"},"spec":{"nodeName":"n1"}}"#,
    );
    check_stored(
        r#"{"kind":"Pod","apiVersion":"v1","metadata":{"labels":{"b":"2","a":"1"},"annotations":{"x\ny":"z"}},"spec":{"nodeName":"n1","containers":[]}}"#,
    );
}

#[test]
fn damaged_values_are_errors() {
    let key: Arc<str> = "/registry/pods/ns/p".into();
    for bad in ["", "x", "[]", "{}", "{\"metadata\":7}", "{\"metadata\":{}"] {
        let stored = Bytes::from(bad.to_string());
        assert!(
            Prepared::from_stored(&config(), &key, &stored, &JsonCodec).is_err(),
            "{bad}"
        );
    }
}

#[tokio::test]
async fn reads_are_as_new_as_the_last_write() {
    let engine = engine();
    put(&engine, None, &pod("a", "x", "n1")).await;
    let cache = start(&engine).await;
    for n in 0..50 {
        let revision = put(&engine, Some(&cache), &pod("a", &format!("p{n}"), "n1")).await;
        let fresh = cache.fresh().await.expect("fresh");
        assert_eq!(fresh.revision, revision);
        assert_eq!(fresh.objects.len(), n + 2);
    }
    // A write elsewhere moves the revision of consistent reads.
    let elsewhere = put_raw(&engine, "/registry/other/x", b"{}").await;
    assert_eq!(cache.fresh().await.expect("fresh").revision, elsewhere);
    assert_eq!(
        cache
            .exactly(elsewhere)
            .await
            .expect("no change here")
            .objects
            .len(),
        51
    );
    let old = cache.exactly(Revision(3)).await.expect("the engine has it");
    assert_eq!((old.revision, old.objects.len()), (Revision(3), 3));
    engine.compact(Revision(20)).await.expect("compacts");
    assert_eq!(cache.exactly(Revision(3)).await.expect("kept").objects.len(), 3);
    assert_eq!(cache.exactly(Revision(4)).await.expect_err("gone").code(), 410);
}

#[tokio::test(start_paused = true)]
async fn the_future_is_a_timeout() {
    let engine = engine();
    let cache = start(&engine).await;
    let error = cache.wait_for(Revision(1000)).await.expect_err("never comes");
    assert_eq!(error.code(), 504);
    assert_eq!(
        error.details().map(|d| d.causes[0].reason.as_str()),
        Some("ResourceVersionTooLarge")
    );
}

/// All events, as the engine delivers them.
#[derive(Default)]
struct Recorder(Mutex<Vec<Event>>);

impl WatchSink for Recorder {
    fn events(&self, _revision: Revision, events: &[Event]) {
        self.0.lock().extend_from_slice(events);
    }
    fn progress(&self, _revision: Revision) {}
    fn closed(&self, error: StorageError) {
        panic!("{error}");
    }
}

fn covered(event: &Event, interest: &Interest) -> bool {
    match interest {
        Interest::All => true,
        Interest::Namespace(ns) => event.kv.key.starts_with(&format!("/registry/pods/{ns}/")),
        Interest::Key(key) => *event.kv.key == **key,
        Interest::Field(_, value) => [Some(&event.kv), event.prev.as_ref()]
            .into_iter()
            .flatten()
            .any(|kv| {
                let object: Value = serde_json::from_slice(&kv.value).unwrap_or_default();
                object["spec"]["nodeName"] == **value
            }),
    }
}

fn interests() -> [Interest; 4] {
    [
        Interest::All,
        Interest::Namespace("a".into()),
        Interest::Key("/registry/pods/a/p1".into()),
        Interest::Field(0, "n1".into()),
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_event_is_lost_or_doubled() {
    const WRITES: usize = 1_000;
    let engine = engine();
    let cache = start(&engine).await;
    let recorder = Arc::new(Recorder::default());
    let _watch = engine
        .watch("/registry/pods/", Revision(0), recorder.clone())
        .await
        .expect("watches");
    let (stop, _) = tokio::sync::watch::channel(Revision(0));
    let mut readers = Vec::new();
    for round in 0..8 {
        let interest = interests()[round % 4].clone();
        let cache = cache.clone();
        let mut stop = stop.subscribe();
        readers.push(tokio::spawn(async move {
            let from = cache.snapshot().revision;
            let mut feed = cache.feed(from, interest.clone()).await.expect("new enough");
            let mut seen = Vec::new();
            loop {
                let mut out = Vec::new();
                let stopping = tokio::select! {
                    next = feed.next(&mut out) => { next.expect("fast enough"); false }
                    _ = stop.changed() => true,
                };
                if stopping {
                    let reached = feed.drain(&mut out).expect("fast enough");
                    assert!(
                        reached >= *stop.borrow(),
                        "a bookmark covers all that was written"
                    );
                }
                seen.extend(out.iter().map(|c| c.revision));
                if stopping {
                    return (interest, from, seen);
                }
            }
        }));
    }
    let mut writers = Vec::new();
    for _ in 0..2 {
        let (engine, cache) = (engine.clone(), cache.clone());
        writers.push(tokio::spawn(async move {
            for n in 0..WRITES {
                let namespace = if n % 3 == 0 { "a" } else { "b" };
                let (name, node) = (format!("p{}", n % 5), format!("n{}", n % 4));
                if n % 11 == 10 {
                    delete(&engine, &format!("/registry/pods/{namespace}/{name}")).await;
                } else {
                    put(&engine, Some(&cache), &pod(namespace, &name, &node)).await;
                }
            }
        }));
    }
    for writer in writers {
        writer.await.expect("writes");
    }
    let last = cache.fresh().await.expect("fresh").revision;
    stop.send_replace(last);
    let log = recorder.0.lock().clone();
    for reader in readers {
        let (interest, from, seen) = reader.await.expect("reads");
        let expected = log
            .iter()
            .filter(|e| e.kv.mod_revision > from && covered(e, &interest));
        let expected: Vec<Revision> = expected.map(|e| e.kv.mod_revision).collect();
        assert_eq!(seen, expected, "{interest:?}");
    }
    assert!(cache.interests.is_empty(), "every bell is taken down");
}

#[tokio::test]
async fn events_past_the_ring_come_from_the_log() {
    let engine = engine();
    put(&engine, None, &pod("a", "p0", "n1")).await;
    let cache = start(&engine).await;
    cache.ring.limit(4);
    for n in 0..20 {
        put(
            &engine,
            Some(&cache),
            &pod("a", &format!("p{}", n % 3), &format!("n{}", n % 2)),
        )
        .await;
    }
    delete(&engine, "/registry/pods/a/p1").await;
    for after in [0, 1, 5, 18, 20, 22] {
        for interest in interests() {
            let mut feed = cache
                .feed(Revision(after), interest.clone())
                .await
                .expect("the log has it");
            let mut out = Vec::new();
            feed.drain(&mut out).expect("nothing is overrun");
            let recorder = Arc::new(Recorder::default());
            let watch = engine.watch("/registry/pods/", Revision(after), recorder.clone());
            let _watch = watch.await.expect("watches");
            let log = recorder.0.lock();
            let expected: Vec<(Revision, bool)> = log
                .iter()
                .filter(|e| covered(e, &interest))
                .map(|e| (e.kv.mod_revision, e.kind == EventKind::Delete))
                .collect();
            let seen: Vec<(Revision, bool)> = out
                .iter()
                .map(|c| (c.revision, c.kind == ChangeKind::Deleted))
                .collect();
            assert_eq!(seen, expected, "after {after} {interest:?}");
        }
    }
    engine.compact(Revision(15)).await.expect("compacts");
    let error = cache
        .feed(Revision(5), Interest::All)
        .await
        .expect_err("compacted");
    assert_eq!(error.code(), 410);
}

#[tokio::test]
async fn a_slow_watcher_is_ended_and_a_sleeping_one_is_not() {
    let engine = engine();
    let cache = start(&engine).await;
    cache.ring.limit(4);
    let from = cache.snapshot().revision;
    let mut slow = cache.feed(from, Interest::All).await.expect("feeds");
    let mut elsewhere = cache
        .feed(from, Interest::Namespace("b".into()))
        .await
        .expect("feeds");
    let mut out = Vec::new();
    elsewhere.drain(&mut out).expect("nothing yet");
    for n in 0..10 {
        put(&engine, Some(&cache), &pod("a", &format!("p{n}"), "n1")).await;
    }
    put(&engine, Some(&cache), &pod("b", "q", "n1")).await;
    assert_eq!(slow.next(&mut out).await, Err(FeedEnd));
    out.clear();
    elsewhere
        .next(&mut out)
        .await
        .expect("nothing concerned it before");
    assert_eq!(out.len(), 1);
    assert_eq!(out[0].entry.name(), "q");
}

#[tokio::test]
async fn events_are_encoded_once() {
    let engine = engine();
    let cache = start(&engine).await;
    let mut feed = cache.feed(Revision(0), Interest::All).await.expect("feeds");
    put(&engine, Some(&cache), &pod("a", "p", "n1")).await;
    let mut out = Vec::new();
    feed.next(&mut out).await.expect("one event");
    let mut made = 0;
    for form in [1, 1, 2, 1] {
        let frame = out[0].frame(form, || {
            made += 1;
            Ok::<_, ()>(Bytes::from(vec![b'x']))
        });
        assert!(frame.is_ok());
    }
    assert_eq!(made, 2);
}

#[tokio::test]
async fn the_field_index_equals_a_scan() {
    let engine = engine();
    put(&engine, None, &pod("a", "p0", "n1")).await;
    put(&engine, None, &pod("b", "p0", "")).await;
    let cache = start(&engine).await;
    let steps = [
        ("a", "p1", Some("n1")),
        ("b", "p0", Some("n1")),
        ("a", "p0", Some("n2")),
        ("a", "p1", Some("n1")),
        ("c", "p9", Some("n10")),
        ("a", "p1", None),
        ("b", "p0", Some("")),
        ("a", "p1", Some("n2")),
    ];
    for (namespace, name, node) in steps {
        match node {
            Some(node) => drop(put(&engine, Some(&cache), &pod(namespace, name, node)).await),
            None => drop(delete(&engine, &format!("/registry/pods/{namespace}/{name}")).await),
        }
        let snapshot = cache.snapshot();
        for node in ["n1", "n2", "n10", "n"] {
            for (first, end) in [
                ("/registry/pods/", "/registry/pods0"),
                ("/registry/pods/b/", "/registry/pods/b0"),
            ] {
                let indexed: Vec<&str> = snapshot
                    .by_field
                    .keys(node, first, end)
                    .map(|key| &**key)
                    .collect();
                let scanned: Vec<&str> = snapshot
                    .objects
                    .range::<_, str>((Bound::Included(first), Bound::Excluded(end)))
                    .filter(|(_, entry)| entry.field(0) == node)
                    .map(|(key, _)| &**key)
                    .collect();
                assert_eq!(indexed, scanned, "{node} after {namespace}/{name}");
            }
        }
    }
}

#[tokio::test]
async fn an_idle_cache_goes_and_comes_back() {
    let engine = engine();
    let store = ObjectStore::new(engine.clone(), config());
    let first = store.cache().await.expect("starts");
    assert!(!store.drop_idle_cache(), "it was used just now");
    let feed = first.feed(Revision(0), Interest::All).await.expect("feeds");
    assert!(!store.drop_idle_cache(), "somebody watches it");
    drop(feed);
    assert!(store.drop_idle_cache());
    assert!(store.started_cache().is_none());

    // A holder of the old cache goes on with it, and another cache starts beside it.
    let mut feed = first.feed(Revision(0), Interest::All).await.expect("feeds");
    let object = pod("a", "p", "n1");
    assert!(matches!(
        store.insert(&object, None).await,
        Ok(crate::registry::store::Written::Stored(_))
    ));
    let mut out = Vec::new();
    feed.next(&mut out).await.expect("it still follows");
    assert_eq!(out[0].entry.name(), "p");
    let second = store.started_cache().expect("the write has started one");
    assert!(!Arc::ptr_eq(&first, &second));
    assert_eq!(second.fresh().await.expect("fresh").objects.len(), 1);

    for _ in 0..3 {
        assert!(!store.drop_idle_cache(), "it holds an object");
    }
}

#[tokio::test]
async fn exact_reads_reach_as_far_back_as_the_history() {
    let engine = engine();
    let store = ObjectStore::new(engine.clone(), config());
    let cache = store.cache().await.expect("starts");
    cache.ring.limit(4);
    let mut revisions = Vec::new();
    for n in 0..200 {
        revisions.push(
            put(
                &engine,
                Some(&cache),
                &pod("a", &format!("p{}", n % 7), &format!("n{n}")),
            )
            .await,
        );
    }
    for (n, revision) in revisions.iter().enumerate() {
        let then = cache.exactly(*revision).await.expect("the engine remembers");
        assert_eq!(then.revision, *revision);
        assert_eq!(then.objects.len(), (n + 1).min(7));
        let written = then
            .objects
            .get(&*format!("/registry/pods/a/p{}", n % 7))
            .expect("it is there");
        assert_eq!(
            (written.field(0), written.revision),
            (&*format!("n{n}"), *revision)
        );
    }
    engine.compact(revisions[100]).await.expect("compacts");
    cache.kept.clear();
    assert!(cache.exactly(revisions[100]).await.is_ok());
    let error = cache.exactly(revisions[99]).await.expect_err("compacted");
    assert_eq!(error.code(), 410);
}

#[tokio::test]
async fn another_layout_is_the_same_object() {
    let engine = engine();
    let key = "/registry/pods/a/one";
    let foreign = br#"{"apiVersion":"v1","kind":"Pod","metadata":{"uid":"u","name":"one","namespace":"a"},"spec":{"b":1,"a":"x"}}"#;
    let revision = put_raw(&engine, key, foreign).await;
    let store = ObjectStore::new(engine.clone(), config());
    let entry = store.get("a", "one").await.expect("it is there");
    let mut object = json!({
        "kind": "Pod", "apiVersion": "v1", "metadata": {"name": "one", "namespace": "a", "uid": "u"}, "spec": {"a": "x", "b": 1},
    });
    let written = store.replace(&entry, &object, None).await.expect("an answer");
    let Written::Stored(same) = written else {
        panic!("{written:?}")
    };
    assert_eq!(same.revision, revision, "nothing was written");
    object["spec"]["b"] = 2.into();
    let written = store.replace(&entry, &object, None).await.expect("an answer");
    assert!(matches!(written, Written::Stored(changed) if changed.revision > revision));
}

#[tokio::test]
async fn recent_events_of_large_objects_are_bounded_by_their_bytes() {
    let engine = engine();
    let cache = start(&engine).await;
    let mut large = pod("a", "p", "n1");
    large["data"]["filler"] = "x".repeat(512 << 10).into();
    let from = cache.snapshot().revision;
    let mut feed = cache.feed(from, Interest::All).await.expect("feeds");
    for n in 0..60 {
        large["data"]["n"] = n.into();
        put(&engine, Some(&cache), &large).await;
    }
    let (slots, bytes, framed) = cache.ring.held();
    assert!((30..=32).contains(&slots), "{slots} of 512 KiB are 16 MiB");
    assert!(bytes <= 16 << 20);
    assert_eq!(framed, 16);
    // A feed that fell behind ends, and the watcher resumes from the log.
    let mut out = Vec::new();
    assert_eq!(feed.next(&mut out).await, Err(FeedEnd));
    let mut feed = cache.feed(from, Interest::All).await.expect("the log has it");
    feed.drain(&mut out).expect("nothing is overrun");
    assert_eq!(out.len(), 60);
    // A frame that is no longer kept is recreated for each that asks.
    let asked = std::cell::Cell::new(0);
    let encode = || {
        asked.set(asked.get() + 1);
        Ok::<_, ()>(Bytes::from_static(b"frame"))
    };
    let mut recent = cache.feed(out[40].revision, Interest::All).await.expect("feeds");
    let mut events = Vec::new();
    recent.drain(&mut events).expect("nothing is overrun");
    for (change, times) in [(&events[0], 2), (&events[18], 1)] {
        asked.set(0);
        for _ in 0..2 {
            assert_eq!(change.frame(1, encode), Ok(Bytes::from_static(b"frame")));
        }
        assert_eq!(asked.get(), times);
    }

    cache.ring.age(ring::YOUNG + Duration::from_secs(1));
    let (slots, bytes, framed) = cache.ring.held();
    assert!(
        bytes <= 1 << 20 && slots <= 2 && framed == slots as u64,
        "old ones go"
    );
    large["data"]["n"] = 100.into();
    put(&engine, Some(&cache), &large).await;
    assert_eq!(cache.ring.held().2, slots as u64 + 1);
}
