//! CertificateApproval, CertificateSigning and CertificateSubjectRestriction: the users that may approve and sign requests to which
//! signers, and what the cluster's own client signer never signs.

use std::sync::Arc;

use generic_server::ApiError;
use generic_server::admission::{AdmissionPlugin, Attributes, Operation};
use generic_server::authz::{Attributes as Question, Authorizer, Decision};
use machinery::go::Quoted;
use machinery::{FieldError, FieldPath, GroupVersionResource, meta};
use serde_json::Value;

use super::{forbidden, is};
use crate::groups::certificates::request;
use crate::json::{Json, same};

pub(super) const GROUP: &str = "certificates.k8s.io";
const REQUESTS: &str = "certificatesigningrequests";

/// Whether the user may do a verb with a signer, by its name or its domain.
pub(super) async fn may(
    authorizer: &dyn Authorizer,
    attributes: &Attributes<'_>,
    verb: &str,
    signer: &str,
) -> bool {
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
            field_selector: "",
            label_selector: "",
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

/// Who changes the status of a PodCertificateRequest has to have the verb `sign` for its signer. Upstream checks this where it validates objects; it is
/// no plugin there, and cannot be turned off here either.
#[derive(Debug)]
pub(super) struct PodCertificateSigning(pub(super) Arc<dyn Authorizer>);

#[async_trait::async_trait]
impl AdmissionPlugin for PodCertificateSigning {
    fn name(&self) -> &'static str {
        "PodCertificateSigning"
    }

    fn handles(&self, operation: Operation, gvr: &GroupVersionResource, subresource: &str) -> bool {
        operation == Operation::Update && subresource == "status" && is(gvr, GROUP, "podcertificaterequests")
    }

    async fn validate(&self, attributes: &Attributes<'_>, object: Option<&Value>) -> Result<(), ApiError> {
        let (Some(object), Some(old)) = (object, attributes.old) else {
            return Ok(());
        };
        let signer = old.text("spec.signerName");
        let unchanged = same(object.dig("status"), old.dig("status"));
        if unchanged || may(&*self.0, attributes, "sign", signer).await {
            return Ok(());
        }
        let spec = FieldPath::new("spec");
        let text = format!(
            "User {} is not permitted to \"sign\" for signer {}",
            Quoted(&attributes.authorized.user().name),
            Quoted(signer)
        );
        let error = FieldError::forbidden(&spec.child("signerName"), text);
        Err(ApiError::invalid(
            &attributes.gvk.group_kind(),
            meta::name(old),
            &[error],
        ))
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
        let Some(object) = object else { return Ok(()) };
        if object.text("spec.signerName") != "kubernetes.io/kube-apiserver-client" {
            return Ok(());
        }
        let parsed = match request::parse(object.text("spec.request")) {
            Ok(parsed) => parsed,
            Err(why) => {
                return Err(forbidden(
                    attributes,
                    Some(object),
                    format!("failed to parse CSR: {why}"),
                ));
            }
        };
        // Some readers end a text at its first NUL.
        let texts = parsed.organizations.iter().map(|text| text.split('\0').next());
        if texts.flatten().any(|group| group == "system:masters") {
            return Err(forbidden(
                attributes,
                Some(object),
                "use of kubernetes.io/kube-apiserver-client signer with system:masters group is not allowed",
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;
    use futures_util::FutureExt;
    use generic_server::Authorized;
    use machinery::GroupVersionKind;
    use rcgen::DnValue;
    use serde_json::json;

    use super::*;
    use crate::groups::certificates::request::tests::pem_of;

    #[track_caller]
    fn check(signer: &str, pem: &str, refused: Option<&str>) {
        let authorized = Authorized::system();
        let attributes = Attributes {
            authorized: &authorized,
            operation: Operation::Create,
            gvk: &GroupVersionKind::new(GROUP, "v1", "CertificateSigningRequest"),
            gvr: &GroupVersionResource::new(GROUP, "v1", REQUESTS),
            subresource: "",
            namespace: "",
            name: "r",
            old: None,
            dry_run: false,
            options: None,
            resource: None,
            rounds: None,
        };
        let object = json!({"spec": {"signerName": signer, "request": STANDARD.encode(pem)}});
        let answer = CertificateSubjectRestriction.validate(&attributes, Some(&object));
        let answer = answer.now_or_never().expect("it waits for nothing");
        let refused = refused
            .map(|why| format!("certificatesigningrequests.certificates.k8s.io \"r\" is forbidden: {why}"));
        assert_eq!(answer.err().map(|error| error.message().to_string()), refused);
    }

    #[test]
    fn masters_are_no_clients_group() {
        let (client, other) = ("kubernetes.io/kube-apiserver-client", "example.com/s");
        let masters =
            "use of kubernetes.io/kube-apiserver-client signer with system:masters group is not allowed";
        let plain = pem_of(DnValue::Utf8String("system:masters".into()));
        let wide = pem_of(DnValue::BmpString("system:masters".try_into().unwrap()));
        for pem in [
            plain.clone(),
            wide,
            pem_of(DnValue::Utf8String("system:masters\0".into())),
            plain.replacen("-----\n", "-----\nKey: value\n\n", 1),
            format!("-----BEGIN CERTIFICATE REQUEST-----\n!\n-----END CERTIFICATE REQUEST-----\n{plain}"),
        ] {
            check(client, &pem, Some(masters));
            check(other, &pem, None);
        }
        check(client, &pem_of(DnValue::Utf8String("system:master".into())), None);
        let why = "failed to parse CSR: PEM block type must be CERTIFICATE REQUEST";
        check(client, "no PEM", Some(why));
    }
}
