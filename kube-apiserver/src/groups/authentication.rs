//! The authentication.k8s.io group: TokenReview and SelfSubjectReview.

use std::sync::Arc;

use generic_server::resource::ServedResource;

use crate::kind::Builder;
use crate::rules::{Kind, Rules};
use crate::table;

mod self_subject_review;
mod token_review;

pub(crate) use self_subject_review::user_info;

/// Reviews are answered, never stored: they have no rules.
static RULES: Rules = Rules::PLAIN;

pub(crate) fn v1(b: &Builder<'_>) -> Vec<Arc<ServedResource>> {
    vec![
        b.kind("selfsubjectreviews", "SelfSubjectReview")
            .cluster()
            .table(&table::DEFAULT)
            .computed(Kind::new(&RULES), self_subject_review::SelfSubjectReview),
        b.kind("tokenreviews", "TokenReview")
            .cluster()
            .table(&table::DEFAULT)
            .computed(
                Kind::new(&RULES),
                token_review::TokenReview {
                    tokens: b.deps.token_authenticator.clone(),
                    issuer: b.deps.token_issuer.clone(),
                },
            ),
    ]
}
