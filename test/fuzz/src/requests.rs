//! Whole requests: parsing of path and query, and the answers of the whole chain.

use std::sync::LazyLock;

use bytes::Bytes;
use control_plane::ControlPlane;
use generic_server::request::full;
use generic_server::request_info::{query_bool, query_pairs, query_value, resolve};
use http::{Method, Request, Uri, header};
use http_body_util::BodyExt;

use crate::halves;

/// A target, of every method.
pub fn request_info(data: &[u8]) {
    let Ok(uri) = Uri::try_from(data) else { return };
    for method in [
        Method::GET,
        Method::POST,
        Method::PUT,
        Method::PATCH,
        Method::DELETE,
    ] {
        if let Ok(info) = resolve(&method, &uri) {
            assert!(info.path.len() <= 4 * data.len() + 1, "no longer than its target");
        }
    }
    let query = uri.query().unwrap_or_default();
    let pairs = query_pairs(query).count();
    assert!(pairs <= query.len() + 1, "no more pairs than bytes");
    // The first pair of a key is the one that counts.
    for (key, value) in query_pairs(query).take(16) {
        let first = query_value(query, &key);
        assert!(first.is_some(), "a key that is there has a value: {key}");
        let _ = query_bool(Some(&value));
    }
}

/// The body of an answer to a request whose handler panicked.
const PANICKED: &[u8] = b"caused apiserver to panic";
const METHODS: &[Method] = &[
    Method::GET,
    Method::POST,
    Method::PUT,
    Method::PATCH,
    Method::DELETE,
];
const MEDIA: &[&str] = &[
    "application/json",
    "application/yaml",
    "application/vnd.kubernetes.protobuf",
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
    "application/apply-patch+yaml",
    "application/cbor",
];
const ACCEPT: &[&str] = &[
    "application/json",
    "application/yaml",
    "application/vnd.kubernetes.protobuf",
    "application/json;as=Table;v=v1;g=meta.k8s.io",
    "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io",
    "*/*;q=0.1, text/plain",
];

/// A request to a whole server that lets everybody do everything: a byte each for the method, the body's form and the answer's, the target, a
/// NUL, and the body. No input is a fault of the server.
pub fn request(data: &[u8]) {
    static SERVER: LazyLock<(tokio::runtime::Runtime, ControlPlane)> = LazyLock::new(|| {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .expect("a runtime");
        let builder = ControlPlane::builder().in_memory().with(|options| {
            options.authorization.authorization_mode = vec![control_plane::AuthorizationMode::AlwaysAllow];
        });
        let plane = runtime.block_on(builder.start()).expect("a server");
        (runtime, plane)
    });
    let [method, media, accept, rest @ ..] = data else {
        return;
    };
    let (target, body) = halves(rest);
    let Ok(uri) = Uri::try_from(target) else { return };
    if uri.path_and_query().is_none() || uri.path() == "/backup" || uri.query().is_some_and(is_lasting) {
        return;
    }
    let pick = |byte: &u8, all: usize| usize::from(*byte) % all;
    let request = Request::builder()
        .method(METHODS[pick(method, METHODS.len())].clone())
        .uri(uri)
        .header(header::HOST, "localhost")
        .header(header::CONTENT_TYPE, MEDIA[pick(media, MEDIA.len())])
        .header(header::ACCEPT, ACCEPT[pick(accept, ACCEPT.len())])
        .body(full(Bytes::copy_from_slice(body)));
    let Ok(request) = request else { return };
    let (runtime, plane) = &*SERVER;
    let chain = plane.chain().clone();
    let answered = runtime.block_on(async move {
        let response = chain.serve(request).await;
        let status = response.status();
        let body = response.into_body().collect().await;
        (status, body.map(http_body_util::Collected::to_bytes))
    });
    let (status, body) = answered;
    let body = body.expect("the answer has an end");
    // Some refusals are 500 because upstream's are; a panic that was caught is none of them.
    let panicked = body.windows(PANICKED.len()).any(|text| text == PANICKED);
    assert!(status != 500 || !panicked, "a request's handler panicked");
}

/// Watches last until they are ended.
fn is_lasting(query: &str) -> bool {
    query.contains("watch") || query.contains("follow") || query.contains("timeoutSeconds")
}
