//! Containers of a pod specification: regular, init and ephemeral ones.

use machinery::names::{
    config_map_key, dns1123_label, dns1123_subdomain, env_var_name, http_header_name, port_name, port_number,
    qualified_name, unix_id,
};
use machinery::{FieldError, FieldErrorKind, FieldPath};
use serde_json::Value;

use super::volumes::{Volumes, local_descending_path, no_backsteps};
use super::{Whose, label, profiles};
use crate::faults::{Faults, NEGATIVE};
use crate::json::Json;
use crate::quantity::amount;

/// What the checks of a container ask of its pod.
struct Pod<'a> {
    spec: &'a Value,
    volumes: &'a Volumes<'a>,
    claims: &'a [&'a str],
    grace: Option<i64>,
    host_users: bool,
}

pub(super) fn validate(
    faults: &mut Faults,
    path: &FieldPath<'_>,
    spec: &Value,
    volumes: &Volumes<'_>,
    claims: &[&str],
    _whose: Whose<'_>,
) {
    let pod = Pod {
        spec,
        volumes,
        claims,
        grace: spec.int("terminationGracePeriodSeconds"),
        host_users: spec.dig("hostUsers").as_bool() != Some(false),
    };
    regular(faults, &path.child("containers"), &pod);
    init(faults, &path.child("initContainers"), &pod);
    ephemeral(faults, &path.child("ephemeralContainers"), &pod);
}

fn regular(faults: &mut Faults, path: &FieldPath<'_>, pod: &Pod<'_>) {
    let list = pod.spec.list("containers");
    if list.is_empty() {
        return faults.required(path, "");
    }
    let mut names: Vec<&str> = Vec::new();
    for (index, container) in list.iter().enumerate() {
        let path = path.index(index);
        common(faults, &path, container, pod);
        let name = container.text("name");
        if names.contains(&name) {
            faults.duplicate(&path.child("name"), name);
        } else {
            names.push(name);
        }
        lifecycle(faults, &path.child("lifecycle"), container.dig("lifecycle"), pod);
        probes(faults, &path, container, pod);
        restart_policy(faults, &path, container);
    }
    host_ports(faults, path, list, 0);
}

fn init(faults: &mut Faults, path: &FieldPath<'_>, pod: &Pod<'_>) {
    let mut names: Vec<&str> = pod
        .spec
        .list("containers")
        .iter()
        .map(|c| c.text("name"))
        .collect();
    for (index, container) in pod.spec.list("initContainers").iter().enumerate() {
        let path_of = path.index(index);
        common(faults, &path_of, container, pod);
        restart_policy(faults, &path_of, container);
        let name = container.text("name");
        if names.contains(&name) {
            faults.duplicate(&path_of.child("name"), name);
        } else if !name.is_empty() {
            names.push(name);
        }
        host_ports(faults, path, std::slice::from_ref(container), 0);
        let sidecar = container.text("restartPolicy") == "Always";
        if sidecar {
            lifecycle(
                faults,
                &path_of.child("lifecycle"),
                container.dig("lifecycle"),
                pod,
            );
            probes(faults, &path_of, container, pod);
        } else {
            for key in ["lifecycle", "livenessProbe", "readinessProbe", "startupProbe"] {
                if container.has(key) {
                    faults.forbidden(
                        &path_of.child(key),
                        "may not be set for init containers without restartPolicy=Always",
                    );
                }
            }
            let policies = path_of.child("resizePolicy");
            for (index, policy) in container.list("resizePolicy").iter().enumerate() {
                if policy.text("restartPolicy") == "RestartContainer" {
                    faults.invalid(
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

fn ephemeral(faults: &mut Faults, path: &FieldPath<'_>, pod: &Pod<'_>) {
    let mut names: Vec<&str> = Vec::new();
    for list in ["containers", "initContainers"] {
        names.extend(pod.spec.list(list).iter().map(|c| c.text("name")));
    }
    let others = names.clone();
    for (index, container) in pod.spec.list("ephemeralContainers").iter().enumerate() {
        let path = path.index(index);
        common(faults, &path, container, pod);
        let name = container.text("name");
        if names.contains(&name) {
            faults.duplicate(&path.child("name"), name);
        }
        names.push(name);
        let target = container.text("targetContainerName");
        if !target.is_empty() && !others.contains(&target) {
            faults.push(FieldError::not_found(
                &path.child("targetContainerName"),
                &Value::from(target),
            ));
        }
        for key in NOT_EPHEMERAL {
            if container.has(key) {
                faults.forbidden(&path.child(key), "cannot be set for an Ephemeral Container");
            }
        }
        if !crate::json::same(container.dig("resources"), &Value::Null) {
            faults.forbidden(
                &path.child("resources"),
                "cannot be set for an Ephemeral Container",
            );
        }
        let mounts = path.child("volumeMounts");
        for (index, mount) in container.list("volumeMounts").iter().enumerate() {
            for key in ["subPath", "subPathExpr"] {
                if !mount.text(key).is_empty() {
                    faults.forbidden(
                        &mounts.index(index).child(key),
                        "cannot be set for an Ephemeral Container",
                    );
                }
            }
        }
        let image = container.text("image");
        if image.trim() != image {
            faults.invalid(
                &path.child("image"),
                image,
                "must not have leading or trailing whitespace",
            );
        }
    }
}

fn common(faults: &mut Faults, path: &FieldPath<'_>, container: &Value, pod: &Pod<'_>) {
    let name = container.text("name");
    if faults.need(&path.child("name"), name) {
        label(faults, &path.child("name"), name);
    }
    faults.need(&path.child("image"), container.text("image"));
    faults.required_one_of(
        &path.child("terminationMessagePolicy"),
        container.text("terminationMessagePolicy"),
        &["File", "FallbackToLogsOnError"],
    );
    ports(faults, &path.child("ports"), container.list("ports"));
    env(faults, &path.child("env"), container.list("env"));
    env_from(faults, &path.child("envFrom"), container.list("envFrom"));
    mounts(faults, &path.child("volumeMounts"), container, pod);
    devices(faults, &path.child("volumeDevices"), container, pod);
    faults.required_one_of(
        &path.child("imagePullPolicy"),
        container.text("imagePullPolicy"),
        &["Always", "IfNotPresent", "Never"],
    );
    resources(
        faults,
        &path.child("resources"),
        container.dig("resources"),
        pod.claims,
    );
    resize_policy(
        faults,
        &path.child("resizePolicy"),
        container.list("resizePolicy"),
        pod,
    );
    security_context(faults, &path.child("securityContext"), container, pod);
}

fn ports(faults: &mut Faults, path: &FieldPath<'_>, list: &[Value]) {
    let mut names: Vec<&str> = Vec::new();
    for (index, port) in list.iter().enumerate() {
        let path = path.index(index);
        let name = port.text("name");
        if !name.is_empty() {
            let texts = port_name(name);
            if !texts.is_empty() {
                faults.text(&path.child("name"), name, texts);
            } else if names.contains(&name) {
                faults.duplicate(&path.child("name"), name);
            } else {
                names.push(name);
            }
        }
        match port.int("containerPort").unwrap_or_default() {
            0 => faults.required(&path.child("containerPort"), ""),
            number => {
                for text in port_number(number) {
                    faults.invalid(&path.child("containerPort"), number, text);
                }
            }
        }
        let host = port.int("hostPort").unwrap_or_default();
        if host != 0 {
            for text in port_number(host) {
                faults.invalid(&path.child("hostPort"), host, text);
            }
        }
        faults.required_one_of(
            &path.child("protocol"),
            port.text("protocol"),
            &["SCTP", "TCP", "UDP"],
        );
    }
}

fn host_ports(faults: &mut Faults, path: &FieldPath<'_>, containers: &[Value], first: usize) {
    let mut taken: Vec<String> = Vec::new();
    for (index, container) in containers.iter().enumerate() {
        let path = path.index(first + index);
        let ports = path.child("ports");
        for (index, port) in container.list("ports").iter().enumerate() {
            let host = port.int("hostPort").unwrap_or_default();
            if host == 0 {
                continue;
            }
            let key = format!("{}/{}/{host}", port.text("protocol"), port.text("hostIP"));
            if taken.contains(&key) {
                faults.duplicate(&ports.index(index).child("hostPort"), key);
            } else {
                taken.push(key);
            }
        }
    }
}

/// The names of environment variables alone.
pub(crate) fn validate_env_names(faults: &mut Faults, path: &FieldPath<'_>, name: &str) {
    if faults.need(path, name) {
        faults.text(path, name, env_var_name(name));
    }
}

fn env(faults: &mut Faults, path: &FieldPath<'_>, list: &[Value]) {
    for (index, variable) in list.iter().enumerate() {
        let path = path.index(index);
        validate_env_names(faults, &path.child("name"), variable.text("name"));
        if variable.has("valueFrom") {
            value_from(faults, &path.child("valueFrom"), variable);
        }
    }
}

const ENV_FIELDS: &[&str] = &[
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.serviceAccountName",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
];
/// What volumes of the downward API may show.
pub(super) const VOLUME_FIELDS: &[&str] = &[
    "metadata.annotations",
    "metadata.labels",
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
];
const RESOURCE_FIELDS: &[&str] = &[
    "limits.cpu",
    "limits.ephemeral-storage",
    "limits.memory",
    "requests.cpu",
    "requests.ephemeral-storage",
    "requests.memory",
];

fn value_from(faults: &mut Faults, path: &FieldPath<'_>, variable: &Value) {
    let source = variable.dig("valueFrom");
    let mut count = 0;
    if source.has("fieldRef") {
        count += 1;
        field_ref(
            faults,
            &path.child("fieldRef"),
            source.dig("fieldRef"),
            ENV_FIELDS,
        );
    }
    if source.has("resourceFieldRef") {
        count += 1;
        resource_ref(
            faults,
            &path.child("resourceFieldRef"),
            source.dig("resourceFieldRef"),
            false,
        );
    }
    for key in ["configMapKeyRef", "secretKeyRef"] {
        if source.has(key) {
            count += 1;
            let path = path.child(key);
            let name = source.dig(key).text("name");
            faults.text(&path.child("name"), name, dns1123_subdomain(name));
            let item = source.dig(key).text("key");
            if faults.need(&path.child("key"), item) {
                faults.text(&path.child("key"), item, config_map_key(item));
            }
        }
    }
    if source.has("fileKeyRef") {
        count += 1;
        let path = path.child("fileKeyRef");
        let reference = source.dig("fileKeyRef");
        validate_env_names(faults, &path.child("key"), reference.text("key"));
        let volume = reference.text("volumeName");
        if faults.need(&path.child("volumeName"), volume) {
            faults.text(&path.child("volumeName"), volume, dns1123_label(volume));
        }
        let file = reference.text("path");
        if faults.need(&path.child("path"), file) {
            no_backsteps(faults, &path.child("path"), file);
        }
    }
    if count == 0 {
        faults.invalid(
            path,
            "",
            "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`",
        );
    } else if !variable.text("value").is_empty() {
        faults.invalid(path, "", "may not be specified when `value` is not empty");
    } else if count > 1 {
        faults.invalid(path, "", "may not have more than one field specified at a time");
    }
}

/// Fields of a pod that upstream's conversion knows, whether or not they may be used.
const KNOWN_FIELDS: &[&str] = &[
    "metadata.annotations",
    "metadata.labels",
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.restartPolicy",
    "spec.serviceAccountName",
    "spec.schedulerName",
    "status.phase",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
];

pub(super) fn field_ref(faults: &mut Faults, path: &FieldPath<'_>, reference: &Value, allowed: &[&str]) {
    if !faults.need(&path.child("apiVersion"), reference.text("apiVersion")) {
        return;
    }
    let field = reference.text("fieldPath");
    let at = path.child("fieldPath");
    if !faults.need(&at, field) {
        return;
    }
    let subscripted = field.strip_suffix("']").and_then(|rest| rest.split_once("['"));
    if let Some((parent, subscript)) = subscripted {
        match parent {
            "metadata.annotations" => {
                let key = subscript.to_lowercase();
                faults.text(path, &key, qualified_name(&key));
            }
            "metadata.labels" => faults.text(path, subscript, qualified_name(subscript)),
            _ => faults.invalid(
                &at,
                field,
                format!("error converting fieldPath: field label does not support subscript: {field}"),
            ),
        }
        return;
    }
    if reference.text("apiVersion") != "v1" {
        faults.invalid(
            &at,
            field,
            format!(
                "error converting fieldPath: unsupported pod version: {}",
                reference.text("apiVersion")
            ),
        );
    } else if !KNOWN_FIELDS.contains(&field) {
        faults.invalid(
            &at,
            field,
            format!("error converting fieldPath: field label not supported: {field}"),
        );
    } else {
        faults.one_of(&at, field, allowed);
    }
}

pub(super) fn resource_ref(faults: &mut Faults, path: &FieldPath<'_>, reference: &Value, volume: bool) {
    let resource = reference.text("resource");
    let huge = resource.starts_with("requests.hugepages-") || resource.starts_with("limits.hugepages-");
    if volume && reference.text("containerName").is_empty() {
        faults.required(&path.child("containerName"), "");
    } else if resource.is_empty() {
        faults.required(&path.child("resource"), "");
    } else if !huge {
        faults.one_of(&path.child("resource"), resource, RESOURCE_FIELDS);
    }
    let Some(divisor) = amount(reference.dig("divisor")).filter(|d| !d.is_zero()) else {
        return;
    };
    let sizes = [
        "1", "1k", "1M", "1G", "1T", "1P", "1E", "1Ki", "1Mi", "1Gi", "1Ti", "1Pi", "1Ei",
    ];
    let (good, kind): (&[&str], &str) = match resource {
        "limits.cpu" | "requests.cpu" => (&["1m", "1"], "cpu"),
        "limits.memory" | "requests.memory" => (&sizes, "memory"),
        "limits.ephemeral-storage" | "requests.ephemeral-storage" => (&sizes, "local ephemeral storage"),
        _ if huge => (&sizes, "hugepages"),
        _ => return,
    };
    if !good.contains(&divisor.to_string().as_str()) {
        let list = match kind {
            "cpu" => "1m and 1".to_string(),
            _ => good.join(", "),
        };
        faults.invalid(
            &path.child("divisor"),
            resource,
            format!("only divisor's values {list} are supported with the {kind} resource"),
        );
    }
}

fn env_from(faults: &mut Faults, path: &FieldPath<'_>, list: &[Value]) {
    for (index, source) in list.iter().enumerate() {
        let at = path.index(index);
        let prefix = source.text("prefix");
        if !prefix.is_empty() {
            faults.text(&at.child("prefix"), prefix, env_var_name(prefix));
        }
        let mut count = 0;
        for key in ["configMapRef", "secretRef"] {
            if source.has(key) {
                count += 1;
                let path = at.child(key);
                let path = path.child("name");
                let name = source.dig(key).text("name");
                if faults.need(&path, name) {
                    // Upstream judges it as a prefix here.
                    let stem = name.trim_end_matches('-');
                    faults.text(&path, name, dns1123_subdomain(stem));
                }
            }
        }
        match count {
            0 => faults.invalid(path, "", "must specify one of: `configMapRef` or `secretRef`"),
            1 => {}
            _ => faults.invalid(path, "", "may not have more than one field specified at a time"),
        }
    }
}

fn mounts(faults: &mut Faults, path: &FieldPath<'_>, container: &Value, pod: &Pod<'_>) {
    let devices = container.list("volumeDevices");
    let mut points: Vec<&str> = Vec::new();
    for (index, mount) in container.list("volumeMounts").iter().enumerate() {
        let at = path.index(index);
        let (name, point) = (mount.text("name"), mount.text("mountPath"));
        faults.need(&at.child("name"), name);
        if pod.volumes.get(name).is_none() {
            faults.push(FieldError::not_found(&at.child("name"), &Value::from(name)));
        }
        faults.need(&at.child("mountPath"), point);
        if points.contains(&point) {
            faults.invalid(&at.child("mountPath"), point, "must be unique");
        }
        points.push(point);
        if devices.iter().any(|d| d.text("name") == name) {
            faults.invalid(&at.child("name"), name, "must not already exist in volumeDevices");
        }
        if devices.iter().any(|d| d.text("devicePath") == point) {
            faults.invalid(
                &at.child("mountPath"),
                point,
                "must not already exist as a path in volumeDevices",
            );
        }
        // Upstream names the list, not the item, for what follows.
        let sub = mount.text("subPath");
        if !sub.is_empty() {
            local_descending_path(faults, &path.child("subPath"), sub);
        }
        let expression = mount.text("subPathExpr");
        if !expression.is_empty() {
            if !sub.is_empty() {
                faults.invalid(
                    &at.child("subPathExpr"),
                    expression,
                    "subPathExpr and subPath are mutually exclusive",
                );
            }
            local_descending_path(faults, &path.child("subPathExpr"), expression);
        }
        propagation(faults, path, mount, container);
    }
}

fn propagation(faults: &mut Faults, path: &FieldPath<'_>, mount: &Value, container: &Value) {
    let at = path.child("mountPropagation");
    if mount.has("mountPropagation") {
        let mode = mount.text("mountPropagation");
        faults.one_of(&at, mode, &["Bidirectional", "HostToContainer", "None"]);
        if mode == "Bidirectional" && !container.flag("securityContext.privileged") {
            faults.forbidden(
                &at,
                "Bidirectional mount propagation is available only to privileged containers",
            );
        }
    }
    if mount.has("recursiveReadOnly") {
        let at = path.child("recursiveReadOnly");
        let mode = mount.text("recursiveReadOnly");
        match mode {
            "Disabled" => {}
            "Enabled" | "IfPossible" => {
                if !mount.flag("readOnly") {
                    faults.forbidden(&at, "may only be specified when readOnly is true");
                }
                if !matches!(mount.text("mountPropagation"), "" | "None") {
                    faults.forbidden(
                        &at,
                        "may only be specified when mountPropagation is None or not specified",
                    );
                }
            }
            _ => faults.unsupported(&at, mode, &["Disabled", "Enabled", "IfPossible"]),
        }
    }
}

fn devices(faults: &mut Faults, path: &FieldPath<'_>, container: &Value, pod: &Pod<'_>) {
    let mounts = container.list("volumeMounts");
    let (mut names, mut paths): (Vec<&str>, Vec<&str>) = Default::default();
    for (index, device) in container.list("volumeDevices").iter().enumerate() {
        let at = path.index(index);
        let (name, point) = (device.text("name"), device.text("devicePath"));
        faults.need(&at.child("name"), name);
        if names.contains(&name) {
            faults.invalid(&at.child("name"), name, "must be unique");
        }
        match pod.volumes.get(name) {
            Some(volume) if !volume.has("persistentVolumeClaim") && !volume.has("ephemeral") => {
                faults.invalid(
                    &at.child("name"),
                    name,
                    "can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode",
                );
            }
            Some(_) => {}
            None => faults.push(FieldError::not_found(&at.child("name"), &Value::from(name))),
        }
        faults.need(&at.child("devicePath"), point);
        if paths.contains(&point) {
            faults.invalid(&at.child("devicePath"), point, "must be unique");
        }
        if point.contains("..") {
            faults.invalid(&at.child("devicePath"), point, "can not contain backsteps ('..')");
        } else {
            paths.push(point);
        }
        if mounts.iter().any(|m| m.text("name") == name) {
            faults.invalid(&at.child("name"), name, "must not already exist in volumeMounts");
        }
        if mounts.iter().any(|m| m.text("mountPath") == point) {
            faults.invalid(
                &at.child("devicePath"),
                point,
                "must not already exist as a path in volumeMounts",
            );
        }
        names.push(name);
    }
}

/// Limits and requests, of a container or a pod.
pub(crate) fn resources(faults: &mut Faults, path: &FieldPath<'_>, value: &Value, claims: &[&str]) {
    let (limits, requests) = (path.child("limits"), path.child("requests"));
    let limit_values = value.dig("limits");
    let (mut huge, mut compute) = (false, false);
    for (kind, at) in [("limits", &limits), ("requests", &requests)] {
        for (name, raw) in value.entries(kind) {
            let at_name = at.key(name);
            resource_name(faults, &at_name, name);
            let Some(quantity) = amount(raw) else { continue };
            quantity_value(faults, &at_name, name, raw);
            huge |= name.starts_with("hugepages-");
            compute |= matches!(name, "cpu" | "memory");
            if kind == "limits" {
                continue;
            }
            let overcommit = overcommit_allowed(name);
            match limit_values.get(name).and_then(amount) {
                Some(limit) if quantity != limit && !overcommit => faults.invalid(
                    at,
                    quantity.to_string(),
                    format!("must be equal to {name} limit of {limit}"),
                ),
                Some(limit) if quantity > limit => faults.invalid(
                    at,
                    quantity.to_string(),
                    format!("must be less than or equal to {name} limit of {limit}"),
                ),
                Some(_) => {}
                None if !overcommit => {
                    faults.required(&limits, "Limit must be set for non overcommitable resources")
                }
                None => {}
            }
        }
    }
    if huge && !compute {
        faults.forbidden(path, "HugePages require cpu or memory");
    }
    let at = path.child("claims");
    let mut seen: Vec<String> = Vec::new();
    for (index, claim) in value.list("claims").iter().enumerate() {
        let at = at.index(index);
        let name = claim.text("name");
        if name.is_empty() {
            faults.required(&at, "");
            continue;
        }
        let key = match claim.text("request") {
            "" => name.to_string(),
            request => format!("{name}/{request}"),
        };
        if seen.contains(&key) || seen.iter().any(|s| s == name) {
            faults.duplicate(&at, key.as_str());
        }
        seen.push(key);
        if !claims.contains(&name) {
            let detail = match claims {
                [] => "must be one of the names in pod.spec.resourceClaims which is empty".to_string(),
                list => format!(
                    "must be one of the names in pod.spec.resourceClaims: {}",
                    list.join(", ")
                ),
            };
            let mut error = FieldError::not_found(&at, &Value::from(name));
            debug_assert_eq!(error.kind, FieldErrorKind::NotFound);
            error.detail = detail;
            faults.push(error);
        }
    }
}

/// An amount of a resource: not negative, and whole where parts make no sense.
pub(crate) fn quantity_value(faults: &mut Faults, path: &FieldPath<'_>, name: &str, raw: &Value) {
    let Some(quantity) = amount(raw) else { return };
    if quantity.signum() < 0 {
        faults.invalid(path, quantity.to_string(), NEGATIVE);
    }
    let whole = name.starts_with("hugepages-")
        || (name.contains('/') && !name.starts_with("kubernetes.io/"))
        || matches!(
            name,
            "pods"
                | "services"
                | "replicationcontrollers"
                | "resourcequotas"
                | "secrets"
                | "configmaps"
                | "persistentvolumeclaims"
                | "services.nodeports"
                | "services.loadbalancers"
        );
    if whole && quantity.milli_value() % 1000 != 0 {
        faults.invalid(path, quantity.to_string(), "must be an integer");
    }
}

/// Whether more of a resource may be promised than there is.
pub(crate) fn overcommit_allowed(name: &str) -> bool {
    let native = !name.contains('/') || name.contains("kubernetes.io/");
    native && !name.starts_with("hugepages-")
}

/// Resource names that need no prefix.
pub(crate) const STANDARD: &[&str] = &[
    "cpu",
    "memory",
    "ephemeral-storage",
    "requests.cpu",
    "requests.memory",
    "requests.ephemeral-storage",
    "limits.cpu",
    "limits.memory",
    "limits.ephemeral-storage",
    "pods",
    "resourcequotas",
    "services",
    "replicationcontrollers",
    "secrets",
    "configmaps",
    "persistentvolumeclaims",
    "storage",
    "requests.storage",
    "services.nodeports",
    "services.loadbalancers",
];

/// The name of a resource of containers.
pub(crate) fn resource_name(faults: &mut Faults, path: &FieldPath<'_>, name: &str) {
    let texts = qualified_name(name);
    if !texts.is_empty() {
        return faults.text(path, name, texts);
    }
    let huge = name.starts_with("hugepages-");
    if !name.contains('/') {
        if !STANDARD.contains(&name) && !huge {
            faults.invalid(path, name, "must be a standard resource type or fully qualified");
        }
        if !matches!(name, "cpu" | "memory" | "ephemeral-storage") && !huge {
            faults.invalid(path, name, "must be a standard resource for containers");
        }
    } else if !name.contains("kubernetes.io/") {
        let quota_form = format!("requests.{name}");
        if name.starts_with("requests.") || !qualified_name(&quota_form).is_empty() {
            faults.invalid(path, name, "doesn't follow extended resource name standard");
        }
    }
}

fn resize_policy(faults: &mut Faults, path: &FieldPath<'_>, list: &[Value], pod: &Pod<'_>) {
    let mut seen: Vec<&str> = Vec::new();
    for (index, policy) in list.iter().enumerate() {
        let (resource, restart) = (policy.text("resourceName"), policy.text("restartPolicy"));
        if seen.contains(&resource) {
            faults.duplicate(&path.index(index), resource);
        }
        seen.push(resource);
        faults.required_one_of(path, resource, &["cpu", "memory"]);
        faults.required_one_of(path, restart, &["NotRequired", "RestartContainer"]);
        if pod.spec.text("restartPolicy") == "Never" && restart != "NotRequired" {
            faults.invalid(
                path,
                restart,
                "must be 'NotRequired' when pod `restartPolicy` is 'Never'",
            );
        }
    }
}

fn security_context(faults: &mut Faults, path: &FieldPath<'_>, container: &Value, pod: &Pod<'_>) {
    let context = container.dig("securityContext");
    if context.is_null() {
        return;
    }
    for key in ["runAsUser", "runAsGroup"] {
        if let Some(id) = context.int(key) {
            for text in unix_id(id) {
                faults.invalid(&path.child(key), id, text);
            }
        }
    }
    if context.has("procMount") {
        let mount = context.text("procMount");
        faults.one_of(&path.child("procMount"), mount, &["Default", "Unmasked"]);
        if pod.host_users && mount == "Unmasked" {
            faults.invalid(
                &path.child("procMount"),
                mount,
                "`hostUsers` must be false to use `Unmasked`",
            );
        }
    }
    profiles(faults, path, context);
    if context.dig("allowPrivilegeEscalation").as_bool() == Some(false) {
        if context.flag("privileged") {
            faults.invalid_value(
                path,
                context,
                "cannot set `allowPrivilegeEscalation` to false and `privileged` to true",
            );
        }
        if context.strings("capabilities.add").any(|c| c == "CAP_SYS_ADMIN") {
            faults.invalid_value(
                path,
                context,
                "cannot set `allowPrivilegeEscalation` to false and `capabilities.Add` CAP_SYS_ADMIN",
            );
        }
    }
}

fn restart_policy(faults: &mut Faults, path: &FieldPath<'_>, container: &Value) {
    let rules = container.list("restartPolicyRules");
    let at = path.child("restartPolicy");
    if !container.has("restartPolicy") {
        if !rules.is_empty() {
            faults.required(&at, "must specify restartPolicy when restart rules are used");
        }
    } else {
        faults.one_of(
            &at,
            container.text("restartPolicy"),
            &["Always", "Never", "OnFailure"],
        );
    }
    let at = path.child("restartPolicyRules");
    if rules.len() > 20 {
        faults.push(FieldError::too_many(&at, rules.len(), 20));
    }
    for (index, rule) in rules.iter().enumerate() {
        let at = at.index(index);
        faults.one_of(
            &at.child("action"),
            rule.text("action"),
            &["Restart", "RestartAllContainers"],
        );
        let codes = at.child("exitCodes");
        if !rule.has("exitCodes") {
            faults.required(&codes, "must be specified");
            continue;
        }
        faults.one_of(
            &codes.child("operator"),
            rule.text("exitCodes.operator"),
            &["In", "NotIn"],
        );
        let count = rule.list("exitCodes.values").len();
        if count > 255 {
            faults.push(FieldError::too_many(&codes.child("values"), count, 255));
        }
    }
}

fn lifecycle(faults: &mut Faults, path: &FieldPath<'_>, value: &Value, pod: &Pod<'_>) {
    for key in ["postStart", "preStop"] {
        if value.has(key) {
            handler(
                faults,
                &path.child(key),
                value.dig(key),
                &["exec", "httpGet", "tcpSocket", "sleep"],
                pod,
            );
        }
    }
    if value.has("stopSignal") && pod.spec.text("os.name").is_empty() {
        faults.forbidden(
            &path.child("stopSignal"),
            "may not be set for containers with empty `spec.os.name`",
        );
    }
}

fn probes(faults: &mut Faults, path: &FieldPath<'_>, container: &Value, pod: &Pod<'_>) {
    for key in ["livenessProbe", "readinessProbe", "startupProbe"] {
        let probe = container.dig(key);
        if probe.is_null() {
            continue;
        }
        let path = path.child(key);
        handler(
            faults,
            &path,
            probe,
            &["exec", "httpGet", "tcpSocket", "grpc"],
            pod,
        );
        for key in [
            "initialDelaySeconds",
            "timeoutSeconds",
            "periodSeconds",
            "successThreshold",
            "failureThreshold",
        ] {
            faults.non_negative(&path.child(key), probe.int(key));
        }
        let grace = probe.int("terminationGracePeriodSeconds");
        if let Some(seconds) = grace.filter(|s| *s <= 0) {
            faults.invalid(
                &path.child("terminationGracePeriodSeconds"),
                seconds,
                "must be greater than 0",
            );
        }
        if key == "readinessProbe" {
            if let Some(seconds) = grace {
                faults.invalid(
                    &path.child("terminationGracePeriodSeconds"),
                    seconds,
                    "must not be set for readinessProbes",
                );
            }
        } else if probe.int("successThreshold") != Some(1) {
            faults.invalid(
                &path.child("successThreshold"),
                probe.int("successThreshold").unwrap_or_default(),
                "must be 1",
            );
        }
    }
}

fn handler(faults: &mut Faults, path: &FieldPath<'_>, value: &Value, kinds: &[&str], pod: &Pod<'_>) {
    let mut found = false;
    for kind in kinds {
        let action = value.dig(kind);
        if action.is_null() {
            continue;
        }
        let path = path.child(kind);
        if found {
            faults.forbidden(&path, "may not specify more than 1 handler type");
            continue;
        }
        found = true;
        match *kind {
            "exec" if action.list("command").is_empty() => faults.required(&path.child("command"), ""),
            "exec" => {}
            "httpGet" => {
                faults.need(&path.child("path"), action.text("path"));
                port_number_or_name(faults, &path.child("port"), action.dig("port"));
                faults.one_of(&path.child("scheme"), action.text("scheme"), &["HTTP", "HTTPS"]);
                for header in action.list("httpHeaders") {
                    let name = header.text("name");
                    faults.text(&path.child("httpHeaders"), name, http_header_name(name));
                }
            }
            "sleep" => {
                let seconds = action.int("seconds").unwrap_or_default();
                if let Some(grace) = pod.grace.filter(|grace| seconds < 0 || seconds > *grace) {
                    faults.invalid(
                        &path,
                        seconds,
                        format!("must be non-negative and less than terminationGracePeriodSeconds ({grace})"),
                    );
                }
            }
            _ => port_number_or_name(faults, &path.child("port"), action.dig("port")),
        }
    }
    if !found {
        faults.required(path, "must specify a handler type");
    }
}

/// A port by number or by name.
pub(crate) fn port_number_or_name(faults: &mut Faults, path: &FieldPath<'_>, port: &Value) {
    match port {
        Value::String(name) => faults.text(path, name, port_name(name)),
        other => {
            let number = other.as_i64().unwrap_or_default();
            for text in port_number(number) {
                faults.invalid(path, number, text);
            }
        }
    }
}
