use serde_json::json;

use super::*;
use crate::authz::AlwaysAllow;
use crate::client::egress::EgressSelector;
use crate::cpu::{self, Pool};
use crate::dynamic_admission::tests::{create, entry, not_ready, snapshot};

#[tokio::test(start_paused = true)]
async fn conditions_being_compiled_delay_only_writes_that_match() {
    let compiler = Compiler::of(Pool::new(1));
    let directory = Arc::new(Directory::default());
    let plugin = Webhooks::with(
        Phase::Validating,
        Services::new(directory, EgressSelector::default()),
        Arc::new(AlwaysAllow),
        WebhookUsers::default(),
        Arc::default(),
        compiler.clone(),
    );
    let rules = |resource: &str| json!([{"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": [resource]}]);
    let conditions = json!([{"name": "never", "expression": "false"}]);
    let configuration = |revision: u64, hooks: Value| {
        entry(
            json!({"metadata": {"name": format!("c{revision}")}, "webhooks": hooks}),
            revision,
        )
    };
    let entries = [
        configuration(1, json!([{"name": "a.b.c", "rules": rules("pods")}])),
        configuration(
            2,
            json!([{"name": "d.e.f", "rules": rules("configmaps"), "matchConditions": conditions}]),
        ),
    ];
    let held = compiler.hold();
    plugin.take(&snapshot(&entries));
    let answer = async |resource: &str| {
        let refused = create(plugin.clone(), "", resource).await.err()?;
        Some((refused.code(), refused.message().to_string()))
    };
    assert_eq!(answer("secrets").await, None);
    assert_eq!(answer("configmaps").await, Some(not_ready("configmaps")));
    // Without conditions nothing is waited for: it is asked, and cannot be.
    assert_eq!(answer("pods").await.map(|(code, _)| code), Some(500));
    drop(held);
    assert_eq!(
        answer("configmaps").await,
        None,
        "the condition says that it is not asked"
    );
}

#[tokio::test]
async fn conditions_are_compiled_in_slices_for_their_own_admission() {
    let hook = |conditions: usize| {
        let condition = json!({"name": "a", "expression": "1 + 1"});
        json!({"name": "d.e.f", "matchConditions": vec![condition; conditions]})
    };
    let configuration = json!({"webhooks": [hook(2), {"name": "none"}, hook(3)]});
    let mut turns = 0;
    let found = cpu::offload(&Pool::new(1), 0, None, async {
        cpu::pause(cpu::Lane::Bodies).await;
        let mut faults = std::pin::pin!(condition_faults(&configuration));
        std::future::poll_fn(|cx| {
            turns += 1;
            faults.as_mut().poll(cx)
        })
        .await
    })
    .await;
    let paths: Vec<&str> = found.iter().map(|fault| fault.field.as_str()).collect();
    assert_eq!(paths.len(), 5);
    assert_eq!(paths[0], "webhooks[0].matchConditions[0].expression");
    assert_eq!(paths[4], "webhooks[2].matchConditions[2].expression");
    assert_eq!(turns, 6);
}
