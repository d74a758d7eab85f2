//! The pod specification, as pods have it and as templates do: its defaults and what must hold of it.

use machinery::names::ip::validate_ip_legacy;
use machinery::names::object_meta::validate_labels;
use machinery::names::{dns1123_label, dns1123_subdomain, in_range, unix_id};
use machinery::{FieldPath, Map};
use serde_json::Value;

use crate::errors::{Errors, Ratchet};
use crate::json::Json;
use crate::unique::Seen;

mod containers;
mod defaults;
mod disabled;
mod env;
mod mounts;
mod paths;
mod pod_context;
mod probes;
pub(crate) mod profiles;
mod projections;
mod resources;
mod scheduling;
mod template_metadata;
mod volumes;
mod warnings;
mod windows;

pub(crate) use defaults::{default_pod, default_spec};
pub(crate) use disabled::drop_disabled_at;
pub(crate) use paths::no_backsteps;
pub(crate) use resources::{Claims, resources};
pub(crate) use scheduling::{node_selector, taint_effect, tolerations};
pub(crate) use template_metadata::template_metadata;
pub(crate) use volumes::{csi_driver, expiration, one as volume_source, shown_source};
pub(crate) use warnings::{claim_fractions, warnings};

/// The lists of containers, in the order in which upstream visits them.
const CONTAINERS: [&str; 3] = ["initContainers", "containers", "ephemeralContainers"];

/// Visits containers of all kinds.
fn each_container(path: &FieldPath<'_>, spec: &Value, mut visit: impl FnMut(&FieldPath<'_>, &Value)) {
    for list in CONTAINERS {
        let at = path.child(list);
        for (index, container) in spec.list(list).iter().enumerate() {
            visit(&at.index(index), container);
        }
    }
}

/// The object that a pod specification belongs to.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct SpecOwner<'a> {
    /// A pod itself, not a template.
    pub(crate) pod: bool,
    /// The pod's name, where it is known.
    pub(crate) name: &'a str,
}

/// Checks a pod specification at `path`.
pub(crate) fn validate(errors: &mut Errors, path: &FieldPath<'_>, spec: &Value, owner: SpecOwner<'_>) {
    let volumes = volumes::validate(errors, &path.child("volumes"), spec.list("volumes"), owner);
    let claims = scheduling::resource_claims(errors, &path.child("resourceClaims"), spec);
    containers::validate(errors, path, spec, &volumes, &claims);
    if spec.has("resources") {
        resources::of_pod(errors, &path.child("resources"), spec, &claims);
    }
    host_network(errors, &path.child("containers"), spec, owner);
    errors.required_one_of(
        &path.child("restartPolicy"),
        spec.text("restartPolicy"),
        &["Always", "OnFailure", "Never"],
    );
    errors.required_one_of(
        &path.child("dnsPolicy"),
        spec.text("dnsPolicy"),
        &["ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"],
    );
    if let Some(labels) = spec.object_at("nodeSelector") {
        labels_at(errors, &path.child("nodeSelector"), labels);
    }
    security_context(errors, &path.child("securityContext"), spec);
    windows::host_process(errors, path, spec);
    scheduling::affinity(errors, &path.child("affinity"), spec.dig("affinity"));
    dns_config(errors, &path.child("dnsConfig"), spec);
    scheduling::gates(errors, path, spec);
    scheduling::spread(
        errors,
        &path.child("topologySpreadConstraints"),
        spec.list("topologySpreadConstraints"),
    );
    host_users(errors, path, spec);
    hostname_override(errors, &path.child("hostnameOverride"), spec);
    name(errors, path, spec, "serviceAccountName");
    name(errors, path, spec, "nodeName");
    if let Some(seconds) = spec.int("activeDeadlineSeconds") {
        for text in in_range(seconds, 1, i64::from(i32::MAX)) {
            errors.invalid(&path.child("activeDeadlineSeconds"), seconds, text);
        }
    }
    for key in ["hostname", "subdomain"] {
        let text = spec.text(key);
        if !text.is_empty() {
            label(errors, &path.child(key), text);
        }
    }
    tolerations(errors, &path.child("tolerations"), spec.list("tolerations"));
    let aliases = path.child("hostAliases");
    for (index, alias) in spec.list("hostAliases").iter().enumerate() {
        let path = aliases.index(index);
        ip(errors, &path.child("ip"), alias.text("ip"));
        let names = path.child("hostnames");
        for (index, host) in alias.strings("hostnames").enumerate() {
            errors.text(&names.index(index), host, dns1123_subdomain(host));
        }
    }
    name(errors, path, spec, "priorityClassName");
    if let Some(class) = spec.dig("runtimeClassName").as_str() {
        errors.text(&path.child("runtimeClassName"), class, dns1123_subdomain(class));
    }
    if spec.has("preemptionPolicy") {
        errors.required_one_of(
            &path.child("preemptionPolicy"),
            spec.text("preemptionPolicy"),
            &["PreemptLowerPriority", "Never"],
        );
    }
    if spec.has("overhead") {
        let overhead = serde_json::json!({"limits": spec.dig("overhead")});
        resources(errors, &path.child("overhead"), &overhead, &Claims::default());
    }
    if spec.has("os") {
        windows::operating_system(errors, path, spec);
    }
    if spec.has("schedulingGroup") {
        scheduling::group(
            errors,
            &path.child("schedulingGroup"),
            spec.dig("schedulingGroup"),
        );
    }
    env::file_volumes(errors, path, spec);
}

/// A DNS label.
pub(crate) fn label(errors: &mut Errors, path: &FieldPath<'_>, text: &str) {
    errors.text(path, text, dns1123_label(text));
}

/// An address of a field that was once lax.
pub(crate) fn ip(errors: &mut Errors, path: &FieldPath<'_>, text: &str) {
    for error in validate_ip_legacy(path, text, |_| false) {
        errors.push(error);
    }
}

pub(crate) fn labels_at(errors: &mut Errors, path: &FieldPath<'_>, labels: &Map<String, Value>) {
    for error in validate_labels(labels, path) {
        errors.push(error);
    }
}

fn name(errors: &mut Errors, path: &FieldPath<'_>, spec: &Value, key: &str) {
    let text = spec.text(key);
    if !text.is_empty() {
        errors.text(&path.child(key), text, dns1123_subdomain(text));
    }
}

fn host_network(errors: &mut Errors, path: &FieldPath<'_>, spec: &Value, owner: SpecOwner<'_>) {
    if !spec.flag("hostNetwork") {
        return;
    }
    for (index, container) in spec.list("containers").iter().enumerate() {
        let path = path.index(index);
        let ports = path.child("ports");
        for (index, port) in container.list("ports").iter().enumerate() {
            let host = port.int("hostPort").unwrap_or_default();
            let own = port.int("containerPort").unwrap_or_default();
            if (owner.pod || host != 0) && host != own {
                errors.invalid(
                    &ports.index(index).child("hostPort"),
                    host,
                    "must match `containerPort` when `hostNetwork` is true",
                );
            }
        }
    }
}

fn host_users(errors: &mut Errors, path: &FieldPath<'_>, spec: &Value) {
    if spec.dig("hostUsers").as_bool() != Some(false) {
        return;
    }
    for (key, name) in [
        ("hostNetwork", "hostNetwork"),
        ("hostPID", "HostPID"),
        ("hostIPC", "HostIPC"),
    ] {
        if spec.flag(key) {
            errors.forbidden(&path.child(name), "when `hostUsers` is false");
        }
    }
    errors.ratcheted(Ratchet::UserNamespaceDevices, |errors| {
        each_container(path, spec, |at, container| {
            if !container.list("volumeDevices").is_empty() {
                errors.forbidden(&at.child("volumeDevices"), "when `hostUsers` is false");
            }
        });
    });
}

fn hostname_override(errors: &mut Errors, path: &FieldPath<'_>, spec: &Value) {
    let Some(name) = spec.dig("hostnameOverride").as_str() else {
        return;
    };
    if spec.flag("setHostnameAsFQDN") {
        errors.forbidden(path, "may not be specified when setHostnameAsFQDN is true");
    }
    if spec.flag("hostNetwork") {
        errors.forbidden(path, "may not be specified when hostNetwork is true");
    }
    if name.len() > 64 {
        errors.too_long(path, 64);
    }
    errors.text(path, name, dns1123_subdomain(name));
}

fn dns_config(errors: &mut Errors, path: &FieldPath<'_>, spec: &Value) {
    let config = spec.dig("dnsConfig");
    let servers = path.child("nameservers");
    if spec.text("dnsPolicy") == "None" {
        if config.is_null() {
            return errors.required(path, "must provide `dnsConfig` when `dnsPolicy` is None");
        }
        if config.list("nameservers").is_empty() {
            let text = "must provide at least one DNS nameserver when `dnsPolicy` is None";
            return errors.required(&servers, text);
        }
    }
    if config.is_null() {
        return;
    }
    if config.list("nameservers").len() > 3 {
        errors.invalid_value(
            &servers,
            config.dig("nameservers"),
            "must not have more than 3 nameservers",
        );
    }
    for (index, server) in config.strings("nameservers").enumerate() {
        ip(errors, &servers.index(index), server);
    }
    let searches = path.child("searches");
    let list: Vec<&str> = config.strings("searches").collect();
    if list.len() > 32 {
        errors.invalid_value(
            &searches,
            config.dig("searches"),
            "must not have more than 32 search paths",
        );
    }
    if list.join(" ").len() > 2048 {
        errors.invalid_value(
            &searches,
            config.dig("searches"),
            "must not have more than 2048 characters (including spaces) in the search list",
        );
    }
    for (index, search) in list.into_iter().enumerate().filter(|(_, s)| *s != ".") {
        let search = search.strip_suffix('.').unwrap_or(search);
        errors.text(
            &searches.index(index),
            search,
            machinery::names::dns1123_subdomain_with_underscore(search),
        );
    }
    let options = path.child("options");
    for (index, option) in config.list("options").iter().enumerate() {
        if option.text("name").is_empty() {
            errors.required(&options.index(index), "must not be empty");
        }
    }
}

fn security_context(errors: &mut Errors, path: &FieldPath<'_>, spec: &Value) {
    let context = spec.dig("securityContext");
    windows::options(
        errors,
        &path.child("windowsOptions"),
        context.dig("windowsOptions"),
    );
    for key in ["fsGroup", "runAsUser", "runAsGroup"] {
        if let Some(id) = context.int(key) {
            for text in unix_id(id) {
                errors.invalid(&path.child(key), id, text);
            }
        }
    }
    let groups = path.child("supplementalGroups");
    for (index, id) in context
        .list("supplementalGroups")
        .iter()
        .filter_map(Value::as_i64)
        .enumerate()
    {
        for text in unix_id(id) {
            errors.invalid(&groups.index(index), id, text);
        }
    }
    if spec.flag("shareProcessNamespace") && spec.flag("hostPID") {
        errors.invalid(
            &path.child("shareProcessNamespace"),
            true,
            "ShareProcessNamespace and HostPID cannot both be enabled",
        );
    }
    sysctls(errors, &path.child("sysctls"), spec);
    if context.has("fsGroupChangePolicy") {
        errors.one_of(
            &path.child("fsGroupChangePolicy"),
            context.text("fsGroupChangePolicy"),
            &["Always", "OnRootMismatch"],
        );
    }
    profiles::fields(errors, path, context);
    if context.has("supplementalGroupsPolicy") {
        errors.one_of(
            &path.child("supplementalGroupsPolicy"),
            context.text("supplementalGroupsPolicy"),
            &["Merge", "Strict"],
        );
    }
    if context.has("seLinuxChangePolicy") {
        errors.one_of(
            &path.child("seLinuxChangePolicy"),
            context.text("seLinuxChangePolicy"),
            &["MountOption", "Recursive"],
        );
    }
}

fn sysctls(errors: &mut Errors, path: &FieldPath<'_>, spec: &Value) {
    let mut seen = Seen::default();
    for (index, sysctl) in spec.list("securityContext.sysctls").iter().enumerate() {
        let path = path.index(index);
        let name = sysctl.text("name");
        if name.is_empty() {
            errors.required(&path.child("name"), "");
        } else if !sysctl_name(name) {
            errors.invalid(
                &path.child("name"),
                name,
                "must have at most 253 characters and match regex ^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?$",
            );
        } else if seen.again(name) {
            errors.duplicate(&path.child("name"), name);
        }
        let shared = match kernel_namespace(name) {
            Some(host) if spec.flag(host) => host,
            _ => continue,
        };
        errors.ratcheted(Ratchet::HostSysctls, |errors| {
            let text = format!("may not be specified when '{shared}' is true");
            errors.invalid(&path.child("name"), name, text);
        });
    }
}

/// The field of a pod that shares with the node the namespace of the kernel that a sysctl belongs to.
fn kernel_namespace(name: &str) -> Option<&'static str> {
    // Where a slash comes first, slashes separate and dots are part of names.
    let slash_first = name
        .find(['.', '/'])
        .is_some_and(|at| name[at..].starts_with('/'));
    let swapped = |c| match c {
        '/' => '.',
        '.' => '/',
        c => c,
    };
    let normal: String = match slash_first {
        true => name.chars().map(swapped).collect(),
        false => name.to_owned(),
    };
    match normal.split('*').next().unwrap_or_default() {
        "kernel.sem"
        | "kernel.shm"
        | "kernel.shmall"
        | "kernel.shmmax"
        | "kernel.shmmni"
        | "kernel.shm_rmid_forced"
        | "kernel.msg"
        | "kernel.msgmax"
        | "kernel.msgmnb"
        | "kernel.msgmni" => Some("hostIPC"),
        name if name.starts_with("fs.mqueue.") => Some("hostIPC"),
        name if name.starts_with("net.") => Some("hostNetwork"),
        _ => None,
    }
}

fn sysctl_name(name: &str) -> bool {
    let edge = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    name.len() <= 253
        && name.split(['.', '/']).all(|part| {
            let bytes = part.as_bytes();
            bytes.first().is_some_and(|b| edge(*b))
                && bytes.last().is_some_and(|b| edge(*b))
                && bytes.iter().all(|b| edge(*b) || matches!(b, b'-' | b'_'))
        })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::groups::check::{check_pod as check, kind, pod};

    #[test]
    fn names_and_numbers() {
        check(&json!({"activeDeadlineSeconds": 1}), &[]);
        check(
            &json!({"activeDeadlineSeconds": 0}),
            &["spec.activeDeadlineSeconds: Invalid value: 0: must be between 1 and 2147483647, inclusive"],
        );
        check(
            &json!({"restartPolicy": "Sometimes", "dnsPolicy": "Mine"}),
            &[
                r#"spec.restartPolicy: Unsupported value: "Sometimes": supported values: "Always", "OnFailure", "Never""#,
                r#"spec.dnsPolicy: Unsupported value: "Mine": supported values: "ClusterFirstWithHostNet", "ClusterFirst", "Default", "None""#,
            ],
        );
        check(
            &json!({"preemptionPolicy": "Always"}),
            &[
                r#"spec.preemptionPolicy: Unsupported value: "Always": supported values: "PreemptLowerPriority", "Never""#,
            ],
        );
    }

    #[test]
    fn host_namespaces() {
        let port = |host: i64| json!([{"name": "c", "image": "i", "ports": [{"containerPort": 80, "hostPort": host}]}]);
        check(&json!({"hostNetwork": true, "containers": port(80)}), &[]);
        check(
            &json!({"hostNetwork": true, "containers": port(81)}),
            &[
                "spec.containers[0].ports[0].hostPort: Invalid value: 81: must match `containerPort` when `hostNetwork` is true",
            ],
        );
        check(&json!({"hostUsers": false}), &[]);
        check(
            &json!({"hostUsers": false, "hostPID": true, "hostIPC": true}),
            &[
                "spec.HostPID: Forbidden: when `hostUsers` is false",
                "spec.HostIPC: Forbidden: when `hostUsers` is false",
            ],
        );
        check(
            &json!({"shareProcessNamespace": true, "hostPID": true}),
            &[
                "spec.securityContext.shareProcessNamespace: Invalid value: true: ShareProcessNamespace and HostPID cannot both be enabled",
            ],
        );
    }

    #[test]
    fn the_resolver() {
        let servers = |count: usize| json!({"dnsConfig": {"nameservers": vec!["10.0.0.1"; count]}});
        check(&servers(3), &[]);
        check(
            &servers(4),
            &[
                r#"spec.dnsConfig.nameservers: Invalid value: ["10.0.0.1","10.0.0.1","10.0.0.1","10.0.0.1"]: must not have more than 3 nameservers"#,
            ],
        );
        check(
            &json!({"dnsPolicy": "None"}),
            &["spec.dnsConfig: Required value: must provide `dnsConfig` when `dnsPolicy` is None"],
        );
        check(
            &json!({"dnsPolicy": "None", "dnsConfig": {}}),
            &[
                "spec.dnsConfig.nameservers: Required value: must provide at least one DNS nameserver when `dnsPolicy` is None",
            ],
        );
        let searches = |count: usize| json!({"dnsConfig": {"searches": vec!["a"; count]}});
        check(&searches(32), &[]);
        let errors = kind("pods").errors(&pod(&searches(33)));
        assert!(
            errors[0].ends_with("must not have more than 32 search paths"),
            "{errors:?}"
        );
        check(&json!({"dnsConfig": {"searches": [".", "a_b.c."]}}), &[]);
        check(
            &json!({"dnsConfig": {"options": [{"value": "1"}]}}),
            &["spec.dnsConfig.options[0]: Required value: must not be empty"],
        );
    }

    #[test]
    fn sysctls() {
        let sysctls = |names: &[&str]| {
            let all: Vec<Value> = names
                .iter()
                .map(|name| json!({"name": name, "value": "1"}))
                .collect();
            json!({"securityContext": {"sysctls": all}})
        };
        check(&sysctls(&["kernel.shm_rmid_forced", "net/ipv4/ip-local"]), &[]);
        check(
            &sysctls(&["a.b", "a.b", "", "A"]),
            &[
                r#"spec.securityContext.sysctls[1].name: Duplicate value: "a.b""#,
                "spec.securityContext.sysctls[2].name: Required value",
                r#"spec.securityContext.sysctls[3].name: Invalid value: "A": must have at most 253 characters and match regex ^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?$"#,
            ],
        );
    }

    #[test]
    fn profiles() {
        let profile = |kind: &str, file: Value| json!({"securityContext": {"seccompProfile": {"type": kind, "localhostProfile": file}}});
        check(&profile("RuntimeDefault", Value::Null), &[]);
        check(&profile("Localhost", json!("a.json")), &[]);
        check(
            &profile("Localhost", Value::Null),
            &[
                "spec.securityContext.seccompProfile.localhostProfile: Required value: must be set when seccomp type is Localhost",
            ],
        );
        check(
            &profile("Unconfined", json!("a")),
            &[
                r#"spec.securityContext.seccompProfile.localhostProfile: Invalid value: {"Type":"Unconfined","LocalhostProfile":"a"}: can only be set when seccomp type is Localhost"#,
            ],
        );
        check(
            &profile("Localhost", json!("/a/../b")),
            &[
                r#"spec.securityContext.seccompProfile.localhostProfile: Invalid value: "/a/../b": must be a relative path"#,
                r#"spec.securityContext.seccompProfile.localhostProfile: Invalid value: "/a/../b": must not contain '..'"#,
            ],
        );
    }

    #[test]
    fn operating_systems() {
        check(&json!({"os": {"name": "linux"}}), &[]);
        check(&json!({"os": {"name": ""}}), &["spec.os.name: Required value"]);
        check(
            &json!({"os": {"name": "dos"}}),
            &[r#"spec.os: Unsupported value: "dos": supported values: "linux", "windows""#],
        );
        check(
            &json!({"os": {"name": "windows"}, "hostIPC": true, "securityContext": {"runAsUser": 1}}),
            &[
                "spec.hostIPC: Forbidden: cannot be set for a windows pod",
                "spec.securityContext.runAsUser: Forbidden: cannot be set for a windows pod",
            ],
        );
        check(
            &json!({"os": {"name": "linux"}, "securityContext": {"windowsOptions": {"runAsUserName": "a"}}}),
            &[
                "spec.securityContext.windowsOptions: Forbidden: windows options cannot be set for a linux pod",
            ],
        );
    }

    #[test]
    fn sysctls_of_the_host_are_the_nodes() {
        let of = |name: &str| json!({"hostNetwork": true, "hostIPC": true, "securityContext": {"sysctls": [{"name": name, "value": "1"}]}});
        check(&of("kernel.other"), &[]);
        for (name, host) in [
            ("net.ipv4.x", "hostNetwork"),
            ("net/ipv4/x", "hostNetwork"),
            ("kernel.shmmax", "hostIPC"),
            ("fs.mqueue.x", "hostIPC"),
        ] {
            let error = format!(
                r#"spec.securityContext.sysctls[0].name: Invalid value: "{name}": may not be specified when '{host}' is true"#
            );
            check(&of(name), &[&error]);
        }
    }
}
