//! The configuration of ResourceQuota: resources that nobody may use in a namespace without a quota that covers them.

use machinery::FieldPath;
use serde::Deserialize;

use super::scopes::ScopeRequirement;
use crate::errors::Errors;

pub(crate) const VERSIONS: [&str; 3] = [
    "apiserver.config.k8s.io/v1",
    "resourcequota.admission.k8s.io/v1beta1",
    "resourcequota.admission.k8s.io/v1alpha1",
];

/// `ResourceQuotaConfiguration`, or `Configuration` in its earlier versions.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct LimitedResources {
    #[serde(rename = "limitedResources", deserialize_with = "or_none")]
    pub(super) list: Vec<LimitedResource>,
}

/// One entry of `limitedResources`.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct LimitedResource {
    pub(super) api_group: String,
    pub(super) resource: String,
    #[serde(deserialize_with = "or_none")]
    pub(super) match_contains: Vec<String>,
    #[serde(deserialize_with = "or_none")]
    pub(super) match_scopes: Vec<ScopeRequirement>,
}

fn or_none<'de, D, T>(deserializer: D) -> Result<Vec<T>, D::Error>
where
    D: serde::Deserializer<'de>,
    T: Deserialize<'de>,
{
    Ok(Option::<Vec<T>>::deserialize(deserializer)?.unwrap_or_default())
}

impl LimitedResources {
    /// The faults of the configuration. Upstream finds those of scopes with the first object, and lets it pass.
    pub(crate) fn faults(&self) -> Vec<String> {
        let root = FieldPath::new("limitedResources");
        let found = Errors::collect(|errors| {
            for (index, limited) in self.list.iter().enumerate() {
                let at = root.index(index);
                if limited.resource.is_empty() {
                    errors.required(&at.child("resource"), "");
                }
                let scopes = at.child("matchScopes");
                for (index, scope) in limited.match_scopes.iter().enumerate() {
                    let at = scopes.index(index);
                    let listed = matches!(scope.operator.as_str(), "In" | "NotIn");
                    if !listed && !matches!(scope.operator.as_str(), "Exists" | "DoesNotExist") {
                        errors.invalid(
                            &at.child("operator"),
                            scope.operator.as_str(),
                            "not a valid selector operator",
                        );
                    } else if listed == scope.values.is_empty() {
                        let why = match listed {
                            true => {
                                "must be at least one value when `operator` is 'In' or 'NotIn' for scope selector"
                            }
                            false => {
                                "must be no value when `operator` is 'Exist' or 'DoesNotExist' for scope selector"
                            }
                        };
                        errors.required(&at.child("values"), why);
                    }
                }
            }
        });
        found.iter().map(ToString::to_string).collect()
    }
}
