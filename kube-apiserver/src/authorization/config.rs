//! The file of `--authorization-config`: `AuthorizationConfiguration`, read strictly, with upstream's checks.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use generic_server::delegated::{AccessReviewVersion, AccessWebhookOptions};
use machinery::names::dns1123_subdomain;
use machinery::time::GoDuration;
use machinery::{FieldError, FieldPath};
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use super::conditions::Conditions;
use super::options::AuthorizationMode;
use crate::config_file::{document, of_kind};

/// All of the same fields.
const VERSIONS: [&str; 3] = [
    "apiserver.config.k8s.io/v1",
    "apiserver.config.k8s.io/v1beta1",
    "apiserver.config.k8s.io/v1alpha1",
];
const LONGEST_TIMEOUT: GoDuration = GoDuration(30_000_000_000);
/// Upstream's defaults.
const AUTHORIZED_TTL: GoDuration = GoDuration(300_000_000_000);
const UNAUTHORIZED_TTL: GoDuration = GoDuration(30_000_000_000);

/// One authorizer of the chain.
#[derive(Debug, Clone)]
pub(crate) enum AuthorizerConfig {
    /// One without a configuration of its own.
    Mode(AuthorizationMode),
    /// A webhook.
    Webhook(WebhookConfig),
}

/// A webhook and when it is asked.
#[derive(Debug, Clone)]
pub(crate) struct WebhookConfig {
    pub(super) options: AccessWebhookOptions,
    pub(super) kubeconfig: PathBuf,
    pub(super) conditions: Arc<Conditions>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    authorizers: Option<Vec<Entry>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    #[serde(default, rename = "type")]
    kind: String,
    #[serde(default)]
    name: String,
    #[serde(default)]
    webhook: Option<Webhook>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Webhook {
    #[serde(default, rename = "authorizedTTL", deserialize_with = "duration")]
    authorized_ttl: GoDuration,
    #[serde(default)]
    cache_authorized_requests: Option<bool>,
    #[serde(default, rename = "unauthorizedTTL", deserialize_with = "duration")]
    unauthorized_ttl: GoDuration,
    #[serde(default)]
    cache_unauthorized_requests: Option<bool>,
    #[serde(default, deserialize_with = "duration")]
    timeout: GoDuration,
    #[serde(default)]
    subject_access_review_version: String,
    #[serde(default)]
    match_condition_subject_access_review_version: String,
    #[serde(default)]
    failure_policy: String,
    #[serde(default)]
    connection_info: ConnectionInfo,
    #[serde(default)]
    match_conditions: Option<Vec<MatchCondition>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct ConnectionInfo {
    #[serde(default, rename = "type")]
    kind: String,
    #[serde(default)]
    kube_config_file: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct MatchCondition {
    #[serde(default)]
    expression: String,
}

/// A `metav1.Duration`: Go's form, or null for none.
fn duration<'de, D: Deserializer<'de>>(from: D) -> Result<GoDuration, D::Error> {
    let text: Option<String> = Option::deserialize(from)?;
    text.map_or(Ok(GoDuration::default()), |text| {
        GoDuration::parse(&text).map_err(serde::de::Error::custom)
    })
}

/// The names of authorizers, as flags and files have them.
pub(super) const KINDS: [(&str, AuthorizationMode); 6] = [
    ("ABAC", AuthorizationMode::Abac),
    ("AlwaysAllow", AuthorizationMode::AlwaysAllow),
    ("AlwaysDeny", AuthorizationMode::AlwaysDeny),
    ("Node", AuthorizationMode::Node),
    ("RBAC", AuthorizationMode::Rbac),
    ("Webhook", AuthorizationMode::Webhook),
];

/// Reads the content of a file.
///
/// # Errors
/// It is no configuration, or has faults: all of them, one after the other.
pub(crate) fn parse(data: &[u8]) -> Result<Vec<AuthorizerConfig>, String> {
    let unusable = |why| format!("failed to load AuthorizationConfiguration from file: {why}");
    let file: File = document(data)
        .and_then(|value| of_kind(value, &VERSIONS, "AuthorizationConfiguration"))
        .map_err(unusable)?;
    let entries = file.authorizers.unwrap_or_default();
    let mut errors = Vec::new();
    let mut found = Vec::new();
    let path = FieldPath::new("authorizers");
    if entries.is_empty() {
        errors.push(FieldError::required(
            &path,
            "at least one authorization mode must be defined",
        ));
    }
    let (mut kinds, mut names) = (BTreeSet::new(), BTreeSet::new());
    for (index, entry) in entries.iter().enumerate() {
        let path = path.index(index);
        let mode = KINDS.iter().find(|(name, _)| *name == entry.kind);
        let kind = path.child("type");
        let Some((_, mode)) = mode else {
            let known = KINDS.map(|(name, _)| name);
            errors.push(match entry.kind.is_empty() {
                true => FieldError::required(&kind, ""),
                false => FieldError::not_supported(&kind, &text(&entry.kind), &known),
            });
            continue;
        };
        let is_new = kinds.insert(&entry.kind);
        if !is_new && *mode != AuthorizationMode::Webhook {
            errors.push(FieldError::duplicate(&kind, &text(&entry.kind)));
            continue;
        }
        errors.extend(name_error(&path.child("name"), &entry.name, &names));
        names.insert(&entry.name);
        match (mode, &entry.webhook) {
            (AuthorizationMode::Webhook, Some(webhook)) => {
                found.extend(
                    webhook
                        .read(&entry.name, &path, &mut errors)
                        .map(AuthorizerConfig::Webhook),
                );
            }
            (AuthorizationMode::Webhook, None) => {
                errors.push(FieldError::required(
                    &path.child("webhook"),
                    "required when type=Webhook",
                ));
            }
            (_, Some(_)) => errors.push(FieldError::invalid_str(
                &path.child("webhook"),
                "non-null",
                "may only be specified when type=Webhook",
            )),
            (mode, None) => found.push(AuthorizerConfig::Mode(*mode)),
        }
    }
    let mut texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
    if texts.is_empty() {
        // Upstream compares these once everything else is as it should be.
        let others = entries.iter().filter(|entry| entry.kind != "Webhook");
        texts = others
            .filter(|entry| entry.name != entry.kind.to_lowercase())
            .map(|entry| {
                format!(
                    "expected name {} for authorizer {} instead of {}",
                    entry.kind.to_lowercase(),
                    entry.kind,
                    entry.name
                )
            })
            .collect();
    }
    match texts.is_empty() {
        true => Ok(found),
        false => Err(machinery::go::aggregate(&texts).into_owned()),
    }
}

fn name_error(path: &FieldPath<'_>, name: &str, before: &BTreeSet<&String>) -> Option<FieldError> {
    if name.is_empty() {
        return Some(FieldError::required(path, ""));
    }
    if before.iter().any(|known| *known == name) {
        return Some(FieldError::duplicate(path, &text(name)));
    }
    let faults = dns1123_subdomain(name);
    let why = format!("authorizer name is invalid: {}", faults.join(", "));
    (!faults.is_empty()).then(|| FieldError::invalid_str(path, name, why))
}

fn text(text: &str) -> Value {
    text.into()
}

impl Webhook {
    /// The configuration; none where there is a fault.
    fn read(&self, name: &str, path: &FieldPath<'_>, errors: &mut Vec<FieldError>) -> Option<WebhookConfig> {
        let before = errors.len();
        let timeout = path.child("timeout");
        if self.timeout == GoDuration::default() {
            errors.push(FieldError::required(&timeout, ""));
        } else if self.timeout > LONGEST_TIMEOUT || self.timeout < GoDuration::default() {
            let shown = self.timeout.to_string();
            errors.push(FieldError::invalid_str(
                &timeout,
                &shown,
                "must be > 0s and <= 30s",
            ));
        }
        let authorized_ttl = ttl(
            self.authorized_ttl,
            AUTHORIZED_TTL,
            &path.child("authorizedTTL"),
            errors,
        );
        let unauthorized_ttl = ttl(
            self.unauthorized_ttl,
            UNAUTHORIZED_TTL,
            &path.child("unauthorizedTTL"),
            errors,
        );
        let version = path.child("subjectAccessReviewVersion");
        let version = one_of(
            &version,
            &self.subject_access_review_version,
            &[
                ("v1", AccessReviewVersion::V1),
                ("v1beta1", AccessReviewVersion::V1beta1),
            ],
            errors,
        );
        let conditions = self.match_conditions.as_deref().unwrap_or_default();
        let condition_version = path.child("matchConditionSubjectAccessReviewVersion");
        match &*self.match_condition_subject_access_review_version {
            "" if conditions.is_empty() => {}
            "" => errors.push(FieldError::required(
                &condition_version,
                "required if match conditions are specified",
            )),
            "v1" => {}
            other => errors.push(FieldError::not_supported(
                &condition_version,
                &text(other),
                &["v1"],
            )),
        }
        let policy = path.child("failurePolicy");
        let policies = [("NoOpinion", false), ("Deny", true)];
        let fails_closed = one_of(&policy, &self.failure_policy, &policies, errors);
        let kubeconfig = self.connection_info.file(&path.child("connectionInfo"), errors);
        let sources: Vec<String> = conditions.iter().map(|one| one.expression.clone()).collect();
        let conditions = Conditions::compile(&sources, &path.child("matchConditions"));
        let conditions = conditions.map_err(|faults| errors.extend(faults)).ok();
        if errors.len() > before {
            return None;
        }
        let kept = |ttl: GoDuration, is_on: Option<bool>| match is_on {
            Some(false) => Some(Duration::ZERO),
            _ => ttl.to_std(),
        };
        Some(WebhookConfig {
            options: AccessWebhookOptions {
                name: name.to_string(),
                version: version?,
                timeout: self.timeout.to_std()?,
                authorized_ttl: kept(authorized_ttl, self.cache_authorized_requests)?,
                unauthorized_ttl: kept(unauthorized_ttl, self.cache_unauthorized_requests)?,
                fails_closed: fails_closed?,
            },
            kubeconfig: kubeconfig?,
            conditions: Arc::new(conditions?),
        })
    }
}

fn ttl(
    given: GoDuration,
    default: GoDuration,
    path: &FieldPath<'_>,
    errors: &mut Vec<FieldError>,
) -> GoDuration {
    if given < GoDuration::default() {
        errors.push(FieldError::invalid_str(path, &given.to_string(), "must be > 0s"));
    }
    match given == GoDuration::default() {
        true => default,
        false => given,
    }
}

fn one_of<T: Copy>(
    path: &FieldPath<'_>,
    given: &str,
    known: &[(&str, T)],
    errors: &mut Vec<FieldError>,
) -> Option<T> {
    let found = known.iter().find(|(name, _)| *name == given);
    if found.is_none() {
        let names: Vec<&str> = known.iter().map(|(name, _)| *name).collect();
        errors.push(match given.is_empty() {
            true => FieldError::required(path, ""),
            false => FieldError::not_supported(path, &text(given), &names),
        });
    }
    found.map(|(_, value)| *value)
}

impl ConnectionInfo {
    fn file(&self, path: &FieldPath<'_>, errors: &mut Vec<FieldError>) -> Option<PathBuf> {
        let before = errors.len();
        let file = self.kube_config_file.as_deref().unwrap_or_default();
        let (kind_path, file_path) = (path.child("type"), path.child("kubeConfigFile"));
        match &*self.kind {
            "" => errors.push(FieldError::required(&kind_path, "")),
            "InClusterConfig" => errors.push(FieldError::invalid_str(
                &kind_path,
                "InClusterConfig",
                "is not allowed for kube-apiserver",
            )),
            "KubeConfigFile" if file.is_empty() => errors.push(FieldError::required(&file_path, "")),
            "KubeConfigFile" if !Path::new(file).is_absolute() => {
                errors.push(FieldError::invalid_str(
                    &file_path,
                    file,
                    "must be an absolute path",
                ));
            }
            "KubeConfigFile" => match std::fs::metadata(file) {
                Err(error) => errors.push(FieldError::invalid_str(
                    &file_path,
                    file,
                    format!("error loading file: {error}"),
                )),
                Ok(found) if !found.is_file() => {
                    errors.push(FieldError::invalid_str(
                        &file_path,
                        file,
                        "must be a regular file",
                    ));
                }
                Ok(_) => {}
            },
            other => errors.push(FieldError::not_supported(
                &kind_path,
                &text(other),
                &["InClusterConfig", "KubeConfigFile"],
            )),
        }
        (errors.len() == before).then(|| file.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file with these authorizers, in YAML's flow style.
    fn file(authorizers: &str) -> String {
        format!(
            "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthorizationConfiguration\nauthorizers: {authorizers}\n"
        )
    }

    #[track_caller]
    fn refused(text: &str, expected: &str) {
        let why = parse(text.as_bytes()).expect_err("it is refused");
        assert_eq!(why, expected, "{text}");
    }

    #[test]
    fn authorizers_in_order() {
        let folder = tempfile::tempdir().expect("a directory");
        let kubeconfig = folder.path().join("kubeconfig");
        std::fs::write(&kubeconfig, "").expect("it is written");
        let webhook = format!(
            "{{timeout: 3s, subjectAccessReviewVersion: v1, failurePolicy: Deny, cacheUnauthorizedRequests: false, \
             matchConditionSubjectAccessReviewVersion: v1, matchConditions: [{{expression: 'true'}}], \
             connectionInfo: {{type: KubeConfigFile, kubeConfigFile: {}}}}}",
            kubeconfig.display()
        );
        let text = file(&format!(
            "[{{type: Node, name: node}}, {{type: Webhook, name: one, webhook: {webhook}}}, {{type: RBAC, name: rbac}}]"
        ));
        let found = parse(text.as_bytes()).expect("it is read");
        let [
            AuthorizerConfig::Mode(AuthorizationMode::Node),
            AuthorizerConfig::Webhook(webhook),
            AuthorizerConfig::Mode(AuthorizationMode::Rbac),
        ] = &found[..]
        else {
            panic!("{found:?}");
        };
        let expected = AccessWebhookOptions {
            name: "one".into(),
            version: AccessReviewVersion::V1,
            timeout: Duration::from_secs(3),
            authorized_ttl: Duration::from_secs(300),
            unauthorized_ttl: Duration::ZERO,
            fails_closed: true,
        };
        assert_eq!((&webhook.options, &webhook.kubeconfig), (&expected, &kubeconfig));
        assert!(!webhook.conditions.is_empty());
    }

    #[test]
    fn faults_are_in_upstreams_words() {
        let load = |why: &str| format!("failed to load AuthorizationConfiguration from file: {why}");
        refused("{}", &load("Object 'Kind' is missing"));
        refused(
            "kind: AuthorizationConfiguration\napiVersion: v1",
            &load("no kind \"AuthorizationConfiguration\" is registered for version \"v1\""),
        );
        refused(
            &file("[{type: RBAC, name: rbac, x: 1}]"),
            &load("strict decoding error: unknown field `x`, expected one of `type`, `name`, `webhook`"),
        );
        refused(
            &file("[]"),
            "authorizers: Required value: at least one authorization mode must be defined",
        );
        refused(
            &file(
                "[{name: a}, {type: Magic}, {type: RBAC}, {type: RBAC, name: x}, {type: Node, name: A}, {type: AlwaysDeny, name: A}]",
            ),
            "[authorizers[0].type: Required value, \
             authorizers[1].type: Unsupported value: \"Magic\": supported values: \"ABAC\", \"AlwaysAllow\", \"AlwaysDeny\", \"Node\", \"RBAC\", \"Webhook\", \
             authorizers[2].name: Required value, \
             authorizers[3].type: Duplicate value: \"RBAC\", \
             authorizers[4].name: Invalid value: \"A\": authorizer name is invalid: a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*'), \
             authorizers[5].name: Duplicate value: \"A\"]",
        );
        refused(
            &file("[{type: RBAC, name: roles}, {type: Node, name: node}]"),
            "expected name rbac for authorizer RBAC instead of roles",
        );
        refused(
            &file("[{type: RBAC, name: rbac, webhook: {}}, {type: Webhook, name: w}]"),
            "[authorizers[0].webhook: Invalid value: \"non-null\": may only be specified when type=Webhook, \
             authorizers[1].webhook: Required value: required when type=Webhook]",
        );
    }

    #[test]
    fn faults_of_webhooks() {
        refused(
            &file("[{type: Webhook, name: w, webhook: {}}]"),
            "[authorizers[0].timeout: Required value, authorizers[0].subjectAccessReviewVersion: Required value, \
             authorizers[0].failurePolicy: Required value, authorizers[0].connectionInfo.type: Required value]",
        );
        refused(
            &file(
                "[{type: Webhook, name: w, webhook: {timeout: 31s, authorizedTTL: -1s, unauthorizedTTL: -2m, \
                 subjectAccessReviewVersion: v2, matchConditionSubjectAccessReviewVersion: v3, failurePolicy: Allow, \
                 connectionInfo: {type: KubeConfigFile, kubeConfigFile: relative}, matchConditions: [{}]}}]",
            ),
            "[authorizers[0].timeout: Invalid value: \"31s\": must be > 0s and <= 30s, \
             authorizers[0].authorizedTTL: Invalid value: \"-1s\": must be > 0s, \
             authorizers[0].unauthorizedTTL: Invalid value: \"-2m0s\": must be > 0s, \
             authorizers[0].subjectAccessReviewVersion: Unsupported value: \"v2\": supported values: \"v1\", \"v1beta1\", \
             authorizers[0].matchConditionSubjectAccessReviewVersion: Unsupported value: \"v3\": supported values: \"v1\", \
             authorizers[0].failurePolicy: Unsupported value: \"Allow\": supported values: \"NoOpinion\", \"Deny\", \
             authorizers[0].connectionInfo.kubeConfigFile: Invalid value: \"relative\": must be an absolute path, \
             authorizers[0].matchConditions[0].expression: Required value]",
        );
        refused(
            &file("[{type: Webhook, name: w, webhook: {timeout: soon}}]"),
            "failed to load AuthorizationConfiguration from file: strict decoding error: time: invalid duration \"soon\"",
        );
    }
}
