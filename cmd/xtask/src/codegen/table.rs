//! Joins the two sources and the supplement, and prints the table.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use serde_json::Value;

use super::openapi::Definition;
use super::protobuf::{Message, plain};

/// A line of the table: a field.
#[derive(Debug, Clone, Default, PartialEq)]
struct Line {
    ty: String,
    number: String,
    presence: char,
    required: bool,
    attributes: BTreeSet<String>,
}

/// A block of the table: a type.
#[derive(Debug, Clone, Default)]
struct Block {
    header: Vec<String>,
    fields: BTreeMap<String, Line>,
}

const META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1";
const EXTENSIONS: &str = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1";

/// Types that are one code letter instead of a block; the loader knows the same ones.
fn special(name: &str) -> Option<&'static str> {
    if let Some(rest) = name.strip_prefix(META) {
        return match rest {
            ".Time" => Some("t"),
            ".MicroTime" => Some("u"),
            ".FieldsV1" => Some("V"),
            ".Patch" => Some(""),
            _ => None,
        };
    }
    if let Some(rest) = name.strip_prefix(EXTENSIONS) {
        return match rest {
            ".JSON" => Some("J"),
            ".JSONSchemaPropsOrBool" => Some("X"),
            ".JSONSchemaPropsOrArray" => Some("Y"),
            ".JSONSchemaPropsOrStringArray" => Some("Z"),
            _ => None,
        };
    }
    match name {
        "io.k8s.apimachinery.pkg.api.resource.Quantity" => Some("q"),
        "io.k8s.apimachinery.pkg.util.intstr.IntOrString" => Some("n"),
        "io.k8s.apimachinery.pkg.runtime.RawExtension" => Some("R"),
        _ => None,
    }
}

/// The type code of a property.
fn code(schema: &Value, package: &str) -> Result<String, String> {
    if let Some(name) = schema["$ref"].as_str() {
        if let Some(letter) = special(name) {
            return Ok(letter.to_owned());
        }
        return Ok(match name.strip_prefix(package) {
            Some(rest) if !rest[1..].contains('.') => format!("&{rest}"),
            _ => format!("&{name}"),
        });
    }
    Ok(match (schema["type"].as_str(), schema["format"].as_str()) {
        (Some("string"), Some("byte")) => "B".into(),
        (Some("string"), _) => "s".into(),
        (Some("boolean"), _) => "b".into(),
        (Some("integer"), Some("int32")) => "i".into(),
        (Some("integer"), _) => "l".into(),
        (Some("number"), _) => "d".into(),
        (Some("array"), _) => format!("[{}", code(&schema["items"], package)?),
        (Some("object"), _) if schema.get("additionalProperties").is_some() => {
            format!("{{{}", code(&schema["additionalProperties"], package)?)
        }
        (Some("object"), _) => "R".into(),
        other => return Err(format!("unknown type {other:?}")),
    })
}

/// Finds a JSON name among a message's fields, also inside messages that JSON inlines.
fn locate<'a>(
    messages: &'a BTreeMap<String, Message>,
    message: &'a Message,
    json_names: &BTreeSet<String>,
    wanted: &str,
) -> Option<(String, &'a super::protobuf::Field)> {
    if let Some(field) = message.fields.iter().find(|f| f.plain_name == wanted) {
        return Some((field.number.to_string(), field));
    }
    for outer in message
        .fields
        .iter()
        .filter(|f| !json_names.contains(&f.plain_name))
    {
        let Some(inner) = outer
            .message
            .as_ref()
            .and_then(|name| messages.get(&name.to_lowercase()))
        else {
            continue;
        };
        if let Some((path, field)) = locate(messages, inner, json_names, wanted) {
            return Some((format!("{}.{path}", outer.number), field));
        }
    }
    None
}

fn attributes(markers: &[(String, String)], ty: &str) -> BTreeSet<String> {
    let mut out = BTreeSet::new();
    let all = |key: &str| -> Vec<&str> {
        markers
            .iter()
            .filter(|(k, _)| k == key)
            .map(|(_, v)| v.as_str())
            .collect()
    };
    match all("listType").last() {
        Some(&"map") => {
            out.insert(format!("map:{}", all("listMapKey").join(",")));
        }
        Some(&"set") => {
            out.insert("set".into());
        }
        Some(&"atomic") => {
            out.insert("atomic".into());
        }
        _ => {}
    }
    for strategy in all("patchStrategy").iter().flat_map(|s| s.split(',')) {
        out.insert(strategy.into());
    }
    if let Some(key) = all("patchMergeKey").last() {
        out.insert(format!("key:{key}"));
    }
    for key in ["structType", "mapType"] {
        if let Some(kind) = all(key).last() {
            out.insert(format!("map-{kind}"));
        }
    }
    if let Some(value) = all("default").last()
        && let Ok(value) = serde_json::from_str::<Value>(value)
        && !ty.starts_with('&')
    {
        out.insert(format!("default:{value}"));
    }
    out
}

pub(crate) fn join(
    types: &BTreeMap<String, Definition>,
    messages: &BTreeMap<String, Message>,
    supplement: &str,
) -> Result<String, String> {
    let mut blocks: BTreeMap<String, Block> = BTreeMap::new();
    for (name, definition) in types {
        if special(name).is_some() {
            continue;
        }
        let package = name.rsplit_once('.').map_or("", |(package, _)| package);
        let mut block = Block::default();
        if let Some((group, version, kind)) = &definition.kind {
            block.header.push(format!("kind:{group}/{version}/{kind}"));
        }
        let message = messages.get(&name.to_lowercase());
        if let Some(message) = message
            && message
                .markers
                .iter()
                .any(|(k, v)| k == "structType" && v == "atomic")
        {
            block.header.push("map-atomic".into());
        }
        let empty = serde_json::Map::new();
        let properties = definition.schema["properties"].as_object().unwrap_or(&empty);
        let names: BTreeSet<String> = properties.keys().map(|k| plain(k)).collect();
        for (field, schema) in properties {
            let ty = code(schema, package).map_err(|error| format!("{name}.{field}: {error}"))?;
            // That crate makes every `metadata` required, the API makes few so.
            let required = field != "metadata"
                && definition.schema["required"]
                    .as_array()
                    .is_some_and(|list| list.iter().any(|v| v == field));
            let located = message.and_then(|m| locate(messages, m, &names, &plain(field)));
            let always = required
                || matches!(
                    field.as_str(),
                    "metadata" | "spec" | "status" | "lastTransitionTime"
                );
            let presence = match ty.as_bytes()[0] {
                _ if always => 'a',
                b'[' | b'{' | b's' | b'B' => 'o',
                b'b' if field != "optional" => 'o',
                _ => 'p',
            };
            block.fields.insert(
                field.clone(),
                Line {
                    number: located.as_ref().map_or("-".into(), |(path, _)| path.clone()),
                    presence,
                    required,
                    attributes: located
                        .as_ref()
                        .map(|(_, f)| attributes(&f.markers, &ty))
                        .unwrap_or_default(),
                    ty,
                },
            );
        }
        if let (Some(list_kind), Some((group, version, _))) = (&definition.list_kind, &definition.kind) {
            let short = name.rsplit('.').next().unwrap_or_default();
            let list = list_block(short, &format!("kind:{group}/{version}/{list_kind}"));
            blocks.insert(format!("{package}.{list_kind}"), list);
        }
        blocks.insert(name.clone(), block);
    }
    supplement_blocks(&mut blocks, supplement)?;
    check_references(&blocks)?;
    Ok(print(&blocks))
}

fn list_block(item: &str, kind: &str) -> Block {
    let line = |ty: &str, number: &str, presence: char, required: bool| Line {
        ty: ty.into(),
        number: number.into(),
        presence,
        required,
        attributes: BTreeSet::new(),
    };
    let fields = [
        ("apiVersion", line("s", "-", 'o', false)),
        ("items", line(&format!("[&.{item}"), "2", 'a', true)),
        ("kind", line("s", "-", 'o', false)),
        ("metadata", line(&format!("&{META}.ListMeta"), "1", 'a', false)),
    ];
    Block {
        header: vec![kind.to_owned()],
        fields: fields.into_iter().map(|(k, v)| (k.to_owned(), v)).collect(),
    }
}

/// Reads the supplement: `~type field token...` lines change a field, `~type token...` a header, blocks are types of their own.
fn supplement_blocks(blocks: &mut BTreeMap<String, Block>, text: &str) -> Result<(), String> {
    let mut current: Option<String> = None;
    for line in text
        .lines()
        .filter(|l| !l.trim().is_empty() && !l.starts_with('#'))
    {
        let words: Vec<&str> = line.split_whitespace().collect();
        if let Some(name) = line.strip_prefix("~~") {
            let name = name.split_whitespace().next().unwrap_or_default();
            let block = blocks
                .get_mut(name)
                .ok_or_else(|| format!("supplement: no type {name}"))?;
            block.header.extend(words[1..].iter().map(|w| (*w).to_owned()));
        } else if line.starts_with('~') {
            let name = words[0].trim_start_matches('~');
            current = Some(name.to_owned());
            if !blocks.contains_key(name) {
                return Err(format!("supplement: no type {name}"));
            }
        } else if line.starts_with(' ') {
            let name = current.as_ref().ok_or("supplement: a field without a type")?;
            let block = blocks.entry(name.clone()).or_default();
            let field = block.fields.entry(words[0].to_owned()).or_default();
            for word in &words[1..] {
                apply(field, word);
            }
        } else {
            current = Some(words[0].to_owned());
            let block = Block {
                header: words[1..].iter().map(|w| (*w).to_owned()).collect(),
                fields: BTreeMap::new(),
            };
            blocks.insert(words[0].to_owned(), block);
        }
    }
    Ok(())
}

fn apply(field: &mut Line, word: &str) {
    match word {
        "p" | "P" | "o" | "a" | "z" => field.presence = word.chars().next().unwrap_or('o'),
        "!" => field.required = true,
        "-!" => field.required = false,
        _ if word.starts_with('@') => field.number = word[1..].to_owned(),
        _ if word.starts_with("type:") => field.ty = word[5..].to_owned(),
        _ if word.starts_with('-') => {
            field.attributes.remove(&word[1..]);
        }
        _ => {
            field.attributes.insert(word.to_owned());
        }
    }
}

fn check_references(blocks: &BTreeMap<String, Block>) -> Result<(), String> {
    for (name, block) in blocks {
        let package = name.rsplit_once('.').map_or("", |(package, _)| package);
        for (field, line) in &block.fields {
            let Some((_, target)) = line.ty.split_once('&') else {
                continue;
            };
            let full = match target.strip_prefix('.') {
                Some(short) => format!("{package}.{short}"),
                None => target.to_owned(),
            };
            if !blocks.contains_key(&full) {
                return Err(format!("{name}.{field} refers to {full}, which is not there"));
            }
        }
    }
    Ok(())
}

fn print(blocks: &BTreeMap<String, Block>) -> String {
    let mut out = String::from(
        "# Made by `cargo xtask codegen`; do not edit. The format is described in `schema/builtin.rs`.\n",
    );
    for (name, block) in blocks {
        let _ = write!(out, "{name}");
        for word in &block.header {
            let _ = write!(out, " {word}");
        }
        out.push('\n');
        for (field, line) in &block.fields {
            let mark = if line.required { "!" } else { "" };
            let _ = write!(
                out,
                " {field} {} {} {}{mark}",
                line.ty, line.number, line.presence
            );
            for attribute in &line.attributes {
                let _ = write!(out, " {attribute}");
            }
            out.push('\n');
        }
    }
    out
}
