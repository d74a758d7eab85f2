//! Forks, snapshots and resets, as `docs/planes.md` has them.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use control_plane::{ControlPlane, User};
use control_plane_test::{Plane, Prepared, plane, plane_with};
use futures_util::future::join_all;
use futures_util::{StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Service};
use kube::api::{
    DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams,
};
use kube::core::{ApiResource, GroupVersionKind};
use kube::runtime::wait::{await_condition, conditions};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};
use tokio::sync::OnceCell;

const DEADLINE: Duration = Duration::from_secs(60);

fn widgets() -> ApiResource {
    ApiResource::from_gvk(&GroupVersionKind::gvk("example.com", "v1", "Widget"))
}

fn definition() -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced",
            "names": {"plural": "widgets", "singular": "widget", "kind": "Widget"},
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "selectableFields": [{"jsonPath": ".spec.color"}],
                "schema": {"openAPIV3Schema": {
                    "type": "object",
                    "properties": {"spec": {"type": "object", "properties": {"color": {"type": "string"}}}},
                }},
            }],
        },
    })
}

fn widget(name: &str, color: &str) -> Value {
    json!({
        "apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": name}, "spec": {"color": color},
    })
}

fn config_map(name: &str, value: &str) -> ConfigMap {
    let object = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"value": value},
    });
    serde_json::from_value(object).expect("a ConfigMap")
}

fn config_maps(plane: &Plane) -> Api<ConfigMap> {
    Api::default_namespaced(plane.kube())
}

async fn create(plane: &Plane, name: &str, value: &str) -> ConfigMap {
    let (maps, params) = (config_maps(plane), PostParams::default());
    maps.create(&params, &config_map(name, value))
        .await
        .expect("created")
}

async fn names(plane: &Plane) -> Vec<String> {
    let listed = config_maps(plane)
        .list(&ListParams::default())
        .await
        .expect("listed");
    listed
        .iter()
        .map(ResourceExt::name_any)
        .filter(|name| name != "kube-root-ca.crt")
        .collect()
}

/// The names in the events of a watch until one is of this object.
async fn events_until(maps: Api<ConfigMap>, after: String, last: &str) -> Vec<String> {
    let mut seen = Vec::new();
    let watch = async {
        let stream = maps
            .watch(&WatchParams::default(), &after)
            .await
            .expect("a watch");
        let mut stream = std::pin::pin!(stream);
        while let Some(event) = stream.try_next().await.expect("an event") {
            let (kind, object) = match event {
                WatchEvent::Added(object) => ("added", object),
                WatchEvent::Modified(object) => ("modified", object),
                WatchEvent::Deleted(object) => ("deleted", object),
                WatchEvent::Bookmark(_) => continue,
                WatchEvent::Error(status) => panic!("{status:?}"),
            };
            seen.push(format!("{kind} {}", object.name_any()));
            if object.name_any() == last {
                return;
            }
        }
        panic!("the watch has ended");
    };
    tokio::time::timeout(DEADLINE, watch).await.expect("in time");
    seen
}

/// As `docs/testing-operators.md` has it.
async fn prepared() -> Plane {
    static PREPARED: OnceCell<Prepared> = OnceCell::const_new();
    let prepare = || Prepared::by(|builder| builder.objects([definition(), widget("first", "red")]));
    PREPARED.get_or_init(prepare).await.fork().await
}

#[tokio::test]
async fn one_prepared_plane_serves_many_tests() {
    let (one, other) = (prepared().await, prepared().await);
    let of = |plane: &Plane| -> Api<DynamicObject> { Api::default_namespaced_with(plane.kube(), &widgets()) };
    of(&one)
        .delete("first", &DeleteParams::default())
        .await
        .expect("deleted");
    let red = ListParams::default().fields("spec.color=red");
    assert_eq!(of(&other).list(&red).await.expect("listed").items.len(), 1);
    assert_eq!(of(&one).list(&red).await.expect("listed").items.len(), 0);
    // The record of a plane has the requests of its own test.
    assert!(one.requests().iter().any(|line| line.contains("DELETE")));
    assert!(!other.requests().iter().any(|line| line.contains("DELETE")));
}

/// The same from a runtime that has nothing to do with the one in which it was prepared.
#[tokio::test]
async fn another_test_forks_the_same_plane() {
    let plane = prepared().await;
    let api: Api<DynamicObject> = Api::default_namespaced_with(plane.kube(), &widgets());
    let changed = json!({"spec": {"color": "blue"}});
    api.patch("first", &PatchParams::default(), &Patch::Merge(&changed))
        .await
        .expect("patched");
}

#[tokio::test]
async fn a_fork_has_objects_revisions_and_history_and_goes_its_own_way() {
    let origin = plane().await;
    let first = create(&origin, "first", "1").await;
    create(&origin, "second", "1").await;
    config_maps(&origin)
        .delete("second", &DeleteParams::default())
        .await
        .expect("deleted");
    let fork = origin.fork().await;
    assert_ne!(fork.address(), origin.address());
    assert_eq!(config_maps(&fork).get("first").await.expect("there"), first);

    let fork_only = create(&fork, "fork", "1").await;
    let origin_only = create(&origin, "origin", "1").await;
    assert_eq!(names(&fork).await, ["first", "fork"]);
    assert_eq!(names(&origin).await, ["first", "origin"]);
    assert_ne!(fork_only.uid(), origin_only.uid());

    // A watch from before the fork goes on in the fork, and each has the events of its own.
    let after = first.resource_version().expect("a version");
    let common = ["added second", "deleted second"].map(String::from);
    let seen = events_until(config_maps(&fork), after.clone(), "fork").await;
    assert_eq!(seen, [&common[..], &["added fork".into()]].concat());
    let seen = events_until(config_maps(&origin), after, "origin").await;
    assert_eq!(seen, [&common[..], &["added origin".into()]].concat());
}

#[tokio::test]
async fn credentials_of_the_parent_are_good_for_the_fork() {
    let origin = plane().await;
    let alice = User {
        name: "alice".into(),
        ..User::default()
    };
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": "alice"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "alice"}],
    });
    origin.apply([binding]).await.expect("applied");
    let token = origin.token_for(&alice);
    let kubeconfig = origin.kubeconfig();
    let account: Value = origin
        .kube()
        .request(http_request(
            "/api/v1/namespaces/default/serviceaccounts/default/token",
        ))
        .await
        .expect("a token");
    let fork = origin.fork().await;
    assert_eq!(fork.token_for(&alice), token);
    assert_eq!(fork.ca_certificate(), origin.ca_certificate());
    assert!(fork.kubeconfig().contains(&fork.address().port().to_string()));

    // With a socket: the administrator's certificate and the tokens of the parent, at the address of the fork.
    let config = |text: &str| kube::config::Kubeconfig::from_yaml(text).expect("a kubeconfig");
    let mut administrator = kube::Config::from_custom_kubeconfig(config(&kubeconfig), &Default::default())
        .await
        .expect("a configuration");
    administrator.cluster_url = fork.url().parse().expect("a URL");
    let mut user = fork.config(&alice).expect("a configuration");
    user.auth_info.token = Some(token.into());
    let mut service_account = fork.config(&alice).expect("a configuration");
    let account_token = account["status"]["token"].as_str().expect("a token");
    service_account.auth_info.token = Some(account_token.to_string().into());
    for (config, may_list) in [(administrator, true), (user, true), (service_account, false)] {
        let client = Client::try_from(config).expect("a client");
        let maps: Api<ConfigMap> = Api::default_namespaced(client);
        match maps.list(&ListParams::default()).await {
            Ok(_) => assert!(may_list),
            // It is known, and may not.
            Err(kube::Error::Api(status)) => assert!(!may_list && status.code == 403, "{status:?}"),
            Err(error) => panic!("{error}"),
        }
    }
    // What a user is given later is the plane's own.
    let bob = User {
        name: "bob".into(),
        ..User::default()
    };
    assert_ne!(fork.token_for(&bob), origin.token_for(&bob));
}

fn http_request(path: &str) -> http::Request<Vec<u8>> {
    let body = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}});
    http::Request::post(path)
        .header("content-type", "application/json")
        .body(body.to_string().into_bytes())
        .expect("a request")
}

/// Whatever was acknowledged before a fork was asked for is in it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn forks_while_writes_run() {
    let origin = Arc::new(plane().await);
    let stop = Arc::new(AtomicBool::new(false));
    let acknowledged = Arc::new(AtomicUsize::new(0));
    let writers: Vec<_> = (0..4)
        .map(|writer| {
            let (origin, stop, acknowledged) = (origin.clone(), stop.clone(), acknowledged.clone());
            tokio::spawn(async move {
                for n in 0..2000 {
                    if stop.load(Ordering::Acquire) {
                        return;
                    }
                    create(&origin, &format!("w{writer}-{n}"), "1").await;
                    acknowledged.fetch_add(1, Ordering::AcqRel);
                }
            })
        })
        .collect();
    for _ in 0..5 {
        let before = acknowledged.load(Ordering::Acquire);
        let fork = origin.fork().await;
        let (now, after) = (names(&fork).await.len(), acknowledged.load(Ordering::Acquire));
        // Each writer has at most one write that is stored and not acknowledged yet.
        assert!(
            before <= now && now <= after + 4,
            "{before} <= {now} <= {after} + 4"
        );
        // It stands still: nothing of the parent comes in later.
        assert_eq!(names(&fork).await.len(), now);
    }
    stop.store(true, Ordering::Release);
    join_all(writers).await;
}

#[tokio::test]
async fn a_fork_of_a_fork_outlives_both() {
    let origin = plane().await;
    create(&origin, "one", "1").await;
    let snapshot = origin.snapshot().await.expect("a snapshot");
    let child = origin.fork().await;
    create(&child, "two", "1").await;
    let grandchild = child.fork().await;
    drop(origin);
    drop(child);
    create(&grandchild, "three", "1").await;
    assert_eq!(names(&grandchild).await, ["one", "three", "two"]);
    // The snapshot is of before, and outlives its plane, too.
    let late = snapshot.fork().await.expect("it starts");
    let maps: Api<ConfigMap> =
        Api::default_namespaced(late.client(&control_plane::administrator()).expect("a client"));
    assert!(maps.get_opt("two").await.expect("an answer").is_none());
    assert!(maps.get_opt("one").await.expect("an answer").is_some());
    grandchild.reset_to(&snapshot).await.expect("it is of its past");
    assert_eq!(names(&grandchild).await, ["one"]);
}

#[tokio::test]
async fn a_stopped_plane_is_not_forked() {
    let plane = plane().await;
    let snapshot = plane.snapshot().await.expect("a snapshot");
    plane.engine().shutdown().await;
    let error = plane.snapshot().await.expect_err("it is stopped").to_string();
    assert!(error.starts_with("cannot fork the control plane: "), "{error}");
    assert!(error.ends_with("the store has been shut down"), "{error}");
    let error = plane
        .reset_to(&snapshot)
        .await
        .expect_err("it is stopped")
        .to_string();
    assert!(error.starts_with("cannot reset the control plane: "), "{error}");
}

#[tokio::test]
async fn a_snapshot_of_another_plane_is_refused() {
    let (one, other) = (plane().await, plane().await);
    let snapshot = other.snapshot().await.expect("a snapshot");
    let error = one
        .reset_to(&snapshot)
        .await
        .expect_err("it is another's")
        .to_string();
    assert!(error.contains("a state of its own past"), "{error}");
}

#[tokio::test]
async fn a_reset_is_events_to_watches_and_leaves_nothing_behind() {
    let plane = plane_with(|builder| builder.objects([definition(), widget("kept", "red")])).await;
    create(&plane, "changed", "1").await;
    let removed = create(&plane, "removed", "1").await;
    let snapshot = plane.snapshot().await.expect("a snapshot");
    let at = snapshot.revision();

    let changed = json!({"data": {"value": "2"}});
    let maps = config_maps(&plane);
    maps.patch("changed", &PatchParams::default(), &Patch::Merge(&changed))
        .await
        .expect("patched");
    maps.delete("removed", &DeleteParams::default())
        .await
        .expect("deleted");
    create(&plane, "added", "1").await;
    let definitions: Api<DynamicObject> = Api::all_with(
        plane.kube(),
        &ApiResource::from_gvk(&GroupVersionKind::gvk(
            "apiextensions.k8s.io",
            "v1",
            "CustomResourceDefinition",
        )),
    );
    let uid = definitions
        .get("widgets.example.com")
        .await
        .expect("there")
        .uid()
        .expect("a uid");
    definitions
        .delete("widgets.example.com", &DeleteParams::default())
        .await
        .expect("deleted");
    let gone = await_condition(definitions, "widgets.example.com", conditions::is_deleted(&uid));
    tokio::time::timeout(DEADLINE, gone)
        .await
        .expect("in time")
        .expect("a watch");

    let revision = plane.reset_to(&snapshot).await.expect("reset");
    assert!(revision > at);
    assert_eq!(names(&plane).await, ["changed", "removed"]);
    let back = maps.get("removed").await.expect("there");
    assert_eq!(back.uid(), removed.uid());
    assert_eq!(back.resource_version(), Some(revision.to_string()));
    // One watch of before has seen it all, in order.
    let seen = events_until(maps.clone(), at.to_string(), "removed").await;
    assert_eq!(seen, ["modified changed", "deleted removed"]);
    let seen = events_until(maps, (revision - 1).to_string(), "removed").await;
    assert_eq!(seen, ["deleted added", "modified changed", "added removed"]);
    // What depends on objects follows them.
    let api: Api<DynamicObject> = Api::default_namespaced_with(plane.kube(), &widgets());
    assert_eq!(
        api.get("kept").await.expect("it is served again").data["spec"]["color"],
        "red"
    );
}

/// Objects with an owner are not collected when both come back in one reset.
#[tokio::test]
async fn owned_objects_come_back_with_their_owners() {
    let plane = plane().await;
    let owner = create(&plane, "owner", "1").await;
    let mut owned = config_map("owned", "1");
    owned.metadata.owner_references = Some(vec![
        k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference {
            api_version: "v1".into(),
            kind: "ConfigMap".into(),
            name: "owner".into(),
            uid: owner.uid().expect("a uid"),
            ..Default::default()
        },
    ]);
    let maps = config_maps(&plane);
    let uid = maps
        .create(&PostParams::default(), &owned)
        .await
        .expect("created")
        .uid()
        .expect("a uid");
    let fork = plane.fork().await;
    let snapshot = plane.snapshot().await.expect("a snapshot");
    for _ in 0..3 {
        maps.delete("owner", &DeleteParams::default())
            .await
            .expect("deleted");
        let gone = await_condition(maps.clone(), "owned", conditions::is_deleted(&uid));
        tokio::time::timeout(DEADLINE, gone)
            .await
            .expect("in time")
            .expect("a watch");
        plane.reset_to(&snapshot).await.expect("reset");
        assert_eq!(names(&plane).await, ["owned", "owner"]);
    }
    // A fork collects, too, and its collector knows what was there before.
    let maps = config_maps(&fork);
    maps.delete("owner", &DeleteParams::default())
        .await
        .expect("deleted");
    let gone = await_condition(maps, "owned", conditions::is_deleted(&uid));
    tokio::time::timeout(DEADLINE, gone)
        .await
        .expect("in time")
        .expect("a watch");
    assert_eq!(names(&plane).await, ["owned", "owner"]);
}

async fn services(plane: &Plane, prefix: &str, count: usize) {
    let api: Api<Service> = Api::default_namespaced(plane.kube());
    let create = |n: usize| {
        let object = json!({
            "apiVersion": "v1", "kind": "Service", "metadata": {"name": format!("{prefix}-{n}")},
            "spec": {"type": "NodePort", "ports": [{"port": 80}]},
        });
        let service: Service = serde_json::from_value(object).expect("a Service");
        let api = api.clone();
        async move {
            api.create(&PostParams::default(), &service)
                .await
                .expect("created")
        }
    };
    join_all((0..count).map(create)).await;
}

/// The cluster IPs and node ports of all Services, each of which is there once.
async fn allocated(plane: &Plane) -> usize {
    let api: Api<Service> = Api::all(plane.kube());
    let listed = api.list(&ListParams::default()).await.expect("listed");
    let (mut ips, mut ports) = (HashSet::new(), HashSet::new());
    for service in &listed {
        let spec = service.spec.as_ref().expect("a spec");
        assert!(
            ips.insert(spec.cluster_ip.clone().expect("an address")),
            "{spec:?}"
        );
        for port in spec.ports.iter().flatten().filter_map(|port| port.node_port) {
            assert!(ports.insert(port), "{spec:?}");
        }
    }
    ips.len()
}

/// A small range, so that a second allocation of the same would be found.
#[tokio::test]
async fn allocations_of_a_fork_do_not_collide() {
    let origin = plane_with(|builder| {
        builder.with(|options| {
            options.service_cluster_ip_range = "10.9.0.0/26".into();
            options.service_node_port_range = "30000-30049".into();
        })
    })
    .await;
    services(&origin, "before", 20).await;
    let fork = origin.fork().await;
    let snapshot = origin.snapshot().await.expect("a snapshot");
    tokio::join!(services(&fork, "fork", 20), services(&origin, "origin", 20));
    assert_eq!((allocated(&fork).await, allocated(&origin).await), (41, 41));
    // What was allocated since is free again.
    origin.reset_to(&snapshot).await.expect("reset");
    services(&origin, "again", 25).await;
    assert_eq!(allocated(&origin).await, 46);
}

#[tokio::test]
async fn a_namespace_is_deleted_in_the_fork_alone() {
    let origin = plane().await;
    let made = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}});
    let map =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "namespace": "shop"}});
    origin.apply([made, map]).await.expect("applied");
    let fork = origin.fork().await;
    let namespaces: Api<Namespace> = Api::all(fork.kube());
    let uid = namespaces.get("shop").await.expect("there").uid().expect("a uid");
    namespaces
        .delete("shop", &DeleteParams::default())
        .await
        .expect("deleted");
    let gone = await_condition(namespaces, "shop", conditions::is_deleted(&uid));
    tokio::time::timeout(DEADLINE, gone)
        .await
        .expect("in time")
        .expect("a watch");
    let maps: Api<ConfigMap> = Api::namespaced(origin.kube(), "shop");
    assert!(maps.get_opt("a").await.expect("an answer").is_some());
}

/// With little room for history: what a fork has no more, it says, and the newest state is whole.
#[tokio::test]
async fn a_fork_of_a_plane_with_little_room() {
    let origin = plane_with(|builder| {
        builder.with(|options| {
            options.watch_cache_history_mib = 1;
            options.history_max_changes = 50;
        })
    })
    .await;
    let first = create(&origin, "first", "1")
        .await
        .resource_version()
        .expect("a version");
    let maps = config_maps(&origin);
    for n in 0..300 {
        let changed = json!({"data": {"value": format!("{n} {}", "x".repeat(10_000))}});
        maps.patch("first", &PatchParams::default(), &Patch::Merge(&changed))
            .await
            .expect("patched");
    }
    // Nothing but time has history cut, which the next fork finds done.
    let expired = async {
        loop {
            let fork = origin.fork().await;
            let watch = config_maps(&fork).watch(&WatchParams::default(), &first).await;
            let event = match watch {
                Ok(stream) => std::pin::pin!(stream).next().await,
                Err(error) => Some(Err(error)),
            };
            match event {
                Some(Ok(WatchEvent::Error(status))) => assert_eq!(status.code, 410),
                Some(Err(kube::Error::Api(status))) => assert_eq!(status.code, 410),
                _ => {
                    create(&origin, &format!("n-{}", fork.address().port()), "1").await;
                    continue;
                }
            }
            return fork;
        }
    };
    let fork = tokio::time::timeout(DEADLINE, expired).await.expect("in time");
    let value = config_maps(&fork)
        .get("first")
        .await
        .expect("there")
        .data
        .expect("data");
    assert!(value["value"].starts_with("299 "));
}

/// A plane on disk is forked into memory, and both go on.
#[tokio::test]
async fn a_plane_on_disk_is_forked_into_memory() {
    let directory = tempfile::tempdir().expect("a directory");
    let builder = ControlPlane::builder().on_free_port().data_dir(directory.path());
    let origin = builder.start().await.expect("it starts");
    let api = |plane: &ControlPlane| -> Api<ConfigMap> {
        Api::default_namespaced(plane.client(&control_plane::administrator()).expect("a client"))
    };
    let first = api(&origin)
        .create(&PostParams::default(), &config_map("first", "1"))
        .await
        .expect("created");
    let snapshot = origin.snapshot().await.expect("a snapshot");
    let fork = snapshot.fork().await.expect("it starts");
    api(&fork)
        .delete("first", &DeleteParams::default())
        .await
        .expect("deleted");
    api(&origin)
        .create(&PostParams::default(), &config_map("later", "1"))
        .await
        .expect("created");
    origin.reset_to(&snapshot).await.expect("reset");
    assert!(api(&origin).get_opt("later").await.expect("an answer").is_none());
    origin.stop().await;
    // What a reset has written survives a restart; the fork wrote nothing there.
    let builder = ControlPlane::builder().on_free_port().data_dir(directory.path());
    let again = builder.start().await.expect("it starts again");
    assert_eq!(api(&again).get("first").await.expect("there"), first);
    assert!(api(&again).get_opt("later").await.expect("an answer").is_none());
    again.stop().await;
    assert!(api(&fork).get_opt("first").await.expect("an answer").is_none());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_forks_at_once() {
    let origin = plane().await;
    for n in 0..20 {
        create(&origin, &format!("common-{n:02}"), "1").await;
    }
    let snapshot = origin.prepared().await;
    let own = |n: usize| {
        let snapshot = snapshot.clone();
        async move {
            let fork = snapshot.fork().await;
            create(&fork, &format!("own-{n}"), "1").await;
            fork
        }
    };
    let forks = join_all((0..100).map(own)).await;
    for (n, fork) in forks.iter().enumerate() {
        let all = names(fork).await;
        assert_eq!((all.len(), all.last()), (21, Some(&format!("own-{n}"))));
    }
    assert_eq!(names(&origin).await.len(), 20);
    // In any order, with the parent in between.
    let (even, odd): (Vec<_>, Vec<_>) = forks.into_iter().enumerate().partition(|(n, _)| n % 2 == 0);
    drop(even);
    drop(origin);
    for (_, fork) in odd.into_iter().rev().take(3) {
        assert_eq!(names(&fork).await.len(), 21);
    }
}
