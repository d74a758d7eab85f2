//! JSON without some of its members: skipped values are scanned, not built.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

/// Reads JSON that was checked when it was written, without the members of these names at any depth. `None` when it is no
/// JSON, or nested deeper than `serde_json` goes: then the whole has to be read.
pub fn sparse(bytes: &[u8], without: &[&str]) -> Option<Value> {
    let mut reader = serde_json::Deserializer::from_slice(bytes);
    let value = Sparse { without }.deserialize(&mut reader).ok()?;
    reader.end().ok()?;
    Some(value)
}

#[derive(Clone, Copy)]
struct Sparse<'a> {
    without: &'a [&'a str],
}

impl<'de> DeserializeSeed<'de> for Sparse<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, reader: D) -> Result<Value, D::Error> {
        reader.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Sparse<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut out = Vec::new();
        while let Some(item) = items.next_element_seed(self)? {
            out.push(item);
        }
        Ok(out.into())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Value, A::Error> {
        let mut out = Map::new();
        while let Some(name) = members.next_key::<String>()? {
            if self.without.contains(&name.as_str()) {
                members.next_value::<IgnoredAny>()?;
            } else {
                let value = members.next_value_seed(self)?;
                out.insert(name, value);
            }
        }
        Ok(out.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn members_are_left_out_wherever_they_are() {
        let text = r#"{"a":1,"skip":{"b":[2]},"c":[{"skip":[],"d":-1,"e":1.5,"f":null,"g":"x\n","h":true}]}"#;
        let expected = json!({"a": 1, "c": [{"d": -1, "e": 1.5, "f": null, "g": "x\n", "h": true}]});
        assert_eq!(sparse(text.as_bytes(), &["skip"]), Some(expected));
        for bad in ["", "{", "{} {}", r#"{"skip":}"#] {
            assert_eq!(sparse(bad.as_bytes(), &["skip"]), None, "{bad}");
        }
    }
}
