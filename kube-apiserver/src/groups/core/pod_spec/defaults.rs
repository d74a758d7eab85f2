//! Defaults of pod specifications.

use serde_json::{Value, json};

use crate::json::Json;
use crate::quantity::{RESOURCES, round_lists};

/// Fills in a pod: its specification, and what only pods themselves get.
pub(crate) fn default_pod(pod: &mut Value) {
    let Some(spec) = pod.dig_mut("spec") else { return };
    default_spec(spec);
    for list in ["containers", "initContainers"] {
        for container in spec.list_mut(list) {
            requests_from_limits(container);
        }
    }
    pod_level_huge_pages(spec);
    pod_level_requests(spec);
    spec.fill("enableServiceLinks", true);
    if spec.flag("hostNetwork") {
        host_ports(spec);
    }
}

/// Fills in the specification of a pod or a template.
pub(crate) fn default_spec(spec: &mut Value) {
    spec.fill_text("dnsPolicy", "ClusterFirst");
    spec.fill_text("restartPolicy", "Always");
    spec.fill("securityContext", json!({}));
    spec.fill("terminationGracePeriodSeconds", 30);
    spec.fill_text("schedulerName", "default-scheduler");
    // The old and the new name of one field.
    let account = match spec.text("serviceAccountName") {
        "" => spec.text("serviceAccount").to_string(),
        name => name.to_string(),
    };
    if !account.is_empty() {
        spec.put("serviceAccountName", account.as_str());
        spec.put("serviceAccount", account);
    }
    round_lists(spec, &["overhead"]);
    round_lists(spec, RESOURCES);
    for volume in spec.list_mut("volumes") {
        default_volume(volume);
        if let Some(claim) = volume.dig_mut("ephemeral.volumeClaimTemplate.spec") {
            round_lists(claim, RESOURCES);
        }
    }
    for list in ["initContainers", "containers", "ephemeralContainers"] {
        for container in spec.list_mut(list) {
            default_container(container);
            round_lists(container, RESOURCES);
        }
    }
}

fn host_ports(spec: &mut Value) {
    for list in ["containers", "initContainers"] {
        for container in spec.list_mut(list) {
            for port in container.list_mut("ports") {
                let own = port.int("containerPort").unwrap_or_default();
                if own != 0 {
                    port.fill_int("hostPort", own);
                }
            }
        }
    }
}

fn requests_from_limits(container: &mut Value) {
    let Some(resources) = container.dig_mut("resources") else {
        return;
    };
    let Some(limits) = resources.object_at("limits").cloned() else {
        return;
    };
    if limits.is_empty() {
        return;
    }
    let requests = resources.ensure("requests");
    for (name, amount) in limits {
        requests.fill(&name, amount);
    }
}

/// A pod with resources of its own is limited to the huge pages of its containers.
fn pod_level_huge_pages(spec: &mut Value) {
    let mut kinds = ["limits", "requests"].into_iter();
    let own = spec.dig("resources");
    if kinds.all(|kind| own.entries(kind).next().is_none()) {
        return;
    }
    let mut limits = crate::resources::limits_of_containers(spec);
    limits.retain(|name, _| name.starts_with("hugepages-") && own.dig("requests").get(name).is_none());
    for (name, limit) in limits {
        let own = spec.ensure("resources").ensure("limits");
        own.fill(&name, limit.to_string());
    }
}

/// A pod with limits of its own requests what its containers do, or else those limits.
fn pod_level_requests(spec: &mut Value) {
    let Some(limits) = spec.object_at("resources.limits").cloned() else {
        return;
    };
    if limits.is_empty() {
        return;
    }
    let totals = crate::resources::requests_of_containers(spec);
    let requests = spec.ensure("resources").ensure("requests");
    for (name, amount) in totals {
        if matches!(name.as_str(), "cpu" | "memory") {
            requests.fill(&name, amount.to_string());
        }
    }
    for (name, amount) in limits {
        if matches!(name.as_str(), "cpu" | "memory") || name.starts_with("hugepages-") {
            requests.fill(&name, amount);
        }
    }
}

fn default_container(container: &mut Value) {
    if container.text("imagePullPolicy").is_empty() {
        container.put("imagePullPolicy", pull_policy(container.text("image")));
    }
    container.fill_text("terminationMessagePath", "/dev/termination-log");
    container.fill_text("terminationMessagePolicy", "File");
    container.fill("resources", json!({}));
    for port in container.list_mut("ports") {
        port.fill_text("protocol", "TCP");
    }
    for env in container.list_mut("env") {
        if let Some(reference) = env.dig_mut("valueFrom.fieldRef") {
            reference.fill_text("apiVersion", "v1");
        }
        if let Some(reference) = env.dig_mut("valueFrom.resourceFieldRef") {
            reference.fill("divisor", "0");
        }
        if let Some(reference) = env.dig_mut("valueFrom.fileKeyRef") {
            reference.fill("optional", false);
        }
    }
    for key in ["livenessProbe", "readinessProbe", "startupProbe"] {
        if let Some(probe) = container.dig_mut(key) {
            probe.fill_int("timeoutSeconds", 1);
            probe.fill_int("periodSeconds", 10);
            probe.fill_int("successThreshold", 1);
            probe.fill_int("failureThreshold", 3);
            default_handler(probe);
            if let Some(grpc) = probe.dig_mut("grpc") {
                grpc.fill("service", "");
            }
        }
    }
    for key in ["lifecycle.postStart", "lifecycle.preStop"] {
        if let Some(handler) = container.dig_mut(key) {
            default_handler(handler);
        }
    }
}

fn default_handler(handler: &mut Value) {
    if let Some(get) = handler.dig_mut("httpGet") {
        get.fill_text("path", "/");
        get.fill_text("scheme", "HTTP");
    }
}

/// Whether a text without a digest names an image: a host that may have a port, and parts in lower case that single separators join.
fn is_reference(image: &str) -> bool {
    const NAME_BYTES: usize = 255;
    let (name, tag) = match image.rsplit_once(':') {
        Some((name, tag)) if !tag.contains('/') => (name, Some(tag)),
        _ => (image, None),
    };
    let word = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let part = |part: &str| {
        let separators = |text: &str| matches!(text, "." | "_" | "__") || text.bytes().all(|b| b == b'-');
        part.starts_with(word)
            && part.ends_with(word)
            && part
                .split(word)
                .filter(|between| !between.is_empty())
                .all(separators)
    };
    let host = |host: &str| {
        let (host, port) = host.split_once(':').unwrap_or((host, "0"));
        let label = |label: &str| {
            !label.is_empty()
                && !label.starts_with('-')
                && !label.ends_with('-')
                && label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
        };
        let bracketed = host.starts_with('[') && host.ends_with(']');
        (bracketed || host.split('.').all(label))
            && !port.is_empty()
            && port.bytes().all(|b| b.is_ascii_digit())
    };
    let tagged = |tag: &str| {
        let inner = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.' | b'-');
        (1..=128).contains(&tag.len()) && tag.bytes().all(inner) && !tag.starts_with(['.', '-'])
    };
    let is_host = |text: &str| {
        text.contains(['.', ':']) || text == "localhost" || text.bytes().any(|b| b.is_ascii_uppercase())
    };
    let (path, implied) = match name.split_once('/') {
        Some((first, rest)) if is_host(first) => {
            if !host(first) {
                return false;
            }
            (rest, 0)
        }
        Some(_) => (name, 0),
        // Images without a namespace are the library's, which counts.
        None => (name, "library/".len()),
    };
    // 64 hexadecimal digits alone are an identifier.
    let identifier = image.len() == 64 && image.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
    path.len() + implied <= NAME_BYTES && !identifier && path.split('/').all(part) && tag.is_none_or(tagged)
}

/// `Always` for images without a tag or with `latest`, where no digest pins them.
pub(super) fn pull_policy(image: &str) -> &'static str {
    // Upstream's parser fails on what is no reference, and leaves no tag.
    if image.contains('@') || !is_reference(image) {
        return "IfNotPresent";
    }
    let last = image.rsplit('/').next().unwrap_or_default();
    match last.split_once(':') {
        Some((_, tag)) if tag != "latest" => "IfNotPresent",
        _ => "Always",
    }
}

const VOLUME_TYPES: &[&str] = super::volumes::TYPES;

fn default_volume(volume: &mut Value) {
    if !VOLUME_TYPES.iter().any(|kind| volume.has(kind)) {
        volume.put("emptyDir", json!({}));
    }
    for (kind, mode) in [
        ("secret", 420),
        ("configMap", 420),
        ("downwardAPI", 420),
        ("projected", 420),
    ] {
        if let Some(source) = volume.dig_mut(kind) {
            source.fill("defaultMode", mode);
        }
    }
    for file in volume.list_mut("downwardAPI.items") {
        default_downward_file(file);
    }
    for source in volume.list_mut("projected.sources") {
        if let Some(token) = source.dig_mut("serviceAccountToken") {
            token.fill("expirationSeconds", 3600);
        }
        for file in source.list_mut("downwardAPI.items") {
            default_downward_file(file);
        }
    }
    if let Some(path) = volume.dig_mut("hostPath") {
        path.fill("type", "");
    }
    if let Some(iscsi) = volume.dig_mut("iscsi") {
        iscsi.fill_text("iscsiInterface", "default");
    }
    if let Some(rbd) = volume.dig_mut("rbd") {
        rbd.fill_text("pool", "rbd");
        rbd.fill_text("user", "admin");
        rbd.fill_text("keyring", "/etc/ceph/keyring");
    }
    if let Some(disk) = volume.dig_mut("azureDisk") {
        disk.fill("cachingMode", "ReadWrite");
        disk.fill("kind", "Shared");
        disk.fill("fsType", "ext4");
        disk.fill("readOnly", false);
    }
    if let Some(scale) = volume.dig_mut("scaleIO") {
        scale.fill_text("storageMode", "ThinProvisioned");
        scale.fill_text("fsType", "xfs");
    }
    if let Some(spec) = volume.dig_mut("ephemeral.volumeClaimTemplate.spec") {
        spec.fill("volumeMode", "Filesystem");
        spec.fill("resources", json!({}));
    }
    if let Some(image) = volume.dig_mut("image")
        && image.text("pullPolicy").is_empty()
    {
        image.put("pullPolicy", pull_policy(image.text("reference")));
    }
}

fn default_downward_file(file: &mut Value) {
    if let Some(reference) = file.dig_mut("fieldRef") {
        reference.fill_text("apiVersion", "v1");
    }
    if let Some(reference) = file.dig_mut("resourceFieldRef") {
        reference.fill("divisor", "0");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_decide_the_pull_policy() {
        for (image, policy) in [
            ("i", "Always"),
            ("Odd", "IfNotPresent"),
            ("a b", "IfNotPresent"),
            ("-a", "IfNotPresent"),
            ("a.-b", "IfNotPresent"),
            ("host.example.com:5000/a__b/c-d", "Always"),
            ("localhost/a:latest", "Always"),
            ("img:1", "IfNotPresent"),
            ("r:5000/img:latest", "Always"),
            ("r:5000/img", "Always"),
            ("r:5000/img:2", "IfNotPresent"),
            ("img@sha256:aaaa", "IfNotPresent"),
            ("", "IfNotPresent"),
            // A name without a namespace is the library's, which counts against the longest name.
            (&"a".repeat(247), "Always"),
            (&"a".repeat(248), "IfNotPresent"),
            (&format!("h.io/{}", "a".repeat(255)), "Always"),
            (&format!("h.io/{}", "a".repeat(256)), "IfNotPresent"),
        ] {
            assert_eq!(pull_policy(image), policy, "{image}");
        }
    }

    #[test]
    fn defaulting_twice_changes_nothing() {
        let mut pod = json!({"spec": {"hostNetwork": true, "containers": [{"name": "c", "image": "i",
            "ports": [{"containerPort": 80}], "resources": {"limits": {"cpu": "1"}},
            "livenessProbe": {"httpGet": {"port": 80}}}], "volumes": [{"name": "v"}]}});
        default_pod(&mut pod);
        let once = pod.clone();
        default_pod(&mut pod);
        assert_eq!(pod, once);
        let container = &pod["spec"]["containers"][0];
        assert_eq!(container["ports"][0]["hostPort"], 80);
        assert_eq!(container["resources"]["requests"]["cpu"], "1");
        assert_eq!(container["livenessProbe"]["httpGet"]["path"], "/");
        assert_eq!(pod["spec"]["volumes"][0]["emptyDir"], json!({}));
    }
}
