//! The handler chain: everything between a connection and the servers behind it, in one order, in this file.
//!
//! A request goes through [`Chain::serve`], then `received`, `within_deadline`, `identified`, `authenticated` and `permitted`: each
//! function is one stretch whose order is written down where it happens, and each layer lives in a file of [`crate::filters`]. Callable
//! without a socket. Mirrors upstream's `DefaultBuildHandlerChain`. It decides nothing about kinds: that is the delegate's.

mod config;
mod service;
mod slow;
#[cfg(test)]
mod tests;
mod watch_socket;

use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use http::request::Parts;
use http::{HeaderValue, Method, StatusCode, header};
use http_body::Body as _;
use tokio_util::sync::CancellationToken;

use crate::audit::Auditor;
use crate::authn::Verdict;
use crate::authz::{Attributes, Decision, forbidden};
use crate::cpu;
use crate::delegate::Handled;
use crate::filters::audit::Recording;
use crate::filters::impersonation::Impersonated;
use crate::filters::max_in_flight::{self, Admission, Asked, Permit};
use crate::filters::sending::{self, Charge, ResponseBudget};
use crate::filters::{self, audit, authentication, deadline, headers, impersonation, labels, long_running};
use crate::flowcontrol::FlowHeaders;
use crate::lifecycle::Lifecycle;
use crate::metrics::{AuthenticationResult, AuthorizationResult, Counted, InFlightKind, Outcome};
use crate::request::audit::{Arrival, Capture, Layer};
use crate::request::{
    Authorized, Body, Request, RequestContext, RequestInfo, Response, User, empty, shown_agent,
};
use crate::request_info::{self, InfoError};
use crate::serve::{ConnectionInfo, ConnectionMetrics, Handler};
use crate::spawn::Tasks;
use crate::streaming::Kept;
pub use config::ChainConfig;
pub use service::{ChainService, OuterLayers, OuterService};
use watch_socket::WatchSocket;

/// The chain of a server.
#[derive(Debug)]
pub struct Chain {
    config: ChainConfig,
    impersonation: impersonation::Impersonation,
    /// Bytes of answers that connections have not taken yet.
    responses: Arc<ResponseBudget>,
    /// Watches that are sent over WebSocket.
    sockets: Tasks,
}

/// Makes a chain.
pub fn build(config: ChainConfig) -> Arc<Chain> {
    let responses = Arc::new(ResponseBudget::default());
    config.metrics.register(config.cpu.clone());
    config.metrics.register(responses.clone());
    let impersonation = impersonation::Impersonation::default();
    config.metrics.register(impersonation.metrics());
    Arc::new(Chain {
        config,
        impersonation,
        responses,
        sockets: Tasks::new(),
    })
}

impl Handler for Chain {
    fn handle(self: Arc<Self>, request: Request) -> Pin<Box<dyn Future<Output = Response> + Send>> {
        Box::pin(async move { self.serve(request).await })
    }

    fn connection_metrics(&self) -> Arc<ConnectionMetrics> {
        self.config.metrics.connections.clone()
    }
}

/// Facts about a request that every later layer may need.
struct Facts {
    times: Times,
    audit_id: HeaderValue,
    info: RequestInfo,
    long_running: bool,
}

/// A request on its way in. Boxed: each layer that waits would hold it twice otherwise.
struct Incoming {
    head: Parts,
    body: Body,
    facts: Facts,
    connection: Option<Arc<ConnectionInfo>>,
}

/// The instants of a request.
#[derive(Clone, Copy)]
struct Times {
    received: Instant,
    /// When it has to be answered; long-running requests have no such time.
    deadline: Option<Instant>,
    /// What authentication took.
    authentication: Duration,
}

impl Facts {
    /// What auditing records of the request from its start.
    fn arrival<'a>(
        &'a self,
        user: Option<&'a User>,
        head: &'a Parts,
        connection: Option<&ConnectionInfo>,
    ) -> Arrival<'a> {
        Arrival {
            user,
            head,
            info: &self.info,
            audit_id: &self.audit_id,
            peer: connection.map(|connection| connection.peer.ip()),
            received: self.times.received,
        }
    }
}

/// The resources that a large answer holds until it is taken.
struct Large {
    seat: Permit,
    charge: Charge,
    counted: Counted,
}

/// What is known of a request outside of what serves it.
#[derive(Default)]
struct Progress {
    large: Option<Large>,
    /// The request that a handler works on, with its verb and dry run as metrics have them.
    handled: Option<(Arc<RequestContext>, &'static str, &'static str)>,
}

impl Chain {
    /// Answers a request. Never fails and never panics.
    pub async fn serve(&self, request: Request) -> Response {
        let received = Instant::now();
        // 1. Request id: first, so that even a panic's answer and log line carry it.
        let audit_id = audit::id_of(&request);
        let (head, method, uri) = (
            *request.method() == Method::HEAD,
            request.method().clone(),
            request.uri().clone(),
        );

        // 2. Panic recovery: around everything that could.
        let outcome = {
            // Pinned here and below: a future of kilobytes is made where it stays.
            let rest = pin!(self.received(request, received, audit_id.clone()));
            AssertUnwindSafe(rest).catch_unwind().await
        };
        let mut response = outcome.unwrap_or_else(|_| {
            self.config.metrics.panics.fetch_add(1, Ordering::Relaxed);
            tracing::error!(request.id = audit::shown(&audit_id), %method, path = uri.path(), "a request's handler panicked");
            let text = "This request caused apiserver to panic. Look in the logs for details.";
            filters::text_error(StatusCode::INTERNAL_SERVER_ERROR, text)
        });
        // An aggregated server may have said it already.
        let said = response.headers_mut().entry(&audit::AUDIT_ID).or_insert(audit_id);
        // Each id is different. HPACK must not index it, because it would evict headers that come again.
        said.set_sensitive(true);
        if head {
            response = response.map(|_| empty());
        }
        response
    }

    async fn received(&self, request: Request, received: Instant, audit_id: HeaderValue) -> Response {
        // 3. Request info, on which the later layers decide.
        let info = match request_info::resolve(request.method(), request.uri()) {
            Ok(info) => info,
            Err(InfoError::BadEscape | InfoError::QueryPairs) => {
                return filters::text_error(StatusCode::BAD_REQUEST, "400 Bad Request");
            }
            Err(error) => {
                let why = format!("failed to create RequestInfo: {error}");
                return filters::internal_error(request.uri(), &why);
            }
        };
        let facts = Facts {
            times: Times {
                received,
                deadline: None,
                authentication: Duration::ZERO,
            },
            audit_id,
            long_running: long_running::is(&info),
            info,
        };
        let connection = request.extensions().get::<Arc<ConnectionInfo>>().cloned();

        // 4. Access log: outside everything that answers, so that refusals are in it too.
        let logged = tracing::enabled!(target: "access", tracing::Level::INFO);
        let line = logged.then(|| {
            (
                request.method().clone(),
                request.uri().path().to_string(),
                facts.audit_id.clone(),
            )
        });

        // 5. Shutdown gate: before any work is done for a request that a peer could serve.
        let mut response = if self.is_closed_to(&request, &facts.info) {
            self.shutting_down(connection.as_deref())
        } else {
            // 6. GOAWAY now and then: spreads long-lived HTTP/2 connections over the replicas.
            if self.config.goaway_chance > 0.0
                && request.version() == http::Version::HTTP_2
                && rand::random::<f64>() < self.config.goaway_chance
                && let Some(connection) = &connection
            {
                connection.close_when_idle();
            }
            // 7. In-flight accounting and 8. the deadline: around everything that waits. Long-running requests have neither.
            let (head, body) = request.into_parts();
            let incoming = Box::new(Incoming {
                head,
                body,
                facts,
                connection,
            });
            if incoming.facts.long_running {
                Box::pin(self.lasting(incoming)).await
            } else {
                self.within_deadline(incoming).await
            }
        };

        // 9. Cache control and HSTS: for every answer that does not say otherwise.
        headers::cache_control(response.headers_mut());
        headers::hsts(response.headers_mut(), self.config.hsts.as_ref());

        if let Some((method, path, audit_id)) = line {
            let context = response.extensions_mut().remove::<Arc<RequestContext>>();
            tracing::info!(
                target: "access",
                code = response.status().as_u16(),
                request.id = audit::shown(&audit_id),
                %method,
                path,
                user.name = context.as_ref().map_or("", |c| &c.user.name),
                user.agent = context.as_ref().map_or("", |c| &c.user_agent),
                duration_ms = u64::try_from(received.elapsed().as_millis()).unwrap_or(u64::MAX),
                "request"
            );
        }
        response
    }

    /// Serves a request that lasts. An answer that switches protocols lasts as long as its connection.
    async fn lasting(&self, mut incoming: Box<Incoming>) -> Response {
        let kept = Kept::for_upgrade(&mut incoming.head);
        let response = self.identified(incoming, &mut Progress::default()).await;
        match kept {
            Some(kept) => kept.keep(response),
            None => response,
        }
    }

    /// Serves a request that is in flight until its answer is taken, no longer than it may.
    async fn within_deadline(&self, mut incoming: Box<Incoming>) -> Response {
        let Incoming {
            head,
            facts,
            connection,
            ..
        } = &mut *incoming;
        let running = self.config.lifecycle.begin_request();
        let kind = InFlightKind::of(&facts.info.verb);
        let _counted = self.config.metrics.in_flight(kind);
        let limit = match deadline::of(head.uri.query().unwrap_or_default(), self.config.request_timeout) {
            Ok(limit) => limit,
            Err(error) => {
                let capture = self
                    .config
                    .audit
                    .begin(&facts.arrival(None, head, connection.as_deref()));
                return self.unidentified(capture, crate::respond::error(&error)).await;
            }
        };
        let deadline = deadline::after(facts.times.received, limit);
        head.extensions.insert(Deadline(deadline));
        facts.times.deadline = Some(deadline);
        // A download has its head by the deadline and takes as long as it takes.
        let cut = (!long_running::is_download(&facts.info)).then_some(deadline);
        let by_connection = connection.is_some();
        let mut progress = Progress::default();
        let answered = {
            let rest = pin!(self.identified(incoming, &mut progress));
            tokio::time::timeout_at(deadline.into(), rest).await
        };
        let Ok(response) = answered else {
            self.config.metrics.timeouts.fetch_add(1, Ordering::Relaxed);
            if let Some((context, verb, dry_run)) = &progress.handled {
                let labels = labels::with(&context.info, verb, dry_run, &context.user_agent);
                self.config.metrics.unrouted(labels).terminated(504);
            }
            return deadline::exceeded();
        };
        match progress.large {
            None => response,
            Some(Large {
                seat,
                charge,
                counted,
            }) => {
                let unfinished = self.config.metrics.unfinished(kind);
                let limits = sending::SendLimits {
                    charge,
                    deadline: cut,
                    connection: by_connection,
                    metrics: self.config.metrics.clone(),
                    counted,
                    guard: Box::new((seat, running, unfinished)),
                };
                sending::bind(response, limits)
            }
        }
    }

    async fn identified(&self, incoming: Box<Incoming>, progress: &mut Progress) -> Response {
        // A page of the server's origin may be a pod's, which is not to answer for others of that origin.
        if let Some(refusal) = filters::cross_site::service_worker_refusal(&incoming.head.headers) {
            return refusal;
        }
        // 10. CORS: before authentication, because preflight requests carry no credentials.
        let origin = self.config.cors.check(&incoming.head.headers);
        if let Some(origin) = origin {
            let mut response = match origin.preflight(&incoming.head.method) {
                Some(answer) => answer,
                None => self.authenticated(incoming, progress).await,
            };
            origin.decorate(response.headers_mut());
            return response;
        }
        // Pages of other sites: before authentication, because the credentials would be the browser's.
        let connection = incoming.connection.as_deref();
        let has_certificate = connection.is_some_and(ConnectionInfo::has_certificate);
        let (method, headers) = (&incoming.head.method, &incoming.head.headers);
        if let Some(refusal) = filters::cross_site::refusal(method, headers, has_certificate) {
            let arrival = incoming.facts.arrival(None, &incoming.head, connection);
            let capture = self.config.audit.begin(&arrival);
            return self.unidentified(capture, refusal).await;
        }
        self.authenticated(incoming, progress).await
    }

    async fn authenticated(&self, mut incoming: Box<Incoming>, progress: &mut Progress) -> Response {
        let Incoming {
            head,
            facts,
            connection,
            ..
        } = &mut *incoming;
        // 11. Authentication: everything below has a user.
        let began = Instant::now();
        let verdict = self.config.authenticator.authenticate(head).await;
        let took = began.elapsed();
        let user = match verdict {
            Verdict::User(user) => user,
            refused => {
                let (result, notes) = if let Verdict::Failed(refusal) = refused {
                    tracing::info!(request.id = audit::shown(&facts.audit_id), error = %refusal, "unable to authenticate the request");
                    (AuthenticationResult::Error, refusal.notes)
                } else {
                    (AuthenticationResult::Failure, None)
                };
                self.config.metrics.authenticated(result, took);
                limit_unauthenticated(head, connection.as_deref());
                let response = crate::respond::error(&machinery::ApiError::unauthorized());
                let capture = self
                    .config
                    .audit
                    .begin(&facts.arrival(None, head, connection.as_deref()));
                if let (Some(capture), Some(notes)) = (&capture, &notes) {
                    for (key, value) in notes.annotations.iter().cloned() {
                        capture.annotate(key, value);
                    }
                }
                return self.unidentified(capture, response).await;
            }
        };
        self.config
            .metrics
            .authenticated(AuthenticationResult::Success, took);
        self.config.metrics.request_of(&user.name);
        if user.name == crate::authn::anonymous::ANONYMOUS
            && !self.is_static(&facts.info.path, connection.as_deref())
        {
            limit_unauthenticated(head, connection.as_deref());
        }
        authentication::strip_credentials(&mut head.headers, &self.config.front_proxy_headers);

        // 12. Audit: outside every layer that refuses an authenticated user, impersonation included.
        // 13. Impersonation: the impersonated user is admitted and authorized.
        let arrival = facts.arrival(Some(&user), head, connection.as_deref());
        let mut recording = None;
        // What few requests need is boxed, so that the others do not hold its room.
        if let Some(capture) = self.config.audit.begin(&arrival) {
            let begun = Recording::begin(
                &self.config.audit,
                capture,
                facts.long_running,
                facts.times.deadline,
            );
            let Some(begun) = Box::pin(begun).await else {
                return filters::internal_error(&head.uri, "failed to store audit event");
            };
            begun.mark(&mut head.extensions);
            begun.took(Layer::Authentication, took);
            recording = Some(begun);
        }
        if self.config.serves_cbor {
            head.extensions.insert(crate::negotiate::ServesCbor);
        }
        let mut acting = user;
        let notes = acting.notes.take();
        if impersonation::asked(&head.headers) {
            let authorizer = &*self.config.authorizer;
            let resolved = self
                .impersonation
                .resolve(&mut head.headers, &acting, &facts.info, authorizer);
            let began = Instant::now();
            let resolved = Box::pin(resolved).await;
            if let Some(recording) = &recording {
                recording.took(Layer::Impersonation, began.elapsed());
            }
            match resolved {
                Ok(None) => {}
                Ok(Some(Impersonated { user, constraint })) => {
                    if let Some(recording) = &recording {
                        recording.impersonates(&user, constraint);
                    }
                    acting = user;
                }
                Err(refusal) => {
                    let response = headers::no_sniff(crate::respond::error(&refusal));
                    return self.recorded(recording, &acting, facts.times, response).await;
                }
            }
        }
        let capture = recording.as_ref().map(|recording| recording.capture().clone());
        let info = std::mem::take(&mut facts.info);
        facts.times.authentication = took;
        let (times, long_running) = (facts.times, facts.long_running);
        let context = self
            .context(acting, head, info, &facts.audit_id)
            .with_audit(capture);
        if let Some(notes) = &notes {
            context.note(notes);
        }
        let context = Arc::new(context);
        let Incoming { head, body, .. } = *incoming;
        let request = Request::from_parts(head, body);
        let mut flow = None;
        let mut response = self
            .permitted(request, &context, times, long_running, &mut flow, progress)
            .await;
        if let Some(flow) = flow {
            flow.insert(response.headers_mut());
        }
        let mut response = self.recorded(recording, &context.user, times, response).await;
        response.extensions_mut().insert(context);
        response
    }

    /// Records an answer to a request whose user is not known.
    async fn unidentified(&self, capture: Option<Arc<Capture>>, response: Response) -> Response {
        match capture {
            Some(capture) => Box::pin(audit::unidentified(&self.config.audit, &capture, response)).await,
            None => response,
        }
    }

    /// Records an answer. Large objects are worked on in turns, as the request itself.
    async fn recorded(
        &self,
        recording: Option<Recording>,
        user: &User,
        times: Times,
        response: Response,
    ) -> Response {
        let Some(recording) = recording else {
            return response;
        };
        let user = cpu::user_key(&user.name);
        let end = cpu::offload(&self.config.cpu, user, times.deadline, recording.end(response));
        Box::pin(end).await
    }

    async fn permitted(
        &self,
        mut request: Request,
        context: &Arc<RequestContext>,
        times: Times,
        long_running: bool,
        flow: &mut Option<FlowHeaders>,
        progress: &mut Progress,
    ) -> Response {
        // 14. Priority and fairness, or the plain limit: knows the user, and spares the authorizers a flood.
        let probe = max_in_flight::is_probe(&context.info);
        let mut queued = Duration::ZERO;
        let admitted = match self.admit(&request, context, times, long_running, probe) {
            Admission::Runs(permit) => Ok(permit),
            Admission::Refused(refusal) => Err(refusal),
            Admission::Waits(turn) => {
                let began = Instant::now();
                let admitted = turn.await;
                queued = began.elapsed();
                context.took(Layer::Queue, queued);
                admitted
            }
        };
        let mut permit = match admitted {
            Ok(permit) => permit,
            Err(refusal) => {
                self.config.metrics.rejected.fetch_add(1, Ordering::Relaxed);
                self.refused(context, &request, refusal.status().as_u16());
                return *refusal;
            }
        };
        *flow = permit.take_headers();
        // A write is done by the time its answer is made: only reads can be refused for the bytes that they answer.
        let reads = matches!(&*context.info.verb, "get" | "list");
        if reads && !probe && !self.responses.admits(&context.user, 0) {
            self.refused(context, &request, 429);
            return self.too_many_bytes();
        }

        // 15. Authorization: last before the handler; its proof is what the registry asks for.
        let attributes = Attributes::of(&context.user, &context.info);
        let began = Instant::now();
        let decision = self.config.authorizer.authorize(&attributes).await;
        let took = began.elapsed();
        context.took(Layer::Authorization, took);
        match decision {
            Decision::Allow(reason) => {
                self.config.metrics.authorized(AuthorizationResult::Allowed, took);
                self.config.authorizer.used(&attributes, &reason);
                context.annotate(|| ("authorization.k8s.io/decision", "allow"));
                context.annotate(|| ("authorization.k8s.io/reason", reason));
            }
            refused => {
                let (result, reason) = match refused {
                    Decision::Deny(reason) => (AuthorizationResult::Denied, reason),
                    Decision::Allow(reason) | Decision::NoOpinion(reason) => {
                        (AuthorizationResult::NoOpinion, reason)
                    }
                    Decision::Failed(failure) => {
                        self.config.metrics.authorized(AuthorizationResult::Error, took);
                        context.annotate(|| ("authorization.k8s.io/reason", "internal error"));
                        return filters::internal_error(request.uri(), &failure.error);
                    }
                };
                self.config.metrics.authorized(result, took);
                context.annotate(|| ("authorization.k8s.io/decision", "forbid"));
                context.annotate(|| ("authorization.k8s.io/reason", reason.clone()));
                return headers::no_sniff(crate::respond::error(&forbidden(&attributes, &reason)));
            }
        }
        let authorized = Authorized::new(context.clone());

        // 16. The handler: an endpoint, else the servers in turn, else 404.
        let method = request.method().clone();
        let labels = labels::of_head(
            &context.info,
            &method,
            request.headers(),
            request.uri(),
            &context.user_agent,
        );
        progress.handled = Some((context.clone(), labels.verb, labels.dry_run));
        let socket = WatchSocket::of(&context.info, &request);
        if long_running && let Some(seat) = permit.share() {
            request.extensions_mut().insert(seat);
        }
        let handler = async {
            match self.config.endpoints.find(&context.info.path) {
                Some(endpoint) => endpoint.serve(&authorized, request).await,
                None => match self.config.delegate.handle(&authorized, request).await {
                    Handled::Answered(response) => response,
                    Handled::NotMine(_) => filters::not_found(),
                },
            }
        };
        let user = cpu::user_key(&context.user.name);
        // Long computations leave the threads that serve connections.
        let mut response = {
            let handler = pin!(handler);
            cpu::offload(&self.config.cpu, user, times.deadline, handler).await
        };

        if let Some(socket) = socket {
            response = socket.send(response, &self.sockets, self.config.lifecycle.end_watches());
        }

        // 17. Warnings: those of the handler, before the head is sent.
        headers::warnings(response.headers_mut(), &context.take_warnings());
        // Known only now: paths that no server routes are invented by clients and become no label.
        let labels = labels::routed(labels, &context.info, context.route());
        let counted = self.config.metrics.request(labels);
        let total = times.received.elapsed();
        let is_sized = counted.counts_sizes();
        counted.done(Outcome {
            code: response.status().as_u16(),
            took: total,
            waited: queued.saturating_add(context.waited_for_webhooks()),
            size: response.body().size_hint().exact().filter(|_| is_sized),
        });
        if let Some(release) = context.deprecation() {
            self.config.metrics.deprecated_api(labels, release);
        }
        if total >= slow::THRESHOLD && !long_running {
            slow::Slow {
                total,
                authentication: times.authentication,
                queue: queued,
                authorization: took,
                code: response.status(),
            }
            .log(context, &method);
        }
        if long_running {
            let lifecycle = &self.config.lifecycle;
            let lasting = (
                counted.long_running(),
                permit.initialised(),
                lifecycle.begin_watch(),
            );
            return long_running::bind(response, lifecycle.end_watches(), lasting);
        }

        // 18. The bytes of large answers: counted from when they are made, and given a seat until they are taken.
        let Some(bytes) = sending::size(&response) else {
            return response;
        };
        if reads && !self.responses.admits(&context.user, bytes) {
            counted.terminated(429);
            return self.too_many_bytes();
        }
        progress.large = Some(Large {
            seat: permit,
            charge: self.responses.charge(&context.user.name, bytes),
            counted,
        });
        response
    }

    /// Whether a path is served of bytes in memory, and the connection may have more of these.
    fn is_static(&self, path: &str, connection: Option<&ConnectionInfo>) -> bool {
        let endpoint = self.config.endpoints.find(path);
        endpoint.is_some_and(|endpoint| endpoint.is_static())
            && connection.is_some_and(ConnectionInfo::takes_static)
    }

    fn admit(
        &self,
        request: &Request,
        context: &Arc<RequestContext>,
        times: Times,
        long_running: bool,
        probe: bool,
    ) -> Admission {
        self.config.admit.admit(&Asked {
            context,
            query: request.uri().query().unwrap_or_default(),
            long_running,
            probe,
            received: times.received,
            deadline: times.deadline,
        })
    }

    /// The signals of the server's life.
    pub fn lifecycle(&self) -> &Lifecycle {
        &self.config.lifecycle
    }

    /// What records requests.
    pub(crate) fn auditor(&self) -> &Auditor {
        &self.config.audit
    }

    /// Fires when no more connections are to be taken: at once when the server stops, or with `--shutdown-send-retry-after` when
    /// watches end, because until then requests are answered with 429.
    pub fn end_of_accepting(&self) -> &CancellationToken {
        match self.config.shutdown_send_retry_after {
            true => self.config.lifecycle.end_watches(),
            false => self.config.lifecycle.not_accepting(),
        }
    }

    /// Counts a request that is refused before it is routed.
    fn refused(&self, context: &RequestContext, request: &Request, code: u16) {
        let labels = labels::of_head(
            &context.info,
            request.method(),
            request.headers(),
            request.uri(),
            &context.user_agent,
        );
        self.config.metrics.unrouted(labels).refused(code);
    }

    fn too_many_bytes(&self) -> Response {
        self.config.metrics.rejected.fetch_add(1, Ordering::Relaxed);
        *max_in_flight::too_many_requests()
    }

    fn context(&self, user: User, head: &Parts, info: RequestInfo, audit_id: &HeaderValue) -> RequestContext {
        let agent = shown_agent(head.headers.get(header::USER_AGENT));
        RequestContext::new(info, user, agent).with_audit_id(audit_id.clone())
    }

    /// Health, metrics and the server's own calls are served to the end.
    fn is_closed_to(&self, request: &Request, info: &RequestInfo) -> bool {
        if !self.config.shutdown_send_retry_after || !self.config.lifecycle.not_accepting().is_cancelled() {
            return false;
        }
        let own = request
            .headers()
            .get(header::USER_AGENT)
            .is_some_and(|agent| agent.as_bytes().starts_with(b"kube-apiserver/"));
        let exempt = ["/readyz", "/livez", "/healthz", "/metrics"];
        !own && !exempt.iter().any(|prefix| info.path.starts_with(prefix))
    }

    fn shutting_down(&self, connection: Option<&ConnectionInfo>) -> Response {
        if let Some(connection) = connection {
            connection.close_when_idle();
        }
        let text = "The apiserver is shutting down, please try again later.";
        let mut response = filters::text_error(StatusCode::TOO_MANY_REQUESTS, text);
        response
            .headers_mut()
            .insert(header::RETRY_AFTER, HeaderValue::from_static("5"));
        response
            .headers_mut()
            .insert(header::CONNECTION, HeaderValue::from_static("close"));
        response
    }
}

/// When a request's time is over: in its extensions, for handlers that pass it on (webhooks, proxies).
#[derive(Debug, Clone, Copy)]
pub struct Deadline(pub Instant);

/// HTTP/2 is costly to serve and easy to abuse: unauthenticated clients get one request per connection, and some
/// static files.
fn limit_unauthenticated(head: &Parts, connection: Option<&ConnectionInfo>) {
    if head.version == http::Version::HTTP_2
        && let Some(connection) = connection
    {
        connection.close_when_idle();
    }
}
