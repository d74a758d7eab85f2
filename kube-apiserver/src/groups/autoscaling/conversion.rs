//! autoscaling/v1 and back. Fields that v1 does not have travel in annotations, in the form that upstream writes there.

use generic_server::ApiError;
use generic_server::resource::Converter;
use machinery::meta;
use serde_json::{Map, Value, json};

use super::defaults;
use crate::json::Json;

const METRICS: &str = "autoscaling.alpha.kubernetes.io/metrics";
const STATUSES: &str = "autoscaling.alpha.kubernetes.io/current-metrics";
const BEHAVIOR: &str = "autoscaling.alpha.kubernetes.io/behavior";
const CONDITIONS: &str = "autoscaling.alpha.kubernetes.io/conditions";

/// Between autoscaling/v1 and the stored autoscaling/v2.
#[derive(Debug)]
pub(super) struct V1;

/// A metric source of v2 and what its parts are called in v1, in v1's order: (name in v1, path in v2).
struct Source {
    kind: &'static str,
    key: &'static str,
    spec: &'static [(&'static str, &'static str)],
    status: &'static [(&'static str, &'static str)],
}

const SOURCES: &[Source] = &[
    Source {
        kind: "Object",
        key: "object",
        spec: &[
            ("target", "describedObject"),
            ("metricName", "metric.name"),
            ("targetValue", "target.value"),
            ("selector", "metric.selector"),
            ("averageValue", "target.averageValue"),
        ],
        status: &[
            ("target", "describedObject"),
            ("metricName", "metric.name"),
            ("currentValue", "current.value"),
            ("selector", "metric.selector"),
            ("averageValue", "current.averageValue"),
        ],
    },
    Source {
        kind: "Pods",
        key: "pods",
        spec: &[
            ("metricName", "metric.name"),
            ("targetAverageValue", "target.averageValue"),
            ("selector", "metric.selector"),
        ],
        status: &[
            ("metricName", "metric.name"),
            ("currentAverageValue", "current.averageValue"),
            ("selector", "metric.selector"),
        ],
    },
    Source {
        kind: "Resource",
        key: "resource",
        spec: &[
            ("name", "name"),
            ("targetAverageUtilization", "target.averageUtilization"),
            ("targetAverageValue", "target.averageValue"),
        ],
        status: &[
            ("name", "name"),
            ("currentAverageUtilization", "current.averageUtilization"),
            ("currentAverageValue", "current.averageValue"),
        ],
    },
    Source {
        kind: "ContainerResource",
        key: "containerResource",
        spec: &[
            ("name", "name"),
            ("targetAverageUtilization", "target.averageUtilization"),
            ("targetAverageValue", "target.averageValue"),
            ("container", "container"),
        ],
        status: &[
            ("name", "name"),
            ("currentAverageUtilization", "current.averageUtilization"),
            ("currentAverageValue", "current.averageValue"),
            ("container", "container"),
        ],
    },
    Source {
        kind: "External",
        key: "external",
        spec: &[
            ("metricName", "metric.name"),
            ("metricSelector", "metric.selector"),
            ("targetValue", "target.value"),
            ("targetAverageValue", "target.averageValue"),
        ],
        status: &[
            ("metricName", "metric.name"),
            ("metricSelector", "metric.selector"),
            ("currentValue", "current.value"),
            ("currentAverageValue", "current.averageValue"),
        ],
    },
];

impl Converter for V1 {
    fn from_stored(&self, mut object: Value) -> Result<Value, ApiError> {
        object.put("apiVersion", "autoscaling/v1");
        let mut annotations = object
            .object_at("metadata.annotations")
            .cloned()
            .unwrap_or_default();
        drop_round_trip(&mut annotations);
        let spec = object.ensure("spec");
        if let Some(behavior) = spec.take_key("behavior").filter(|b| !b.is_null()) {
            annotations.insert(BEHAVIOR.into(), behavior_text(&behavior).into());
        }
        let mut rest = Vec::new();
        let mut cpu = None;
        for metric in spec.take_key("metrics").unwrap_or_default().list_of() {
            let utilization = metric.dig("resource.target.averageUtilization");
            if cpu.is_none() && metric.text("resource.name") == "cpu" && !utilization.is_null() {
                cpu = Some(utilization.clone());
            } else {
                rest.push(metric_text(metric, false));
            }
        }
        if let Some(cpu) = cpu {
            spec.put("targetCPUUtilizationPercentage", cpu);
        }
        if !rest.is_empty() {
            annotations.insert(METRICS.into(), format!("[{}]", rest.join(",")).into());
        }
        let status = object.ensure("status");
        status.fill("currentReplicas", 0);
        status.fill("desiredReplicas", 0);
        let current = status.take_key("currentMetrics").unwrap_or_default();
        for metric in current.list_of() {
            let utilization = metric.dig("resource.current.averageUtilization");
            if metric.text("resource.name") == "cpu" && !utilization.is_null() {
                status.put("currentCPUUtilizationPercentage", utilization.clone());
            }
        }
        if !current.list_of().is_empty() {
            let texts: Vec<String> = current.list_of().iter().map(|m| metric_text(m, true)).collect();
            annotations.insert(STATUSES.into(), format!("[{}]", texts.join(",")).into());
        }
        let conditions = status.take_key("conditions").unwrap_or_default();
        if !conditions.list_of().is_empty() {
            annotations.insert(CONDITIONS.into(), conditions.to_string().into());
        }
        set_annotations(&mut object, annotations);
        Ok(object)
    }

    fn to_stored(&self, mut object: Value) -> Result<Value, ApiError> {
        object.put("apiVersion", "autoscaling/v2");
        // Always written in v1, left out at zero in v2.
        let status = object.ensure("status");
        if status.int("currentReplicas") == Some(0) {
            status.take_key("currentReplicas");
        }
        let mut annotations = object
            .object_at("metadata.annotations")
            .cloned()
            .unwrap_or_default();
        let parsed = |key: &str| -> Option<Value> {
            annotations
                .get(key)
                .and_then(Value::as_str)
                .and_then(|text| serde_json::from_str(text).ok())
        };
        let (metrics, statuses) = (parsed(METRICS), parsed(STATUSES));
        let (behavior, conditions) = (parsed(BEHAVIOR), parsed(CONDITIONS));
        drop_round_trip(&mut annotations);
        let spec = object.ensure("spec");
        let mut list: Vec<Value> = metrics
            .unwrap_or_default()
            .list_of()
            .iter()
            .map(|metric| metric_from(metric, false))
            .collect();
        if let Some(cpu) = spec
            .take_key("targetCPUUtilizationPercentage")
            .filter(|v| !v.is_null())
        {
            list.push(json!({"type": "Resource", "resource": {"name": "cpu",
                "target": {"type": "Utilization", "averageUtilization": cpu}}}));
        }
        if !list.is_empty() {
            spec.put("metrics", list);
        }
        if let Some(behavior) = behavior {
            spec.put("behavior", lower_keys(&behavior, 0));
        }
        let status = object.ensure("status");
        let cpu = status.take_key("currentCPUUtilizationPercentage");
        match (statuses, cpu) {
            (Some(statuses), _) => {
                let list = statuses.list_of().iter().map(|m| metric_from(m, true));
                status.put("currentMetrics", list.collect::<Vec<_>>());
            }
            (None, Some(cpu)) if !cpu.is_null() => {
                let metric = json!({"type": "Resource", "resource": {"name": "cpu",
                    "current": {"averageUtilization": cpu}}});
                status.put("currentMetrics", vec![metric]);
            }
            // Upstream's type always writes the list.
            _ => status.put("currentMetrics", Value::Null),
        }
        if let Some(conditions) = conditions {
            status.put("conditions", conditions);
        }
        if status.int("currentReplicas") == Some(0) {
            status.take_key("currentReplicas");
        }
        set_annotations(&mut object, annotations);
        // An object of the stored version is one with its defaults.
        defaults::default(&mut object);
        Ok(object)
    }
}

trait ListOf {
    fn list_of(&self) -> &[Value];
}

impl ListOf for Value {
    fn list_of(&self) -> &[Value] {
        self.as_array().map(Vec::as_slice).unwrap_or_default()
    }
}

fn drop_round_trip(annotations: &mut Map<String, Value>) {
    for key in [METRICS, STATUSES, BEHAVIOR, CONDITIONS] {
        annotations.remove(key);
    }
}

fn set_annotations(object: &mut Value, annotations: Map<String, Value>) {
    let value = match annotations.is_empty() {
        true => Value::Null,
        false => Value::Object(annotations),
    };
    meta::set(object, "annotations", value);
}

/// A metric of v2 as the v1 annotation has it, in the field order of upstream's type.
fn metric_text(metric: &Value, status: bool) -> String {
    let kind = metric.text("type");
    let Some(source) = SOURCES.iter().find(|s| s.kind == kind) else {
        return json!({"type": kind}).to_string();
    };
    let value = metric.dig(source.key);
    let names = if status { source.status } else { source.spec };
    let fields: Vec<String> = names
        .iter()
        .filter(|(_, path)| value.has(path))
        .map(|(name, path)| format!("\"{name}\":{}", value.dig(path)))
        .collect();
    format!(
        "{{\"type\":\"{kind}\",\"{}\":{{{}}}}}",
        source.key,
        fields.join(",")
    )
}

/// A metric of the v1 annotation as v2 has it.
fn metric_from(metric: &Value, status: bool) -> Value {
    let kind = metric.text("type");
    let mut out = json!({"type": kind});
    let Some(source) = SOURCES.iter().find(|s| s.kind == kind) else {
        return out;
    };
    let names = if status { source.status } else { source.spec };
    let mut body = json!({});
    for (name, path) in names {
        let value = metric.dig(source.key).dig(name);
        if value.is_null() {
            continue;
        }
        match path.split_once('.') {
            Some((parent, child)) => body.ensure(parent).put(child, value.clone()),
            None => body.put(path, value.clone()),
        }
    }
    if !status {
        let target = body.ensure("target");
        let kind = if target.has("averageUtilization") {
            "Utilization"
        } else if target.has("averageValue") {
            "AverageValue"
        } else {
            "Value"
        };
        target.put("type", kind);
    }
    out.put(source.key, body);
    out
}

/// Behavior as upstream's internal type encodes it: Go's field names, in its order.
fn behavior_text(behavior: &Value) -> String {
    let rules = |rules: &Value| match rules.is_null() {
        true => "null".to_string(),
        false => {
            let policies: Vec<String> = rules
                .list("policies")
                .iter()
                .map(|p| {
                    format!(
                        "{{\"Type\":{},\"Value\":{},\"PeriodSeconds\":{}}}",
                        p.dig("type"),
                        p.dig("value"),
                        p.dig("periodSeconds")
                    )
                })
                .collect();
            format!(
                "{{\"StabilizationWindowSeconds\":{},\"SelectPolicy\":{},\"Policies\":[{}],\"Tolerance\":{}}}",
                rules.dig("stabilizationWindowSeconds"),
                rules.dig("selectPolicy"),
                policies.join(","),
                rules.dig("tolerance")
            )
        }
    };
    format!(
        "{{\"ScaleUp\":{},\"ScaleDown\":{}}}",
        rules(behavior.dig("scaleUp")),
        rules(behavior.dig("scaleDown"))
    )
}

/// The reverse of [`behavior_text`]: keys begin in lower case, nulls are dropped. The annotation is a client's: depth is bounded.
fn lower_keys(value: &Value, depth: usize) -> Value {
    match value {
        Value::Object(map) if depth < 8 => map
            .iter()
            .filter(|(_, value)| !value.is_null())
            .map(|(key, value)| {
                let mut chars = key.chars();
                let first = chars
                    .next()
                    .map(|c| c.to_lowercase().to_string())
                    .unwrap_or_default();
                (first + chars.as_str(), lower_keys(value, depth + 1))
            })
            .collect::<Map<_, _>>()
            .into(),
        Value::Array(items) if depth < 8 => items
            .iter()
            .map(|item| lower_keys(item, depth + 1))
            .collect::<Vec<_>>()
            .into(),
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn v1_keeps_fields_of_v2() {
        let mut stored = json!({"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": {"name": "b"},
            "spec": {"maxReplicas": 3, "behavior": {"scaleDown": {"stabilizationWindowSeconds": 5, "selectPolicy": "Max",
                "policies": [{"type": "Percent", "value": 100, "periodSeconds": 15}]}},
                "metrics": [{"type": "Resource", "resource": {"name": "memory", "target": {"type": "AverageValue", "averageValue": "500Mi"}}},
                    {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 70}}}]},
            "status": {"currentMetrics": null, "desiredReplicas": 0}});
        defaults::default(&mut stored);
        let v1 = V1.from_stored(stored.clone()).expect("converts");
        assert_eq!(v1.int("spec.targetCPUUtilizationPercentage"), Some(70));
        let annotations = v1.dig("metadata.annotations");
        assert_eq!(
            annotations[METRICS],
            "[{\"type\":\"Resource\",\"resource\":{\"name\":\"memory\",\"targetAverageValue\":\"500Mi\"}}]"
        );
        assert_eq!(V1.to_stored(v1).expect("converts"), stored);
    }
}
