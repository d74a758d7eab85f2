//! From a policy as it is written to compiled expressions.

use std::sync::Arc;

use kube_cel::{DeclType, Env};
use machinery::{FieldError, FieldPath, meta};
use serde_json::Value;

use super::Phase;
use super::variables::{Variable, Variables};
use crate::cpu;
use crate::dynamic_admission::compiling::{Compiled, Compiler, Origin};
use crate::dynamic_admission::expression::{Conditions, Expression, Scope, Wanted};
use crate::dynamic_admission::matching::Matcher;

/// A policy. Its match rules are known at once, its expressions once they have been compiled.
#[derive(Debug)]
pub(super) struct Policy {
    pub(super) name: String,
    /// `uid` and `generation`, which distinguish a change of the rest from one of the status.
    version: (String, i64),
    pub(super) matcher: Matcher,
    /// `matchConstraints` is there: it is required.
    pub(super) constrained: bool,
    pub(super) ignore_failures: bool,
    /// `apiVersion` and `kind` of what it takes its parameters from.
    pub(super) param_kind: Option<(String, String)>,
    pub(super) rules: Compiled<Rules>,
}

impl Policy {
    /// Reads a policy and starts to compile it, unless it says what it said `before`.
    pub(super) fn read(
        phase: Phase,
        origin: &Origin,
        before: Option<Arc<Policy>>,
        compiler: &Compiler,
    ) -> Arc<Self> {
        let policy = origin.value();
        let version = (meta::uid(&policy).to_string(), meta::generation(&policy));
        if let Some(before) = before.filter(|before| version.1 > 0 && before.version == version) {
            return before;
        }
        let spec = policy.get("spec").unwrap_or(&Value::Null);
        let constraints = spec.get("matchConstraints").filter(|value| value.is_object());
        let param = spec.get("paramKind").filter(|kind| kind.is_object());
        Arc::new(Policy {
            name: origin.name().to_string(),
            version,
            matcher: Matcher::of_resources(constraints.unwrap_or(&Value::Null)),
            constrained: constraints.is_some(),
            ignore_failures: meta::dig_str(spec, &["failurePolicy"]) == "Ignore",
            param_kind: param.map(|kind| (meta::api_version(kind).to_string(), meta::kind(kind).to_string())),
            rules: compiler.start(origin, move |policy| Rules::compile(phase, policy)),
        })
    }
}

/// The compiled rules of a policy. Expressions that do not compile fail when they are evaluated.
#[derive(Debug)]
pub(super) struct Rules {
    pub(super) conditions: Conditions,
    pub(super) variables: Variables,
    pub(super) body: Body,
}

impl Rules {
    /// Compiles an object in slices.
    pub(super) async fn compile(phase: Phase, policy: Value) -> Self {
        let mut compilation = Compilation::new(phase, policy.get("spec").unwrap_or(&Value::Null));
        while compilation.step() {
            cpu::slice().await;
        }
        compilation.rules
    }
}

/// The body of a policy.
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

pub(super) fn list<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value
        .get(key)
        .and_then(Value::as_array)
        .map_or(&[], Vec::as_slice)
}

/// An entry of one of a policy's lists.
enum Source<'s> {
    Variable(&'s Value),
    Condition(&'s Value),
    Validation(&'s Value),
    Annotation(&'s Value),
    Mutation(&'s Value),
}

/// A policy that is being compiled, one entry at a step.
struct Compilation<'s> {
    sources: Box<dyn Iterator<Item = Source<'s>> + Send + 's>,
    scope: Scope,
    /// Made once all variables are known: of most expressions, and of messages, which are without the authorizer.
    envs: Option<(Env, Env)>,
    rules: Rules,
}

impl<'s> Compilation<'s> {
    fn new(phase: Phase, spec: &'s Value) -> Self {
        let of = |key: &str, source: fn(&'s Value) -> Source<'s>| list(spec, key).iter().map(source);
        let common = of("variables", Source::Variable).chain(of("matchConditions", Source::Condition));
        let (sources, body): (Box<dyn Iterator<Item = Source<'s>> + Send + 's>, Body) = match phase {
            Phase::Validating => (
                Box::new(
                    common
                        .chain(of("validations", Source::Validation))
                        .chain(of("auditAnnotations", Source::Annotation)),
                ),
                Body::Validations {
                    validations: Vec::new(),
                    annotations: Vec::new(),
                },
            ),
            Phase::Mutating => (
                Box::new(common.chain(of("mutations", Source::Mutation))),
                Body::Mutations {
                    mutations: Vec::new(),
                    reinvoked: meta::dig_str(spec, &["reinvocationPolicy"]) == "IfNeeded",
                },
            ),
        };
        Compilation {
            sources,
            scope: Scope {
                params: spec.get("paramKind").is_some_and(Value::is_object),
                authorizer: true,
                patches: phase == Phase::Mutating,
            },
            envs: None,
            rules: Rules {
                conditions: Conditions::default(),
                variables: Variables::default(),
                body,
            },
        }
    }

    /// Compiles the next entry. False when there is none.
    fn step(&mut self) -> bool {
        let Some(source) = self.sources.next() else {
            return false;
        };
        let Rules {
            conditions,
            variables,
            body,
        } = &mut self.rules;
        if let Source::Variable(variable) = source {
            let source = meta::dig_str(variable, &["expression"]);
            let env = env(self.scope, &variables.declared_for(source));
            variables.push(Variable {
                name: meta::dig_str(variable, &["name"]).to_string(),
                expression: Expression::compile(&env, source, &Wanted::Any),
            });
            return true;
        }
        let (full, message) = self.envs.get_or_insert_with(|| {
            let declared = variables.declared();
            let message = Scope {
                authorizer: false,
                ..self.scope
            };
            (env(self.scope, &declared), env(message, &declared))
        });
        match (source, body) {
            (Source::Condition(value), _) => conditions.push(value, full),
            (Source::Validation(value), Body::Validations { validations, .. }) => {
                validations.push(validation(value, full, message));
            }
            (Source::Annotation(value), Body::Validations { annotations, .. }) => {
                annotations.push(annotation(value, full));
            }
            (Source::Mutation(value), Body::Mutations { mutations, .. }) => {
                mutations.push(mutation(value, full));
            }
            // The sources are those of the phase.
            (
                Source::Variable(_) | Source::Validation(_) | Source::Annotation(_) | Source::Mutation(_),
                Body::Validations { .. } | Body::Mutations { .. },
            ) => {}
        }
        true
    }
}

fn env(scope: Scope, variables: &DeclType) -> Env {
    let env = scope.env().typed("variables", variables.cel_type().clone());
    env.build()
}

fn validation(value: &Value, full: &Env, message: &Env) -> Validation {
    let text = |key: &str| meta::dig_str(value, &[key]);
    let said = Some(text("messageExpression")).filter(|source| !source.is_empty());
    Validation {
        expression: Expression::compile(full, text("expression"), &Wanted::Bool),
        message: text("message").trim().to_string(),
        message_expression: said.map(|source| Expression::compile(message, source, &Wanted::Text)),
        reason: text("reason").to_string(),
    }
}

fn annotation(value: &Value, full: &Env) -> (String, Expression) {
    let source = meta::dig_str(value, &["valueExpression"]);
    (
        meta::dig_str(value, &["key"]).to_string(),
        Expression::compile(full, source, &Wanted::TextOrNull),
    )
}

fn mutation(value: &Value, full: &Env) -> Mutation {
    match meta::dig_str(value, &["patchType"]) {
        "JSONPatch" => {
            let source = meta::dig_str(value, &["jsonPatch", "expression"]);
            Mutation::Patch(Expression::compile(full, source, &Wanted::Patches))
        }
        _ => {
            let source = meta::dig_str(value, &["applyConfiguration", "expression"]);
            Mutation::Apply(Expression::compile(full, source, &Wanted::Object))
        }
    }
}

/// The errors of a policy's expressions, for its own admission: each that does not compile, in the order of the fields. Compiles in
/// slices.
pub async fn faults(phase: Phase, policy: &Value) -> Vec<FieldError> {
    let mut found = Vec::new();
    let spec = policy.get("spec").unwrap_or(&Value::Null);
    let mut compilation = Compilation::new(phase, spec);
    while compilation.step() {
        cpu::slice().await;
    }
    let rules = compilation.rules;
    let root = FieldPath::new("spec");
    let mut note = |path: &FieldPath<'_>, expression: &Expression| {
        if let Err(why) = &expression.program
            && !expression.source.trim().is_empty()
        {
            found.push(FieldError::invalid_str(path, &expression.source, why.clone()));
        }
    };
    let at = root.child("matchConditions");
    for (index, condition) in rules.conditions.iter().enumerate() {
        note(&at.index(index).child("expression"), condition);
    }
    let at = root.child("variables");
    for (index, variable) in rules.variables.iter().enumerate() {
        note(&at.index(index).child("expression"), &variable.expression);
    }
    match &rules.body {
        Body::Validations {
            validations,
            annotations,
        } => {
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
        Body::Mutations { mutations, .. } => {
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

#[cfg(test)]
mod tests;
