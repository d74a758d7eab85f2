//! Why a configuration is not applied, and what the client is told.

use std::ops::ControlFlow;

use super::path;
use super::set::Set;
use crate::status::{Cause, Details, Reason};
use crate::{ApiError, limits};

/// The fields that another manager owns, with that manager.
#[derive(Debug)]
pub(super) struct Conflict {
    pub(super) identifier: String,
    pub(super) shown: String,
    pub(super) fields: Set<'static>,
}

/// Why a configuration is not applied.
pub(super) enum Refusal {
    Conflicts(Vec<Conflict>),
    Other(String),
}

impl From<String> for Refusal {
    fn from(text: String) -> Self {
        Refusal::Other(text)
    }
}

/// The refusal as the client sees it.
pub(super) fn refuse(refusal: Refusal) -> ApiError {
    let conflicts = match refusal {
        Refusal::Other(text) => return ApiError::raw_internal(text),
        Refusal::Conflicts(conflicts) => conflicts,
    };
    let count: usize = conflicts.iter().map(|conflict| conflict.fields.len()).sum();
    let mut lines: Vec<String> = Vec::new();
    let mut causes: Vec<Cause> = Vec::new();
    for conflict in &conflicts {
        if causes.len() == limits::CAUSES {
            break;
        }
        lines.push(format!("conflicts with {}:", conflict.shown));
        let _ = conflict.fields.each(&mut |path| {
            if causes.len() == limits::CAUSES {
                return ControlFlow::Break(());
            }
            let path = path::show_path(path);
            lines.push(format!("- {path}"));
            causes.push(Cause {
                reason: "FieldManagerConflict".into(),
                message: format!("conflict with {}", conflict.shown),
                field: path,
            });
            ControlFlow::Continue(())
        });
    }
    if count > causes.len() {
        lines.push(format!("and {} more", count - causes.len()));
    }
    let message = match causes.as_slice() {
        [one] => format!("Apply failed with 1 conflict: {}: {}", one.message, one.field),
        _ => format!("Apply failed with {count} conflicts: {}", lines.join("\n")),
    };
    ApiError::new(409, Reason::Conflict, message).with_details(Details {
        causes,
        ..Details::default()
    })
}
