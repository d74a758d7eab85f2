//! Containers of a pod specification: regular, init and ephemeral ones.

use machinery::names::{port_name, port_number, unix_id};
use machinery::{FieldError, FieldPath};
use serde_json::Value;

use super::env::{env, env_from};
use super::mounts::{devices, mounts};
use super::probes::{lifecycle, probes};
use super::resources::{Claims, resize_policy, resources};
use super::volumes::Volumes;
use super::{Whose, label, profiles};
use crate::errors::Errors;
use crate::json::Json;
use crate::unique::{Seen, texts};

/// What the checks of a container ask of its pod.
pub(super) struct Pod<'a> {
    pub(super) spec: &'a Value,
    pub(super) volumes: &'a Volumes<'a>,
    pub(super) claims: &'a Claims<'a>,
    pub(super) grace: Option<i64>,
    pub(super) host_users: bool,
}

pub(super) fn validate(
    errors: &mut Errors,
    path: &FieldPath<'_>,
    spec: &Value,
    volumes: &Volumes<'_>,
    claims: &Claims<'_>,
    _whose: Whose<'_>,
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
    host_ports(errors, path, list, 0);
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
        host_ports(errors, path, std::slice::from_ref(container), 0);
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
                    errors.invalid(
                        &policies.index(index).child("restartPolicy"),
                        "RestartContainer",
                        "must not be set to 'RestartContainer' for non-sidecar initContainers",
                    );
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
        if !crate::json::same(container.dig("resources"), &Value::Null) {
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

fn host_ports(errors: &mut Errors, path: &FieldPath<'_>, containers: &[Value], first: usize) {
    let mut taken = Seen::default();
    for (index, container) in containers.iter().enumerate() {
        let path = path.index(first + index);
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
    profiles(errors, path, context);
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
