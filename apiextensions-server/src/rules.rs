//! `x-kubernetes-validations`: from rules as written to compiled programs, typed by the schema they stand in.
//!
//! [`verdicts`] is for CRD admission: whether rules compile, and their estimated cost. [`RuleTree`] is for objects: every rule of a
//! schema, compiled once with it. Mirrors `pkg/apiserver/schema/cel/{compilation,validation}.go`.

mod compiler;
mod decl;
mod tree;
mod verdicts;

use kube_cel::{DeclType, Env, Program, Type};

use crate::props::Props;

pub(crate) use compiler::Compiler;
pub(crate) use tree::RuleTree;
pub(crate) use verdicts::{count as count_rules, of_node as verdicts_of_node, prepare as prepare_verdicts};

/// The member of a schema that has its rules.
const RULES: &str = "x-kubernetes-validations";

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
        #[cfg(test)]
        verdicts::tests::COMPILED.set(verdicts::tests::COMPILED.get() + 1);
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
