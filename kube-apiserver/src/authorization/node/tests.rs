use std::sync::Arc;

use generic_server::User;
use generic_server::authz::{Attributes, Authorizer, Decision};
use machinery::meta;
use serde_json::{Value, json};

use super::NodeAuthorizer;
use super::graph::{Kind, key};
use crate::deps::KindFeatures;

fn node(name: &str) -> User {
    User {
        name: format!("system:node:{name}"),
        groups: vec!["system:nodes".into(), "system:authenticated".into()],
        ..User::default()
    }
}

/// The decision on `verb group/resource[/subresource] [namespace/]name [?selector]`, a dot for the core group.
async fn ask(authorizer: &NodeAuthorizer, user: &User, request: &str) -> Decision {
    let (request, field_selector) = request.split_once(" ?").unwrap_or((request, ""));
    let words: Vec<&str> = request.split(' ').collect();
    let mut resource = words[1].split('/');
    let group = resource.next().filter(|group| *group != ".").unwrap_or_default();
    let (namespace, name) = match words.get(2) {
        None => ("", ""),
        Some(name) => name.split_once('/').unwrap_or(("", name)),
    };
    let attributes = Attributes {
        user,
        verb: words[0],
        is_resource: true,
        group,
        version: "v1",
        resource: resource.next().unwrap(),
        subresource: resource.next().unwrap_or_default(),
        namespace,
        name,
        path: "",
        field_selector,
        label_selector: "",
    };
    authorizer.authorize(&attributes).await
}

/// The answer to a node's request: `Ok`, or the reason of the refusal.
#[track_caller]
fn check(authorizer: &NodeAuthorizer, user: &str, request: &str, expected: Result<(), &str>) {
    let decision = futures_util::FutureExt::now_or_never(ask(authorizer, &node(user), request));
    let expected = match expected {
        Ok(()) => Decision::Allow(String::new()),
        Err(why) => Decision::NoOpinion(why.into()),
    };
    assert_eq!(
        decision.expect("an answer at once"),
        expected,
        "{user}: {request}"
    );
}

fn put(authorizer: &NodeAuthorizer, kind: Kind, object: &Value) {
    let own = key(meta::namespace(object), meta::name(object));
    authorizer.graph.put_object(kind, own, object);
}

fn pod(name: &str, node: &str) -> Value {
    json!({
        "metadata": {"namespace": "a", "name": name},
        "spec": {
            "nodeName": node,
            "serviceAccountName": "bot",
            "imagePullSecrets": [{"name": "pull"}],
            "initContainers": [{"envFrom": [{"secretRef": {"name": "from"}}, {"configMapRef": {"name": "from"}}]}],
            "containers": [{"env": [
                {"valueFrom": {"secretKeyRef": {"name": "env"}}}, {"valueFrom": {"configMapKeyRef": {"name": "env"}}},
            ]}],
            "volumes": [
                {"name": "s", "secret": {"secretName": "volume"}}, {"name": "c", "configMap": {"name": "volume"}},
                {"name": "p", "projected": {"sources": [{"secret": {"name": "projected"}}, {"configMap": {"name": "projected"}}]}},
                {"name": "claim", "persistentVolumeClaim": {"claimName": "claim"}},
                {"name": "scratch", "ephemeral": {"volumeClaimTemplate": {}}},
                {"name": "csi", "csi": {"driver": "d", "nodePublishSecretRef": {"name": "csi"}}},
            ],
            "resourceClaims": [
                {"name": "x", "resourceClaimName": "gpu"}, {"name": "y", "resourceClaimTemplateName": "t"},
                {"name": "z", "resourceClaimTemplateName": "t"},
            ],
        },
        "status": {"resourceClaimStatuses": [{"name": "y", "resourceClaimName": "made"}, {"name": "z"}]},
    })
}

const UNRELATED: Result<(), &str> = Err("no relationship found between node 'n2' and this object");

/// The objects that a pod refers to are its node's and no other's.
#[track_caller]
fn reaches(authorizer: &NodeAuthorizer, request: &str) {
    check(authorizer, "n1", request, Ok(()));
    check(authorizer, "n2", request, UNRELATED);
}

fn populated() -> Arc<NodeAuthorizer> {
    let authorizer = NodeAuthorizer::new(KindFeatures::default());
    put(&authorizer, Kind::Pod, &pod("p", "n1"));
    put(
        &authorizer,
        Kind::Volume,
        &json!({"metadata": {"name": "pv"}, "spec": {
            "claimRef": {"namespace": "a", "name": "claim"},
            "csi": {
                "nodeStageSecretRef": {"namespace": "s", "name": "stage"},
                "controllerPublishSecretRef": {"namespace": "s", "name": "controller"},
            },
        }}),
    );
    put(
        &authorizer,
        Kind::Volume,
        &json!({"metadata": {"name": "azure"}, "spec": {
            "claimRef": {"namespace": "a", "name": "p-scratch"}, "azureFile": {"secretName": "share"},
        }}),
    );
    put(
        &authorizer,
        Kind::VolumeAttachment,
        &json!({"metadata": {"name": "va"}, "spec": {"nodeName": "n1"}}),
    );
    put(
        &authorizer,
        Kind::ResourceSlice,
        &json!({"metadata": {"name": "slice"}, "spec": {"nodeName": "n1"}}),
    );
    authorizer
}

#[test]
fn references_of_pods_relate_to_their_node() {
    let authorizer = populated();
    for secret in ["pull", "from", "env", "volume", "projected", "csi", "share"] {
        reaches(&authorizer, &format!("get ./secrets a/{secret}"));
    }
    for map in ["from", "env", "volume", "projected"] {
        reaches(&authorizer, &format!("watch ./configmaps a/{map}"));
    }
    for claim in ["gpu", "made"] {
        reaches(
            &authorizer,
            &format!("get resource.k8s.io/resourceclaims a/{claim}"),
        );
    }
    reaches(&authorizer, "get ./persistentvolumeclaims a/claim");
    reaches(&authorizer, "get ./persistentvolumeclaims a/p-scratch");
    reaches(&authorizer, "patch ./persistentvolumeclaims/status a/claim");
    reaches(&authorizer, "get ./persistentvolumes pv");
    reaches(&authorizer, "get ./secrets s/stage");
    reaches(&authorizer, "get ./serviceaccounts a/bot");
    reaches(&authorizer, "create ./serviceaccounts/token a/bot");
    reaches(&authorizer, "get ./pods a/p");
    reaches(&authorizer, "get storage.k8s.io/volumeattachments va");
    reaches(&authorizer, "update resource.k8s.io/resourceslices slice");
    let unrelated = Err("no relationship found between node 'n1' and this object");
    check(&authorizer, "n1", "get ./secrets s/controller", unrelated);
    check(&authorizer, "n1", "get ./secrets b/env", unrelated);
    check(
        &authorizer,
        "n1",
        "get resource.k8s.io/resourceclaims a/t",
        unrelated,
    );
}

#[test]
fn relations_end_with_the_last_pod() {
    let authorizer = populated();
    put(&authorizer, Kind::Pod, &pod("q", "n1"));
    let gone = |name: &str| authorizer.graph.unbind(Kind::Pod, &key("a", name));
    gone("p");
    check(&authorizer, "n1", "get ./secrets a/env", Ok(()));
    gone("q");
    let unrelated = Err("no relationship found between node 'n1' and this object");
    for request in [
        "get ./secrets a/env",
        "get ./secrets s/stage",
        "get ./persistentvolumes pv",
        "create ./serviceaccounts/token a/bot",
    ] {
        check(&authorizer, "n1", request, unrelated);
    }
    authorizer.graph.unbind_volume(&key("", "pv"));
    authorizer.graph.unbind_volume(&key("", "azure"));
    authorizer.graph.unbind(Kind::VolumeAttachment, &key("", "va"));
    authorizer.graph.unbind(Kind::ResourceSlice, &key("", "slice"));
    assert!(authorizer.graph.is_empty());
}

#[test]
fn a_mirror_pod_gives_its_node_nothing_but_itself() {
    let authorizer = NodeAuthorizer::new(KindFeatures::default());
    let mut mirror = pod("m", "n1");
    mirror["metadata"]["annotations"] = json!({"kubernetes.io/config.mirror": "x"});
    put(&authorizer, Kind::Pod, &mirror);
    check(&authorizer, "n1", "get ./pods a/m", Ok(()));
    let unrelated = Err("no relationship found between node 'n1' and this object");
    check(&authorizer, "n1", "get ./secrets a/env", unrelated);
    check(&authorizer, "n1", "get ./serviceaccounts a/bot", unrelated);
}

#[test]
fn a_pod_that_is_bound_relates_once_it_is() {
    let authorizer = NodeAuthorizer::new(KindFeatures::default());
    put(&authorizer, Kind::Pod, &pod("p", ""));
    assert!(authorizer.graph.is_empty());
    put(&authorizer, Kind::Pod, &pod("p", "n1"));
    put(&authorizer, Kind::Pod, &pod("p", "n1"));
    reaches(&authorizer, "get ./secrets a/env");
    authorizer.graph.unbind(Kind::Pod, &key("a", "p"));
    assert!(authorizer.graph.is_empty());
}

#[test]
fn refusals_are_in_upstreams_words() {
    let authorizer = populated();
    let cases = [
        ("list ./secrets", "can only read namespaced object of this type"),
        ("list ./secrets a/", "No Object name found"),
        ("delete ./secrets a/env", "can only read resources of this type"),
        ("get ./secrets/x a/env", "cannot read subresource"),
        (
            "list ./persistentvolumes",
            "can only get individual resources of this type",
        ),
        ("get ./persistentvolumes/status pv", "cannot get subresource"),
        (
            "get ./persistentvolumeclaims/status a/claim",
            "can only get/update/patch this type",
        ),
        (
            "create ./serviceaccounts/token a/",
            "can only create tokens for individual service accounts",
        ),
        (
            "create ./serviceaccounts a/bot",
            "can only create token subresource of serviceaccount",
        ),
        (
            "list coordination.k8s.io/leases kube-node-lease/",
            "can only get, create, update, patch, or delete a node lease",
        ),
        (
            "get coordination.k8s.io/leases a/n1",
            "can only access leases in the \"kube-node-lease\" system namespace",
        ),
        (
            "get coordination.k8s.io/leases kube-node-lease/n2",
            "can only access node lease with the same name as the requesting node",
        ),
        (
            "list storage.k8s.io/csinodes",
            "can only get, create, update, patch, or delete a CSINode",
        ),
        (
            "get storage.k8s.io/csinodes/x n1",
            "cannot authorize CSINode subresources",
        ),
        (
            "get storage.k8s.io/csinodes n2",
            "can only access CSINode with the same name as the requesting node",
        ),
        (
            "get resource.k8s.io/resourceslices/x slice",
            "cannot authorize ResourceSlice subresources",
        ),
        (
            "list resource.k8s.io/resourceslices ?spec.nodeName=n2",
            "can only list/watch/deletecollection resourceslices with nodeName field selector",
        ),
        (
            "escalate resource.k8s.io/resourceslices",
            "only the following verbs are allowed for a ResourceSlice: get, watch, list, create, update, patch, delete, \
             deletecollection",
        ),
        (
            "list ./nodes",
            "node 'n1' cannot read all nodes, only its own Node object",
        ),
        (
            "get ./nodes n2",
            "node 'n1' cannot read 'n2', only its own Node object",
        ),
        ("delete ./nodes n1", ""),
        ("get ./nodes/status n1", ""),
        (
            "list ./pods",
            "can only list/watch pods with spec.nodeName field selector",
        ),
        (
            "watch ./pods ?spec.nodeName!=n1",
            "can only list/watch pods with spec.nodeName field selector",
        ),
        (
            "watch ./pods ?spec.nodeName=n2,a",
            "can only list/watch pods with spec.nodeName field selector",
        ),
        (
            "get ./pods a/other",
            "no relationship found between node 'n1' and this object",
        ),
        ("update ./pods a/p", ""),
        ("get ./pods/log a/p", ""),
        ("get certificates.k8s.io/podcertificaterequests a/x", ""),
        ("delete ./services a/x", ""),
    ];
    for (request, why) in cases {
        check(&authorizer, "n1", request, Err(why));
    }
}

#[test]
fn nodes_see_their_requests_for_certificates_of_pods() {
    let authorizer = NodeAuthorizer::new(KindFeatures {
        pod_certificates: true,
        ..KindFeatures::default()
    });
    let request = json!({"metadata": {"name": "r", "namespace": "a"}, "spec": {"nodeName": "n1"}});
    put(&authorizer, Kind::PodCertificateRequest, &request);
    let resource = "certificates.k8s.io/podcertificaterequests";
    for allowed in [
        "create",
        "get",
        "list a/ ?spec.nodeName=n1",
        "watch a/ ?spec.nodeName=n1",
    ] {
        let (verb, rest) = allowed.split_once(' ').unwrap_or((allowed, "a/r"));
        check(&authorizer, "n1", &format!("{verb} {resource} {rest}"), Ok(()));
    }
    for (verb, rest, why) in [
        (
            "list",
            "a/",
            "can only list/watch podcertificaterequests with nodeName field selector",
        ),
        (
            "get",
            "a/q",
            "no relationship found between node 'n1' and this object",
        ),
        ("delete", "a/r", "nodes may not delete podcertificaterequests"),
    ] {
        let request = format!("{verb} {resource} {rest}");
        check(&authorizer, "n1", &request, Err(why));
    }
    let status = format!("update {resource}/status a/r");
    let why = "nodes may not access the status subresource of PodCertificateRequests";
    check(&authorizer, "n1", &status, Err(why));
    let other = format!("get {resource} a/r");
    let why = "no relationship found between node 'n2' and this object";
    check(&authorizer, "n2", &other, Err(why));
}

#[test]
fn permissions_of_every_node() {
    let authorizer = populated();
    for request in [
        "create coordination.k8s.io/leases kube-node-lease/",
        "update coordination.k8s.io/leases kube-node-lease/n1",
        "create storage.k8s.io/csinodes",
        "delete storage.k8s.io/csinodes n1",
        "create resource.k8s.io/resourceslices",
        "watch resource.k8s.io/resourceslices ?spec.nodeName=n1",
        "create ./nodes",
        "patch ./nodes/status n2",
        "watch ./nodes n1",
        "watch ./pods ?spec.nodeName=n1",
        "list ./pods a/p ?metadata.name=p",
        "create ./pods a/",
        "create ./pods/eviction a/p",
        "patch ./pods/status a/p",
        "watch ./services",
        "create events.k8s.io/events a/e",
        "create certificates.k8s.io/certificatesigningrequests",
        "list node.k8s.io/runtimeclasses",
    ] {
        check(&authorizer, "n1", request, Ok(()));
    }
}

#[test]
fn only_nodes_are_nodes() {
    let authorizer = populated();
    let plain = |user: &User| {
        futures_util::FutureExt::now_or_never(ask(&authorizer, user, "get ./pods a/p")).unwrap()
    };
    let mut no_group = node("n1");
    no_group.groups.clear();
    assert_eq!(plain(&no_group), Decision::NoOpinion(String::new()));
    let nameless = Decision::NoOpinion("unknown node for user \"system:node:\"".into());
    assert_eq!(plain(&node("")), nameless);
    let mut stranger = node("n1");
    stranger.name = "n1".into();
    assert_eq!(plain(&stranger), Decision::NoOpinion(String::new()));
}
