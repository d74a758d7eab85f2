//! ServiceAccount: every pod runs as a service account that exists, and gets its token and its pull secrets.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use generic_server::ApiError;
use generic_server::admission::{AdmissionPlugin, Attributes, Operation};
use generic_server::registry::Entry;
use machinery::{GroupVersionResource, meta};
use rand::RngExt;
use serde_json::{Value, json};

use super::{forbidden, is};
use crate::client::Client;
use crate::groups::core::pod::is_mirror;
use crate::json::Json;

/// The account of pods that name none, and how often it is looked for before such a pod is refused.
const DEFAULT: &str = "default";
const DEFAULT_ATTEMPTS: u32 = 10;
const ENFORCE: &str = "kubernetes.io/enforce-mountable-secrets";
const MOUNT_PATH: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
const VOLUME: &str = "kube-api-access-";
/// Letters of random names: no vowels, so no words.
const ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";

#[derive(Debug)]
pub(super) struct ServiceAccount(pub(super) Client);

#[async_trait::async_trait]
impl AdmissionPlugin for ServiceAccount {
    fn name(&self) -> &'static str {
        "ServiceAccount"
    }

    fn handles(&self, operation: Operation, gvr: &GroupVersionResource, subresource: &str) -> bool {
        operation == Operation::Create && subresource.is_empty() && is(gvr, "", "pods")
    }

    async fn admit(&self, attributes: &Attributes<'_>, object: Option<&mut Value>) -> Result<(), ApiError> {
        let Some(pod) = object else { return Ok(()) };
        if is_mirror(pod) {
            // It is not changed, and refused before other plugins look at it.
            return self.check(attributes, pod).await;
        }
        if pod.text("spec.serviceAccountName").is_empty() {
            let spec = pod.ensure("spec");
            spec.put("serviceAccountName", DEFAULT);
            spec.put("serviceAccount", DEFAULT);
        }
        let found = self.account(attributes, pod).await?;
        let account = members_of(&found, &["automountServiceAccountToken", "imagePullSecrets"]);
        let automount = match pod.dig("spec.automountServiceAccountToken").as_bool() {
            Some(asked) => asked,
            None => account
                .dig("automountServiceAccountToken")
                .as_bool()
                .unwrap_or(true),
        };
        let spec = pod.ensure("spec");
        if automount {
            mount_token(spec);
        }
        if spec.list("imagePullSecrets").is_empty() && !account.list("imagePullSecrets").is_empty() {
            let secrets: Vec<Value> = account
                .list("imagePullSecrets")
                .iter()
                .map(|s| json!({"name": s.text("name")}))
                .collect();
            spec.put("imagePullSecrets", secrets);
        }
        allows(&found, attributes, pod)
    }

    async fn validate(&self, attributes: &Attributes<'_>, object: Option<&Value>) -> Result<(), ApiError> {
        match object {
            Some(pod) => self.check(attributes, pod).await,
            None => Ok(()),
        }
    }
}

impl ServiceAccount {
    async fn account(&self, attributes: &Attributes<'_>, pod: &Value) -> Result<Arc<Entry>, ApiError> {
        let name = pod.text("spec.serviceAccountName");
        let namespace = attributes.namespace;
        let mut found = self.0.entry(("", "serviceaccounts"), namespace, name).await?;
        // The default account of a new namespace is made in the background, and pods may come at once.
        let pause = Duration::from_millis(rand::random_range(100..200));
        let mut attempts = if name == DEFAULT { DEFAULT_ATTEMPTS } else { 1 };
        while found.is_none() && attempts > 1 {
            tokio::time::sleep(pause).await;
            attempts -= 1;
            found = self.0.entry(("", "serviceaccounts"), namespace, name).await?;
        }
        found.ok_or_else(|| {
            forbidden(
                attributes,
                Some(pod),
                format!(
                    "error looking up service account {namespace}/{name}: serviceaccount \"{name}\" not found"
                ),
            )
        })
    }

    async fn check(&self, attributes: &Attributes<'_>, pod: &Value) -> Result<(), ApiError> {
        let refuse = |why: &str| Err(forbidden(attributes, Some(pod), why));
        if is_mirror(pod) {
            if !pod.text("spec.serviceAccountName").is_empty() {
                return refuse("a mirror pod may not reference service accounts");
            }
            let volumes = pod.list("spec.volumes");
            if volumes.iter().any(|v| v.has("secret")) || !secrets_of_containers(pod).is_empty() {
                return refuse("a mirror pod may not reference secrets");
            }
            let tokens = volumes.iter().flat_map(|v| v.list("projected.sources"));
            if tokens.into_iter().any(|s| s.has("serviceAccountToken")) {
                return refuse("a mirror pod may not use ServiceAccountToken volume projections");
            }
            return Ok(());
        }
        if pod.text("spec.serviceAccountName").is_empty() {
            let why = format!(
                "no service account specified for pod {}/{}",
                attributes.namespace,
                meta::name(pod)
            );
            return refuse(&why);
        }
        let account = self.account(attributes, pod).await?;
        allows(&account, attributes, pod)
    }
}

/// The account where it has any of these members, null where it does not: few have, and then there is nothing to parse.
fn members_of(account: &Entry, members: &[&str]) -> Value {
    match members.iter().any(|member| account.mentions(member)) {
        true => account.value(),
        false => Value::Null,
    }
}

/// Refuses secrets that an account does not list, where it enforces that.
fn allows(account: &Entry, attributes: &Attributes<'_>, pod: &Value) -> Result<(), ApiError> {
    let account = members_of(account, &[ENFORCE]);
    let enforced = meta::annotations(&account)
        .and_then(|a| a.get(ENFORCE))
        .and_then(Value::as_str)
        .is_some_and(|text| text == "true" || text == "1");
    match enforced.then(|| outside(&account, pod)).flatten() {
        Some(why) => Err(forbidden(attributes, Some(pod), why)),
        None => Ok(()),
    }
}

/// The secrets that containers refer to, with the referring field.
fn secrets_of_containers(pod: &Value) -> Vec<(String, String)> {
    let mut out = Vec::new();
    for (list, what) in [("initContainers", "init container"), ("containers", "container")] {
        for container in pod.dig("spec").list(list) {
            let name = container.text("name");
            for env in container.list("env") {
                if env.has("valueFrom.secretKeyRef") {
                    let who = format!("{what} {name} with envVar {}", env.text("name"));
                    out.push((env.text("valueFrom.secretKeyRef.name").to_string(), who));
                }
            }
            for source in container.list("envFrom") {
                if source.has("secretRef") {
                    let who = format!("{what} {name} with envFrom");
                    out.push((source.text("secretRef.name").to_string(), who));
                }
            }
        }
    }
    out
}

/// The first secret that the service account does not list.
fn outside(account: &Value, pod: &Value) -> Option<String> {
    let who = meta::name(account);
    let names = |key: &str| -> HashSet<&str> { account.list(key).iter().map(|s| s.text("name")).collect() };
    let secrets = names("secrets");
    let allowed = |name: &str| secrets.contains(name);
    for volume in pod.list("spec.volumes").iter().filter(|v| v.has("secret")) {
        let name = volume.text("secret.secretName");
        if !allowed(name) {
            return Some(format!(
                "volume with secret.secretName=\"{name}\" is not allowed because service account {who} does not reference that secret"
            ));
        }
    }
    for (name, user) in secrets_of_containers(pod) {
        if !allowed(&name) {
            return Some(format!(
                "{user} referencing secret.secretName=\"{name}\" is not allowed because service account {who} does not reference that secret"
            ));
        }
    }
    let pull = names("imagePullSecrets");
    for (index, secret) in pod.list("spec.imagePullSecrets").iter().enumerate() {
        let name = secret.text("name");
        if !pull.contains(name) {
            return Some(format!(
                "imagePullSecrets[{index}].name=\"{name}\" is not allowed because service account {who} does not reference that imagePullSecret"
            ));
        }
    }
    None
}

fn mount_token(spec: &mut Value) {
    let existing = spec
        .list("volumes")
        .iter()
        .map(|v| v.text("name"))
        .find(|name| name.starts_with(VOLUME))
        .map(str::to_string);
    let name = existing.clone().unwrap_or_else(|| {
        let mut rng = rand::rng();
        let random = (0..5).map(|_| char::from(ALPHABET[rng.random_range(0..ALPHABET.len())]));
        format!("{VOLUME}{}", random.collect::<String>())
    });
    let mut needed = false;
    for list in ["initContainers", "containers"] {
        for container in spec.list_mut(list) {
            let mut mounts = container.list("volumeMounts").to_vec();
            if mounts.iter().any(|m| m.text("mountPath") == MOUNT_PATH) {
                continue;
            }
            mounts.push(json!({"name": name, "readOnly": true, "mountPath": MOUNT_PATH}));
            container.put("volumeMounts", mounts);
            needed = true;
        }
    }
    if existing.is_none() && needed {
        let mut volumes = spec.list("volumes").to_vec();
        volumes.push(json!({"name": name, "projected": {"defaultMode": 420, "sources": [
            {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
            {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
            {"downwardAPI": {"items": [{"path": "namespace", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}}]}},
        ]}}));
        spec.put("volumes", volumes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mount_of_the_clients_own_is_left_alone() {
        let mut spec = json!({"containers": [{"name": "a"},
            {"name": "b", "volumeMounts": [{"name": "x", "mountPath": MOUNT_PATH}]}], "volumes": [{"name": "x"}]});
        mount_token(&mut spec);
        mount_token(&mut spec);
        assert_eq!(spec.list("volumes").len(), 2);
        assert_eq!(spec["containers"][0].list("volumeMounts").len(), 1);
        assert_eq!(spec["containers"][1]["volumeMounts"][0]["name"], "x");
    }
}
