//! Containers of a pod specification: regular, init and ephemeral ones.

use machinery::names::{port_name, port_number, unix_id};
use machinery::{FieldError, FieldPath};
use serde_json::Value;

use super::env::{env, env_from};
use super::mounts::{devices, mounts};
use super::pod_context::Pod;
use super::probes::{lifecycle, probes};
use super::resources::{Claims, resources};
use super::volumes::Volumes;
use super::windows;
use super::{label, profiles};
use crate::errors::{Errors, Ratchet};
use crate::json::{Json, is_zero};
use crate::unique::{Seen, texts};

pub(super) fn validate(
    errors: &mut Errors,
    path: &FieldPath<'_>,
    spec: &Value,
    volumes: &Volumes<'_>,
    claims: &Claims<'_>,
) {
    let pod = Pod {
        spec,
        volumes,
        claims,
        grace: spec.int("terminationGracePeriodSeconds"),
        host_users: spec.dig("hostUsers").as_bool() != Some(false),
    };
    regular(errors, &path.child("containers"), &pod);
    init(errors, &path.child("initContainers"), &pod);
    ephemeral(errors, &path.child("ephemeralContainers"), &pod);
}

fn regular(errors: &mut Errors, path: &FieldPath<'_>, pod: &Pod<'_>) {
    let list = pod.spec.list("containers");
    if list.is_empty() {
        return errors.required(path, "");
    }
    let mut names = Seen::default();
    for (index, container) in list.iter().enumerate() {
        let path = path.index(index);
        common(errors, &path, container, pod);
        let name = container.text("name");
        if names.again(name) {
            errors.duplicate(&path.child("name"), name);
        }
        lifecycle(errors, &path.child("lifecycle"), container.dig("lifecycle"), pod);
        probes(errors, &path, container, pod);
        restart_policy(errors, &path, container);
    }
    host_ports(errors, path, list);
}

fn init(errors: &mut Errors, path: &FieldPath<'_>, pod: &Pod<'_>) {
    let mut names = texts(pod.spec.list("containers"), "name");
    for (index, container) in pod.spec.list("initContainers").iter().enumerate() {
        let path_of = path.index(index);
        common(errors, &path_of, container, pod);
        restart_policy(errors, &path_of, container);
        let name = container.text("name");
        // An empty name is a fault of its own, unless a regular container has none either.
        if names.has(name) || !name.is_empty() && names.again(name) {
            errors.duplicate(&path_of.child("name"), name);
        }
        host_ports(errors, path, std::slice::from_ref(container));
        let sidecar = container.text("restartPolicy") == "Always";
        if sidecar {
            lifecycle(
                errors,
                &path_of.child("lifecycle"),
                container.dig("lifecycle"),
                pod,
            );
            probes(errors, &path_of, container, pod);
        } else {
            for key in ["lifecycle", "livenessProbe", "readinessProbe", "startupProbe"] {
                if container.has(key) {
                    errors.forbidden(
                        &path_of.child(key),
                        "may not be set for init containers without restartPolicy=Always",
                    );
                }
            }
            let policies = path_of.child("resizePolicy");
            for (index, policy) in container.list("resizePolicy").iter().enumerate() {
                if policy.text("restartPolicy") == "RestartContainer" {
                    let at = policies.index(index);
                    errors.ratcheted(Ratchet::InitResize, |errors| {
                        errors.invalid(
                            &at.child("restartPolicy"),
                            "RestartContainer",
                            "must not be set to 'RestartContainer' for non-sidecar initContainers",
                        );
                    });
                }
            }
        }
    }
}

/// Fields that an ephemeral container may not have.
const NOT_EPHEMERAL: &[&str] = &[
    "ports",
    "livenessProbe",
    "readinessProbe",
    "startupProbe",
    "lifecycle",
    "resizePolicy",
    "restartPolicy",
    "restartPolicyRules",
];

fn ephemeral(errors: &mut Errors, path: &FieldPath<'_>, pod: &Pod<'_>) {
    let both = || {
        ["containers", "initContainers"]
            .into_iter()
            .flat_map(|list| pod.spec.list(list))
    };
    let others: Seen<&str> = both().map(|c| c.text("name")).collect();
    let mut names: Seen<&str> = both().map(|c| c.text("name")).collect();
    for (index, container) in pod.spec.list("ephemeralContainers").iter().enumerate() {
        let path = path.index(index);
        common(errors, &path, container, pod);
        let name = container.text("name");
        if names.again(name) {
            errors.duplicate(&path.child("name"), name);
        }
        let target = container.text("targetContainerName");
        if !target.is_empty() && !others.has(target) {
            errors.push(FieldError::not_found(
                &path.child("targetContainerName"),
                &Value::from(target),
            ));
        }
        for key in NOT_EPHEMERAL {
            if container.has(key) {
                errors.forbidden(&path.child(key), "cannot be set for an Ephemeral Container");
            }
        }
        if !is_zero(container.dig("resources")) {
            errors.forbidden(
                &path.child("resources"),
                "cannot be set for an Ephemeral Container",
            );
        }
        let mounts = path.child("volumeMounts");
        for (index, mount) in container.list("volumeMounts").iter().enumerate() {
            for key in ["subPath", "subPathExpr"] {
                if !mount.text(key).is_empty() {
                    errors.forbidden(
                        &mounts.index(index).child(key),
                        "cannot be set for an Ephemeral Container",
                    );
                }
            }
        }
        let image = container.text("image");
        if image.trim() != image {
            errors.invalid(
                &path.child("image"),
                image,
                "must not have leading or trailing whitespace",
            );
        }
    }
}

fn common(errors: &mut Errors, path: &FieldPath<'_>, container: &Value, pod: &Pod<'_>) {
    let name = container.text("name");
    if errors.need(&path.child("name"), name) {
        label(errors, &path.child("name"), name);
    }
    errors.need(&path.child("image"), container.text("image"));
    errors.required_one_of(
        &path.child("terminationMessagePolicy"),
        container.text("terminationMessagePolicy"),
        &["File", "FallbackToLogsOnError"],
    );
    ports(errors, &path.child("ports"), container.list("ports"));
    env(errors, &path.child("env"), container.list("env"));
    env_from(errors, &path.child("envFrom"), container.list("envFrom"));
    mounts(errors, &path.child("volumeMounts"), container, pod);
    devices(errors, &path.child("volumeDevices"), container, pod);
    errors.required_one_of(
        &path.child("imagePullPolicy"),
        container.text("imagePullPolicy"),
        &["Always", "IfNotPresent", "Never"],
    );
    resources(
        errors,
        &path.child("resources"),
        container.dig("resources"),
        pod.claims,
    );
    resize_policy(
        errors,
        &path.child("resizePolicy"),
        container.list("resizePolicy"),
        pod,
    );
    security_context(errors, &path.child("securityContext"), container, pod);
}

fn resize_policy(errors: &mut Errors, path: &FieldPath<'_>, list: &[Value], pod: &Pod<'_>) {
    let mut seen = Seen::default();
    for (index, policy) in list.iter().enumerate() {
        let (resource, restart) = (policy.text("resourceName"), policy.text("restartPolicy"));
        if seen.again(resource) {
            errors.duplicate(&path.index(index), resource);
        }
        errors.required_one_of(path, resource, &["cpu", "memory"]);
        errors.required_one_of(path, restart, &["NotRequired", "RestartContainer"]);
        if pod.spec.text("restartPolicy") == "Never" && restart != "NotRequired" {
            errors.invalid(
                path,
                restart,
                "must be 'NotRequired' when pod `restartPolicy` is 'Never'",
            );
        }
    }
}

fn ports(errors: &mut Errors, path: &FieldPath<'_>, list: &[Value]) {
    let mut names = Seen::default();
    for (index, port) in list.iter().enumerate() {
        let path = path.index(index);
        let name = port.text("name");
        if !name.is_empty() {
            let texts = port_name(name);
            if !texts.is_empty() {
                errors.text(&path.child("name"), name, texts);
            } else if names.again(name) {
                errors.duplicate(&path.child("name"), name);
            }
        }
        match port.int("containerPort").unwrap_or_default() {
            0 => errors.required(&path.child("containerPort"), ""),
            number => {
                for text in port_number(number) {
                    errors.invalid(&path.child("containerPort"), number, text);
                }
            }
        }
        let host = port.int("hostPort").unwrap_or_default();
        if host != 0 {
            for text in port_number(host) {
                errors.invalid(&path.child("hostPort"), host, text);
            }
        }
        errors.required_one_of(
            &path.child("protocol"),
            port.text("protocol"),
            &["SCTP", "TCP", "UDP"],
        );
    }
}

fn host_ports(errors: &mut Errors, path: &FieldPath<'_>, containers: &[Value]) {
    let mut taken = Seen::default();
    for (index, container) in containers.iter().enumerate() {
        let path = path.index(index);
        let ports = path.child("ports");
        for (index, port) in container.list("ports").iter().enumerate() {
            let host = port.int("hostPort").unwrap_or_default();
            if host == 0 {
                continue;
            }
            let (protocol, ip) = (port.text("protocol"), port.text("hostIP"));
            if taken.again((protocol, ip, host)) {
                let key = format!("{protocol}/{ip}/{host}");
                errors.duplicate(&ports.index(index).child("hostPort"), key);
            }
        }
    }
}

fn security_context(errors: &mut Errors, path: &FieldPath<'_>, container: &Value, pod: &Pod<'_>) {
    let context = container.dig("securityContext");
    if context.is_null() {
        return;
    }
    windows::options(
        errors,
        &path.child("windowsOptions"),
        context.dig("windowsOptions"),
    );
    for key in ["runAsUser", "runAsGroup"] {
        if let Some(id) = context.int(key) {
            for text in unix_id(id) {
                errors.invalid(&path.child(key), id, text);
            }
        }
    }
    if context.has("procMount") {
        let mount = context.text("procMount");
        errors.one_of(&path.child("procMount"), mount, &["Default", "Unmasked"]);
        if pod.host_users && mount == "Unmasked" {
            errors.invalid(
                &path.child("procMount"),
                mount,
                "`hostUsers` must be false to use `Unmasked`",
            );
        }
    }
    profiles::fields(errors, path, context);
    if context.dig("allowPrivilegeEscalation").as_bool() == Some(false) {
        if context.flag("privileged") {
            errors.invalid_value(
                path,
                context,
                "cannot set `allowPrivilegeEscalation` to false and `privileged` to true",
            );
        }
        if context.strings("capabilities.add").any(|c| c == "CAP_SYS_ADMIN") {
            errors.invalid_value(
                path,
                context,
                "cannot set `allowPrivilegeEscalation` to false and `capabilities.Add` CAP_SYS_ADMIN",
            );
        }
    }
}

fn restart_policy(errors: &mut Errors, path: &FieldPath<'_>, container: &Value) {
    let rules = container.list("restartPolicyRules");
    let at = path.child("restartPolicy");
    if !container.has("restartPolicy") {
        if !rules.is_empty() {
            errors.required(&at, "must specify restartPolicy when restart rules are used");
        }
    } else {
        errors.one_of(
            &at,
            container.text("restartPolicy"),
            &["Always", "Never", "OnFailure"],
        );
    }
    let at = path.child("restartPolicyRules");
    if rules.len() > 20 {
        errors.push(FieldError::too_many(&at, rules.len(), 20));
    }
    for (index, rule) in rules.iter().enumerate() {
        let at = at.index(index);
        errors.one_of(
            &at.child("action"),
            rule.text("action"),
            &["Restart", "RestartAllContainers"],
        );
        let codes = at.child("exitCodes");
        if !rule.has("exitCodes") {
            errors.required(&codes, "must be specified");
            continue;
        }
        errors.one_of(
            &codes.child("operator"),
            rule.text("exitCodes.operator"),
            &["In", "NotIn"],
        );
        let count = rule.list("exitCodes.values").len();
        if count > 255 {
            errors.push(FieldError::too_many(&codes.child("values"), count, 255));
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::groups::check::check_pod as check;

    #[test]
    fn names_are_of_one_pod() {
        let of = |name: &str| json!({"name": name, "image": "i"});
        check(
            &json!({"containers": [of("a"), of("b")], "initContainers": [of("c")]}),
            &[],
        );
        check(&json!({"containers": []}), &["spec.containers: Required value"]);
        check(
            &json!({"containers": [of("a"), of("a")], "initContainers": [of("a"), of("b"), of("b")]}),
            &[
                r#"spec.containers[1].name: Duplicate value: "a""#,
                r#"spec.initContainers[0].name: Duplicate value: "a""#,
                r#"spec.initContainers[2].name: Duplicate value: "b""#,
            ],
        );
    }

    #[test]
    fn host_ports_are_taken_once() {
        let port = |protocol: &str, host: i64| json!({"containerPort": host, "hostPort": host, "protocol": protocol});
        let of = |name: &str, ports: Value| json!({"name": name, "image": "i", "ports": ports});
        check(
            &json!({"containers": [of("a", json!([port("TCP", 80), port("UDP", 80)]))]}),
            &[],
        );
        check(
            &json!({"containers": [of("a", json!([port("TCP", 80)])), of("b", json!([port("TCP", 80)]))]}),
            &[r#"spec.containers[1].ports[0].hostPort: Duplicate value: "TCP//80""#],
        );
        check(
            &json!({"containers": [of("a", json!([port("TCP", 65_536)]))]}),
            &[
                "spec.containers[0].ports[0].containerPort: Invalid value: 65536: must be between 1 and 65535, inclusive",
                "spec.containers[0].ports[0].hostPort: Invalid value: 65536: must be between 1 and 65535, inclusive",
            ],
        );
    }

    #[test]
    fn init_containers_that_end_have_no_probes() {
        let init = |policy: Value| {
            json!({"initContainers": [{"name": "a", "image": "i", "restartPolicy": policy,
            "startupProbe": {"exec": {"command": ["x"]}}}]})
        };
        check(&init(json!("Always")), &[]);
        check(
            &init(Value::Null),
            &[
                "spec.initContainers[0].startupProbe: Forbidden: may not be set for init containers without restartPolicy=Always",
            ],
        );
    }

    #[test]
    fn privileges() {
        let context =
            |context: Value| json!({"containers": [{"name": "c", "image": "i", "securityContext": context}]});
        check(&context(json!({"allowPrivilegeEscalation": false})), &[]);
        check(
            &context(json!({"allowPrivilegeEscalation": false, "capabilities": {"add": ["CAP_SYS_ADMIN"]}})),
            &[
                r#"spec.containers[0].securityContext: Invalid value: {"allowPrivilegeEscalation":false,"capabilities":{"add":["CAP_SYS_ADMIN"]}}: cannot set `allowPrivilegeEscalation` to false and `capabilities.Add` CAP_SYS_ADMIN"#,
            ],
        );
        check(
            &context(json!({"procMount": "Unmasked"})),
            &[
                r#"spec.containers[0].securityContext.procMount: Invalid value: "Unmasked": `hostUsers` must be false to use `Unmasked`"#,
            ],
        );
        check(
            &context(json!({"runAsUser": -1})),
            &[
                "spec.containers[0].securityContext.runAsUser: Invalid value: -1: must be between 0 and 2147483647, inclusive",
            ],
        );
    }

    #[test]
    fn restart_rules_are_bounded() {
        let rules = |count: usize, values: usize| {
            let rule =
                json!({"action": "Restart", "exitCodes": {"operator": "In", "values": vec![1; values]}});
            json!({"containers": [{"name": "c", "image": "i", "restartPolicy": "Never", "restartPolicyRules": vec![rule; count]}]})
        };
        check(&rules(20, 255), &[]);
        check(
            &rules(21, 1),
            &["spec.containers[0].restartPolicyRules: Too many: 21: must have at most 20 items"],
        );
        check(
            &rules(1, 256),
            &[
                "spec.containers[0].restartPolicyRules[0].exitCodes.values: Too many: 256: must have at most 255 items",
            ],
        );
    }
}
