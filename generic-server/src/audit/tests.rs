//! Events and their ways to a log and into batches, without a server.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::HeaderValue;
use machinery::limits;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use super::delivery::Delivery;
use super::event::Event;
use super::metrics::{AuditMetrics, Plugin};
use super::options::{Batching, Format, Mode, Truncation};
use super::sink::{Destination, Sink};
use super::{Level, Stage};
use crate::metrics::Collect;
use crate::request::User;
use crate::request::audit::Verdict;
use crate::request::audit::{Arrival, Capture, Layer};
use crate::request_info;
use crate::spawn::Tasks;

fn capture(level: Level) -> Capture {
    capture_of(level, Instant::now())
}

/// Of a request that arrived then.
fn capture_of(level: Level, received: Instant) -> Capture {
    let uri = "/api/v1/namespaces/ns/secrets?fieldManager=%22x";
    let request = http::Request::post(uri)
        .header("user-agent", "kubectl/\"v1\"")
        .body(())
        .unwrap();
    let (head, ()) = request.into_parts();
    let info = request_info::resolve(&head.method, &head.uri).unwrap();
    let user = User {
        name: "alice".into(),
        groups: vec!["dev".into(), "q\"a".into()],
        extra: BTreeMap::from([("k".into(), vec!["v".into()])]),
        ..User::default()
    };
    let arrival = Arrival {
        user: Some(&user),
        head: &head,
        info: &info,
        audit_id: &HeaderValue::from_static("id-1"),
        peer: Some("10.0.0.1".parse().unwrap()),
        received,
    };
    let verdict = Verdict {
        level,
        ..Verdict::default()
    };
    Capture::new(verdict, &arrival)
}

fn object() -> Value {
    json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s", "uid": "u"}, "data": {"a": "PGE+"}})
}

fn decoded(event: &Event<'_>) -> Value {
    let text = event.json();
    assert!(!text.contains(&b'\n'), "one line");
    let mut value: Value = serde_json::from_slice(&text).unwrap();
    for time in ["requestReceivedTimestamp", "stageTimestamp"] {
        assert_eq!(
            value[time].as_str().unwrap().len(),
            "2006-01-02T15:04:05.000000Z".len()
        );
        value.as_object_mut().unwrap().remove(time);
    }
    value
}

#[test]
fn an_event_has_upstreams_members() {
    let capture = capture(Level::RequestResponse);
    capture.request_object(&object());
    capture.response_object(Bytes::from(" {\"kind\":\"Secret\"}\n"));
    capture.annotate("b".into(), "2".into());
    capture.annotate("a".into(), "1".into());
    let event = Event::new(&capture, Stage::ResponseComplete, Some(201));
    let expected = json!({
        "kind": "Event", "apiVersion": "audit.k8s.io/v1", "level": "RequestResponse", "auditID": "id-1", "stage": "ResponseComplete",
        "requestURI": "/api/v1/namespaces/ns/secrets?fieldManager=%22x", "verb": "create",
        "user": {"username": "alice", "groups": ["dev", "q\"a"], "extra": {"k": ["v"]}},
        "sourceIPs": ["10.0.0.1"], "userAgent": "kubectl/\"v1\"",
        "objectRef": {"resource": "secrets", "namespace": "ns", "name": "s", "uid": "u", "apiVersion": "v1"},
        "responseStatus": {"metadata": {}, "code": 201},
        "requestObject": object(), "responseObject": {"kind": "Secret"}, "annotations": {"a": "1", "b": "2"},
    });
    assert_eq!(decoded(&event), expected);
    let line = event.line();
    let (_, line) = line.split_once(' ').unwrap();
    assert_eq!(
        line,
        r#"AUDIT: id="id-1" stage="ResponseComplete" ip="10.0.0.1" method="create" user="alice" groups="\"dev\",\"q\\\"a\"" as="<self>" asgroups="<lookup>" user-agent="kubectl/\"v1\"" namespace="ns" uri="/api/v1/namespaces/ns/secrets?fieldManager=%22x" response="201""#
    );
}

#[test]
fn a_level_holds_no_more_than_it_says() {
    #[track_caller]
    fn check(level: Level, request: bool, response: bool) {
        let capture = capture(level);
        capture.request_object(&object());
        let refusal = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": "no", "reason": "Forbidden", "details": {"name": "s"}, "code": 403});
        capture.status(&refusal.to_string().into());
        let event = decoded(&Event::new(&capture, Stage::ResponseComplete, Some(403)));
        assert_eq!(event.get("requestObject").is_some(), request);
        assert_eq!(event.get("responseObject").is_some(), response);
        let status = json!({"metadata": {}, "status": "Failure", "message": "no", "reason": "Forbidden", "details": {"name": "s"}, "code": 403});
        assert_eq!(event["responseStatus"], status);
        assert_eq!(event["objectRef"]["name"], "s");
    }
    check(Level::Metadata, false, false);
    check(Level::Request, true, false);
    check(Level::RequestResponse, true, true);
}

#[test]
fn an_event_is_one_line_whatever_was_answered() {
    let capture = capture(Level::RequestResponse);
    let forged = "{\"kind\":\"Status\",\"details\":\n{\"kind\":\"Event\"}\n,\"code\":404}";
    capture.status(&forged.into());
    let event = decoded(&Event::new(&capture, Stage::ResponseComplete, Some(404)));
    assert_eq!(event["responseObject"]["details"]["kind"], "Event");
    capture.response_object("{\n}".into());
    let event = decoded(&Event::new(&capture, Stage::ResponseComplete, Some(200)));
    assert_eq!(event["responseObject"], json!({}));
}

#[test]
fn an_object_past_the_bound_is_left_out() {
    #[track_caller]
    fn check(bytes: usize, kept: bool) {
        let capture = capture(Level::RequestResponse);
        capture.response_object(format!("\"{}\"", "x".repeat(bytes - 2)).into());
        let text = Event::new(&capture, Stage::ResponseComplete, Some(200)).json();
        assert_eq!(text.len() > limits::AUDIT_OBJECT_BYTES, kept);
        let marked = text.ends_with(b"\"annotations\":{\"audit.k8s.io/truncated\":\"true\"}}");
        assert_eq!(marked, !kept);
    }
    check(limits::AUDIT_OBJECT_BYTES, true);
    check(limits::AUDIT_OBJECT_BYTES + 1, false);
}

/// Takes deliveries once there is a permit for them.
#[derive(Debug)]
struct Deliveries {
    seen: Mutex<Vec<usize>>,
    begun: AtomicUsize,
    permits: Semaphore,
    concurrent: bool,
}

#[async_trait::async_trait]
impl Destination for Deliveries {
    async fn deliver(&self, events: Vec<Bytes>) -> Result<(), String> {
        self.begun.fetch_add(1, Ordering::Relaxed);
        self.permits.acquire().await.unwrap().forget();
        self.seen.lock().push(events.len());
        Ok(())
    }

    fn is_concurrent(&self) -> bool {
        self.concurrent
    }
}

const BATCHING: Batching = Batching {
    buffer_size: 3,
    max_size: 2,
    max_wait: Duration::from_secs(30),
    throttle: None,
};

fn delivery(
    mode: Mode,
    batching: Batching,
    truncation: Option<Truncation>,
) -> (Delivery, Arc<Deliveries>, Arc<AuditMetrics>) {
    delivery_to(false, mode, batching, truncation)
}

/// To a log, or to what takes batches at the same time.
fn delivery_to(
    concurrent: bool,
    mode: Mode,
    batching: Batching,
    truncation: Option<Truncation>,
) -> (Delivery, Arc<Deliveries>, Arc<AuditMetrics>) {
    let to = Arc::new(Deliveries {
        seen: Mutex::default(),
        begun: AtomicUsize::new(0),
        permits: Semaphore::new(0),
        concurrent,
    });
    let metrics = Arc::new(AuditMetrics::default());
    let delivery = Delivery::new(
        Plugin::Log,
        to.clone(),
        Format::Json,
        mode,
        (batching, truncation),
        (&metrics, &Tasks::new()),
    );
    (delivery, to, metrics)
}

fn lost(metrics: &AuditMetrics, plugin: &str) -> u64 {
    let mut text = String::new();
    metrics.collect(&mut text);
    let name = format!("apiserver_audit_error_total{{plugin=\"{plugin}\"}} ");
    text.lines()
        .find_map(|line| line.strip_prefix(&name))
        .map_or(0, |count| count.parse().unwrap())
}

#[tokio::test(start_paused = true)]
async fn batches_are_full_or_old() {
    let (delivery, to, _) = delivery(Mode::Batch, BATCHING, None);
    to.permits.add_permits(9);
    let capture = capture(Level::Metadata);
    let event = Event::new(&capture, Stage::ResponseComplete, Some(200));
    for _ in 0..3 {
        assert!(delivery.take(&event).await);
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(*to.seen.lock(), [2], "the third event waits for another");
    tokio::time::sleep(BATCHING.max_wait).await;
    assert_eq!(*to.seen.lock(), [2, 1]);
    assert!(delivery.take(&event).await);
    delivery.flush().await;
    assert_eq!(*to.seen.lock(), [2, 1, 1], "a stop waits for nothing");
}

#[tokio::test(start_paused = true)]
async fn batches_have_so_many_bytes() {
    /// How many events each batch of events of these sizes has.
    async fn batches(sizes: &[usize]) -> Vec<usize> {
        let many = Batching {
            buffer_size: 9,
            max_size: 9,
            ..BATCHING
        };
        let (delivery, to, _) = delivery(Mode::Batch, many, None);
        to.permits.add_permits(9);
        let encoded = async |filler: usize| {
            let capture = capture(Level::RequestResponse);
            capture.response_object(format!("{{\"a\":\"{}\"}}", "x".repeat(filler)).into());
            let event = Event::new(&capture, Stage::ResponseComplete, Some(200));
            if filler > 0 {
                assert!(delivery.take(&event).await);
            }
            event.json().len()
        };
        let around = encoded(0).await;
        for size in sizes {
            assert_eq!(encoded(size - around).await, *size);
        }
        delivery.flush().await;
        to.seen.lock().clone()
    }
    const HALF: usize = limits::AUDIT_BATCH_BYTES / 2;
    assert_eq!(batches(&[HALF, HALF]).await, [2]);
    assert_eq!(batches(&[HALF, HALF + 1]).await, [1, 1]);
    let larger = limits::AUDIT_BATCH_BYTES + 1;
    assert_eq!(batches(&[HALF, larger, HALF]).await, [1, 1, 1]);
}

#[tokio::test(start_paused = true)]
async fn so_many_batches_are_on_their_way_at_once() {
    let one_by_one = Batching {
        buffer_size: 99,
        max_size: 1,
        ..BATCHING
    };
    for (concurrent, most) in [(true, limits::AUDIT_DELIVERIES), (false, 1)] {
        let (delivery, to, metrics) = delivery_to(concurrent, Mode::Batch, one_by_one, None);
        let capture = capture(Level::Metadata);
        let event = Event::new(&capture, Stage::ResponseComplete, Some(200));
        for sent in 1..=most + 3 {
            assert!(delivery.take(&event).await);
            tokio::time::sleep(Duration::from_secs(1)).await;
            assert_eq!(to.begun.load(Ordering::Relaxed), sent.min(most));
        }
        to.permits.add_permits(1);
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(to.begun.load(Ordering::Relaxed), most + 1);
        to.permits.add_permits(99);
        delivery.flush().await;
        assert_eq!((to.seen.lock().len(), lost(&metrics, "buffered")), (most + 3, 0));
    }
}

#[tokio::test(start_paused = true)]
async fn what_a_full_queue_does_not_take_is_counted() {
    let (delivery, to, metrics) = delivery(Mode::Batch, BATCHING, None);
    let capture = capture(Level::Metadata);
    let event = Event::new(&capture, Stage::ResponseComplete, Some(200));
    for _ in 0..20 {
        assert!(delivery.take(&event).await, "requests go on");
        tokio::time::sleep(Duration::from_secs(60)).await;
    }
    // One batch is under way, one waits for it, and the queue is full.
    let held = 20 - lost(&metrics, "buffered");
    assert!((3..8).contains(&held), "{held}");
    to.permits.add_permits(99);
    delivery.flush().await;
    assert_eq!(to.seen.lock().iter().sum::<usize>() as u64, held);
    assert!(delivery.take(&event).await);
    assert_eq!(lost(&metrics, "buffered"), 21 - held, "after the stop");
}

#[tokio::test(start_paused = true)]
async fn throttled_batches_come_in_time() {
    let throttled = Batching {
        buffer_size: 100,
        max_size: 1,
        throttle: Some((2.0, 3)),
        ..BATCHING
    };
    let (delivery, to, _) = delivery(Mode::Batch, throttled, None);
    to.permits.add_permits(99);
    let capture = capture(Level::Metadata);
    for _ in 0..10 {
        delivery
            .take(&Event::new(&capture, Stage::ResponseComplete, Some(200)))
            .await;
    }
    for (seconds, expected) in [(0.1, 3), (1.0, 5), (1.0, 7)] {
        tokio::time::sleep(Duration::from_secs_f64(seconds)).await;
        assert_eq!(to.seen.lock().len(), expected);
    }
}

#[tokio::test(start_paused = true)]
async fn a_blocking_sink_holds_requests_up() {
    let (delivery, to, _) = delivery(Mode::Blocking, BATCHING, None);
    let capture = capture(Level::Metadata);
    let event = Event::new(&capture, Stage::ResponseComplete, Some(200));
    let taken = delivery.take(&event);
    tokio::pin!(taken);
    assert!(
        tokio::time::timeout(Duration::from_secs(1), &mut taken)
            .await
            .is_err()
    );
    to.permits.add_permits(1);
    assert!(taken.await);
    // An event of a request that has ended is delivered without it.
    delivery.offer(&event);
    to.permits.add_permits(1);
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(*to.seen.lock(), [1, 1]);
}

#[tokio::test(start_paused = true)]
async fn large_events_lose_their_objects_and_larger_ones_are_lost() {
    async fn check(max_event_bytes: usize, expected: Option<bool>) {
        let bounds = Truncation {
            max_batch_bytes: 1 << 20,
            max_event_bytes,
        };
        let (delivery, to, metrics) = delivery(Mode::Blocking, BATCHING, Some(bounds));
        to.permits.add_permits(1);
        let capture = capture(Level::Request);
        capture.request_object(&object());
        let event = Event::new(&capture, Stage::ResponseComplete, Some(200));
        let (whole, cut) = (event.json(), event.truncated());
        assert!(cut.len() < whole.len() && cut.ends_with(b"{\"audit.k8s.io/truncated\":\"true\"}}"));
        assert!(delivery.take(&event).await);
        assert_eq!(
            to.seen.lock().len(),
            usize::from(expected.is_some()),
            "{max_event_bytes}"
        );
        assert_eq!(lost(&metrics, "truncate"), u64::from(expected.is_none()));
    }
    let capture = capture(Level::Request);
    capture.request_object(&object());
    let event = Event::new(&capture, Stage::ResponseComplete, Some(200));
    // The line's end counts.
    check(event.json().len() + 1, Some(true)).await;
    check(event.json().len(), Some(false)).await;
    check(event.truncated().len() + 1, Some(false)).await;
    check(event.truncated().len(), None).await;
}

#[test]
fn slow_requests_say_where_their_time_has_gone() {
    let annotations = |ago: u64| {
        let received = Instant::now().checked_sub(Duration::from_millis(ago)).unwrap();
        let capture = capture_of(Level::Metadata, received);
        capture.took(Layer::Authorization, Duration::from_millis(300));
        capture.took(Layer::Authorization, Duration::from_millis(250));
        capture.took(Layer::Queue, Duration::from_micros(1));
        capture.note_latencies();
        capture.state.into_inner().annotations
    };
    assert_eq!(annotations(400), BTreeMap::new());
    let mut found = annotations(600);
    let total = found.remove("apiserver.latency.k8s.io/total").unwrap();
    assert!(total.starts_with("60") && total.ends_with("ms"), "{total}");
    let expected = [
        ("apiserver.latency.k8s.io/apf-queue-wait", "1µs"),
        ("apiserver.latency.k8s.io/authorization", "550ms"),
    ];
    let expected = expected.map(|(key, value)| (key.to_string(), value.to_string()));
    assert_eq!(found, BTreeMap::from(expected));
}
