//! Connections that say little or nothing, and for how long a server keeps them.

use std::time::{Duration, Instant};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use super::attack;
use crate::{Arena, Attack, Bound, Credential, Error, Outcome, Place, Server, Shot};

/// Connections of each sort.
const COUNT: usize = 20;
/// Upstream's 32 seconds for a head, and what a busy machine adds.
const HEAD: Duration = Duration::from_secs(45);
/// The bound on a request whose body does not come: `--request-timeout`, a minute.
const BODY: Duration = Duration::from_secs(80);
/// The bound on idle connections, and what a graceful end adds.
const IDLE: Duration = Duration::from_secs(130);
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

const CLOSED: Bound = Bound::DEFAULT.seconds(180);

pub(super) fn attacks() -> Vec<Attack> {
    vec![
        attack(
            "20 TCP connections that say nothing",
            "held",
            Place::Patient,
            CLOSED,
            |arena| {
                Box::pin(async move {
                    let mut open = Vec::new();
                    for _ in 0..COUNT {
                        open.push(arena.target.tcp().await?);
                    }
                    closed(open, HEAD, Speaking::Nothing).await
                })
            },
        ),
        attack(
            "20 TLS connections that say nothing",
            "4",
            Place::Patient,
            CLOSED,
            |arena| Box::pin(speaking(arena, &["http/1.1"], b"", Speaking::Nothing, HEAD)),
        ),
        attack(
            "20 TLS connections with half of an HTTP/2 preface",
            "4",
            Place::Patient,
            CLOSED,
            |arena| Box::pin(speaking(arena, &["h2"], &PREFACE[..10], Speaking::Nothing, HEAD)),
        ),
        attack(
            "20 HTTP/2 connections that only answer PINGs",
            "4",
            Place::Patient,
            CLOSED,
            |arena| {
                let settings = [PREFACE, &[0, 0, 0, 4, 0, 0, 0, 0, 0]].concat();
                Box::pin(async move { speaking(arena, &["h2"], &settings, Speaking::Pings, IDLE).await })
            },
        ),
        attack(
            "20 heads of a byte each second",
            "held",
            Place::Patient,
            CLOSED,
            |arena| {
                Box::pin(speaking(
                    arena,
                    &["http/1.1"],
                    b"GET /version HTTP/1.1\r\nx: ",
                    Speaking::Slowly,
                    HEAD,
                ))
            },
        ),
        attack(
            "20 bodies of a byte each second",
            "held",
            Place::Patient,
            CLOSED,
            |arena| {
                Box::pin(async move {
                    let Credential::Token(token) = &arena.tenant else {
                        return Ok(Outcome::skipped("there is no token"));
                    };
                    let head = format!(
                        "POST {} HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {token}\r\n\
                     Content-Type: application/json\r\nContent-Length: 100000\r\n\r\n{{",
                        arena.path("configmaps")
                    );
                    speaking(arena, &["http/1.1"], head.as_bytes(), Speaking::Slowly, BODY).await
                })
            },
        ),
        attack(
            "290 silent TLS connections on 300 descriptors",
            "4",
            Place::Own,
            Bound::DEFAULT.seconds(120),
            |arena| Box::pin(crowd(arena)),
        ),
    ]
}

/// The traffic of a connection while it is held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Speaking {
    Nothing,
    Slowly,
    Pings,
}

async fn speaking(
    arena: &Arena,
    protocols: &[&str],
    first: &[u8],
    speaking: Speaking,
    bound: Duration,
) -> Result<Outcome, Error> {
    let mut open = Vec::new();
    for _ in 0..COUNT {
        let mut stream = arena.target.tls(&Credential::Anonymous, protocols).await?;
        stream.write_all(first).await?;
        stream.flush().await?;
        open.push(stream);
    }
    closed(open, bound, speaking).await
}

/// Holds connections until the server ends them, or the bound has passed.
async fn closed<S>(open: Vec<S>, bound: Duration, speaking: Speaking) -> Result<Outcome, Error>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let begun = Instant::now();
    let mut holding = tokio::task::JoinSet::new();
    let count = open.len();
    for stream in open {
        holding.spawn(async move {
            let ended = tokio::time::timeout(bound, hold(stream, speaking)).await;
            ended.is_ok().then(|| begun.elapsed())
        });
    }
    let (mut ended, mut last) = (0, Duration::ZERO);
    while let Some(after) = holding.join_next().await {
        if let Some(after) = after? {
            ended += 1;
            last = last.max(after);
        }
    }
    let mut outcome = Outcome::new();
    outcome.note = format!("{ended} of {count} closed, the last after {} s", last.as_secs());
    if ended < count {
        outcome.broke(format!(
            "{} of {count} still open after {} s",
            count - ended,
            bound.as_secs()
        ));
    }
    Ok(outcome)
}

/// Returns when the other side has ended the connection.
async fn hold(stream: impl AsyncRead + AsyncWrite + Send, speaking: Speaking) {
    let (mut read, mut write) = tokio::io::split(stream);
    let mut tick = tokio::time::interval(Duration::from_secs(1));
    let mut received = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        tokio::select! {
            n = read.read(&mut buffer) => match n {
                Ok(n) if n > 0 => received.extend_from_slice(&buffer[..n]),
                _ => return,
            },
            _ = tick.tick(), if speaking == Speaking::Slowly => {
                if write.write_all(b"x").await.is_err() || write.flush().await.is_err() {
                    return;
                }
            }
        }
        if speaking == Speaking::Pings && pongs(&mut received, &mut write).await.is_err() {
            return;
        }
    }
}

/// Acknowledges what an HTTP/2 peer wants acknowledged, of the frames that are there whole.
async fn pongs(received: &mut Vec<u8>, write: &mut (impl AsyncWrite + Unpin)) -> std::io::Result<()> {
    const SETTINGS: u8 = 4;
    const PING: u8 = 6;
    while received.len() >= 9 {
        let length =
            usize::from(received[0]) << 16 | usize::from(received[1]) << 8 | usize::from(received[2]);
        if received.len() < 9 + length {
            return Ok(());
        }
        let frame: Vec<u8> = received.drain(..9 + length).collect();
        let acknowledged = frame[4] & 1 == 1;
        match frame[3] {
            SETTINGS if !acknowledged => write.write_all(&[0, 0, 0, SETTINGS, 1, 0, 0, 0, 0]).await?,
            PING if !acknowledged => {
                let mut answer = vec![0, 0, 8, PING, 1, 0, 0, 0, 0];
                answer.extend_from_slice(&frame[9..]);
                write.write_all(&answer).await?;
            }
            _ => {}
        }
    }
    write.flush().await
}

/// Far more connections than a server with few descriptors can have beside its own files.
async fn crowd(arena: &Arena) -> Result<Outcome, Error> {
    let Some(binary) = &arena.binary else {
        return Ok(Outcome::skipped("needs --binary"));
    };
    let server = Server::limited(binary, &[], Some(300)).await?;
    let mut open = Vec::new();
    for _ in 0..290 {
        let connect = server.target.tls(&Credential::Anonymous, &["http/1.1"]);
        // Some may be refused: that is what a bound is for.
        if let Ok(Ok(stream)) = tokio::time::timeout(Duration::from_secs(1), connect).await {
            open.push(stream);
        }
    }
    let mut outcome = Outcome::new();
    outcome.note = format!("{} of 290 connected", open.len());
    let mut answered = 0;
    for _ in 0..5 {
        let asked = tokio::time::timeout(Duration::from_secs(3), server.target.send(Shot::get("/readyz")));
        match asked.await {
            Ok(Ok(answer)) if answer.status == 200 => answered += 1,
            _ => outcome.broke("another client gets no answer from /readyz"),
        }
    }
    outcome.codes.insert(200, answered);
    Ok(outcome)
}
