//! Upstream's compatibility data (`k8s.io/api/testdata`): each object as JSON, YAML and protobuf, of several releases. The
//! folder is named by `KUBERNETES_API_TESTDATA`; without it the test says so and passes.

use std::path::{Path, PathBuf};

use serde_json::Value;

use super::{DecodeError, cbor, json, protobuf, typed, yaml};
use crate::schema::{SchemaRef, builtin};

const VARIABLE: &str = "KUBERNETES_API_TESTDATA";

/// One object, by the beginning of its files' names: `HEAD/apps.v1.Deployment`.
struct Sample(PathBuf);

impl Sample {
    fn read(&self, ending: &str) -> Option<Vec<u8>> {
        let name = format!("{}{ending}", self.0.display());
        std::fs::read(name).ok()
    }

    /// What an encoder has to write of it: fields that have gone since are left out.
    fn written(&self, ending: &str) -> Vec<u8> {
        let gone = self.read(&format!(".after_roundtrip{ending}"));
        gone.or_else(|| self.read(ending)).unwrap_or_default()
    }

    /// What differs, in words. `None` where the kind is not known here.
    fn differences(&self) -> Option<Vec<String>> {
        let text = self.read(".json")?;
        let (api_version, kind) = json::interpret(&text).ok()?;
        let (group, version) = api_version.split_once('/').unwrap_or(("", &api_version));
        let schema = builtin().kind(group, version, &kind)?;
        let schema = schema.root();
        let mut out = Vec::new();
        let read = json::decode_typed(&text, schema);
        let object = match read {
            Ok(decoded) => decoded.value,
            Err(error) => return Some(vec![format!("JSON is not read: {error}")]),
        };
        let mut same = |what: &str, read: Result<Value, DecodeError>| match read {
            Ok(read) if read == object => {}
            Ok(read) => out.push(format!("{what}: {}", first_difference("", &object, &read))),
            Err(error) => out.push(format!("{what}: {error}")),
        };
        let from_yaml = |text: &[u8]| decoded(schema, yaml::decode(text)?.value);
        same("protobuf as JSON", protobuf::decode(schema, &self.read(".pb")?));
        same("YAML as JSON", from_yaml(&self.read(".yaml")?));
        let written = serde_json::from_slice(&self.written(".json"));
        same("JSON as upstream writes it", Ok(written.unwrap_or_default()));
        let encoded = protobuf::encode(schema, &object);
        same("JSON by protobuf", protobuf::decode(schema, &encoded));
        let by_cbor = |bytes: &[u8]| decoded(schema, cbor::decode_bytes_of(schema, bytes)?);
        same("JSON by CBOR", by_cbor(&cbor::encode_typed(schema, &object)));
        if encoded != self.written(".pb") {
            let theirs = protobuf::decode(schema, &self.written(".pb")).unwrap_or_default();
            out.push(format!("other bytes: {}", first_difference("", &theirs, &object)));
        }
        let emitted = yaml::to_string(&object);
        if emitted.as_bytes() != self.written(".yaml") {
            let theirs = String::from_utf8_lossy(&self.written(".yaml")).into_owned();
            let mut lines = theirs.lines().zip(emitted.lines());
            out.push(format!(
                "other YAML: {:?}",
                lines.find(|(theirs, ours)| theirs != ours)
            ));
        }
        Some(out)
    }
}

fn decoded(schema: SchemaRef<'_>, value: Value) -> Result<Value, DecodeError> {
    typed::decode_builtin(schema, value).map(|decoded| decoded.value)
}

/// The path of the first difference, with both values.
fn first_difference(path: &str, expected: &Value, found: &Value) -> String {
    let differ = |a: Option<&Value>, b: Option<&Value>, at: String| match (a, b) {
        (Some(a), Some(b)) if a == b => None,
        (Some(a), Some(b)) => Some(first_difference(&at, a, b)),
        (a, b) => Some(format!("{at}: {a:?} and {b:?}")),
    };
    let inner = match (expected, found) {
        (Value::Object(a), Value::Object(b)) => a
            .keys()
            .chain(b.keys())
            .find_map(|key| differ(a.get(key), b.get(key), format!("{path}.{key}"))),
        (Value::Array(a), Value::Array(b)) => {
            (0..a.len().max(b.len())).find_map(|at| differ(a.get(at), b.get(at), format!("{path}[{at}]")))
        }
        _ => None,
    };
    inner.unwrap_or_else(|| format!("{path}: {expected} and {found}"))
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    let all = std::fs::read_dir(folder).expect("the folder can be read");
    let mut all: Vec<PathBuf> = all.map(|entry| entry.expect("an entry").path()).collect();
    all.sort();
    all
}

#[test]
fn upstreams_objects_have_the_same_bytes() {
    let Some(folder) = std::env::var_os(VARIABLE) else {
        eprintln!("SKIPPED: {VARIABLE} names no samples");
        return;
    };
    let (mut seen, mut unknown, mut faults) = (0, Vec::new(), Vec::new());
    for release in entries(Path::new(&folder)).iter().filter(|path| path.is_dir()) {
        for path in entries(release) {
            let name = path.to_string_lossy().into_owned();
            let Some(name) = name
                .strip_suffix(".json")
                .filter(|name| !name.ends_with(".after_roundtrip"))
            else {
                continue;
            };
            match Sample(name.into()).differences() {
                None => unknown.push(name.to_owned()),
                Some(differences) => {
                    seen += 1;
                    faults.extend(differences.iter().map(|what| format!("{name}: {what}")));
                }
            }
        }
    }
    eprintln!(
        "{seen} objects; {} of kinds that are not known here: {unknown:#?}",
        unknown.len()
    );
    assert_ne!(seen, 0, "there are objects in {}", Path::new(&folder).display());
    assert!(
        faults.is_empty(),
        "{} faults:\n{}",
        faults.len(),
        faults.join("\n")
    );
}
