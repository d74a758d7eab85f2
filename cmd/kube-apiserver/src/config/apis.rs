//! `--runtime-config`: the API versions and resources that are turned on and off. All that upstream registers are known.

use std::collections::{BTreeMap, BTreeSet};

use kube_apiserver::ServedApis;

use super::Findings;
use super::gates;

/// The groups that upstream's server registers, and their versions.
const REGISTERED: [(&str, &[&str]); 26] = [
    ("", &["v1"]),
    ("admission.k8s.io", &["v1", "v1beta1"]),
    ("admissionregistration.k8s.io", &["v1", "v1beta1", "v1alpha1"]),
    ("apiextensions.k8s.io", &["v1", "v1beta1"]),
    ("apiregistration.k8s.io", &["v1", "v1beta1"]),
    ("apps", &["v1", "v1beta2", "v1beta1"]),
    ("authentication.k8s.io", &["v1", "v1beta1", "v1alpha1"]),
    ("authorization.k8s.io", &["v1", "v1beta1"]),
    ("autoscaling", &["v2", "v1"]),
    ("batch", &["v1", "v1beta1"]),
    ("certificates.k8s.io", &["v1", "v1beta1", "v1alpha1"]),
    ("coordination.k8s.io", &["v1", "v1beta1", "v1alpha2"]),
    ("discovery.k8s.io", &["v1", "v1beta1"]),
    ("events.k8s.io", &["v1", "v1beta1"]),
    ("extensions", &["v1beta1"]),
    (
        "flowcontrol.apiserver.k8s.io",
        &["v1", "v1beta3", "v1beta2", "v1beta1"],
    ),
    ("imagepolicy.k8s.io", &["v1alpha1"]),
    ("internal.apiserver.k8s.io", &["v1alpha1"]),
    ("networking.k8s.io", &["v1", "v1beta1"]),
    ("node.k8s.io", &["v1", "v1beta1", "v1alpha1"]),
    ("policy", &["v1", "v1beta1"]),
    ("rbac.authorization.k8s.io", &["v1", "v1beta1", "v1alpha1"]),
    ("resource.k8s.io", &["v1", "v1beta2", "v1beta1", "v1alpha3"]),
    ("scheduling.k8s.io", &["v1", "v1beta1", "v1alpha2"]),
    ("storage.k8s.io", &["v1", "v1beta1", "v1alpha1"]),
    ("storagemigration.k8s.io", &["v1beta1"]),
];
/// A version of which one resource is served here, and that resource.
const PARTIAL: (&str, &str) = ("resource.k8s.io/v1beta2", "devicetaintrules");
/// The keys about all versions of a stage.
const STAGES: [&str; 4] = ["api/all", "api/ga", "api/beta", "api/alpha"];
/// The groups of the other two servers, which are always served.
const OF_OTHERS: [&str; 2] = ["apiextensions.k8s.io", "apiregistration.k8s.io"];

/// The items by their keys, as upstream reads them: the last of a key counts, a key alone is true, and the core group has three names.
fn items(list: &[String]) -> BTreeMap<String, String> {
    let mut items = BTreeMap::new();
    for item in list
        .iter()
        .map(|item| item.trim())
        .filter(|item| !item.is_empty())
    {
        let (key, value) = item.split_once('=').unwrap_or((item, "true"));
        let value = if value.is_empty() { "true" } else { value };
        let core = key.strip_prefix("api/v1").or_else(|| key.strip_prefix("v1"));
        let key = match core {
            Some(rest) if rest.is_empty() || rest.starts_with('/') => format!("/v1{rest}"),
            _ => key.to_owned(),
        };
        items.insert(key, value.to_owned());
    }
    items
}

/// What the flag says; wrong items are faults, those without effect warnings.
pub(super) fn read(found: &mut Findings, list: &[String]) -> ServedApis {
    let mut apis = ServedApis::default();
    let mut items = items(list);
    let mut fault = |text: String| found.fault(format!("--runtime-config: {text}"));
    if items.len() == 1 && items.get("api/all").is_some_and(|value| value == "false") {
        fault("invalid runtime-config with only api/all=false".to_owned());
        return apis;
    }
    if items.remove("api/legacy").is_some() {
        found.warn("--runtime-config: `api/legacy` has no effect: it stands for nothing any more");
    }
    let mut fault = |text: String| found.fault(format!("--runtime-config: {text}"));
    let mut unknown = BTreeSet::new();
    let mut unserved = Vec::new();
    for (key, value) in &items {
        if STAGES.contains(&key.as_str()) {
            match value.as_str() {
                "true" | "false" => apis.set(key, value == "true"),
                _ => fault(format!("invalid value {key}={value}")),
            }
            continue;
        }
        let (group, version, resource) = match key.split('/').collect::<Vec<_>>()[..] {
            [group, version] => (group, version, None),
            [group, version, resource] => (group, version, Some(resource)),
            _ => {
                fault(format!("runtime-config invalid key {key}"));
                continue;
            }
        };
        let shown = format!("{group}/{version}");
        let Some((_, versions)) = REGISTERED.iter().find(|(known, _)| *known == group) else {
            unknown.insert(shown);
            continue;
        };
        let Some(is_on) = gates::parse_bool(value) else {
            fault(format!(
                "invalid value of {key}: {value}, err: strconv.ParseBool: parsing {}: invalid syntax",
                machinery::go::quote(value)
            ));
            continue;
        };
        if !versions.contains(&version) {
            fault(format!("group version {shown} that has not been registered"));
        } else if let Some(resource) = resource.filter(|resource| resource.to_lowercase() != **resource) {
            fault(format!(
                "invalid key {key}: group/version/resource and resource is always lowercase plural, not {}",
                machinery::go::quote(resource)
            ));
        } else if OF_OTHERS.contains(&group) && version == "v1" {
            if !is_on {
                unserved.push(format!("`{key}={value}` has no effect: {shown} is always served"));
            }
        } else if is_on && !kube_apiserver::has_version(group, version) {
            unserved.push(format!(
                "`{key}={value}` has no effect: {shown} is not served here"
            ));
        } else {
            apis.set(key, is_on);
            let (of, only) = PARTIAL;
            if is_on && shown == of && resource != Some(only) {
                unserved.push(format!("`{key}={value}` has an effect on {only} alone"));
            }
        }
    }
    if !unknown.is_empty() {
        let unknown: Vec<String> = unknown.into_iter().collect();
        fault(format!(
            "unknown api groups {}: name them as group/version=true, or remove them",
            unknown.join(",")
        ));
    }
    for text in unserved {
        found.warn(format!("--runtime-config: {text}"));
    }
    apis
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(items: &[&str]) -> (ServedApis, Findings) {
        let list: Vec<String> = items.iter().map(ToString::to_string).collect();
        let mut found = Findings::default();
        let apis = super::read(&mut found, &list);
        (apis, found)
    }

    #[test]
    fn items_are_checked_in_upstreams_words() {
        #[track_caller]
        fn check(items: &[&str], faults: &[&str]) {
            let found = read(items).1.faults;
            let found: Vec<&str> = found
                .iter()
                .map(|fault| fault.trim_start_matches("--runtime-config: "))
                .collect();
            assert_eq!(found, faults, "{items:?}");
        }
        check(&["apps/v1=false", "v1=true", "api/legacy=true", "batch/v1"], &[]);
        check(
            &["api/all=false"],
            &["invalid runtime-config with only api/all=false"],
        );
        check(&["api/all=maybe"], &["invalid value api/all=maybe"]);
        check(
            &["apps/v2=true"],
            &["group version apps/v2 that has not been registered"],
        );
        check(&["x/y/z/w=true"], &["runtime-config invalid key x/y/z/w"]);
        check(
            &["apps/v1/Deployments=false"],
            &[
                "invalid key apps/v1/Deployments: group/version/resource and resource is always lowercase plural, not \"Deployments\"",
            ],
        );
        check(
            &["apps/v1=maybe"],
            &["invalid value of apps/v1: maybe, err: strconv.ParseBool: parsing \"maybe\": invalid syntax"],
        );
        check(
            &["nope.io/v1", "foo/v2=true"],
            &["unknown api groups foo/v2,nope.io/v1: name them as group/version=true, or remove them"],
        );
    }

    #[test]
    fn what_cannot_be_switched_is_named() {
        let warned = |item: &str| read(&[item]).1.warnings.join("; ");
        assert_eq!(
            warned("apps/v1beta1=true"),
            "--runtime-config: `apps/v1beta1=true` has no effect: apps/v1beta1 is not served here"
        );
        assert_eq!(
            warned("apiextensions.k8s.io/v1=false"),
            "--runtime-config: `apiextensions.k8s.io/v1=false` has no effect: apiextensions.k8s.io/v1 is always served"
        );
        assert_eq!(warned("apps/v1beta1=false"), "");
        assert_eq!(
            warned("resource.k8s.io/v1beta2=true"),
            "--runtime-config: `resource.k8s.io/v1beta2=true` has an effect on devicetaintrules alone"
        );
        assert_eq!(warned("resource.k8s.io/v1beta2/devicetaintrules=true"), "");
        assert_eq!(warned("apps/v1=false"), "");
    }

    #[test]
    fn the_core_group_has_three_names() {
        for item in ["v1=false", "api/v1=false", "/v1=false", "v1/pods=false"] {
            assert!(!read(&[item]).0.resource("", "v1", "pods"), "{item}");
        }
        assert!(read(&["v1/pods=false"]).0.resource("", "v1", "nodes"));
    }
}
