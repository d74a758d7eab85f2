//! The first objects of a cluster: system namespaces, roles and bindings, flow control, priority classes, the `kubernetes` service
//! and the facts that extension servers read. Idempotent: existing objects stay, missing ones are added, so it runs at every start.
//!
//! All objects are written at once, so that they share group commits.

mod flow_control;
mod masters;
mod rbac;

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::try_join_all;
use generic_server::admission::AdmissionChain;
use generic_server::directory::Directory;
use generic_server::registry::from_storage;
use generic_server::request::Authorized;
use generic_server::write::{self, Preconditions, UpdateRules, WriteCall};
use machinery::{ApiError, GroupResource, Reason, meta};
use serde_json::{Value, json};
use tokio::sync::watch;

pub use flow_control::keep_flow_control;
pub use masters::{Masters, keep_endpoints};
pub(crate) use rbac::node_rules;

use crate::deps::KindFeatures;
use crate::net::Cidr;

/// The status of writes that the store has no room for.
const INSUFFICIENT_STORAGE: u16 = 507;
/// How often it is looked whether there is room now.
const LATER: Duration = Duration::from_secs(5);

/// The facts that bootstrap objects state.
#[derive(Debug, Clone)]
pub struct Facts {
    /// Where the stores are.
    pub directory: Arc<Directory>,
    /// Where members of the cluster reach this server.
    pub advertise: (IpAddr, u16),
    /// The servers that share the store; `None` where others keep the endpoints of the `kubernetes` service.
    pub masters: Option<Masters>,
    /// The ranges of cluster IPs.
    pub service_cidrs: Vec<Cidr>,
    /// The authorities that this server trusts at present.
    pub authorities: watch::Receiver<ClusterAuthorities>,
    /// Common names of front proxies; empty for any.
    pub front_proxy_names: Vec<String>,
    /// The features of kinds that the roles of the cluster are about.
    pub features: KindFeatures,
}

/// The authorities that are published to extension servers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ClusterAuthorities {
    /// CAs of client certificates, PEM.
    pub client: String,
    /// CAs of front proxies, PEM.
    pub front_proxy: String,
}

/// The policy for an object that is there already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Existing {
    /// It stays as it is.
    Keep,
    /// Missing rules and subjects are added, unless its owner has turned that off.
    Reconcile,
    /// These fields are this server's to say.
    Overwrite,
    /// As the configuration of priority and fairness says for itself.
    FlowControl,
}

struct Wanted {
    resource: GroupResource,
    object: Value,
    existing: Existing,
}

fn wanted(group: &str, resource: &str, object: Value, existing: Existing) -> Wanted {
    Wanted {
        resource: GroupResource::new(group, resource),
        object,
        existing,
    }
}

/// Writes what is missing. False when the disk is too full for it but a cluster is there already: that can be served, and
/// [`bootstrap_later`] does the rest.
///
/// # Errors
/// The first object that cannot be written; the others may have been.
pub async fn bootstrap(facts: &Facts) -> Result<bool, ApiError> {
    match write_missing(facts).await {
        Err(error) if error.code() == INSUFFICIENT_STORAGE && has_begun(&facts.directory).await? => {
            tracing::warn!(%error, "the initial objects of the cluster cannot be completed yet");
            Ok(false)
        }
        done => done.map(|()| true),
    }
}

/// Writes what a fork states of itself, which is where it is reached: its other first objects are those that it was forked with.
///
/// # Errors
/// When it cannot be written.
pub async fn bootstrap_fork(facts: &Facts) -> Result<(), ApiError> {
    match &facts.masters {
        Some(masters) => reconcile_endpoints(facts, &addresses(masters).await?).await,
        None => Ok(()),
    }
}

/// Goes on trying what a full disk has kept [`bootstrap`] from.
pub async fn bootstrap_later(facts: Facts) {
    loop {
        tokio::time::sleep(LATER).await;
        match bootstrap(&facts).await {
            Ok(true) => return,
            Ok(false) => {}
            Err(error) => tracing::warn!(%error, "the initial objects of the cluster cannot be completed"),
        }
    }
}

/// Whether there was a start before this one.
async fn has_begun(directory: &Directory) -> Result<bool, ApiError> {
    let namespaces = GroupResource::new("", "namespaces");
    match directory.get(&namespaces) {
        Some(registered) => match registered.store.as_system().find_once("", "default").await {
            Err(_) if registered.store.as_system().is_damaged("", "default").await? => Ok(true),
            found => Ok(found?.is_some()),
        },
        None => Ok(false),
    }
}

async fn write_missing(facts: &Facts) -> Result<(), ApiError> {
    let namespaces = ["default", "kube-system", "kube-public", "kube-node-lease"].map(|name| {
        let object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        wanted("", "namespaces", object, Existing::Keep)
    });
    let mut all: Vec<Wanted> = namespaces.into();
    all.extend(rbac::wanted(facts.features));
    all.extend(priority_classes());
    all.extend(flow_control::objects());
    all.extend(kubernetes_service(facts));
    if let Some(masters) = &facts.masters {
        let addresses = addresses(masters).await?;
        all.extend(kubernetes_endpoints(facts, &addresses));
    }
    all.push(authentication_facts(facts));
    ensure_all(&facts.directory, &all).await.map(|_| ())
}

/// The addresses of the servers. A store without room for the key of this one fails like every other write.
async fn addresses(masters: &Masters) -> Result<Vec<IpAddr>, ApiError> {
    let endpoints = GroupResource::new("", "endpoints");
    let found = masters.addresses().await;
    found.map_err(|error| from_storage(&error, &endpoints, "update"))
}

/// Makes the endpoints of the `kubernetes` service these addresses.
async fn reconcile_endpoints(facts: &Facts, addresses: &[IpAddr]) -> Result<(), ApiError> {
    ensure_all(&facts.directory, &kubernetes_endpoints(facts, addresses))
        .await
        .map(|_| ())
}

/// Whether anything was written.
async fn ensure_all(directory: &Directory, all: &[Wanted]) -> Result<bool, ApiError> {
    let authorized = Authorized::system();
    let none = AdmissionChain::default();
    let written = try_join_all(
        all.iter()
            .map(|wanted| ensure(directory, &authorized, &none, wanted)),
    );
    Ok(written.await?.contains(&true))
}

async fn ensure(
    directory: &Directory,
    authorized: &Authorized,
    none: &AdmissionChain,
    wanted: &Wanted,
) -> Result<bool, ApiError> {
    let Some(registered) = directory.get(&wanted.resource) else {
        return Err(ApiError::internal(format_args!(
            "{} is not served",
            wanted.resource
        )));
    };
    let (namespace, name) = (meta::namespace(&wanted.object), meta::name(&wanted.object));
    let call = WriteCall::internal(&registered.resource, authorized, none, namespace);
    let found = match registered.store.as_system().find_once(namespace, name).await {
        // It is an error for clients that need this object, and no reason not to start. Its content is unknown, so it is not made
        // again either: after it has been removed, the next start writes it as for a new cluster.
        Err(error) if registered.store.as_system().is_damaged(namespace, name).await? => {
            tracing::error!(resource.gvr = %wanted.resource, object.namespace = namespace, object.name = name, %error, "an initial object of the cluster is damaged and is left as it is");
            return Ok(false);
        }
        found => found?,
    };
    let Some(live) = found else {
        let mut object = wanted.object.clone();
        registered.resource.strategy.default(&mut object);
        return match write::create(&call, object).await {
            // Another replica has created it first; it may have the cluster IP, too, which is found before the name is.
            Err(error) if error.reason() == Reason::AlreadyExists => Ok(false),
            Err(error) if error.reason() == Reason::Invalid => {
                match registered.store.as_system().find(namespace, name).await? {
                    Some(_) => Ok(false),
                    None => Err(error),
                }
            }
            done => done.map(|_| true),
        };
    };
    let live = live.value();
    let Some(_) = change(wanted, &live) else {
        return Ok(false);
    };
    let rules = UpdateRules {
        preconditions: Preconditions::default(),
        retry: true,
        ..UpdateRules::default()
    };
    let mut transform = |live: Option<&Value>| {
        let live = live.cloned().unwrap_or_default();
        Ok(change(wanted, &live).unwrap_or(live))
    };
    write::update(&call, name, &rules, &mut transform)
        .await
        .map(|_| true)
}

/// The live object as it should be, when it is not.
fn change(wanted: &Wanted, live: &Value) -> Option<Value> {
    let changed = match wanted.existing {
        Existing::Keep => return None,
        Existing::Reconcile => rbac::reconcile(&wanted.object, live)?,
        Existing::FlowControl => flow_control::revise(&wanted.object, live)?,
        Existing::Overwrite => {
            let mut changed = live.clone();
            for key in ["data", "subsets", "endpoints", "ports"] {
                if let Some(value) = wanted.object.get(key) {
                    changed[key] = value.clone();
                }
            }
            changed
        }
    };
    (changed != *live).then_some(changed)
}

fn priority_classes() -> impl Iterator<Item = Wanted> {
    let classes = [
        (
            "system-cluster-critical",
            2_000_000_000,
            "Used for system critical pods that must run in the cluster, but can be moved to another node if necessary.",
        ),
        (
            "system-node-critical",
            2_000_001_000,
            "Used for system critical pods that must not be moved from their current node.",
        ),
    ];
    classes.into_iter().map(|(name, value, description)| {
        let object = json!({
            "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name},
            "value": value, "description": description, "preemptionPolicy": "PreemptLowerPriority",
        });
        wanted("scheduling.k8s.io", "priorityclasses", object, Existing::Keep)
    })
}

fn kubernetes_service(facts: &Facts) -> Vec<Wanted> {
    let port = facts.advertise.1;
    let Some(first) = facts.service_cidrs.first() else {
        return Vec::new();
    };
    let cluster_ip = first.nth(1).to_string();
    let family = if first.is_v6() { "IPv6" } else { "IPv4" };
    let cidrs: Vec<String> = facts.service_cidrs.iter().map(ToString::to_string).collect();
    let service = json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {"name": "kubernetes", "namespace": "default", "labels": {"component": "apiserver", "provider": "kubernetes"}},
        "spec": {
            "type": "ClusterIP", "clusterIP": cluster_ip, "clusterIPs": [cluster_ip], "ipFamilies": [family],
            "ipFamilyPolicy": "SingleStack", "sessionAffinity": "None", "internalTrafficPolicy": "Cluster",
            "ports": [{"name": "https", "port": 443, "protocol": "TCP", "targetPort": port}],
        },
    });
    let cidr = json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "ServiceCIDR", "metadata": {"name": "kubernetes"}, "spec": {"cidrs": cidrs},
    });
    vec![
        wanted("networking.k8s.io", "servicecidrs", cidr, Existing::Keep),
        wanted("", "services", service, Existing::Keep),
    ]
}

/// Where the `kubernetes` service leads.
fn kubernetes_endpoints(facts: &Facts, addresses: &[IpAddr]) -> Vec<Wanted> {
    // Endpoints may not be in the loopback range: a machine without another address cannot be reached from outside anyway.
    let addresses: Vec<&IpAddr> = addresses.iter().filter(|ip| !ip.is_loopback()).collect();
    if addresses.is_empty() {
        return Vec::new();
    }
    let ports = json!([{"name": "https", "port": facts.advertise.1, "protocol": "TCP"}]);
    let ips: Vec<Value> = addresses.iter().map(|ip| json!({"ip": ip.to_string()})).collect();
    let endpoints = json!({
        "apiVersion": "v1", "kind": "Endpoints",
        "metadata": {"name": "kubernetes", "namespace": "default", "labels": {"endpointslice.kubernetes.io/skip-mirror": "true"}},
        "subsets": [{"addresses": ips, "ports": ports}],
    });
    let ready: Vec<Value> = addresses
        .iter()
        .map(|ip| json!({"addresses": [ip.to_string()], "conditions": {"ready": true}}))
        .collect();
    let family = if facts.advertise.0.is_ipv6() {
        "IPv6"
    } else {
        "IPv4"
    };
    let slice = json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": family,
        "metadata": {"name": "kubernetes", "namespace": "default", "labels": {"kubernetes.io/service-name": "kubernetes"}},
        "endpoints": ready, "ports": ports,
    });
    vec![
        wanted("", "endpoints", endpoints, Existing::Overwrite),
        wanted("discovery.k8s.io", "endpointslices", slice, Existing::Overwrite),
    ]
}

/// The config map that extension servers read to trust this server's front proxy and clients. One that is there is of other replicas, too: a
/// controller adds to it.
fn authentication_facts(facts: &Facts) -> Wanted {
    let config = authentication_config(&facts.authorities.borrow(), &facts.front_proxy_names);
    wanted("", "configmaps", config, Existing::Keep)
}

/// The ConfigMap with the trust of extension servers.
pub(crate) fn authentication_config(authorities: &ClusterAuthorities, front_proxy_names: &[String]) -> Value {
    let names = json!(front_proxy_names).to_string();
    json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "extension-apiserver-authentication", "namespace": "kube-system"},
        "data": {
            "client-ca-file": authorities.client,
            "requestheader-client-ca-file": authorities.front_proxy,
            "requestheader-allowed-names": names,
            "requestheader-extra-headers-prefix": "[\"X-Remote-Extra-\"]",
            "requestheader-group-headers": "[\"X-Remote-Group\"]",
            "requestheader-uid-headers": "[\"X-Remote-Uid\"]",
            "requestheader-username-headers": "[\"X-Remote-User\"]",
        },
    })
}
