//! StatefulSet.

use generic_server::registry::strategy::MetadataRules;
use machinery::names::{dns1123_label, name_is_dns_label};
use machinery::{FieldError, FieldPath};
use serde_json::{Value, json};

use crate::deps::KindFeatures;
use crate::errors::Errors;
use crate::groups::core::pod_spec::{claim_fractions, drop_disabled_at};
use crate::groups::core::pod_template::{
    always_running, default_template, selected, selector, validate_template, workload_warnings,
};
use crate::groups::core::{claim_spec, persistent_volume_claim};
use crate::json::{Json, same};
use crate::replicas::{counts, int_or_percent, not_above_hundred, not_decremented, size};
use crate::rules::Rules;
use crate::unique::Seen;

pub(crate) static RULES: Rules = Rules {
    name: name_is_dns_label,
    metadata: MetadataRules::CREATE,
    status: true,
    generation: &["spec"],
    default,
    drop_disabled,
    validate: |errors, object| validate(errors, object, true),
    validate_update,
    validate_status: |errors, object, old| {
        counts(
            errors,
            object,
            &[
                "readyReplicas",
                "currentReplicas",
                "updatedReplicas",
                "availableReplicas",
            ],
        );
        not_decremented(errors, object, old);
    },
    warnings,
    ..Rules::PLAIN
};

fn warnings(object: &Value, old: &Value) -> Vec<String> {
    let mut out = workload_warnings(object, old);
    let path = FieldPath::new("spec.volumeClaimTemplates");
    for (index, claim) in object.list("spec.volumeClaimTemplates").iter().enumerate() {
        let at = path.index(index);
        let (spec, of_update) = (claim.dig("spec"), at.child("Spec"));
        // Upstream's paths differ in the end.
        claim_fractions(&mut out, if old.is_null() { &at } else { &of_update }, spec);
    }
    if object
        .int("spec.revisionHistoryLimit")
        .is_some_and(|limit| limit < 0)
    {
        let text = "spec.revisionHistoryLimit: a negative value retains all historical revisions; a value >= 0 is recommended";
        out.push(text.to_string());
    }
    out
}

/// One pod at a time is replaced: what says otherwise goes, unless it was there before.
fn drop_disabled(features: KindFeatures, object: &mut Value, old: &Value) {
    drop_disabled_at(features, "spec.template.spec", object, old);
    if !old.has("spec.updateStrategy.rollingUpdate.maxUnavailable")
        && let Some(rolling) = object.dig_mut("spec.updateStrategy.rollingUpdate")
    {
        rolling.take_key("maxUnavailable");
    }
}

fn default(object: &mut Value) {
    let spec = object.ensure("spec");
    spec.fill_text("podManagementPolicy", "OrderedReady");
    spec.fill("serviceName", "");
    let strategy = spec.ensure("updateStrategy");
    if strategy.text("type").is_empty() {
        strategy.put("type", "RollingUpdate");
        strategy.fill("rollingUpdate", json!({}));
    }
    if strategy.text("type") == "RollingUpdate" && strategy.has("rollingUpdate") {
        strategy.ensure("rollingUpdate").fill("partition", 0);
    }
    let retention = spec.ensure("persistentVolumeClaimRetentionPolicy");
    retention.fill_text("whenDeleted", "Retain");
    retention.fill_text("whenScaled", "Retain");
    spec.fill("replicas", 1);
    spec.fill("revisionHistoryLimit", 10);
    default_template(spec.ensure("template"));
    for claim in spec.list_mut("volumeClaimTemplates") {
        claim.put("apiVersion", "v1");
        claim.put("kind", "PersistentVolumeClaim");
        claim.ensure("metadata");
        (persistent_volume_claim::RULES.default)(claim);
    }
    let status = object.ensure("status");
    status.fill("replicas", 0);
    status.fill("availableReplicas", 0);
}

fn validate_update(errors: &mut Errors, object: &Value, old: &Value) {
    validate(errors, object, false);
    let mut munged = object.dig("spec").clone();
    for key in [
        "replicas",
        "template",
        "updateStrategy",
        "minReadySeconds",
        "ordinals",
        "revisionHistoryLimit",
        "persistentVolumeClaimRetentionPolicy",
    ] {
        munged.copy_key(key, old.dig("spec"));
    }
    if !same(&munged, old.dig("spec")) {
        errors.forbidden(
            &FieldPath::new("spec"),
            "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', 'updateStrategy', 'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are forbidden",
        );
    }
}

fn validate(errors: &mut Errors, object: &Value, new: bool) {
    let path = FieldPath::new("spec");
    let spec = object.dig("spec");
    let at = path.child("podManagementPolicy");
    match spec.text("podManagementPolicy") {
        "" => errors.required(&at, ""),
        "OrderedReady" | "Parallel" => {}
        other => errors.invalid(&at, other, "must be 'OrderedReady' or 'Parallel'"),
    }
    update_strategy(errors, &path.child("updateStrategy"), spec.dig("updateStrategy"));
    let retention = path.child("persistentVolumeClaimRetentionPolicy");
    for key in ["whenDeleted", "whenScaled"] {
        errors.one_of(
            &retention.child(key),
            spec.dig("persistentVolumeClaimRetentionPolicy").text(key),
            &["Retain", "Delete"],
        );
    }
    let claims = path.child("volumeClaimTemplates");
    if new {
        for (index, claim) in spec.list("volumeClaimTemplates").iter().enumerate() {
            let at = claims.index(index);
            claim_spec::validate(errors, &at.child("spec"), claim.dig("spec"));
        }
    }
    errors.non_negative(&path.child("replicas"), spec.int("replicas"));
    errors.non_negative(&path.child("minReadySeconds"), spec.int("minReadySeconds"));
    errors.non_negative(&path.child("ordinals.start"), spec.int("ordinals.start"));
    let service = spec.text("serviceName");
    if new && !service.is_empty() {
        errors.text(&path.child("serviceName"), service, dns1123_label(service));
    }
    let at = path.child("template");
    let found = selector(
        errors,
        &path.child("selector"),
        spec.dig("selector"),
        "statefulset",
        "",
    );
    if let Some(found) = found {
        let mut template = spec.dig("template").clone();
        complete(spec, &mut template);
        selected(errors, &at, &template, &found, true);
        validate_template(errors, &at, &template);
    }
    always_running(errors, &at, spec.dig("template"), "StatefulSet");
}

/// A template as its pods will be: with the volumes that are made for them.
fn complete(spec: &Value, template: &mut Value) {
    let claims = || {
        let templates = spec.list("volumeClaimTemplates").iter();
        templates.map(|c| c.text("metadata.name"))
    };
    let pod = template.ensure("spec");
    pod.take_key("hostname");
    pod.take_key("subdomain");
    if spec.list("volumeClaimTemplates").is_empty() {
        return;
    }
    let names: Seen<&str> = claims().collect();
    let mut volumes: Vec<Value> = claims()
        .map(|name| json!({"name": name, "persistentVolumeClaim": {"claimName": name}}))
        .collect();
    let own = pod.list("volumes").iter();
    volumes.extend(own.filter(|v| !names.has(v.text("name"))).cloned());
    pod.put("volumes", volumes);
}

fn update_strategy(errors: &mut Errors, path: &FieldPath<'_>, strategy: &Value) {
    let rolling = strategy.dig("rollingUpdate");
    let at = path.child("rollingUpdate");
    match strategy.text("type") {
        "" => errors.required(path, ""),
        "OnDelete" => {
            if !rolling.is_null() {
                // Upstream shows the struct, in Go's field names and order.
                let mut error = FieldError::invalid(
                    &at,
                    &Value::Null,
                    "only allowed for updateStrategy 'RollingUpdate'",
                );
                error.value = Some(format!(
                    "{{\"Partition\":{},\"MaxUnavailable\":{}}}",
                    rolling.int("partition").unwrap_or_default(),
                    rolling.dig("maxUnavailable")
                ));
                errors.push(error);
            }
        }
        "RollingUpdate" => {
            errors.non_negative(&at.child("partition"), rolling.int("partition"));
            let unavailable = rolling.dig("maxUnavailable");
            if !unavailable.is_null() {
                let at = at.child("maxUnavailable");
                int_or_percent(errors, &at, unavailable);
                if size(unavailable) == 0 {
                    errors.invalid_value(&at, unavailable, "cannot be 0");
                }
                not_above_hundred(errors, &at, unavailable);
            }
        }
        _ => errors.invalid_value(path, strategy, "must be 'RollingUpdate' or 'OnDelete'"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::groups::check::{kind, template, with_spec};

    fn with(spec: Value) -> Value {
        let base = json!({"spec": {"selector": {"matchLabels": {"a": "b"}}, "template": template()}});
        with_spec(base, &spec)
    }

    #[track_caller]
    fn check(spec: Value, expected: &[&str]) {
        kind("statefulsets.apps").create(&with(spec), expected);
    }

    #[test]
    fn names_are_labels() {
        let mut set = with(json!({}));
        set["metadata"] = json!({"name": "a.b"});
        kind("statefulsets.apps").create(
            &set,
            &[r#"metadata.name: Invalid value: "a.b": must not contain dots"#],
        );
    }

    #[test]
    fn stateful_sets_are_validated() {
        check(json!({"serviceName": "s"}), &[]);
        check(
            json!({"podManagementPolicy": "Some", "replicas": -1, "ordinals": {"start": -1}}),
            &[
                r#"spec.podManagementPolicy: Invalid value: "Some": must be 'OrderedReady' or 'Parallel'"#,
                "spec.replicas: Invalid value: -1: must be greater than or equal to 0",
                "spec.ordinals.start: Invalid value: -1: must be greater than or equal to 0",
            ],
        );
        check(
            json!({"updateStrategy": {"type": "OnDelete", "rollingUpdate": {"partition": 1}}}),
            &[
                r#"spec.updateStrategy.rollingUpdate: Invalid value: {"Partition":1,"MaxUnavailable":null}: only allowed for updateStrategy 'RollingUpdate'"#,
            ],
        );
        check(
            json!({"persistentVolumeClaimRetentionPolicy": {"whenDeleted": "Keep"}}),
            &[
                r#"spec.persistentVolumeClaimRetentionPolicy.whenDeleted: Unsupported value: "Keep": supported values: "Retain", "Delete""#,
            ],
        );
    }

    #[test]
    fn little_of_a_stateful_set_changes() {
        let sets = kind("statefulsets.apps");
        sets.defaults(
            &with(json!({})),
            &json!({"spec": {"podManagementPolicy": "OrderedReady", "serviceName": "", "replicas": 1, "revisionHistoryLimit": 10,
                "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": 0}},
                "persistentVolumeClaimRetentionPolicy": {"whenDeleted": "Retain", "whenScaled": "Retain"}}}),
        );
        sets.update(
            &with(json!({})),
            &json!({"spec": {"replicas": 3, "minReadySeconds": 1}}),
            &[],
        );
        sets.update(
            &with(json!({})),
            &json!({"spec": {"serviceName": "t"}}),
            &["spec: Forbidden: updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', 'updateStrategy', 'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are forbidden"],
        );
    }

    #[test]
    fn one_pod_at_a_time_is_replaced() {
        let mut object = json!({"spec": {"selector": {"matchLabels": {"a": "b"}}, "template": crate::groups::check::template()}});
        object["spec"]["updateStrategy"] =
            json!({"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 2}});
        let made = kind("statefulsets.apps").created(&object);
        assert_eq!(
            made["spec"]["updateStrategy"]["rollingUpdate"],
            json!({"partition": 0})
        );
    }
}
