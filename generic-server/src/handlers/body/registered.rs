//! The kinds that upstream's schemes know, for the refusals of objects of another kind or version than the one that is asked for.

use machinery::schema::builtin;
use machinery::{GroupVersion, go};

/// Kinds of versions that are not served any more but still decoded; each has its list.
const OLD: &[(&str, &[&str])] = &[
    (
        "admissionregistration.k8s.io/v1alpha1",
        &["ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"],
    ),
    (
        "admissionregistration.k8s.io/v1beta1",
        &[
            "MutatingWebhookConfiguration",
            "ValidatingAdmissionPolicy",
            "ValidatingAdmissionPolicyBinding",
            "ValidatingWebhookConfiguration",
        ],
    ),
    ("apiextensions.k8s.io/v1beta1", &["CustomResourceDefinition"]),
    ("apiregistration.k8s.io/v1beta1", &["APIService"]),
    (
        "apps/v1beta1",
        &["ControllerRevision", "Deployment", "Scale", "StatefulSet"],
    ),
    (
        "apps/v1beta2",
        &[
            "ControllerRevision",
            "DaemonSet",
            "Deployment",
            "ReplicaSet",
            "Scale",
            "StatefulSet",
        ],
    ),
    ("authentication.k8s.io/v1alpha1", &["SelfSubjectReview"]),
    (
        "authentication.k8s.io/v1beta1",
        &["SelfSubjectReview", "TokenReview"],
    ),
    (
        "authorization.k8s.io/v1beta1",
        &[
            "LocalSubjectAccessReview",
            "SelfSubjectAccessReview",
            "SelfSubjectRulesReview",
            "SubjectAccessReview",
        ],
    ),
    ("batch/v1beta1", &["CronJob"]),
    ("certificates.k8s.io/v1beta1", &["CertificateSigningRequest"]),
    ("coordination.k8s.io/v1beta1", &["Lease"]),
    ("discovery.k8s.io/v1beta1", &["EndpointSlice"]),
    ("events.k8s.io/v1beta1", &["Event"]),
    (
        "extensions/v1beta1",
        &[
            "DaemonSet",
            "Deployment",
            "Ingress",
            "NetworkPolicy",
            "ReplicaSet",
            "Scale",
        ],
    ),
    (
        "flowcontrol.apiserver.k8s.io/v1beta1",
        &["FlowSchema", "PriorityLevelConfiguration"],
    ),
    (
        "flowcontrol.apiserver.k8s.io/v1beta2",
        &["FlowSchema", "PriorityLevelConfiguration"],
    ),
    (
        "flowcontrol.apiserver.k8s.io/v1beta3",
        &["FlowSchema", "PriorityLevelConfiguration"],
    ),
    ("networking.k8s.io/v1beta1", &["Ingress", "IngressClass"]),
    ("node.k8s.io/v1alpha1", &["RuntimeClass"]),
    ("node.k8s.io/v1beta1", &["RuntimeClass"]),
    ("policy/v1beta1", &["Eviction", "PodDisruptionBudget"]),
    (
        "rbac.authorization.k8s.io/v1alpha1",
        &["ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"],
    ),
    (
        "rbac.authorization.k8s.io/v1beta1",
        &["ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"],
    ),
    ("scheduling.k8s.io/v1beta1", &["PriorityClass"]),
    (
        "storage.k8s.io/v1alpha1",
        &["CSIStorageCapacity", "VolumeAttachment", "VolumeAttributesClass"],
    ),
    (
        "storage.k8s.io/v1beta1",
        &[
            "CSIDriver",
            "CSINode",
            "CSIStorageCapacity",
            "StorageClass",
            "VolumeAttachment",
        ],
    ),
];

/// Kinds that are in every version of a scheme.
const COMMON: &[&str] = &[
    "CreateOptions",
    "DeleteOptions",
    "GetOptions",
    "ListOptions",
    "PatchOptions",
    "UpdateOptions",
    "WatchEvent",
];

/// Kinds that are in the first version of every scheme.
const UNVERSIONED: &[&str] = &[
    "APIGroup",
    "APIGroupList",
    "APIResourceList",
    "APIVersions",
    "Status",
];

/// The version of upstream's internal types.
const INTERNAL: &str = "__internal";

/// Where the scheme of a server is made, as errors name it. `group` is that of a resource that the server has.
fn scheme(group: &str) -> &'static str {
    match group {
        "apiextensions.k8s.io" => "k8s.io/apiextensions-apiserver/pkg/apiserver/apiserver.go:55",
        "apiregistration.k8s.io" => "k8s.io/kube-aggregator/pkg/apiserver/scheme/scheme.go:28",
        _ => "pkg/api/legacyscheme/scheme.go:30",
    }
}

/// Whether the scheme of the server that has `own` knows a kind at a version.
fn is_registered(own: &GroupVersion, version: &GroupVersion, kind: &str) -> bool {
    let has_scheme = |group: &str| matches!(group, "apiextensions.k8s.io" | "apiregistration.k8s.io");
    let (group, version) = (&*version.group, &*version.version);
    if group.is_empty() && version == "v1" && UNVERSIONED.contains(&kind) {
        return true;
    }
    // Each of the two has a scheme of its own, with the common kinds beside its group.
    let is_core = group.is_empty() && version == "v1" && COMMON.contains(&kind);
    if (has_scheme(&own.group) || has_scheme(group)) && group != &*own.group && !is_core {
        return false;
    }
    let mut kinds = builtin().kinds();
    if version == INTERNAL {
        return kinds.any(|(g, _, k, _)| g == group && k == kind);
    }
    let api_version = match group {
        "" => version.to_owned(),
        group => format!("{group}/{version}"),
    };
    let old = OLD.iter().find(|(known, _)| *known == api_version);
    let is_old = old.is_some_and(|(_, old)| {
        old.contains(&kind) || kind.strip_suffix("List").is_some_and(|kind| old.contains(&kind))
    });
    let is_common = COMMON.contains(&kind)
        && (old.is_some() || builtin().kinds().any(|(g, v, ..)| g == group && v == version));
    is_old || is_common || kinds.any(|(g, v, k, _)| g == group && v == version && k == kind)
}

/// The package of a group's internal types.
fn package(group: &str) -> &str {
    match group {
        "" | "events.k8s.io" => "core",
        "internal.apiserver.k8s.io" => "apiserverinternal",
        group => group.split('.').next().unwrap_or(group),
    }
}

/// Why an object of the kind `sent` at `version` is not decoded as `own_kind` at `own`: nothing when it is, if only to be refused for its version.
pub(in crate::handlers) fn fault(
    own: &GroupVersion,
    own_kind: &str,
    version: &GroupVersion,
    sent: &str,
) -> Option<String> {
    if !is_registered(own, version, sent) && (own, own_kind) != (version, sent) {
        return Some(format!(
            "no kind {} is registered for version {} in scheme {}",
            go::quote(sent),
            go::quote(&version.to_string()),
            go::quote(scheme(&own.group)),
        ));
    }
    let from = match &*version.version {
        INTERNAL => package(&version.group),
        version => version,
    };
    (sent != own_kind).then(|| {
        let to = package(&own.group);
        format!("converting ({from}.{sent}) to ({to}.{own_kind}): unknown conversion")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_refused_in_upstreams_words() {
        #[track_caller]
        fn check(own: (&str, &str), sent: (&str, &str), expected: Option<&str>) {
            let version = |text| GroupVersion::parse(text).unwrap();
            let fault = fault(&version(own.0), own.1, &version(sent.0), sent.1);
            assert_eq!(fault.as_deref(), expected);
        }
        let map = ("v1", "ConfigMap");
        let converting = |from: &str| {
            Some(format!(
                "converting ({from}) to (core.ConfigMap): unknown conversion"
            ))
        };
        check(map, map, None);
        check(map, ("v1", "Secret"), converting("v1.Secret").as_deref());
        check(
            map,
            ("v1", "ConfigMapList"),
            converting("v1.ConfigMapList").as_deref(),
        );
        check(
            map,
            ("apps/v1", "Deployment"),
            converting("v1.Deployment").as_deref(),
        );
        check(
            map,
            ("apps/__internal", "Deployment"),
            converting("apps.Deployment").as_deref(),
        );
        check(map, ("v1", "Status"), converting("v1.Status").as_deref());
        check(
            map,
            ("apps/v1", "DeleteOptions"),
            converting("v1.DeleteOptions").as_deref(),
        );
        check(
            map,
            ("batch/v1beta1", "CronJobList"),
            converting("v1beta1.CronJobList").as_deref(),
        );
        let unknown = |kind: &str, version: &str, scheme: &str| {
            Some(format!(
                "no kind \"{kind}\" is registered for version \"{version}\" in scheme \"{scheme}\""
            ))
        };
        let main = "pkg/api/legacyscheme/scheme.go:30";
        check(map, ("v1", "Foo"), unknown("Foo", "v1", main).as_deref());
        check(
            map,
            ("v9", "ConfigMap"),
            unknown("ConfigMap", "v9", main).as_deref(),
        );
        check(
            map,
            ("apps/v1", "ConfigMap"),
            unknown("ConfigMap", "apps/v1", main).as_deref(),
        );
        // Another version of the kind is decoded; its version is refused later.
        check(map, ("__internal", "ConfigMap"), None);
        check(
            ("apps/v1", "Deployment"),
            ("extensions/v1beta1", "Deployment"),
            None,
        );
        check(("apps/v1", "Deployment"), ("apps/v1beta2", "Deployment"), None);
        let crd = ("apiextensions.k8s.io/v1", "CustomResourceDefinition");
        check(
            crd,
            ("apiextensions.k8s.io/v1beta1", "CustomResourceDefinition"),
            None,
        );
        let own = "k8s.io/apiextensions-apiserver/pkg/apiserver/apiserver.go:55";
        check(
            crd,
            ("v1", "ConfigMap"),
            unknown("ConfigMap", "v1", own).as_deref(),
        );
        let service = ("apiregistration.k8s.io/v1", "APIService");
        let own = "k8s.io/kube-aggregator/pkg/apiserver/scheme/scheme.go:28";
        check(service, ("v1", "Foo"), unknown("Foo", "v1", own).as_deref());
        // A server's own kinds, of which there is no built-in type, are known.
        check(("example.com/v1", "Widget"), ("example.com/v1", "Widget"), None);
    }
}
