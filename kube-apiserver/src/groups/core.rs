//! The core group.

use std::sync::Arc;

use generic_server::resource::{ServedResource, Subresource};

use crate::client::Client;
use crate::kind::Builder;
use crate::rules::{Kind, Rules};
use crate::table;

mod bindings;
pub(crate) mod claim_spec;
mod component_status;
mod config_map;
mod endpoints;
pub(crate) mod event;
mod limit_range;
pub(crate) mod load_balancer;
pub(crate) mod namespace;
mod node;
pub(crate) mod persistent_volume;
pub(crate) mod persistent_volume_claim;
pub(crate) mod pod;
pub(crate) mod pod_spec;
pub(crate) mod pod_template;
mod replication_controller;
pub(super) mod resource_names;
mod resource_quota;
mod secret;
pub(crate) mod service;
mod service_account;
pub(crate) mod service_alloc;
mod streams;

use streams::{NodeStream, Stream};

/// Virtual resources have no rules.
static REVIEWED: Rules = Rules::PLAIN;

pub(crate) fn v1(b: &Builder<'_>) -> Vec<Arc<ServedResource>> {
    let client = Client::new(b.deps.directory.clone());
    let to_node = |stream| {
        Subresource::Connect(Arc::new(NodeStream {
            client: client.clone(),
            nodes: b.deps.nodes.clone(),
            authorizer: b.deps.authorizer.clone(),
            stream,
        }))
    };
    vec![
        b.kind("bindings", "Binding")
            .table(&table::DEFAULT)
            .computed(Kind::new(&REVIEWED), bindings::Bindings(client.clone())),
        b.kind("componentstatuses", "ComponentStatus")
            .cluster()
            .short(&["cs"])
            .deprecated("v1 ComponentStatus is deprecated in v1.19+")
            .table(&table::COMPONENT_STATUS)
            .computed(
                Kind::new(&REVIEWED),
                component_status::ComponentStatuses(b.deps.storage.engine().clone()),
            ),
        b.kind("configmaps", "ConfigMap")
            .short(&["cm"])
            .table(&table::CONFIG_MAP)
            .rules(&config_map::RULES),
        b.kind("endpoints", "Endpoints")
            .deprecated("v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice")
            .short(&["ep"])
            .prefix("services/endpoints")
            .table(&table::ENDPOINTS)
            .rules(&endpoints::RULES),
        b.kind("events", "Event")
            .short(&["ev"])
            .table(&table::EVENT)
            .ttl(b.deps.event_ttl)
            .rules(&event::RULES),
        b.kind("limitranges", "LimitRange")
            .short(&["limits"])
            .table(&table::DEFAULT)
            .rules(&limit_range::RULES),
        b.kind("namespaces", "Namespace")
            .cluster()
            .short(&["ns"])
            .table(&table::NAMESPACE)
            .verbs(&["create", "delete", "get", "list", "patch", "update", "watch"])
            .view("finalize", namespace::finalize::Finalize)
            .view("status", namespace::Status)
            .stored(namespace::Namespaces),
        b.kind("nodes", "Node")
            .cluster()
            .sub("proxy", to_node(Stream::Proxy("NodeProxyOptions")))
            .short(&["no"])
            .prefix("minions")
            .table(&table::NODE)
            .rules(&node::RULES),
        b.kind("persistentvolumeclaims", "PersistentVolumeClaim")
            .short(&["pvc"])
            .table(&table::PVC)
            .rules(&persistent_volume_claim::RULES),
        b.kind("persistentvolumes", "PersistentVolume")
            .cluster()
            .short(&["pv"])
            .table(&table::PV)
            .rules(&persistent_volume::RULES),
        b.kind("pods", "Pod")
            .short(&["po"])
            .category("all")
            .table(&table::POD)
            .view("status", pod::PodStatus)
            .view(
                "ephemeralcontainers",
                pod::ephemeral_containers::EphemeralContainers(b.deps.features),
            )
            .view("resize", pod::resize::Resize)
            .create("binding", pod::binding::Binding(client.clone()))
            .create("eviction", pod::eviction::Eviction(client.clone()))
            .sub("log", to_node(Stream::Log))
            .sub("exec", to_node(Stream::Run("PodExecOptions")))
            .sub("attach", to_node(Stream::Run("PodAttachOptions")))
            .sub("portforward", to_node(Stream::Forward))
            .sub("proxy", to_node(Stream::Proxy("PodProxyOptions")))
            .stored(pod::Pods(b.deps.features)),
        b.kind("podtemplates", "PodTemplate")
            .table(&table::POD_TEMPLATE)
            .rules(&pod_template::RULES),
        b.kind("replicationcontrollers", "ReplicationController")
            .short(&["rc"])
            .category("all")
            .prefix("controllers")
            .scale()
            .table(&table::REPLICATION_CONTROLLER)
            .rules(&replication_controller::RULES),
        b.kind("resourcequotas", "ResourceQuota")
            .short(&["quota"])
            .table(&table::RESOURCE_QUOTA)
            .rules(&resource_quota::RULES),
        b.kind("secrets", "Secret")
            .table(&table::SECRET)
            .rules(&secret::RULES),
        b.kind("serviceaccounts", "ServiceAccount")
            .create(
                "token",
                service_account::token::Token {
                    client: client.clone(),
                    issuer: b.deps.token_issuer.clone(),
                },
            )
            .short(&["sa"])
            .table(&table::NAME_AGE)
            .rules(&service_account::RULES),
        b.kind("services", "Service")
            .sub("proxy", to_node(Stream::Proxy("ServiceProxyOptions")))
            .short(&["svc"])
            .category("all")
            .prefix("services/specs")
            .table(&table::SERVICE)
            .with_status(&service::RULES)
            .stored(Kind::new(&service::RULES).with_hooks(Arc::new(service_alloc::Allocator::new(b.deps)))),
    ]
}
