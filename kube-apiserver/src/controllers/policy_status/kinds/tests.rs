use serde_json::json;

use super::*;
use crate::groups::{check, groups};

fn rule(groups: &[&str], versions: &[&str], resources: &[&str]) -> Value {
    json!({"apiGroups": groups, "apiVersions": versions, "resources": resources, "operations": ["*"]})
}

#[tokio::test]
async fn kinds_are_those_that_rules_name() {
    let deps = check::deps();
    let _groups = groups(&deps);
    let check = |rules: &[Value], expected: &[&str]| {
        let policy = json!({"spec": {"matchConstraints": {"resourceRules": rules}}});
        let found = of_policy(&policy, &deps.directory);
        let found: Vec<String> = found.iter().map(ToString::to_string).collect();
        assert_eq!(found, expected, "{rules:?}");
    };
    let deployments = rule(&["apps"], &["v1"], &["deployments"]);
    check(&[], &[]);
    check(std::slice::from_ref(&deployments), &["apps/v1, Kind=Deployment"]);
    check(
        &[rule(&["apps"], &["v1"], &["Deployment"])],
        &["apps/v1, Kind=Deployment"],
    );
    check(
        &[deployments.clone(), rule(&[""], &["v1"], &["pods"])],
        &["/v1, Kind=Pod", "apps/v1, Kind=Deployment"],
    );
    check(&[rule(&["apps"], &["v1"], &["*"])], &[]);
    check(&[rule(&["apps"], &["v1"], &["deployments/scale", "pods/*"])], &[]);
    check(&[rule(&["apps"], &["*"], &["deployments"])], &[]);
    check(&[rule(&["*"], &["v1"], &["deployments"])], &[]);
    check(
        &[rule(&["apps"], &["*"], &["deployments"]), deployments],
        &["apps/v1, Kind=Deployment"],
    );
    check(&[rule(&["nobody.example.com"], &["v1"], &["pods"])], &[]);
    // Without a group those of all groups are found, as upstream's mapper does.
    check(
        &[rule(&[""], &["v1"], &["events"])],
        &["/v1, Kind=Event", "events.k8s.io/v1, Kind=Event"],
    );
    check(
        &[rule(&["autoscaling"], &["v1"], &["horizontalpodautoscalers"])],
        &["autoscaling/v1, Kind=HorizontalPodAutoscaler"],
    );
    check(
        &[rule(
            &["authorization.k8s.io"],
            &["v1"],
            &["subjectaccessreviews"],
        )],
        &["authorization.k8s.io/v1, Kind=SubjectAccessReview"],
    );
    let core = [
        "pods",
        "secrets",
        "services",
        "nodes",
        "namespaces",
        "endpoints",
        "configmaps",
        "serviceaccounts",
    ];
    let many: Vec<&str> = core
        .iter()
        .copied()
        .chain(["limitranges", "resourcequotas", "persistentvolumes"])
        .collect();
    let policy = json!({"spec": {"matchConstraints": {"resourceRules": [rule(&[""], &["v1"], &many)]}}});
    assert_eq!(of_policy(&policy, &deps.directory).len(), MOST_KINDS);
}
