//! StorageVersion: in which version each API server stores a resource.

use generic_server::registry::strategy::MetadataRules;
use machinery::names::{dns1035_label, dns1123_subdomain, qualified_name};
use machinery::{FieldError, FieldPath};
use serde_json::Value;

use crate::errors::Errors;
use crate::json::Json;
use crate::rules::{Rules, StatusMeta};
use crate::unique::Seen;

pub(crate) static RULES: Rules = Rules {
    name: |name, _| validate_name(name),
    metadata: MetadataRules::CREATE,
    status: true,
    status_meta: StatusMeta::Reset,
    unconditional_update: false,
    default: |object| {
        object.ensure("spec");
        object.ensure("status");
    },
    validate_status: |errors, object, _| validate_status(errors, object),
    ..Rules::PLAIN
};

/// A name is that of a resource with its group before it: `GROUP.RESOURCE`.
fn validate_name(name: &str) -> Vec<String> {
    let Some((group, resource)) = name.rsplit_once('.') else {
        return vec!["name must be in the form of <group>.<resource>".into()];
    };
    let of_group = dns1123_subdomain(group).into_iter();
    let of_resource = dns1035_label(resource).into_iter();
    of_group
        .map(|text| format!("the group segment {text}"))
        .chain(of_resource.map(|text| format!("the resource segment {text}")))
        .collect()
}

fn validate_status(errors: &mut Errors, object: &Value) {
    let (path, status) = (FieldPath::new("status"), object.dig("status"));
    let servers = status.list("storageVersions");
    let mut ids = Seen::default();
    let list = path.child("storageVersions");
    for (index, server) in servers.iter().enumerate() {
        let at = list.index(index);
        let id = server.text("apiServerID");
        if ids.again(id) {
            errors.duplicate(&at.child("apiServerID"), id);
        }
        versions_of(errors, &at, server);
    }
    common(errors, &path.child("commonEncodingVersion"), status, servers);
    let mut types: Vec<&str> = Vec::new();
    for (index, condition) in status.list("conditions").iter().enumerate() {
        // Upstream's path leaves out the name of the list.
        let at = path.index(index);
        let kind = condition.text("type");
        if let Some(first) = types.iter().rposition(|known| *known == kind) {
            let text =
                format!("the type of the condition is not unique, it also appears in conditions[{first}]");
            errors.invalid(&at.child("type"), kind, text);
        }
        types.push(kind);
        for key in ["type", "status"] {
            let text = condition.text(key);
            errors.text(&at.child(key), text, qualified_name(text));
        }
        for key in ["reason", "message"] {
            errors.need(&at.child(key), condition.text(key));
        }
        if errors.is_full() {
            return;
        }
    }
}

fn versions_of(errors: &mut Errors, path: &FieldPath<'_>, server: &Value) {
    let (id, encoding) = (server.text("apiServerID"), server.text("encodingVersion"));
    errors.text(&path.child("apiServerID"), id, dns1123_subdomain(id));
    version(errors, &path.child("encodingVersion"), encoding);
    let at = path.child("decodableVersions");
    let mut decodable = Seen::default();
    for (index, one) in server.strings("decodableVersions").enumerate() {
        version(errors, &at.index(index), one);
        decodable.again(one);
    }
    if !decodable.has(encoding) {
        let text = format!("decodableVersions must include encodingVersion {encoding}");
        let shown = match server.list("decodableVersions") {
            [] => &Value::Null,
            _ => server.dig("decodableVersions"),
        };
        errors.invalid_value(&at, shown, text);
    }
    let at = path.child("servedVersions");
    for (index, one) in server.strings("servedVersions").enumerate() {
        version(errors, &at.index(index), one);
        if !decodable.has(one) && !errors.is_full() {
            let all: Vec<&str> = server.strings("decodableVersions").collect();
            let text = format!(
                "individual served version : {one} must be included in decodableVersions : [{}]",
                all.join(" ")
            );
            errors.invalid(&at.index(index), one, text);
        }
    }
}

/// What all servers encode in is said by the status, and nothing where they differ.
fn common(errors: &mut Errors, path: &FieldPath<'_>, status: &Value, servers: &[Value]) {
    let mut versions = servers.iter().map(|server| server.text("encodingVersion"));
    let first = versions.next();
    let actual = first.filter(|first| versions.all(|other| other == *first));
    let said = status
        .has("commonEncodingVersion")
        .then(|| status.text("commonEncodingVersion"));
    match (actual, said) {
        (None, Some(said)) => errors.invalid(
            path,
            said,
            "should be nil if servers do not agree on the same encoding version, or if there is no server reporting the supported versions yet",
        ),
        (Some(actual), None) => {
            let text = format!("the common encoding version is {actual}");
            errors.push(FieldError::invalid(path, &Value::Null, text));
        }
        (Some(actual), Some(said)) if actual != said => {
            errors.invalid(
                path,
                said,
                format!("the actual common encoding version is {actual}"),
            );
        }
        _ => {}
    }
}

/// A version with its group, which the core group leaves out.
fn version(errors: &mut Errors, path: &FieldPath<'_>, text: &str) {
    let mut texts = Vec::new();
    let (group, version) = match text.split('/').collect::<Vec<_>>()[..] {
        [version] => (None, version),
        [group, version] => (Some(group), version),
        _ => {
            let form = "an apiVersion is a DNS-1035 label, which must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?') with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyVersion')";
            return errors.invalid(path, text, form);
        }
    };
    let mut part = |name: &str, value: &str, found: Vec<String>| {
        if value.is_empty() {
            texts.push(format!("{name} part: must be non-empty"));
        } else {
            let found = found.into_iter();
            texts.extend(found.map(|text| format!("{name} part: {text}")));
        }
    };
    if let Some(group) = group {
        part("group", group, dns1123_subdomain(group));
    }
    part("version", version, dns1035_label(version));
    if !texts.is_empty() {
        errors.invalid(path, text, texts.join(","));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::groups::check::kind;

    fn object() -> Value {
        json!({"metadata": {"name": "apps.deployments"}})
    }

    #[track_caller]
    fn check(status: Value, expected: &[&str]) {
        let versions = kind("storageversions.internal.apiserver.k8s.io");
        versions.update_of("status", &object(), &json!({"status": status}), expected);
    }

    fn server(id: &str, encoding: &str) -> Value {
        json!({"apiServerID": id, "encodingVersion": encoding, "decodableVersions": ["apps/v1", "apps/v2"]})
    }

    #[test]
    fn names_are_of_resources() {
        let versions = kind("storageversions.internal.apiserver.k8s.io");
        versions.create(&object(), &[]);
        versions.create(
            &json!({"metadata": {"name": "pods"}}),
            &[r#"metadata.name: Invalid value: "pods": name must be in the form of <group>.<resource>"#],
        );
        assert_eq!(validate_name("A.1").len(), 2);
    }

    #[test]
    fn servers_agree_or_do_not() {
        check(json!({}), &[]);
        let one = server("a", "apps/v1");
        check(
            json!({"storageVersions": [one], "commonEncodingVersion": "apps/v1"}),
            &[],
        );
        let differ = json!([one, server("b", "apps/v2")]);
        check(json!({"storageVersions": differ}), &[]);
        check(
            json!({"storageVersions": differ, "commonEncodingVersion": "apps/v1"}),
            &[
                r#"status.commonEncodingVersion: Invalid value: "apps/v1": should be nil if servers do not agree on the same encoding version, or if there is no server reporting the supported versions yet"#,
            ],
        );
        check(
            json!({"storageVersions": [one]}),
            &["status.commonEncodingVersion: Invalid value: null: the common encoding version is apps/v1"],
        );
        check(
            json!({"storageVersions": [one], "commonEncodingVersion": "apps/v2"}),
            &[
                r#"status.commonEncodingVersion: Invalid value: "apps/v2": the actual common encoding version is apps/v1"#,
            ],
        );
    }

    #[test]
    fn versions_are_decodable() {
        let mut odd = server("a", "apps/v3");
        odd["servedVersions"] = json!(["apps/v1", "v4"]);
        check(
            json!({"storageVersions": [odd], "commonEncodingVersion": "apps/v3"}),
            &[
                r#"status.storageVersions[0].decodableVersions: Invalid value: ["apps/v1","apps/v2"]: decodableVersions must include encodingVersion apps/v3"#,
                r#"status.storageVersions[0].servedVersions[1]: Invalid value: "v4": individual served version : v4 must be included in decodableVersions : [apps/v1 apps/v2]"#,
            ],
        );
        let judged = |text: &str| Errors::collect(|errors| version(errors, &FieldPath::new("v"), text));
        for (text, count) in [("v1", 0), ("a.b/v1", 0), ("/", 1), ("a/b/c", 1), ("A/1", 1)] {
            assert_eq!(judged(text).len(), count, "{text}");
        }
        assert!(
            judged("/")[0]
                .detail
                .contains("group part: must be non-empty,version part: must be non-empty")
        );
    }

    #[test]
    fn conditions_have_a_type_of_their_own() {
        let condition = json!({"type": "A", "status": "True", "reason": "R", "message": "m"});
        check(json!({"conditions": [condition]}), &[]);
        check(
            json!({"conditions": [condition, {"type": "B", "status": "True"}]}),
            &[
                "status[1].reason: Required value",
                "status[1].message: Required value",
            ],
        );
    }
}
