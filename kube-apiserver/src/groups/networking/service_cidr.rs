//! ServiceCIDR.

use generic_server::registry::strategy::MetadataRules;
use machinery::FieldPath;
use machinery::names::ip::{parse_cidr_sloppy, validate_cidr};
use serde_json::Value;

use crate::errors::{Errors, IMMUTABLE};
use crate::json::Json;
use crate::rules::{Rules, StatusMeta};

pub(crate) static RULES: Rules = Rules {
    metadata: MetadataRules::CREATE,
    status: true,
    status_meta: StatusMeta::Reset,
    validate,
    validate_update,
    ..Rules::PLAIN
};

fn validate(errors: &mut Errors, object: &Value) {
    let path = FieldPath::new("spec.cidrs");
    let list: Vec<&str> = object.strings("spec.cidrs").collect();
    if list.is_empty() {
        return errors.required(&path, "at least one CIDR required");
    }
    if list.len() > 2 {
        return errors.invalid_value(&path, object.dig("spec"), "may only hold up to 2 values");
    }
    for (index, cidr) in list.iter().enumerate() {
        for error in validate_cidr(&path.index(index), cidr) {
            errors.push(error);
        }
    }
    let families: Vec<bool> = list
        .iter()
        .filter_map(|cidr| parse_cidr_sloppy(cidr))
        .map(|cidr| cidr.ip.is_ipv4())
        .collect();
    if matches!(families[..], [first, second] if first == second) {
        let text = "may specify no more than one IP for each IP family, i.e 192.168.0.0/24 and 2001:db8::/64";
        errors.invalid_value(&path, object.dig("spec.cidrs"), text);
    }
}

/// A range stays; a second one, of the other family, may be added.
fn validate_update(errors: &mut Errors, object: &Value, old: &Value) {
    let path = FieldPath::new("spec.cidrs");
    let new: Vec<&str> = object.strings("spec.cidrs").collect();
    let before: Vec<&str> = old.strings("spec.cidrs").collect();
    let added = (before.len(), new.len()) == (1, 2);
    if new.len() != before.len() && !added {
        return errors.invalid_value(&path, object.dig("spec.cidrs"), IMMUTABLE);
    }
    for (index, (new, before)) in new.iter().zip(&before).enumerate() {
        if new != before {
            errors.invalid(&path.index(index), *new, IMMUTABLE);
        }
    }
    if added {
        validate(errors, object);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::groups::check::kind;

    #[track_caller]
    fn check(cidrs: Value, expected: &[&str]) {
        kind("servicecidrs.networking.k8s.io").create(&json!({"spec": {"cidrs": cidrs}}), expected);
    }

    #[test]
    fn a_range_of_each_family() {
        check(json!(["10.1.0.0/16", "fd00::/112"]), &[]);
        check(
            json!([]),
            &["spec.cidrs: Required value: at least one CIDR required"],
        );
        let twice = json!(["10.1.0.0/16", "10.2.0.0/16"]);
        check(
            twice,
            &[
                r#"spec.cidrs: Invalid value: ["10.1.0.0/16","10.2.0.0/16"]: may specify no more than one IP for each IP family, i.e 192.168.0.0/24 and 2001:db8::/64"#,
            ],
        );
        let cidrs = kind("servicecidrs.networking.k8s.io");
        let one = json!({"spec": {"cidrs": ["10.1.0.0/16"]}});
        cidrs.update(
            &one,
            &json!({"spec": {"cidrs": ["10.1.0.0/16", "fd00::/112"]}}),
            &[],
        );
        cidrs.update(
            &one,
            &json!({"spec": {"cidrs": ["10.3.0.0/16"]}}),
            &[r#"spec.cidrs[0]: Invalid value: "10.3.0.0/16": field is immutable"#],
        );
    }
}
