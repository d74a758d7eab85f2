//! The first FlowSchemas and PriorityLevelConfigurations, kept as upstream's `ensurer` keeps them.
//!
//! The mandatory ones always have the spec that they are written with. The suggested ones have it while their annotation
//! [`AUTO_UPDATE`] says so, or while nobody has changed their spec and it says nothing. All of them are made again after they have been deleted. Others
//! with that annotation are those of an earlier release, and go.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join;
use generic_server::admission::AdmissionChain;
use generic_server::directory::Directory;
use generic_server::registry::follow;
use generic_server::request::Authorized;
use generic_server::write::{self, DeleteOptions, WriteCall};
use machinery::{ApiError, GroupResource, meta};
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::{Existing, Wanted, ensure_all, wanted};
use crate::groups::flowcontrol::{MANDATORY, Standard, standard};

const GROUP: &str = "flowcontrol.apiserver.k8s.io";
const RESOURCES: [&str; 2] = ["flowschemas", "prioritylevelconfigurations"];
/// Whether this server may change an object's spec.
const AUTO_UPDATE: &str = "apf.kubernetes.io/autoupdate-spec";
/// Between two passes that have changed something, so that servers of different releases do not change objects against each other without a
/// pause. Upstream's pause between all passes.
const PAUSE: Duration = Duration::from_secs(60);

/// The objects as they are made.
pub(super) fn objects() -> impl Iterator<Item = Wanted> {
    standard().iter().map(|Standard { kind, name, spec }| {
        let object = json!({
            "apiVersion": "flowcontrol.apiserver.k8s.io/v1", "kind": kind,
            "metadata": {"name": name, "annotations": {AUTO_UPDATE: "true"}}, "spec": spec,
        });
        let [schemas, levels] = RESOURCES;
        let resource = if kind == "FlowSchema" { schemas } else { levels };
        wanted(GROUP, resource, object, Existing::FlowControl)
    })
}

/// The live object as it should be, when it is not.
pub(super) fn revise(wanted: &Value, live: &Value) -> Option<Value> {
    let name = meta::name(wanted);
    let said = auto_update(live);
    let updates = MANDATORY.contains(&name)
        || said.unwrap_or_else(|| live["metadata"]["generation"].as_i64() == Some(1));
    let mut changed = live.clone();
    if updates {
        let mut spec = wanted["spec"].clone();
        // How many seats the exempt level lends is for the administrator to say.
        if let Some(exempt) = live["spec"].get("exempt").filter(|exempt| exempt.is_object()) {
            spec["exempt"] = exempt.clone();
        }
        changed["spec"] = spec;
    }
    if said != Some(updates) {
        let metadata = &mut changed["metadata"];
        if !metadata["annotations"].is_object() {
            metadata["annotations"] = json!({});
        }
        metadata["annotations"][AUTO_UPDATE] = json!(updates.to_string());
    }
    Some(changed)
}

/// What the annotation of an object says, in the words that Go's `ParseBool` takes.
fn auto_update(object: &Value) -> Option<bool> {
    match meta::dig_str(object, &["metadata", "annotations", AUTO_UPDATE]) {
        "1" | "t" | "T" | "TRUE" | "true" | "True" => Some(true),
        "0" | "f" | "F" | "FALSE" | "false" | "False" => Some(false),
        _ => None,
    }
}

/// Keeps the objects as they should be, for ever.
pub async fn keep_flow_control(directory: Arc<Directory>) {
    let find = |resource| directory.get(&GroupResource::new(GROUP, resource));
    let [Some(schemas), Some(levels)] = RESOURCES.map(find) else {
        return;
    };
    // One is enough: it says that something has changed, not what.
    let (changed, mut changes) = mpsc::channel::<()>(1);
    let note = || {
        let _ = changed.try_send(());
    };
    let objects = join(
        follow(schemas.store, |_| note()),
        follow(levels.store, |_| note()),
    );
    let wanted: Vec<Wanted> = self::objects().collect();
    let keeping = async {
        while changes.recv().await.is_some() {
            let begin = Instant::now();
            match keep(&directory, &wanted).await {
                Ok(false) => {}
                Ok(true) => tokio::time::sleep_until(begin + PAUSE).await,
                Err(error) => {
                    tracing::warn!(%error, "cannot maintain the objects of priority and fairness; retrying");
                    tokio::time::sleep_until(begin + PAUSE).await;
                    note();
                }
            }
        }
    };
    join(objects, keeping).await;
}

/// One pass. True when it has changed something.
async fn keep(directory: &Directory, wanted: &[Wanted]) -> Result<bool, ApiError> {
    let ensured = ensure_all(directory, wanted).await?;
    let mut removed = false;
    for resource in RESOURCES {
        removed |= remove_unwanted(directory, resource, wanted).await?;
    }
    Ok(ensured || removed)
}

/// Removes what an earlier release has made and this one does not know.
async fn remove_unwanted(directory: &Directory, resource: &str, wanted: &[Wanted]) -> Result<bool, ApiError> {
    let resource = GroupResource::new(GROUP, resource);
    let Some(registered) = directory.get(&resource) else {
        return Ok(false);
    };
    let snapshot = registered.store.as_system().fresh().await?;
    let known = |name: &str| {
        wanted
            .iter()
            .any(|wanted| wanted.resource == resource && meta::name(&wanted.object) == name)
    };
    let (authorized, none) = (Authorized::system(), AdmissionChain::default());
    let call = WriteCall::internal(&registered.resource, &authorized, &none, "");
    let mut removed = false;
    for entry in snapshot.objects.values() {
        let name = entry.name();
        if known(name) || auto_update(&entry.value()) != Some(true) {
            continue;
        }
        match write::delete(&call, name, &DeleteOptions::default()).await {
            Err(error) if error.code() == 404 => {}
            done => removed |= done.map(|_| true)?,
        }
    }
    Ok(removed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_are_those_of_upstream() {
        let all: Vec<Wanted> = objects().collect();
        let of = |resource: &str| {
            all.iter()
                .filter(|wanted| &*wanted.resource.resource == resource)
                .count()
        };
        assert_eq!((of("flowschemas"), of("prioritylevelconfigurations")), (11, 8));
        for name in MANDATORY {
            let found = all.iter().filter(|wanted| meta::name(&wanted.object) == name);
            assert_eq!(found.count(), 2, "{name}");
        }
    }

    #[test]
    fn specs_are_kept_where_they_are_this_servers() {
        #[track_caller]
        fn check(name: &str, annotation: Option<&str>, generation: i64, precedence: i64, kept: (i64, &str)) {
            let wanted = json!({"metadata": {"name": name}, "spec": {"matchingPrecedence": 5}});
            let mut live = json!({
                "metadata": {"name": name, "generation": generation}, "spec": {"matchingPrecedence": precedence},
            });
            if let Some(annotation) = annotation {
                live["metadata"]["annotations"] = json!({AUTO_UPDATE: annotation});
            }
            let changed = revise(&wanted, &live).expect("an object");
            assert_eq!(changed["spec"]["matchingPrecedence"], kept.0);
            assert_eq!(changed["metadata"]["annotations"][AUTO_UPDATE], kept.1);
        }
        check("probes", Some("true"), 7, 9, (5, "true"));
        check("probes", Some("1"), 7, 9, (5, "1"));
        check("probes", Some("false"), 1, 9, (9, "false"));
        // It says nothing: by whether anybody has changed the spec.
        check("probes", None, 1, 9, (5, "true"));
        check("probes", None, 2, 9, (9, "false"));
        check("probes", Some("perhaps"), 2, 9, (9, "false"));
        // Mandatory ones are this server's, whatever is said.
        check("exempt", Some("false"), 7, 9, (5, "true"));
        check("catch-all", None, 7, 9, (5, "true"));
    }

    #[test]
    fn the_exempt_level_lends_what_the_administrator_says() {
        let wanted = json!({"metadata": {"name": "exempt"}, "spec": {"type": "Exempt", "exempt": {"lendablePercent": 0}}});
        let live = json!({
            "metadata": {"name": "exempt", "annotations": {AUTO_UPDATE: "true"}},
            "spec": {"type": "Exempt", "exempt": {"lendablePercent": 50, "nominalConcurrencyShares": 10}},
        });
        assert_eq!(revise(&wanted, &live), Some(live));
    }
}
