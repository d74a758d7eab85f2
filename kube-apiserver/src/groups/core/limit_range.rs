//! LimitRange.

use std::collections::BTreeSet;

use machinery::names::qualified_name;
use machinery::quantity::Quantity;
use machinery::{FieldPath, meta};
use serde_json::Value;

use super::resource_names::{STANDARD, overcommit_allowed, resource_name};
use crate::errors::Errors;
use crate::json::Json;
use crate::quantity::{amount, round_lists};
use crate::rules::Rules;
use crate::unique::Seen;

pub(crate) static RULES: Rules = Rules {
    create_on_update: true,
    prepare_create: |_, object| {
        if meta::name(object).is_empty() {
            meta::set(object, "name", uuid::Uuid::new_v4().to_string());
        }
    },
    default: |object| {
        for limit in object.list_mut("spec.limits") {
            round_lists(
                limit,
                &["max", "min", "default", "defaultRequest", "maxLimitRequestRatio"],
            );
            fill_in(limit);
        }
    },
    validate,
    validate_update: |errors, object, _| validate(errors, object),
    ..Rules::PLAIN
};

/// Containers: defaults follow the maximum, default requests follow the defaults, and the minimum after that.
fn fill_in(limit: &mut Value) {
    if limit.text("type") != "Container" {
        return;
    }
    for key in ["default", "defaultRequest"] {
        limit.ensure(key);
    }
    for (to, from) in [
        ("default", "max"),
        ("defaultRequest", "default"),
        ("defaultRequest", "min"),
    ] {
        let source = limit.dig(from).clone();
        let target = limit.ensure(to);
        for (name, value) in source.as_object().into_iter().flatten() {
            target.fill(name, value.clone());
        }
    }
    for key in ["default", "defaultRequest"] {
        if limit.entries(key).next().is_none() {
            limit.take_key(key);
        }
    }
}

fn validate(errors: &mut Errors, object: &Value) {
    let path = FieldPath::new("spec.limits");
    let mut kinds = Seen::default();
    for (index, limit) in object.list("spec.limits").iter().enumerate() {
        let path = path.index(index);
        let kind = limit.text("type");
        limit_type(errors, &path.child("type"), kind);
        if kinds.again(kind) {
            errors.duplicate(&path.child("type"), kind);
        }
        item(errors, &path, limit, kind);
    }
}

fn limit_type(errors: &mut Errors, path: &FieldPath<'_>, kind: &str) {
    let texts = qualified_name(kind);
    if !texts.is_empty() {
        return errors.text(path, kind, texts);
    }
    if !kind.contains('/') && !matches!(kind, "Pod" | "Container" | "PersistentVolumeClaim") {
        errors.invalid(path, kind, "must be a standard limit type or fully qualified");
    }
}

/// A resource's name; `path` is where it is used.
fn name(errors: &mut Errors, path: &FieldPath<'_>, kind: &str, name: &str) {
    if matches!(kind, "Pod" | "Container") {
        return resource_name(errors, path, name);
    }
    standard_name(errors, path, name);
}

/// A name that is standard or has a prefix.
pub(super) fn standard_name(errors: &mut Errors, path: &FieldPath<'_>, name: &str) {
    let texts = qualified_name(name);
    if !texts.is_empty() {
        return errors.text(path, name, texts);
    }
    if !name.contains('/') && !STANDARD.contains(&name) && !is_huge_page(name) {
        errors.invalid(path, name, "must be a standard resource type or fully qualified");
    }
}

/// Whether a resource of limits and quotas is one of huge pages.
pub(super) fn is_huge_page(name: &str) -> bool {
    name.starts_with("hugepages-") || name.starts_with("requests.hugepages-")
}

fn item(errors: &mut Errors, path: &FieldPath<'_>, limit: &Value, kind: &str) {
    let pod = kind == "Pod";
    let mut names = BTreeSet::new();
    for key in ["max", "min", "default", "defaultRequest", "maxLimitRequestRatio"] {
        let at = path.child(key);
        if pod && key.starts_with("default") {
            if limit.entries(key).next().is_some() {
                errors.forbidden(&at, "may not be specified when `type` is 'Pod'");
            }
            continue;
        }
        if key == "maxLimitRequestRatio"
            && kind == "PersistentVolumeClaim"
            && limit.dig("min").text("storage").is_empty()
            && limit.dig("max").text("storage").is_empty()
        {
            errors.required(
                &path.child("limits"),
                "either minimum or maximum storage value is required, but neither was provided",
            );
        }
        for (resource, _) in limit.entries(key) {
            name(errors, &at.key(resource), kind, resource);
            names.insert(resource);
        }
    }
    for name in names {
        amounts(errors, path, limit, name, pod);
    }
}

/// Checks that the amounts of one resource agree.
fn amounts(errors: &mut Errors, path: &FieldPath<'_>, limit: &Value, name: &str, pod: bool) {
    let get = |key: &str| limit.dig(key).get(name).and_then(amount);
    let (min, max) = (get("min"), get("max"));
    let (default, request) = match pod {
        true => (None, None),
        false => (get("default"), get("defaultRequest")),
    };
    let mut above = |low: &Option<Quantity>,
                     high: &Option<Quantity>,
                     key: &str,
                     shown: &Option<Quantity>,
                     low_name: &str,
                     high_name: &str| {
        let (Some(low), Some(high), Some(shown)) = (low, high, shown) else {
            return;
        };
        if low > high {
            let text = format!("{low_name} value {low} is greater than {high_name} value {high}");
            errors.invalid(&path.child(key).key(name), shown.to_string(), text);
        }
    };
    above(&min, &max, "min", &min, "min", "max");
    above(
        &min,
        &request,
        "defaultRequest",
        &request,
        "min",
        "default request",
    );
    above(
        &request,
        &max,
        "defaultRequest",
        &request,
        "default request",
        "max",
    );
    above(
        &request,
        &default,
        "defaultRequest",
        &request,
        "default request",
        "default limit",
    );
    above(&min, &default, "default", &min, "min", "default");
    above(&default, &max, "default", &max, "default", "max");
    if let Some(ratio) = get("maxLimitRequestRatio") {
        let path = path.child("maxLimitRequestRatio");
        let at = path.key(name);
        if ratio.milli_value() < 1000 {
            errors.invalid(&at, ratio.to_string(), format!("ratio {ratio} is less than 1"));
        }
        if let (Some(min), Some(max)) = (&min, &max) {
            let most = max.as_f64() / min.as_f64();
            if ratio.as_f64() > most {
                let text = format!("ratio {ratio} is greater than max/min = {most:.6}");
                errors.invalid(&at, ratio.to_string(), text);
            }
        }
    }
    if let (Some(default), Some(request)) = (&default, &request)
        && !overcommit_allowed(name)
        && default != request
    {
        let text = format!("default value {default} must equal to defaultRequest value {request} in {name}");
        errors.invalid(&path.child("defaultRequest").key(name), request.to_string(), text);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::groups::check::kind;

    #[track_caller]
    fn check(limits: Value, expected: &[&str]) {
        kind("limitranges").create(&json!({"spec": {"limits": limits}}), expected);
    }

    #[test]
    fn amounts_agree() {
        check(
            json!([{"type": "Container", "max": {"cpu": "2"}, "min": {"cpu": "1"}}]),
            &[],
        );
        check(
            json!([{"type": "Container", "max": {"cpu": "1"}, "min": {"cpu": "2"}, "default": {"cpu": "1"}, "defaultRequest": {"cpu": "2"}}]),
            &[
                r#"spec.limits[0].min[cpu]: Invalid value: "2": min value 2 is greater than max value 1"#,
                r#"spec.limits[0].defaultRequest[cpu]: Invalid value: "2": default request value 2 is greater than max value 1"#,
                r#"spec.limits[0].defaultRequest[cpu]: Invalid value: "2": default request value 2 is greater than default limit value 1"#,
                r#"spec.limits[0].default[cpu]: Invalid value: "2": min value 2 is greater than default value 1"#,
            ],
        );
        check(
            json!([{"type": "Pod", "default": {"cpu": "1"}}, {"type": "Pod"}]),
            &[
                "spec.limits[0].default: Forbidden: may not be specified when `type` is 'Pod'",
                r#"spec.limits[1].type: Duplicate value: "Pod""#,
            ],
        );
        check(
            json!([{"type": "Thing"}]),
            &[
                r#"spec.limits[0].type: Invalid value: "Thing": must be a standard limit type or fully qualified"#,
            ],
        );
        check(
            json!([{"type": "PersistentVolumeClaim"}]),
            &[
                "spec.limits[0].limits: Required value: either minimum or maximum storage value is required, but neither was provided",
            ],
        );
    }

    #[test]
    fn defaults_follow_the_maximum() {
        kind("limitranges").defaults(
            &json!({"spec": {"limits": [{"type": "Container", "max": {"cpu": "2"}}]}}),
            &json!({"spec": {"limits": [{"type": "Container", "max": {"cpu": "2"}, "default": {"cpu": "2"}, "defaultRequest": {"cpu": "2"}}]}}),
        );
    }

    #[test]
    fn a_range_without_a_name_gets_one() {
        let made = kind("limitranges").created(&json!({"metadata": {"name": ""}, "spec": {"limits": []}}));
        assert_eq!(made["metadata"]["name"].as_str().map(str::len), Some(36));
    }
}
