//! Priority and fairness as a whole: objects, requests, time.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::*;
use crate::request::{RequestContext, User};

/// The shares of upstream's levels.
const LEVELS: &str = r#"
{"name":"catch-all","spec":{"limited":{"lendablePercent":0,"limitResponse":{"type":"Reject"},"nominalConcurrencyShares":5},"type":"Limited"}}
{"name":"exempt","spec":{"exempt":{"lendablePercent":0,"nominalConcurrencyShares":0},"type":"Exempt"}}
{"name":"global-default","spec":{"limited":{"lendablePercent":50,"limitResponse":{"queuing":{"handSize":6,"queueLengthLimit":50,"queues":128},"type":"Queue"},"nominalConcurrencyShares":20},"type":"Limited"}}
{"name":"leader-election","spec":{"limited":{"lendablePercent":0,"limitResponse":{"queuing":{"handSize":4,"queueLengthLimit":50,"queues":16},"type":"Queue"},"nominalConcurrencyShares":10},"type":"Limited"}}
{"name":"node-high","spec":{"limited":{"lendablePercent":25,"limitResponse":{"queuing":{"handSize":6,"queueLengthLimit":50,"queues":64},"type":"Queue"},"nominalConcurrencyShares":40},"type":"Limited"}}
{"name":"system","spec":{"limited":{"lendablePercent":33,"limitResponse":{"queuing":{"handSize":6,"queueLengthLimit":50,"queues":64},"type":"Queue"},"nominalConcurrencyShares":30},"type":"Limited"}}
{"name":"workload-high","spec":{"limited":{"lendablePercent":50,"limitResponse":{"queuing":{"handSize":6,"queueLengthLimit":50,"queues":128},"type":"Queue"},"nominalConcurrencyShares":40},"type":"Limited"}}
{"name":"workload-low","spec":{"limited":{"lendablePercent":90,"limitResponse":{"queuing":{"handSize":6,"queueLengthLimit":50,"queues":128},"type":"Queue"},"nominalConcurrencyShares":100},"type":"Limited"}}
"#;

fn level(name: &str, spec: &Value) -> LevelObject {
    let object = json!({"metadata": {"name": name, "uid": format!("level-{name}")}, "spec": spec});
    LevelObject::read(&object).expect("a level")
}

/// A level with some shares that refuses.
fn rejecting(name: &str, shares: u32, lendable: u32, borrowing: Option<u32>) -> LevelObject {
    let spec = json!({
        "type": "Limited",
        "limited": {
            "nominalConcurrencyShares": shares, "lendablePercent": lendable, "borrowingLimitPercent": borrowing,
            "limitResponse": {"type": "Reject"},
        },
    });
    level(name, &spec)
}

fn usual_levels() -> Vec<LevelObject> {
    let lines = LEVELS.lines().filter(|line| !line.is_empty());
    let levels = lines.map(|line| {
        let fact: Value = serde_json::from_str(line).expect("a fact");
        level(fact["name"].as_str().expect("a name"), &fact["spec"])
    });
    levels.collect()
}

/// A schema for all requests of one user.
fn schema(name: &str, precedence: i64, level: &str, user: &str) -> FlowSchema {
    let object = json!({
        "metadata": {"name": name, "uid": format!("schema-{name}")},
        "spec": {
            "matchingPrecedence": precedence, "priorityLevelConfiguration": {"name": level},
            "distinguisherMethod": {"type": "ByUser"},
            "rules": [{
                "subjects": [{"kind": "User", "user": {"name": user}}],
                "resourceRules": [{
                    "verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "clusterScope": true, "namespaces": ["*"],
                }],
                "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}],
            }],
        },
    });
    FlowSchema::read(&object).expect("a schema")
}

fn context(user: &str, groups: &[&str], method: &http::Method, path: &str) -> Arc<RequestContext> {
    let uri: http::Uri = path.parse().expect("a path");
    let info = crate::request_info::resolve(method, &uri).expect("a request");
    let user = User {
        name: user.into(),
        groups: groups.iter().map(ToString::to_string).collect(),
        ..User::default()
    };
    Arc::new(RequestContext::new(info, user, String::new()))
}

/// A get of a pod by a user.
fn get(user: &str) -> Arc<RequestContext> {
    context(
        user,
        &["system:authenticated"],
        &http::Method::GET,
        "/api/v1/namespaces/n/pods/p",
    )
}

fn ask(control: &FlowControl, context: &Arc<RequestContext>) -> Turn {
    control.enter(&Asked {
        context,
        query: "",
        long_running: context.info.verb == "watch",
        probe: false,
        received: now(),
        deadline: Some(now() + Duration::from_secs(60)),
    })
}

#[track_caller]
fn runs(control: &FlowControl, user: &str) -> Seat {
    match ask(control, &get(user)) {
        Turn::Runs(_, seat) => seat,
        other => panic!("{user}: {other:?}"),
    }
}

#[track_caller]
fn waits(control: &FlowControl, user: &str) -> admit::Waits {
    match ask(control, &get(user)) {
        Turn::Waits(_, waits) => waits,
        other => panic!("{user}: {other:?}"),
    }
}

#[track_caller]
fn is_refused(control: &FlowControl, user: &str) {
    match ask(control, &get(user)) {
        Turn::Refused(_) => {}
        other => panic!("{user}: {other:?}"),
    }
}

fn control(seats: usize) -> Arc<FlowControl> {
    FlowControl::new(seats, Duration::from_secs(60), None)
}

/// One level with a queue and so many seats, for everybody but members of `system:masters`.
fn queueing(seats: usize) -> Arc<FlowControl> {
    let control = control(seats);
    let spec = json!({
        "type": "Limited",
        "limited": {
            "nominalConcurrencyShares": 1_000_000, "lendablePercent": 0,
            "limitResponse": {"type": "Queue", "queuing": {"queues": 64, "handSize": 8, "queueLengthLimit": 2}},
        },
    });
    let schemas = vec![schema("all", 100, "queue", "*")];
    control.set(Some(schemas), Some(vec![level("queue", &spec)]));
    control
}

fn seats(control: &FlowControl) -> BTreeMap<String, config::Seats> {
    let objects = control.config.lock();
    let levels = objects.config.levels.iter();
    levels
        .map(|(name, state)| (name.to_string(), state.seats))
        .collect()
}

#[tokio::test(start_paused = true)]
async fn without_objects_the_mandatory_ones_are_in_force() {
    let control = control(2);
    assert_eq!(control.snapshot.load().names(), ["exempt", "catch-all"]);
    let held = [runs(&control, "a"), runs(&control, "b")];
    is_refused(&control, "c");
    // Members of system:masters are never limited, and probes have an answer in any case.
    let root = context("root", &["system:masters"], &http::Method::GET, "/api/v1/pods");
    assert!(matches!(ask(&control, &root), Turn::Runs(..)));
    let probe = context("c", &[], &http::Method::GET, "/healthz");
    let asked = Asked {
        context: &probe,
        query: "",
        long_running: false,
        probe: true,
        received: now(),
        deadline: None,
    };
    assert!(matches!(control.enter(&asked), Turn::Free(Some(_))));
    drop(held);
    drop(runs(&control, "c"));
}

#[tokio::test(start_paused = true)]
async fn seats_are_those_of_upstream() {
    let control = control(600);
    control.set(None, Some(usual_levels()));
    assert!(
        !seats(&control).contains_key("system"),
        "the schemas are not known yet"
    );
    control.set(Some(Vec::new()), None);
    let found = seats(&control);
    // Recorded from kube-apiserver 1.36 with its default of 600: apiserver_flowcontrol_{nominal,lower,upper}_limit_seats.
    let check = |name: &str, nominal, least, most| {
        let seats = found[name];
        assert_eq!(
            (seats.nominal, seats.least, seats.most),
            (nominal, least, most),
            "{name}"
        );
    };
    check("catch-all", 13, 13, 613);
    check("exempt", 0, 0, 600);
    check("global-default", 49, 24, 649);
    check("leader-election", 25, 25, 625);
    check("node-high", 98, 73, 698);
    check("system", 74, 50, 674);
    check("workload-high", 98, 49, 698);
    check("workload-low", 245, 24, 845);
    let all: u64 = found.values().map(|seats| seats.current).sum();
    assert!((597..=607).contains(&all), "{found:?}");
}

#[tokio::test(start_paused = true)]
async fn schemas_are_tried_in_order() {
    let control = control(600);
    let schemas = vec![
        schema("z-first", 10, "a", "anna"),
        schema("b-second", 20, "a", "anna"),
        schema("a-second", 20, "a", "anna"),
        schema("dangling", 5, "missing", "*"),
    ];
    control.set(Some(schemas), Some(vec![rejecting("a", 10, 0, None)]));
    let snapshot = control.snapshot.load();
    assert_eq!(
        snapshot.names(),
        ["exempt", "z-first", "a-second", "b-second", "catch-all"]
    );
    let of = |user: &str| {
        let context = get(user);
        let schema = snapshot.classify(&context.user, &context.info);
        (schema.series.schema.to_string(), schema.headers.clone())
    };
    let (name, headers) = of("anna");
    assert_eq!(name, "z-first");
    let mut shown = http::HeaderMap::new();
    headers.insert(&mut shown);
    assert_eq!(shown["x-kubernetes-pf-flowschema-uid"], "schema-z-first");
    assert_eq!(shown["x-kubernetes-pf-prioritylevel-uid"], "level-a");
    assert_eq!(of("someone").0, "catch-all");
    // Even a user of no group at all.
    let nobody = context("x", &[], &http::Method::GET, "/api/v1/pods");
    assert_eq!(
        &*snapshot.classify(&nobody.user, &nobody.info).series.schema,
        "catch-all"
    );
}

#[tokio::test(start_paused = true)]
async fn dangling_schemas_are_named() {
    let control = control(600);
    let dangling = schema("dangling", 5, "missing", "*");
    control.set(
        Some(vec![dangling.clone()]),
        Some(vec![rejecting("a", 1, 0, None)]),
    );
    let wanted = control.conditions();
    assert_eq!(wanted, [follow::Dangling::of(&dangling, false)]);
    let is = |status: &str, reason: &str, message: &str| Some((status.into(), reason.into(), message.into()));
    let text = "This FlowSchema references the PriorityLevelConfiguration object named \"missing\"";
    let written = |dangling: Option<_>| FlowSchema {
        dangling,
        ..schema("dangling", 5, "missing", "*")
    };
    let not_found = is("True", "NotFound", &format!("{text} but there is no such object"));
    control.set(Some(vec![written(not_found.clone())]), None);
    assert_eq!(control.conditions(), []);
    // The level appears, with which the condition is out of date.
    control.set(None, Some(vec![rejecting("missing", 1, 0, None)]));
    assert_eq!(control.conditions(), [follow::Dangling::of(&dangling, true)]);
    assert_eq!(
        control.snapshot.load().names(),
        ["exempt", "dangling", "catch-all"]
    );
    let found = is("False", "Found", &format!("{text} and it exists"));
    control.set(Some(vec![written(found)]), None);
    assert_eq!(control.conditions(), []);
}

#[tokio::test(start_paused = true)]
async fn requests_wait_a_quarter_of_their_time() {
    let control = queueing(1);
    let held = runs(&control, "a");
    let begin = now();
    let waiting = tokio::spawn(waits(&control, "b").seat());
    assert!(waiting.await.unwrap().is_none());
    assert_eq!((now() - begin).as_secs(), 15);
    // One that is served in time.
    let waiting = tokio::spawn(waits(&control, "b").seat());
    tokio::task::yield_now().await;
    drop(held);
    let seat = waiting.await.unwrap();
    assert!(seat.is_some());
    waits(&control, "c");
}

#[tokio::test(start_paused = true)]
async fn requests_that_vanish_leave_their_queue() {
    let control = queueing(1);
    let held = runs(&control, "a");
    let waiting: Vec<admit::Waits> = (0..10).map(|_| waits(&control, "b")).collect();
    let totals = || {
        let objects = control.config.lock();
        let set = &objects.config.levels["queue"].level.lock().set;
        (set.totals().waiting, set.totals().executing)
    };
    assert_eq!(totals(), (10, 1));
    // Before and after they were polled.
    let mut waiting = waiting
        .into_iter()
        .map(|waits| Box::pin(waits.seat()))
        .collect::<Vec<_>>();
    for one in waiting.iter_mut().take(5) {
        assert!(futures_util::poll!(one).is_pending());
    }
    drop(waiting);
    assert_eq!(totals(), (0, 1));
    // One that has a seat and does not know it yet.
    let last = waits(&control, "b").seat();
    drop(held);
    assert_eq!(totals(), (0, 1));
    drop(last);
    assert_eq!(totals(), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn flows_share_the_seats_of_a_level() {
    let control = queueing(1);
    let held = runs(&control, "abuser");
    // More than half of what its hand of eight queues holds: it has all the seats that it may have.
    let mut flood = Vec::new();
    let refused = (0..100).find(|_| match ask(&control, &get("abuser")) {
        Turn::Waits(_, waits) => {
            flood.push(waits);
            false
        }
        _ => true,
    });
    assert_eq!(refused, Some(8));
    let polite = waits(&control, "polite");
    let seats: Vec<_> = flood
        .into_iter()
        .map(|waits| tokio::spawn(async { drop(waits.seat().await) }))
        .collect();
    drop(held);
    let begin = now();
    assert!(polite.seat().await.is_some());
    assert_eq!(now(), begin, "it does not wait for the flood");
    for seat in seats {
        seat.abort();
    }
}

#[tokio::test(start_paused = true)]
async fn levels_borrow_what_others_do_not_use() {
    let control = control(100);
    let levels = vec![rejecting("busy", 45, 0, None), rejecting("idle", 50, 90, None)];
    control.set(
        Some(vec![
            schema("busy", 20, "busy", "*"),
            schema("idle", 10, "idle", "x"),
            schema("idle-too", 11, "idle", "y"),
        ]),
        Some(levels),
    );
    let of = |name: &str| seats(&control)[name];
    assert_eq!((of("busy").nominal, of("idle").nominal), (45, 50));
    let task = tokio::spawn(control.clone().run());
    let mut held: Vec<Seat> = Vec::new();
    let fill = |held: &mut Vec<Seat>| {
        // No user has more than half of a level's seats.
        for user in ["a", "b", "c"] {
            while let Turn::Runs(_, seat) = ask(&control, &get(user)) {
                held.push(seat);
            }
        }
    };
    fill(&mut held);
    for _ in 0..12 {
        tokio::time::sleep(config::PERIOD).await;
        fill(&mut held);
    }
    // All but what the others never lend.
    let busy = held.len();
    assert!((80..=90).contains(&busy), "{busy} {:?}", seats(&control));
    assert!(of("idle").current >= of("idle").least);
    // It comes back to those that it belongs to: a fall is followed slowly, a rise at once.
    drop(held);
    let mut idle: Vec<Seat> = Vec::new();
    for _ in 0..60 {
        tokio::time::sleep(config::PERIOD).await;
        for user in ["x", "y"] {
            while let Turn::Runs(_, seat) = ask(&control, &get(user)) {
                idle.push(seat);
            }
        }
    }
    assert!(idle.len() >= 48, "{} {:?}", idle.len(), seats(&control));
    task.abort();
}

#[tokio::test(start_paused = true)]
async fn lingering_seats_are_given_back_by_time_alone() {
    let control = queueing(1);
    let task = tokio::spawn(control.clone().run());
    let watch = |_| {
        let context = context("w", &[], &http::Method::GET, "/api/v1/namespaces/n/pods?watch=1");
        control.watches.register(&context.info)
    };
    let watches: Vec<_> = (0..20).map(watch).collect();
    let write = context("a", &[], &http::Method::DELETE, "/api/v1/namespaces/n/pods/p");
    let Turn::Runs(_, seat) = ask(&control, &write) else {
        panic!("there is a seat")
    };
    drop(seat);
    // Nobody waits yet when the task looks.
    for _ in 0..3 {
        tokio::task::yield_now().await;
    }
    for (name, rounds) in [("b", 1), ("c", 3)] {
        for _ in 0..rounds {
            let begin = now();
            let Turn::Waits(_, turn) = ask(
                &control,
                &context(name, &[], &http::Method::DELETE, "/api/v1/namespaces/n/pods/p"),
            ) else {
                panic!("seats linger")
            };
            assert!(turn.seat().await.is_some());
            // Two seats for 5 ms, which is one for 10.
            let waited = now() - begin;
            assert!((10..=11).contains(&waited.as_millis()), "{waited:?}");
        }
    }
    drop(watches);
    task.abort();
}

#[tokio::test(start_paused = true)]
async fn there_is_no_timer_at_rest() {
    let control = queueing(1);
    let task = tokio::spawn(control.clone().run());
    tokio::task::yield_now().await;
    let begin = now();
    // Time would stand still for ever if nothing but this waited for it; a timer would be seen as a jump of ten seconds.
    assert!(control.at_rest.load(Ordering::Relaxed));
    let seat = runs(&control, "a");
    assert!(!control.at_rest.load(Ordering::Relaxed));
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(!control.at_rest.load(Ordering::Relaxed), "it runs");
    drop(seat);
    tokio::time::sleep(Duration::from_secs(3_600)).await;
    assert!(control.at_rest.load(Ordering::Relaxed));
    assert_eq!((now() - begin).as_secs(), 3_660);
    task.abort();
}

#[tokio::test(start_paused = true)]
async fn levels_go_when_their_requests_have_ended() {
    let control = queueing(3);
    let seat = runs(&control, "a");
    control.set(Some(Vec::new()), Some(Vec::new()));
    assert!(seats(&control).contains_key("queue"));
    assert_eq!(control.snapshot.load().names(), ["exempt", "catch-all"]);
    // New requests go to the catch-all level.
    drop(runs(&control, "b"));
    drop(seat);
    control.adjust(now());
    assert!(!seats(&control).contains_key("queue"));
    assert!(seats(&control).contains_key("catch-all"));
}

#[tokio::test(start_paused = true)]
async fn watches_count_until_they_end() {
    let control = queueing(5);
    let watch = context("a", &[], &http::Method::GET, "/api/v1/pods?watch=1");
    let write = context("a", &[], &http::Method::POST, "/api/v1/namespaces/n/pods");
    let Turn::Runs(flow, seat) = ask(&control, &watch) else {
        panic!("there is a seat")
    };
    drop(seat);
    assert_eq!(control.watches.interested_in(&write.info), 1);
    drop(flow);
    assert_eq!(control.watches.interested_in(&write.info), 0);
    // Others that last are not limited.
    let log = context("a", &[], &http::Method::GET, "/api/v1/namespaces/n/pods/p/log");
    let asked = Asked {
        context: &log,
        query: "",
        long_running: true,
        probe: false,
        received: now(),
        deadline: None,
    };
    assert!(matches!(control.enter(&asked), Turn::Free(None)));
}

#[tokio::test(start_paused = true)]
async fn metrics_tell_reads_from_writes_and_show_the_bounds_of_queues() {
    use crate::metrics::Collect;

    let control = queueing(4);
    let running: Vec<Seat> = ["a", "a", "b", "b"].map(|user| runs(&control, user)).into();
    tokio::time::advance(Duration::from_secs(1)).await;
    let waiting = waits(&control, "c");
    tokio::time::advance(Duration::from_secs(2)).await;
    let collected = || {
        let mut out = String::new();
        control.collect(&mut out);
        out
    };
    let out = collected();
    for expected in [
        "read_vs_write_current_requests_bucket{phase=\"executing\",request_kind=\"mutating\",le=\"0\"} 3000000000",
        "read_vs_write_current_requests_bucket{phase=\"executing\",request_kind=\"readOnly\",le=\"1\"} 0",
        "read_vs_write_current_requests_bucket{phase=\"executing\",request_kind=\"readOnly\",le=\"+Inf\"} 3000000000",
        "read_vs_write_current_requests_bucket{phase=\"waiting\",request_kind=\"readOnly\",le=\"0\"} 1000000000",
        "next_s_bounds{priority_level=\"queue\",bound=\"min\"}",
        "next_discounted_s_bounds{priority_level=\"queue\",bound=\"max\"}",
    ] {
        assert!(out.contains(expected), "{expected}\n{out}");
    }
    drop((running, waiting));
    tokio::time::advance(Duration::from_secs(3)).await;
    let out = collected();
    let idle = "{phase=\"waiting\",request_kind=\"readOnly\",le=\"0\"} 4000000000";
    assert!(out.contains(idle), "{out}");
    assert!(!out.contains("s_bounds{"), "nothing waits:\n{out}");
}
