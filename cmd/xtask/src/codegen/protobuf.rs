//! Reads messages out of `k8s-pb`: field numbers from its attributes, API markers from its comments.

use std::collections::BTreeMap;
use std::path::Path;

use super::openapi::{package_name, rust_files};

/// A message.
#[derive(Debug, Default)]
pub(crate) struct Message {
    /// Markers above the struct.
    pub(crate) markers: Vec<(String, String)>,
    /// Its fields, in order.
    pub(crate) fields: Vec<Field>,
}

/// A field of a message.
#[derive(Debug)]
pub(crate) struct Field {
    /// Its name in lower case, without anything but letters and digits.
    pub(crate) plain_name: String,
    /// Its number.
    pub(crate) number: u32,
    /// The full name of its message type, when it has a single one.
    pub(crate) message: Option<String>,
    /// Markers above the field.
    pub(crate) markers: Vec<(String, String)>,
}

/// A name as the two crates' spellings have it in common.
pub(crate) fn plain(name: &str) -> String {
    name.trim_start_matches("r#")
        .chars()
        .filter(char::is_ascii_alphanumeric)
        .map(|c| c.to_ascii_lowercase())
        .collect()
}

/// All messages by full name in lower case: prost spells `PodIP` as `PodIp`.
pub(crate) fn read(dir: &Path) -> Result<BTreeMap<String, Message>, String> {
    let mut out = BTreeMap::new();
    for path in rust_files(dir)? {
        let Ok(inner) = path.strip_prefix(dir) else {
            continue;
        };
        let Some(folder) = inner.parent() else { continue };
        let segments: Vec<&str> = folder.iter().filter_map(|s| s.to_str()).collect();
        let text = std::fs::read_to_string(&path)
            .map_err(|error| format!("cannot read {}: {error}", path.display()))?;
        read_file(&segments, &text, &mut out);
    }
    if out.len() < 500 {
        return Err(format!("only {} messages in {}", out.len(), dir.display()));
    }
    Ok(out)
}

fn read_file(package: &[&str], text: &str, out: &mut BTreeMap<String, Message>) {
    let mut markers: Vec<(String, String)> = Vec::new();
    let mut current: Option<(String, Message)> = None;
    let mut number: Option<u32> = None;
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        let line = line.trim();
        if let Some(doc) = line.strip_prefix("///") {
            if let Some(marker) = doc.trim().strip_prefix('+') {
                let (key, value) = marker.split_once('=').unwrap_or((marker, ""));
                markers.push((key.trim().to_owned(), value.trim().to_owned()));
            }
        } else if line.starts_with("#[prost(") {
            let mut whole = line.to_owned();
            while !whole.ends_with(")]") {
                let Some(next) = lines.next() else { break };
                whole.push_str(next.trim());
            }
            number = whole
                .split("tag = \"")
                .nth(1)
                .and_then(|rest| rest.split('"').next())
                .and_then(|digits| digits.parse().ok());
        } else if let Some(rest) = line.strip_prefix("pub struct ") {
            let name = rest.split([' ', '{']).next().unwrap_or_default();
            let full = package_name(package.iter().copied().chain([name]));
            let message = Message {
                markers: std::mem::take(&mut markers),
                fields: Vec::new(),
            };
            if rest.ends_with("{}") {
                out.insert(full.to_lowercase(), message);
            } else {
                current = Some((full, message));
            }
        } else if line == "}" {
            if let Some((name, message)) = current.take() {
                out.insert(name.to_lowercase(), message);
            }
            markers.clear();
        } else if let Some(rest) = line.strip_prefix("pub ") {
            let Some((_, message)) = current.as_mut() else {
                markers.clear();
                continue;
            };
            let Some((name, ty)) = rest.split_once(':') else {
                continue;
            };
            let mut ty = ty.trim().to_owned();
            while !ty.ends_with(',') {
                let Some(next) = lines.next() else { break };
                ty.push_str(next.trim());
            }
            if let Some(number) = number.take() {
                message.fields.push(Field {
                    plain_name: plain(name),
                    number,
                    message: message_type(package, &ty),
                    markers: std::mem::take(&mut markers),
                });
            }
        }
    }
}

/// `::core::option::Option<super::super::core::v1::PodSpec>` seen from `api.apps.v1` is `io.k8s.api.core.v1.PodSpec`.
fn message_type(package: &[&str], ty: &str) -> Option<String> {
    let inner = ty.trim_end_matches(',').strip_prefix("::core::option::Option<")?;
    let inner = inner.strip_suffix('>')?;
    let inner = inner
        .strip_prefix("::prost::alloc::boxed::Box<")
        .and_then(|rest| rest.strip_suffix('>'))
        .unwrap_or(inner);
    if inner.starts_with("::") {
        return None;
    }
    let mut base: Vec<&str> = package.to_vec();
    for segment in inner.split("::") {
        match segment {
            "super" => {
                base.pop();
            }
            other => base.push(other),
        }
    }
    Some(package_name(base.into_iter()))
}
