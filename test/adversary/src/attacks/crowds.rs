//! The cost of many concurrent requests of one user: in memory of the server, and in time of other users.

use std::time::{Duration, Instant};

use http_body_util::BodyExt;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::task::JoinSet;

use super::attack;
use crate::{Arena, Attack, Bound, Credential, Error, Outcome, Place, Shot};

/// The namespace of the lists, to which the tenant has no rights, and what is in it.
const OTHERS: &str = "adversary-others";
const OBJECTS: usize = 300;
const SIZE: usize = 10_000;

/// Items of the heavy YAML bodies: 0.9 MB.
const YAML_ITEMS: usize = 450_000;
const YAML_CLIENTS: usize = 8;
/// For how long others are looked at beside heavy clients, and what one of their requests may take.
const BESIDE: Duration = Duration::from_secs(10);
const LARGE_REQUEST: Duration = Duration::from_secs(3);

/// Unread answers of 4 MB.
const UNREAD: usize = 2_000;
const CONNECTIONS: usize = 8;
const STREAMS: usize = 250;
/// How long they stay unread.
const PAUSE: Duration = Duration::from_secs(7);

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

pub(super) fn attacks() -> Vec<Attack> {
    vec![
        attack(
            "16 pods of 2.8 MB at once",
            "11",
            Place::Large,
            Bound::codes(&[201, 413, 422, 429, 504])
                .answer(8 << 20)
                .memory(1_024.0)
                .seconds(120),
            |arena| Box::pin(pods(arena)),
        ),
        attack(
            "List and create of another user beside 8 clients with YAML of 0.9 MB",
            "2",
            Place::Large,
            Bound::DEFAULT.answer(8 << 20).memory(512.0).seconds(120),
            |arena| Box::pin(beside(arena)),
        ),
        attack(
            "2,000 lists of 4 MB on 8 HTTP/2 connections whose windows are 0",
            "11",
            Place::Large,
            Bound::DEFAULT.memory(512.0).seconds(120),
            |arena| Box::pin(windows(arena)),
        ),
        attack(
            "2,000 unread lists of 4 MB, each on a connection of its own",
            "11",
            Place::Large,
            Bound::codes(&[200, 429]).memory(512.0).seconds(120),
            |arena| Box::pin(unread(arena)),
        ),
    ]
}

async fn pods(arena: &Arena) -> Result<Outcome, Error> {
    let container =
        |i: usize| json!({"name": format!("c{i}"), "image": "i", "resources": {"limits": {"cpu": "1m"}}});
    let mut containers = Vec::new();
    let mut bytes = 0;
    while bytes < 2_800_000 {
        let one = container(containers.len());
        bytes += one.to_string().len() + 1;
        containers.push(one);
    }
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"generateName": "large-"}, "spec": {"containers": containers},
    });
    let shot = Shot::post(arena.path("pods"), &pod).by(&arena.tenant);
    let outcome = arena.volley(vec![shot; 16]).await;
    arena.gone(&arena.path("pods")).await?;
    outcome
}

/// Fills a namespace with objects that make a list of some 3 MB, and gives its ConfigMaps' path.
async fn others(arena: &Arena) -> Result<String, Error> {
    let space = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": OTHERS}});
    arena.made("/api/v1/namespaces", &space).await?;
    let path = format!("/api/v1/namespaces/{OTHERS}/configmaps");
    let mut send = arena.target.connect(&Credential::Admin).await?;
    for i in 0..OBJECTS {
        let object = json!({"metadata": {"name": format!("c{i}")}, "data": {"a": "x".repeat(SIZE)}});
        arena
            .target
            .send_over(&mut send, Shot::post(path.as_str(), &object))
            .await?;
    }
    Ok(path)
}

async fn beside(arena: &Arena) -> Result<Outcome, Error> {
    let path = others(arena).await?;
    let body = format!(
        "apiVersion: authorization.k8s.io/v1\nkind: SelfSubjectAccessReview\nx: [{}]\nspec: {{}}\n",
        "a,".repeat(YAML_ITEMS)
    );
    let review = Shot::of("POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews")
        .body("application/yaml", body)
        .by(&arena.tenant);
    let mut heavy = JoinSet::new();
    for _ in 0..YAML_CLIENTS {
        let (target, review) = (arena.target.clone(), review.clone());
        heavy.spawn(async move { while target.send(review.clone()).await.is_ok() {} });
    }
    let object = json!({"metadata": {"generateName": "z"}, "data": {"a": "x".repeat(200_000)}});
    // The objects are created in another namespace, so that the list does not grow.
    let made = arena.path("configmaps");
    let requests = [Shot::get(path.as_str()), Shot::post(made.as_str(), &object)];
    let mut outcome = Outcome::new();
    let mut longest = [Duration::ZERO; 2];
    let begun = Instant::now();
    while begun.elapsed() < BESIDE {
        for (shot, longest) in requests.iter().zip(&mut longest) {
            let sent = Instant::now();
            outcome.count(&arena.send(shot.clone()).await?);
            *longest = (*longest).max(sent.elapsed());
        }
    }
    heavy.shutdown().await;
    arena.gone(&path).await?;
    arena.gone(&made).await?;
    let [list, create] = longest.map(|longest| longest.as_millis());
    outcome.note = format!("lists max {list} ms, creates max {create} ms");
    if longest.iter().any(|longest| *longest > LARGE_REQUEST) {
        outcome.broke(format!(
            "a large request of another user took over {} s",
            LARGE_REQUEST.as_secs()
        ));
    }
    Ok(outcome)
}

/// Fills the tenant's namespace with 4 MB of ConfigMaps, and gives their path.
async fn own(arena: &Arena) -> Result<String, Error> {
    let path = arena.path("configmaps");
    for i in 0..40 {
        let object = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": format!("own-{i}")}, "data": {"a": "x".repeat(100_000)},
        });
        arena.made(&path, &object).await?;
    }
    Ok(path)
}

fn token(arena: &Arena) -> Result<&str, Error> {
    match &arena.tenant {
        Credential::Token(token) => Ok(token),
        _ => Err("the tenant has no token".into()),
    }
}

async fn windows(arena: &Arena) -> Result<Outcome, Error> {
    let path = own(arena).await?;
    let head = head_block(&[
        (":method", "GET"),
        (":scheme", "https"),
        (":path", &path),
        (":authority", arena.target.authority()),
        ("authorization", &format!("Bearer {}", token(arena)?)),
    ]);
    let mut open = Vec::new();
    for _ in 0..CONNECTIONS {
        let mut stream = arena.target.tls(&Credential::Anonymous, &["h2"]).await?;
        // SETTINGS_INITIAL_WINDOW_SIZE is 0.
        let mut bytes = [PREFACE, &frame(4, 0, 0, &[0, 4, 0, 0, 0, 0])].concat();
        for stream in 0..STREAMS {
            let id = u32::try_from(2 * stream + 1)?;
            bytes.extend(frame(1, 5, id, &head));
        }
        stream.write_all(&bytes).await?;
        stream.flush().await?;
        open.push(stream);
    }
    let outcome = served(arena).await;
    drop(open);
    outcome
}

/// Bytes of an HTTP/2 frame.
fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap_or(u32::MAX).to_be_bytes();
    let mut bytes = length[1..].to_vec();
    bytes.extend([kind, flags]);
    bytes.extend(stream.to_be_bytes());
    bytes.extend(payload);
    bytes
}

/// A header block of literals that no table is needed for.
fn head_block(fields: &[(&str, &str)]) -> Vec<u8> {
    let mut block = Vec::new();
    for (name, value) in fields {
        block.push(0);
        for text in [name, value] {
            // An integer with a prefix of 7 bits.
            match text.len().checked_sub(127) {
                None => block.push(text.len().to_le_bytes()[0]),
                Some(mut rest) => {
                    block.push(127);
                    while rest >= 128 {
                        block.push(rest.to_le_bytes()[0] | 128);
                        rest >>= 7;
                    }
                    block.push(rest.to_le_bytes()[0]);
                }
            }
            block.extend(text.as_bytes());
        }
    }
    block
}

async fn unread(arena: &Arena) -> Result<Outcome, Error> {
    let path = own(arena).await?;
    let request = format!(
        "GET {path} HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {}\r\n\r\n",
        arena.target.authority(),
        token(arena)?
    );
    // Each answer is awaited on its own, because one that waits for a seat would delay the next request.
    let mut answers = JoinSet::new();
    for _ in 0..UNREAD {
        let mut stream = arena.target.tls(&Credential::Anonymous, &["http/1.1"]).await?;
        stream.write_all(request.as_bytes()).await?;
        stream.flush().await?;
        answers.spawn(async move {
            let mut first = [0; 12];
            let status = match stream.read_exact(&mut first).await {
                Ok(_) => std::str::from_utf8(&first[9..]).unwrap_or_default().parse(),
                Err(_) => Ok(0),
            };
            (status, stream)
        });
    }
    let mut outcome = served(arena).await?;
    // The rest of each answer stays unread until all have begun.
    let mut open = Vec::new();
    while let Some(answer) = answers.join_next().await {
        let (status, stream) = answer?;
        *outcome.codes.entry(status?).or_default() += 1;
        open.push(stream);
    }
    Ok(outcome)
}

/// Whether another user who has no more rights is served meanwhile.
async fn served(arena: &Arena) -> Result<Outcome, Error> {
    let mut outcome = Outcome::new();
    let begun = Instant::now();
    let (mut longest, mut answered) = (Duration::ZERO, 0);
    while begun.elapsed() < PAUSE {
        let sent = Instant::now();
        let asked = arena.target.open(Shot::get("/api").by(&arena.nobody));
        let response = tokio::time::timeout(Duration::from_secs(5), asked).await;
        longest = longest.max(sent.elapsed());
        match response {
            Ok(Ok(response)) if response.status() == 200 => {
                answered += 1;
                // The answer is read to its end, so that nothing of it is under way.
                response.into_body().collect().await?;
            }
            Ok(Ok(response)) => outcome.broke(format!("another user got {}", response.status())),
            Ok(Err(_)) | Err(_) => outcome.broke("another user got no answer"),
        }
        // Others ask now and then.
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    outcome.note = format!(
        "another user served {answered} times, max {} ms",
        longest.as_millis()
    );
    Ok(outcome)
}
