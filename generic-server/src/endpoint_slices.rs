//! The endpoints of a Service, by its EndpointSlices. Mirrors upstream's `apiserver/pkg/util/proxy`.

use std::sync::Arc;

use machinery::meta;
use serde_json::Value;

use crate::registry::cache::Snapshot;
use crate::registry::store::ObjectStore;

/// The label that ties a slice to its service.
pub const SERVICE_NAME: &str = "kubernetes.io/service-name";

/// The name of the service's port of this number.
///
/// # Errors
/// It has none, in upstream's words.
pub fn port_of(service: &Value, number: u16) -> Result<String, String> {
    let ports = meta::dig(service, &["spec", "ports"]).and_then(Value::as_array);
    ports
        .into_iter()
        .flatten()
        .find(|port| port.get("port").and_then(Value::as_u64) == Some(number.into()))
        .map(|port| meta::dig_str(port, &["name"]).to_string())
        .ok_or_else(|| {
            format!(
                "no service port {number} found for service \"{}\"",
                meta::name(service)
            )
        })
}

/// The slices of a service in a snapshot of their store.
pub fn slices_of(store: &ObjectStore, snapshot: &Snapshot, namespace: &str, service: &str) -> Vec<Value> {
    let first = store.key(namespace, "");
    snapshot
        .objects
        .range(Arc::<str>::from(first.as_str())..)
        .take_while(|(key, _)| key.starts_with(&first))
        .filter(|(_, entry)| entry.label(SERVICE_NAME) == Some(service))
        .map(|(_, entry)| entry.value())
        .collect()
}

/// Whether an endpoint takes connections, as far as its slice says.
pub fn is_ready(endpoint: &Value) -> bool {
    meta::dig(endpoint, &["conditions", "ready"]).and_then(Value::as_bool) != Some(false)
}

/// The ready endpoints of a service for its port of this name: those of its first address family if there are any.
///
/// # Errors
/// There is none, in upstream's words.
pub fn addresses(service: &Value, port: &str, slices: &[Value]) -> Result<Vec<(String, u16)>, String> {
    let none = || {
        let name = meta::name(service);
        format!("no endpoints available for service \"{name}\"")
    };
    let family = meta::dig(service, &["spec", "ipFamilies"]).and_then(|f| f.get(0)?.as_str());
    let mut preferred = Vec::new();
    let mut others = Vec::new();
    for slice in slices {
        let ports = slice.get("ports").and_then(Value::as_array).into_iter().flatten();
        let numbers = ports
            .filter(|p| p.get("name").and_then(Value::as_str).unwrap_or_default() == port)
            .filter_map(|p| u16::try_from(p.get("port")?.as_u64()?).ok());
        let Some(number) = numbers.into_iter().next() else {
            continue;
        };
        let endpoints = slice
            .get("endpoints")
            .and_then(Value::as_array)
            .into_iter()
            .flatten();
        let addresses = endpoints
            .filter(|endpoint| is_ready(endpoint))
            .filter_map(|endpoint| endpoint.get("addresses")?.get(0)?.as_str())
            .map(|address| (address.to_string(), number));
        let wanted = family.is_none_or(|f| meta::dig_str(slice, &["addressType"]) == f);
        if wanted {
            preferred.extend(addresses);
        } else {
            others.extend(addresses);
        }
    }
    let found = if preferred.is_empty() { others } else { preferred };
    if found.is_empty() { Err(none()) } else { Ok(found) }
}
