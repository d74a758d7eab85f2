//! The APIService kind: `apiregistration.k8s.io/v1`.

use std::sync::Arc;

use generic_server::registry::StorageFactory;
use generic_server::registry::config::StoreConfig;
use generic_server::registry::strategy::{MetadataRules, NameRule, Strategy, WriteContext};
use generic_server::resource::{
    ALL_VERBS, Backend, Column, Decoding, Names, Scope, ServedResource, Subresource, TableConvertor,
};
use machinery::schema::builtin;
use machinery::{
    FieldError, FieldPath, GroupKind, GroupResource, GroupVersionKind, GroupVersionResource, meta, names,
};
use serde_json::{Value, json};

/// The group.
pub const GROUP: &str = "apiregistration.k8s.io";
/// The version.
pub const VERSION: &str = "v1";

/// The resource in its store. `None` when the schema of the kind is not built in, which is a fault of the build.
pub fn resource(storage: &StorageFactory, prefix: &str) -> Option<Arc<ServedResource>> {
    let store = storage.open(StoreConfig {
        resource: GroupResource::new(GROUP, "apiservices"),
        kind: GroupKind::new(GROUP, "APIService"),
        prefix: format!("{prefix}/apiregistration.k8s.io/apiservices"),
        namespaced: false,
        fields: Vec::new(),
        ttl: None,
    });
    Some(Arc::new(ServedResource {
        gvr: GroupVersionResource::new(GROUP, VERSION, "apiservices"),
        gvk: GroupVersionKind::new(GROUP, VERSION, "APIService"),
        names: Names {
            kind: "APIService".into(),
            list_kind: "APIServiceList".into(),
            singular: "apiservice".into(),
            short: Vec::new(),
            categories: vec!["api-extensions".into()],
        },
        scope: Scope::Cluster,
        decoding: Decoding::Builtin(builtin().kind(GROUP, VERSION, "APIService")?),
        strategy: Arc::new(ApiService),
        backend: Backend::Stored(store),
        converter: None,
        subresources: vec![("status".into(), Subresource::View(Arc::new(Status)))],
        table: Arc::new(Table::new()),
        verbs: ALL_VERBS,
        deprecation_warning: None,
        storage_version_hash: "InPBPD7+PqM=".into(),
        custom: false,
    }))
}

/// Whether the service that an APIService names is there, as a condition.
pub(crate) fn condition<'a>(object: &'a Value, kind: &str) -> Option<&'a Value> {
    let conditions = meta::dig(object, &["status", "conditions"])?.as_array()?;
    conditions
        .iter()
        .find(|c| c.get("type").and_then(Value::as_str) == Some(kind))
}

/// The condition of APIServices that are served here.
pub(crate) fn local_condition() -> Value {
    json!({
        "type": "Available",
        "status": "True",
        "lastTransitionTime": generic_server::write::now(),
        "reason": "Local",
        "message": "Local APIServices are always available",
    })
}

fn remote(object: &Value) -> Option<&Value> {
    meta::dig(object, &["spec", "service"]).filter(|s| s.is_object())
}

#[derive(Debug)]
struct ApiService;

impl Strategy for ApiService {
    fn default(&self, object: &mut Value) {
        if let Some(service) = object.pointer_mut("/spec/service").and_then(Value::as_object_mut) {
            service.entry("port").or_insert_with(|| 443.into());
        }
    }

    fn name_rule(&self) -> NameRule {
        names::name_is_path_segment
    }

    fn metadata_rules(&self) -> MetadataRules {
        MetadataRules::ANY_FINALIZER
    }

    fn prepare_for_create(&self, _ctx: &WriteContext<'_>, object: &mut Value) {
        let local = remote(object).is_none();
        object["status"] = if local {
            json!({"conditions": [local_condition()]})
        } else {
            json!({})
        };
    }

    fn validate_create(&self, _ctx: &WriteContext<'_>, object: &Value) -> Vec<FieldError> {
        validate(object)
    }

    fn prepare_for_update(&self, _ctx: &WriteContext<'_>, object: &mut Value, old: &Value) {
        object["status"] = old.get("status").cloned().unwrap_or_else(|| json!({}));
    }

    fn validate_update(&self, _ctx: &WriteContext<'_>, object: &Value, _old: &Value) -> Vec<FieldError> {
        validate(object)
    }

    fn allow_unconditional_update(&self) -> bool {
        false
    }

    fn reset_fields(&self) -> &'static [&'static str] {
        &["status"]
    }
}

#[derive(Debug)]
struct Status;

impl Strategy for Status {
    fn default(&self, object: &mut Value) {
        ApiService.default(object);
    }

    fn name_rule(&self) -> NameRule {
        names::name_is_path_segment
    }

    fn prepare_for_update(&self, _ctx: &WriteContext<'_>, object: &mut Value, old: &Value) {
        object["spec"] = old.get("spec").cloned().unwrap_or_default();
        for key in ["labels", "annotations", "finalizers", "ownerReferences"] {
            let kept = meta::metadata(old)
                .and_then(|m| m.get(key))
                .cloned()
                .unwrap_or_default();
            meta::set(object, key, kept);
        }
    }

    fn validate_update(&self, _ctx: &WriteContext<'_>, object: &Value, _old: &Value) -> Vec<FieldError> {
        let status = FieldPath::new("status");
        let path = status.child("conditions");
        let conditions = meta::dig(object, &["status", "conditions"]).and_then(Value::as_array);
        let mut errors = Vec::new();
        for (index, condition) in conditions.into_iter().flatten().enumerate() {
            let value = condition.get("status").cloned().unwrap_or_default();
            if !matches!(value.as_str(), Some("True" | "False" | "Unknown")) {
                let at = path.index(index);
                errors.push(FieldError::not_supported(
                    &at.child("status"),
                    &value,
                    &["True", "False", "Unknown"],
                ));
            }
        }
        errors
    }

    fn allow_unconditional_update(&self) -> bool {
        false
    }

    fn reset_fields(&self) -> &'static [&'static str] {
        &["spec", "metadata"]
    }
}

fn validate(object: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let (group, version) = (
        meta::dig_str(object, &["spec", "group"]),
        meta::dig_str(object, &["spec", "version"]),
    );
    let metadata = FieldPath::new("metadata");
    let wanted = format!("{version}.{group}");
    for (key, name) in [
        ("generateName", meta::generate_name(object)),
        ("name", meta::name(object)),
    ] {
        if name == wanted || name.is_empty() || !names::path_segment_name(name).is_empty() {
            continue;
        }
        let detail = format!(
            "must be `spec.version+\".\"+spec.group`: {}",
            machinery::go::quote(&wanted)
        );
        errors.push(FieldError::invalid_str(&metadata.child(key), name, detail));
    }
    let spec = FieldPath::new("spec");
    if group.is_empty() && version != "v1" {
        let detail = "only v1 may have an empty group and it better be legacy kube";
        errors.push(FieldError::required(&spec.child("group"), detail));
    }
    if !group.is_empty() {
        for fault in names::dns1123_subdomain(group) {
            errors.push(FieldError::invalid_str(&spec.child("group"), group, fault));
        }
    }
    for fault in names::dns1035_label(version) {
        errors.push(FieldError::invalid_str(&spec.child("version"), version, fault));
    }
    let number = |key: &str| {
        meta::dig(object, &["spec", key])
            .cloned()
            .unwrap_or_else(|| 0.into())
    };
    for (key, max) in [("groupPriorityMinimum", 20_000), ("versionPriority", 1_000)] {
        let value = number(key);
        if !value.as_i64().is_some_and(|n| n > 0 && n <= max) {
            let detail = format!("must be positive and less than {max}");
            errors.push(FieldError::invalid(&spec.child(key), &value, detail));
        }
    }
    let bundle = meta::dig_str(object, &["spec", "caBundle"]);
    let skips = meta::dig(object, &["spec", "insecureSkipTLSVerify"])
        .and_then(Value::as_bool)
        .unwrap_or_default();
    let Some(service) = remote(object) else {
        if !bundle.is_empty() {
            let bytes = bundle.trim_end_matches('=').len() * 3 / 4;
            errors.push(FieldError::invalid_str(
                &spec.child("caBundle"),
                &format!("{bytes} bytes"),
                "local APIServices may not have a caBundle",
            ));
        }
        if skips {
            errors.push(FieldError::invalid(
                &spec.child("insecureSkipTLSVerify"),
                &true.into(),
                "local APIServices may not have insecureSkipTLSVerify",
            ));
        }
        return errors;
    };
    let path = spec.child("service");
    for key in ["namespace", "name"] {
        if service
            .get(key)
            .and_then(Value::as_str)
            .unwrap_or_default()
            .is_empty()
        {
            errors.push(FieldError::required(&path.child(key), ""));
        }
    }
    let port = service.get("port").cloned().unwrap_or_else(|| 443.into());
    let faults = names::port_number(port.as_i64().unwrap_or_default());
    if !faults.is_empty() {
        let detail = format!("port is not valid: {}", faults.join(", "));
        errors.push(FieldError::invalid(&path.child("port"), &port, detail));
    }
    if skips && !bundle.is_empty() {
        errors.push(FieldError::invalid(
            &spec.child("insecureSkipTLSVerify"),
            &true.into(),
            "may not be true if caBundle is present",
        ));
    }
    errors
}

#[derive(Debug)]
struct Table(Vec<Column>);

impl Table {
    fn new() -> Self {
        let column = |name: &str, kind: &str, format: &str, description: &str| Column {
            name: name.into(),
            kind: kind.into(),
            format: format.into(),
            description: description.into(),
            priority: 0,
        };
        Table(vec![
            column("Name", "string", "name", "The name of the APIService."),
            column(
                "Service",
                "string",
                "",
                "The service that serves the group version, or Local.",
            ),
            column(
                "Available",
                "string",
                "",
                "Whether the group version can be served, and why not.",
            ),
            column("Age", "string", "", "The time since the APIService was created."),
        ])
    }
}

impl TableConvertor for Table {
    fn columns(&self) -> &[Column] {
        &self.0
    }

    fn cells(&self, object: &Value, ages: &machinery::table::Ages) -> Vec<Value> {
        let service = match remote(object) {
            None => "Local".to_string(),
            Some(service) => {
                let text = |key: &str| service.get(key).and_then(Value::as_str).unwrap_or_default();
                format!("{}/{}", text("namespace"), text("name"))
            }
        };
        let available = match condition(object, "Available") {
            None => "Unknown".to_string(),
            Some(condition) => {
                let text = |key: &str| condition.get(key).and_then(Value::as_str).unwrap_or_default();
                if text("status") == "True" {
                    "True".into()
                } else {
                    format!("{} ({})", text("status"), text("reason"))
                }
            }
        };
        let created = meta::metadata(object)
            .and_then(|m| m.get("creationTimestamp"))
            .and_then(Value::as_str);
        let age = ages.of(created);
        vec![
            meta::name(object).into(),
            service.into(),
            available.into(),
            age.into(),
        ]
    }
}
