//! The events.k8s.io group: core events under newer names, over the same store.

use std::sync::Arc;

use generic_server::ApiError;
use generic_server::resource::{Converter, ServedResource};
use serde_json::Value;

use crate::groups::core::event;
use crate::json::Json;
use crate::kind::Builder;
use crate::table;

pub(crate) fn v1(b: &Builder<'_>, core: &[Arc<ServedResource>]) -> Vec<Arc<ServedResource>> {
    let stored = core.iter().find(|r| &*r.gvr.resource == "events");
    stored
        .map(|stored| {
            b.kind("events", "Event")
                .short(&["ev"])
                .table(&table::EVENT)
                .stored_as(stored, EventsV1)
                .rules(&event::RULES_V1)
        })
        .into_iter()
        .collect()
}

/// The names of the same field in the two versions: core, events.k8s.io.
const NAMES: &[(&str, &str)] = &[
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
    ("reportingComponent", "reportingController"),
];

#[derive(Debug)]
struct EventsV1;

impl Converter for EventsV1 {
    fn from_stored(&self, mut object: Value) -> Result<Value, ApiError> {
        object.put("apiVersion", "events.k8s.io/v1");
        for (core, new) in NAMES {
            if let Some(value) = object.take_key(core) {
                // Fields that core always writes, though empty, are left out here.
                let empty = matches!(&value, Value::Null) || value.as_str() == Some("");
                if !empty {
                    object.put(new, value);
                }
            }
        }
        if object.text("reportingInstance").is_empty() {
            object.take_key("reportingInstance");
        }
        // Times are always written, said or not.
        for time in ["eventTime", "deprecatedFirstTimestamp", "deprecatedLastTimestamp"] {
            object.fill(time, Value::Null);
        }
        Ok(object)
    }

    fn to_stored(&self, mut object: Value) -> Result<Value, ApiError> {
        object.put("apiVersion", "v1");
        for (core, new) in NAMES {
            if let Some(value) = object.take_key(new) {
                object.put(core, value);
            }
        }
        object.ensure("involvedObject");
        object.ensure("source");
        object.fill("firstTimestamp", Value::Null);
        object.fill("lastTimestamp", Value::Null);
        object.fill("eventTime", Value::Null);
        object.fill("reportingComponent", "");
        object.fill("reportingInstance", "");
        Ok(object)
    }
}
