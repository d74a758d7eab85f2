//! From a Service to addresses: by its endpoints (`--enable-aggregator-routing`) or its cluster IP, from the object caches.
//!
//! Mirrors upstream's `apiserver/pkg/util/proxy`. It runs when a Service or EndpointSlice changes, never per request.

use std::sync::Arc;

use generic_server::client::{authority, is_forbidden};
use generic_server::directory::Directory;
use generic_server::endpoint_slices::{self, port_of, slices_of};
use generic_server::registry::store::ObjectStore;
use machinery::{GroupResource, meta};
use serde_json::Value;

use crate::remote::RemoteSpec;

/// Reads Services and EndpointSlices.
#[derive(Debug)]
pub(crate) struct Resolver {
    directory: Arc<Directory>,
    /// By endpoints rather than by cluster IP.
    endpoints: bool,
}

/// The state of the service that an APIService names.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) service: Option<Value>,
    pub(crate) slices: Vec<Value>,
}

impl Resolver {
    pub(crate) fn new(directory: Arc<Directory>, endpoints: bool) -> Self {
        Resolver { directory, endpoints }
    }

    pub(crate) fn services(&self) -> Option<Arc<ObjectStore>> {
        Some(self.directory.get(&GroupResource::new("", "services"))?.store)
    }

    pub(crate) fn slices(&self) -> Option<Arc<ObjectStore>> {
        let resource = GroupResource::new("discovery.k8s.io", "endpointslices");
        Some(self.directory.get(&resource)?.store)
    }

    /// The service and its slices, as the caches have them.
    pub(crate) async fn find(&self, spec: &RemoteSpec) -> Found {
        let mut found = Found {
            service: None,
            slices: Vec::new(),
        };
        if let Some(store) = self.services()
            && let Ok(snapshot) = store.as_system().fresh().await
        {
            let key = store.key(&spec.namespace, &spec.service);
            found.service = snapshot.objects.get(key.as_str()).map(|entry| entry.value());
        }
        if let Some(store) = self.slices()
            && let Ok(snapshot) = store.as_system().fresh().await
        {
            found.slices = slices_of(&store, &snapshot, &spec.namespace, &spec.service);
        }
        found
    }

    /// The addresses, `host:port`; of endpoints those of the service's first address family if there are any.
    ///
    /// # Errors
    /// Why there is none, in upstream's words.
    pub(crate) fn addresses(&self, spec: &RemoteSpec, found: &Found) -> Result<Vec<Box<str>>, String> {
        let Some(service) = &found.service else {
            return Err(format!("service \"{}\" not found", spec.service));
        };
        let kind = service_type(service);
        let port = port_of(service, spec.port);
        let addresses = if self.endpoints {
            if !matches!(kind, "ClusterIP" | "LoadBalancer" | "NodePort") {
                return Err(format!("unsupported service type \"{kind}\""));
            }
            endpoint_slices::addresses(service, &port?, &found.slices)?
        } else {
            match kind {
                "ExternalName" => {
                    let host = meta::dig_str(service, &["spec", "externalName"]);
                    vec![(host.to_string(), spec.port)]
                }
                "ClusterIP" | "LoadBalancer" | "NodePort" => {
                    let address = meta::dig_str(service, &["spec", "clusterIP"]);
                    if kind == "ClusterIP" && address == "None" {
                        return Err("cannot route to service with ClusterIP \"None\"".into());
                    }
                    port?;
                    vec![(address.to_string(), spec.port)]
                }
                other => return Err(format!("unsupported service type \"{other}\"")),
            }
        };
        let allowed: Vec<Box<str>> = addresses
            .iter()
            .filter(|(host, _)| !is_forbidden_host(host))
            .map(|(host, port)| authority(host, *port).into())
            .collect();
        if allowed.is_empty() {
            return Err(format!(
                "no permitted address for service \"{}\": link-local and unspecified ones are refused",
                spec.service
            ));
        }
        Ok(allowed)
    }
}

/// Whether an address is known to be forbidden before a name is resolved.
fn is_forbidden_host(host: &str) -> bool {
    host.parse().map_or(host.is_empty(), is_forbidden)
}

/// The type; a Service without one is of the default type.
pub(crate) fn service_type(service: &Value) -> &str {
    match meta::dig_str(service, &["spec", "type"]) {
        "" => "ClusterIP",
        kind => kind,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn slice(address_type: &str, addresses: &[&str], ready: bool) -> Value {
        let endpoints: Vec<Value> = addresses
            .iter()
            .map(|a| json!({"addresses": [a], "conditions": {"ready": ready}}))
            .collect();
        json!({"addressType": address_type, "endpoints": endpoints, "ports": [{"name": "https", "port": 8443}]})
    }

    #[track_caller]
    fn check(endpoints: bool, service: Value, slices: Vec<Value>, expected: Result<&[&str], &str>) {
        let resolver = Resolver::new(Arc::default(), endpoints);
        let found = Found {
            service: Some(service),
            slices,
        };
        let got = resolver.addresses(&RemoteSpec::example(), &found);
        let expected = expected
            .map(|all| all.iter().map(|a| Box::from(*a)).collect::<Vec<Box<str>>>())
            .map_err(str::to_string);
        assert_eq!(got, expected);
    }

    fn service(spec: Value) -> Value {
        let mut service =
            json!({"metadata": {"name": "s"}, "spec": {"ports": [{"name": "https", "port": 443}]}});
        for (key, value) in spec.as_object().into_iter().flatten() {
            service["spec"][key] = value.clone();
        }
        service
    }

    #[test]
    fn addresses() {
        let plain = || service(json!({"clusterIP": "10.0.0.9"}));
        check(false, plain(), vec![], Ok(&["10.0.0.9:443"]));
        check(
            false,
            service(json!({"clusterIP": "fd00::1"})),
            vec![],
            Ok(&["[fd00::1]:443"]),
        );
        let headless = service(json!({"clusterIP": "None"}));
        check(
            false,
            headless,
            vec![],
            Err("cannot route to service with ClusterIP \"None\""),
        );
        let external = || service(json!({"type": "ExternalName", "externalName": "a.example"}));
        check(false, external(), vec![], Ok(&["a.example:443"]));
        check(
            true,
            external(),
            vec![],
            Err("unsupported service type \"ExternalName\""),
        );
        let other_port = json!({"metadata": {"name": "s"}, "spec": {"ports": [{"port": 80}]}});
        check(
            true,
            other_port,
            vec![],
            Err("no service port 443 found for service \"s\""),
        );
        check(
            true,
            plain(),
            vec![],
            Err("no endpoints available for service \"s\""),
        );
        let unready = vec![slice("IPv4", &["10.1.0.1"], false)];
        check(
            true,
            plain(),
            unready,
            Err("no endpoints available for service \"s\""),
        );
        let both = || {
            vec![
                slice("IPv6", &["fd00::2"], true),
                slice("IPv4", &["10.1.0.1", "10.1.0.2"], true),
            ]
        };
        let dual = service(json!({"ipFamilies": ["IPv4", "IPv6"]}));
        check(true, dual, both(), Ok(&["10.1.0.1:8443", "10.1.0.2:8443"]));
        let six = service(json!({"ipFamilies": ["IPv6"]}));
        check(true, six, both(), Ok(&["[fd00::2]:8443"]));
    }

    #[test]
    fn metadata_addresses_are_refused() {
        let external = service(json!({"type": "ExternalName", "externalName": "169.254.169.254"}));
        let why = "no permitted address for service \"s\": link-local and unspecified ones are refused";
        check(false, external, vec![], Err(why));
        for address in [
            "169.254.1.1",
            "::ffff:169.254.169.254",
            "fe80::1",
            "0.0.0.0",
            "::",
            "fd00:ec2::254",
            "224.0.0.1",
        ] {
            assert!(is_forbidden(address.parse().expect("an address")), "{address}");
        }
        for address in ["127.0.0.1", "10.0.0.1", "fd00::1", "::1"] {
            assert!(!is_forbidden(address.parse().expect("an address")), "{address}");
        }
    }
}
