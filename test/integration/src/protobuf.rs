//! Bodies in protobuf: what is broken, or is of another kind, is refused in upstream's words.

use serde_json::json;
use test_support::{Client, plane};

const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
const MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// A field of bytes.
fn field(number: u8, payload: &[u8]) -> Vec<u8> {
    let mut out = vec![number << 3 | 2, u8::try_from(payload.len()).expect("it is short")];
    out.extend_from_slice(payload);
    out
}

fn envelope(version: &str, kind: &str, raw: &[u8]) -> Vec<u8> {
    let meta = [field(1, version.as_bytes()), field(2, kind.as_bytes())].concat();
    [b"k8s\0", &*field(1, &meta), &*field(2, raw)].concat()
}

async fn refused(client: &Client, body: Vec<u8>, expected: &str) {
    let answer = client.raw("POST", MAPS, PROTOBUF, body).await;
    let status = answer.expect(400);
    assert_eq!(status["message"], expected);
}

#[tokio::test]
async fn broken_bodies_are_refused_as_upstream_does() {
    let (plane, client) = plane().await;
    let handled = |why: &str| format!("ConfigMap in version \"v1\" cannot be handled as a ConfigMap: {why}");
    for (raw, why) in [
        (vec![8, 1], "proto: wrong wireType = 0 for field ObjectMeta"),
        (field(1, &[10, 5]), "unexpected EOF"),
        (
            vec![15 << 3 | 4],
            "proto: ConfigMap: wiretype end group for non-group",
        ),
    ] {
        refused(&client, envelope("v1", "ConfigMap", &raw), &handled(why)).await;
    }
    let unread = "the object provided is unrecognized (must be of type ConfigMap): \
                  proto: wrong wireType = 0 for field Raw (6b3873001001)";
    refused(&client, b"k8s\0\x10\x01".to_vec(), unread).await;
    let unknown = "ConfigMap in version \"v9\" cannot be handled as a ConfigMap: no kind \"ConfigMap\" is registered for version \"v9\" \
                   in scheme \"pkg/api/legacyscheme/scheme.go:30\"";
    refused(&client, envelope("v9", "ConfigMap", &[8, 1]), unknown).await;
    let other = "Secret in version \"v1\" cannot be handled as a ConfigMap: converting (v1.Secret) to (core.ConfigMap): unknown conversion";
    refused(&client, envelope("v1", "Secret", &[]), other).await;

    // A second message is merged into the first, and an unknown group is passed over.
    let raw = [
        field(1, &field(1, b"a")),
        field(1, b""),
        vec![15 << 3 | 3, 15 << 3 | 4],
    ];
    let body = envelope("v1", "ConfigMap", &raw.concat());
    let made = client.raw("POST", MAPS, PROTOBUF, body).await.expect(201);
    assert_eq!(made["metadata"]["name"], "a");

    let path = format!("{MAPS}/a");
    let patch = client
        .patch(&path, "merge-patch+json", &json!({"kind": "Secret"}))
        .await
        .expect(422);
    let message = patch["message"].as_str().unwrap_or_default();
    assert!(
        message.ends_with("converting (v1.Secret) to (core.ConfigMap): unknown conversion"),
        "{message}"
    );
    let options = client.raw("DELETE", &path, PROTOBUF, b"k8s\0".to_vec()).await;
    assert_eq!(options.expect(400)["message"], "empty body");
    plane.stop().await;
}
