//! A stand-in for a kubelet: the TLS port of a node with logs, commands, forwarded ports, and an echo for everything else.

use std::collections::HashMap;
use std::convert::Infallible;
use std::net::{IpAddr, Ipv4Addr};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use bytes::Bytes;
use generic_server::pki::{Authority, Issued};
use generic_server::streaming::Connection;
use generic_server::streaming::spdy::{Frame, Reader, Writer};
use http::{HeaderValue, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Full};
use hyper::body::{Body, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use rustls::server::WebPkiClientVerifier;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::json;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

type Answered = Response<http_body_util::combinators::UnsyncBoxBody<Bytes, Infallible>>;

/// A kubelet on a free port of all addresses. It ends when it is dropped.
#[derive(Debug)]
pub struct Kubelet {
    port: u16,
    authority: Authority,
    connections: Arc<AtomicUsize>,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for Kubelet {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Counts as long as it lives.
struct Counted(Arc<AtomicUsize>);

impl Counted {
    fn new(count: &Arc<AtomicUsize>) -> Self {
        count.fetch_add(1, Ordering::SeqCst);
        Counted(count.clone())
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Kubelet {
    /// Starts one, with a certificate for `localhost` and the addresses of this machine, of an authority of its own.
    pub async fn start() -> Self {
        let authority = Authority::generate("kubelets").expect("an authority");
        let mut names = vec!["localhost".to_string(), Ipv4Addr::LOCALHOST.to_string()];
        names.extend(own_address().map(|address| address.to_string()));
        let issued = authority.server("kubelet", &names).expect("a certificate");
        let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0))
            .await
            .expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let acceptor = acceptor(&authority, &issued);
        let connections: Arc<AtomicUsize> = Arc::default();
        let count = connections.clone();
        let task = tokio::spawn(async move {
            let mut serving = tokio::task::JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                serving.spawn(serve(stream, acceptor.clone(), Counted::new(&count)));
            }
        });
        Kubelet {
            port,
            authority,
            connections,
            task,
        }
    }

    /// Its port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The certificate of its authority, PEM.
    pub fn ca(&self) -> &str {
        &self.authority.certificate
    }

    /// A certificate of a client that it knows.
    pub fn client(&self) -> Issued {
        self.authority
            .client("kube-apiserver-kubelet-client", "")
            .expect("a certificate")
    }

    /// How many connections are open, streams included.
    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }
}

/// An address of this machine that other machines could use; none where there is no network.
pub fn own_address() -> Option<IpAddr> {
    // The kernel says which address a packet to the outside would carry; nothing is sent.
    let socket = std::net::UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).ok()?;
    socket.connect((Ipv4Addr::new(198, 51, 100, 1), 9)).ok()?;
    let address = socket.local_addr().ok()?.ip();
    (!address.is_loopback() && !address.is_unspecified()).then_some(address)
}

fn acceptor(authority: &Authority, issued: &Issued) -> TlsAcceptor {
    let chain = CertificateDer::pem_slice_iter(issued.certificate.as_bytes())
        .collect::<Result<Vec<_>, _>>()
        .expect("a chain");
    let key = PrivateKeyDer::from_pem_slice(issued.key.as_bytes()).expect("a key");
    let mut roots = rustls::RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(authority.certificate.as_bytes()) {
        roots.add(certificate.expect("a certificate")).expect("a CA");
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let clients = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone())
        .allow_unauthenticated()
        .build()
        .expect("a verifier");
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_client_cert_verifier(clients)
        .with_single_cert(chain, key)
        .expect("a pair");
    TlsAcceptor::from(Arc::new(config))
}

async fn serve(stream: TcpStream, acceptor: TlsAcceptor, counted: Counted) {
    let counted = Arc::new(counted);
    let Ok(stream) = acceptor.accept(stream).await else {
        return;
    };
    let known = stream.get_ref().1.peer_certificates().is_some();
    let service = service_fn(move |request| {
        let counted = counted.clone();
        async move { Ok::<_, Infallible>(answer(request, known, counted).await) }
    });
    // A client that goes away is no failure of a test.
    let _ = hyper::server::conn::http1::Builder::new()
        .serve_connection(TokioIo::new(stream), service)
        .with_upgrades()
        .await;
}

fn text(status: u16, text: impl Into<Bytes>) -> Answered {
    let mut response = Response::new(Full::new(text.into()).boxed_unsync());
    *response.status_mut() = StatusCode::from_u16(status).expect("a status");
    response
}

/// The values of a query's parameter, percent signs and all.
fn values<'q>(query: &'q str, name: &str) -> Vec<&'q str> {
    let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    pairs
        .filter(|(key, _)| *key == name)
        .map(|(_, value)| value)
        .collect()
}

async fn answer(mut request: Request<Incoming>, known: bool, counted: Arc<Counted>) -> Answered {
    let path = request.uri().path().to_string();
    let query = request.uri().query().unwrap_or_default().to_string();
    let segments: Vec<&str> = path.trim_start_matches('/').split('/').collect();
    let upgrade = request.headers().get(header::UPGRADE).cloned();
    match (segments.as_slice(), upgrade) {
        (["containerLogs", _, _, container], _) => log(container, &path, &query),
        (["exec" | "attach", ..], Some(protocol)) if protocol == "SPDY/3.1" => {
            if values(&query, "command") == ["absent"] {
                return text(404, "container not found (\"c\")");
            }
            if values(&query, "command") == ["elsewhere"] {
                let mut answer = text(302, "");
                answer
                    .headers_mut()
                    .insert(header::LOCATION, HeaderValue::from_static("https://192.0.2.1/"));
                return answer;
            }
            let offered = request.headers().get_all("x-stream-protocol-version").iter();
            let chosen = offered.filter(|name| *name != "v5.channel.k8s.io").max().cloned();
            upgraded(&mut request, &protocol, chosen, |io| command(io, query, counted))
        }
        (["portForward", ..], Some(protocol)) if protocol == "SPDY/3.1" => {
            let chosen = HeaderValue::from_static("portforward.k8s.io");
            upgraded(&mut request, &protocol, Some(chosen), |io| forward(io, counted))
        }
        (_, Some(protocol)) => upgraded(&mut request, &protocol, None, |io| echo(io, counted)),
        (["redirect"], None) => {
            let mut answer = text(302, "");
            answer
                .headers_mut()
                .insert(header::LOCATION, HeaderValue::from_static("/there?a=b"));
            answer
        }
        _ => shown(request, known).await,
    }
}

/// The request itself, as JSON.
async fn shown(request: Request<Incoming>, known: bool) -> Answered {
    let (head, body) = request.into_parts();
    let body = body
        .collect()
        .await
        .map(|body| body.to_bytes())
        .unwrap_or_default();
    let headers: HashMap<&str, String> = (head.headers.iter())
        .map(|(name, value)| {
            (
                name.as_str(),
                String::from_utf8_lossy(value.as_bytes()).into_owned(),
            )
        })
        .collect();
    let json = json!({
        "method": head.method.as_str(), "target": head.uri.to_string(), "headers": headers,
        "body": String::from_utf8_lossy(&body), "known": known,
    });
    let mut answer = text(200, json.to_string());
    let headers = answer.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, HeaderValue::from_static("*"));
    answer
}

/// Pieces of a log without end, as fast as they are taken, or only the first.
struct Endless {
    piece: Bytes,
    left: usize,
}

impl Body for Endless {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _cx: &mut Context<'_>,
    ) -> Poll<Option<Result<hyper::body::Frame<Bytes>, Infallible>>> {
        if self.left == 0 {
            // Nothing more is ever said: only the end of the connection ends it.
            return Poll::Pending;
        }
        self.left -= 1;
        Poll::Ready(Some(Ok(hyper::body::Frame::data(self.piece.clone()))))
    }
}

/// A log by the container's name.
fn log(container: &str, path: &str, query: &str) -> Answered {
    match container {
        "refuses" => text(
            400,
            "previous terminated container \"refuses\" in pod \"p\" not found",
        ),
        "broken" => text(500, "the runtime is down"),
        "absent" => text(404, "no such container"),
        "elsewhere" => {
            let mut answer = text(302, "");
            answer.headers_mut().insert(
                header::LOCATION,
                HeaderValue::from_static("https://192.0.2.1/logs"),
            );
            answer
        }
        "quiet" => Response::new(
            Endless {
                piece: Bytes::from_static(b"line 0\n"),
                left: 1,
            }
            .boxed_unsync(),
        ),
        "loud" => Response::new(
            Endless {
                piece: vec![b'x'; 64 * 1024].into(),
                left: usize::MAX,
            }
            .boxed_unsync(),
        ),
        _ => text(200, format!("{path}?{query}\n")),
    }
}

fn upgraded<F: Future<Output = ()> + Send + 'static>(
    request: &mut Request<Incoming>,
    protocol: &HeaderValue,
    chosen: Option<HeaderValue>,
    then: impl FnOnce(TokioIo<hyper::upgrade::Upgraded>) -> F + Send + 'static,
) -> Answered {
    let switching = hyper::upgrade::on(request);
    tokio::spawn(async move {
        if let Ok(io) = switching.await {
            then(TokioIo::new(io)).await;
        }
    });
    let mut answer = text(101, "");
    let headers = answer.headers_mut();
    headers.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
    headers.insert(header::UPGRADE, protocol.clone());
    if let Some(chosen) = chosen {
        headers.insert("x-stream-protocol-version", chosen);
    }
    answer
}

/// Sends back what comes.
async fn echo(io: impl Connection, _counted: Arc<Counted>) {
    let (mut from, mut to) = tokio::io::split(io);
    let _ = tokio::io::copy(&mut from, &mut to).await;
}

/// The streams of a command, by type.
struct Streams(HashMap<String, u32>);

impl Streams {
    fn of(&self, kind: &str) -> Option<u32> {
        self.0.get(kind).copied()
    }

    /// Ends all that the command writes to, with its exit code.
    async fn finish<W: tokio::io::AsyncWrite + Unpin>(
        &self,
        writer: &Writer<W>,
        code: u8,
    ) -> std::io::Result<()> {
        for stream in ["stdout", "stderr"].into_iter().filter_map(|kind| self.of(kind)) {
            writer.data(stream, &[], true).await?;
        }
        let status = match code {
            0 => json!({"metadata": {}, "status": "Success"}),
            code => json!({
                "metadata": {}, "status": "Failure", "reason": "NonZeroExitCode",
                "message": format!("command terminated with non-zero exit code: {code}"),
                "details": {"causes": [{"reason": "ExitCode", "message": code.to_string()}]},
            }),
        };
        writer
            .data(
                self.of("error").unwrap_or_default(),
                status.to_string().as_bytes(),
                true,
            )
            .await
    }
}

/// Runs a command: `cat`, `both` (one word to each output), `exit N`, `size` (prints the terminal's), `vanish`, and `sleep`.
async fn command(io: impl Connection, query: String, _counted: Arc<Counted>) {
    let words: Vec<String> = values(&query, "command")
        .into_iter()
        .map(str::to_string)
        .collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let asked = |name: &str| values(&query, name) == ["1"];
    let tty = asked("tty");
    let expected = 1 + [asked("input"), asked("output"), asked("error") && !tty, tty]
        .iter()
        .filter(|on| **on)
        .count();
    let (from, to) = tokio::io::split(io);
    let (mut reader, writer) = (Reader::new(from), Writer::new(to));
    let mut streams = Streams(HashMap::new());
    while let Ok(Some(frame)) = reader.next().await {
        let done = match frame {
            Frame::Open { stream, headers, .. } => {
                let kind = headers.into_iter().find(|(name, _)| name == "streamtype");
                streams
                    .0
                    .insert(kind.map(|(_, kind)| kind).unwrap_or_default(), stream);
                let replied = writer.reply(stream).await;
                match (streams.0.len() == expected, words.as_slice()) {
                    (true, ["both"]) => both(&streams, &writer).await,
                    (true, ["exit", code]) => streams.finish(&writer, code.parse().unwrap_or(255)).await,
                    (true, ["vanish"]) => return,
                    // What `kubectl cp` runs in the container.
                    (true, ["tar", "cf", "-", file]) => send_file(&streams, &writer, file).await,
                    (true, ["test", ..]) => streams.finish(&writer, 1).await,
                    _ => replied,
                }
            }
            Frame::Data { stream, bytes, last } if Some(stream) == streams.of("stdin") => {
                let out = streams.of("stdout").unwrap_or_default();
                let echoed = match matches!(words.as_slice(), ["cat"] | []) && !bytes.is_empty() {
                    true => writer.data(out, &bytes, false).await,
                    false => Ok(()),
                };
                match last && words.as_slice() != ["sleep"] {
                    true => streams.finish(&writer, 0).await,
                    false => echoed,
                }
            }
            Frame::Data { stream, bytes, .. }
                if Some(stream) == streams.of("resize") && words.as_slice() == ["size"] =>
            {
                let out = streams.of("stdout").unwrap_or_default();
                match writer.data(out, &bytes, false).await {
                    Ok(()) => streams.finish(&writer, 0).await,
                    failed => failed,
                }
            }
            Frame::Ping(id) => writer.ping(id).await,
            _ => Ok(()),
        };
        if done.is_err() {
            return;
        }
    }
}

/// The content of every file.
pub const FILE: &str = "what is in the file\n";

/// One file as `tar` writes it.
async fn send_file<W: tokio::io::AsyncWrite + Unpin>(
    streams: &Streams,
    writer: &Writer<W>,
    name: &str,
) -> std::io::Result<()> {
    let name = name.replace("%2F", "/");
    let mut head = [0_u8; 512];
    let mut put = |at: usize, text: &str| head[at..at + text.len()].copy_from_slice(text.as_bytes());
    put(0, name.trim_start_matches('/'));
    put(100, "0000644");
    put(124, &format!("{:011o}", FILE.len()));
    put(136, "00000000000");
    put(148, "        ");
    put(156, "0");
    put(257, "ustar");
    put(263, "00");
    let sum: u32 = head.iter().map(|byte| u32::from(*byte)).sum();
    head[148..155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
    let mut archive = head.to_vec();
    archive.extend(FILE.as_bytes());
    archive.resize(4 * 512, 0);
    writer
        .data(streams.of("stdout").unwrap_or_default(), &archive, false)
        .await?;
    streams.finish(writer, 0).await
}

async fn both<W: tokio::io::AsyncWrite + Unpin>(
    streams: &Streams,
    writer: &Writer<W>,
) -> std::io::Result<()> {
    for (kind, word) in [("stdout", "out\n"), ("stderr", "err\n")] {
        if let Some(stream) = streams.of(kind) {
            writer.data(stream, word.as_bytes(), false).await?;
        }
    }
    streams.finish(writer, 0).await
}

/// Forwards ports, each to an echo.
async fn forward(io: impl Connection, _counted: Arc<Counted>) {
    let (from, to) = tokio::io::split(io);
    let (mut reader, writer) = (Reader::new(from), Writer::new(to));
    // The error stream of each request, and that of each data stream.
    let (mut errors, mut data) = (HashMap::new(), HashMap::new());
    while let Ok(Some(frame)) = reader.next().await {
        let done = match frame {
            Frame::Open { stream, headers, .. } => {
                let value = |name: &str| {
                    let header = headers.iter().find(|(key, _)| key == name);
                    header.map(|(_, value)| value.clone()).unwrap_or_default()
                };
                match value("streamtype").as_str() {
                    "error" => drop(errors.insert(value("requestid"), stream)),
                    _ => drop(data.insert(
                        stream,
                        errors.get(&value("requestid")).copied().unwrap_or_default(),
                    )),
                }
                writer.reply(stream).await
            }
            Frame::Data { stream, bytes, last } => match data.get(&stream) {
                Some(error) => {
                    let echoed = writer.data(stream, &bytes, last).await;
                    if last {
                        writer.data(*error, &[], true).await
                    } else {
                        echoed
                    }
                }
                None => Ok(()),
            },
            Frame::Ping(id) => writer.ping(id).await,
            _ => Ok(()),
        };
        if done.is_err() {
            return;
        }
    }
}
