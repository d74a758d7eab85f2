//! Cells of the core kinds that are no workload: namespaces, nodes, events and the like.

use serde_json::Value;

use super::*;

printer!(
    COMPONENT_STATUS,
    "Name|string|name|0;Status|string||0;Message|string||0;Error|string||0",
    |o, _| {
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
    |o, ages| {
        let count = o.entries("data").count() + o.entries("binaryData").count();
        vec![name(o), count.into(), age(o, ages)]
    }
);

printer!(
    SECRET,
    "Name|string|name|0;Type|string||0;Data|string||0;Age|string||0",
    |o, ages| vec![
        name(o),
        o.text("type").into(),
        o.entries("data").count().into(),
        age(o, ages)
    ]
);

printer!(
    EVENT,
    "Last Seen|string||0;Type|string||0;Reason|string||0;Object|string||0;Subobject|string||1;Source|string||1;Message|string||0;First Seen|string||1;Count|string||1;Name|string|name|1",
    event
);

printer!(
    NAMESPACE,
    "Name|string|name|0;Status|string||0;Age|string||0",
    |o, ages| vec![name(o), o.text("status.phase").into(), age(o, ages)]
);

printer!(
    NODE,
    "Name|string|name|0;Status|string||0;Roles|string||0;Age|string||0;Version|string||0;Internal-IP|string||1;External-IP|string||1;OS-Image|string||1;Kernel-Version|string||1;Container-Runtime|string||1",
    node
);

printer!(
    POD_TEMPLATE,
    "Name|string|name|0;Containers|string||0;Images|string||0;Pod Labels|string||0",
    |o, _| {
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
    RESOURCE_QUOTA,
    "Name|string|name|0;Request|string||0;Limit|string||0;Age|string||0",
    |o, ages| {
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
            age(o, ages),
        ]
    }
);

printer!(
    CSR,
    "Name|string|name|0;Age|string||0;SignerName|string||0;Requestor|string||0;RequestedDuration|string||0;Condition|string||0",
    |o, ages| {
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
            age(o, ages),
            or(o.text("spec.signerName"), "<none>").into(),
            o.text("spec.username").into(),
            duration.into(),
            status.into(),
        ]
    }
);

printer!(
    PRIORITY_CLASS,
    "Name|string|name|0;Value|integer||0;Global-Default|boolean||0;Age|string||0;PreemptionPolicy|string||0",
    |o, ages| vec![
        name(o),
        number(o, "value"),
        o.flag("globalDefault").into(),
        age(o, ages),
        o.text("preemptionPolicy").into()
    ]
);

printer!(
    LEASE,
    "Name|string|name|0;Holder|string||0;Age|string||0",
    |o, ages| vec![name(o), o.text("spec.holderIdentity").into(), age(o, ages)]
);

printer!(
    CLUSTER_TRUST_BUNDLE,
    "Name|string|name|0;SignerName|string||0",
    |o, _| vec![name(o), or(o.text("spec.signerName"), "<none>").into()]
);

printer!(
    POD_CERTIFICATE_REQUEST,
    "Name|string|name|0;PodName|string||0;ServiceAccountName|string||0;NodeName|string||0;SignerName|string||0;State|string||0;UnverifiedUserAnnotations|string||0",
    |o, _| {
        let states = ["Issued", "Denied", "Failed"];
        let mut conditions = o.list("status.conditions").iter().map(|c| c.text("type"));
        let state = conditions.rfind(|kind| states.contains(kind));
        vec![
            name(o),
            o.text("spec.podName").into(),
            o.text("spec.serviceAccountName").into(),
            o.text("spec.nodeName").into(),
            o.text("spec.signerName").into(),
            state.unwrap_or("Pending").into(),
            pairs(o.dig("spec.unverifiedUserAnnotations")),
        ]
    }
);

printer!(
    STORAGE_VERSION,
    "Name|string|name|0;CommonEncodingVersion|string||0;StorageVersions|string||0;Age|string||0",
    |o, ages| {
        let servers = o.list("status.storageVersions");
        let first = servers.iter().take(3);
        let shown: Vec<String> = first
            .map(|s| format!("{}={}", s.text("apiServerID"), s.text("encodingVersion")))
            .collect();
        let mut shown = shown.join(",");
        match servers.len().saturating_sub(3) {
            0 if shown.is_empty() => shown.push_str("<unset>"),
            0 => {}
            more => shown.push_str(&format!(" + {more} more...")),
        }
        vec![
            name(o),
            or(o.text("status.commonEncodingVersion"), "<unset>").into(),
            shown.into(),
            age(o, ages),
        ]
    }
);

printer!(
    POD_GROUP,
    "Name|string|name|0;Policy|string||0;Workload|string||0;Status|string||0;Age|string||0",
    |o, ages| vec![
        name(o),
        match o.has("spec.schedulingPolicy.gang") {
            true => "Gang".into(),
            false => "Basic".into(),
        },
        or(o.text("spec.podGroupTemplateRef.workload.workloadName"), "<none>").into(),
        group_state(o).into(),
        age(o, ages)
    ]
);

/// The state of a PodGroup: a disruption comes before what the scheduler says.
fn group_state(group: &Value) -> &str {
    let conditions = group.list("status.conditions");
    let last = |kind: &str| conditions.iter().rev().find(|c| c.text("type") == kind);
    match (last("DisruptionTarget"), last("PodGroupScheduled")) {
        (Some(disruption), _) => disruption.text("reason"),
        (None, Some(scheduled)) if scheduled.text("status") == "True" => "Scheduled",
        (None, Some(_)) => "Unschedulable",
        (None, None) => "Pending",
    }
}

printer!(
    LEASE_CANDIDATE,
    "Name|string|name|0;LeaseName|string||0;BinaryVersion|string||0;EmulationVersion|string||0;Age|string||0",
    |o, ages| vec![
        name(o),
        o.text("spec.leaseName").into(),
        o.text("spec.binaryVersion").into(),
        o.text("spec.emulationVersion").into(),
        age(o, ages)
    ]
);

printer!(
    RUNTIME_CLASS,
    "Name|string|name|0;Handler|string||0;Age|string||0",
    |o, ages| vec![name(o), o.text("handler").into(), age(o, ages)]
);

fn event(o: &Value, ages: &Ages) -> Vec<Value> {
    let first = match o.text("firstTimestamp") {
        "" => since(ages, o.text("eventTime")),
        time => since(ages, time),
    };
    let mut last = match o.text("lastTimestamp") {
        "" => first.clone(),
        time => since(ages, time),
    };
    let mut count = o.int("count").unwrap_or_default();
    if o.has("series") {
        last = since(ages, o.text("series.lastObservedTime"));
        count = o.int("series.count").unwrap_or_default();
    } else if count == 0 {
        count = 1;
    }
    let about = o.dig("involvedObject");
    let kind = about.text("kind").to_lowercase();
    let target = match about.text("name") {
        "" => kind,
        name => format!("{kind}/{name}"),
    };
    let source = o.dig("source");
    let component = or(source.text("component"), o.text("reportingComponent"));
    let host = or(source.text("host"), o.text("reportingInstance"));
    let source = match host {
        "" => component.to_string(),
        host => format!("{component}, {host}"),
    };
    let message = o.text("message");
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

fn node(o: &Value, ages: &Ages) -> Vec<Value> {
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
        age(o, ages),
        info.text("kubeletVersion").into(),
        address("InternalIP"),
        address("ExternalIP"),
        or(info.text("osImage"), "<unknown>").into(),
        kernel.into(),
        or(info.text("containerRuntimeVersion"), "<unknown>").into(),
    ]
}
