//! Objects with very long lists: each rule about them has to be n log n, and error texts about them short.

use serde_json::{Value, json};

use super::attack;
use crate::{Arena, Attack, Bound, Error, Outcome, Place, Playing, Shot};

/// Objects that are fine come back whole.
const LONG: Bound = Bound::DEFAULT.answer(8 << 20).memory(512.0);
/// A hundred causes with a value of ten KiB each, and a message.
const REFUSED: Bound = Bound::codes(&[400, 413, 422]).answer(2 << 20);
/// Those of updates are merged, as upstream does, so that few are left to be counted.
const MERGED: Bound = Bound::codes(&[201, 400, 413, 422]).answer(2 << 20);

type Run = for<'a> fn(&'a Arena) -> Playing<'a>;

pub(super) fn attacks() -> Vec<Attack> {
    let mut attacks = vec![
        attack("5,001 owner references", "5b", Place::Quick, REFUSED, |arena| {
            Box::pin(owners(arena, 5_001, false))
        }),
        attack("30,000 owner references", "5b", Place::Large, REFUSED, |arena| {
            Box::pin(owners(arena, 30_000, false))
        }),
        attack(
            "300 owner references that are controllers",
            "5c",
            Place::Quick,
            REFUSED,
            |arena| Box::pin(owners(arena, 300, true)),
        ),
        attack(
            "1,000 owner references that are controllers",
            "5c",
            Place::Large,
            REFUSED,
            |arena| Box::pin(owners(arena, 1_000, true)),
        ),
        attack("30,000 finalizers", "5b", Place::Large, REFUSED, |arena| {
            Box::pin(finalizers(arena))
        }),
        attack(
            "8,000 entries of managedFields",
            "5d",
            Place::Large,
            MERGED,
            |arena| Box::pin(managed(arena)),
        ),
        attack(
            "2,000 invalid keys of 250 bytes in a ConfigMap",
            "5c",
            Place::Quick,
            REFUSED,
            |arena| Box::pin(keys(arena)),
        ),
        attack(
            "One wrong value of 1 MB",
            "5c",
            Place::Quick,
            REFUSED.answer(512 * 1024),
            |arena| Box::pin(long_value(arena)),
        ),
    ];
    let lists: [(&str, Run); 20] = [
        ("Pod: 20,000 volumes", |arena| {
            pod(
                arena,
                "volumes",
                20_000,
                |i| json!({"name": format!("v{i}"), "emptyDir": {}}),
            )
        }),
        ("Pod: 30,000 hostAliases of one address", |arena| {
            pod(
                arena,
                "hostAliases",
                30_000,
                |i| json!({"ip": "10.0.0.1", "hostnames": [format!("h{i}")]}),
            )
        }),
        ("Pod: 15,000 volumeMounts", |arena| {
            container(
                arena,
                "volumeMounts",
                15_000,
                |i| json!({"name": "v", "mountPath": format!("/m{i}")}),
            )
        }),
        ("Pod: 30,000 ports", |arena| {
            container(
                arena,
                "ports",
                30_000,
                |i| json!({"containerPort": i % 65_535 + 1, "name": format!("p{i}")}),
            )
        }),
        ("Pod: 30,000 variables of the environment", |arena| {
            container(
                arena,
                "env",
                30_000,
                |i| json!({"name": format!("E{i}"), "value": "$(E1)"}),
            )
        }),
        ("Pod: 30,000 tolerations", |arena| {
            pod(
                arena,
                "tolerations",
                30_000,
                |i| json!({"key": format!("k{i}"), "operator": "Exists"}),
            )
        }),
        ("Pod: 400,000 empty containers", |arena| {
            pod(arena, "containers", 400_000, |_| json!({}))
        }),
        ("Pod: 10,000 init containers with the same name", |arena| {
            pod(
                arena,
                "initContainers",
                10_000,
                |_| json!({"name": "c", "image": "i"}),
            )
        }),
        ("Service: 20,000 ports", |arena| {
            of(
                arena,
                "v1",
                "services",
                "Service",
                "ports",
                20_000,
                |i| json!({"name": format!("p{i}"), "port": i % 65_535 + 1}),
            )
        }),
        ("EndpointSlice: 30,000 endpoints", |arena| slice(arena)),
        ("NetworkPolicy: 20,000 rules", |arena| {
            of(
                arena,
                "networking.k8s.io/v1",
                "networkpolicies",
                "NetworkPolicy",
                "ingress",
                20_000,
                |i| json!({"ports": [{"port": i % 65_535 + 1}]}),
            )
        }),
        ("Ingress: 20,000 rules", |arena| {
            of(
                arena,
                "networking.k8s.io/v1",
                "ingresses",
                "Ingress",
                "rules",
                20_000,
                |i| json!({"host": format!("h{i}.io")}),
            )
        }),
        ("Job: 20,000 rules of its pod failure policy", |arena| job(arena)),
        (
            "Pod: 4,000 profiles by annotation of as many containers",
            |arena| profiles(arena),
        ),
        ("Pod: 40 mounted volumes of 500 paths of 60 parts each", |arena| {
            paths(arena)
        }),
        (
            "Pod: 20,000 keys of labels that a spread constraint selects by",
            |arena| selecting(arena, 20_000, "topologySpreadConstraints"),
        ),
        (
            "Pod: 20,000 keys of labels that an affinity term selects by",
            |arena| selecting(arena, 20_000, "affinity"),
        ),
        (
            "Pod status: the health of 16,000 claims of a container",
            |arena| health(arena),
        ),
        ("Pod status: 20,000 addresses, twice", |arena| addresses(arena)),
        (
            "ResourceClaim status: devices of 20,000 drivers, by who may speak for none",
            |arena| devices(arena),
        ),
    ];
    attacks.extend(lists.map(|(name, run)| attack(name, "5d", Place::Large, LONG, run)));
    attacks
}

/// Creates an object, and deletes it where it was let in.
async fn create(arena: &Arena, path: String, object: &Value) -> Result<Outcome, Error> {
    let outcome = arena.shoot(Shot::post(&path, object).by(&arena.tenant)).await?;
    if outcome.codes.contains_key(&201) {
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        arena.gone(&format!("{path}/{name}?gracePeriodSeconds=0")).await?;
    }
    Ok(outcome)
}

async fn config_map(arena: &Arena, metadata: Value) -> Result<Outcome, Error> {
    let mut object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata});
    object["metadata"]["name"] = "long".into();
    create(arena, arena.path("configmaps"), &object).await
}

async fn owners(arena: &Arena, count: usize, controller: bool) -> Result<Outcome, Error> {
    let owner = |i: usize| {
        json!({
            "apiVersion": "v1", "kind": "ConfigMap", "name": format!("owner-{i}"), "uid": format!("uid-{i}"),
            "controller": controller,
        })
    };
    let owners: Vec<Value> = (0..count).map(owner).collect();
    config_map(arena, json!({"ownerReferences": owners})).await
}

async fn finalizers(arena: &Arena) -> Result<Outcome, Error> {
    let names: Vec<String> = (0..30_000).map(|i| format!("example.com/f{i}")).collect();
    config_map(arena, json!({"finalizers": names})).await
}

async fn managed(arena: &Arena) -> Result<Outcome, Error> {
    let entry = |i: usize| {
        json!({
            "manager": format!("m{i}"), "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1",
            "fieldsV1": {"f:data": {format!("f:k{i}"): {}}},
        })
    };
    let entries: Vec<Value> = (0..8_000).map(entry).collect();
    config_map(arena, json!({"managedFields": entries})).await
}

async fn keys(arena: &Arena) -> Result<Outcome, Error> {
    let long = "!".repeat(240);
    let data: serde_json::Map<String, Value> = (0..2_000)
        .map(|i| (format!("{long}{i}"), Value::from("")))
        .collect();
    let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "keys"}, "data": data});
    create(arena, arena.path("configmaps"), &object).await
}

async fn long_value(arena: &Arena) -> Result<Outcome, Error> {
    let object = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "value"},
        "spec": {"restartPolicy": "x".repeat(1_000_000), "containers": [{"name": "c", "image": "i"}]},
    });
    create(arena, arena.path("pods"), &object).await
}

fn items(count: usize, item: fn(usize) -> Value) -> Vec<Value> {
    (0..count).map(item).collect()
}

fn pod<'a>(arena: &'a Arena, list: &'static str, count: usize, item: fn(usize) -> Value) -> Playing<'a> {
    Box::pin(async move {
        let mut object = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "long"},
            "spec": {"containers": [{"name": "c", "image": "i"}]},
        });
        object["spec"][list] = items(count, item).into();
        create(arena, arena.path("pods"), &object).await
    })
}

fn container<'a>(
    arena: &'a Arena,
    list: &'static str,
    count: usize,
    item: fn(usize) -> Value,
) -> Playing<'a> {
    Box::pin(async move {
        let mut object = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "long"},
            "spec": {"containers": [{"name": "c", "image": "i"}], "volumes": [{"name": "v", "emptyDir": {}}]},
        });
        object["spec"]["containers"][0][list] = items(count, item).into();
        create(arena, arena.path("pods"), &object).await
    })
}

fn of<'a>(
    arena: &'a Arena,
    version: &'static str,
    resource: &'static str,
    kind: &'static str,
    list: &'static str,
    count: usize,
    item: fn(usize) -> Value,
) -> Playing<'a> {
    Box::pin(async move {
        let mut object = json!({"apiVersion": version, "kind": kind, "metadata": {"name": "long"}, "spec": {"podSelector": {}}});
        if kind != "NetworkPolicy" {
            object["spec"] = json!({});
        }
        object["spec"][list] = items(count, item).into();
        let path = match version {
            "v1" => arena.path(resource),
            other => arena.path_of(other, resource),
        };
        create(arena, path, &object).await
    })
}

fn slice(arena: &Arena) -> Playing<'_> {
    Box::pin(async move {
        let object = json!({
            "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "metadata": {"name": "long"},
            "addressType": "IPv4",
            "endpoints": items(30_000, |i| json!({"addresses": [format!("10.1.{}.{}", i / 250 % 250, i % 250)]})),
        });
        // The role `admin` does not let tenants write these.
        let path = arena.path_of("discovery.k8s.io/v1", "endpointslices");
        arena.shoot(Shot::post(path, &object)).await
    })
}

fn job(arena: &Arena) -> Playing<'_> {
    Box::pin(async move {
        let rule = |i: usize| json!({"action": "Ignore", "onExitCodes": {"containerName": "c", "operator": "In", "values": [i % 250 + 1]}});
        let object = json!({
            "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "long"},
            "spec": {
                "podFailurePolicy": {"rules": items(20_000, rule)},
                "template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}},
            },
        });
        create(arena, arena.path_of("batch/v1", "jobs"), &object).await
    })
}

/// Rules that hold annotations against containers.
fn profiles(arena: &Arena) -> Playing<'_> {
    Box::pin(async move {
        let annotations: serde_json::Map<String, Value> = (0..4_000)
            .map(|i| {
                let key = format!("container.apparmor.security.beta.kubernetes.io/c{i}");
                (key, Value::from("runtime/default"))
            })
            .collect();
        let object = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "long", "annotations": annotations},
            "spec": {"containers": items(4_000, |i| json!({"name": format!("c{i}"), "image": "i"}))},
        });
        create(arena, arena.path("pods"), &object).await
    })
}

/// Warnings that hold the paths of volumes against each other, with all directories around each.
fn paths(arena: &Arena) -> Playing<'_> {
    Box::pin(async move {
        let volume = |of: usize| {
            let file = |i: usize| json!({"key": "k", "path": format!("{}{of}-{i}", "a/".repeat(60))});
            let files: Vec<Value> = (0..500).map(file).collect();
            json!({"name": format!("v{of}"), "configMap": {"name": "c", "items": files}})
        };
        let object = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "long"},
            "spec": {"containers": [{"name": "c", "image": "i"}], "volumes": (0..40).map(volume).collect::<Vec<_>>()},
        });
        create(arena, arena.path("pods"), &object).await
    })
}

/// Rules that look for each address of an update in the stored object. The administrator writes: a tenant may not.
fn addresses(arena: &Arena) -> Playing<'_> {
    Box::pin(async move {
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "addressed"},
            "spec": {"containers": [{"name": "c", "image": "i"}]},
        });
        arena.made(&arena.path("pods"), &pod).await?;
        let status = json!({"status": {"hostIPs": items(20_000, |i| json!({"ip": format!("010.1.{}.{}", i / 250, i % 250)}))}});
        let path = arena.path("pods/addressed/status");
        let mut outcome = Outcome::new();
        for _ in 0..2 {
            let shot = Shot::patch(&path, "application/merge-patch+json", status.to_string());
            outcome.count(&arena.send(shot).await?);
        }
        arena
            .gone(&arena.path("pods/addressed?gracePeriodSeconds=0"))
            .await?;
        Ok(outcome)
    })
}

/// Questions to the authorizer, one for each driver that a status names.
fn devices(arena: &Arena) -> Playing<'_> {
    Box::pin(async move {
        let claims = arena.path_of("resource.k8s.io/v1", "resourceclaims");
        let claim = json!({
            "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": "driven"},
            "spec": {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "c"}}]}},
        });
        arena.made(&claims, &claim).await?;
        let rbac = arena.path_of("rbac.authorization.k8s.io/v1", "");
        let role = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": "status"},
            "rules": [{"apiGroups": ["resource.k8s.io"], "resources": ["resourceclaims/status"], "verbs": ["patch"]}],
        });
        arena.made(&format!("{rbac}roles"), &role).await?;
        let binding = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": {"name": "status"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "status"},
            "subjects": [{"kind": "ServiceAccount", "name": "tenant", "namespace": arena.namespace}],
        });
        arena.made(&format!("{rbac}rolebindings"), &binding).await?;
        let device = |i| json!({"driver": format!("d{i}.example.com"), "pool": "p", "device": "d"});
        let status = json!({"status": {"devices": items(20_000, device)}});
        let path = format!("{claims}/driven/status");
        let shot = Shot::patch(path, "application/merge-patch+json", status.to_string()).by(&arena.tenant);
        let outcome = arena.shoot(shot).await?;
        arena.gone(&format!("{claims}/driven")).await?;
        Ok(outcome)
    })
}

/// Keys whose values are put into a selector.
fn selecting<'a>(arena: &'a Arena, count: usize, place: &'static str) -> Playing<'a> {
    Box::pin(async move {
        let labels: serde_json::Map<String, Value> =
            (0..count).map(|i| (format!("k{i}"), Value::from("v"))).collect();
        let term = json!({
            "maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule",
            "matchLabelKeys": items(count, |i| format!("k{i}").into()),
            "labelSelector": {"matchExpressions": items(count, |i| json!({"key": format!("j{i}"), "operator": "Exists"}))},
        });
        let terms = match place {
            "affinity" => json!({"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}),
            _ => json!([term]),
        };
        let mut object = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "long", "labels": labels},
            "spec": {"containers": [{"name": "c", "image": "i"}]},
        });
        object["spec"][place] = terms;
        create(arena, arena.path("pods"), &object).await
    })
}

/// Rules that look for each entry of a status among the claims of its container.
fn health(arena: &Arena) -> Playing<'_> {
    Box::pin(async move {
        let claim = |i: usize| json!({"name": "g", "request": format!("r{i}")});
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "claiming"},
            "spec": {
                "resourceClaims": [{"name": "g", "resourceClaimName": "x"}],
                "containers": [{"name": "c", "image": "i", "resources": {"claims": items(16_000, claim)}}],
            },
        });
        arena.made(&arena.path("pods"), &pod).await?;
        let of = |i: usize| json!({"name": format!("claim:g/r{i}"), "resources": [{"resourceID": "a", "health": "Healthy"}]});
        let status = json!({"status": {"containerStatuses": [{
            "name": "c", "image": "i", "imageID": "", "ready": true, "restartCount": 0, "state": {},
            "allocatedResourcesStatus": items(16_000, of),
        }]}});
        let path = arena.path("pods/claiming/status");
        let outcome = arena
            .shoot(Shot::patch(
                &path,
                "application/merge-patch+json",
                status.to_string(),
            ))
            .await?;
        arena
            .gone(&arena.path("pods/claiming?gracePeriodSeconds=0"))
            .await?;
        Ok(outcome)
    })
}
