//! The streaming proxy to remote servers: any verb, watches and upgrades, nothing buffered.
//!
//! It is called for requests that passed authentication and authorization here; the backend learns the user by a certificate
//! that vouches for headers. Mirrors upstream's `handler_proxy.go` and `upgradeaware.go`. Invariants: the caller's own
//! credentials never leave; no request is sent twice unless no byte of it can have been acted on; a backend that hangs or dies
//! takes a bounded number of requests with it, and only its own.

mod guard;
mod headers;
mod upgrade;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use generic_server::chain::Deadline;
use generic_server::client::fault_of;
use generic_server::filters::max_in_flight::too_many_requests;
use generic_server::filters::text_error;
use generic_server::request::{Routed, full};
use generic_server::serve::ConnectionInfo;
use generic_server::spawn::Tasks;
use generic_server::streaming::headers::strip_hop_by_hop;
use generic_server::{Authorized, Body, Request, RequestInfo, Response};
use http::request::Parts;
use http::{HeaderName, HeaderValue, Method, StatusCode, Version, header};
use hyper::body::Incoming;

use crate::backend::{Backend, Seats};
use crate::transport::{self, Held};

/// The most that a request for a group version's resource list may take: clients ask all servers for theirs.
const DISCOVERY_TIMEOUT: Duration = Duration::from_secs(5);
/// Addresses tried for one request.
const ATTEMPTS: usize = 3;
const AUDIT_ID: HeaderName = HeaderName::from_static("audit-id");

/// Passes requests on.
#[derive(Debug)]
pub(crate) struct Proxy {
    /// Names this process in requests that it passes on.
    instance: HeaderValue,
    /// Requests to all backends together.
    seats: Seats,
    tasks: Tasks,
}

impl Proxy {
    pub(crate) fn new(tasks: Tasks) -> Self {
        let id = uuid::Uuid::new_v4().to_string();
        Proxy {
            instance: HeaderValue::from_str(&id).unwrap_or(HeaderValue::from_static("aggregator")),
            seats: Seats::of_all(),
            tasks,
        }
    }

    /// The header that says that a request came from here.
    pub(crate) fn mark(&self) -> (HeaderName, HeaderValue) {
        (headers::VIA, self.instance.clone())
    }

    /// Passes a request on to an available backend.
    pub(crate) async fn serve(
        &self,
        backend: &Arc<Backend>,
        authorized: &Authorized,
        request: Request,
    ) -> Response {
        let info = authorized.info();
        if !headers::is_unambiguous(&info.path) {
            return text_error(
                StatusCode::BAD_REQUEST,
                "400 Bad Request: the path has empty or dot segments",
            );
        }
        let came_back = request
            .headers()
            .get_all(&headers::VIA)
            .iter()
            .any(|via| *via == self.instance);
        if came_back {
            let name = &backend.spec.name;
            tracing::warn!(apiservice = name, "an APIService leads back to this server");
            return text_error(
                StatusCode::LOOP_DETECTED,
                "the APIService leads back to this server",
            );
        }
        let transport = match &backend.transport {
            Ok(transport) => transport,
            Err(why) => return text_error(StatusCode::INTERNAL_SERVER_ERROR, why),
        };
        if !backend.allows_requests() {
            backend.stats.refused.fetch_add(1, Ordering::Relaxed);
            return unavailable();
        }
        let writes = !matches!(*request.method(), Method::GET | Method::HEAD);
        let (Some(seat), Some(place)) = (self.seats.take(&backend.seats, writes), transport.place()) else {
            backend.stats.refused.fetch_add(1, Ordering::Relaxed);
            return *too_many_requests();
        };
        let targets = match backend.targets() {
            Ok(targets) => targets,
            Err(why) => {
                tracing::warn!(
                    apiservice = backend.spec.name,
                    error = why,
                    "error resolving its service"
                );
                return unavailable();
            }
        };
        let (mut head, body) = request.into_parts();
        let upgrade = upgrade::protocols(&head.headers);
        // Before anything is said in headers of this server's own: `Connection` may name those too.
        strip_hop_by_hop(&mut head.headers);
        authorized.context().routed(Routed::GroupVersion);
        let call = Call {
            proxy: self,
            authorized,
            location: headers::location(&info.path, head.uri.query()),
            head,
        };
        if let Some(protocols) = upgrade {
            return upgrade::serve(call, &protocols, backend, transport, &targets).await;
        }
        let deadline = call.head.extensions.get::<Deadline>().map(|d| d.0);
        let lasting = info.verb == "watch";
        let asked = call.send(backend, &place.pool, &targets, Held::new(body));
        let answer = if is_discovery(info) {
            let late = || Err("context deadline exceeded".to_string());
            tokio::time::timeout(DISCOVERY_TIMEOUT, asked)
                .await
                .unwrap_or_else(|_| late())
        } else {
            asked.await
        };
        match answer {
            Err(why) => unreachable_backend(&why),
            // Watches are many and long: they give up their seat once they run.
            Ok(response) if lasting => pass_back(response, |body| guard::plain(body, place.permit)),
            Ok(response) => pass_back(response, |body| guard::until(body, place.permit, deadline, seat)),
        }
    }
}

/// A request on its way out.
#[derive(Debug)]
struct Call<'a> {
    proxy: &'a Proxy,
    authorized: &'a Authorized,
    /// Path and query.
    location: String,
    /// Without what concerned the client's connection alone.
    head: Parts,
}

impl Call<'_> {
    /// The head for one address.
    fn request<B>(&self, authority: &str, body: B) -> Result<http::Request<B>, String> {
        let uri = format!("https://{authority}{}", self.location);
        let mut request = http::Request::new(body);
        *request.method_mut() = self.head.method.clone();
        *request.uri_mut() = uri.parse().map_err(|error| format!("{error}"))?;
        *request.version_mut() = Version::HTTP_11;
        let own = request.headers_mut();
        own.clone_from(&self.head.headers);
        headers::set_identity(own, self.authorized.user())?;
        own.append(headers::VIA, self.proxy.instance.clone());
        if let Some(id) = &self.authorized.context().audit_id {
            own.insert(AUDIT_ID, id.clone());
        }
        Ok(request)
    }

    fn client(&self) -> Option<std::net::IpAddr> {
        let connection = self.head.extensions.get::<Arc<ConnectionInfo>>()?;
        Some(connection.peer.ip())
    }

    /// Asks one address after the other, as long as nothing can have been done by one before.
    async fn send(
        &self,
        backend: &Arc<Backend>,
        pool: &transport::Pool,
        targets: &[Box<str>],
        body: Held,
    ) -> Result<http::Response<Incoming>, String> {
        let path = self.location.split('?').next().unwrap_or_default();
        let mut why = String::from("no address");
        // Once for all attempts: a pooled connection that died says nothing of the backend, a request that fails in the end does.
        let in_flight = backend.begin_request();
        // One address is tried twice: a pooled connection may have died unnoticed.
        let rounds = targets.iter().cycle().take(ATTEMPTS.min(targets.len().max(2)));
        for authority in rounds {
            let mut request = self.request(authority, body.clone())?;
            let own = request.headers_mut();
            headers::set_forwarded(own, self.client(), authority, path);
            match pool.request(request).await {
                Ok(response) => {
                    in_flight.answered(response.status().as_u16());
                    return Ok(response);
                }
                Err(error) => {
                    why = fault_of(&error);
                    let harmless =
                        error.is_connect() || matches!(self.head.method, Method::GET | Method::HEAD);
                    if body.is_touched() || !harmless {
                        break;
                    }
                }
            }
        }
        in_flight.failed();
        Err(why)
    }
}

/// Sets the headers that identify this server as the user of a request of its own.
pub(crate) fn identify(headers: &mut http::HeaderMap, user: &generic_server::User) {
    if let Err(error) = headers::set_identity(headers, user) {
        tracing::error!(
            error,
            user.name = user.name,
            "cannot say a user of this server's own in headers"
        );
    }
}

/// Text as one segment of a path, or as one value of a query.
pub(crate) fn segment(text: &str) -> String {
    headers::segment(text)
}

/// The body of such a request.
pub(crate) fn body(bytes: bytes::Bytes) -> Held {
    match bytes.is_empty() {
        true => Held::empty(),
        false => Held::new(full(bytes)),
    }
}

/// `/apis/GROUP/VERSION`.
fn is_discovery(info: &RequestInfo) -> bool {
    !info.is_resource && info.path.trim_matches('/').split('/').count() == 3
}

/// The answer for a group version whose server is not there.
pub(crate) fn unavailable() -> Response {
    text_error(StatusCode::SERVICE_UNAVAILABLE, "service unavailable")
}

fn unreachable_backend(why: &str) -> Response {
    let text = format!("error trying to reach service: {why}");
    text_error(StatusCode::SERVICE_UNAVAILABLE, &text)
}

/// A backend's answer as it goes to the client.
fn pass_back(response: http::Response<Incoming>, guarded: impl FnOnce(Incoming) -> Body) -> Response {
    let (mut head, body) = response.into_parts();
    if head.status.is_redirection() && head.headers.contains_key(header::LOCATION) {
        let mut refusal = Response::new(full(
            "the backend attempted to redirect this request, which is not permitted",
        ));
        *refusal.status_mut() = StatusCode::BAD_GATEWAY;
        refusal.headers_mut().insert(
            header::CONTENT_TYPE,
            HeaderValue::from_static("text/plain; charset=utf-8"),
        );
        return refusal;
    }
    if head.status.is_informational() {
        let text = format!("invalid response: status code {}", head.status.as_u16());
        return text_error(StatusCode::BAD_GATEWAY, &text);
    }
    strip_hop_by_hop(&mut head.headers);
    head.version = Version::default();
    let extensions = std::mem::take(&mut head.extensions);
    drop(extensions);
    Response::from_parts(head, guarded(body))
}
