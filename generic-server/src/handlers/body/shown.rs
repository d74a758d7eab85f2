//! What errors show of bodies and objects, within bounds.

use serde_json::Value;

/// The first bytes, for an error: text when it looks like JSON, else hexadecimal.
pub(super) fn summary(bytes: &[u8]) -> String {
    const MAX: usize = 30;
    if bytes.is_empty() {
        return "<empty>".into();
    }
    let (head, more) = if bytes.len() > MAX {
        (&bytes[..MAX], " ...")
    } else {
        (bytes, "")
    };
    if bytes[0] == b'{' {
        return format!("{}{more}", String::from_utf8_lossy(head));
    }
    let hex: String = head.iter().map(|b| format!("{b:02x}")).collect();
    format!("{hex}{more}")
}

/// How Go's `%+v` prints a decoded JSON object; what is past that many bytes is left out, but for the rest of one text.
pub(in crate::handlers) fn go_map(value: &Value, most: usize) -> String {
    let mut out = String::new();
    write_go_map(&mut out, value, most);
    out
}

fn write_go_map(out: &mut String, value: &Value, most: usize) {
    if out.len() > most {
        return;
    }
    match value {
        Value::Object(map) => {
            out.push_str("map[");
            for (index, (key, member)) in map.iter().enumerate() {
                if out.len() > most {
                    return;
                }
                if index > 0 {
                    out.push(' ');
                }
                out.push_str(key);
                out.push(':');
                write_go_map(out, member, most);
            }
            out.push(']');
        }
        Value::Array(items) => {
            out.push('[');
            for (index, item) in items.iter().enumerate() {
                if out.len() > most {
                    return;
                }
                if index > 0 {
                    out.push(' ');
                }
                write_go_map(out, item, most);
            }
            out.push(']');
        }
        Value::String(text) => out.push_str(text),
        Value::Null => out.push_str("<nil>"),
        other => out.push_str(&other.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use machinery::limits;
    use serde_json::json;

    use super::*;

    #[test]
    fn maps_as_go_prints_them() {
        #[track_caller]
        fn check(value: Value, most: usize, expected: &str) {
            assert_eq!(go_map(&value, most), expected);
        }
        let value = json!({"a": {"b": [1, "x", null, true]}, "c": {}, "d": []});
        check(value.clone(), 100, "map[a:map[b:[1 x <nil> true]] c:map[] d:[]]");
        check(value, 12, "map[a:map[b:[]");
        check(json!("text"), 2, "text");
    }

    #[test]
    fn shown_values_are_bounded() {
        let mut deep = json!("x".repeat(100));
        for _ in 0..200 {
            deep = json!({"k": deep, "l": vec!["y"; 100]});
        }
        let shown = go_map(&deep, limits::SHOWN_VALUE_BYTES);
        assert!(shown.len() <= limits::SHOWN_VALUE_BYTES + 100, "{}", shown.len());
    }

    #[test]
    fn what_begins_a_body_is_shown() {
        #[track_caller]
        fn check(bytes: &[u8], expected: &str) {
            assert_eq!(summary(bytes), expected);
        }
        check(b"", "<empty>");
        check(b"{\"a\":1}", "{\"a\":1}");
        check(b"\x01\xff", "01ff");
        check(&[b'{'; 30], &"{".repeat(30));
        check(&[b'{'; 31], &format!("{} ...", "{".repeat(30)));
    }
}
