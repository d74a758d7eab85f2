//! VolumeAttachment.

use crate::json::Json;
use crate::rules::{Rules, StatusMeta};

pub(crate) static RULES: Rules = Rules {
    default: |object| object.ensure("status").fill("attached", false),
    status: true,
    status_meta: StatusMeta::Reset,
    unconditional_update: false,
    returns_deleted: true,
    ..Rules::PLAIN
};
