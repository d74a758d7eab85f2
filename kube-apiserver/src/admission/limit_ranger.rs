//! LimitRanger: a namespace's limit ranges give containers their defaults and bound what pods and claims ask for.

use generic_server::ApiError;
use generic_server::admission::{AdmissionPlugin, Attributes, Operation};
use machinery::GroupVersionResource;
use machinery::go;
use machinery::quantity::Quantity;
use serde_json::Value;

use super::{forbidden, is};
use crate::client::Client;
use crate::json::Json;
use crate::quantity::amount;
use crate::resources::{Amounts, amounts, pod_limits, pod_requests};

const ANNOTATION: &str = "kubernetes.io/limit-ranger";

#[derive(Debug)]
pub(super) struct LimitRanger(pub(super) Client);

#[async_trait::async_trait]
impl AdmissionPlugin for LimitRanger {
    fn name(&self) -> &'static str {
        "LimitRanger"
    }

    fn handles(&self, operation: Operation, gvr: &GroupVersionResource, subresource: &str) -> bool {
        let pods = is(gvr, "", "pods");
        match (operation, subresource) {
            (Operation::Create, "") => pods || is(gvr, "", "persistentvolumeclaims"),
            (Operation::Update, "resize") => pods,
            (Operation::Update, "") => is(gvr, "", "persistentvolumeclaims"),
            _ => false,
        }
    }

    async fn admit(&self, attributes: &Attributes<'_>, object: Option<&mut Value>) -> Result<(), ApiError> {
        let Some(pod) = object.filter(|_| is(attributes.gvr, "", "pods")) else {
            return Ok(());
        };
        for range in self.0.list(("", "limitranges"), attributes.namespace).await? {
            fill(pod, &range.value());
        }
        Ok(())
    }

    async fn validate(&self, attributes: &Attributes<'_>, object: Option<&Value>) -> Result<(), ApiError> {
        let Some(object) = object else { return Ok(()) };
        if attributes
            .old
            .is_some_and(|old| old.has("metadata.deletionTimestamp"))
        {
            return Ok(());
        }
        for range in self.0.list(("", "limitranges"), attributes.namespace).await? {
            let range = range.value();
            let errors = match is(attributes.gvr, "", "pods") {
                true => check_pod(&range, object),
                false => check_claim(&range, object),
            };
            if !errors.is_empty() {
                return Err(forbidden(attributes, Some(object), go::aggregate(&errors)));
            }
        }
        Ok(())
    }
}

/// Gives containers what the range has defaults for, and says so in an annotation.
fn fill(pod: &mut Value, range: &Value) {
    let containers = range
        .list("spec.limits")
        .iter()
        .filter(|l| l.text("type") == "Container");
    let (mut limits, mut requests) = (
        Value::Object(Default::default()),
        Value::Object(Default::default()),
    );
    for limit in containers {
        for (name, value) in limit.entries("default") {
            limits.put(name, value.clone());
        }
        for (name, value) in limit.entries("defaultRequest") {
            requests.put(name, value.clone());
        }
    }
    let mut notes: Vec<String> = Vec::new();
    for (list, what) in [
        ("spec.containers", "container"),
        ("spec.initContainers", "init container"),
    ] {
        for container in pod.list_mut(list) {
            let name = container.text("name").to_string();
            for (key, defaults, noun) in [("requests", &requests, "request"), ("limits", &limits, "limit")] {
                let mut set: Vec<&str> = Vec::new();
                for (resource, value) in defaults.as_object().into_iter().flatten() {
                    let have = container.ensure("resources").ensure(key);
                    if have.get(resource).is_none() {
                        have.put(resource, value.clone());
                        set.push(resource);
                    }
                }
                if !set.is_empty() {
                    notes.push(format!("{} {noun} for {what} {name}", set.join(", ")));
                }
            }
        }
    }
    if !notes.is_empty() {
        let text = format!("LimitRanger plugin set: {}", notes.join("; "));
        pod.ensure("metadata").ensure("annotations").put(ANNOTATION, text);
    }
}

fn check_pod(range: &Value, pod: &Value) -> Vec<String> {
    let mut errors = Vec::new();
    for limit in range.list("spec.limits") {
        match limit.text("type") {
            "Container" => {
                for list in ["spec.containers", "spec.initContainers"] {
                    for container in pod.list(list) {
                        let requests = amounts(container.dig("resources.requests"));
                        let limits = amounts(container.dig("resources.limits"));
                        constraints(&mut errors, limit, &requests, &limits);
                    }
                }
            }
            "Pod" => {
                let spec = pod.dig("spec");
                constraints(&mut errors, limit, &pod_requests(spec), &pod_limits(spec));
            }
            _ => {}
        }
    }
    errors
}

fn check_claim(range: &Value, claim: &Value) -> Vec<String> {
    let mut errors = Vec::new();
    let requests = amounts(claim.dig("spec.resources.requests"));
    let claims = range.list("spec.limits").iter();
    for limit in claims.filter(|l| l.text("type") == "PersistentVolumeClaim") {
        for (name, bound) in quantities(limit, "min") {
            minimum(
                &mut errors,
                "PersistentVolumeClaim",
                name,
                &bound,
                &requests,
                &Amounts::new(),
            );
        }
        for (name, bound) in quantities(limit, "max") {
            let text = format!("maximum {name} usage per PersistentVolumeClaim is {bound}");
            match requests.get(name) {
                None => errors.push(format!("{text}.  No request is specified")),
                Some(request) if *request > bound => {
                    errors.push(format!("{text}, but request is {request}"));
                }
                Some(_) => {}
            }
        }
    }
    errors
}

fn quantities<'a>(limit: &'a Value, key: &str) -> impl Iterator<Item = (&'a str, Quantity)> {
    limit
        .object_at(key)
        .into_iter()
        .flatten()
        .filter_map(|(name, value)| Some((name.as_str(), amount(value)?)))
}

fn constraints(errors: &mut Vec<String>, limit: &Value, requests: &Amounts, limits: &Amounts) {
    let kind = limit.text("type");
    for (name, bound) in quantities(limit, "min") {
        minimum(errors, kind, name, &bound, requests, limits);
    }
    for (name, bound) in quantities(limit, "max") {
        let text = format!("maximum {name} usage per {kind} is {bound}");
        match (limits.get(name), requests.get(name)) {
            (None, _) => errors.push(format!("{text}.  No limit is specified")),
            (Some(limit), _) if *limit > bound => errors.push(format!("{text}, but limit is {limit}")),
            (_, Some(request)) if *request > bound => {
                errors.push(format!("{text}, but request is {request}"));
            }
            _ => {}
        }
    }
    for (name, bound) in quantities(limit, "maxLimitRequestRatio") {
        let text = format!("{name} max limit to request ratio per {kind} is {bound}");
        let value = |list: &Amounts| list.get(name).map(Quantity::as_f64).filter(|v| *v != 0.0);
        match (value(requests), value(limits)) {
            (None, _) => errors.push(format!("{text}, but no request is specified or request is 0")),
            (_, None) => errors.push(format!("{text}, but no limit is specified or limit is 0")),
            (Some(request), Some(limit)) if limit / request > bound.as_f64() => {
                errors.push(format!("{text}, but provided ratio is {:.6}", limit / request));
            }
            _ => {}
        }
    }
}

fn minimum(
    errors: &mut Vec<String>,
    kind: &str,
    name: &str,
    bound: &Quantity,
    requests: &Amounts,
    limits: &Amounts,
) {
    let text = format!("minimum {name} usage per {kind} is {bound}");
    match (requests.get(name), limits.get(name)) {
        (None, _) => errors.push(format!("{text}.  No request is specified")),
        (Some(request), _) if request < bound => errors.push(format!("{text}, but request is {request}")),
        (_, Some(limit)) if limit < bound => errors.push(format!("{text}, but limit is {limit}")),
        _ => {}
    }
}
