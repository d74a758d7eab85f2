//! `pods/log`: the options, and the kubelet's answer passed on as it comes.

use bytes::Bytes;
use generic_server::filters::text_error;
use generic_server::request::full;
use generic_server::request_info::encode_query;
use generic_server::resource::ConnectCall;
use generic_server::spawn::Tasks;
use generic_server::streaming::{ClientSide, Framing, exchange, messages, websocket};
use generic_server::{ApiError, Body, Request, Response};
use http::{HeaderValue, StatusCode, header};
use http_body_util::BodyExt;
use machinery::status::{Details, Reason};
use machinery::time::Timestamp;
use machinery::{FieldPath, GroupKind, go, limits};

use super::{NodeStream, Target, passing, pod, query};
use crate::errors::Errors;

/// PodLogOptions.
#[derive(Debug, Default)]
struct LogOptions {
    container: String,
    follow: bool,
    previous: bool,
    timestamps: bool,
    since_seconds: Option<i64>,
    since_time: Option<String>,
    tail_lines: Option<i64>,
    limit_bytes: Option<i64>,
    stream: Option<String>,
    skips_verification: bool,
}

impl LogOptions {
    /// # Errors
    /// 400 for a value that cannot be read, 422 for one that is out of its range.
    fn read(asked: &str, name: &str) -> Result<Self, ApiError> {
        let options = LogOptions {
            container: query::value(asked, "container").unwrap_or_default().into_owned(),
            follow: query::flag(asked, "follow"),
            previous: query::flag(asked, "previous"),
            timestamps: query::flag(asked, "timestamps"),
            since_seconds: query::number(asked, "sinceSeconds")?,
            since_time: query::value(asked, "sinceTime")
                .map(|text| time(&text))
                .transpose()?,
            tail_lines: query::number(asked, "tailLines")?,
            limit_bytes: query::number(asked, "limitBytes")?,
            stream: query::value(asked, "stream").map(|name| name.into_owned()),
            skips_verification: query::flag(asked, "insecureSkipTLSVerifyBackend"),
        };
        options.check(name)?;
        Ok(options)
    }

    fn check(&self, name: &str) -> Result<(), ApiError> {
        let positive = "must be greater than 0";
        let errors = Errors::collect(|errors| {
            errors.non_negative(&FieldPath::new("tailLines"), self.tail_lines);
            if let Some(limit) = self.limit_bytes.filter(|limit| *limit < 1) {
                errors.invalid(&FieldPath::new("limitBytes"), limit, positive);
            }
            match self.since_seconds {
                Some(_) if self.since_time.is_some() => errors.forbidden(
                    &FieldPath::new(""),
                    "at most one of `sinceTime` or `sinceSeconds` may be specified",
                ),
                Some(seconds) if seconds < 1 => {
                    errors.invalid(&FieldPath::new("sinceSeconds"), seconds, positive);
                }
                _ => {}
            }
            // The feature PodLogsQuerySplitStreams is off.
            if self.stream.is_some() {
                errors.forbidden(&FieldPath::new("stream"), "may not be specified");
            }
        });
        match errors.is_empty() {
            true => Ok(()),
            false => Err(ApiError::invalid(
                &GroupKind::new("", "PodLogOptions"),
                name,
                &errors,
            )),
        }
    }

    /// The query for a kubelet, sorted as Go sorts it.
    fn query(&self) -> String {
        let number = |name: &str, value: Option<i64>| value.map(|value| format!("{name}={value}"));
        let flag = |name: &str, set: bool| set.then(|| format!("{name}=true"));
        let pairs = [
            flag("follow", self.follow),
            flag("previous", self.previous),
            flag("timestamps", self.timestamps),
            number("sinceSeconds", self.since_seconds),
            self.since_time.as_ref().map(|time| format!("sinceTime={time}")),
            number("tailLines", self.tail_lines),
            number("limitBytes", self.limit_bytes),
        ];
        encode_query(&pairs.into_iter().flatten().collect::<Vec<_>>().join("&"))
    }
}

/// A point in time, to the second.
fn time(text: &str) -> Result<String, ApiError> {
    if text.is_empty() || text == "null" {
        return Ok("0001-01-01T00:00:00Z".into());
    }
    match Timestamp::parse_rfc3339(text) {
        Some(time) => Ok(time.to_rfc3339()),
        None => Err(ApiError::bad_request(format!(
            "parsing time {} as \"2006-01-02T15:04:05Z07:00\": cannot parse {} as \"2006\"",
            go::quote(text),
            go::quote(text),
        ))),
    }
}

impl NodeStream {
    /// Answers with the log of a container.
    pub(super) async fn log(
        &self,
        call: &ConnectCall<'_>,
        mut request: Request,
    ) -> Result<Response, ApiError> {
        let options = LogOptions::read(query::of(&request), call.name)?;
        self.nodes.counts().log(!options.skips_verification);
        let pod = self.pod(call, call.name).await?;
        let container = pod::container(&pod, &options.container)?;
        let Ok(node) = pod::node(&pod) else {
            // A pod that runs nowhere has said nothing.
            let mut response = Response::new(full(Bytes::new()));
            *response.status_mut() = StatusCode::NO_CONTENT;
            return Ok(response);
        };
        let kubelet = self
            .nodes
            .kubelet(
                &self.client,
                call.authorized.user(),
                node,
                !options.skips_verification,
            )
            .await?;
        let query = options.query();
        let mark = if query.is_empty() { "" } else { "?" };
        let target = Target {
            peer: kubelet.peer,
            location: format!(
                "/containerLogs/{}/{}/{container}{mark}{query}",
                call.namespace, call.name
            ),
        };
        let failed = |url: &str, why: &str| ApiError::raw_internal(format!("Get {}: {why}", go::quote(url)));
        let answer = exchange(self.nodes.tasks(), &target.peer, passing::get(&target)?).await;
        let answer = answer.map_err(|fault| {
            if fault.0.contains("x509:") {
                self.nodes.counts().log_failed();
            }
            failed(&target.url(), &fault.0)
        })?;
        if let Some(location) = redirect(&answer) {
            return Err(failed(&location, "redirects forbidden"));
        }
        if !(200..=206).contains(&answer.status().as_u16()) {
            return Err(refused(answer, call.name).await);
        }
        if websocket::is_asked(request.headers()) {
            return Ok(as_messages(self.nodes.tasks(), answer.into_body(), &mut request));
        }
        let mut response = Response::new(answer.into_body());
        response
            .headers_mut()
            .insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain"));
        Ok(response)
    }
}

/// Answers a client that speaks WebSocket: each piece of the log is a message.
fn as_messages(tasks: &Tasks, log: Body, request: &mut Request) -> Response {
    let offered: Vec<String> = websocket::offered(request.headers())
        .map(str::to_string)
        .collect();
    let known = |name: &&String| [websocket::BYTES, websocket::BASE64].contains(&name.as_str());
    let chosen = offered.iter().find(known).cloned();
    if chosen.is_none() && !offered.is_empty() {
        return text_error(StatusCode::FORBIDDEN, "requested protocol(s) are not supported");
    }
    let answer = match websocket::accept(request.headers(), chosen.as_deref()) {
        Ok(answer) => answer,
        Err(refused) => return refused,
    };
    let client = ClientSide::of(request.extensions());
    let framing = match chosen.as_deref() {
        Some(websocket::BASE64) => Framing::Base64,
        _ => Framing::Bytes,
    };
    tasks.spawn("log as messages", async move {
        if let Some(client) = client.ready().await {
            messages(client, log, framing).await;
        }
    });
    answer
}

/// Where a client would be sent.
fn redirect(answer: &http::Response<Body>) -> Option<String> {
    let sends = matches!(answer.status().as_u16(), 301 | 302 | 303 | 307 | 308);
    let location = answer.headers().get(header::LOCATION).filter(|_| sends)?;
    Some(String::from_utf8_lossy(location.as_bytes()).into_owned())
}

/// The error of a kubelet's answer.
async fn refused(answer: http::Response<Body>, name: &str) -> ApiError {
    let code = answer.status().as_u16();
    let body = read_start(answer.into_body()).await;
    let text = String::from_utf8_lossy(&body);
    match code {
        500 => ApiError::internal(text),
        400 => ApiError::bad_request(text),
        _ => server_response(code, &text, name),
    }
}

/// The beginning of a body.
pub(super) async fn read_start(mut body: Body) -> Vec<u8> {
    let mut start = Vec::new();
    while let Some(Ok(frame)) = body.frame().await {
        let data = frame.into_data().unwrap_or_default();
        let room = limits::NODE_ERROR_BYTES - start.len();
        start.extend_from_slice(data.get(..room.min(data.len())).unwrap_or_default());
        if start.len() >= limits::NODE_ERROR_BYTES {
            break;
        }
    }
    start
}

/// What upstream makes of a status code that comes without a Status (`NewGenericServerResponse`).
fn server_response(code: u16, text: &str, name: &str) -> ApiError {
    let (reason, message): (Reason, String) = match code {
        401 => (Reason::Unauthorized, "the server has asked for the client to provide credentials".into()),
        403 => (Reason::Forbidden, text.into()),
        404 => (Reason::NotFound, "the server could not find the requested resource".into()),
        405 => (
            Reason::MethodNotAllowed,
            "the server does not allow this method on the requested resource".into(),
        ),
        406 if text.is_empty() || text == "unknown" => (
            Reason::NotAcceptable,
            "the server was unable to respond with a content type that the client supports".into(),
        ),
        406 => (Reason::NotAcceptable, text.into()),
        409 => (Reason::Conflict, "the server reported a conflict".into()),
        415 => (Reason::UnsupportedMediaType, text.into()),
        422 => (Reason::Invalid, "the server rejected our request due to an error in our request".into()),
        429 => (
            Reason::TooManyRequests,
            "the server has received too many requests and has asked us to try again later".into(),
        ),
        503 => (
            Reason::ServiceUnavailable,
            "the server is currently unable to handle the request".into(),
        ),
        504 => (
            Reason::Timeout,
            "the server was unable to return a response in the time allotted, but may still be processing the request".into(),
        ),
        500.. => (
            Reason::InternalError,
            format!("an error on the server ({}) has prevented the request from succeeding", go::quote(text)),
        ),
        _ => (
            Reason::Unknown,
            format!("the server responded with the status code {code} but did not return more information"),
        ),
    };
    ApiError::new(code, reason, format!("{message} ( pods/log {name})")).with_details(Details {
        name: name.into(),
        kind: "pods/log".into(),
        ..Details::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn errors_of_nodes_are_read_up_to_their_bound() {
        for more in [0, 1] {
            let text = "x".repeat(limits::NODE_ERROR_BYTES + more);
            let read = read_start(generic_server::request::full(text)).await;
            assert_eq!(read.len(), limits::NODE_ERROR_BYTES);
        }
    }

    fn options(query: &str) -> Result<LogOptions, ApiError> {
        LogOptions::read(query, "p")
    }

    #[test]
    fn options_are_passed_on_sorted() {
        let check =
            |query: &str, expected: &str| assert_eq!(options(query).unwrap().query(), expected, "{query}");
        check("", "");
        check("container=c&pretty=true", "");
        check("follow=&previous=false&timestamps=0", "follow=true");
        check(
            "timestamps=true&tailLines=0&sinceSeconds=5&previous=1&limitBytes=1&follow=true",
            "follow=true&limitBytes=1&previous=true&sinceSeconds=5&tailLines=0&timestamps=true",
        );
        check(
            "sinceTime=2024-01-02T03:04:05.678Z",
            "sinceTime=2024-01-02T03%3A04%3A05Z",
        );
        check("sinceTime=null", "sinceTime=0001-01-01T00%3A00%3A00Z");
    }

    #[test]
    fn wrong_options_are_refused_in_upstreams_words() {
        let check = |query: &str, code: u16, expected: &str| {
            let error = options(query).expect_err(query);
            assert_eq!((error.code(), error.message()), (code, expected), "{query}");
        };
        let invalid = |what: &str| format!("PodLogOptions \"p\" is invalid: {what}");
        check(
            "tailLines=-1",
            422,
            &invalid("tailLines: Invalid value: -1: must be greater than or equal to 0"),
        );
        check(
            "limitBytes=0",
            422,
            &invalid("limitBytes: Invalid value: 0: must be greater than 0"),
        );
        check(
            "sinceSeconds=0",
            422,
            &invalid("sinceSeconds: Invalid value: 0: must be greater than 0"),
        );
        check(
            "stream=Stdout",
            422,
            &invalid("stream: Forbidden: may not be specified"),
        );
        check(
            "sinceSeconds=0&sinceTime=2024-01-02T03:04:05Z",
            422,
            &invalid(": Forbidden: at most one of `sinceTime` or `sinceSeconds` may be specified"),
        );
        check(
            "tailLines=many",
            400,
            "strconv.ParseInt: parsing \"many\": invalid syntax",
        );
        check(
            "limitBytes=",
            400,
            "strconv.ParseInt: parsing \"\": invalid syntax",
        );
        check(
            "sinceTime=yesterday",
            400,
            "parsing time \"yesterday\" as \"2006-01-02T15:04:05Z07:00\": cannot parse \"yesterday\" as \"2006\"",
        );
    }

    #[test]
    fn codes_of_kubelets_have_upstreams_texts() {
        let check = |code: u16, reason: Reason, expected: &str| {
            let error = server_response(code, "text", "p");
            assert_eq!((error.code(), error.reason()), (code, reason));
            assert_eq!(error.message(), format!("{expected} ( pods/log p)"));
        };
        check(403, Reason::Forbidden, "text");
        check(
            404,
            Reason::NotFound,
            "the server could not find the requested resource",
        );
        check(
            503,
            Reason::ServiceUnavailable,
            "the server is currently unable to handle the request",
        );
        check(
            502,
            Reason::InternalError,
            "an error on the server (\"text\") has prevented the request from succeeding",
        );
        check(
            418,
            Reason::Unknown,
            "the server responded with the status code 418 but did not return more information",
        );
    }
}
