//! Lists: rows of Tables that depend on more than the object as it is served, and selectors by field.

use serde_json::{Value, json};
use test_support::plane;

const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";

#[tokio::test]
async fn rows_tell_what_is_stored_and_which_pods_have_run() {
    let (plane, admin) = plane().await;
    let table = admin.clone().header("accept", TABLE);
    let row = |path: &'static str| {
        let table = table.clone();
        async move {
            let table: Value = table.get(path).await.expect(200);
            let rows = table["rows"].as_array().cloned().expect("rows");
            rows.into_iter().next().expect("a row")
        }
    };

    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}});
    let accounts = "/api/v1/namespaces/default/serviceaccounts";
    assert!(matches!(admin.post(accounts, &account).await.status, 201 | 409));
    let pods = "/api/v1/namespaces/default/pods";
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"},
        "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let mut pod = admin.post(pods, &pod).await.expect(201);
    assert_eq!(row(pods).await.get("conditions"), None);
    pod["status"]["phase"] = "Succeeded".into();
    let status = "/api/v1/namespaces/default/pods/p/status";
    admin.put(status, &pod).await.expect(200);
    let expected = json!([{"type": "Completed", "status": "True", "reason": "Succeeded",
        "message": "The pod has completed successfully."}]);
    for path in [pods, "/api/v1/namespaces/default/pods/p"] {
        let row = row(path).await;
        assert_eq!(row["conditions"], expected, "{path}");
        assert_eq!(row["object"]["kind"], "PartialObjectMetadata");
    }

    // The newer version of events has other names for the same fields.
    let event = json!({"apiVersion": "v1", "kind": "Event", "metadata": {"name": "e"}, "reason": "R", "type": "Normal",
        "involvedObject": {"kind": "Pod", "name": "p", "namespace": "default"}, "message": "m", "count": 3,
        "lastTimestamp": "2020-01-01T00:00:00Z", "source": {"component": "c", "host": "h"}});
    let core = "/api/v1/namespaces/default/events";
    admin.post(core, &event).await.expect(201);
    let cells = row(core).await["cells"].clone();
    assert_eq!(cells[5], "c, h");
    assert_eq!(cells[8], 3);
    assert_eq!(
        row("/apis/events.k8s.io/v1/namespaces/default/events").await["cells"],
        cells
    );

    // The older version of autoscalers has one metric.
    let resource =
        |name: &str, target: Value| json!({"type": "Resource", "resource": {"name": name, "target": target}});
    let scaler = json!({"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": {"name": "h"}, "spec": {
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"}, "maxReplicas": 3, "metrics": [
            resource("cpu", json!({"type": "Utilization", "averageUtilization": 50})),
            resource("memory", json!({"type": "AverageValue", "averageValue": "1Gi"}))]}});
    let scalers = "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers";
    let mut scaler = admin.post(scalers, &scaler).await.expect(201);
    scaler["status"] = json!({"currentReplicas": 1, "desiredReplicas": 1, "currentMetrics": [
        {"type": "Resource", "resource": {"name": "cpu", "current": {}}},
        {"type": "Resource", "resource": {"name": "memory", "current": {}}}]});
    admin
        .put(&format!("{scalers}/h/status"), &scaler)
        .await
        .expect(200);
    let old = "/apis/autoscaling/v1/namespaces/default/horizontalpodautoscalers";
    let cells = row(scalers).await["cells"].clone();
    assert_eq!(cells[2], "cpu: <unknown>/50%, memory: <nil>/1Gi");
    // The conversion to the older version and back puts the metric of that version last.
    let cells = row(old).await["cells"].clone();
    assert_eq!(cells[2], "memory: <nil>/1Gi, cpu: <unknown>/50%");
    plane.stop().await;
}

#[tokio::test]
async fn unknown_fields_are_refused_in_upstreams_words() {
    let (plane, client) = plane().await;
    let refused = [
        (
            "/apis/batch/v1/jobs",
            "spec.x",
            "field label \"spec.x\" not supported for Job",
        ),
        (
            "/apis/apps/v1/replicasets",
            "status.replicas",
            "\"status.replicas\" is not a known field selector: only \"metadata.name\", \"metadata.namespace\"",
        ),
        (
            "/apis/resource.k8s.io/v1/resourceslices",
            "metadata.namespace",
            "field label not supported for resource.k8s.io/v1, Kind=ResourceSlice: metadata.namespace",
        ),
        ("/api/v1/pods", "spec.x", "field label not supported: spec.x"),
    ];
    for (path, field, text) in refused {
        let answer = client
            .get(&format!("{path}?fieldSelector={field}%3Da"))
            .await
            .expect(400);
        assert_eq!(answer["message"], text, "{path}");
        // An operator alone selects everything.
        client.get(&format!("{path}?fieldSelector=%3D")).await.expect(200);
    }
    for field in ["spec.driver", "spec.nodeName", "metadata.name"] {
        let path = "/apis/resource.k8s.io/v1/resourceslices";
        client
            .get(&format!("{path}?fieldSelector={field}%3Da"))
            .await
            .expect(200);
    }
    plane.stop().await;
}
