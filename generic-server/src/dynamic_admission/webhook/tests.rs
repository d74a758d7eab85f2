use serde_json::json;

use super::*;
use crate::authz::AlwaysAllow;
use crate::cpu::Pool;
use crate::dynamic_admission::tests::{create, entry, not_ready, snapshot};

#[tokio::test(start_paused = true)]
async fn conditions_being_compiled_delay_only_writes_that_match() {
    let compiler = Compiler::of(Pool::new(1));
    let directory = Arc::new(Directory::default());
    let plugin = Webhooks::with(
        Phase::Validating,
        directory.clone(),
        Arc::new(AlwaysAllow),
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
    plugin.take(&snapshot(&entries), &Services(directory));
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
