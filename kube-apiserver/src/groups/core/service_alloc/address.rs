//! IPAddress objects. Servers that share a store claim a cluster address by creating its object before the service is stored, so that
//! no two services are given the same one; other clients see there the owner of an address.
//!
//! Mirrors `pkg/registry/core/service/ipallocator` (KEP-1880).

use std::net::IpAddr;
use std::sync::Arc;

use generic_server::ApiError;
use generic_server::registry::Entry;
use generic_server::write::{DeleteOptions, Preconditions};
use machinery::time::Timestamp;
use machinery::{Reason, meta};
use serde_json::{Value, json};
use storage::Guard;

use super::families::family;
use super::ledger::{Allocation, Pending, allocations};
use crate::client::Client;
use crate::json::Json;

const ADDRESSES: (&str, &str) = ("networking.k8s.io", "ipaddresses");
const SERVICES: (&str, &str) = ("", "services");
/// How often a claim is tried again because the object changed meanwhile.
const ATTEMPTS: usize = 8;
/// How long another server may take from its claim to its service. Upstream's repair waits as long.
const GRACE_SECONDS: i64 = 60;

/// How a claim ended.
#[derive(Debug)]
pub(super) enum Claim {
    /// The object was created for this write. The service may be stored for as long as it is there unchanged; `None` where the two
    /// are kept by different engines.
    Made(Option<Guard>),
    /// The stored service of this name has the address already.
    Kept,
    /// It belongs to another parent.
    Taken,
}

/// A service by name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Owner {
    pub(super) namespace: String,
    pub(super) name: String,
}

impl Owner {
    pub(super) fn of(service: &Value) -> Self {
        Owner {
            namespace: meta::namespace(service).to_owned(),
            name: meta::name(service).to_owned(),
        }
    }

    /// The service that an IPAddress names as its parent; `None` for a parent that is no service.
    fn of_address(address: &Value) -> Option<Self> {
        let text = |field: &str| address.text(&format!("spec.parentRef.{field}"));
        (text("group").is_empty() && text("resource") == "services").then(|| Owner {
            namespace: text("namespace").to_owned(),
            name: text("name").to_owned(),
        })
    }

    /// Whether the stored service has the address. One that cannot be read may have it.
    async fn holds(&self, client: &Client, ip: IpAddr) -> Result<bool, ApiError> {
        let (namespace, name) = (&*self.namespace, &*self.name);
        match client.find(SERVICES, namespace, name).await {
            Ok(service) => {
                Ok(service.is_some_and(|service| allocations(&service).contains(&Allocation::Ip(ip))))
            }
            Err(_) if client.is_unreadable(SERVICES, namespace, name).await? => Ok(true),
            Err(error) => Err(error),
        }
    }
}

/// Claims an address for a service. `shared`: other servers write to the same store, so that an object without its service may
/// belong to a write of theirs.
///
/// An object that is taken over is deleted first. From then on the write that created it is refused, however late it arrives, since it
/// is guarded by the object; whether it was stored just before is looked at again.
///
/// # Errors
/// Those of the store.
pub(super) async fn claim(
    client: &Client,
    ip: IpAddr,
    owner: &Owner,
    shared: bool,
) -> Result<Claim, ApiError> {
    for _ in 0..ATTEMPTS {
        if let Some(made) = client.create_entry(ADDRESSES, "", object(ip, owner)).await? {
            return Ok(Claim::Made(guard(client, &made)?));
        }
        let name = ip.to_string();
        let found = match client.find(ADDRESSES, "", &name).await {
            Ok(Some(found)) => found,
            Ok(None) => continue,
            // Its parent is unknown.
            Err(_) if client.is_unreadable(ADDRESSES, "", &name).await? => return Ok(Claim::Taken),
            Err(error) => return Err(error),
        };
        let Some(parent) = Owner::of_address(&found) else {
            return Ok(Claim::Taken);
        };
        let own = parent == *owner;
        let held = || if own { Claim::Kept } else { Claim::Taken };
        match parent.holds(client, ip).await? {
            true => return Ok(held()),
            // A server that creates the same service loses nothing: one of the two is stored, and it has this address.
            false if own || !shared || is_old(&found) => {}
            false => return Ok(Claim::Taken),
        }
        delete(client, ip, &found).await?;
        if parent.holds(client, ip).await? {
            client.create(ADDRESSES, "", object(ip, &parent)).await?;
            return Ok(held());
        }
    }
    Ok(Claim::Taken)
}

/// The condition that an object is there as it was created.
fn guard(client: &Client, made: &Entry) -> Result<Option<Guard>, ApiError> {
    let (services, addresses) = (client.resource(SERVICES)?, client.resource(ADDRESSES)?);
    let together = Arc::ptr_eq(
        services.store.as_system().engine(),
        addresses.store.as_system().engine(),
    );
    Ok(together.then(|| Guard {
        key: made.key.to_string(),
        mod_revision: made.revision,
    }))
}

/// Whether no write that created it can be under way any more.
fn is_old(address: &Value) -> bool {
    let created = Timestamp::parse_rfc3339(address.text("metadata.creationTimestamp"));
    created.is_none_or(|created| Timestamp::now().unix() - created.unix() > GRACE_SECONDS)
}

/// Deletes the object of an address that a service has given up or was not stored with.
pub(super) async fn release(client: &Client, ip: IpAddr, owner: &Owner, pending: &Pending) {
    if let Err(error) = try_release(client, ip, owner, pending).await {
        tracing::warn!(%ip, %error, "an address of a deleted service keeps its object");
    }
}

async fn try_release(client: &Client, ip: IpAddr, owner: &Owner, pending: &Pending) -> Result<(), ApiError> {
    let Some(found) = client.find(ADDRESSES, "", &ip.to_string()).await? else {
        return Ok(());
    };
    if Owner::of_address(&found).as_ref() != Some(owner) {
        return Ok(());
    }
    // In this order: a write that is no longer pending has stored its service, or never will.
    if pending.lock().contains_key(&Allocation::Ip(ip)) || owner.holds(client, ip).await? {
        return Ok(());
    }
    delete(client, ip, &found).await?;
    // A write of unknown outcome may have been stored just before; from now on it is refused.
    if owner.holds(client, ip).await? {
        client.create(ADDRESSES, "", object(ip, owner)).await?;
    }
    Ok(())
}

/// Deletes this very object; one that is gone or was recreated is fine.
async fn delete(client: &Client, ip: IpAddr, found: &Value) -> Result<(), ApiError> {
    let options = DeleteOptions {
        preconditions: Preconditions {
            uid: Some(meta::uid(found).to_owned()),
            ..Preconditions::default()
        },
        ..DeleteOptions::default()
    };
    match client.delete(ADDRESSES, "", &ip.to_string(), &options).await {
        Err(error) if error.reason() != Reason::Conflict => Err(error),
        _ => Ok(()),
    }
}

fn object(ip: IpAddr, owner: &Owner) -> Value {
    json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "IPAddress",
        "metadata": {"name": ip.to_string(), "labels": {
            "ipaddress.kubernetes.io/ip-family": family(ip), "ipaddress.kubernetes.io/managed-by": "ipallocator.k8s.io",
        }},
        "spec": {"parentRef": {"resource": "services", "namespace": owner.namespace, "name": owner.name}},
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parents_of_addresses() {
        #[track_caller]
        fn check(parent: Value, expected: Option<(&str, &str)>) {
            let address = json!({"spec": {"parentRef": parent}});
            let found = Owner::of_address(&address);
            let expected = expected.map(|(namespace, name)| Owner {
                namespace: namespace.into(),
                name: name.into(),
            });
            assert_eq!(found, expected, "{address}");
        }
        check(
            json!({"group": "", "resource": "services", "namespace": "ns", "name": "s"}),
            Some(("ns", "s")),
        );
        check(json!({"resource": "services", "name": "s"}), Some(("", "s")));
        check(
            json!({"group": "gateway.example.com", "resource": "services", "name": "s"}),
            None,
        );
        check(json!({"resource": "pods", "namespace": "ns", "name": "s"}), None);
        check(json!({"resource": ["services"]}), None);
        check(json!("services"), None);
        check(Value::Null, None);
    }

    #[test]
    fn the_object_of_an_address_names_its_service() {
        #[track_caller]
        fn check(ip: &str, name: &str, family: &str) {
            let owner = Owner::of(&json!({"metadata": {"namespace": "ns", "name": "s"}}));
            let made = object(ip.parse().unwrap(), &owner);
            assert_eq!((meta::name(&made), made.text("metadata.name")), (name, name));
            assert_eq!(
                made["metadata"]["labels"]["ipaddress.kubernetes.io/ip-family"],
                family
            );
            assert_eq!(Owner::of_address(&made), Some(owner));
        }
        check("10.0.0.1", "10.0.0.1", "IPv4");
        check("fd00:0::1", "fd00::1", "IPv6");
    }

    #[test]
    fn an_address_without_its_service_is_kept_for_a_moment() {
        #[track_caller]
        fn check(created: Value, expected: bool) {
            let address = json!({"metadata": {"creationTimestamp": created}});
            assert_eq!(is_old(&address), expected, "{address}");
        }
        let ago =
            |seconds: i64| Value::from(Timestamp::from_unix(Timestamp::now().unix() - seconds).to_rfc3339());
        check(ago(-GRACE_SECONDS), false);
        check(ago(GRACE_SECONDS / 2), false);
        check(ago(GRACE_SECONDS * 2), true);
        // An address whose time of creation cannot be read belongs to no service.
        check(json!("yesterday"), true);
        check(json!(7), true);
        check(Value::Null, true);
    }
}
