//! The chain in process: one `check` per rule, no sockets.

use std::time::Duration;

use http_body_util::BodyExt;
use serde_json::{Value, json};

use super::*;
use crate::audit::{Auditor, Event, Policy, Sink};
use crate::authn::Authenticator;
use crate::authn::anonymous::Anonymous;
use crate::authn::bearer::Bearer;
use crate::authn::request_header::{RequestHeader, RequestHeaderOptions};
use crate::authn::token_cache::TokenCache;
use crate::authn::token_file::TokenFile;
use crate::authn::union::{Authentication, TokenUnion};
use crate::authn::x509::{ClientAuthorities, X509};
use crate::authz::{Attributes, Authorizer, Decision, Privileged, ResolvedRules, Union};
use crate::cpu::Pool;
use crate::delegate::Delegate;
use crate::endpoint::Endpoint;
use crate::filters::cors::Cors;
use crate::filters::max_in_flight::{Admission, Asked, MaxInFlight};
use crate::pki::{Pki, ServingNames, certificates};
use crate::request::{Body, full};

const TOKENS: &str = "t-root,root,u0,system:masters\nt-jane,jane,u1,\"dev,qa\"\nt-ops,ops,u2\n";

/// Answers by path: `panic` panics, `hang` never answers, `warn` warns; anything else answers with the user.
#[derive(Debug)]
struct Backend;

#[async_trait::async_trait]
impl Delegate for Backend {
    async fn handle(&self, authorized: &Authorized, request: Request) -> Handled {
        match authorized.info().resource.as_str() {
            "panics" => panic!("as asked"),
            "hangs" => std::future::pending().await,
            "elsewhere" => return Handled::NotMine(request),
            "warns" => {
                authorized.context().warn("careful");
                authorized.context().warn("careful");
            }
            _ => {}
        }
        let user = authorized.user();
        let headers: Vec<&str> = request.headers().keys().map(http::HeaderName::as_str).collect();
        let seen = json!({"user": user.name, "groups": user.groups, "uid": user.uid, "extra": user.extra, "headers": headers});
        Handled::Answered(Response::new(full(seen.to_string())))
    }
}

#[derive(Debug)]
struct Ping;

#[async_trait::async_trait]
impl Endpoint for Ping {
    async fn serve(&self, _authorized: &Authorized, _request: Request) -> Response {
        Response::new(full("pong"))
    }
}

/// Lets `ops` impersonate one user and one group, and `jane` impersonate users for lists of pods.
#[derive(Debug)]
struct Impersonators;

#[async_trait::async_trait]
impl Authorizer for Impersonators {
    async fn authorize(&self, a: &Attributes<'_>) -> Decision {
        let allowed = matches!(
            (&*a.user.name, a.verb, a.group, a.resource, a.name),
            ("ops", "impersonate", "", "users", "joe")
                | ("ops", "impersonate", "", "groups", "g1")
                | (
                    "jane",
                    "impersonate:user-info",
                    "authentication.k8s.io",
                    "users",
                    _
                )
                | ("jane", "impersonate-on:user-info:list", "", "pods", _)
        );
        if allowed {
            Decision::Allow("granted".into())
        } else {
            Decision::NoOpinion(String::new())
        }
    }

    async fn rules_for(&self, _user: &User, _namespace: &str) -> ResolvedRules {
        ResolvedRules::default()
    }
}

struct Fixture {
    chain: Arc<Chain>,
    pki: Pki,
}

fn fixture(change: impl FnOnce(&mut ChainConfig)) -> Fixture {
    let pki = Pki::in_memory(&ServingNames::default()).unwrap();
    let trust = |pem: &str| Arc::new(ClientAuthorities::new(&certificates(pem).unwrap()).unwrap());
    let tokens = TokenFile::parse(TOKENS, "tokens", vec!["api".into()]).unwrap();
    let tokens = TokenCache::new(
        Arc::new(TokenUnion(vec![Arc::new(tokens)])),
        Box::new(|| 0),
        Arc::default(),
    )
    .unwrap();
    let proxies = RequestHeader::new(
        trust(&pki.front_proxy_ca.certificate),
        RequestHeaderOptions {
            allowed_names: vec!["front-proxy-client".into()],
            ..RequestHeaderOptions::default()
        },
    );
    let ways: Vec<Arc<dyn Authenticator>> = vec![
        Arc::new(proxies),
        Arc::new(X509::new(trust(&pki.ca.certificate))),
        Arc::new(Bearer(tokens)),
    ];
    let authenticator = Arc::new(Authentication::new(ways, Some(Anonymous::default())));
    let authorizer = Arc::new(Union(vec![
        Arc::new(Privileged::default()),
        Arc::new(Impersonators),
    ]));
    let mut config = ChainConfig::new(authenticator, authorizer, Arc::new(Backend));
    config.endpoints.add("/ping", Arc::new(Ping));
    change(&mut config);
    Fixture {
        chain: build(config),
        pki,
    }
}

fn request(method: &str, uri: &str, headers: &[(&str, &str)]) -> Request {
    let mut builder = http::Request::builder().method(method).uri(uri);
    for (name, value) in headers {
        builder = builder.header(*name, *value);
    }
    builder.body(empty()).unwrap()
}

async fn read(response: Response) -> (http::response::Parts, Value) {
    let (head, body): (_, Body) = response.into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    let value =
        serde_json::from_slice(&body).unwrap_or_else(|_| String::from_utf8_lossy(&body).into_owned().into());
    (head, value)
}

impl Fixture {
    async fn ask(&self, method: &str, uri: &str, headers: &[(&str, &str)]) -> (http::response::Parts, Value) {
        read(self.chain.serve(request(method, uri, headers)).await).await
    }

    /// The status code and message of a refusal, or the user of an answer.
    async fn outcome(&self, uri: &str, headers: &[(&str, &str)]) -> (u16, String) {
        let (head, body) = self.ask("GET", uri, headers).await;
        let text = body["message"]
            .as_str()
            .or(body["user"].as_str())
            .or(body.as_str());
        (head.status.as_u16(), text.unwrap_or_default().to_string())
    }
}

const ROOT: (&str, &str) = ("authorization", "Bearer t-root");
const JANE: (&str, &str) = ("authorization", "Bearer t-jane");
const OPS: (&str, &str) = ("authorization", "Bearer t-ops");

#[tokio::test]
async fn refusals_in_upstreams_words() {
    let f = fixture(|_| {});
    let forbidden = |text: &str| (403, text.to_string());
    let pods = "/api/v1/namespaces/a/pods";
    assert_eq!(f.outcome(pods, &[ROOT]).await, (200, "root".into()));
    assert_eq!(
        f.outcome(pods, &[JANE]).await,
        forbidden(
            r#"pods is forbidden: User "jane" cannot list resource "pods" in API group "" in the namespace "a""#
        )
    );
    assert_eq!(
        f.outcome("/apis/apps/v1/deployments/x/scale", &[]).await,
        forbidden(
            r#"deployments.apps "x" is forbidden: User "system:anonymous" cannot get resource "deployments/scale" in API group "apps" at the cluster scope"#
        )
    );
    assert_eq!(
        f.outcome("/foo%3Cb%3E", &[JANE]).await,
        forbidden(r#"forbidden: User "jane" cannot get path "/foo&lt;b&gt;""#)
    );
    for bad in ["Bearer nope", "bearer a.b.c"] {
        assert_eq!(
            f.outcome(pods, &[("authorization", bad)]).await,
            (401, "Unauthorized".into()),
            "{bad}"
        );
    }
    for other in ["Bearer", "Basic YTpi", "Token t-root", "Bearer  t-root"] {
        let (code, text) = f.outcome(pods, &[("authorization", other)]).await;
        assert!(
            code == 403 && text.contains("system:anonymous"),
            "{other}: {code} {text}"
        );
    }
    assert_eq!(f.outcome("/api/v1/watch", &[ROOT]).await, (
        500,
        "Internal Server Error: \"/api/v1/watch\": failed to create RequestInfo: unable to determine kind and namespace from url, /api/v1/watch\n".into()
    ));
    assert_eq!(f.outcome("/api/v1/pods/%zz", &[ROOT]).await.0, 400);
    assert_eq!(
        f.outcome("/api/v1/elsewhere", &[ROOT]).await,
        (404, "404 page not found\n".into())
    );
    assert_eq!(f.outcome("/ping", &[ROOT]).await, (200, "pong".into()));
    assert_eq!(
        f.outcome("/api/v1/pods?timeout=3x", &[ROOT]).await,
        (
            400,
            "invalid timeout specified in the request URL - time: unknown unit \"x\" in duration \"3x\""
                .into()
        )
    );
}

#[tokio::test]
async fn headers_of_every_answer() {
    let f = fixture(|c| c.hsts = Some(HeaderValue::from_static("max-age=1")));
    for (uri, credentials) in [
        ("/api/v1/pods", ROOT),
        ("/api/v1/pods", JANE),
        ("/api/v1/panics", ROOT),
    ] {
        let (head, _) = f.ask("GET", uri, &[credentials, ("audit-id", "mine")]).await;
        assert_eq!(head.headers["audit-id"], "mine", "{uri}");
    }
    let (head, body) = f
        .ask(
            "GET",
            "/api/v1/warns",
            &[ROOT, ("x-remote-user", "eve"), ("x-keep", "y")],
        )
        .await;
    assert_eq!(head.headers["cache-control"], "no-cache, private");
    assert_eq!(head.headers["strict-transport-security"], "max-age=1");
    assert_eq!(head.headers["audit-id"].len(), 36);
    let warnings: Vec<_> = head.headers.get_all("warning").iter().collect();
    assert_eq!(warnings, ["299 - \"careful\""]);
    assert_eq!(
        body["headers"],
        json!(["x-keep"]),
        "credentials do not reach the handler"
    );
    let (_, body) = f.ask("HEAD", "/api/v1/pods", &[ROOT]).await;
    assert_eq!(body, "");
}

#[tokio::test]
async fn panics_are_answered() {
    let f = fixture(|_| {});
    let text = "This request caused apiserver to panic. Look in the logs for details.\n";
    assert_eq!(f.outcome("/api/v1/panics", &[ROOT]).await, (500, text.into()));
    assert_eq!(f.chain.config.metrics.panics.load(Ordering::Relaxed), 1);
    assert_eq!(f.chain.config.lifecycle.running(), 0);
    assert_eq!(f.outcome("/api/v1/pods", &[ROOT]).await.0, 200);
}

#[tokio::test(start_paused = true)]
async fn deadlines_spare_long_running_requests() {
    let f = fixture(|_| {});
    let text = "Timeout: request did not complete within the allotted timeout";
    assert_eq!(
        f.outcome("/api/v1/hangs?timeout=1s", &[ROOT]).await,
        (504, text.into())
    );
    assert_eq!(f.outcome("/api/v1/hangs", &[ROOT]).await.0, 504);
    let watch = f.chain.serve(request("GET", "/api/v1/hangs?watch=1", &[ROOT]));
    let waited = tokio::time::timeout(Duration::from_secs(3600), watch).await;
    assert!(waited.is_err(), "a watch has no deadline");
}

#[tokio::test]
async fn one_too_many() {
    let f = fixture(|c| c.admit = Arc::new(MaxInFlight::new(1, 1)));
    let info = request_info::resolve(&Method::GET, &"/api/v1/pods".parse().unwrap()).unwrap();
    let jane = User {
        name: "jane".into(),
        ..User::default()
    };
    let asked = Asked {
        context: &Arc::new(RequestContext::new(info, jane, String::new())),
        query: "",
        long_running: false,
        probe: false,
        received: Instant::now(),
        deadline: None,
    };
    let held = f.chain.config.admit.admit(&asked);
    assert!(matches!(held, Admission::Runs(_)));
    let (head, body) = f.ask("GET", "/api/v1/pods", &[JANE]).await;
    assert_eq!(head.status, 429);
    assert_eq!(head.headers["retry-after"], "1");
    assert_eq!(body, "Too many requests, please try again later.\n");
    assert_eq!(
        f.outcome("/api/v1/pods", &[ROOT]).await.0,
        200,
        "administrators always get an answer"
    );
    assert_eq!(
        f.ask("POST", "/api/v1/pods", &[JANE]).await.0.status,
        403,
        "writes are counted apart"
    );
    drop(held);
    assert_eq!(f.outcome("/api/v1/pods", &[JANE]).await.0, 403);
}

#[tokio::test]
async fn closing_down() {
    let f = fixture(|c| c.shutdown_send_retry_after = true);
    f.chain.config.lifecycle.not_accepting().cancel();
    let (head, body) = f.ask("GET", "/api/v1/pods", &[ROOT]).await;
    assert_eq!(head.status, 429);
    assert_eq!(head.headers["retry-after"], "5");
    assert_eq!(body, "The apiserver is shutting down, please try again later.\n");
    assert_eq!(
        f.outcome("/readyz", &[ROOT]).await.0,
        200,
        "health is asked to the end"
    );

    let f = fixture(|_| {});
    let watch = f
        .chain
        .serve(request("GET", "/api/v1/pods?watch=1", &[ROOT]))
        .await;
    f.chain.config.lifecycle.end_watches().cancel();
    let (_, body) = read(watch).await;
    assert_eq!(body["user"], "root", "what was there before the end is sent");
}

#[tokio::test]
async fn impersonation() {
    let f = fixture(|_| {});
    let pods = "/api/v1/namespaces/a/pods";
    let (_, body) = f
        .ask(
            "GET",
            pods,
            &[
                ROOT,
                ("impersonate-user", "joe"),
                ("impersonate-group", "g1"),
                ("impersonate-group", "system:masters"),
                ("impersonate-uid", "u-1"),
                ("impersonate-extra-acme.com%2fproject", "p1"),
            ],
        )
        .await;
    let expected = json!({
        "user": "joe", "groups": ["g1", "system:masters", "system:authenticated"], "uid": "u-1",
        "extra": {"acme.com/project": ["p1"]}, "headers": []
    });
    assert_eq!(body, expected);
    assert_eq!(
        f.outcome(pods, &[ROOT, ("impersonate-group", "g1")]).await,
        (
            400,
            "requested &user.DefaultInfo{Name:\"\", UID:\"\", Groups:[]string{\"g1\"}, Extra:map[string][]string(nil)} without impersonating a user name".into()
        )
    );

    let refused = |text: &str| (403, text.to_string());
    let on = |user: &str, mode: &str| {
        refused(&format!(
            "pods is forbidden: User \"{user}\" cannot impersonate-on:{mode}:list resource \"pods\" in API group \"\" in the namespace \"a\""
        ))
    };
    assert_eq!(
        f.outcome(pods, &[("impersonate-user", "joe")]).await,
        on("system:anonymous", "user-info")
    );
    let bot = ("impersonate-user", "system:serviceaccount:a:bot");
    assert_eq!(f.outcome(pods, &[JANE, bot]).await, on("jane", "serviceaccount"));
    // Constrained: jane may be anybody while listing pods, and nothing else.
    let as_joe = refused(
        r#"pods is forbidden: User "joe" cannot list resource "pods" in API group "" in the namespace "a""#,
    );
    assert_eq!(
        f.outcome(pods, &[JANE, ("impersonate-user", "joe")]).await,
        as_joe
    );
    let watch = f
        .outcome("/api/v1/pods?watch=1", &[JANE, ("impersonate-user", "joe")])
        .await;
    assert!(
        watch.1.contains("cannot impersonate-on:user-info:watch"),
        "{}",
        watch.1
    );

    // Legacy: refusals follow what worked last.
    assert_eq!(
        f.outcome(pods, &[OPS, ("impersonate-user", "ann")]).await,
        on("ops", "user-info")
    );
    assert_eq!(f.outcome(pods, &[OPS, ("impersonate-user", "joe")]).await, as_joe);
    assert_eq!(
        f.outcome(pods, &[OPS, ("impersonate-user", "ann")]).await,
        refused(
            r#"users "ann" is forbidden: User "ops" cannot impersonate resource "users" in API group "" at the cluster scope"#
        )
    );
    assert_eq!(
        f.outcome(
            pods,
            &[OPS, ("impersonate-user", "joe"), ("impersonate-group", "g2")]
        )
        .await,
        refused(
            r#"groups "g2" is forbidden: User "ops" cannot impersonate resource "groups" in API group "" at the cluster scope"#
        )
    );
}

#[tokio::test]
async fn front_proxies() {
    let f = fixture(|_| {});
    let ask = async |certificate: &str, headers: &[(&str, &str)]| {
        let mut request = request("GET", "/api/v1/pods", headers);
        let shown = certificates(certificate).unwrap();
        let connection = ConnectionInfo::new("127.0.0.1:1".parse().unwrap(), shown);
        request.extensions_mut().insert(Arc::new(connection));
        let (head, body) = read(f.chain.serve(request).await).await;
        (head.status.as_u16(), body)
    };
    let says = [
        ("x-remote-user", "eve"),
        ("x-remote-uid", "u9"),
        ("x-remote-group", "system:masters"),
        ("x-remote-extra-acme%2fx", "1"),
    ];
    let (code, body) = ask(&f.pki.front_proxy_client.certificate, &says).await;
    assert_eq!(
        (code, &body["user"], &body["uid"]),
        (200, &json!("eve"), &json!("u9"))
    );
    assert_eq!(body["groups"], json!(["system:masters", "system:authenticated"]));
    assert_eq!(body["extra"], json!({"acme/x": ["1"]}));
    assert_eq!(body["headers"], json!([]));

    // An ordinary client's headers count for nothing, even an administrator's.
    let (code, body) = ask(&f.pki.admin.certificate, &says).await;
    assert_eq!((code, &body["user"]), (200, &json!("kubernetes-admin")));
    // A proxy that is not on the list is not believed.
    let other = f.pki.front_proxy_ca.client("other-proxy", "").unwrap();
    assert_eq!(ask(&other.certificate, &says).await.0, 401);
    // Without a certificate they are just headers.
    assert!(
        f.outcome("/api/v1/pods", &says)
            .await
            .1
            .contains("system:anonymous")
    );
}

#[tokio::test]
async fn websocket_tokens() {
    let f = fixture(|_| {});
    let token = "base64url.bearer.authorization.k8s.io.dC1yb290";
    let base = [("upgrade", "websocket"), ("connection", "Upgrade")];
    let ask = async |protocols: &str| {
        let headers = [base[0], base[1], ("sec-websocket-protocol", protocols)];
        f.outcome("/api/v1/pods", &headers).await
    };
    assert_eq!(
        ask(&format!("v4.channel.k8s.io, {token}")).await,
        (200, "root".into())
    );
    assert_eq!(ask(token).await.0, 401);
    assert_eq!(ask(&format!("a, {token}, {token}")).await.0, 401);
    assert_eq!(ask("a, base64url.bearer.authorization.k8s.io.!").await.0, 401);
    assert_eq!(ask("a").await.0, 403);
}

#[tokio::test]
async fn browsers_from_elsewhere() {
    let f = fixture(|c| c.cors = Cors::new(&["^https://good\\.example$".into()]).unwrap());
    let (head, _) = f
        .ask("OPTIONS", "/api/v1/pods", &[("origin", "https://good.example")])
        .await;
    assert_eq!(head.status, 204);
    assert_eq!(
        head.headers["access-control-allow-origin"],
        "https://good.example"
    );
    let (head, _) = f
        .ask("GET", "/api/v1/pods", &[ROOT, ("origin", "https://good.example")])
        .await;
    assert_eq!(
        (
            head.status.as_u16(),
            head.headers.contains_key("access-control-allow-origin")
        ),
        (200, true)
    );
    let (head, _) = f
        .ask("GET", "/api/v1/pods", &[ROOT, ("origin", "https://bad.example")])
        .await;
    assert!(!head.headers.contains_key("access-control-allow-origin"));
}

/// Answers `heavies` once the gate is open, after a computation that blocks its thread until then, and `streams` with a stream.
#[derive(Debug, Default)]
struct Busy {
    gate: crate::cpu::tests::Gate,
}

#[async_trait::async_trait]
impl Delegate for Busy {
    async fn handle(&self, authorized: &Authorized, _request: Request) -> Handled {
        let body = match authorized.info().resource.as_str() {
            "heavies" => {
                crate::cpu::heavy(machinery::limits::HEAVY_BYTES).await;
                self.gate.block();
                full("done")
            }
            _ => {
                let frames = (0..10).map(|_| Ok(http_body::Frame::data("piece".into())));
                http_body_util::StreamBody::new(futures_util::stream::iter(frames)).boxed_unsync()
            }
        };
        Handled::Answered(Response::new(body))
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn small_requests_pass_worst_cases() {
    let busy = Arc::new(Busy::default());
    let pool = Pool::new(1);
    let f = fixture(|c| {
        c.delegate = busy.clone();
        c.cpu = pool.clone();
    });
    let heavy: Vec<_> = (0..8)
        .map(|_| {
            let chain = f.chain.clone();
            tokio::spawn(async move { chain.serve(request("POST", "/api/v1/heavies", &[ROOT])).await })
        })
        .collect();
    let under_way = async {
        while (pool.running(), pool.waiting()) != (1, 7) {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), under_way)
        .await
        .unwrap();
    for _ in 0..10 {
        let chain = f.chain.clone();
        let small =
            tokio::spawn(async move { read(chain.serve(request("GET", "/ping", &[ROOT])).await).await });
        assert_eq!(small.await.unwrap().1, "pong");
    }
    assert_eq!(
        (pool.running(), pool.waiting()),
        (1, 7),
        "the gate is still closed"
    );
    busy.gate.open();
    for heavy in heavy {
        assert_eq!(read(heavy.await.unwrap()).await.1, "done");
    }
}

#[tokio::test]
async fn answers_hold_their_seat_until_they_are_taken() {
    let f = fixture(|c| {
        c.delegate = Arc::new(Busy::default());
        c.admit = Arc::new(MaxInFlight::new(1, 1));
        c.authorizer = Arc::new(crate::authz::AlwaysAllow);
    });
    let ask = || f.chain.serve(request("GET", "/api/v1/streams", &[JANE]));
    let mut untaken = ask().await;
    assert_eq!(untaken.status(), 200);
    assert_eq!(f.chain.config.lifecycle.running(), 1);
    assert_eq!(ask().await.status(), 429);
    while untaken.body_mut().frame().await.is_some() {}
    assert_eq!(f.chain.config.lifecycle.running(), 0);
    let untaken = ask().await;
    assert_eq!(untaken.status(), 200);
    drop(untaken);
    assert_eq!(ask().await.status(), 200);
}

#[tokio::test]
async fn probes_take_no_seat() {
    let f = fixture(|c| {
        c.delegate = Arc::new(Busy::default());
        c.admit = Arc::new(MaxInFlight::new(1, 1));
        c.authorizer = Arc::new(crate::authz::AlwaysAllow);
        for path in ["/healthz", "/livez", "/readyz", "/readyz/ping"] {
            c.endpoints.add(path, Arc::new(Ping));
        }
    });
    let ask = async |method, path| f.chain.serve(request(method, path, &[])).await.status().as_u16();
    // An anonymous client has the only seat, and does not read its answer.
    let untaken = f.chain.serve(request("GET", "/api/v1/streams", &[])).await;
    assert_eq!(untaken.status(), 200);
    for (path, expected) in [
        ("/healthz", 200),
        ("/livez", 200),
        ("/readyz", 200),
        ("/readyz?verbose", 200),
        // As upstream: the exemption is for the three paths and for GET alone.
        ("/readyz/ping", 429),
        ("/ping", 429),
        ("/readyz/", 429),
        ("/api/v1/pods", 429),
    ] {
        assert_eq!(ask("GET", path).await, expected, "{path}");
    }
    assert_eq!(ask("HEAD", "/readyz").await, 200, "another seat");
    drop(untaken);
    assert_eq!(ask("GET", "/ping").await, 200);
}

#[tokio::test]
async fn answers_have_a_bound_for_all_and_for_each_user() {
    let f = fixture(|c| {
        c.delegate = Arc::new(Busy::default());
        c.authorizer = Arc::new(crate::authz::AlwaysAllow);
    });
    let piece = machinery::limits::PIECE_BYTES;
    let chain = Arc::new(Chain {
        responses: Arc::new(ResponseBudget::new(3 * piece, 2 * piece)),
        ..Arc::into_inner(f.chain).unwrap()
    });
    let ask = |method: &'static str, credentials| {
        let chain = chain.clone();
        async move {
            chain
                .serve(request(method, "/api/v1/streams", &[credentials]))
                .await
        }
    };
    let first = ask("GET", JANE).await;
    let second = ask("GET", JANE).await;
    assert_eq!((first.status().as_u16(), second.status().as_u16()), (200, 200));
    let refused = ask("GET", JANE).await;
    assert_eq!(refused.status(), 429);
    assert_eq!(refused.headers()["retry-after"], "1");
    assert_eq!(ask("POST", JANE).await.status(), 200, "a write is done already");
    let other = ask("GET", OPS).await;
    assert_eq!(other.status(), 200);
    drop(second);
    let third = ask("GET", OPS).await;
    assert_eq!(third.status(), 200);
    assert_eq!(ask("GET", JANE).await.status(), 429, "all together");
    assert_eq!(
        ask("GET", ROOT).await.status(),
        200,
        "administrators always get an answer"
    );
    drop((first, other, third));
    assert_eq!(ask("GET", JANE).await.status(), 200);
}

/// Records audit events: stage, user, impersonated user, code.
#[derive(Debug, Default)]
struct Recorder {
    seen: parking_lot::Mutex<Vec<String>>,
    /// Whether the events are lost.
    fails: std::sync::atomic::AtomicBool,
}

#[async_trait::async_trait]
impl Sink for Recorder {
    async fn take(&self, event: &Event<'_>) -> bool {
        self.offer(event);
        !self.fails.load(Ordering::Relaxed)
    }

    fn offer(&self, event: &Event<'_>) {
        let event: Value = serde_json::from_slice(&event.json()).unwrap();
        let text = |value: &Value| value.as_str().unwrap_or_default().to_string();
        let acting = text(&event["impersonatedUser"]["username"]);
        let acting = if acting.is_empty() {
            acting
        } else {
            format!(" as {acting}")
        };
        let code = &event["responseStatus"]["code"];
        let code = code.as_u64().map_or(String::new(), |code| format!(" {code}"));
        let (stage, user) = (text(&event["stage"]), text(&event["user"]["username"]));
        self.seen.lock().push(format!("{stage} {user}{acting}{code}"));
    }
}

fn recorder(policy: &str) -> (Arc<Recorder>, Arc<Auditor>) {
    let seen = Arc::new(Recorder::default());
    let policy = format!("{{apiVersion: audit.k8s.io/v1, kind: Policy, {policy}}}");
    let (policy, _) = Policy::parse(policy.as_bytes()).unwrap();
    (seen.clone(), Arc::new(Auditor::new(policy, vec![seen])))
}

#[tokio::test(start_paused = true)]
async fn every_outcome_is_audited() {
    let (seen, auditor) = recorder("rules: [{level: Metadata}]");
    let f = fixture(|c| c.audit = auditor);
    let check = async |uri: &str, headers: &[(&str, &str)], expected: &[&str]| {
        f.ask("GET", uri, headers).await;
        assert_eq!(
            std::mem::take(&mut *seen.seen.lock()),
            expected,
            "{uri} {headers:?}"
        );
    };
    let pods = "/api/v1/namespaces/a/pods";
    check(
        pods,
        &[ROOT],
        &["RequestReceived root", "ResponseComplete root 200"],
    )
    .await;
    check(
        pods,
        &[JANE],
        &["RequestReceived jane", "ResponseComplete jane 403"],
    )
    .await;
    check(
        pods,
        &[("authorization", "Bearer nope")],
        &["ResponseStarted  401"],
    )
    .await;
    let late = "/api/v1/namespaces/a/pods?timeout=soon";
    check(late, &[ROOT], &["ResponseStarted  400"]).await;
    let page = [
        ROOT,
        ("user-agent", "Mozilla/5.0"),
        ("upgrade", "websocket"),
        ("sec-fetch-site", "cross-site"),
    ];
    check(pods, &page, &["ResponseStarted  403"]).await;
    let joe = ("impersonate-user", "joe");
    check(
        pods,
        &[ROOT, joe],
        &["RequestReceived root", "ResponseComplete root as joe 403"],
    )
    .await;
    let ann = ("impersonate-user", "ann");
    check(
        pods,
        &[OPS, ann],
        &["RequestReceived ops", "ResponseComplete ops 403"],
    )
    .await;
    let watch = "/api/v1/pods?watch=1";
    check(
        watch,
        &[ROOT],
        &[
            "RequestReceived root",
            "ResponseStarted root 200",
            "ResponseComplete root 200",
        ],
    )
    .await;
    check(
        "/api/v1/panics",
        &[ROOT],
        &["RequestReceived root", "Panic root 500"],
    )
    .await;
    check(
        "/api/v1/hangs",
        &[ROOT],
        &["RequestReceived root", "ResponseComplete root 504"],
    )
    .await;
}

#[tokio::test(start_paused = true)]
async fn the_policy_chooses_what_is_audited() {
    let rules = "omitStages: [RequestReceived], rules: [{level: None, users: [root]}, {level: Metadata, verbs: [list]}]";
    let (seen, auditor) = recorder(rules);
    let f = fixture(|c| c.audit = auditor);
    let pods = "/api/v1/namespaces/a/pods";
    for (uri, user) in [(pods, ROOT), ("/api/v1/namespaces/a/pods/x", JANE), (pods, JANE)] {
        f.ask("GET", uri, &[user]).await;
    }
    assert_eq!(*seen.seen.lock(), ["ResponseComplete jane 403"]);
}

#[tokio::test(start_paused = true)]
async fn a_request_whose_first_event_is_lost_is_refused_where_the_sink_says_so() {
    let (seen, auditor) = recorder("rules: [{level: Metadata}]");
    let f = fixture(|c| c.audit = auditor);
    seen.fails.store(true, Ordering::Relaxed);
    let refusal = "Internal Server Error: \"/ping\": failed to store audit event\n";
    assert_eq!(f.outcome("/ping", &[ROOT]).await, (500, refusal.to_string()));
    assert_eq!(*seen.seen.lock(), ["RequestReceived root"]);
}

#[tokio::test]
async fn the_future_of_a_request_is_small() {
    // It is moved into its allocation: what few requests need is boxed.
    let f = fixture(|_| {});
    let size = size_of_val(&f.chain.serve(request("GET", "/ping", &[])));
    assert!(size <= 6 * 1024, "{size} bytes");
}
