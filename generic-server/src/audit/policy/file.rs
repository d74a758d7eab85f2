//! The file of `--audit-policy-file`: `Policy` of `audit.k8s.io/v1`, with upstream's checks.

use machinery::codec::{strict_message, yaml};
use machinery::names::name_is_dns_subdomain;
use machinery::{FieldError, FieldPath, go};
use serde::Deserialize;
use serde_json::Value;

use super::{GroupResources, Policy, Rule};
use crate::audit::{Level, Stage};
use crate::request::audit::{Stages, Verdict};

const FIELDS: &[&str] = &[
    "apiVersion",
    "kind",
    "metadata",
    "rules",
    "omitStages",
    "omitManagedFields",
];
const RULE_FIELDS: &[&str] = &[
    "level",
    "users",
    "userGroups",
    "verbs",
    "resources",
    "namespaces",
    "nonResourceURLs",
    "omitStages",
    "omitManagedFields",
];
const RESOURCE_FIELDS: &[&str] = &["group", "resources", "resourceNames"];

/// A list that may be null.
type List<T> = Option<Vec<T>>;

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct File {
    #[serde(default)]
    rules: List<FileRule>,
    #[serde(default)]
    omit_stages: List<String>,
    #[serde(default)]
    omit_managed_fields: Option<bool>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct FileRule {
    #[serde(default)]
    level: Option<String>,
    #[serde(default)]
    users: List<String>,
    #[serde(default)]
    user_groups: List<String>,
    #[serde(default)]
    verbs: List<String>,
    #[serde(default)]
    resources: List<FileResources>,
    #[serde(default)]
    namespaces: List<String>,
    #[serde(default, rename = "nonResourceURLs")]
    paths: List<String>,
    #[serde(default)]
    omit_stages: List<String>,
    #[serde(default)]
    omit_managed_fields: Option<bool>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct FileResources {
    #[serde(default)]
    group: Option<String>,
    #[serde(default)]
    resources: List<String>,
    #[serde(default)]
    resource_names: List<String>,
}

impl Policy {
    /// Reads a policy. Unknown and duplicate fields are no error, as upstream has it: the second value says what they are.
    ///
    /// # Errors
    /// It is no policy, has faults, or has no rules.
    pub fn parse(data: &[u8]) -> Result<(Policy, Option<String>), String> {
        let undecodable = |why: String| format!("failed decoding: {why}");
        let document = yaml::decode(data).map_err(|error| undecodable(error.to_string()))?;
        let value = document.value;
        let of = |key: &str| value.get(key).and_then(Value::as_str).unwrap_or_default();
        let (version, kind) = (of("apiVersion"), of("kind"));
        for (text, name) in [(kind, "Kind"), (version, "apiVersion")] {
            if text.is_empty() {
                return Err(undecodable(format!("Object '{name}' is missing")));
            }
        }
        if version != "audit.k8s.io/v1" || kind != "Policy" {
            let (kind, version) = (go::quote(kind), go::quote(version));
            return Err(undecodable(format!(
                "no kind {kind} is registered for version {version}"
            )));
        }
        let mut strict = Vec::new();
        if !document.strict.is_empty() {
            strict.push(strict_message(&document.strict));
        }
        let unknown = unknown_fields(&value);
        strict.extend(
            unknown
                .iter()
                .map(|path| format!("unknown field {}", go::quote(path))),
        );
        let file: File = serde_json::from_value(value).map_err(|error| undecodable(error.to_string()))?;
        let mut errors = Vec::new();
        let policy = file.read(&mut errors);
        if !errors.is_empty() {
            let texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
            return Err(go::aggregate(&texts).into_owned());
        }
        if policy.rules.is_empty() {
            return Err("loaded illegal policy with 0 rules".into());
        }
        Ok((policy, (!strict.is_empty()).then(|| strict.join(", "))))
    }
}

fn unknown_fields(policy: &Value) -> Vec<String> {
    fn unknown(found: &mut Vec<String>, at: &str, value: &Value, known: &[&str]) {
        let keys = value.as_object().into_iter().flatten().map(|(key, _)| key);
        found.extend(
            keys.filter(|key| !known.contains(&key.as_str()))
                .map(|key| format!("{at}{key}")),
        );
    }
    let items = |value: &Value, key: &str| {
        value
            .get(key)
            .and_then(Value::as_array)
            .cloned()
            .unwrap_or_default()
    };
    let mut found = Vec::new();
    unknown(&mut found, "", policy, FIELDS);
    for (index, rule) in items(policy, "rules").iter().enumerate() {
        let at = format!("rules[{index}].");
        unknown(&mut found, &at, rule, RULE_FIELDS);
        for (index, resources) in items(rule, "resources").iter().enumerate() {
            unknown(
                &mut found,
                &format!("{at}resources[{index}]."),
                resources,
                RESOURCE_FIELDS,
            );
        }
    }
    found
}

impl File {
    fn read(self, errors: &mut Vec<FieldError>) -> Policy {
        let omitted = stages(self.omit_stages, &FieldPath::new("omitStages"), errors);
        let without = self.omit_managed_fields.unwrap_or_default();
        let path = FieldPath::new("rules");
        let rules = self.rules.unwrap_or_default().into_iter().enumerate();
        Policy {
            rules: rules
                .map(|(index, rule)| rule.read(&path.index(index), omitted, without, errors))
                .collect(),
            omitted,
            without_managed_fields: without,
        }
    }
}

impl FileRule {
    fn read(self, path: &FieldPath, omitted: Stages, without: bool, errors: &mut Vec<FieldError>) -> Rule {
        let level = level(
            self.level.as_deref().unwrap_or_default(),
            &path.child("level"),
            errors,
        );
        let paths = self.paths.unwrap_or_default();
        check_paths(&paths, &path.child("nonResourceURLs"), errors);
        let resources = self.resources.unwrap_or_default();
        let resources: Vec<GroupResources> = resources
            .into_iter()
            .map(|one| one.read(&path.child("resources"), errors))
            .collect();
        let own = stages(self.omit_stages, &path.child("omitStages"), errors);
        let namespaces = self.namespaces.unwrap_or_default();
        let about_resources = !resources.is_empty() || !namespaces.is_empty();
        if !paths.is_empty() && about_resources {
            errors.push(FieldError::invalid(
                &path.child("nonResourceURLs"),
                &paths.clone().into(),
                "rules cannot apply to both regular resources and non-resource URLs",
            ));
        }
        Rule {
            verdict: Verdict {
                level,
                omitted: omitted.or(own),
                without_managed_fields: self.omit_managed_fields.unwrap_or(without),
            },
            users: self.users.unwrap_or_default(),
            groups: self.user_groups.unwrap_or_default(),
            verbs: self.verbs.unwrap_or_default(),
            namespaces,
            resources,
            paths,
        }
    }
}

impl FileResources {
    fn read(self, path: &FieldPath, errors: &mut Vec<FieldError>) -> GroupResources {
        let group = self.group.unwrap_or_default();
        if !group.is_empty() && group != "*" {
            let faults = name_is_dns_subdomain(&group, false);
            if !faults.is_empty() {
                errors.push(FieldError::invalid_str(
                    &path.child("group"),
                    &group,
                    faults.join(","),
                ));
            }
        }
        let names = self.resource_names.unwrap_or_default();
        let resources = self.resources.unwrap_or_default();
        if !names.is_empty() && resources.is_empty() {
            errors.push(FieldError::invalid(
                &path.child("resourceNames"),
                &names.clone().into(),
                "using resourceNames requires at least one resource",
            ));
        }
        GroupResources {
            group,
            resources,
            names,
        }
    }
}

fn level(text: &str, path: &FieldPath, errors: &mut Vec<FieldError>) -> Level {
    let found = Level::ALL.into_iter().find(|level| level.name() == text);
    found.unwrap_or_else(|| {
        errors.push(match text.is_empty() {
            true => FieldError::required(path, ""),
            false => FieldError::not_supported(path, &text.into(), &Level::ALL.map(Level::name)),
        });
        Level::None
    })
}

fn stages(list: List<String>, path: &FieldPath, errors: &mut Vec<FieldError>) -> Stages {
    let mut found = Stages::default();
    for (index, text) in list.unwrap_or_default().iter().enumerate() {
        match Stage::ALL.into_iter().find(|stage| stage.name() == text) {
            Some(stage) => found = found.with(stage),
            None => errors.push(FieldError::invalid_str(
                &path.index(index),
                text,
                format!("allowed stages are {}", Stage::ALL.map(Stage::name).join(",")),
            )),
        }
    }
    found
}

fn check_paths(paths: &[String], path: &FieldPath, errors: &mut Vec<FieldError>) {
    for (index, url) in paths.iter().enumerate().filter(|(_, url)| *url != "*") {
        if !url.starts_with('/') {
            let why = "non-resource URL rules must begin with a '/' character";
            errors.push(FieldError::invalid_str(&path.index(index), url, why));
        }
        // A star is ASCII: the rest is cut at a character.
        if url.strip_suffix('*').unwrap_or(url).contains('*') {
            let why = "non-resource URL wildcards '*' must be the final character of the rule";
            errors.push(FieldError::invalid_str(&path.index(index), url, why));
        }
    }
}
