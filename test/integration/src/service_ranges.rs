//! ServiceCIDRs: services have their addresses from all that are ready.

use control_plane::{ControlPlane, Options};
use serde_json::{Value, json};
use test_support::{Client, eventually, plane_with};

const SERVICES: &str = "/api/v1/namespaces/default/services";
const RANGES: &str = "/apis/networking.k8s.io/v1/servicecidrs";

fn service(name: &str, ip: Option<&str>) -> Value {
    json!({"metadata": {"name": name}, "spec": {"clusterIP": ip, "ports": [{"port": 80}]}})
}

/// Waits until the default ServiceCIDR is so.
async fn until(client: &Client, what: impl Fn(&Value) -> bool) -> Value {
    eventually("the default ServiceCIDR", async || {
        let found = client.get(&format!("{RANGES}/kubernetes")).await;
        let object = (found.status == 200).then(|| found.expect(200));
        object.filter(&what)
    })
    .await
}

fn is_ready(object: &Value) -> bool {
    object["status"]["conditions"][0]["status"] == "True"
}

#[tokio::test]
async fn a_further_range_gives_addresses() {
    let range = |options: &mut Options| options.service_cluster_ip_range = "10.0.0.0/29".into();
    let (_plane, client) = plane_with(|builder| builder.with(range)).await;
    let default = until(&client, is_ready).await;
    assert_eq!(
        default["status"]["conditions"][0]["message"],
        "Kubernetes default Service CIDR is ready"
    );
    let managers = default["metadata"]["managedFields"].as_array().expect("a list");
    assert!(
        managers
            .iter()
            .any(|entry| entry["manager"] == "kubernetes-service-cidr-controller"
                && entry["operation"] == "Apply"
                && entry["subresource"] == "status")
    );

    // Six addresses, of which the `kubernetes` service has one.
    for name in ["a1", "a2", "a3", "a4", "a5"] {
        client.post(SERVICES, &service(name, None)).await.expect(201);
    }
    let full = client.post(SERVICES, &service("b", None)).await.expect(500);
    assert!(
        full["message"]
            .as_str()
            .is_some_and(|text| text.ends_with("range is full")),
        "{full}"
    );
    let asked = client
        .post(SERVICES, &service("b", Some("10.9.0.5")))
        .await
        .expect(422);
    assert_eq!(
        asked["details"]["causes"][0]["message"],
        "Invalid value: [\"10.9.0.5\"]: failed to allocate IP 10.9.0.5: the provided network does not match the current range"
    );

    let more = json!({"metadata": {"name": "more"}, "spec": {"cidrs": ["10.9.0.0/28"]}});
    client.post(RANGES, &more).await.expect(201);
    client
        .post(SERVICES, &service("b", Some("10.9.0.5")))
        .await
        .expect(201);
    let found = client.post(SERVICES, &service("c", None)).await.expect(201);
    let ip = found["spec"]["clusterIP"].as_str().unwrap_or_default();
    assert!(ip.starts_with("10.9.0."), "{ip}");
    let address = client
        .get(&format!("/apis/networking.k8s.io/v1/ipaddresses/{ip}"))
        .await
        .expect(200);
    assert_eq!(address["spec"]["parentRef"]["name"], "c");
    for outside in ["10.9.0.0", "10.9.0.15", "10.9.0.16"] {
        client
            .post(SERVICES, &service("d", Some(outside)))
            .await
            .expect(422);
    }

    // A range that is not ready gives none, and those that have one of it keep it.
    let condition = json!({"type": "Ready", "status": "False", "reason": "Terminating", "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z"});
    client
        .patch(
            &format!("{RANGES}/more/status"),
            "merge-patch+json",
            &json!({"status": {"conditions": [condition]}}),
        )
        .await
        .expect(200);
    client.post(SERVICES, &service("d", None)).await.expect(500);
    client
        .post(SERVICES, &service("d", Some("10.9.0.9")))
        .await
        .expect(422);
    client
        .patch(
            &format!("{SERVICES}/c"),
            "merge-patch+json",
            &json!({"spec": {"ports": [{"port": 81}]}}),
        )
        .await
        .expect(200);
}

#[tokio::test]
async fn the_default_range_follows_the_flag() {
    let folder = tempfile::tempdir().expect("a directory");
    let start = async |ranges: &str| -> (ControlPlane, Client) {
        let change = |options: &mut Options| {
            options.storage_backend = None;
            options.min_free_disk_mib = 1;
            options.service_cluster_ip_range = ranges.to_owned();
        };
        plane_with(|builder| builder.data_dir(folder.path()).with(change)).await
    };
    let (plane, client) = start("10.0.0.0/24").await;
    // It is made again.
    let before = until(&client, is_ready).await;
    client.delete(&format!("{RANGES}/kubernetes")).await.expect(200);
    until(&client, |object| {
        is_ready(object) && object["metadata"]["uid"] != before["metadata"]["uid"]
    })
    .await;
    plane.stop().await;

    let (plane, client) = start("10.0.0.0/24,fd00::/120").await;
    until(&client, |object| {
        object["spec"]["cidrs"] == json!(["10.0.0.0/24", "fd00::/120"])
    })
    .await;
    let both = json!({"metadata": {"name": "both"}, "spec": {"ipFamilyPolicy": "RequireDualStack", "ports": [{"port": 80}]}});
    let both = client.post(SERVICES, &both).await.expect(201);
    assert_eq!(both["spec"]["clusterIPs"].as_array().map(Vec::len), Some(2));
    plane.stop().await;

    // The flag has other ranges than the object, whose ranges are used.
    let (plane, client) = start("10.7.0.0/24,fd00::/120").await;
    let one = client.post(SERVICES, &service("one", None)).await.expect(201);
    assert!(
        one["spec"]["clusterIP"]
            .as_str()
            .is_some_and(|ip| ip.starts_with("10.0.0."))
    );
    plane.stop().await;
}
