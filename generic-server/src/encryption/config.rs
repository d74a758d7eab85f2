//! The file of `--encryption-provider-config`: `EncryptionConfiguration` of `apiserver.config.k8s.io/v1`, read strictly and
//! checked with upstream's messages. Keys are in no message.

use std::path::PathBuf;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use machinery::codec::{StrictError, strict_message, yaml};
use machinery::go;
use machinery::time::GoDuration;
use machinery::{FieldError, FieldPath, GroupResource};
use serde_json::{Map, Value, json};

const API_VERSION: &str = "apiserver.config.k8s.io/v1";
const KIND: &str = "EncryptionConfiguration";
const AES_SIZES: &[usize] = &[16, 24, 32];
const SECRETBOX_SIZES: &[usize] = &[32];

/// One entry of the file: resources and the providers they have in common.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) resources: Vec<String>,
    pub(super) providers: Vec<Provider>,
}

/// How values are stored.
#[derive(Debug)]
pub(super) enum Provider {
    AesGcm(Vec<Key>),
    AesCbc(Vec<Key>),
    Secretbox(Vec<Key>),
    Identity,
    Kms(KmsConfig),
}

/// A named key.
pub(super) struct Key {
    pub(super) name: String,
    pub(super) secret: Vec<u8>,
}

impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Key")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

/// A KMS v2 plugin.
#[derive(Debug)]
pub(super) struct KmsConfig {
    pub(super) name: String,
    pub(super) socket: PathBuf,
    pub(super) timeout: Duration,
}

/// `*.*`, `*.group`, `resource.group`; the core group's is empty.
pub(super) fn parse_resource(text: &str) -> GroupResource {
    match text.split_once('.') {
        Some((resource, group)) => GroupResource::new(group, resource),
        None => GroupResource::new("", text),
    }
}

/// Reads the file's text. `reload`: it is read again when it changes.
pub(super) fn parse(path: &str, data: &[u8], reload: bool) -> Result<Vec<Entry>, String> {
    if data.is_empty() {
        return Err(format!(
            "error while loading file: encryption provider configuration file \"{path}\" is empty"
        ));
    }
    let undecodable =
        |why: String| format!("error decoding encryption provider configuration file \"{path}\": {why}");
    let decoded = yaml::decode(data).map_err(|error| undecodable(error.to_string()))?;
    let text = |key: &str| decoded.value.get(key).and_then(Value::as_str).unwrap_or_default();
    let (version, kind) = (text("apiVersion"), text("kind"));
    for (value, name) in [(kind, "Kind"), (version, "apiVersion")] {
        if value.is_empty() {
            return Err(undecodable(format!("Object '{name}' is missing in '{path}'")));
        }
    }
    if (version, kind) != (API_VERSION, KIND) {
        return Err(undecodable(format!(
            "no kind \"{kind}\" is registered for version \"{version}\" in scheme \"encryption configuration\""
        )));
    }
    let mut reader = Reader {
        strict: decoded.strict,
        errors: Vec::new(),
        kms_names: Vec::new(),
        reload,
    };
    let entries = reader.document(&decoded.value).map_err(undecodable)?;
    if !reader.strict.is_empty() {
        return Err(undecodable(strict_message(&reader.strict)));
    }
    if reader.errors.is_empty() {
        return Ok(entries);
    }
    let mut texts: Vec<String> = Vec::new();
    for text in reader.errors.iter().map(FieldError::to_string) {
        if !texts.contains(&text) {
            texts.push(text);
        }
    }
    Err(go::aggregate(&texts).into_owned())
}

/// Collects what is wrong while it reads.
struct Reader {
    strict: Vec<StrictError>,
    errors: Vec<FieldError>,
    kms_names: Vec<String>,
    reload: bool,
}

/// The members of an object; the rest are strict errors.
fn members<'v>(
    strict: &mut Vec<StrictError>,
    value: &'v Value,
    path: &str,
    known: &[&str],
) -> Result<Option<&'v Map<String, Value>>, String> {
    let map = match value {
        Value::Null => return Ok(None),
        Value::Object(map) => map,
        other => return Err(mismatch(other, path, "object")),
    };
    for name in map.keys().filter(|name| !known.contains(&name.as_str())) {
        strict.push(StrictError::Unknown(match path {
            "" => name.clone(),
            path => format!("{path}.{name}"),
        }));
    }
    Ok(Some(map))
}

fn mismatch(value: &Value, path: &str, wanted: &str) -> String {
    let found = match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    };
    format!("json: cannot unmarshal {found} into {path} of type {wanted}")
}

fn list<'v>(map: &'v Map<String, Value>, key: &str, path: &str) -> Result<&'v [Value], String> {
    match map.get(key) {
        None | Some(Value::Null) => Ok(&[]),
        Some(Value::Array(items)) => Ok(items),
        Some(other) => Err(mismatch(other, &format!("{path}.{key}"), "list")),
    }
}

fn string(map: &Map<String, Value>, key: &str, path: &str) -> Result<String, String> {
    match map.get(key) {
        None | Some(Value::Null) => Ok(String::new()),
        Some(Value::String(text)) => Ok(text.clone()),
        // Never with its value: it may be an unquoted key.
        Some(other) => Err(mismatch(other, &format!("{path}.{key}"), "string")),
    }
}

impl Reader {
    fn document(&mut self, value: &Value) -> Result<Vec<Entry>, String> {
        let root = FieldPath::new("resources");
        let known = ["apiVersion", "kind", "resources"];
        let Some(map) = members(&mut self.strict, value, "", &known)? else {
            return Ok(Vec::new());
        };
        let items = list(map, "resources", "")?;
        if items.is_empty() {
            self.errors
                .push(FieldError::required(&root, "at least one resources is required"));
        }
        let mut entries = Vec::new();
        for (index, item) in items.iter().enumerate() {
            entries.push(self.entry(item, &root.index(index))?);
        }
        Ok(entries)
    }

    fn entry(&mut self, value: &Value, path: &FieldPath<'_>) -> Result<Entry, String> {
        let at = path.to_string();
        let (resources_path, providers_path) = (path.child("resources"), path.child("providers"));
        let empty = Map::new();
        let map = members(&mut self.strict, value, &at, &["resources", "providers"])?.unwrap_or(&empty);
        let mut resources = Vec::new();
        for (index, item) in list(map, "resources", &at)?.iter().enumerate() {
            match item {
                Value::String(name) => resources.push(name.clone()),
                other => return Err(mismatch(other, &format!("{at}.resources[{index}]"), "string")),
            }
        }
        if resources.is_empty() {
            self.required(&resources_path);
        }
        self.check_overlap(&resources, &resources_path);
        for (index, name) in resources.iter().enumerate() {
            if let Some(why) = resource_fault(name) {
                let error = FieldError::invalid_str(&resources_path.index(index), name, why);
                self.errors.push(error);
            }
        }
        let items = list(map, "providers", &at)?;
        if items.is_empty() {
            self.required(&providers_path);
        }
        let mut providers = Vec::new();
        for (index, item) in items.iter().enumerate() {
            providers.extend(self.provider(item, &providers_path.index(index))?);
        }
        Ok(Entry { resources, providers })
    }

    fn required(&mut self, path: &FieldPath<'_>) {
        let why = format!("at least one {path} is required");
        self.errors.push(FieldError::required(path, why));
    }

    fn check_overlap(&mut self, resources: &[String], path: &FieldPath<'_>) {
        let all: Vec<_> = resources.iter().map(|r| parse_resource(r)).collect();
        let pairs = || {
            let indices = 0..all.len();
            indices.flat_map(|i| (0..all.len()).filter(move |j| *j != i).map(move |j| (i, j)))
        };
        let duplicate = pairs().any(|(i, j)| all[i] == all[j]);
        let everything = |r: &GroupResource| *r.group == *"*" && *r.resource == *"*";
        let overlap = pairs().any(|(i, j)| {
            let (one, two) = (&all[i], &all[j]);
            one != two
                && (everything(one)
                    || (one.group == two.group && (*one.resource == *"*" || *two.resource == *"*")))
        });
        let shown = json!(resources);
        if duplicate {
            let why = "the same resource cannot be specified multiple times";
            self.errors.push(FieldError::invalid(path, &shown, why));
        }
        if overlap {
            let why = "using overlapping resources such as 'secrets' and '*.' in the same resource list is not allowed as they will be masked";
            self.errors.push(FieldError::invalid(path, &shown, why));
        }
    }

    fn provider(&mut self, value: &Value, path: &FieldPath<'_>) -> Result<Option<Provider>, String> {
        const NAMES: [&str; 5] = ["kms", "aesgcm", "aescbc", "secretbox", "identity"];
        let at = path.to_string();
        let empty = Map::new();
        let map = members(&mut self.strict, value, &at, &NAMES)?.unwrap_or(&empty);
        let given: Vec<&str> = NAMES
            .into_iter()
            .filter(|name| map.get(*name).is_some_and(|v| !v.is_null()))
            .collect();
        // Only the names are shown: their values may be keys.
        let fault = |why: &str| FieldError::invalid(path, &json!(given), why);
        let [name] = given[..] else {
            self.errors.push(fault(match given.len() {
                0 => "provider does not contain any of the expected providers: KMS, AESGCM, AESCBC, Secretbox, Identity",
                _ => "more than one provider specified in a single element, should split into different list elements",
            }));
            return Ok(None);
        };
        let (inner, path) = (&map[name], path.child(name));
        Ok(Some(match name {
            "kms" => return Ok(self.kms(inner, &path)?.map(Provider::Kms)),
            "aesgcm" => Provider::AesGcm(self.keys(inner, &path, AES_SIZES)?),
            "aescbc" => Provider::AesCbc(self.keys(inner, &path, AES_SIZES)?),
            "secretbox" => Provider::Secretbox(self.keys(inner, &path, SECRETBOX_SIZES)?),
            _ => {
                members(&mut self.strict, inner, &path.to_string(), &[])?;
                Provider::Identity
            }
        }))
    }

    fn keys(&mut self, value: &Value, path: &FieldPath<'_>, sizes: &[usize]) -> Result<Vec<Key>, String> {
        let at = path.to_string();
        let empty = Map::new();
        let map = members(&mut self.strict, value, &at, &["keys"])?.unwrap_or(&empty);
        let path = path.child("keys");
        let items = list(map, "keys", &at)?;
        if items.is_empty() {
            self.errors
                .push(FieldError::required(&path, "at least one keys is required"));
        }
        let mut keys = Vec::new();
        for (index, item) in items.iter().enumerate() {
            let path = path.index(index);
            let at = path.to_string();
            let map = members(&mut self.strict, item, &at, &["name", "secret"])?.unwrap_or(&empty);
            let (name, secret) = (string(map, "name", &at)?, string(map, "secret", &at)?);
            if name.is_empty() {
                let why = "name is a mandatory field for a key";
                self.errors.push(FieldError::required(&path.child("name"), why));
            }
            if secret.is_empty() {
                let why = "secret is a mandatory field for a key";
                self.errors.push(FieldError::required(&path.child("secret"), why));
                continue;
            }
            let mut hidden = |why: &str| {
                let path = path.child("secret");
                self.errors.push(FieldError::invalid_str(&path, "REDACTED", why));
            };
            match STANDARD.decode(secret.replace(['\r', '\n'], "")) {
                Err(_) => hidden("secrets must be base64 encoded"),
                Ok(secret) if sizes.contains(&secret.len()) => keys.push(Key { name, secret }),
                Ok(secret) => {
                    let sizes: Vec<String> = sizes.iter().map(usize::to_string).collect();
                    hidden(&format!(
                        "secret is not of the expected length, got {}, expected one of [{}]",
                        secret.len(),
                        sizes.join(" ")
                    ));
                }
            }
        }
        Ok(keys)
    }

    fn kms(&mut self, value: &Value, path: &FieldPath<'_>) -> Result<Option<KmsConfig>, String> {
        let at = path.to_string();
        let known = ["apiVersion", "name", "cachesize", "endpoint", "timeout"];
        let empty = Map::new();
        let map = members(&mut self.strict, value, &at, &known)?.unwrap_or(&empty);
        let (name, endpoint) = (string(map, "name", &at)?, string(map, "endpoint", &at)?);
        let version = match string(map, "apiVersion", &at)? {
            version if version.is_empty() => "v1".to_string(),
            version => version,
        };
        let timeout = match string(map, "timeout", &at)? {
            text if text.is_empty() => Duration::from_secs(3),
            text => {
                let parsed = GoDuration::parse(&text)?;
                parsed.to_std().unwrap_or_default()
            }
        };
        let cache_size = map.get("cachesize").filter(|size| !size.is_null());
        let before = self.errors.len();
        let mut errors = Vec::new();
        let field = path.child("name");
        if name.is_empty() {
            errors.push(FieldError::required(
                &field,
                "name is a mandatory field for a provider",
            ));
        }
        if version != "v1" && name.contains(':') {
            let why = format!("invalid KMS provider name {name}, must not contain ':'");
            errors.push(FieldError::invalid_str(&field, &name, why));
        }
        if (self.reload || version != "v1") && self.kms_names.contains(&name) {
            let why = format!("duplicate KMS provider name {name}, names must be unique");
            errors.push(FieldError::invalid_str(&field, &name, why));
        }
        if timeout.is_zero() {
            let shown = map.get("timeout").cloned().unwrap_or_default();
            let why = "timeout should be a positive value";
            errors.push(FieldError::invalid(&path.child("timeout"), &shown, why));
        }
        let socket = socket(&endpoint);
        if let Err(why) = &socket {
            errors.push(FieldError::invalid_str(&path.child("endpoint"), &endpoint, why));
        }
        match cache_size {
            Some(size) if version != "v1" => {
                let why = "cachesize is not supported in v2";
                errors.push(FieldError::invalid(&path.child("cachesize"), size, why));
            }
            Some(size) if *size == json!(0) => {
                let why = "cachesize should be a positive value, or negative to disable";
                errors.push(FieldError::invalid(&path.child("cachesize"), size, why));
            }
            _ => {}
        }
        if version != "v1" && version != "v2" {
            let why = "unsupported apiVersion apiVersion for KMS provider, only v1 and v2 are supported";
            errors.push(FieldError::invalid_str(&path.child("apiVersion"), &version, why));
        }
        self.errors.extend(errors);
        self.kms_names.push(name.clone());
        if version == "v1" && self.errors.len() == before {
            return Err("KMSv1 is deprecated and will only receive security updates going forward. Use KMSv2 instead: it is not supported here (set the provider's apiVersion to v2)".into());
        }
        Ok(socket.ok().map(|socket| KmsConfig {
            name,
            socket,
            timeout,
        }))
    }
}

/// The path of a `unix:` URL. `/@name` is a socket of Linux' abstract namespace.
fn socket(endpoint: &str) -> Result<PathBuf, String> {
    if endpoint.is_empty() {
        return Err("endpoint is a mandatory field for a kms".into());
    }
    let (scheme, rest) = endpoint.split_once(':').unwrap_or(("", endpoint));
    if scheme != "unix" {
        return Err(format!(
            "unsupported scheme \"{scheme}\" for KMS provider, only unix is supported"
        ));
    }
    let path = match rest.strip_prefix("//") {
        Some(rest) => rest.find('/').map_or("", |at| &rest[at..]),
        None => rest,
    };
    let path = if path.starts_with("/@") { &path[1..] } else { path };
    if path.is_empty() {
        return Err("invalid endpoint for kms provider, error: it names no socket".into());
    }
    Ok(PathBuf::from(path))
}

fn resource_fault(name: &str) -> Option<&'static str> {
    if name.to_lowercase() != name {
        return Some("resource name should not contain capital letters");
    }
    if name == "*" {
        return Some(
            "use '*.' to encrypt all the resources from core API group or *.* to encrypt all resources",
        );
    }
    if [
        "apiserveripinfo",
        "serviceipallocations",
        "servicenodeportallocations",
    ]
    .contains(&name)
    {
        return Some("resources which do not have REST API/s cannot be encrypted");
    }
    let parsed = parse_resource(name);
    match &*parsed.group {
        "events.k8s.io" => Some(
            "'*.events.k8s.io' objects are stored using the 'events' API group in etcd. Use 'events' instead in the config file",
        ),
        "extensions" => Some("'extensions' group has been removed and cannot be used for encryption"),
        "*" if *parsed.resource != *"*" => {
            Some("encrypting the same resource across groups is not supported")
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=";

    fn file(resources: &str, providers: &str) -> String {
        format!(
            "apiVersion: {API_VERSION}\nkind: {KIND}\nresources:\n- resources: {resources}\n  providers: {providers}\n"
        )
    }

    fn read(text: &str) -> Result<Vec<Entry>, String> {
        parse("enc.yaml", text.as_bytes(), false)
    }

    #[track_caller]
    fn refused(resources: &str, providers: &str, expected: &str) {
        let error = read(&file(resources, providers)).unwrap_err();
        assert!(error.contains(expected), "{error}");
        assert!(!error.contains("Njc4"), "an error shows no key: {error}");
    }

    #[test]
    fn whole_files() {
        let providers = format!(
            "[{{aescbc: {{keys: [{{name: k1, secret: {KEY}}}]}}}}, {{kms: {{apiVersion: v2, name: p, endpoint: 'unix:///run/kms.sock', timeout: 5s}}}}, {{identity: {{}}}}]"
        );
        let entries = read(&file("[secrets, pandas.example.com]", &providers)).unwrap();
        assert_eq!(entries[0].resources, ["secrets", "pandas.example.com"]);
        let [Provider::AesCbc(keys), Provider::Kms(kms), Provider::Identity] = &entries[0].providers[..]
        else {
            panic!("{entries:?}");
        };
        assert_eq!((keys[0].name.as_str(), keys[0].secret.len()), ("k1", 32));
        assert_eq!(
            (kms.socket.as_path(), kms.timeout),
            (std::path::Path::new("/run/kms.sock"), Duration::from_secs(5))
        );
        assert!(!format!("{entries:?}").contains("48, 49"), "keys are not printed");
    }

    #[test]
    fn resources_are_checked() {
        let provider = "[{identity: {}}]";
        for (resources, expected) in [
            (
                "[]",
                "resources[0].resources: Required value: at least one resources[0].resources is required",
            ),
            (
                "['*']",
                "use '*.' to encrypt all the resources from core API group or *.* to encrypt all resources",
            ),
            (
                "[secrets, '*.']",
                "using overlapping resources such as 'secrets' and '*.'",
            ),
            (
                "[secrets, secrets]",
                "the same resource cannot be specified multiple times",
            ),
            (
                "[Secrets]",
                "resources[0].resources[0]: Invalid value: \"Secrets\": resource name should not contain capital letters",
            ),
            (
                "[events.events.k8s.io]",
                "Use 'events' instead in the config file",
            ),
            (
                "['secrets.*']",
                "encrypting the same resource across groups is not supported",
            ),
            (
                "[serviceipallocations]",
                "resources which do not have REST API/s cannot be encrypted",
            ),
        ] {
            refused(resources, provider, expected);
        }
        read(&file("['*.*']", provider)).unwrap();
        read(&file("['*.', '*.apps']", provider)).unwrap();
    }

    #[test]
    fn providers_are_checked() {
        for (provider, expected) in [
            (
                "[]",
                "resources[0].providers: Required value: at least one resources[0].providers is required",
            ),
            (
                "[{}]",
                "provider does not contain any of the expected providers: KMS, AESGCM, AESCBC, Secretbox, Identity",
            ),
            (
                "[{identity: {}, aesgcm: {keys: [{name: a, secret: MDEyMzQ1Njc4OWFiY2RlZg==}]}}]",
                "more than one provider specified",
            ),
            (
                "[{aesgcm: {keys: []}}]",
                "resources[0].providers[0].aesgcm.keys: Required value: at least one keys is required",
            ),
            (
                "[{aesgcm: {keys: [{secret: MDEyMzQ1Njc4OWFiY2RlZg==}]}}]",
                "keys[0].name: Required value: name is a mandatory field for a key",
            ),
            (
                "[{aescbc: {keys: [{name: a, secret: MDEyMzQ1Njc4}]}}]",
                "keys[0].secret: Invalid value: \"REDACTED\": secret is not of the expected length, got 9, expected one of [16 24 32]",
            ),
            (
                "[{aescbc: {keys: [{name: a, secret: '%%'}]}}]",
                "secrets must be base64 encoded",
            ),
            (
                "[{secretbox: {keys: [{name: a, secret: MDEyMzQ1Njc4OWFiY2RlZg==}]}}]",
                "expected one of [32]",
            ),
            (
                "[{kms: {apiVersion: v2, name: 'a:b', endpoint: 'unix:///x'}}]",
                "invalid KMS provider name a:b, must not contain ':'",
            ),
            (
                "[{kms: {apiVersion: v2, name: a, endpoint: 'tcp://x'}}]",
                "unsupported scheme \"tcp\" for KMS provider, only unix is supported",
            ),
            (
                "[{kms: {apiVersion: v2, name: a}}]",
                "endpoint is a mandatory field for a kms",
            ),
            (
                "[{kms: {apiVersion: v2, name: a, endpoint: 'unix:///x', cachesize: 3}}]",
                "cachesize is not supported in v2",
            ),
            (
                "[{kms: {apiVersion: v2, name: a, endpoint: 'unix:///x', timeout: 0s}}]",
                "timeout should be a positive value",
            ),
            (
                "[{kms: {apiVersion: v3, name: a, endpoint: 'unix:///x'}}]",
                "only v1 and v2 are supported",
            ),
            ("[{kms: {name: a, endpoint: 'unix:///x'}}]", "KMSv1 is deprecated"),
            (
                "[{kms: {apiVersion: v2, name: a, endpoint: 'unix:///x'}}, {kms: {apiVersion: v2, name: a, endpoint: 'unix:///x'}}]",
                "duplicate KMS provider name a, names must be unique",
            ),
        ] {
            refused("[secrets]", provider, expected);
        }
    }

    #[test]
    fn read_strictly() {
        refused(
            "[secrets]",
            "[{identity: {}, foo: 1}]",
            "strict decoding error: unknown field \"resources[0].providers[0].foo\"",
        );
        let error = read("apiVersion: v1\nkind: Pod\n").unwrap_err();
        assert!(
            error.contains("no kind \"Pod\" is registered for version \"v1\""),
            "{error}"
        );
        assert!(read("").unwrap_err().contains("is empty"));
        assert!(
            read("kind: EncryptionConfiguration\n")
                .unwrap_err()
                .contains("Object 'apiVersion' is missing")
        );
        let twice = format!("{}kind: {KIND}\n", file("[secrets]", "[{identity: {}}]"));
        assert!(
            read(&twice).unwrap_err().contains("strict decoding error"),
            "a field twice"
        );
    }
}
