//! Heads: targets, queries, headers, methods, and what becomes of them in metrics.

use std::time::Duration;

use super::attack;
use crate::{Arena, Attack, Bound, Credential, Error, Outcome, Place, Shot};

const PATIENCE: Duration = Duration::from_secs(10);
/// How much 800 invented names may add to the metrics.
const METRICS_GROWTH: usize = 256 * 1024;
const SERVED_OR_REFUSED: Bound = Bound::codes(&[200, 400, 413, 414, 431]);

pub(super) fn attacks() -> Vec<Attack> {
    vec![
        attack(
            "Label selector of 9,000 requirements",
            "5",
            Place::Quick,
            SERVED_OR_REFUSED,
            |arena| {
                let selector: Vec<String> = (0..9_000).map(|i| format!("k{i}")).collect();
                Box::pin(listed(arena, format!("labelSelector={}", selector.join(","))))
            },
        ),
        attack(
            "Label selector with one set of 9,000 values",
            "5",
            Place::Quick,
            SERVED_OR_REFUSED,
            |arena| {
                let values: Vec<String> = (0..9_000).map(|i| format!("v{i}")).collect();
                Box::pin(listed(
                    arena,
                    format!("labelSelector=k+in+({})", values.join(",")),
                ))
            },
        ),
        attack(
            "Field selector of 3,000 requirements",
            "5",
            Place::Quick,
            SERVED_OR_REFUSED,
            |arena| {
                Box::pin(listed(
                    arena,
                    format!("fieldSelector={}", "metadata.name!=x,".repeat(3_000)),
                ))
            },
        ),
        attack(
            "20,000 pairs in a query",
            "5",
            Place::Quick,
            SERVED_OR_REFUSED,
            |arena| Box::pin(listed(arena, "a&".repeat(20_000))),
        ),
        attack(
            "A target of 60 KB",
            "13",
            Place::Quick,
            Bound::codes(&[200]),
            |arena| Box::pin(listed(arena, format!("x={}", "x".repeat(60_000)))),
        ),
        attack(
            "A target of 900 KB",
            "13",
            Place::Quick,
            Bound::codes(&[200, 400, 414, 431]),
            |arena| {
                Box::pin(raw(
                    arena,
                    format!(
                        "GET /version?{} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
                        "x".repeat(900_000)
                    ),
                ))
            },
        ),
        attack(
            "An Accept header of 900 KB",
            "13",
            Place::Quick,
            Bound::codes(&[200, 400, 406, 431]),
            |arena| {
                let accept = "application/x;q=0.1,".repeat(45_000);
                Box::pin(raw(
                    arena,
                    format!(
                        "GET /version HTTP/1.1\r\nHost: a\r\nAccept: {accept}\r\nConnection: close\r\n\r\n"
                    ),
                ))
            },
        ),
        attack("90 headers", "13", Place::Quick, Bound::codes(&[200]), |arena| {
            Box::pin(raw(arena, headers(90)))
        }),
        attack(
            "900 headers",
            "13",
            Place::Quick,
            Bound::codes(&[200, 431]),
            |arena| Box::pin(raw(arena, headers(900))),
        ),
        attack(
            "20,000 headers",
            "13",
            Place::Quick,
            Bound::codes(&[200, 400, 431]),
            |arena| Box::pin(raw(arena, headers(20_000))),
        ),
        attack(
            "No Host header",
            "13",
            Place::Quick,
            Bound::codes(&[400]),
            |arena| {
                Box::pin(raw(
                    arena,
                    "GET /version HTTP/1.1\r\nConnection: close\r\n\r\n".into(),
                ))
            },
        ),
        attack(
            "Two Host headers",
            "13",
            Place::Quick,
            Bound::codes(&[400]),
            |arena| {
                Box::pin(raw(
                    arena,
                    "GET /version HTTP/1.1\r\nHost: a\r\nHost: b\r\nConnection: close\r\n\r\n".into(),
                ))
            },
        ),
        attack(
            "A watch for 2^63 - 1 seconds",
            "13",
            Place::Quick,
            Bound::codes(&[200, 400]),
            |arena| Box::pin(long_watch(arena)),
        ),
        attack(
            "A bad escape in a query of a list",
            "7",
            Place::Quick,
            Bound::codes(&[200, 400]),
            |arena| Box::pin(listed(arena, "%zz=1&limit=1;".into())),
        ),
        attack(
            "Metrics: 800 invented groups, resources and verbs",
            "12",
            Place::Quick,
            Bound::codes(&[200, 403, 404, 405]),
            |arena| Box::pin(metrics(arena)),
        ),
    ]
}

fn headers(count: usize) -> String {
    let more: String = (0..count).map(|i| format!("x-{i}: y\r\n")).collect();
    format!("GET /version HTTP/1.1\r\nHost: a\r\n{more}Connection: close\r\n\r\n")
}

async fn listed(arena: &Arena, query: String) -> Result<Outcome, Error> {
    let path = arena.path(&format!("configmaps?{query}"));
    arena.shoot(Shot::get(path).by(&arena.tenant)).await
}

async fn raw(arena: &Arena, head: String) -> Result<Outcome, Error> {
    let mut outcome = Outcome::new();
    outcome.count(&arena.target.raw(&arena.nobody, head.as_bytes(), PATIENCE).await?);
    Ok(outcome)
}

async fn long_watch(arena: &Arena) -> Result<Outcome, Error> {
    let path = arena.path("configmaps?watch=1&timeoutSeconds=9223372036854775807");
    let response = arena.target.open(Shot::get(path).by(&arena.tenant)).await?;
    let mut outcome = Outcome::new();
    outcome.codes.insert(response.status().as_u16(), 1);
    Ok(outcome)
}

async fn metrics(arena: &Arena) -> Result<Outcome, Error> {
    let before = arena.send(Shot::get("/metrics")).await?.bytes;
    let mut outcome = Outcome::new();
    let mut send = arena.target.connect(&Credential::Admin).await?;
    for i in 0..800 {
        let shot = match i % 4 {
            0 => Shot::get(format!("/apis/g{i}.io/v1/namespaces/n{i}/things{i}")),
            1 => Shot::get(arena.path(&format!("things{i}"))),
            2 => Shot::get(arena.path(&format!("pods/p/sub{i}"))),
            _ => Shot::of("OPTIONS", format!("/apis/g.io/v{i}/things")).header("accept", format!("x/y{i}")),
        };
        let shot = shot.header("x-probe", format!("agent-{i}"));
        outcome.count(&arena.target.send_over(&mut send, shot).await?);
    }
    let after = arena.send(Shot::get("/metrics")).await?.bytes;
    let growth = after.saturating_sub(before);
    outcome.note = format!("/metrics grew by {} KiB", growth / 1024);
    if growth > METRICS_GROWTH {
        outcome.broke(format!("/metrics grew by {} KiB", growth / 1024));
    }
    Ok(outcome)
}
