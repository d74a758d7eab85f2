//! The request that makes an HTTP proxy join a connection with another server: CONNECT of RFC 9110, section 9.3.6.

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use machinery::limits::PROXY_HEAD_BYTES;

use super::super::tcp::Fault;
use super::super::wire::Io;

/// Asks the proxy for a connection to `authority`. `proxy` is its address, for errors.
///
/// # Errors
/// The proxy refuses, or does not answer as a proxy does.
pub(super) async fn ask(mut io: Io, proxy: &str, authority: &str) -> Result<Io, Fault> {
    let unanswered = |why: String| {
        Fault(format!(
            "reading HTTP response from CONNECT to {authority} via proxy {proxy} failed: {why}"
        ))
    };
    let request = format!("CONNECT {authority} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n");
    let sent = async {
        io.write_all(request.as_bytes()).await?;
        io.flush().await
    };
    sent.await.map_err(|error| unanswered(error.to_string()))?;
    let mut head = Vec::new();
    let end = loop {
        // The end of the head may be split between two reads.
        let searched = head.len().saturating_sub(3);
        let read = io.read_buf(&mut head).await;
        if read.map_err(|error| unanswered(error.to_string()))? == 0 {
            return Err(unanswered("unexpected EOF".into()));
        }
        if let Some(at) = head[searched..].windows(4).position(|four| four == b"\r\n\r\n") {
            break searched + at + 4;
        }
        if head.len() >= PROXY_HEAD_BYTES {
            return Err(unanswered(format!(
                "the head is larger than {PROXY_HEAD_BYTES} bytes"
            )));
        }
    };
    let line = head.split(|byte| *byte == b'\r').next().unwrap_or_default();
    let line = String::from_utf8_lossy(line);
    let status = line
        .strip_prefix("HTTP/1.")
        .and_then(|rest| rest.split_once(' '))
        .and_then(|(_, status)| Some((status.get(..3)?.parse::<u16>().ok()?, status)));
    match status {
        // Bytes of the peer that came before this side has spoken belong to no protocol that is spoken here.
        Some((200, _)) if head.len() > end => Err(Fault(format!(
            "unexpected {} bytes of buffered data from CONNECT proxy {}",
            head.len() - end,
            machinery::go::quote(proxy)
        ))),
        Some((200, _)) => Ok(io),
        Some((code, status)) => Err(Fault(format!(
            "proxy error from {proxy} while dialing {authority}, code {code}: {status}"
        ))),
        None => Err(unanswered(format!(
            "malformed HTTP response {}",
            machinery::go::quote(&line)
        ))),
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::duplex;

    use super::*;

    /// The answer of a proxy that sends these bytes and then waits.
    async fn outcome(answer: &[u8]) -> Result<(), String> {
        let (near, mut far) = duplex(1 << 10);
        let answer = answer.to_vec();
        let proxy = tokio::spawn(async move {
            let mut request = vec![0; "CONNECT a.example:443 HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".len()];
            far.read_exact(&mut request).await.expect("a request");
            // The other side may have given up.
            let _ = far.write_all(&answer).await;
            request
        });
        let asked = ask(Box::new(near), "p:1", "a.example:443").await;
        let request = proxy.await.expect("the proxy");
        assert!(request.starts_with(b"CONNECT a.example:443 HTTP/1.1\r\n"));
        asked.map(drop).map_err(|fault| fault.to_string())
    }

    #[tokio::test]
    async fn answers_of_proxies() {
        let failed = |why: &str| {
            let head = "reading HTTP response from CONNECT to a.example:443 via proxy p:1 failed";
            Err(format!("{head}: {why}"))
        };
        assert_eq!(outcome(b"HTTP/1.1 200 OK\r\nVia: x\r\n\r\n").await, Ok(()));
        assert_eq!(outcome(b"HTTP/1.0 200\r\n\r\n").await, Ok(()));
        let refused = "proxy error from p:1 while dialing a.example:443, code 403: 403 Forbidden";
        let refusal = outcome(b"HTTP/1.1 403 Forbidden\r\n\r\nno").await;
        assert_eq!(refusal, Err(refused.into()));
        let early = "unexpected 3 bytes of buffered data from CONNECT proxy \"p:1\"";
        assert_eq!(outcome(b"HTTP/1.1 200 OK\r\n\r\nSSH").await, Err(early.into()));
        assert_eq!(outcome(b"HTTP/1.1 200 OK\r\n").await, failed("unexpected EOF"));
        let odd = outcome(b"SSH-2.0-x\r\n\r\n").await;
        assert_eq!(odd, failed("malformed HTTP response \"SSH-2.0-x\""));
        let endless = outcome(&vec![b'a'; PROXY_HEAD_BYTES + (1 << 12)]).await;
        let why = format!("the head is larger than {PROXY_HEAD_BYTES} bytes");
        assert_eq!(endless, failed(&why));
    }
}
