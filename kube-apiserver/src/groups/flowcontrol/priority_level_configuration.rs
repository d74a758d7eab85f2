//! PriorityLevelConfiguration.

use machinery::{FieldPath, meta};
use serde_json::Value;

use super::conditions::conditions;
use super::standard;
use crate::errors::Errors;
use crate::json::Json;
use crate::rules::{Rules, StatusMeta};

pub(crate) static RULES: Rules = Rules {
    default,
    status: true,
    status_meta: StatusMeta::Stored,
    generation: &["spec"],
    validate,
    validate_update: |errors, object, _| validate(errors, object),
    validate_status: |errors, object, _| conditions(errors, object),
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

/// The level that nothing is queued in.
const EXEMPT: &str = "exempt";
/// The most queues of a level.
const QUEUES: i64 = 10_000_000;
/// Bits of the hash that hands are dealt by (upstream's `shufflesharding.MaxHashBits`).
const HASH_BITS: u32 = 60;

fn validate(errors: &mut Errors, object: &Value) {
    let path = FieldPath::new("spec");
    let spec = object.dig("spec");
    let kind = spec.text("type");
    if (meta::name(object) == EXEMPT) != (kind == "Exempt") {
        let text = "must be 'Exempt' if and only if `name` is 'exempt'";
        errors.invalid(&path.child("type"), kind, text);
    }
    match kind {
        "Exempt" => {
            if spec.has("limited") {
                let text = "must be nil if the type is not Limited";
                errors.forbidden(&path.child("limited"), text);
            }
            shares(errors, &path.child("exempt"), spec.dig("exempt"));
        }
        "Limited" => {
            if spec.has("exempt") {
                let text = "must be nil if the type is Limited";
                errors.forbidden(&path.child("exempt"), text);
            }
            let at = path.child("limited");
            match spec.dig("limited") {
                Value::Null => errors.required(&at, "must not be empty when type is Limited"),
                limited => validate_limited(errors, &at, limited),
            }
        }
        _ => errors.unsupported(&path.child("type"), kind, &["Exempt", "Limited"]),
    }
    standard::validate(errors, "PriorityLevelConfiguration", object);
    conditions(errors, object);
}

fn shares(errors: &mut Errors, path: &FieldPath<'_>, level: &Value) {
    let key = "nominalConcurrencyShares";
    if let Some(shares) = level.int(key).filter(|shares| *shares < 0) {
        errors.invalid(&path.child(key), shares, "must be a non-negative integer");
    }
    lendable(errors, path, level);
}

fn lendable(errors: &mut Errors, path: &FieldPath<'_>, level: &Value) {
    let key = "lendablePercent";
    if let Some(percent) = level.int(key).filter(|percent| !(0..=100).contains(percent)) {
        errors.invalid(&path.child(key), percent, "must be between 0 and 100, inclusive");
    }
}

fn validate_limited(errors: &mut Errors, path: &FieldPath<'_>, limited: &Value) {
    let key = "nominalConcurrencyShares";
    if let Some(shares) = limited.int(key).filter(|shares| *shares < 0) {
        errors.invalid(&path.child(key), shares, "must be a non-negative integer");
    }
    let response = limited.dig("limitResponse");
    let at = path.child("limitResponse");
    match (response.text("type"), response.dig("queuing")) {
        ("Reject", Value::Null) => {}
        ("Reject", _) => errors.forbidden(
            &at.child("queuing"),
            "must be nil if limited.limitResponse.type is not Limited",
        ),
        ("Queue", Value::Null) => errors.required(
            &at.child("queuing"),
            "must not be empty if limited.limitResponse.type is Limited",
        ),
        ("Queue", queuing) => validate_queuing(errors, &at.child("queuing"), queuing),
        (other, _) => errors.unsupported(&at.child("type"), other, &["Queue", "Reject"]),
    }
    lendable(errors, path, limited);
    let key = "borrowingLimitPercent";
    if let Some(percent) = limited.int(key).filter(|percent| *percent < 0) {
        errors.invalid(
            &path.child(key),
            percent,
            "if specified, must be a non-negative integer",
        );
    }
}

fn validate_queuing(errors: &mut Errors, path: &FieldPath<'_>, queuing: &Value) {
    let number = |key: &str| queuing.int(key).unwrap_or_default();
    let (length, queues, hand) = (number("queueLengthLimit"), number("queues"), number("handSize"));
    if length <= 0 {
        errors.invalid(&path.child("queueLengthLimit"), length, "must be positive");
    }
    if queues <= 0 {
        errors.invalid(&path.child("queues"), queues, "must be positive");
    } else if queues > QUEUES {
        let text = format!("must not be greater than {QUEUES}");
        errors.invalid(&path.child("queues"), queues, text);
    }
    let at = path.child("handSize");
    if hand <= 0 {
        errors.invalid(&at, hand, "must be positive");
    } else if hand > queues {
        errors.invalid(&at, hand, format!("should not be greater than queues ({queues})"));
    } else if entropy_bits(queues, hand) > HASH_BITS {
        let text = format!(
            "required entropy bits of deckSize {queues} and handSize {hand} should not be greater than {HASH_BITS}"
        );
        errors.invalid(&at, hand, text);
    }
}

/// The bits of a hash that dealing a hand uses up: the logarithm of `queues` to the power of `hand`, rounded up. Stops where the
/// answer is clear, for any hand size.
fn entropy_bits(queues: i64, hand: i64) -> u32 {
    let queues = u128::try_from(queues).unwrap_or(1);
    let mut hands: u128 = 1;
    for _ in 0..hand {
        hands = hands.saturating_mul(queues);
        if queues == 1 || hands > 1 << HASH_BITS {
            break;
        }
    }
    hands.saturating_sub(1).checked_ilog2().map_or(0, |bits| bits + 1)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::entropy_bits;
    use crate::groups::check::kind;

    #[track_caller]
    fn check(spec: Value, expected: &[&str]) {
        kind("prioritylevelconfigurations.flowcontrol.apiserver.k8s.io")
            .create(&json!({"spec": spec}), expected);
    }

    fn queued(queuing: Value) -> Value {
        json!({"type": "Limited", "limited": {"limitResponse": {"type": "Queue", "queuing": queuing}}})
    }

    #[test]
    fn levels_are_validated() {
        check(
            json!({"type": "Limited", "limited": {"limitResponse": {"type": "Reject"}}}),
            &[],
        );
        check(queued(json!({})), &[]);
        check(
            json!({"type": "Exempt", "limited": {"limitResponse": {"type": "Reject"}}}),
            &[
                r#"spec.type: Invalid value: "Exempt": must be 'Exempt' if and only if `name` is 'exempt'"#,
                "spec.limited: Forbidden: must be nil if the type is not Limited",
            ],
        );
        check(
            json!({"type": "Limited", "exempt": {}}),
            &[
                "spec.exempt: Forbidden: must be nil if the type is Limited",
                "spec.limited: Required value: must not be empty when type is Limited",
            ],
        );
        check(
            json!({"type": "Some"}),
            &[r#"spec.type: Unsupported value: "Some": supported values: "Exempt", "Limited""#],
        );
        check(
            json!({"type": "Limited", "limited": {"nominalConcurrencyShares": -1, "lendablePercent": 101, "borrowingLimitPercent": -1,
                "limitResponse": {"type": "Queue"}}}),
            &[
                "spec.limited.nominalConcurrencyShares: Invalid value: -1: must be a non-negative integer",
                "spec.limited.limitResponse.queuing: Required value: must not be empty if limited.limitResponse.type is Limited",
                "spec.limited.lendablePercent: Invalid value: 101: must be between 0 and 100, inclusive",
                "spec.limited.borrowingLimitPercent: Invalid value: -1: if specified, must be a non-negative integer",
            ],
        );
    }

    #[test]
    fn hands_can_be_dealt() {
        let at = "spec.limited.limitResponse.queuing";
        check(
            queued(json!({"queues": 4, "handSize": 5, "queueLengthLimit": -1})),
            &[
                &format!("{at}.queueLengthLimit: Invalid value: -1: must be positive"),
                &format!("{at}.handSize: Invalid value: 5: should not be greater than queues (4)"),
            ],
        );
        check(
            queued(json!({"queues": 10_000_001, "handSize": 1})),
            &[&format!(
                "{at}.queues: Invalid value: 10000001: must not be greater than 10000000"
            )],
        );
        check(
            queued(json!({"queues": 512, "handSize": 8})),
            &[&format!(
                "{at}.handSize: Invalid value: 8: required entropy bits of deckSize 512 and handSize 8 should not be greater than 60"
            )],
        );
        assert_eq!(
            [
                entropy_bits(1, 1),
                entropy_bits(2, 1),
                entropy_bits(64, 8),
                entropy_bits(3, 3)
            ],
            [0, 1, 48, 5]
        );
    }

    #[test]
    fn levels_have_defaults() {
        kind("prioritylevelconfigurations.flowcontrol.apiserver.k8s.io").defaults(
            &json!({"spec": queued(json!({}))}),
            &json!({"spec": {"limited": {"nominalConcurrencyShares": 30, "lendablePercent": 0,
                "limitResponse": {"queuing": {"handSize": 8, "queues": 64, "queueLengthLimit": 50}}}}}),
        );
    }
}
