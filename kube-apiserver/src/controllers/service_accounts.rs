//! Every namespace has a service account `default` and a config map `kube-root-ca.crt`, recreated when deleted.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use generic_server::registry::cache::ChangeKind;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::watch;
use tracing::warn;

use super::{REST, follow};
use crate::client::{At, Client};
use crate::json::Json;

/// How often the same other content may be found in place of one's own, in one namespace and within a time.
const QUARREL_TIMES: u32 = 5;
/// The same for the one of two replicas that is to stay: by then the other has yielded, unless it never does.
const QUARREL_TIMES_OF_FIRST: u32 = 2 * QUARREL_TIMES + 2;
const QUARREL_WITHIN: Duration = Duration::from_secs(60);

const NAMESPACES: At<'static> = ("", "namespaces");

/// The default service account of every namespace.
pub(super) async fn accounts(client: Client) {
    let at = ("", "serviceaccounts");
    let account = |namespace: &str| json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default", "namespace": namespace}});
    keep(&client, at, "default", &account).await;
}

/// The CA that pods verify this server with, as it is now.
pub(super) async fn root_ca(client: Client, mut current: watch::Receiver<String>) {
    loop {
        let ca = current.borrow_and_update().clone();
        tokio::select! {
            () = keep_root_ca(&client, &ca) => return,
            Ok(()) = current.changed() => {}
        }
    }
}

async fn keep_root_ca(client: &Client, ca: &str) {
    let at = ("", "configmaps");
    let map = |namespace: &str| {
        json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"ca.crt": ca},
            "metadata": {"name": "kube-root-ca.crt", "namespace": namespace, "annotations": {"kubernetes.io/description":
                "Contains a CA bundle that can be used to verify the kube-apiserver when using internal endpoints such as the internal service IP or kubernetes.default.svc. No other usage is guaranteed across distributions of Kubernetes clusters."}}})
    };
    keep(client, at, "kube-root-ca.crt", &map).await;
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
    let quarrel = &Quarrel::default();
    let ensure = |namespace: String| async move {
        if let Err(error) = ensure(client, at, name, &namespace, make, quarrel).await {
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

/// Another writer of the same objects with other content: a replica with other certificates. One of the two yields, since they would
/// rewrite the object for ever: the one whose content is later in the order of texts, so that not both do.
#[derive(Debug, Default)]
struct Quarrel(Mutex<Written>);

#[derive(Debug, Default)]
struct Written {
    /// The content found in place of the one written here, and by namespace since when and how often.
    found: Value,
    times: HashMap<String, (Instant, u32)>,
    yielded: bool,
}

impl Quarrel {
    /// Whether to leave the object with `data` as it is, in place of `own`. A person who edits it does not repeat the same edit so
    /// often.
    fn yields(&self, name: &str, namespace: &str, own: &Value, data: &Value) -> bool {
        let mut written = self.0.lock();
        if written.yielded {
            return true;
        }
        if written.found != *data {
            written.found = data.clone();
            written.times.clear();
        }
        let now = Instant::now();
        let (since, times) = written.times.entry(namespace.to_string()).or_insert((now, 0));
        if now.duration_since(*since) > QUARREL_WITHIN {
            (*since, *times) = (now, 0);
        }
        *times += 1;
        let [own, found] = [own, data].map(ToString::to_string);
        let patience = match own < found {
            true => QUARREL_TIMES_OF_FIRST,
            false => QUARREL_TIMES,
        };
        if *times <= patience {
            return false;
        }
        written.yielded = true;
        written.times = HashMap::new();
        tracing::error!(
            namespace,
            object = name,
            "another server keeps writing something else: a replica with other certificates? This one leaves it at that until it is restarted; give all replicas the same files, or none"
        );
        true
    }
}

async fn ensure(
    client: &Client,
    at: At<'_>,
    name: &str,
    namespace: &str,
    make: &(dyn Fn(&str) -> Value + Send + Sync),
    quarrel: &Quarrel,
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
            if quarrel.yields(name, namespace, wanted.dig("data"), live.dig("data")) {
                return Ok(());
            }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replica_that_is_overwritten_repeatedly_yields() {
        let quarrel = Quarrel::default();
        let data = |ca: &str| json!({"ca.crt": ca});
        let (own, theirs, other) = (data("z own"), data("theirs"), data("other"));
        // A new certificate is found wanting in every namespace once.
        for n in 0..1_000 {
            assert!(!quarrel.yields("kube-root-ca.crt", &format!("ns{n}"), &own, &theirs));
        }
        // A person edits it.
        for _ in 0..QUARREL_TIMES {
            assert!(!quarrel.yields("kube-root-ca.crt", "a", &own, &theirs));
        }
        assert!(!quarrel.yields("kube-root-ca.crt", "a", &own, &other));
        for _ in 0..QUARREL_TIMES {
            assert!(!quarrel.yields("kube-root-ca.crt", "a", &own, &theirs));
        }
        assert!(quarrel.yields("kube-root-ca.crt", "a", &own, &theirs));
        assert!(
            quarrel.yields("kube-root-ca.crt", "b", &own, &theirs),
            "everywhere from then on"
        );
    }

    /// Two replicas that find each other's content, however their turns fall: the same one yields, and the other does not.
    #[test]
    fn one_of_two_yields() {
        let (low, high) = (json!({"ca.crt": "a"}), json!({"ca.crt": "b"}));
        let most = 4 * QUARREL_TIMES_OF_FIRST;
        // How many turns one has for each of the other's; both find the other's content at once where writes cross.
        for turns in [[1, 1], [1, 2], [2, 1]] {
            let (first, second) = (Quarrel::default(), Quarrel::default());
            let mut yielded = [false; 2];
            for _ in 0..most {
                for _ in 0..turns[0] {
                    // There is nothing to find once the other has yielded.
                    yielded[0] |= !yielded[1] && first.yields("map", "ns", &low, &high);
                }
                for _ in 0..turns[1] {
                    yielded[1] |= !yielded[0] && second.yields("map", "ns", &high, &low);
                }
            }
            assert_eq!(yielded, [false, true], "{turns:?}");
        }
        // A writer that never yields, as upstream's controller manager, is left alone all the same.
        let quarrel = Quarrel::default();
        let times = (0..most).filter(|_| !quarrel.yields("map", "ns", &low, &high));
        assert_eq!(times.count(), QUARREL_TIMES_OF_FIRST as usize);
    }
}
