//! The authorization.k8s.io group: may they. The four reviews ask the server's own authorizer.

use std::sync::Arc;

use generic_server::authz::{Attributes, Authorizer, Decision};
use generic_server::resource::{Answer, CreateCall, ServedResource, VirtualResource};
use generic_server::{ApiError, User};
use machinery::{FieldPath, GroupKind};
use serde_json::{Map, Value, json};

use crate::errors::Errors;
use crate::json::Json;
use crate::kind::Builder;
use crate::rules::{Kind, Rules};
use crate::table;

mod selectors;

use selectors::Selectors;

/// Reviews are answered, never stored: they have no rules.
static RULES: Rules = Rules::PLAIN;

pub(crate) fn v1(b: &Builder<'_>) -> Vec<Arc<ServedResource>> {
    let review = |about: About| Review {
        about,
        authorizer: b.deps.authorizer.clone(),
    };
    vec![
        b.kind("localsubjectaccessreviews", "LocalSubjectAccessReview")
            .table(&table::DEFAULT)
            .computed(Kind::new(&RULES), review(About::Local)),
        b.kind("selfsubjectaccessreviews", "SelfSubjectAccessReview")
            .cluster()
            .table(&table::DEFAULT)
            .computed(Kind::new(&RULES), review(About::Oneself)),
        b.kind("selfsubjectrulesreviews", "SelfSubjectRulesReview")
            .cluster()
            .table(&table::DEFAULT)
            .computed(Kind::new(&RULES), review(About::Rules)),
        b.kind("subjectaccessreviews", "SubjectAccessReview")
            .cluster()
            .table(&table::DEFAULT)
            .computed(Kind::new(&RULES), review(About::Anybody)),
    ]
}

/// Which of the reviews.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum About {
    /// A named user, anywhere.
    Anybody,
    /// A named user in one namespace.
    Local,
    /// The client.
    Oneself,
    /// All that the client may do.
    Rules,
}

#[derive(Debug)]
struct Review {
    about: About,
    authorizer: Arc<dyn Authorizer>,
}

#[async_trait::async_trait]
impl VirtualResource for Review {
    fn verbs(&self) -> &'static [&'static str] {
        &["create"]
    }

    async fn create(&self, call: &CreateCall<'_>, mut object: Value) -> Result<Answer, ApiError> {
        if self.about == About::Rules {
            return self.rules(call, object).await;
        }
        let errors = Errors::collect(|errors| check(errors, self.about, call.namespace, &object));
        if !errors.is_empty() {
            // Upstream knows only the group here, not the kind.
            return Err(ApiError::invalid(
                &GroupKind::new("authorization.k8s.io", ""),
                "",
                &errors,
            ));
        }
        let admitted = call.validate(&object).await?;
        let user = match self.about {
            About::Oneself => call.authorized.user().clone(),
            _ => named_user(&object),
        };
        let selectors = Selectors::of(&object);
        let decision = self
            .authorizer
            .authorize(&attributes(&user, &object, &selectors))
            .await;
        let mut status = Map::new();
        let (allowed, denied, reason, mut errors) = match decision {
            Decision::Allow(reason) => (true, false, reason, Vec::new()),
            Decision::Deny(reason) => (false, true, reason, Vec::new()),
            Decision::NoOpinion(reason) => (false, false, reason, Vec::new()),
            Decision::Failed(failure) => (false, failure.denies, failure.reason, vec![failure.error]),
        };
        status.insert("allowed".into(), allowed.into());
        if denied {
            status.insert("denied".into(), true.into());
        }
        if !reason.is_empty() {
            status.insert("reason".into(), reason.into());
        }
        errors.extend(selectors.errors);
        if !errors.is_empty() {
            status.insert("evaluationError".into(), errors.join("; ").into());
        }
        object.put("status", status);
        Ok(admitted.created(object))
    }
}

impl Review {
    async fn rules(&self, call: &CreateCall<'_>, mut object: Value) -> Result<Answer, ApiError> {
        let namespace = object.text("spec.namespace").to_string();
        if namespace.is_empty() {
            return Err(ApiError::bad_request("no namespace on request"));
        }
        let admitted = call.validate(&object).await?;
        let user = call.authorized.user();
        let rules = self.authorizer.rules_for(user, &namespace).await;
        let mut status = json!({
            "resourceRules": rules.resource_rules,
            "nonResourceRules": rules.non_resource_rules,
            "incomplete": rules.incomplete,
        });
        if !rules.evaluation_error.is_empty() {
            status.put("evaluationError", rules.evaluation_error);
        }
        // The answer is recreated: nothing of what was posted is in it.
        object.put("metadata", json!({}));
        object.put("spec", json!({}));
        object.put("status", status);
        Ok(admitted.created(object))
    }
}

fn check(errors: &mut Errors, about: About, namespace: &str, object: &Value) {
    let spec = FieldPath::new("spec");
    let resource = object.dig("spec.resourceAttributes");
    let other = object.dig("spec.nonResourceAttributes");
    let exactly = "exactly one of nonResourceAttributes or resourceAttributes must be specified";
    match (resource.is_null(), other.is_null()) {
        (false, false) => {
            // The value is shown as upstream's Go type encodes it.
            let shown = json!({"Path": other.text("path"), "Verb": other.text("verb")});
            errors.invalid(
                &spec.child("nonResourceAttributes"),
                shown,
                "cannot be specified in combination with resourceAttributes",
            );
        }
        (true, true) => errors.invalid(&spec.child("resourceAttributes"), Value::Null, exactly),
        _ => {}
    }
    if about != About::Oneself && object.text("spec.user").is_empty() && object.list("spec.groups").is_empty()
    {
        errors.invalid(
            &spec.child("user"),
            "",
            "at least one of user or group must be specified",
        );
    }
    if about == About::Local && !resource.is_null() && resource.text("namespace") != namespace {
        errors.invalid(
            &spec.child("resourceAttributes.namespace"),
            resource.text("namespace"),
            "must match metadata.namespace",
        );
    }
    if about == About::Local && !other.is_null() {
        let shown = json!({"Path": other.text("path"), "Verb": other.text("verb")});
        errors.invalid(
            &spec.child("nonResourceAttributes"),
            shown,
            "disallowed on this kind of request",
        );
    }
    let metadata = object.object_at("metadata");
    let unexpected = metadata.into_iter().flatten().any(|(key, value)| {
        !value.is_null() && key != "managedFields" && !(about == About::Local && key == "namespace")
    });
    if unexpected {
        let text = match about {
            About::Local => "must be empty except for namespace",
            _ => "must be empty",
        };
        errors.invalid_value(&FieldPath::new("metadata"), object.dig("metadata"), text);
    }
    for key in ["fieldSelector", "labelSelector"] {
        let selector = resource.dig(key);
        if selector.is_null() {
            continue;
        }
        let attributes = spec.child("resourceAttributes");
        let path = attributes.child(key);
        let (raw, requirements) = (selector.text("rawSelector"), selector.list("requirements"));
        if raw.is_empty() && requirements.is_empty() {
            errors.required(
                &path.child("requirements"),
                &format!("when specifying {key}, requirements or rawSelector is required"),
            );
        }
        if !raw.is_empty() && !requirements.is_empty() {
            errors.invalid(
                &path.child("rawSelector"),
                raw,
                "may not specified at the same time as requirements",
            );
        }
        for (index, requirement) in requirements.iter().enumerate() {
            let at = path.child("requirements");
            selectors::requirement(errors, &at.index(index), requirement, key == "labelSelector");
        }
    }
}

/// Selectors of the review that do not parse are reported in its status, not refused.
fn named_user(object: &Value) -> User {
    User {
        name: object.text("spec.user").into(),
        uid: object.text("spec.uid").into(),
        groups: object.strings("spec.groups").map(str::to_string).collect(),
        extra: object
            .entries("spec.extra")
            .map(|(key, values)| {
                let values = values.as_array().into_iter().flatten();
                let values = values.filter_map(Value::as_str).map(str::to_string).collect();
                (key.to_lowercase(), values)
            })
            .collect(),
        notes: None,
    }
}

fn attributes<'a>(user: &'a User, object: &'a Value, selectors: &'a Selectors<'_>) -> Attributes<'a> {
    let resource = object.dig("spec.resourceAttributes");
    let other = object.dig("spec.nonResourceAttributes");
    let is_resource = !resource.is_null();
    Attributes {
        user,
        verb: if is_resource {
            resource.text("verb")
        } else {
            other.text("verb")
        },
        is_resource,
        group: resource.text("group"),
        version: if is_resource && resource.text("version").is_empty() {
            "*"
        } else {
            resource.text("version")
        },
        resource: resource.text("resource"),
        subresource: resource.text("subresource"),
        namespace: resource.text("namespace"),
        name: resource.text("name"),
        path: other.text("path"),
        field_selector: &selectors.field,
        label_selector: &selectors.label,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn judge(about: About, review: Value, expected: &[&str]) {
        let errors = Errors::collect(|errors| check(errors, about, "ns", &review));
        let errors: Vec<String> = errors.iter().map(ToString::to_string).collect();
        assert_eq!(errors, expected, "{review}");
    }

    #[test]
    fn reviews_are_about_one_thing() {
        let pods = json!({"namespace": "ns", "verb": "get", "resource": "pods"});
        judge(
            About::Anybody,
            json!({"spec": {"user": "u", "resourceAttributes": pods}}),
            &[],
        );
        judge(About::Oneself, json!({"spec": {"resourceAttributes": pods}}), &[]);
        judge(
            About::Anybody,
            json!({"spec": {}}),
            &[
                "spec.resourceAttributes: Invalid value: null: exactly one of nonResourceAttributes or resourceAttributes must be specified",
                r#"spec.user: Invalid value: "": at least one of user or group must be specified"#,
            ],
        );
        judge(
            About::Local,
            json!({"spec": {"groups": ["g"], "resourceAttributes": {"namespace": "other"}}}),
            &[r#"spec.resourceAttributes.namespace: Invalid value: "other": must match metadata.namespace"#],
        );
        judge(
            About::Oneself,
            json!({"spec": {"resourceAttributes": {"labelSelector": {}, "fieldSelector": {"rawSelector": "a=b", "requirements": [{"key": "k"}]}}}}),
            &[
                r#"spec.resourceAttributes.fieldSelector.rawSelector: Invalid value: "a=b": may not specified at the same time as requirements"#,
                "spec.resourceAttributes.labelSelector.requirements: Required value: when specifying labelSelector, requirements or rawSelector is required",
            ],
        );
    }

    #[test]
    fn metadata_is_the_servers() {
        // Entries that the server itself has recorded do not count.
        let spec = json!({"resourceAttributes": {}});
        judge(
            About::Oneself,
            json!({"metadata": {"managedFields": []}, "spec": spec}),
            &[],
        );
        judge(
            About::Oneself,
            json!({"metadata": {"name": "x"}, "spec": spec}),
            &[r#"metadata: Invalid value: {"name":"x"}: must be empty"#],
        );
    }
}
