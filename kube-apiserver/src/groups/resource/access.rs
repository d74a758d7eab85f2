//! What a claim may say depends on its namespace and on its writer: access to devices in use (KEP-5018), and who writes which part of a
//! status. Mirrors `pkg/registry/resource/utils.go`.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use generic_server::ApiError;
use generic_server::authn::split_service_account;
use generic_server::authz::{Attributes, Authorizer, Decision, Failure, forbidden};
use generic_server::registry::strategy::{WriteContext, WriteHooks};
use generic_server::request::User;
use machinery::names::dns1123_subdomain;
use machinery::{FieldError, FieldPath, meta};
use serde_json::Value;

use super::claim_status::{RESULTS, device_id};
use crate::client::Client;
use crate::deps::Deps;
use crate::errors::Errors;
use crate::json::{Json, same};

/// The label of a namespace whose claims may ask for devices that others use.
const ADMIN_LABEL: &str = "resource.kubernetes.io/admin-access";

/// The most drivers that a valid write can change: those of all allocated devices before and after it.
const DRIVERS: usize = 2 * RESULTS;

/// Refuses access for administrators outside of the namespaces that are marked for it.
#[derive(Debug)]
pub(super) struct AdminAccess(Client);

/// The same of a status, and asks for the permissions that parts of a status need.
#[derive(Debug)]
pub(super) struct StatusAccess {
    admin: AdminAccess,
    authorizer: Arc<dyn Authorizer>,
    /// `DRAResourceClaimGranularStatusAuthorization`.
    granular: bool,
}

impl AdminAccess {
    pub(super) fn new(deps: &Deps) -> Self {
        AdminAccess(Client::new(deps.directory.clone()))
    }

    /// The fault of a field that asks for the access in a namespace.
    async fn check(&self, namespace: &str, path: &FieldPath<'_>) -> Option<FieldError> {
        let unknown = |why: &dyn std::fmt::Display| {
            let text = format!("could not retrieve namespace to verify admin access: {why}");
            Some(FieldError::internal(path, text))
        };
        match self.0.find(("", "namespaces"), "", namespace).await {
            Ok(Some(found)) if is_marked(&found) => None,
            Ok(Some(_)) => {
                let text = format!(
                    "admin access to devices requires the `{ADMIN_LABEL}: true` label on the containing namespace"
                );
                Some(FieldError::forbidden(path, text))
            }
            Ok(None) => unknown(&format_args!("namespaces {namespace:?} not found")),
            Err(error) => unknown(&error),
        }
    }

    async fn check_requests(&self, namespace: &str, requests: &[Value]) -> Option<FieldError> {
        let index = requests
            .iter()
            .position(|request| request.dig("exactly.adminAccess").as_bool() == Some(true))?;
        let (spec, list) = (FieldPath::new("spec"), "devices.requests");
        self.check(namespace, &spec.child(list).index(index).child("adminAccess"))
            .await
    }

    async fn check_results(&self, namespace: &str, new: &Value, old: &Value) -> Option<FieldError> {
        let granted = |status: &Value| {
            let results = status.list("allocation.devices.results");
            results
                .iter()
                .position(|result| result.dig("adminAccess").as_bool() == Some(true))
        };
        let index = granted(new).filter(|_| granted(old).is_none())?;
        let (status, list) = (FieldPath::new("status"), "allocation.devices.results");
        self.check(namespace, &status.child(list).index(index).child("adminAccess"))
            .await
    }
}

#[async_trait::async_trait]
impl WriteHooks for AdminAccess {
    async fn faults(
        &self,
        ctx: &WriteContext<'_>,
        object: &Value,
        old: Option<&Value>,
    ) -> Result<Vec<FieldError>, ApiError> {
        // What a claim asks for does not change.
        if old.is_some() {
            return Ok(Vec::new());
        }
        let template = object.dig("spec.spec");
        let spec = if template.is_null() {
            object.dig("spec")
        } else {
            template
        };
        let fault = self
            .check_requests(ctx.namespace, spec.list("devices.requests"))
            .await;
        Ok(fault.into_iter().collect())
    }
}

impl StatusAccess {
    pub(super) fn new(deps: &Deps) -> Self {
        StatusAccess {
            admin: AdminAccess::new(deps),
            authorizer: deps.authorizer.clone(),
            granular: deps.features.granular_claim_status,
        }
    }

    /// Why the writer does not have a permission.
    async fn ask(&self, attributes: &Attributes<'_>) -> Result<(), String> {
        let reason = match self.authorizer.authorize(attributes).await {
            Decision::Allow(reason) => {
                self.authorizer.used(attributes, &reason);
                return Ok(());
            }
            Decision::Deny(reason) | Decision::NoOpinion(reason) => reason,
            Decision::Failed(Failure { error, reason, .. }) if reason.is_empty() => error,
            Decision::Failed(Failure { error, reason, .. }) => format!("{error}: {reason}"),
        };
        Err(forbidden(attributes, &reason).message().to_string())
    }

    /// Who allocates and reserves binds claims, in all namespaces.
    async fn check_binding(&self, request: Attributes<'_>, new: &Value, old: &Value) -> Option<FieldError> {
        let parts = ["allocation", "reservedFor"];
        if parts.iter().all(|part| same(new.dig(part), old.dig(part))) {
            return None;
        }
        let attributes = Attributes {
            subresource: "binding",
            namespace: "",
            name: "",
            ..request
        };
        let denied = self.ask(&attributes).await.err()?;
        let text = format!(
            "changing status.allocation or status.reservedFor requires resource=\"resourceclaims/binding\", verb=\"{}\" permission: {denied}",
            request.verb
        );
        Some(FieldError::forbidden(
            &FieldPath::new("status").child("allocation"),
            text,
        ))
    }

    /// Who tells the state of devices may do so for their driver: on its own node, or on any.
    async fn check_devices(&self, request: Attributes<'_>, new: &Value, old: &Value) -> Vec<FieldError> {
        let mut verbs = Vec::with_capacity(2);
        if node_of(new.dig("allocation")).is_some_and(|node| is_account_of(request.user, node)) {
            verbs.push(format!("associated-node:{}", request.verb));
        }
        verbs.push(format!("arbitrary-node:{}", request.verb));
        let mut denials = Vec::new();
        // A status with more of them is refused by validation, as none of its devices is allocated.
        for driver in changed_drivers(new, old).into_iter().take(DRIVERS) {
            let mut first = None;
            for verb in &verbs {
                let attributes = Attributes {
                    verb,
                    subresource: "driver",
                    name: driver,
                    ..request
                };
                match self.ask(&attributes).await {
                    Ok(()) => {
                        first = None;
                        break;
                    }
                    Err(denied) => drop(first.get_or_insert(denied)),
                }
            }
            denials.extend(first);
        }
        let text = |denied: String| {
            format!(
                "changing status.devices requires resource=\"resourceclaims/driver\", verb=\"[{}]\" permission: {denied}",
                verbs.join(" ")
            )
        };
        Errors::collect(|errors| {
            for denied in denials {
                errors.forbidden(&FieldPath::new("status").child("devices"), text(denied));
            }
        })
    }
}

#[async_trait::async_trait]
impl WriteHooks for StatusAccess {
    async fn faults(
        &self,
        ctx: &WriteContext<'_>,
        object: &Value,
        old: Option<&Value>,
    ) -> Result<Vec<FieldError>, ApiError> {
        let (new, old) = (
            object.dig("status"),
            old.map_or(&Value::Null, |old| old.dig("status")),
        );
        let admin = self.admin.check_results(ctx.namespace, new, old).await;
        let mut faults: Vec<FieldError> = admin.into_iter().collect();
        if self.granular {
            let request = Attributes::of(ctx.authorized.user(), ctx.authorized.info());
            faults.extend(self.check_binding(request, new, old).await);
            // Without an allocation the state of all devices was dropped.
            if new.has("allocation") {
                faults.extend(self.check_devices(request, new, old).await);
            }
        }
        Ok(faults)
    }
}

/// Whether a namespace is for administrators of devices.
fn is_marked(namespace: &Value) -> bool {
    let labels = meta::labels(namespace);
    labels.and_then(|labels| labels.get(ADMIN_LABEL)?.as_str()) == Some("true")
}

/// The drivers of devices whose state came, went or changed.
fn changed_drivers<'a>(new: &'a Value, old: &'a Value) -> BTreeSet<&'a str> {
    let mut before: HashMap<[&str; 4], &Value> = HashMap::new();
    before.extend(
        old.list("devices")
            .iter()
            .map(|device| (device_id(device), device)),
    );
    let mut drivers = BTreeSet::new();
    for device in new.list("devices") {
        let known = before.remove(&device_id(device));
        if !known.is_some_and(|known| same(known, device)) {
            drivers.insert(device.text("driver"));
        }
    }
    drivers.extend(before.into_values().map(|device| device.text("driver")));
    drivers
}

/// The one node that an allocation is bound to by name.
fn node_of(allocation: &Value) -> Option<&str> {
    let [term] = allocation.list("nodeSelector.nodeSelectorTerms") else {
        return None;
    };
    let ([], [field]) = (term.list("matchExpressions"), term.list("matchFields")) else {
        return None;
    };
    let named = field.text("key") == "metadata.name" && field.text("operator") == "In";
    match field.list("values") {
        [node] if named => node.as_str().filter(|node| !node.is_empty()),
        _ => None,
    }
}

/// Whether the user is a service account of a pod on the node.
fn is_account_of(user: &User, node: &str) -> bool {
    let own = user.extra.get("authentication.kubernetes.io/node-name");
    split_service_account(&user.name).is_some()
        && own.is_some_and(|own| own.len() == 1 && own[0] == node)
        && dns1123_subdomain(node).is_empty()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn drivers_of_changed_devices_are_found() {
        let device =
            |driver: &str, data: i32| json!({"driver": driver, "pool": "p", "device": "d", "data": data});
        let old = json!({"devices": [device("same", 1), device("changed", 1), device("gone", 1)]});
        let new = json!({"devices": [device("same", 1), device("changed", 2), device("new", 1)]});
        let found: Vec<&str> = changed_drivers(&new, &old).into_iter().collect();
        assert_eq!(found, ["changed", "gone", "new"]);
    }

    #[test]
    fn an_allocation_is_of_a_node_that_it_names_alone() {
        let term = |values: Value| json!({"matchFields": [{"key": "metadata.name", "operator": "In", "values": values}]});
        let of = |terms: Value| json!({"nodeSelector": {"nodeSelectorTerms": terms}});
        assert_eq!(node_of(&of(json!([term(json!(["n"]))]))), Some("n"));
        assert_eq!(node_of(&of(json!([term(json!(["n", "m"]))]))), None);
        assert_eq!(
            node_of(&of(json!([term(json!(["n"])), term(json!(["n"]))]))),
            None
        );
        assert_eq!(node_of(&Value::Null), None);
    }
}
