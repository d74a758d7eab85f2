//! The groups and versions whose clients may send `DeleteOptions`: all that upstream has ever registered, served or not.

/// Groups with their versions.
const REGISTERED: &[(&str, &[&str])] = &[
    ("", &["v1"]),
    ("admission.k8s.io", &["v1", "v1beta1"]),
    ("admissionregistration.k8s.io", &["v1", "v1alpha1", "v1beta1"]),
    ("apiextensions.k8s.io", &["v1", "v1beta1"]),
    ("apiregistration.k8s.io", &["v1", "v1beta1"]),
    ("apps", &["v1", "v1beta1", "v1beta2"]),
    ("authentication.k8s.io", &["v1", "v1alpha1", "v1beta1"]),
    ("authorization.k8s.io", &["v1", "v1beta1"]),
    ("autoscaling", &["v1", "v2"]),
    ("batch", &["v1", "v1beta1"]),
    ("certificates.k8s.io", &["v1", "v1alpha1", "v1beta1"]),
    ("coordination.k8s.io", &["v1", "v1alpha2", "v1beta1"]),
    ("discovery.k8s.io", &["v1", "v1beta1"]),
    ("events.k8s.io", &["v1", "v1beta1"]),
    ("extensions", &["v1beta1"]),
    (
        "flowcontrol.apiserver.k8s.io",
        &["v1", "v1beta1", "v1beta2", "v1beta3"],
    ),
    ("imagepolicy.k8s.io", &["v1alpha1"]),
    ("internal.apiserver.k8s.io", &["v1alpha1"]),
    ("networking.k8s.io", &["v1", "v1beta1"]),
    ("node.k8s.io", &["v1", "v1alpha1", "v1beta1"]),
    ("policy", &["v1", "v1beta1"]),
    ("rbac.authorization.k8s.io", &["v1", "v1alpha1", "v1beta1"]),
    ("resource.k8s.io", &["v1", "v1alpha3", "v1beta1", "v1beta2"]),
    ("scheduling.k8s.io", &["v1", "v1alpha2", "v1beta1"]),
    ("storage.k8s.io", &["v1", "v1alpha1", "v1beta1"]),
    ("storagemigration.k8s.io", &["v1beta1"]),
];

/// Groups that are not of the clients that custom resources are published for.
const SERVERS_OWN: [&str; 4] = [
    "admission.k8s.io",
    "apiextensions.k8s.io",
    "apiregistration.k8s.io",
    "imagepolicy.k8s.io",
];

/// All groups and versions, for the `served` of a v2 document.
pub fn registered_versions() -> Vec<(&'static str, &'static str)> {
    REGISTERED
        .iter()
        .flat_map(|(group, versions)| versions.iter().map(move |version| (*group, *version)))
        .collect()
}

/// Those that the documents of custom resources name.
pub fn client_versions() -> Vec<(&'static str, &'static str)> {
    let mut all = registered_versions();
    all.retain(|(group, _)| !SERVERS_OWN.contains(group));
    all
}
