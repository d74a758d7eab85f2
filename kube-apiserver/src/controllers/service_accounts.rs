//! Every namespace has a service account `default` and a config map `kube-root-ca.crt`, made again when they are deleted.

use generic_server::registry::cache::ChangeKind;
use serde_json::{Value, json};
use tracing::warn;

use super::{REST, follow};
use crate::client::{At, Client};
use crate::json::Json;

const NAMESPACES: At<'static> = ("", "namespaces");

/// The default service account of every namespace.
pub(super) async fn accounts(client: Client) {
    let at = ("", "serviceaccounts");
    let account = |namespace: &str| json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default", "namespace": namespace}});
    keep(&client, at, "default", &account).await;
}

/// The CA that pods verify this server with.
pub(super) async fn root_ca(client: Client, ca: String) {
    let at = ("", "configmaps");
    let map = |namespace: &str| {
        json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"ca.crt": ca},
            "metadata": {"name": "kube-root-ca.crt", "namespace": namespace, "annotations": {"kubernetes.io/description":
                "Contains a CA bundle that can be used to verify the kube-apiserver when using internal endpoints such as the internal service IP or kubernetes.default.svc. No other usage is guaranteed across distributions of Kubernetes clusters."}}})
    };
    keep(&client, at, "kube-root-ca.crt", &map).await;
}

/// Keeps an object of one name in every active namespace.
async fn keep(
    client: &Client,
    at: At<'static>,
    name: &'static str,
    make: &(dyn Fn(&str) -> Value + Send + Sync),
) {
    let (namespaces, store) = loop {
        if let (Ok(namespaces), Ok(own)) = (client.resource(NAMESPACES), client.resource(at)) {
            break (namespaces.store, own.store);
        }
        tokio::time::sleep(REST).await;
    };
    let ensure = |namespace: String| async move {
        if let Err(error) = ensure(client, at, name, &namespace, make).await {
            warn!(
                namespace,
                object = name,
                error = error.message(),
                "cannot keep an object"
            );
        }
    };
    let by_namespace = follow(
        &namespaces,
        |entries| async move {
            for entry in entries {
                ensure(entry.name().to_string()).await;
            }
        },
        |change| async move {
            if change.kind != ChangeKind::Deleted {
                ensure(change.entry.name().to_string()).await;
            }
        },
    );
    let by_object = follow(
        &store,
        |_| async {},
        |change| async move {
            if change.entry.name() == name {
                ensure(change.entry.namespace().to_string()).await;
            }
        },
    );
    tokio::join!(by_namespace, by_object);
}

async fn ensure(
    client: &Client,
    at: At<'_>,
    name: &str,
    namespace: &str,
    make: &(dyn Fn(&str) -> Value + Send + Sync),
) -> Result<(), generic_server::ApiError> {
    let active = client
        .entry(NAMESPACES, "", namespace)
        .await?
        .is_some_and(|entry| entry.fields().all(|phase| phase != "Terminating"));
    if !active {
        return Ok(());
    }
    let wanted = make(namespace);
    match client.find(at, namespace, name).await? {
        None => {
            client.create(at, namespace, wanted).await?;
        }
        Some(live) if wanted.has("data") && live.dig("data") != wanted.dig("data") => {
            client
                .update(at, namespace, name, "", |object| {
                    object.copy_key("data", &wanted);
                    Ok(())
                })
                .await?;
        }
        Some(_) => {}
    }
    Ok(())
}
