//! The documents of backends: bad ones are refused within bounds and named, good ones are merged.

use std::sync::Arc;

use generic_server::pki::Authority;
use parking_lot::Mutex;
use serde_json::{Value, json};
use test_support::{Client, eventually, plane};

use super::faulty::{Faulty, Script, Step, answer};
use super::{SERVICES, api_service, local_service, reason};

/// The message of the condition that names unreadable documents, or nothing.
async fn unreadable(client: &Client, group: &str) -> Option<(String, String)> {
    let object = client.get(&format!("{SERVICES}/v1.{group}")).await.json;
    let conditions = object["status"]["conditions"].as_array()?;
    let found = conditions.iter().find(|c| c["type"] == "DocumentsReadable")?;
    assert_eq!(found["status"], "False");
    let text = |key: &str| found[key].as_str().unwrap_or_default().to_string();
    Some((text("reason"), text("message")))
}

fn resources(group: &str) -> String {
    json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": format!("{group}/v1"), "resources": [
        {"name": "things", "singularName": "thing", "namespaced": true, "kind": "Thing", "verbs": ["get"]}]})
    .to_string()
}

#[tokio::test]
async fn bad_documents_are_named() {
    let (plane, client) = plane().await;
    let authority = Authority::generate("test").expect("an authority");
    local_service(&client, "docs").await;
    type Docs = fn(&str) -> Vec<Step>;
    // The documents at `/apis/GROUP/v1` (after the check, which reads no body) and at `/openapi/v3/...`, and the reported errors.
    let cases: [(&str, Docs, Docs, &str, &str); 5] = [
        (
            "garbage.io",
            |_| answer("200 OK", "<html>"),
            |_| answer("404 Not Found", ""),
            "DiscoveryUnreadable",
            "is not JSON",
        ),
        (
            "other.io",
            |_| answer("200 OK", &resources("somebody.else")),
            |_| answer("404 Not Found", ""),
            "DiscoveryUnreadable",
            "is not an APIResourceList of its group version",
        ),
        (
            "huge.io",
            |_| {
                vec![
                    Step::Say(b"HTTP/1.1 200 OK\r\nContent-Length: 99999999\r\n\r\n[".to_vec()),
                    Step::Forever(&[b' '; 4096]),
                ]
            },
            |_| answer("404 Not Found", ""),
            "DiscoveryUnreadable",
            "larger than 8388608 bytes",
        ),
        (
            "slow.io",
            |group| answer("200 OK", &resources(group)),
            |_| {
                vec![
                    Step::Say(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{".to_vec()),
                    Step::Stall,
                ]
            },
            "OpenAPIUnreadable",
            "deadline exceeded",
        ),
        (
            "nonsense.io",
            |group| answer("200 OK", &resources(group)),
            |_| answer("200 OK", "[1]"),
            "OpenAPIUnreadable",
            "is not a JSON object",
        ),
    ];
    let mut running = Vec::new();
    for (group, discovery, openapi, ..) in &cases {
        let repaired = Arc::new(Mutex::new(false));
        let (group, discovery, openapi, state) = (*group, *discovery, *openapi, repaired.clone());
        let script: Script = Arc::new(move |path: &str, _: &str| match path {
            path if path == format!("/apis/{group}/v1") && *state.lock() => {
                answer("200 OK", &resources(group))
            }
            path if path == format!("/apis/{group}/v1") => discovery(group),
            path if path.starts_with("/openapi/v3/") && !*state.lock() => openapi(group),
            _ => answer("404 Not Found", ""),
        });
        let backend = Faulty::start(&authority, "docs", script).await;
        let service = api_service(group, "docs", backend.port, Some(&authority.certificate));
        client.post(SERVICES, &service).await.expect(201);
        running.push((backend, repaired));
    }
    for (group, _, _, wanted, text) in &cases {
        reason(&client, group, "Passed").await;
        let (reason, message) = eventually(group, || async { unreadable(&client, group).await }).await;
        assert_eq!(reason, *wanted, "{group}: {message}");
        assert!(message.contains(text), "{group}: {message}");
        // The backend's resources can still be reached, and so can everything else.
        client.get(&format!("/apis/{group}/v1/things")).await.expect(404);
    }
    client.get("/api/v1/namespaces").await.expect(200);
    client.get("/openapi/v2").await.expect(200);
    // Once it is repaired the condition goes, and the documents are published.
    for (_, repaired) in &running {
        *repaired.lock() = true;
    }
    for (group, ..) in &cases {
        let service = client.get(&format!("{SERVICES}/v1.{group}")).await.expect(200);
        let mut touched = service.clone();
        touched["metadata"]["labels"] = json!({"touched": "yes"});
        client
            .patch(
                &format!("{SERVICES}/v1.{group}"),
                "merge-patch+json",
                &json!({"metadata": {"labels": {"touched": "yes"}}}),
            )
            .await
            .expect(200);
        eventually("the condition goes", || async {
            unreadable(&client, group).await.is_none().then_some(())
        })
        .await;
    }
    let media = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
    let discovery = client
        .clone()
        .header("Accept", media)
        .get("/apis")
        .await
        .expect(200);
    let group = discovery["items"].as_array().and_then(|items| {
        items
            .iter()
            .find(|g| g["metadata"]["name"] == "garbage.io")
            .cloned()
    });
    assert_eq!(
        group.unwrap_or_default()["versions"][0]["resources"][0]["resource"],
        "things"
    );
    plane.stop().await;
}

/// The number of a protobuf document's first field and the text in it.
fn first_text(bytes: &[u8]) -> (u8, String) {
    let length = usize::from(bytes[1]);
    (
        bytes[0] >> 3,
        String::from_utf8_lossy(&bytes[2..2 + length]).into_owned(),
    )
}

#[tokio::test]
async fn documents_are_merged_in_every_form() {
    let (plane, client) = plane().await;
    let authority = Authority::generate("test").expect("an authority");
    local_service(&client, "docs").await;
    let swagger = json!({
        "swagger": "2.0",
        "paths": {
            "/apis/far.io/v1/things": {"get": {"responses": {"200": {"schema": {"$ref": "#/definitions/io.far.v1.Thing"}}}}},
            "/apis/not.asked/v1/things": {},
        },
        "definitions": {
            "io.far.v1.Thing": {"properties": {
                "metadata": {"$ref": "#/definitions/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"}}},
            "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta": {"description": "of another time"},
        },
    })
    .to_string();
    let document = json!({"openapi": "3.0.0", "info": {"title": "far"}, "paths": {}}).to_string();
    let script: Script = Arc::new(move |path: &str, _: &str| match path {
        "/apis/far.io/v1" => answer("200 OK", &resources("far.io")),
        "/openapi/v3/apis/far.io/v1" => answer("200 OK", &document),
        "/openapi/v2" => answer("200 OK", &swagger),
        _ => answer("404 Not Found", ""),
    });
    let backend = Faulty::start(&authority, "docs", script).await;
    let service = api_service("far.io", "docs", backend.port, Some(&authority.certificate));
    client.post(SERVICES, &service).await.expect(201);
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "foos.near.io"},
        "spec": {"group": "near.io", "scope": "Namespaced", "names": {"plural": "foos", "kind": "Foo"}, "versions": [
            {"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {
                "type": "object", "properties": {"spec": {"type": "object", "properties": {"n": {"type": "integer"}}}}}}}]},
    });
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    client.post(definitions, &definition).await.expect(201);

    let merged = eventually("the remote part is there", || async {
        let document = client.get("/openapi/v2").await.expect(200);
        document["paths"]["/apis/far.io/v1/things"]
            .is_object()
            .then_some(document)
    })
    .await;
    let meta = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";
    let all = &merged["definitions"];
    assert_eq!(all[format!("{meta}_v2")]["description"], "of another time");
    assert_ne!(all[meta]["description"], "of another time");
    let reference = &all["io.far.v1.Thing"]["properties"]["metadata"]["$ref"];
    assert_eq!(*reference, format!("#/definitions/{meta}_v2"));
    assert!(merged["paths"]["/apis/not.asked/v1/things"].is_null());
    assert_eq!(
        all["io.near.v1.Foo"]["properties"]["spec"]["properties"]["n"]["type"],
        "integer"
    );
    let create = &merged["paths"]["/apis/near.io/v1/namespaces/{namespace}/foos"]["post"];
    let body = create["parameters"]
        .as_array()
        .and_then(|all| all.iter().find(|p| p["in"] == "body").cloned());
    assert_eq!(
        body.unwrap_or_default()["schema"]["$ref"],
        "#/definitions/io.near.v1.Foo"
    );
    assert_eq!(
        create["responses"]["201"]["schema"]["$ref"],
        "#/definitions/io.near.v1.Foo"
    );

    // The same as protobuf: for v2 and for v3, here and remote.
    let etag = |answer: &test_support::Answer| answer.headers.get("etag").cloned();
    for (path, version, text) in [
        ("/openapi/v2", "v2", "2.0"),
        ("/openapi/v3/apis/apps/v1", "v3", "3.0.0"),
        ("/openapi/v3/apis/far.io/v1", "v3", "3.0.0"),
        ("/openapi/v3/apis/near.io/v1", "v3", "3.0.0"),
    ] {
        let asked = format!("application/com.github.proto-openapi.spec.{version}@v1.0+protobuf");
        let protobuf = client.clone().header("Accept", &asked).get(path).await;
        assert_eq!(protobuf.status, 200, "{path}");
        let media = protobuf.headers["content-type"].to_str().unwrap_or_default();
        assert_eq!(
            media,
            format!("application/com.github.proto-openapi.spec.{version}.v1.0+protobuf")
        );
        assert_eq!(first_text(&protobuf.body), (1, text.to_string()), "{path}");
        let plain = client.get(path).await;
        assert_eq!(etag(&protobuf), etag(&plain), "{path}");
        assert_eq!(plain.headers["content-type"], "application/json");
        let known = etag(&plain)
            .and_then(|tag| tag.to_str().map(String::from).ok())
            .unwrap_or_default();
        let again = client
            .clone()
            .header("Accept", &asked)
            .header("If-None-Match", &known);
        assert_eq!(again.get(path).await.status, 304, "{path}");
    }
    let refused = client
        .clone()
        .header("Accept", "application/foo")
        .get("/openapi/v2")
        .await;
    assert_eq!(refused.status, 406);
    // A deleted APIService takes its part along.
    client.delete(&format!("{SERVICES}/v1.far.io")).await.expect(200);
    eventually("the part goes", || async {
        let document: Value = client.get("/openapi/v2").await.expect(200);
        document["paths"]["/apis/far.io/v1/things"]
            .is_null()
            .then_some(())
    })
    .await;
    plane.stop().await;
}
