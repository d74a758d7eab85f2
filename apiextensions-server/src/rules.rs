//! `x-kubernetes-validations`: from rules as written to compiled programs, typed by the schema they stand in.
//!
//! [`compile_and_estimate`] is for CRD admission: whether rules compile, and their estimated cost. [`RuleTree`] is for objects: every rule of a
//! schema, compiled once with it. Mirrors `pkg/apiserver/schema/cel/{compilation,validation}.go`.

mod decl;
mod tree;

use kube_cel::{DeclType, Env, Program, Type};

use crate::props::Props;

pub(crate) use tree::RuleTree;

/// The result of compiling one rule.
#[derive(Debug)]
pub(crate) struct Verdict {
    /// The estimated cost of one evaluation.
    pub(crate) max_cost: u64,
    /// How often a value of this type fits into a request at most.
    pub(crate) max_cardinality: u64,
    /// The rule speaks of the old value.
    pub(crate) uses_old_self: bool,
    /// Why the rule does not compile.
    pub(crate) error: Option<String>,
    /// The estimated cost of `messageExpression` where there is one, or why it does not compile.
    pub(crate) message: Result<Option<u64>, String>,
}

/// The environments of a node's rules.
struct Envs {
    decl: DeclType,
    plain: Env,
    /// For rules with `optionalOldSelf`.
    optional: Env,
}

impl Envs {
    fn of(schema: Props<'_>, root: bool) -> Result<Envs, String> {
        let decl = decl::declare(schema, root)
            .ok_or("internal error: failed to construct type information for x-kubernetes-validations rules: unable to convert structural schema to CEL declarations")?
            .named("selfType");
        let plain = Env::builder().variable("self", &decl).variable("oldSelf", &decl);
        let optional = Env::builder()
            .variable("self", &decl)
            .optional_variable("oldSelf", &decl);
        Ok(Envs {
            plain: plain.build(),
            optional: optional.build(),
            decl,
        })
    }

    fn for_rule(&self, rule: Props<'_>) -> &Env {
        if rule.flag("optionalOldSelf") {
            &self.optional
        } else {
            &self.plain
        }
    }

    /// The program of a rule; the error is upstream's text.
    fn rule(&self, rule: Props<'_>) -> Result<Program, String> {
        let program = self
            .for_rule(rule)
            .compile(rule.text("rule"))
            .map_err(|faults| format!("compilation failed: {faults}"))?;
        match program.output_type() {
            Type::Bool => Ok(program),
            _ => Err("cel expression must evaluate to a bool".into()),
        }
    }

    /// The program of a rule's `messageExpression`, where there is one.
    fn message(&self, rule: Props<'_>) -> Result<Option<Program>, String> {
        let source = rule.text("messageExpression");
        if source.is_empty() {
            return Ok(None);
        }
        let program = self
            .for_rule(rule)
            .compile(source)
            .map_err(|faults| format!("messageExpression compilation failed: {faults}"))?;
        match program.output_type() {
            Type::String => Ok(Some(program)),
            _ => Err("messageExpression must evaluate to a string".into()),
        }
    }
}

/// Compiles the rules of one node, in order. The error is about all of them.
pub(crate) fn compile_and_estimate(schema: Props<'_>, root: bool) -> Result<Vec<Verdict>, String> {
    let envs = Envs::of(schema, root)?;
    let rules = schema.list("x-kubernetes-validations").iter().map(Props::new);
    Ok(rules.map(|rule| verdict(&envs, rule)).collect())
}

fn verdict(envs: &Envs, rule: Props<'_>) -> Verdict {
    let program = match envs.rule(rule) {
        Ok(program) => program,
        Err(why) => {
            return Verdict {
                max_cost: 0,
                max_cardinality: 0,
                uses_old_self: false,
                error: Some(why),
                message: Ok(None),
            };
        }
    };
    let message = envs.message(rule);
    Verdict {
        max_cost: program.estimate_cost().max,
        max_cardinality: envs.decl.max_cardinality(),
        uses_old_self: program.uses("oldSelf"),
        error: None,
        message: message.map(|m| m.map(|program| program.estimate_cost().max)),
    }
}
