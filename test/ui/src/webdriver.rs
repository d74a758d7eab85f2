//! The few commands of WebDriver that the tests need: JSON over HTTP/1.1.

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::Request;
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::TcpStream;

/// Sends a command; gives its value, or the error with its message.
pub(crate) async fn command(port: u16, method: &str, path: &str, body: &Value) -> Result<Value, String> {
    let body = match method {
        "POST" => body.to_string(),
        _ => String::new(),
    };
    let stream = TcpStream::connect(("127.0.0.1", port))
        .await
        .map_err(|error| error.to_string())?;
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
        .await
        .map_err(|error| error.to_string())?;
    let connection = tokio::spawn(connection);
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header("host", format!("127.0.0.1:{port}"))
        .header("content-type", "application/json")
        .body(Full::new(Bytes::from(body)))
        .map_err(|error| error.to_string())?;
    let answer = sender
        .send_request(request)
        .await
        .map_err(|error| error.to_string())?;
    let status = answer.status();
    let body = answer
        .into_body()
        .collect()
        .await
        .map_err(|error| error.to_string())?;
    connection.abort();
    let mut value: Value = serde_json::from_slice(&body.to_bytes()).map_err(|error| error.to_string())?;
    let value = value["value"].take();
    match status.is_success() {
        true => Ok(value),
        false => Err(value["message"]
            .as_str()
            .unwrap_or("an error without a message")
            .to_string()),
    }
}
