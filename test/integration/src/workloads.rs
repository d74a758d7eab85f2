//! Workloads and PodGroups: their switches, what admission wants of them, and the field of pods that names a group.

use serde_json::{Value, json};
use test_support::plane_with;

const GROUPS: &str = "/apis/scheduling.k8s.io/v1alpha2/namespaces/default/podgroups";
const WORKLOADS: &str = "/apis/scheduling.k8s.io/v1alpha2/namespaces/default/workloads";
const JOBS: &str = "/apis/batch/v1/namespaces/default/jobs";
const PODS: &str = "/api/v1/namespaces/default/pods";

fn group(name: &str, workload: &str, template: &str, policy: Value) -> Value {
    json!({"apiVersion": "scheduling.k8s.io/v1alpha2", "kind": "PodGroup", "metadata": {"name": name}, "spec": {
        "podGroupTemplateRef": {"workload": {"workloadName": workload, "podGroupTemplateName": template}},
        "schedulingPolicy": policy}})
}

fn pod(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {
        "automountServiceAccountToken": false, "schedulingGroup": {"podGroupName": "g"},
        "containers": [{"name": "c", "image": "i"}]}})
}

#[tokio::test]
async fn groups_are_made_of_templates() {
    let (plane, admin) = plane_with(|builder| {
        builder.with(|options| {
            options.feature_gates = vec!["GenericWorkload=true".into()];
            options.runtime_config = vec!["scheduling.k8s.io/v1alpha2=true".into()];
        })
    })
    .await;
    let gang = || json!({"gang": {"minCount": 2}});
    let refused = admin
        .post(GROUPS, &group("g", "w", "t", gang()))
        .await
        .expect(403);
    assert_eq!(
        refused["message"],
        r#"podgroups.scheduling.k8s.io "g" is forbidden: PodGroup rejected: Workload "w" not found"#
    );
    let workload = json!({"apiVersion": "scheduling.k8s.io/v1alpha2", "kind": "Workload", "metadata": {"name": "w"},
        "spec": {"podGroupTemplates": [{"name": "t", "schedulingPolicy": gang(), "priority": 3}]}});
    let made = admin.post(WORKLOADS, &workload).await.expect(201);
    let template = &made["spec"]["podGroupTemplates"][0];
    assert_eq!(
        template,
        &json!({"name": "t", "schedulingPolicy": gang(), "schedulingConstraints": null})
    );
    let refused = admin
        .post(GROUPS, &group("g", "w", "u", gang()))
        .await
        .expect(403);
    assert_eq!(
        refused["message"],
        r#"podgroups.scheduling.k8s.io "g" is forbidden: PodGroup rejected: PodGroupTemplate "u" not found in Workload "w""#
    );
    let made = admin
        .post(GROUPS, &group("g", "w", "t", gang()))
        .await
        .expect(201);
    assert_eq!(
        made["metadata"]["finalizers"],
        json!(["scheduling.k8s.io/podgroup-protection"])
    );
    assert_eq!(made["spec"]["disruptionMode"], "Pod");
    // Without the controller that lets go of it the group stays.
    let path = format!("{GROUPS}/g");
    admin.delete(&path).await.expect(200);
    let left = admin.get(&path).await.expect(200);
    assert!(left["metadata"]["deletionTimestamp"].is_string());

    let table = admin
        .clone()
        .header("accept", "application/json;as=Table;v=v1;g=meta.k8s.io");
    let table = table.get(&path).await.expect(200);
    let cells = table["rows"][0]["cells"].as_array().expect("cells");
    assert_eq!(cells[..4], ["g", "Gang", "w", "Pending"]);
    let status = admin.get(&format!("{path}/status")).await.expect(200);
    let mut status = status;
    status["status"] = json!({"conditions": [{"type": "PodGroupScheduled", "status": "True", "reason": "Scheduled",
        "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}], "resourceClaimStatuses": [{"name": "c"}]});
    let written = admin.put(&format!("{path}/status"), &status).await.expect(200);
    assert_eq!(written["status"].as_object().map(|all| all.len()), Some(1));
    let table = admin
        .clone()
        .header("accept", "application/json;as=Table;v=v1;g=meta.k8s.io");
    let table = table.get(&path).await.expect(200);
    assert_eq!(table["rows"][0]["cells"][3], "Scheduled");
    let role = "/apis/rbac.authorization.k8s.io/v1/clusterroles/system:aggregate-to-view";
    let role = admin.get(role).await.expect(200).to_string();
    assert!(role.contains("podgroups/status"));
    let document = admin.get("/openapi/v3/apis/scheduling.k8s.io/v1alpha2").await;
    assert!(String::from_utf8_lossy(&document.body).contains("PodGroupSchedulingPolicy"));
    plane.stop().await;
}

#[tokio::test]
async fn pods_and_jobs_know_their_group() {
    let (plane, admin) = plane_with(|builder| {
        builder.with(|options| {
            options.feature_gates = vec!["GenericWorkload=true".into()];
            options.runtime_config = vec!["scheduling.k8s.io/v1alpha2=true".into()];
        })
    })
    .await;
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}});
    let accounts = "/api/v1/namespaces/default/serviceaccounts";
    let made = admin.post(accounts, &account).await.status;
    assert!(matches!(made, 201 | 409));
    let kept = admin.post(PODS, &pod("p")).await.expect(201);
    assert_eq!(kept["spec"]["schedulingGroup"], json!({"podGroupName": "g"}));
    let mut odd = pod("q");
    odd["spec"]["schedulingGroup"] = json!({});
    let refused = admin.post(PODS, &odd).await.expect(422);
    assert_eq!(
        refused["details"]["causes"][0]["field"],
        "spec.schedulingGroup.podGroupName"
    );

    let gang = json!({"apiVersion": "scheduling.k8s.io/v1alpha2", "kind": "PodGroup", "metadata": {"name": "g"},
        "spec": {"schedulingPolicy": {"gang": {"minCount": 2}}}});
    admin.post(GROUPS, &gang).await.expect(201);
    let job = json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j"}, "spec": {"parallelism": 2,
        "template": {"spec": {"restartPolicy": "Never", "schedulingGroup": {"podGroupName": "g"},
            "containers": [{"name": "c", "image": "i"}]}}}});
    admin.post(JOBS, &job).await.expect(201);
    let more = json!({"spec": {"parallelism": 3}});
    let refused = admin
        .patch(&format!("{JOBS}/j"), "merge-patch+json", &more)
        .await
        .expect(403);
    assert_eq!(
        refused["message"],
        r#"jobs.batch "j" is forbidden: cannot change parallelism for a Job referencing gang-scheduled PodGroup "g""#
    );
    // By an owner: the Job whose group it is does not have to name it.
    let mut job = job;
    job["metadata"]["name"] = "k".into();
    job["spec"]["template"]["spec"]
        .as_object_mut()
        .expect("a specification")
        .remove("schedulingGroup");
    let made = admin.post(JOBS, &job).await.expect(201);
    admin
        .patch(&format!("{JOBS}/k"), "merge-patch+json", &more)
        .await
        .expect(200);
    let mut owned = gang;
    owned["metadata"] = json!({"name": "h", "ownerReferences": [{"apiVersion": "batch/v1", "kind": "Job", "name": "k",
        "uid": made["metadata"]["uid"], "controller": true}]});
    admin.post(GROUPS, &owned).await.expect(201);
    let less = json!({"spec": {"parallelism": 1}});
    let refused = admin
        .patch(&format!("{JOBS}/k"), "merge-patch+json", &less)
        .await
        .expect(403);
    assert!(
        refused["message"]
            .as_str()
            .is_some_and(|text| text.ends_with(r#"PodGroup "h""#))
    );
    plane.stop().await;
}

#[tokio::test]
async fn groups_need_both_switches() {
    let (plane, admin) = plane_with(|builder| {
        builder.with(|options| options.runtime_config = vec!["scheduling.k8s.io/v1alpha2=true".into()])
    })
    .await;
    admin.get(GROUPS).await.expect(404);
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}});
    let made = admin
        .post("/api/v1/namespaces/default/serviceaccounts", &account)
        .await
        .status;
    assert!(matches!(made, 201 | 409));
    let dropped = admin.post(PODS, &pod("p")).await.expect(201);
    assert!(dropped["spec"].get("schedulingGroup").is_none());
    plane.stop().await;

    let (plane, admin) = plane_with(|builder| {
        builder.with(|options| options.feature_gates = vec!["GenericWorkload=true".into()])
    })
    .await;
    admin.get(GROUPS).await.expect(404);
    let versions = admin.get("/apis/scheduling.k8s.io").await.expect(200);
    assert_eq!(versions["versions"].as_array().map(Vec::len), Some(1));
    plane.stop().await;
}
