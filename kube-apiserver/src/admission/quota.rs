//! ResourceQuota: the usage that a write adds must fit into every quota of the namespace that counts it, and is charged there.
//! A quota whose status the quota controller has not filled in yet limits nothing, as upstream has it.

use std::collections::BTreeMap;

use generic_server::ApiError;
use generic_server::admission::{AdmissionPlugin, Attributes, Operation};
use machinery::quantity::{Format, Quantity};
use machinery::{GroupVersionResource, meta};
use serde_json::Value;

use super::{forbidden, is};
use crate::client::Client;
use crate::groups::core::pod::qos_class;
use crate::json::Json;
use crate::quantity::amount;
use crate::resources::{Amounts, amounts, pod_limits, pod_requests};

#[derive(Debug)]
pub(super) struct ResourceQuota {
    client: Client,
}

impl ResourceQuota {
    pub(super) fn new(client: Client) -> Self {
        ResourceQuota { client }
    }
}

#[async_trait::async_trait]
impl AdmissionPlugin for ResourceQuota {
    fn name(&self) -> &'static str {
        "ResourceQuota"
    }

    fn handles(&self, operation: Operation, gvr: &GroupVersionResource, subresource: &str) -> bool {
        matches!(operation, Operation::Create | Operation::Update)
            && (subresource.is_empty() || (subresource == "resize" && is(gvr, "", "pods")))
            && !is(gvr, "", "namespaces")
    }

    async fn validate(&self, attributes: &Attributes<'_>, object: Option<&Value>) -> Result<(), ApiError> {
        let (Some(object), false) = (object, attributes.namespace.is_empty()) else {
            return Ok(());
        };
        let quotas = self
            .client
            .list(("", "resourcequotas"), attributes.namespace)
            .await?;
        for entry in quotas {
            let quota = entry.value();
            let Some(delta) = demand(attributes, object, &quota)? else {
                continue;
            };
            if attributes.dry_run {
                check(attributes, object, &quota, &delta)?;
                continue;
            }
            let name = meta::name(&quota).to_string();
            // The check runs again on what is really there when the booking is written.
            self.client
                .update(
                    ("", "resourcequotas"),
                    attributes.namespace,
                    &name,
                    "status",
                    |live| {
                        let used = check(attributes, object, live, &delta)?;
                        let status = live.ensure("status").ensure("used");
                        for (name, quantity) in used {
                            status.put(&name, quantity.to_string());
                        }
                        Ok(())
                    },
                )
                .await?;
        }
        Ok(())
    }
}

/// The usage that the write adds to the quota; `None` when it adds none.
fn demand(attributes: &Attributes<'_>, object: &Value, quota: &Value) -> Result<Option<Amounts>, ApiError> {
    let hard = quota.dig("status.hard");
    let counted = |name: &str| hard.get(name).is_some();
    if !scopes_match(attributes, object, quota) {
        return Ok(None);
    }
    let new = usage(attributes.gvr, object);
    if is(attributes.gvr, "", "pods") && attributes.operation == Operation::Create {
        let missing = unspecified(object, hard);
        if !missing.is_empty() {
            let why = format!(
                "failed quota: {}: must specify {}",
                meta::name(quota),
                missing.join("; ")
            );
            return Err(forbidden(attributes, Some(object), why));
        }
    }
    let old = match (attributes.operation, attributes.old) {
        (Operation::Update, Some(old)) => usage(attributes.gvr, old),
        _ => Amounts::new(),
    };
    let delta: Amounts = new
        .into_iter()
        .filter(|(name, _)| counted(name))
        .filter_map(|(name, quantity)| {
            let delta = match old.get(&name) {
                Some(before) => quantity.sub(before),
                None => quantity,
            };
            (delta.signum() > 0).then_some((name, delta))
        })
        .collect();
    Ok((!delta.is_empty()).then_some(delta))
}

/// Whether the demand fits; gives what is used after it.
fn check(
    attributes: &Attributes<'_>,
    object: &Value,
    quota: &Value,
    delta: &Amounts,
) -> Result<Amounts, ApiError> {
    let hard = amounts(quota.dig("status.hard"));
    let used = amounts(quota.dig("status.used"));
    let zero = Quantity::from_i64(0, Format::DecimalSI);
    let mut after = Amounts::new();
    let mut exceeded: Vec<&String> = Vec::new();
    for (name, quantity) in delta {
        let sum = used.get(name).unwrap_or(&zero).add(quantity);
        if hard.get(name).is_some_and(|limit| sum > *limit) {
            exceeded.push(name);
        }
        after.insert(name.clone(), sum);
    }
    if exceeded.is_empty() {
        return Ok(after);
    }
    let show = |from: &Amounts| {
        let items = exceeded
            .iter()
            .map(|name| format!("{name}={}", from.get(*name).unwrap_or(&zero)));
        items.collect::<Vec<_>>().join(",")
    };
    let why = format!(
        "exceeded quota: {}, requested: {}, used: {}, limited: {}",
        meta::name(quota),
        show(delta),
        show(&used),
        show(&hard)
    );
    Err(forbidden(attributes, Some(object), why))
}

/// The usage of one object.
fn usage(gvr: &GroupVersionResource, object: &Value) -> Amounts {
    let one = || Quantity::from_i64(1, Format::DecimalSI);
    let mut out = Amounts::new();
    let suffix = match &*gvr.group {
        "" => gvr.resource.to_string(),
        group => format!("{}.{group}", gvr.resource),
    };
    out.insert(format!("count/{suffix}"), one());
    if !gvr.group.is_empty() {
        return out;
    }
    match &*gvr.resource {
        "pods" => {
            if matches!(object.text("status.phase"), "Succeeded" | "Failed") {
                return out;
            }
            out.insert("pods".into(), one());
            for (name, quantity) in pod_requests(object.dig("spec")) {
                if matches!(name.as_str(), "cpu" | "memory" | "ephemeral-storage") {
                    out.insert(name.clone(), quantity.clone());
                }
                out.insert(format!("requests.{name}"), quantity);
            }
            for (name, quantity) in pod_limits(object.dig("spec")) {
                out.insert(format!("limits.{name}"), quantity);
            }
        }
        "services" => {
            out.insert("services".into(), one());
            let ports = object.list("spec.ports").len();
            let kind = object.text("spec.type");
            let node_ports = match kind {
                "NodePort" => ports,
                "LoadBalancer"
                    if object.dig("spec.allocateLoadBalancerNodePorts").as_bool() == Some(false) =>
                {
                    let set = object.list("spec.ports").iter();
                    set.filter(|p| p.int("nodePort").unwrap_or_default() != 0).count()
                }
                "LoadBalancer" => ports,
                _ => 0,
            };
            let count = i64::try_from(node_ports).unwrap_or(i64::MAX);
            out.insert(
                "services.nodeports".into(),
                Quantity::from_i64(count, Format::DecimalSI),
            );
            let balancers = i64::from(kind == "LoadBalancer");
            out.insert(
                "services.loadbalancers".into(),
                Quantity::from_i64(balancers, Format::DecimalSI),
            );
        }
        "persistentvolumeclaims" => {
            out.insert("persistentvolumeclaims".into(), one());
            let class = object.text("spec.storageClassName");
            if let Some(storage) = amount(object.dig("spec.resources.requests.storage")) {
                out.insert("requests.storage".into(), storage.clone());
                if !class.is_empty() {
                    out.insert(
                        format!("{class}.storageclass.storage.k8s.io/requests.storage"),
                        storage,
                    );
                }
            }
            if !class.is_empty() {
                out.insert(
                    format!("{class}.storageclass.storage.k8s.io/persistentvolumeclaims"),
                    one(),
                );
            }
        }
        "configmaps" | "secrets" | "replicationcontrollers" | "resourcequotas" => {
            out.insert(gvr.resource.to_string(), one());
        }
        _ => {}
    }
    out
}

/// The compute resources that the quota bounds and some container does not state: `limits.memory for: c`.
fn unspecified(pod: &Value, hard: &Value) -> Vec<String> {
    let mut missing: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (name, _) in hard.as_object().into_iter().flatten() {
        let (kind, resource) = match name.as_str() {
            "cpu" | "memory" => ("requests", name.as_str()),
            other => match other.split_once('.') {
                Some((kind @ ("requests" | "limits"), resource @ ("cpu" | "memory"))) => (kind, resource),
                _ => continue,
            },
        };
        if pod.dig("spec.resources").dig(kind).get(resource).is_some() {
            continue;
        }
        for list in ["spec.containers", "spec.initContainers"] {
            for container in pod.list(list) {
                if container.dig("resources").dig(kind).get(resource).is_none() {
                    missing.entry(name).or_default().push(container.text("name"));
                }
            }
        }
    }
    missing
        .into_iter()
        .map(|(name, containers)| format!("{name} for: {}", containers.join(",")))
        .collect()
}

/// Whether the quota is about such objects at all.
fn scopes_match(attributes: &Attributes<'_>, object: &Value, quota: &Value) -> bool {
    let pods = is(attributes.gvr, "", "pods");
    let has = |scope: &str, values: &[Value], operator: &str| -> bool {
        match scope {
            "Terminating" => object.int("spec.activeDeadlineSeconds").is_some_and(|s| s >= 0),
            "NotTerminating" => object.int("spec.activeDeadlineSeconds").is_none_or(|s| s < 0),
            "BestEffort" => qos_class(object) == "BestEffort",
            "NotBestEffort" => qos_class(object) != "BestEffort",
            "PriorityClass" => {
                let class = object.text("spec.priorityClassName");
                match operator {
                    "In" => values.iter().any(|v| v.as_str() == Some(class)),
                    "NotIn" => !values.iter().any(|v| v.as_str() == Some(class)),
                    "DoesNotExist" => class.is_empty(),
                    _ => !class.is_empty(),
                }
            }
            _ => false,
        }
    };
    let scopes = quota
        .strings("spec.scopes")
        .map(|scope| (scope, &[][..], "Exists"));
    let selected = quota
        .list("spec.scopeSelector.matchExpressions")
        .iter()
        .map(|e| (e.text("scopeName"), e.list("values"), e.text("operator")));
    let mut all = scopes.chain(selected).peekable();
    if all.peek().is_none() {
        return true;
    }
    pods && all.all(|(scope, values, operator)| has(scope, values, operator))
}
