//! Where the service of a webhook is: its endpoints when there are any, else its cluster address; and the ways to webhooks.

use std::net::IpAddr;
use std::sync::Arc;

use machinery::{GroupResource, meta};
use serde_json::Value;

use crate::client::DeprecatedCertificates;
use crate::client::egress::{EgressSelector, Network, Route};
use crate::directory::Directory;
use crate::endpoint_slices::{self, port_of, slices_of};

/// Finds services through the stores of the process, and knows the way to them and to other webhooks.
#[derive(Debug, Clone)]
pub struct Services {
    directory: Arc<Directory>,
    egress: EgressSelector,
    certificates: Arc<DeprecatedCertificates>,
    /// A service without ready endpoints is not reached, whatever its cluster address.
    endpoints_only: bool,
}

impl Services {
    /// The services of a directory, which are reached as `egress` says.
    pub fn new(directory: Arc<Directory>, egress: EgressSelector) -> Self {
        Services {
            directory,
            egress,
            certificates: DeprecatedCertificates::new("webhooks"),
            endpoints_only: false,
        }
    }

    /// Whether services are reached at their endpoints alone (`--enable-aggregator-routing`).
    pub fn endpoints_only(self, endpoints_only: bool) -> Self {
        Services {
            endpoints_only,
            ..self
        }
    }

    /// How many webhooks were refused for what their certificate is.
    pub fn certificates(&self) -> &Arc<DeprecatedCertificates> {
        &self.certificates
    }

    /// The stores of the process.
    pub(crate) fn directory(&self) -> &Arc<Directory> {
        &self.directory
    }

    /// The way to a service, or to a webhook that has a URL.
    pub(super) fn route(&self, to_service: bool) -> Route {
        self.egress.route(match to_service {
            true => Network::Cluster,
            false => Network::ControlPlane,
        })
    }

    async fn find(&self, resource: &str, namespace: &str, name: &str) -> Option<Value> {
        let store = self.directory.get(&GroupResource::new("", resource))?.store;
        let entry = store.as_system().find(namespace, name).await.ok()??;
        Some(entry.value())
    }

    async fn slices(&self, namespace: &str, name: &str) -> Vec<Value> {
        let resource = GroupResource::new("discovery.k8s.io", "endpointslices");
        let Some(found) = self.directory.get(&resource) else {
            return Vec::new();
        };
        match found.store.as_system().fresh().await {
            Ok(snapshot) => slices_of(&found.store, &snapshot, namespace, name),
            Err(_) => Vec::new(),
        }
    }

    /// The host and port to connect to for a port of a service.
    ///
    /// # Errors
    /// Why it cannot be reached, as upstream says it.
    pub async fn resolve(&self, namespace: &str, name: &str, port: u16) -> Result<(String, u16), String> {
        let Some(service) = self.find("services", namespace, name).await else {
            return Err(format!("service \"{name}\" not found"));
        };
        let spec_text = |key: &str| meta::dig_str(&service, &["spec", key]).to_string();
        if spec_text("type") == "ExternalName" {
            return Ok((spec_text("externalName"), port));
        }
        let port_name = port_of(&service, port)?;
        let slices = self.slices(namespace, name).await;
        let ready = endpoint_slices::addresses(&service, &port_name, &slices);
        if let Some(found) = ready.ok().and_then(|ready| ready.into_iter().next()) {
            return Ok(found);
        }
        if let Some(endpoints) = self.find("endpoints", namespace, name).await
            && let Some(found) = ready_address(&endpoints, &port_name)
        {
            return Ok(found);
        }
        let cluster = spec_text("clusterIP");
        match cluster.parse::<IpAddr>() {
            Ok(ip) if !self.endpoints_only => Ok((ip.to_string(), port)),
            _ => Err(format!("no endpoints available for service \"{name}\"")),
        }
    }
}

fn ready_address(endpoints: &Value, port_name: &str) -> Option<(String, u16)> {
    let subsets = endpoints.get("subsets")?.as_array()?;
    subsets.iter().find_map(|subset| {
        let address = subset
            .get("addresses")?
            .as_array()?
            .first()?
            .get("ip")?
            .as_str()?;
        let ports = subset.get("ports")?.as_array()?;
        let named = |p: &&Value| p.get("name").and_then(Value::as_str).unwrap_or_default() == port_name;
        let port = ports.iter().find(named)?.get("port")?.as_u64()?;
        Some((address.to_string(), u16::try_from(port).ok()?))
    })
}
