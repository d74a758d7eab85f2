//! gRPC on a Unix socket.

use std::convert::Infallible;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::{BufMut, Bytes, BytesMut};
use http::{HeaderMap, HeaderValue, Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::UnixListener;
use tokio::task::JoinSet;

/// A code of gRPC and its text.
pub(crate) type Refusal = (u16, &'static str);

/// A socket that is answered until it is dropped.
#[derive(Debug)]
pub(crate) struct Served {
    socket: PathBuf,
    task: tokio::task::JoinHandle<()>,
}

impl Served {
    /// Listens on a socket, whose file is recreated, and answers messages by the paths of their methods.
    pub(crate) fn listen(
        socket: &Path,
        answers: impl Fn(&str, &[u8]) -> Result<Vec<u8>, Refusal> + Send + Sync + 'static,
    ) -> std::io::Result<Self> {
        let _ = std::fs::remove_file(socket);
        let listener = UnixListener::bind(socket)?;
        let answers = Arc::new(answers);
        let task = tokio::spawn(async move {
            // Connections end with the plugin.
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let answers = answers.clone();
                connections.spawn(async move {
                    let service = hyper::service::service_fn(move |request| serve(answers.clone(), request));
                    let builder = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
                    // A client that goes away in the middle is no fault of the plugin.
                    let _ = builder.serve_connection(TokioIo::new(stream), service).await;
                });
            }
        });
        Ok(Served {
            socket: socket.to_path_buf(),
            task,
        })
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.task.abort();
        let _ = std::fs::remove_file(&self.socket);
    }
}

async fn serve(
    answers: Arc<impl Fn(&str, &[u8]) -> Result<Vec<u8>, Refusal>>,
    request: Request<Incoming>,
) -> Result<Response<impl hyper::body::Body<Data = Bytes, Error = Infallible>>, Infallible> {
    let path = request.uri().path().to_string();
    let outcome = match request.into_body().collect().await {
        // Every message has five bytes before it: whether it is compressed, and its length.
        Ok(body) => {
            let body = body.to_bytes();
            answers(&path, body.get(5..).unwrap_or_default())
        }
        Err(_) => Err((13, "the request broke off")),
    };
    let (message, code, text) = match outcome {
        Ok(message) => (message, 0, ""),
        Err((code, text)) => (Vec::new(), code, text),
    };
    let mut frame = BytesMut::new();
    if code == 0 {
        frame.put_u8(0);
        frame.put_u32(u32::try_from(message.len()).unwrap_or(u32::MAX));
        frame.put_slice(&message);
    }
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", HeaderValue::from(code));
    trailers.insert("grpc-message", HeaderValue::from_static(text));
    let body = Full::new(frame.freeze()).with_trailers(async move { Some(Ok(trailers)) });
    let mut response = Response::new(body);
    let kind = HeaderValue::from_static("application/grpc");
    response.headers_mut().insert(http::header::CONTENT_TYPE, kind);
    Ok(response)
}
