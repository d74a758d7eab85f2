//! Rules compiled node by node: each node of a schema once, however often it is asked for, and in slices where there may be many.

use std::collections::HashMap;
use std::marker::PhantomData;
use std::sync::Arc;

use kube_cel::{DeclType, Program};
use serde_json::Value;

use super::Envs;
use crate::fieldpath;
use crate::props::Props;

/// One rule.
#[derive(Debug)]
pub(super) struct Rule {
    /// Or why it does not compile (it was stored by another version of this program).
    pub(super) program: Result<Program, String>,
    pub(super) message_expression: Option<Program>,
    pub(super) message_source: String,
    /// `message`, trimmed; else the rule.
    pub(super) label: String,
    pub(super) has_message: bool,
    pub(super) reason: Option<String>,
    /// `fieldPath` as paths are printed.
    pub(super) field: Option<String>,
    pub(super) optional_old: bool,
}

/// The rules of one node and the declaration of its values, or why they cannot be declared.
pub(super) type NodeRules = Result<(DeclType, Vec<Rule>), String>;

/// Compiles the rules of the nodes of a schema, and keeps them.
#[derive(Debug, Default)]
pub(crate) struct Compiler<'s> {
    /// By the address of a node, which stays where it is while the schema is borrowed.
    known: HashMap<usize, Arc<NodeRules>>,
    schema: PhantomData<Props<'s>>,
}

/// A node that has rules. `root`: its values are whole objects.
#[derive(Debug, Clone, Copy)]
pub(super) struct Site<'s> {
    pub(super) schema: Props<'s>,
    pub(super) root: bool,
}

/// The nodes that have rules, of those that rules are looked for in.
pub(super) fn sites(schema: Props<'_>, root: bool) -> Vec<Site<'_>> {
    let mut found = Vec::new();
    collect(schema, root, &mut found);
    found
}

fn collect<'s>(schema: Props<'s>, root: bool, found: &mut Vec<Site<'s>>) {
    let below = schema.item().into_iter().chain(schema.additional_schema());
    for schema in below.chain(schema.schemas("properties").map(|(_, property)| property)) {
        collect(schema, schema.embedded(), found);
    }
    if !schema.list(super::RULES).is_empty() {
        found.push(Site { schema, root });
    }
}

impl<'s> Compiler<'s> {
    /// Compiles all rules of a schema, one by one, in slices that a deadline can end.
    pub(super) async fn compile(&mut self, schema: Props<'s>, whole: bool) {
        for site in sites(schema, whole) {
            let compiled = match Envs::of(site.schema, site.root) {
                Ok(envs) => {
                    generic_server::cpu::slice().await;
                    let mut rules = Vec::new();
                    for written in site.schema.list(super::RULES) {
                        rules.push(rule(&envs, site.schema, Props::new(written)));
                        generic_server::cpu::slice().await;
                    }
                    Ok((envs.decl, rules))
                }
                Err(why) => Err(why),
            };
            self.known.insert(address(site.schema), Arc::new(compiled));
        }
    }

    /// The rules of one node, compiled now unless they are known; `None` when it has none.
    pub(super) fn rules_of(&mut self, schema: Props<'s>, root: bool) -> Option<Arc<NodeRules>> {
        let written = schema.list(super::RULES);
        if written.is_empty() {
            return None;
        }
        let known = self.known.entry(address(schema)).or_insert_with(|| {
            Arc::new(Envs::of(schema, root).map(|envs| {
                let rules = written.iter().map(|one| rule(&envs, schema, Props::new(one)));
                let rules = rules.collect();
                (envs.decl, rules)
            }))
        });
        Some(known.clone())
    }
}

fn address(schema: Props<'_>) -> usize {
    std::ptr::from_ref(schema.map()).addr()
}

fn rule(envs: &Envs, schema: Props<'_>, written: Props<'_>) -> Rule {
    let message = written.text("message");
    let label = if message.is_empty() {
        written.text("rule")
    } else {
        message
    };
    let field = written.text("fieldPath");
    let field = Some(field).filter(|f| !f.is_empty());
    Rule {
        program: envs.rule(written),
        // One that does not compile is passed over: the rule has its own text.
        message_expression: envs.message(written).ok().flatten(),
        message_source: written.text("messageExpression").into(),
        label: label.trim().into(),
        has_message: !message.is_empty(),
        reason: written.get("reason").and_then(Value::as_str).map(str::to_string),
        field: field
            .and_then(|f| fieldpath::resolve(f, schema, true).ok())
            .map(|r| r.render()),
        optional_old: written.flag("optionalOldSelf"),
    }
}
