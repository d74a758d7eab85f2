//! `PUT /debug/flags/v`: the verbosity of the log of a running process. Mirrors `apiserver/pkg/server/routes/flags.go`.

use generic_server::endpoint::Endpoint;
use generic_server::request::full;
use generic_server::{Authorized, Request, Response};
use http::{HeaderValue, Method, StatusCode, header};
use http_body_util::BodyExt;

use crate::logging;

/// A number has few digits.
const BODY_BYTES: usize = 64;

/// Changes the level of the log.
#[derive(Debug)]
pub(crate) struct Verbosity;

impl Verbosity {
    pub(crate) const PATH: &str = "/debug/flags/v";
}

/// The flags that can be changed while the process runs: one.
#[derive(Debug)]
pub(crate) struct FlagIndex;

impl FlagIndex {
    pub(crate) const PATH: &str = "/debug/flags";
}

#[async_trait::async_trait]
impl Endpoint for FlagIndex {
    async fn serve(&self, _authorized: &Authorized, _request: Request) -> Response {
        const INDEX: &str = "<html>\n<head>\n<title>/debug/flags/</title>\n</head>\n<body>\n/debug/flags/<br>\n<br>\nflags:<br>\n<table>\n<tr>v<br>\n</table>\n<br>\nfull flags configurable<br>\n</body>\n</html>\n";
        let mut response = Response::new(full(INDEX));
        let html = HeaderValue::from_static("text/html; charset=utf-8");
        response.headers_mut().insert(header::CONTENT_TYPE, html);
        response
    }
}

#[async_trait::async_trait]
impl Endpoint for Verbosity {
    async fn serve(&self, _authorized: &Authorized, request: Request) -> Response {
        if request.method() != Method::PUT {
            return plain(StatusCode::NOT_ACCEPTABLE, "unsupported http method".into());
        }
        let (mut body, mut text) = (request.into_body(), Vec::new());
        while let Some(frame) = body.frame().await {
            let data = frame.ok().and_then(|frame| frame.into_data().ok());
            text.extend_from_slice(&data.unwrap_or_default());
            if text.len() > BODY_BYTES {
                let text = "error reading request body: it is a number".into();
                return plain(StatusCode::BAD_REQUEST, text);
            }
        }
        match set(&String::from_utf8_lossy(&text)) {
            Ok(text) => plain(StatusCode::OK, text),
            Err(text) => plain(StatusCode::BAD_REQUEST, text),
        }
    }
}

/// Sets the level that a number stands for, and says so in upstream's words.
fn set(text: &str) -> Result<String, String> {
    let refusal = |why: &str| format!("strconv.ParseUint: parsing {}: {why}", machinery::go::quote(text));
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(refusal("invalid syntax"));
    }
    let level: u32 = text.parse().map_err(|_| refusal("value out of range"))?;
    logging::set_verbosity(u8::try_from(level).unwrap_or(u8::MAX))?;
    tracing::info!(level, "the verbosity of the log was set");
    Ok(format!("successfully set klog.logging.verbosity to {level}"))
}

fn plain(code: StatusCode, text: String) -> Response {
    let mut response = Response::new(full(text + "\n"));
    *response.status_mut() = code;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain"));
    headers.insert(
        header::X_CONTENT_TYPE_OPTIONS,
        HeaderValue::from_static("nosniff"),
    );
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_levels_are_refused_in_upstreams_words() {
        #[track_caller]
        fn check(text: &str, expected: &str) {
            assert_eq!(set(text), Err(expected.to_owned()));
        }
        check("x", "strconv.ParseUint: parsing \"x\": invalid syntax");
        check("", "strconv.ParseUint: parsing \"\": invalid syntax");
        check("-1", "strconv.ParseUint: parsing \"-1\": invalid syntax");
        check(
            "99999999999",
            "strconv.ParseUint: parsing \"99999999999\": value out of range",
        );
    }
}
