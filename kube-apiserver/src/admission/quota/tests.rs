use generic_server::Authorized;
use machinery::GroupVersionKind;
use serde_json::json;

use super::*;

/// A write of `group/resource/subresource`.
struct Case<'a> {
    at: (&'a str, &'a str, &'a str),
    old: Option<Value>,
    new: Value,
    quotas: &'a [Value],
    limited: Value,
}

impl Default for Case<'_> {
    fn default() -> Self {
        Case {
            at: ("", "pods", ""),
            old: None,
            new: Value::Null,
            quotas: &[],
            limited: json!([]),
        }
    }
}

/// What is used of each quota after a write, as `name: resource=amount,...`, or the text of the refusal.
#[track_caller]
fn check(case: &Case<'_>, expected: Result<&[&str], &str>) {
    let authorized = Authorized::system();
    let (group, resource, subresource) = case.at;
    let gvr = GroupVersionResource::new(group, "v1", resource);
    let operation = match case.old {
        Some(_) => Operation::Update,
        None => Operation::Create,
    };
    let attributes = Attributes {
        authorized: &authorized,
        operation,
        gvk: &GroupVersionKind::new(group, "v1", "Any"),
        gvr: &gvr,
        subresource,
        namespace: "a",
        name: "o",
        old: case.old.as_ref(),
        dry_run: false,
        options: None,
        resource: None,
        rounds: None,
    };
    let limited = json!({"limitedResources": case.limited});
    let limited: LimitedResources = serde_json::from_value(limited).expect("limited resources");
    assert_eq!(limited.faults(), Vec::<String>::new());
    let evaluator = Evaluator::of(&gvr).expect("it is counted");
    let outcome = || -> Result<Vec<String>, ApiError> {
        if !evaluator.handles(operation, subresource) || !evaluator.handles_write(&attributes, &case.new) {
            return Ok(vec!["unseen".into()]);
        }
        let charges = request::charges(&evaluator, &attributes, &case.new, case.quotas, &limited)?;
        let used = charges.iter().map(|charge| {
            let used = request::fit(&attributes, &case.new, charge.quota, &charge.delta)?;
            let used = used.iter().map(|(name, quantity)| format!("{name}={quantity}"));
            Ok(format!(
                "{}: {}",
                meta::name(charge.quota),
                used.collect::<Vec<_>>().join(",")
            ))
        });
        used.collect()
    };
    let outcome = outcome().map_err(|error| error.message().to_string());
    let expected = expected.map(|texts| texts.iter().map(ToString::to_string).collect());
    assert_eq!(outcome, expected.map_err(str::to_string), "{}", case.new);
}

fn quota(name: &str, spec: Value, hard: Value) -> Value {
    let used: serde_json::Map<String, Value> = hard
        .as_object()
        .expect("an object")
        .keys()
        .map(|key| (key.clone(), "1".into()))
        .collect();
    json!({"metadata": {"name": name}, "spec": spec, "status": {"hard": hard, "used": used}})
}

fn pod(deadline: Option<i64>, class: &str, cpu: &str) -> Value {
    json!({"metadata": {"name": "o"}, "spec": {"activeDeadlineSeconds": deadline, "priorityClassName": class,
        "containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]}})
}

#[test]
fn pods_are_charged_when_they_move_into_a_scope() {
    let terminating =
        json!({"scopeSelector": {"matchExpressions": [{"scopeName": "Terminating", "operator": "Exists"}]}});
    let quotas = [
        quota("all", json!({}), json!({"pods": "9", "requests.cpu": "9"})),
        quota("ending", terminating, json!({"pods": "9", "cpu": "9"})),
        quota(
            "lasting",
            json!({"scopes": ["NotTerminating"]}),
            json!({"pods": "1"}),
        ),
    ];
    let quotas = &quotas[..];
    let new = pod(Some(5), "", "2");
    check(
        &Case {
            new: new.clone(),
            quotas,
            ..Case::default()
        },
        Ok(&["all: pods=2,requests.cpu=3", "ending: cpu=3,pods=2"]),
    );
    check(
        &Case {
            old: Some(pod(None, "", "2")),
            new: new.clone(),
            quotas,
            ..Case::default()
        },
        Ok(&["ending: cpu=3,pods=2"]),
    );
    check(
        &Case {
            old: Some(new.clone()),
            new: pod(None, "", "2"),
            quotas,
            ..Case::default()
        },
        Err(
            "pods \"o\" is forbidden: exceeded quota: lasting, requested: pods=1, used: pods=1, limited: pods=1",
        ),
    );
    // Other updates are not looked at, but for resizes.
    check(
        &Case {
            old: Some(new.clone()),
            new: pod(Some(6), "", "8"),
            quotas,
            ..Case::default()
        },
        Ok(&["unseen"]),
    );
    check(
        &Case {
            at: ("", "pods", "resize"),
            old: Some(new.clone()),
            new: pod(Some(5), "", "9"),
            quotas,
            ..Case::default()
        },
        Ok(&["all: requests.cpu=8", "ending: cpu=8"]),
    );
    check(
        &Case {
            at: ("", "pods", "resize"),
            old: Some(new),
            new: pod(Some(5), "", "1"),
            quotas,
            ..Case::default()
        },
        Ok(&[]),
    );
}

#[test]
fn updates_are_charged_by_their_growth() {
    let hard = json!({"services": "1", "services.loadbalancers": "1", "services.nodeports": "3"});
    let quotas = [quota("q", json!({}), hard)];
    let quotas = &quotas[..];
    let service = |kind: &str, ports: usize| json!({"metadata": {"name": "o"}, "spec": {"type": kind, "ports": vec![json!({}); ports]}});
    let at = ("", "services", "");
    let old = Some(service("ClusterIP", 2));
    check(
        &Case {
            at,
            old: old.clone(),
            new: service("NodePort", 2),
            quotas,
            ..Case::default()
        },
        Ok(&["q: services.nodeports=3"]),
    );
    check(
        &Case {
            at,
            old: old.clone(),
            new: service("LoadBalancer", 3),
            quotas,
            ..Case::default()
        },
        Err(
            "services \"o\" is forbidden: exceeded quota: q, requested: services.loadbalancers=1,services.nodeports=3, \
             used: services.loadbalancers=1,services.nodeports=1, limited: services.loadbalancers=1,services.nodeports=3",
        ),
    );
    check(
        &Case {
            at,
            old,
            new: service("ClusterIP", 5),
            quotas,
            ..Case::default()
        },
        Ok(&[]),
    );

    let quotas = [quota(
        "q",
        json!({}),
        json!({"requests.storage": "10", "s.storageclass.storage.k8s.io/requests.storage": "5"}),
    )];
    let quotas = &quotas[..];
    let claim = |storage: &str, allocated: Value| {
        json!({"metadata": {"name": "o"}, "spec": {"storageClassName": "s", "resources": {"requests": {"storage": storage}}},
            "status": {"allocatedResources": {"storage": allocated}}})
    };
    let at = ("", "persistentvolumeclaims", "");
    check(
        &Case {
            at,
            old: Some(claim("1", Value::Null)),
            new: claim("4", Value::Null),
            quotas,
            ..Case::default()
        },
        Ok(&["q: requests.storage=4,s.storageclass.storage.k8s.io/requests.storage=4"]),
    );
    check(
        &Case {
            at,
            old: Some(claim("1", Value::Null)),
            new: claim("8", Value::Null),
            quotas,
            ..Case::default()
        },
        Err(
            "persistentvolumeclaims \"o\" is forbidden: exceeded quota: q, requested: s.storageclass.storage.k8s.io/requests.storage=7, \
             used: s.storageclass.storage.k8s.io/requests.storage=1, limited: s.storageclass.storage.k8s.io/requests.storage=5",
        ),
    );
    // What a node has allocated is there already.
    check(
        &Case {
            at: ("", "persistentvolumeclaims", "status"),
            old: Some(claim("1", Value::Null)),
            new: claim("1", json!("20")),
            quotas,
            ..Case::default()
        },
        Ok(&["q: requests.storage=20,s.storageclass.storage.k8s.io/requests.storage=20"]),
    );
    let maps = [quota(
        "q",
        json!({}),
        json!({"configmaps": "9", "count/configmaps": "9"}),
    )];
    let new = json!({"metadata": {"name": "o"}});
    let at = ("", "configmaps", "");
    check(
        &Case {
            at,
            new: new.clone(),
            quotas: &maps,
            ..Case::default()
        },
        Ok(&["q: configmaps=2,count/configmaps=2"]),
    );
    check(
        &Case {
            at,
            old: Some(new.clone()),
            new,
            quotas: &maps,
            ..Case::default()
        },
        Ok(&["unseen"]),
    );
}

#[test]
fn what_is_not_known_or_not_stated_is_refused() {
    let mut unknown = quota("q", json!({}), json!({"pods": "9", "secrets": "9"}));
    unknown["status"]["used"] = json!({"secrets": "1"});
    check(
        &Case {
            new: pod(None, "", "1"),
            quotas: &[unknown],
            ..Case::default()
        },
        Err("pods \"o\" is forbidden: status unknown for quota: q, resources: pods"),
    );
    let quotas = [quota("q", json!({}), json!({"limits.cpu": "9", "memory": "9"}))];
    check(
        &Case {
            new: pod(None, "", "1"),
            quotas: &quotas,
            ..Case::default()
        },
        Err("pods \"o\" is forbidden: failed quota: q: must specify limits.cpu for: c; memory for: c"),
    );
    let mut whole = pod(None, "", "1");
    whole["spec"]["resources"] = json!({"limits": {"cpu": "3"}});
    check(
        &Case {
            new: whole,
            quotas: &quotas,
            ..Case::default()
        },
        Ok(&["q: limits.cpu=4"]),
    );
    check(
        &Case {
            new: pod(None, "", "-1"),
            ..Case::default()
        },
        Err("pods \"o\" is forbidden: quota usage is negative for resource(s): cpu,requests.cpu"),
    );
    // A quota that nothing has been counted for limits nothing.
    let fresh = json!({"metadata": {"name": "q"}, "spec": {"hard": {"pods": "0"}}});
    check(
        &Case {
            new: pod(None, "", "1"),
            quotas: &[fresh],
            ..Case::default()
        },
        Ok(&[]),
    );
}

#[test]
fn limited_resources_need_a_quota() {
    let limited = json!([
        {"resource": "pods", "matchContains": ["cpu"]},
        {"resource": "pods", "matchScopes": [{"scopeName": "PriorityClass", "operator": "In", "values": ["high", "top"]}]},
    ]);
    check(
        &Case {
            new: pod(None, "", "1"),
            limited: limited.clone(),
            ..Case::default()
        },
        Err("pods \"o\" is forbidden: insufficient quota to consume: cpu,requests.cpu"),
    );
    let selector = |values: &[&str]| json!({"scopeSelector": {"matchExpressions": [{"scopeName": "PriorityClass", "operator": "In", "values": values}]}});
    let cpu = quota("cpu", json!({}), json!({"cpu": "9", "requests.cpu": "9"}));
    let high = quota("high", selector(&["high"]), json!({"pods": "9"}));
    let quotas = [cpu.clone()];
    let of = |new: Value, quotas: &[Value], expected: Result<&[&str], &str>| {
        check(
            &Case {
                new,
                quotas,
                limited: limited.clone(),
                ..Case::default()
            },
            expected,
        );
    };
    of(pod(None, "low", "1"), &quotas, Ok(&["cpu: cpu=2,requests.cpu=2"]));
    of(
        pod(None, "top", "1"),
        &quotas,
        Err("insufficient quota to match these scopes: [{PriorityClass In [high top]}]"),
    );
    let quotas = [cpu, high];
    of(
        pod(None, "high", "1"),
        &quotas,
        Ok(&["cpu: cpu=2,requests.cpu=2", "high: pods=2"]),
    );
    of(
        pod(None, "top", "1"),
        &quotas,
        Err("insufficient quota to match these scopes: [{PriorityClass In [high top]}]"),
    );
    let bad = json!({"limitedResources": [{"matchScopes": [{"scopeName": "PriorityClass", "operator": "Is"},
        {"scopeName": "PriorityClass", "operator": "In"}]}]});
    let bad: LimitedResources = serde_json::from_value(bad).expect("limited resources");
    assert_eq!(
        bad.faults(),
        [
            "limitedResources[0].resource: Required value",
            "limitedResources[0].matchScopes[0].operator: Invalid value: \"Is\": not a valid selector operator",
            "limitedResources[0].matchScopes[1].values: Required value: must be at least one value when `operator` is 'In' or 'NotIn' for scope selector",
        ]
    );
}

#[test]
fn scopes_of_affinity_and_of_attributes_classes() {
    let across = [quota(
        "q",
        json!({"scopes": ["CrossNamespacePodAffinity"]}),
        json!({"pods": "9"}),
    )];
    let mut pod = pod(None, "", "1");
    check(
        &Case {
            new: pod.clone(),
            quotas: &across,
            ..Case::default()
        },
        Ok(&[]),
    );
    pod["spec"]["affinity"] = json!({"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [
        {"podAffinityTerm": {"namespaceSelector": {}}}]}});
    check(
        &Case {
            new: pod,
            quotas: &across,
            ..Case::default()
        },
        Ok(&["q: pods=2"]),
    );
    let selector = json!({"scopeSelector": {"matchExpressions": [{"scopeName": "VolumeAttributesClass", "operator": "In", "values": ["gold"]}]}});
    let gold = [quota("q", selector, json!({"persistentvolumeclaims": "9"}))];
    let claim =
        |class: &str| json!({"metadata": {"name": "o"}, "spec": {"volumeAttributesClassName": class}});
    let at = ("", "persistentvolumeclaims", "");
    check(
        &Case {
            at,
            old: Some(claim("silver")),
            new: claim("gold"),
            quotas: &gold,
            ..Case::default()
        },
        Ok(&["q: persistentvolumeclaims=2"]),
    );
    check(
        &Case {
            at,
            new: claim("silver"),
            quotas: &gold,
            ..Case::default()
        },
        Ok(&[]),
    );
}
