use std::sync::atomic::{AtomicUsize, Ordering};

use futures_util::FutureExt;
use serde_json::json;

use super::*;
use crate::cpu::{Lane, Pool, offload, pause};

fn spec(entries: impl IntoIterator<Item = (&'static str, Value)>) -> Value {
    let entries = entries.into_iter().map(|(key, list)| (key.to_string(), list));
    json!({"spec": entries.collect::<serde_json::Map<_, _>>()})
}

#[tokio::test]
async fn each_entry_is_a_slice() {
    async fn turns_of<T>(work: impl Future<Output = T>) -> usize {
        let pool = Pool::new(1);
        let turns = AtomicUsize::new(0);
        offload(&pool, 0, None, async {
            pause(Lane::Bodies).await;
            let mut work = std::pin::pin!(work);
            std::future::poll_fn(|cx| {
                turns.fetch_add(1, Ordering::Relaxed);
                work.as_mut().poll(cx).map(drop)
            })
            .await
        })
        .await;
        turns.into_inner()
    }
    /// The same for its own admission as for those that it judges.
    async fn turns(policy: Value) -> usize {
        let admitted = turns_of(faults(Phase::Validating, &policy)).await;
        let compiled = turns_of(Rules::compile(Phase::Validating, policy)).await;
        assert_eq!(admitted, compiled);
        compiled
    }
    let validations = |count: usize| json!(vec![json!({"expression": "true"}); count]);
    assert_eq!(turns(spec([("validations", validations(1))])).await, 2);
    assert_eq!(turns(spec([("validations", validations(500))])).await, 501);
    let mixed = [
        ("variables", json!([{"name": "a", "expression": "1"}])),
        ("matchConditions", json!([{"name": "b", "expression": "true"}])),
        ("validations", validations(2)),
        (
            "auditAnnotations",
            json!([{"key": "c", "valueExpression": "'d'"}]),
        ),
    ];
    assert_eq!(turns(spec(mixed)).await, 6);
}

/// How many variables are declared to compile all of a policy's variables.
fn declared(sources: &[String]) -> usize {
    let mut variables = Variables::default();
    let mut fields = 0;
    for (index, source) in sources.iter().enumerate() {
        let decl = variables.declared_for(source);
        if let kube_cel::Type::Object(object) = decl.cel_type() {
            fields += object.fields.len();
        }
        let expression = Expression::compile(&env(Scope::default(), &decl), source, &Wanted::Any);
        assert!(expression.program.is_ok(), "{source}: {:?}", expression.program);
        variables.push(Variable {
            name: format!("v{index}"),
            expression,
        });
    }
    fields
}

#[test]
fn variables_cost_their_dependencies() {
    let chain = |count: usize| -> Vec<String> {
        let link = |index: usize| match index {
            0 => "1".to_string(),
            _ => format!("variables.v{} + variables.v{} + 1", index - 1, index - 1),
        };
        (0..count).map(link).collect()
    };
    assert_eq!(declared(&chain(50)), 49);
    assert_eq!(declared(&chain(100)), 99);
    let apart = vec!["'v1' + 'text'".to_string(); 3];
    assert_eq!(
        declared(&apart),
        1,
        "a word in a text declares one too many, which does no harm"
    );
}

#[test]
fn a_variable_sees_those_before_it() {
    #[track_caller]
    fn check(variables: Value, expected: &[&str]) {
        let policy = spec([("variables", variables)]);
        let found = faults(Phase::Validating, &policy).now_or_never();
        let found = found.expect("nothing is awaited outside of requests");
        let found: Vec<String> = found.iter().map(|fault| fault.field.to_string()).collect();
        assert_eq!(found, expected);
    }
    let variable = |name: &str, source: &str| json!({"name": name, "expression": source});
    check(json!([variable("a", "1"), variable("b", "variables.a + 1")]), &[]);
    check(
        json!([variable("a", "variables.b"), variable("b", "variables.a + 'x'")]),
        &["spec.variables[0].expression"],
    );
    check(
        json!([variable("a", "1"), variable("b", "variables.a + 'x'")]),
        &["spec.variables[1].expression"],
    );
    check(
        json!([variable("b", "variables.b")]),
        &["spec.variables[0].expression"],
    );
}
