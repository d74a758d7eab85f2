//! What CRDs publish in OpenAPI: a document per group version, and the kinds in the document of everything.

use bytes::Bytes;
use generic_server::discovery::DiscoverySource;
use generic_server::openapi::{
    DocumentRef, OpenApiSource, StaticDocuments, SwaggerPart, digest, paths_from_v3,
};
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

    fn swagger(&self, path: &str, texts: &Descriptions) -> Option<SwaggerPart> {
        let (group, version) = path.strip_prefix("apis/")?.split_once('/')?;
        if group == GROUP {
            return self.own_documents().swagger(path, texts);
        }
        let document: Value = serde_json::from_slice(&self.openapi_v3(group, version)?).ok()?;
        let paths = document.get("paths").and_then(Value::as_object)?;
        let mut definitions = Map::new();
        for definition in self.index().groups.get(group)?.crds.values() {
            if let Some((info, _)) = definition.version(version).filter(|_| definition.established)
                && info.served
            {
                definitions.extend(openapi::kinds(definition, info, Dialect::V2, texts));
            }
        }
        Some(SwaggerPart::new(paths_from_v3(paths), definitions))
    }
}
