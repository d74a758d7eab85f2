//! CRDs in the store. This server writes them as `v1`; upstream writes the more compact `v1beta1`, which says once at the top
//! what all versions share, so that form is read as well. Either server reads the other's writes.
//!
//! Mirrors the conversion in `pkg/apis/apiextensions/v1/conversion.go`.

use bytes::Bytes;
use generic_server::registry::cache::{StorageCodec, ValueError};
use serde_json::{Map, Value, json};

const OLD: &str = "apiextensions.k8s.io/v1beta1";
const NEW: &str = "apiextensions.k8s.io/v1";
/// The fields of the spec for all versions, and their names in a version.
const SHARED: [(&str, &str); 4] = [
    ("validation", "schema"),
    ("subresources", "subresources"),
    ("additionalPrinterColumns", "additionalPrinterColumns"),
    ("selectableFields", "selectableFields"),
];

/// Reads both forms, writes `v1`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CrdCodec;

impl StorageCodec for CrdCodec {
    fn decode(&self, _key: &str, stored: &Bytes) -> Result<Bytes, ValueError> {
        // Also where only a manager of fields names the old version; then nothing below changes.
        if !contains(stored, OLD.as_bytes()) {
            return Ok(stored.clone());
        }
        let mut object: Value = serde_json::from_slice(stored).map_err(ValueError::undecodable)?;
        if object.get("apiVersion").and_then(Value::as_str) != Some(OLD) {
            return Ok(stored.clone());
        }
        to_v1(&mut object);
        serde_json::to_vec(&object)
            .map(Bytes::from)
            .map_err(ValueError::undecodable)
    }

    fn encode(&self, _key: &str, _object: &Value, json: &Bytes) -> Result<Bytes, ValueError> {
        Ok(json.clone())
    }
}

fn contains(text: &[u8], wanted: &[u8]) -> bool {
    text.windows(wanted.len()).any(|window| window == wanted)
}

fn to_v1(object: &mut Value) {
    object["apiVersion"] = NEW.into();
    if let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) {
        spec_to_v1(spec);
    }
}

fn spec_to_v1(spec: &mut Map<String, Value>) {
    let version = spec.remove("version").unwrap_or_default();
    let versions = spec.entry("versions").or_insert_with(|| json!([]));
    if versions.as_array().is_none_or(Vec::is_empty) && version.as_str().is_some_and(|name| !name.is_empty())
    {
        *versions = json!([{"name": version, "served": true, "storage": true}]);
    }
    for (shared, own) in SHARED {
        let Some(value) = spec.remove(shared).filter(|value| !value.is_null()) else {
            continue;
        };
        for version in spec
            .get_mut("versions")
            .and_then(Value::as_array_mut)
            .into_iter()
            .flatten()
        {
            version[own] = value.clone();
        }
    }
    for version in spec
        .get_mut("versions")
        .and_then(Value::as_array_mut)
        .into_iter()
        .flatten()
    {
        let columns = version
            .get_mut("additionalPrinterColumns")
            .and_then(Value::as_array_mut);
        for column in columns.into_iter().flatten().filter_map(Value::as_object_mut) {
            if let Some(path) = column.remove("JSONPath") {
                column.insert("jsonPath".into(), path);
            }
        }
    }
    // Defaults of the old version.
    let preserve = match spec.remove("preserveUnknownFields").unwrap_or_default() {
        Value::Null => true,
        given => given == true,
    };
    if preserve {
        spec.insert("preserveUnknownFields".into(), true.into());
    }
    let conversion = spec.entry("conversion").or_insert(Value::Null);
    if conversion.is_null() {
        *conversion = json!({"strategy": "None"});
    }
    if let Some(conversion) = conversion.as_object_mut() {
        conversion_to_v1(conversion);
    }
}

fn conversion_to_v1(conversion: &mut Map<String, Value>) {
    let config = conversion
        .remove("webhookClientConfig")
        .filter(|value| !value.is_null());
    let versions = conversion
        .remove("conversionReviewVersions")
        .filter(|value| !value.is_null());
    if config.is_none() && versions.is_none() {
        return;
    }
    let mut webhook = json!({"conversionReviewVersions": versions.unwrap_or_else(|| json!(["v1beta1"]))});
    if let Some(config) = config {
        webhook["clientConfig"] = config;
    }
    conversion.insert("webhook".into(), webhook);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decoded(stored: &Value) -> Value {
        let bytes = serde_json::to_vec(stored).expect("JSON").into();
        let json = CrdCodec.decode("k", &bytes).expect("it can be read");
        serde_json::from_slice(&json).expect("JSON")
    }

    #[test]
    fn stored_v1beta1_is_read_as_v1() {
        let stored = json!({
            "kind": "CustomResourceDefinition", "apiVersion": "apiextensions.k8s.io/v1beta1",
            "metadata": {"name": "things.example.com"},
            "spec": {
                "group": "example.com", "version": "v1", "scope": "Namespaced",
                "names": {"plural": "things", "kind": "Thing"},
                "versions": [{"name": "v1", "served": true, "storage": true}, {"name": "v2", "served": true, "storage": false}],
                "validation": {"openAPIV3Schema": {"type": "object"}},
                "subresources": {"status": {}},
                "additionalPrinterColumns": [{"name": "Size", "type": "integer", "JSONPath": ".spec.size"}],
                "selectableFields": [{"jsonPath": ".spec.size"}],
                "conversion": {
                    "strategy": "Webhook", "conversionReviewVersions": ["v1"],
                    "webhookClientConfig": {"url": "https://example.com/"},
                },
                "preserveUnknownFields": false,
            },
        });
        let version = |name: &str, storage: bool| {
            json!({
                "name": name, "served": true, "storage": storage, "schema": {"openAPIV3Schema": {"type": "object"}},
                "subresources": {"status": {}}, "selectableFields": [{"jsonPath": ".spec.size"}],
                "additionalPrinterColumns": [{"name": "Size", "type": "integer", "jsonPath": ".spec.size"}],
            })
        };
        let expected = json!({
            "group": "example.com", "scope": "Namespaced", "names": {"plural": "things", "kind": "Thing"},
            "versions": [version("v1", true), version("v2", false)],
            "conversion": {
                "strategy": "Webhook",
                "webhook": {"conversionReviewVersions": ["v1"], "clientConfig": {"url": "https://example.com/"}},
            },
        });
        let read = decoded(&stored);
        assert_eq!(read["apiVersion"], NEW);
        assert_eq!(read["spec"], expected);
    }

    #[test]
    fn old_definitions_without_versions_preserve_unknown_fields() {
        let read = decoded(&json!({
            "kind": "CustomResourceDefinition", "apiVersion": OLD, "metadata": {"name": "things.example.com"},
            "spec": {"group": "example.com", "version": "v1", "validation": {"openAPIV3Schema": {}}},
        }));
        let expected = json!({
            "group": "example.com", "preserveUnknownFields": true, "conversion": {"strategy": "None"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {}}}],
        });
        assert_eq!(read["spec"], expected);
    }

    #[test]
    fn v1_passes_as_it_is() {
        let stored = json!({
            "kind": "CustomResourceDefinition", "apiVersion": NEW,
            "metadata": {"name": "a", "managedFields": [{"apiVersion": OLD}]}, "spec": {"version": "kept"},
        });
        assert_eq!(decoded(&stored), stored);
    }
}
