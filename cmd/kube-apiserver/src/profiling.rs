//! `/debug/pprof/`: which profiles there are, which is none. Mirrors the paths of `apiserver/pkg/server/routes/profiling.go` and of Go's `net/http/pprof`.
//!
//! A profile of the processor would have to be taken in a signal handler that walks foreign stacks, and the allocator keeps no profile of the
//! heap. Tools of the system take both without a hand in the process: `docs/operations.md` says how.

use generic_server::endpoint::Endpoint;
use generic_server::request::full;
use generic_server::{Authorized, Request, Response, respond};
use http::{HeaderValue, StatusCode, header};
use machinery::{ApiError, Reason};

/// Upstream's profiles: each with the reason why it is not here.
const PROFILES: [(&str, &str); 10] = [
    ("allocs", "the allocator keeps no profile"),
    ("block", "there are no goroutines"),
    ("goroutine", "there are no goroutines"),
    ("goroutineleak", "there are no goroutines"),
    ("heap", "the allocator keeps no profile"),
    ("mutex", "waits for locks are not recorded"),
    (
        "profile",
        "the process does not interrupt itself: `perf record -g -p PID` profiles it from outside",
    ),
    ("symbol", "there are no profiles to resolve addresses of"),
    ("threadcreate", "threads are not recorded"),
    ("trace", "there are no goroutines"),
];

/// Answers for all profiles.
#[derive(Debug)]
pub(crate) struct Profiles;

impl Profiles {
    /// Where they are, and everything below.
    pub(crate) const PATH: &str = "/debug/pprof";
}

#[async_trait::async_trait]
impl Endpoint for Profiles {
    async fn serve(&self, authorized: &Authorized, _request: Request) -> Response {
        let path = &authorized.info().path;
        let Some(name) = path
            .strip_prefix(Self::PATH)
            .and_then(|rest| rest.strip_prefix('/'))
        else {
            return index_is_below();
        };
        if name.is_empty() {
            return text(StatusCode::OK, "text/html; charset=utf-8", index());
        }
        match PROFILES.iter().find(|(known, _)| *known == name) {
            Some((_, why)) => {
                let message = format!("this server has no profile {}: {why}", machinery::go::quote(name));
                respond::error(&ApiError::new(501, Reason::Unknown, message))
            }
            None => text(
                StatusCode::NOT_FOUND,
                "text/plain; charset=utf-8",
                "Unknown profile\n".into(),
            ),
        }
    }
}

/// The index, for people.
fn index() -> String {
    let rows: String = PROFILES
        .iter()
        .map(|(name, why)| format!("<tr><td>{name}</td><td>{why}</td></tr>\n"))
        .collect();
    format!(
        "<html>\n<head>\n<title>/debug/pprof/</title>\n</head>\n<body>\n/debug/pprof/\n<p>This server has no profiles:</p>\n<table>\n{rows}</table>\n</body>\n</html>\n"
    )
}

fn index_is_below() -> Response {
    let mut response = text(
        StatusCode::FOUND,
        "text/html; charset=utf-8",
        "<a href=\"/debug/pprof/\">Found</a>.\n\n".into(),
    );
    let below = HeaderValue::from_static("/debug/pprof/");
    response.headers_mut().insert(header::LOCATION, below);
    response
}

fn text(code: StatusCode, kind: &'static str, text: String) -> Response {
    let mut response = Response::new(full(text));
    *response.status_mut() = code;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(
        header::X_CONTENT_TYPE_OPTIONS,
        HeaderValue::from_static("nosniff"),
    );
    response
}
