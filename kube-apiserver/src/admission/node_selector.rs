//! PodNodeSelector: pods are given the node selector of their namespace, and may have no other labels in it than the configuration allows.

use std::collections::BTreeMap;

use generic_server::ApiError;
use generic_server::admission::{AdmissionPlugin, Attributes, Operation};
use machinery::{GroupVersionResource, meta};
use serde::Deserialize;
use serde_json::Value;

use super::{forbidden, is};
use crate::client::Client;
use crate::json::Json;

/// The annotation of a namespace with the node selector of its pods.
const NODE_SELECTOR: &str = "scheduler.alpha.kubernetes.io/node-selector";
/// The name under which the configuration has the selector of namespaces without the annotation.
const DEFAULT: &str = "clusterDefaultNodeSelector";

type Labels = BTreeMap<String, String>;

/// The configuration: labels by namespace, which are all that a pod's node selector may have there.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct ClusterSelectors {
    pod_node_selector_plugin_config: BTreeMap<String, String>,
}

impl ClusterSelectors {
    /// The selectors that cannot be read.
    pub(super) fn faults(&self) -> Vec<String> {
        let each = self.pod_node_selector_plugin_config.iter();
        each.filter_map(|(name, text)| Some(format!("{name}: {}", labels_of(text).err()?)))
            .collect()
    }

    fn get(&self, name: &str) -> Result<Labels, ApiError> {
        let text = self.pod_node_selector_plugin_config.get(name);
        labels_of(text.map_or("", String::as_str)).map_err(ApiError::raw_internal)
    }
}

#[derive(Debug)]
pub(super) struct PodNodeSelector {
    pub(super) client: Client,
    pub(super) cluster: ClusterSelectors,
}

#[async_trait::async_trait]
impl AdmissionPlugin for PodNodeSelector {
    fn name(&self) -> &'static str {
        "PodNodeSelector"
    }

    fn handles(&self, operation: Operation, gvr: &GroupVersionResource, subresource: &str) -> bool {
        operation == Operation::Create && subresource.is_empty() && is(gvr, "", "pods")
    }

    async fn admit(&self, attributes: &Attributes<'_>, object: Option<&mut Value>) -> Result<(), ApiError> {
        let Some(pod) = object else { return Ok(()) };
        let wanted = self.selector(attributes).await?;
        refuse_conflict(attributes, pod, &wanted)?;
        for (key, value) in wanted {
            pod.ensure("spec").ensure("nodeSelector").fill(&key, value);
        }
        self.refuse_others(attributes, pod)
    }

    async fn validate(&self, attributes: &Attributes<'_>, object: Option<&Value>) -> Result<(), ApiError> {
        let Some(pod) = object else { return Ok(()) };
        refuse_conflict(attributes, pod, &self.selector(attributes).await?)?;
        self.refuse_others(attributes, pod)
    }
}

impl PodNodeSelector {
    /// The node selector that the pod's namespace asks for.
    async fn selector(&self, attributes: &Attributes<'_>) -> Result<Labels, ApiError> {
        let name = attributes.namespace;
        let Some(namespace) = self.client.find(("", "namespaces"), "", name).await? else {
            return Err(ApiError::internal(format!("namespace {name} does not exist")));
        };
        let text = meta::annotations(&namespace).and_then(|all| all.get(NODE_SELECTOR)?.as_str());
        match text {
            Some(text) => labels_of(text).map_err(ApiError::raw_internal),
            None => self.cluster.get(DEFAULT),
        }
    }

    /// Refuses labels that the namespace does not allow. No labels allow all.
    fn refuse_others(&self, attributes: &Attributes<'_>, pod: &Value) -> Result<(), ApiError> {
        let allowed = self.cluster.get(attributes.namespace)?;
        let is_allowed =
            |(key, value): (&str, &Value)| allowed.get(key).map(String::as_str) == value.as_str();
        if allowed.is_empty() || pod.entries("spec.nodeSelector").all(is_allowed) {
            return Ok(());
        }
        let why = "pod node label selector labels conflict with its namespace whitelist";
        Err(forbidden(attributes, Some(pod), why))
    }
}

fn refuse_conflict(attributes: &Attributes<'_>, pod: &Value, wanted: &Labels) -> Result<(), ApiError> {
    let own = pod.dig("spec.nodeSelector");
    let conflict = wanted
        .iter()
        .any(|(key, value)| own.get(key).is_some_and(|own| own.as_str() != Some(value)));
    match conflict {
        false => Ok(()),
        true => Err(forbidden(
            attributes,
            Some(pod),
            "pod node label selector conflicts with its namespace node label selector",
        )),
    }
}

/// Reads `a=b,c=d`.
fn labels_of(text: &str) -> Result<Labels, String> {
    if text.is_empty() {
        return Ok(Labels::new());
    }
    text.split(',')
        .map(|pair| match pair.split('=').collect::<Vec<_>>().as_slice() {
            [key, value] => Ok((key.trim().to_string(), value.trim().to_string())),
            parts => Err(format!("invalid selector: [{}]", parts.join(" "))),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn node_selectors_of_namespaces() {
        let check = |text: &str, expected: Result<&[(&str, &str)], &str>| {
            let expected = expected
                .map(|pairs| {
                    pairs
                        .iter()
                        .map(|(k, v)| (k.to_string(), v.to_string()))
                        .collect()
                })
                .map_err(str::to_string);
            assert_eq!(labels_of(text), expected, "{text}");
        };
        check("", Ok(&[]));
        check("a=b, c = d", Ok(&[("a", "b"), ("c", "d")]));
        check("a=", Ok(&[("a", "")]));
        check("a", Err("invalid selector: [a]"));
        check("a=b=c", Err("invalid selector: [a b c]"));
    }
}
