//! Which rules are used, through which binding and by whom, while somebody has it recorded: so that roles can be cut to what is used.
//!
//! Off, it costs a request one look at a number. On, the decision is made once more, to find its rule. Bounded by [`RECORDS`]; kept in memory,
//! until the next recording begins or the server ends.

use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use generic_server::authz::Attributes;
use machinery::time::Timestamp;
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::index::{Index, Matched, shown};

/// Users of rules that are told apart. The uses of others are counted together, as `omitted`.
const RECORDS: usize = 10_000;
/// Bytes of a user's name that are kept.
const NAME_BYTES: usize = 256;
/// What an answer lists of each sort, at most.
const LISTED: usize = 1_000;
/// The verbs of requests for resources that are told apart.
const VERBS: [&str; 8] = [
    "get",
    "list",
    "watch",
    "create",
    "update",
    "patch",
    "delete",
    "deletecollection",
];

/// The recorder.
#[derive(Debug, Default)]
pub struct Usage {
    /// Until when uses are recorded, in seconds since 1970.
    until: AtomicI64,
    state: Mutex<Recorded>,
}

#[derive(Debug, Default)]
struct Recorded {
    since: Option<Timestamp>,
    hasher: RandomState,
    /// By the hash of the binding, the rule and the user.
    records: HashMap<u64, Record>,
    omitted: u64,
}

/// One user of one rule through one binding.
#[derive(Debug, Clone)]
struct Record {
    what: Arc<What>,
    count: u64,
    last: Timestamp,
    marks: Marks,
}

/// What a record is of.
#[derive(Debug)]
struct What {
    role: RoleKey,
    rule: RuleKey,
    binding: String,
    user: String,
    subject: String,
    shown: Value,
}

/// The parts of a rule that were used.
#[derive(Debug, Clone, Copy, Default)]
struct Marks {
    /// Of [`VERBS`]; the last bit is for all others.
    verbs: u16,
    /// The entries of its `resources` or `nonResourceURLs` that matched, of the first 64.
    entries: u64,
}

/// The position of a rule in its role, and its hash: another rule in its place is not this one.
type RuleKey = (usize, u64);

/// A role: its kind, namespace and name.
type RoleKey = (&'static str, String, String);

impl Usage {
    /// Begins a recording of so many seconds; what was recorded before is forgotten. None ends it, and forgets nothing.
    pub fn record_for(&self, seconds: Option<i64>) {
        let now = Timestamp::now();
        let Some(seconds) = seconds else {
            self.until.store(0, Ordering::Relaxed);
            return;
        };
        let mut state = self.state.lock();
        *state = Recorded {
            since: Some(now),
            ..Recorded::default()
        };
        self.until
            .store(now.unix().saturating_add(seconds), Ordering::Relaxed);
    }

    /// Whether somebody wants to know.
    pub(super) fn records(&self) -> bool {
        match self.until.load(Ordering::Relaxed) {
            0 => false,
            until => Timestamp::now().unix() < until,
        }
    }

    /// Records what allowed a request.
    pub(super) fn record(&self, attributes: &Attributes<'_>, found: &Matched<'_>) {
        let mut state = self.state.lock();
        let rule = (found.position, state.hasher.hash_one(found.rule));
        let key = state.hasher.hash_one((
            found.binding_kind,
            found.binding,
            found.role,
            rule,
            &attributes.user.name,
        ));
        let now = Timestamp::now();
        let full = state.records.len() >= RECORDS;
        let record = match state.records.get_mut(&key) {
            Some(record) => record,
            None if full => {
                state.omitted += 1;
                return;
            }
            None => {
                let (kind, namespace, name) = found.role;
                let what = What {
                    role: (kind, namespace.into(), name.into()),
                    rule,
                    binding: format!("{} {}", found.binding_kind, found.binding),
                    user: beginning(&attributes.user.name).into(),
                    subject: found.subject.into(),
                    shown: shown(found.rule),
                };
                state.records.entry(key).or_insert(Record {
                    what: Arc::new(what),
                    count: 0,
                    last: now,
                    marks: Marks::default(),
                })
            }
        };
        record.count += 1;
        record.last = now;
        let verb = VERBS.iter().position(|verb| *verb == attributes.verb);
        record.marks.verbs |= 1 << verb.unwrap_or(VERBS.len());
        record.marks.entries |= found
            .rule
            .matching_entries(attributes)
            .filter(|at| *at < 64)
            .fold(0, |bits, at| bits | 1 << at);
    }

    /// What was recorded, of one role when it is named; and of the roles that were used, what was not.
    pub fn report(&self, index: &Index, role: Option<&str>) -> Value {
        // Requests that are recorded meanwhile wait for the copy alone.
        let (mut records, since, hasher, omitted) = {
            let state = self.state.lock();
            let records: Vec<Record> = state.records.values().cloned().collect();
            (records, state.since, state.hasher.clone(), state.omitted)
        };
        records.retain(|record| role.is_none_or(|role| named(&record.what.role) == role));
        let order = |what: &What| {
            (
                what.role.clone(),
                what.rule.0,
                what.binding.clone(),
                what.user.clone(),
            )
        };
        records.sort_by_cached_key(|record| order(&record.what));
        let mut roles: BTreeMap<&RoleKey, HashMap<RuleKey, Marks>> = BTreeMap::new();
        for Record { what, marks, .. } in &records {
            let rules = roles.entry(&what.role).or_default();
            let all = rules.entry(what.rule).or_default();
            all.verbs |= marks.verbs;
            all.entries |= marks.entries;
        }
        let unused: Vec<Value> = roles
            .into_iter()
            .filter_map(|(role, rules)| unused(index, role, &rules, &hasher))
            .take(LISTED)
            .collect();
        let used: Vec<Value> = records.iter().take(LISTED).map(Record::shown).collect();
        let until = self.until.load(Ordering::Relaxed);
        json!({
            "recording": self.records(),
            "since": since.map(Timestamp::to_rfc3339),
            "until": (until > 0).then(|| Timestamp::from_unix(until).to_rfc3339()),
            "used": used,
            "unlisted": records.len().saturating_sub(LISTED),
            "omitted": omitted,
            "unused": unused,
        })
    }
}

/// The rules of a role that were not used, and the verbs and entries of those that were used in part. None when all of it was, or when the
/// role has gone.
fn unused(
    index: &Index,
    key: &RoleKey,
    used: &HashMap<RuleKey, Marks>,
    hasher: &RandomState,
) -> Option<Value> {
    let (kind, namespace, name) = key;
    let mut cuts = Vec::new();
    for (position, rule) in index.rules_of(kind, name, namespace)?.iter().enumerate() {
        let Some(marks) = used.get(&(position, hasher.hash_one(rule))) else {
            cuts.push(json!({"index": position, "rule": shown(rule), "used": false}));
            continue;
        };
        let used_verbs = named_verbs(marks.verbs);
        let known = |verb: &&str| VERBS.contains(verb) && !used_verbs.contains(verb);
        let verbs: Vec<&str> = match rule.verbs.iter().any(|verb| verb == "*") {
            true => VERBS.into_iter().filter(known).collect(),
            false => rule.verbs.iter().map(String::as_str).filter(known).collect(),
        };
        let entries = missing(rule.entries(), marks.entries);
        if !verbs.is_empty() || !entries.is_empty() {
            let what = match rule.resources.is_empty() {
                true => "nonResourceURLs",
                false => "resources",
            };
            let unused = json!({"verbs": verbs, what: entries});
            cuts.push(json!({"index": position, "rule": shown(rule), "used": true, "unused": unused}));
        }
    }
    (!cuts.is_empty()).then(|| json!({"role": named(key), "rules": cuts}))
}

impl Record {
    fn shown(&self) -> Value {
        let what = &self.what;
        json!({
            "user": what.user, "role": named(&what.role), "binding": what.binding, "subject": what.subject,
            "index": what.rule.0, "rule": what.shown, "count": self.count, "last": self.last.to_rfc3339(),
            "verbs": named_verbs(self.marks.verbs),
        })
    }
}

/// A role as answers and questions name it: `ClusterRole/admin`, `Role/shop/readers`.
fn named((kind, namespace, name): &RoleKey) -> String {
    match namespace.is_empty() {
        true => format!("{kind}/{name}"),
        false => format!("{kind}/{namespace}/{name}"),
    }
}

fn named_verbs(bits: u16) -> Vec<&'static str> {
    let names = VERBS.into_iter().chain(["others"]).enumerate();
    names
        .filter(|(at, _)| bits & 1 << at != 0)
        .map(|(_, name)| name)
        .collect()
}

/// Those of the first 64 whose bit is not set.
fn missing(names: &[String], bits: u64) -> Vec<&str> {
    let numbered = names.iter().take(64).enumerate();
    numbered
        .filter(|(at, _)| bits & 1 << at == 0)
        .map(|(_, name)| name.as_str())
        .collect()
}

/// As much of a name as is kept.
fn beginning(name: &str) -> &str {
    let end = (0..=NAME_BYTES.min(name.len()))
        .rev()
        .find(|at| name.is_char_boundary(*at));
    name.get(..end.unwrap_or_default()).unwrap_or_default()
}

#[cfg(test)]
mod tests;
