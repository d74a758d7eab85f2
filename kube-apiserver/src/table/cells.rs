//! One printer per kind.

use machinery::meta;
use serde_json::{Value, json};

use super::*;

macro_rules! printer {
    ($name:ident, $columns:literal, $cells:expr) => {
        pub(crate) const $name: Printer = Printer {
            columns: $columns,
            cells: $cells,
        };
    };
}

printer!(DEFAULT, "Name|string|name|0;Created At|date||0", |o| vec![
    name(o),
    o.dig("metadata.creationTimestamp").clone()
]);
printer!(NAME_AGE, "Name|string|name|0;Age|string||0", |o| vec![
    name(o),
    age(o)
]);
printer!(
    COMPONENT_STATUS,
    "Name|string|name|0;Status|string||0;Message|string||0;Error|string||0",
    |o| {
        let condition = o.list("conditions").iter().find(|c| c.text("type") == "Healthy");
        match condition {
            None => vec![name(o), "Unknown".into(), "".into(), "".into()],
            Some(c) => {
                let healthy = if c.text("status") == "True" {
                    "Healthy"
                } else {
                    "Unhealthy"
                };
                vec![
                    name(o),
                    healthy.into(),
                    c.text("message").into(),
                    c.text("error").into(),
                ]
            }
        }
    }
);
printer!(
    CONFIG_MAP,
    "Name|string|name|0;Data|string||0;Age|string||0",
    |o| {
        let count = o.entries("data").count() + o.entries("binaryData").count();
        vec![name(o), count.into(), age(o)]
    }
);
printer!(
    SECRET,
    "Name|string|name|0;Type|string||0;Data|string||0;Age|string||0",
    |o| vec![
        name(o),
        o.text("type").into(),
        o.entries("data").count().into(),
        age(o)
    ]
);
printer!(
    ENDPOINTS,
    "Name|string|name|0;Endpoints|string||0;Age|string||0",
    |o| vec![name(o), endpoints(o).into(), age(o)]
);
printer!(
    EVENT,
    "Last Seen|string||0;Type|string||0;Reason|string||0;Object|string||0;Subobject|string||1;Source|string||1;Message|string||0;First Seen|string||1;Count|string||1;Name|string|name|1",
    event
);
printer!(
    NAMESPACE,
    "Name|string|name|0;Status|string||0;Age|string||0",
    |o| vec![name(o), o.text("status.phase").into(), age(o)]
);
printer!(
    NODE,
    "Name|string|name|0;Status|string||0;Roles|string||0;Age|string||0;Version|string||0;Internal-IP|string||1;External-IP|string||1;OS-Image|string||1;Kernel-Version|string||1;Container-Runtime|string||1",
    node
);
printer!(
    PVC,
    "Name|string|name|0;Status|string||0;Volume|string||0;Capacity|string||0;Access Modes|string||0;StorageClass|string||0;VolumeAttributesClass|string||0;Age|string||0;VolumeMode|string||1",
    |o| {
        let bound = !o.text("spec.volumeName").is_empty();
        let class = meta::annotations(o)
            .and_then(|a| a.get("volume.beta.kubernetes.io/storage-class"))
            .and_then(Value::as_str)
            .unwrap_or_else(|| o.text("spec.storageClassName"));
        vec![
            name(o),
            phase(o).into(),
            o.text("spec.volumeName").into(),
            if bound {
                or(o.text("status.capacity.storage"), "0").into()
            } else {
                "".into()
            },
            if bound {
                access_modes(o, "status.accessModes").into()
            } else {
                "".into()
            },
            class.into(),
            or(o.text("spec.volumeAttributesClassName"), "<unset>").into(),
            age(o),
            or(o.text("spec.volumeMode"), "<unset>").into(),
        ]
    }
);
printer!(
    PV,
    "Name|string|name|0;Capacity|string||0;Access Modes|string||0;Reclaim Policy|string||0;Status|string||0;Claim|string||0;StorageClass|string||0;VolumeAttributesClass|string||0;Reason|string||0;Age|string||0;VolumeMode|string||1",
    |o| {
        let claim = match o.has("spec.claimRef") {
            true => format!(
                "{}/{}",
                o.text("spec.claimRef.namespace"),
                o.text("spec.claimRef.name")
            ),
            false => String::new(),
        };
        let class = meta::annotations(o)
            .and_then(|a| a.get("volume.beta.kubernetes.io/storage-class"))
            .and_then(Value::as_str)
            .unwrap_or_else(|| o.text("spec.storageClassName"));
        vec![
            name(o),
            or(o.text("spec.capacity.storage"), "0").into(),
            access_modes(o, "spec.accessModes").into(),
            o.text("spec.persistentVolumeReclaimPolicy").into(),
            phase(o).into(),
            claim.into(),
            class.into(),
            or(o.text("spec.volumeAttributesClassName"), "<unset>").into(),
            o.text("status.reason").into(),
            age(o),
            or(o.text("spec.volumeMode"), "<unset>").into(),
        ]
    }
);
printer!(
    POD,
    "Name|string|name|0;Ready|string||0;Status|string||0;Restarts|string||0;Age|string||0;IP|string||1;Node|string||1;Nominated Node|string||1;Readiness Gates|string||1",
    pod
);
printer!(
    POD_TEMPLATE,
    "Name|string|name|0;Containers|string||0;Images|string||0;Pod Labels|string||0",
    |o| {
        let (names, images) = containers(o.dig("template"));
        vec![
            name(o),
            names,
            images,
            format_labels(o.dig("template.metadata.labels")).into(),
        ]
    }
);
printer!(
    REPLICATION_CONTROLLER,
    "Name|string|name|0;Desired|integer||0;Current|integer||0;Ready|integer||0;Age|string||0;Containers|string||1;Images|string||1;Selector|string||1",
    |o| {
        let (names, images) = containers(o.dig("spec.template"));
        vec![
            name(o),
            number(o, "spec.replicas"),
            number(o, "status.replicas"),
            number(o, "status.readyReplicas"),
            age(o),
            names,
            images,
            format_labels(o.dig("spec.selector")).into(),
        ]
    }
);
printer!(
    REPLICA_SET,
    "Name|string|name|0;Desired|integer||0;Current|integer||0;Ready|integer||0;Age|string||0;Containers|string||1;Images|string||1;Selector|string||1",
    |o| {
        let (names, images) = containers(o.dig("spec.template"));
        vec![
            name(o),
            number(o, "spec.replicas"),
            number(o, "status.replicas"),
            number(o, "status.readyReplicas"),
            age(o),
            names,
            images,
            format_selector(o.dig("spec.selector")).into(),
        ]
    }
);
printer!(
    DEPLOYMENT,
    "Name|string|name|0;Ready|string||0;Up-to-date|string||0;Available|string||0;Age|string||0;Containers|string||1;Images|string||1;Selector|string||1",
    |o| {
        let (names, images) = containers(o.dig("spec.template"));
        vec![
            name(o),
            ratio(o, "status.readyReplicas", "spec.replicas"),
            number(o, "status.updatedReplicas"),
            number(o, "status.availableReplicas"),
            age(o),
            names,
            images,
            selector_text(o.dig("spec.selector"))
                .unwrap_or_else(|| "<invalid>".into())
                .into(),
        ]
    }
);
printer!(
    STATEFUL_SET,
    "Name|string|name|0;Ready|string||0;Age|string||0;Containers|string||1;Images|string||1",
    |o| {
        let (names, images) = containers(o.dig("spec.template"));
        vec![
            name(o),
            ratio(o, "status.readyReplicas", "spec.replicas"),
            age(o),
            names,
            images,
        ]
    }
);
printer!(
    DAEMON_SET,
    "Name|string|name|0;Desired|integer||0;Current|integer||0;Ready|integer||0;Up-to-date|integer||0;Available|integer||0;Node Selector|string||0;Age|string||0;Containers|string||1;Images|string||1;Selector|string||1",
    |o| {
        let (names, images) = containers(o.dig("spec.template"));
        vec![
            name(o),
            number(o, "status.desiredNumberScheduled"),
            number(o, "status.currentNumberScheduled"),
            number(o, "status.numberReady"),
            number(o, "status.updatedNumberScheduled"),
            number(o, "status.numberAvailable"),
            format_labels(o.dig("spec.template.spec.nodeSelector")).into(),
            age(o),
            names,
            images,
            format_selector(o.dig("spec.selector")).into(),
        ]
    }
);
printer!(
    CONTROLLER_REVISION,
    "Name|string|name|0;Controller|string||0;Revision|string||0;Age|string||0",
    |o| {
        let owner = meta::owner_references(o).iter().find(|r| r.flag("controller"));
        let controller = match owner {
            None => "<none>".to_string(),
            Some(owner) => {
                let kind = owner.text("kind").to_lowercase();
                match owner.text("apiVersion").split_once('/') {
                    Some((group, _)) => format!("{kind}.{group}/{}", owner.text("name")),
                    None => format!("{kind}/{}", owner.text("name")),
                }
            }
        };
        vec![name(o), controller.into(), number(o, "revision"), age(o)]
    }
);
printer!(
    RESOURCE_QUOTA,
    "Name|string|name|0;Request|string||0;Limit|string||0;Age|string||0",
    |o| {
        let (mut requests, mut limits) = (Vec::new(), Vec::new());
        for (resource, hard) in o.entries("status.hard") {
            let used = o
                .dig("status.used")
                .get(resource)
                .and_then(Value::as_str)
                .unwrap_or("0");
            let text = format!("{resource}: {used}/{}", hard.as_str().unwrap_or("0"));
            if resource.starts_with("limits.") {
                limits.push(text);
            } else {
                requests.push(text);
            }
        }
        vec![
            name(o),
            requests.join(", ").into(),
            limits.join(", ").into(),
            age(o),
        ]
    }
);
printer!(
    SERVICE,
    "Name|string|name|0;Type|string||0;Cluster-IP|string||0;External-IP|string||0;Port(s)|string||0;Age|string||0;Selector|string||1",
    |o| {
        let ports: Vec<String> = o.list("spec.ports").iter().map(service_port).collect();
        let ports = ports.join(",");
        vec![
            name(o),
            o.text("spec.type").into(),
            o.strings("spec.clusterIPs").next().unwrap_or("<none>").into(),
            external_ip(o).into(),
            or(&ports, "<none>").into(),
            age(o),
            format_labels(o.dig("spec.selector")).into(),
        ]
    }
);
printer!(
    HPA,
    "Name|string|name|0;Reference|string||0;Targets|string||0;MinPods|string||0;MaxPods|string||0;Replicas|string||0;Age|string||0",
    |o| {
        let target = format!(
            "{}/{}",
            o.text("spec.scaleTargetRef.kind"),
            o.text("spec.scaleTargetRef.name")
        );
        let min = match o.int("spec.minReplicas") {
            Some(min) => min.to_string(),
            None => "<unset>".into(),
        };
        vec![
            name(o),
            target.into(),
            hpa_metrics(o).into(),
            min.into(),
            number(o, "spec.maxReplicas"),
            number(o, "status.currentReplicas"),
            age(o),
        ]
    }
);
printer!(
    HPA_V1,
    "Name|string|name|0;Reference|string||0;Targets|string||0;MinPods|string||0;MaxPods|string||0;Replicas|string||0;Age|string||0",
    |o| {
        let mut cells = (HPA.cells)(o);
        let percent = |path: &str| o.int(path).map(|n| format!("{n}%"));
        if let (Some(target), Some(cell)) = (percent("spec.targetCPUUtilizationPercentage"), cells.get_mut(2))
        {
            let current = percent("status.currentCPUUtilizationPercentage");
            *cell = format!("cpu: {}/{target}", current.as_deref().unwrap_or("<unknown>")).into();
        }
        cells
    }
);
printer!(
    CRON_JOB,
    "Name|string|name|0;Schedule|string||0;Timezone|string||0;Suspend|boolean||0;Active|integer||0;Last Schedule|string||0;Age|string||0;Containers|string||1;Images|string||1;Selector|string||1",
    |o| {
        let (names, images) = containers(o.dig("spec.jobTemplate.spec.template"));
        let suspend = match o.dig("spec.suspend").as_bool() {
            Some(true) => "True",
            Some(false) => "False",
            None => "<unset>",
        };
        let last = match o.text("status.lastScheduleTime") {
            "" => "<none>".to_string(),
            time => since(time),
        };
        vec![
            name(o),
            o.text("spec.schedule").into(),
            or(o.text("spec.timeZone"), "<none>").into(),
            suspend.into(),
            o.list("status.active").len().into(),
            last.into(),
            age(o),
            names,
            images,
            format_selector(o.dig("spec.jobTemplate.spec.selector")).into(),
        ]
    }
);
printer!(
    JOB,
    "Name|string|name|0;Status|string||0;Completions|string||0;Duration|string||0;Age|string||0;Containers|string||1;Images|string||1;Selector|string||1",
    |o| {
        let (names, images) = containers(o.dig("spec.template"));
        let succeeded = o.int("status.succeeded").unwrap_or_default();
        let completions = match (
            o.int("spec.completions"),
            o.int("spec.parallelism").unwrap_or_default(),
        ) {
            (Some(wanted), _) => format!("{succeeded}/{wanted}"),
            (None, parallelism) if parallelism > 1 => format!("{succeeded}/1 of {parallelism}"),
            (None, _) => format!("{succeeded}/1"),
        };
        vec![
            name(o),
            job_status(o).into(),
            completions.into(),
            job_duration(o).into(),
            age(o),
            names,
            images,
            format_selector(o.dig("spec.selector")).into(),
        ]
    }
);
printer!(
    CSR,
    "Name|string|name|0;Age|string||0;SignerName|string||0;Requestor|string||0;RequestedDuration|string||0;Condition|string||0",
    |o| {
        let has = |kind: &str| o.list("status.conditions").iter().any(|c| c.text("type") == kind);
        let mut status = String::from(match (has("Denied"), has("Approved")) {
            (true, _) => "Denied",
            (false, true) => "Approved",
            (false, false) => "Pending",
        });
        if has("Failed") {
            status.push_str(",Failed");
        }
        if !o.text("status.certificate").is_empty() {
            status.push_str(",Issued");
        }
        let duration = match o.int("spec.expirationSeconds") {
            Some(seconds) => human_duration(seconds),
            None => "<none>".into(),
        };
        vec![
            name(o),
            age(o),
            or(o.text("spec.signerName"), "<none>").into(),
            o.text("spec.username").into(),
            duration.into(),
            status.into(),
        ]
    }
);
printer!(
    INGRESS_CLASS,
    "Name|string|name|0;Controller|string||0;Parameters|string||0;Age|string||0",
    |o| {
        let parameters = match o.has("spec.parameters") {
            false => "<none>".to_string(),
            true => {
                let mut kind = o.text("spec.parameters.kind").to_string();
                if o.has("spec.parameters.apiGroup") {
                    kind = format!("{kind}.{}", o.text("spec.parameters.apiGroup"));
                }
                format!("{kind}/{}", o.text("spec.parameters.name"))
            }
        };
        let annotations = ["ingressclass.kubernetes.io/is-default-class"];
        vec![
            default_name(o, &annotations),
            o.text("spec.controller").into(),
            parameters.into(),
            age(o),
        ]
    }
);
printer!(
    INGRESS,
    "Name|string|name|0;Class|string||0;Hosts|string||0;Address|string||0;Ports|string||0;Age|string||0",
    |o| {
        let rules = o.list("spec.rules");
        let hosts: Vec<&str> = rules
            .iter()
            .map(|r| r.text("host"))
            .filter(|h| !h.is_empty())
            .take(3)
            .collect();
        let hosts = match (hosts.is_empty(), rules.len() > 3) {
            (true, _) => "*".to_string(),
            (false, false) => hosts.join(","),
            (false, true) => format!("{} + {} more...", hosts.join(","), rules.len() - 3),
        };
        let ports = if o.list("spec.tls").is_empty() {
            "80"
        } else {
            "80, 443"
        };
        vec![
            name(o),
            match o.dig("spec.ingressClassName").as_str() {
                Some(class) => class.into(),
                None => "<none>".into(),
            },
            hosts.into(),
            load_balancer(o).into(),
            ports.into(),
            age(o),
        ]
    }
);
printer!(IP_ADDRESS, "Name|string|name|0;ParentRef|string||0", |o| {
    let parent = o.dig("spec.parentRef");
    let text = match parent.is_null() {
        true => "<none>".to_string(),
        false => {
            let mut text = parent.text("resource").to_lowercase();
            if !parent.text("group").is_empty() {
                text = format!("{text}.{}", parent.text("group").to_lowercase());
            }
            if !parent.text("namespace").is_empty() {
                text = format!("{text}/{}", parent.text("namespace"));
            }
            format!("{text}/{}", parent.text("name"))
        }
    };
    // Upstream prints the age here too, without a heading for it.
    vec![name(o), text.into(), age(o)]
});
printer!(
    NETWORK_POLICY,
    "Name|string|name|0;Pod-Selector|string||0;Age|string||0",
    |o| vec![
        name(o),
        format_selector(&match o.dig("spec.podSelector") {
            Value::Null => json!({}),
            selector => selector.clone(),
        })
        .into(),
        age(o)
    ]
);
printer!(
    SERVICE_CIDR,
    "Name|string|name|0;CIDRs|string||0;Age|string||0",
    |o| vec![
        name(o),
        o.strings("spec.cidrs").collect::<Vec<_>>().join(",").into(),
        age(o)
    ]
);
printer!(
    PDB,
    "Name|string|name|0;Min Available|string||0;Max Unavailable|string||0;Allowed Disruptions|integer||0;Age|string||0",
    |o| {
        let show = |path: &str| match o.dig(path) {
            Value::Null => "N/A".to_string(),
            Value::String(s) => s.clone(),
            other => other.to_string(),
        };
        vec![
            name(o),
            show("spec.minAvailable").into(),
            show("spec.maxUnavailable").into(),
            number(o, "status.disruptionsAllowed"),
            age(o),
        ]
    }
);
printer!(
    ROLE_BINDING,
    "Name|string|name|0;Role|string||0;Age|string||0;Users|string||1;Groups|string||1;ServiceAccounts|string||1",
    |o| {
        let of = |kind: &str| -> Value {
            let subjects = o.list("subjects").iter().filter(|s| s.text("kind") == kind);
            let names: Vec<String> = subjects
                .map(|s| match (kind, s.text("namespace")) {
                    ("ServiceAccount", "") => s.text("name").to_string(),
                    ("ServiceAccount", namespace) => format!("{namespace}/{}", s.text("name")),
                    _ => s.text("name").to_string(),
                })
                .collect();
            names.join(", ").into()
        };
        vec![
            name(o),
            format!("{}/{}", o.text("roleRef.kind"), o.text("roleRef.name")).into(),
            age(o),
            of("User"),
            of("Group"),
            of("ServiceAccount"),
        ]
    }
);
printer!(
    CSI_DRIVER,
    "Name|string|name|0;AttachRequired|boolean||0;PodInfoOnMount|boolean||0;StorageCapacity|boolean||0;TokenRequests|string||0;RequiresRepublish|boolean||0;Modes|string||0;Age|string||0",
    |o| {
        let tokens = match o.dig("spec.tokenRequests").as_array() {
            None => "<unset>".to_string(),
            Some(list) => list
                .iter()
                .map(|t| t.text("audience"))
                .collect::<Vec<_>>()
                .join(","),
        };
        let modes = o
            .strings("spec.volumeLifecycleModes")
            .collect::<Vec<_>>()
            .join(",");
        vec![
            name(o),
            o.dig("spec.attachRequired").as_bool().unwrap_or(true).into(),
            o.flag("spec.podInfoOnMount").into(),
            o.flag("spec.storageCapacity").into(),
            tokens.into(),
            o.flag("spec.requiresRepublish").into(),
            or(&modes, "<none>").into(),
            age(o),
        ]
    }
);
printer!(
    CSI_NODE,
    "Name|string|name|0;Drivers|integer||0;Age|string||0",
    |o| vec![name(o), o.list("spec.drivers").len().into(), age(o)]
);
printer!(
    STORAGE_CLASS,
    "Name|string|name|0;Provisioner|string||0;ReclaimPolicy|string||0;VolumeBindingMode|string||0;AllowVolumeExpansion|string||0;Age|string||0",
    |o| {
        let annotations = [
            "storageclass.kubernetes.io/is-default-class",
            "storageclass.beta.kubernetes.io/is-default-class",
        ];
        vec![
            default_name(o, &annotations),
            o.text("provisioner").into(),
            or(o.text("reclaimPolicy"), "Delete").into(),
            or(o.text("volumeBindingMode"), "Immediate").into(),
            o.flag("allowVolumeExpansion").into(),
            age(o),
        ]
    }
);
printer!(
    VOLUME_ATTACHMENT,
    "Name|string|name|0;Attacher|string|name|0;PV|string||0;Node|string||0;Attached|boolean||0;Age|string||0",
    |o| vec![
        name(o),
        o.text("spec.attacher").into(),
        o.text("spec.source.persistentVolumeName").into(),
        o.text("spec.nodeName").into(),
        o.flag("status.attached").into(),
        age(o)
    ]
);
printer!(
    VOLUME_ATTRIBUTES_CLASS,
    "Name|string|name|0;DriverName|string||0;Age|string||0",
    |o| vec![name(o), o.text("driverName").into(), age(o)]
);
printer!(
    MUTATING_POLICY,
    "Name|string|name|0;Mutations|integer||0;ParamKind|string||0;Age|string||0",
    |o| vec![
        name(o),
        o.list("spec.mutations").len().into(),
        param_kind(o).into(),
        age(o)
    ]
);
printer!(
    VALIDATING_POLICY,
    "Name|string|name|0;Validations|integer||0;ParamKind|string||0;Age|string||0",
    |o| vec![
        name(o),
        o.list("spec.validations").len().into(),
        param_kind(o).into(),
        age(o)
    ]
);
printer!(
    POLICY_BINDING,
    "Name|string|name|0;PolicyName|string||0;ParamRef|string||0;Age|string||0",
    |o| {
        let reference = o.dig("spec.paramRef");
        let text = match (reference.text("name"), reference.text("namespace")) {
            ("", _) if reference.has("selector") => {
                selector_text(reference.dig("selector")).unwrap_or_default()
            }
            ("", _) => "<unset>".to_string(),
            (name, "") => format!("*/{name}"),
            (name, namespace) => format!("{namespace}/{name}"),
        };
        vec![name(o), o.text("spec.policyName").into(), text.into(), age(o)]
    }
);
printer!(
    WEBHOOK_CONFIGURATION,
    "Name|string|name|0;Webhooks|integer||0;Age|string||0",
    |o| vec![name(o), o.list("webhooks").len().into(), age(o)]
);
printer!(
    PRIORITY_CLASS,
    "Name|string|name|0;Value|integer||0;Global-Default|boolean||0;Age|string||0;PreemptionPolicy|string||0",
    |o| vec![
        name(o),
        number(o, "value"),
        o.flag("globalDefault").into(),
        age(o),
        o.text("preemptionPolicy").into()
    ]
);
printer!(
    LEASE,
    "Name|string|name|0;Holder|string||0;Age|string||0",
    |o| vec![name(o), o.text("spec.holderIdentity").into(), age(o)]
);
printer!(
    RUNTIME_CLASS,
    "Name|string|name|0;Handler|string||0;Age|string||0",
    |o| vec![name(o), o.text("handler").into(), age(o)]
);
printer!(
    ENDPOINT_SLICE,
    "Name|string|name|0;AddressType|string||0;Ports|string||0;Endpoints|string||0;Age|string||0",
    |o| {
        let ports: Vec<String> = o
            .list("ports")
            .iter()
            .map(|p| match (p.int("port"), p.dig("name").as_str()) {
                (Some(port), _) => port.to_string(),
                (None, Some(name)) => name.to_string(),
                (None, None) => "*".to_string(),
            })
            .collect();
        let addresses: Vec<String> = o
            .list("endpoints")
            .iter()
            .flat_map(|e| e.strings("addresses").map(str::to_string))
            .collect();
        vec![
            name(o),
            o.text("addressType").into(),
            three(&ports).into(),
            three(&addresses).into(),
            age(o),
        ]
    }
);
printer!(
    RESOURCE_CLAIM,
    "Name|string|name|0;State|string||0;Age|string||0",
    |o| {
        let deleted = o.has("metadata.deletionTimestamp");
        let mut states = Vec::new();
        if deleted {
            states.push("deleted");
        }
        if o.has("status.allocation") {
            states.push("allocated");
            if !o.list("status.reservedFor").is_empty() {
                states.push("reserved");
            }
        } else if !deleted {
            states.push("pending");
        }
        vec![name(o), states.join(",").into(), age(o)]
    }
);
printer!(
    RESOURCE_SLICE,
    "Name|string|name|0;Node|string||0;Driver|string||0;Pool|string||0;Age|string||0",
    |o| vec![
        name(o),
        o.text("spec.nodeName").into(),
        o.text("spec.driver").into(),
        o.text("spec.pool.name").into(),
        age(o)
    ]
);
printer!(
    FLOW_SCHEMA,
    "Name|string|name|0;PriorityLevel|string||0;MatchingPrecedence|string||0;DistinguisherMethod|string||0;Age|string||0;MissingPL|string||0",
    |o| {
        let dangling = o
            .list("status.conditions")
            .iter()
            .find(|c| c.text("type") == "Dangling");
        vec![
            name(o),
            o.text("spec.priorityLevelConfiguration.name").into(),
            number(o, "spec.matchingPrecedence"),
            or(o.text("spec.distinguisherMethod.type"), "<none>").into(),
            age(o),
            dangling.map_or("?", |c| c.text("status")).into(),
        ]
    }
);
printer!(
    PRIORITY_LEVEL,
    "Name|string|name|0;Type|string||0;NominalConcurrencyShares|string||0;Queues|string||0;HandSize|string||0;QueueLengthLimit|string||0;Age|string||0",
    |o| {
        let show = |path: &str| match o.dig(path) {
            Value::Null => "<none>".into(),
            value => value.clone(),
        };
        vec![
            name(o),
            o.text("spec.type").into(),
            show("spec.limited.nominalConcurrencyShares"),
            show("spec.limited.limitResponse.queuing.queues"),
            show("spec.limited.limitResponse.queuing.handSize"),
            show("spec.limited.limitResponse.queuing.queueLengthLimit"),
            age(o),
        ]
    }
);

fn number(object: &Value, path: &str) -> Value {
    object.int(path).unwrap_or_default().into()
}

fn ratio(object: &Value, have: &str, want: &str) -> Value {
    format!(
        "{}/{}",
        object.int(have).unwrap_or_default(),
        object.int(want).unwrap_or_default()
    )
    .into()
}

/// Names and images of a template's containers.
fn containers(template: &Value) -> (Value, Value) {
    let list = template.list("spec.containers");
    let join = |key: &str| list.iter().map(|c| c.text(key)).collect::<Vec<_>>().join(",");
    (join("name").into(), join("image").into())
}

fn default_name(object: &Value, annotations: &[&str]) -> Value {
    let is_default = meta::annotations(object).is_some_and(|map| {
        annotations
            .iter()
            .any(|key| map.get(*key).and_then(Value::as_str) == Some("true"))
    });
    match is_default {
        true => format!("{} (default)", meta::name(object)).into(),
        false => name(object),
    }
}

fn param_kind(object: &Value) -> String {
    let kind = object.dig("spec.paramKind");
    match kind.is_null() {
        true => "<unset>".into(),
        false => format!("{}/{}", kind.text("apiVersion"), kind.text("kind")),
    }
}

/// The first three, and how many more.
fn three(list: &[String]) -> String {
    match list.len() {
        0 => "<unset>".into(),
        1..=3 => list.join(","),
        n => format!("{} + {} more...", list[..3].join(","), n - 3),
    }
}

fn phase(object: &Value) -> &str {
    if object.has("metadata.deletionTimestamp") {
        "Terminating"
    } else {
        object.text("status.phase")
    }
}

fn access_modes(object: &Value, path: &str) -> String {
    let modes = [
        ("ReadWriteOnce", "RWO"),
        ("ReadOnlyMany", "ROX"),
        ("ReadWriteMany", "RWX"),
        ("ReadWriteOncePod", "RWOP"),
    ];
    let list: Vec<&str> = object.strings(path).collect();
    let short: Vec<&str> = modes
        .iter()
        .filter(|(long, _)| list.contains(long))
        .map(|(_, s)| *s)
        .collect();
    short.join(",")
}

fn endpoints(object: &Value) -> String {
    let subsets = object.list("subsets");
    if subsets.is_empty() {
        return "<none>".into();
    }
    let mut all = Vec::new();
    for subset in subsets {
        let addresses = || subset.list("addresses").iter().map(|a| a.text("ip"));
        let ports = subset.list("ports");
        if ports.is_empty() {
            all.extend(addresses().map(str::to_string));
        }
        for port in ports {
            let port = port.int("port").unwrap_or_default();
            all.extend(addresses().map(|ip| match ip.contains(':') {
                true => format!("[{ip}]:{port}"),
                false => format!("{ip}:{port}"),
            }));
        }
    }
    match all.len() {
        0..=3 => all.join(","),
        n => format!("{} + {} more...", all[..3].join(","), n - 3),
    }
}

fn event(o: &Value) -> Vec<Value> {
    let first = match o.text("firstTimestamp") {
        "" => since(o.text("eventTime")),
        time => since(time),
    };
    let mut last = match o.text("lastTimestamp") {
        "" => first.clone(),
        time => since(time),
    };
    let mut count = o.int("count").unwrap_or_default();
    if o.has("series") {
        last = since(o.text("series.lastObservedTime"));
        count = o.int("series.count").unwrap_or_default();
    } else if count == 0 {
        count = 1;
    }
    let about = if o.has("involvedObject") {
        "involvedObject"
    } else {
        "regarding"
    };
    let about = o.dig(about);
    let kind = about.text("kind").to_lowercase();
    let target = match about.text("name") {
        "" => kind,
        name => format!("{kind}/{name}"),
    };
    let source = if o.has("source") {
        "source"
    } else {
        "deprecatedSource"
    };
    let source = o.dig(source);
    let component = or(source.text("component"), o.text("reportingComponent"));
    let host = or(source.text("host"), o.text("reportingInstance"));
    let source = match host {
        "" => component.to_string(),
        host => format!("{component}, {host}"),
    };
    let message = or(o.text("message"), o.text("note"));
    vec![
        last.into(),
        o.text("type").into(),
        o.text("reason").into(),
        target.into(),
        about.text("fieldPath").into(),
        source.into(),
        message.trim().into(),
        first.into(),
        count.into(),
        name(o),
    ]
}

fn node(o: &Value) -> Vec<Value> {
    let ready = o
        .list("status.conditions")
        .iter()
        .rev()
        .find(|c| c.text("type") == "Ready");
    let mut status = String::from(match ready.map(|c| c.text("status")) {
        Some("True") => "Ready",
        Some(_) => "NotReady",
        None => "Unknown",
    });
    if o.flag("spec.unschedulable") {
        status.push_str(",SchedulingDisabled");
    }
    let mut roles: Vec<&str> = o
        .entries("metadata.labels")
        .filter_map(
            |(key, value)| match key.strip_prefix("node-role.kubernetes.io/") {
                Some(role) => Some(role),
                None if key == "kubernetes.io/role" => value.as_str(),
                None => None,
            },
        )
        .filter(|role| !role.is_empty())
        .collect();
    roles.sort_unstable();
    roles.dedup();
    let roles = roles.join(",");
    let address = |kind: &str| -> Value {
        let found = o.list("status.addresses").iter().find(|a| a.text("type") == kind);
        found.map_or("<none>", |a| a.text("address")).into()
    };
    let info = o.dig("status.nodeInfo");
    let mut kernel = or(info.text("kernelVersion"), "<unknown>").to_string();
    if !info.text("architecture").is_empty() {
        kernel = format!("{kernel} ({})", info.text("architecture"));
    }
    vec![
        name(o),
        status.into(),
        or(&roles, "<none>").into(),
        age(o),
        info.text("kubeletVersion").into(),
        address("InternalIP"),
        address("ExternalIP"),
        or(info.text("osImage"), "<unknown>").into(),
        kernel.into(),
        or(info.text("containerRuntimeVersion"), "<unknown>").into(),
    ]
}

fn service_port(port: &Value) -> String {
    let number = port.int("port").unwrap_or_default();
    let protocol = port.text("protocol");
    match port.int("nodePort").unwrap_or_default() {
        0 => format!("{number}/{protocol}"),
        node_port => format!("{number}:{node_port}/{protocol}"),
    }
}

fn load_balancer(object: &Value) -> String {
    let mut all: Vec<&str> = object
        .list("status.loadBalancer.ingress")
        .iter()
        .map(|i| or(i.text("ip"), i.text("hostname")))
        .filter(|text| !text.is_empty())
        .collect();
    all.sort_unstable();
    all.dedup();
    all.join(",")
}

fn external_ip(object: &Value) -> String {
    let external = object.strings("spec.externalIPs").collect::<Vec<_>>().join(",");
    match object.text("spec.type") {
        "ClusterIP" | "NodePort" => or(&external, "<none>").to_string(),
        "LoadBalancer" => match (load_balancer(object), external) {
            (lb, external) if lb.is_empty() && external.is_empty() => "<pending>".into(),
            (lb, external) if external.is_empty() => lb,
            (lb, external) if lb.is_empty() => external,
            (lb, external) => format!("{lb},{external}"),
        },
        "ExternalName" => object.text("spec.externalName").into(),
        _ => "<unknown>".into(),
    }
}

fn job_status(object: &Value) -> &'static str {
    let has = |kind: &str| {
        let condition = object
            .list("status.conditions")
            .iter()
            .find(|c| c.text("type") == kind);
        condition.is_some_and(|c| c.text("status") == "True")
    };
    if has("Complete") {
        "Complete"
    } else if has("Failed") {
        "Failed"
    } else if object.has("metadata.deletionTimestamp") {
        "Terminating"
    } else if has("Suspended") {
        "Suspended"
    } else if has("FailureTarget") {
        "FailureTarget"
    } else if has("SuccessCriteriaMet") {
        "SuccessCriteriaMet"
    } else {
        "Running"
    }
}

fn job_duration(object: &Value) -> String {
    let Some(start) = Timestamp::parse_rfc3339(object.text("status.startTime")) else {
        return String::new();
    };
    let end = Timestamp::parse_rfc3339(object.text("status.completionTime"));
    end.unwrap_or_else(Timestamp::now).since(start).human()
}

fn hpa_metrics(object: &Value) -> String {
    let specs = object.list("spec.metrics");
    if specs.is_empty() {
        return "<none>".into();
    }
    let statuses = object.list("status.currentMetrics");
    let texts: Vec<String> = specs
        .iter()
        .enumerate()
        .map(|(index, spec)| hpa_metric(spec, statuses.get(index).unwrap_or(&Value::Null)))
        .collect();
    match texts.len() {
        0..=2 => texts.join(", "),
        n => format!("{} + {} more...", texts[..2].join(", "), n - 2),
    }
}

fn hpa_metric(spec: &Value, status: &Value) -> String {
    let key = match spec.text("type") {
        "External" => "external",
        "Pods" => "pods",
        "Object" => "object",
        "Resource" => "resource",
        "ContainerResource" => "containerResource",
        _ => return "<unknown type>".into(),
    };
    let target = spec.dig(key).dig("target");
    let current = status.dig(key).dig("current");
    let shown = |value: &Value| match value {
        Value::String(text) => text.clone(),
        Value::Null => "<unknown>".into(),
        other => other.to_string(),
    };
    let average = target.has("averageValue");
    match key {
        "resource" | "containerResource" => {
            let name = spec.dig(key).text("name");
            if average {
                let current = shown(current.dig("averageValue"));
                return format!("{name}: {current}/{}", target.text("averageValue"));
            }
            let percent = |value: &Value, none: &str| match value.as_i64() {
                Some(n) => format!("{n}%"),
                None => none.to_string(),
            };
            format!(
                "{name}: {}/{}",
                percent(current.dig("averageUtilization"), "<unknown>"),
                percent(target.dig("averageUtilization"), "<auto>")
            )
        }
        "pods" => format!(
            "{}/{}",
            shown(current.dig("averageValue")),
            target.text("averageValue")
        ),
        _ if average => format!(
            "{}/{} (avg)",
            shown(current.dig("averageValue")),
            target.text("averageValue")
        ),
        _ => format!("{}/{}", shown(current.dig("value")), shown(target.dig("value"))),
    }
}

/// The pod's row: readiness, a status condensed from phase, conditions and container states, restarts.
fn pod(o: &Value) -> Vec<Value> {
    let init = o.list("spec.initContainers");
    let restartable = |name: &str| {
        init.iter()
            .any(|c| c.text("name") == name && c.text("restartPolicy") == "Always")
    };
    let total = o.list("spec.containers").len()
        + init
            .iter()
            .filter(|c| c.text("restartPolicy") == "Always")
            .count();
    let condition = |kind: &str| {
        o.list("status.conditions")
            .iter()
            .find(|c| c.text("type") == kind)
    };
    let phase = o.text("status.phase");
    let mut reason = or(o.text("status.reason"), phase).to_string();
    if condition("PodScheduled").is_some_and(|c| c.text("reason") == "SchedulingGated") {
        reason = "SchedulingGated".into();
    }
    let (mut restarts, mut side_restarts, mut ready) = (0, 0, 0);
    let (mut last, mut side_last) = (String::new(), String::new());
    let finished = |status: &Value| status.text("lastState.terminated.finishedAt").to_string();
    let mut initializing = false;
    for (index, status) in o.list("status.initContainerStatuses").iter().enumerate() {
        let count = status.int("restartCount").unwrap_or_default();
        let sidecar = restartable(status.text("name"));
        restarts += count;
        last = last.max(finished(status));
        if sidecar {
            side_restarts += count;
            side_last = side_last.max(finished(status));
        }
        let terminated = status.dig("state.terminated");
        let waiting = status.text("state.waiting.reason");
        if !terminated.is_null() && terminated.int("exitCode").unwrap_or_default() == 0 {
            continue;
        }
        if sidecar && status.flag("started") {
            ready += i64::from(status.flag("ready"));
            continue;
        }
        reason = if !terminated.is_null() {
            match (
                terminated.text("reason"),
                terminated.int("signal").unwrap_or_default(),
            ) {
                ("", 0) => format!("Init:ExitCode:{}", terminated.int("exitCode").unwrap_or_default()),
                ("", signal) => format!("Init:Signal:{signal}"),
                (text, _) => format!("Init:{text}"),
            }
        } else if !waiting.is_empty() && waiting != "PodInitializing" {
            format!("Init:{waiting}")
        } else {
            format!("Init:{index}/{}", init.len())
        };
        initializing = true;
        break;
    }
    if !initializing || condition("Initialized").is_some_and(|c| c.text("status") == "True") {
        (restarts, last) = (side_restarts, side_last);
        let mut running = false;
        let mut error = String::new();
        for status in o.list("status.containerStatuses").iter().rev() {
            restarts += status.int("restartCount").unwrap_or_default();
            last = last.max(finished(status));
            let terminated = status.dig("state.terminated");
            let waiting = status.text("state.waiting.reason");
            if !waiting.is_empty() {
                reason = waiting.into();
            } else if !terminated.is_null() {
                let code = terminated.int("exitCode").unwrap_or_default();
                reason = match (
                    terminated.text("reason"),
                    terminated.int("signal").unwrap_or_default(),
                ) {
                    ("", 0) => format!("ExitCode:{code}"),
                    ("", signal) => format!("Signal:{signal}"),
                    (text, _) => text.into(),
                };
                if code != 0 {
                    error.clone_from(&reason);
                }
            } else if status.flag("ready") && status.has("state.running") {
                running = true;
                ready += 1;
            }
        }
        if reason == "Completed" {
            if running && condition("Ready").is_some_and(|c| c.text("status") == "True") {
                reason = "Running".into();
            } else if !error.is_empty() {
                reason = error;
            } else if running {
                reason = "NotReady".into();
            }
        }
    }
    if o.has("metadata.deletionTimestamp") {
        if o.text("status.reason") == "NodeLost" {
            reason = "Unknown".into();
        } else if !matches!(phase, "Succeeded" | "Failed") {
            reason = "Terminating".into();
        }
    }
    let restarts = match (restarts, last.as_str()) {
        (0, _) | (_, "") => restarts.to_string(),
        (n, last) => format!("{n} ({} ago)", since(last)),
    };
    let gates = o.list("spec.readinessGates");
    let passed = gates
        .iter()
        .filter(|gate| condition(gate.text("conditionType")).is_some_and(|c| c.text("status") == "True"));
    let gates = match gates.len() {
        0 => "<none>".to_string(),
        n => format!("{}/{n}", passed.count()),
    };
    let ip = o.list("status.podIPs").first().map_or("", |ip| ip.text("ip"));
    vec![
        name(o),
        format!("{ready}/{total}").into(),
        reason.into(),
        restarts.into(),
        age(o),
        or(ip, "<none>").into(),
        or(o.text("spec.nodeName"), "<none>").into(),
        or(o.text("status.nominatedNodeName"), "<none>").into(),
        gates.into(),
    ]
}
