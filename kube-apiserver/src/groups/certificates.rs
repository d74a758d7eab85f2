//! The certificates.k8s.io group.

use std::sync::Arc;

use generic_server::resource::ServedResource;

use crate::kind::Builder;
use crate::table;

mod approval;
mod certificate_signing_request;
pub(crate) mod cluster_trust_bundle;
pub(crate) mod pem;
pub(crate) mod pod_certificate_request;
mod public_key;
pub(crate) mod request;
pub(crate) mod signer;

pub(crate) fn v1(b: &Builder<'_>) -> Vec<Arc<ServedResource>> {
    vec![
        b.kind("certificatesigningrequests", "CertificateSigningRequest")
            .cluster()
            .short(&["csr"])
            .table(&table::CSR)
            .view("approval", approval::Approval)
            .rules(&certificate_signing_request::RULES),
    ]
}

/// Off unless the feature gate and the runtime configuration turn it on, as upstream has it.
pub(crate) fn v1beta1(b: &Builder<'_>) -> Vec<Arc<ServedResource>> {
    let on = b.deps.features;
    let bundles = on.trust_bundles.then(|| {
        b.kind("clustertrustbundles", "ClusterTrustBundle")
            .cluster()
            .table(&table::CLUSTER_TRUST_BUNDLE)
            .rules(&cluster_trust_bundle::RULES)
    });
    let requests = on.pod_certificates.then(|| {
        b.kind("podcertificaterequests", "PodCertificateRequest")
            .table(&table::POD_CERTIFICATE_REQUEST)
            .rules(&pod_certificate_request::RULES)
    });
    bundles.into_iter().chain(requests).collect()
}

/// The same, stored as v1beta1.
pub(crate) fn v1alpha1(b: &Builder<'_>, v1beta1: &[Arc<ServedResource>]) -> Vec<Arc<ServedResource>> {
    let mut stored = v1beta1.iter();
    let bundles = stored.find(|one| &*one.gvr.resource == "clustertrustbundles");
    let bundles = bundles.map(|stored| {
        b.kind("clustertrustbundles", "ClusterTrustBundle")
            .cluster()
            .table(&table::CLUSTER_TRUST_BUNDLE)
            .deprecated("certificates.k8s.io/v1alpha1 ClusterTrustBundle is deprecated in v1.34+, unavailable in v1.37+")
            .stored_as(stored, cluster_trust_bundle::V1Alpha1)
            .rules(&cluster_trust_bundle::RULES)
    });
    bundles.into_iter().collect()
}
