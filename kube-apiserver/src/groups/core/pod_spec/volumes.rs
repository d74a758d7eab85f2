//! Volumes of a pod specification.

use std::collections::BTreeMap;

use machinery::FieldPath;
use machinery::names::dns1123_subdomain;
use serde_json::Value;

use super::env::{VOLUME_FIELDS, field_ref, resource_ref};
use super::paths::{local_non_reserved_path, no_backsteps};
use super::projections;
use super::{SpecOwner, label, template_metadata};
use crate::errors::{Errors, Ratchet};
use crate::groups::core::claim_spec;
use crate::json::Json;
use crate::quantity::amount;
use crate::unique::Seen;

/// The valid volumes by name.
pub(super) type Volumes<'a> = BTreeMap<&'a str, &'a Value>;

/// The types of volumes, in the order in which upstream looks for them.
pub(super) const TYPES: &[&str] = &[
    "emptyDir",
    "hostPath",
    "gitRepo",
    "gcePersistentDisk",
    "awsElasticBlockStore",
    "secret",
    "nfs",
    "iscsi",
    "glusterfs",
    "flocker",
    "persistentVolumeClaim",
    "rbd",
    "cinder",
    "cephfs",
    "quobyte",
    "downwardAPI",
    "fc",
    "flexVolume",
    "configMap",
    "azureFile",
    "vsphereVolume",
    "photonPersistentDisk",
    "portworxVolume",
    "azureDisk",
    "storageos",
    "projected",
    "scaleIO",
    "csi",
    "ephemeral",
    "image",
];

pub(super) fn validate<'a>(
    errors: &mut Errors,
    path: &FieldPath<'_>,
    list: &'a [Value],
    owner: SpecOwner<'_>,
) -> Volumes<'a> {
    let mut volumes = Volumes::new();
    // The names of the claims that will be made.
    let created: Seen<String> = list
        .iter()
        .filter(|v| v.has("ephemeral") && !owner.name.is_empty())
        .map(|v| format!("{}-{}", owner.name, v.text("name")))
        .collect();
    for (index, volume) in list.iter().enumerate() {
        let path = path.index(index);
        let before = errors.len();
        let name = volume.text("name");
        source(errors, &path, volume, owner);
        let at = path.child("name");
        if errors.need(&at, name) {
            label(errors, &at, name);
        }
        if volumes.contains_key(name) {
            errors.duplicate(&at, name);
        }
        if errors.len() == before {
            volumes.insert(name, volume);
        }
        let claim = volume.text("persistentVolumeClaim.claimName");
        if created.has(claim) {
            let at = path.child("persistentVolumeClaim");
            errors.invalid(
                &at.child("claimName"),
                claim,
                "must not reference a PVC that gets created for an ephemeral volume",
            );
        }
    }
    volumes
}

fn source(errors: &mut Errors, path: &FieldPath<'_>, volume: &Value, owner: SpecOwner<'_>) {
    let mut found = false;
    for kind in TYPES {
        let value = volume.dig(kind);
        if value.is_null() {
            continue;
        }
        if found {
            // Two have other names in upstream's paths.
            let shown = match *kind {
                "cephfs" => "cephFS",
                "downwardAPI" => "downwarAPI",
                kind => kind,
            };
            errors.forbidden(&path.child(shown), "may not specify more than 1 volume type");
            continue;
        }
        found = true;
        one(errors, &path.child(shown_source(kind)), kind, value);
        if *kind == "ephemeral" && !owner.name.is_empty() && !volume.text("name").is_empty() {
            let claim = format!("{}-{}", owner.name, volume.text("name"));
            for text in dns1123_subdomain(&claim) {
                errors.invalid(
                    &path.child("name"),
                    volume.text("name"),
                    format!("PVC name \"{claim}\": {text}"),
                );
            }
        }
    }
    if !found {
        errors.required(path, "must specify a volume type");
    }
}

/// The required fields of sources that have no other rules.
const NEEDED: &[(&str, &[&str])] = &[
    ("gitRepo", &["repository"]),
    ("gcePersistentDisk", &["pdName"]),
    ("awsElasticBlockStore", &["volumeID"]),
    ("glusterfs", &["endpoints", "path"]),
    ("persistentVolumeClaim", &["claimName"]),
    ("cinder", &["volumeID"]),
    ("flexVolume", &["driver"]),
    ("azureFile", &["secretName", "shareName"]),
    ("azureDisk", &["diskName", "diskURI"]),
    ("vsphereVolume", &["volumePath"]),
    ("photonPersistentDisk", &["pdID"]),
    ("portworxVolume", &["volumeID"]),
    ("scaleIO", &["gateway", "system", "volumeName"]),
];

/// What upstream's paths call a source in which a fault is.
pub(crate) fn shown_source(kind: &str) -> &str {
    match kind {
        "gcePersistentDisk" => "persistentDisk",
        kind => kind,
    }
}

/// One source of a pod's volume or of a persistent volume.
pub(crate) fn one(errors: &mut Errors, path: &FieldPath<'_>, kind: &str, value: &Value) {
    if let Some((_, keys)) = NEEDED.iter().find(|(name, _)| *name == kind) {
        for key in *keys {
            errors.need(&path.child(key), value.text(key));
        }
    }
    if matches!(kind, "cinder" | "storageos") && value.has("secretRef") {
        errors.need(
            &path.child("secretRef").child("name"),
            value.text("secretRef.name"),
        );
    }
    match kind {
        "emptyDir" if amount(value.dig("sizeLimit")).is_some_and(|q| q.signum() < 0) => errors.forbidden(
            &path.child("sizeLimit"),
            "SizeLimit field must be a valid resource quantity",
        ),
        "hostPath" => host_path(errors, path, value),
        "nfs" => {
            errors.need(&path.child("server"), value.text("server"));
            let dir = value.text("path");
            errors.need(&path.child("path"), dir);
            if !dir.starts_with('/') {
                errors.invalid(&path.child("path"), dir, "must be an absolute path");
            }
        }
        "secret" => {
            errors.need(&path.child("secretName"), value.text("secretName"));
            file_mode(errors, path, "defaultMode", value);
            items(errors, &path.child("items"), value.list("items"));
        }
        "configMap" => {
            errors.need(&path.child("name"), value.text("name"));
            file_mode(errors, path, "defaultMode", value);
            items(errors, &path.child("items"), value.list("items"));
        }
        "downwardAPI" => {
            file_mode(errors, path, "defaultMode", value);
            for file in value.list("items") {
                downward_file(errors, path, file);
            }
        }
        "projected" => projected(errors, path, value),
        "rbd" => {
            if value.list("monitors").is_empty() {
                errors.required(&path.child("monitors"), "");
            }
            errors.need(&path.child("image"), value.text("image"));
        }
        "cephfs" if value.list("monitors").is_empty() => errors.required(&path.child("monitors"), ""),
        "gcePersistentDisk" | "awsElasticBlockStore" => {
            let partition = value.int("partition").unwrap_or_default();
            if !(0..=255).contains(&partition) {
                errors.invalid(
                    &path.child("partition"),
                    partition,
                    "must be between 1 and 255, inclusive",
                );
            }
        }
        "iscsi" => iscsi(errors, path, value),
        "fc" => fibre_channel(errors, path, value),
        "azureDisk" => azure_disk(errors, path, value),
        "storageos" => {
            for key in ["volumeName", "volumeNamespace"] {
                let name = value.text(key);
                if !name.is_empty() || key == "volumeName" && errors.need(&path.child(key), name) {
                    label(errors, &path.child(key), name);
                }
            }
        }
        "flocker" => flocker(errors, path, value),
        "quobyte" => {
            let registry = value.text("registry");
            let pairs = "must be a host:port pair or multiple pairs separated by commas";
            if registry.is_empty() {
                errors.required(&path.child("registry"), pairs);
            } else if value.text("tenant").len() > 64 {
                let text = "must be a UUID and may not exceed a length of 64 characters";
                errors.required(&path.child("tenant"), text);
            } else {
                // Both parts of a pair may be empty; an address with colons is in brackets.
                let is_pair = |pair: &str| {
                    let host = pair.rsplit_once(':').map(|(host, _)| host);
                    host.is_some_and(|host| {
                        !host.contains(':') || host.starts_with('[') && host.ends_with(']')
                    })
                };
                for _ in registry.split(',').filter(|pair| !is_pair(pair)) {
                    errors.invalid(&path.child("registry"), registry, pairs);
                }
            }
            errors.need(&path.child("volume"), value.text("volume"));
        }
        "csi" => {
            csi_driver(errors, &path.child("driver"), value.text("driver"));
            if value.has("nodePublishSecretRef") {
                let name = value.text("nodePublishSecretRef.name");
                if errors.need(&path.child("nodePublishSecretRef.name"), name) {
                    errors.text(&path.child("name"), name, dns1123_subdomain(name));
                }
            }
        }
        "ephemeral" => {
            let at = path.child("volumeClaimTemplate");
            if !value.has("volumeClaimTemplate") {
                errors.required(&at, "");
            } else {
                let metadata = value.dig("volumeClaimTemplate.metadata");
                template_metadata(errors, &at.child("metadata"), metadata);
                let spec = value.dig("volumeClaimTemplate.spec");
                claim_spec::validate(errors, &at.child("spec"), spec);
            }
        }
        "image" => {
            errors.need(&path.child("reference"), value.text("reference"));
            errors.required_one_of(
                &path.child("pullPolicy"),
                value.text("pullPolicy"),
                &["Always", "IfNotPresent", "Never"],
            );
        }
        _ => {}
    }
}

/// A logical unit of a target.
fn unit(errors: &mut Errors, path: &FieldPath<'_>, number: i64) {
    if !(0..=255).contains(&number) {
        errors.invalid(path, number, "must be between 0 and 255, inclusive");
    }
}

fn iscsi(errors: &mut Errors, path: &FieldPath<'_>, value: &Value) {
    errors.need(&path.child("targetPortal"), value.text("targetPortal"));
    let name = value.text("iqn");
    if errors.need(&path.child("iqn"), name) && !is_initiator(name) {
        errors.invalid(&path.child("iqn"), name, initiator_fault(name));
    }
    unit(errors, &path.child("lun"), value.int("lun").unwrap_or_default());
    let authenticated = ["chapAuthDiscovery", "chapAuthSession"];
    if authenticated.iter().any(|key| value.flag(key)) && !value.has("secretRef") {
        errors.required(&path.child("secretRef"), "");
    }
    if let Some(name) = value.dig("initiatorName").as_str()
        && !is_initiator(name)
    {
        errors.invalid(&path.child("initiatorname"), name, initiator_fault(name));
    }
}

/// The text for a name of an iSCSI node that is none.
/// What is wrong with the name of an initiator.
fn initiator_fault(name: &str) -> &'static str {
    match ["iqn", "eui", "naa"].iter().any(|kind| name.starts_with(kind)) {
        true => "must be valid format",
        false => "must be valid format starting with iqn, eui, or naa",
    }
}

/// Whether a text is the name of an iSCSI node, in one of its three forms.
fn is_initiator(name: &str) -> bool {
    let of_length = |rest: &str, length: usize| {
        let mut rest = rest.chars();
        let separated = rest.next().is_some();
        let rest = rest.as_str();
        separated && rest.len() == length && rest.bytes().all(|b| b.is_ascii_alphanumeric())
    };
    if let Some(rest) = name.strip_prefix("eui") {
        return of_length(rest, 16);
    }
    if let Some(rest) = name.strip_prefix("naa") {
        return of_length(rest, 32);
    }
    name.strip_prefix("iqn.").is_some_and(is_qualified)
}

/// What follows `iqn.`: year and month, the authority's name, and a string of it.
fn is_qualified(rest: &str) -> bool {
    let Some((date, rest)) = rest.split_at_checked(7) else {
        return false;
    };
    let digits = |text: &str| text.bytes().all(|b| b.is_ascii_digit());
    let dated = date.as_bytes()[4] == b'-' && digits(&date[..4]) && digits(&date[5..]);
    let Some((authority, own)) = rest.strip_prefix('.').and_then(|rest| rest.split_once(':')) else {
        return false;
    };
    let named = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.');
    let free = |c: char| !c.is_ascii_whitespace() && !",;*&$|".contains(c);
    dated && !authority.is_empty() && authority.bytes().all(named) && !own.is_empty() && own.chars().all(free)
}

fn fibre_channel(errors: &mut Errors, path: &FieldPath<'_>, value: &Value) {
    let at = path.child("targetWWNs");
    let (targets, identifiers) = (value.list("targetWWNs"), value.list("wwids"));
    if targets.is_empty() && identifiers.is_empty() {
        errors.required(&at, "must specify either targetWWNs or wwids, but not both");
    }
    if targets.is_empty() {
        return;
    }
    if !identifiers.is_empty() {
        errors.invalid_value(
            &at,
            value.dig("targetWWNs"),
            "targetWWNs and wwids can not be specified simultaneously",
        );
    }
    match value.int("lun") {
        None => errors.required(&path.child("lun"), "lun is required if targetWWNs is specified"),
        Some(number) => unit(errors, &path.child("lun"), number),
    }
}

fn azure_disk(errors: &mut Errors, path: &FieldPath<'_>, value: &Value) {
    for (key, known) in [
        ("cachingMode", ["None", "ReadOnly", "ReadWrite"]),
        ("kind", ["Dedicated", "Managed", "Shared"]),
    ] {
        if value.has(key) {
            errors.one_of(&path.child(key), value.text(key), &known);
        }
    }
    if !value.has("kind") {
        return;
    }
    let (start, form) = match value.text("kind") {
        "Managed" => (
            "/subscriptions/",
            "/subscriptions/{sub-id}/resourcegroups/{group-name}/providers/microsoft.compute/disks/{disk-id}",
        ),
        _ => (
            "https://",
            "https://{account-name}.blob.core.windows.net/{container-name}/{disk-name}.vhd",
        ),
    };
    let uri = value.text("diskURI");
    if !uri.starts_with(start) {
        errors.unsupported(&path.child("diskURI"), uri, &[form]);
    }
}

fn flocker(errors: &mut Errors, path: &FieldPath<'_>, value: &Value) {
    let (name, id) = (value.text("datasetName"), value.text("datasetUUID"));
    if name.is_empty() && id.is_empty() {
        errors.required(path, "one of datasetName and datasetUUID is required");
    }
    if !name.is_empty() && !id.is_empty() {
        errors.invalid(
            path,
            "resource",
            "datasetName and datasetUUID can not be specified simultaneously",
        );
    }
    if name.contains('/') {
        errors.invalid(&path.child("datasetName"), name, "must not contain '/'");
    }
}

/// The name of a CSI driver.
pub(crate) fn csi_driver(errors: &mut Errors, path: &FieldPath<'_>, name: &str) {
    if !errors.need(path, name) {
        return;
    }
    if name.len() > 63 {
        errors.too_long(path, 63);
    }
    let lower = name.to_lowercase();
    errors.text(path, name, dns1123_subdomain(&lower));
}

fn host_path(errors: &mut Errors, path: &FieldPath<'_>, value: &Value) {
    let dir = value.text("path");
    if !errors.need(&path.child("path"), dir) {
        return;
    }
    no_backsteps(errors, &path.child("path"), dir);
    if value.has("type") {
        errors.one_of(
            &path.child("type"),
            value.text("type"),
            &[
                "",
                "BlockDevice",
                "CharDevice",
                "Directory",
                "DirectoryOrCreate",
                "File",
                "FileOrCreate",
                "Socket",
            ],
        );
    }
}

fn file_mode(errors: &mut Errors, path: &FieldPath<'_>, key: &str, value: &Value) {
    if let Some(mode) = value.int(key).filter(|mode| !(0..=0o777).contains(mode)) {
        errors.invalid(
            &path.child(key),
            mode,
            "must be a number between 0 and 0777 (octal), both inclusive",
        );
    }
}

fn items(errors: &mut Errors, path: &FieldPath<'_>, list: &[Value]) {
    for (index, item) in list.iter().enumerate() {
        let path = path.index(index);
        errors.need(&path.child("key"), item.text("key"));
        errors.need(&path.child("path"), item.text("path"));
        local_non_reserved_path(errors, &path.child("path"), item.text("path"));
        file_mode(errors, &path, "mode", item);
    }
}

fn downward_file(errors: &mut Errors, path: &FieldPath<'_>, file: &Value) {
    errors.need(&path.child("path"), file.text("path"));
    local_non_reserved_path(errors, &path.child("path"), file.text("path"));
    if file.has("fieldRef") {
        field_ref(
            errors,
            &path.child("fieldRef"),
            file.dig("fieldRef"),
            VOLUME_FIELDS,
        );
        if file.has("resourceFieldRef") {
            errors.invalid(
                path,
                "resource",
                "fieldRef and resourceFieldRef can not be specified simultaneously",
            );
        }
    } else if file.has("resourceFieldRef") {
        resource_ref(
            errors,
            &path.child("resourceFieldRef"),
            file.dig("resourceFieldRef"),
            true,
        );
    } else {
        errors.required(path, "one of fieldRef and resourceFieldRef is required");
    }
    file_mode(errors, path, "mode", file);
}

fn projected(errors: &mut Errors, path: &FieldPath<'_>, value: &Value) {
    file_mode(errors, path, "defaultMode", value);
    let mut taken = Seen::default();
    let sources = path.child("sources");
    for (index, source) in value.list("sources").iter().enumerate() {
        let at = sources.index(index);
        let mut count = 0;
        for kind in ["secret", "configMap"] {
            if source.has(kind) {
                count += 1;
                let body = source.dig(kind);
                let at = at.child(kind);
                errors.need(&at.child("name"), body.text("name"));
                items(errors, &at.child("items"), body.list("items"));
                for item in body.list("items") {
                    take(errors, path, &mut taken, item.text("path"), body.text("name"));
                }
            }
        }
        if source.has("downwardAPI") {
            count += 1;
            let at = at.child("downwardAPI");
            for file in source.list("downwardAPI.items") {
                downward_file(errors, &at, file);
                take(errors, path, &mut taken, file.text("path"), file.text("path"));
            }
        }
        if source.has("serviceAccountToken") {
            count += 1;
            let at = at.child("serviceAccountToken");
            let token = source.dig("serviceAccountToken");
            expiration(
                errors,
                &at.child("expirationSeconds"),
                token.int("expirationSeconds"),
            );
            let file = token.text("path");
            // Upstream names the volume's path here.
            if errors.need(&path.child("path"), file) {
                errors.ratcheted(Ratchet::TokenPath, |errors| {
                    local_non_reserved_path(errors, &path.child("path"), file);
                });
            }
        }
        if source.has("clusterTrustBundle") {
            count += 1;
            let at = at.child("clusterTrustBundle");
            let file = projections::trust_bundle(errors, &at, source.dig("clusterTrustBundle"));
            take(errors, path, &mut taken, file, file);
        }
        if source.has("podCertificate") {
            count += 1;
            let at = at.child("podCertificate");
            for file in projections::pod_certificate(errors, &at, source.dig("podCertificate")) {
                take(errors, path, &mut taken, file, file);
            }
        }
        if count > 1 {
            errors.forbidden(&at, "may not specify more than 1 volume type per source");
        }
    }
}

/// How long a token of a service account may be asked for.
pub(crate) fn expiration(errors: &mut Errors, path: &FieldPath<'_>, seconds: Option<i64>) {
    let seconds = seconds.unwrap_or_default();
    if seconds < 600 {
        errors.invalid(path, seconds, "may not specify a duration less than 10 minutes");
    }
    if seconds > 1 << 32 {
        errors.invalid(
            path,
            seconds,
            "may not specify a duration larger than 2^32 seconds",
        );
    }
}

fn take<'a>(
    errors: &mut Errors,
    path: &FieldPath<'_>,
    taken: &mut Seen<&'a str>,
    file: &'a str,
    shown: &str,
) {
    if file.is_empty() {
        return;
    }
    if taken.again(file) {
        errors.invalid(path, shown, "conflicting duplicate paths");
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::groups::check::check_pod as check;

    fn volume(source: Value) -> Value {
        let mut volume = source;
        volume["name"] = "v".into();
        json!({"volumes": [volume]})
    }

    #[test]
    fn one_source_each() {
        check(&volume(json!({"emptyDir": {}})), &[]);
        check(
            &volume(json!({"emptyDir": {}, "hostPath": {"path": "/a"}})),
            &["spec.volumes[0].hostPath: Forbidden: may not specify more than 1 volume type"],
        );
        check(
            &json!({"volumes": [{"name": "v", "emptyDir": {}}, {"name": "v", "emptyDir": {}}]}),
            &[r#"spec.volumes[1].name: Duplicate value: "v""#],
        );
        check(
            &json!({"volumes": [{"name": "A", "emptyDir": {}}]}),
            &[
                r#"spec.volumes[0].name: Invalid value: "A": a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')"#,
            ],
        );
    }

    #[test]
    fn fields_that_sources_need() {
        for (source, error) in [
            (
                json!({"nfs": {"server": "s", "path": "a"}}),
                r#"nfs.path: Invalid value: "a": must be an absolute path"#,
            ),
            (json!({"nfs": {"path": "/a"}}), "nfs.server: Required value"),
            (
                json!({"hostPath": {"path": "/a/../b"}}),
                r#"hostPath.path: Invalid value: "/a/../b": must not contain '..'"#,
            ),
            (json!({"secret": {}}), "secret.secretName: Required value"),
            (json!({"configMap": {}}), "configMap.name: Required value"),
            (
                json!({"persistentVolumeClaim": {}}),
                "persistentVolumeClaim.claimName: Required value",
            ),
            (json!({"rbd": {"image": "i"}}), "rbd.monitors: Required value"),
            (json!({"csi": {}}), "csi.driver: Required value"),
            (
                json!({"image": {"reference": "i", "pullPolicy": "Maybe"}}),
                r#"image.pullPolicy: Unsupported value: "Maybe": supported values: "Always", "IfNotPresent", "Never""#,
            ),
            (
                json!({"emptyDir": {"sizeLimit": "-1"}}),
                "emptyDir.sizeLimit: Forbidden: SizeLimit field must be a valid resource quantity",
            ),
        ] {
            check(&volume(source), &[&format!("spec.volumes[0].{error}")]);
        }
    }

    #[test]
    fn sources_have_rules_of_their_own() {
        for (source, error) in [
            (
                json!({"iscsi": {"targetPortal": "p", "iqn": "x", "lun": 256, "chapAuthSession": true}}),
                &[
                    r#"iscsi.iqn: Invalid value: "x": must be valid format starting with iqn, eui, or naa"#,
                    "iscsi.lun: Invalid value: 256: must be between 0 and 255, inclusive",
                    "iscsi.secretRef: Required value",
                ][..],
            ),
            (
                json!({"fc": {}}),
                &["fc.targetWWNs: Required value: must specify either targetWWNs or wwids, but not both"],
            ),
            (
                json!({"fc": {"targetWWNs": ["w"]}}),
                &["fc.lun: Required value: lun is required if targetWWNs is specified"],
            ),
            (
                json!({"azureDisk": {"diskName": "d", "diskURI": "x", "kind": "Managed"}}),
                &[
                    r#"azureDisk.diskURI: Unsupported value: "x": supported values: "/subscriptions/{sub-id}/resourcegroups/{group-name}/providers/microsoft.compute/disks/{disk-id}""#,
                ],
            ),
            (
                json!({"flocker": {"datasetName": "a", "datasetUUID": "b"}}),
                &[
                    r#"flocker: Invalid value: "resource": datasetName and datasetUUID can not be specified simultaneously"#,
                ],
            ),
            (
                json!({"cinder": {"volumeID": "v", "secretRef": {}}}),
                &["cinder.secretRef.name: Required value"],
            ),
            (
                json!({"storageos": {"volumeName": "v", "secretRef": {}}}),
                &["storageos.secretRef.name: Required value"],
            ),
            (
                json!({"gcePersistentDisk": {"pdName": "p", "partition": 256}}),
                &["persistentDisk.partition: Invalid value: 256: must be between 1 and 255, inclusive"],
            ),
        ] {
            let expected: Vec<String> = error
                .iter()
                .map(|error| format!("spec.volumes[0].{error}"))
                .collect();
            let expected: Vec<&str> = expected.iter().map(String::as_str).collect();
            check(&volume(source), &expected);
        }
    }

    #[test]
    fn names_of_iscsi_nodes() {
        for (name, expected) in [
            ("iqn.2001-04.com.example:storage", true),
            ("iqn.2001-04.com.example", false),
            ("iqn.2001-04.com.example:", false),
            ("iqn.201-04.com.example:x", false),
            ("iqn.2001-04.com.example:a b", false),
            ("iqn.ééééé.a:b", false),
            ("eui.02004567A425678D", true),
            ("eui.02004567A425678", false),
            ("naa.52004567BA64678D52004567BA64678D", true),
            ("x", false),
        ] {
            assert_eq!(super::is_initiator(name), expected, "{name}");
        }
    }

    #[test]
    fn files_of_sources() {
        let mode = |mode: i64| volume(json!({"secret": {"secretName": "s", "defaultMode": mode}}));
        check(&mode(0o777), &[]);
        for bad in [0o1000, -1] {
            let error = format!(
                "spec.volumes[0].secret.defaultMode: Invalid value: {bad}: must be a number between 0 and 0777 (octal), both inclusive"
            );
            check(&mode(bad), &[&error]);
        }
        let item =
            |path: &str| volume(json!({"configMap": {"name": "m", "items": [{"key": "k", "path": path}]}}));
        check(&item("a/b"), &[]);
        check(
            &item("..a"),
            &[r#"spec.volumes[0].configMap.items[0].path: Invalid value: "..a": must not start with '..'"#],
        );
        let projected = |sources: Value| volume(json!({"projected": {"sources": sources}}));
        let token = |seconds: i64| {
            let source = json!([{"serviceAccountToken": {"path": "t", "expirationSeconds": seconds}}]);
            let mut spec = projected(source);
            spec["serviceAccountName"] = "default".into();
            spec
        };
        check(&token(600), &[]);
        check(
            &token(599),
            &[
                "spec.volumes[0].projected.sources[0].serviceAccountToken.expirationSeconds: Invalid value: 599: may not specify a duration less than 10 minutes",
            ],
        );
        check(&token(1 << 32), &[]);
        check(
            &token((1 << 32) + 1),
            &[
                "spec.volumes[0].projected.sources[0].serviceAccountToken.expirationSeconds: Invalid value: 4294967297: may not specify a duration larger than 2^32 seconds",
            ],
        );
        let same = json!({"name": "m", "items": [{"key": "k", "path": "p"}]});
        check(
            &projected(json!([{"configMap": same}, {"secret": same}])),
            &[r#"spec.volumes[0].projected: Invalid value: "m": conflicting duplicate paths"#],
        );
        check(
            &volume(json!({"downwardAPI": {"items": [{"path": "p"}]}})),
            &[
                "spec.volumes[0].downwardAPI: Required value: one of fieldRef and resourceFieldRef is required",
            ],
        );
    }
}
