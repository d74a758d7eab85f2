//! The certificates.k8s.io group.

use std::sync::Arc;

use generic_server::resource::ServedResource;

use crate::kind::Builder;
use crate::table;

mod approval;
mod certificate_signing_request;
mod pem;
pub(crate) mod request;

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
