//! Kinds that `--runtime-config` alone turns on: DeviceTaintRules, ResourcePoolStatusRequests and StorageVersions.

use serde_json::{Value, json};
use test_support::{Client, plane_with};

async fn cells(admin: &Client, path: &str) -> Vec<Value> {
    let table = admin
        .clone()
        .header("accept", "application/json;as=Table;v=v1;g=meta.k8s.io");
    let table = table.get(path).await.expect(200);
    table["rows"][0]["cells"].as_array().expect("cells").clone()
}

#[tokio::test]
async fn kinds_are_there_when_their_versions_are() {
    let (plane, admin) = plane_with(|builder| {
        builder.with(|options| {
            options.runtime_config = vec![
                "resource.k8s.io/v1alpha3=true".into(),
                "resource.k8s.io/v1beta2/devicetaintrules=true".into(),
                "internal.apiserver.k8s.io/v1alpha1=true".into(),
            ];
        })
    })
    .await;
    let group = admin.get("/apis/resource.k8s.io").await.expect(200);
    let versions = group["versions"].as_array().expect("versions").iter();
    let versions: Vec<&str> = versions.filter_map(|one| one["version"].as_str()).collect();
    assert_eq!(versions, ["v1", "v1beta2", "v1alpha3"]);

    let rules = |version: &str| format!("/apis/resource.k8s.io/{version}/devicetaintrules");
    let rule = json!({"apiVersion": "resource.k8s.io/v1beta2", "kind": "DeviceTaintRule", "metadata": {"name": "r"},
        "spec": {"taint": {"key": "a", "effect": "NoSchedule"}}});
    let made = admin.post(&rules("v1beta2"), &rule).await.expect(201);
    assert!(made["spec"]["taint"]["timeAdded"].is_string());
    let other = admin.get(&format!("{}/r", rules("v1alpha3"))).await.expect(200);
    assert_eq!(other["apiVersion"], "resource.k8s.io/v1alpha3");
    assert_eq!(other["spec"], made["spec"]);
    let shown = cells(&admin, &format!("{}/r", rules("v1beta2"))).await;
    assert_eq!(shown[..4], ["r", "a", "", "NoSchedule"]);

    let pools = "/apis/resource.k8s.io/v1alpha3/resourcepoolstatusrequests";
    let request = json!({"apiVersion": "resource.k8s.io/v1alpha3", "kind": "ResourcePoolStatusRequest",
        "metadata": {"name": "q"}, "spec": {"driver": "a.b"}, "status": {"poolCount": 3}});
    let mut made = admin.post(pools, &request).await.expect(201);
    assert!(made.get("status").is_none());
    assert_eq!(
        cells(&admin, &format!("{pools}/q")).await,
        [
            "q".into(),
            "a.b".into(),
            "-".into(),
            "-".into(),
            "-".into(),
            "-".into(),
            "-".into(),
            json!(0),
            "Pending".into(),
            "<none>".into()
        ]
    );
    let status = format!("{pools}/q/status");
    made["status"] = json!({"poolCount": 2, "pools": [{"driver": "a.b", "poolName": "p", "generation": 1, "totalDevices": 4,
        "validationError": "x"}], "conditions": [{"type": "Complete", "status": "True", "reason": "R", "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z"}]});
    let mut answered = admin.put(&status, &made).await.expect(200);
    let shown = cells(&admin, &format!("{pools}/q")).await;
    assert_eq!(shown[2], "4");
    assert_eq!(shown[6], "1");
    assert_eq!(shown[8], "Complete (1/2 pools)");
    answered["status"]["poolCount"] = 1.into();
    let refused = admin.put(&status, &answered).await.expect(422);
    assert_eq!(refused["details"]["causes"][0]["field"], "status");

    let versions = "/apis/internal.apiserver.k8s.io/v1alpha1/storageversions";
    let version = json!({"apiVersion": "internal.apiserver.k8s.io/v1alpha1", "kind": "StorageVersion",
        "metadata": {"name": "apps.deployments"}, "spec": {}});
    let mut made = admin.post(versions, &version).await.expect(201);
    assert_eq!(made["status"], json!({}));
    let path = format!("{versions}/apps.deployments");
    assert_eq!(
        cells(&admin, &path).await[..3],
        ["apps.deployments", "<unset>", "<unset>"]
    );
    let server = json!({"apiServerID": "a", "encodingVersion": "apps/v1", "decodableVersions": ["apps/v1"]});
    made["status"] = json!({"storageVersions": [server], "commonEncodingVersion": "apps/v1"});
    admin.put(&format!("{path}/status"), &made).await.expect(200);
    assert_eq!(
        cells(&admin, &path).await[..3],
        ["apps.deployments", "apps/v1", "a=apps/v1"]
    );
    plane.stop().await;
}

#[tokio::test]
async fn they_are_off_by_default() {
    let (plane, admin) = plane_with(|builder| builder).await;
    for path in [
        "/apis/resource.k8s.io/v1beta2",
        "/apis/resource.k8s.io/v1alpha3",
        "/apis/internal.apiserver.k8s.io",
    ] {
        admin.get(path).await.expect(404);
    }
    plane.stop().await;
}
