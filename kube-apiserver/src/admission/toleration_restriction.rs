//! PodTolerationRestriction: pods are given the tolerations that their namespace has by default, and may have no others than it allows.

use generic_server::ApiError;
use generic_server::admission::{AdmissionPlugin, Attributes, Operation};
use machinery::{FieldPath, GroupVersionResource, meta};
use serde::Deserialize;
use serde_json::{Value, json};

use super::is;
use crate::client::Client;
use crate::errors::Errors;
use crate::groups::core::pod::qos_class;
use crate::groups::core::pod_spec;
use crate::json::Json;
use crate::tolerations;

/// The annotation of a namespace with the tolerations that its pods are given.
const DEFAULTS: &str = "scheduler.alpha.kubernetes.io/defaultTolerations";
/// The annotation of a namespace with the tolerations that its pods may have.
const ALLOWED: &str = "scheduler.alpha.kubernetes.io/tolerationsWhitelist";
const MEMORY_PRESSURE: &str = "node.kubernetes.io/memory-pressure";

/// The tolerations of namespaces that have no such annotations (`podtolerationrestriction.admission.k8s.io/v1alpha1`).
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct ClusterTolerations {
    default: Vec<Value>,
    whitelist: Vec<Value>,
}

impl ClusterTolerations {
    /// The faults of these tolerations, in upstream's words.
    pub(super) fn faults(&self) -> Vec<String> {
        let root = FieldPath::new("podtolerationrestriction");
        let found = Errors::collect(|errors| {
            pod_spec::tolerations(errors, &root.child("default"), &self.default);
            pod_spec::tolerations(errors, &root.child("whitelist"), &self.whitelist);
        });
        found.iter().map(ToString::to_string).collect()
    }
}

#[derive(Debug)]
pub(super) struct PodTolerationRestriction {
    pub(super) client: Client,
    pub(super) cluster: ClusterTolerations,
}

#[async_trait::async_trait]
impl AdmissionPlugin for PodTolerationRestriction {
    fn name(&self) -> &'static str {
        "PodTolerationRestriction"
    }

    fn handles(&self, operation: Operation, gvr: &GroupVersionResource, subresource: &str) -> bool {
        matches!(operation, Operation::Create | Operation::Update)
            && subresource.is_empty()
            && is(gvr, "", "pods")
    }

    async fn admit(&self, attributes: &Attributes<'_>, object: Option<&mut Value>) -> Result<(), ApiError> {
        let Some(pod) = object else { return Ok(()) };
        let mut more = match attributes.operation {
            Operation::Create => self
                .of_namespace(attributes, DEFAULTS)
                .await?
                .unwrap_or_else(|| self.cluster.default.clone()),
            _ => Vec::new(),
        };
        let qos = match pod.text("status.qosClass") {
            "" => qos_class(pod),
            known => known,
        };
        if qos != "BestEffort" {
            more.push(json!({"key": MEMORY_PRESSURE, "operator": "Exists", "effect": "NoSchedule"}));
        }
        if !more.is_empty() {
            let all = tolerations::merged(pod.list("spec.tolerations"), &more);
            pod.ensure("spec").put("tolerations", all);
        }
        self.check(attributes, pod).await
    }

    async fn validate(&self, attributes: &Attributes<'_>, object: Option<&Value>) -> Result<(), ApiError> {
        match object {
            Some(pod) => self.check(attributes, pod).await,
            None => Ok(()),
        }
    }
}

impl PodTolerationRestriction {
    async fn check(&self, attributes: &Attributes<'_>, pod: &Value) -> Result<(), ApiError> {
        let own = pod.list("spec.tolerations");
        if own.is_empty() {
            return Ok(());
        }
        let of_namespace = self.of_namespace(attributes, ALLOWED).await?;
        let (allowed, scope) = match &of_namespace {
            Some(allowed) => (allowed, "namespace"),
            None => (&self.cluster.whitelist, "cluster"),
        };
        match tolerations::are_allowed(own, allowed) {
            true => Ok(()),
            false => Err(ApiError::raw_internal(format!(
                "pod tolerations (possibly merged with namespace default tolerations) conflict with its {scope} whitelist"
            ))),
        }
    }

    /// The tolerations in an annotation of the pod's namespace, when it has one.
    async fn of_namespace(
        &self,
        attributes: &Attributes<'_>,
        annotation: &str,
    ) -> Result<Option<Vec<Value>>, ApiError> {
        let name = attributes.namespace;
        let Some(namespace) = self.client.find(("", "namespaces"), "", name).await? else {
            return Err(ApiError::internal(format!("namespace {name} does not exist")));
        };
        let text = meta::annotations(&namespace).and_then(|all| all.get(annotation)?.as_str());
        text.map(read).transpose()
    }
}

/// The tolerations in the text of an annotation, which may be empty.
fn read(text: &str) -> Result<Vec<Value>, ApiError> {
    if text.is_empty() {
        return Ok(Vec::new());
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Toleration {
        key: Option<String>,
        operator: Option<String>,
        value: Option<String>,
        effect: Option<String>,
        toleration_seconds: Option<i64>,
    }
    let list: Vec<Toleration> =
        serde_json::from_str(text).map_err(|error| ApiError::raw_internal(error.to_string()))?;
    let one = |toleration: Toleration| {
        let mut value = json!({});
        for (name, text) in [
            ("key", toleration.key),
            ("operator", toleration.operator),
            ("value", toleration.value),
            ("effect", toleration.effect),
        ] {
            if let Some(text) = text.filter(|text| !text.is_empty()) {
                value.put(name, text);
            }
        }
        if let Some(seconds) = toleration.toleration_seconds {
            value.put("tolerationSeconds", seconds);
        }
        value
    };
    Ok(list.into_iter().map(one).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn annotations_are_read() {
        #[track_caller]
        fn check(text: &str, expected: Option<Value>) {
            let read = read(text).ok().map(Value::from);
            assert_eq!(read, expected, "{text}");
        }
        check("", Some(json!([])));
        check("[]", Some(json!([])));
        check(
            r#"[{"key": "a", "operator": "", "tolerationSeconds": 5, "other": 1}]"#,
            Some(json!([{"key": "a", "tolerationSeconds": 5}])),
        );
        check("{}", None);
        check(r#"[{"key": 1}]"#, None);
        check("[", None);
    }

    #[test]
    fn tolerations_of_the_cluster_are_checked() {
        let faults = |whitelist: Value| {
            let cluster: ClusterTolerations =
                serde_json::from_value(json!({"whitelist": whitelist})).expect("tolerations");
            cluster.faults()
        };
        assert_eq!(faults(json!([{"key": "a", "operator": "Exists"}])), [""; 0]);
        let found = faults(json!([{"key": "a b"}]));
        assert!(
            found[0].starts_with("podtolerationrestriction.whitelist[0].key: Invalid value: \"a b\""),
            "{found:?}"
        );
    }
}
