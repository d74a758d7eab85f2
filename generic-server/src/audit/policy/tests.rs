use super::*;
use crate::request::User;
use crate::request::audit::Stage;

fn policy(text: &str) -> Result<Policy, String> {
    let text = format!("{{apiVersion: audit.k8s.io/v1, kind: Policy, {text}}}");
    Policy::parse(text.as_bytes()).map(|(policy, _)| policy)
}

fn user(name: &str, group: &str) -> User {
    User {
        name: name.into(),
        groups: vec![group.into()],
        ..User::default()
    }
}

#[test]
fn the_first_rule_that_matches_decides() {
    #[track_caller]
    fn check(rule: &str, matches: bool) {
        let policy = policy(&format!(
            "rules: [{{level: Request, {rule}}}, {{level: Metadata}}]"
        ))
        .unwrap();
        let alice = user("alice", "dev");
        let request = Attributes {
            user: &alice,
            verb: "get",
            is_resource: true,
            group: "apps",
            version: "v1",
            resource: "deployments",
            subresource: "scale",
            namespace: "ns",
            name: "web",
            path: "/apis/apps/v1/namespaces/ns/deployments/web/scale",
            field_selector: "",
            label_selector: "",
        };
        let expected = if matches { Level::Request } else { Level::Metadata };
        assert_eq!(policy.evaluate(&request, true).level, expected, "{rule}");
    }
    check("users: [alice]", true);
    check("users: [bob]", false);
    check("userGroups: [qa, dev]", true);
    check("userGroups: [qa]", false);
    check("verbs: [get]", true);
    check("verbs: [list]", false);
    check("namespaces: [ns]", true);
    check("namespaces: ['']", false);
    check("resources: [{group: apps}]", true);
    check("resources: [{group: '*'}]", true);
    check("resources: [{group: ''}]", false);
    let resources = |list: &str| format!("resources: [{{group: apps, resources: [{list}]}}]");
    check(&resources("deployments"), false);
    check(&resources("deployments/scale"), true);
    check(&resources("deployments/*"), true);
    check(&resources("'*/scale'"), true);
    check(&resources("'*'"), true);
    check(&resources("'*/status'"), false);
    check(
        "resources: [{group: apps, resources: ['*'], resourceNames: [web]}]",
        true,
    );
    check(
        "resources: [{group: apps, resources: ['*'], resourceNames: [db]}]",
        false,
    );
    check("nonResourceURLs: ['*']", false);
    check("users: [alice], verbs: [list]", false);
}

#[test]
fn paths_outside_the_api() {
    #[track_caller]
    fn check(path: &str, pattern: &str, matches: bool) {
        let policy = policy(&format!(
            "rules: [{{level: Metadata, nonResourceURLs: ['{pattern}']}}]"
        ))
        .unwrap();
        let nobody = User::default();
        let request = Attributes {
            user: &nobody,
            verb: "get",
            is_resource: false,
            path,
            group: "",
            version: "",
            resource: "",
            subresource: "",
            namespace: "",
            name: "",
            field_selector: "",
            label_selector: "",
        };
        let found = policy.evaluate(&request, false).level == Level::Metadata;
        assert_eq!(found, matches, "{path} {pattern}");
    }
    check("/healthz/etcd", "/healthz*", true);
    check("/healthz", "/healthz", true);
    check("/healthz/etcd", "/healthz", false);
    check("/readyz", "/healthz*", false);
    check("/readyz", "*", true);
}

#[test]
fn stages_and_managed_fields_are_left_out_by_rule_and_in_all() {
    let all = "omitStages: [RequestReceived], omitManagedFields: true";
    let rules = "rules: [{level: Request, users: [a], omitStages: [Panic], omitManagedFields: false}, {level: Request}]";
    let policy = policy(&format!("{all}, {rules}")).unwrap();
    let omitted = |rule: usize| {
        let verdict = policy.rules[rule].verdict;
        let stages = Stage::ALL.into_iter().filter(|stage| verdict.omitted.has(*stage));
        let stages: Vec<_> = stages.map(Stage::name).collect();
        (stages.join(","), verdict.without_managed_fields)
    };
    assert_eq!(omitted(0), ("RequestReceived,Panic".to_string(), false));
    assert_eq!(omitted(1), ("RequestReceived".to_string(), true));
}

#[test]
fn faults_are_named_in_upstreams_words() {
    #[track_caller]
    fn check(text: &str, expected: &str) {
        assert_eq!(policy(text).unwrap_err(), expected, "{text}");
    }
    check("rules: []", "loaded illegal policy with 0 rules");
    check("rules: [{}]", "rules[0].level: Required value");
    check(
        "rules: [{level: All}]",
        r#"rules[0].level: Unsupported value: "All": supported values: "None", "Metadata", "Request", "RequestResponse""#,
    );
    check(
        "rules: [{level: None, nonResourceURLs: [logs, '/a*b', '*']}]",
        r#"[rules[0].nonResourceURLs[0]: Invalid value: "logs": non-resource URL rules must begin with a '/' character, rules[0].nonResourceURLs[1]: Invalid value: "/a*b": non-resource URL wildcards '*' must be the final character of the rule]"#,
    );
    check(
        "rules: [{level: None, nonResourceURLs: [/a], namespaces: [b]}]",
        r#"rules[0].nonResourceURLs: Invalid value: ["/a"]: rules cannot apply to both regular resources and non-resource URLs"#,
    );
    check(
        "rules: [{level: None, resources: [{group: '', resourceNames: [a]}]}]",
        r#"rules[0].resources.resourceNames: Invalid value: ["a"]: using resourceNames requires at least one resource"#,
    );
    check(
        "rules: [{level: None, omitStages: [Never]}]",
        r#"rules[0].omitStages[0]: Invalid value: "Never": allowed stages are RequestReceived,ResponseStarted,ResponseComplete,Panic"#,
    );
    let whole = |text: &str| Policy::parse(text.as_bytes()).unwrap_err();
    assert_eq!(whole("rules: []"), "failed decoding: Object 'Kind' is missing");
    assert_eq!(
        whole("{apiVersion: audit.k8s.io/v1beta1, kind: Policy}"),
        r#"failed decoding: no kind "Policy" is registered for version "audit.k8s.io/v1beta1""#
    );
    assert!(whole("{apiVersion: audit.k8s.io/v1, kind: Policy, rules: 3}").starts_with("failed decoding: "));
}

#[test]
fn unknown_fields_are_named_and_passed_over() {
    let text = "{apiVersion: audit.k8s.io/v1, kind: Policy, x: 1, rules: [{level: None, user: [a], resources: [{groups: b}]}]}";
    let (_, faults) = Policy::parse(text.as_bytes()).unwrap();
    let expected =
        r#"unknown field "x", unknown field "rules[0].user", unknown field "rules[0].resources[0].groups""#;
    assert_eq!(faults.as_deref(), Some(expected));
}
