//! Extension servers behind the aggregator: registered, used, stopped, started again; badly trusted; badly behaved.

use std::path::Path;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use generic_server::pki::Authority;
use sample_extension::{Extension, Options};
use serde_json::{Value, json};
use test_support::{Client, eventually, plane};

mod backend;
mod documents;
mod extension;
mod faults;
mod faulty;
pub(crate) mod routing;
mod trust;

const SERVICES: &str = "/apis/apiregistration.k8s.io/v1/apiservices";
const FISHES: &str = "/apis/sample.example.com/v1/namespaces/default/fishes";

/// A Service that leads to this machine, so that no cluster network is needed.
async fn local_service(client: &Client, name: &str) {
    let service = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": name},
        "spec": {"type": "ExternalName", "externalName": "localhost"},
    });
    client
        .post("/api/v1/namespaces/default/services", &service)
        .await
        .expect(201);
}

fn api_service(group: &str, service: &str, port: u16, ca: Option<&str>) -> Value {
    let mut object = json!({
        "apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": {"name": format!("v1.{group}")},
        "spec": {
            "group": group, "version": "v1", "groupPriorityMinimum": 1000, "versionPriority": 15,
            "service": {"namespace": "default", "name": service, "port": port},
        },
    });
    match ca {
        Some(ca) => object["spec"]["caBundle"] = BASE64_STANDARD.encode(ca).into(),
        None => object["spec"]["insecureSkipTLSVerify"] = true.into(),
    }
    object
}

/// Waits for the Available condition to have this reason; gives its message.
async fn reason(client: &Client, group: &str, wanted: &str) -> String {
    let path = format!("{SERVICES}/v1.{group}");
    eventually(wanted, || async {
        let object = client.get(&path).await.json;
        let condition = &object["status"]["conditions"][0];
        (condition["reason"] == wanted).then(|| condition["message"].as_str().unwrap_or_default().to_string())
    })
    .await
}

struct Site {
    directory: tempfile::TempDir,
    ca: String,
}

impl Site {
    /// Certificates for the service `default/NAME`, and the plane's kubeconfig.
    fn new(kubeconfig: &str, service: &str) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let authority = Authority::generate("test").expect("an authority");
        let issued = authority
            .server(
                "server",
                &[
                    format!("{service}.default.svc"),
                    "localhost".into(),
                    "127.0.0.1".into(),
                ],
            )
            .expect("a certificate");
        let write =
            |name: &str, text: &str| std::fs::write(directory.path().join(name), text).expect("a file");
        write("tls.crt", &issued.certificate);
        write("tls.key", &issued.key);
        write("kubeconfig", kubeconfig);
        Site {
            ca: authority.certificate.clone(),
            directory,
        }
    }

    /// The authority of the extension's certificate; the certificate is for `localhost` too.
    fn direct_ca(&self) -> String {
        self.ca.clone()
    }

    fn path(&self) -> &Path {
        self.directory.path()
    }

    async fn start(&self, port: u16) -> Extension {
        Extension::start(self.options(port))
            .await
            .expect("the extension starts")
    }

    fn options(&self, port: u16) -> Options {
        Options {
            bind_address: std::net::Ipv4Addr::LOCALHOST.into(),
            secure_port: port,
            tls_cert_file: Some(self.path().join("tls.crt")),
            tls_private_key_file: Some(self.path().join("tls.key")),
            data_dir: Some(self.path().join("data")),
            kubeconfig: Some(self.path().join("kubeconfig")),
            ..Options::defaults()
        }
    }
}

#[tokio::test]
async fn an_extension_server_comes_goes_and_comes_back() {
    let (plane, client) = plane().await;
    let site = Site::new(&plane.kubeconfig(), "fish");
    let extension = site.start(0).await;
    let port = extension.address().port();
    local_service(&client, "fish").await;
    let service = api_service("sample.example.com", "fish", port, Some(&site.ca));
    client.post(SERVICES, &service).await.expect(201);
    assert_eq!(
        reason(&client, "sample.example.com", "Passed").await,
        "all checks passed"
    );
    eventually("the route is there", || async {
        (client.get(FISHES).await.status == 200).then_some(())
    })
    .await;

    let mut watch = client.watch(&format!("{FISHES}?watch=1")).await;
    let fish = json!({
        "apiVersion": "sample.example.com/v1", "kind": "Fish", "metadata": {"name": "nemo"},
        "spec": {"species": "clownfish"},
    });
    let created = client.post(FISHES, &fish).await.expect(201);
    assert_eq!(created["status"]["phase"], "Swimming");
    assert_eq!(created["spec"]["water"], "Salt", "its admission says so");
    let event = watch.next().await.expect("an event");
    assert_eq!(
        (&event["type"], &event["object"]["metadata"]["name"]),
        (&json!("ADDED"), &json!("nemo"))
    );
    let mut bad = fish.clone();
    bad["metadata"]["name"] = "bad".into();
    bad["spec"] = json!({"length": 0});
    let refused = client.post(FISHES, &bad).await.expect(422);
    let message = refused["message"].as_str().unwrap_or_default();
    assert!(message.contains("spec.species: Required value"), "{message}");

    // Both servers ask the same roles.
    let alice = client.clone().header("Impersonate-User", "alice");
    alice.get(FISHES).await.expect(403);
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": "alice"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "alice"}],
    });
    client
        .post("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", &binding)
        .await
        .expect(201);
    eventually("alice may", || async {
        (alice.get(FISHES).await.status == 200).then_some(())
    })
    .await;

    if let Some(kubectl) = test_support::tool("kubectl") {
        let file = site.path().join("kubeconfig");
        eventually("kubectl explains it", || async {
            let (ok, text) = test_support::kubectl(&kubectl, &file, &["explain", "fishes.spec"], "").await;
            (ok && text.contains("millimetres")).then_some(())
        })
        .await;
        let (ok, text) = test_support::kubectl(&kubectl, &file, &["get", "fish"], "").await;
        assert!(
            ok && text.contains("clownfish") && text.contains("SPECIES"),
            "{text}"
        );
    }

    extension.stop().await;
    eventually("its group alone is unavailable", || async {
        let answer = client.get(FISHES).await;
        (answer.status == 503 && &*answer.body == b"service unavailable\n").then_some(())
    })
    .await;
    client.get("/api/v1/namespaces").await.expect(200);
    let groups = client.get("/apis").await.expect(200).to_string();
    assert!(groups.contains("sample.example.com"), "it stays listed");
    let v2 = client.clone().header(
        "accept",
        "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList",
    );
    let documents = v2.get("/apis").await.expect(200);
    let items = documents["items"].as_array().cloned().unwrap_or_default();
    let group = items
        .iter()
        .find(|g| g["metadata"]["name"] == "sample.example.com");
    let version = &group.expect("the group")["versions"][0];
    assert_eq!(version["freshness"], "Stale");
    assert_eq!(
        version["resources"][0]["resource"], "fishes",
        "what it last said is still there"
    );

    let extension = site.start(port).await;
    let again = eventually("it serves again", || async {
        let answer = client.get(&format!("{FISHES}/nemo")).await;
        (answer.status == 200).then_some(answer.json)
    })
    .await;
    assert_eq!(again["metadata"]["uid"], created["metadata"]["uid"]);
    client
        .delete(&format!("{SERVICES}/v1.sample.example.com"))
        .await
        .expect(200);
    eventually("it is forgotten", || async {
        (client.get(FISHES).await.status == 404).then_some(())
    })
    .await;
    extension.stop().await;
    plane.stop().await;
}

#[tokio::test]
async fn untrusted_backends_are_refused() {
    let (plane, client) = plane().await;
    let site = Site::new(&plane.kubeconfig(), "fish");
    let extension = site.start(0).await;
    let port = extension.address().port();
    for name in ["fish", "other"] {
        local_service(&client, name).await;
    }
    let stranger = Authority::generate("stranger").expect("an authority");
    let cases = [
        (
            "stranger.io",
            "fish",
            stranger.certificate.as_str(),
            "certificate signed by unknown authority",
        ),
        (
            "garbage.io",
            "fish",
            "not a certificate",
            "unable to load root certificates",
        ),
        ("name.io", "other", site.ca.as_str(), "not other.default.svc"),
    ];
    for (group, service, ca, expected) in cases {
        let object = api_service(group, service, port, Some(ca));
        client.post(SERVICES, &object).await.expect(201);
        let message = reason(&client, group, "FailedDiscoveryCheck").await;
        assert!(message.contains(expected), "{group}: {message}");
        client.get(&format!("/apis/{group}/v1/things")).await.expect(503);
    }
    // One that leads back here never becomes available.
    let own = plane.address().port();
    client
        .post(SERVICES, &api_service("loop.io", "fish", own, None))
        .await
        .expect(201);
    let message = reason(&client, "loop.io", "FailedDiscoveryCheck").await;
    assert!(
        message.contains("bad status from https://localhost:"),
        "{message}"
    );
    client.get("/apis/loop.io/v1/things").await.expect(503);
    // Nor does one at an address where credentials are kept, nor one whose name resolves to it: 169.254.169.254 as one number.
    for (name, host) in [("metadata", "169.254.169.254"), ("number", "2852039166")] {
        let service = json!({
            "apiVersion": "v1", "kind": "Service", "metadata": {"name": name},
            "spec": {"type": "ExternalName", "externalName": host},
        });
        let services = "/api/v1/namespaces/default/services";
        client.post(services, &service).await.expect(201);
        let group = format!("{name}.io");
        client
            .post(SERVICES, &api_service(&group, name, 443, None))
            .await
            .expect(201);
        let message = reason(&client, &group, "FailedDiscoveryCheck").await;
        assert!(message.contains("no permitted address"), "{message}");
        client.get(&format!("/apis/{group}/v1/things")).await.expect(503);
    }
    extension.stop().await;
    plane.stop().await;
}

#[tokio::test]
async fn local_group_versions_are_registered() {
    let (plane, client) = plane().await;
    let paths = client.get("/").await.expect(200)["paths"].clone();
    for path in [
        "/api/v1",
        "/apis/apps",
        "/apis/apps/v1",
        "/openapi/v3",
        "/version",
    ] {
        let listed = paths.as_array().is_some_and(|all| all.contains(&path.into()));
        assert!(listed, "{path} in {paths}");
    }
    // Of a group of its own this server knows all versions; about others it says nothing.
    for path in ["/apis/apps/v9", "/api/v2"] {
        let refused = client.get(path).await.expect(404);
        assert_eq!(refused["reason"], "NotFound", "{path}");
    }
    assert_eq!(client.get("/apis/unknown.io/v1").await.json, Value::Null);
    let apps = format!("{SERVICES}/v1.apps");
    let before = client.get(&apps).await.expect(200);
    assert_eq!(
        before["metadata"]["labels"]["kube-aggregator.kubernetes.io/automanaged"],
        "onstart"
    );
    client.delete(&apps).await.expect(200);
    eventually("it is recreated", || async {
        let now = client.get(&apps).await;
        (now.status == 200 && now.json["metadata"]["uid"] != before["metadata"]["uid"]).then_some(())
    })
    .await;

    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "foos.a.io"},
        "spec": {"group": "a.io", "scope": "Cluster", "names": {"plural": "foos", "kind": "Foo"}, "versions": [
            {"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object"}}}]},
    });
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    client.post(definitions, &definition).await.expect(201);
    let own = format!("{SERVICES}/v1.a.io");
    eventually("the CRD's group version is registered", || async {
        (client.get(&own).await.status == 200).then_some(())
    })
    .await;
    let edit = json!({"spec": {"versionPriority": 7}});
    client.patch(&own, "merge-patch+json", &edit).await.expect(200);
    eventually("edits are undone", || async {
        let now = client.get(&own).await.json;
        (now["spec"]["versionPriority"] == 100).then_some(())
    })
    .await;
    client
        .delete(&format!("{definitions}/foos.a.io"))
        .await
        .expect(200);
    eventually("it goes with its CRD", || async {
        (client.get(&own).await.status == 404).then_some(())
    })
    .await;
    plane.stop().await;
}
