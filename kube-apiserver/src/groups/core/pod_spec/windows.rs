//! What depends on the operating system of a pod, and the options of Windows.

use machinery::FieldPath;
use machinery::names::dns1123_subdomain;
use serde_json::Value;

use super::each_container;
use crate::errors::Errors;
use crate::json::Json;

const DENIED: &str = "cannot be set for a windows pod";
/// The longest credential specification, in bytes.
const CREDENTIALS: usize = 64 * 1024;
/// The longest domain of a user is shorter.
const DOMAIN: usize = 256;
/// The longest name of a user.
const USER: usize = 104;

/// The fields of a pod's security context that Windows excludes. Some are fields of the specification here.
const POD_FIELDS: &[(&str, bool)] = &[
    ("appArmorProfile", true),
    ("seLinuxOptions", true),
    ("hostUsers", false),
    ("hostPID", false),
    ("hostIPC", false),
    ("seccompProfile", true),
    ("fsGroup", true),
    ("fsGroupChangePolicy", true),
    ("sysctls", true),
    ("shareProcessNamespace", false),
    ("runAsUser", true),
    ("runAsGroup", true),
    ("supplementalGroups", true),
    ("supplementalGroupsPolicy", true),
    ("seLinuxChangePolicy", true),
];

/// The fields of a container's security context that Windows excludes.
const CONTAINER_FIELDS: &[&str] = &[
    "appArmorProfile",
    "seLinuxOptions",
    "seccompProfile",
    "capabilities",
    "readOnlyRootFilesystem",
    "privileged",
    "allowPrivilegeEscalation",
    "procMount",
    "runAsUser",
    "runAsGroup",
];

/// The fields that an operating system excludes.
pub(super) fn operating_system(errors: &mut Errors, path: &FieldPath<'_>, spec: &Value) {
    let os = path.child("os");
    let name = spec.text("os.name");
    if name.is_empty() {
        return errors.required(&os.child("name"), "");
    }
    if !errors.one_of(&os, name, &["linux", "windows"]) {
        return;
    }
    let context = path.child("securityContext");
    if name == "linux" {
        let denied = "windows options cannot be set for a linux pod";
        if spec.has("securityContext.windowsOptions") {
            errors.forbidden(&context.child("windowsOptions"), denied);
        }
        return each_container(path, spec, |at, container| {
            if container.has("securityContext.windowsOptions") {
                let context = at.child("securityContext");
                errors.forbidden(&context.child("windowsOptions"), denied);
            }
        });
    }
    for (key, in_context) in POD_FIELDS {
        let (value, at) = match in_context {
            true => (spec.dig("securityContext").dig(key), context.child(key)),
            false => (spec.dig(key), path.child(key)),
        };
        // These two are no pointers: false is as good as none.
        let given = match *key {
            "hostPID" | "hostIPC" => value.as_bool() == Some(true),
            _ => !value.is_null(),
        };
        if given {
            errors.forbidden(&at, DENIED);
        }
    }
    each_container(path, spec, |at, container| {
        let own = container.dig("securityContext");
        let at = at.child("securityContext");
        for key in CONTAINER_FIELDS.iter().filter(|key| own.has(key)) {
            errors.forbidden(&at.child(key), DENIED);
        }
    });
}

/// Containers that are processes of the host are so together, and in its network.
pub(super) fn host_process(errors: &mut Errors, path: &FieldPath<'_>, spec: &Value) {
    const KEY: &str = "securityContext.windowsOptions.hostProcess";
    let of_pod = spec.dig(KEY).as_bool();
    let (mut all, mut processes) = (0, 0);
    each_container(path, spec, |at, container| {
        all += 1;
        let own = container.dig(KEY).as_bool();
        if let (Some(of_pod), Some(own)) = (of_pod, own)
            && of_pod != own
        {
            let context = at.child("securityContext");
            let options = context.child("windowsOptions");
            errors.invalid(
                &options.child("hostProcess"),
                own,
                format!("pod hostProcess value must be identical if both are specified, was {of_pod}"),
            );
        }
        processes += usize::from(own.or(of_pod) == Some(true));
    });
    if processes == 0 {
        return;
    }
    if processes != all {
        errors.invalid(
            path,
            "",
            "If pod contains any hostProcess containers then all containers must be HostProcess containers",
        );
    }
    if !spec.flag("hostNetwork") {
        errors.invalid(
            &path.child("hostNetwork"),
            false,
            "hostNetwork must be true if pod contains any hostProcess containers",
        );
    }
}

/// The options of a security context.
pub(super) fn options(errors: &mut Errors, path: &FieldPath<'_>, options: &Value) {
    if let Some(name) = options.dig("gmsaCredentialSpecName").as_str() {
        errors.text(
            &path.child("gmsaCredentialSpecName"),
            name,
            dns1123_subdomain(name),
        );
    }
    if let Some(credentials) = options.dig("gmsaCredentialSpec").as_str() {
        let at = path.child("gmsaCredentialSpec");
        if credentials.is_empty() {
            errors.invalid(&at, credentials, "gmsaCredentialSpec cannot be an empty string");
        } else if credentials.len() > CREDENTIALS {
            errors.invalid(&at, credentials, "gmsaCredentialSpec size must be under 64 KiB");
        }
    }
    if let Some(user) = options.dig("runAsUserName").as_str() {
        for fault in user_faults(user) {
            errors.invalid(
                &path.child("runAsUserName"),
                user,
                format!("runAsUserName{fault}"),
            );
        }
    }
}

/// What is wrong with a user's name, `DOMAIN\USER` or `USER`.
fn user_faults(name: &str) -> Vec<&'static str> {
    if name.is_empty() {
        return vec![" cannot be an empty string"];
    }
    if name.chars().any(|c| c.is_ascii_control()) {
        return vec![" cannot contain control characters"];
    }
    let parts: Vec<&str> = name.split('\\').collect();
    let (domain, user) = match parts[..] {
        [user] => (None, user),
        [domain, user] => (Some(domain), user),
        _ => return vec![" cannot contain more than one backslash"],
    };
    let mut faults = Vec::new();
    if let Some(domain) = domain {
        if domain.len() >= DOMAIN {
            faults.push("'s Domain length must be under 256 characters");
        }
        if !is_netbios(domain) && !is_dns(domain) {
            faults.push("'s Domain doesn't match the NetBios nor the DNS format");
        }
    }
    if user.is_empty() {
        faults.push("'s User cannot be empty");
    } else if user.len() > USER {
        faults.push("'s User length must not be longer than 104 characters");
    }
    if !user.is_empty() && user.chars().all(|c| matches!(c, '.' | ' ')) {
        faults.push("'s User cannot contain only periods or spaces");
    }
    if user.contains(|c| "\"/\\:;|=,+*?<>@[]".contains(c)) {
        faults.push("'s User cannot contain the following characters: \"/\\:;|=,+*?<>@[]");
    }
    faults
}

fn is_netbios(domain: &str) -> bool {
    (1..=15).contains(&domain.chars().count())
        && !domain.starts_with('.')
        && !domain.contains(|c| "\\/:*?\"<>|".contains(c))
}

fn is_dns(domain: &str) -> bool {
    domain.split('.').all(|label| {
        let good = |c: char| c.is_ascii_alphanumeric() || c == '-';
        (1..=63).contains(&label.len())
            && label.chars().all(good)
            && !label.starts_with('-')
            && !label.ends_with('-')
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::user_faults;
    use crate::groups::check::check_pod as check;

    #[test]
    fn systems_exclude_fields() {
        let windows = |context: Value| {
            let container = json!({"name": "c", "image": "i", "securityContext": context});
            json!({"os": {"name": "windows"}, "containers": [container]})
        };
        check(&windows(json!({"runAsNonRoot": true})), &[]);
        check(
            &windows(json!({"privileged": false, "runAsUser": 1})),
            &[
                "spec.containers[0].securityContext.privileged: Forbidden: cannot be set for a windows pod",
                "spec.containers[0].securityContext.runAsUser: Forbidden: cannot be set for a windows pod",
            ],
        );
        let mut linux = windows(json!({"windowsOptions": {"runAsUserName": "a"}}));
        linux["os"]["name"] = "linux".into();
        check(
            &linux,
            &[
                "spec.containers[0].securityContext.windowsOptions: Forbidden: windows options cannot be set for a linux pod",
            ],
        );
    }

    #[test]
    fn processes_of_the_host_are_so_together() {
        let pod = |network: bool, of_pod: Value, own: Value| {
            let options = |process: Value| json!({"windowsOptions": {"hostProcess": process}});
            let container = json!({"name": "c", "image": "i", "securityContext": options(own)});
            json!({"hostNetwork": network, "containers": [container, {"name": "d", "image": "i"}],
                "securityContext": options(of_pod)})
        };
        check(&pod(true, json!(true), Value::Null), &[]);
        check(
            &pod(false, json!(true), json!(false)),
            &[
                "spec.containers[0].securityContext.windowsOptions.hostProcess: Invalid value: false: pod hostProcess value must be identical if both are specified, was true",
                r#"spec: Invalid value: "": If pod contains any hostProcess containers then all containers must be HostProcess containers"#,
                "spec.hostNetwork: Invalid value: false: hostNetwork must be true if pod contains any hostProcess containers",
            ],
        );
    }

    #[test]
    fn options_name_users_and_credentials() {
        let options = |options: Value| json!({"securityContext": {"windowsOptions": options}});
        check(&options(json!({"gmsaCredentialSpecName": "a.b"})), &[]);
        check(
            &options(json!({"gmsaCredentialSpec": ""})),
            &[
                r#"spec.securityContext.windowsOptions.gmsaCredentialSpec: Invalid value: "": gmsaCredentialSpec cannot be an empty string"#,
            ],
        );
        for (user, expected) in [
            ("a", 0),
            ("NT AUTHORITY\\SYSTEM", 0),
            ("a.example.com\\b", 0),
            ("", 1),
            ("a\\b\\c", 1),
            ("a\nb", 1),
            (".a\\b", 1),
            ("a\\", 1),
            (". .", 1),
            ("a*b", 1),
            (&"a".repeat(104), 0),
            (&"a".repeat(105), 1),
        ] {
            assert_eq!(user_faults(user).len(), expected, "{user}");
        }
    }
}
