//! VolumeAttachment.

use crate::rules::{Rules, StatusMeta};

pub(crate) static RULES: Rules = Rules {
    status: true,
    status_meta: StatusMeta::Reset,
    unconditional_update: false,
    returns_deleted: true,
    ..Rules::PLAIN
};
