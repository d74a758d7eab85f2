//! How much of a capacity a request may consume of a device that several share.

use machinery::FieldPath;
use machinery::quantity::Quantity;
use serde_json::Value;

use super::device::{fits, unique};
use crate::errors::Errors;
use crate::json::Json;
use crate::quantity::amount;

/// The most values among which requests choose.
const VALUES: usize = 10;

pub(super) fn validate(errors: &mut Errors, path: &FieldPath<'_>, capacity: &Value) {
    let policy = capacity.dig("requestPolicy");
    let (values, range) = (policy.list("validValues"), policy.dig("validRange"));
    let key = match (values.is_empty(), range.is_null()) {
        (true, true) => return,
        (false, false) => {
            let text = r#"exactly one policy can be specified, cannot specify "validValues" and "validRange" at the same time"#;
            return errors.forbidden(path, text);
        }
        (false, true) => "validValues",
        (true, false) => "validRange",
    };
    let Some(standard) = amount(policy.dig("default")) else {
        return errors.required(&path.child("default"), &format!("required when {key} is defined"));
    };
    let Some(most) = amount(capacity.dig("value")) else {
        return;
    };
    match key {
        "validValues" => choice(errors, &path.child(key), values, &standard, &most),
        _ => ranged(errors, &path.child(key), range, &standard, &most),
    }
}

fn choice(errors: &mut Errors, path: &FieldPath<'_>, values: &[Value], standard: &Quantity, most: &Quantity) {
    let values: Vec<Quantity> = values.iter().filter_map(amount).collect();
    for (index, pair) in values.windows(2).enumerate() {
        if pair[0] > pair[1] {
            let text = "values must be sorted in ascending order";
            errors.invalid(&path.index(index + 1), pair[1].to_string(), text);
        }
    }
    if fits(errors, path, values.len(), VALUES) {
        for (index, value) in values.iter().enumerate() {
            if value > most {
                let text = format!("option is larger than capacity value: {most}");
                errors.invalid(&path.index(index), value.to_string(), text);
            }
        }
        let keys: Vec<String> = values.iter().map(|value| value.value().to_string()).collect();
        unique(errors, path, keys.iter().map(String::as_str));
    }
    if values.len() > VALUES || !values.contains(standard) {
        let text = "default value is not valid according to the requestPolicy";
        errors.invalid(path, standard.to_string(), text);
    }
}

fn ranged(errors: &mut Errors, path: &FieldPath<'_>, range: &Value, standard: &Quantity, most: &Quantity) {
    let at = path.child("min");
    let Some(min) = amount(range.dig("min")) else {
        return errors.required(&at, "required when validRange is defined");
    };
    if &min > most {
        errors.invalid(
            &at,
            min.to_string(),
            format!("min is larger than capacity value: {most}"),
        );
    }
    if standard < &min {
        errors.invalid(
            &at,
            standard.to_string(),
            format!("default is less than min: {min}"),
        );
    }
    let max = amount(range.dig("max"));
    if let Some(max) = &max {
        let at = path.child("max");
        if &min > max {
            errors.invalid(&at, min.to_string(), format!("min is larger than max: {max}"));
        }
        if max > most {
            let text = format!("max is larger than capacity value: {most}");
            errors.invalid(&at, max.to_string(), text);
        }
        if standard > max {
            errors.invalid(
                &at,
                standard.to_string(),
                format!("default is more than max: {max}"),
            );
        }
    }
    let Some(step) = amount(range.dig("step")) else {
        return;
    };
    let at = path.child("step");
    let one = min.value().saturating_add(step.value());
    if one > most.value() {
        let text = format!("one step {one} is larger than capacity value: {most}");
        errors.invalid(&at, step.to_string(), text);
    }
    for value in [Some(standard), max.as_ref()].into_iter().flatten() {
        let over = value.value().saturating_sub(min.value());
        // A step of nothing reaches nothing else.
        if over.checked_rem(step.value()).unwrap_or(over) != 0 {
            let text = format!("value is not a multiple of a given step ({step}) from ({min})");
            errors.invalid(&at, value.to_string(), text);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::groups::check::check_errors;

    #[test]
    fn policies_are_validated() {
        #[track_caller]
        fn check(policy: Value, expected: &[&str]) {
            let capacity = json!({"value": "10", "requestPolicy": policy});
            check_errors(
                |errors| validate(errors, &FieldPath::new("p"), &capacity),
                expected,
            );
        }
        check(json!({}), &[]);
        check(json!({"default": "1", "validValues": ["1", "2"]}), &[]);
        check(
            json!({"validValues": ["1"]}),
            &["p.default: Required value: required when validValues is defined"],
        );
        check(
            json!({"default": "3", "validValues": ["2", "1", "11"]}),
            &[
                r#"p.validValues[1]: Invalid value: "1": values must be sorted in ascending order"#,
                r#"p.validValues[2]: Invalid value: "11": option is larger than capacity value: 10"#,
                r#"p.validValues: Invalid value: "3": default value is not valid according to the requestPolicy"#,
            ],
        );
        check(
            json!({"default": "4", "validRange": {"min": "1", "max": "9", "step": "4"}}),
            &[
                r#"p.validRange.step: Invalid value: "4": value is not a multiple of a given step (4) from (1)"#,
            ],
        );
        check(
            json!({"default": "1", "validRange": {}}),
            &["p.validRange.min: Required value: required when validRange is defined"],
        );
    }
}
