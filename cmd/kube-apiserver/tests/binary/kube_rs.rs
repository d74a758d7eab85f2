//! An unmodified kube-rs: typed and dynamic clients, server-side apply, and a watcher that lists, watches and resumes.

use futures_util::TryStreamExt;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Client, Config, ResourceExt};
use serde_json::json;
use test_support::PATIENCE;

async fn client(kubeconfig: &str) -> Client {
    let kubeconfig = Kubeconfig::from_yaml(kubeconfig).expect("a kubeconfig");
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await;
    Client::try_from(config.expect("a configuration")).expect("a client")
}

#[tokio::test]
async fn kube_rs_does_its_day() {
    let dir = tempfile::tempdir().expect("a directory");
    let (_child, _) = crate::start(dir.path()).await;
    let kubeconfig = std::fs::read_to_string(dir.path().join("admin.kubeconfig")).expect("a kubeconfig");
    let client = client(&kubeconfig).await;
    assert_eq!(client.apiserver_version().await.expect("a version").minor, "36");

    let spaces: Api<Namespace> = Api::all(client.clone());
    let space = serde_json::from_value(json!({"metadata": {"name": "shop"}})).expect("a namespace");
    spaces
        .create(&PostParams::default(), &space)
        .await
        .expect("created");

    let deployments: Api<Deployment> = Api::namespaced(client.clone(), "shop");
    let wanted = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"},
        "spec": {"selector": {"matchLabels": {"app": "web"}}, "template": {
            "metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "web", "image": "nginx"}]}}},
    });
    let applied = deployments
        .patch("web", &PatchParams::apply("test"), &Patch::Apply(&wanted))
        .await
        .expect("applied");
    assert_eq!(applied.managed_fields()[0].manager.as_deref(), Some("test"));
    let scaled = json!({"spec": {"replicas": 3}});
    deployments
        .patch_scale("web", &PatchParams::default(), &Patch::Merge(&scaled))
        .await
        .expect("scaled");
    let spec = deployments.get("web").await.expect("there").spec.expect("a spec");
    assert_eq!(spec.replicas, Some(3));

    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), "shop");
    let watched = watcher(maps.clone(), watcher::Config::default().labels("kept=yes")).applied_objects();
    let mut watched = std::pin::pin!(watched);
    for index in 0..3 {
        let map = serde_json::from_value(json!({
            "metadata": {"name": format!("m-{index}"), "labels": {"kept": if index == 1 { "no" } else { "yes" }}},
        }))
        .expect("a map");
        maps.create(&PostParams::default(), &map).await.expect("created");
    }
    let mut seen = Vec::new();
    while seen.len() < 2 {
        let next = tokio::time::timeout(PATIENCE, watched.try_next())
            .await
            .expect("an event in time");
        seen.push(next.expect("a watch").expect("an object").name_any());
    }
    seen.sort();
    assert_eq!(seen, ["m-0", "m-2"]);

    let page = maps.list(&ListParams::default().limit(2)).await.expect("a page");
    assert!(page.metadata.continue_.is_some());
    let refused = maps.get("none").await.expect_err("there is none");
    assert!(matches!(refused, kube::Error::Api(status) if status.code == 404));
    deployments
        .delete("web", &DeleteParams::default())
        .await
        .expect("deleted");
}
