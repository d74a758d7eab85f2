//! The expressions by which classes and claims select devices. They are compiled here to find their faults; schedulers evaluate them.

use std::sync::LazyLock;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use generic_server::cpu;
use kube_cel::{DeclType, Env, FieldDecl, Library, Type};
use machinery::{FieldError, FieldPath};
use serde_json::Value;

use crate::json::Json;

/// The most requests of a claim, and the most that something else of it names. Selectors of more are not compiled.
pub(super) const REQUESTS: usize = 32;
/// The most alternatives of a request.
pub(super) const ALTERNATIVES: usize = 8;
/// The most selectors of one list.
pub(super) const SELECTORS: usize = 32;
/// The longest expression (upstream's `CELSelectorExpressionMaxLength`).
pub(super) const EXPRESSION_BYTES: usize = 10 * 1024;
/// The highest estimate of an expression (upstream's `CELSelectorExpressionMaxCost`).
const COST: u64 = 1_000_000;

static ENV: LazyLock<Env> = LazyLock::new(|| {
    let field = |name: &str, decl: DeclType| FieldDecl::new(name, decl).required(true, false);
    // By domain, and then by name.
    let of_domains = |decl: DeclType| {
        let names = DeclType::map(decl, Some(32));
        DeclType::map(names, Some(32))
    };
    let device = DeclType::object(
        "kubernetes.DRADevice",
        [
            field("driver", DeclType::string().with_max_elements(63)),
            field("allowMultipleAllocations", DeclType::bool()),
            field(
                "attributes",
                of_domains(DeclType::dynamic().with_max_elements(64)),
            ),
            field("capacity", of_domains(DeclType::quantity())),
        ],
    );
    let env = Env::builder().library(Library::Bindings);
    env.variable("device", &device).build()
});

/// The fault of an expression.
fn fault(path: &FieldPath<'_>, expression: &str) -> Option<FieldError> {
    let program = match ENV.compile(expression) {
        Ok(program) => program,
        Err(why) => return Some(FieldError::invalid_str(path, expression, why.detail())),
    };
    match program.output_type() {
        Type::Bool | Type::Dyn => {}
        other => {
            let text = format!("must evaluate to bool or the unknown type, not {other}");
            return Some(FieldError::invalid_str(path, expression, text));
        }
    }
    let costly = program.estimate_cost().max > COST;
    costly.then(|| FieldError::forbidden(path, "too complex, exceeds cost limit"))
}

/// Finds the faults of the selectors at `path`, of lists that validation will look into.
async fn of_list(found: &mut Vec<FieldError>, path: &FieldPath<'_>, list: &[Value]) {
    if list.len() > SELECTORS {
        return;
    }
    for (index, selector) in list.iter().enumerate() {
        let expression = selector.text("cel.expression");
        if !selector.has("cel") || expression.len() > EXPRESSION_BYTES {
            continue;
        }
        found.extend(fault(
            &path.index(index).child("cel").child("expression"),
            expression,
        ));
        cpu::slice().await;
    }
}

/// The faults of the expressions of a class.
pub(super) fn of_class(class: &Value) -> BoxFuture<'_, Vec<FieldError>> {
    async move {
        let mut found = Vec::new();
        let path = FieldPath::new("spec");
        of_list(&mut found, &path.child("selectors"), class.list("spec.selectors")).await;
        found
    }
    .boxed()
}

/// The faults of the expressions of a claim's specification.
async fn of_claim_spec(path: &FieldPath<'_>, spec: &Value) -> Vec<FieldError> {
    let mut found = Vec::new();
    let path = path.child("devices");
    let path = path.child("requests");
    let requests = spec.list("devices.requests");
    if requests.len() > REQUESTS {
        return found;
    }
    for (index, request) in requests.iter().enumerate() {
        let at = path.index(index);
        let exactly = request.list("exactly.selectors");
        of_list(&mut found, &at.child("exactly").child("selectors"), exactly).await;
        let alternatives = request.list("firstAvailable");
        if alternatives.len() > ALTERNATIVES {
            continue;
        }
        for (index, alternative) in alternatives.iter().enumerate() {
            let at = at.child("firstAvailable");
            let at = at.index(index);
            of_list(&mut found, &at.child("selectors"), alternative.list("selectors")).await;
        }
    }
    found
}

/// The faults of the expressions of a claim.
pub(super) fn of_claim(claim: &Value) -> BoxFuture<'_, Vec<FieldError>> {
    async move { of_claim_spec(&FieldPath::new("spec"), claim.dig("spec")).await }.boxed()
}

/// The faults of the expressions of a template.
pub(super) fn of_template(template: &Value) -> BoxFuture<'_, Vec<FieldError>> {
    async move {
        let path = FieldPath::new("spec");
        of_claim_spec(&path.child("spec"), template.dig("spec.spec")).await
    }
    .boxed()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(expression: &str, expected: &str) {
        let found = fault(&FieldPath::new("e"), expression);
        let text = found.map(|error| error.to_string()).unwrap_or_default();
        assert!(
            text.starts_with(expected) && text.is_empty() == expected.is_empty(),
            "{text}"
        );
    }

    #[test]
    fn expressions_are_compiled() {
        check(r#"device.driver == "d.example.com""#, "");
        check(
            r#"device.attributes["d.example.com"].model == "a" && device.allowMultipleAllocations"#,
            "",
        );
        check(
            r#"cel.bind(d, device.attributes["d.example.com"], d.one && d.other)"#,
            "",
        );
        check(
            r#"device.capacity["d.example.com"].memory.isGreaterThan(quantity("1Gi"))"#,
            "",
        );
        check(
            "device",
            r#"e: Invalid value: "device": must evaluate to bool or the unknown type, not "#,
        );
        check(
            "nothing",
            r#"e: Invalid value: "nothing": compilation failed: ERROR"#,
        );
        check("", r#"e: Invalid value: "": compilation failed: ERROR"#);
    }
}
