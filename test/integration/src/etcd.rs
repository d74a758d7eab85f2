//! Control planes on a real etcd: replicas that share one, upstream's keys and values, what happens when it goes and comes back.

mod cut;

use std::collections::{BTreeMap, BTreeSet};

use crate::garbage;
use control_plane::ControlPlane;
use serde_json::{Value, json};
use storage::{Op, RangeRequest, Revision, Txn};
use test_support::{Client, Etcd, eventually, plane, plane_with};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const SERVICES: &str = "/api/v1/namespaces/default/services";
const CRDS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

/// Where upstream keeps what is not under its plain plural name.
const EXCEPTIONS: [(&str, &str); 7] = [
    ("endpoints", "/registry/services/endpoints"),
    ("nodes", "/registry/minions"),
    ("replicationcontrollers", "/registry/controllers"),
    ("services", "/registry/services/specs"),
    ("ingresses.networking.k8s.io", "/registry/ingress"),
    (
        "apiservices.apiregistration.k8s.io",
        "/registry/apiregistration.k8s.io/apiservices",
    ),
    (
        "customresourcedefinitions.apiextensions.k8s.io",
        "/registry/apiextensions.k8s.io/customresourcedefinitions",
    ),
];

fn map(name: &str, value: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"key": value}})
}

fn things(scope: &str) -> Value {
    let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "things.example.com"},
        "spec": {
            "group": "example.com", "scope": scope, "names": {"plural": "things", "kind": "Thing"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}],
        },
    })
}

/// A replica on an etcd, with a directory of its own.
pub(crate) async fn replica(etcd: &Etcd) -> (ControlPlane, Client, tempfile::TempDir) {
    replica_with(etcd, |_| {}).await
}

pub(crate) async fn replica_with(
    etcd: &Etcd,
    change: impl FnOnce(&mut control_plane::Options),
) -> (ControlPlane, Client, tempfile::TempDir) {
    let dir = tempfile::tempdir().expect("a directory");
    let (plane, client) = plane_with(|builder| {
        builder.data_dir(dir.path()).with(|options| {
            options.storage_backend = None;
            options.etcd_servers = vec![etcd.url()];
            // A replica's CA is its own here, and no other controllers may disturb the watches.
            options.controllers = vec!["-*".into()];
            change(options);
        })
    })
    .await;
    (plane, client, dir)
}

fn node_port_service(name: &str, port: Option<i64>) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": name},
        "spec": {"type": "NodePort", "ports": [{"port": 80, "nodePort": port}]},
    })
}

/// Makes services until there are no node ports left; those that were given out, by service.
pub(crate) async fn take_node_ports(client: &Client, side: &str) -> BTreeMap<String, i64> {
    let mut own = BTreeMap::new();
    loop {
        let name = format!("{side}{}", own.len());
        let made = client.post(SERVICES, &node_port_service(&name, None)).await;
        if made.status != 201 {
            let message = made.expect(500)["message"].to_string();
            assert!(message.contains("range is full"), "{message}");
            return own;
        }
        let port = made.json["spec"]["ports"][0]["nodePort"].as_i64();
        own.insert(name, port.expect("a port"));
    }
}

/// Every key and value under a prefix, as they are in the store.
async fn raw(plane: &ControlPlane, prefix: &str) -> BTreeMap<String, Vec<u8>> {
    let request = RangeRequest {
        prefix: prefix.into(),
        ..RangeRequest::default()
    };
    let found = plane.engine().range(request).await.expect("reads");
    found
        .kvs
        .into_iter()
        .map(|kv| (kv.key.to_string(), kv.value.to_vec()))
        .collect()
}

#[tokio::test]
async fn keys_are_where_upstream_looks_for_them() {
    let (plane, client) = plane().await;
    client.post(CRDS, &things("Cluster")).await.expect(201);
    for (resource, registered) in plane.directory().all().iter() {
        let name = resource.to_string();
        let exception = EXCEPTIONS.iter().find(|(known, _)| *known == name);
        let expected = match exception {
            Some((_, prefix)) => prefix.to_string(),
            None if &*resource.group == "example.com" => "/registry/example.com/things".into(),
            None => format!("/registry/{}", resource.resource),
        };
        assert_eq!(registered.store.config().prefix, expected, "{name}");
    }
    plane.stop().await;
}

#[tokio::test]
async fn values_are_upstreams() {
    let Some(etcd) = Etcd::start().await else { return };
    let (plane, client, _dir) = replica(&etcd).await;
    client.post(MAPS, &map("a", "1")).await.expect(201);
    client.post(CRDS, &things("Namespaced")).await.expect(201);
    let thing =
        json!({"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": "t"}, "size": 3});
    let made = "/apis/example.com/v1/namespaces/default/things";
    client.post(made, &thing).await.expect(201);
    let event = json!({
        "apiVersion": "v1", "kind": "Event", "metadata": {"name": "e"}, "reason": "r", "message": "m",
        "involvedObject": {"kind": "Pod", "namespace": "default", "name": "p"}, "type": "Normal",
    });
    client
        .post("/api/v1/namespaces/default/events", &event)
        .await
        .expect(201);

    let all = raw(&plane, "/registry/").await;
    for (key, value) in &all {
        let custom = ["apiextensions.k8s.io", "apiregistration.k8s.io", "example.com"];
        let form: &[u8] = match key.split('/').nth(2) {
            // The authorities that replicas share, which no kube-apiserver reads.
            Some("_servers") => continue,
            Some(group) if custom.contains(&group) => b"{\"kind\":\"",
            _ => b"k8s\0",
        };
        assert!(value.starts_with(form), "{key}");
        let text = String::from_utf8_lossy(value);
        assert!(!text.contains("resourceVersion"), "{key} says its own revision");
    }
    for key in [
        "/registry/configmaps/default/a",
        "/registry/events/default/e",
        "/registry/example.com/things/default/t",
        "/registry/apiextensions.k8s.io/customresourcedefinitions/things.example.com",
        "/registry/apiregistration.k8s.io/apiservices/v1.example.com",
        "/registry/services/specs/default/kubernetes",
        "/registry/namespaces/kube-system",
        "/registry/ranges/serviceips",
    ] {
        // The last is an allocator's of old, which neither server writes any more.
        assert_eq!(all.contains_key(key), !key.contains("/ranges/"), "{key}");
    }
    plane.stop().await;
}

#[tokio::test]
async fn replicas_are_one_server() {
    let Some(etcd) = Etcd::start().await else { return };
    let ((a, on_a, _first), (b, on_b, _second)) = tokio::join!(replica(&etcd), replica(&etcd));

    // A write acknowledged by one is read from the other at once, and seen by its watchers.
    let listed = on_b.get(MAPS).await.expect(200);
    let version = listed["metadata"]["resourceVersion"].as_str().expect("a version");
    let mut watch = on_b
        .watch(&format!("{MAPS}?watch=1&resourceVersion={version}"))
        .await;
    for n in 0..20 {
        let name = format!("m{n}");
        let created = on_a.post(MAPS, &map(&name, "1")).await.expect(201);
        let read = on_b.get(&format!("{MAPS}/{name}")).await.expect(200);
        assert_eq!(read, created);
        let patch = json!({"data": {"key": "2"}});
        let path = format!("{MAPS}/{name}");
        on_b.patch(&path, "merge-patch+json", &patch).await.expect(200);
        // The first writer's version is stale now.
        let mut stale = created.clone();
        stale["data"]["key"] = "3".into();
        on_a.put(&path, &stale).await.expect(409);
        let listed = on_a.get(MAPS).await.expect(200);
        let items = listed["items"].as_array().expect("items");
        let found = items.iter().find(|item| item["metadata"]["name"] == *name);
        assert_eq!(found.expect("it is listed")["data"]["key"], "2");
        for kind in ["ADDED", "MODIFIED"] {
            let event = watch.next().await.expect("an event");
            assert_eq!(
                (
                    event["type"].as_str(),
                    event["object"]["metadata"]["name"].as_str()
                ),
                (Some(kind), Some(&*name))
            );
        }
    }

    // A kind defined on one is served by the other.
    on_a.post(CRDS, &things("Namespaced")).await.expect(201);
    let path = "/apis/example.com/v1/namespaces/default/things";
    let thing =
        json!({"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": "t"}, "size": 3});
    eventually("the other replica serves the kind", || async {
        (on_b.post(path, &thing).await.status == 201).then_some(())
    })
    .await;
    assert_eq!(on_a.get(&format!("{path}/t")).await.expect(200)["size"], 3);

    // Objects are deleted once, by either server.
    on_b.delete(&format!("{path}/t")).await.expect(200);
    on_a.delete(&format!("{path}/t")).await.expect(404);
    a.stop().await;
    let last = on_b.get(&format!("{MAPS}/m0")).await.expect(200);
    assert_eq!(
        last["data"]["key"], "2",
        "one replica's end is nothing to the other"
    );
    b.stop().await;
}

#[tokio::test]
async fn replicas_collect_garbage_together() {
    let Some(etcd) = Etcd::start().await else { return };
    let collect = |options: &mut control_plane::Options| {
        let names = ["garbage-collector-controller", "namespace-controller"];
        options.controllers = names.map(String::from).into();
    };
    let ((a, on_a, _first), (b, on_b, _second)) =
        tokio::join!(replica_with(&etcd, collect), replica_with(&etcd, collect));
    for policy in ["Background", "Foreground"] {
        // An owner made by one, dependents by either, half of them owned by a dependent.
        let root = garbage::map(&on_a, "root", &[]).await;
        for n in 0..10 {
            let (one, other) = if n % 2 == 0 {
                (&on_a, &on_b)
            } else {
                (&on_b, &on_a)
            };
            let near = garbage::map(one, &format!("near{n}"), &[garbage::owner(&root)]).await;
            garbage::map(other, &format!("far{n}"), &[garbage::owner(&near)]).await;
        }
        let path = format!("{MAPS}/root?propagationPolicy={policy}");
        on_b.delete(&path).await.expect(200);
        garbage::gone(&on_a, &format!("{MAPS}/root")).await;
        for n in 0..10 {
            for name in [format!("near{n}"), format!("far{n}")] {
                garbage::gone(&on_b, &format!("{MAPS}/{name}")).await;
                garbage::gone(&on_a, &format!("{MAPS}/{name}")).await;
            }
        }
    }
    // A namespace goes with what either has put into it.
    let space = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}});
    on_a.post("/api/v1/namespaces", &space).await.expect(201);
    for (client, side) in [(&on_a, "a"), (&on_b, "b")] {
        for n in 0..10 {
            let path = "/api/v1/namespaces/shop/configmaps";
            client
                .post(path, &map(&format!("{side}{n}"), "1"))
                .await
                .expect(201);
        }
    }
    on_a.delete("/api/v1/namespaces/shop").await.expect(200);
    for client in [&on_a, &on_b] {
        garbage::gone(client, "/api/v1/namespaces/shop").await;
    }
    assert!(raw(&b, "/registry/configmaps/shop/").await.is_empty());
    a.stop().await;
    b.stop().await;
}

#[tokio::test]
async fn replicas_give_a_node_port_once() {
    let Some(etcd) = Etcd::start().await else { return };
    let few = |options: &mut control_plane::Options| options.service_node_port_range = "30000-30023".into();
    let ((a, on_a, _first), (b, on_b, _second)) =
        tokio::join!(replica_with(&etcd, few), replica_with(&etcd, few));
    let (of_a, of_b) = tokio::join!(take_node_ports(&on_a, "a"), take_node_ports(&on_b, "b"));
    let all: BTreeSet<i64> = of_a.values().chain(of_b.values()).copied().collect();
    assert_eq!(all.len(), of_a.len() + of_b.len(), "{of_a:?} {of_b:?}");
    assert_eq!(all, (30000..=30023).collect());

    // One that the other has is refused, one that it has given up is not.
    let (name, port) = of_b.first_key_value().expect("the other has one");
    let wanted = node_port_service("wanted", Some(*port));
    let refused = on_a.post(SERVICES, &wanted).await;
    let text = refused.expect(422)["message"].to_string();
    assert!(text.contains("provided port is already allocated"), "{text}");
    on_b.delete(&format!("{SERVICES}/{name}")).await.expect(200);
    on_a.post(&format!("{SERVICES}?dryRun=All"), &wanted)
        .await
        .expect(201);
    on_a.post(SERVICES, &wanted).await.expect(201);
    // By a change of the type, too.
    let patch = json!({"spec": {"type": "ClusterIP", "ports": [{"port": 80}]}});
    on_a.patch(&format!("{SERVICES}/wanted"), "merge-patch+json", &patch)
        .await
        .expect(200);
    let again = node_port_service("again", Some(*port));
    on_a.post(SERVICES, &again).await.expect(201);
    let entered = raw(&a, "/registry/ranges/").await;
    let (key, value) = entered.first_key_value().expect("the range is stored");
    assert_eq!(key, "/registry/ranges/servicenodeports");
    assert!(value.starts_with(b"k8s\0"));
    a.stop().await;
    b.stop().await;
}

fn cluster_ip_service(name: &str, ip: Option<&str>) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": name},
        "spec": {"clusterIP": ip, "ports": [{"port": 80}]},
    })
}

/// Makes services until there are no cluster IPs left; those that were given out.
async fn take_cluster_ips(client: &Client, side: &str) -> Vec<String> {
    let mut own = Vec::new();
    loop {
        let name = format!("{side}{}", own.len());
        let made = client.post(SERVICES, &cluster_ip_service(&name, None)).await;
        if made.status != 201 {
            let message = made.expect(500)["message"].to_string();
            assert!(message.contains("range is full"), "{message}");
            return own;
        }
        own.push(
            made.json["spec"]["clusterIP"]
                .as_str()
                .expect("an IP")
                .to_string(),
        );
    }
}

#[tokio::test]
async fn replicas_give_a_cluster_ip_once() {
    let Some(etcd) = Etcd::start().await else { return };
    let few = |options: &mut control_plane::Options| options.service_cluster_ip_range = "10.0.0.0/27".into();
    let ((a, on_a, _first), (b, on_b, _second)) =
        tokio::join!(replica_with(&etcd, few), replica_with(&etcd, few));
    // The parent of an address need not be a service.
    let addresses = "/apis/networking.k8s.io/v1/ipaddresses";
    let address = |ip: &str, resource: &str| {
        json!({
            "apiVersion": "networking.k8s.io/v1", "kind": "IPAddress", "metadata": {"name": ip},
            "spec": {"parentRef": {"group": "", "resource": resource, "namespace": "default", "name": "x"}},
        })
    };
    on_a.post(addresses, &address("10.0.0.20", "gateways"))
        .await
        .expect(201);
    let (of_a, of_b) = tokio::join!(take_cluster_ips(&on_a, "a"), take_cluster_ips(&on_b, "b"));
    let all: BTreeSet<&String> = of_a.iter().chain(&of_b).collect();
    assert_eq!(all.len(), of_a.len() + of_b.len(), "{of_a:?} {of_b:?}");
    // All of 30 but that of `kubernetes` and the one that is another parent's.
    assert_eq!(all.len(), 28, "{all:?}");
    assert!(!all.contains(&"10.0.0.20".to_string()));
    let wanted = cluster_ip_service("wanted", Some("10.0.0.20"));
    let text = on_b.post(SERVICES, &wanted).await.expect(422)["message"].to_string();
    assert!(text.contains("provided IP is already allocated"), "{text}");

    // An address that one has released is free for the other, under the same name and another.
    for name in ["a0", "again"] {
        on_a.delete(&format!("{SERVICES}/a0")).await.expect(200);
        let wanted = cluster_ip_service(name, Some(&of_a[0]));
        on_b.post(SERVICES, &wanted).await.expect(201);
        let stored = on_a.get(&format!("{addresses}/{}", of_a[0])).await.expect(200);
        assert_eq!(stored["spec"]["parentRef"]["name"], *name);
    }
    a.stop().await;
    b.stop().await;
}

#[tokio::test]
async fn watchers_of_the_forgotten_past_list_again() {
    let Some(etcd) = Etcd::start().await else { return };
    let (plane, client, _dir) = replica(&etcd).await;
    let first = client.post(MAPS, &map("a", "1")).await.expect(201);
    let old = first["metadata"]["resourceVersion"]
        .as_str()
        .expect("a version")
        .to_string();
    let path = format!("{MAPS}/a");
    for value in ["2", "3"] {
        let patch = json!({"data": {"key": value}});
        client.patch(&path, "merge-patch+json", &patch).await.expect(200);
    }
    let live = format!("{MAPS}?watch=1&resourceVersion={old}");
    let mut follower = client.watch(&live).await;
    assert_eq!(
        follower.next().await.expect("an event")["object"]["data"]["key"],
        "2"
    );
    let newest = plane.engine().fresh().await.expect("a revision");
    plane.engine().compact(newest).await.expect("compacts");

    // Another replica has none of the past at hand, so it has to say that it is gone.
    let (other, on_other, _other_dir) = replica(&etcd).await;
    on_other.get(MAPS).await.expect(200);
    let event = on_other.watch(&live).await.next().await.expect("an event");
    assert_eq!(
        (event["type"].as_str(), event["object"]["code"].as_i64()),
        (Some("ERROR"), Some(410))
    );
    let exact = format!("{MAPS}?resourceVersion={old}&resourceVersionMatch=Exact");
    assert_eq!(on_other.get(&exact).await.expect(410)["reason"], "Expired");
    // Listing again works, and an uninterrupted watch goes on.
    let listed = on_other.get(MAPS).await.expect(200);
    assert!(
        listed["items"]
            .as_array()
            .is_some_and(|items| items.iter().any(|item| item["data"]["key"] == "3"))
    );
    assert_eq!(
        follower.next().await.expect("an event")["object"]["data"]["key"],
        "3"
    );
    client.delete(&path).await.expect(200);
    assert_eq!(follower.next().await.expect("an event")["type"], "DELETED");
    other.stop().await;
    plane.stop().await;
}

#[tokio::test]
async fn resources_may_have_a_prefix_and_an_etcd_of_their_own() {
    let (Some(main), Some(events)) = (Etcd::start().await, Etcd::start().await) else {
        return;
    };
    let (plane, client, _dir) = replica_with(&main, |options| {
        options.etcd_prefix = "some/where/".into();
        options.etcd_servers_overrides = vec![format!("/events#{}", events.url())];
    })
    .await;
    client.post(MAPS, &map("a", "1")).await.expect(201);
    let event = json!({
        "apiVersion": "v1", "kind": "Event", "metadata": {"name": "e"}, "reason": "r", "message": "m",
        "involvedObject": {"kind": "Pod", "namespace": "default", "name": "p"}, "type": "Normal",
    });
    client
        .post("/api/v1/namespaces/default/events", &event)
        .await
        .expect(201);
    let newer = client
        .get("/apis/events.k8s.io/v1/namespaces/default/events/e")
        .await
        .expect(200);
    assert_eq!(newer["note"], "m");
    let (on_events, _, _other) =
        replica_with(&events, |options| options.etcd_prefix = "elsewhere".into()).await;
    let keys = |found: BTreeMap<String, Vec<u8>>| found.into_keys().collect::<Vec<_>>();
    assert_eq!(
        keys(raw(&plane, "/some/where/configmaps/default/a").await).len(),
        1
    );
    assert_eq!(keys(raw(&plane, "/registry/").await), [""; 0]);
    assert_eq!(keys(raw(&plane, "/some/where/events/").await), [""; 0]);
    assert_eq!(
        keys(raw(&on_events, "/some/").await),
        ["/some/where/events/default/e"]
    );
    plane.stop().await;
    on_events.stop().await;
}

#[tokio::test]
async fn health_follows_the_store() {
    let Some(mut etcd) = Etcd::start().await else {
        return;
    };
    let (plane, client, _dir) = replica(&etcd).await;
    let verbose = client.get("/readyz?verbose").await;
    let text = String::from_utf8_lossy(&verbose.body).into_owned();
    assert!(text.contains("[+]etcd ok\n[+]etcd-readiness ok\n"), "{text}");
    etcd.kill();
    eventually("livez says so", || async {
        let answer = client.get("/livez/etcd").await;
        (answer.status == 500).then_some(())
    })
    .await;
    assert_eq!(client.get("/readyz").await.status, 500);
    etcd.run().await;
    eventually("it is well again", || async {
        (client.get("/readyz").await.status == 200).then_some(())
    })
    .await;
    eventually("it writes again", || async {
        let answer = client.post(MAPS, &map("after", "1")).await;
        matches!(answer.status, 201 | 409).then_some(())
    })
    .await;
    plane.stop().await;
}

/// The data of upstream's server in an etcd, in every form it has: built-in kinds as protobuf, also at a version that is no longer
/// the served one, CRDs at `v1beta1`.
#[tokio::test]
async fn objects_stored_by_upstream_are_served() {
    let Some(etcd) = Etcd::start().await else { return };
    let (before, _, _dir) = replica(&etcd).await;
    let policy = json!({
        "apiVersion": "admissionregistration.k8s.io/v1beta1", "kind": "MutatingAdmissionPolicy",
        "metadata": {"name": "p", "uid": "u", "creationTimestamp": "2026-01-02T03:04:05Z"},
        "spec": {"reinvocationPolicy": "Never", "mutations": []},
    });
    let schema = machinery::schema::builtin()
        .kind("admissionregistration.k8s.io", "v1", "MutatingAdmissionPolicy")
        .expect("built in");
    let definition = json!({
        "kind": "CustomResourceDefinition", "apiVersion": "apiextensions.k8s.io/v1beta1",
        "metadata": {"name": "olds.example.com", "uid": "v", "creationTimestamp": "2026-01-02T03:04:05Z", "generation": 1},
        "spec": {
            "group": "example.com", "version": "v1", "scope": "Namespaced",
            "names": {"plural": "olds", "singular": "old", "kind": "Old", "listKind": "OldList"},
            "validation": {"openAPIV3Schema": {"type": "object", "properties": {"size": {"type": "integer"}}}},
            "versions": [{"name": "v1", "served": true, "storage": true}],
            "conversion": {"strategy": "None"}, "preserveUnknownFields": false,
        },
        "status": {
            "conditions": [
                {"type": "NamesAccepted", "status": "True", "lastTransitionTime": "2026-01-02T03:04:05Z", "reason": "NoConflicts", "message": "no conflicts found"},
                {"type": "Established", "status": "True", "lastTransitionTime": "2026-01-02T03:04:05Z", "reason": "InitialNamesAccepted", "message": "the initial names have been accepted"},
            ],
            "acceptedNames": {"plural": "olds", "singular": "old", "kind": "Old", "listKind": "OldList"},
            "storedVersions": ["v1"],
        },
    });
    let object = json!({
        "apiVersion": "example.com/v1", "kind": "Old", "metadata": {"name": "o", "namespace": "default", "uid": "w"}, "size": 3,
    });
    let stored = [
        (
            "/registry/mutatingadmissionpolicies/p",
            machinery::codec::protobuf::encode(schema.root(), &policy),
        ),
        (
            "/registry/apiextensions.k8s.io/customresourcedefinitions/olds.example.com",
            format!("{definition}\n").into_bytes(),
        ),
        (
            "/registry/example.com/olds/default/o",
            format!("{object}\n").into_bytes(),
        ),
    ];
    for (key, value) in stored {
        let put = Op::Put {
            key: key.into(),
            value: value.into(),
            ttl: None,
        };
        let txn = Txn {
            guards: Vec::new(),
            ops: vec![put],
        };
        before.engine().commit(txn).await.expect("writes");
    }
    before.stop().await;

    let (plane, client, _dir) = replica(&etcd).await;
    let read = client
        .get("/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicies/p")
        .await
        .expect(200);
    assert_eq!(read["apiVersion"], "admissionregistration.k8s.io/v1");
    assert_eq!(read["spec"]["reinvocationPolicy"], "Never");
    let read = client.get(&format!("{CRDS}/olds.example.com")).await.expect(200);
    assert_eq!(read["apiVersion"], "apiextensions.k8s.io/v1");
    assert_eq!(
        read["spec"]["versions"][0]["schema"],
        definition["spec"]["validation"]
    );
    let path = "/apis/example.com/v1/namespaces/default/olds/o";
    assert_eq!(client.get(path).await.expect(200)["size"], 3);
    let patch = json!({"size": 4, "unknown": 1});
    let patched = client.patch(path, "merge-patch+json", &patch).await.expect(200);
    assert_eq!((&patched["size"], &patched["unknown"]), (&json!(4), &Value::Null));
    assert!(plane.engine().fresh().await.expect("a revision") > Revision(0));
    plane.stop().await;
}
