//! CSIDriver.

use crate::json::Json;
use crate::rules::Rules;

pub(crate) static RULES: Rules = Rules {
    generation: &["spec"],
    first_generation: None,
    unconditional_update: false,
    returns_deleted: true,
    default: |object| {
        let spec = object.ensure("spec");
        spec.fill("attachRequired", true);
        spec.fill("podInfoOnMount", false);
        spec.fill("storageCapacity", false);
        spec.fill("requiresRepublish", false);
        spec.fill("seLinuxMount", false);
        spec.fill_text("fsGroupPolicy", "ReadWriteOnceWithFSType");
        if spec.list("volumeLifecycleModes").is_empty() {
            spec.put("volumeLifecycleModes", vec!["Persistent"]);
        }
    },
    ..Rules::PLAIN
};
