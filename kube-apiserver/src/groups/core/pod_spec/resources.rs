//! Requests, limits and claims of containers, and their resize policies.

use machinery::names::qualified_name;
use machinery::quantity::Quantity;
use machinery::{FieldError, FieldErrorKind, FieldPath, limits};
use serde_json::Value;

use super::label;
use crate::errors::{Errors, Ratchet};
use crate::groups::core::resource_names::{STANDARD, overcommit_allowed, quantity_value, resource_name};
use crate::json::Json;
use crate::quantity::amount;
use crate::resources::{amounts, limits_of_containers, requests_of_containers};
use crate::unique::Seen;

/// The names of a pod's resource claims.
#[derive(Debug, Default)]
pub(crate) struct Claims<'a> {
    names: Seen<&'a str>,
    /// The first of them for a text.
    shown: Vec<&'a str>,
    bytes: usize,
}

impl<'a> Claims<'a> {
    /// Adds a name and says whether it is new.
    pub(super) fn add(&mut self, name: &'a str) -> bool {
        if self.names.again(name) {
            return false;
        }
        self.bytes = self.bytes.saturating_add(name.len());
        if self.bytes <= limits::SHOWN_VALUE_BYTES {
            self.shown.push(name);
        }
        true
    }

    /// The names in words; of many the first, as far as a shown value may go.
    fn describe(&self) -> String {
        let cut = if self.bytes > limits::SHOWN_VALUE_BYTES {
            ", ..."
        } else {
            ""
        };
        format!("{}{cut}", self.shown.join(", "))
    }
}

/// Limits and requests of a container.
pub(crate) fn resources(errors: &mut Errors, path: &FieldPath<'_>, value: &Value, claims: &Claims<'_>) {
    requirements(errors, path, value, claims, resource_name);
}

/// Limits and requests, whose names `check_name` looks at.
fn requirements(
    errors: &mut Errors,
    path: &FieldPath<'_>,
    value: &Value,
    claims: &Claims<'_>,
    check_name: fn(&mut Errors, &FieldPath<'_>, &str),
) {
    let (limits, requests) = (path.child("limits"), path.child("requests"));
    let limit_values = value.dig("limits");
    let (mut huge, mut compute) = (false, false);
    for (kind, at) in [("limits", &limits), ("requests", &requests)] {
        for (name, raw) in value.entries(kind) {
            let at_name = at.key(name);
            check_name(errors, &at_name, name);
            let Some(quantity) = amount(raw) else { continue };
            quantity_value(errors, &at_name, name, raw);
            if kind == "limits" {
                whole_pages(errors, &at_name, name, &quantity);
            }
            huge |= is_huge_page(name);
            compute |= matches!(name, "cpu" | "memory");
            if kind == "limits" {
                continue;
            }
            let overcommit = overcommit_allowed(name);
            match limit_values.get(name).and_then(amount) {
                Some(limit) if quantity != limit && !overcommit => errors.invalid(
                    at,
                    quantity.to_string(),
                    format!("must be equal to {name} limit of {limit}"),
                ),
                Some(limit) if quantity > limit => errors.invalid(
                    at,
                    quantity.to_string(),
                    format!("must be less than or equal to {name} limit of {limit}"),
                ),
                Some(_) => {}
                None if !overcommit => {
                    errors.required(&limits, "Limit must be set for non overcommitable resources")
                }
                None => {}
            }
            whole_pages(errors, &at_name, name, &quantity);
        }
    }
    if huge && !compute {
        errors.forbidden(path, "HugePages require cpu or memory");
    }
    let at = path.child("claims");
    let mut seen: Seen<(&str, &str)> = Seen::default();
    for (index, claim) in value.list("claims").iter().enumerate() {
        let at = at.index(index);
        let name = claim.text("name");
        if name.is_empty() {
            errors.required(&at, "");
            continue;
        }
        let request = claim.text("request");
        if !request.is_empty() && !seen.has(&(name, "")) {
            label(errors, &at.child("request"), request);
        }
        // A claim as a whole collides with each of its requests that comes later.
        if seen.again((name, request)) || seen.has(&(name, "")) && !request.is_empty() {
            let key = match request {
                "" => name.to_string(),
                request => format!("{name}/{request}"),
            };
            errors.duplicate(&at, key);
        }
        if !claims.names.has(name) {
            let detail = match claims.bytes {
                0 => "must be one of the names in pod.spec.resourceClaims which is empty".to_string(),
                _ => format!(
                    "must be one of the names in pod.spec.resourceClaims: {}",
                    claims.describe()
                ),
            };
            let mut error = FieldError::not_found(&at, &Value::from(name));
            debug_assert_eq!(error.kind, FieldErrorKind::NotFound);
            error.detail = detail;
            errors.push(error);
        }
    }
}

/// What a pod as a whole requests and is limited to, beside its containers.
pub(super) fn of_pod(errors: &mut Errors, path: &FieldPath<'_>, spec: &Value, claims: &Claims<'_>) {
    if spec.text("os.name") == "windows" {
        return errors.forbidden(path, "may not be set for a windows pod");
    }
    let own = spec.dig("resources");
    if own.has("claims") {
        errors.forbidden(
            &path.child("claims"),
            "claims may not be set for Resources at pod-level",
        );
    }
    requirements(errors, path, own, claims, name_of_pod);
    consistency(errors, path, spec);
}

/// The name of a resource of pods as a whole.
fn name_of_pod(errors: &mut Errors, path: &FieldPath<'_>, name: &str) {
    let texts = qualified_name(name);
    let known = matches!(name, "cpu" | "memory") || is_huge_page(name);
    if !texts.is_empty() {
        errors.text(path, name, texts);
    } else if !name.contains('/') && !STANDARD.contains(&name) && !known {
        errors.invalid(path, name, "must be a standard resource type or fully qualified");
    } else if !known {
        errors.unsupported(path, name, &["cpu", "hugepages-", "memory"]);
    }
}

/// No container may ask for more than the pod has, nor may all together.
fn consistency(errors: &mut Errors, path: &FieldPath<'_>, spec: &Value) {
    let own = |kind: &str| amounts(spec.dig("resources").dig(kind));
    let (requests, limits) = (own("requests"), own("limits"));
    let at = path.child("requests");
    for (name, sum) in &requests_of_containers(spec) {
        if let Some(request) = requests.get(name).filter(|request| sum > request) {
            errors.invalid(
                &at.key(name),
                request.to_string(),
                format!("must be greater than or equal to aggregate container requests of {sum}"),
            );
        }
    }
    let at = path.child("limits");
    for (name, sum) in &limits_of_containers(spec) {
        if let Some(limit) = limits.get(name).filter(|limit| is_huge_page(name) && sum > limit) {
            errors.invalid(
                &at.key(name),
                limit.to_string(),
                format!("must be greater than or equal to aggregate container limits of {sum}"),
            );
        }
    }
    let at = path.child("containers");
    for (index, container) in spec.list("containers").iter().enumerate() {
        let at = at.index(index);
        for (name, limit) in &amounts(container.dig("resources.limits")) {
            if let Some(most) = limits.get(name).filter(|most| limit > most) {
                errors.invalid(
                    &at.key(name).child("limits"),
                    limit.to_string(),
                    format!("must be less than or equal to pod limits of {most}"),
                );
            }
        }
    }
}

/// Huge pages are a number of pages, whose size the name says.
fn whole_pages(errors: &mut Errors, path: &FieldPath<'_>, name: &str, quantity: &Quantity) {
    let Some(size) = name.strip_prefix(HUGE_PAGES) else {
        return;
    };
    let size = Quantity::parse(size)
        .ok()
        .filter(|size| size.signum() > 0 && size.milli_value() % 1_000 == 0);
    let whole = size.is_some_and(|size| quantity.value().checked_rem(size.value()) == Some(0));
    if !whole {
        errors.ratcheted(Ratchet::HugePages, |errors| {
            let shown = quantity.to_string();
            let text = format!("{shown} is not positive integer multiple of {name}");
            errors.invalid(path, shown, text);
        });
    }
}

/// What the names of huge pages begin with.
const HUGE_PAGES: &str = "hugepages-";

fn is_huge_page(name: &str) -> bool {
    name.starts_with(HUGE_PAGES)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::groups::check::{check_container as check, kind};

    #[test]
    fn requests_and_limits() {
        let both = |name: &str, request: &str, limit: &str| json!({"resources": {"requests": {name: request}, "limits": {name: limit}}});
        check(&both("cpu", "1", "1"), &[]);
        check(
            &both("cpu", "1001m", "1"),
            &[
                r#"spec.containers[0].resources.requests: Invalid value: "1001m": must be less than or equal to cpu limit of 1"#,
            ],
        );
        check(&both("example.com/gpu", "2", "2"), &[]);
        check(
            &both("example.com/gpu", "1", "2"),
            &[
                r#"spec.containers[0].resources.requests: Invalid value: "1": must be equal to example.com/gpu limit of 2"#,
            ],
        );
        check(
            &json!({"resources": {"requests": {"example.com/gpu": "1"}}}),
            &[
                "spec.containers[0].resources.limits: Required value: Limit must be set for non overcommitable resources",
            ],
        );
        check(
            &json!({"resources": {"limits": {"example.com/gpu": "500m"}}}),
            &[
                r#"spec.containers[0].resources.limits[example.com/gpu]: Invalid value: "500m": must be an integer"#,
                r#"spec.containers[0].resources.requests[example.com/gpu]: Invalid value: "500m": must be an integer"#,
            ],
        );
        check(
            &json!({"resources": {"limits": {"hugepages-2Mi": "2Mi"}}}),
            &["spec.containers[0].resources: Forbidden: HugePages require cpu or memory"],
        );
        check(
            &json!({"resources": {"requests": {"cpu": "-1"}}}),
            &[
                r#"spec.containers[0].resources.requests[cpu]: Invalid value: "-1": must be greater than or equal to 0"#,
            ],
        );
        check(
            &json!({"resources": {"requests": {"disk": "1"}}}),
            &[
                r#"spec.containers[0].resources.requests[disk]: Invalid value: "disk": must be a standard resource type or fully qualified"#,
                r#"spec.containers[0].resources.requests[disk]: Invalid value: "disk": must be a standard resource for containers"#,
            ],
        );
    }

    #[test]
    fn claims() {
        let claims = |claims: Value| {
            let resources = json!({"claims": claims});
            let container = json!({"name": "c", "image": "i", "resources": resources});
            json!({"spec": {"containers": [container], "resourceClaims": [{"name": "a", "resourceClaimName": "x"}]}})
        };
        let pods = kind("pods");
        pods.create(
            &claims(json!([{"name": "a", "request": "r"}, {"name": "a", "request": "s"}])),
            &[],
        );
        pods.create(
            &claims(json!([{"name": "a"}, {"name": "a", "request": "s"}])),
            &[r#"spec.containers[0].resources.claims[1]: Duplicate value: "a/s""#],
        );
        pods.create(
            &claims(json!([{"name": "b"}])),
            &[r#"spec.containers[0].resources.claims[0]: Not found: "b": must be one of the names in pod.spec.resourceClaims: a"#],
        );
    }

    #[test]
    fn pods_have_at_least_what_containers_ask_for() {
        let check = |own: Value, resources: Value, expected: &[&str]| {
            let container = json!({"name": "c", "image": "i", "resources": resources});
            let spec = json!({"resources": own, "containers": [container]});
            crate::groups::check::check_pod(&spec, expected);
        };
        let requests = |amount: &str| json!({"requests": {"cpu": amount}});
        let limits = |amount: &str| json!({"limits": {"memory": amount}});
        check(requests("1"), requests("1"), &[]);
        check(
            requests("1"),
            requests("2"),
            &[
                r#"spec.resources.requests[cpu]: Invalid value: "1": must be greater than or equal to aggregate container requests of 2"#,
            ],
        );
        check(
            json!({"limits": {"memory": "1Gi"}, "requests": {"memory": "1Gi"}}),
            json!({"limits": {"memory": "2Gi"}, "requests": {"memory": "1Gi"}}),
            &[
                r#"spec.resources.containers[0][memory].limits: Invalid value: "2Gi": must be less than or equal to pod limits of 1Gi"#,
            ],
        );
        check(limits("1Gi"), limits("1Gi"), &[]);
        let pages = |amount: &str| json!({"limits": {"cpu": "1", "hugepages-2Mi": amount}});
        check(pages("4Mi"), pages("2Mi"), &[]);
        check(
            json!({"requests": {"cpu": "1"}, "claims": [{"name": "x"}]}),
            json!({}),
            &[
                "spec.resources.claims: Forbidden: claims may not be set for Resources at pod-level",
                r#"spec.resources.claims[0]: Not found: "x": must be one of the names in pod.spec.resourceClaims which is empty"#,
            ],
        );
    }

    #[test]
    fn resize_policies() {
        let policies = |resources: &[&str]| {
            let all: Vec<Value> = resources
                .iter()
                .map(|name| json!({"resourceName": name, "restartPolicy": "NotRequired"}))
                .collect();
            json!({"resizePolicy": all})
        };
        check(&policies(&["cpu", "memory"]), &[]);
        check(
            &policies(&["cpu", "cpu"]),
            &[r#"spec.containers[0].resizePolicy[1]: Duplicate value: "cpu""#],
        );
        check(
            &policies(&["storage"]),
            &[
                r#"spec.containers[0].resizePolicy: Unsupported value: "storage": supported values: "cpu", "memory""#,
            ],
        );
    }

    #[test]
    fn huge_pages_are_whole() {
        let of = |name: &str| json!({"resources": {"limits": {"cpu": "1", name: "3Mi"}, "requests": {"cpu": "1", name: "3Mi"}}});
        check(&of("hugepages-1Mi"), &[]);
        for name in ["hugepages-2Mi", "hugepages-0", "hugepages-1.5", "hugepages-x"] {
            let at = |kind: &str| {
                format!(
                    r#"spec.containers[0].resources.{kind}[{name}]: Invalid value: "3Mi": 3Mi is not positive integer multiple of {name}"#
                )
            };
            check(&of(name), &[&at("limits"), &at("requests")]);
        }
    }
}
