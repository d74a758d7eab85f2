//! Any object of any built-in kind survives every codec: what is read is what was written.

use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::{DecodeError, cbor, json, protobuf, typed, yaml};
use crate::schema::{Format, SchemaRef, Type, builtin};

/// How deep generated objects are; what is below is left out.
const DEPTH: usize = 8;

/// Decisions, in the order in which they are needed. It shrinks to short tapes of zeros, which make empty objects.
struct Tape<'t>(std::slice::Iter<'t, u8>);

impl Tape<'_> {
    fn next(&mut self) -> usize {
        self.0.next().copied().map_or(0, usize::from)
    }

    fn choose<T: Clone>(&mut self, all: &[T]) -> T {
        all[self.next() % all.len()].clone()
    }

    fn text(&mut self) -> String {
        let all = [
            "",
            "a",
            "null",
            "true",
            "1",
            "1e3",
            "~",
            "é",
            "\u{0}\u{1f}",
            "a: b #c",
            "- x",
            "line\nline\n",
            " \t",
            "\"'",
        ];
        let long = "x".repeat(self.next());
        if self.next() % 8 == 7 {
            long
        } else {
            self.choose(&all).to_owned()
        }
    }

    fn key(&mut self) -> String {
        self.choose(&["a", "", "b.c/d", "é", "1", "null", "y"]).to_owned()
    }

    /// Any JSON, of a small size.
    fn free(&mut self, depth: usize) -> Value {
        match self.next() % 8 {
            0 => json!({}),
            1 => json!(true),
            2 => json!(i64::MIN),
            3 => json!(0.1),
            4 => Value::Null,
            5 if depth > 0 => json!([self.free(depth - 1), 1]),
            6 if depth > 0 => json!({self.key(): self.free(depth - 1)}),
            _ => self.text().into(),
        }
    }

    fn value(&mut self, schema: SchemaRef<'_>, depth: usize) -> Value {
        let node = schema.node();
        match &node.format {
            Some(Format::Byte) => return self.choose(&["", "AA==", "/wAB", "YWJjZA=="]).into(),
            Some(Format::DateTime) => {
                return self.choose(&[
                    json!("2001-02-03T04:05:06Z"),
                    Value::Null,
                    json!("0001-01-01T00:00:00Z"),
                ]);
            }
            Some(Format::MicroTime) => {
                return self.choose(&[json!("2001-02-03T04:05:06.789012Z"), Value::Null]);
            }
            Some(Format::Quantity) => {
                return self.choose(&[
                    json!("100m"),
                    json!("1Gi"),
                    json!("0"),
                    json!("-1500"),
                    json!("12e6"),
                    json!(3),
                ]);
            }
            Some(Format::Duration) => return self.choose(&["1s", "0s", "1h2m3s"]).into(),
            Some(Format::Raw) => return json!({"apiVersion": "v1", "kind": "X", "x": self.free(2)}),
            Some(Format::WrappedStrings) => return json!([self.text(), self.text()]),
            Some(Format::SchemaOrBool) => return self.choose(&[json!(true), json!(false), json!({})]),
            Some(Format::SchemaOrArray) => {
                return self.choose(&[json!({"type": "string"}), json!([{}, {"type": "x"}])]);
            }
            Some(Format::SchemaOrStrings) => return self.choose(&[json!({}), json!(["a", "b"])]),
            Some(Format::Int32) => return self.choose(&[0, 1, -1, i32::MAX, i32::MIN]).into(),
            _ => {}
        }
        match node.ty {
            Type::String => self.text().into(),
            Type::Boolean => (self.next() % 2 == 1).into(),
            Type::Integer => self.choose(&[0, 1, -1, i64::MAX, i64::MIN]).into(),
            Type::Number => self.choose(&[0.0, 1.5, -1e300, 0.1]).into(),
            Type::IntOrString => self.choose(&[json!(0), json!(80), json!("http"), json!(""), json!("50%")]),
            Type::Any => self.free(2),
            Type::Array => {
                let length = self.next() % 3;
                let items = schema.items();
                (0..length)
                    .filter_map(|_| Some(self.value(items?, depth.checked_sub(1)?)))
                    .collect()
            }
            Type::Object => self.object(schema, depth),
        }
    }

    fn object(&mut self, schema: SchemaRef<'_>, depth: usize) -> Value {
        let mut out = Map::new();
        if depth == 0 {
            return out.into();
        }
        if let Some(values) = schema.additional() {
            for _ in 0..self.next() % 3 {
                out.insert(self.key(), self.value(values, depth - 1));
            }
        }
        // The type of an object within another has no place in protobuf.
        let fields = schema.node().fields.iter().filter(|field| field.number.is_some());
        for field in fields {
            if self.next() % 4 == 3 {
                let value = self.value(schema.at(field.node), depth - 1);
                // An empty list of managers asks to forget them: it is kept until a write has seen it, which protobuf cannot ask for.
                if &*field.name != "managedFields" || value != json!([]) {
                    out.insert(field.name.to_string(), value);
                }
            }
        }
        out.into()
    }
}

fn normal(schema: SchemaRef<'_>, value: Value) -> Result<Value, DecodeError> {
    typed::decode_builtin(schema, value).map(|decoded| decoded.value)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn objects_survive_every_codec(kind in 0usize..10_000, tape in proptest::collection::vec(any::<u8>(), 0..600)) {
        let kinds: Vec<_> = builtin().kinds().collect();
        let (group, version, name, schema) = kinds[kind % kinds.len()];
        let mut object = Tape(tape.iter()).object(schema, DEPTH);
        let api_version = if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") };
        // Kinds that are no whole objects have neither.
        for (field, value) in [("apiVersion", api_version), ("kind", name.to_owned())] {
            if schema.node().fields.iter().any(|known| &*known.name == field) {
                object[field] = value.into();
            }
        }
        let object = normal(schema, object).expect("generated objects fit");
        prop_assert_eq!(&normal(schema, object.clone()).expect("it fits"), &object, "a normal form is normal");

        let text = serde_json::to_vec(&object).expect("JSON");
        prop_assert_eq!(&json::decode_typed(&text, schema).expect("JSON").value, &object);
        let bytes = protobuf::encode_message(schema, &object);
        let mut read = protobuf::decode_message(schema, &bytes).expect("protobuf");
        for field in ["apiVersion", "kind"] {
            if let Some(value) = object.get(field) {
                read[field] = value.clone();
            }
        }
        // It has no empty lists.
        let mut stored = object.clone();
        typed::drop_empty_lists(schema, &mut stored);
        prop_assert_eq!(&read, &stored);
        let bytes = cbor::encode_typed(schema, &object);
        let read = cbor::decode_bytes_of(schema, &bytes).and_then(|value| normal(schema, value));
        prop_assert_eq!(&read.expect("CBOR"), &object);
        let text = yaml::to_string(&object);
        let read = yaml::decode(text.as_bytes()).and_then(|decoded| normal(schema, decoded.value));
        prop_assert_eq!(&read.expect("YAML"), &object);
    }
}
