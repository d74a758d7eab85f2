//! CertificateApproval, CertificateSigning and CertificateSubjectRestriction: who may approve and sign requests to which
//! signers, and what the cluster's own client signer never signs.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use generic_server::ApiError;
use generic_server::admission::{AdmissionPlugin, Attributes, Operation};
use generic_server::authz::{Attributes as Question, Authorizer, Decision};
use machinery::GroupVersionResource;
use serde_json::Value;

use super::{forbidden, is};
use crate::json::{Json, same};

const GROUP: &str = "certificates.k8s.io";
const REQUESTS: &str = "certificatesigningrequests";

/// Whether the user may do a verb with a signer, by its name or its domain.
async fn may(authorizer: &dyn Authorizer, attributes: &Attributes<'_>, verb: &str, signer: &str) -> bool {
    let domain = signer.split_once('/').map_or(signer, |(domain, _)| domain);
    let wildcard = format!("{domain}/*");
    for name in [signer, wildcard.as_str()] {
        let question = Question {
            user: attributes.authorized.user(),
            verb,
            is_resource: true,
            group: GROUP,
            version: "*",
            resource: "signers",
            subresource: "",
            namespace: "",
            name,
            path: "",
        };
        if matches!(authorizer.authorize(&question).await, Decision::Allow(_)) {
            return true;
        }
    }
    false
}

#[derive(Debug)]
pub(super) struct CertificateApproval(pub(super) Arc<dyn Authorizer>);

#[async_trait::async_trait]
impl AdmissionPlugin for CertificateApproval {
    fn name(&self) -> &'static str {
        "CertificateApproval"
    }

    fn handles(&self, operation: Operation, gvr: &GroupVersionResource, subresource: &str) -> bool {
        operation == Operation::Update && subresource == "approval" && is(gvr, GROUP, REQUESTS)
    }

    async fn validate(&self, attributes: &Attributes<'_>, _object: Option<&Value>) -> Result<(), ApiError> {
        let signer = attributes
            .old
            .map(|old| old.text("spec.signerName"))
            .unwrap_or_default();
        if may(&*self.0, attributes, "approve", signer).await {
            return Ok(());
        }
        let why = format!("user not permitted to approve requests with signerName \"{signer}\"");
        Err(forbidden(attributes, None, why))
    }
}

#[derive(Debug)]
pub(super) struct CertificateSigning(pub(super) Arc<dyn Authorizer>);

#[async_trait::async_trait]
impl AdmissionPlugin for CertificateSigning {
    fn name(&self) -> &'static str {
        "CertificateSigning"
    }

    fn handles(&self, operation: Operation, gvr: &GroupVersionResource, subresource: &str) -> bool {
        operation == Operation::Update && subresource == "status" && is(gvr, GROUP, REQUESTS)
    }

    async fn validate(&self, attributes: &Attributes<'_>, object: Option<&Value>) -> Result<(), ApiError> {
        let (Some(object), Some(old)) = (object, attributes.old) else {
            return Ok(());
        };
        let unchanged = same(object.dig("status.certificate"), old.dig("status.certificate"))
            && same(object.dig("status.conditions"), old.dig("status.conditions"));
        let signer = old.text("spec.signerName");
        if unchanged || may(&*self.0, attributes, "sign", signer).await {
            return Ok(());
        }
        let why = format!("user not permitted to sign requests with signerName \"{signer}\"");
        Err(forbidden(attributes, None, why))
    }
}

#[derive(Debug)]
pub(super) struct CertificateSubjectRestriction;

#[async_trait::async_trait]
impl AdmissionPlugin for CertificateSubjectRestriction {
    fn name(&self) -> &'static str {
        "CertificateSubjectRestriction"
    }

    fn handles(&self, operation: Operation, gvr: &GroupVersionResource, subresource: &str) -> bool {
        operation == Operation::Create && subresource.is_empty() && is(gvr, GROUP, REQUESTS)
    }

    async fn validate(&self, attributes: &Attributes<'_>, object: Option<&Value>) -> Result<(), ApiError> {
        let Some(request) = object else { return Ok(()) };
        if request.text("spec.signerName") != "kubernetes.io/kube-apiserver-client" {
            return Ok(());
        }
        let Some(der) = certificate_request(request.text("spec.request")) else {
            return Ok(());
        };
        // An organization is a directory string with the text as it is: the group that owns everything is looked for there.
        let masters = b"system:masters";
        if der.windows(masters.len()).any(|window| window == masters) {
            return Err(forbidden(
                attributes,
                object,
                "use of kubernetes.io/kube-apiserver-client signer with system:masters group is not allowed",
            ));
        }
        Ok(())
    }
}

/// The DER inside a base64 field that holds PEM.
pub(crate) fn certificate_request(field: &str) -> Option<Vec<u8>> {
    let pem = STANDARD.decode(field).ok()?;
    let text = std::str::from_utf8(&pem).ok()?;
    let body = text
        .split_once("-----BEGIN CERTIFICATE REQUEST-----")?
        .1
        .split_once("-----END CERTIFICATE REQUEST-----")?
        .0;
    let compact: String = body.chars().filter(|c| !c.is_whitespace()).collect();
    STANDARD.decode(compact).ok()
}
