//! The defaults of a HorizontalPodAutoscaler of autoscaling/v2, the stored version.

use serde_json::{Value, json};

use crate::json::Json;

/// Fills in an object of the stored version.
pub(super) fn default(object: &mut Value) {
    let spec = object.ensure("spec");
    spec.fill("minReplicas", 1);
    if spec.list("metrics").is_empty() {
        spec.put(
            "metrics",
            json!([{"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}}}]),
        );
    }
    if spec.has("behavior") {
        let behavior = spec.ensure("behavior");
        let up = behavior.ensure("scaleUp");
        up.fill("stabilizationWindowSeconds", 0);
        up.fill("selectPolicy", "Max");
        up.fill(
            "policies",
            json!([{"type": "Pods", "value": 4, "periodSeconds": 15}, {"type": "Percent", "value": 100, "periodSeconds": 15}]),
        );
        let down = behavior.ensure("scaleDown");
        down.fill("selectPolicy", "Max");
        down.fill(
            "policies",
            json!([{"type": "Percent", "value": 100, "periodSeconds": 15}]),
        );
    }
    // Upstream's type always writes the list.
    let status = object.ensure("status");
    if !status.has("currentMetrics") {
        status.put("currentMetrics", Value::Null);
    }
    status.fill("desiredReplicas", 0);
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::default;

    #[test]
    fn autoscalers_have_defaults() {
        #[track_caller]
        fn check(spec: serde_json::Value, expected: serde_json::Value) {
            let mut object = json!({"spec": spec});
            default(&mut object);
            let status = json!({"currentMetrics": null, "desiredReplicas": 0});
            assert_eq!(object, json!({"spec": expected, "status": status}));
        }
        let cpu = json!([{"type": "Resource",
            "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}}}]);
        check(json!({}), json!({"minReplicas": 1, "metrics": cpu}));
        let pods = json!([{"type": "Pods"}]);
        check(
            json!({"minReplicas": 2, "metrics": pods}),
            json!({"minReplicas": 2, "metrics": pods}),
        );
        let halve = json!([{"type": "Percent", "value": 50, "periodSeconds": 60}]);
        check(
            json!({"metrics": pods, "behavior": {"scaleDown": {"policies": halve}}}),
            json!({"minReplicas": 1, "metrics": pods, "behavior": {
                "scaleUp": {"stabilizationWindowSeconds": 0, "selectPolicy": "Max", "policies": [
                    {"type": "Pods", "value": 4, "periodSeconds": 15}, {"type": "Percent", "value": 100, "periodSeconds": 15}]},
                "scaleDown": {"selectPolicy": "Max", "policies": halve}}}),
        );
    }
}
