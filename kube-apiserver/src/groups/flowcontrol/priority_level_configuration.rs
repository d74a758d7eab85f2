//! PriorityLevelConfiguration.

use serde_json::Value;

use crate::json::Json;
use crate::rules::{Rules, StatusMeta};

pub(crate) static RULES: Rules = Rules {
    default,
    status: true,
    status_meta: StatusMeta::Reset,
    generation: &["spec"],
    ..Rules::PLAIN
};

fn default(object: &mut Value) {
    let spec = object.ensure("spec");
    for (kind, shares) in [("exempt", 0), ("limited", 30)] {
        if spec.has(kind) {
            let level = spec.ensure(kind);
            level.fill("nominalConcurrencyShares", shares);
            level.fill("lendablePercent", 0);
        }
    }
    if !spec.dig("limited.limitResponse.queuing").is_null() {
        let queuing = spec.ensure("limited").ensure("limitResponse").ensure("queuing");
        for (key, value) in [("handSize", 8), ("queues", 64), ("queueLengthLimit", 50)] {
            if queuing.int(key).unwrap_or_default() == 0 {
                queuing.put(key, value);
            }
        }
    }
}
