//! HorizontalPodAutoscaler.

use generic_server::registry::strategy::{MetadataRules, OtherVersion};
use generic_server::resource::Converter;
use machinery::names::path_segment_name;
use machinery::{FieldError, FieldPath};
use serde_json::Value;

use super::conversion::V1;
use super::defaults::default;
use crate::errors::{Errors, Ratchet};
use crate::groups::core::resource_names::resource_name;
use crate::json::Json;
use crate::quantity::amount;
use crate::rules::Rules;

pub(crate) static RULES: Rules = Rules {
    metadata: MetadataRules::CREATE,
    status: true,
    default,
    validate: |errors, object| validate(errors, object, &Value::Null),
    validate_update: validate,
    validate_status: |errors, new, _| validate_status(errors, new),
    versions: &[OtherVersion {
        api_version: "autoscaling/v1",
        to: |object| V1.from_stored(object),
        from: |object| V1.to_stored(object),
    }],
    ..Rules::PLAIN
};

/// v1 has its own defaults; it is validated as v1 fields only.
pub(crate) static RULES_V1: Rules = Rules {
    metadata: MetadataRules::CREATE,
    status: true,
    default: |object| {
        let metrics = object.dig("metadata.annotations").get(METRICS).is_some();
        let spec = object.ensure("spec");
        spec.fill("minReplicas", 1);
        if !metrics {
            spec.fill("targetCPUUtilizationPercentage", CPU_PERCENT);
        }
        let status = object.ensure("status");
        status.fill("currentReplicas", 0);
        status.fill("desiredReplicas", 0);
    },
    validate: |errors, object| validate_v1(errors, object, &Value::Null),
    validate_update: validate_v1,
    // What v1 has no fields for is in annotations, also in the answer to the write that says it.
    prepare_status: |object, _| {
        if let Ok(again) = V1
            .to_stored(object.clone())
            .and_then(|stored| V1.from_stored(stored))
        {
            *object = again;
        }
    },
    validate_status: |errors, new, _| validate_status(errors, new),
    versions: &[OtherVersion {
        api_version: "autoscaling/v2",
        to: |object| V1.to_stored(object),
        from: |object| V1.from_stored(object),
    }],
    ..Rules::PLAIN
};

/// Where v1 keeps the metrics that it has no fields for.
const METRICS: &str = "autoscaling.alpha.kubernetes.io/metrics";
/// The target of autoscalers that name none.
const CPU_PERCENT: i64 = 80;

fn validate(errors: &mut Errors, object: &Value, old: &Value) {
    let path = FieldPath::new("spec");
    let spec = object.dig("spec");
    replicas(errors, &path, spec);
    let (target, before) = (spec.dig("scaleTargetRef"), old.dig("spec.scaleTargetRef"));
    let at = path.child("scaleTargetRef");
    reference(errors, &at, target);
    // An unchanged apiVersion and kind are not checked again. ReplicationController is the one target kind of the core group.
    let stays = ["apiVersion", "kind"]
        .iter()
        .all(|key| target.text(key) == before.text(key));
    if before.is_null() || !stays {
        version(
            errors,
            &at,
            target,
            target.text("kind") != "ReplicationController",
        );
    }
    let metrics = path.child("metrics");
    for (index, metric) in spec.list("metrics").iter().enumerate() {
        validate_metric(errors, &metrics.index(index), metric);
    }
    let zero_capable = |m: &Value| matches!(m.text("type"), "Object" | "External");
    if spec.int("minReplicas") == Some(0) && !spec.list("metrics").iter().any(zero_capable) {
        errors.forbidden(
            &metrics,
            "must specify at least one Object or External metric to support scaling to zero replicas",
        );
    }
    let behavior = path.child("behavior");
    for key in ["scaleUp", "scaleDown"] {
        let rules = spec.dig("behavior").dig(key);
        if !rules.is_null() {
            validate_rules(errors, &behavior.child(key), rules);
        }
    }
}

/// v1 is validated as what is stored of it: its target is a metric there, and annotations hold what it has no fields for.
fn validate_v1(errors: &mut Errors, object: &Value, old: &Value) {
    let old = match old.is_null() {
        true => Value::Null,
        false => V1.to_stored(old.clone()).unwrap_or_default(),
    };
    match V1.to_stored(object.clone()) {
        Ok(stored) => validate(errors, &stored, &old),
        Err(why) => errors.push(FieldError::internal(&FieldPath::ROOT, why.message())),
    }
}

fn validate_status(errors: &mut Errors, object: &Value) {
    let path = FieldPath::new("status");
    for key in ["currentReplicas", "desiredReplicas"] {
        errors.non_negative(&path.child(key), object.dig("status").int(key));
    }
}

fn replicas(errors: &mut Errors, path: &FieldPath<'_>, spec: &Value) {
    if let Some(min) = spec.int("minReplicas").filter(|min| *min < 1) {
        errors.invalid(
            &path.child("minReplicas"),
            min,
            "must be greater than or equal to 1",
        );
    }
    let max = spec.int("maxReplicas").unwrap_or_default();
    let path = path.child("maxReplicas");
    if max == 0 {
        errors.required(&path, "must be set and greater than 0");
    } else if max < 0 {
        errors.invalid(&path, max, "must be greater than or equal to 1");
    }
    if spec.int("minReplicas").is_some_and(|min| max < min) {
        errors.invalid(&path, max, "must be greater than or equal to `minReplicas`");
    }
}

fn reference(errors: &mut Errors, path: &FieldPath<'_>, value: &Value) {
    for key in ["kind", "name"] {
        let text = value.text(key);
        if errors.need(&path.child(key), text) {
            errors.text(&path.child(key), text, path_segment_name(text));
        }
    }
}

fn version(errors: &mut Errors, path: &FieldPath<'_>, value: &Value, need_group: bool) {
    let version = value.text("apiVersion");
    let path = path.child("apiVersion");
    let group = version.split_once('/').map_or("", |(group, _)| group);
    match version.split('/').count() {
        n if n > 2 => errors.invalid(
            &path,
            version,
            format!("unexpected GroupVersion string: {version}"),
        ),
        _ if need_group && group.is_empty() => {
            errors.invalid(&path, version, "apiVersion must specify API group")
        }
        _ => {}
    }
}

const KINDS: &[&str] = &["ContainerResource", "External", "Object", "Pods", "Resource"];

fn validate_metric(errors: &mut Errors, path: &FieldPath<'_>, metric: &Value) {
    let kind = metric.text("type");
    if kind.is_empty() {
        errors.required(&path.child("type"), "must specify a metric source type");
    }
    errors.one_of(&path.child("type"), kind, KINDS);
    let all = ["object", "external", "pods", "resource", "containerResource"];
    let present: Vec<&str> = all.into_iter().filter(|key| metric.has(key)).collect();
    if let Some(first) = present.first() {
        validate_source(errors, &path.child(first), first, metric.dig(first));
    }
    let expected = match kind {
        "Object" => "object",
        "External" => "external",
        "Pods" => "pods",
        "Resource" => "resource",
        "ContainerResource" => "containerResource",
        _ => {
            errors.one_of(&path.child("type"), kind, KINDS);
            ""
        }
    };
    if !expected.is_empty() && !metric.has(expected) {
        errors.required(
            &path.child(expected),
            "must populate information for the given metric source",
        );
    }
    if present.len() != 1 {
        for key in present.into_iter().filter(|key| *key != expected) {
            errors.forbidden(&path.child(key), "must populate the given metric source only");
        }
    }
}

fn validate_source(errors: &mut Errors, path: &FieldPath<'_>, kind: &str, source: &Value) {
    if kind == "object" {
        let (at, described) = (path.child("describedObject"), source.dig("describedObject"));
        reference(errors, &at, described);
        errors.ratcheted(Ratchet::MetricVersion, |errors| {
            version(errors, &at, described, false)
        });
    }
    if matches!(kind, "object" | "external" | "pods") {
        let metric = path.child("metric");
        let path = metric.child("name");
        let name = source.text("metric.name");
        if name.is_empty() {
            errors.required(&path, "must specify a metric name");
        } else {
            errors.text(&path, name, path_segment_name(name));
        }
    } else if source.text("name").is_empty() {
        errors.required(&path.child("name"), "must specify a resource name");
    } else if kind == "containerResource" {
        resource_name(errors, &path.child("name"), source.text("name"));
    }
    if kind == "containerResource" {
        let name = source.text("container");
        if name.is_empty() {
            errors.required(&path.child("container"), "must specify a container");
        } else {
            errors.text(
                &path.child("container"),
                name,
                machinery::names::dns1123_label(name),
            );
        }
    }
    let path = path.child("target");
    let target = source.dig("target");
    validate_target(errors, &path, target);
    let (value, average) = (target.has("value"), target.has("averageValue"));
    let utilization = target.has("averageUtilization");
    match kind {
        "object" if !value && !average => errors.required(
            &path.child("averageValue"),
            "must set either a target value or averageValue",
        ),
        "external" if !value && !average => errors.required(
            &path.child("averageValue"),
            "must set either a target value for metric or a per-pod target",
        ),
        "external" if value && average => errors.forbidden(
            &path.child("value"),
            "may not set both a target value for metric and a per-pod target",
        ),
        "pods" if !average => errors.required(
            &path.child("averageValue"),
            "must specify a positive target averageValue",
        ),
        "resource" | "containerResource" if !utilization && !average => errors.required(
            &path.child("averageUtilization"),
            "must set either a target raw value or a target utilization",
        ),
        "resource" | "containerResource" if utilization && average => errors.forbidden(
            &path.child("averageValue"),
            "may not set both a target raw value and a target utilization",
        ),
        _ => {}
    }
}

fn validate_target(errors: &mut Errors, path: &FieldPath<'_>, target: &Value) {
    let kind = target.text("type");
    if kind.is_empty() {
        errors.required(&path.child("type"), "must specify a metric target type");
    }
    if !matches!(kind, "Utilization" | "Value" | "AverageValue") {
        errors.invalid(
            &path.child("type"),
            kind,
            "must be either Utilization, Value, or AverageValue",
        );
    }
    for key in ["value", "averageValue"] {
        if amount(target.dig(key)).is_some_and(|q| q.signum() != 1) {
            errors.invalid_value(&path.child(key), target.dig(key), "must be positive");
        }
    }
    if let Some(n) = target.int("averageUtilization").filter(|n| *n < 1) {
        errors.invalid(&path.child("averageUtilization"), n, "must be greater than 0");
    }
}

fn validate_rules(errors: &mut Errors, path: &FieldPath<'_>, rules: &Value) {
    let window = path.child("stabilizationWindowSeconds");
    match rules.int("stabilizationWindowSeconds") {
        Some(n) if n < 0 => errors.invalid(&window, n, "must be greater than or equal to zero"),
        Some(n) if n > 3600 => errors.invalid(&window, n, "must be less than or equal to 3600"),
        _ => {}
    }
    if rules.has("selectPolicy") {
        errors.one_of(
            &path.child("selectPolicy"),
            rules.text("selectPolicy"),
            &["Disabled", "Max", "Min"],
        );
    }
    let policies = path.child("policies");
    if rules.list("policies").is_empty() {
        errors.required(&policies, "must specify at least one Policy");
    }
    for (index, policy) in rules.list("policies").iter().enumerate() {
        let path = policies.index(index);
        errors.one_of(&path.child("type"), policy.text("type"), &["Percent", "Pods"]);
        errors.positive(
            &path.child("value"),
            Some(policy.int("value").unwrap_or_default()),
        );
        let period = policy.int("periodSeconds").unwrap_or_default();
        errors.positive(&path.child("periodSeconds"), Some(period));
        if period > 1800 {
            errors.invalid(
                &path.child("periodSeconds"),
                period,
                "must be less than or equal to 1800",
            );
        }
    }
    if amount(rules.dig("tolerance")).is_some_and(|q| q.signum() < 0) {
        errors.push(FieldError::invalid(
            &path.child("tolerance"),
            rules.dig("tolerance"),
            crate::errors::NEGATIVE,
        ));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::groups::check::{kind, with_spec};

    fn with(spec: Value) -> Value {
        let base = json!({"spec": {"maxReplicas": 3, "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"}}});
        with_spec(base, &spec)
    }

    #[track_caller]
    fn check(spec: Value, expected: &[&str]) {
        kind("horizontalpodautoscalers.autoscaling").create(&with(spec), expected);
    }

    #[test]
    fn autoscalers_are_validated() {
        check(json!({}), &[]);
        check(
            json!({"minReplicas": 4}),
            &["spec.maxReplicas: Invalid value: 3: must be greater than or equal to `minReplicas`"],
        );
        check(
            json!({"maxReplicas": 0}),
            &[
                "spec.maxReplicas: Required value: must be set and greater than 0",
                "spec.maxReplicas: Invalid value: 0: must be greater than or equal to `minReplicas`",
            ],
        );
        check(
            json!({"scaleTargetRef": {"apiVersion": "/x", "kind": "Deployment", "name": "d"}}),
            &[r#"spec.scaleTargetRef.apiVersion: Invalid value: "/x": apiVersion must specify API group"#],
        );
        check(
            json!({"scaleTargetRef": {"apiVersion": "apps/v1", "kind": "", "name": "a/b"}}),
            &[
                "spec.scaleTargetRef.kind: Required value",
                r#"spec.scaleTargetRef.name: Invalid value: "a/b": may not contain '/'"#,
            ],
        );
        check(
            json!({"metrics": [{"type": "Resource"}]}),
            &[
                "spec.metrics[0].resource: Required value: must populate information for the given metric source",
            ],
        );
    }

    #[test]
    fn v1_has_a_target_and_is_validated_by_it() {
        let all = crate::groups::check::resources();
        let v1 = all
            .iter()
            .find(|r| &*r.gvk.kind == "HorizontalPodAutoscaler" && &*r.gvk.version == "v1");
        let mut object = serde_json::json!({"metadata": {"name": "a"}, "spec": {"maxReplicas": 1, "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"}}});
        v1.unwrap().strategy.default(&mut object);
        assert_eq!(object["spec"]["targetCPUUtilizationPercentage"], 80);
        object["spec"]["targetCPUUtilizationPercentage"] = 0.into();
        let errors =
            crate::errors::Errors::collect(|errors| super::validate_v1(errors, &object, &Value::Null));
        assert_eq!(
            errors[0].field,
            "spec.metrics[0].resource.target.averageUtilization"
        );
    }
}
