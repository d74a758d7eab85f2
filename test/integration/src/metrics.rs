//! The list of metrics: every metric of the catalogue is served with its type, labels and buckets, and nothing else is.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use control_plane::ControlPlane;
use generic_server::metrics::catalogue::{self, Metric, Stability};
use serde_json::json;
use test_support::{Client, Watch, plane, plane_with};

const PAGE: &str = "../../docs/metrics.md";
const VARIABLE: &str = "UPDATE_REFERENCE";
/// Where the part of the page begins that is made of the catalogue.
const HEADING: &str = "## The metrics\n";

/// Metrics that a server in memory without configuration files does not show: what they are about is not there, or does not happen in this
/// test. They are shown by the tests of what they are about.
const ELSEWHERE: &[&str] = &[
    "aggregator_proxy_failures_total",
    "aggregator_proxy_refused_total",
    "aggregator_proxy_request_duration_seconds",
    "aggregator_proxy_requests_in_flight",
    "aggregator_proxy_requests_total",
    "aggregator_unavailable_apiservice",
    "apiserver_admission_match_condition_evaluation_errors_total",
    "apiserver_admission_match_condition_exclusions_total",
    "apiserver_admission_webhook_break_glass_count",
    "apiserver_admission_webhook_rejection_count",
    "apiserver_audit_error_total",
    "apiserver_audit_event_total",
    "apiserver_audit_level_total",
    "apiserver_audit_requests_rejected_total",
    "apiserver_authentication_config_controller_automatic_reload_last_timestamp_seconds",
    "apiserver_authentication_config_controller_automatic_reloads_total",
    "apiserver_authentication_config_controller_last_config_info",
    "apiserver_authentication_jwt_authenticator_jwks_fetch_last_key_set_info",
    "apiserver_authentication_jwt_authenticator_jwks_fetch_last_timestamp_seconds",
    "apiserver_authentication_jwt_authenticator_latency_seconds",
    "apiserver_authorization_config_controller_automatic_reload_last_timestamp_seconds",
    "apiserver_authorization_config_controller_automatic_reloads_total",
    "apiserver_authorization_config_controller_last_config_info",
    "apiserver_authorization_decisions_total",
    "apiserver_authorization_match_condition_evaluation_errors_total",
    "apiserver_authorization_match_condition_evaluation_seconds",
    "apiserver_authorization_match_condition_exclusions_total",
    "apiserver_authorization_webhook_duration_seconds",
    "apiserver_authorization_webhook_evaluations_fail_open_total",
    "apiserver_authorization_webhook_evaluations_total",
    "apiserver_egress_dialer_dial_duration_seconds",
    "apiserver_egress_dialer_dial_failure_count",
    "apiserver_egress_dialer_dial_start_total",
    "apiserver_encryption_config_controller_automatic_reload_last_timestamp_seconds",
    "apiserver_encryption_config_controller_automatic_reloads_total",
    "apiserver_encryption_config_controller_last_config_info",
    "apiserver_envelope_encryption_dek_source_cache_size",
    "apiserver_externaljwt_fetch_keys_data_timestamp",
    "apiserver_externaljwt_fetch_keys_request_total",
    "apiserver_externaljwt_fetch_keys_success_timestamp",
    "apiserver_externaljwt_request_duration_seconds",
    "apiserver_externaljwt_sign_request_total",
    "apiserver_flowcontrol_next_discounted_s_bounds",
    "apiserver_flowcontrol_next_s_bounds",
    "apiserver_flowcontrol_rejected_requests_total",
    "apiserver_flowcontrol_request_dispatch_no_accommodation_total",
    "apiserver_impersonation_attempts_duration_seconds",
    "apiserver_impersonation_attempts_total",
    "apiserver_impersonation_authorization_attempts_duration_seconds",
    "apiserver_impersonation_authorization_attempts_total",
    "apiserver_init_events_total",
    "apiserver_manifest_admission_config_controller_automatic_reload_last_timestamp_seconds",
    "apiserver_manifest_admission_config_controller_automatic_reloads_total",
    "apiserver_manifest_admission_config_controller_last_config_info",
    "apiserver_mutating_admission_policy_check_duration_seconds",
    "apiserver_mutating_admission_policy_check_total",
    "apiserver_request_aborts_total",
    "apiserver_request_terminations_total",
    "apiserver_selfrequest_total",
    "apiserver_storage_damaged_objects",
    "apiserver_storage_decode_errors_total",
    "apiserver_storage_transformation_operations_total",
    "apiserver_stream_translator_requests_total",
    "apiserver_stream_tunnel_requests_total",
    "apiserver_terminated_watchers_total",
    "apiserver_token_lookups_shed_total",
    "apiserver_websocket_streaming_requests_total",
    "authentication_token_cache_request_duration_seconds",
    "authentication_token_cache_request_total",
    "etcd_request_errors_total",
    "node_authorizer_graph_actions_duration_seconds",
    "pod_security_errors_total",
];

/// Metrics of what may happen here or not.
const SOMETIMES: &[&str] = &["apiserver_watch_cache_read_wait_seconds"];

/// A family as it is served.
#[derive(Debug, Default)]
struct Family {
    kind: String,
    /// The names of the labels of each sample, without those of histograms and summaries.
    labels: BTreeSet<BTreeSet<String>>,
    /// The bounds of the buckets, by the other labels.
    buckets: BTreeMap<String, Vec<String>>,
}

fn families(document: &str) -> BTreeMap<String, Family> {
    let mut families: BTreeMap<String, Family> = BTreeMap::new();
    let mut current = String::new();
    for line in document.lines() {
        if let Some(help) = line.strip_prefix("# HELP ") {
            current = help.split(' ').next().unwrap_or_default().to_owned();
            let again = families.insert(current.clone(), Family::default());
            assert!(again.is_none(), "{current} has two families");
            continue;
        }
        let family = families.get_mut(&current).expect("a family before its samples");
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            family.kind = rest.split(' ').nth(1).unwrap_or_default().to_owned();
            continue;
        }
        let (series, _) = line.rsplit_once(' ').expect("a value");
        let (name, labels) = series.split_once('{').unwrap_or((series, ""));
        let suffix = name
            .strip_prefix(current.as_str())
            .expect("a sample of its family");
        let allowed: &[&str] = match family.kind.as_str() {
            "histogram" => &["_bucket", "_sum", "_count"],
            "summary" => &["", "_sum", "_count"],
            _ => &[""],
        };
        assert!(allowed.contains(&suffix), "{line} in {current}");
        let pairs: Vec<(&str, &str)> = labels
            .trim_end_matches("\"}")
            .split("\",")
            .filter_map(|pair| pair.split_once("=\""))
            .collect();
        let own = |(name, _): &&(&str, &str)| !["le", "quantile"].contains(name);
        let names = pairs
            .iter()
            .filter(own)
            .map(|(name, _)| (*name).to_owned())
            .collect();
        family.labels.insert(names);
        if let Some((_, bound)) = pairs.iter().find(|(name, _)| *name == "le") {
            let others: Vec<String> = pairs
                .iter()
                .filter(own)
                .map(|(name, value)| format!("{name}={value}"))
                .collect();
            family
                .buckets
                .entry(others.join(","))
                .or_default()
                .push((*bound).to_owned());
        }
    }
    families
}

/// The faults of a family.
fn faults(name: &str, family: &Family, metric: &Metric) -> Vec<String> {
    let mut faults = Vec::new();
    if family.kind != metric.kind {
        faults.push(format!("{name} is a {}, not a {}", family.kind, metric.kind));
    }
    let labels: BTreeSet<String> = metric.labels.iter().map(|label| (*label).to_owned()).collect();
    for found in family.labels.iter().filter(|found| **found != labels) {
        faults.push(format!("{name} has the labels {found:?}, not {labels:?}"));
    }
    let bounds: Vec<&str> = metric.buckets.iter().copied().chain(["+Inf"]).collect();
    if let Some(found) = family.buckets.values().find(|found| **found != bounds) {
        faults.push(format!("{name} has the buckets {found:?}, not {bounds:?}"));
    }
    faults
}

/// Has the server do something of everything. The watch goes on while it is held.
async fn use_it(client: &Client) -> Watch {
    let maps = "/api/v1/namespaces/default/configmaps";
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"k": "v"}});
    client.post(maps, &map).await.expect(201);
    client.post(maps, &map).await.expect(409);
    client.put(&format!("{maps}/a"), &map).await.expect(200);
    client
        .patch(
            &format!("{maps}/a"),
            "merge-patch+json",
            &json!({"data": {"k": "w"}}),
        )
        .await
        .expect(200);
    client.get(&format!("{maps}/a")).await.expect(200);
    client.get(maps).await.expect(200);
    let mut watch = client
        .watch(&format!(
            "{maps}?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
        ))
        .await;
    watch.next().await.expect("an event");
    client.delete(&format!("{maps}/a")).await.expect(200);
    client.get("/api/v1/componentstatuses").await;
    client
        .get("/api/v1/nodes?fieldSelector=metadata.name%3Da")
        .await
        .expect(200);
    client
        .get("/api/v1/pods?fieldSelector=spec.nodeName%3Da")
        .await
        .expect(200);
    client.get("/livez").await;
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "rules.example.com"},
        "spec": {"group": "example.com", "scope": "Cluster", "names": {"plural": "rules", "singular": "rule", "kind": "Rule"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {
                "type": "object", "properties": {"spec": {"type": "object", "properties": {"n": {"type": "integer"}},
                    "x-kubernetes-validations": [{"rule": "self.n > 0"}]}}}}}]},
    });
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    client.post(definitions, &definition).await.expect(201);
    let object =
        json!({"apiVersion": "example.com/v1", "kind": "Rule", "metadata": {"name": "a"}, "spec": {"n": 1}});
    client
        .post("/apis/example.com/v1/rules", &object)
        .await
        .expect(201);
    watch
}

/// Has a webhook that is away and a policy look at what is created.
async fn admit(client: &Client) {
    let rules = json!([{"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["secrets"]}]);
    let hooks = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": "away"}, "webhooks": [{"name": "away.example.com", "clientConfig": {"url": "https://127.0.0.1:1/"},
            "rules": rules, "sideEffects": "None", "admissionReviewVersions": ["v1"], "failurePolicy": "Ignore",
            "matchConditions": [{"name": "all", "expression": "true"}]}]});
    let group = "/apis/admissionregistration.k8s.io/v1";
    client
        .post(&format!("{group}/validatingwebhookconfigurations"), &hooks)
        .await
        .expect(201);
    let policy = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": "all"}, "spec": {"matchConstraints": {"resourceRules": rules}, "validations": [{"expression": "true"}]}});
    client
        .post(&format!("{group}/validatingadmissionpolicies"), &policy)
        .await
        .expect(201);
    let binding = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": "all"}, "spec": {"policyName": "all", "validationActions": ["Deny"]}});
    client
        .post(&format!("{group}/validatingadmissionpolicybindings"), &binding)
        .await
        .expect(201);
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a"}});
    client
        .post("/api/v1/namespaces/default/secrets", &secret)
        .await
        .expect(201);
}

async fn document(client: &Client, path: &str) -> String {
    String::from_utf8_lossy(&client.get(path).await.body).into_owned()
}

#[tokio::test]
async fn every_metric_has_its_type_labels_and_buckets() {
    let dir = tempfile::tempdir().expect("a directory");
    // A store with files, whose size is a metric.
    let builder = ControlPlane::builder()
        .on_free_port()
        .data_dir(dir.path())
        .with(|options| options.metrics.show_hidden_metrics_for_version = "1.35".into());
    let plane = builder.start().await.expect("the control plane starts");
    let client = Client::from_kubeconfig(plane.kubeconfig().as_bytes());
    let _watch = use_it(&client).await;
    admit(&client).await;
    // Administrators never wait for a seat.
    let stranger = client.anonymous(plane.ca_certificate());
    stranger.get("/api/v1/namespaces/default/pods").await.expect(403);
    let mut served = families(&document(&client, "/metrics").await);
    let slis = families(&document(&client, "/metrics/slis").await);
    served.extend(
        slis.into_iter()
            .filter(|(name, _)| name.starts_with("kubernetes_health")),
    );
    let mut found = Vec::new();
    for (name, family) in &served {
        match catalogue::find(name) {
            Some(metric) => found.extend(faults(name, family, metric)),
            None => found.push(format!(
                "{name} {} {:?} {:?} is not in the catalogue",
                family.kind,
                family.labels,
                family.buckets.values().next()
            )),
        }
    }
    let certain = |metric: &&Metric| !SOMETIMES.contains(&metric.name);
    for metric in catalogue::all().iter().filter(certain) {
        // A family without samples says nothing of its labels.
        let shown = served
            .get(metric.name)
            .is_some_and(|family| !family.labels.is_empty());
        match (shown, ELSEWHERE.contains(&metric.name)) {
            (true, true) => found.push(format!("{} is shown here, too", metric.name)),
            (false, false) => found.push(format!("{} is not shown", metric.name)),
            (true, false) | (false, true) => {}
        }
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
    plane.stop().await;
}

#[tokio::test]
async fn metrics_are_hidden_disabled_and_restricted() {
    let (_plane, client) = plane_with(|builder| {
        builder.with(|options| {
            options.metrics.disabled_metrics = vec![
                "apiserver_longrunning_requests".into(),
                "kubernetes_healthcheck".into(),
            ];
            options.metrics.allow_metric_labels = vec!["apiserver_request_total,verb=GET,POST".into()];
        })
    })
    .await;
    let maps = "/api/v1/namespaces/default/configmaps";
    client.get(maps).await.expect(200);
    client.get(&format!("{maps}/a")).await.expect(404);
    client.get("/livez").await;
    let metrics = document(&client, "/metrics").await;
    let has = |text: &str| metrics.contains(text);
    assert!(!has("apiserver_longrunning_requests"), "{metrics}");
    // Deprecated too long ago.
    assert!(!has("apiserver_request_slo_duration_seconds"), "{metrics}");
    assert!(
        has("# HELP apiserver_storage_objects [STABLE] (Deprecated since 1.34.0) "),
        "{metrics}"
    );
    assert!(has("\ndisabled_metrics_total 2\n"), "{metrics}");
    let totals: Vec<&str> = metrics
        .lines()
        .filter(|line| line.starts_with("apiserver_request_total{"))
        .collect();
    assert!(
        totals.iter().any(|line| line.contains("verb=\"unexpected\"")),
        "{totals:?}"
    );
    assert!(
        totals.iter().any(|line| line.contains("verb=\"GET\"")),
        "{totals:?}"
    );
    assert!(
        !totals.iter().any(|line| line.contains("verb=\"LIST\"")),
        "{totals:?}"
    );
    assert!(
        !has("\ncardinality_enforcement_unexpected_categorizations_total 0\n"),
        "{metrics}"
    );
    let slis = document(&client, "/metrics/slis").await;
    assert!(
        slis.contains("# HELP kubernetes_healthchecks_total [STABLE] "),
        "{slis}"
    );
    assert!(!slis.contains("\nkubernetes_healthcheck{"), "{slis}");
}

#[tokio::test]
async fn requests_are_counted_by_what_became_of_them() {
    let (_plane, client) = plane().await;
    let _watch = use_it(&client).await;
    let metrics = document(&client, "/metrics").await;
    for line in [
        "apiserver_requested_deprecated_apis{group=\"\",version=\"v1\",resource=\"componentstatuses\",subresource=\"\",removed_release=\"\"} 1",
        "apiserver_request_body_size_bytes_count{group=\"\",resource=\"configmaps\",verb=\"create\"} 2",
        "apiserver_cel_compilation_duration_seconds_count 1",
        "apiserver_cel_evaluation_duration_seconds_count 1",
        "apiserver_watch_list_duration_seconds_count{group=\"\",version=\"v1\",resource=\"configmaps\",scope=\"namespace\"} 1",
        "kubernetes_feature_enabled{name=\"ComponentFlagz\",stage=\"BETA\"} 1",
    ] {
        assert!(metrics.lines().any(|known| known == line), "{line}\n{metrics}");
    }
}

/// The generated part of the page.
fn reference() -> String {
    let mut page = format!(
        "{HEADING}\nMade from `generic-server/src/metrics/catalogue.txt`: `UPDATE_REFERENCE=1 cargo test -p integration metrics::` writes it, and the test fails\nwhile it is not up to date.\n"
    );
    for (stability, heading) in [
        (Stability::Stable, "Stable"),
        (Stability::Beta, "Beta"),
        (Stability::Alpha, "Alpha"),
        (
            Stability::Library,
            "Of the process, as Prometheus' own client has them",
        ),
        (Stability::Own, "This server's own"),
    ] {
        let _ = write!(
            page,
            "\n### {heading}\n\n| metric | type | labels | buckets |\n|---|---|---|---|\n"
        );
        for metric in catalogue::all()
            .iter()
            .filter(|metric| metric.stability == stability)
        {
            let since = metric.deprecated.map(|since| match metric.is_hidden() {
                true => format!(" (hidden: deprecated since {since})"),
                false => format!(" (deprecated since {since})"),
            });
            let _ = writeln!(
                page,
                "| `{}`{} | {} | {} | {} |",
                metric.name,
                since.unwrap_or_default(),
                metric.kind,
                metric.labels.join(", "),
                metric.buckets.join(", ")
            );
        }
    }
    page
}

#[test]
fn the_page_is_up_to_date() {
    let file = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(PAGE);
    let page = std::fs::read_to_string(&file).expect("the page");
    let (written, found) = page.split_at(page.find(HEADING).expect("the heading"));
    let expected = reference();
    if std::env::var_os(VARIABLE).is_some() {
        std::fs::write(&file, format!("{written}{expected}")).expect("the page is written");
        return;
    }
    assert!(
        found == expected,
        "{PAGE} is not up to date: set {VARIABLE} to write it"
    );
}
