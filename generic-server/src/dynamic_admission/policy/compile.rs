//! From a policy as it is written to compiled expressions.

use kube_cel::{DeclType, Env};
use machinery::{FieldError, FieldPath, meta};
use serde_json::Value;

use super::Phase;
use super::variables::{Variable, declared};
use crate::dynamic_admission::expression::{Conditions, Expression, Scope, Wanted};
use crate::dynamic_admission::matching::Matcher;

/// A policy, compiled. Expressions that do not compile fail when they are evaluated.
#[derive(Debug)]
pub(super) struct Policy {
    pub(super) name: String,
    pub(super) matcher: Matcher,
    /// `matchConstraints` is there: it is required.
    pub(super) constrained: bool,
    pub(super) ignore_failures: bool,
    /// `apiVersion` and `kind` of what it takes its parameters from.
    pub(super) param_kind: Option<(String, String)>,
    pub(super) conditions: Conditions,
    pub(super) variables: Vec<Variable>,
    pub(super) body: Body,
}

/// What a policy does.
#[derive(Debug)]
pub(super) enum Body {
    Validations {
        validations: Vec<Validation>,
        annotations: Vec<(String, Expression)>,
    },
    Mutations {
        mutations: Vec<Mutation>,
        reinvoked: bool,
    },
}

#[derive(Debug)]
pub(super) struct Validation {
    pub(super) expression: Expression,
    pub(super) message: String,
    pub(super) message_expression: Option<Expression>,
    pub(super) reason: String,
}

#[derive(Debug)]
pub(super) enum Mutation {
    Apply(Expression),
    Patch(Expression),
}

fn list<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value
        .get(key)
        .and_then(Value::as_array)
        .map_or(&[], Vec::as_slice)
}

/// The environments of a policy's expressions.
struct Envs {
    /// With authorizer and all variables.
    full: Env,
    /// Of messages: without the authorizer.
    message: Env,
    variables: Vec<Variable>,
}

impl Envs {
    fn of(phase: Phase, spec: &Value) -> Envs {
        let scope = Scope {
            params: spec.get("paramKind").is_some_and(Value::is_object),
            authorizer: true,
            patches: phase == Phase::Mutating,
        };
        let env = |scope: Scope, variables: &[Variable]| {
            let decl: DeclType = declared(variables);
            let env = scope.env().typed("variables", decl.cel_type().clone());
            env.build()
        };
        let mut variables: Vec<Variable> = Vec::new();
        for variable in list(spec, "variables") {
            let source = meta::dig_str(variable, &["expression"]);
            let expression = Expression::compile(&env(scope, &variables), source, &Wanted::Any);
            variables.push(Variable {
                name: meta::dig_str(variable, &["name"]).to_string(),
                expression,
            });
        }
        let message = Scope {
            authorizer: false,
            ..scope
        };
        Envs {
            full: env(scope, &variables),
            message: env(message, &variables),
            variables,
        }
    }
}

impl Policy {
    pub(super) fn compile(phase: Phase, name: &str, policy: &Value) -> Self {
        let spec = policy.get("spec").unwrap_or(&Value::Null);
        let constraints = spec.get("matchConstraints").filter(|value| value.is_object());
        let envs = Envs::of(phase, spec);
        let body = match phase {
            Phase::Validating => validations(spec, &envs),
            Phase::Mutating => mutations(spec, &envs),
        };
        let param = spec.get("paramKind").filter(|kind| kind.is_object());
        Policy {
            name: name.to_string(),
            matcher: Matcher::of_resources(constraints.unwrap_or(&Value::Null)),
            constrained: constraints.is_some(),
            ignore_failures: meta::dig_str(spec, &["failurePolicy"]) == "Ignore",
            param_kind: param.map(|kind| (meta::api_version(kind).to_string(), meta::kind(kind).to_string())),
            conditions: Conditions::compile(spec, &envs.full),
            variables: envs.variables,
            body,
        }
    }
}

fn validations(spec: &Value, envs: &Envs) -> Body {
    let validation = |value: &Value| {
        let text = |key: &str| meta::dig_str(value, &[key]);
        let message = Some(text("messageExpression")).filter(|source| !source.is_empty());
        Validation {
            expression: Expression::compile(&envs.full, text("expression"), &Wanted::Bool),
            message: text("message").trim().to_string(),
            message_expression: message
                .map(|source| Expression::compile(&envs.message, source, &Wanted::Text)),
            reason: text("reason").to_string(),
        }
    };
    let annotation = |value: &Value| {
        let source = meta::dig_str(value, &["valueExpression"]);
        (
            meta::dig_str(value, &["key"]).to_string(),
            Expression::compile(&envs.full, source, &Wanted::TextOrNull),
        )
    };
    Body::Validations {
        validations: list(spec, "validations").iter().map(validation).collect(),
        annotations: list(spec, "auditAnnotations").iter().map(annotation).collect(),
    }
}

fn mutations(spec: &Value, envs: &Envs) -> Body {
    let mutation = |value: &Value| match meta::dig_str(value, &["patchType"]) {
        "JSONPatch" => {
            let source = meta::dig_str(value, &["jsonPatch", "expression"]);
            Mutation::Patch(Expression::compile(&envs.full, source, &Wanted::Patches))
        }
        _ => {
            let source = meta::dig_str(value, &["applyConfiguration", "expression"]);
            Mutation::Apply(Expression::compile(&envs.full, source, &Wanted::Object))
        }
    };
    Body::Mutations {
        mutations: list(spec, "mutations").iter().map(mutation).collect(),
        reinvoked: meta::dig_str(spec, &["reinvocationPolicy"]) == "IfNeeded",
    }
}

/// What is wrong with a policy's expressions, for its own admission: each that does not compile, in the order of the fields.
pub fn faults(phase: Phase, policy: &Value) -> Vec<FieldError> {
    let mut found = Vec::new();
    let spec = policy.get("spec").unwrap_or(&Value::Null);
    let envs = Envs::of(phase, spec);
    let root = FieldPath::new("spec");
    let mut note = |path: &FieldPath<'_>, expression: &Expression| {
        if let Err(why) = &expression.program
            && !expression.source.trim().is_empty()
        {
            found.push(FieldError::invalid_str(path, &expression.source, why.clone()));
        }
    };
    let at = root.child("matchConditions");
    for (index, condition) in list(spec, "matchConditions").iter().enumerate() {
        let source = meta::dig_str(condition, &["expression"]);
        let expression = Expression::compile(&envs.full, source, &Wanted::Bool);
        note(&at.index(index).child("expression"), &expression);
    }
    let at = root.child("variables");
    for (index, variable) in envs.variables.iter().enumerate() {
        note(&at.index(index).child("expression"), &variable.expression);
    }
    match phase {
        Phase::Validating => {
            let Body::Validations {
                validations,
                annotations,
            } = validations(spec, &envs)
            else {
                return found;
            };
            let at = root.child("validations");
            for (index, validation) in validations.iter().enumerate() {
                let path = at.index(index);
                note(&path.child("expression"), &validation.expression);
                if let Some(message) = &validation.message_expression {
                    note(&path.child("messageExpression"), message);
                }
            }
            let at = root.child("auditAnnotations");
            for (index, (_, expression)) in annotations.iter().enumerate() {
                note(&at.index(index).child("valueExpression"), expression);
            }
        }
        Phase::Mutating => {
            let Body::Mutations { mutations, .. } = mutations(spec, &envs) else {
                return found;
            };
            let at = root.child("mutations");
            for (index, mutation) in mutations.iter().enumerate() {
                let path = at.index(index);
                match mutation {
                    Mutation::Apply(expression) => {
                        note(&path.child("applyConfiguration").child("expression"), expression);
                    }
                    Mutation::Patch(expression) => {
                        note(&path.child("jsonPatch").child("expression"), expression);
                    }
                }
            }
        }
    }
    found
}
