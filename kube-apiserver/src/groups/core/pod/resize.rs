//! `pods/resize`: changes what a pod and its containers request and are limited to. Mirrors `ValidatePodResize`.

use generic_server::registry::strategy::{Strategy, WriteContext};
use machinery::{FieldError, FieldPath};
use serde_json::Value;

use super::{NOWHERE, fill_in, generation, is_mirror, metadata_and_spec, qos_class, reset_metadata};
use crate::errors::Errors;
use crate::json::{Json, same};

/// The lists of containers whose resources can change.
const LISTS: [&str; 2] = ["containers", "initContainers"];
/// The policy that restarts a container for its new resources.
const RESTART: &str = "RestartContainer";

/// The strategy of the subresource.
#[derive(Debug)]
pub(crate) struct Resize;

impl Strategy for Resize {
    fn default(&self, object: &mut Value) {
        fill_in(object);
    }

    fn prepare_for_update(&self, _ctx: &WriteContext<'_>, object: &mut Value, old: &Value) {
        let list = |pod: &Value, key: &str| pod.dig("spec").list(key).len();
        // Containers that come or go are left for validation to refuse.
        if LISTS.iter().all(|key| list(object, key) == list(old, key)) {
            keep_resources(object, old);
        }
        generation(object, old);
    }

    fn validate_update(&self, _ctx: &WriteContext<'_>, pod: &Value, old: &Value) -> Vec<FieldError> {
        Errors::collect(|errors| resize(errors, pod, old))
    }

    fn reset_fields(&self) -> &'static [&'static str] {
        &["status"]
    }
}

/// Makes the pod the old one with the resources and resize policies that were asked for.
fn keep_resources(object: &mut Value, old: &Value) {
    let asked = object.dig("spec").clone();
    object.copy_key("spec", old);
    object.copy_key("status", old);
    reset_metadata(object, old);
    let spec = object.ensure("spec");
    spec.copy_key("resources", &asked);
    for list in LISTS {
        let asked_list = asked.list(list);
        let before = spec.list(list);
        let same_names = asked_list
            .iter()
            .zip(before)
            .all(|(new, old)| new.text("name") == old.text("name"));
        if !same_names {
            // Another order or other names are left for validation to refuse.
            spec.copy_key(list, &asked);
            continue;
        }
        for (container, from) in spec.list_mut(list).iter_mut().zip(asked_list) {
            container.copy_key("resources", from);
            container.copy_key("resizePolicy", from);
        }
    }
}

fn resize(errors: &mut Errors, pod: &Value, old: &Value) {
    let whole = FieldPath::new(NOWHERE);
    if is_mirror(old) {
        return errors.forbidden(&whole, "static pods cannot be resized");
    }
    if old.text("spec.os.name") == "windows" {
        return errors.forbidden(&whole, "windows pods cannot be resized");
    }
    metadata_and_spec(errors, pod);
    let path = FieldPath::new("spec");
    let class = match old.text("status.qosClass") {
        "" => qos_class(old),
        class => class,
    };
    if class != qos_class(pod) {
        errors.invalid(
            &path,
            pod.text("status.qosClass"),
            "Pod QOS Class may not change as a result of resizing",
        );
    }
    if !node_resizes(old) {
        errors.forbidden(&path, "Pod running on node without support for resize");
    }
    let (spec, before) = (pod.dig("spec"), old.dig("spec"));
    let has_own = [spec, before]
        .iter()
        .any(|spec| has_entries(spec.dig("resources")));
    if has_own {
        own_resources(errors, &path, spec, before);
    }
    if !old.list("status.nodeAllocatableResourceClaimStatuses").is_empty() {
        errors.forbidden(
            &path,
            "pods with node allocatable resource claims cannot be resized",
        );
    }
    if !same_order(errors, &path, spec, before) {
        return;
    }
    containers(errors, &path, spec, before);
    // Whether the pod has resources of its own is a change, too, even if they are empty.
    let presence = !has_own && spec.has("resources") != before.has("resources");
    if errors.len() == 0 && presence {
        errors.forbidden(&path, "only cpu and memory resources are mutable");
    }
}

/// Whether the node of a pod says of a container that runs what it has. Of a pod that does not run it is assumed.
fn node_resizes(pod: &Value) -> bool {
    let statuses = pod.list("status.containerStatuses");
    let running = statuses.iter().find(|status| status.has("state.running"));
    running.is_none_or(|status| status.has("resources"))
}

/// Whether there is a request or a limit.
fn has_entries(resources: &Value) -> bool {
    let mut kinds = ["requests", "limits"].into_iter();
    kinds.any(|kind| resources.entries(kind).next().is_some())
}

/// Whether a request or limit of before is there no more.
fn removed(resources: &Value, before: &Value, kind: &str) -> bool {
    let now = resources.object_at(kind);
    before
        .entries(kind)
        .any(|(name, _)| !now.is_some_and(|now| now.contains_key(name)))
}

/// Resources with cpu and memory of before.
fn with_cpu_and_memory_of(resources: &Value, before: &Value) -> Value {
    let mut munged = resources.clone();
    for kind in ["requests", "limits"] {
        let list = munged.ensure(kind);
        for name in ["cpu", "memory"] {
            list.copy_key(name, before.dig(kind));
        }
        if list.as_object().is_some_and(serde_json::Map::is_empty) {
            munged.take_key(kind);
        }
    }
    munged
}

/// The pod's own resources.
fn own_resources(errors: &mut Errors, path: &FieldPath<'_>, spec: &Value, before: &Value) {
    let (now, before) = (spec.dig("resources"), before.dig("resources"));
    let at = path.child("resources");
    if now.is_null() {
        return errors.forbidden(&at, "pod-level resources cannot be removed");
    }
    for kind in ["requests", "limits"] {
        if removed(now, before, kind) {
            errors.forbidden(
                &at.child(kind),
                format!("pod-level resource {kind} cannot be removed"),
            );
        }
    }
    let munged = with_cpu_and_memory_of(now, before);
    let none = before.is_null() && munged.as_object().is_some_and(serde_json::Map::is_empty);
    if !none && !same(&munged, before) {
        errors.forbidden(path, "only cpu and memory resources are mutable at pod-level");
    }
}

/// Whether both have the same containers in the same order.
fn same_order(errors: &mut Errors, path: &FieldPath<'_>, spec: &Value, before: &Value) -> bool {
    let already = errors.len();
    for list in LISTS {
        let at = path.child(list);
        let (now, before) = (spec.list(list), before.list(list));
        if now.len() != before.len() {
            errors.forbidden(&at, format!("{list} may not be added or removed on resize"));
            continue;
        }
        for (index, (now, before)) in now.iter().zip(before).enumerate() {
            if now.text("name") != before.text("name") {
                errors.forbidden(
                    &at.index(index).child("name"),
                    format!("{list} may not be renamed or reordered on resize"),
                );
            }
        }
    }
    errors.len() == already
}

/// The resources of containers, which are the same in both.
fn containers(errors: &mut Errors, path: &FieldPath<'_>, spec: &Value, before: &Value) {
    let pairs = |list: &'static str| spec.list(list).iter().zip(before.list(list)).enumerate();
    for list in ["initContainers", "containers"] {
        let at = path.child(list);
        for (index, (now, before)) in pairs(list) {
            let at = at.index(index);
            let at = at.child("resources");
            for kind in ["requests", "limits"] {
                if removed(now.dig("resources"), before.dig("resources"), kind) {
                    errors.forbidden(&at.child(kind), format!("resource {kind} cannot be removed"));
                }
            }
        }
    }
    for (_, (now, before)) in pairs("containers") {
        if !same(&munged(now, before), before) {
            errors.forbidden(path, "only cpu and memory resources are mutable");
        }
    }
    let at = path.child("initContainers");
    for (index, (now, before)) in pairs("initContainers") {
        let at = at.index(index);
        if !same(&munged(now, before), before) {
            errors.forbidden(
                &at,
                "only cpu and memory resources for init or sidecar containers are mutable",
            );
        }
        if now.text("restartPolicy") == "Always" || same(now, before) {
            continue;
        }
        let policies = now.list("resizePolicy").iter();
        for _ in policies.filter(|policy| policy.text("restartPolicy") == RESTART) {
            errors.forbidden(
                &at,
                "non-sidecar init containers with a resize policy of RestartContainer cannot be resized",
            );
        }
    }
}

/// A container with cpu and memory of before. Claims are left out: a container that has some cannot be resized.
fn munged(container: &Value, before: &Value) -> Value {
    let mut munged = container.clone();
    let mut resources = with_cpu_and_memory_of(container.dig("resources"), before.dig("resources"));
    resources.take_key("claims");
    munged.put("resources", resources);
    munged
}

#[cfg(test)]
mod tests;
