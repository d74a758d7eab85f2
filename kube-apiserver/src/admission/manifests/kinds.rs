//! The objects of manifests: read strictly, defaulted and validated as through the API, and without what files cannot have.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};

use machinery::codec::{strict_message, typed, yaml};
use machinery::names::{name_is_dns_subdomain, validate_object_meta};
use machinery::schema::builtin;
use machinery::{FieldPath, go, meta};
use serde_json::{Map, Value};

use super::{SUFFIX, Set};
use crate::errors::Errors;
use crate::groups::admissionregistration;
use crate::json::Json;

const GROUP: &str = "admissionregistration.k8s.io";
const VERSION: &str = "admissionregistration.k8s.io/v1";

/// A plugin that takes manifests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::admission) enum Plugin {
    MutatingPolicies,
    MutatingWebhooks,
    ValidatingPolicies,
    ValidatingWebhooks,
}

impl Plugin {
    /// The plugin's name.
    pub(in crate::admission) fn name(self) -> &'static str {
        match self {
            Plugin::MutatingPolicies => "MutatingAdmissionPolicy",
            Plugin::MutatingWebhooks => "MutatingAdmissionWebhook",
            Plugin::ValidatingPolicies => "ValidatingAdmissionPolicy",
            Plugin::ValidatingWebhooks => "ValidatingAdmissionWebhook",
        }
    }

    /// What its errors call the manifests.
    pub(in crate::admission) fn noun(self) -> &'static str {
        match self {
            Plugin::MutatingPolicies | Plugin::ValidatingPolicies => "policy",
            Plugin::MutatingWebhooks | Plugin::ValidatingWebhooks => "webhook",
        }
    }

    /// The kind of its objects, and that of their bindings where they have some.
    fn kinds(self) -> (&'static str, Option<&'static str>) {
        match self {
            Plugin::MutatingPolicies => ("MutatingAdmissionPolicy", Some("MutatingAdmissionPolicyBinding")),
            Plugin::MutatingWebhooks => ("MutatingWebhookConfiguration", None),
            Plugin::ValidatingPolicies => (
                "ValidatingAdmissionPolicy",
                Some("ValidatingAdmissionPolicyBinding"),
            ),
            Plugin::ValidatingWebhooks => ("ValidatingWebhookConfiguration", None),
        }
    }
}

/// The objects of documents.
///
/// # Errors
/// The first thing that is wrong with one of them.
pub(super) async fn accept(plugin: Plugin, documents: &[(PathBuf, Vec<u8>)]) -> Result<Set, String> {
    let mut reading = Reading {
        plugin,
        set: Set::default(),
        names: HashMap::new(),
    };
    for (file, document) in documents {
        let failed = |why: String| format!("error loading {}: {why}", file.display());
        let decoded = yaml::decode(document).map_err(|error| failed(error.to_string()))?;
        if !decoded.strict.is_empty() {
            return Err(failed(strict_message(&decoded.strict)));
        }
        for object in objects(decoded.value).map_err(failed)? {
            reading.add(object, file).await.map_err(failed)?;
        }
    }
    let mut set = reading.set;
    let names: HashSet<&str> = set.objects.iter().map(meta::name).collect();
    for binding in &set.bindings {
        let (name, policy) = (meta::name(binding), binding.text("spec.policyName"));
        if !names.contains(policy) {
            return Err(format!(
                "binding \"{name}\" references policy \"{policy}\" which does not exist in the manifest directory"
            ));
        }
    }
    set.objects.sort_by(|a, b| meta::name(a).cmp(meta::name(b)));
    set.bindings.sort_by(|a, b| meta::name(a).cmp(meta::name(b)));
    Ok(set)
}

/// The objects of a document: itself, or what is in it if it is a list, of any or of one kind.
fn objects(document: Value) -> Result<Vec<Value>, String> {
    let mut found = Vec::new();
    // Lists within lists are as deep as documents are.
    let mut open = vec![document];
    while let Some(mut object) = open.pop() {
        let (version, kind) = (
            meta::api_version(&object).to_string(),
            meta::kind(&object).to_string(),
        );
        for (text, name) in [(&kind, "Kind"), (&version, "apiVersion")] {
            if text.is_empty() {
                return Err(format!("Object '{name}' is missing in '{object}'"));
            }
        }
        let item = match kind.strip_suffix("List") {
            Some(item) if version == VERSION => item,
            Some("") if version == "v1" => "",
            _ => {
                found.push(object);
                continue;
            }
        };
        let items = match object.take_key("items") {
            Some(Value::Array(items)) => items,
            _ => Vec::new(),
        };
        for mut inner in items.into_iter().rev() {
            if !item.is_empty() && inner.is_object() {
                inner.put("apiVersion", VERSION);
                inner.put("kind", item);
            }
            open.push(inner);
        }
    }
    Ok(found)
}

struct Reading {
    plugin: Plugin,
    set: Set,
    /// The file of each object, by kind and name.
    names: HashMap<(String, String), PathBuf>,
}

impl Reading {
    async fn add(&mut self, object: Value, file: &Path) -> Result<(), String> {
        let object = self.read(object).await?;
        let (kind, name) = (meta::kind(&object).to_string(), meta::name(&object).to_string());
        self.named(&kind, &name, file)?;
        let (own, _) = self.plugin.kinds();
        match self.plugin {
            Plugin::MutatingWebhooks | Plugin::ValidatingWebhooks => clients(&object, &name, file)?,
            Plugin::MutatingPolicies | Plugin::ValidatingPolicies if kind == own => {
                if object.has("spec.paramKind") {
                    return Err(format!(
                        "{kind} \"{name}\": spec.paramKind is not supported for static manifests"
                    ));
                }
            }
            Plugin::MutatingPolicies | Plugin::ValidatingPolicies => binding(&object, &name)?,
        }
        match kind == own {
            true => self.set.objects.push(object),
            false => self.set.bindings.push(object),
        }
        Ok(())
    }

    /// An object, defaulted and validated.
    async fn read(&self, object: Value) -> Result<Value, String> {
        let (version, kind) = (
            meta::api_version(&object).to_string(),
            meta::kind(&object).to_string(),
        );
        let (own, binding) = self.plugin.kinds();
        let group = version.split('/').next();
        if group != Some(GROUP) || admissionregistration::rules(&kind).is_none() {
            return Err(format!(
                "no kind \"{kind}\" is registered for version \"{version}\""
            ));
        }
        if kind != own && Some(&*kind) != binding || version != VERSION {
            let short = version.rsplit('/').next().unwrap_or_default();
            return Err(format!("unsupported resource type *{short}.{kind}"));
        }
        let schema = builtin().kind(GROUP, "v1", &kind);
        let (Some(schema), Some(rules)) = (schema, admissionregistration::rules(&kind)) else {
            return Err(format!(
                "no kind \"{kind}\" is registered for version \"{version}\""
            ));
        };
        let decoded = typed::decode_builtin(schema.root(), object).map_err(|error| error.to_string())?;
        if !decoded.strict.is_empty() {
            return Err(strict_message(&decoded.strict));
        }
        let mut object = decoded.value;
        object.put("apiVersion", version);
        object.put("kind", kind.clone());
        (rules.default)(&mut object);
        let faults = match rules.expression_faults {
            Some(faults) => faults(&object).await,
            None => Vec::new(),
        };
        let none = Map::new();
        let metadata = object.object_at("metadata").unwrap_or(&none);
        let path = FieldPath::new("metadata");
        let mut errors = validate_object_meta(metadata, false, name_is_dns_subdomain, &path);
        errors.extend(Errors::collect_with(&faults, |errors| {
            (rules.validate)(errors, &object);
        }));
        if !errors.is_empty() {
            let errors: Vec<String> = errors.iter().map(ToString::to_string).collect();
            let (name, why) = (meta::name(&object), go::aggregate(&errors));
            return Err(format!("{kind} \"{name}\": {why}"));
        }
        Ok(object)
    }

    /// Every name is there once in its kind, and ends in the suffix.
    fn named(&mut self, kind: &str, name: &str, file: &Path) -> Result<(), String> {
        let shown = file.display();
        if name.is_empty() {
            return Err(format!("resource in file \"{shown}\" must have a name"));
        }
        if !name.ends_with(SUFFIX) {
            return Err(format!(
                "\"{name}\" in file \"{shown}\" must have a name ending with \"{SUFFIX}\""
            ));
        }
        let key = (kind.to_string(), name.to_string());
        match self.names.insert(key, file.to_path_buf()) {
            Some(before) => Err(format!(
                "duplicate name \"{name}\" found in file \"{shown}\" (previously seen in \"{}\")",
                before.display()
            )),
            None => Ok(()),
        }
    }
}

/// Webhooks of files are reached by URL: services may not be there yet.
fn clients(configuration: &Value, name: &str, file: &Path) -> Result<(), String> {
    for hook in configuration.list("webhooks") {
        let why = if hook.has("clientConfig.service") {
            "clientConfig.service is not supported for static manifests; use clientConfig.url instead"
        } else if hook.text("clientConfig.url").is_empty() {
            "clientConfig.url is required for static manifests"
        } else {
            continue;
        };
        return Err(format!(
            "webhook \"{}\" in \"{name}\" (file \"{}\"): {why}",
            hook.text("name"),
            file.display()
        ));
    }
    Ok(())
}

fn binding(binding: &Value, name: &str) -> Result<(), String> {
    let policy = binding.text("spec.policyName");
    if policy.is_empty() {
        return Err(format!(
            "binding \"{name}\" must reference a policy (spec.policyName)"
        ));
    }
    if !policy.ends_with(SUFFIX) {
        return Err(format!(
            "binding \"{name}\": spec.policyName \"{policy}\" must end with \"{SUFFIX}\""
        ));
    }
    if binding.has("spec.paramRef") {
        return Err(format!(
            "binding \"{name}\": spec.paramRef is not supported for static manifests"
        ));
    }
    Ok(())
}
