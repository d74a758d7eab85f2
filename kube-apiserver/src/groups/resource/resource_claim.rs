//! ResourceClaim.

use serde_json::Value;

use crate::json::Json;
use crate::rules::{Rules, StatusMeta};

pub(crate) static RULES: Rules = Rules {
    status: true,
    status_meta: StatusMeta::Reset,
    returns_deleted: true,
    default: |object| default_spec(object.ensure("spec")),
    ..Rules::PLAIN
};

/// The requests of a claim or of a template of one.
pub(super) fn default_spec(spec: &mut Value) {
    for request in spec.list_mut("devices.requests") {
        if let Some(exactly) = request.dig_mut("exactly") {
            count(exactly);
        }
        for alternative in request.list_mut("firstAvailable") {
            count(alternative);
        }
    }
}

fn count(request: &mut Value) {
    request.fill_text("allocationMode", "ExactCount");
    if request.text("allocationMode") == "ExactCount" {
        request.fill_int("count", 1);
    }
}
