//! A konnectivity server (`ProxyService` of apiserver-network-proxy) and its agent in one: a client dials, and is joined with the server
//! that it names.

use std::convert::Infallible;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::{BufMut, Bytes, BytesMut};
use http::{HeaderMap, HeaderValue, Request, Response};
use http_body_util::{BodyExt, Channel};
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo};
use parking_lot::Mutex;
use prost::Message;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UnixListener};
use tokio::task::{JoinHandle, JoinSet};

/// The number of every connection: each has a call of its own.
const CONNECTION: i64 = 7;

#[derive(Clone, PartialEq, Message)]
struct Packet {
    #[prost(int32, tag = "1")]
    kind: i32,
    #[prost(message, optional, tag = "2")]
    dial_request: Option<DialRequest>,
    #[prost(message, optional, tag = "3")]
    dial_response: Option<DialResponse>,
    #[prost(message, optional, tag = "4")]
    data: Option<Data>,
    #[prost(message, optional, tag = "6")]
    close_response: Option<CloseResponse>,
}

#[derive(Clone, PartialEq, Message)]
struct DialRequest {
    #[prost(string, tag = "1")]
    protocol: String,
    #[prost(string, tag = "2")]
    address: String,
    #[prost(int64, tag = "3")]
    random: i64,
}

#[derive(Clone, PartialEq, Message)]
struct DialResponse {
    #[prost(string, tag = "1")]
    error: String,
    #[prost(int64, tag = "2")]
    connection: i64,
    #[prost(int64, tag = "3")]
    random: i64,
}

#[derive(Clone, PartialEq, Message)]
struct Data {
    #[prost(int64, tag = "1")]
    connection: i64,
    #[prost(bytes = "bytes", tag = "3")]
    data: Bytes,
}

#[derive(Clone, PartialEq, Message)]
struct CloseResponse {
    #[prost(string, tag = "1")]
    error: String,
    #[prost(int64, tag = "2")]
    connection: i64,
}

/// A running server. Every name that ends in `.invalid` is this machine to it; a dial of `refused.invalid` fails, and one of
/// `silent.invalid` is not answered. It ends when it is dropped.
#[derive(Debug)]
pub struct Konnectivity {
    state: Arc<State>,
    task: JoinHandle<()>,
}

#[derive(Debug, Default)]
struct State {
    dialled: Mutex<Vec<String>>,
    open: AtomicUsize,
}

impl Drop for Konnectivity {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Konnectivity {
    /// Listens on a socket.
    ///
    /// # Errors
    /// When it cannot listen there.
    pub fn listen(socket: &Path) -> std::io::Result<Self> {
        let listener = UnixListener::bind(socket)?;
        let state: Arc<State> = Arc::default();
        let shared = state.clone();
        let task = tokio::spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let state = shared.clone();
                connections.spawn(async move {
                    state.open.fetch_add(1, Ordering::SeqCst);
                    let calls = state.clone();
                    let service = hyper::service::service_fn(move |request| serve(calls.clone(), request));
                    let builder = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
                    // A client that goes away ends its connection.
                    let _ = builder.serve_connection(TokioIo::new(stream), service).await;
                    state.open.fetch_sub(1, Ordering::SeqCst);
                });
            }
        });
        Ok(Konnectivity { state, task })
    }

    /// The servers that were dialled, in order.
    pub fn dialled(&self) -> Vec<String> {
        self.state.dialled.lock().clone()
    }

    /// How many clients are connected.
    pub fn connections(&self) -> usize {
        self.state.open.load(Ordering::SeqCst)
    }
}

type Answers = Response<Channel<Bytes, Infallible>>;

async fn serve(state: Arc<State>, request: Request<Incoming>) -> Result<Answers, Infallible> {
    let (sender, body) = Channel::new(4);
    tokio::spawn(answer(state, request.into_body(), sender));
    let mut response = Response::new(body);
    let kind = HeaderValue::from_static("application/grpc");
    response.headers_mut().insert(http::header::CONTENT_TYPE, kind);
    Ok(response)
}

async fn answer(
    state: Arc<State>,
    body: Incoming,
    mut sender: http_body_util::channel::Sender<Bytes, Infallible>,
) {
    let mut packets = Packets {
        body,
        buffer: BytesMut::new(),
    };
    // Whichever side ends first ends the call.
    let _ = join(&state, &mut packets, &mut sender).await;
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", HeaderValue::from_static("0"));
    let _ = sender.send_trailers(trailers).await;
}

/// Answers a dial and joins both ends. `None` when the client has gone.
async fn join(
    state: &State,
    packets: &mut Packets,
    sender: &mut http_body_util::channel::Sender<Bytes, Infallible>,
) -> Option<()> {
    let dial = packets.next().await?.dial_request?;
    state.dialled.lock().push(dial.address.clone());
    let (host, port) = dial.address.rsplit_once(':')?;
    let server = match host {
        "silent.invalid" => std::future::pending().await,
        "refused.invalid" => Err("no agent".to_string()),
        host if host.ends_with(".invalid") => TcpStream::connect(format!("127.0.0.1:{port}"))
            .await
            .map_err(|error| error.to_string()),
        _ => TcpStream::connect(&dial.address)
            .await
            .map_err(|error| error.to_string()),
    };
    let response = Packet {
        kind: 1,
        dial_response: Some(DialResponse {
            error: server.as_ref().err().cloned().unwrap_or_default(),
            connection: CONNECTION,
            random: dial.random,
        }),
        ..Packet::default()
    };
    sender.send_data(framed(&response)).await.ok()?;
    let (mut from, mut to) = server.ok()?.into_split();
    let mut buffer = vec![0; 16 * 1024];
    loop {
        tokio::select! {
            packet = packets.next() => match packet {
                Some(Packet { kind: 4, data: Some(data), .. }) => to.write_all(&data.data).await.ok()?,
                // The client closes, or has gone.
                _ => break,
            },
            read = from.read(&mut buffer) => match read {
                Ok(0) | Err(_) => break,
                Ok(size) => {
                    let data = Data {
                        connection: CONNECTION,
                        data: Bytes::copy_from_slice(&buffer[..size]),
                    };
                    let packet = Packet { kind: 4, data: Some(data), ..Packet::default() };
                    sender.send_data(framed(&packet)).await.ok()?;
                }
            },
        }
    }
    let closed = Packet {
        kind: 3,
        close_response: Some(CloseResponse {
            error: String::new(),
            connection: CONNECTION,
        }),
        ..Packet::default()
    };
    sender.send_data(framed(&closed)).await.ok()
}

/// A message in the frame of gRPC: whether it is compressed, and its length.
fn framed(packet: &Packet) -> Bytes {
    let message = packet.encode_to_vec();
    let mut frame = BytesMut::new();
    frame.put_u8(0);
    frame.put_u32(u32::try_from(message.len()).unwrap_or(u32::MAX));
    frame.put_slice(&message);
    frame.freeze()
}

/// The messages of a request.
struct Packets {
    body: Incoming,
    buffer: BytesMut,
}

impl Packets {
    /// The next one. A call that is dropped loses nothing.
    async fn next(&mut self) -> Option<Packet> {
        loop {
            if let Some(head) = self.buffer.first_chunk::<5>() {
                let length = u32::from_be_bytes([head[1], head[2], head[3], head[4]]);
                let end = 5 + usize::try_from(length).ok()?;
                if self.buffer.len() >= end {
                    let frame = self.buffer.split_to(end);
                    return Packet::decode(&frame[5..]).ok();
                }
            }
            let frame = self.body.frame().await?.ok()?;
            if let Ok(bytes) = frame.into_data() {
                self.buffer.extend_from_slice(&bytes);
            }
        }
    }
}
