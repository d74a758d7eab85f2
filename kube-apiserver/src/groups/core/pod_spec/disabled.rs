//! Fields of pod specifications whose features are off. They are dropped, unless the old specification has them.

use serde_json::Value;

use super::CONTAINERS;
use crate::deps::KindFeatures;
use crate::json::Json;

/// Drops them of the specification at a path of an object.
pub(crate) fn drop_disabled_at(features: KindFeatures, path: &str, object: &mut Value, old: &Value) {
    let Some(spec) = object.dig_mut(path) else { return };
    let old = old.dig(path);
    if !features.workloads && !old.has("schedulingGroup") {
        spec.take_key("schedulingGroup");
    }
    if !has_stop_signals(old) {
        for list in CONTAINERS {
            spec.list_mut(list).iter_mut().for_each(drop_stop_signal);
        }
    }
    for (source, is_on) in [
        ("clusterTrustBundle", features.trust_bundle_projection),
        ("podCertificate", features.pod_certificates),
    ] {
        if is_on || has_projected(old, source) {
            continue;
        }
        for volume in spec.list_mut("volumes") {
            for projected in volume.list_mut("projected.sources") {
                projected.take_key(source);
            }
        }
    }
}

fn has_stop_signals(spec: &Value) -> bool {
    let mut containers = CONTAINERS.iter().flat_map(|list| spec.list(list));
    containers.any(|container| container.has("lifecycle.stopSignal"))
}

/// A lifecycle of nothing but the signal goes with it.
fn drop_stop_signal(container: &mut Value) {
    let Some(lifecycle) = container.dig_mut("lifecycle") else {
        return;
    };
    let had_one = lifecycle.take_key("stopSignal").is_some();
    let none_left = !["postStart", "preStop"].iter().any(|key| lifecycle.has(key));
    if had_one && none_left {
        container.take_key("lifecycle");
    }
}

fn has_projected(spec: &Value, source: &str) -> bool {
    let mut volumes = spec.list("volumes").iter();
    volumes.any(|volume| {
        let mut sources = volume.list("projected.sources").iter();
        sources.any(|projected| projected.has(source))
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check(spec: Value, old: Value, expected: Value) {
        check_with(KindFeatures::default(), spec, old, expected);
    }

    #[track_caller]
    fn check_with(features: KindFeatures, spec: Value, old: Value, expected: Value) {
        let mut object = json!({"spec": spec});
        drop_disabled_at(features, "spec", &mut object, &json!({"spec": old}));
        assert_eq!(object["spec"], expected);
    }

    #[test]
    fn fields_of_features_that_are_off_go_unless_they_are_in_use() {
        let group = json!({"schedulingGroup": {"podGroupName": "g"}});
        check(group.clone(), json!({}), json!({}));
        check(group.clone(), group.clone(), group);
        let signal = |lifecycle: Value| json!({"containers": [{"name": "c", "lifecycle": lifecycle}]});
        let stops = signal(json!({"stopSignal": "SIGTERM"}));
        check(stops.clone(), json!({}), json!({"containers": [{"name": "c"}]}));
        check(stops.clone(), stops.clone(), stops);
        check(
            signal(json!({"stopSignal": "SIGTERM", "preStop": {}})),
            json!({}),
            signal(json!({"preStop": {}})),
        );
        check(signal(json!({})), json!({}), signal(json!({})));
        let sources = |sources: Value| json!({"volumes": [{"name": "v", "projected": {"sources": sources}}]});
        check(
            sources(json!([{"clusterTrustBundle": {}}, {"podCertificate": {}}, {"secret": {}}])),
            sources(json!([{"podCertificate": {}}])),
            sources(json!([{}, {"podCertificate": {}}, {"secret": {}}])),
        );
    }

    #[test]
    fn fields_of_features_that_are_on_stay() {
        let sources = |sources: Value| json!({"schedulingGroup": {"podGroupName": "g"}, "volumes": [{"name": "v", "projected": {"sources": sources}}]});
        let spec = sources(json!([{"clusterTrustBundle": {}}, {"podCertificate": {}}]));
        let on = KindFeatures {
            workloads: true,
            trust_bundle_projection: true,
            ..KindFeatures::default()
        };
        check_with(
            on,
            spec.clone(),
            json!({}),
            sources(json!([{"clusterTrustBundle": {}}, {}])),
        );
        let on = KindFeatures {
            pod_certificates: true,
            ..on
        };
        check_with(on, spec.clone(), json!({}), spec);
    }
}
