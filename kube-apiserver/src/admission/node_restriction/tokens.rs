//! Tokens that a node asks for: of the service account of a pod that runs there, bound to that pod, for an audience that one of its
//! volumes names.

use generic_server::ApiError;
use generic_server::authz::Attributes as Question;
use machinery::go::{self, Quoted};
use machinery::meta;
use serde_json::Value;

use super::{NodeRestriction, POD, Write};
use crate::authorization::node::references::ephemeral_claim;
use crate::json::Json;

/// Volume sources of the tree that are CSI drivers' now, and which.
const MIGRATED: [(&str, &str); 7] = [
    ("awsElasticBlockStore", "ebs.csi.aws.com"),
    ("azureDisk", "disk.csi.azure.com"),
    ("azureFile", "file.csi.azure.com"),
    ("cinder", "cinder.csi.openstack.org"),
    ("gcePersistentDisk", "pd.csi.storage.gke.io"),
    ("portworxVolume", "pxd.portworx.com"),
    ("vsphereVolume", "csi.vsphere.vmware.com"),
];

impl NodeRestriction {
    pub(super) async fn token(&self, write: &Write<'_>) -> Result<(), ApiError> {
        let Some(request) = write.object else {
            return Ok(());
        };
        let reference = request.dig("spec.boundObjectRef");
        let (name, uid) = (reference.text("name"), reference.text("uid"));
        if reference.text("apiVersion") != "v1" || reference.text("kind") != "Pod" || name.is_empty() {
            return write.refuse("node requested token not bound to a pod");
        }
        if uid.is_empty() {
            return write.refuse("node requested token with a pod binding without a uid");
        }
        let pod = self.find(POD, write.attributes.namespace, name).await?;
        if uid != meta::uid(&pod) {
            return write.refuse(&format!(
                "the UID in the bound object reference ({uid}) does not match the UID in record. The object might have been deleted \
                 and then recreated"
            ));
        }
        if pod.text("spec.nodeName") != write.node {
            return write.refuse("node requested token bound to a pod scheduled on a different node");
        }
        match self.audience(write, request, &pod).await {
            Ok(()) => Ok(()),
            Err(why) => write.refuse(&why),
        }
    }

    /// The audience is one of a volume's, or the node is authorized to ask for it.
    async fn audience(&self, write: &Write<'_>, request: &Value, pod: &Value) -> Result<(), String> {
        let mut audiences = request.strings("spec.audiences");
        let audience = audiences.next().unwrap_or_default();
        if audiences.next().is_some() {
            return Err("node may only request 0 or 1 audiences".into());
        }
        let mut errors = Vec::new();
        for volume in pod.list("spec.volumes") {
            match self.is_audience_of(volume, pod, audience).await {
                Ok(true) => return Ok(()),
                Ok(false) => {}
                Err(error) => errors.push(error.to_string()),
            }
        }
        if !errors.is_empty() {
            let errors = go::aggregate(&errors);
            return Err(format!(
                "error validating audience {}: {errors}",
                Quoted(audience)
            ));
        }
        let user = write.attributes.authorized.user();
        let question = Question {
            user,
            verb: "request-serviceaccounts-token-audience",
            is_resource: true,
            group: "",
            version: "v1",
            resource: audience,
            subresource: "",
            namespace: write.attributes.namespace,
            name: write.attributes.name,
            path: "",
            field_selector: "",
            label_selector: "",
        };
        self.authorizer.authorize(&question).await.permits().map_err(|_| {
            format!(
                "audience {} not found in pod spec volume, {} is not authorized to request tokens for this audience",
                Quoted(audience),
                user.name
            )
        })
    }

    async fn is_audience_of(&self, volume: &Value, pod: &Value, audience: &str) -> Result<bool, ApiError> {
        let projected = volume.list("projected.sources").iter();
        let mut tokens = projected.filter(|source| source.has("serviceAccountToken"));
        if tokens.any(|source| source.text("serviceAccountToken.audience") == audience) {
            return Ok(true);
        }
        let namespace = meta::namespace(pod);
        let driver = if volume.has("ephemeral.volumeClaimTemplate") {
            let claim = ephemeral_claim(meta::name(pod), volume.text("name"));
            self.driver_of_claim(namespace, &claim).await?
        } else if volume.has("persistentVolumeClaim") {
            let claim = volume.text("persistentVolumeClaim.claimName");
            self.driver_of_claim(namespace, claim).await?
        } else {
            driver_of(volume)
        };
        if driver.is_empty() {
            return Ok(false);
        }
        let found = self.find(("storage.k8s.io", "csidriver"), "", &driver).await?;
        let mut requests = found.list("spec.tokenRequests").iter();
        Ok(requests.any(|request| request.text("audience") == audience))
    }

    async fn driver_of_claim(&self, namespace: &str, claim: &str) -> Result<String, ApiError> {
        let claim = self.find(("", "persistentvolumeclaim"), namespace, claim).await?;
        let volume = self
            .find(("", "persistentvolume"), "", claim.text("spec.volumeName"))
            .await?;
        Ok(driver_of(volume.dig("spec")))
    }
}

/// The CSI driver behind a volume source; empty for none.
fn driver_of(source: &Value) -> String {
    let driver = source.text("csi.driver");
    if !driver.is_empty() {
        return driver.into();
    }
    let migrated = MIGRATED.iter().find(|(name, _)| source.has(name));
    migrated.map(|(_, driver)| (*driver).into()).unwrap_or_default()
}
