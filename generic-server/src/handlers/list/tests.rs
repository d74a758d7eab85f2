use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http_body::Body as _;
use http_body_util::BodyExt;
use machinery::limits;

use super::*;
use crate::cpu;
use crate::handlers::fixture::{Fixture, fixture, request};

const OBJECT: &str = "";
const TABLE: &str = ";as=Table;v=v1;g=meta.k8s.io";
const PARTIALS: &str = ";as=PartialObjectMetadataList;v=v1;g=meta.k8s.io";

async fn fill(f: &Fixture, count: usize, bytes: usize) {
    let filler = "x".repeat(bytes);
    for n in 0..count {
        f.put("ns", &format!("p{n:04}"), "x", &filler).await;
    }
}

async fn list(f: &Fixture, media: &str, view: &str) -> Response {
    let accept = format!("application/{media}{view}");
    let (authorized, head) = request("ns", "includeObject=Object", &[("accept", &accept)]);
    handle(&f.resource, &authorized, &head).await.expect("lists")
}

/// The pieces of a body.
async fn pieces(response: Response) -> Vec<Bytes> {
    let mut body = response.into_body();
    let mut pieces = Vec::new();
    while let Some(frame) = body.frame().await {
        pieces.push(frame.expect("no error").into_data().expect("data"));
    }
    pieces
}

async fn json_of(response: Response) -> Value {
    serde_json::from_slice(&pieces(response).await.concat()).expect("JSON")
}

#[tokio::test]
async fn every_form_is_made_of_pieces() {
    const ITEM: usize = 4_000;
    let f = fixture(false);
    // More than is kept of a protobuf list.
    fill(&f, 2 * limits::KEPT_BYTES / ITEM, ITEM).await;
    for media in ["json", "yaml", "vnd.kubernetes.protobuf"] {
        for view in [OBJECT, TABLE] {
            if media == "vnd.kubernetes.protobuf" && view == TABLE {
                continue;
            }
            let response = list(&f, media, view).await;
            assert!(response.body().size_hint().exact().is_none(), "{media}{view}");
            let pieces = pieces(response).await;
            let total: usize = pieces.iter().map(Bytes::len).sum();
            assert!(total > limits::KEPT_BYTES, "{media}{view}: {total}");
            // Half an item of the escapes and spaces that YAML adds.
            let largest = pieces.iter().map(Bytes::len).max().unwrap_or_default();
            assert!(
                largest <= limits::PIECE_BYTES + 2 * ITEM,
                "{media}{view}: {largest}"
            );
        }
    }
}

#[tokio::test]
async fn yaml_is_as_if_made_at_once() {
    for (custom, count) in [(false, 0), (true, 0), (false, 1), (false, 100), (true, 100)] {
        let f = fixture(custom);
        fill(&f, count, 3_000).await;
        for view in [OBJECT, TABLE, PARTIALS] {
            let whole = machinery::codec::yaml::to_string(&json_of(list(&f, "json", view).await).await);
            let made = pieces(list(&f, "yaml", view).await).await.concat();
            assert_eq!(
                String::from_utf8(made).expect("text"),
                whole,
                "{custom} {count} {view}"
            );
        }
    }
}

#[tokio::test]
async fn protobuf_equals_json() {
    use machinery::codec::protobuf::{decode, open};
    for (count, bytes) in [
        (0, 0),
        (1, 10),
        (100, 3_000),
        (3, limits::KEPT_BYTES),
        (300, 4_000),
    ] {
        let f = fixture(false);
        fill(&f, count, bytes).await;
        for (view, group, kind) in [
            (OBJECT, "", "PodList"),
            (PARTIALS, "meta.k8s.io", "PartialObjectMetadataList"),
        ] {
            let text = json_of(list(&f, "json", view).await).await;
            let encoded = pieces(list(&f, "vnd.kubernetes.protobuf", view).await)
                .await
                .concat();
            assert_eq!(open(&encoded).expect("an envelope").kind, kind);
            let schema = machinery::schema::builtin()
                .kind(group, "v1", kind)
                .expect("built in");
            let decoded = decode(schema.root(), &encoded).expect("readable");
            assert_eq!(decoded["metadata"], text["metadata"]);
            let names = |list: &Value| {
                let items = list["items"].as_array().cloned().unwrap_or_default();
                items
                    .iter()
                    .map(|item| item["metadata"].clone())
                    .collect::<Vec<_>>()
            };
            assert_eq!(names(&decoded), names(&text), "{count} {bytes} {kind}");
            let specs = |list: &Value| list["items"][0]["spec"]["nodeName"].clone();
            assert_eq!(specs(&decoded), specs(&text));
        }
    }
}

#[tokio::test]
async fn lists_are_made_in_slices() {
    const QUARTER: usize = limits::SLICE_BYTES / 4;
    /// In how many slices a list begins.
    async fn slices(f: &Fixture, accept: &str, encoding: &str) -> usize {
        let headers = [("accept", accept), ("accept-encoding", encoding)];
        let (authorized, mut head) = request("ns", "", &headers);
        head.extensions.insert(crate::negotiate::ServesCbor);
        let (answer, slices) = cpu::tests::slices_of(handle(&f.resource, &authorized, &head)).await;
        answer.expect("lists");
        slices
    }
    for (media, view, encoding) in [
        ("json", TABLE, ""),
        ("json", TABLE, "gzip"),
        ("yaml", TABLE, ""),
        ("vnd.kubernetes.protobuf", OBJECT, ""),
        ("vnd.kubernetes.protobuf", OBJECT, "gzip"),
    ] {
        let accept = format!("application/{media}{view}");
        for (count, expected) in [(3, 1), (4, 2), (40, 11)] {
            let f = fixture(false);
            fill(&f, count, QUARTER).await;
            let found = slices(&f, &accept, encoding).await;
            assert_eq!(found, expected, "{count} {accept} {encoding}");
        }
    }
    // To count an item is a 64th of the work on it.
    let f = fixture(false);
    fill(&f, 4 * 64 - 1, QUARTER).await;
    assert_eq!(slices(&f, "application/cbor", "").await, 1);
    f.put("ns", "last", "x", &"x".repeat(QUARTER)).await;
    assert_eq!(slices(&f, "application/cbor", "").await, 2);
}

/// How often a list lets others have their turn.
async fn pauses(f: &Fixture, query: &str) -> usize {
    let (authorized, head) = request("ns", query, &[]);
    let pool = cpu::Pool::new(1);
    let work = cpu::offload(&pool, 0, None, select(&f.resource, &authorized, &head));
    let mut work = std::pin::pin!(work);
    let mut pauses = 0;
    loop {
        match work.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(listed) => {
                assert!(listed.expect("lists").entries.next().is_none());
                return pauses;
            }
            Poll::Pending => pauses += 1,
        }
    }
}

#[tokio::test]
async fn selectors_are_matched_in_slices() {
    let f = fixture(false);
    fill(&f, 1_000, 0).await;
    let requirements = |count: usize| -> String {
        let all: Vec<String> = (0..count).map(|n| format!("a{n}")).collect();
        format!("labelSelector={}", all.join(","))
    };
    assert_eq!(pauses(&f, &requirements(1)).await, 0);
    // A thousand objects, each looked at by so many requirements.
    let expected = |count: usize| 1_000 * (1 + count) / limits::SLICE_STEPS;
    for count in [100, 200, 400] {
        let seen = pauses(&f, &requirements(count)).await;
        assert!(seen.abs_diff(expected(count)) <= 1, "{count}: {seen}");
    }
}
