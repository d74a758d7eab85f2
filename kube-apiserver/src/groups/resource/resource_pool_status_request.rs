//! ResourcePoolStatusRequest: a question about the pools of a driver, which the controller manager answers once.

use machinery::names::conditions::validate_conditions;
use machinery::names::{dns1123_subdomain, dns1123_subdomain_caseless};
use machinery::{FieldError, FieldPath};
use serde_json::Value;

use crate::errors::{Errors, IMMUTABLE};
use crate::json::{Json, same};
use crate::rules::{Rules, StatusMeta};
use crate::unique::Seen;

pub(crate) static RULES: Rules = Rules {
    // A status that is there is an answer: none is made for those that have none.
    status: true,
    created_with_status: true,
    status_meta: StatusMeta::Reset,
    unconditional_update: false,
    default: |object| object.ensure("spec").fill("limit", POOLS_SHOWN),
    prepare_create: |_, object| {
        object.take_key("status");
    },
    validate: |errors, object| {
        let (path, spec) = (FieldPath::new("spec"), object.dig("spec"));
        driver(errors, &path.child("driver"), spec.text("driver"));
        if spec.has("poolName") {
            pool(errors, &path.child("poolName"), spec.text("poolName"));
        }
        let at = path.child("limit");
        match spec.int("limit").unwrap_or(POOLS_SHOWN) {
            low if low < 1 => errors.invalid(&at, low, "must be greater than or equal to 1"),
            high if high > POOLS_MOST => {
                errors.invalid(&at, high, format!("must be less than or equal to {POOLS_MOST}"));
            }
            _ => {}
        }
    },
    validate_update: |errors, object, old| {
        if !same(object.dig("spec"), old.dig("spec")) {
            errors.invalid(&FieldPath::new("spec"), Value::Null, IMMUTABLE);
        }
    },
    validate_status,
    ..Rules::PLAIN
};

/// How many pools are shown, by default and at most. Upstream's.
const POOLS_SHOWN: i64 = 100;
const POOLS_MOST: i64 = 1000;
const POOLS: usize = 1000;
/// The most conditions. Upstream's.
const CONDITIONS: usize = 10;
/// How long the name of a pool and the text of an error may be.
const POOL_NAME_BYTES: usize = 253;
const ERROR_BYTES: usize = 256;
/// How many pools an error shows.
const SHOWN: usize = 10;

fn driver(errors: &mut Errors, path: &FieldPath<'_>, name: &str) {
    if errors.need(path, name) {
        errors.text(path, name, dns1123_subdomain_caseless(name));
    }
}

/// The name of a pool, in the words of declarative validation.
fn pool(errors: &mut Errors, path: &FieldPath<'_>, name: &str) {
    if name.len() > POOL_NAME_BYTES {
        errors.too_long(path, POOL_NAME_BYTES);
    }
    for (index, part) in name.split('/').enumerate() {
        if part.is_empty() {
            errors.invalid(path, name, format!("segment {index}: must not be empty"));
            continue;
        }
        for text in dns1123_subdomain(part) {
            errors.invalid(path, part, format!("segment {index}: {text}"));
        }
    }
}

fn at_least(errors: &mut Errors, path: &FieldPath<'_>, value: Option<i64>, least: i64) {
    if let Some(value) = value.filter(|value| *value < least) {
        errors.invalid(path, value, format!("must be greater than or equal to {least}"));
    }
}

fn validate_status(errors: &mut Errors, object: &Value, old: &Value) {
    let (path, status) = (FieldPath::new("status"), object.dig("status"));
    if old.has("status") {
        if !same(status, old.dig("status")) {
            let error = FieldError::invalid(&path, &Value::Null, IMMUTABLE);
            errors.shown(error, shown(status));
        }
        return;
    }
    if !object.has("status") {
        return;
    }
    let (at, conditions) = (path.child("conditions"), status.list("conditions"));
    for error in validate_conditions(conditions, &at) {
        errors.push(error);
    }
    match status.has("poolCount") {
        true => at_least(errors, &path.child("poolCount"), status.int("poolCount"), 0),
        false => errors.required(&path.child("poolCount"), ""),
    }
    let (pools_at, pools) = (path.child("pools"), status.list("pools"));
    if pools.len() > POOLS {
        errors.push(FieldError::too_many(&pools_at, pools.len(), POOLS));
    } else {
        for (index, one) in pools.iter().enumerate() {
            pool_status(errors, &pools_at.index(index), one);
        }
    }
    if conditions.len() > CONDITIONS {
        return errors.push(FieldError::too_many(&at, conditions.len(), CONDITIONS));
    }
    let mut types = Seen::default();
    for (index, condition) in conditions.iter().enumerate() {
        if types.again(condition.text("type")) {
            errors.duplicate(&at.index(index), condition.clone());
        }
    }
}

/// A status as upstream prints it: structs with the names of their fields in Go.
fn shown(status: &Value) -> String {
    let or_null = |value: &Value, key: &str| value.dig(key).to_string();
    let pools = status.list("pools").iter().take(SHOWN).map(|pool| {
        format!(
            r#"{{"Driver":{},"PoolName":{},"Generation":{},"ResourceSliceCount":{},"TotalDevices":{},"AllocatedDevices":{},"AvailableDevices":{},"UnavailableDevices":{},"NodeName":{},"ValidationError":{}}}"#,
            or_null(pool, "driver"),
            or_null(pool, "poolName"),
            pool.int("generation").unwrap_or_default(),
            or_null(pool, "resourceSliceCount"),
            or_null(pool, "totalDevices"),
            or_null(pool, "allocatedDevices"),
            or_null(pool, "availableDevices"),
            or_null(pool, "unavailableDevices"),
            or_null(pool, "nodeName"),
            or_null(pool, "validationError"),
        )
    });
    let pools: Vec<String> = pools.collect();
    let pools = match status.has("pools") {
        true => format!("[{}]", pools.join(",")),
        false => "null".to_owned(),
    };
    let (count, conditions) = (or_null(status, "poolCount"), or_null(status, "conditions"));
    format!(r#"{{"PoolCount":{count},"Pools":{pools},"Conditions":{conditions}}}"#)
}

fn pool_status(errors: &mut Errors, path: &FieldPath<'_>, one: &Value) {
    driver(errors, &path.child("driver"), one.text("driver"));
    let name = one.text("poolName");
    if errors.need(&path.child("poolName"), name) {
        pool(errors, &path.child("poolName"), name);
    }
    match one.int("generation").unwrap_or_default() {
        0 => errors.required(&path.child("generation"), ""),
        generation => at_least(errors, &path.child("generation"), Some(generation), 0),
    }
    for (key, least) in [
        ("resourceSliceCount", 1),
        ("totalDevices", 0),
        ("allocatedDevices", 0),
        ("availableDevices", 0),
        ("unavailableDevices", 0),
    ] {
        at_least(errors, &path.child(key), one.int(key), least);
    }
    if one.has("nodeName") {
        let node = one.text("nodeName");
        errors.text(&path.child("nodeName"), node, dns1123_subdomain(node));
    }
    if one.text("validationError").len() > ERROR_BYTES {
        errors.too_long(&path.child("validationError"), ERROR_BYTES);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::groups::check::{kind, with_spec};

    const RESOURCE: &str = "resourcepoolstatusrequests.resource.k8s.io";

    fn request(over: &Value) -> Value {
        with_spec(json!({"spec": {"driver": "gpu.example.com"}}), over)
    }

    #[track_caller]
    fn check(over: Value, expected: &[&str]) {
        kind(RESOURCE).create(&request(&over), expected);
    }

    #[test]
    fn requests_are_validated() {
        for good in [
            json!({}),
            json!({"limit": 1}),
            json!({"limit": 1000}),
            json!({"poolName": "a/b.c"}),
            json!({"driver": "GPU.example.com"}),
        ] {
            check(good, &[]);
        }
        check(json!({"driver": ""}), &["spec.driver: Required value"]);
        check(
            json!({"limit": 0}),
            &["spec.limit: Invalid value: 0: must be greater than or equal to 1"],
        );
        check(
            json!({"limit": 1001}),
            &["spec.limit: Invalid value: 1001: must be less than or equal to 1000"],
        );
        check(
            json!({"poolName": "a//b"}),
            &[r#"spec.poolName: Invalid value: "a//b": segment 1: must not be empty"#],
        );
    }

    #[test]
    fn a_request_has_no_status_until_it_is_answered() {
        let requests = kind(RESOURCE);
        let mut asked = request(&json!({}));
        asked["status"] = json!({"poolCount": 1});
        let made = requests.created(&asked);
        assert!(made.get("status").is_none());
        assert_eq!(made["spec"]["limit"], 100);
        requests.update(
            &request(&json!({})),
            &json!({"spec": {"limit": 5}}),
            &["spec: Invalid value: null: field is immutable"],
        );
    }

    #[test]
    fn an_answer_is_validated_and_stays() {
        let errors = |status: Value, old: Value| -> Vec<String> {
            let (object, old) = (json!({"status": status}), json!({"status": old}));
            let found = Errors::collect(|errors| validate_status(errors, &object, &old));
            found.iter().map(ToString::to_string).collect()
        };
        let pool = json!({"driver": "a.b", "poolName": "p", "generation": 1});
        let answer = json!({"poolCount": 1, "pools": [pool]});
        assert!(errors(answer.clone(), Value::Null).is_empty());
        assert!(errors(answer.clone(), answer.clone()).is_empty());
        assert_eq!(
            errors(json!({"poolCount": 2}), answer),
            [r#"status: Invalid value: {"PoolCount":2,"Pools":null,"Conditions":null}: field is immutable"#]
        );
        assert_eq!(
            errors(json!({}), Value::Null),
            ["status.poolCount: Required value"]
        );
        let odd = json!({"driver": "", "poolName": "", "generation": 0, "resourceSliceCount": 0, "totalDevices": -1,
            "nodeName": "-", "validationError": "x".repeat(257)});
        let found = errors(json!({"poolCount": -1, "pools": [odd]}), Value::Null);
        let fields: Vec<&str> = found.iter().filter_map(|text| text.split(": ").next()).collect();
        assert_eq!(
            fields,
            [
                "status.poolCount",
                "status.pools[0].driver",
                "status.pools[0].poolName",
                "status.pools[0].generation",
                "status.pools[0].resourceSliceCount",
                "status.pools[0].totalDevices",
                "status.pools[0].nodeName",
                "status.pools[0].validationError",
            ]
        );
        let many = errors(json!({"poolCount": 1, "pools": vec![pool; 1001]}), Value::Null);
        assert_eq!(
            many,
            ["status.pools: Too many: 1001: must have at most 1000 items"]
        );
    }
}
