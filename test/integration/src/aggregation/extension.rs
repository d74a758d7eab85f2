//! The sample extension as a whole server: versions, admission, access, metrics, and what happens to its objects with their
//! namespace.

use generic_server::pki::Authority;
use sample_extension::{Extension, Options};
use serde_json::{Value, json};
use test_support::{Client, eventually, plane};

use crate::garbage::{gone, map, owner};

use super::{FISHES, SERVICES, Site, api_service, local_service, reason};

fn fish(name: &str, species: &str) -> Value {
    json!({
        "apiVersion": "sample.example.com/v1", "kind": "Fish", "metadata": {"name": name}, "spec": {"species": species, "length": 7},
    })
}

/// Registers both versions of the extension at this port.
async fn register(client: &Client, site: &Site, port: u16) {
    local_service(client, "fish").await;
    for version in ["v1", "v2"] {
        let mut service = api_service("sample.example.com", "fish", port, Some(&site.ca));
        service["metadata"]["name"] = format!("{version}.sample.example.com").into();
        service["spec"]["version"] = version.into();
        client.post(SERVICES, &service).await.expect(201);
        let path = format!("/apis/sample.example.com/{version}/fishes");
        eventually("it is served", || async {
            (client.get(&path).await.status == 200).then_some(())
        })
        .await;
    }
}

#[tokio::test]
async fn an_extension_is_a_whole_server() {
    let (plane, client) = plane().await;
    let site = Site::new(&plane.kubeconfig(), "fish");
    let options = Options {
        refuse_species: vec!["shark".into()],
        storage_backend: "sled".into(),
        ..site.options(0)
    };
    let extension = Extension::start(options).await.expect("the extension starts");
    let port = extension.address().port();
    register(&client, &site, port).await;

    // One object, two versions.
    client.post(FISHES, &fish("tin", "tuna")).await.expect(201);
    let second = FISHES.replace("/v1/", "/v2/");
    let mut converted = client.get(&format!("{second}/tin")).await.expect(200);
    assert_eq!(converted["apiVersion"], "sample.example.com/v2");
    assert_eq!(
        converted["spec"],
        json!({"species": "tuna", "size": {"millimetres": 7}, "water": "Salt"})
    );
    converted["spec"]["size"]["millimetres"] = 9.into();
    client.put(&format!("{second}/tin"), &converted).await.expect(200);
    let stored = client.get(&format!("{FISHES}/tin")).await.expect(200);
    assert_eq!(stored["spec"]["length"], 9);
    let list = client.get(&second).await.expect(200);
    assert_eq!(list["items"][0]["spec"]["size"]["millimetres"], 9);
    let unknown = client.get(&FISHES.replace("/v1/", "/v3/")).await;
    assert_eq!(unknown.status, 404);

    // Its own admission.
    let refused = client.post(FISHES, &fish("jaws", "shark")).await.expect(403);
    let message = refused["message"].as_str().unwrap_or_default();
    assert!(
        message.ends_with("the species shark is not kept here"),
        "{message}"
    );

    // Asked directly: strangers see its health and nothing else, the main server's tokens count, and so do its certificates.
    let own = std::fs::read_to_string(site.path().join("kubeconfig"))
        .expect("a kubeconfig")
        .replace(&plane.address().port().to_string(), &port.to_string());
    let direct = Client::from_kubeconfig(with_authority(&own, &site.direct_ca()).as_bytes());
    assert_eq!(direct.get(FISHES).await.status, 200);
    let stranger = direct.anonymous(&site.direct_ca());
    assert_eq!(stranger.get("/readyz").await.status, 200);
    for path in [FISHES, "/apis", "/metrics"] {
        assert_eq!(stranger.get(path).await.status, 401, "{path}");
    }
    let metrics = direct.get("/metrics").await;
    assert_eq!(metrics.status, 200);
    assert!(String::from_utf8_lossy(&metrics.body).contains("apiserver_request_total"));
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "keeper"}});
    client
        .post("/api/v1/namespaces/default/serviceaccounts", &account)
        .await
        .expect(201);
    let request = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}});
    let issued = client
        .post(
            "/api/v1/namespaces/default/serviceaccounts/keeper/token",
            &request,
        )
        .await
        .expect(201);
    let token = issued["status"]["token"].as_str().unwrap_or_default();
    let keeper = stranger
        .clone()
        .header("Authorization", &format!("Bearer {token}"));
    assert_eq!(keeper.get(FISHES).await.status, 403, "known, and not allowed");
    let wrong = stranger.header("Authorization", "Bearer nonsense");
    assert_eq!(wrong.get(FISHES).await.status, 401);
    extension.stop().await;
    plane.stop().await;
}

/// A kubeconfig with another authority for the server.
fn with_authority(kubeconfig: &str, ca: &str) -> String {
    use base64::Engine;
    let data = base64::prelude::BASE64_STANDARD.encode(ca);
    let lines = kubeconfig
        .lines()
        .map(|line| match line.split_once("certificate-authority-data:") {
            Some((before, _)) => format!("{before}certificate-authority-data: {data}"),
            None => line.to_string(),
        });
    lines.collect::<Vec<_>>().join("\n")
}

#[tokio::test]
async fn the_trust_configuration_is_kept_current() {
    let (plane, client) = plane().await;
    let path = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication";
    let before = client.get(path).await.expect(200);
    let names = |object: &Value| {
        object["data"]["requestheader-allowed-names"]
            .as_str()
            .unwrap_or_default()
            .to_string()
    };
    // It is recreated when deleted, repaired when edited, and entries of others stay.
    client.delete(path).await.expect(200);
    let again = eventually("it is recreated", || async {
        let answer = client.get(path).await;
        (answer.status == 200).then_some(answer.json)
    })
    .await;
    assert_eq!(again["data"], before["data"]);
    let stranger = Authority::generate("another replica")
        .expect("an authority")
        .certificate;
    let edit = json!({"data": {"requestheader-client-ca-file": stranger, "requestheader-allowed-names": "[\"another\"]"}});
    client.patch(path, "merge-patch+json", &edit).await.expect(200);
    let repaired = eventually("it is repaired", || async {
        let now = client.get(path).await.expect(200);
        (names(&now).contains(names(&before).trim_matches(['[', ']'])) && names(&now).contains("another"))
            .then_some(now)
    })
    .await;
    let bundle = repaired["data"]["requestheader-client-ca-file"]
        .as_str()
        .unwrap_or_default();
    assert_eq!(bundle.matches("BEGIN CERTIFICATE").count(), 2);

    // An extension follows it: it starts with an authority that is then taken away.
    let site = Site::new(&plane.kubeconfig(), "fish");
    let extension = site.start(0).await;
    register(&client, &site, extension.address().port()).await;
    client.delete(path).await.expect(200);
    eventually("it is recreated", || async {
        (client.get(path).await.status == 200).then_some(())
    })
    .await;
    client.get(FISHES).await.expect(200);
    extension.stop().await;
    plane.stop().await;
}

#[tokio::test]
async fn remote_objects_go_with_their_namespace() {
    let (plane, client) = plane().await;
    let site = Site::new(&plane.kubeconfig(), "fish");
    let extension = site.start(0).await;
    let port = extension.address().port();
    register(&client, &site, port).await;
    let namespaces = "/api/v1/namespaces";
    for name in ["pond", "lake"] {
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        client.post(namespaces, &namespace).await.expect(201);
        let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "local"}});
        client
            .post(&format!("{namespaces}/{name}/configmaps"), &map)
            .await
            .expect(201);
        let fishes = format!("/apis/sample.example.com/v1/namespaces/{name}/fishes");
        client.post(&fishes, &fish("carp", "carp")).await.expect(201);
    }
    let gone = async |name: &str| {
        eventually("the namespace goes", || async {
            (client.get(&format!("{namespaces}/{name}")).await.status == 404).then_some(())
        })
        .await;
        let fishes = client
            .get(&format!("/apis/sample.example.com/v1/namespaces/{name}/fishes"))
            .await
            .expect(200);
        assert_eq!(fishes["items"], json!([]), "{name}");
    };
    client.delete(&format!("{namespaces}/pond")).await.expect(200);
    gone("pond").await;

    // An unreachable server blocks only its own content.
    extension.stop().await;
    reason(&client, "sample.example.com", "FailedDiscoveryCheck").await;
    client.delete(&format!("{namespaces}/lake")).await.expect(200);
    let message = eventually("the condition reports it", || async {
        let namespace = client.get(&format!("{namespaces}/lake")).await.json;
        let conditions = namespace["status"]["conditions"].as_array()?.clone();
        let found = conditions
            .iter()
            .find(|c| c["type"] == "NamespaceDeletionDiscoveryFailure")?;
        (found["status"] == "True").then(|| found["message"].as_str().unwrap_or_default().to_string())
    })
    .await;
    assert!(
        message.contains("sample.example.com/v1: stale GroupVersion discovery: sample.example.com/v1"),
        "{message}"
    );
    let maps = client
        .get(&format!("{namespaces}/lake/configmaps"))
        .await
        .expect(200);
    assert!(!maps.to_string().contains("\"local\""), "{maps}");
    let extension = site.start(port).await;
    gone("lake").await;
    extension.stop().await;
    plane.stop().await;
}

#[tokio::test]
async fn remote_objects_own_and_are_owned() {
    let (plane, client) = plane().await;
    let site = Site::new(&plane.kubeconfig(), "fish");
    let extension = site.start(0).await;
    let port = extension.address().port();
    register(&client, &site, port).await;
    let maps = "/api/v1/namespaces/default/configmaps";
    let owned = |name: &str, owners: Value| {
        let mut fish = fish(name, "tuna");
        fish["metadata"]["ownerReferences"] = owners;
        fish
    };
    let at = |name: &str| format!("{FISHES}/{name}");

    // A remote dependent goes with its owner here, and one here with its remote owner.
    let pond = map(&client, "pond", &[]).await;
    let tin = client
        .post(FISHES, &owned("tin", json!([owner(&pond)])))
        .await
        .expect(201);
    map(&client, "scales", &[owner(&tin)]).await;
    client.delete(&format!("{maps}/pond")).await.expect(200);
    gone(&client, &at("tin")).await;
    gone(&client, &format!("{maps}/scales")).await;

    // An owner that the server does not have is absent.
    let absent =
        json!({"apiVersion": "sample.example.com/v1", "kind": "Fish", "name": "absent", "uid": "absent"});
    map(&client, "bones", std::slice::from_ref(&absent)).await;
    gone(&client, &format!("{maps}/bones")).await;

    // A deletion here waits for a dependent there, and one there for a dependent here.
    let pond = map(&client, "pond", &[]).await;
    let mut held = owned("held", json!([owner(&pond)]));
    held["metadata"]["finalizers"] = json!(["example.com/hold"]);
    client.post(FISHES, &held).await.expect(201);
    let going = async |path: &str| {
        eventually("it is being deleted", || async {
            let answer = client.get(path).await;
            answer.json["metadata"]["deletionTimestamp"]
                .is_string()
                .then_some(answer.json)
        })
        .await
    };
    client
        .delete(&format!("{maps}/pond?propagationPolicy=Foreground"))
        .await
        .expect(200);
    going(&at("held")).await;
    let waiting = client.get(&format!("{maps}/pond")).await.expect(200);
    assert_eq!(waiting["metadata"]["finalizers"], json!(["foregroundDeletion"]));
    let patch = json!({"metadata": {"finalizers": null}});
    client
        .patch(&at("held"), "merge-patch+json", &patch)
        .await
        .expect(200);
    gone(&client, &format!("{maps}/pond")).await;
    let shark = client.post(FISHES, &fish("shark", "shark")).await.expect(201);
    map(&client, "pilot", &[owner(&shark)]).await;
    client
        .delete(&format!("{}?propagationPolicy=Foreground", at("shark")))
        .await
        .expect(200);
    gone(&client, &at("shark")).await;
    gone(&client, &format!("{maps}/pilot")).await;
    // And orphans stay.
    let ray = client.post(FISHES, &fish("ray", "ray")).await.expect(201);
    map(&client, "remora", &[owner(&ray)]).await;
    client
        .delete(&format!("{}?propagationPolicy=Orphan", at("ray")))
        .await
        .expect(200);
    gone(&client, &at("ray")).await;
    let left = client.get(&format!("{maps}/remora")).await.expect(200);
    assert_eq!(left["metadata"]["ownerReferences"], Value::Null);

    // An unreachable server blocks only objects that it may own.
    extension.stop().await;
    reason(&client, "sample.example.com", "FailedDiscoveryCheck").await;
    map(&client, "waiting", &[absent]).await;
    let missing = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "absent", "uid": "absent"});
    map(&client, "garbage", &[missing]).await;
    gone(&client, &format!("{maps}/garbage")).await;
    assert_eq!(client.get(&format!("{maps}/waiting")).await.status, 200);
    let extension = site.start(port).await;
    gone(&client, &format!("{maps}/waiting")).await;
    extension.stop().await;
    plane.stop().await;
}
