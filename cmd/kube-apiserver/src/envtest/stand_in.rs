//! The stand-in for etcd, a process of its own: it answers health checks, names its directory, and refuses everything else with a sentence.

use std::ffi::{OsStr, OsString};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::{StreamExt as _, stream};
use generic_server::metrics::ConnectionMetrics;
use generic_server::request::{BoxError, full};
use generic_server::serve::{Handler, Listener, Server, bind};
use generic_server::{Request, Response};
use http::{HeaderValue, Method, StatusCode, Uri, header};
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::Frame;
use serde_json::json;
use storage::DirectoryLock;
use tokio_util::sync::CancellationToken;

use super::{DIRECTORY, PATH, PROOF, PROOF_FILE, parent};
use crate::signals::Signals;

const HELP: &str = "A stand-in for etcd, for controller-runtime's envtest. It stores nothing: kube-apiserver keeps its objects in the
data directory by itself. Other flags of etcd are accepted without effect.

Flags:
  --data-dir DIR             The directory; by default default.etcd
  --listen-client-urls URLS  Where health checks are answered: http on the loopback address; by default http://localhost:2379
  --unsafe-no-fsync          Accepted: nothing is synced in any case
  --help                     Prints these flags
  --version                  Prints the version";

/// What clients of etcd read.
const REFUSAL: &str = "this is no etcd, but a stand-in for tests that stores nothing: kube-apiserver keeps its objects by itself when it is started after it";

/// Whether the program was called by the name of etcd.
pub fn is_etcd(program: &OsStr) -> bool {
    Path::new(program).file_stem() == Some(OsStr::new("etcd"))
}

/// Runs until a signal, or until the process that started it has ended. Returns what is to be printed.
///
/// # Errors
/// Why it cannot run: a line for standard error.
pub async fn run(
    arguments: impl Iterator<Item = OsString>,
    announce: impl FnOnce(&str),
) -> Result<String, String> {
    let parent = parent::id();
    let settings = match Command::parse(arguments)? {
        Command::Help => return Ok(HELP.into()),
        Command::Version => {
            return Ok(format!(
                "etcd Version: stand-in of kube-apiserver {}",
                env!("CARGO_PKG_VERSION")
            ));
        }
        Command::Run(settings) => settings,
    };
    let mut signals = Signals::new().map_err(|error| format!("cannot listen to signals: {error}"))?;
    let mut listeners = Vec::new();
    for url in &settings.urls {
        listeners.extend(listen(url).await?);
    }
    let (directory, _lock) = open(&settings.data_dir)?;
    let handler = Arc::new(Answers::new(&directory)?);
    let stop = CancellationToken::new();
    let server = Server::new(handler);
    let at: Vec<String> = listeners
        .iter()
        .map(|one| format!("http://{}", one.address()))
        .collect();
    announce(&format!(
        "a stand-in for etcd answers health checks at {}; kube-apiserver keeps its objects in {}",
        at.join(", "),
        directory.display()
    ));
    for listener in listeners {
        let (server, stop) = (server.clone(), stop.clone());
        tokio::spawn(async move { server.run(listener, None, stop).await });
    }
    tokio::select! {
        _ = signals.next() => {}
        () = parent::ended(parent) => {}
    }
    Ok(String::new())
}

/// What the command line asks for.
#[derive(Debug, PartialEq, Eq)]
enum Command {
    Help,
    Version,
    Run(Settings),
}

#[derive(Debug, PartialEq, Eq)]
struct Settings {
    data_dir: PathBuf,
    urls: Vec<String>,
}

impl Command {
    /// Reads flags as Go has them: one dash or two, the value behind an equals sign or as the next argument.
    fn parse(arguments: impl Iterator<Item = OsString>) -> Result<Command, String> {
        let mut settings = Settings {
            data_dir: "default.etcd".into(),
            urls: vec!["http://localhost:2379".into()],
        };
        let mut arguments = arguments.peekable();
        while let Some(argument) = arguments.next() {
            let argument = text(argument)?;
            let Some(flag) = argument
                .strip_prefix('-')
                .map(|flag| flag.strip_prefix('-').unwrap_or(flag))
            else {
                return Err(format!("'{argument}' is not a valid flag"));
            };
            let (name, value) = match flag.split_once('=') {
                Some((name, value)) => (name, Some(value.to_string())),
                None => (flag, None),
            };
            match name {
                "help" | "h" => return Ok(Command::Help),
                "version" => return Ok(Command::Version),
                _ => {}
            }
            let value = match value {
                Some(value) => value,
                // Without one the flag is a switch.
                None => match arguments.next_if(|next| !next.as_encoded_bytes().starts_with(b"-")) {
                    Some(next) => text(next)?,
                    None => String::new(),
                },
            };
            match name {
                "data-dir" if value.is_empty() => return Err("--data-dir needs a directory".into()),
                "data-dir" => settings.data_dir = value.into(),
                "listen-client-urls" => settings.urls = value.split(',').map(str::to_string).collect(),
                _ => {}
            }
        }
        Ok(Command::Run(settings))
    }
}

fn text(argument: OsString) -> Result<String, String> {
    argument
        .into_string()
        .map_err(|argument| format!("{} is not UTF-8", argument.display()))
}

/// Listens at a URL: plain HTTP, on addresses that no other machine reaches.
async fn listen(url: &str) -> Result<Vec<Listener>, String> {
    let refused = |why: &str| format!("--listen-client-urls: {url}: {why}");
    let uri: Uri = url.parse().map_err(|_| refused("it is no URL"))?;
    if uri.scheme_str() != Some("http") {
        return Err(refused("the stand-in for etcd speaks plain http alone"));
    }
    let host = uri.host().unwrap_or_default().trim_matches(['[', ']']);
    let port = uri.port_u16().unwrap_or(80);
    let found = tokio::net::lookup_host((host, port)).await;
    let addresses: Vec<SocketAddr> = found.map_err(|error| refused(&error.to_string()))?.collect();
    if addresses.iter().any(|address| !address.ip().is_loopback()) {
        return Err(refused(
            "the stand-in for etcd listens on the loopback address alone",
        ));
    }
    let (mut listeners, mut faults) = (Vec::new(), Vec::new());
    for address in addresses {
        match bind(address).await {
            Ok(listener) => listeners.push(listener),
            Err(error) => faults.push(error),
        }
    }
    match (listeners.is_empty(), faults.first()) {
        // A name may stand for an address of a family that the host does not have.
        (true, Some(error)) => Err(refused(&format!("cannot listen: {error}"))),
        (true, None) => Err(refused("it names no address")),
        (false, _) => Ok(listeners),
    }
}

/// Makes the data directory if need be, and locks it.
fn open(data_dir: &Path) -> Result<(PathBuf, DirectoryLock), String> {
    let failed = |why: String| format!("cannot use --data-dir={}: {why}", data_dir.display());
    let directory = std::path::absolute(data_dir).map_err(|error| failed(error.to_string()))?;
    if directory.join("member").exists() {
        return Err(failed(
            "it holds the data of an etcd, which its stand-in cannot read".into(),
        ));
    }
    let lock = DirectoryLock::acquire(&directory).map_err(|error| failed(error.to_string()))?;
    Ok((directory, lock))
}

/// Answers requests.
struct Answers {
    identity: Bytes,
    metrics: Arc<ConnectionMetrics>,
}

impl Answers {
    /// Writes the proof that it shares the directory with whoever reads it.
    fn new(directory: &Path) -> Result<Self, String> {
        let failed = |why: String| format!("cannot use --data-dir={}: {why}", directory.display());
        let named = directory
            .to_str()
            .ok_or_else(|| failed("the path is not UTF-8".into()))?;
        let proof = uuid::Uuid::new_v4().to_string();
        // The directory is its owner's alone.
        std::fs::write(directory.join(PROOF_FILE), &proof).map_err(|error| failed(error.to_string()))?;
        Ok(Answers {
            identity: json!({DIRECTORY: named, PROOF: proof}).to_string().into(),
            metrics: Arc::default(),
        })
    }

    fn answer(&self, request: &Request) -> Response {
        let grpc = request
            .headers()
            .get(header::CONTENT_TYPE)
            .is_some_and(|media| media.as_bytes().starts_with(b"application/grpc"));
        if grpc {
            return refuse_call();
        }
        if request.method() != Method::GET {
            return refuse();
        }
        match request.uri().path() {
            "/health" => json_response(full(r#"{"health":"true","reason":""}"#)),
            PATH => {
                let frame = Ok::<_, BoxError>(Frame::data(self.identity.clone()));
                let whole = stream::iter([frame]).chain(stream::pending());
                json_response(StreamBody::new(whole).boxed_unsync())
            }
            _ => refuse(),
        }
    }
}

impl Handler for Answers {
    fn handle(self: Arc<Self>, request: Request) -> Pin<Box<dyn Future<Output = Response> + Send>> {
        let response = self.answer(&request);
        Box::pin(std::future::ready(response))
    }

    fn connection_metrics(&self) -> Arc<ConnectionMetrics> {
        self.metrics.clone()
    }
}

fn json_response(body: generic_server::request::Body) -> Response {
    let mut response = Response::new(body);
    let media = HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, media);
    response
}

fn refuse() -> Response {
    let mut response = Response::new(full(format!("{REFUSAL}\n")));
    *response.status_mut() = StatusCode::NOT_IMPLEMENTED;
    response
}

/// gRPC's refusal: UNIMPLEMENTED, in trailers that come at once.
fn refuse_call() -> Response {
    let mut response = Response::new(generic_server::request::empty());
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    headers.insert("grpc-status", HeaderValue::from_static("12"));
    headers.insert("grpc-message", HeaderValue::from_static(REFUSAL));
    response
}

#[cfg(test)]
mod tests;
