use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::Duration;

use futures_util::FutureExt;
use http_body_util::StreamBody;

use super::*;
use crate::request::{Request, empty, full};
use crate::serve::{ConnectionInfo, ConnectionMetrics, Handler};

fn user(name: &str, groups: &[&str]) -> User {
    User {
        name: name.into(),
        groups: groups.iter().map(|group| (*group).to_string()).collect(),
        ..User::default()
    }
}

#[test]
fn budgets() {
    #[track_caller]
    fn check(charged: &[(&str, usize)], asked: (&str, usize), expected: bool) {
        let budget = Arc::new(ResponseBudget::new(100, 40));
        let _charges: Vec<Charge> = charged
            .iter()
            .map(|(user, bytes)| budget.charge(user, *bytes))
            .collect();
        assert_eq!(budget.admits(&user(asked.0, &[]), asked.1), expected);
        assert!(budget.admits(&user(asked.0, &["system:masters"]), asked.1));
    }
    check(&[], ("a", 40), true);
    check(&[], ("a", 41), false);
    check(&[("a", 30)], ("a", 10), true);
    check(&[("a", 30)], ("a", 11), false);
    check(&[("a", 20), ("a", 10)], ("a", 11), false);
    check(&[("a", 40)], ("b", 40), true);
    check(&[("a", 40), ("b", 40)], ("c", 20), true);
    check(&[("a", 40), ("b", 40)], ("c", 21), false);
}

#[test]
fn the_default_budgets() {
    let own = limits::RESPONSE_BYTES_PER_USER;
    let budget = Arc::new(ResponseBudget::default());
    let _own = budget.charge("a", own - 1);
    assert!(budget.admits(&user("a", &[]), 1));
    assert!(!budget.admits(&user("a", &[]), 2));
    let _others = budget.charge("b", limits::RESPONSE_BYTES - own);
    assert!(budget.admits(&user("c", &[]), 1));
    assert!(!budget.admits(&user("c", &[]), 2));
}

#[test]
fn accounts_end_with_their_last_charge() {
    let budget = Arc::new(ResponseBudget::new(100, 40));
    let (first, second) = (budget.charge("a", 10), budget.charge("a", 5));
    assert_eq!(budget.bytes(), 15);
    first.sub(4);
    drop(first);
    assert_eq!((budget.bytes(), budget.accounts.lock().len()), (5, 1));
    drop(second);
    assert_eq!((budget.bytes(), budget.accounts.lock().len()), (0, 0));
}

#[test]
fn sizes() {
    #[track_caller]
    fn check(body: Body, expected: Option<usize>) {
        assert_eq!(size(&Response::new(body)), expected);
    }
    check(empty(), None);
    check(full(vec![0; limits::SMALL_RESPONSE_BYTES]), None);
    let past = limits::SMALL_RESPONSE_BYTES + 1;
    check(full(vec![0; past]), Some(past));
    check(pieces(1), Some(limits::PIECE_BYTES));
}

/// A stream of pieces.
fn pieces(count: usize) -> Body {
    let frames = (0..count).map(|_| Ok(Frame::data(Bytes::from(vec![b'x'; limits::PIECE_BYTES]))));
    StreamBody::new(futures_util::stream::iter(frames)).boxed_unsync()
}

/// The body as it is sent, the budget that it is charged to and a guard that it holds.
fn sending(body: Body, connection: bool, seconds: u64) -> (Body, Arc<ResponseBudget>, Arc<()>) {
    let (budget, guard) = (Arc::new(ResponseBudget::default()), Arc::new(()));
    let response = Response::new(body);
    let deadline = Instant::now() + Duration::from_secs(seconds);
    let limits = SendLimits {
        charge: budget.charge("a", size(&response).unwrap()),
        deadline: Some(deadline.into_std()),
        connection,
        metrics: Metrics::new(),
        counted: Metrics::new().request(crate::metrics::Labels::default()),
        guard: Box::new(guard.clone()),
    };
    (bind(response, limits).into_body(), budget, guard)
}

#[tokio::test(start_paused = true)]
async fn unread_answers_are_charged_and_stop_encoding() {
    let (mut body, budget, guard) = sending(pieces(10), true, 60);
    let mut untaken = VecDeque::new();
    while let Some(frame) = body.frame().now_or_never() {
        untaken.push_back(frame.unwrap().unwrap().into_data().unwrap());
    }
    let window = limits::RESPONSE_WINDOW_BYTES / limits::PIECE_BYTES + 1;
    assert_eq!(untaken.len(), window);
    assert_eq!(budget.bytes(), window * limits::PIECE_BYTES);

    // Each piece that is taken makes room for one.
    for _ in window..10 {
        untaken.pop_front();
        untaken.push_back(body.frame().await.unwrap().unwrap().into_data().unwrap());
        assert_eq!(budget.bytes(), window * limits::PIECE_BYTES);
    }
    untaken.truncate(1);
    assert!(body.frame().now_or_never().is_none(), "the last is not taken");
    assert_eq!(Arc::strong_count(&guard), 2, "and the seat is held");
    untaken.clear();
    assert!(body.frame().await.is_none());
    assert_eq!((budget.bytes(), Arc::strong_count(&guard)), (0, 1));
}

#[tokio::test(start_paused = true)]
async fn answers_unread_in_time_are_cut() {
    for body in [pieces(10), pieces(1), full(vec![0; 1 << 20])] {
        let (mut body, budget, guard) = sending(body, true, 5);
        let mut untaken = Vec::new();
        let cut = loop {
            match body.frame().await.expect("not the end") {
                Ok(frame) => untaken.push(frame),
                Err(error) => break error,
            }
        };
        assert_eq!(cut.to_string(), Expired.to_string());
        assert_eq!(Arc::strong_count(&guard), 1);
        assert!(body.frame().await.is_none());
        drop((body, untaken));
        assert_eq!(budget.bytes(), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn callers_in_the_process_may_gather_it() {
    let (body, budget, guard) = sending(pieces(10), false, 60);
    let all = body.collect().await.unwrap().to_bytes();
    assert_eq!(all.len(), 10 * limits::PIECE_BYTES);
    assert_eq!((budget.bytes(), Arc::strong_count(&guard)), (0, 1));
}

/// Answers every request with twenty pieces.
struct Answering {
    budget: Arc<ResponseBudget>,
    guard: Arc<()>,
    seconds: u64,
}

impl Handler for Answering {
    fn handle(self: Arc<Self>, _: Request) -> Pin<Box<dyn Future<Output = Response> + Send>> {
        let response = Response::new(pieces(20));
        let limits = SendLimits {
            charge: self.budget.charge("a", limits::PIECE_BYTES),
            deadline: Some(std::time::Instant::now() + Duration::from_secs(self.seconds)),
            connection: true,
            metrics: Metrics::new(),
            counted: Metrics::new().request(crate::metrics::Labels::default()),
            guard: Box::new(self.guard.clone()),
        };
        Box::pin(std::future::ready(bind(response, limits)))
    }

    fn connection_metrics(&self) -> Arc<ConnectionMetrics> {
        Arc::default()
    }
}

/// An answer that came by a connection in memory, whose client reads it or lets it be.
async fn ask(http2: bool, seconds: u64, read: bool) -> (Result<usize, String>, usize, usize) {
    let (budget, guard) = (Arc::new(ResponseBudget::default()), Arc::new(()));
    let handler = Answering {
        budget: budget.clone(),
        guard: guard.clone(),
        seconds,
    };
    let server = crate::serve::Server::new(Arc::new(handler));
    let peer = SocketAddr::from(([127, 0, 0, 1], 1));
    let stream =
        hyper_util::rt::TokioIo::new(server.connect_in_memory(ConnectionInfo::new(peer, Vec::new())));
    let request = http::Request::get("http://a/")
        .header("host", "a")
        .body(empty())
        .unwrap();
    let response = if http2 {
        let executor = hyper_util::rt::TokioExecutor::new();
        let (mut client, connection) = hyper::client::conn::http2::handshake(executor, stream)
            .await
            .unwrap();
        tokio::spawn(connection);
        client.send_request(request).await.unwrap()
    } else {
        let (mut client, connection) = hyper::client::conn::http1::handshake(stream).await.unwrap();
        tokio::spawn(connection);
        client.send_request(request).await.unwrap()
    };
    let body = response.into_body();
    if !read {
        // The seat is released although the client does not read.
        let given_back = async {
            while Arc::strong_count(&guard) > 2 {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(Duration::from_secs(60), given_back)
            .await
            .expect("in time");
    }
    let outcome = body.collect().await.map(|all| all.to_bytes().len());
    let outcome = outcome.map_err(|error| error.to_string());
    drop(server);
    (outcome, budget.bytes(), Arc::strong_count(&guard))
}

#[tokio::test]
async fn over_connections() {
    for http2 in [false, true] {
        let (outcome, bytes, _) = ask(http2, 60, true).await;
        assert_eq!(outcome, Ok(20 * limits::PIECE_BYTES), "http2: {http2}");
        assert_eq!(bytes, 0, "http2: {http2}");
        let (outcome, ..) = ask(http2, 0, false).await;
        assert!(outcome.is_err(), "http2: {http2}");
    }
}
