//! The usage of one object, by the names that quotas count it under. Mirrors upstream's `pkg/quota/v1/evaluator/core`.

use machinery::quantity::{Format, Quantity};
use machinery::time::Timestamp;
use machinery::{GroupResource, meta};
use serde_json::Value;

use crate::admission::scheduling::is_extended;
use crate::json::Json;
use crate::quantity::amount;
use crate::resources::{Amounts, add, effective_limits, effective_requests};

pub(super) const CLASS_SUFFIX: &str = ".storageclass.storage.k8s.io/";
pub(super) const DEVICES_SUFFIX: &str = ".deviceclass.resource.k8s.io/devices";
const STORAGE_CLASS_ANNOTATION: &str = "volume.beta.kubernetes.io/storage-class";
/// The most devices that one claim is given: what a request for all of them counts as.
const MOST_DEVICES: i64 = 32;

fn whole(number: i64) -> Quantity {
    Quantity::from_i64(number, Format::DecimalSI)
}

/// The name that a quota counts the objects of any resource under.
pub(super) fn count_name(resource: &GroupResource) -> String {
    match &*resource.group {
        "" => format!("count/{}", resource.resource),
        group => format!("count/{}.{group}", resource.resource),
    }
}

/// What quotas count of requests and limits.
pub(super) fn compute(requests: &Amounts, limits: &Amounts) -> Amounts {
    let mut out = Amounts::new();
    out.insert("pods".into(), whole(1));
    for (name, quantity) in requests {
        let native = matches!(name.as_str(), "cpu" | "memory" | "ephemeral-storage");
        if native || name.starts_with("hugepages-") {
            out.insert(name.clone(), quantity.clone());
            out.insert(format!("requests.{name}"), quantity.clone());
        } else if is_extended(name) || name.starts_with("deviceclass.resource.kubernetes.io/") {
            out.insert(format!("requests.{name}"), quantity.clone());
        }
    }
    for (name, quantity) in limits {
        if matches!(name.as_str(), "cpu" | "memory" | "ephemeral-storage") {
            out.insert(format!("limits.{name}"), quantity.clone());
        }
    }
    out
}

pub(super) fn of_pod(pod: &Value) -> Amounts {
    let mut out = Amounts::new();
    out.insert("count/pods".into(), whole(1));
    if is_charged(pod) {
        add(
            &mut out,
            &compute(&effective_requests(pod), &effective_limits(pod)),
        );
    }
    out
}

/// Whether a pod uses anything: not when it has ended, nor when its node does not say that it has.
fn is_charged(pod: &Value) -> bool {
    if matches!(pod.text("status.phase"), "Succeeded" | "Failed") {
        return false;
    }
    let deleted = Timestamp::parse_rfc3339(pod.text("metadata.deletionTimestamp"));
    match (deleted, pod.int("metadata.deletionGracePeriodSeconds")) {
        (Some(at), Some(grace)) => Timestamp::now().unix() <= at.unix().saturating_add(grace),
        _ => true,
    }
}

pub(super) fn of_service(service: &Value) -> Amounts {
    let ports = service.list("spec.ports");
    let kind = service.text("spec.type");
    let node_ports = match kind {
        "NodePort" => ports.len(),
        "LoadBalancer" if service.dig("spec.allocateLoadBalancerNodePorts").as_bool() == Some(false) => {
            let set = ports.iter();
            set.filter(|port| port.int("nodePort").unwrap_or_default() != 0)
                .count()
        }
        "LoadBalancer" => ports.len(),
        _ => 0,
    };
    let node_ports = i64::try_from(node_ports).unwrap_or(i64::MAX);
    Amounts::from([
        ("count/services".into(), whole(1)),
        ("services".into(), whole(1)),
        ("services.nodeports".into(), whole(node_ports)),
        (
            "services.loadbalancers".into(),
            whole(i64::from(kind == "LoadBalancer")),
        ),
    ])
}

pub(super) fn of_claim(claim: &Value) -> Amounts {
    let mut out = Amounts::from([
        ("count/persistentvolumeclaims".into(), whole(1)),
        ("persistentvolumeclaims".into(), whole(1)),
    ]);
    let annotated = meta::annotations(claim).and_then(|all| all.get(STORAGE_CLASS_ANNOTATION)?.as_str());
    let class = annotated.unwrap_or_else(|| claim.text("spec.storageClassName"));
    if !class.is_empty() {
        out.insert(format!("{class}{CLASS_SUFFIX}persistentvolumeclaims"), whole(1));
    }
    if let Some(storage) = storage(claim) {
        if !class.is_empty() {
            out.insert(format!("{class}{CLASS_SUFFIX}requests.storage"), storage.clone());
        }
        out.insert("requests.storage".into(), storage);
    }
    out
}

/// The storage that a claim asks for, or has been given if that is more, in whole bytes.
fn storage(claim: &Value) -> Option<Quantity> {
    let whole_bytes = |quantity: Quantity| match quantity.fits_scale(0) {
        true => quantity,
        false => Quantity::from_i64(quantity.value(), quantity.format()),
    };
    let wanted = amount(claim.dig("spec.resources.requests.storage")).map(whole_bytes)?;
    match amount(claim.dig("status.allocatedResources.storage")) {
        Some(allocated) if allocated > wanted => Some(whole_bytes(allocated)),
        _ => Some(wanted),
    }
}

pub(super) fn of_device_claim(claim: &Value) -> Amounts {
    let mut out = Amounts::from([("count/resourceclaims.resource.k8s.io".into(), whole(1))]);
    for request in claim.list("spec.devices.requests") {
        let mut wanted = Amounts::new();
        let alternatives = request.list("firstAvailable");
        let all: &[Value] = match alternatives {
            [] => std::slice::from_ref(request.dig("exactly")),
            alternatives => alternatives,
        };
        for one in all.iter().filter(|one| one.is_object()) {
            let devices = match one.text("allocationMode") {
                "ExactCount" => one.int("count").unwrap_or_default(),
                "All" => MOST_DEVICES,
                _ => 0,
            };
            let (name, devices) = (
                format!("{}{DEVICES_SUFFIX}", one.text("deviceClassName")),
                whole(devices),
            );
            // Of alternatives, the one that needs the most of a class counts.
            if wanted.get(&name).is_none_or(|most| *most < devices) {
                wanted.insert(name, devices);
            }
        }
        add(&mut out, &wanted);
    }
    out
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check(usage: &Amounts, expected: &[(&str, &str)]) {
        let found: Vec<(&str, String)> = usage
            .iter()
            .map(|(name, quantity)| (name.as_str(), quantity.to_string()))
            .collect();
        let found: Vec<(&str, &str)> = found
            .iter()
            .map(|(name, quantity)| (*name, quantity.as_str()))
            .collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn pods() {
        let requests =
            json!({"cpu": "1", "example.com/gpu": "2", "hugepages-2Mi": "4Mi", "kubernetes.io/x": "1"});
        let limits = json!({"cpu": "2", "example.com/gpu": "2"});
        let mut pod =
            json!({"spec": {"containers": [{"resources": {"requests": requests, "limits": limits}}]}});
        check(
            &of_pod(&pod),
            &[
                ("count/pods", "1"),
                ("cpu", "1"),
                ("hugepages-2Mi", "4Mi"),
                ("limits.cpu", "2"),
                ("pods", "1"),
                ("requests.cpu", "1"),
                ("requests.example.com/gpu", "2"),
                ("requests.hugepages-2Mi", "4Mi"),
            ],
        );
        pod["metadata"] =
            json!({"deletionTimestamp": "2020-01-01T00:00:00Z", "deletionGracePeriodSeconds": 30});
        check(&of_pod(&pod), &[("count/pods", "1")]);
        check(
            &of_pod(&json!({"status": {"phase": "Failed"}})),
            &[("count/pods", "1")],
        );
    }

    #[test]
    fn claims() {
        check(
            &of_claim(
                &json!({"metadata": {"annotations": {(STORAGE_CLASS_ANNOTATION): "old"}},
                "spec": {"storageClassName": "new", "resources": {"requests": {"storage": "1500m"}}},
                "status": {"allocatedResources": {"storage": "1"}}}),
            ),
            &[
                ("count/persistentvolumeclaims", "1"),
                ("old.storageclass.storage.k8s.io/persistentvolumeclaims", "1"),
                ("old.storageclass.storage.k8s.io/requests.storage", "2"),
                ("persistentvolumeclaims", "1"),
                ("requests.storage", "2"),
            ],
        );
        check(
            &of_claim(&json!({"spec": {"resources": {"requests": {"storage": "1Gi"}}},
                "status": {"allocatedResources": {"storage": "2Gi"}}})),
            &[
                ("count/persistentvolumeclaims", "1"),
                ("persistentvolumeclaims", "1"),
                ("requests.storage", "2Gi"),
            ],
        );
    }

    #[test]
    fn devices() {
        let requests = json!([
            {"exactly": {"deviceClassName": "a", "allocationMode": "ExactCount", "count": 2}},
            {"exactly": {"deviceClassName": "b", "allocationMode": "All"}},
            {"firstAvailable": [
                {"deviceClassName": "a", "allocationMode": "ExactCount", "count": 1},
                {"deviceClassName": "a", "allocationMode": "ExactCount", "count": 3}]},
            {}]);
        check(
            &of_device_claim(&json!({"spec": {"devices": {"requests": requests}}})),
            &[
                ("a.deviceclass.resource.k8s.io/devices", "5"),
                ("b.deviceclass.resource.k8s.io/devices", "32"),
                ("count/resourceclaims.resource.k8s.io", "1"),
            ],
        );
    }
}
