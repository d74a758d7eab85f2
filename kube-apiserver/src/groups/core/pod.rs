//! Pod, and its status.

pub(crate) mod binding;
mod claims;
pub(crate) mod ephemeral_containers;
pub(crate) mod eviction;
pub(crate) mod resize;
mod status;

use generic_server::registry::strategy::{FieldValue, Grace, SelectableField, Strategy, WriteContext};
use machinery::names::ip::ip_warnings;
use machinery::names::{dns1123_label, in_range};
use machinery::time::Timestamp;
use machinery::{FieldError, FieldPath, meta};
use serde_json::{Value, json};

use super::pod_spec::{self, SpecOwner, profiles};
use crate::deps::KindFeatures;
use crate::errors::{Errors, Ratchet};
use crate::json::{Json, same};
use crate::resources::amounts;
use crate::unique::{Seen, texts};

/// The annotation of mirror pods, which show the static pods of a kubelet.
/// The annotation of tolerations.
const TOLERATIONS: &str = "scheduler.alpha.kubernetes.io/tolerations";
pub(crate) const MIRROR: &str = "kubernetes.io/config.mirror";

/// How upstream prints the path of a pod as a whole.
const NOWHERE: &str = "[]";

/// Whether a pod mirrors a static one.
pub(crate) fn is_mirror(pod: &Value) -> bool {
    meta::annotations(pod).is_some_and(|all| all.contains_key(MIRROR))
}

/// Pods themselves.
#[derive(Debug)]
pub(crate) struct Pods(pub(crate) KindFeatures);

/// The defaults of a pod, by whatever endpoint it is written.
fn fill_in(pod: &mut Value) {
    pod_spec::default_pod(pod);
    if pod
        .int("spec.terminationGracePeriodSeconds")
        .is_some_and(|seconds| seconds < 0)
    {
        pod.ensure("spec").put("terminationGracePeriodSeconds", 1);
    }
    align_addresses(pod.ensure("status"));
}

/// Makes `podIP` the first of `podIPs`; where they differ, the single field is believed.
fn align_addresses(status: &mut Value) {
    let first = status.list("podIPs").first().map(|ip| ip.text("ip").to_owned());
    let own = status.text("podIP");
    if !own.is_empty() && first.as_deref() != Some(own) {
        let ip = own.to_owned();
        status.put("podIPs", json!([{"ip": ip}]));
    } else if let Some(first) = first.filter(|ip| !ip.is_empty()) {
        status.put("podIP", first);
    }
}

/// `pods/status`.
#[derive(Debug)]
pub(crate) struct PodStatus;

impl Strategy for Pods {
    fn default(&self, object: &mut Value) {
        fill_in(object);
    }

    fn prepare_for_create(&self, ctx: &WriteContext<'_>, object: &mut Value) {
        pod_spec::drop_disabled_at(self.0, "spec", object, &Value::Null);
        meta::set(object, "generation", 1);
        // Upstream believes a class that the client says.
        let qos = match object.text("status.qosClass") {
            "" => qos_class(object).to_owned(),
            class => class.to_owned(),
        };
        let mut status = json!({"phase": "Pending", "qosClass": qos});
        if !object.list("spec.schedulingGates").is_empty() {
            status.put(
                "conditions",
                json!([{"type": "PodScheduled", "status": "False", "reason": "SchedulingGated", "lastProbeTime": null,
                    "lastTransitionTime": Timestamp::now().to_rfc3339(),
                    "message": "Scheduling is blocked due to non-empty scheduling gates"}]),
            );
        }
        object.put("status", status);
        merge_label_keys(object);
        for warning in profiles::take_annotations(object) {
            ctx.authorized.context().warn(warning);
        }
    }

    fn validate_create(&self, _ctx: &WriteContext<'_>, pod: &Value) -> Vec<FieldError> {
        Errors::collect(|errors| {
            metadata_and_spec(errors, pod);
            let spec = FieldPath::new("spec");
            if !pod.list("spec.ephemeralContainers").is_empty() {
                errors.forbidden(&spec.child("ephemeralContainers"), "cannot be set on create");
            }
            if !pod.text("spec.nodeName").is_empty() && !pod.list("spec.schedulingGates").is_empty() {
                errors.forbidden(
                    &spec.child("nodeName"),
                    "cannot be set until all schedulingGates have been cleared",
                );
            }
            profiles::forms_agree(errors, &spec, pod);
        })
    }

    fn warnings_on_create(&self, _ctx: &WriteContext<'_>, pod: &Value) -> Vec<String> {
        let mut out = Vec::new();
        let texts = dns1123_label(meta::name(pod));
        if !texts.is_empty() {
            out.push(format!(
                "metadata.name: this is used in the Pod's hostname, which can result in surprising behavior; a DNS label is recommended: [{}]",
                texts.join(" ")
            ));
        }
        out.extend(pod_spec::warnings("", pod));
        out
    }

    fn prepare_for_update(&self, _ctx: &WriteContext<'_>, object: &mut Value, old: &Value) {
        object.copy_key("status", old);
        pod_spec::drop_disabled_at(self.0, "spec", object, old);
        generation(object, old);
    }

    fn validate_update(&self, _ctx: &WriteContext<'_>, pod: &Value, old: &Value) -> Vec<FieldError> {
        let of_stored = |errors: &mut Errors| metadata_and_spec(errors, old);
        Errors::collect_update(&[], |errors| update(errors, pod, old), of_stored)
    }

    fn returns_deleted_object(&self) -> bool {
        true
    }

    fn grace(&self, pod: &Value, asked: Option<i64>) -> Grace {
        let unscheduled = pod.text("spec.nodeName").is_empty();
        let finished = matches!(pod.text("status.phase"), "Succeeded" | "Failed");
        let seconds = match asked.or_else(|| pod.int("spec.terminationGracePeriodSeconds")) {
            _ if unscheduled || finished => 0,
            Some(seconds) if seconds < 0 => 1,
            Some(seconds) => seconds,
            None => 0,
        };
        Grace::Seconds(seconds)
    }

    fn reset_fields(&self) -> &'static [&'static str] {
        &["status"]
    }

    fn selectable_fields(&self) -> Vec<SelectableField> {
        let mut fields: Vec<SelectableField> = [
            "spec.nodeName",
            "spec.restartPolicy",
            "spec.schedulerName",
            "spec.serviceAccountName",
            "status.phase",
            "status.podIP",
            "status.nominatedNodeName",
        ]
        .into_iter()
        .map(SelectableField::path)
        .collect();
        fields.push(SelectableField {
            name: "spec.hostNetwork".into(),
            value: FieldValue::Compute(|pod| pod.flag("spec.hostNetwork").to_string()),
        });
        fields.push(SelectableField {
            name: "status.podIPs".into(),
            value: FieldValue::Compute(|pod| {
                let ips = pod.list("status.podIPs");
                ips.first().map_or("", |ip| ip.text("ip")).to_string()
            }),
        });
        fields
    }
}

impl Strategy for PodStatus {
    fn default(&self, object: &mut Value) {
        fill_in(object);
    }

    fn prepare_for_update(&self, _ctx: &WriteContext<'_>, object: &mut Value, old: &Value) {
        object.copy_key("spec", old);
        let old_meta = old.dig("metadata");
        let metadata = object.ensure("metadata");
        for key in ["deletionTimestamp", "ownerReferences", "generation"] {
            metadata.copy_key(key, old_meta);
        }
        let qos = old.dig("status.qosClass").clone();
        let status = object.ensure("status");
        if status.text("qosClass").is_empty() && !qos.is_null() {
            status.put("qosClass", qos);
        }
    }

    fn validate_update(&self, _ctx: &WriteContext<'_>, pod: &Value, old: &Value) -> Vec<FieldError> {
        Errors::collect(|errors| status::validate(errors, pod, old))
    }

    fn warnings_on_update(&self, _ctx: &WriteContext<'_>, pod: &Value, _old: &Value) -> Vec<String> {
        let status = FieldPath::new("status");
        let mut out = Vec::new();
        for list in ["podIPs", "hostIPs"] {
            let at = status.child(list);
            for (index, address) in pod.dig("status").list(list).iter().enumerate() {
                out.extend(ip_warnings(&at.index(index).child("ip"), address.text("ip")));
            }
        }
        out
    }

    fn reset_fields(&self) -> &'static [&'static str] {
        &["spec", "metadata.deletionTimestamp", "metadata.ownerReferences"]
    }
}

/// Puts back the metadata that only a write of the pod itself changes.
fn reset_metadata(object: &mut Value, old: &Value) {
    let old = old.dig("metadata");
    let metadata = object.ensure("metadata");
    for key in [
        "deletionTimestamp",
        "generation",
        "labels",
        "annotations",
        "finalizers",
        "ownerReferences",
    ] {
        metadata.copy_key(key, old);
    }
}

fn generation(object: &mut Value, old: &Value) {
    let changed = !same(object.dig("spec"), old.dig("spec"));
    let next = meta::generation(old) + i64::from(changed);
    meta::set(
        object,
        "generation",
        if next == 0 { Value::Null } else { next.into() },
    );
}

/// `Guaranteed`, `Burstable` or `BestEffort`, from cpu and memory of all containers.
pub(crate) fn qos_class(pod: &Value) -> &'static str {
    let spec = pod.dig("spec");
    let own = spec.dig("resources");
    let mut sources: Vec<&Value> = Vec::new();
    if !own.is_null() {
        sources.push(own);
    } else {
        for list in ["containers", "initContainers"] {
            sources.extend(spec.list(list).iter().map(|c| c.dig("resources")));
        }
    }
    let (mut any, mut guaranteed) = (false, true);
    for resources in sources {
        let (limits, requests) = (
            amounts(resources.dig("limits")),
            amounts(resources.dig("requests")),
        );
        for name in ["cpu", "memory"] {
            let limit = limits.get(name).filter(|q| q.signum() > 0);
            let request = requests.get(name).filter(|q| q.signum() > 0);
            any |= limit.is_some() || request.is_some();
            guaranteed &= limit.is_some() && (request.is_none() || request == limit);
        }
    }
    match (any, guaranteed) {
        (false, _) => "BestEffort",
        (true, true) => "Guaranteed",
        (true, false) => "Burstable",
    }
}

/// The most bytes of a label's value.
const LABEL_VALUE_BYTES: usize = 63;

/// Terms with `matchLabelKeys` select by the pod's own values of these labels.
fn merge_label_keys(pod: &mut Value) {
    let labels = pod.dig("metadata.labels").clone();
    // The pod is refused for a longer one, and each may be named any number of times.
    let is_label = |value: &&Value| value.as_str().is_some_and(|text| text.len() <= LABEL_VALUE_BYTES);
    let merge = |term: &mut Value| {
        let mut more = Vec::new();
        for (kind, operator) in [("matchLabelKeys", "In"), ("mismatchLabelKeys", "NotIn")] {
            for key in term.strings(kind) {
                if let Some(value) = labels.get(key).filter(is_label) {
                    more.push(json!({"key": key, "operator": operator, "values": [value]}));
                }
            }
        }
        let Some(selector) = term.dig_mut("labelSelector").filter(|_| !more.is_empty()) else {
            return;
        };
        match selector.dig_mut("matchExpressions").and_then(Value::as_array_mut) {
            Some(expressions) => expressions.append(&mut more),
            None => selector.put("matchExpressions", more),
        }
    };
    for kind in ["podAffinity", "podAntiAffinity"] {
        for term in pod.list_mut(&format!(
            "spec.affinity.{kind}.requiredDuringSchedulingIgnoredDuringExecution"
        )) {
            merge(term);
        }
        for weighted in pod.list_mut(&format!(
            "spec.affinity.{kind}.preferredDuringSchedulingIgnoredDuringExecution"
        )) {
            if let Some(term) = weighted.dig_mut("podAffinityTerm") {
                merge(term);
            }
        }
    }
    for constraint in pod.list_mut("spec.topologySpreadConstraints") {
        merge(constraint);
    }
}

fn metadata_and_spec(errors: &mut Errors, pod: &Value) {
    let metadata = FieldPath::new("metadata");
    pod_annotations(errors, &metadata.child("annotations"), pod);
    let path = FieldPath::new("spec");
    let spec = pod.dig("spec");
    if is_mirror(pod) {
        for _ in spec.list("resourceClaims") {
            errors.forbidden(
                &FieldPath::new(NOWHERE),
                "static pods do not support resource claims",
            );
        }
    }
    pod_spec::validate(
        errors,
        &path,
        spec,
        SpecOwner {
            pod: true,
            name: meta::name(pod),
        },
    );
    if spec.text("serviceAccountName").is_empty() {
        let volumes = path.child("volumes");
        for (index, volume) in spec.list("volumes").iter().enumerate() {
            let at = volumes.index(index);
            let at = at.child("projected");
            let sources = at.child("sources");
            for (index, source) in volume.list("projected.sources").iter().enumerate() {
                if source.has("serviceAccountToken") {
                    errors.forbidden(
                        &sources.index(index).child("serviceAccountToken"),
                        "must not be specified when serviceAccountName is not set",
                    );
                }
            }
        }
    }
    for list in ["containers", "initContainers"] {
        let at = path.child(list);
        for (index, container) in spec.list(list).iter().enumerate() {
            whitespace(errors, &at.index(index).child("image"), container.text("image"));
        }
    }
}

fn whitespace(errors: &mut Errors, path: &FieldPath<'_>, image: &str) {
    if image.trim() != image {
        errors.invalid(path, image, "must not have leading or trailing whitespace");
    }
}

/// An image of a container of a changed pod.
fn image(errors: &mut Errors, path: &FieldPath<'_>, image: &str) {
    errors.need(path, image);
    whitespace(errors, path, image);
}

/// Annotations that mean something to pods, of pods and templates.
pub(crate) fn pod_annotations(errors: &mut Errors, path: &FieldPath<'_>, pod: &Value) {
    let annotations = pod.dig("metadata.annotations");
    let text = |key: &str| annotations.get(key).and_then(Value::as_str);
    if let Some(value) = text(MIRROR).filter(|_| pod.text("spec.nodeName").is_empty()) {
        errors.invalid(
            &path.key(MIRROR),
            value,
            "must set spec.nodeName if mirror pod annotation is set",
        );
    }
    if let Some(value) = text(TOLERATIONS).filter(|value| !value.is_empty()) {
        annotated_tolerations(errors, path, value);
    }
    let cost = "controller.kubernetes.io/pod-deletion-cost";
    if let Some(value) = text(cost) {
        let good = !value.starts_with('+') && value.parse::<i32>().is_ok();
        let padded = value.len() > 1 && value.trim_start_matches('-').starts_with('0');
        if !good || padded {
            errors.ratcheted(Ratchet::DeletionCost, |errors| {
                errors.invalid(&path.key(cost), value, "must be a 32bit integer");
            });
        }
    }
    profiles::annotations(errors, path, pod);
}

/// The tolerations that were an annotation before they were a field.
fn annotated_tolerations(errors: &mut Errors, path: &FieldPath<'_>, text: &str) {
    match machinery::codec::json::value(text.as_bytes()) {
        Ok(Value::Array(list)) => pod_spec::tolerations(errors, &path.child(TOLERATIONS), &list),
        Ok(Value::Null) => {}
        Ok(_) => {
            let why = "json: cannot unmarshal object into Go value of type []core.Toleration";
            errors.invalid(path, TOLERATIONS, why);
        }
        Err(error) => errors.invalid(path, TOLERATIONS, error.to_string()),
    }
}

fn update(errors: &mut Errors, pod: &Value, old: &Value) {
    metadata_and_spec(errors, pod);
    let metadata = FieldPath::new("metadata");
    let annotations = metadata.child("annotations");
    let mirror = |object: &Value| meta::annotations(object).and_then(|all| all.get(MIRROR)).cloned();
    match (mirror(pod), mirror(old)) {
        (Some(_), None) => errors.forbidden(&annotations.key(MIRROR), "may not add mirror pod annotation"),
        (new, before) if new != before => {
            let text = "may not remove or update mirror pod annotation";
            errors.forbidden(&annotations.key(MIRROR), text);
        }
        _ => {}
    }
    profiles::annotations_stay(errors, &annotations, pod, old);
    let path = FieldPath::new("spec");
    for list in ["containers", "initContainers"] {
        let at = path.child(list);
        let (new, before) = (pod.dig("spec").list(list), old.dig("spec").list(list));
        if new.len() != before.len() {
            errors.forbidden(&at, "pod updates may not add or remove containers");
            return;
        }
        // Upstream validates images of an update a second time, which repeats their causes.
        for (index, container) in new.iter().enumerate() {
            image(errors, &at.index(index).child("image"), container.text("image"));
        }
    }
    let deadline = path.child("activeDeadlineSeconds");
    let (new, before) = (
        pod.int("spec.activeDeadlineSeconds"),
        old.int("spec.activeDeadlineSeconds"),
    );
    match (new, before) {
        (Some(new), _) if !(0..=i64::from(i32::MAX)).contains(&new) => {
            for text in in_range(new, 0, i64::from(i32::MAX)) {
                errors.invalid(&deadline, new, text);
            }
            return;
        }
        (Some(new), Some(before)) if before < new => {
            errors.invalid(&deadline, new, "must be less than or equal to previous value");
            return;
        }
        (None, Some(_)) => errors.invalid(
            &deadline,
            Value::Null,
            "must not update from a positive integer to nil value",
        ),
        _ => {}
    }
    only_added_tolerations(errors, &path.child("tolerations"), pod, old);
    let gates = path.child("schedulingGates");
    let known = texts(old.list("spec.schedulingGates"), "name");
    for (index, gate) in pod.list("spec.schedulingGates").iter().enumerate() {
        let name = gate.text("name");
        if !known.has(name) {
            let text = format!("only deletion is allowed, but found new scheduling gate '{name}'");
            errors.forbidden(&gates.index(index).child("name"), text);
        }
    }
    if same(pod.dig("spec"), old.dig("spec")) {
        return;
    }
    // Mutable fields are made equal; no other may differ.
    let mut munged = pod.dig("spec").clone();
    for list in ["containers", "initContainers"] {
        let before = old.dig("spec").list(list);
        for (container, before) in munged.list_mut(list).iter_mut().zip(before) {
            container.copy_key("image", before);
        }
    }
    for key in ["activeDeadlineSeconds", "schedulingGates", "tolerations"] {
        munged.copy_key(key, old.dig("spec"));
    }
    if old
        .int("spec.terminationGracePeriodSeconds")
        .is_some_and(|s| s < 0)
        && munged.int("terminationGracePeriodSeconds") == Some(1)
    {
        munged.copy_key("terminationGracePeriodSeconds", old.dig("spec"));
    }
    if !old.list("spec.schedulingGates").is_empty() {
        for (key, value) in old.entries("spec.nodeSelector") {
            if munged.dig("nodeSelector").get(key) != Some(value) {
                errors.invalid_value(
                    &path.child("nodeSelector"),
                    munged.dig("nodeSelector"),
                    "only additions to spec.nodeSelector are allowed (no mutations or deletions)",
                );
                break;
            }
        }
        munged.copy_key("nodeSelector", old.dig("spec"));
        let (new, before) = (
            munged.dig("affinity.nodeAffinity"),
            old.dig("spec.affinity.nodeAffinity"),
        );
        if !same(new, before) {
            node_affinity_grows(errors, &path.child("affinity.nodeAffinity"), new, before);
            let alone = !munged.has("affinity.podAffinity") && !munged.has("affinity.podAntiAffinity");
            if before.is_null() && (!munged.has("affinity") || alone && !old.has("spec.affinity")) {
                munged.take_key("affinity");
            } else {
                munged
                    .ensure("affinity")
                    .copy_key("nodeAffinity", old.dig("spec.affinity"));
            }
        }
    }
    if !same(&munged, old.dig("spec")) {
        errors.forbidden(
            &path,
            format!(
                "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)\n{}",
                difference(old.dig("spec"), &munged)
            ),
        );
    }
}

/// The keys that differ, for people.
fn difference(old: &Value, new: &Value) -> String {
    let keys: std::collections::BTreeSet<&str> = old
        .entries_of()
        .chain(new.entries_of())
        .map(|(key, _)| key)
        .collect();
    let lines: Vec<String> = keys
        .into_iter()
        .filter(|key| !same(old.dig(key), new.dig(key)))
        .map(|key| format!("  {key}: - {} + {}", old.dig(key), new.dig(key)))
        .collect();
    lines.join("\n")
}

trait EntriesOf {
    fn entries_of(&self) -> impl Iterator<Item = (&str, &Value)>;
}

impl EntriesOf for Value {
    fn entries_of(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.as_object()
            .into_iter()
            .flatten()
            .map(|(k, v)| (k.as_str(), v))
    }
}

/// Each of the terms that a gated pod requires of nodes may be narrowed, by what follows what is there.
fn node_affinity_grows(errors: &mut Errors, path: &FieldPath<'_>, new: &Value, old: &Value) {
    const TERMS: &str = "requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms";
    let path = path.child(TERMS);
    let (terms, before) = (new.list(TERMS), old.list(TERMS));
    if !before.is_empty() && terms.len() != before.len() {
        let text = "no additions/deletions to non-empty NodeSelectorTerms list are allowed";
        return errors.invalid_value(&path, new.dig(TERMS), text);
    }
    for (index, (term, old)) in terms.iter().zip(before).enumerate() {
        let lists = ["matchExpressions", "matchFields"];
        let grows = |key: &&str| {
            let (new, old) = (term.list(key), old.list(key));
            new.len() >= old.len() && new.iter().zip(old).all(|(new, old)| same(new, old))
        };
        let was_empty = lists.iter().all(|key| old.list(key).is_empty());
        let is_empty = lists.iter().all(|key| term.list(key).is_empty());
        if was_empty && !is_empty || !lists.iter().all(grows) {
            let text = "only additions are allowed (no mutations or deletions)";
            errors.invalid_value(&path.index(index), term, text);
        }
    }
}

fn only_added_tolerations(errors: &mut Errors, path: &FieldPath<'_>, pod: &Value, old: &Value) {
    fn identity(toleration: &Value) -> [&str; 4] {
        ["key", "operator", "value", "effect"].map(|key| toleration.text(key))
    }
    let now: Seen<[&str; 4]> = pod.list("spec.tolerations").iter().map(identity).collect();
    for before in old.list("spec.tolerations") {
        if !now.has(&identity(before)) {
            errors.forbidden(
                path,
                "existing toleration can not be modified except its tolerationSeconds",
            );
            return;
        }
    }
    // Upstream validates tolerations of an update a second time, which repeats their causes.
    pod_spec::tolerations(errors, path, pod.list("spec.tolerations"));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn errors_of(spec: Value) -> Vec<String> {
        let mut pod = json!({"metadata": {"name": "p"}, "spec": spec});
        fill_in(&mut pod);
        Errors::collect(|errors| metadata_and_spec(errors, &pod))
            .iter()
            .map(ToString::to_string)
            .collect()
    }

    #[track_caller]
    fn check(container: Value, expected: &[&str]) {
        let mut whole = json!({"name": "c", "image": "i"});
        for (key, value) in container.as_object().into_iter().flatten() {
            whole[key] = value.clone();
        }
        assert_eq!(errors_of(json!({"containers": [whole]})), expected);
    }

    #[test]
    fn containers_are_judged_in_upstreams_words() {
        check(json!({}), &[]);
        check(
            json!({"image": " i"}),
            &[
                "spec.containers[0].image: Invalid value: \" i\": must not have leading or trailing whitespace",
            ],
        );
        check(
            json!({"ports": [{"containerPort": 0}, {"containerPort": 1, "protocol": "X"}]}),
            &[
                "spec.containers[0].ports[0].containerPort: Required value",
                "spec.containers[0].ports[1].protocol: Unsupported value: \"X\": supported values: \"SCTP\", \"TCP\", \"UDP\"",
            ],
        );
        check(
            json!({"livenessProbe": {"exec": {"command": []}, "httpGet": {"port": 80}}}),
            &[
                "spec.containers[0].livenessProbe.exec.command: Required value",
                "spec.containers[0].livenessProbe.httpGet: Forbidden: may not specify more than 1 handler type",
            ],
        );
        check(
            json!({"env": [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "spec.unknown"}}}]}),
            &[
                "spec.containers[0].env[0].valueFrom.fieldRef.fieldPath: Invalid value: \"spec.unknown\": error converting fieldPath: field label not supported: spec.unknown",
            ],
        );
        check(
            json!({"volumeMounts": [{"name": "v", "mountPath": "/x"}]}),
            &["spec.containers[0].volumeMounts[0].name: Not found: \"v\""],
        );
        check(
            json!({"resources": {"requests": {"memory": "2Gi"}, "limits": {"memory": "1Gi"}}}),
            &[
                "spec.containers[0].resources.requests: Invalid value: \"2Gi\": must be less than or equal to memory limit of 1Gi",
            ],
        );
    }

    #[test]
    fn qos_follows_cpu_and_memory() {
        let pod = |resources: Value| json!({"spec": {"containers": [{"resources": resources}]}});
        assert_eq!(qos_class(&pod(json!({}))), "BestEffort");
        let both = json!({"cpu": "1", "memory": "1Gi"});
        assert_eq!(
            qos_class(&pod(json!({"limits": both, "requests": both}))),
            "Guaranteed"
        );
        assert_eq!(qos_class(&pod(json!({"requests": {"cpu": "1"}}))), "Burstable");
    }

    #[test]
    fn pods_barely_change() {
        let mut old =
            json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
        fill_in(&mut old);
        let check = |key: &str, value: Value, expected: usize| {
            let mut new = old.clone();
            new.ensure("spec").put(key, value);
            let found = Errors::collect(|errors| update(errors, &new, &old));
            assert_eq!(found.len(), expected, "{found:?}");
        };
        check("activeDeadlineSeconds", json!(5), 0);
        check("nodeName", json!("n"), 1);
        check("tolerations", json!([{"operator": "Exists"}]), 0);
    }
}
