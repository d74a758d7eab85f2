//! CEL types of the objects of a kind, as its published schema has them. Mirrors upstream's `cel/common/schemas.go` over
//! `cel/openapi`.

use kube_cel::{DeclType, FieldDecl, ListType};
use machinery::schema::{Format, SchemaRef, Type, builtin};

const OBJECT_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";
/// Any JSON, of which the published schema does not even say that it is an object.
const ANY_JSON: &str = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSON";

/// The type of a built-in kind.
pub fn declared(schema: SchemaRef<'_>) -> Option<DeclType> {
    Walk::default().node(schema, false)
}

/// The type of a custom kind: whatever its schema says, it has the fields of every object.
pub fn declared_custom(schema: Option<SchemaRef<'_>>) -> DeclType {
    Walk::default().whole(schema)
}

/// A walk through a schema.
#[derive(Default)]
struct Walk<'a> {
    /// The types with a name that are around. One within itself is an object without fields.
    around: Vec<&'a str>,
}

impl<'a> Walk<'a> {
    /// `None`: expressions do not see it.
    fn node(&mut self, schema: SchemaRef<'a>, embedded: bool) -> Option<DeclType> {
        let name = schema.node().type_name.as_deref();
        if let Some(name) = name {
            if self.around.contains(&name) {
                return Some(empty());
            }
            self.around.push(name);
        }
        let declared = match embedded {
            true => Some(self.whole(Some(schema))),
            false => self.shape(schema),
        };
        if name.is_some() {
            self.around.pop();
        }
        declared
    }

    fn shape(&mut self, schema: SchemaRef<'a>) -> Option<DeclType> {
        let node = schema.node();
        match &node.format {
            // The published schema of these has alternatives and no type.
            Some(
                Format::Quantity | Format::SchemaOrBool | Format::SchemaOrArray | Format::SchemaOrStrings,
            ) => {
                return None;
            }
            Some(Format::Raw) => {
                let typed = node.type_name.as_deref() != Some(ANY_JSON);
                return typed.then(empty);
            }
            Some(Format::WrappedStrings) => {
                return Some(DeclType::list(DeclType::string(), None, ListType::Atomic));
            }
            _ => {}
        }
        Some(match node.ty {
            Type::Any => return None,
            Type::IntOrString => DeclType::int_or_string(),
            Type::Boolean => DeclType::bool(),
            Type::Number => DeclType::double(),
            Type::Integer => DeclType::int(),
            Type::String => text(node.format.as_ref()),
            Type::Array => {
                let items = schema.items()?;
                let of = self.node(items, items.node().embedded)?;
                DeclType::list(of, None, ListType::Atomic)
            }
            Type::Object => match schema.additional() {
                // `additionalProperties: true` has no schema.
                Some(values) if values.node().ty != Type::Any || values.node().format.is_some() => {
                    DeclType::map(self.node(values, values.node().embedded)?, None)
                }
                _ => DeclType::object("object", self.fields(schema)),
            },
        })
    }

    fn fields(&mut self, schema: SchemaRef<'a>) -> Vec<FieldDecl> {
        let fields = schema.node().fields.iter();
        let fields = fields.filter_map(|field| {
            let value = schema.at(field.node);
            let declared = self.node(value, value.node().embedded)?;
            Some(FieldDecl::new(&field.name, declared))
        });
        fields.collect()
    }

    /// A whole object within a custom one, or such a one itself.
    fn whole(&mut self, schema: Option<SchemaRef<'a>>) -> DeclType {
        let mut fields = Vec::new();
        if let Some(schema) = schema {
            for field in &schema.node().fields {
                let value = schema.at(field.node);
                if matches!(&*field.name, "apiVersion" | "kind" | "metadata") {
                    continue;
                }
                if let Some(declared) = self.node(value, value.node().embedded) {
                    fields.push(FieldDecl::new(&field.name, declared));
                }
            }
        }
        for name in ["apiVersion", "kind"] {
            fields.push(FieldDecl::new(name, DeclType::string()));
        }
        let metadata = builtin().by_type_name(OBJECT_META);
        if let Some(metadata) = metadata.and_then(|metadata| declared(metadata.root())) {
            fields.push(FieldDecl::new("metadata", metadata));
        }
        DeclType::object("object", fields)
    }
}

fn empty() -> DeclType {
    DeclType::object("object", [])
}

fn text(format: Option<&Format>) -> DeclType {
    match format {
        Some(Format::DateTime | Format::MicroTime) => DeclType::date_time(),
        Some(Format::Byte) => DeclType::bytes(),
        Some(Format::Other(name)) => match &**name {
            "byte" => DeclType::bytes(),
            "duration" => DeclType::duration(),
            "date" => DeclType::date(),
            "date-time" => DeclType::date_time(),
            _ => DeclType::string(),
        },
        _ => DeclType::string(),
    }
}
