//! Warnings about accepted pod specifications.

use machinery::FieldPath;
use machinery::go;
use machinery::names::ip::ip_warnings;
use serde_json::Value;

use super::{CONTAINERS, profiles};
use crate::groups::node_labels;
use crate::json::Json;
use crate::quantity::amount;
use crate::unique::Seen;

mod overlaps;
mod ports;

const VOLUMES: &[(&str, &str, &str)] = &[
    (
        "photonPersistentDisk",
        "photonPersistentDisk",
        "deprecated in v1.11, non-functional in v1.16+",
    ),
    (
        "gitRepo",
        "gitRepo",
        "deprecated in v1.11, and disabled by default in v1.33+",
    ),
    (
        "scaleIO",
        "scaleIO",
        "deprecated in v1.16, non-functional in v1.22+",
    ),
    (
        "flocker",
        "flocker",
        "deprecated in v1.22, non-functional in v1.25+",
    ),
    (
        "storageos",
        "storageOS",
        "deprecated in v1.22, non-functional in v1.25+",
    ),
    (
        "quobyte",
        "quobyte",
        "deprecated in v1.22, non-functional in v1.25+",
    ),
    (
        "glusterfs",
        "glusterfs",
        "deprecated in v1.25, non-functional in v1.26+",
    ),
    (
        "cephfs",
        "cephfs",
        "deprecated in v1.28, non-functional in v1.31+",
    ),
    ("rbd", "rbd", "deprecated in v1.28, non-functional in v1.31+"),
];

const ANNOTATIONS: &[(&str, &str)] = &[
    (
        "scheduler.alpha.kubernetes.io/critical-pod",
        "non-functional in v1.16+; use the \"priorityClassName\" field instead",
    ),
    (
        "security.alpha.kubernetes.io/sysctls",
        "non-functional in v1.11+; use the \"sysctls\" field instead",
    ),
    (
        "security.alpha.kubernetes.io/unsafe-sysctls",
        "non-functional in v1.11+; use the \"sysctls\" field instead",
    ),
];

/// The warnings for a pod or a template; `prefix` is empty for a pod and `spec.template` and the like for templates.
pub(crate) fn warnings(prefix: &str, template: &Value) -> Vec<String> {
    let mut out = Vec::new();
    let base = FieldPath::new(prefix);
    let spec_name = if prefix.is_empty() {
        "spec".to_string()
    } else {
        format!("{prefix}.spec")
    };
    let meta = if prefix.is_empty() {
        "metadata".to_string()
    } else {
        base.child("metadata").to_string()
    };
    let path = FieldPath::new(&spec_name);
    let spec = template.dig("spec");
    for (key, _) in spec.entries("nodeSelector") {
        if let Some(text) = node_labels::deprecated(key) {
            out.push(format!("{}: {text}", path.child("nodeSelector").key(key)));
        }
    }
    node_affinity(
        &mut out,
        &path.child("affinity"),
        spec.dig("affinity.nodeAffinity"),
    );
    for (index, constraint) in spec.list("topologySpreadConstraints").iter().enumerate() {
        let list = path.child("topologySpreadConstraints");
        let at = list.index(index);
        let key = constraint.text("topologyKey");
        if let Some(text) = node_labels::deprecated(key) {
            out.push(format!("{}: {key} is {text}", at.child("topologyKey")));
        }
        if !constraint.has("labelSelector") {
            out.push(format!(
                "{}: a null labelSelector results in matching no pod",
                at.child("labelSelector")
            ));
        }
    }
    let annotations = template.dig("metadata.annotations");
    for (key, text) in ANNOTATIONS {
        if annotations.get(*key).is_some() {
            out.push(format!("{meta}.annotations[{key}]: {text}"));
        }
    }
    let volumes = path.child("volumes");
    for (index, volume) in spec.list("volumes").iter().enumerate() {
        for (key, name, text) in VOLUMES {
            if volume.has(key) {
                out.push(format!("{}: {text}", volumes.index(index).child(name)));
            }
        }
        let claim = volume.dig("ephemeral.volumeClaimTemplate.spec");
        let at = volumes.index(index);
        claim_fractions(&mut out, &at.child("ephemeral.volumeClaimTemplate.spec"), claim);
    }
    overlaps::warnings(&mut out, spec.list("volumes"));
    repeated(&mut out, &path, spec, "hostAliases", "ip", "ip");
    repeated(&mut out, &path, spec, "imagePullSecrets", "name", "name");
    let secrets = path.child("imagePullSecrets");
    for (index, secret) in spec.list("imagePullSecrets").iter().enumerate() {
        if secret.text("name").is_empty() {
            out.push(format!(
                "{}: invalid empty name \"\"",
                secrets.index(index).child("name")
            ));
        }
    }
    fractions(&mut out, &path.child("overhead"), spec.dig("overhead"));
    profiles::warnings(&mut out, &meta, template);
    containers(&mut out, &path, template, |out, container| {
        profiles::container_warnings(out, &meta, template, container, prefix.is_empty());
    });
    if spec.int("terminationGracePeriodSeconds").is_some_and(|s| s < 0) {
        out.push(format!(
            "{}: must be >= 0; negative values are invalid and will be treated as 1",
            path.child("terminationGracePeriodSeconds")
        ));
    }
    affinity(&mut out, &path.child("affinity"), spec.dig("affinity"));
    let config = path.child("dnsConfig");
    let servers = config.child("nameservers");
    for (index, server) in spec.strings("dnsConfig.nameservers").enumerate() {
        out.extend(ip_warnings(&servers.index(index), server));
    }
    let aliases = path.child("hostAliases");
    for (index, alias) in spec.list("hostAliases").iter().enumerate() {
        out.extend(ip_warnings(&aliases.index(index).child("ip"), alias.text("ip")));
    }
    out
}

fn repeated(out: &mut Vec<String>, path: &FieldPath<'_>, spec: &Value, list: &str, key: &str, what: &str) {
    let at = path.child(list);
    let items = spec.list(list);
    let mut seen = Seen::default();
    for (index, item) in items.iter().enumerate() {
        let text = item.text(key);
        if seen.again(text) {
            out.push(format!(
                "{}: duplicate {what} {}",
                at.index(index).child(key),
                go::quote(text)
            ));
        }
    }
}

fn fractions(out: &mut Vec<String>, path: &FieldPath<'_>, list: &Value) {
    for name in ["memory", "ephemeral-storage"] {
        fraction(out, path, list, name);
    }
}

/// A part of a byte is no amount.
fn fraction(out: &mut Vec<String>, path: &FieldPath<'_>, list: &Value, name: &str) {
    if let Some(quantity) = list.get(name).and_then(amount)
        && quantity.milli_value() % 1_000 != 0
    {
        out.push(format!(
            "{}: fractional byte value \"{quantity}\" is invalid, must be an integer",
            path.key(name)
        ));
    }
}

/// Adds the warnings about what a claim requests and is limited to.
pub(crate) fn claim_fractions(out: &mut Vec<String>, path: &FieldPath<'_>, spec: &Value) {
    let resources = path.child("resources");
    for kind in ["requests", "limits"] {
        fraction(
            out,
            &resources.child(kind),
            spec.dig("resources").dig(kind),
            "storage",
        );
    }
}

fn node_affinity(out: &mut Vec<String>, path: &FieldPath<'_>, affinity: &Value) {
    let path = path.child("nodeAffinity");
    let required = path.child("requiredDuringSchedulingIgnoredDuringExecution");
    let terms = required.child("nodeSelectorTerms");
    let list = affinity.dig("requiredDuringSchedulingIgnoredDuringExecution");
    for (index, term) in list.list("nodeSelectorTerms").iter().enumerate() {
        node_labels::term(out, &terms.index(index), term, false);
    }
    let preferred = path.child("preferredDuringSchedulingIgnoredDuringExecution");
    let list = affinity.list("preferredDuringSchedulingIgnoredDuringExecution");
    for (index, term) in list.iter().enumerate() {
        let at = preferred.index(index);
        node_labels::term(out, &at.child("preference"), term.dig("preference"), true);
    }
}

fn containers(
    out: &mut Vec<String>,
    path: &FieldPath<'_>,
    template: &Value,
    profiles: impl Fn(&mut Vec<String>, &Value),
) {
    let spec = template.dig("spec");
    for list in CONTAINERS {
        let list_path = path.child(list);
        for (index, container) in spec.list(list).iter().enumerate() {
            let at = list_path.index(index);
            let resources = at.child("resources");
            profiles(out, container);
            for name in ["memory", "ephemeral-storage"] {
                for kind in ["limits", "requests"] {
                    let list = container.dig("resources").dig(kind);
                    fraction(out, &resources.child(kind), list, name);
                }
            }
            let mut names = Seen::default();
            for (index, variable) in container.list("env").iter().enumerate() {
                let name = variable.text("name");
                if !names.again(name) {
                    continue;
                }
                let reference = format!("$({name})");
                let value = variable.text("value");
                let extends = !variable.has("valueFrom") && value != reference && value.contains(&reference);
                if !extends {
                    out.push(format!(
                        "{}: hides previous definition of {}, which may be dropped when using apply",
                        at.child("env").index(index),
                        go::quote(name)
                    ));
                }
            }
        }
    }
    ports::warnings(out, path, spec);
}

fn affinity(out: &mut Vec<String>, path: &FieldPath<'_>, affinity: &Value) {
    const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
    const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";
    let text = "a null labelSelector results in matching no pod";
    for kind in ["podAffinity", "podAntiAffinity"] {
        let at = path.child(kind);
        let required = at.child(REQUIRED);
        for (index, term) in affinity.dig(kind).list(REQUIRED).iter().enumerate() {
            if !term.has("labelSelector") {
                out.push(format!(
                    "{}: {text}",
                    required.index(index).child("labelSelector")
                ));
            }
        }
        let preferred = at.child(PREFERRED);
        for (index, term) in affinity.dig(kind).list(PREFERRED).iter().enumerate() {
            if !term.has("podAffinityTerm.labelSelector") {
                out.push(format!(
                    "{}: {text}",
                    preferred.index(index).child("podAffinityTerm.labelSelector")
                ));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check(prefix: &str, template: Value, expected: &[&str]) {
        assert_eq!(warnings(prefix, &template), expected);
    }

    #[test]
    fn deprecated_fields_warn() {
        check("", json!({"spec": {}}), &[]);
        check(
            "spec.template",
            json!({"spec": {"nodeSelector": {"beta.kubernetes.io/os": "linux"}, "volumes": [{"name": "v", "gitRepo": {}}]}}),
            &[
                r#"spec.template.spec.nodeSelector[beta.kubernetes.io/os]: deprecated since v1.14; use "kubernetes.io/os" instead"#,
                "spec.template.spec.volumes[0].gitRepo: deprecated in v1.11, and disabled by default in v1.33+",
            ],
        );
        check(
            "",
            json!({"metadata": {"annotations": {"scheduler.alpha.kubernetes.io/critical-pod": ""}}}),
            &[
                r#"metadata.annotations[scheduler.alpha.kubernetes.io/critical-pod]: non-functional in v1.16+; use the "priorityClassName" field instead"#,
            ],
        );
    }

    #[test]
    fn likely_mistakes_warn() {
        check(
            "",
            json!({"spec": {
                "hostAliases": [{"ip": "10.0.0.1"}, {"ip": "10.0.0.1"}],
                "imagePullSecrets": [{"name": ""}],
                "terminationGracePeriodSeconds": -1,
                "topologySpreadConstraints": [{"topologyKey": "zone"}],
                "affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{}]}},
            }}),
            &[
                "spec.topologySpreadConstraints[0].labelSelector: a null labelSelector results in matching no pod",
                r#"spec.hostAliases[1].ip: duplicate ip "10.0.0.1""#,
                r#"spec.imagePullSecrets[0].name: invalid empty name """#,
                "spec.terminationGracePeriodSeconds: must be >= 0; negative values are invalid and will be treated as 1",
                "spec.affinity.podAffinity.requiredDuringSchedulingIgnoredDuringExecution[0].labelSelector: a null labelSelector results in matching no pod",
            ],
        );
        let container = |fields: Value| json!({"spec": {"containers": [fields]}});
        check(
            "",
            container(json!({"resources": {"requests": {"memory": "100m"}}})),
            &[
                r#"spec.containers[0].resources.requests[memory]: fractional byte value "100m" is invalid, must be an integer"#,
            ],
        );
        check(
            "",
            container(json!({"env": [{"name": "A", "value": "1"}, {"name": "A", "value": "$(A):2"}]})),
            &[],
        );
        check(
            "",
            container(json!({"env": [{"name": "A", "value": "1"}, {"name": "A", "value": "2"}]})),
            &[
                r#"spec.containers[0].env[1]: hides previous definition of "A", which may be dropped when using apply"#,
            ],
        );
    }
}
