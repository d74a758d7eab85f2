//! CSIDriver.

use generic_server::registry::strategy::MetadataRules;
use machinery::FieldPath;
use serde_json::Value;

use crate::deps::KindFeatures;
use crate::errors::Errors;
use crate::json::{Json, same};
use crate::rules::Rules;
use crate::unique::Seen;

pub(crate) static RULES: Rules = Rules {
    metadata: MetadataRules::CREATE,
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
        spec.fill("fsGroupPolicy", "ReadWriteOnceWithFSType");
        if spec.list("volumeLifecycleModes").is_empty() {
            spec.put("volumeLifecycleModes", vec!["Persistent"]);
        }
    },
    drop_disabled,
    warnings: |object, old| {
        let requests = object.dig("spec.tokenRequests");
        let asked = !object.list("spec.tokenRequests").is_empty();
        let changed = old.is_null() || !same(requests, old.dig("spec.tokenRequests"));
        match asked && changed && !object.has("spec.serviceAccountTokenInSecrets") {
            true => vec![IN_SECRETS_UNSET.to_string()],
            false => Vec::new(),
        }
    },
    validate,
    validate_update: |errors, object, old| {
        validate(errors, object);
        let path = FieldPath::new("spec");
        let (spec, before) = (object.dig("spec"), old.dig("spec"));
        if spec.dig("attachRequired") != before.dig("attachRequired") {
            // Upstream's name of the field.
            let at = path.child("attachedRequired");
            errors.invalid_value(&at, spec.dig("attachRequired"), crate::errors::IMMUTABLE);
        }
        errors.immutable(&path, "volumeLifecycleModes", spec, before);
    },
    ..Rules::PLAIN
};

/// The bounds of how long a token holds that the kubelet asks for, in seconds.
const TOKEN_SECONDS: (i64, i64) = (600, 1 << 32);

const IN_SECRETS_UNSET: &str = "spec.serviceAccountTokenInSecrets is unset; if supported by this CSI driver, set to true to prevent possible logging of tokens in volume attributes";

/// Scheduling does not look at drivers that are missing.
fn drop_disabled(_: KindFeatures, object: &mut Value, old: &Value) {
    if !old.has("spec.preventPodSchedulingIfMissing") {
        object.ensure("spec").take_key("preventPodSchedulingIfMissing");
    }
}

fn validate(errors: &mut Errors, object: &Value) {
    let path = FieldPath::new("spec");
    let spec = object.dig("spec");
    errors.one_of(
        &path.child("fsGroupPolicy"),
        spec.text("fsGroupPolicy"),
        &["File", "None", "ReadWriteOnceWithFSType"],
    );
    token_requests(errors, &path.child("tokenRequests"), spec.list("tokenRequests"));
    for mode in spec.strings("volumeLifecycleModes") {
        errors.one_of(
            &path.child("volumeLifecycleModes"),
            mode,
            &["Persistent", "Ephemeral"],
        );
    }
    let period = spec.int("nodeAllocatableUpdatePeriodSeconds");
    if let Some(period) = period.filter(|period| *period < 10) {
        let at = path.child("nodeAllocatableUpdatePeriodSeconds");
        errors.invalid(&at, period, "must be greater than or equal to 10 seconds");
    }
    let in_secrets = "serviceAccountTokenInSecrets";
    if spec.has(in_secrets) && spec.list("tokenRequests").is_empty() {
        let text = "serviceAccountTokenInSecrets is set but no tokenRequests are specified";
        errors.invalid_value(&path.child(in_secrets), spec.dig(in_secrets), text);
    }
}

fn token_requests(errors: &mut Errors, path: &FieldPath<'_>, requests: &[Value]) {
    let mut seen = Seen::default();
    for (index, request) in requests.iter().enumerate() {
        let at = path.index(index);
        let audience = request.text("audience");
        if seen.again(audience) {
            errors.duplicate(&at.child("audience"), audience);
            continue;
        }
        let Some(seconds) = request.int("expirationSeconds") else {
            continue;
        };
        let (least, most) = TOKEN_SECONDS;
        let at = at.child("expirationSeconds");
        if seconds < least {
            errors.invalid(&at, seconds, "may not specify a duration less than 10 minutes");
        }
        if seconds > most {
            errors.invalid(
                &at,
                seconds,
                "may not specify a duration larger than 2^32 seconds",
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::groups::check::kind;

    #[track_caller]
    fn check(spec: Value, expected: &[&str]) {
        kind("csidrivers.storage.k8s.io").create(&json!({"spec": spec}), expected);
    }

    #[test]
    fn drivers_are_validated() {
        check(json!({}), &[]);
        check(
            json!({"fsGroupPolicy": "Some", "volumeLifecycleModes": ["Persistent", "Brief"]}),
            &[
                r#"spec.fsGroupPolicy: Unsupported value: "Some": supported values: "File", "None", "ReadWriteOnceWithFSType""#,
                r#"spec.volumeLifecycleModes: Unsupported value: "Brief": supported values: "Persistent", "Ephemeral""#,
            ],
        );
        check(
            json!({"tokenRequests": [{"audience": "a", "expirationSeconds": 599}, {"audience": "a"},
                {"audience": "", "expirationSeconds": 4_294_967_297_i64}]}),
            &[
                "spec.tokenRequests[0].expirationSeconds: Invalid value: 599: may not specify a duration less than 10 minutes",
                r#"spec.tokenRequests[1].audience: Duplicate value: "a""#,
                "spec.tokenRequests[2].expirationSeconds: Invalid value: 4294967297: may not specify a duration larger than 2^32 seconds",
            ],
        );
        check(
            json!({"nodeAllocatableUpdatePeriodSeconds": 9, "serviceAccountTokenInSecrets": true}),
            &[
                "spec.nodeAllocatableUpdatePeriodSeconds: Invalid value: 9: must be greater than or equal to 10 seconds",
                "spec.serviceAccountTokenInSecrets: Invalid value: true: serviceAccountTokenInSecrets is set but no tokenRequests are specified",
            ],
        );
    }

    #[test]
    fn how_a_driver_works_stays() {
        let drivers = kind("csidrivers.storage.k8s.io");
        let fixed = json!({"spec": {"attachRequired": false, "volumeLifecycleModes": ["Ephemeral"]}});
        drivers.update(
            &json!({"spec": {}}),
            &fixed,
            &[
                "spec.attachedRequired: Invalid value: false: field is immutable",
                r#"spec.volumeLifecycleModes: Invalid value: ["Ephemeral"]: field is immutable"#,
            ],
        );
        drivers.update(
            &json!({"spec": {}}),
            &json!({"spec": {"podInfoOnMount": true}}),
            &[],
        );
        drivers.defaults(
            &json!({"spec": {}}),
            &json!({"spec": {"attachRequired": true, "podInfoOnMount": false, "storageCapacity": false, "requiresRepublish": false,
                "seLinuxMount": false, "fsGroupPolicy": "ReadWriteOnceWithFSType", "volumeLifecycleModes": ["Persistent"]}}),
        );
    }

    #[test]
    fn tokens_are_better_kept_in_secrets() {
        let drivers = kind("csidrivers.storage.k8s.io");
        let requests = json!([{"audience": "a"}]);
        drivers.warnings(
            &json!({"spec": {"tokenRequests": requests}}),
            &[super::IN_SECRETS_UNSET],
        );
        let quiet = json!({"spec": {"tokenRequests": requests, "serviceAccountTokenInSecrets": true}});
        drivers.warnings(&quiet, &[]);
        let made = drivers.created(&json!({"spec": {"preventPodSchedulingIfMissing": true}}));
        assert_eq!(made["spec"].get("preventPodSchedulingIfMissing"), None);
    }
}
