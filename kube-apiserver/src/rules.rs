//! The strategy of a kind as data: flags, the fields that move generation, what status writes may touch, and plain
//! functions for defaults and validation. [`Kind`] turns a [`Rules`] into the strategy of the resource, [`StatusOf`] into that
//! of its `status` subresource. Kinds that need more implement `Strategy` themselves.

use std::fmt;
use std::sync::Arc;

use generic_server::registry::strategy::{
    DefaultPropagation, ExpressionFaults, MetadataRules, NameRule, OtherVersion, SelectableField, Strategy,
    WriteContext, WriteHooks, subdomain_name,
};
use machinery::selector::field::unsupported_field;
use machinery::{ApiError, FieldError, GroupVersionKind, meta};
use serde_json::Value;

use crate::deps::KindFeatures;
use crate::errors::Errors;
use crate::json::{Json, same};

/// The changes to metadata that a status write may make.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StatusMeta {
    /// Anything.
    Free,
    /// Anything but labels.
    KeepLabels,
    /// Nothing but what the server manages (upstream's `ResetObjectMetaForStatus`).
    Reset,
    /// Nothing at all: metadata is the stored object's.
    Stored,
}

/// A kind's rules. `..Rules::PLAIN` fills in the rest.
pub(crate) struct Rules {
    pub(crate) name: NameRule,
    /// What the kind's validation looks at in metadata.
    pub(crate) metadata: MetadataRules,
    pub(crate) default: fn(&mut Value),
    /// Drops fields of features that are off, unless the old object has them. Before all other preparation of creates and updates.
    pub(crate) drop_disabled: fn(KindFeatures, &mut Value, &Value),
    /// After the common part of a create's preparation.
    pub(crate) prepare_create: fn(&WriteContext<'_>, &mut Value),
    /// Before the common part of an update's preparation.
    pub(crate) prepare_update: fn(&WriteContext<'_>, &mut Value, &Value),
    /// What has to be compiled for validation, which reports the faults by [`Errors::expression`].
    pub(crate) expression_faults: Option<ExpressionFaults>,
    pub(crate) validate: fn(&mut Errors, &Value),
    /// Also given the old object; `validate` is not called for updates.
    pub(crate) validate_update: fn(&mut Errors, &Value, &Value),
    /// Before the common part of a status write's preparation.
    pub(crate) prepare_status: fn(&mut Value, &Value),
    pub(crate) validate_status: fn(&mut Errors, &Value, &Value),
    /// Warnings for the new object; the old one is null on create.
    pub(crate) warnings: fn(&Value, &Value) -> Vec<String>,
    /// Warnings for a status that is written.
    pub(crate) status_warnings: fn(&Value) -> Vec<String>,
    /// Refuses the deletion of what the system needs.
    pub(crate) validate_delete: fn(&Value) -> Result<(), ApiError>,
    /// There is a `status` that only status writes change.
    pub(crate) status: bool,
    /// Clients may say the status when they create.
    pub(crate) created_with_status: bool,
    pub(crate) status_meta: StatusMeta,
    /// The group that refusals name, where it is another than the kind's: upstream stores Events of both groups as those of the core.
    pub(crate) error_group: Option<&'static str>,
    /// What status writes look at in metadata, where that is other than what writes of the object do.
    pub(crate) status_metadata: Option<MetadataRules>,
    /// Changes of these top-level keys raise `metadata.generation`; empty: generation is the client's.
    pub(crate) generation: &'static [&'static str],
    /// The generation of a new object, where changes raise it; without one it is the client's.
    pub(crate) first_generation: Option<i64>,
    pub(crate) create_on_update: bool,
    pub(crate) unconditional_update: bool,
    pub(crate) propagation: DefaultPropagation,
    /// The warning for a deletion without a propagation policy.
    pub(crate) delete_warning: Option<&'static str>,
    pub(crate) returns_deleted: bool,
    pub(crate) fields: fn() -> Vec<SelectableField>,
    /// The refusal of a selector for another field, where it is not the usual one.
    pub(crate) unknown_field: Option<fn(&GroupVersionKind, &str) -> String>,
    /// This version's names of fields that selectors may name, and the stored version's; empty where they are the same.
    pub(crate) field_names: &'static [(&'static str, &'static str)],
    /// Versions of another shape.
    pub(crate) versions: &'static [OtherVersion],
    /// The fields that writes of the object and of its status reset, where they do not follow from the above.
    pub(crate) resets: Option<Resets>,
}

/// Fields that no manager comes to own through an endpoint, as dotted paths.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Resets {
    pub(crate) main: &'static [&'static str],
    pub(crate) status: &'static [&'static str],
}

impl Rules {
    pub(crate) const PLAIN: Rules = Rules {
        name: subdomain_name,
        metadata: MetadataRules::ALL,
        default: |_| {},
        drop_disabled: |_, _, _| {},
        prepare_create: |_, _| {},
        prepare_update: |_, _, _| {},
        expression_faults: None,
        validate: |_, _| {},
        validate_update: |_, _, _| {},
        prepare_status: |_, _| {},
        validate_status: |_, _, _| {},
        warnings: |_, _| Vec::new(),
        status_warnings: |_| Vec::new(),
        validate_delete: |_| Ok(()),
        status: false,
        created_with_status: false,
        status_meta: StatusMeta::Free,
        error_group: None,
        status_metadata: None,
        generation: &[],
        first_generation: Some(1),
        create_on_update: false,
        unconditional_update: true,
        propagation: DefaultPropagation::Background,
        delete_warning: None,
        returns_deleted: false,
        fields: Vec::new,
        unknown_field: None,
        field_names: &[],
        versions: &[],
        resets: None,
    };
}

impl fmt::Debug for Rules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rules")
            .field("status", &self.status)
            .field("generation", &self.generation)
            .finish_non_exhaustive()
    }
}

/// The strategy of a resource whose rules are data; with hooks for those that allocate.
pub(crate) struct Kind {
    rules: &'static Rules,
    features: KindFeatures,
    hooks: Option<Arc<dyn WriteHooks>>,
}

impl Kind {
    pub(crate) fn new(rules: &'static Rules) -> Self {
        Kind {
            rules,
            features: KindFeatures::default(),
            hooks: None,
        }
    }

    /// With the features that are on, for rules that drop fields of those that are off.
    pub(crate) fn with_features(rules: &'static Rules, features: KindFeatures) -> Self {
        Kind {
            features,
            ..Kind::new(rules)
        }
    }

    pub(crate) fn with_hooks(self, hooks: Arc<dyn WriteHooks>) -> Self {
        Kind {
            hooks: Some(hooks),
            ..self
        }
    }
}

impl fmt::Debug for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.rules.fmt(f)
    }
}

/// The common part of a create: no status, generation one.
pub(crate) fn prepare_create(rules: &Rules, object: &mut Value) {
    if rules.status && !rules.created_with_status {
        object.put("status", Value::Object(serde_json::Map::new()));
        // The fields that an empty status always has are defaults too.
        (rules.default)(object);
    }
    if let (false, Some(first)) = (rules.generation.is_empty(), rules.first_generation) {
        meta::set(object, "generation", first);
    }
}

/// The common part of an update: status stays, generation moves with what it is about.
pub(crate) fn prepare_update(rules: &Rules, object: &mut Value, old: &Value) {
    if rules.status {
        object.copy_key("status", old);
    }
    if !rules.generation.is_empty() {
        let changed = rules
            .generation
            .iter()
            .any(|path| !same(object.dig(path), old.dig(path)));
        let generation = meta::generation(old) + i64::from(changed);
        // Upstream leaves out a zero: the object was made before its kind had generations.
        meta::set(object, "generation", Some(generation).filter(|g| *g != 0));
    }
}

/// Everything but status comes from the old object; metadata as far as `keep` says.
pub(crate) fn prepare_status(keep: StatusMeta, object: &mut Value, old: &Value) {
    let keys: Vec<String> = [&*object, old]
        .iter()
        .filter_map(|value| value.as_object())
        .flat_map(|map| map.keys().cloned())
        .filter(|key| !matches!(key.as_str(), "status" | "metadata" | "apiVersion" | "kind"))
        .collect();
    for key in keys {
        object.copy_key(&key, old);
    }
    let kept: &[&str] = match keep {
        StatusMeta::Free => &["generation"],
        StatusMeta::KeepLabels => &["generation", "labels"],
        StatusMeta::Stored => {
            let tracked = object.dig("metadata.managedFields").clone();
            object.copy_key("metadata", old);
            let metadata = object.ensure("metadata");
            match tracked {
                Value::Null => drop(metadata.take_key("managedFields")),
                tracked => metadata.put("managedFields", tracked),
            }
            return;
        }
        StatusMeta::Reset => &[
            "deletionTimestamp",
            "generation",
            "selfLink",
            "labels",
            "annotations",
            "finalizers",
            "ownerReferences",
        ],
    };
    let old_meta = old.dig("metadata").clone();
    let meta = object.ensure("metadata");
    for key in kept {
        meta.copy_key(key, &old_meta);
    }
}

impl Strategy for Kind {
    fn default(&self, object: &mut Value) {
        (self.rules.default)(object);
    }

    fn name_rule(&self) -> NameRule {
        self.rules.name
    }

    fn metadata_rules(&self) -> MetadataRules {
        self.rules.metadata
    }

    fn error_group(&self) -> Option<&'static str> {
        self.rules.error_group
    }

    fn prepare_for_create(&self, ctx: &WriteContext<'_>, object: &mut Value) {
        (self.rules.drop_disabled)(self.features, object, &Value::Null);
        prepare_create(self.rules, object);
        (self.rules.prepare_create)(ctx, object);
    }

    fn expression_faults(&self) -> Option<ExpressionFaults> {
        self.rules.expression_faults
    }

    fn validate_create(&self, ctx: &WriteContext<'_>, object: &Value) -> Vec<FieldError> {
        Errors::collect_with(ctx.expression_faults, |errors| {
            (self.rules.validate)(errors, object);
        })
    }

    fn warnings_on_create(&self, _ctx: &WriteContext<'_>, object: &Value) -> Vec<String> {
        (self.rules.warnings)(object, &Value::Null)
    }

    fn prepare_for_update(&self, ctx: &WriteContext<'_>, object: &mut Value, old: &Value) {
        (self.rules.drop_disabled)(self.features, object, old);
        (self.rules.prepare_update)(ctx, object, old);
        prepare_update(self.rules, object, old);
    }

    fn validate_update(&self, ctx: &WriteContext<'_>, object: &Value, old: &Value) -> Vec<FieldError> {
        Errors::collect_update(
            ctx.expression_faults,
            |errors| (self.rules.validate_update)(errors, object, old),
            |errors| (self.rules.validate)(errors, old),
        )
    }

    fn warnings_on_update(&self, _ctx: &WriteContext<'_>, object: &Value, old: &Value) -> Vec<String> {
        (self.rules.warnings)(object, old)
    }

    fn validate_delete(&self, _ctx: &WriteContext<'_>, object: &Value) -> Result<(), ApiError> {
        (self.rules.validate_delete)(object)
    }

    fn allow_create_on_update(&self) -> bool {
        self.rules.create_on_update
    }

    fn allow_unconditional_update(&self) -> bool {
        self.rules.unconditional_update
    }

    fn default_propagation(&self) -> DefaultPropagation {
        self.rules.propagation
    }

    fn other_versions(&self) -> &'static [OtherVersion] {
        self.rules.versions
    }

    fn warning_on_delete(&self) -> Option<&'static str> {
        self.rules.delete_warning
    }

    fn returns_deleted_object(&self) -> bool {
        self.rules.returns_deleted
    }

    fn reset_fields(&self) -> &'static [&'static str] {
        match self.rules.resets {
            Some(resets) => resets.main,
            None if self.rules.status => &["status"],
            None => &[],
        }
    }

    fn selectable_fields(&self) -> Vec<SelectableField> {
        (self.rules.fields)()
    }

    fn stored_field<'f>(&self, field: &'f str) -> Option<&'f str> {
        let names = self.rules.field_names;
        if names.is_empty() {
            return Some(field);
        }
        names
            .iter()
            .find(|(own, _)| *own == field)
            .map(|(_, stored)| *stored)
    }

    fn unsupported_field(&self, kind: &GroupVersionKind, field: &str) -> String {
        match self.rules.unknown_field {
            Some(text) => text(kind, field),
            None => unsupported_field(field),
        }
    }

    fn hooks(&self) -> Option<&dyn WriteHooks> {
        self.hooks.as_deref()
    }
}

/// The strategy of a `status` subresource.
pub(crate) struct StatusOf {
    pub(crate) rules: &'static Rules,
    pub(crate) hooks: Option<Arc<dyn WriteHooks>>,
}

impl fmt::Debug for StatusOf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.rules.fmt(f)
    }
}

impl Strategy for StatusOf {
    fn default(&self, object: &mut Value) {
        (self.rules.default)(object);
    }

    fn name_rule(&self) -> NameRule {
        self.rules.name
    }

    fn metadata_rules(&self) -> MetadataRules {
        self.rules.status_metadata.unwrap_or(self.rules.metadata)
    }

    fn prepare_for_update(&self, _ctx: &WriteContext<'_>, object: &mut Value, old: &Value) {
        (self.rules.prepare_status)(object, old);
        prepare_status(self.rules.status_meta, object, old);
    }

    fn validate_update(&self, _ctx: &WriteContext<'_>, object: &Value, old: &Value) -> Vec<FieldError> {
        Errors::collect(|errors| (self.rules.validate_status)(errors, object, old))
    }

    fn warnings_on_update(&self, _ctx: &WriteContext<'_>, object: &Value, _old: &Value) -> Vec<String> {
        (self.rules.status_warnings)(object)
    }

    fn allow_unconditional_update(&self) -> bool {
        self.rules.unconditional_update
    }

    fn other_versions(&self) -> &'static [OtherVersion] {
        self.rules.versions
    }

    fn reset_fields(&self) -> &'static [&'static str] {
        if let Some(resets) = self.rules.resets {
            return resets.status;
        }
        match self.rules.status_meta {
            StatusMeta::Free => &["spec"],
            StatusMeta::KeepLabels => &["spec", "metadata.labels"],
            StatusMeta::Reset | StatusMeta::Stored => &["metadata", "spec"],
        }
    }

    fn hooks(&self) -> Option<&dyn WriteHooks> {
        self.hooks.as_deref()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{StatusMeta, prepare_status};
    use crate::groups::check::kind;

    #[test]
    fn metadata_of_a_status_write_is_the_stored_object_s_where_the_kind_says_so() {
        let old = json!({"metadata": {"name": "a", "labels": {"b": "c"}, "managedFields": ["old"]}, "spec": {"x": 1}});
        let new = json!({"metadata": {"name": "a", "generateName": "d", "managedFields": ["new"]}, "status": {"y": 2}});
        let mut written = new.clone();
        prepare_status(StatusMeta::Stored, &mut written, &old);
        let expected = json!({"metadata": {"name": "a", "labels": {"b": "c"}, "managedFields": ["new"]},
            "spec": {"x": 1}, "status": {"y": 2}});
        assert_eq!(written, expected);
        let mut written = new;
        prepare_status(StatusMeta::Reset, &mut written, &old);
        assert_eq!(written["metadata"]["generateName"], "d");
    }

    #[test]
    fn status_writes_of_cron_jobs_look_at_no_metadata() {
        let held = json!({"metadata": {"finalizers": ["x"]}});
        let jobs = kind("cronjobs.batch");
        let job = json!({"spec": {"schedule": "* * * * *", "jobTemplate": {"spec": {"template":
            {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}}}}});
        jobs.update_of("status", &job, &held, &[]);
    }

    #[test]
    fn kinds_differ_in_what_they_look_at_in_metadata() {
        let named = |name: &str| json!({"metadata": {"name": name}, "spec": {}});
        let budgets = kind("poddisruptionbudgets.policy");
        budgets.create(&named("Odd"), &[]);
        budgets.create(
            &named("a/b"),
            &[r#"metadata.name: Invalid value: "a/b": may not contain '/'"#],
        );
        let known = "metadata.finalizers[0]: Invalid value: \"x\": name is neither a standard finalizer name nor is it fully qualified";
        let held = json!({"metadata": {"finalizers": ["x"]}});
        kind("leases.coordination.k8s.io").create(&held, &[]);
        kind("configmaps").create(&held, &[known]);
        let prefixed = json!({"metadata": {"generateName": "Odd"}});
        kind("leases.coordination.k8s.io").update(&json!({}), &prefixed, &[]);
        let errors = kind("configmaps").updated("", &json!({}), &prefixed).unwrap_err();
        assert!(
            errors[0].starts_with("metadata.generateName: Invalid value"),
            "{errors:?}"
        );
    }
}
