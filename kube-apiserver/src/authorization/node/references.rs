//! The references of pods and volumes, read off their JSON.

use std::collections::HashMap;

use machinery::meta;
use serde_json::Value;

use super::graph::{Key, Kind, key};
use crate::groups::core::pod::is_mirror;
use crate::json::Json;

/// Volume sources of pods with a reference to a secret, and where it is.
const POD_SECRETS: [&str; 10] = [
    "azureFile.secretName",
    "cephfs.secretRef.name",
    "cinder.secretRef.name",
    "flexVolume.secretRef.name",
    "rbd.secretRef.name",
    "secret.secretName",
    "scaleIO.secretRef.name",
    "iscsi.secretRef.name",
    "storageos.secretRef.name",
    "csi.nodePublishSecretRef.name",
];

/// Volume sources whose secret is in the claim's namespace when it names none.
const VOLUME_SECRETS: [&str; 5] = ["cephfs", "flexVolume", "rbd", "scaleIO", "iscsi"];

/// Secrets of CSI volumes that kubelets use; those of controllers are none of theirs.
const CSI_SECRETS: [&str; 3] = [
    "csi.nodePublishSecretRef",
    "csi.nodeStageSecretRef",
    "csi.nodeExpandSecretRef",
];

/// The objects that a pod gives its node access to. None for a mirror pod: a node could make one that refers to anything.
pub(super) fn of_pod(pod: &Value) -> Vec<(Kind, Key)> {
    match is_mirror(pod) {
        true => Vec::new(),
        false => all_of_pod(pod),
    }
}

/// Everything that a pod refers to by name.
pub(crate) fn all_of_pod(pod: &Value) -> Vec<(Kind, Key)> {
    let namespace = meta::namespace(pod);
    let spec = pod.dig("spec");
    let mut references = References {
        namespace,
        all: Vec::new(),
    };
    references.add(Kind::ServiceAccount, spec.text("serviceAccountName"));
    for secret in spec.list("imagePullSecrets") {
        references.add(Kind::Secret, secret.text("name"));
    }
    for list in ["initContainers", "containers", "ephemeralContainers"] {
        for container in spec.list(list) {
            references.of_container(container);
        }
    }
    for volume in spec.list("volumes") {
        references.of_volume(volume, meta::name(pod));
    }
    let statuses = pod.list("status.resourceClaimStatuses").iter().rev();
    // Of statuses with one name the first counts.
    let made: HashMap<&str, &str> = statuses
        .map(|status| (status.text("name"), status.text("resourceClaimName")))
        .collect();
    for claim in spec.list("resourceClaims") {
        references.add(Kind::ResourceClaim, resource_claim(claim, &made));
    }
    let extended = pod.text("status.extendedResourceClaimStatus.resourceClaimName");
    references.add(Kind::ResourceClaim, extended);
    references.all
}

struct References<'a> {
    namespace: &'a str,
    all: Vec<(Kind, Key)>,
}

impl References<'_> {
    fn add(&mut self, kind: Kind, name: &str) {
        if !name.is_empty() {
            self.all.push((kind, key(self.namespace, name)));
        }
    }

    fn of_container(&mut self, container: &Value) {
        for source in container.list("envFrom") {
            self.add(Kind::Secret, source.text("secretRef.name"));
            self.add(Kind::ConfigMap, source.text("configMapRef.name"));
        }
        for variable in container.list("env") {
            self.add(Kind::Secret, variable.text("valueFrom.secretKeyRef.name"));
            self.add(Kind::ConfigMap, variable.text("valueFrom.configMapKeyRef.name"));
        }
    }

    fn of_volume(&mut self, volume: &Value, pod: &str) {
        for path in POD_SECRETS {
            self.add(Kind::Secret, volume.text(path));
        }
        self.add(Kind::ConfigMap, volume.text("configMap.name"));
        for source in volume.list("projected.sources") {
            self.add(Kind::Secret, source.text("secret.name"));
            self.add(Kind::ConfigMap, source.text("configMap.name"));
        }
        if volume.has("ephemeral") {
            self.add(Kind::Claim, &ephemeral_claim(pod, volume.text("name")));
        } else {
            self.add(Kind::Claim, volume.text("persistentVolumeClaim.claimName"));
        }
    }
}

/// The name of the claim that is made for an ephemeral volume of a pod.
pub(crate) fn ephemeral_claim(pod: &str, volume: &str) -> String {
    format!("{pod}-{volume}")
}

/// The claim that a pod's entry stands for: named by the spec, or made of a template and then named by the status. `made` is what the
/// status says, by the entries' names.
fn resource_claim<'a>(entry: &'a Value, made: &HashMap<&str, &'a str>) -> &'a str {
    let named = entry.text("resourceClaimName");
    if !named.is_empty() || !entry.has("resourceClaimTemplateName") {
        return named;
    }
    made.get(entry.text("name")).copied().unwrap_or_default()
}

/// The secrets of a volume that kubelets read.
pub(super) fn secrets_of_volume(volume: &Value) -> Vec<Key> {
    let spec = volume.dig("spec");
    let claims = spec.text("claimRef.namespace");
    let mut secrets = Vec::new();
    let mut add = |namespace: &str, name: &str| {
        if !name.is_empty() {
            secrets.push(key(namespace, name));
        }
    };
    let or_claims = |namespace: &'_ str| match namespace {
        "" => claims.to_string(),
        namespace => namespace.to_string(),
    };
    let azure = spec.dig("azureFile");
    add(
        &or_claims(azure.text("secretNamespace")),
        azure.text("secretName"),
    );
    for source in VOLUME_SECRETS {
        let reference = spec.dig(source).dig("secretRef");
        add(&or_claims(reference.text("namespace")), reference.text("name"));
    }
    for path in ["cinder.secretRef", "storageos.secretRef"]
        .into_iter()
        .chain(CSI_SECRETS)
    {
        let reference = spec.dig(path);
        add(reference.text("namespace"), reference.text("name"));
    }
    secrets
}
