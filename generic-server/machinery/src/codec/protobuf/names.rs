//! The names that fields have in Go, which refusals of malformed messages tell: that in JSON with a capital, but for these.

use std::borrow::Cow;

use crate::codec::typed::short_name;
use crate::schema::{FieldDef, Node};

/// Fields of one type that are called unlike those of the same name in others: type, name in JSON, name in Go.
const OF_TYPES: &[(&str, &str, &str)] = &[
    ("APIResourceList", "resources", "APIResources"),
    ("DeviceAttribute", "version", "VersionValue"),
    ("DeviceAttribute", "versions", "VersionValues"),
    ("GlusterfsPersistentVolumeSource", "endpoints", "EndpointsName"),
    ("GlusterfsVolumeSource", "endpoints", "EndpointsName"),
    ("PodSpec", "serviceAccount", "DeprecatedServiceAccount"),
    ("RBDPersistentVolumeSource", "image", "RBDImage"),
    ("RBDPersistentVolumeSource", "monitors", "CephMonitors"),
    ("RBDPersistentVolumeSource", "pool", "RBDPool"),
    ("RBDPersistentVolumeSource", "user", "RadosUser"),
    ("RBDVolumeSource", "image", "RBDImage"),
    ("RBDVolumeSource", "monitors", "CephMonitors"),
    ("RBDVolumeSource", "pool", "RBDPool"),
    ("RBDVolumeSource", "user", "RadosUser"),
    ("StatusCause", "reason", "Type"),
];

/// Fields of any type: name in JSON, name in Go. Sorted.
const ANYWHERE: &[(&str, &str)] = &[
    ("$ref", "Ref"),
    ("$schema", "Schema"),
    ("apiGroup", "APIGroup"),
    ("apiGroups", "APIGroups"),
    ("apiServerID", "APIServerID"),
    ("apiVersion", "APIVersion"),
    ("apiVersions", "APIVersions"),
    ("awsElasticBlockStore", "AWSElasticBlockStore"),
    ("bool", "BoolValue"),
    ("bools", "BoolValues"),
    ("caBundle", "CABundle"),
    ("cel", "CEL"),
    ("cephfs", "CephFS"),
    ("chapAuthDiscovery", "DiscoveryCHAPAuth"),
    ("chapAuthSession", "SessionCHAPAuth"),
    ("cidr", "CIDR"),
    ("cidrs", "CIDRs"),
    ("csi", "CSI"),
    ("diskURI", "DataDiskURI"),
    ("dnsConfig", "DNSConfig"),
    ("dnsPolicy", "DNSPolicy"),
    ("externalID", "DoNotUseExternalID"),
    ("fc", "FC"),
    ("fsGroup", "FSGroup"),
    ("fsGroupChangePolicy", "FSGroupChangePolicy"),
    ("fsGroupPolicy", "FSGroupPolicy"),
    ("fsType", "FSType"),
    ("gcePersistentDisk", "GCEPersistentDisk"),
    ("gid", "GID"),
    ("gmsaCredentialSpec", "GMSACredentialSpec"),
    ("gmsaCredentialSpecName", "GMSACredentialSpecName"),
    ("grpc", "GRPC"),
    ("http", "HTTP"),
    ("httpGet", "HTTPGet"),
    ("httpHeaders", "HTTPHeaders"),
    ("id", "ID"),
    ("int", "IntValue"),
    ("ints", "IntValues"),
    ("ip", "IP"),
    ("ipBlock", "IPBlock"),
    ("ipFamilies", "IPFamilies"),
    ("ipFamilyPolicy", "IPFamilyPolicy"),
    ("ipMode", "IPMode"),
    ("ips", "IPs"),
    ("iqn", "IQN"),
    ("iscsi", "ISCSI"),
    ("iscsiInterface", "ISCSIInterface"),
    ("jsonPatch", "JSONPatch"),
    ("jsonPath", "JSONPath"),
    ("lastState", "LastTerminationState"),
    ("nfs", "NFS"),
    ("os", "OS"),
    ("osImage", "OSImage"),
    ("pdName", "PDName"),
    ("pkixPublicKey", "PKIXPublicKey"),
    ("qosClass", "QOSClass"),
    ("rbd", "RBD"),
    ("reportingComponent", "ReportingController"),
    ("seLinuxChangePolicy", "SELinuxChangePolicy"),
    ("seLinuxMount", "SELinuxMount"),
    ("seLinuxOptions", "SELinuxOptions"),
    ("sslEnabled", "SSLEnabled"),
    ("storageos", "StorageOS"),
    ("string", "StringValue"),
    ("strings", "StringValues"),
    ("tcpSocket", "TCPSocket"),
    ("tls", "TLS"),
    ("ttlSecondsAfterFinished", "TTLSecondsAfterFinished"),
    ("tty", "TTY"),
    ("uid", "UID"),
    ("url", "URL"),
    ("wwids", "WWIDs"),
    ("x-kubernetes-embedded-resource", "XEmbeddedResource"),
    ("x-kubernetes-int-or-string", "XIntOrString"),
    ("x-kubernetes-list-map-keys", "XListMapKeys"),
    ("x-kubernetes-list-type", "XListType"),
    ("x-kubernetes-map-type", "XMapType"),
    ("x-kubernetes-preserve-unknown-fields", "XPreserveUnknownFields"),
    ("x-kubernetes-validations", "XValidations"),
];

/// Messages that JSON inlines: the type they are in, their number, and the name of their type, which is that of the field.
const INLINED: &[(&str, u32, &str)] = &[
    ("DeviceAllocationConfiguration", 3, "DeviceConfiguration"),
    ("DeviceClaimConfiguration", 2, "DeviceConfiguration"),
    ("DeviceClassConfiguration", 1, "DeviceConfiguration"),
    ("EphemeralContainer", 1, "EphemeralContainerCommon"),
    ("IngressRule", 2, "IngressRuleValue"),
    ("NamedRuleWithOperations", 2, "RuleWithOperations"),
    ("PersistentVolumeSpec", 2, "PersistentVolumeSource"),
    ("Probe", 1, "ProbeHandler"),
    ("RuleWithOperations", 2, "Rule"),
    ("Volume", 2, "VolumeSource"),
];

/// The name of a field in Go. `message` is the type it is in, `value` what it holds.
pub(super) fn field<'a>(message: &str, field: &'a FieldDef, value: &'a Node) -> Cow<'a, str> {
    let name = &*field.name;
    if name == "metadata" {
        return short_name(value).into();
    }
    let own = OF_TYPES
        .iter()
        .find(|(ty, json, _)| *ty == message && *json == name);
    if let Some((_, _, go)) = own {
        return (*go).into();
    }
    if let Ok(index) = ANYWHERE.binary_search_by_key(&name, |(json, _)| json) {
        return ANYWHERE[index].1.into();
    }
    let (first, rest) = name.split_at(1);
    (first.to_ascii_uppercase() + rest).into()
}

/// The name of a message that JSON inlines into `message`, by its number there.
pub(super) fn inlined(message: &str, number: u32) -> &'static str {
    INLINED
        .iter()
        .find(|(ty, known, _)| *ty == message && *known == number)
        .map_or("LocalObjectReference", |(_, _, name)| name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::builtin;

    #[test]
    fn names_are_those_of_upstreams_types() {
        #[track_caller]
        fn check(ty: &str, json: &str, expected: &str) {
            let schema = builtin().by_type_name(&format!("io.k8s.{ty}")).unwrap();
            let (field, value) = schema.root().field(json).unwrap();
            let message = short_name(schema.root().node());
            assert_eq!(super::field(message, field, value.node()), expected);
        }
        assert!(ANYWHERE.is_sorted());
        check("api.core.v1.Pod", "metadata", "ObjectMeta");
        check("api.core.v1.PodList", "metadata", "ListMeta");
        check("api.core.v1.PodSpec", "hostPID", "HostPID");
        check(
            "api.core.v1.PodSpec",
            "serviceAccount",
            "DeprecatedServiceAccount",
        );
        check("api.core.v1.ServiceSpec", "clusterIPs", "ClusterIPs");
        check("api.core.v1.ServiceSpec", "ipFamilies", "IPFamilies");
        check("api.discovery.v1.EndpointSlice", "endpoints", "Endpoints");
        check("api.core.v1.GlusterfsVolumeSource", "endpoints", "EndpointsName");
        check("apimachinery.pkg.apis.meta.v1.ObjectMeta", "uid", "UID");
        check(
            "apimachinery.pkg.apis.meta.v1.ObjectMeta",
            "managedFields",
            "ManagedFields",
        );
    }

    #[test]
    fn every_inlined_message_has_its_name() {
        for (name, schema) in builtin().types() {
            for field in &schema.node().fields {
                let mut message = short_name(schema.node());
                for outer in field.via.into_iter().filter(|outer| *outer != 0) {
                    let references = name.contains(".ConfigMap") || name.contains(".Secret");
                    message = inlined(message, u32::from(outer));
                    assert_eq!(
                        references,
                        message == "LocalObjectReference",
                        "{name} {}",
                        field.name
                    );
                }
            }
        }
    }
}
