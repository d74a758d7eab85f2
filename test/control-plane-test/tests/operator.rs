//! A controller and its tests, as `docs/testing-operators.md` has them: a `Website` is a ConfigMap with its page, which the controller makes,
//! keeps as it should be, and which is collected with its owner.

use std::sync::Arc;
use std::time::Duration;

use control_plane_test::{Plane, plane_with};
use futures_util::StreamExt;
use k8s_openapi::api::core::v1::{ConfigMap, ServiceAccount};
use kube::api::{DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use kube::runtime::controller::{Action, Controller};
use kube::runtime::wait::{Condition, await_condition, conditions};
use kube::runtime::watcher;
use kube::{Api, Client, Resource, ResourceExt};
use serde_json::json;

// --- The controller.

fn websites() -> ApiResource {
    ApiResource::from_gvk(&GroupVersionKind::gvk("example.com", "v1", "Website"))
}

async fn reconcile(site: Arc<DynamicObject>, client: Arc<Client>) -> Result<Action, kube::Error> {
    let namespace = site.namespace().unwrap_or_default();
    let pages: Api<ConfigMap> = Api::namespaced(Client::clone(&client), &namespace);
    let page = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": site.name_any(), "ownerReferences": [site.controller_owner_ref(&websites())]},
        "data": {"index.html": site.data["spec"]["text"]},
    });
    let apply = PatchParams::apply("website-controller").force();
    pages
        .patch(&site.name_any(), &apply, &Patch::Apply(&page))
        .await?;
    Ok(Action::await_change())
}

async fn run(client: Client) {
    let sites = Api::all_with(client.clone(), &websites());
    Controller::new_with(sites, watcher::Config::default(), websites())
        .owns(Api::<ConfigMap>::all(client.clone()), watcher::Config::default())
        .run(
            reconcile,
            |_, _, _| Action::requeue(Duration::from_secs(1)),
            Arc::new(client),
        )
        .for_each(|_| std::future::ready(()))
        .await;
}

// --- Its tests.

/// A plane that knows Websites, with the controller on it.
async fn with_controller() -> Plane {
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "websites.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced",
            "names": {"plural": "websites", "singular": "website", "kind": "Website"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {
                "type": "object",
                "properties": {"spec": {"type": "object", "properties": {"text": {"type": "string"}}}},
            }}}],
        },
    });
    let plane = plane_with(|builder| builder.objects([definition])).await;
    tokio::spawn(run(plane.kube()));
    plane
}

fn site(name: &str, text: &str) -> DynamicObject {
    DynamicObject::new(name, &websites()).data(json!({"spec": {"text": text}}))
}

/// Waits until the page of a site is as it should be.
async fn until(pages: &Api<ConfigMap>, name: &str, condition: impl Condition<ConfigMap>) {
    let wait = await_condition(pages.clone(), name, condition);
    let waited = tokio::time::timeout(Duration::from_secs(30), wait).await;
    waited.expect("in time").expect("a watch");
}

fn says(text: &'static str) -> impl Condition<ConfigMap> {
    move |page: Option<&ConfigMap>| {
        let data = page.and_then(|page| page.data.as_ref());
        data.and_then(|data| data.get("index.html"))
            .is_some_and(|found| found == text)
    }
}

#[tokio::test]
async fn a_page_follows_its_site_and_goes_with_it() {
    let plane = with_controller().await;
    let sites: Api<DynamicObject> = Api::default_namespaced_with(plane.kube(), &websites());
    let pages: Api<ConfigMap> = Api::default_namespaced(plane.kube());
    sites
        .create(&PostParams::default(), &site("home", "hello"))
        .await
        .expect("created");
    until(&pages, "home", says("hello")).await;

    let changed = json!({"data": {"index.html": "defaced"}});
    pages
        .patch("home", &PatchParams::default(), &Patch::Merge(&changed))
        .await
        .expect("patched");
    until(&pages, "home", says("hello")).await;

    let uid = pages.get("home").await.expect("there").uid().expect("a uid");
    sites
        .delete("home", &DeleteParams::default())
        .await
        .expect("deleted");
    until(&pages, "home", conditions::is_deleted(&uid)).await;
    let asked = plane.requests();
    assert!(
        asked
            .iter()
            .any(|line| line.starts_with("201 POST /apis/example.com/v1/")),
        "{asked:?}"
    );
}

#[tokio::test]
async fn users_may_do_what_roles_say_with_and_without_a_socket() {
    let plane = control_plane_test::plane().await;
    let alice = control_plane::User {
        name: "alice \"a\": x".into(),
        groups: vec!["dev".into(), "qa".into()],
        ..control_plane::User::default()
    };
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": "qa"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "qa"}],
    });
    plane.apply([binding]).await.expect("applied");
    let kubeconfig =
        kube::config::Kubeconfig::from_yaml(&plane.kubeconfig_for(&alice)).expect("a kubeconfig");
    let kubeconfig = kube::Config::from_custom_kubeconfig(kubeconfig, &Default::default()).await;
    let clients = [
        plane.kube_as(&alice),
        Client::try_from(plane.config(&alice).expect("a configuration")).expect("a client"),
        Client::try_from(kubeconfig.expect("a configuration")).expect("a client"),
    ];
    for client in clients {
        let accounts: Api<ServiceAccount> = Api::default_namespaced(client);
        accounts.list(&Default::default()).await.expect("it may be seen");
        let refused = accounts
            .delete("default", &DeleteParams::default())
            .await
            .expect_err("not more");
        let kube::Error::Api(status) = refused else {
            panic!("{refused}")
        };
        assert_eq!(status.code, 403);
        assert!(status.message.contains("alice"), "{}", status.message);
    }
    assert!(
        plane
            .requests()
            .iter()
            .any(|line| line.starts_with("403 DELETE ")),
        "{:?}",
        plane.requests()
    );
}

#[tokio::test]
async fn a_dropped_plane_frees_its_port_and_its_directory() {
    let directory = tempfile::tempdir().expect("a directory");
    let start = || {
        let builder = control_plane::ControlPlane::builder().on_free_port();
        builder.data_dir(directory.path()).start()
    };
    let plane = start().await.expect("it starts");
    let address = plane.address();
    drop(plane);
    let again = start().await.expect("it starts again");
    again.stop().await;
    assert!(std::net::TcpListener::bind(address).is_ok());
}
