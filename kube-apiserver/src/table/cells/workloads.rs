//! Cells of what runs pods.

use machinery::meta;
use serde_json::Value;

use super::*;

printer!(
    REPLICATION_CONTROLLER,
    "Name|string|name|0;Desired|integer||0;Current|integer||0;Ready|integer||0;Age|string||0;Containers|string||1;Images|string||1;Selector|string||1",
    |o, ages| {
        let (names, images) = containers(o.dig("spec.template"));
        vec![
            name(o),
            number(o, "spec.replicas"),
            number(o, "status.replicas"),
            number(o, "status.readyReplicas"),
            age(o, ages),
            names,
            images,
            format_labels(o.dig("spec.selector")).into(),
        ]
    }
);

printer!(
    REPLICA_SET,
    "Name|string|name|0;Desired|integer||0;Current|integer||0;Ready|integer||0;Age|string||0;Containers|string||1;Images|string||1;Selector|string||1",
    |o, ages| {
        let (names, images) = containers(o.dig("spec.template"));
        vec![
            name(o),
            number(o, "spec.replicas"),
            number(o, "status.replicas"),
            number(o, "status.readyReplicas"),
            age(o, ages),
            names,
            images,
            format_selector(o.dig("spec.selector")).into(),
        ]
    }
);

printer!(
    DEPLOYMENT,
    "Name|string|name|0;Ready|string||0;Up-to-date|string||0;Available|string||0;Age|string||0;Containers|string||1;Images|string||1;Selector|string||1",
    |o, ages| {
        let (names, images) = containers(o.dig("spec.template"));
        vec![
            name(o),
            ratio(o, "status.readyReplicas", "spec.replicas"),
            number(o, "status.updatedReplicas"),
            number(o, "status.availableReplicas"),
            age(o, ages),
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
    |o, ages| {
        let (names, images) = containers(o.dig("spec.template"));
        vec![
            name(o),
            ratio(o, "status.readyReplicas", "spec.replicas"),
            age(o, ages),
            names,
            images,
        ]
    }
);

printer!(
    DAEMON_SET,
    "Name|string|name|0;Desired|integer||0;Current|integer||0;Ready|integer||0;Up-to-date|integer||0;Available|integer||0;Node Selector|string||0;Age|string||0;Containers|string||1;Images|string||1;Selector|string||1",
    |o, ages| {
        let (names, images) = containers(o.dig("spec.template"));
        vec![
            name(o),
            number(o, "status.desiredNumberScheduled"),
            number(o, "status.currentNumberScheduled"),
            number(o, "status.numberReady"),
            number(o, "status.updatedNumberScheduled"),
            number(o, "status.numberAvailable"),
            format_labels(o.dig("spec.template.spec.nodeSelector")).into(),
            age(o, ages),
            names,
            images,
            format_selector(o.dig("spec.selector")).into(),
        ]
    }
);

printer!(
    CONTROLLER_REVISION,
    "Name|string|name|0;Controller|string||0;Revision|string||0;Age|string||0",
    |o, ages| {
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
        vec![name(o), controller.into(), number(o, "revision"), age(o, ages)]
    }
);

printer!(
    HPA,
    "Name|string|name|0;Reference|string||0;Targets|string||0;MinPods|string||0;MaxPods|string||0;Replicas|string||0;Age|string||0",
    |o, ages| {
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
            age(o, ages),
        ]
    }
);

printer!(
    CRON_JOB,
    "Name|string|name|0;Schedule|string||0;Timezone|string||0;Suspend|boolean||0;Active|integer||0;Last Schedule|string||0;Age|string||0;Containers|string||1;Images|string||1;Selector|string||1",
    |o, ages| {
        let (names, images) = containers(o.dig("spec.jobTemplate.spec.template"));
        let suspend = match o.dig("spec.suspend").as_bool() {
            Some(true) => "True",
            Some(false) => "False",
            None => "<unset>",
        };
        let last = match o.text("status.lastScheduleTime") {
            "" => "<none>".to_string(),
            time => since(ages, time),
        };
        vec![
            name(o),
            o.text("spec.schedule").into(),
            or(o.text("spec.timeZone"), "<none>").into(),
            suspend.into(),
            o.list("status.active").len().into(),
            last.into(),
            age(o, ages),
            names,
            images,
            format_selector(o.dig("spec.jobTemplate.spec.selector")).into(),
        ]
    }
);

printer!(
    JOB,
    "Name|string|name|0;Status|string||0;Completions|string||0;Duration|string||0;Age|string||0;Containers|string||1;Images|string||1;Selector|string||1",
    |o, ages| {
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
            job_duration(o, ages).into(),
            age(o, ages),
            names,
            images,
            format_selector(o.dig("spec.selector")).into(),
        ]
    }
);

printer!(
    PDB,
    "Name|string|name|0;Min Available|string||0;Max Unavailable|string||0;Allowed Disruptions|integer||0;Age|string||0",
    |o, ages| {
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
            age(o, ages),
        ]
    }
);

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

fn job_duration(object: &Value, ages: &Ages) -> String {
    let Some(start) = machinery::time::Timestamp::parse_rfc3339(object.text("status.startTime")) else {
        return String::new();
    };
    let end = machinery::time::Timestamp::parse_rfc3339(object.text("status.completionTime"));
    match end {
        Some(end) => end.since(start).human(),
        None => ages.since(start),
    }
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
    // A value that a metric of this kind should have and has not is printed as Go does it.
    let missing = if status.has(key) { "<nil>" } else { "<unknown>" };
    let shown = |value: &Value, missing: &str| match value {
        Value::String(text) => text.clone(),
        Value::Null => missing.into(),
        other => other.to_string(),
    };
    let average = target.has("averageValue");
    match key {
        "resource" | "containerResource" => {
            let name = spec.dig(key).text("name");
            if average {
                let current = shown(current.dig("averageValue"), missing);
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
            shown(current.dig("averageValue"), missing),
            target.text("averageValue")
        ),
        _ if average => format!(
            "{}/{} (avg)",
            shown(current.dig("averageValue"), "<unknown>"),
            target.text("averageValue")
        ),
        _ => format!(
            "{}/{}",
            shown(current.dig("value"), missing),
            shown(target.dig("value"), "<nil>")
        ),
    }
}
