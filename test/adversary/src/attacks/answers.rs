//! Unread answers, and answers far larger than their requests.

use std::time::Duration;

use serde_json::json;

use super::attack;
use crate::{Arena, Attack, Bound, Error, Outcome, Place, Shot};

/// ConfigMaps and bytes of each: 20 MB in all.
const OBJECTS: usize = 40;
const SIZE: usize = 500_000;
/// Unread answers at once.
const UNREAD: usize = 40;
/// How long they stay unread.
const PAUSE: Duration = Duration::from_secs(8);

/// 40 answers of 20 MB are 800 MB; the objects themselves may be in memory several times while they are written.
const UNREAD_BOUND: Bound = Bound::codes(&[200, 429, 503]).memory(300.0).seconds(120);

pub(super) fn attacks() -> Vec<Attack> {
    const JSON: &str = "application/json";
    const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
    const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";
    const YAML: &str = "application/yaml";
    vec![
        attack(
            "40 unread lists of 20 MB, JSON",
            "11",
            Place::Large,
            UNREAD_BOUND,
            |arena| Box::pin(unread(arena, JSON, "")),
        ),
        attack(
            "40 unread lists of 20 MB, protobuf",
            "11",
            Place::Large,
            UNREAD_BOUND,
            |arena| Box::pin(unread(arena, PROTOBUF, "")),
        ),
        attack(
            "40 unread lists of 20 MB, YAML",
            "11",
            Place::Large,
            UNREAD_BOUND,
            |arena| Box::pin(unread(arena, YAML, "")),
        ),
        attack(
            "40 unread lists of 20 MB, Table with whole objects",
            "11",
            Place::Large,
            UNREAD_BOUND,
            |arena| Box::pin(unread(arena, TABLE, "?includeObject=Object")),
        ),
        attack(
            "40 unread lists of 20 MB, gzip",
            "11",
            Place::Large,
            UNREAD_BOUND,
            |arena| Box::pin(unread(arena, "gzip", "")),
        ),
        attack(
            "40 stalled watches of 20 MB of events",
            "held",
            Place::Large,
            UNREAD_BOUND,
            |arena| Box::pin(stalled(arena)),
        ),
    ]
}

async fn fill(arena: &Arena) -> Result<(), Error> {
    let space = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "adversary-large"}});
    arena.made("/api/v1/namespaces", &space).await?;
    // Text that gzip cannot make small: a counter's digits in an odd order.
    let mut state = 1_u64;
    let text: String = (0..SIZE)
        .map(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            char::from(b'0' + u8::try_from((state >> 33) % 64).unwrap_or_default())
        })
        .collect();
    for i in 0..OBJECTS {
        let object = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": format!("large-{i}")}, "data": {"a": text},
        });
        arena
            .made("/api/v1/namespaces/adversary-large/configmaps", &object)
            .await?;
    }
    Ok(())
}

async fn unread(arena: &Arena, accept: &str, query: &str) -> Result<Outcome, Error> {
    fill(arena).await?;
    let path = format!("/api/v1/namespaces/adversary-large/configmaps{query}");
    let header = if accept == "gzip" {
        "accept-encoding"
    } else {
        "accept"
    };
    held(arena, || Shot::get(path.as_str()).header(header, accept)).await
}

async fn stalled(arena: &Arena) -> Result<Outcome, Error> {
    fill(arena).await?;
    let path = "/api/v1/namespaces/adversary-large/configmaps?watch=1&resourceVersion=0";
    held(arena, || Shot::get(path)).await
}

/// Opens answers and reads nothing of them for a while.
async fn held(arena: &Arena, shot: impl Fn() -> Shot) -> Result<Outcome, Error> {
    let mut outcome = Outcome::new();
    let mut open = Vec::new();
    let mut opening = tokio::task::JoinSet::new();
    for _ in 0..UNREAD {
        let (target, shot) = (arena.target.clone(), shot());
        opening.spawn(async move { target.open(shot).await });
    }
    while let Some(response) = opening.join_next().await {
        match response? {
            Ok(response) => {
                *outcome.codes.entry(response.status().as_u16()).or_default() += 1;
                open.push(response);
            }
            Err(_) => *outcome.codes.entry(503).or_default() += 1,
        }
    }
    // Only the server is measured here, while no client reads.
    tokio::time::sleep(PAUSE).await;
    drop(open);
    Ok(outcome)
}
