//! Keeping the levels in step with the objects, and the objects' conditions in step with the levels.

use std::sync::Arc;

use futures_util::future::join;
use machinery::{ApiError, GroupResource, meta};
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::FlowControl;
use super::level::now;
use super::objects::{FlowSchema, LevelObject};
use crate::admission::AdmissionChain;
use crate::directory::{Directory, Registered};
use crate::registry::cache::Snapshot;
use crate::registry::follow;
use crate::request::Authorized;
use crate::resource::Subresource;
use crate::write::{self, UpdateRules, WriteCall, apply_own_write};

const GROUP: &str = "flowcontrol.apiserver.k8s.io";
/// The manager of the conditions.
const MANAGER: &str = "api-priority-and-fairness-config-consumer-v1";
/// Between two attempts to write conditions.
const RETRY: std::time::Duration = std::time::Duration::from_secs(30);

/// A FlowSchema whose condition is not what it should be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Dangling {
    pub(super) name: String,
    level: String,
    /// There is no such level.
    dangles: bool,
}

impl Dangling {
    /// What the condition of a schema should be.
    pub(super) fn of(schema: &FlowSchema, has_level: bool) -> Self {
        Dangling {
            name: schema.name.clone(),
            level: schema.spec.priority_level_configuration.name.clone(),
            dangles: !has_level,
        }
    }

    fn texts(&self) -> (&'static str, &'static str, String) {
        let begin = format!(
            "This FlowSchema references the PriorityLevelConfiguration object named {}",
            machinery::go::quote(&self.level)
        );
        match self.dangles {
            true => ("True", "NotFound", format!("{begin} but there is no such object")),
            false => ("False", "Found", format!("{begin} and it exists")),
        }
    }

    /// Whether it is what it should be.
    pub(super) fn is_written(&self, schema: &FlowSchema) -> bool {
        let (status, reason, message) = self.texts();
        let written = schema.dangling.as_ref();
        written.is_some_and(|(a, b, c)| (&**a, &**b, &**c) == (status, reason, &*message))
    }

    /// The configuration that sets the condition; `None` when there is nothing to set.
    fn configuration(&self, object: &Value) -> Option<Value> {
        let schema = FlowSchema::read(object)?;
        if schema.spec.priority_level_configuration.name != self.level || self.is_written(&schema) {
            return None;
        }
        let (status, reason, message) = self.texts();
        let condition = json!({
            "type": "Dangling", "status": status, "reason": reason, "message": message, "lastTransitionTime": write::now(),
        });
        Some(json!({
            "apiVersion": meta::api_version(object), "kind": "FlowSchema", "metadata": {"name": self.name},
            "status": {"conditions": [condition]},
        }))
    }
}

impl FlowControl {
    /// Keeps the levels current, for ever. Where the objects are not served, the mandatory ones stay in force.
    pub async fn follow(self: Arc<Self>, directory: Arc<Directory>) {
        let find = |resource| directory.get(&GroupResource::new(GROUP, resource));
        let (Some(schemas), Some(levels)) = (find("flowschemas"), find("prioritylevelconfigurations")) else {
            tracing::error!("the configuration of priority and fairness is not served");
            return;
        };
        // One is enough: it says that there is something to write, not what.
        let (changed, mut changes) = mpsc::channel::<()>(1);
        let objects = join(
            follow(schemas.store.clone(), |snapshot| {
                self.take_schemas(snapshot);
                let _ = changed.try_send(());
            }),
            follow(levels.store.clone(), |snapshot| {
                self.take_levels(snapshot);
                let _ = changed.try_send(());
            }),
        );
        let conditions = async {
            while changes.recv().await.is_some() {
                while self.write_conditions(&schemas).await.is_err() {
                    tokio::time::sleep(RETRY).await;
                }
            }
        };
        join(objects, conditions).await;
    }

    fn take_schemas(&self, snapshot: &Snapshot) {
        let entries = snapshot.objects.values();
        let schemas = entries.filter_map(|entry| FlowSchema::read(&entry.value()));
        self.set(Some(schemas.collect()), None);
    }

    fn take_levels(&self, snapshot: &Snapshot) {
        let entries = snapshot.objects.values();
        let levels = entries.filter_map(|entry| {
            let level = LevelObject::read(&entry.value());
            if level.is_none() {
                tracing::warn!(
                    level = entry.name(),
                    "a priority level whose spec is broken is passed over"
                );
            }
            level
        });
        self.set(None, Some(levels.collect()));
    }

    /// Puts objects in force.
    pub(super) fn set(&self, schemas: Option<Vec<FlowSchema>>, levels: Option<Vec<LevelObject>>) {
        let mut objects = self.config.lock();
        let objects = &mut *objects;
        // A change of what nothing is decided on, such as a condition, changes no level.
        let mut changed = false;
        if let Some(schemas) = schemas {
            let spec = |schema: &FlowSchema| (schema.name.clone(), schema.uid.clone(), schema.spec.clone());
            let before = objects.schemas.iter().flatten().map(spec);
            changed |= objects.schemas.is_none() || !schemas.iter().map(spec).eq(before);
            objects.schemas = Some(schemas);
        }
        if let Some(levels) = levels {
            let levels = Some(levels);
            changed |= levels != objects.levels;
            objects.levels = levels;
        }
        if changed && let (Some(schemas), Some(levels)) = (&objects.schemas, &objects.levels) {
            let snapshot = objects.config.digest(schemas, levels, now());
            self.snapshot.store(Arc::new(snapshot));
        }
    }

    /// The conditions that are not what they should be.
    pub(super) fn conditions(&self) -> Vec<Dangling> {
        let objects = self.config.lock();
        if objects.levels.is_none() {
            return Vec::new();
        }
        let wanted = objects.schemas.iter().flatten().filter_map(|schema| {
            let has_level = objects
                .config
                .has_level(&schema.spec.priority_level_configuration.name);
            let wanted = Dangling::of(schema, has_level);
            (!wanted.is_written(schema)).then_some(wanted)
        });
        wanted.collect()
    }

    async fn write_conditions(&self, schemas: &Registered) -> Result<(), ApiError> {
        let mut failed = Ok(());
        for condition in self.conditions() {
            if let Err(error) = write_condition(schemas, &condition).await {
                tracing::warn!(flowschema = condition.name, %error, "cannot write a condition; retrying");
                failed = Err(error);
            }
        }
        failed
    }
}

/// Writes a condition. A schema that has gone is no fault.
async fn write_condition(schemas: &Registered, condition: &Dangling) -> Result<(), ApiError> {
    let resource = &*schemas.resource;
    let Some(Subresource::View(strategy)) = resource.subresource("status") else {
        return Ok(());
    };
    let (authorized, none) = (Authorized::system(), AdmissionChain::default());
    let call = WriteCall {
        strategy: &**strategy,
        subresource: "status",
        ..WriteCall::internal(resource, &authorized, &none, "")
    };
    let rules = UpdateRules {
        retry: true,
        ..UpdateRules::default()
    };
    let mut transform = |live: Option<&Value>| {
        let live = live.cloned().unwrap_or_default();
        match condition.configuration(&live) {
            Some(configuration) => apply_own_write(&call, &live, &configuration, MANAGER),
            None => Ok(live),
        }
    };
    match write::update(&call, &condition.name, &rules, &mut transform).await {
        Err(error) if error.code() == 404 => Ok(()),
        done => done.map(|_| ()),
    }
}
