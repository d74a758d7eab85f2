//! What admission has to know of the rules of a definition: whether they compile, and their estimated costs.
//!
//! They are compiled in slices before the validation of the definition, which is done in one piece and finds the verdicts here.

use std::collections::HashMap;
use std::sync::Arc;

use machinery::limits;
use parking_lot::Mutex;
use ring::digest::{Context, SHA256};

use super::compiler::{Site, sites};
use super::{Envs, RULES};
use crate::props::Props;

/// The result of compiling one rule.
#[derive(Debug, Clone, PartialEq, Eq)]
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

/// One for each rule of a node, or why none of them can be compiled.
pub(crate) type Verdicts = Result<Vec<Verdict>, String>;

/// The hash of a node and of whether its values are whole objects, on which its verdicts depend.
type Key = [u8; 32];

/// The verdicts of rules that were compiled lately. Forgotten all at once when they are too many: more than one definition may have, unless it has
/// megabytes of errors.
static KNOWN: Mutex<Option<Known>> = Mutex::new(None);

#[derive(Debug, Default)]
struct Known {
    nodes: HashMap<Key, Arc<Verdicts>>,
    rules: usize,
    /// Bytes of errors.
    bytes: usize,
}

/// Rules of which verdicts are kept: those of two definitions.
const KNOWN_RULES: usize = 2 * limits::DEFINITION_RULES;
/// Bytes of errors that are kept with them.
const KNOWN_BYTES: usize = 4 << 20;

impl Known {
    fn insert(&mut self, key: Key, verdicts: Arc<Verdicts>) {
        let texts = |verdict: &Verdict| {
            let message = verdict.message.as_ref().err();
            verdict.error.as_ref().map_or(0, String::len) + message.map_or(0, String::len)
        };
        let (rules, bytes) = match &*verdicts {
            Ok(all) => (all.len(), all.iter().map(texts).sum()),
            Err(why) => (1, why.len()),
        };
        if self.rules + rules > KNOWN_RULES || self.bytes + bytes > KNOWN_BYTES {
            *self = Known::default();
        }
        if self.nodes.insert(key, verdicts).is_none() {
            self.rules += rules;
            self.bytes += bytes;
        }
    }
}

/// How many rules a schema has.
pub(crate) fn count(schema: Props<'_>) -> usize {
    let sites = sites(schema, true);
    sites.iter().map(|site| site.schema.list(RULES).len()).sum()
}

/// Compiles the rules of a schema one by one, in slices that a deadline can end.
pub(crate) async fn prepare(schema: Props<'_>) {
    for site in sites(schema, true) {
        let key = key(site);
        if known(&key).is_some() {
            continue;
        }
        generic_server::cpu::slice().await;
        let verdicts = match Envs::of(site.schema, site.root) {
            Ok(envs) => {
                let mut verdicts = Vec::new();
                for rule in site.schema.list(RULES) {
                    verdicts.push(verdict(&envs, Props::new(rule)));
                    generic_server::cpu::slice().await;
                }
                Ok(verdicts)
            }
            Err(why) => Err(why),
        };
        remember(key, Arc::new(verdicts));
    }
}

/// The verdicts of the rules of one node, in their order: those that are known, or compiled now.
pub(crate) fn of_node(schema: Props<'_>, root: bool) -> Arc<Verdicts> {
    let key = key(Site { schema, root });
    if let Some(verdicts) = known(&key) {
        return verdicts;
    }
    let rules = schema.list(RULES).iter().map(Props::new);
    let verdicts = Envs::of(schema, root).map(|envs| rules.map(|rule| verdict(&envs, rule)).collect());
    let verdicts = Arc::new(verdicts);
    remember(key, verdicts.clone());
    verdicts
}

fn known(key: &Key) -> Option<Arc<Verdicts>> {
    KNOWN.lock().as_ref()?.nodes.get(key).cloned()
}

fn remember(key: Key, verdicts: Arc<Verdicts>) {
    let mut known = KNOWN.lock();
    known.get_or_insert_default().insert(key, verdicts);
}

fn key(site: Site<'_>) -> Key {
    let mut context = Context::new(&SHA256);
    context.update(&[u8::from(site.root)]);
    // A map has its members in order, so that equal nodes have one text.
    for (name, member) in site.schema.map() {
        context.update(&name.len().to_le_bytes());
        context.update(name.as_bytes());
        let text = member.to_string();
        context.update(&text.len().to_le_bytes());
        context.update(text.as_bytes());
    }
    let mut key = Key::default();
    key.copy_from_slice(context.finish().as_ref());
    key
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

#[cfg(test)]
pub(super) mod tests {
    use std::cell::Cell;

    use serde_json::{Value, json};

    use super::*;

    thread_local! {
        /// How many rules this thread has compiled.
        pub(in super::super) static COMPILED: Cell<usize> = const { Cell::new(0) };
    }

    /// Rules compiled by `work`.
    fn compiled(work: impl FnOnce()) -> usize {
        let before = COMPILED.get();
        work();
        COMPILED.get() - before
    }

    fn schema(name: &str, rules: usize) -> Value {
        let rules: Vec<Value> = (0..rules)
            .map(|number| json!({"rule": format!("self.n != {number}")}))
            .collect();
        let spec = json!({"type": "object", "description": name, "properties": {"n": {"type": "integer"}}, "x-kubernetes-validations": rules});
        json!({"type": "object", "properties": {"spec": spec}})
    }

    #[tokio::test]
    async fn rules_are_compiled_before_validation_and_once() {
        let schema = schema("once", 30);
        let whole = Props::new(&schema);
        let before = COMPILED.get();
        prepare(whole).await;
        assert_eq!(COMPILED.get() - before, 30);
        let spec = whole.schemas("properties").next().expect("one").1;
        let verdicts = |root| match &*of_node(spec, root) {
            Ok(verdicts) => verdicts.clone(),
            Err(why) => panic!("{why}"),
        };
        assert_eq!(compiled(|| assert_eq!(verdicts(false).len(), 30)), 0);
        // A whole object has more members: another question.
        assert_eq!(compiled(|| assert_eq!(verdicts(true).len(), 30)), 30);
        let before = COMPILED.get();
        prepare(whole).await;
        assert_eq!(COMPILED.get(), before);
        assert_eq!(count(whole), 30);
    }

    #[test]
    fn verdicts_that_are_kept_are_bounded() {
        let verdict = |error: Option<String>| Verdict {
            max_cost: 1,
            max_cardinality: 1,
            uses_old_self: false,
            error,
            message: Ok(None),
        };
        let key = |number: usize| {
            let mut key = Key::default();
            key[..8].copy_from_slice(&number.to_le_bytes());
            key
        };
        let mut known = Known::default();
        let half = Arc::new(Ok(vec![verdict(None); limits::DEFINITION_RULES]));
        known.insert(key(0), half.clone());
        known.insert(key(0), half.clone());
        known.insert(key(1), half.clone());
        assert_eq!((known.nodes.len(), known.rules), (2, KNOWN_RULES));
        known.insert(key(2), Arc::new(Ok(vec![verdict(None)])));
        assert_eq!((known.nodes.len(), known.rules), (1, 1));
        let long = verdict(Some("x".repeat(KNOWN_BYTES)));
        known.insert(key(3), Arc::new(Ok(vec![long.clone()])));
        assert_eq!((known.nodes.len(), known.bytes), (2, KNOWN_BYTES));
        known.insert(key(4), Arc::new(Err("x".into())));
        assert_eq!((known.nodes.len(), known.bytes), (1, 1));
    }
}
