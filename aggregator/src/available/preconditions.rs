//! The state of a remote server that is known without a request to it: whether its Service and endpoints are there, with upstream's reasons.

use generic_server::endpoint_slices::{is_ready, port_of};
use serde_json::Value;

use super::condition::Condition;
use crate::remote::RemoteSpec;
use crate::resolve::{Found, service_type};

/// The condition of a server that cannot be asked; `None` when it can.
pub(super) fn unmet(spec: &RemoteSpec, found: &Found) -> Option<Condition> {
    let (name, namespace) = (&spec.service, machinery::go::quote(&spec.namespace));
    let Some(service) = &found.service else {
        let message = format!("service/{name} in {namespace} is not present");
        return Some(Condition::no("ServiceNotFound", message));
    };
    if service_type(service) != "ClusterIP" {
        return None;
    }
    let Ok(port) = port_of(service, spec.port) else {
        let message = format!(
            "service/{name} in {namespace} is not listening on port {}",
            spec.port
        );
        return Some(Condition::no("ServicePortError", message));
    };
    if found.slices.is_empty() {
        let message = format!("cannot find endpointslices for service/{name} in {namespace}");
        return Some(Condition::no("EndpointsNotFound", message));
    }
    if !found.slices.iter().any(|slice| has_endpoint(slice, &port)) {
        let port = machinery::go::quote(&port);
        let message = format!(
            "endpointslices for service/{name} in {namespace} have no addresses with port name {port}"
        );
        return Some(Condition::no("MissingEndpoints", message));
    }
    None
}

fn has_endpoint(slice: &Value, port: &str) -> bool {
    let list = |key: &str| slice.get(key).and_then(Value::as_array).into_iter().flatten();
    let named = |p: &Value| {
        p.get("name").and_then(Value::as_str) == Some(port) && p.get("port").is_some_and(Value::is_number)
    };
    list("endpoints").any(is_ready) && list("ports").any(named)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check(service: Option<Value>, slices: Vec<Value>, expected: Option<(&str, &str)>) {
        let condition = unmet(&RemoteSpec::example(), &Found { service, slices });
        let actual = condition.as_ref().map(|c| (c.reason, &*c.message));
        assert_eq!(actual, expected);
    }

    #[test]
    fn reasons_and_messages_are_upstreams() {
        let service = |port: u16| Some(json!({"spec": {"ports": [{"name": "https", "port": port}]}}));
        check(
            None,
            vec![],
            Some(("ServiceNotFound", "service/s in \"n\" is not present")),
        );
        check(
            service(444),
            vec![],
            Some((
                "ServicePortError",
                "service/s in \"n\" is not listening on port 443",
            )),
        );
        check(
            service(443),
            vec![],
            Some((
                "EndpointsNotFound",
                "cannot find endpointslices for service/s in \"n\"",
            )),
        );
        let missing = "endpointslices for service/s in \"n\" have no addresses with port name \"https\"";
        let slice = |port: &str, ready: bool| {
            json!({"endpoints": [{"addresses": ["10.0.0.1"], "conditions": {"ready": ready}}],
                   "ports": [{"name": port, "port": 1}]})
        };
        check(
            service(443),
            vec![slice("other", true)],
            Some(("MissingEndpoints", missing)),
        );
        check(
            service(443),
            vec![slice("https", false)],
            Some(("MissingEndpoints", missing)),
        );
        check(service(443), vec![slice("https", true)], None);
        check(Some(json!({"spec": {"type": "ExternalName"}})), vec![], None);
    }
}
