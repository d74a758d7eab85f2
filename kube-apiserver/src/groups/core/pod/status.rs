//! What may be written to the status of a pod.

use std::collections::HashMap;

use machinery::names::ip::{parse_ip_sloppy, validate_ip_legacy};
use machinery::names::{dns1123_subdomain, qualified_name};
use machinery::{FieldError, FieldPath};
use serde_json::Value;

use super::claims;
use crate::errors::{Errors, IMMUTABLE};
use crate::json::Json;
use crate::unique::{Seen, first_by};

/// Conditions whose types are the system's own, which need not be qualified names.
const SYSTEM_CONDITIONS: [&str; 3] = ["PodScheduled", "Ready", "Initialized"];
const NOT_NEGATIVE: &str = "must be a non-negative integer";
/// Statuses of containers, and where the containers are.
const STATUSES: [(&str, &str); 3] = [
    ("containerStatuses", "containers"),
    ("initContainerStatuses", "initContainers"),
    ("ephemeralContainerStatuses", "ephemeralContainers"),
];
/// The longest message about the health of a resource.
const HEALTH_MESSAGE_BYTES: usize = 1024;
/// The largest number of a user or a group.
const IDS: i64 = i32::MAX as i64;

pub(super) fn validate(errors: &mut Errors, pod: &Value, old: &Value) {
    let path = FieldPath::new("status");
    let status = pod.dig("status");
    conditions(errors, &path.child("conditions"), status);
    nominated_node(errors, &path.child("nominatedNodeName"), pod, old);
    if let Some(generation) = status.int("observedGeneration").filter(|g| *g < 0) {
        errors.invalid(&path.child("observedGeneration"), generation, NOT_NEGATIVE);
    }
    if status.text("qosClass") != old.text("status.qosClass") {
        errors.invalid(&path.child("qosClass"), status.text("qosClass"), IMMUTABLE);
    }
    for (key, containers) in STATUSES {
        transitions(errors, &path.child(key), status.list(key), old, key, containers);
    }
    claims::claims(errors, &path, pod);
    addresses(errors, &path.child("podIPs"), status, old, "podIPs");
    if let Some(first) = status.list("hostIPs").first().map(|ip| ip.text("ip"))
        && first != status.text("hostIP")
    {
        let at = path.child("hostIPs");
        errors.invalid(&at.index(0).child("ip"), first, "must be equal to `hostIP`");
    }
    addresses(errors, &path.child("hostIPs"), status, old, "hostIPs");
    let os = pod.text("spec.os.name");
    for (key, containers) in STATUSES {
        let at = path.child(key);
        for (index, container) in status.list(key).iter().enumerate() {
            user(errors, &at.index(index).child("user"), container.dig("user"), os);
        }
        allocated(errors, &at, status.list(key), pod.dig("spec"), containers);
    }
}

fn conditions(errors: &mut Errors, path: &FieldPath<'_>, status: &Value) {
    for (index, condition) in status.list("conditions").iter().enumerate() {
        let at = path.index(index);
        if let Some(generation) = condition.int("observedGeneration").filter(|g| *g < 0) {
            errors.invalid(&at.child("observedGeneration"), generation, NOT_NEGATIVE);
        }
        let kind = condition.text("type");
        if !SYSTEM_CONDITIONS.contains(&kind) {
            // Upstream writes this one field as its type spells it.
            errors.text(&at.child("Type"), kind, qualified_name(kind));
        }
    }
}

fn nominated_node(errors: &mut Errors, path: &FieldPath<'_>, pod: &Value, old: &Value) {
    let name = pod.text("status.nominatedNodeName");
    if name.is_empty() || name == old.text("status.nominatedNodeName") {
        return;
    }
    errors.text(path, name, dns1123_subdomain(name));
    if !old.text("spec.nodeName").is_empty() {
        errors.forbidden(path, "may not be set on pods that are already bound to a node");
    }
}

/// Addresses of the pod or of its node: at most one of each family. Those that were there stay as they are.
fn addresses(errors: &mut Errors, path: &FieldPath<'_>, status: &Value, old: &Value, key: &str) {
    let list: Vec<&str> = status.list(key).iter().map(|ip| ip.text("ip")).collect();
    let known: Seen<&str> = old
        .dig("status")
        .list(key)
        .iter()
        .map(|ip| ip.text("ip"))
        .collect();
    for (index, ip) in list.iter().enumerate() {
        for error in validate_ip_legacy(&path.index(index), ip, |ip| known.has(ip)) {
            errors.push(error);
        }
        if errors.is_full() {
            return;
        }
    }
    if list.len() < 2 {
        return;
    }
    let broken = list.iter().position(|ip| parse_ip_sloppy(ip).is_none());
    if let Some(index) = broken {
        let text = format!(
            "failed to check for dual stack with error:invalid IP[{index}]: {}",
            list[index]
        );
        errors.push(FieldError::internal(path, text));
    }
    let fours = list
        .iter()
        .filter_map(|ip| parse_ip_sloppy(ip))
        .filter(|ip| ip.is_ipv4());
    let fours = fours.count();
    let both = broken.is_none() && fours > 0 && fours < list.len();
    if !both || list.len() > 2 {
        let text = "may specify no more than one IP for each IP family";
        errors.invalid_value(path, status.dig(key), text);
    }
}

/// Containers that have ended for good stay ended.
fn transitions(
    errors: &mut Errors,
    path: &FieldPath<'_>,
    statuses: &[Value],
    old: &Value,
    key: &str,
    containers: &str,
) {
    let spec = old.dig("spec");
    let ephemeral = containers == "ephemeralContainers";
    if !ephemeral && restarts_all(spec) {
        return;
    }
    let now = first_by(statuses, "name");
    let by_name = first_by(spec.list(containers), "name");
    for (index, before) in old.dig("status").list(key).iter().enumerate() {
        let (name, ended) = (before.text("name"), before.dig("state.terminated"));
        if ended.is_null() || now.get(name).is_none_or(|now| now.has("state.terminated")) {
            continue;
        }
        let code = ended.int("exitCode").unwrap_or_default();
        let restarts = |container: &&Value| restarts(container, spec.text("restartPolicy"), code);
        if ephemeral || !by_name.get(name).is_some_and(restarts) {
            let text = "may not be transitioned to non-terminated state";
            errors.forbidden(&path.index(index).child("state"), text);
        }
    }
}

/// Whether a rule of some container restarts all of them.
fn restarts_all(spec: &Value) -> bool {
    ["initContainers", "containers"]
        .iter()
        .flat_map(|key| spec.list(key))
        .flat_map(|container| container.list("restartPolicyRules"))
        .any(|rule| rule.text("action") == "RestartAllContainers")
}

/// Whether a container starts again after it ended with this code: its own rules come first, then its policy, then the pod's.
fn restarts(container: &Value, pod_policy: &str, code: i64) -> bool {
    let matches = |rule: &&Value| {
        let among = rule
            .list("exitCodes.values")
            .iter()
            .any(|value| value.as_i64() == Some(code));
        match rule.text("exitCodes.operator") {
            "In" => among,
            "NotIn" => !among,
            _ => false,
        }
    };
    let own = container.text("restartPolicy");
    if !own.is_empty() {
        let rule = container.list("restartPolicyRules").iter().find(matches);
        if rule.is_some_and(|rule| matches!(rule.text("action"), "Restart" | "RestartAllContainers")) {
            return true;
        }
    }
    let policy = match own {
        "Always" | "OnFailure" | "Never" => own,
        _ => pod_policy,
    };
    match policy {
        "Never" => false,
        "OnFailure" => code != 0,
        _ => true,
    }
}

/// The identity that a container runs with.
fn user(errors: &mut Errors, path: &FieldPath<'_>, user: &Value, os: &str) {
    let linux = user.dig("linux");
    let path = path.child("linux");
    match os {
        _ if linux.is_null() => {}
        "windows" => errors.forbidden(&path, "cannot be set for a windows pod"),
        "" | "linux" => {
            let mut id = |path: &FieldPath<'_>, id: Option<i64>| {
                if let Some(id) = id.filter(|id| !(0..=IDS).contains(id)) {
                    errors.invalid(path, id, format!("must be between 0 and {IDS}, inclusive"));
                }
            };
            id(&path.child("uid"), linux.int("uid"));
            id(&path.child("gid"), linux.int("gid"));
            let at = path.child("supplementalGroups");
            for (index, group) in linux.list("supplementalGroups").iter().enumerate() {
                id(&at.index(index), group.as_i64());
            }
        }
        _ => {}
    }
}

/// The health of the devices of each container; ephemeral containers have none.
fn allocated(errors: &mut Errors, path: &FieldPath<'_>, statuses: &[Value], spec: &Value, containers: &str) {
    const KEY: &str = "allocatedResourcesStatus";
    let by_name: HashMap<&str, &Value> = first_by(spec.list(containers), "name");
    // Gathered once of each container: there may be many claims and many statuses.
    let mut claims: HashMap<&str, Seen<String>> = HashMap::new();
    for (index, status) in statuses.iter().enumerate() {
        let at = path.index(index);
        let at = at.child(KEY);
        let list = status.list(KEY);
        if containers == "ephemeralContainers" {
            if !list.is_empty() {
                errors.forbidden(&at, "must not be specified in container status");
            }
            continue;
        }
        for (index, resource) in list.iter().enumerate() {
            let at = at.index(index);
            // A container that is not there is upstream's to ignore.
            if let Some(container) = by_name.get(status.text("name")) {
                let claims = claims
                    .entry(status.text("name"))
                    .or_insert_with(|| claimed(container));
                known_resource(
                    errors,
                    &at.child("name"),
                    container,
                    claims,
                    resource.text("name"),
                );
            }
            health(errors, &at.child("resources"), resource.list("resources"));
        }
    }
}

/// The claims of a container, as statuses name them.
fn claimed(container: &Value) -> Seen<String> {
    let claims = container.dig("resources").list("claims").iter();
    claims
        .map(|claim| match claim.text("request") {
            "" => claim.text("name").to_owned(),
            request => format!("{}/{request}", claim.text("name")),
        })
        .collect()
}

fn known_resource(
    errors: &mut Errors,
    path: &FieldPath<'_>,
    container: &Value,
    claims: &Seen<String>,
    name: &str,
) {
    let resources = container.dig("resources");
    if let Some(claim) = name.strip_prefix("claim:") {
        if !claims.has(claim) {
            let text = "must match one of the container's resource claims in a format 'claim:<claimName>/<request>' or 'claim:<claimName>' if request is empty";
            errors.invalid(path, name, text);
        }
    } else if resources.dig("requests").get(name).is_none() {
        let text = "must match one of the container's resource requests";
        errors.invalid(path, name, text);
    }
}

fn health(errors: &mut Errors, path: &FieldPath<'_>, resources: &[Value]) {
    let mut seen = Seen::default();
    for (index, resource) in resources.iter().enumerate() {
        let at = path.index(index);
        errors.one_of(
            &at.child("health"),
            resource.text("health"),
            &["Healthy", "Unhealthy", "Unknown"],
        );
        match resource.dig("message").as_str() {
            Some("") => errors.required(&at.child("message"), "must be non-empty if specified"),
            Some(text) if text.len() > HEALTH_MESSAGE_BYTES => {
                errors.too_long(&at.child("message"), HEALTH_MESSAGE_BYTES);
            }
            _ => {}
        }
        let id = resource.text("resourceID");
        if seen.again(id) {
            errors.duplicate(&at.child("resourceID"), id);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::groups::check::check_errors;

    #[track_caller]
    fn check(status: Value, expected: &[&str]) {
        check_in(json!({}), json!({}), status, expected);
    }

    #[track_caller]
    fn check_in(spec: Value, before: Value, status: Value, expected: &[&str]) {
        let pod = json!({"spec": spec, "status": status});
        let old = json!({"spec": pod["spec"], "status": before});
        check_errors(|errors| validate(errors, &pod, &old), expected);
    }

    #[test]
    fn types_of_conditions_are_qualified_names() {
        let of = |kind: &str| json!({"conditions": [{"type": kind, "status": "True"}]});
        for good in ["Ready", "a.b/c", "DisruptionTarget"] {
            check(of(good), &[]);
        }
        let pod = json!({"status": of("a b")});
        let found = Errors::collect(|errors| validate(errors, &pod, &json!({})));
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].field, "status.conditions[0].Type");
    }

    #[test]
    fn addresses_are_one_of_each_family() {
        let of = |ips: &[&str]| {
            let list: Vec<Value> = ips.iter().map(|ip| json!({"ip": ip})).collect();
            json!({"podIPs": list})
        };
        check(of(&["1.2.3.4"]), &[]);
        check(of(&["1.2.3.4", "fd00::1"]), &[]);
        check(
            of(&["1.2.3.4", "1.2.3.5"]),
            &[
                r#"status.podIPs: Invalid value: [{"ip":"1.2.3.4"},{"ip":"1.2.3.5"}]: may specify no more than one IP for each IP family"#,
            ],
        );
        check(
            of(&["1.2.3.4", "x"]),
            &[
                r#"status.podIPs[1]: Invalid value: "x": must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"#,
                "status.podIPs: Internal error: failed to check for dual stack with error:invalid IP[1]: x",
                r#"status.podIPs: Invalid value: [{"ip":"1.2.3.4"},{"ip":"x"}]: may specify no more than one IP for each IP family"#,
            ],
        );
        // What was there stays.
        check_in(json!({}), of(&["x"]), of(&["x"]), &[]);
        check(
            json!({"hostIP": "1.2.3.4", "hostIPs": [{"ip": "1.2.3.5"}]}),
            &[r#"status.hostIPs[0].ip: Invalid value: "1.2.3.5": must be equal to `hostIP`"#],
        );
    }

    #[test]
    fn containers_that_ended_start_again_by_their_policies() {
        let ended =
            |key: &str, code: i64| json!({key: [{"name": "c", "state": {"terminated": {"exitCode": code}}}]});
        let running = |key: &str| json!({key: [{"name": "c", "state": {"running": {}}}]});
        let spec = |pod: &str, own: Value| {
            let mut container = json!({"name": "c"});
            for (key, value) in own.as_object().into_iter().flatten() {
                container[key] = value.clone();
            }
            json!({"restartPolicy": pod, "containers": [container], "initContainers": [container]})
        };
        let rule = json!({"restartPolicy": "Never", "restartPolicyRules": [{"action": "Restart", "exitCodes": {"operator": "In", "values": [42]}}]});
        let all = json!({"restartPolicyRules": [{"action": "RestartAllContainers", "exitCodes": {"operator": "In", "values": [1]}}]});
        for key in ["containerStatuses", "initContainerStatuses"] {
            let refused =
                format!("status.{key}[0].state: Forbidden: may not be transitioned to non-terminated state");
            for (pod, own, code, allowed) in [
                ("Always", json!({}), 0, true),
                ("Never", json!({}), 1, false),
                ("OnFailure", json!({}), 1, true),
                ("OnFailure", json!({}), 0, false),
                ("Never", json!({"restartPolicy": "Always"}), 0, true),
                ("Always", json!({"restartPolicy": "Never"}), 1, false),
                ("Always", rule.clone(), 42, true),
                ("Always", rule.clone(), 41, false),
                ("Never", all.clone(), 0, true),
            ] {
                let expected: &[&str] = if allowed { &[] } else { &[&refused] };
                check_in(spec(pod, own), ended(key, code), running(key), expected);
            }
        }
        let key = "ephemeralContainerStatuses";
        check_in(
            spec("Always", json!({})),
            ended(key, 1),
            running(key),
            &[
                "status.ephemeralContainerStatuses[0].state: Forbidden: may not be transitioned to non-terminated state",
            ],
        );
    }

    #[test]
    fn users_and_the_health_of_devices_are_checked() {
        let windows = json!({"os": {"name": "windows"}});
        let user = json!({"containerStatuses": [{"name": "c", "user": {"linux": {"uid": -1, "gid": 0, "supplementalGroups": [2_147_483_648_i64]}}}]});
        let range = "must be between 0 and 2147483647, inclusive";
        check(
            user.clone(),
            &[
                &format!("status.containerStatuses[0].user.linux.uid: Invalid value: -1: {range}"),
                &format!(
                    "status.containerStatuses[0].user.linux.supplementalGroups[0]: Invalid value: 2147483648: {range}"
                ),
            ],
        );
        check_in(
            windows,
            json!({}),
            user,
            &["status.containerStatuses[0].user.linux: Forbidden: cannot be set for a windows pod"],
        );
        let spec = json!({"containers": [{"name": "c", "resources": {"requests": {"e.com/x": "1"}, "claims": [{"name": "k", "request": "r"}]}}]});
        let devices = |name: &str, health: &str| json!({"name": name, "resources": [{"resourceID": "1", "health": health}]});
        let of = |devices: Vec<Value>| json!({"containerStatuses": [{"name": "c", "allocatedResourcesStatus": devices}]});
        check_in(
            spec.clone(),
            json!({}),
            of(vec![
                devices("e.com/x", "Healthy"),
                devices("claim:k/r", "Unknown"),
            ]),
            &[],
        );
        check_in(
            spec,
            json!({}),
            of(vec![devices("claim:k", "Odd"), devices("e.com/y", "Healthy")]),
            &[
                r#"status.containerStatuses[0].allocatedResourcesStatus[0].name: Invalid value: "claim:k": must match one of the container's resource claims in a format 'claim:<claimName>/<request>' or 'claim:<claimName>' if request is empty"#,
                r#"status.containerStatuses[0].allocatedResourcesStatus[0].resources[0].health: Unsupported value: "Odd": supported values: "Healthy", "Unhealthy", "Unknown""#,
                r#"status.containerStatuses[0].allocatedResourcesStatus[1].name: Invalid value: "e.com/y": must match one of the container's resource requests"#,
            ],
        );
    }
}
