//! Discovery: what is served without flags, compared with kube-apiserver 1.36; its forms and ETags, and the index.

mod openapi;

use std::collections::BTreeSet;

use serde_json::Value;
use test_support::{plane, plane_with};

const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

/// A line for each resource (group and version, plural, kind, scope, singular, verbs, short names, categories) and for each subresource
/// (group and version, name, kind, verbs) of kube-apiserver 1.36 without flags.
const UPSTREAM: &str = include_str!("discovery/upstream.txt");

fn items<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value[key].as_array().map_or(&[], Vec::as_slice)
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or_default()
}

/// The texts of a list with commas, or a dash for none.
fn joined(value: &Value, key: &str) -> String {
    let texts: Vec<&str> = items(value, key).iter().filter_map(Value::as_str).collect();
    match texts.is_empty() {
        true => "-".into(),
        false => texts.join(","),
    }
}

fn kind(of: &Value) -> String {
    let parts = ["group", "version", "kind"].map(|key| text(&of["responseKind"], key));
    let parts: Vec<&str> = parts.into_iter().filter(|part| !part.is_empty()).collect();
    parts.join("/")
}

/// The lines of an aggregated document.
fn lines(document: &Value) -> Vec<String> {
    let mut out = Vec::new();
    for group in items(document, "items") {
        for version in items(group, "versions") {
            let version_of_group = match (text(&group["metadata"], "name"), text(version, "version")) {
                ("", version) => version.to_owned(),
                (group, version) => format!("{group}/{version}"),
            };
            for resource in items(version, "resources") {
                let name = text(resource, "resource");
                let words = [
                    version_of_group.clone(),
                    name.to_owned(),
                    kind(resource),
                    text(resource, "scope").to_owned(),
                    text(resource, "singularResource").to_owned(),
                    joined(resource, "verbs"),
                    joined(resource, "shortNames"),
                    joined(resource, "categories"),
                ];
                out.push(words.join(" "));
                for subresource in items(resource, "subresources") {
                    let (sub, kind) = (text(subresource, "subresource"), kind(subresource));
                    let verbs = joined(subresource, "verbs");
                    out.push(format!("{version_of_group} {name}/{sub} {kind} {verbs}"));
                }
            }
        }
    }
    out
}

#[tokio::test]
async fn resources_are_upstreams() {
    let (plane, client) = plane().await;
    let asked = client.clone().header("Accept", AGGREGATED);
    let mut served = BTreeSet::new();
    for root in ["/api", "/apis"] {
        served.extend(lines(&asked.get(root).await.expect(200)));
    }
    let expected: BTreeSet<String> = UPSTREAM.lines().map(str::to_owned).collect();
    let differences: Vec<&String> = served.symmetric_difference(&expected).collect();
    assert!(differences.is_empty(), "{differences:#?}");
    let finalize = "/api/v1/namespaces/default/finalize";
    assert_eq!(client.get(finalize).await.status, 405, "it is only replaced");
    plane.stop().await;
}

#[tokio::test]
async fn documents_agree_and_have_etags() {
    let (plane, client) = plane().await;
    let mut paths = BTreeSet::new();
    for root in ["/api", "/apis"] {
        let asked = client.clone().header("Accept", AGGREGATED);
        let answer = asked.get(root).await;
        assert_eq!(answer.headers["content-type"], AGGREGATED, "{root}");
        let etag = answer.headers["etag"].to_str().unwrap_or_default().to_owned();
        assert!(etag.len() > 2, "{root}: {etag}");
        let document = answer.expect(200);

        let again = asked.clone().header("If-None-Match", &etag).get(root).await;
        assert_eq!((again.status, again.body.len()), (304, 0), "{root}");
        let other = asked.header("If-None-Match", "\"other\"").get(root).await;
        assert_eq!(other.status, 200, "{root}");

        // The legacy documents list the same.
        for line in lines(&document) {
            let mut words = line.split(' ').map(str::to_owned);
            let version = words.next().unwrap_or_default();
            let name = words.next().unwrap_or_default();
            let list = client.get(&format!("{root}/{version}")).await.expect(200);
            let found = items(&list, "resources")
                .iter()
                .find(|resource| text(resource, "name") == name);
            let verbs = found
                .map(|resource| joined(resource, "verbs"))
                .unwrap_or_default();
            assert!(line.split(' ').any(|word| word == verbs), "{line}: {verbs}");
            paths.insert(format!("{root}/{version}"));
        }
    }
    // A custom resource changes the document, and so its ETag.
    let before = client.clone().header("Accept", AGGREGATED).get("/apis").await;
    let crd = serde_json::json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "foos.near.io"},
        "spec": {"group": "near.io", "scope": "Namespaced", "names": {"plural": "foos", "kind": "Foo"},
            "versions": [{"name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object"}}}]},
    });
    let created = client
        .post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &crd)
        .await;
    created.expect(201);
    let after = client.clone().header("Accept", AGGREGATED).get("/apis").await;
    assert_ne!(before.headers["etag"], after.headers["etag"]);
    assert!(
        lines(&after.json)
            .iter()
            .any(|line| line.starts_with("near.io/v1 foos near.io/v1/Foo "))
    );

    // The index lists every path.
    let index = client.get("/").await.expect(200);
    let listed: Vec<&str> = items(&index, "paths").iter().filter_map(Value::as_str).collect();
    assert!(listed.is_sorted(), "{listed:?}");
    paths.insert("/apis/near.io/v1".into());
    let others = [
        "/api",
        "/apis",
        "/healthz",
        "/livez",
        "/metrics",
        "/openapi/v2",
        "/openapi/v3",
        "/readyz",
        "/version",
    ];
    for path in paths.iter().map(String::as_str).chain(others) {
        assert!(listed.contains(&path), "{path}: {listed:?}");
    }
    plane.stop().await;
}

#[tokio::test]
async fn versions_and_resources_are_turned_off() {
    let (_plane, client) = plane_with(|builder| {
        builder.with(|options| {
            options.runtime_config = ["apps/v1=false", "batch/v1/cronjobs=false", "autoscaling/v1=false"]
                .map(String::from)
                .into();
        })
    })
    .await;
    for path in [
        "/apis/apps",
        "/apis/apps/v1",
        "/apis/apps/v1/namespaces/default/deployments",
        "/apis/batch/v1/namespaces/default/cronjobs",
        "/apis/autoscaling/v1",
        "/openapi/v3/apis/apps/v1",
    ] {
        client.get(path).await.expect(404);
    }
    client
        .get("/apis/batch/v1/namespaces/default/jobs")
        .await
        .expect(200);
    client
        .get("/apis/autoscaling/v2/horizontalpodautoscalers")
        .await
        .expect(200);
    let groups = client.get("/apis").await.expect(200).to_string();
    assert!(!groups.contains("\"apps\""), "{groups}");
    let resources = client.get("/apis/batch/v1").await.expect(200).to_string();
    assert!(
        resources.contains("\"jobs\"") && !resources.contains("\"cronjobs\""),
        "{resources}"
    );
    let services = client
        .get("/apis/apiregistration.k8s.io/v1/apiservices")
        .await
        .expect(200);
    let services = services.to_string();
    assert!(
        services.contains("\"v1.batch\"") && !services.contains("\"v1.apps\""),
        "{services}"
    );
    let documents = client.get("/openapi/v2").await.expect(200);
    let paths = documents["paths"].as_object().expect("paths");
    assert!(
        paths
            .keys()
            .all(|path| !path.contains("/apis/apps") && !path.contains("cronjobs"))
    );
}
