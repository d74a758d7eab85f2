//! Plugins that fill in what a namespace or cluster has a default for: storage class, ingress class, the overhead of a
//! runtime class; and the finalizers that keep storage objects while they are used.

use generic_server::ApiError;
use generic_server::admission::{AdmissionPlugin, Attributes, Operation};
use machinery::{GroupVersionResource, meta};
use serde_json::Value;

use super::{forbidden, is};
use crate::client::{At, Client};
use crate::json::{Json, same};
use crate::tolerations;

/// Whether an annotation says `true`.
fn marked(object: &Value, keys: &[&str]) -> bool {
    meta::annotations(object).is_some_and(|annotations| {
        keys.iter()
            .any(|key| annotations.get(*key).and_then(Value::as_str) == Some("true"))
    })
}

/// The marked object of a resource: the newest, then the first by name.
async fn default_of(client: &Client, at: At<'_>, keys: &[&str]) -> Result<Option<Value>, ApiError> {
    let entries = client.list_readable(at, "").await?;
    let mut found: Vec<Value> = entries
        .iter()
        .map(|e| e.value())
        .filter(|object| marked(object, keys))
        .collect();
    found.sort_by(|a, b| {
        let created = |o: &Value| o.text("metadata.creationTimestamp").to_string();
        created(b)
            .cmp(&created(a))
            .then_with(|| meta::name(a).cmp(meta::name(b)))
    });
    Ok(found.into_iter().next())
}

#[derive(Debug)]
pub(super) struct DefaultStorageClass(pub(super) Client);

#[async_trait::async_trait]
impl AdmissionPlugin for DefaultStorageClass {
    fn name(&self) -> &'static str {
        "DefaultStorageClass"
    }

    fn handles(&self, operation: Operation, gvr: &GroupVersionResource, subresource: &str) -> bool {
        operation == Operation::Create && subresource.is_empty() && is(gvr, "", "persistentvolumeclaims")
    }

    async fn admit(&self, _: &Attributes<'_>, object: Option<&mut Value>) -> Result<(), ApiError> {
        let Some(claim) = object else { return Ok(()) };
        let annotated = meta::annotations(claim)
            .is_some_and(|a| a.contains_key("volume.beta.kubernetes.io/storage-class"));
        if claim.has("spec.storageClassName") || annotated {
            return Ok(());
        }
        let keys = [
            "storageclass.kubernetes.io/is-default-class",
            "storageclass.beta.kubernetes.io/is-default-class",
        ];
        if let Some(class) = default_of(&self.0, ("storage.k8s.io", "storageclasses"), &keys).await? {
            claim.ensure("spec").put("storageClassName", meta::name(&class));
        }
        Ok(())
    }
}

#[derive(Debug)]
pub(super) struct DefaultIngressClass(pub(super) Client);

#[async_trait::async_trait]
impl AdmissionPlugin for DefaultIngressClass {
    fn name(&self) -> &'static str {
        "DefaultIngressClass"
    }

    fn handles(&self, operation: Operation, gvr: &GroupVersionResource, subresource: &str) -> bool {
        operation == Operation::Create && subresource.is_empty() && is(gvr, "networking.k8s.io", "ingresses")
    }

    async fn admit(&self, _: &Attributes<'_>, object: Option<&mut Value>) -> Result<(), ApiError> {
        let Some(ingress) = object else { return Ok(()) };
        let annotated = meta::annotations(ingress)
            .and_then(|a| a.get("kubernetes.io/ingress.class"))
            .and_then(Value::as_str)
            .is_some_and(|text| !text.is_empty());
        if ingress.has("spec.ingressClassName") || annotated {
            return Ok(());
        }
        let keys = ["ingressclass.kubernetes.io/is-default-class"];
        if let Some(class) = default_of(&self.0, ("networking.k8s.io", "ingressclasses"), &keys).await? {
            ingress.ensure("spec").put("ingressClassName", meta::name(&class));
        }
        Ok(())
    }
}

#[derive(Debug)]
pub(super) struct StorageObjectInUseProtection;

#[async_trait::async_trait]
impl AdmissionPlugin for StorageObjectInUseProtection {
    fn name(&self) -> &'static str {
        "StorageObjectInUseProtection"
    }

    fn handles(&self, operation: Operation, gvr: &GroupVersionResource, subresource: &str) -> bool {
        operation == Operation::Create && subresource.is_empty() && finalizer(gvr).is_some()
    }

    async fn admit(&self, attributes: &Attributes<'_>, object: Option<&mut Value>) -> Result<(), ApiError> {
        let (Some(object), Some(finalizer)) = (object, finalizer(attributes.gvr)) else {
            return Ok(());
        };
        let mut list: Vec<String> = meta::finalizers(object).map(str::to_string).collect();
        if !list.iter().any(|f| f == finalizer) {
            list.push(finalizer.into());
            meta::set(object, "finalizers", list);
        }
        Ok(())
    }
}

fn finalizer(gvr: &GroupVersionResource) -> Option<&'static str> {
    if is(gvr, "", "persistentvolumeclaims") {
        Some("kubernetes.io/pvc-protection")
    } else if is(gvr, "", "persistentvolumes") {
        Some("kubernetes.io/pv-protection")
    } else if is(gvr, "storage.k8s.io", "volumeattributesclasses") {
        Some("kubernetes.io/vac-protection")
    } else {
        None
    }
}

#[derive(Debug)]
pub(super) struct RuntimeClass(pub(super) Client);

#[async_trait::async_trait]
impl AdmissionPlugin for RuntimeClass {
    fn name(&self) -> &'static str {
        "RuntimeClass"
    }

    fn handles(&self, operation: Operation, gvr: &GroupVersionResource, subresource: &str) -> bool {
        operation == Operation::Create && subresource.is_empty() && is(gvr, "", "pods")
    }

    async fn admit(&self, attributes: &Attributes<'_>, object: Option<&mut Value>) -> Result<(), ApiError> {
        let Some(pod) = object else { return Ok(()) };
        let name = pod.text("spec.runtimeClassName").to_string();
        if name.is_empty() {
            return match pod.has("spec.overhead") {
                true => Err(forbidden(
                    attributes,
                    Some(pod),
                    "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead",
                )),
                false => Ok(()),
            };
        }
        let class = self.0.find(("node.k8s.io", "runtimeclasses"), "", &name).await?;
        let Some(class) = class else {
            let why = format!("pod rejected: RuntimeClass \"{name}\" not found");
            return Err(forbidden(attributes, Some(pod), why));
        };
        let overhead = class.dig("overhead.podFixed");
        if !overhead.is_null() {
            let given = pod.dig("spec.overhead");
            if !given.is_null() && !same(given, overhead) {
                let why = "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead";
                return Err(forbidden(attributes, Some(pod), why));
            }
            pod.ensure("spec").put("overhead", overhead.clone());
        } else if pod.has("spec.overhead") {
            let why = "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead";
            return Err(forbidden(attributes, Some(pod), why));
        }
        let scheduling = class.dig("scheduling");
        for (key, value) in scheduling.entries("nodeSelector") {
            let selector = pod.ensure("spec").ensure("nodeSelector");
            if selector.get(key).is_some_and(|have| have != value) {
                let why = format!(
                    "conflict: runtimeClass.scheduling.nodeSelector[{key}] = {}; pod.spec.nodeSelector[{key}] = {}",
                    value.as_str().unwrap_or_default(),
                    selector.get(key).and_then(Value::as_str).unwrap_or_default()
                );
                return Err(forbidden(attributes, Some(pod), why));
            }
            selector.put(key, value.clone());
        }
        if scheduling.is_object() {
            let all = tolerations::merged(pod.list("spec.tolerations"), scheduling.list("tolerations"));
            if !all.is_empty() {
                pod.ensure("spec").put("tolerations", all);
            }
        }
        Ok(())
    }
}
