//! CBOR on the wire, behind its feature gate.

use machinery::codec::cbor;
use machinery::schema::builtin;
use serde_json::{Value, json};
use test_support::{Answer, Client, plane, plane_with};

const CBOR: &str = "application/cbor";
const SECRETS: &str = "/api/v1/namespaces/default/secrets";
const CRDS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const JARS: &str = "/apis/pantry.example.com/v1/namespaces/default/jars";

/// The document of an answer.
#[track_caller]
fn document(answer: &Answer, status: u16) -> Value {
    let sent = String::from_utf8_lossy(&answer.body);
    assert_eq!(answer.status, status, "{sent}");
    assert_eq!(answer.headers["content-type"], CBOR, "{sent}");
    assert!(answer.body.starts_with(cbor::PREFIX), "{sent}");
    cbor::decode(&answer.body).expect("a document")
}

fn secret(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "data": {"a": "aGk="}})
}

fn encoded(object: &Value) -> Vec<u8> {
    let secret = builtin().kind("", "v1", "Secret").expect("a schema");
    cbor::encode_typed(secret.root(), object)
}

async fn speaking() -> (control_plane::ControlPlane, Client, Client) {
    let (plane, client) = plane_with(|builder| {
        builder.with(|options| options.feature_gates = vec!["CBORServingAndStorage=true".into()])
    })
    .await;
    let asks = Client::from_kubeconfig(plane.kubeconfig().as_bytes()).header("accept", CBOR);
    (plane, client, asks)
}

#[tokio::test]
async fn objects_are_read_and_written_as_cbor() {
    let (plane, client, asks) = speaking().await;
    let made = asks.raw("POST", SECRETS, CBOR, encoded(&secret("a"))).await;
    assert_eq!(document(&made, 201)["data"]["a"], "aGk=");
    // The bytes are bytes, marked as those whose text is base64.
    let bytes = b"\x44data\xa1\x41a\xd6\x42hi".as_slice();
    assert!(made.body.windows(bytes.len()).any(|window| window == bytes));
    assert_eq!(
        client.get(&format!("{SECRETS}/a")).await.expect(200)["data"]["a"],
        "aGk="
    );

    let mut changed = secret("a");
    changed["data"]["b"] = "//8=".into();
    let path = format!("{SECRETS}/a");
    let changed = asks.raw("PUT", &path, CBOR, encoded(&changed)).await;
    assert_eq!(document(&changed, 200)["data"]["b"], "//8=");
    let apply = "application/apply-patch+cbor";
    let applied = format!("{SECRETS}/b?fieldManager=m");
    let applied = asks
        .raw("PATCH", &applied, apply, cbor::encode(&secret("b")))
        .await;
    assert_eq!(
        document(&applied, 201)["metadata"]["managedFields"][0]["operation"],
        "Apply"
    );

    let list = asks.get(SECRETS).await;
    let list = document(&list, 200);
    assert_eq!(
        (&list["kind"], &list["apiVersion"]),
        (&json!("SecretList"), &json!("v1"))
    );
    assert_eq!(list["items"].as_array().map(Vec::len), Some(2));
    assert_eq!(list["items"][1]["data"]["a"], "aGk=");
    let view = format!("{CBOR};as=PartialObjectMetadataList;g=meta.k8s.io;v=v1");
    let partial = Client::from_kubeconfig(plane.kubeconfig().as_bytes()).header("accept", &view);
    let partial = document(&partial.get(SECRETS).await, 200);
    assert_eq!(partial["items"][0]["kind"], "PartialObjectMetadata");
    assert_eq!(partial["items"][0].get("data"), None);

    // Errors come in the same form.
    let missing = asks.get(&format!("{SECRETS}/none")).await;
    assert_eq!(document(&missing, 404)["reason"], "NotFound");
    let resources = asks.get("/apis/apps/v1").await;
    assert_eq!(document(&resources, 200)["kind"], "APIResourceList");
    asks.get("/apis").await.expect(406);

    let options = json!({"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": "other"}});
    let refused = asks.raw("DELETE", &path, CBOR, cbor::encode(&options)).await;
    assert_eq!(document(&refused, 409)["reason"], "Conflict");
    let deleted = asks.raw("DELETE", &path, CBOR, Vec::new()).await;
    assert_eq!(document(&deleted, 200)["status"], "Success");
}

#[tokio::test]
async fn custom_objects_and_watches_speak_cbor() {
    let (plane, client, asks) = speaking().await;
    let crd = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "jars.pantry.example.com"},
        "spec": {
            "group": "pantry.example.com", "scope": "Namespaced",
            "names": {"plural": "jars", "singular": "jar", "kind": "Jar", "listKind": "JarList"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object",
                "properties": {"spec": {"type": "object", "properties": {"size": {"type": "number"}}}}}}}],
        },
    });
    document(&asks.raw("POST", CRDS, CBOR, cbor::encode(&crd)).await, 201);
    let jar = |name: &str| json!({"apiVersion": "pantry.example.com/v1", "kind": "Jar", "metadata": {"name": name}, "spec": {"size": 1.5, "odd": 1}});
    let made = asks.raw("POST", JARS, CBOR, cbor::encode(&jar("a"))).await;
    assert_eq!(document(&made, 201)["spec"], json!({"size": 1.5}));
    assert_eq!(
        document(&asks.get(JARS).await, 200)["items"][0]["spec"]["size"],
        1.5
    );
    client.post(JARS, &jar("b")).await.expect(201);
    let watched = asks
        .get(&format!("{JARS}?watch=1&resourceVersion=0&timeoutSeconds=1"))
        .await;
    assert_eq!(watched.headers["content-type"], "application/cbor-seq");
    let (mut rest, mut names) = (&watched.body[..], Vec::new());
    while !rest.is_empty() {
        let (event, others) = rest.split_at(cbor::item_length(rest).expect("a whole event"));
        assert!(event.starts_with(cbor::PREFIX));
        let event = cbor::decode(event).expect("an event");
        assert_eq!(event["type"], "ADDED");
        names.push(event["object"]["metadata"]["name"].clone());
        rest = others;
    }
    assert_eq!(names, ["a", "b"]);
    drop(plane);
}

#[tokio::test]
async fn hostile_cbor_is_refused_in_upstreams_words() {
    let (plane, client, _asks) = speaking().await;
    let check = async |body: &[u8], expected: &str| {
        let answer = client.raw("POST", SECRETS, CBOR, body.to_vec()).await;
        assert_eq!(answer.status, 400, "{body:x?}");
        let message = answer.json["message"].as_str().unwrap_or_default();
        assert_eq!(message, expected, "{body:x?}");
    };
    let unknown = "the object provided is unrecognized (must be of type Secret): unable to determine group/version/kind:";
    check(b"", &format!("{unknown} EOF (<empty>)")).await;
    check(
        b"\xa2\x41a\x01\x41a\x02",
        &format!("{unknown} cbor: found duplicate map key \"a\" at map element index 1 (a2416101416102)"),
    )
    .await;
    check(
        &[0x81; 100_000],
        &format!(
            "{unknown} cbor: exceeded max nested level 250 ({} ...)",
            "81".repeat(30)
        ),
    )
    .await;
    check(
        b"\xa1\x44data\xa2\x41a\x40\x41a\x40",
        "Secret in version \"v1\" cannot be handled as a Secret: cbor: found duplicate map key \"a\" at map element index 1",
    )
    .await;
    check(
        b"\xa1\x44data\xa1\x41a\x41%",
        "Secret in version \"v1\" cannot be handled as a Secret: cbor: failed to decode base64 from byte string: illegal base64 data at input byte 0",
    )
    .await;
    let mut odd = secret("odd");
    odd["wrong"] = 1.into();
    let strict = format!("{SECRETS}?fieldValidation=Strict");
    let refused = client.raw("POST", &strict, CBOR, encoded(&odd)).await.expect(400);
    assert_eq!(
        refused["message"],
        "Secret in version \"v1\" cannot be handled as a Secret: strict decoding error: cbor: found unknown field at map element index 2"
    );
    drop(plane);
}

#[tokio::test]
async fn without_its_gate_cbor_is_neither_taken_nor_given() {
    let (plane, client) = plane().await;
    let refused = client
        .raw("POST", SECRETS, CBOR, encoded(&secret("a")))
        .await
        .expect(415);
    assert_eq!(
        refused["message"],
        "the body of the request was in an unknown format - accepted media types include: application/json, application/yaml, application/vnd.kubernetes.protobuf"
    );
    let apply = "application/apply-patch+cbor";
    let path = format!("{SECRETS}/a?fieldManager=m");
    client
        .raw("PATCH", &path, apply, cbor::encode(&secret("a")))
        .await
        .expect(415);
    let asks = Client::from_kubeconfig(plane.kubeconfig().as_bytes()).header("accept", CBOR);
    asks.get(SECRETS).await.expect(406);
    asks.get("/apis/apps/v1").await.expect(406);
}
