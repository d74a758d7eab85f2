use std::io::Read;

use http_body_util::BodyExt;
use machinery::limits;
use serde_json::json;

use super::*;
use crate::cpu::tests::slices_of;
use crate::handlers::fixture::{Fixture, fixture, json_of, request};
use crate::handlers::{get, list};
use crate::negotiate::ErrorForm;
use crate::respond::negotiated;

const TABLE: (&str, &str) = ("accept", "application/json;as=Table;v=v1;g=meta.k8s.io");
const PARTIAL: (&str, &str) = (
    "accept",
    "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io",
);
const PARTIALS: (&str, &str) = (
    "accept",
    "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io",
);

async fn get(f: &Fixture, what: &str, query: &str, headers: &[(&str, &str)]) -> Result<Response, ApiError> {
    let (authorized, head) = request(what, query, headers);
    get::handle(&f.resource, &authorized, &head).await
}

async fn list(f: &Fixture, query: &str, headers: &[(&str, &str)]) -> Result<Response, ApiError> {
    let (authorized, head) = request("ns", query, headers);
    list::handle(&f.resource, &authorized, &head).await
}

async fn text_of(response: Response) -> String {
    let body = response.into_body().collect().await.expect("a body").to_bytes();
    String::from_utf8(body.to_vec()).expect("text")
}

#[tokio::test]
async fn one_object_in_every_form() {
    let f = fixture(false);
    let version = f.put("ns", "a", "x", "n1").await;
    let meta =
        json!({"name": "a", "namespace": "ns", "labels": {"l": "x"}, "uid": "u", "resourceVersion": version});
    let text = text_of(get(&f, "ns/a", "", &[]).await.expect("found")).await;
    assert_eq!(
        text,
        format!(
            "{{\"kind\":\"Pod\",\"apiVersion\":\"v1\",\"metadata\":{{\"labels\":{{\"l\":\"x\"}},\"name\":\"a\",\"namespace\":\"ns\",\"resourceVersion\":\"{version}\",\"uid\":\"u\"}},\"spec\":{{\"nodeName\":\"n1\"}}}}\n"
        )
    );
    let yaml = text_of(
        get(&f, "ns/a", "", &[("accept", "application/yaml")])
            .await
            .expect("found"),
    )
    .await;
    assert!(
        yaml.starts_with("apiVersion: v1\nkind: Pod\nmetadata:\n  labels:\n    l: x\n"),
        "{yaml}"
    );
    let partial = json_of(get(&f, "ns/a", "", &[PARTIAL]).await.expect("found")).await;
    assert_eq!(
        partial,
        json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": meta})
    );
    let table = json_of(
        get(&f, "ns/a", "includeObject=None", &[TABLE])
            .await
            .expect("found"),
    )
    .await;
    assert_eq!(table["rows"], json!([{"cells": ["a"], "object": null}]));
    assert_eq!(table["metadata"], json!({"resourceVersion": version}));
    let table = json_of(
        get(&f, "ns/a", "includeObject=Object", &[TABLE])
            .await
            .expect("found"),
    )
    .await;
    assert_eq!(table["rows"][0]["object"]["spec"], json!({"nodeName": "n1"}));
    assert_eq!(
        get(&f, "ns/a", "", &[PARTIALS])
            .await
            .expect_err("no list")
            .code(),
        406
    );
    let missing = get(&f, "ns/b", "", &[]).await.expect_err("not there");
    assert_eq!((missing.code(), missing.message()), (404, "pods \"b\" not found"));
    let bad = get(&f, "ns/a", "resourceVersion=abc", &[])
        .await
        .expect_err("no version");
    assert_eq!((bad.code(), bad.reason().as_str()), (500, ""));
}

#[tokio::test]
async fn lists_of_built_in_kinds_have_untyped_items() {
    for custom in [false, true] {
        let f = fixture(custom);
        f.put("ns", "a", "x", "n1").await;
        let version = f.put("ns", "b", "x", "n2").await;
        let body = json_of(list(&f, "", &[]).await.expect("lists")).await;
        let keys: Vec<&str> = body["items"][1]
            .as_object()
            .expect("an object")
            .keys()
            .map(String::as_str)
            .collect();
        let metadata = if custom {
            assert_eq!(keys, ["apiVersion", "kind", "metadata", "spec"]);
            json!({"resourceVersion": version, "continue": ""})
        } else {
            assert_eq!(keys, ["metadata", "spec"]);
            json!({"resourceVersion": version})
        };
        assert_eq!(body["metadata"], metadata);
        let names = json_of(list(&f, "", &[PARTIALS]).await.expect("lists")).await;
        assert_eq!(names["kind"], "PartialObjectMetadataList");
        assert_eq!(names["metadata"], json!({"resourceVersion": version}));
        assert_eq!(names["items"][0]["kind"], "PartialObjectMetadata");
        let table = json_of(list(&f, "", &[TABLE]).await.expect("lists")).await;
        assert_eq!(table["rows"][1]["cells"], json!(["b"]));
        assert_eq!(table["rows"][1]["object"]["metadata"]["name"], "b");
        let wrong = list(&f, "", &[PARTIAL]).await.expect_err("a list");
        assert_eq!(wrong.code(), 406);
        let none = json_of(list(&f, "labelSelector=no", &[]).await.expect("lists")).await;
        assert_eq!(none["items"], json!([]));
    }
}

#[tokio::test]
async fn large_lists_are_streamed_and_compressed() {
    let f = fixture(false);
    let filler = "x".repeat(3_000);
    for n in 0..100 {
        f.put("ns", &format!("p{n:03}"), "x", &filler).await;
    }
    let plain = list(&f, "", &[]).await.expect("lists");
    assert!(plain.body().size_hint().exact().is_none(), "a stream");
    let plain = text_of(plain).await;
    assert!(plain.len() > 300_000 && plain.ends_with("]}\n"));
    let gzip = list(&f, "", &[("accept-encoding", "gzip")]).await.expect("lists");
    assert_eq!(gzip.headers()["content-encoding"], "gzip");
    let packed = gzip.into_body().collect().await.expect("a body").to_bytes();
    let mut unpacked = String::new();
    flate2::read::GzDecoder::new(&packed[..])
        .read_to_string(&mut unpacked)
        .expect("gzip");
    assert_eq!(unpacked, plain);
    let pretty = text_of(list(&f, "pretty=true", &[]).await.expect("lists")).await;
    assert!(
        pretty.starts_with("{\n  \"kind\": \"PodList\",\n"),
        "{}",
        &pretty[..80]
    );
    let parsed = |text: &str| serde_json::from_str::<Value>(text).expect("JSON");
    assert_eq!(parsed(&pretty), parsed(&plain));
    let few = list(&f, "limit=2", &[("accept-encoding", "gzip")])
        .await
        .expect("lists");
    assert!(!few.headers().contains_key("content-encoding"));
    use http_body::Body;
}

/// Items that take long and have few bytes, behind a first one.
struct Costly {
    first: usize,
    left: usize,
    cost: usize,
}

impl stream::Fill for Costly {
    fn fill(&mut self, out: &mut Vec<u8>) -> Result<stream::Filled, ApiError> {
        if self.first > 0 {
            out.resize(out.len() + std::mem::take(&mut self.first), b'f');
            return Ok(stream::Filled::Item(0));
        }
        let Some(left) = self.left.checked_sub(1) else {
            return Ok(stream::Filled::End);
        };
        self.left = left;
        out.push(b'i');
        Ok(stream::Filled::Item(self.cost))
    }
}

#[tokio::test]
async fn answers_are_made_in_slices() {
    const COST: usize = limits::SLICE_BYTES / 4;
    let negotiated = Negotiated {
        media: Media::Cbor,
        view: View::Object,
        pretty: false,
        gzip: false,
        recorded: false,
    };
    let items = |left: usize, cost: usize| Costly { first: 0, left, cost };
    let slices = async |left: usize, cost: usize, heavy: bool| {
        let (answer, slices) = slices_of(stream::respond(&negotiated, items(left, cost), heavy)).await;
        assert_eq!(text_of(answer.expect("an answer")).await.len(), left);
        let (beginning, beginning_slices) = slices_of(stream::beginning(items(left, cost), 1 << 20)).await;
        assert_eq!(beginning.expect("a text").len(), left);
        assert!(!heavy || beginning_slices == slices);
        slices
    };
    assert_eq!(slices(3, COST, true).await, 1);
    assert_eq!(slices(4, COST, true).await, 2);
    assert_eq!(slices(4, COST - 1, true).await, 1);
    assert_eq!(slices(40, COST, true).await, 11);
    assert_eq!(slices(10, 4 * COST, true).await, 11);
    assert_eq!(slices(40, COST, false).await, 1, "copied");

    // Likewise the pieces that follow.
    let source = Costly {
        first: limits::PIECE_BYTES + 1,
        left: 10,
        cost: COST,
    };
    let mut body = stream::respond(&negotiated, source, true)
        .await
        .expect("an answer")
        .into_body();
    let mut pieces = Vec::new();
    while let Some(frame) = body.frame().await {
        pieces.push(frame.expect("no error").into_data().expect("data").len());
    }
    assert_eq!(pieces[1..], [4, 4, 2]);
}

#[tokio::test]
async fn errors_are_in_upstreams_layout() {
    let error = ApiError::not_found(&machinery::GroupResource::new("", "configmaps"), "none");
    let json = ErrorForm {
        media: Media::Json,
        pretty: false,
    };
    assert_eq!(
        text_of(negotiated(&error, json)).await,
        "{\"kind\":\"Status\",\"apiVersion\":\"v1\",\"metadata\":{},\"status\":\"Failure\",\"message\":\"configmaps \\\"none\\\" not found\",\"reason\":\"NotFound\",\"details\":{\"name\":\"none\",\"kind\":\"configmaps\"},\"code\":404}\n"
    );
    assert_eq!(
        text_of(negotiated(&error, ErrorForm { pretty: true, ..json })).await,
        "{\n  \"kind\": \"Status\",\n  \"apiVersion\": \"v1\",\n  \"metadata\": {},\n  \"status\": \"Failure\",\n  \"message\": \"configmaps \\\"none\\\" not found\",\n  \"reason\": \"NotFound\",\n  \"details\": {\n    \"name\": \"none\",\n    \"kind\": \"configmaps\"\n  },\n  \"code\": 404\n}"
    );
    let late = ApiError::timeout("later", 1).with_cause(machinery::Cause {
        reason: "R".into(),
        message: "m".into(),
        field: "f".into(),
    });
    let response = negotiated(&late, json);
    assert_eq!(response.headers()["retry-after"], "1");
    assert!(text_of(response).await.contains(
        "\"details\":{\"causes\":[{\"reason\":\"R\",\"message\":\"m\",\"field\":\"f\"}],\"retryAfterSeconds\":1},\"code\":504"
    ));
}

#[test]
fn indentation_survives_any_cut() {
    let compact = br#"{"a":{},"b":[],"c":[1,{"d":"x,{}\"\\"}],"e":null}"#;
    let whole = json::pretty(compact);
    assert_eq!(
        std::str::from_utf8(&whole).expect("text"),
        "{\n  \"a\": {},\n  \"b\": [],\n  \"c\": [\n    1,\n    {\n      \"d\": \"x,{}\\\"\\\\\"\n    }\n  ],\n  \"e\": null\n}"
    );
    for at in 0..compact.len() {
        let mut indenter = json::Indenter::default();
        let mut out = Vec::new();
        indenter.feed(&compact[..at], &mut out);
        indenter.feed(&compact[at..], &mut out);
        assert_eq!(out, whole, "cut at {at}");
    }
}

#[tokio::test]
async fn protobuf_is_for_built_in_kinds() {
    use machinery::codec::protobuf::{decode, open};
    use machinery::schema::builtin;
    const PB: (&str, &str) = ("accept", "application/vnd.kubernetes.protobuf");
    const PB_PARTIAL: (&str, &str) = (
        "accept",
        "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;v=v1;g=meta.k8s.io",
    );
    let f = fixture(false);
    let version = f.put("ns", "a", "x", "n1").await;
    let decoded = |group: &str, version: &str, kind: &str, bytes: &[u8]| {
        let schema = builtin().kind(group, version, kind).expect("a built-in kind");
        decode(schema.root(), bytes).expect("readable")
    };
    let response = get(&f, "ns/a", "", &[PB]).await.expect("found");
    assert_eq!(response.headers()["content-type"], PB.1);
    let bytes = response.into_body().collect().await.expect("a body").to_bytes();
    let pod = decoded("", "v1", "Pod", &bytes);
    assert_eq!(
        (&pod["kind"], &pod["metadata"]["resourceVersion"]),
        (&json!("Pod"), &json!(version))
    );
    assert_eq!(pod["spec"]["nodeName"], "n1");
    let response = list(&f, "", &[PB]).await.expect("lists");
    let bytes = response.into_body().collect().await.expect("a body").to_bytes();
    let pods = decoded("", "v1", "PodList", &bytes);
    assert_eq!(pods["items"][0]["metadata"]["name"], "a");
    assert_eq!(pods["metadata"]["resourceVersion"], json!(version));
    let response = get(&f, "ns/a", "", &[PB_PARTIAL]).await.expect("found");
    let bytes = response.into_body().collect().await.expect("a body").to_bytes();
    assert_eq!(open(&bytes).expect("an envelope").kind, "PartialObjectMetadata");
    let form = ErrorForm {
        media: Media::Protobuf,
        pretty: false,
    };
    let response = negotiated(&ApiError::bad_request("no"), form);
    let bytes = response.into_body().collect().await.expect("a body").to_bytes();
    let status = decoded("", "v1", "Status", &bytes);
    assert_eq!((&status["message"], &status["code"]), (&json!("no"), &json!(400)));
    let custom = fixture(true);
    custom.put("ns", "a", "x", "n1").await;
    assert_eq!(
        get(&custom, "ns/a", "", &[PB])
            .await
            .expect_err("JSON only")
            .code(),
        406
    );
    let response = get(&custom, "ns/a", "", &[PB_PARTIAL]).await.expect("found");
    let bytes = response.into_body().collect().await.expect("a body").to_bytes();
    assert_eq!(open(&bytes).expect("an envelope").api_version, "meta.k8s.io/v1");
}

#[tokio::test]
async fn kept_messages_are_those_of_the_json_now() {
    const PB: &str = "application/vnd.kubernetes.protobuf";
    let f = fixture(false);
    let views = [
        ("", ""),
        (";as=PartialObjectMetadata;v=v1;g=meta.k8s.io", "v1"),
        (";as=PartialObjectMetadata;v=v1beta1;g=meta.k8s.io", "v1beta1"),
    ];
    let body = async |accept: &str| {
        let response = get(&f, "ns/a", "", &[("accept", accept)]).await.expect("found");
        response.into_body().collect().await.expect("a body").to_bytes()
    };
    let mut seen = std::collections::HashSet::new();
    for round in 0..6 {
        if round == 4 {
            f.remove("ns", "a").await;
        }
        f.put("ns", "a", &format!("l{}", round / 2), &format!("node-{round}"))
            .await;
        for (view, _) in views {
            let json = body(&format!("application/json{view}")).await;
            let anew = crate::respond::protobuf::of_json(&json).expect("encodes");
            for _ in 0..2 {
                assert!(body(&format!("{PB}{view}")).await == anew, "{round} {view}");
            }
            assert!(seen.insert(anew), "another resourceVersion each time");
        }
        let held = f.store().forms().held();
        assert!(
            held > 0 && held < 2_000,
            "{round}: {held}, of the newest state alone"
        );
    }
    // What auditing records is JSON, whatever is kept.
    let (authorized, mut head) = request("ns/a", "", &[("accept", PB)]);
    head.extensions.insert(crate::request::audit::RecordsObjects);
    let response = get::handle(&f.resource, &authorized, &head).await.expect("found");
    assert!(
        response
            .extensions()
            .get::<crate::request::audit::ResponseObject>()
            .is_some()
    );
}

#[tokio::test]
async fn kept_cells_have_the_age_of_the_request() {
    let mut f = fixture(false);
    f.show_ages();
    let object = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "a", "namespace": "ns", "creationTimestamp": "1970-01-01T00:00:00Z"},
    });
    assert!(f.store().as_system().insert(&object, None).await.is_ok());
    let entry = f
        .store()
        .as_system()
        .find("ns", "a")
        .await
        .expect("reads")
        .expect("there");
    let age = || machinery::time::age_since(Some("1970-01-01T00:00:00Z"), machinery::time::Timestamp::now());
    for form in 0..2 {
        let row = &json_of(get(&f, "ns/a", "", &[TABLE]).await.expect("found")).await["rows"][0];
        assert_eq!(row["cells"], json!(["a", age()]), "{form}");
        let row = &json_of(list(&f, "", &[TABLE]).await.expect("lists")).await["rows"][0];
        assert_eq!(row["cells"], json!(["a", age()]), "{form}");
    }
    let kept = entry.forms().get(crate::handlers::served::form(
        &f.resource,
        f.store().forms(),
        crate::handlers::served::Form::Cells,
    ));
    assert!(kept.is_some_and(|cells| !cells.ends_with(age().as_bytes())));
}
