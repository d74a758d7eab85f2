//! EndpointSlice.

use crate::json::Json;
use crate::rules::Rules;

pub(crate) static RULES: Rules = Rules {
    generation: &["endpoints", "ports", "addressType", "metadata.labels"],
    default: |object| {
        for port in object.list_mut("ports") {
            port.fill("name", "");
            port.fill_text("protocol", "TCP");
        }
    },
    ..Rules::PLAIN
};
