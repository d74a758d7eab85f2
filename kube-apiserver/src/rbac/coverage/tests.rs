use serde_json::{Value, json};

use super::*;

fn rule(value: Value) -> PolicyRule {
    PolicyRule::read(&value)
}

/// Compares and gives the number of missing lines and the steps it took.
fn count(held: &[PolicyRule], wanted: &[PolicyRule]) -> (usize, usize) {
    let mut steps = Steps(usize::MAX);
    let held: Vec<&PolicyRule> = held.iter().collect();
    let missing = compare(&held, wanted, &mut steps).unwrap();
    (missing.lines.len() + missing.more, usize::MAX - steps.0)
}

#[test]
fn covering() {
    let held = [
        rule(json!({"verbs": ["get"], "apiGroups": [""], "resources": ["pods", "*/scale"]})),
        rule(json!({"verbs": ["*"], "apiGroups": ["apps"], "resources": ["*"], "resourceNames": ["x"]})),
        rule(json!({"verbs": ["get"], "nonResourceURLs": ["/logs/*", "/only"]})),
        rule(json!({"verbs": ["*"], "nonResourceURLs": ["/named"], "resourceNames": ["x"]})),
    ];
    #[track_caller]
    fn check(held: &[PolicyRule], wanted: Value, missing: usize) {
        assert_eq!(count(held, &[rule(wanted.clone())]).0, missing, "{wanted}");
    }
    check(
        &held,
        json!({"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}),
        0,
    );
    check(
        &held,
        json!({"verbs": ["get", "list"], "apiGroups": [""], "resources": ["pods"]}),
        1,
    );
    check(
        &held,
        json!({"verbs": ["get"], "apiGroups": [""], "resources": ["things/scale", "pods/log"]}),
        1,
    );
    check(
        &held,
        json!({"verbs": ["get"], "apiGroups": [""], "resources": ["pods"], "resourceNames": ["y"]}),
        0,
    );
    check(
        &held,
        json!({"verbs": ["get"], "apiGroups": ["apps"], "resources": ["a"]}),
        1,
    );
    check(
        &held,
        json!({"verbs": ["get"], "apiGroups": ["apps"], "resources": ["a"], "resourceNames": ["x"]}),
        0,
    );
    check(
        &held,
        json!({"verbs": ["get"], "apiGroups": ["apps"], "resources": ["a"], "resourceNames": ["x", "y"]}),
        1,
    );
    check(
        &held,
        json!({"verbs": ["get"], "apiGroups": ["", "x"], "resources": ["*"]}),
        2,
    );
    check(
        &held,
        json!({"verbs": ["get"], "nonResourceURLs": ["/logs/x", "/logs/*", "/other", "/only", "/only/x"]}),
        2,
    );
    check(
        &held,
        json!({"verbs": ["get", "put"], "nonResourceURLs": ["/logs/**", "*"]}),
        3,
    );
    check(&held, json!({"verbs": ["get"], "nonResourceURLs": ["/named"]}), 1);
    check(
        &held,
        json!({"verbs": [], "apiGroups": ["x"], "resources": ["*"], "nonResourceURLs": ["/other"]}),
        0,
    );
    let all = [rule(
        json!({"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}),
    )];
    check(
        &all,
        json!({"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}),
        0,
    );
    check(&all, json!({"verbs": ["get"], "nonResourceURLs": ["/x"]}), 1);
    check(
        &[],
        json!({"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}),
        1,
    );
}

/// Upstream's way: every combination against every held rule.
fn by_definition(held: &[PolicyRule], wanted: &PolicyRule) -> usize {
    let has = |list: &[String], one: &str| list.iter().any(|own| own == "*" || own == one);
    let mut places = HashSet::new();
    for group in &wanted.api_groups {
        for resource in &wanted.resources {
            let names = match wanted.resource_names.as_slice() {
                [] => vec![None],
                names => names.iter().map(Some).collect(),
            };
            for name in names {
                for verb in &wanted.verbs {
                    let covered = held.iter().any(|rule| {
                        let wildcard = resource.split_once('/').map(|(_, sub)| format!("*/{sub}"));
                        has(&rule.verbs, verb)
                            && has(&rule.api_groups, group)
                            && (has(&rule.resources, resource)
                                || wildcard.is_some_and(|wildcard| rule.resources.contains(&wildcard)))
                            && (rule.resource_names.is_empty()
                                || name.is_some_and(|name| rule.resource_names.contains(name)))
                    });
                    if !covered {
                        places.insert((group, resource, name));
                    }
                }
            }
        }
    }
    places.len()
}

#[test]
fn classes_decide_as_single_combinations_do() {
    // A small generator with a fixed seed (the constants of a 64-bit linear congruential generator).
    let mut state = 7u64;
    let mut below = |bound: u64| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % bound
    };
    let mut some = |values: &[&str], empty: bool| -> Vec<String> {
        let mut out: Vec<String> = values
            .iter()
            .filter(|_| below(3) == 0)
            .map(|value| (*value).to_string())
            .collect();
        if out.is_empty() && !empty {
            out.push(values[0].to_string());
        }
        out
    };
    let mut any = || PolicyRule {
        verbs: some(&["get", "list", "put", "*"], false),
        api_groups: some(&["", "apps", "batch", "*"], false),
        resources: some(&["pods", "jobs", "pods/log", "jobs/log", "*/log", "*"], false),
        resource_names: some(&["x", "y"], true),
        non_resource_urls: Vec::new(),
    };
    for round in 0..2_000 {
        let held: Vec<PolicyRule> = (0..4).map(|_| any()).collect();
        let wanted = any();
        let expected = by_definition(&held, &wanted);
        assert_eq!(
            count(&held, std::slice::from_ref(&wanted)).0,
            expected,
            "round {round}: {held:?} {wanted:?}"
        );
    }
}

fn numbered(prefix: &str, count: usize) -> Vec<String> {
    (0..count).map(|index| format!("{prefix}{index}")).collect()
}

#[test]
fn work_follows_the_strings_and_not_their_product() {
    // The rules of a namespace admin, in small: rules of some resources each.
    let held: Vec<PolicyRule> = (0..20)
        .map(|index| {
            rule(
                json!({"verbs": ["get", "list"], "apiGroups": [format!("g{index}")],
                "resources": numbered(&format!("r{index}-"), 10)}),
            )
        })
        .collect();
    let product = |n: usize| {
        rule(
            json!({"verbs": numbered("v", 12), "apiGroups": numbered("x", n), "resources": numbered("y", n),
            "resourceNames": numbered("z", n)}),
        )
    };
    let (missing, steps) = count(&held, &[product(100)]);
    assert_eq!(missing, 1_000_000);
    let (_, twice) = count(&held, &[product(200)]);
    assert!(steps < 2_000 && twice < 2 * steps, "{steps} {twice}");
    // Many rules of few strings, all held.
    let many = |n: usize| -> Vec<PolicyRule> {
        (0..n)
            .map(|index| {
                rule(json!({"verbs": ["get"], "apiGroups": [""], "resources": [format!("r{index}")]}))
            })
            .collect()
    };
    let (missing, steps) = count(&many(1_000), &many(1_000));
    let (_, twice) = count(&many(2_000), &many(2_000));
    assert_eq!(missing, 0);
    assert!(twice <= 2 * steps, "{steps} {twice}");
}

#[test]
fn work_ends_at_its_bound() {
    let wanted = [rule(
        json!({"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}),
    )];
    let steps = count(&[], &wanted).1;
    compare(&[], &wanted, &mut Steps(steps)).unwrap();
    assert_eq!(
        compare(&[], &wanted, &mut Steps(steps - 1)).unwrap_err(),
        TooManySteps
    );
    // Rules that differ in their groups alone, against as many: the product that no class spares.
    let mut many: Vec<PolicyRule> = (0..1_500)
        .map(|index| {
            rule(json!({"verbs": ["get"], "apiGroups": [format!("g{index}")], "resources": ["pods"]}))
        })
        .collect();
    let all_held = many.clone();
    let held: Vec<&PolicyRule> = all_held.iter().collect();
    // A rule without verbs costs its strings and one step, and wants nothing.
    let left = limits::ESCALATION_STEPS - count(&all_held, &many).1 - 1;
    many.push(PolicyRule {
        api_groups: vec![String::new(); left],
        ..PolicyRule::default()
    });
    assert!(missing(&held, &many).unwrap().is_empty());
    many[1_500].api_groups.push(String::new());
    assert_eq!(missing(&held, &many).unwrap_err(), TooManySteps);
}

#[test]
fn a_text_names_so_many_places_and_says_how_many_more() {
    let wide = |n: usize| {
        [rule(
            json!({"verbs": ["get", "put"], "apiGroups": ["g"], "resources": numbered("r", n)}),
        )]
    };
    let at = wide(limits::CAUSES);
    let text = missing(&[], &at).unwrap().describe();
    assert_eq!(text.lines().count(), limits::CAUSES);
    assert!(text.starts_with("{APIGroups:[\"g\"], Resources:[\"r0\"], Verbs:[\"get\" \"put\"]}\n"));
    let past = wide(limits::CAUSES + 1);
    let text = missing(&[], &past).unwrap().describe();
    assert_eq!(text.lines().count(), limits::CAUSES + 1);
    assert!(text.ends_with("\nand 1 more"), "{text}");
    let verbs = [rule(
        json!({"verbs": numbered("v", limits::CAUSES + 1), "apiGroups": ["g"], "resources": ["r"]}),
    )];
    let text = missing(&[], &verbs).unwrap().describe();
    assert!(text.ends_with("\"v99\" ...]}"), "{text}");
    let long = [rule(
        json!({"verbs": ["get"], "apiGroups": numbered(&"g".repeat(9_000), 100), "resources": ["r"]}),
    )];
    let text = missing(&[], &long).unwrap().describe();
    assert!(text.len() <= limits::MESSAGE_BYTES / 2 + 20 && text.ends_with(" more"));
}
