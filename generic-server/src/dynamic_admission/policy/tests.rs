use serde_json::json;

use super::*;
use crate::authz::AlwaysAllow;
use crate::cpu::Pool;
use crate::dynamic_admission::tests::{create, entry, not_ready, snapshot};

/// A policy that denies all creates of a resource.
fn denies(name: &str, resource: &str, revision: u64) -> Arc<Entry> {
    let rules = json!([{"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": [resource]}]);
    let spec = json!({"matchConstraints": {"resourceRules": rules},
        "validations": [{"expression": "false", "message": format!("{name} says no")}]});
    entry(
        json!({"metadata": {"name": name, "uid": name, "generation": 1}, "spec": spec}),
        revision,
    )
}

fn binding(policy: &str) -> Arc<Entry> {
    entry(
        json!({"metadata": {"name": policy}, "spec": {"policyName": policy, "validationActions": ["Deny"]}}),
        1,
    )
}

fn policies() -> (Arc<Policies>, Compiler) {
    let compiler = Compiler::of(Pool::new(1));
    let plugin = Policies::with(
        Phase::Validating,
        Arc::new(Directory::default()),
        Arc::new(AlwaysAllow),
        Arc::default(),
        compiler.clone(),
    );
    plugin.take_bindings(&snapshot(&[binding("a"), binding("b")]));
    (plugin, compiler)
}

async fn answer(plugin: &Arc<Policies>, resource: &str) -> Option<(u16, String)> {
    let refused = create(plugin.clone(), "", resource).await.err()?;
    Some((refused.code(), refused.message().to_string()))
}

fn denied(resource: &str, policy: &str) -> Option<(u16, String)> {
    let text = format!(
        "{resource} \"one\" is forbidden: ValidatingAdmissionPolicy '{policy}' with binding '{policy}' denied request: {policy} says no"
    );
    Some((422, text))
}

#[tokio::test(start_paused = true)]
async fn a_policy_being_compiled_delays_only_writes_that_match() {
    let (plugin, compiler) = policies();
    plugin.take_policies(&snapshot(&[denies("a", "secrets", 1)]));
    assert_eq!(answer(&plugin, "secrets").await, denied("secrets", "a"));

    let held = compiler.hold();
    plugin.take_policies(&snapshot(&[
        denies("a", "secrets", 1),
        denies("b", "configmaps", 2),
    ]));
    assert_eq!(answer(&plugin, "pods").await, None);
    assert_eq!(answer(&plugin, "secrets").await, denied("secrets", "a"));
    assert_eq!(answer(&plugin, "configmaps").await, Some(not_ready("configmaps")));

    let waiting = tokio::spawn({
        let plugin = plugin.clone();
        async move { answer(&plugin, "configmaps").await }
    });
    tokio::task::yield_now().await;
    drop(held);
    assert_eq!(waiting.await.unwrap(), denied("configmaps", "b"));
}

#[tokio::test(start_paused = true)]
async fn a_changed_policy_is_compiled_again() {
    let (plugin, compiler) = policies();
    plugin.take_policies(&snapshot(&[denies("a", "secrets", 1)]));
    assert_eq!(answer(&plugin, "secrets").await, denied("secrets", "a"));

    let held = compiler.hold();
    // Its status has changed.
    plugin.take_policies(&snapshot(&[denies("a", "secrets", 2)]));
    assert_eq!(answer(&plugin, "secrets").await, denied("secrets", "a"));
    let with = |key: &str, value: Value| {
        let mut changed = denies("a", "secrets", 3).value();
        changed["metadata"][key] = value;
        snapshot(&[entry(changed, 3)])
    };
    for (key, value) in [
        ("generation", json!(2)),
        ("uid", json!("other")),
        ("generation", json!(0)),
    ] {
        plugin.take_policies(&with(key, value));
        assert_eq!(answer(&plugin, "secrets").await, Some(not_ready("secrets")));
    }
    drop(held);
    assert_eq!(answer(&plugin, "secrets").await, denied("secrets", "a"));
}

#[tokio::test(start_paused = true)]
async fn a_policy_that_has_gone_is_not_compiled() {
    let (plugin, compiler) = policies();
    let held = compiler.hold();
    plugin.take_policies(&snapshot(&[denies("a", "secrets", 1)]));
    let rules = plugin.active.get().map(|active| active[0].policy.rules.clone());
    plugin.take_policies(&snapshot(&[]));
    drop(held);
    assert!(rules.is_some_and(|rules| !rules.is_synced()));
    assert_eq!(answer(&plugin, "secrets").await, None);
    let all = compiler.hold();
    drop(all);
}
