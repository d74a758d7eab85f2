//! Garbage collection in process: policies, blocking, circles, strangers, custom kinds, and what happens across restarts.

use control_plane::ControlPlane;
use machinery::GroupResource;
use serde_json::{Value, json};
use test_support::{Client, eventually, plane, plane_with};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const CRDS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const HOLD: &str = "example.com/hold";

/// A reference to an object as it was answered.
pub(crate) fn owner(object: &Value) -> Value {
    json!({
        "apiVersion": object["apiVersion"], "kind": object["kind"], "name": object["metadata"]["name"],
        "uid": object["metadata"]["uid"], "blockOwnerDeletion": true,
    })
}

fn loose(mut owner: Value) -> Value {
    owner["blockOwnerDeletion"] = false.into();
    owner
}

pub(crate) async fn map(client: &Client, name: &str, owners: &[Value]) -> Value {
    let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "ownerReferences": owners}});
    client.post(MAPS, &object).await.expect(201)
}

/// The same with a finalizer of its own.
async fn held(client: &Client, name: &str, owners: &[Value]) -> Value {
    let object = json!({"apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": name, "ownerReferences": owners, "finalizers": [HOLD]}});
    client.post(MAPS, &object).await.expect(201)
}

async fn let_go(client: &Client, name: &str) {
    let patch = json!({"metadata": {"$deleteFromPrimitiveList/finalizers": [HOLD]}});
    let path = format!("{MAPS}/{name}");
    client
        .patch(&path, "strategic-merge-patch+json", &patch)
        .await
        .expect(200);
}

async fn delete(client: &Client, name: &str, policy: &str) {
    let path = format!("{MAPS}/{name}?propagationPolicy={policy}");
    client.delete(&path).await.expect(200);
}

pub(crate) async fn gone(client: &Client, path: &str) {
    let what = format!("the end of {path}");
    eventually(&what, || async {
        (client.get(path).await.status == 404).then_some(())
    })
    .await;
}

async fn all_gone(client: &Client, names: &[&str]) {
    for name in names {
        gone(client, &format!("{MAPS}/{name}")).await;
    }
}

/// Waits until the object is as wanted, and gives it.
async fn becomes(client: &Client, path: &str, what: &str, wanted: impl Fn(&Value) -> bool) -> Value {
    eventually(what, || async {
        let answer = client.get(path).await;
        (answer.status == 200 && wanted(&answer.json)).then_some(answer.json)
    })
    .await
}

fn is_going(object: &Value) -> bool {
    object["metadata"]["deletionTimestamp"].is_string()
}

fn finalizers(object: &Value) -> Value {
    object["metadata"]["finalizers"].clone()
}

/// Something that goes for want of an owner: when it has, the collector has seen everything before it.
async fn fence(client: &Client, name: &str) {
    let absent = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "absent", "uid": "absent"});
    map(client, name, &[absent]).await;
    all_gone(client, &[name]).await;
}

#[tokio::test]
async fn dependents_go_with_their_owner() {
    let (plane, client) = plane().await;
    let one = map(&client, "one", &[]).await;
    let two = map(&client, "two", &[owner(&one)]).await;
    map(&client, "three", &[owner(&two)]).await;
    delete(&client, "one", "Background").await;
    all_gone(&client, &["one", "two", "three"]).await;

    // Of several owners the last one counts; those that are gone are forgotten.
    let (a, b) = (map(&client, "a", &[]).await, map(&client, "b", &[]).await);
    map(&client, "both", &[owner(&a), owner(&b)]).await;
    delete(&client, "a", "Background").await;
    let left = becomes(&client, &format!("{MAPS}/both"), "it is released", |o| {
        o["metadata"]["ownerReferences"].as_array().map(Vec::len) == Some(1)
    })
    .await;
    assert_eq!(left["metadata"]["ownerReferences"][0]["name"], "b");
    delete(&client, "b", "Background").await;
    all_gone(&client, &["both"]).await;

    // An owner of that name that is another object is none, and one of another kind neither.
    let wrong = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "again", "uid": "other"});
    let again = map(&client, "again", &[]).await;
    let mut other_kind = owner(&again);
    other_kind["kind"] = "Secret".into();
    map(&client, "fooled", &[wrong]).await;
    map(&client, "mistaken", &[other_kind]).await;
    all_gone(&client, &["fooled", "mistaken"]).await;
    assert_eq!(client.get(&format!("{MAPS}/again")).await.status, 200);
    plane.stop().await;
}

#[tokio::test]
async fn a_foreground_deletion_waits_for_those_that_block() {
    let (plane, client) = plane().await;
    let parent = map(&client, "owner", &[]).await;
    held(&client, "blocking", &[owner(&parent)]).await;
    held(&client, "loose", &[loose(owner(&parent))]).await;
    delete(&client, "owner", "Foreground").await;
    for name in ["blocking", "loose"] {
        becomes(&client, &format!("{MAPS}/{name}"), "it is deleted", is_going).await;
    }
    fence(&client, "fence").await;
    let waiting = client.get(&format!("{MAPS}/owner")).await.expect(200);
    assert!(is_going(&waiting));
    assert_eq!(finalizers(&waiting), json!(["foregroundDeletion"]));
    let_go(&client, "blocking").await;
    all_gone(&client, &["blocking", "owner"]).await;
    // Deletion does not wait for dependents that do not block.
    let left = client.get(&format!("{MAPS}/loose")).await.expect(200);
    assert_eq!(finalizers(&left), json!([HOLD]));
    let_go(&client, "loose").await;
    all_gone(&client, &["loose"]).await;

    // The middle of a chain waits for its own.
    let top = map(&client, "top", &[]).await;
    let middle = map(&client, "middle", &[owner(&top)]).await;
    held(&client, "bottom", &[owner(&middle)]).await;
    delete(&client, "top", "Foreground").await;
    becomes(&client, &format!("{MAPS}/bottom"), "it is deleted", is_going).await;
    let waiting = client.get(&format!("{MAPS}/middle")).await.expect(200);
    assert_eq!(finalizers(&waiting), json!(["foregroundDeletion"]));
    let_go(&client, "bottom").await;
    all_gone(&client, &["bottom", "middle", "top"]).await;
    plane.stop().await;
}

#[tokio::test]
async fn orphans_stay_and_circles_end() {
    let (plane, client) = plane().await;
    let parent = map(&client, "owner", &[]).await;
    for name in ["x", "y"] {
        map(&client, name, &[owner(&parent)]).await;
    }
    delete(&client, "owner", "Orphan").await;
    all_gone(&client, &["owner"]).await;
    for name in ["x", "y"] {
        let left = client.get(&format!("{MAPS}/{name}")).await.expect(200);
        assert_eq!(left["metadata"]["ownerReferences"], Value::Null, "{name}");
    }

    for policy in ["Foreground", "Background"] {
        let first = map(&client, "first", &[]).await;
        let second = map(&client, "second", &[owner(&first)]).await;
        let patch = json!({"metadata": {"ownerReferences": [owner(&second)]}});
        client
            .patch(&format!("{MAPS}/first"), "merge-patch+json", &patch)
            .await
            .expect(200);
        delete(&client, "first", policy).await;
        all_gone(&client, &["first", "second"]).await;
    }

    // One that owns itself does not wait for itself for ever.
    let own = map(&client, "self", &[]).await;
    let patch = json!({"metadata": {"ownerReferences": [loose(owner(&own))]}});
    client
        .patch(&format!("{MAPS}/self"), "merge-patch+json", &patch)
        .await
        .expect(200);
    delete(&client, "self", "Foreground").await;
    all_gone(&client, &["self"]).await;
    plane.stop().await;
}

#[tokio::test]
async fn owners_are_looked_for_where_they_can_be() {
    let (plane, client) = plane().await;
    let namespace = json!({"metadata": {"name": "elsewhere"}});
    client.post("/api/v1/namespaces", &namespace).await.expect(201);
    let parent = map(&client, "owner", &[]).await;
    let maps = MAPS.replace("default", "elsewhere");
    let stranger = json!({"apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "stranger", "ownerReferences": [owner(&parent)]}});
    client.post(&maps, &stranger).await.expect(201);
    gone(&client, &format!("{maps}/stranger")).await;
    eventually("the event is recorded", || async {
        let events = client.get("/api/v1/namespaces/elsewhere/events").await.json;
        let events = events["items"].as_array()?.clone();
        events
            .iter()
            .any(|e| e["reason"] == "OwnerRefInvalidNamespace" && e["involvedObject"]["name"] == "stranger")
            .then_some(())
    })
    .await;
    // Cluster-scoped objects own objects in every namespace, and no namespaced object owns them.
    let roles = "/apis/rbac.authorization.k8s.io/v1/clusterroles";
    let of_cluster = |name: &str, owners: &[Value]| {
        json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "rules": [],
            "metadata": {"name": name, "ownerReferences": owners}})
    };
    let role = client.post(roles, &of_cluster("r", &[])).await.expect(201);
    let astray = of_cluster("astray", &[owner(&parent)]);
    client.post(roles, &astray).await.expect(201);
    map(&client, "owned", &[owner(&role)]).await;
    delete(&client, "owner", "Background").await;
    client.delete(&format!("{roles}/r")).await.expect(200);
    all_gone(&client, &["owned"]).await;
    assert_eq!(client.get(&format!("{roles}/astray")).await.status, 200);
    plane.stop().await;
}

fn crd() -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "things.garbage.example.com"},
        "spec": {
            "group": "garbage.example.com", "scope": "Namespaced",
            "names": {"plural": "things", "singular": "thing", "kind": "Thing", "listKind": "ThingList"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object"}}}],
        },
    })
}

#[tokio::test]
async fn custom_objects_are_owners_and_dependents() {
    let (plane, client) = plane().await;
    // Whether an owner of an unknown kind exists cannot be known.
    let unknown =
        json!({"apiVersion": "garbage.example.com/v1", "kind": "Thing", "name": "absent", "uid": "absent"});
    map(&client, "waiting", &[unknown]).await;
    fence(&client, "fence").await;
    assert_eq!(client.get(&format!("{MAPS}/waiting")).await.status, 200);
    client.post(CRDS, &crd()).await.expect(201);
    all_gone(&client, &["waiting"]).await;

    let things = "/apis/garbage.example.com/v1/namespaces/default/things";
    let parent = map(&client, "owner", &[]).await;
    let thing = json!({"apiVersion": "garbage.example.com/v1", "kind": "Thing",
        "metadata": {"name": "thing", "ownerReferences": [owner(&parent)]}});
    let thing = client.post(things, &thing).await.expect(201);
    map(&client, "child", &[owner(&thing)]).await;
    delete(&client, "owner", "Foreground").await;
    all_gone(&client, &["child", "owner"]).await;
    gone(&client, &format!("{things}/thing")).await;

    // With the definition goes everything.
    let thing =
        json!({"apiVersion": "garbage.example.com/v1", "kind": "Thing", "metadata": {"name": "last"}});
    client.post(things, &thing).await.expect(201);
    client
        .delete(&format!("{CRDS}/things.garbage.example.com"))
        .await
        .expect(200);
    gone(&client, &format!("{CRDS}/things.garbage.example.com")).await;
    plane.stop().await;
}

#[tokio::test]
async fn a_kind_without_objects_costs_nothing() {
    let (plane, client) = plane().await;
    let cache = |group: &str, resource: &str| {
        let key = GroupResource::new(group, resource);
        let registered = plane.directory().get(&key);
        registered.and_then(|r| r.store.as_system().started_cache())
    };
    client.post(CRDS, &crd()).await.expect(201);
    // The collector has noticed: objects owned by the kind's are collected.
    let absent =
        json!({"apiVersion": "garbage.example.com/v1", "kind": "Thing", "name": "absent", "uid": "absent"});
    assert!(cache("garbage.example.com", "things").is_none());
    fence(&client, "fence").await;
    assert!(cache("garbage.example.com", "things").is_none());
    assert!(cache("", "replicationcontrollers").is_none());
    map(&client, "orphaned", &[absent]).await;
    all_gone(&client, &["orphaned"]).await;
    plane.stop().await;
}

#[tokio::test]
async fn an_owner_may_go_while_its_dependents_are_made() {
    let (plane, client) = plane().await;
    for round in 0..8 {
        let parent = map(&client, &format!("owner-{round}"), &[]).await;
        let make = async {
            for index in 0..8 {
                let name = format!("dependent-{round}-{index}");
                let owned = json!({"apiVersion": "v1", "kind": "ConfigMap",
                    "metadata": {"name": name, "ownerReferences": [owner(&parent)]}});
                client.post(MAPS, &owned).await.expect(201);
            }
        };
        let policy = ["Background", "Foreground"][round % 2];
        let name = format!("owner-{round}");
        tokio::join!(make, delete(&client, &name, policy));
    }
    eventually("all are gone", || async {
        let left = client.get(MAPS).await.json.to_string();
        (!left.contains("dependent-") && !left.contains("owner-")).then_some(())
    })
    .await;
    plane.stop().await;
}

async fn start(dir: &std::path::Path) -> (ControlPlane, Client) {
    let builder = ControlPlane::builder().on_free_port().data_dir(dir);
    let builder = builder.with(|options| options.min_free_disk_mib = 1);
    let plane = builder.start().await.expect("it starts");
    let client = Client::from_kubeconfig(plane.kubeconfig().as_bytes());
    (plane, client)
}

#[tokio::test]
async fn a_deletion_goes_on_after_a_restart() {
    let dir = tempfile::tempdir().expect("a directory");
    let (plane, client) = start(dir.path()).await;
    client.post(CRDS, &crd()).await.expect(201);
    let things = "/apis/garbage.example.com/v1/namespaces/default/things";
    let parent = map(&client, "owner", &[]).await;
    held(&client, "blocking", &[owner(&parent)]).await;
    let thing = json!({"apiVersion": "garbage.example.com/v1", "kind": "Thing",
        "metadata": {"name": "thing", "ownerReferences": [owner(&parent)], "finalizers": [HOLD]}});
    client.post(things, &thing).await.expect(201);
    delete(&client, "owner", "Foreground").await;
    becomes(&client, &format!("{MAPS}/blocking"), "it is deleted", is_going).await;
    becomes(&client, &format!("{things}/thing"), "it is deleted", is_going).await;
    plane.stop().await;

    let (plane, client) = start(dir.path()).await;
    let_go(&client, "blocking").await;
    all_gone(&client, &["blocking"]).await;
    fence(&client, "fence").await;
    let waiting = client.get(&format!("{MAPS}/owner")).await.expect(200);
    assert_eq!(finalizers(&waiting), json!(["foregroundDeletion"]));
    let patch = json!({"metadata": {"finalizers": null}});
    client
        .patch(&format!("{things}/thing"), "merge-patch+json", &patch)
        .await
        .expect(200);
    all_gone(&client, &["owner"]).await;
    plane.stop().await;
}

#[tokio::test]
async fn it_stands_aside() {
    let aside = vec!["*".to_string(), "-garbage-collector-controller".into()];
    let (plane, client) = plane_with(|builder| builder.with(|o| o.controllers = aside)).await;
    let parent = map(&client, "owner", &[]).await;
    map(&client, "dependent", &[owner(&parent)]).await;
    delete(&client, "owner", "Foreground").await;
    // Another controller has done its work meanwhile.
    let namespace = json!({"metadata": {"name": "fence"}});
    client.post("/api/v1/namespaces", &namespace).await.expect(201);
    client.delete("/api/v1/namespaces/fence").await.expect(200);
    gone(&client, "/api/v1/namespaces/fence").await;
    let waiting = client.get(&format!("{MAPS}/owner")).await.expect(200);
    assert_eq!(finalizers(&waiting), json!(["foregroundDeletion"]));
    let left = client.get(&format!("{MAPS}/dependent")).await.expect(200);
    assert!(!is_going(&left));
    plane.stop().await;
}

#[tokio::test]
async fn a_thousand_dependents_go() {
    let (plane, client) = plane().await;
    let parent = map(&client, "owner", &[]).await;
    let store = plane
        .directory()
        .get(&GroupResource::new("", "configmaps"))
        .expect("config maps")
        .store;
    // Straight into the store: it is not creating that is looked at here.
    for index in 0..1000 {
        let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": format!("d-{index}"),
            "namespace": "default", "uid": format!("u-{index}"), "ownerReferences": [owner(&parent)]}});
        store
            .as_system()
            .insert(&object, None)
            .await
            .expect("it is stored");
    }
    delete(&client, "owner", "Background").await;
    eventually("all are gone", || async {
        let left = client.get(&format!("{MAPS}?limit=2")).await.json;
        let items = left["items"].as_array()?;
        items
            .iter()
            .all(|o| o["metadata"]["name"] == "kube-root-ca.crt")
            .then_some(())
    })
    .await;
    plane.stop().await;
}
