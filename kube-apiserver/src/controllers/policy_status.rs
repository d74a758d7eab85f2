//! The status of ValidatingAdmissionPolicies: what is wrong with their expressions for the kinds that they are about.
//!
//! A policy is checked once for each generation. The status is applied, by force and under upstream's name, so that another replica or
//! the controller manager writes the same and takes nothing away. Mirrors `pkg/controller/validatingadmissionpolicystatus`.

mod kinds;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use generic_server::ApiError;
use generic_server::delegate::Delegate;
use generic_server::dynamic_admission::policy::type_check;
use generic_server::registry::{Entry, Event, Reflector};
use machinery::meta;
use serde_json::{Value, json};
use tracing::warn;

use super::REST;
use super::api::Api;
use crate::client::{At, Client};
use crate::json::Json;

/// Upstream's name of the controller.
pub(super) const NAME: &str = "validatingadmissionpolicy-status-controller";
/// The field manager of its writes.
const MANAGER: &str = "validatingadmissionpolicy-status";
const POLICIES: At<'static> = ("admissionregistration.k8s.io", "validatingadmissionpolicies");
/// The longest pause after failures.
const MOST_REST: Duration = Duration::from_secs(60);

/// Keeps the status of policies current; writes go through `api` as any client's would.
pub(super) async fn run(client: Client, api: Arc<dyn Delegate>) {
    let controller = Controller {
        client,
        api: Api::new(api),
    };
    loop {
        if let Err(error) = controller.follow().await {
            warn!(error = error.message(), "policies cannot be followed");
        }
        tokio::time::sleep(REST).await;
    }
}

struct Controller {
    client: Client,
    api: Api,
}

impl Controller {
    /// Checks each policy when it changes, and again after a pause when its status could not be written.
    async fn follow(&self) -> Result<(), ApiError> {
        let mut reflector = Reflector::new(self.client.resource(POLICIES)?.store);
        let mut changes = Vec::new();
        let mut pending: BTreeMap<String, Arc<Entry>> = BTreeMap::new();
        let mut rest = REST;
        loop {
            let next = reflector.next(&mut changes);
            let event = match pending.is_empty() {
                true => Some(next.await),
                false => tokio::time::timeout(rest, next).await.ok(),
            };
            match event {
                Some(Event::Failed(error)) => return Err(error),
                Some(Event::Listed(snapshot)) => {
                    let all = snapshot.objects.values();
                    pending = all.map(|e| (e.name().to_string(), e.clone())).collect();
                }
                Some(Event::Changed) => {
                    for change in changes.drain(..) {
                        let entry = change.entry.clone();
                        pending.insert(entry.name().to_string(), entry);
                    }
                }
                None => {}
            }
            let mut failed = BTreeMap::new();
            for (name, entry) in std::mem::take(&mut pending) {
                if let Err(why) = self.sync(&entry).await {
                    warn!(name, why, "the status of a policy could not be written");
                    failed.insert(name, entry);
                }
            }
            rest = match failed.is_empty() {
                true => REST,
                false => (rest * 2).min(MOST_REST),
            };
            pending = failed;
        }
    }

    /// Checks a policy that is newer than its status.
    async fn sync(&self, entry: &Entry) -> Result<(), String> {
        let known = entry.value();
        let observed = known.int("status.observedGeneration").unwrap_or_default();
        if meta::generation(&known) <= observed {
            return Ok(());
        }
        // It may be gone, or may have been checked by another replica.
        let found = self.client.find(POLICIES, "", entry.name()).await;
        let Some(policy) = found.map_err(|error| error.message().to_string())? else {
            return Ok(());
        };
        let generation = meta::generation(&policy);
        if generation <= policy.int("status.observedGeneration").unwrap_or_default() {
            return Ok(());
        }
        let status = json!({"observedGeneration": generation, "typeChecking": self.check(&policy).await?});
        let name = entry.name();
        let path = format!(
            "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies/{name}/status?fieldManager={MANAGER}&force=true"
        );
        let object = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy",
            "metadata": {"name": name, "uid": meta::uid(&policy)}, "status": status});
        match self.api.apply(&path, &object).await {
            Err(refusal) if refusal.is_passing() => Err(refusal.message),
            Err(refusal) => {
                warn!(name, why = refusal.message, "the status of a policy is refused");
                Ok(())
            }
            Ok(()) => Ok(()),
        }
    }

    /// The `typeChecking` of a policy.
    async fn check(&self, policy: &Value) -> Result<Value, String> {
        let failed = |error: ApiError| error.message().to_string();
        let mut checked = Vec::new();
        for gvk in kinds::of_policy(policy, self.client.directory()) {
            checked.extend(kinds::read(&self.client, &gvk).await.map_err(failed)?);
        }
        let params = match kinds::of_params(policy) {
            Some(gvk) => kinds::read(&self.client, &gvk).await.map_err(failed)?,
            None => None,
        };
        let warnings = type_check::warnings(policy, &checked, params.as_ref()).await;
        Ok(match warnings.is_empty() {
            true => json!({}),
            false => json!({"expressionWarnings": warnings}),
        })
    }
}
