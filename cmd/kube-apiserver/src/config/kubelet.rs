//! Options about kubelets.

use kube_apiserver::KubeletOptions;

use super::Findings;
use crate::options::KubeletFlags;

/// How kubelets are reached. A certificate for them without authorities is upstream's default, and named at the start.
pub(super) fn read(found: &mut Findings, flags: KubeletFlags) -> KubeletOptions {
    let client = flags.kubelet_client_certificate.zip(flags.kubelet_client_key);
    if client.is_some() && flags.kubelet_certificate_authority.is_none() {
        found.warn("--kubelet-client-certificate without --kubelet-certificate-authority: the certificates of kubelets are not verified");
    }
    KubeletOptions {
        preferred_address_types: flags.kubelet_preferred_address_types,
        port: flags.kubelet_port,
        timeout: flags.kubelet_timeout,
        client,
        authority: flags.kubelet_certificate_authority,
    }
}
