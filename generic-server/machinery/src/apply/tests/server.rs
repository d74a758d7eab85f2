//! A kind and one stored object of it, as the registry writes to it.

use super::*;

pub(super) const NOW: &str = "2024-01-01T00:00:00Z";

/// A kind and one stored object of it, written to as the registry would.
pub(super) struct Server {
    pub(super) schema: KindSchema,
    pub(super) kind: GroupVersionKind,
    pub(super) filters: Vec<(&'static str, FieldFilter)>,
    pub(super) live: Option<Value>,
}

impl Server {
    pub(super) fn new(group: &str, version: &str, kind: &str) -> Self {
        let schema = builtin().kind(group, version, kind).unwrap();
        Server {
            schema,
            kind: GroupVersionKind::new(group, version, kind),
            filters: Vec::new(),
            live: None,
        }
    }

    pub(super) fn config_map() -> Self {
        Self::new("", "v1", "ConfigMap")
    }

    pub(super) fn deployment() -> Self {
        Self::new("apps", "v1", "Deployment")
    }

    pub(super) fn run<T>(
        &self,
        manager: &str,
        subresource: &str,
        f: impl FnOnce(&dyn Versions, &Options<'_>) -> T,
    ) -> T {
        let api_version = self.kind.api_version();
        let api_versions = [api_version.as_str()];
        let versions = SameShape {
            api_versions: &api_versions,
            schema: self.schema.root(),
        };
        let (kind, now, filters) = (&self.kind, NOW, &*self.filters);
        f(
            &versions,
            &Options {
                manager,
                subresource,
                kind,
                now,
                filters,
            },
        )
    }

    pub(super) fn complete(&self, mut object: Value) -> Value {
        object["apiVersion"] = self.kind.api_version().into();
        object["kind"] = (&*self.kind.kind).into();
        object
    }

    pub(super) fn write(&mut self, manager: &str, object: Value) -> &mut Self {
        let mut object = self.complete(object);
        self.run(manager, "", |versions, options| {
            update(self.live.as_ref(), &mut object, versions, options)
        });
        meta::set(&mut object, "uid", "u");
        self.live = Some(object);
        self
    }

    pub(super) fn merge(&mut self, manager: &str, patch: Value) -> &mut Self {
        let object = crate::patch::merge::apply(self.live.as_ref().unwrap(), &patch).unwrap();
        self.write(manager, object)
    }

    pub(super) fn try_apply(
        &mut self,
        manager: &str,
        patch: Value,
        force: bool,
    ) -> Result<Applied, ApiError> {
        let patch = self.complete(patch);
        let mut applied = self.run(manager, "", |versions, options| {
            apply(self.live.as_ref(), &patch, versions, options, force)
        })?;
        meta::set(&mut applied.object, "uid", "u");
        self.live = Some(applied.object.clone());
        Ok(applied)
    }

    pub(super) fn apply(&mut self, manager: &str, patch: Value) -> &mut Self {
        self.try_apply(manager, patch, false).unwrap();
        self
    }

    #[track_caller]
    pub(super) fn refuses(&mut self, manager: &str, patch: Value, code: u16, message: &str) -> &mut Self {
        let error = self.try_apply(manager, patch, false).unwrap_err();
        assert_eq!((error.code(), error.message()), (code, message));
        self
    }

    pub(super) fn entry(&self, manager: &str, operation: &str) -> Option<&Value> {
        let entries = managed_fields(self.live.as_ref()?)?.as_array()?;
        entries
            .iter()
            .find(|e| e["manager"] == manager && e["operation"] == operation)
    }

    #[track_caller]
    pub(super) fn owns(&mut self, manager: &str, operation: &str, fields: Value) -> &mut Self {
        let found = self.entry(manager, operation).map(|e| e["fieldsV1"].clone());
        assert_eq!(found.unwrap_or(Value::Null), fields, "{:?}", self.live);
        self
    }
}
