//! `pods/portforward`.

use generic_server::streaming::spdy::{Frame, Reader, Writer};
use generic_server::streaming::websocket::Event;
use test_support::PATIENCE;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::timeout;

use super::rig::{NAMESPACE, Rig, Socket};

const PATH: &str = "/pods/p/portforward?ports=80&ports=81";

/// Sends bytes through a forwarded port, which echoes them, and checks what comes back and that it ends.
async fn check_echo(from: impl AsyncRead + Unpin, to: impl AsyncWrite + Unpin) {
    let (mut reader, writer) = (Reader::new(from), Writer::new(to));
    let request = [("port", "80"), ("requestid", "0")];
    let of = |kind: &'static str| [("streamtype", kind), request[0], request[1]];
    writer.open(1, &of("error")).await.expect("sent");
    writer.open(3, &of("data")).await.expect("sent");
    let sent = vec![b'x'; 300_000];
    let mut got = 0;
    let mut open = vec![1, 3];
    let sending = writer.data(3, &sent, true);
    let receiving = async {
        while !open.is_empty() {
            let frame = reader.next().await.expect("a frame").expect("no end");
            if let Frame::Data { stream, bytes, last } = frame {
                assert!(stream == 3 || bytes.is_empty(), "an error: {bytes:?}");
                got += bytes.len();
                open.retain(|id| !(last && *id == stream));
            }
        }
    };
    let (sending, ()) = timeout(PATIENCE, async { tokio::join!(sending, receiving) })
        .await
        .expect("an end in time");
    sending.expect("sent");
    assert_eq!(got, sent.len());
}

#[tokio::test]
async fn ports_are_forwarded_over_spdy() {
    let rig = Rig::start().await;
    let headers = [
        ("upgrade", "SPDY/3.1"),
        ("x-stream-protocol-version", "portforward.k8s.io"),
    ];
    let upgraded = rig
        .client
        .upgrade("POST", &format!("{NAMESPACE}{PATH}"), &headers)
        .await;
    let upgraded = upgraded.expect("an upgrade");
    assert_eq!(upgraded.headers["upgrade"], "SPDY/3.1");
    let (from, to) = tokio::io::split(upgraded.io);
    check_echo(from, to).await;
    rig.is_free().await;
    rig.plane.stop().await;
}

/// Carries the bytes of one end of a pipe over a socket, as clients that tunnel do.
async fn carry(mut socket: Socket, io: tokio::io::DuplexStream) {
    let (mut from, mut to) = tokio::io::split(io);
    let up = async {
        let mut room = [0; 8192];
        while let Ok(read @ 1..) = from.read(&mut room).await {
            socket.writer.message(&[&room[..read]]).await.expect("sent");
        }
    };
    let down = async {
        while let Ok(Some(Event::Data { bytes, .. })) = socket.reader.next().await {
            if to.write_all(&bytes).await.is_err() {
                break;
            }
        }
    };
    tokio::select! {
        () = up => {}
        () = down => {}
    }
}

#[tokio::test]
async fn ports_are_forwarded_over_websocket() {
    let rig = Rig::start().await;
    let path = format!("{NAMESPACE}{PATH}");
    let (socket, protocol) = rig
        .websocket(&path, "SPDY/3.1+portforward.k8s.io")
        .await
        .expect("an upgrade");
    assert_eq!(protocol, "SPDY/3.1+portforward.k8s.io");
    let (near, far) = tokio::io::duplex(8192);
    let carrying = tokio::spawn(carry(socket, far));
    let (from, to) = tokio::io::split(near);
    check_echo(from, to).await;
    carrying.await.expect("a task");
    rig.is_free().await;
    rig.plane.stop().await;
}
