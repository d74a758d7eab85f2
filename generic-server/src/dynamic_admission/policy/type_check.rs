//! Type checking of a ValidatingAdmissionPolicy: its expressions against the kinds that it is about, whose types are known from their schemas.
//!
//! What is found is a warning in the policy's status and changes nothing about its evaluation, where objects are untyped. Mirrors
//! upstream's `policy/validating/typechecking.go`; which kinds a policy is about is for the caller to find out.

mod types;

use kube_cel::{DeclType, Env, Type};
use machinery::{FieldPath, GroupVersionKind, limits, meta};
use serde_json::{Value, json};

use super::compile::list;
use super::variables::{Variable, Variables};
use crate::cpu;
use crate::dynamic_admission::compiling::Compiler;
use crate::dynamic_admission::expression::{Expression, Scope, Wanted};

pub use types::{declared, declared_custom};

/// A kind that a policy is checked against.
#[derive(Debug)]
pub struct CheckedKind {
    /// The kind.
    pub gvk: GroupVersionKind,
    /// The type of its objects; `None` when their schema does not say.
    pub declared: Option<DeclType>,
}

impl CheckedKind {
    fn cel_type(&self) -> Type {
        let named = |declared: &DeclType| declared.named(&self.gvk.kind).cel_type().clone();
        self.declared.as_ref().map_or(Type::Dyn, named)
    }
}

/// The `expressionWarnings` of a policy: for each expression of its validations and of their messages, what is wrong with it for the
/// objects of these kinds. `params`: its `paramKind`, if that is known.
pub async fn warnings(policy: &Value, kinds: &[CheckedKind], params: Option<&CheckedKind>) -> Vec<Value> {
    let bytes = policy.to_string().len();
    let work = check(policy, kinds, params);
    Compiler::shared().run(bytes, work).await.unwrap_or_default()
}

async fn check(policy: &Value, kinds: &[CheckedKind], params: Option<&CheckedKind>) -> Vec<Value> {
    let spec = policy.get("spec").unwrap_or(&Value::Null);
    let mut envs = Vec::new();
    for kind in kinds.iter().take(limits::CHECKED_KINDS) {
        envs.push((&kind.gvk, environment(spec, kind, params).await));
    }
    let mut warnings = Warnings::default();
    let root = FieldPath::new("spec");
    let validations = root.child("validations");
    for (index, validation) in list(spec, "validations").iter().enumerate() {
        for field in ["expression", "messageExpression"] {
            let source = meta::dig_str(validation, &[field]);
            if source.is_empty() {
                continue;
            }
            let mut found = Vec::new();
            for (gvk, env) in &envs {
                if let Err(errors) = env.compile(source) {
                    found.push(format!("{gvk}: {errors}\n"));
                }
                cpu::slice().await;
            }
            let entry = validations.index(index);
            if !found.is_empty() && !warnings.add(&entry.child(field), found.join("\n")) {
                return warnings.list;
            }
        }
    }
    warnings.list
}

/// What the expressions of a policy see of a kind: its objects, and the variables as they are for it. A variable that is wrong for it may
/// be anything.
async fn environment(spec: &Value, kind: &CheckedKind, params: Option<&CheckedKind>) -> Env {
    let scope = Scope {
        authorizer: true,
        ..Scope::default()
    };
    let object = kind.cel_type();
    let parameters = spec.get("paramKind").is_some_and(Value::is_object);
    let parameters = parameters.then(|| params.map_or(Type::Dyn, CheckedKind::cel_type));
    let env = |variables: &DeclType| {
        let env = scope.env_about(&object, parameters.as_ref());
        env.typed("variables", variables.cel_type().clone()).build()
    };
    let mut variables = Variables::default();
    for variable in list(spec, "variables") {
        let source = meta::dig_str(variable, &["expression"]);
        let expression = Expression::compile(&env(&variables.declared_for(source)), source, &Wanted::Any);
        variables.push(Variable {
            name: meta::dig_str(variable, &["name"]).to_string(),
            expression,
        });
        cpu::slice().await;
    }
    env(&variables.declared())
}

/// Warnings up to their bound.
#[derive(Default)]
struct Warnings {
    list: Vec<Value>,
    bytes: usize,
}

impl Warnings {
    /// Adds one. False when there is no room for any more.
    fn add(&mut self, path: &FieldPath<'_>, warning: String) -> bool {
        self.bytes += warning.len();
        let fits = self.bytes <= limits::EXPRESSION_WARNING_BYTES;
        let warning = match fits {
            true => warning,
            false => "there are more warnings than a status has room for".into(),
        };
        self.list
            .push(json!({"fieldRef": path.to_string(), "warning": warning}));
        fits
    }
}

#[cfg(test)]
mod tests;
