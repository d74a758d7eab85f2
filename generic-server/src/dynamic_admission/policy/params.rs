//! Parameters: the objects that a binding says a policy is evaluated with.

use std::sync::Arc;

use machinery::selector::LabelSelector;
use machinery::{GroupKind, GroupVersion, Map, meta};
use serde_json::Value;

use super::Policy;
use crate::directory::Directory;
use crate::directory::Registered;
use crate::registry::Entry;
use crate::resource::Scope;
use crate::write::served;

/// `paramRef` of a binding.
#[derive(Debug)]
pub(super) struct ParamRef {
    name: String,
    namespace: String,
    selector: Option<Result<LabelSelector, String>>,
    deny_when_absent: bool,
}

impl ParamRef {
    pub(super) fn read(value: &Value) -> Self {
        let text = |key: &str| meta::dig_str(value, &[key]).to_string();
        let selector = value.get("selector").filter(|selector| selector.is_object());
        ParamRef {
            name: text("name"),
            namespace: text("namespace"),
            selector: selector.map(LabelSelector::from_value),
            deny_when_absent: text("parameterNotFoundAction") == "Deny",
        }
    }
}

/// The stored resource of a kind, in any version.
fn find(directory: &Directory, api_version: &str, kind: &str) -> Option<Registered> {
    let group = GroupVersion::parse(api_version)?.group;
    directory.of_kind(&GroupKind {
        group,
        kind: kind.into(),
    })
}

/// The parameters to evaluate a policy with for a binding: one `None` when it takes no parameters, nothing when those it
/// names may be absent and are.
///
/// # Errors
/// The error of the configuration, in upstream's words.
pub(super) async fn collect(
    directory: &Arc<Directory>,
    policy: &Policy,
    reference: Option<&ParamRef>,
    namespace: &str,
) -> Result<Vec<Option<Value>>, String> {
    let (Some((api_version, kind)), Some(reference)) = (&policy.param_kind, reference) else {
        return Ok(vec![None]);
    };
    let found = find(directory, api_version, kind);
    let found = found.ok_or_else(|| format!("paramKind kind `{api_version}, Kind={kind}` not known"))?;
    let namespaced = found.resource.scope == Scope::Namespaced;
    let namespace = match (namespaced, reference.namespace.as_str()) {
        (true, "") if namespace.is_empty() => {
            return Err(
                "cannot use namespaced paramRef in policy binding that matches cluster-scoped resources"
                    .into(),
            );
        }
        (true, "") => namespace,
        (true, own) => own,
        (false, "") => "",
        (false, _) => {
            return Err("paramRef.namespace must not be provided for a cluster-scoped `paramKind`".into());
        }
    };
    let snapshot = found
        .store
        .as_system()
        .fresh()
        .await
        .map_err(|error| error.message().to_string())?;
    let mut params = Vec::new();
    match &reference.selector {
        None => {
            let key = found.store.key(namespace, &reference.name);
            let entry = found.store.as_system().look_up(&snapshot, &key, "get").await;
            if let Some(entry) = entry.map_err(|error| error.message().to_string())? {
                params.push(Some(read(&found, &entry).await?));
            }
        }
        Some(selector) => {
            let selector = selector.as_ref().map_err(Clone::clone)?;
            // One that cannot be decoded might be selected, and is not as good as absent.
            let prefix = found.store.key(namespace, "");
            if let Some(key) = snapshot.unreadable.keys().find(|key| key.starts_with(&prefix)) {
                return Err(format!("param resource {key} cannot be decoded"));
            }
            let none = Map::new();
            for entry in snapshot.objects.values() {
                if namespaced && entry.namespace() != namespace {
                    continue;
                }
                let object = read(&found, entry).await?;
                if selector.matches(meta::labels(&object).unwrap_or(&none)) {
                    params.push(Some(object));
                }
            }
        }
    }
    if params.is_empty() && reference.deny_when_absent {
        return Err("no params found for policy binding with `Deny` parameterNotFoundAction".into());
    }
    Ok(params)
}

async fn read(found: &Registered, entry: &Arc<Entry>) -> Result<Value, String> {
    let object = served(&found.resource, entry).await;
    object.map_err(|error| error.message().to_string())
}
