//! Reads types out of the sources of `k8s-openapi`: its `json_schema!` blocks are JSON with a few Rust expressions in them.
//! Part of this crate's build script, which takes the texts, and of `xtask`, which takes the facts.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Map, Value, json};

/// The unpacked source of a crate in the lock file.
pub(crate) fn source_of(root: &Path, name: &str) -> Result<PathBuf, String> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["metadata", "--format-version", "1", "--locked"])
        .current_dir(root)
        .output()
        .map_err(|error| format!("cannot run cargo metadata: {error}"))?;
    if !output.status.success() {
        return Err(format!(
            "cargo metadata failed: {}",
            String::from_utf8_lossy(&output.stderr)
        ));
    }
    let metadata: Value =
        serde_json::from_slice(&output.stdout).map_err(|error| format!("cargo metadata: {error}"))?;
    metadata["packages"]
        .as_array()
        .into_iter()
        .flatten()
        .find(|package| package["name"] == name)
        .and_then(|package| package["manifest_path"].as_str())
        .and_then(|manifest| Path::new(manifest).parent())
        .map(Path::to_path_buf)
        .ok_or_else(|| format!("crate {name} is not in the lock file"))
}

/// All `.rs` files under a folder, sorted.
pub(crate) fn rust_files(dir: &Path) -> Result<Vec<PathBuf>, String> {
    let mut out = Vec::new();
    let mut todo = vec![dir.to_path_buf()];
    while let Some(dir) = todo.pop() {
        let entries =
            std::fs::read_dir(&dir).map_err(|error| format!("cannot read {}: {error}", dir.display()))?;
        for entry in entries {
            let path = entry.map_err(|error| error.to_string())?.path();
            if path.is_dir() {
                todo.push(path);
            } else if path.extension().is_some_and(|e| e == "rs") {
                out.push(path);
            }
        }
    }
    out.sort();
    Ok(out)
}

/// `crate::api::apps::v1` and file paths alike become `io.k8s.api.apps.v1`.
pub(crate) fn package_name<'a>(segments: impl Iterator<Item = &'a str>) -> String {
    let mut out = String::from("io.k8s");
    for segment in segments {
        out.push('.');
        out.push_str(match segment {
            "apiextensions_apiserver" => "apiextensions-apiserver",
            "kube_aggregator" => "kube-aggregator",
            other => other,
        });
    }
    out
}

/// A definition of the OpenAPI document. The build script has no use for kinds.
#[allow(dead_code, reason = "each of the two readers takes its part")]
#[derive(Debug, Default)]
pub(crate) struct Definition {
    /// Its schema; references are `{"$ref": "<definition>"}`.
    pub(crate) schema: Value,
    /// Group, version and kind, for a kind.
    pub(crate) kind: Option<(String, String, String)>,
    /// The kind of its list.
    pub(crate) list_kind: Option<String>,
}

/// All definitions by name.
pub(crate) fn read(dir: &Path) -> Result<BTreeMap<String, Definition>, String> {
    let mut out = BTreeMap::new();
    for path in rust_files(dir)? {
        let text = std::fs::read_to_string(&path)
            .map_err(|error| format!("cannot read {}: {error}", path.display()))?;
        let Some(name) = text
            .lines()
            .find_map(|line| line.strip_prefix("// Generated from definition "))
        else {
            continue;
        };
        let Some(start) = text.find("json_schema!(") else {
            continue;
        };
        let mut parser = Parser {
            text: text.as_bytes(),
            at: start + "json_schema!(".len(),
        };
        let schema = parser
            .value()
            .map_err(|error| format!("{}: {error}", path.display()))?;
        let constant = |name: &str| {
            let at = text.find(&format!("const {name}: &'static str = \""))?;
            text[at..].split('"').nth(1).map(str::to_owned)
        };
        let kind = match (constant("GROUP"), constant("VERSION"), constant("KIND")) {
            (Some(group), Some(version), Some(kind)) => Some((group, version, kind)),
            _ => None,
        };
        out.insert(
            name.to_owned(),
            Definition {
                schema,
                kind,
                list_kind: constant("LIST_KIND"),
            },
        );
    }
    if out.len() < 500 {
        return Err(format!("only {} definitions in {}", out.len(), dir.display()));
    }
    Ok(out)
}

struct Parser<'a> {
    text: &'a [u8],
    at: usize,
}

impl Parser<'_> {
    fn space(&mut self) {
        while self.text.get(self.at).is_some_and(u8::is_ascii_whitespace) {
            self.at += 1;
        }
    }

    fn eat(&mut self, token: &str) -> bool {
        self.space();
        let found = self.text[self.at..].starts_with(token.as_bytes());
        if found {
            self.at += token.len();
        }
        found
    }

    fn expect(&mut self, token: &str) -> Result<(), String> {
        if self.eat(token) {
            return Ok(());
        }
        let rest = &self.text[self.at..self.text.len().min(self.at + 60)];
        Err(format!("expected {token} at {:?}", String::from_utf8_lossy(rest)))
    }

    fn value(&mut self) -> Result<Value, String> {
        let value = self.bare()?;
        while self.eat(".into()") {}
        Ok(value)
    }

    fn bare(&mut self) -> Result<Value, String> {
        if self.eat("__gen.subschema_for::<") {
            let start = self.at;
            while self.text[self.at] != b'>' {
                self.at += 1;
            }
            let path = String::from_utf8_lossy(&self.text[start..self.at]).into_owned();
            self.expect(">()")?;
            let segments = path.strip_prefix("crate::").unwrap_or(&path).split("::");
            return Ok(json!({ "$ref": package_name(segments) }));
        }
        if self.eat("(") {
            let value = self.value()?;
            self.expect(")")?;
            return Ok(value);
        }
        if self.eat("[") {
            let mut items = Vec::new();
            while !self.eat("]") {
                items.push(self.value()?);
                self.eat(",");
            }
            return Ok(Value::Array(items));
        }
        if self.eat("{") {
            if self.eat("let mut schema_obj = ") {
                let mut value = self.value()?;
                self.expect(";")?;
                self.expect("schema_obj.ensure_object().insert(")?;
                let key = self.string()?;
                self.expect(".into()")?;
                self.expect(",")?;
                value[key] = self.value()?;
                self.expect(");")?;
                self.expect("schema_obj")?;
                self.expect("}")?;
                return Ok(value);
            }
            let mut map = Map::new();
            while !self.eat("}") {
                let key = self.string()?;
                self.expect(":")?;
                map.insert(key, self.value()?);
                self.eat(",");
            }
            return Ok(Value::Object(map));
        }
        if self.eat("true") {
            return Ok(Value::Bool(true));
        }
        if self.eat("false") {
            return Ok(Value::Bool(false));
        }
        self.string().map(Value::String)
    }

    fn string(&mut self) -> Result<String, String> {
        self.expect("\"")?;
        let mut out = Vec::new();
        loop {
            let byte = *self.text.get(self.at).ok_or("unfinished string")?;
            self.at += 1;
            match byte {
                b'"' => return String::from_utf8(out).map_err(|error| error.to_string()),
                b'\\' => {
                    let escaped = self.text[self.at];
                    self.at += 1;
                    match escaped {
                        b'n' => out.push(b'\n'),
                        b't' => out.push(b'\t'),
                        b'r' => out.push(b'\r'),
                        b'0' => out.push(0),
                        b'u' => {
                            let end = self.text[self.at..]
                                .iter()
                                .position(|b| *b == b'}')
                                .ok_or("bad escape")?;
                            let hex = String::from_utf8_lossy(&self.text[self.at + 1..self.at + end]);
                            let code = u32::from_str_radix(&hex, 16).map_err(|error| error.to_string())?;
                            let c = char::from_u32(code).ok_or("bad escape")?;
                            out.extend(c.to_string().bytes());
                            self.at += end + 1;
                        }
                        other => out.push(other),
                    }
                }
                other => out.push(other),
            }
        }
    }
}
