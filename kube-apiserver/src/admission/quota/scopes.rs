//! The scopes of quotas and of limited resources: which pods and claims they are about.

use std::collections::BTreeSet;
use std::fmt;

use serde::Deserialize;
use serde_json::Value;

use crate::groups::core::pod::qos_class;
use crate::json::Json;

/// One scope, with the values that it is about.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct ScopeRequirement {
    #[serde(rename = "scopeName")]
    pub(super) scope: String,
    pub(super) operator: String,
    #[serde(default)]
    pub(super) values: Vec<String>,
}

/// As Go prints the structure.
impl fmt::Display for ScopeRequirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{{{} {} [{}]}}",
            self.scope,
            self.operator,
            self.values.join(" ")
        )
    }
}

impl ScopeRequirement {
    /// All scopes of a quota.
    pub(super) fn of_quota(quota: &Value) -> Vec<ScopeRequirement> {
        let plain = quota.strings("spec.scopes").map(|scope| ScopeRequirement {
            scope: scope.to_string(),
            operator: "Exists".to_string(),
            values: Vec::new(),
        });
        let selected = quota.list("spec.scopeSelector.matchExpressions").iter();
        let selected = selected.map(|expression| ScopeRequirement {
            scope: expression.text("scopeName").to_string(),
            operator: expression.text("operator").to_string(),
            values: expression.strings("values").map(str::to_string).collect(),
        });
        plain.chain(selected).collect()
    }

    /// Whether the operator accepts a value, or none.
    fn accepts(&self, value: Option<&str>) -> bool {
        let listed = value.is_some_and(|value| self.values.iter().any(|one| one == value));
        match self.operator.as_str() {
            "In" => listed,
            "NotIn" => !listed,
            "Exists" => value.is_some(),
            "DoesNotExist" => value.is_none(),
            _ => false,
        }
    }

    /// Whether a pod is within the scope.
    pub(super) fn has_pod(&self, pod: &Value) -> bool {
        match self.scope.as_str() {
            "Terminating" => is_terminating(pod),
            "NotTerminating" => !is_terminating(pod),
            "BestEffort" => qos_class(pod) == "BestEffort",
            "NotBestEffort" => qos_class(pod) != "BestEffort",
            "PriorityClass" => {
                let class = pod.text("spec.priorityClassName");
                self.accepts(Some(class).filter(|class| !class.is_empty()))
            }
            "CrossNamespacePodAffinity" => selects_other_namespaces(pod),
            _ => false,
        }
    }

    /// Whether a claim is within the scope.
    pub(super) fn has_claim(&self, claim: &Value) -> bool {
        if self.scope != "VolumeAttributesClass" {
            return false;
        }
        let classes = attributes_classes(claim);
        match classes.is_empty() {
            true => self.accepts(None),
            false => classes.iter().any(|class| self.accepts(Some(class))),
        }
    }
}

/// Whether a pod ends by itself.
pub(super) fn is_terminating(pod: &Value) -> bool {
    pod.int("spec.activeDeadlineSeconds")
        .is_some_and(|seconds| seconds >= 0)
}

fn selects_other_namespaces(pod: &Value) -> bool {
    let affinity = pod.dig("spec.affinity");
    ["podAffinity", "podAntiAffinity"].iter().any(|kind| {
        let own = affinity.dig(kind);
        let required = own.list("requiredDuringSchedulingIgnoredDuringExecution").iter();
        let preferred = own.list("preferredDuringSchedulingIgnoredDuringExecution").iter();
        let mut terms = required.chain(preferred.map(|weighted| weighted.dig("podAffinityTerm")));
        terms.any(|term| !term.list("namespaces").is_empty() || term.has("namespaceSelector"))
    })
}

/// The classes that a claim has, wants, or is being changed to.
fn attributes_classes(claim: &Value) -> BTreeSet<&str> {
    let named = [
        claim.text("spec.volumeAttributesClassName"),
        claim.text("status.currentVolumeAttributesClassName"),
        claim.text("status.modifyVolumeStatus.targetVolumeAttributesClassName"),
    ];
    named.into_iter().filter(|name| !name.is_empty()).collect()
}
