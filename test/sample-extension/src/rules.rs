//! Admission: rules about fish beyond their schema.

use generic_server::admission::{AdmissionPlugin, Attributes, Operation};
use machinery::{ApiError, GroupVersionResource};
use serde_json::Value;

use crate::fish::GROUP;

/// Puts sea fish into the sea, and keeps species out that the operator does not want.
#[derive(Debug)]
pub(crate) struct Aquarium {
    /// Species that may not be kept.
    pub(crate) refused: Vec<String>,
}

/// Species that live in salt water, regardless of the object's own field.
const SEA_FISH: [&str; 2] = ["clownfish", "tuna"];

fn species(object: &Value) -> &str {
    machinery::meta::dig_str(object, &["spec", "species"])
}

#[async_trait::async_trait]
impl AdmissionPlugin for Aquarium {
    fn name(&self) -> &'static str {
        "Aquarium"
    }

    fn handles(&self, operation: Operation, gvr: &GroupVersionResource, subresource: &str) -> bool {
        matches!(operation, Operation::Create | Operation::Update)
            && *gvr.group == *GROUP
            && subresource.is_empty()
    }

    async fn admit(&self, _attributes: &Attributes<'_>, object: Option<&mut Value>) -> Result<(), ApiError> {
        if let Some(object) = object
            && SEA_FISH.contains(&species(object))
        {
            object["spec"]["water"] = "Salt".into();
        }
        Ok(())
    }

    async fn validate(&self, attributes: &Attributes<'_>, object: Option<&Value>) -> Result<(), ApiError> {
        let species = object.map_or("", species);
        if self.refused.iter().any(|refused| refused == species) {
            let why = format!("the species {species} is not kept here");
            return Err(ApiError::forbidden(
                &attributes.gvr.group_resource(),
                attributes.name,
                why,
            ));
        }
        Ok(())
    }
}
