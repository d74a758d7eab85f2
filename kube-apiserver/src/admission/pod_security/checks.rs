//! The checks of the Pod Security Standards, each as of the versions that it changed in. A pod is the object, or a template.

use std::collections::BTreeSet;

use machinery::go;
use machinery::meta;
use serde_json::Value;

use super::policy::{Level, LevelVersion};
use crate::json::Json;

/// The version that `latest` means.
const LATEST: u32 = 35;

/// Why a pod is not allowed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Violation {
    pub(super) reason: String,
    /// The detail; may be empty.
    pub(super) detail: String,
}

type Check = fn(&Value) -> Option<Violation>;

/// One check: its levels' order is by id, baseline first.
struct Rule {
    id: &'static str,
    level: Level,
    /// From which version on, and how.
    versions: &'static [(u32, Check)],
    /// The baseline check that this one makes needless.
    overrides: Option<&'static str>,
}

const fn baseline(id: &'static str, versions: &'static [(u32, Check)]) -> Rule {
    Rule {
        id,
        level: Level::Baseline,
        versions,
        overrides: None,
    }
}

const fn restricted(
    id: &'static str,
    versions: &'static [(u32, Check)],
    overrides: Option<&'static str>,
) -> Rule {
    Rule {
        id,
        level: Level::Restricted,
        versions,
        overrides,
    }
}

const RULES: &[Rule] = &[
    baseline("appArmorProfile", &[(0, app_armor)]),
    baseline("capabilities_baseline", &[(0, capabilities)]),
    baseline("hostNamespaces", &[(0, host_namespaces)]),
    baseline("hostPathVolumes", &[(0, host_paths)]),
    baseline("hostPorts", &[(0, host_ports)]),
    baseline("hostProbesAndHostLifecycle", &[(34, probe_hosts)]),
    baseline("privileged", &[(0, privileged)]),
    baseline(
        "procMount",
        &[(0, proc_mount), (35, |pod| in_host(pod, proc_mount))],
    ),
    baseline(
        "seLinuxOptions",
        &[(0, |pod| se_linux(pod, false)), (31, |pod| se_linux(pod, true))],
    ),
    baseline(
        "seccompProfile_baseline",
        &[(0, seccomp_annotations), (19, |pod| seccomp(pod, false))],
    ),
    baseline(
        "sysctls",
        &[
            (0, |pod| sysctls(pod, 5)),
            (27, |pod| sysctls(pod, 6)),
            (29, |pod| sysctls(pod, 10)),
            (32, |pod| sysctls(pod, 12)),
        ],
    ),
    baseline("windowsHostProcess", &[(0, host_process)]),
    restricted(
        "allowPrivilegeEscalation",
        &[(8, escalation), (25, |pod| on_linux(pod, escalation))],
        None,
    ),
    restricted(
        "capabilities_restricted",
        &[
            (22, dropped_capabilities),
            (25, |pod| on_linux(pod, dropped_capabilities)),
        ],
        Some("capabilities_baseline"),
    ),
    restricted("procMount_restricted", &[(35, proc_mount)], Some("procMount")),
    restricted("restrictedVolumes", &[(0, volumes)], Some("hostPathVolumes")),
    restricted(
        "runAsNonRoot",
        &[(0, non_root), (35, |pod| in_host(pod, non_root))],
        None,
    ),
    restricted(
        "runAsUser",
        &[(23, user_zero), (35, |pod| in_host(pod, user_zero))],
        None,
    ),
    restricted(
        "seccompProfile_restricted",
        &[
            (19, |pod| seccomp(pod, true)),
            (25, |pod| on_linux(pod, |pod| seccomp(pod, true))),
        ],
        Some("seccompProfile_baseline"),
    ),
];

impl Rule {
    fn at(&self, version: u32) -> Option<Check> {
        let found = self.versions.iter().rev().find(|(from, _)| *from <= version);
        found.map(|(_, check)| *check)
    }
}

/// Everything about a pod that a level does not allow, in upstream's order.
pub(super) fn violations(asked: LevelVersion, pod: &Value) -> Vec<Violation> {
    if asked.level == Level::Privileged {
        return Vec::new();
    }
    let version = asked.version.unwrap_or(LATEST).min(LATEST);
    let applies = |rule: &&Rule| rule.level <= asked.level && rule.at(version).is_some();
    let overridden: Vec<&str> = RULES
        .iter()
        .filter(applies)
        .filter_map(|rule| rule.overrides)
        .collect();
    RULES
        .iter()
        .filter(|rule| rule.level <= asked.level && !overridden.contains(&rule.id))
        .filter_map(|rule| rule.at(version)?(pod))
        .collect()
}

/// `reason (detail), reason`.
pub(super) fn in_detail(violations: &[Violation]) -> String {
    let all: Vec<String> = violations
        .iter()
        .map(|v| match v.detail.as_str() {
            "" => v.reason.clone(),
            detail => format!("{} ({detail})", v.reason),
        })
        .collect();
    all.join(", ")
}

/// `reason, reason`.
pub(super) fn in_short(violations: &[Violation]) -> String {
    let all: Vec<&str> = violations.iter().map(|v| v.reason.as_str()).collect();
    all.join(", ")
}

fn violation(reason: &str, detail: String) -> Option<Violation> {
    Some(Violation {
        reason: reason.into(),
        detail,
    })
}

/// Every container of a pod: init, ordinary, ephemeral.
fn containers(pod: &Value) -> impl Iterator<Item = &Value> {
    let lists = ["initContainers", "containers", "ephemeralContainers"];
    lists
        .into_iter()
        .flat_map(|list| pod.dig("spec").list(list).iter())
}

/// The names of the containers that something is true of.
fn named<'a>(pod: &'a Value, mut bad: impl FnMut(&'a Value) -> bool) -> Vec<&'a str> {
    containers(pod)
        .filter(|c| bad(c))
        .map(|c| c.text("name"))
        .collect()
}

fn plural<'a>(one: &'a str, many: &'a str, count: usize) -> &'a str {
    if count == 1 { one } else { many }
}

/// `"a", "b"`, as upstream puts quotes around: without escapes.
fn quoted<T: AsRef<str>>(items: impl IntoIterator<Item = T>) -> String {
    let all: Vec<String> = items
        .into_iter()
        .map(|item| format!("\"{}\"", item.as_ref()))
        .collect();
    all.join(", ")
}

/// `container "a"`, `containers "a", "b"`.
fn containers_named(names: &[&str]) -> String {
    let word = plural("container", "containers", names.len());
    format!("{word} {}", quoted(names))
}

/// `pod and containers "a", "b"`; nothing when none is at fault.
fn blamed(pod: bool, names: &[&str]) -> Option<String> {
    match (pod, names.is_empty()) {
        (false, true) => None,
        (true, true) => Some("pod".into()),
        (false, false) => Some(containers_named(names)),
        (true, false) => Some(format!("pod and {}", containers_named(names))),
    }
}

fn security<'a>(of: &'a Value, field: &str) -> &'a Value {
    of.dig("securityContext").dig(field)
}

/// Pods in a user namespace of their own are let off.
fn in_host(pod: &Value, check: Check) -> Option<Violation> {
    match pod.dig("spec.hostUsers").as_bool() {
        Some(false) => None,
        _ => check(pod),
    }
}

/// Pods for Windows are let off: they cannot set this.
fn on_linux(pod: &Value, check: Check) -> Option<Violation> {
    match pod.text("spec.os.name") {
        "windows" => None,
        _ => check(pod),
    }
}

/// The setters of a profile type other than `RuntimeDefault` and `Localhost`: whether the pod, which containers, and the types.
fn bad_profiles<'p>(pod: &'p Value, key: &str) -> (bool, Vec<&'p str>, BTreeSet<String>) {
    let mut types = BTreeSet::new();
    let mut bad = |of: &Value| {
        let profile = security(of, key);
        let kind = profile.text("type");
        let bad = profile.is_object() && kind != "RuntimeDefault" && kind != "Localhost";
        if bad {
            types.insert(kind.to_string());
        }
        bad
    };
    let own = bad(pod.dig("spec"));
    let names = named(pod, bad);
    (own, names, types)
}

fn app_armor(pod: &Value) -> Option<Violation> {
    let (own, names, values) = bad_profiles(pod, "appArmorProfile");
    let mut setters: Vec<String> = Vec::new();
    if own {
        setters.push("pod".into());
    }
    if !names.is_empty() {
        setters.push(containers_named(&names));
    }
    let annotations = meta::annotations(pod).into_iter().flatten();
    let mut forbidden: Vec<String> = annotations
        .filter_map(|(key, value)| Some((key, value.as_str()?)))
        .filter(|(key, value)| {
            key.starts_with("container.apparmor.security.beta.kubernetes.io/")
                && !(value.is_empty() || *value == "runtime/default" || value.starts_with("localhost/"))
        })
        .map(|(key, value)| format!("{key}={}", go::quote(value)))
        .collect();
    forbidden.sort();
    if !forbidden.is_empty() {
        setters.push(plural("annotation", "annotations", forbidden.len()).into());
    }
    if setters.is_empty() {
        return None;
    }
    let values: Vec<String> = values.into_iter().chain(forbidden).collect();
    let reason = plural(
        "forbidden AppArmor profile",
        "forbidden AppArmor profiles",
        values.len(),
    );
    let setters = setters.join(" and ");
    violation(
        reason,
        format!(
            "{setters} must not set AppArmor profile type to {}",
            quoted(values)
        ),
    )
}

const DEFAULT_CAPABILITIES: &[&str] = &[
    "AUDIT_WRITE",
    "CHOWN",
    "DAC_OVERRIDE",
    "FOWNER",
    "FSETID",
    "KILL",
    "MKNOD",
    "NET_BIND_SERVICE",
    "SETFCAP",
    "SETGID",
    "SETPCAP",
    "SETUID",
    "SYS_CHROOT",
];

/// The containers that add capabilities other than these, and which.
fn adding<'a>(pod: &'a Value, allowed: &[&str]) -> (Vec<&'a str>, BTreeSet<&'a str>) {
    let mut added = BTreeSet::new();
    let names = named(pod, |container| {
        let all = container.strings("securityContext.capabilities.add");
        let bad: Vec<&str> = all.filter(|c| !allowed.contains(c)).collect();
        added.extend(bad.iter().copied());
        !bad.is_empty()
    });
    (names, added)
}

fn must_not_add(names: &[&str], added: &BTreeSet<&str>) -> String {
    let who = containers_named(names);
    format!(
        "{who} must not include {} in securityContext.capabilities.add",
        quoted(added)
    )
}

fn capabilities(pod: &Value) -> Option<Violation> {
    let (names, added) = adding(pod, DEFAULT_CAPABILITIES);
    if names.is_empty() {
        return None;
    }
    violation("non-default capabilities", must_not_add(&names, &added))
}

fn dropped_capabilities(pod: &Value) -> Option<Violation> {
    let mut details = Vec::new();
    let keeping = named(pod, |container| {
        !container
            .strings("securityContext.capabilities.drop")
            .any(|c| c == "ALL")
    });
    if !keeping.is_empty() {
        let who = containers_named(&keeping);
        details.push(format!(
            "{who} must set securityContext.capabilities.drop=[\"ALL\"]"
        ));
    }
    let (names, added) = adding(pod, &["NET_BIND_SERVICE"]);
    if !names.is_empty() {
        details.push(must_not_add(&names, &added));
    }
    if details.is_empty() {
        return None;
    }
    violation("unrestricted capabilities", details.join("; "))
}

fn host_namespaces(pod: &Value) -> Option<Violation> {
    let spec = pod.dig("spec");
    let set: Vec<String> = ["hostNetwork", "hostPID", "hostIPC"]
        .into_iter()
        .filter(|field| spec.flag(field))
        .map(|field| format!("{field}=true"))
        .collect();
    if set.is_empty() {
        return None;
    }
    violation("host namespaces", set.join(", "))
}

fn host_paths(pod: &Value) -> Option<Violation> {
    let all = pod.list("spec.volumes").iter();
    let names: Vec<&str> = all
        .filter(|v| v.dig("hostPath").is_object())
        .map(|v| v.text("name"))
        .collect();
    if names.is_empty() {
        return None;
    }
    let word = plural("volume", "volumes", names.len());
    violation("hostPath volumes", format!("{word} {}", quoted(names)))
}

fn host_ports(pod: &Value) -> Option<Violation> {
    let mut ports = BTreeSet::new();
    let names = named(pod, |container| {
        let all = container.list("ports").iter();
        let bad: Vec<i64> = all
            .filter_map(|p| p.int("hostPort"))
            .filter(|port| *port != 0)
            .collect();
        // Sorted as text, as upstream does.
        ports.extend(bad.iter().map(ToString::to_string));
        !bad.is_empty()
    });
    if names.is_empty() {
        return None;
    }
    let detail = format!(
        "{} {} {} {}",
        containers_named(&names),
        plural("uses", "use", names.len()),
        plural("hostPort", "hostPorts", ports.len()),
        ports.into_iter().collect::<Vec<_>>().join(", ")
    );
    violation("hostPort", detail)
}

fn probe_hosts(pod: &Value) -> Option<Violation> {
    let mut hosts = BTreeSet::new();
    let places = [
        "livenessProbe",
        "readinessProbe",
        "startupProbe",
        "lifecycle.postStart",
        "lifecycle.preStop",
    ];
    let names = named(pod, |container| {
        let mut bad = false;
        for handler in places.map(|place| container.dig(place)) {
            for host in [handler.text("httpGet.host"), handler.text("tcpSocket.host")] {
                if !host.is_empty() {
                    hosts.insert(host);
                    bad = true;
                }
            }
        }
        bad
    });
    let names: Vec<&str> = names.into_iter().collect::<BTreeSet<_>>().into_iter().collect();
    if names.is_empty() {
        return None;
    }
    let detail = format!(
        "{} {} {} {}",
        containers_named(&names),
        plural("uses", "use", names.len()),
        plural("probe or lifecycle host", "probe or lifecycle hosts", hosts.len()),
        quoted(hosts)
    );
    violation("probe or lifecycle host", detail)
}

fn privileged(pod: &Value) -> Option<Violation> {
    let names = named(pod, |c| security(c, "privileged").as_bool() == Some(true));
    if names.is_empty() {
        return None;
    }
    let who = containers_named(&names);
    violation(
        "privileged",
        format!("{who} must not set securityContext.privileged=true"),
    )
}

fn proc_mount(pod: &Value) -> Option<Violation> {
    let mut kinds = BTreeSet::new();
    let names = named(pod, |container| {
        let kind = security(container, "procMount").as_str();
        kinds.extend(kind.filter(|kind| *kind != "Default"));
        kind.is_some_and(|kind| kind != "Default")
    });
    if names.is_empty() {
        return None;
    }
    let who = containers_named(&names);
    violation(
        "procMount",
        format!(
            "{who} must not set securityContext.procMount to {}",
            quoted(kinds)
        ),
    )
}

fn se_linux(pod: &Value, engine: bool) -> Option<Violation> {
    let (mut types, mut user, mut role) = (BTreeSet::new(), false, false);
    let mut bad = |of: &Value| {
        let options = security(of, "seLinuxOptions");
        let kind = options.text("type");
        let allowed = matches!(kind, "" | "container_t" | "container_init_t" | "container_kvm_t")
            || engine && kind == "container_engine_t";
        if !allowed {
            types.insert(kind.to_string());
        }
        let (own_user, own_role) = (!options.text("user").is_empty(), !options.text("role").is_empty());
        user |= own_user;
        role |= own_role;
        !allowed || own_user || own_role
    };
    let own = bad(pod.dig("spec"));
    let names = named(pod, bad);
    let who = blamed(own, &names)?;
    let mut what = Vec::new();
    if !types.is_empty() {
        what.push(format!(
            "{} {}",
            plural("type", "types", types.len()),
            quoted(types)
        ));
    }
    if user {
        what.push("user may not be set".into());
    }
    if role {
        what.push("role may not be set".into());
    }
    let what = what.join("; ");
    violation(
        "seLinuxOptions",
        format!("{who} set forbidden securityContext.seLinuxOptions: {what}"),
    )
}

fn seccomp_annotations(pod: &Value) -> Option<Violation> {
    let valid = |v: &str| v == "runtime/default" || v == "docker/default" || v.starts_with("localhost/");
    let own = std::iter::once("seccomp.security.alpha.kubernetes.io/pod".to_string());
    let each = containers(pod).map(|c| {
        format!(
            "container.seccomp.security.alpha.kubernetes.io/{}",
            c.text("name")
        )
    });
    let forbidden: BTreeSet<String> = own
        .chain(each)
        .filter_map(|key| {
            let value = meta::annotations(pod)?.get(&key)?.as_str()?;
            (!valid(value)).then(|| format!("{key}={}", go::quote(value)))
        })
        .collect();
    if forbidden.is_empty() {
        return None;
    }
    let word = plural("annotation", "annotations", forbidden.len());
    let all: Vec<String> = forbidden.into_iter().collect();
    violation("seccompProfile", format!("forbidden {word} {}", all.join(", ")))
}

fn seccomp(pod: &Value, wanted: bool) -> Option<Violation> {
    let (own, names, values) = bad_profiles(pod, "seccompProfile");
    if let Some(who) = blamed(own, &names) {
        let values = quoted(values);
        return violation(
            "seccompProfile",
            format!("{who} must not set securityContext.seccompProfile.type to {values}"),
        );
    }
    if !wanted || security(pod.dig("spec"), "seccompProfile").is_object() {
        return None;
    }
    let without = named(pod, |c| !security(c, "seccompProfile").is_object());
    if without.is_empty() {
        return None;
    }
    let who = containers_named(&without);
    violation(
        "seccompProfile",
        format!(
            "pod or {who} must set securityContext.seccompProfile.type to \"RuntimeDefault\" or \"Localhost\""
        ),
    )
}

/// In the order in which they were allowed.
const SYSCTLS: [&str; 12] = [
    "kernel.shm_rmid_forced",
    "net.ipv4.ip_local_port_range",
    "net.ipv4.tcp_syncookies",
    "net.ipv4.ping_group_range",
    "net.ipv4.ip_unprivileged_port_start",
    "net.ipv4.ip_local_reserved_ports",
    "net.ipv4.tcp_keepalive_time",
    "net.ipv4.tcp_fin_timeout",
    "net.ipv4.tcp_keepalive_intvl",
    "net.ipv4.tcp_keepalive_probes",
    "net.ipv4.tcp_rmem",
    "net.ipv4.tcp_wmem",
];

fn sysctls(pod: &Value, allowed: usize) -> Option<Violation> {
    let all = pod.list("spec.securityContext.sysctls").iter();
    let bad: Vec<&str> = all
        .map(|s| s.text("name"))
        .filter(|name| !SYSCTLS[..allowed].contains(name))
        .collect();
    if bad.is_empty() {
        return None;
    }
    violation("forbidden sysctls", bad.join(", "))
}

fn host_process(pod: &Value) -> Option<Violation> {
    let set = |of: &Value| security(of, "windowsOptions").flag("hostProcess");
    let who = blamed(set(pod.dig("spec")), &named(pod, set))?;
    violation(
        "hostProcess",
        format!("{who} must not set securityContext.windowsOptions.hostProcess=true"),
    )
}

fn escalation(pod: &Value) -> Option<Violation> {
    let names = named(pod, |c| {
        security(c, "allowPrivilegeEscalation").as_bool() != Some(false)
    });
    if names.is_empty() {
        return None;
    }
    let who = containers_named(&names);
    violation(
        "allowPrivilegeEscalation != false",
        format!("{who} must set securityContext.allowPrivilegeEscalation=false"),
    )
}

const ALLOWED_VOLUMES: &[&str] = &[
    "configMap",
    "csi",
    "downwardAPI",
    "emptyDir",
    "ephemeral",
    "image",
    "persistentVolumeClaim",
    "projected",
    "secret",
];
const OTHER_VOLUMES: &[&str] = &[
    "hostPath",
    "gcePersistentDisk",
    "awsElasticBlockStore",
    "gitRepo",
    "nfs",
    "iscsi",
    "glusterfs",
    "rbd",
    "flexVolume",
    "cinder",
    "cephfs",
    "flocker",
    "fc",
    "azureFile",
    "vsphereVolume",
    "quobyte",
    "azureDisk",
    "photonPersistentDisk",
    "portworxVolume",
    "scaleIO",
    "storageos",
];

fn volumes(pod: &Value) -> Option<Violation> {
    let (mut names, mut kinds) = (Vec::new(), BTreeSet::new());
    for volume in pod.list("spec.volumes") {
        let is = |kind: &&&str| volume.dig(kind).is_object();
        if !ALLOWED_VOLUMES.iter().any(|kind| is(&kind)) {
            names.push(volume.text("name"));
            kinds.insert(OTHER_VOLUMES.iter().find(is).map_or("unknown", |kind| *kind));
        }
    }
    if names.is_empty() {
        return None;
    }
    let detail = format!(
        "{} {} {} {} {}",
        plural("volume", "volumes", names.len()),
        quoted(&names),
        plural("uses", "use", names.len()),
        plural("restricted volume type", "restricted volume types", kinds.len()),
        quoted(kinds)
    );
    violation("restricted volume types", detail)
}

fn non_root(pod: &Value) -> Option<Violation> {
    const REASON: &str = "runAsNonRoot != true";
    let set = |of: &Value| security(of, "runAsNonRoot").as_bool();
    let spec = pod.dig("spec");
    let explicit = named(pod, |c| set(c) == Some(false));
    if let Some(who) = blamed(set(spec) == Some(false), &explicit) {
        return violation(
            REASON,
            format!("{who} must not set securityContext.runAsNonRoot=false"),
        );
    }
    if set(spec) == Some(true) {
        return None;
    }
    let implicit = named(pod, |c| set(c).is_none());
    if implicit.is_empty() {
        return None;
    }
    let who = containers_named(&implicit);
    violation(
        REASON,
        format!("pod or {who} must set securityContext.runAsNonRoot=true"),
    )
}

fn user_zero(pod: &Value) -> Option<Violation> {
    let set = |of: &Value| security(of, "runAsUser").as_i64() == Some(0);
    let who = blamed(set(pod.dig("spec")), &named(pod, set))?;
    violation("runAsUser=0", format!("{who} must not set runAsUser=0"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn summary(level: Level, version: Option<u32>, pod: &Value) -> String {
        in_detail(&violations(LevelVersion { level, version }, pod))
    }

    #[test]
    fn rules_are_in_order() {
        let key = |rule: &Rule| (rule.level, rule.id);
        assert!(RULES.windows(2).all(|pair| key(&pair[0]) < key(&pair[1])));
    }

    #[test]
    fn a_plain_pod_is_not_restricted() {
        let pod = json!({"spec": {"containers": [{"name": "a"}, {"name": "b"}]}});
        assert_eq!(summary(Level::Baseline, None, &pod), "");
        assert_eq!(
            summary(Level::Restricted, None, &pod),
            "allowPrivilegeEscalation != false (containers \"a\", \"b\" must set securityContext.allowPrivilegeEscalation=false), \
             unrestricted capabilities (containers \"a\", \"b\" must set securityContext.capabilities.drop=[\"ALL\"]), \
             runAsNonRoot != true (pod or containers \"a\", \"b\" must set securityContext.runAsNonRoot=true), \
             seccompProfile (pod or containers \"a\", \"b\" must set securityContext.seccompProfile.type to \"RuntimeDefault\" or \"Localhost\")"
        );
        assert_eq!(
            summary(Level::Restricted, Some(7), &pod),
            "runAsNonRoot != true (pod or containers \"a\", \"b\" must set securityContext.runAsNonRoot=true)"
        );
    }

    #[test]
    fn forbidden_fields_are_named() {
        let pod = json!({
            "metadata": {"annotations": {"container.apparmor.security.beta.kubernetes.io/a": "unconfined"}},
            "spec": {
                "hostNetwork": true, "hostPID": true,
                "securityContext": {"sysctls": [{"name": "x.y"}], "seLinuxOptions": {"user": "u", "type": "t"},
                    "runAsNonRoot": false, "runAsUser": 0, "seccompProfile": {"type": "Unconfined"}},
                "volumes": [{"name": "h", "hostPath": {"path": "/"}}, {"name": "n", "nfs": {}}, {"name": "c", "configMap": {}}],
                "containers": [{"name": "a", "ports": [{"hostPort": 80}], "livenessProbe": {"httpGet": {"host": "h"}},
                    "securityContext": {"privileged": true, "procMount": "Unmasked", "capabilities": {"add": ["SYS_ADMIN", "CHOWN"]},
                        "windowsOptions": {"hostProcess": true}}}],
            }
        });
        assert_eq!(
            summary(Level::Baseline, None, &pod),
            "forbidden AppArmor profile (annotation must not set AppArmor profile type to \"container.apparmor.security.beta.kubernetes.io/a=\"unconfined\"\"), \
             non-default capabilities (container \"a\" must not include \"SYS_ADMIN\" in securityContext.capabilities.add), \
             host namespaces (hostNetwork=true, hostPID=true), hostPath volumes (volume \"h\"), \
             hostPort (container \"a\" uses hostPort 80), \
             probe or lifecycle host (container \"a\" uses probe or lifecycle host \"h\"), \
             privileged (container \"a\" must not set securityContext.privileged=true), \
             procMount (container \"a\" must not set securityContext.procMount to \"Unmasked\"), \
             seLinuxOptions (pod set forbidden securityContext.seLinuxOptions: type \"t\"; user may not be set), \
             seccompProfile (pod must not set securityContext.seccompProfile.type to \"Unconfined\"), \
             forbidden sysctls (x.y), \
             hostProcess (container \"a\" must not set securityContext.windowsOptions.hostProcess=true)"
        );
        let strict = summary(Level::Restricted, None, &pod);
        for part in [
            "restricted volume types (volumes \"h\", \"n\" use restricted volume types \"hostPath\", \"nfs\")",
            "container \"a\" must not include \"CHOWN\", \"SYS_ADMIN\" in securityContext.capabilities.add",
            "runAsNonRoot != true (pod must not set securityContext.runAsNonRoot=false)",
            "runAsUser=0 (pod must not set runAsUser=0)",
        ] {
            assert!(strict.contains(part), "{strict}");
        }
        assert!(!strict.contains("hostPath volumes") && !strict.contains("non-default"));
    }

    #[test]
    fn some_pods_are_let_off() {
        let mut pod = json!({"spec": {"os": {"name": "windows"}, "hostUsers": false, "containers": [{"name": "a",
            "securityContext": {"procMount": "Unmasked"}}]}});
        assert_eq!(summary(Level::Baseline, None, &pod), "");
        assert_eq!(
            summary(Level::Restricted, None, &pod),
            "procMount (container \"a\" must not set securityContext.procMount to \"Unmasked\")"
        );
        pod["spec"]["hostUsers"] = true.into();
        assert!(summary(Level::Baseline, None, &pod).starts_with("procMount"));
    }
}
