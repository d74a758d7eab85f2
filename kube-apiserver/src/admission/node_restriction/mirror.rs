//! Mirror pods, which are all that a node creates: bound to it, owned by it, and referring to nothing in the API.

use generic_server::ApiError;
use machinery::go::Quoted;
use machinery::meta;
use serde_json::Value;

use super::{NODE, NodeRestriction, Write};
use crate::authorization::node::graph::Kind;
use crate::authorization::node::references;
use crate::groups::core::pod::{MIRROR, is_mirror};
use crate::json::Json;

/// Volume sources that need nothing of the API.
const PLAIN_VOLUMES: [&str; 22] = [
    "awsElasticBlockStore",
    "azureDisk",
    "cephfs",
    "cinder",
    "downwardAPI",
    "emptyDir",
    "fc",
    "flexVolume",
    "flocker",
    "gcePersistentDisk",
    "gitRepo",
    "hostPath",
    "image",
    "iscsi",
    "nfs",
    "photonPersistentDisk",
    "portworxVolume",
    "quobyte",
    "rbd",
    "scaleIO",
    "storageos",
    "vsphereVolume",
];

/// Volume sources that do, and what of it.
const REFERRING_VOLUMES: [(&str, &str); 7] = [
    ("configMap", "configmaps (via configmap volumes)"),
    ("secret", "secrets (via secret volumes)"),
    ("csi", "csidrivers (via CSI volumes)"),
    ("glusterfs", "endpoints (via glusterFS volumes)"),
    ("persistentVolumeClaim", "persistentvolumeclaims"),
    ("ephemeral", "persistentvolumeclaims (via ephemeral volumes)"),
    ("azureFile", "secrets (via azureFile volumes)"),
];

/// Sources of projected volumes that refer to something.
const PROJECTIONS: [(&str, &str); 5] = [
    ("configMap", "configmaps (via projected volumes)"),
    ("secret", "secrets (via projected volumes)"),
    ("serviceAccountToken", "serviceaccounts (via projected volumes)"),
    ("clusterTrustBundle", "clustertrustbundles"),
    ("podCertificate", "podcertificates"),
];

impl NodeRestriction {
    pub(super) async fn mirror_pod(&self, write: &Write<'_>) -> Result<(), ApiError> {
        let (node, quoted) = (write.node, write.quoted());
        let Some(pod) = write.object else { return Ok(()) };
        if !is_mirror(pod) {
            return write.refuse(&format!(
                "pod does not have {} annotation, node {quoted} can only create mirror pods",
                Quoted(MIRROR)
            ));
        }
        if pod.text("spec.nodeName") != node {
            return write.refuse(&format!(
                "node {quoted} can only create pods with spec.nodeName set to itself"
            ));
        }
        let owner = match pod.list("metadata.ownerReferences") {
            [owner] => owner,
            [] => {
                return write.refuse(&format!(
                    "node {quoted} can only create pods with an owner reference set to itself"
                ));
            }
            _ => {
                return write.refuse(&format!(
                    "node {quoted} can only create pods with a single owner reference set to itself"
                ));
            }
        };
        if owner.text("apiVersion") != "v1" || owner.text("kind") != "Node" || owner.text("name") != node {
            return write.refuse(&format!(
                "node {quoted} can only create pods with an owner reference set to itself"
            ));
        }
        if !owner.flag("controller") {
            return write.refuse(&format!(
                "node {quoted} can only create pods with a controller owner reference set to itself"
            ));
        }
        if owner.flag("blockOwnerDeletion") {
            return write.refuse(&format!(
                "node {quoted} must not set blockOwnerDeletion on an owner reference"
            ));
        }
        let object = self.find(NODE, "", node).await?;
        let (uid, claimed) = (meta::uid(&object), owner.text("uid"));
        if uid != claimed {
            return write.refuse(&format!("node {node} UID mismatch: expected {claimed} got {uid}"));
        }
        match reference(pod) {
            Ok(None) => Ok(()),
            Ok(Some(what)) => write.refuse(&format!(
                "node {quoted} can not create pods that reference {what}"
            )),
            Err(why) => write.refuse(&format!("error checking mirror pod for API references: {why}")),
        }
    }
}

/// The first thing of the API that a pod refers to, or why that cannot be said.
pub(super) fn reference(pod: &Value) -> Result<Option<&'static str>, String> {
    let references = references::all_of_pod(pod);
    let spoken = [
        (Kind::ServiceAccount, "serviceaccounts"),
        (Kind::Secret, "secrets"),
        (Kind::ConfigMap, "configmaps"),
    ];
    for (kind, what) in spoken {
        if references.iter().any(|(of, _)| *of == kind) {
            return Ok(Some(what));
        }
    }
    if !pod.list("spec.resourceClaims").is_empty() {
        return Ok(Some("resourceclaims"));
    }
    for volume in pod.list("spec.volumes") {
        if let Some(what) = volume_reference(volume)? {
            return Ok(Some(what));
        }
    }
    Ok(None)
}

fn volume_reference(volume: &Value) -> Result<Option<&'static str>, String> {
    if let Some((_, what)) = REFERRING_VOLUMES.iter().find(|(source, _)| volume.has(source)) {
        return Ok(Some(what));
    }
    if !volume.has("projected") {
        return match PLAIN_VOLUMES.iter().any(|source| volume.has(source)) {
            true => Ok(None),
            false => Err(format!(
                "unknown volume type for volume  {}",
                Quoted(volume.text("name"))
            )),
        };
    }
    for source in volume.list("projected.sources") {
        if let Some((_, what)) = PROJECTIONS.iter().find(|(kind, _)| source.has(kind)) {
            return Ok(Some(what));
        }
        if !source.has("downwardAPI") {
            return Err(format!(
                "unknown source for projected volume {}",
                Quoted(volume.text("name"))
            ));
        }
    }
    Ok(None)
}
