//! The server's own lease in `kube-system`, by which others see the servers of a cluster, and the end of those that servers left
//! behind. Mirrors the lease controller of `k8s.io/component-helpers` as kube-apiserver runs it, and `apiserverleasegc` (KEP-1965).

use std::future::Future;
use std::time::Duration;

use generic_server::write::{DeleteOptions, Preconditions};
use generic_server::{ApiError, identity};
use machinery::names::label_value;
use machinery::time::Timestamp;
use machinery::{Reason, meta};
use serde_json::{Value, json};
use tokio::time::Instant;
use tracing::warn;

use crate::client::{At, Client};
use crate::json::Json;

const LEASES: At<'static> = ("coordination.k8s.io", "leases");
const NAMESPACE: &str = "kube-system";
/// The label of servers' leases, and its value.
const LABEL: &str = "apiserver.kubernetes.io/identity";
const IDENTITY: &str = identity::PROGRAM;
/// The label of what belongs to a host.
const HOST: &str = "kubernetes.io/hostname";
/// For how long a lease holds, in seconds.
const DURATION: i64 = 3600;
/// How often it is renewed.
const RENEWAL: Duration = Duration::from_secs(10);
/// How often leases that no longer hold are looked for.
const COLLECTION: Duration = Duration::from_secs(3600);
/// How long the end of the own lease may take when the server stops.
const GOODBYE: Duration = Duration::from_secs(5);

/// The lease of this server.
struct Lease {
    client: Client,
    name: String,
    host: String,
    holder: String,
}

impl Lease {
    /// Makes it, or renews the one that is there.
    async fn renew(&self) -> Result<(), ApiError> {
        let renewed = self.client.update(LEASES, NAMESPACE, &self.name, "", |lease| {
            self.fill(lease);
            Ok(())
        });
        match renewed.await {
            Err(error) if error.reason() == Reason::NotFound => {
                let mut lease = json!({
                    "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
                    "metadata": {"name": self.name, "namespace": NAMESPACE},
                });
                self.fill(&mut lease);
                self.client.create(LEASES, NAMESPACE, lease).await.map(|_| ())
            }
            done => done,
        }
    }

    fn fill(&self, lease: &mut Value) {
        let labels = lease.ensure("metadata").ensure("labels");
        labels.put(LABEL, IDENTITY);
        // Names of hosts may be longer than labels, and end otherwise: the lease is worth more than this label.
        if label_value(&self.host).is_empty() {
            labels.put(HOST, self.host.as_str());
        }
        let spec = lease.ensure("spec");
        spec.put("holderIdentity", self.holder.as_str());
        spec.put("leaseDurationSeconds", DURATION);
        spec.put("renewTime", Timestamp::now().to_rfc3339_micro());
    }

    async fn remove(&self) -> Result<(), ApiError> {
        let options = DeleteOptions::default();
        let removed = self.client.delete(LEASES, NAMESPACE, &self.name, &options);
        removed.await.map(|_| ())
    }

    /// Removes the leases of servers that do not renew them.
    async fn collect(&self) -> Result<(), ApiError> {
        let now = Timestamp::now();
        for entry in self.client.list_readable(LEASES, NAMESPACE).await? {
            let lease = entry.value();
            let label = meta::labels(&lease).and_then(|labels| labels.get(LABEL));
            if label.and_then(Value::as_str) != Some(IDENTITY) || holds(&lease, now) {
                continue;
            }
            // It may have been renewed since; then it stays.
            let options = DeleteOptions {
                preconditions: Preconditions {
                    resource_version: Some(meta::resource_version(&lease).to_string()),
                    ..Preconditions::default()
                },
                ..DeleteOptions::default()
            };
            match self
                .client
                .delete(LEASES, NAMESPACE, meta::name(&lease), &options)
                .await
            {
                Err(error) if error.reason() == Reason::Conflict => {}
                done => drop(done?),
            }
        }
        Ok(())
    }
}

/// Whether a lease is still held.
fn holds(lease: &Value, now: Timestamp) -> bool {
    let renewed = Timestamp::parse_rfc3339(lease.text("spec.renewTime"));
    let seconds = lease.int("spec.leaseDurationSeconds");
    renewed
        .zip(seconds)
        .is_some_and(|(renewed, seconds)| renewed.unix().saturating_add(seconds) >= now.unix())
}

/// Keeps the lease of the server on a host until it is stopped, and removes those that others left behind.
pub(super) async fn run(client: Client, host: String, stop: impl Future<Output = ()> + Send) {
    let name = identity::of_host(&host);
    let lease = Lease {
        holder: format!("{name}_{}", uuid::Uuid::new_v4()),
        client,
        name,
        host,
    };
    // One of a server that ended without removing it says nothing of this one.
    if let Err(error) = lease.remove().await {
        warn!(
            error = error.message(),
            "cannot remove the lease of the last server here"
        );
    }
    let mut stop = std::pin::pin!(stop);
    let mut collect_at = Instant::now();
    loop {
        if let Err(error) = lease.renew().await {
            warn!(error = error.message(), "cannot renew the server's lease");
        }
        if Instant::now() >= collect_at {
            collect_at = Instant::now() + COLLECTION;
            if let Err(error) = lease.collect().await {
                warn!(
                    error = error.message(),
                    "cannot remove leases of servers that are gone"
                );
            }
        }
        tokio::select! {
            () = &mut stop => break,
            () = tokio::time::sleep(RENEWAL) => {}
        }
    }
    if !matches!(tokio::time::timeout(GOODBYE, lease.remove()).await, Ok(Ok(()))) {
        warn!("cannot remove the server's lease; it ends by itself");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leases_hold_for_their_duration() {
        let now = Timestamp::parse_rfc3339("2026-01-01T01:00:00Z").expect("a time");
        #[track_caller]
        fn check(spec: &Value, now: Timestamp, expected: bool) {
            assert_eq!(holds(&json!({"spec": spec}), now), expected, "{spec}");
        }
        let spec =
            |renewed: &str, seconds: i64| json!({"renewTime": renewed, "leaseDurationSeconds": seconds});
        check(&spec("2026-01-01T00:30:00.000000Z", 3600), now, true);
        check(&spec("2025-12-31T23:59:59.000000Z", 3600), now, false);
        check(&spec("2026-01-01T00:30:00.000000Z", i64::MAX), now, true);
        check(&json!({"renewTime": "2026-01-01T00:30:00.000000Z"}), now, false);
        check(&json!({"leaseDurationSeconds": 3600}), now, false);
        check(&Value::Null, now, false);
    }
}
