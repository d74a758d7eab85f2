//! `--authorization-mode=ABAC`: a file with one policy a line (`--authorization-policy-file`), read at the start.
//!
//! Mirrors upstream's `pkg/auth/authorizer/abac`. Policies allow; what none allows is left to the next authorizer.

use std::path::Path;

use generic_server::User;
use generic_server::authn::anonymous::AUTHENTICATED;
use generic_server::authz::{Attributes, Authorizer, Decision, ResolvedRules};
use machinery::go::Quoted;
use serde::Deserialize;
use serde_json::{Value, json};

const VERSION: &str = "abac.authorization.kubernetes.io/v1beta1";

/// The policies of a file, in their order.
#[derive(Debug)]
pub(super) struct PolicyList(Vec<Policy>);

/// One policy. Empty properties match nothing but the empty attribute; a policy without a subject matches nobody.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
struct Policy {
    user: String,
    group: String,
    /// Allows `get`, `list` and `watch` alone.
    readonly: bool,
    #[serde(rename = "apiGroup")]
    api_group: String,
    resource: String,
    namespace: String,
    #[serde(rename = "nonResourcePath")]
    non_resource_path: String,
}

/// A policy of before there were versions: everything is about resources of every group.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Unversioned {
    user: String,
    group: String,
    readonly: bool,
    resource: String,
    namespace: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Versioned {
    #[serde(rename = "apiVersion")]
    _api_version: String,
    #[serde(rename = "kind")]
    _kind: String,
    spec: Policy,
}

impl PolicyList {
    /// Reads a file: a policy a line, empty lines and comments (`#`) aside.
    ///
    /// # Errors
    /// The file cannot be read, or a line is no policy.
    pub(super) fn read(path: &Path) -> Result<Self, String> {
        let text =
            std::fs::read_to_string(path).map_err(|error| format!("open {}: {error}", path.display()))?;
        Self::parse(&text, path)
    }

    /// Reads the content of a file; `path` is for errors.
    ///
    /// # Errors
    /// A line is no policy.
    pub(super) fn parse(text: &str, path: &Path) -> Result<Self, String> {
        let mut policies = Vec::new();
        let mut unversioned = false;
        for (index, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let policy = policy(line, &mut unversioned).map_err(|why| {
                format!(
                    "error reading policy file {}, line {}: {line}: {why}",
                    path.display(),
                    index + 1
                )
            })?;
            policies.push(policy);
        }
        if unversioned {
            tracing::warn!(file = %path.display(), "the policy file has unversioned rules");
        }
        Ok(PolicyList(policies))
    }

    /// Whether one of the policies allows a request.
    pub(super) fn allows(&self, attributes: &Attributes<'_>) -> bool {
        self.0.iter().any(|policy| policy.allows(attributes))
    }
}

fn policy(line: &str, unversioned: &mut bool) -> Result<Policy, String> {
    let value: Value = serde_json::from_str(line).map_err(|error| error.to_string())?;
    if !value.is_object() {
        return Err("it is no object".to_string());
    }
    let named = |key: &str| value.get(key).and_then(Value::as_str);
    match (named("apiVersion"), named("kind")) {
        (Some(VERSION), Some("Policy")) => Ok(read::<Versioned>(value)?.spec.for_authenticated()),
        // Stricter than upstream: in the old form an empty property stands for everything, so that a slip in the new one would open all.
        (None, None) if value.get("apiVersion").is_none() && value.get("kind").is_none() => {
            *unversioned = true;
            read(value).map(Unversioned::convert)
        }
        (version, kind) => Err(format!(
            "no kind {} is registered for version {}",
            Quoted(kind.unwrap_or_default()),
            Quoted(version.unwrap_or_default())
        )),
    }
}

fn read<T: serde::de::DeserializeOwned>(value: Value) -> Result<T, String> {
    serde_json::from_value(value).map_err(|error| error.to_string())
}

impl Unversioned {
    /// An empty property of this form stood for everything.
    fn convert(self) -> Policy {
        let or_all = |text: String| if text.is_empty() { "*".to_string() } else { text };
        let is_for_all = self.user.is_empty() && self.group.is_empty();
        let is_about_resources = !self.resource.is_empty() || !self.namespace.is_empty();
        Policy {
            user: self.user,
            group: if is_for_all { "*".into() } else { self.group },
            readonly: self.readonly,
            api_group: "*".into(),
            non_resource_path: if is_about_resources {
                String::new()
            } else {
                "*".into()
            },
            resource: or_all(self.resource),
            namespace: or_all(self.namespace),
        }
        .for_authenticated()
    }
}

impl Policy {
    /// Any user and any group mean those that are authenticated.
    fn for_authenticated(self) -> Self {
        if self.user != "*" && self.group != "*" {
            return self;
        }
        Policy {
            user: String::new(),
            group: AUTHENTICATED.into(),
            ..self
        }
    }

    fn is_about(&self, user: &User) -> bool {
        if self.user.is_empty() && self.group.is_empty() {
            return false;
        }
        let by_name = self.user.is_empty() || self.user == user.name;
        let by_group = self.group.is_empty() || user.in_group(&self.group);
        by_name && by_group
    }

    fn allows(&self, a: &Attributes<'_>) -> bool {
        self.is_about(a.user)
            && (!self.readonly || matches!(a.verb, "get" | "list" | "watch"))
            && match a.is_resource {
                true => {
                    let is = |wanted: &str, found: &str| wanted == "*" || wanted == found;
                    is(&self.namespace, a.namespace)
                        && is(&self.resource, a.resource)
                        && is(&self.api_group, a.group)
                }
                false => self.covers(a.path),
            }
    }

    fn covers(&self, path: &str) -> bool {
        let wanted = &*self.non_resource_path;
        wanted == path || wanted.ends_with('*') && path.starts_with(wanted.trim_end_matches('*'))
    }
}

#[async_trait::async_trait]
impl Authorizer for PolicyList {
    async fn authorize(&self, attributes: &Attributes<'_>) -> Decision {
        if self.allows(attributes) {
            return Decision::Allow(String::new());
        }
        Decision::NoOpinion("No policy matched.".into())
    }

    async fn rules_for(&self, user: &User, namespace: &str) -> ResolvedRules {
        let mut rules = ResolvedRules::default();
        for policy in self.0.iter().filter(|policy| policy.is_about(user)) {
            if policy.namespace != "*" && policy.namespace != namespace {
                continue;
            }
            let verbs = match policy.readonly {
                true => json!(["get", "list", "watch"]),
                false => json!(["*"]),
            };
            if !policy.resource.is_empty() {
                rules.resource_rules.push(json!({
                    "verbs": verbs, "apiGroups": [policy.api_group], "resources": [policy.resource],
                }));
            }
            if !policy.non_resource_path.is_empty() {
                rules
                    .non_resource_rules
                    .push(json!({"verbs": verbs, "nonResourceURLs": [policy.non_resource_path]}));
            }
        }
        rules
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(text: &str) -> Result<PolicyList, String> {
        let folder = tempfile::tempdir().expect("a directory");
        let file = folder.path().join("policies");
        std::fs::write(&file, text).expect("it is written");
        let path = file.display().to_string();
        PolicyList::read(&file).map_err(|why| why.replace(&path, "FILE"))
    }

    fn user(name: &str, groups: &[&str]) -> User {
        User {
            name: name.into(),
            groups: groups.iter().map(|group| (*group).to_string()).collect(),
            ..User::default()
        }
    }

    fn request<'a>(user: &'a User, verb: &'a str, resource: &'a str, namespace: &'a str) -> Attributes<'a> {
        Attributes {
            user,
            verb,
            is_resource: true,
            group: "apps",
            version: "v1",
            resource,
            subresource: "",
            namespace,
            name: "",
            path: "",
            field_selector: "",
            label_selector: "",
        }
    }

    #[tokio::test]
    async fn policies_allow() {
        let text = r#"
# a comment
{"apiVersion":"abac.authorization.kubernetes.io/v1beta1","kind":"Policy","spec":{"user":"alice","namespace":"*","resource":"*","apiGroup":"*"}}
{"apiVersion":"abac.authorization.kubernetes.io/v1beta1","kind":"Policy","spec":{"group":"ops","readonly":true,"namespace":"ns","resource":"deployments","apiGroup":"apps"}}
{"apiVersion":"abac.authorization.kubernetes.io/v1beta1","kind":"Policy","spec":{"user":"*","group":"ignored","nonResourcePath":"/healthz*"}}
{"apiVersion":"abac.authorization.kubernetes.io/v1beta1","kind":"Policy","spec":{"namespace":"*","resource":"*","apiGroup":"*"}}
{"user":"old","readonly":true,"resource":"deployments"}
"#;
        let list = list(text).expect("policies");
        let check = async |attributes: Attributes<'_>, expected: bool| {
            let decision = list.authorize(&attributes).await;
            let allow = Decision::Allow(String::new());
            let none = Decision::NoOpinion("No policy matched.".into());
            assert_eq!(decision, if expected { allow } else { none }, "{attributes:?}");
        };
        let (alice, ops, old, nobody) = (
            user("alice", &[]),
            user("bob", &["ops"]),
            user("old", &[AUTHENTICATED]),
            user("eve", &[]),
        );
        check(request(&alice, "delete", "pods", "x"), true).await;
        check(request(&ops, "list", "deployments", "ns"), true).await;
        check(request(&ops, "create", "deployments", "ns"), false).await;
        check(request(&ops, "list", "deployments", "other"), false).await;
        check(request(&ops, "list", "pods", "ns"), false).await;
        check(request(&nobody, "get", "pods", "ns"), false).await;
        check(request(&old, "get", "deployments", "anywhere"), true).await;
        check(request(&old, "delete", "deployments", "anywhere"), false).await;
        let path = |user, path| Attributes {
            is_resource: false,
            path,
            ..request(user, "get", "", "")
        };
        check(path(&old, "/healthz/etcd"), true).await;
        check(path(&old, "/metrics"), false).await;
        check(path(&alice, "/metrics"), false).await;
        let rules = list.rules_for(&ops, "ns").await;
        assert_eq!(
            rules.resource_rules,
            [json!({"verbs": ["get", "list", "watch"], "apiGroups": ["apps"], "resources": ["deployments"]})]
        );
    }

    #[test]
    fn broken_lines_are_named() {
        #[track_caller]
        fn check(text: &str, expected: &str) {
            let why = list(text).expect_err("it is broken");
            assert!(why.starts_with(expected), "{why}");
        }
        check(
            "\n{",
            "error reading policy file FILE, line 2: {: EOF while parsing",
        );
        check(
            r#"{"apiVersion":"v9","kind":"Policy"}"#,
            r#"error reading policy file FILE, line 1: {"apiVersion":"v9","kind":"Policy"}: no kind "Policy" is registered for version "v9""#,
        );
        let slips = [
            r#"{"apiVersion":"abac.authorization.kubernetes.io/v1beta1","spec":{"user":"alice"}}"#,
            r#"{"apiVersion":1,"kind":"Policy","spec":{"user":"alice"}}"#,
            r#"{"apiVersion":"abac.authorization.kubernetes.io/v1beta1","Kind":"Policy","spec":{"user":"alice"}}"#,
            r#"{"apiVersion":"abac.authorization.kubernetes.io/v1beta1","kind":"Policy"}"#,
            r#"{"apiVersion":"abac.authorization.kubernetes.io/v1beta1","kind":"Policy","spec":{"users":"alice"}}"#,
            r#"{"spec":{"user":"alice"}}"#,
            r#"{"User":"alice"}"#,
        ];
        for slip in slips {
            check(slip, &format!("error reading policy file FILE, line 1: {slip}: "));
        }
        // A list without members would be a policy for everybody.
        check(
            "[]\n",
            "error reading policy file FILE, line 1: []: it is no object",
        );
        check(
            r#"{"user": 1}"#,
            r#"error reading policy file FILE, line 1: {"user": 1}: invalid type"#,
        );
        assert!(PolicyList::read(Path::new("/nowhere")).is_err());
    }
}
