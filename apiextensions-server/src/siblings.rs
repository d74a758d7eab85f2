//! The schemas of a CRD's versions beside the one that is served: objects are stored in one version and owned in any.

use std::fmt;
use std::sync::{Arc, OnceLock};

use generic_server::registry::Entry;
use generic_server::registry::strategy::VersionSchemas;
use machinery::schema::KindSchema;
use serde_json::Value;

use crate::crd::internal::Spec;
use crate::read_back::read_back;
use crate::schema;

/// The schemas of all versions of one CRD, compiled when the first of them is asked for: most CRDs never need them.
pub(crate) struct Siblings {
    entry: Arc<Entry>,
    compiled: OnceLock<Vec<(String, KindSchema)>>,
}

impl fmt::Debug for Siblings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Siblings").finish_non_exhaustive()
    }
}

impl Siblings {
    /// Of a stored CRD.
    pub(crate) fn of(entry: &Arc<Entry>) -> Arc<Self> {
        Arc::new(Siblings {
            entry: entry.clone(),
            compiled: OnceLock::new(),
        })
    }

    fn compile(&self) -> Vec<(String, KindSchema)> {
        let crd = self.entry.value();
        let spec = Spec::of(&crd);
        let versions = spec.versions.iter().filter_map(|version| {
            let raw = spec.schema_of(version.name)?.get("openAPIV3Schema")?;
            let compiled = schema::compile(raw).ok()?;
            Some((format!("{}/{}", spec.group, version.name), compiled.whole))
        });
        versions.collect()
    }

    /// Brings an object as it is stored to the schema of the version in which it is stored.
    pub(crate) fn read_back(&self, prunes: bool, object: &mut Value) {
        if let Some(schema) = self.schema(machinery::meta::api_version(object)) {
            read_back(schema, prunes, object);
        }
    }
}

impl VersionSchemas for Siblings {
    fn schema(&self, api_version: &str) -> Option<&KindSchema> {
        let compiled = self.compiled.get_or_init(|| self.compile());
        let (_, schema) = compiled.iter().find(|(version, _)| version == api_version)?;
        Some(schema)
    }
}
