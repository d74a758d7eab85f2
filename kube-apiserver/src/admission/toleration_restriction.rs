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

    /// The tolerations that a namespace gives to new pods.
    fn defaults(&self, namespace: &Value) -> Result<Vec<Value>, ApiError> {
        let own = annotated(namespace, DEFAULTS)?;
        Ok(own.unwrap_or_else(|| self.default.clone()))
    }

    /// Refuses a pod of a namespace when it has a toleration that is not allowed there.
    fn check(&self, namespace: &Value, pod: &Value) -> Result<(), ApiError> {
        let own = annotated(namespace, ALLOWED)?;
        let (allowed, scope) = match &own {
            Some(allowed) => (allowed, "namespace"),
            None => (&self.whitelist, "cluster"),
        };
        match tolerations::are_allowed(pod.list("spec.tolerations"), allowed) {
            true => Ok(()),
            false => Err(ApiError::raw_internal(format!(
                "pod tolerations (possibly merged with namespace default tolerations) conflict with its {scope} whitelist"
            ))),
        }
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
        let defaults = match attributes.operation {
            Operation::Create => self.cluster.defaults(&self.namespace(attributes).await?)?,
            _ => Vec::new(),
        };
        add(pod, defaults);
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
        if pod.list("spec.tolerations").is_empty() {
            return Ok(());
        }
        self.cluster.check(&self.namespace(attributes).await?, pod)
    }

    /// The namespace of the pod.
    async fn namespace(&self, attributes: &Attributes<'_>) -> Result<Value, ApiError> {
        let name = attributes.namespace;
        let found = self.client.find(("", "namespaces"), "", name).await?;
        found.ok_or_else(|| ApiError::internal(format!("namespace {name} does not exist")))
    }
}

/// Adds tolerations to those of a pod, and that of memory pressure where the quality of service is other than BestEffort.
fn add(pod: &mut Value, mut more: Vec<Value>) {
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
}

/// The tolerations in an annotation of a namespace, when it has one.
fn annotated(namespace: &Value, annotation: &str) -> Result<Option<Vec<Value>>, ApiError> {
    let text = meta::annotations(namespace).and_then(|all| all.get(annotation)?.as_str());
    text.map(read).transpose()
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

    /// What becomes of a new pod, or of one that is updated: the keys of its tolerations, or the message of the refusal.
    fn outcome(
        creates: bool,
        annotations: &[(&str, &str)],
        cluster: &ClusterTolerations,
        mut pod: Value,
    ) -> Result<Vec<String>, String> {
        let mut namespace = json!({"metadata": {"name": "n"}});
        for (annotation, text) in annotations {
            namespace["metadata"]["annotations"][*annotation] = (*text).into();
        }
        let defaults = match creates {
            true => cluster.defaults(&namespace),
            false => Ok(Vec::new()),
        };
        let checked = defaults.and_then(|defaults| {
            add(&mut pod, defaults);
            cluster.check(&namespace, &pod)
        });
        let key = |one: &Value| format!("{}:{}", one.text("key"), one.text("effect"));
        match checked {
            Ok(()) => Ok(pod.list("spec.tolerations").iter().map(key).collect()),
            Err(error) => Err(error.to_string()),
        }
    }

    #[test]
    fn pods() {
        #[track_caller]
        fn check(
            (default, whitelist): (&[&str], &[&str]),
            annotations: &[(&str, &str)],
            pod: &Value,
            expected: Result<&[&str], &str>,
        ) {
            let cluster = ClusterTolerations {
                default: exists(default),
                whitelist: exists(whitelist),
            };
            let outcome = outcome(true, annotations, &cluster, pod.clone());
            let outcome = outcome
                .as_ref()
                .map(|keys| keys.iter().map(String::as_str).collect());
            let expected: Result<Vec<&str>, &str> = expected.map(<[&str]>::to_vec);
            assert_eq!(outcome.map_err(String::as_str), expected);
        }
        let (none, a, sized) = (pod(&[]), pod(&["a"]), sized(pod(&[])));
        // Without any list each toleration is allowed.
        check((&[], &[]), &[], &none, Ok(&[]));
        check((&[], &[]), &[], &a, Ok(&["a:"]));
        // Those of the cluster.
        check((&["d"], &[]), &[], &none, Ok(&["d:"]));
        check((&["d"], &[]), &[], &a, Ok(&["a:", "d:"]));
        check((&["a"], &["a"]), &[], &a, Ok(&["a:"]));
        check((&[], &["b"]), &[], &a, Err(&refusal("cluster")));
        check((&["d"], &["b"]), &[], &none, Err(&refusal("cluster")));
        check((&[], &["b"]), &[], &none, Ok(&[]));
        // Annotations come before them, when they are empty, too: no list of its own allows everything.
        let d = r#"[{"key": "d", "operator": "Exists"}]"#;
        check((&["c"], &[]), &[(DEFAULTS, d)], &none, Ok(&["d:"]));
        check((&["c"], &[]), &[(DEFAULTS, "")], &none, Ok(&[]));
        check((&[], &["a"]), &[(ALLOWED, d)], &a, Err(&refusal("namespace")));
        check((&[], &["b"]), &[(ALLOWED, "")], &a, Ok(&["a:"]));
        check(
            (&["c"], &["c"]),
            &[(DEFAULTS, d), (ALLOWED, d)],
            &none,
            Ok(&["d:"]),
        );
        check((&[], &["a"]), &[("other", d)], &a, Ok(&["a:"]));
        // Pods with requests tolerate memory pressure, which has to be allowed.
        check(
            (&[], &[]),
            &[],
            &sized,
            Ok(&["node.kubernetes.io/memory-pressure:NoSchedule"]),
        );
        check((&[], &["a"]), &[], &sized, Err(&refusal("cluster")));
        check(
            (&[], &[MEMORY_PRESSURE]),
            &[],
            &sized,
            Ok(&["node.kubernetes.io/memory-pressure:NoSchedule"]),
        );
        // The class in the status comes before the one that the containers have.
        let mut known = pod(&[]);
        known["status"] = json!({"qosClass": "Burstable"});
        check(
            (&[], &[]),
            &[],
            &known,
            Ok(&["node.kubernetes.io/memory-pressure:NoSchedule"]),
        );
    }

    #[test]
    fn updates_add_no_defaults() {
        let cluster = ClusterTolerations {
            default: exists(&["d"]),
            whitelist: exists(&["a"]),
        };
        let update = |annotations: &[(&str, &str)], pod: Value| outcome(false, annotations, &cluster, pod);
        assert_eq!(update(&[], pod(&[])), Ok(vec![]));
        assert_eq!(update(&[], pod(&["a"])), Ok(vec!["a:".into()]));
        assert_eq!(update(&[], pod(&["b"])), Err(refusal("cluster")));
        assert_eq!(update(&[], sized(pod(&[]))), Err(refusal("cluster")));
        // An annotation that nothing reads may be any text.
        assert_eq!(update(&[(DEFAULTS, "[")], pod(&["a"])), Ok(vec!["a:".into()]));
    }

    #[test]
    fn annotations_that_cannot_be_read_are_refused() {
        let cluster = ClusterTolerations::default();
        for annotation in [DEFAULTS, ALLOWED] {
            let refused = outcome(true, &[(annotation, "[")], &cluster, pod(&["a"]));
            assert!(refused.is_err(), "{annotation}");
        }
    }

    fn exists(keys: &[&str]) -> Vec<Value> {
        let one = |key: &&str| json!({"key": key, "operator": "Exists"});
        keys.iter().map(one).collect()
    }

    fn pod(keys: &[&str]) -> Value {
        let mut pod = json!({"spec": {"containers": [{"name": "c"}]}});
        if !keys.is_empty() {
            pod["spec"]["tolerations"] = exists(keys).into();
        }
        pod
    }

    /// The pod with a request, which makes it Burstable.
    fn sized(mut pod: Value) -> Value {
        pod["spec"]["containers"][0]["resources"] = json!({"requests": {"cpu": "1"}});
        pod
    }

    fn refusal(scope: &str) -> String {
        format!(
            "pod tolerations (possibly merged with namespace default tolerations) conflict with its {scope} whitelist"
        )
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
