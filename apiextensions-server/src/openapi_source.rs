//! What CRDs publish in OpenAPI: a document per group version, and the kinds in the document of everything.

use bytes::Bytes;
use generic_server::discovery::DiscoverySource;
use generic_server::openapi::{DocumentRef, OpenApiSource, StaticDocuments, digest};
use machinery::openapi::{Descriptions, Dialect};
use serde_json::{Map, Value};

use crate::openapi;
use crate::server::{ApiExtensions, GROUP};

impl ApiExtensions {
    fn own_documents(&self) -> StaticDocuments {
        StaticDocuments::new(self.own.groups().to_vec())
    }
}

impl OpenApiSource for ApiExtensions {
    fn documents(&self) -> Vec<DocumentRef> {
        let mut all = self.own_documents().documents();
        let index = self.index();
        for group in self.groups().iter().filter(|group| *group.group != *GROUP) {
            let Some(crds) = index.groups.get(&group.group) else {
                continue;
            };
            // A document says what the group's CRDs say: it changes when one of them is written, comes or goes.
            let mut of = env!("CARGO_PKG_VERSION").to_string();
            for (plural, definition) in &crds.crds {
                of.push_str(&format!("\n{plural} {}", definition.entry.revision));
            }
            for version in &group.versions {
                let path = format!("apis/{}/{}", group.group, version.version);
                let hash = digest(format!("{path}\n{of}").as_bytes());
                all.push(DocumentRef { path, hash });
            }
        }
        all
    }

    fn document(&self, path: &str) -> Option<Bytes> {
        let (group, version) = path.strip_prefix("apis/")?.split_once('/')?;
        if group == GROUP {
            return self.own_documents().document(path);
        }
        self.openapi_v3(group, version)
    }

    fn v2(&self, texts: &Descriptions) -> (Map<String, Value>, Map<String, Value>) {
        let (mut definitions, paths) = self.own_documents().v2(texts);
        for group in self.index().groups.values() {
            for definition in group.crds.values().filter(|d| d.established) {
                for version in definition.facts.versions.iter().filter(|v| v.served) {
                    definitions.extend(openapi::kinds(definition, version, Dialect::V2, texts));
                }
            }
        }
        (definitions, paths)
    }
}
