//! The roles and bindings of `rbac.txt`, and how they are kept complete on a cluster that has changed them.

use serde_json::{Value, json};

use crate::deps::KindFeatures;
use crate::rbac::PolicyRule;

use super::{Existing, Wanted, wanted as want};

const GROUP: &str = "rbac.authorization.k8s.io";
const AUTOUPDATE: &str = "rbac.authorization.kubernetes.io/autoupdate";

/// Every role and binding.
pub(super) fn wanted(features: KindFeatures) -> Vec<Wanted> {
    let mut out: Vec<Wanted> = Vec::new();
    read(include_str!("rbac.txt"), &mut out);
    for (is_on, table) in [
        (features.workloads, include_str!("rbac/workloads.txt")),
        (features.trust_bundles, include_str!("rbac/trust_bundles.txt")),
        (
            features.pod_certificates,
            include_str!("rbac/pod_certificates.txt"),
        ),
        (
            features.device_taint_rules,
            include_str!("rbac/device_taint_rules.txt"),
        ),
        (features.pool_status, include_str!("rbac/pool_status.txt")),
        (
            features.storage_versions,
            include_str!("rbac/storage_versions.txt"),
        ),
    ] {
        if is_on {
            read(table, &mut out);
        }
    }
    out
}

fn read(table: &str, out: &mut Vec<Wanted>) {
    let mut more: Option<usize> = None;
    for line in table.lines() {
        if line.starts_with('#') || line.is_empty() {
            continue;
        }
        let words: Vec<&str> = line.split_whitespace().collect();
        match words.as_slice() {
            ["role", name, notes @ ..] => {
                out.push(role(name, notes));
                more = None;
            }
            ["more", name] => {
                let is_it = |wanted: &Wanted| {
                    machinery::meta::name(&wanted.object) == *name && wanted.object.get("rules").is_some()
                };
                more = out.iter().position(is_it);
            }
            ["bind", name, reference, subjects @ ..] => out.push(binding(name, reference, subjects)),
            rule => {
                let last = match more {
                    Some(at) => out.get_mut(at),
                    None => out.last_mut(),
                };
                let Some(last) = last else { continue };
                if let (Some(rule), Some(rules)) = (
                    parse_rule(rule),
                    last.object.get_mut("rules").and_then(Value::as_array_mut),
                ) {
                    rules.push(rule);
                }
            }
        }
    }
}

/// The rules of `system:node`, which the Node authorizer applies to every node.
pub(crate) fn node_rules(features: KindFeatures) -> Vec<PolicyRule> {
    let roles = wanted(features).into_iter();
    let node = roles
        .map(|wanted| wanted.object)
        .find(|role| machinery::meta::name(role) == "system:node" && role.get("rules").is_some());
    node.as_ref().map(PolicyRule::read_all).unwrap_or_default()
}

fn list(words: &str) -> Vec<&str> {
    words
        .split(',')
        .map(|word| if word == "core" { "" } else { word })
        .collect()
}

fn parse_rule(words: &[&str]) -> Option<Value> {
    Some(match words {
        [verbs, "url", urls] => json!({"verbs": list(verbs), "nonResourceURLs": list(urls)}),
        [verbs, groups, resources] => {
            json!({"verbs": list(verbs), "apiGroups": list(groups), "resources": list(resources)})
        }
        [verbs, groups, resources, names] => json!({
            "verbs": list(verbs), "apiGroups": list(groups), "resources": list(resources), "resourceNames": list(names),
        }),
        _ => return None,
    })
}

fn metadata(name: &str) -> (Value, bool) {
    let mut metadata = json!({
        "labels": {"kubernetes.io/bootstrapping": "rbac-defaults"},
        "annotations": {AUTOUPDATE: "true"},
    });
    let namespaced = name.split_once('/');
    match namespaced {
        Some((namespace, name)) => {
            metadata["namespace"] = namespace.into();
            metadata["name"] = name.into();
        }
        None => metadata["name"] = name.into(),
    }
    (metadata, namespaced.is_some())
}

fn role(name: &str, notes: &[&str]) -> Wanted {
    let (mut metadata, namespaced) = metadata(name);
    let label = |role: &str| format!("rbac.authorization.k8s.io/aggregate-to-{role}");
    for to in notes.iter().filter_map(|note| note.strip_prefix("to-")) {
        metadata["labels"][label(to)] = "true".into();
    }
    let (kind, resource) = if namespaced {
        ("Role", "roles")
    } else {
        ("ClusterRole", "clusterroles")
    };
    let mut object = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind, "metadata": metadata, "rules": []});
    let selectors: Vec<Value> = notes
        .iter()
        .filter_map(|note| note.strip_prefix("from-"))
        .map(|from| json!({"matchLabels": {label(from): "true"}}))
        .collect();
    if !selectors.is_empty() {
        object["aggregationRule"] = json!({"clusterRoleSelectors": selectors});
    }
    want(GROUP, resource, object, Existing::Reconcile)
}

fn binding(name: &str, reference: &str, subjects: &[&str]) -> Wanted {
    let (metadata, namespaced) = metadata(name);
    let (kind, resource) = if namespaced {
        ("RoleBinding", "rolebindings")
    } else {
        ("ClusterRoleBinding", "clusterrolebindings")
    };
    let (role_kind, role) = reference.split_once('/').unwrap_or(("ClusterRole", reference));
    let subjects: Vec<Value> = subjects
        .iter()
        .filter_map(|subject| {
            let (kind, name) = subject.split_once(':')?;
            Some(match kind {
                "user" => json!({"apiGroup": GROUP, "kind": "User", "name": name}),
                "group" => json!({"apiGroup": GROUP, "kind": "Group", "name": name}),
                _ => {
                    let (namespace, name) = name.split_once('/')?;
                    json!({"kind": "ServiceAccount", "name": name, "namespace": namespace})
                }
            })
        })
        .collect();
    let mut object = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind, "metadata": metadata,
        "roleRef": {"apiGroup": GROUP, "kind": role_kind, "name": role},
    });
    if !subjects.is_empty() {
        object["subjects"] = subjects.into();
    }
    want(GROUP, resource, object, Existing::Reconcile)
}

/// The live object with what is missing added. `None` when its owner has turned updates off.
pub(super) fn reconcile(wanted: &Value, live: &Value) -> Option<Value> {
    let annotation = live
        .pointer("/metadata/annotations")?
        .get(AUTOUPDATE)
        .and_then(Value::as_str);
    if annotation != Some("true") {
        return None;
    }
    let mut changed = live.clone();
    for key in ["labels", "annotations"] {
        for (name, value) in wanted.pointer(&format!("/metadata/{key}"))?.as_object()? {
            if live
                .pointer(&format!("/metadata/{key}"))
                .is_none_or(|have| have.get(name).is_none())
            {
                changed["metadata"][key][name] = value.clone();
            }
        }
    }
    // The rules of an aggregated role are the aggregation controller's.
    let aggregated = wanted.get("aggregationRule").is_some();
    for key in ["rules", "subjects"] {
        if aggregated && key == "rules" {
            continue;
        }
        let have = live
            .get(key)
            .and_then(Value::as_array)
            .cloned()
            .unwrap_or_default();
        let items = wanted
            .get(key)
            .and_then(Value::as_array)
            .map(Vec::as_slice)
            .unwrap_or_default();
        let missing: Vec<&Value> = items.iter().filter(|item| !have.contains(item)).collect();
        if !missing.is_empty() {
            let all: Vec<Value> = have.iter().chain(missing).cloned().collect();
            changed[key] = all.into();
        }
    }
    Some(changed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_whole() {
        let all = wanted(KindFeatures::default());
        let count = |kind: &str| all.iter().filter(|w| w.object["kind"] == kind).count();
        assert_eq!((count("ClusterRole"), count("ClusterRoleBinding")), (70, 51));
        assert_eq!((count("Role"), count("RoleBinding")), (7, 7));
        let admin = all
            .iter()
            .find(|w| w.object["metadata"]["name"] == "cluster-admin")
            .expect("cluster-admin");
        assert_eq!(
            admin.object["rules"][1],
            json!({"verbs": ["*"], "nonResourceURLs": ["*"]})
        );
    }

    #[test]
    fn features_have_roles_while_they_are_on() {
        #[track_caller]
        fn check(features: KindFeatures, word: &str, expected: &[&str], node_rules: usize) {
            let off = KindFeatures::default();
            let names = |features: KindFeatures| -> Vec<String> {
                let all = wanted(features).into_iter();
                let about = all.filter(|w| w.object.to_string().contains(word));
                about
                    .map(|w| machinery::meta::name(&w.object).to_string())
                    .collect()
            };
            assert!(names(off).is_empty(), "{word}");
            assert_eq!(names(features), expected);
            let more = super::node_rules(features).len() - super::node_rules(off).len();
            assert_eq!(more, node_rules, "{word}");
        }
        let off = KindFeatures::default();
        let publisher = "system:controller:kube-apiserver-serving-clustertrustbundle-publisher";
        let discovery = "system:cluster-trust-bundle-discovery";
        check(
            KindFeatures {
                trust_bundles: true,
                ..off
            },
            "clustertrustbundle",
            &["system:node", discovery, publisher, publisher],
            1,
        );
        let protection = "system:controller:podgroup-protection-controller";
        check(
            KindFeatures {
                workloads: true,
                ..off
            },
            "podgroup",
            &[
                "system:aggregate-to-edit",
                "system:aggregate-to-view",
                "system:kube-scheduler",
                protection,
                protection,
            ],
            0,
        );
        let cleaner = "system:controller:podcertificaterequestcleaner";
        check(
            KindFeatures {
                pod_certificates: true,
                ..off
            },
            "podcertificaterequest",
            &["system:node", cleaner, cleaner],
            1,
        );
        check(
            KindFeatures {
                device_taint_rules: true,
                ..off
            },
            "devicetaintrules",
            &[
                "system:controller:device-taint-eviction-controller",
                "system:kube-scheduler",
            ],
            0,
        );
        let pools = "system:controller:resourcepoolstatusrequest-controller";
        check(
            KindFeatures {
                pool_status: true,
                ..off
            },
            "resourcepoolstatusrequest",
            &[pools, pools],
            0,
        );
        let versions = "system:controller:storage-version-garbage-collector";
        check(
            KindFeatures {
                storage_versions: true,
                ..off
            },
            "storage-version-g",
            &[versions, versions],
            0,
        );
    }

    #[test]
    fn missing_rules_are_added_and_extra_ones_stay() {
        let all = wanted(KindFeatures::default());
        let view = all
            .iter()
            .find(|w| w.object["metadata"]["name"] == "system:basic-user")
            .expect("the role");
        let mut live = view.object.clone();
        let extra = json!({"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]});
        live["rules"] = json!([extra]);
        let changed = reconcile(&view.object, &live).expect("may be updated");
        assert_eq!(changed["rules"].as_array().map(Vec::len), Some(3));
        live["metadata"]["annotations"][AUTOUPDATE] = "false".into();
        assert_eq!(reconcile(&view.object, &live), None);
    }
}
