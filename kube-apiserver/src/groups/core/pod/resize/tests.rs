use serde_json::{Value, json};

use crate::errors::Errors;
use crate::groups::check::{kind, pod, pod_of};

/// The resources of a container change from one to the other.
#[track_caller]
fn check(old: Value, new: Value, expected: &[&str]) {
    let pod = pod_of(&json!({"resources": old}));
    let change = pod_of(&json!({"resources": new}));
    kind("pods").update_of("resize", &pod, &change, expected);
}

/// The specification of a pod changes from one to the other.
#[track_caller]
fn check_pods(old: Value, new: Value, expected: &[&str]) {
    kind("pods").update_of("resize", &pod(&old), &json!({"spec": new}), expected);
}

fn cpu(amount: &str) -> Value {
    json!({"requests": {"cpu": amount}})
}

#[test]
fn cpu_and_memory_change_within_their_class() {
    check(cpu("1"), cpu("2"), &[]);
    check(
        cpu("1"),
        json!({}),
        &[
            r#"spec: Invalid value: "Burstable": Pod QOS Class may not change as a result of resizing"#,
            "spec.containers[0].resources.requests: Forbidden: resource requests cannot be removed",
        ],
    );
    check(
        json!({"requests": {"cpu": "1", "ephemeral-storage": "1"}}),
        json!({"requests": {"cpu": "1", "ephemeral-storage": "2"}}),
        &["spec: Forbidden: only cpu and memory resources are mutable"],
    );
    check(
        json!({"requests": {"cpu": "1"}, "limits": {"memory": "2Gi"}}),
        json!({"requests": {"cpu": "1"}, "limits": {"memory": "1Gi"}}),
        &[],
    );
}

#[test]
fn policies_and_claims_are_fixed() {
    let policy = |policy: &str| json!({"containers": [{"name": "c", "image": "i", "resources": cpu("1"), "resizePolicy": [{"resourceName": "cpu", "restartPolicy": policy}]}]});
    let fixed = ["spec: Forbidden: only cpu and memory resources are mutable"];
    check_pods(policy("NotRequired"), policy("RestartContainer"), &fixed);
    let claims = |amount: &str| {
        let resources = json!({"requests": {"cpu": amount}, "claims": [{"name": "r"}]});
        json!({"containers": [{"name": "c", "image": "i", "resources": resources}], "resourceClaims": [{"name": "r", "resourceClaimName": "x"}]})
    };
    check_pods(claims("1"), claims("2"), &fixed);
}

#[test]
fn containers_stay_what_they_are() {
    let named = |names: &[&str]| {
        let all = names.iter().map(|name| json!({"name": name, "image": "i"}));
        json!({"containers": all.collect::<Vec<Value>>()})
    };
    check_pods(
        named(&["a", "b"]),
        named(&["b", "a"]),
        &[
            "spec.containers[0].name: Forbidden: containers may not be renamed or reordered on resize",
            "spec.containers[1].name: Forbidden: containers may not be renamed or reordered on resize",
        ],
    );
    check_pods(
        named(&["a"]),
        named(&["a", "b"]),
        &["spec.containers: Forbidden: containers may not be added or removed on resize"],
    );
    // All but resources is dropped.
    check_pods(
        named(&["a"]),
        json!({"containers": [{"name": "a", "image": "j"}], "nodeName": "n"}),
        &[],
    );
}

#[test]
fn init_containers_are_resized() {
    let init = |restart: Value, policy: Value, amount: &str| {
        json!({"containers": [{"name": "c", "image": "i"}],
            "initContainers": [{"name": "s", "image": "i", "restartPolicy": restart, "resizePolicy": policy, "resources": cpu(amount)}]})
    };
    check_pods(
        init(json!("Always"), json!([]), "1"),
        init(json!("Always"), json!([]), "2"),
        &[],
    );
    check_pods(
        init(Value::Null, json!([]), "1"),
        init(Value::Null, json!([]), "2"),
        &[],
    );
    check_pods(
        init(Value::Null, json!([]), "1"),
        init(
            Value::Null,
            json!([{"resourceName": "cpu", "restartPolicy": "NotRequired"}]),
            "1",
        ),
        &[
            "spec.initContainers[0]: Forbidden: only cpu and memory resources for init or sidecar containers are mutable",
        ],
    );
}

#[test]
fn pods_have_resources_of_their_own() {
    let own = |resources: Value| json!({"containers": [{"name": "c", "image": "i", "resources": cpu("1")}], "resources": resources});
    check_pods(own(cpu("1")), own(cpu("2")), &[]);
    check_pods(own(Value::Null), own(cpu("2")), &[]);
    check_pods(
        own(cpu("1")),
        own(Value::Null),
        &["spec.resources: Forbidden: pod-level resources cannot be removed"],
    );
    check_pods(
        own(json!({"requests": {"cpu": "1", "memory": "1"}})),
        own(json!({"requests": {"memory": null}})),
        &["spec.resources.requests: Forbidden: pod-level resource requests cannot be removed"],
    );
    let pages = |amount: &str| json!({"requests": {"cpu": "1", "hugepages-2Mi": amount}, "limits": {"hugepages-2Mi": amount}});
    check_pods(
        own(pages("2Mi")),
        own(pages("4Mi")),
        &["spec: Forbidden: only cpu and memory resources are mutable at pod-level"],
    );
}

#[test]
fn some_pods_are_not_resized() {
    #[track_caller]
    fn check(change: Value, expected: &[&str]) {
        let mut old = pod_of(&json!({"resources": cpu("1")}));
        for (key, value) in change.as_object().into_iter().flatten() {
            old[key] = value.clone();
        }
        old["spec"]["os"] = old["os"].take();
        let found = Errors::collect(|errors| super::resize(errors, &old.clone(), &old));
        let found: Vec<String> = found.iter().map(ToString::to_string).collect();
        let of_resize = |text: &&String| text.contains("resize");
        assert_eq!(found.iter().filter(of_resize).collect::<Vec<_>>(), expected);
    }
    check(
        json!({"metadata": {"annotations": {"kubernetes.io/config.mirror": "x"}}}),
        &["[]: Forbidden: static pods cannot be resized"],
    );
    check(
        json!({"os": {"name": "windows"}}),
        &["[]: Forbidden: windows pods cannot be resized"],
    );
    check(
        json!({"status": {"containerStatuses": [{"name": "c", "state": {"running": {}}}]}}),
        &["spec: Forbidden: Pod running on node without support for resize"],
    );
    check(
        json!({"status": {"containerStatuses": [{"name": "c", "state": {"running": {}}, "resources": {}}]}}),
        &[],
    );
    check(
        json!({"status": {"nodeAllocatableResourceClaimStatuses": [{"resourceClaimName": "x"}]}}),
        &["spec: Forbidden: pods with node allocatable resource claims cannot be resized"],
    );
}
