use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use generic_server::Authorized;
use machinery::GroupVersionKind;
use rcgen::DnValue;
use serde_json::json;

use super::*;
use crate::groups::certificates::request::tests::pem_of;

const NODE: &str = "n1";

type Rule = fn(&Write<'_>) -> Result<(), ApiError>;

/// The verdict of a rule on a write by the node `n1`, as the text behind `is forbidden: `.
#[track_caller]
fn check(
    rule: Rule,
    (operation, at, name): (Operation, &str, &str),
    old: Option<&Value>,
    new: Option<&Value>,
    refused: Option<&str>,
) {
    let authorized = Authorized::system();
    let (namespace, resource) = at.split_once('/').unwrap_or(("", at));
    let attributes = Attributes {
        authorized: &authorized,
        operation,
        gvk: &GroupVersionKind::new("", "v1", "Any"),
        gvr: &GroupVersionResource::new("", "v1", resource),
        subresource: "",
        namespace,
        name,
        old,
        dry_run: false,
        options: None,
        resource: None,
        rounds: None,
    };
    let write = Write {
        node: NODE,
        attributes: &attributes,
        object: new,
    };
    let answer = rule(&write).err().map(|error| {
        assert_eq!(error.code(), 403);
        let text = error.message().to_string();
        text.split_once(" is forbidden: ")
            .expect("a refusal")
            .1
            .to_string()
    });
    assert_eq!(answer.as_deref(), refused, "{new:?}");
}

fn node(spec: Value, labels: Value) -> Value {
    json!({"metadata": {"name": NODE, "labels": labels}, "spec": spec})
}

#[test]
fn a_node_keeps_its_taints_labels_and_owners() {
    use Operation::{Create, Delete, Update};
    let plain = node(json!({}), json!({"a": "b", "kubernetes.io/os": "linux"}));
    let old = Some(&plain);
    let own = |operation| (operation, "nodes", NODE);
    let rule: Rule = |write| write.node();
    check(
        rule,
        (Update, "nodes", "n2"),
        old,
        old,
        Some("node \"n1\" is not allowed to modify node \"n2\""),
    );
    // Quoted as Go does, which differs from Rust in control characters.
    check(
        rule,
        (Update, "nodes", "n\u{1}\u{7f}"),
        old,
        old,
        Some(r#"node "n1" is not allowed to modify node "n\x01\x7f""#),
    );
    check(rule, own(Create), None, old, None);
    check(rule, own(Update), old, old, None);
    check(rule, own(Delete), old, None, None);
    let labelled = |labels: Value| node(json!({}), labels);
    let mut free = json!({"example.com/x": "1", "foo": "2", "node.kubernetes.io/x": "3", "x.kubelet.kubernetes.io/y": "4"});
    for label in [
        "kubernetes.io/hostname",
        "topology.kubernetes.io/zone",
        "beta.kubernetes.io/arch",
    ] {
        free[label] = json!("v");
    }
    check(rule, own(Create), None, Some(&labelled(free.clone())), None);
    check(rule, own(Update), old, Some(&labelled(free)), None);
    let bad = labelled(json!({
        "node-restriction.kubernetes.io/x": "", "a.node-restriction.kubernetes.io/y": "", "kubernetes.io/foo": "", "x.k8s.io/z": "",
        "notkubernetes.io/a": "",
    }));
    let list =
        "a.node-restriction.kubernetes.io/y, kubernetes.io/foo, node-restriction.kubernetes.io/x, x.k8s.io/z";
    let create = format!("node \"n1\" is not allowed to set the following labels: {list}");
    check(rule, own(Create), None, Some(&bad), Some(&create));
    let update = format!("is not allowed to modify labels: {list}");
    check(rule, own(Update), old, Some(&bad), Some(&update));
    let removed = format!("is not allowed to modify labels: {list}");
    check(rule, own(Update), Some(&bad), old, Some(&removed));
    let tainted = node(
        json!({"taints": [{"key": "a"}]}),
        json!({"a": "b", "kubernetes.io/os": "linux"}),
    );
    check(
        rule,
        own(Update),
        old,
        Some(&tainted),
        Some("node \"n1\" is not allowed to modify taints"),
    );
    let mut owned = plain.clone();
    owned["metadata"]["ownerReferences"] = json!([{"name": "x"}]);
    check(
        rule,
        own(Update),
        old,
        Some(&owned),
        Some("node \"n1\" is not allowed to modify ownerReferences"),
    );
    let configured = node(json!({"configSource": {"configMap": {"name": "x"}}}), json!({}));
    let text = "node \"n1\" is not allowed to create pods with a non-nil configSource";
    check(rule, own(Create), None, Some(&configured), Some(text));
    let text = "node \"n1\" is not allowed to update configSource to a new non-nil configSource";
    check(rule, own(Update), old, Some(&configured), Some(text));
    check(rule, own(Update), Some(&configured), Some(&configured), None);
}

#[test]
fn the_status_of_its_own_pods_alone() {
    let pod = |node: &str, more: Value| {
        let mut pod = json!({"metadata": {"labels": {"a": "b"}}, "spec": {"nodeName": node}});
        pod["status"] = more;
        pod
    };
    let update = (Operation::Update, "a/pods", "p");
    let rule: Rule = |write| write.pod_status();
    let old = pod(NODE, json!({}));
    check(
        rule,
        update,
        Some(&old),
        Some(&pod(NODE, json!({"phase": "Running"}))),
        None,
    );
    let other = pod("n2", json!({}));
    let text = "node \"n1\" can only update pod status for pods with spec.nodeName set to itself";
    check(rule, update, Some(&other), Some(&other), Some(text));
    let mut labelled = old.clone();
    labelled["metadata"]["labels"]["c"] = json!("d");
    let text = "node \"n1\" cannot update labels through pod status";
    check(rule, update, Some(&old), Some(&labelled), Some(text));
    let claims = pod(
        NODE,
        json!({"resourceClaimStatuses": [{"name": "x", "resourceClaimName": "secret"}]}),
    );
    let text = "node \"n1\" cannot update resource claim statues";
    check(rule, update, Some(&old), Some(&claims), Some(text));
    let extended = pod(
        NODE,
        json!({"extendedResourceClaimStatus": {"resourceClaimName": "x"}}),
    );
    let text = "node \"n1\" cannot update extended resource claim status";
    check(rule, update, Some(&old), Some(&extended), Some(text));
    let create = (Operation::Create, "a/pods", "p");
    check(
        rule,
        create,
        None,
        Some(&old),
        Some("unexpected operation \"CREATE\""),
    );
}

#[test]
fn the_status_of_a_claim_but_not_the_claim() {
    let claim = json!({"metadata": {"name": "c", "resourceVersion": "1"}, "spec": {"volumeName": "v"}, "status": {"phase": "Bound"}});
    let update = (Operation::Update, "a/persistentvolumeclaims", "c");
    let rule: Rule = |write| write.claim_status();
    let mut grown = claim.clone();
    grown["metadata"]["resourceVersion"] = json!("2");
    grown["metadata"]["managedFields"] = json!([{}]);
    grown["status"]["capacity"] = json!({"storage": "1Gi"});
    grown["status"]["conditions"] = json!([{"type": "FileSystemResizePending"}]);
    check(rule, update, Some(&claim), Some(&grown), None);
    let text = "node \"n1\" is not allowed to update fields other than status.quantity and status.conditions";
    for path in ["/metadata/labels", "/spec/volumeName", "/status/phase"] {
        let mut changed = claim.clone();
        let (parent, key) = path.rsplit_once('/').expect("a path");
        changed.pointer_mut(parent).expect("an object")[key] = json!({"x": "y"});
        check(rule, update, Some(&claim), Some(&changed), Some(text));
    }
}

#[test]
fn leases_csi_nodes_and_slices_of_its_own() {
    use Operation::{Create, Delete, Update};
    let named = |name: &str| json!({"metadata": {"name": name}});
    let rule: Rule = |write| write.lease();
    let text = "can only access node lease with the same name as the requesting node";
    let elsewhere = "can only access leases in the \"kube-node-lease\" system namespace";
    check(
        rule,
        (Create, "kube-node-lease/leases", ""),
        None,
        Some(&named(NODE)),
        None,
    );
    check(
        rule,
        (Create, "kube-node-lease/leases", ""),
        None,
        Some(&named("n2")),
        Some(text),
    );
    check(
        rule,
        (Update, "kube-node-lease/leases", NODE),
        None,
        Some(&named(NODE)),
        None,
    );
    check(
        rule,
        (Delete, "kube-node-lease/leases", "n2"),
        None,
        None,
        Some(text),
    );
    check(rule, (Update, "a/leases", NODE), None, None, Some(elsewhere));

    let slice = |node: &str| json!({"spec": {"nodeName": node}});
    let rule: Rule = |write| write.resource_slice();
    let at = |operation| (operation, "resourceslices", "s");
    check(rule, at(Create), None, Some(&slice(NODE)), None);
    check(
        rule,
        at(Create),
        None,
        Some(&slice("n2")),
        Some("can only create ResourceSlice with the same NodeName as the requesting node"),
    );
    check(rule, at(Update), None, Some(&slice("n2")), None);
    check(rule, at(Delete), Some(&slice(NODE)), None, None);
    check(
        rule,
        at(Delete),
        Some(&json!({"spec": {"allNodes": true}})),
        None,
        Some("can only delete ResourceSlice with the same NodeName as the requesting node"),
    );
}

#[test]
fn certificates_in_its_own_name() {
    let pem = pem_of(DnValue::Utf8String("system:nodes".into()));
    let request = |signer: &str| json!({"spec": {"signerName": signer, "request": STANDARD.encode(&pem)}});
    let create = (Operation::Create, "certificatesigningrequests", "r");
    let rule: Rule = |write| write.signing_request();
    let text = "can only create a node CSR with CN=system:node:n1";
    for signer in KUBELET_SIGNERS {
        check(rule, create, None, Some(&request(signer)), Some(text));
    }
    check(rule, create, None, Some(&request("example.com/x")), None);
    let broken = json!({"spec": {"signerName": KUBELET_SIGNERS[0], "request": "eA=="}});
    let text = "unable to parse csr: PEM block type must be CERTIFICATE REQUEST";
    check(rule, create, None, Some(&broken), Some(text));
}

#[test]
fn a_mirror_pod_refers_to_nothing() {
    let cases = [
        (json!({"serviceAccountName": "x"}), Ok(Some("serviceaccounts"))),
        (json!({"imagePullSecrets": [{"name": "x"}]}), Ok(Some("secrets"))),
        (
            json!({"containers": [{"envFrom": [{"configMapRef": {"name": "x"}}]}]}),
            Ok(Some("configmaps")),
        ),
        (
            json!({"resourceClaims": [{"name": "x"}]}),
            Ok(Some("resourceclaims")),
        ),
        (
            json!({"volumes": [{"name": "v", "csi": {"driver": "x"}}]}),
            Ok(Some("csidrivers (via CSI volumes)")),
        ),
        (
            json!({"volumes": [{"name": "v", "projected": {"sources": [{"serviceAccountToken": {}}]}}]}),
            Ok(Some("serviceaccounts (via projected volumes)")),
        ),
        (
            json!({"volumes": [{"name": "v", "projected": {"sources": [{"new": {}}]}}]}),
            Err("unknown source for projected volume \"v\"".to_string()),
        ),
        (
            json!({"volumes": [{"name": "v", "new": {}}]}),
            Err("unknown volume type for volume  \"v\"".to_string()),
        ),
        (
            json!({"containers": [{"name": "c"}], "volumes": [{"name": "v", "hostPath": {"path": "/"}}, {"name": "w", "emptyDir": {}}]}),
            Ok(None),
        ),
    ];
    for (spec, expected) in cases {
        assert_eq!(mirror::reference(&json!({"spec": spec})), expected, "{spec}");
    }
}
