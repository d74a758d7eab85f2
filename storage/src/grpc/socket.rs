//! Calls to a program beside the server: gRPC over a Unix socket, each bounded by a timeout. A program that is not there yet is waited for until
//! then.

use std::path::PathBuf;
use std::time::Duration;

use http::Uri;
use http::uri::PathAndQuery;
use hyper_util::rt::TokioIo;
use tokio::net::UnixStream;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Status};
use tower::Service;

use super::codec::ProstCodec;

/// Between attempts to reach a plugin.
const RECONNECT_DELAY: Duration = Duration::from_millis(50);

/// A client of one program.
#[derive(Debug)]
pub struct SocketClient {
    channel: Channel,
    timeout: Duration,
}

impl SocketClient {
    /// Connects when first used. `@name` is a socket of Linux' abstract namespace.
    pub fn new(socket: PathBuf, timeout: Duration) -> Self {
        let endpoint = Endpoint::from_static("http://localhost");
        let channel = endpoint.connect_with_connector_lazy(connector(socket));
        SocketClient { channel, timeout }
    }

    /// Calls the method at a path. All calls may be repeated: one that cannot connect is made again until the timeout.
    ///
    /// # Errors
    /// What the program answers, or `DeadlineExceeded`.
    pub async fn call<Req, Resp>(&self, path: &'static str, request: Req) -> Result<Resp, Status>
    where
        Req: prost::Message + Clone + 'static,
        Resp: prost::Message + Default + 'static,
    {
        let mut last = None;
        let attempts = async {
            loop {
                match self.once(path, request.clone()).await {
                    Err(status) if status.code() == Code::Unavailable => last = Some(status),
                    outcome => return outcome,
                }
                tokio::time::sleep(RECONNECT_DELAY).await;
            }
        };
        match tokio::time::timeout(self.timeout, attempts).await {
            Ok(outcome) => outcome,
            Err(_) => Err(match last {
                Some(status) => Status::deadline_exceeded(format!(
                    "context deadline exceeded while waiting for connections to become ready: {}",
                    status.message()
                )),
                None => Status::deadline_exceeded("context deadline exceeded"),
            }),
        }
    }

    async fn once<Req, Resp>(&self, path: &'static str, request: Req) -> Result<Resp, Status>
    where
        Req: prost::Message + 'static,
        Resp: prost::Message + Default + 'static,
    {
        let mut grpc = tonic::client::Grpc::new(self.channel.clone());
        grpc.ready()
            .await
            .map_err(|error| Status::unavailable(error.to_string()))?;
        let path = PathAndQuery::from_static(path);
        let answer = grpc
            .unary(tonic::Request::new(request), path, ProstCodec::default())
            .await;
        answer.map(tonic::Response::into_inner)
    }
}

/// Opens connections to a socket.
pub(super) fn connector(
    socket: PathBuf,
) -> impl Service<Uri, Response = TokioIo<UnixStream>, Error = std::io::Error, Future: Send> + Send + 'static
{
    tower::service_fn(move |_: Uri| {
        let socket = socket.clone();
        async move { connect(&socket).await.map(TokioIo::new) }
    })
}

#[cfg(target_os = "linux")]
async fn connect(socket: &std::path::Path) -> std::io::Result<UnixStream> {
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::net::{SocketAddr, UnixStream as Blocking};

    let Some(name) = socket.as_os_str().as_bytes().strip_prefix(b"@") else {
        return UnixStream::connect(socket).await;
    };
    // Connecting to a local socket does not wait for the other side.
    let stream = Blocking::connect_addr(&SocketAddr::from_abstract_name(name)?)?;
    stream.set_nonblocking(true)?;
    UnixStream::from_std(stream)
}

#[cfg(not(target_os = "linux"))]
async fn connect(socket: &std::path::Path) -> std::io::Result<UnixStream> {
    UnixStream::connect(socket).await
}

/// As gRPC clients print a failed call.
pub fn text(status: &Status) -> String {
    format!(
        "rpc error: code = {} desc = {}",
        code_name(status),
        status.message()
    )
}

/// The code of a failed call by Go's name.
pub fn code_name(status: &Status) -> &'static str {
    match status.code() {
        Code::Ok => "OK",
        Code::Cancelled => "Canceled",
        Code::Unknown => "Unknown",
        Code::InvalidArgument => "InvalidArgument",
        Code::DeadlineExceeded => "DeadlineExceeded",
        Code::NotFound => "NotFound",
        Code::AlreadyExists => "AlreadyExists",
        Code::PermissionDenied => "PermissionDenied",
        Code::ResourceExhausted => "ResourceExhausted",
        Code::FailedPrecondition => "FailedPrecondition",
        Code::Aborted => "Aborted",
        Code::OutOfRange => "OutOfRange",
        Code::Unimplemented => "Unimplemented",
        Code::Internal => "Internal",
        Code::Unavailable => "Unavailable",
        Code::DataLoss => "DataLoss",
        Code::Unauthenticated => "Unauthenticated",
    }
}

/// Whether a failure is about the program rather than about the request.
pub(crate) fn is_away(status: &Status) -> bool {
    matches!(status.code(), Code::Unavailable | Code::DeadlineExceeded)
}
