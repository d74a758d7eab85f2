//! The admissionregistration.k8s.io group.

use std::sync::Arc;

use generic_server::resource::ServedResource;

use self::params::Params;
use crate::kind::Builder;
use crate::rules::Rules;
use crate::table;

mod defaults;
mod mutating_admission_policy;
mod mutating_admission_policy_binding;
mod mutating_webhook_configuration;
mod params;
mod policies;
mod urls;
mod validating_admission_policy;
mod validating_admission_policy_binding;
mod validating_webhook_configuration;
mod webhooks;

/// The rules of a kind.
pub(crate) fn rules(kind: &str) -> Option<&'static Rules> {
    Some(match kind {
        "MutatingAdmissionPolicy" => &mutating_admission_policy::RULES,
        "MutatingAdmissionPolicyBinding" => &mutating_admission_policy_binding::RULES,
        "MutatingWebhookConfiguration" => &mutating_webhook_configuration::RULES,
        "ValidatingAdmissionPolicy" => &validating_admission_policy::RULES,
        "ValidatingAdmissionPolicyBinding" => &validating_admission_policy_binding::RULES,
        "ValidatingWebhookConfiguration" => &validating_webhook_configuration::RULES,
        _ => return None,
    })
}

pub(crate) fn v1(b: &Builder<'_>) -> Vec<Arc<ServedResource>> {
    vec![
        b.kind("mutatingadmissionpolicies", "MutatingAdmissionPolicy")
            .cluster()
            .category("api-extensions")
            .table(&table::MUTATING_POLICY)
            .rules_with(
                &mutating_admission_policy::RULES,
                Params::of_policies(b.deps),
                None,
            ),
        b.kind(
            "mutatingadmissionpolicybindings",
            "MutatingAdmissionPolicyBinding",
        )
        .cluster()
        .category("api-extensions")
        .table(&table::POLICY_BINDING)
        .rules_with(
            &mutating_admission_policy_binding::RULES,
            Params::of_bindings(b.deps, "mutatingadmissionpolicies"),
            None,
        ),
        b.kind("mutatingwebhookconfigurations", "MutatingWebhookConfiguration")
            .cluster()
            .category("api-extensions")
            .table(&table::WEBHOOK_CONFIGURATION)
            .rules(&mutating_webhook_configuration::RULES),
        b.kind("validatingadmissionpolicies", "ValidatingAdmissionPolicy")
            .cluster()
            .category("api-extensions")
            .table(&table::VALIDATING_POLICY)
            .rules_with(
                &validating_admission_policy::RULES,
                Params::of_policies(b.deps),
                None,
            ),
        b.kind(
            "validatingadmissionpolicybindings",
            "ValidatingAdmissionPolicyBinding",
        )
        .cluster()
        .category("api-extensions")
        .table(&table::POLICY_BINDING)
        .rules_with(
            &validating_admission_policy_binding::RULES,
            Params::of_bindings(b.deps, "validatingadmissionpolicies"),
            None,
        ),
        b.kind(
            "validatingwebhookconfigurations",
            "ValidatingWebhookConfiguration",
        )
        .cluster()
        .category("api-extensions")
        .table(&table::WEBHOOK_CONFIGURATION)
        .rules(&validating_webhook_configuration::RULES),
    ]
}
