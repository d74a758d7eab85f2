//! Printer columns: cells by JSON path, converted as upstream's `registry/customresource/tableconvertor` does.

use generic_server::resource::{Column, TableConvertor};
use machinery::table::{self, Ages, CustomColumns};
use serde_json::{Value, json};

/// The description of the name column.
pub(crate) const NAME: &str = "Name must be unique within a namespace. Is required when creating resources, although some resources may allow a client to request the generation of an appropriate name automatically. Name is primarily intended for creation idempotence and configuration definition. Cannot be updated. More info: https://kubernetes.io/docs/concepts/overview/working-with-objects/names#names";
/// The description of columns of the creation time.
pub(crate) const CREATED: &str = "CreationTimestamp is a timestamp representing the server time when this object was created. It is not guaranteed to be set in happens-before order across separate operations. Clients may not set this value. It is represented in RFC3339 form and is in UTC.\n\nPopulated by the system. Read-only. Null for lists. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata";

/// The columns of a version: the name, and what the CRD asks for (else the age).
#[derive(Debug)]
pub(crate) struct PrinterColumns {
    columns: Vec<Column>,
    custom: CustomColumns,
}

impl PrinterColumns {
    /// From `additionalPrinterColumns`. Paths that cannot be read leave the name alone, as upstream has it.
    pub(crate) fn new(asked: &[Value]) -> Self {
        let name = || table::Column::new("Name", "string", NAME).format("name");
        let age = [json!({
            "name": "Age",
            "type": "date",
            "description": CREATED,
            "jsonPath": ".metadata.creationTimestamp",
        })];
        let asked = if asked.is_empty() { &age } else { asked };
        let custom = CustomColumns::compile(name(), asked).unwrap_or_else(|why| {
            tracing::warn!(why, "printer columns that cannot be shown");
            CustomColumns::compile(name(), &[]).unwrap_or_default()
        });
        let column = |c: &table::Column| Column {
            name: c.name.to_string(),
            kind: c.ty.to_string(),
            format: c.format.to_string(),
            description: c.description.to_string(),
            priority: c.priority,
        };
        PrinterColumns {
            columns: custom.columns().iter().map(column).collect(),
            custom,
        }
    }
}

impl TableConvertor for PrinterColumns {
    fn columns(&self) -> &[Column] {
        &self.columns
    }

    fn cells(&self, object: &Value, ages: &Ages) -> Vec<Value> {
        self.custom.cells(object, ages)
    }
}
