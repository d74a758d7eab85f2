//! Whether the rules that a user holds cover the rules that they want to grant, and the missing ones.
//!
//! A wanted rule is a product: API groups times resources times names times verbs. The product is never written out. The held rules
//! are indexed once; values of a wanted rule that the same held rules match form a class, and one look decides for a whole class.
//! Steps are counted, and a check that costs more than [`limits::ESCALATION_STEPS`] ends without an answer.
//! Mirrors the result of upstream's `Covers` and `CompactRules`.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use machinery::go::quote;
use machinery::limits;

use super::rule::PolicyRule;

/// The comparison would cost more than [`limits::ESCALATION_STEPS`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TooManySteps;

/// The work that a check may still do.
#[derive(Debug)]
struct Steps(usize);

impl Steps {
    fn take(&mut self, count: usize) -> Result<(), TooManySteps> {
        self.0 = self.0.checked_sub(count).ok_or(TooManySteps)?;
        Ok(())
    }
}

/// One dimension of the held rules: which rules match which value.
#[derive(Debug, Default)]
struct Postings<'a> {
    /// By rule, whether it matches every value.
    any: Vec<bool>,
    /// The rules that match every value, in order.
    every: Vec<usize>,
    /// Where in `lists` the rules stand that name a value.
    by_value: HashMap<&'a str, usize>,
    /// Distinct lists of rules, each in order. Values of the same list are of one class.
    lists: Vec<Vec<usize>>,
}

/// The lists of [`Postings`] that a value is looked up in: its own, and that of its subresource in every resource.
type Key = [Option<usize>; 2];

/// Values of a wanted rule that the same held rules match.
#[derive(Debug)]
struct Class<'w> {
    key: Key,
    values: Vec<&'w str>,
}

impl<'a> Postings<'a> {
    /// From the values of each rule and whether it matches every value.
    fn new(rules: impl Iterator<Item = (&'a [String], bool)>) -> Self {
        let mut postings = Postings::default();
        let mut by_value: HashMap<&'a str, Vec<usize>> = HashMap::new();
        for (rule, (values, every)) in rules.enumerate() {
            postings.any.push(every);
            if every {
                postings.every.push(rule);
                continue;
            }
            for value in values {
                let list = by_value.entry(value).or_default();
                if list.last() != Some(&rule) {
                    list.push(rule);
                }
            }
        }
        let mut ids: HashMap<Vec<usize>, usize> = HashMap::new();
        for (value, list) in by_value {
            let next = ids.len();
            postings.by_value.insert(value, *ids.entry(list).or_insert(next));
        }
        postings.lists = vec![Vec::new(); ids.len()];
        for (list, id) in ids {
            postings.lists[id] = list;
        }
        postings
    }

    fn list(&self, id: Option<usize>) -> &[usize] {
        id.and_then(|id| self.lists.get(id)).map_or(&[], Vec::as_slice)
    }

    /// Sorts values into classes, in the order of first sight.
    fn classes<'w>(&self, values: &[&'w str], subresources: bool) -> Vec<Class<'w>> {
        let mut at: HashMap<Key, usize> = HashMap::new();
        let mut classes: Vec<Class<'w>> = Vec::new();
        for value in values {
            let wildcard = match value.split_once('/') {
                Some((_, subresource)) if subresources => {
                    self.by_value.get(format!("*/{subresource}").as_str())
                }
                _ => None,
            };
            let key = [self.by_value.get(value).copied(), wildcard.copied()];
            let index = *at.entry(key).or_insert_with(|| {
                classes.push(Class {
                    key,
                    values: Vec::new(),
                });
                classes.len() - 1
            });
            classes[index].values.push(value);
        }
        classes
    }

    /// Every rule that matches the values of a class, in order.
    fn rules(&self, key: Key) -> Vec<usize> {
        let lists = key.into_iter().flat_map(|id| self.list(id));
        let mut rules: Vec<usize> = lists.chain(&self.every).copied().collect();
        rules.sort_unstable();
        rules.dedup();
        rules
    }

    /// Those of some rules that match the values of a class.
    fn filter(&self, rules: &[usize], key: Key) -> Vec<usize> {
        let matches = |rule: &usize| {
            self.any[*rule]
                || key
                    .into_iter()
                    .any(|id| self.list(id).binary_search(rule).is_ok())
        };
        rules.iter().copied().filter(matches).collect()
    }
}

/// The held rules, arranged for comparing.
#[derive(Debug)]
struct Held<'a> {
    groups: Postings<'a>,
    resources: Postings<'a>,
    names: Postings<'a>,
    /// By rule: its verbs; `None` for every verb.
    verbs: Vec<Option<HashSet<&'a str>>>,
    /// Paths without a `*` at their end, and the rules that have them and no names.
    paths: HashMap<&'a str, Vec<usize>>,
    /// The prefixes before the `*` of the others, by their length.
    prefixes: BTreeMap<usize, HashMap<&'a [u8], Vec<usize>>>,
    /// One rule holds every verb of every resource.
    everything: bool,
}

fn has_star(list: &[String]) -> bool {
    list.iter().any(|one| one == "*")
}

impl<'a> Held<'a> {
    fn new(rules: &[&'a PolicyRule]) -> Self {
        let each = || rules.iter().copied();
        let mut paths: HashMap<&str, Vec<usize>> = HashMap::new();
        let mut prefixes: BTreeMap<usize, HashMap<&[u8], Vec<usize>>> = BTreeMap::new();
        for (index, rule) in rules
            .iter()
            .enumerate()
            .filter(|(_, r)| r.resource_names.is_empty())
        {
            for path in &rule.non_resource_urls {
                // A pattern covers itself too.
                paths.entry(path).or_default().push(index);
                if path.ends_with('*') {
                    let prefix = path.trim_end_matches('*').as_bytes();
                    let same_length = prefixes.entry(prefix.len()).or_default();
                    same_length.entry(prefix).or_default().push(index);
                }
            }
        }
        Held {
            groups: Postings::new(each().map(|r| (&*r.api_groups, has_star(&r.api_groups)))),
            resources: Postings::new(each().map(|r| (&*r.resources, has_star(&r.resources)))),
            names: Postings::new(each().map(|r| (&*r.resource_names, r.resource_names.is_empty()))),
            verbs: each()
                .map(|r| (!has_star(&r.verbs)).then(|| r.verbs.iter().map(String::as_str).collect()))
                .collect(),
            paths,
            prefixes,
            everything: each().any(|r| {
                r.resource_names.is_empty()
                    && has_star(&r.verbs)
                    && has_star(&r.api_groups)
                    && has_star(&r.resources)
            }),
        }
    }

    /// The verbs that none of these rules has.
    fn missing_verbs<'v, 'w>(
        &self,
        rules: &[usize],
        verbs: &'v [&'w str],
        steps: &mut Steps,
    ) -> Result<Cow<'v, [&'w str]>, TooManySteps> {
        steps.take(1 + rules.len())?;
        let sets: Option<Vec<&HashSet<&str>>> = rules.iter().map(|rule| self.verbs[*rule].as_ref()).collect();
        match sets {
            None => Ok(Cow::Borrowed(&[])),
            Some(sets) if sets.is_empty() => Ok(Cow::Borrowed(verbs)),
            Some(sets) => {
                steps.take(sets.len().saturating_mul(verbs.len()))?;
                let missing = verbs
                    .iter()
                    .filter(|verb| !sets.iter().any(|set| set.contains(**verb)));
                Ok(Cow::Owned(missing.copied().collect()))
            }
        }
    }

    /// The rules that hold a path.
    fn rules_of_path(&self, path: &str, steps: &mut Steps) -> Result<Vec<usize>, TooManySteps> {
        let mut rules: Vec<usize> = self.paths.get(path).cloned().unwrap_or_default();
        for (length, prefixes) in self.prefixes.range(..=path.len()) {
            // To look a prefix up is to read it.
            steps.take(1 + length / 64)?;
            if let Some(found) = prefixes.get(&path.as_bytes()[..*length]) {
                steps.take(found.len())?;
                rules.extend(found);
            }
        }
        Ok(rules)
    }
}

/// A resource (and name) or a path of which verbs are missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Place<'w> {
    /// Group, resource, name.
    Resource(&'w str, &'w str, Option<&'w str>),
    /// A path and the verb: verbs of a path are not joined.
    Path(&'w str, &'w str),
}

/// The missing verbs of one place, in order of first sight.
#[derive(Debug)]
struct Line<'w> {
    place: Place<'w>,
    verbs: Vec<&'w str>,
    seen: HashSet<&'w str>,
}

/// The permissions that no held rule covers: some of them, and how many more there are.
#[derive(Debug, Default)]
pub(super) struct Missing<'w> {
    lines: Vec<Line<'w>>,
    at: HashMap<Place<'w>, usize>,
    /// Lines beyond those. Entries of two wanted rules are counted twice.
    more: usize,
}

impl<'w> Missing<'w> {
    pub(super) fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }

    /// Takes in `count` places, as far as there is room for them.
    fn add(&mut self, places: impl Iterator<Item = Place<'w>>, count: usize, verbs: &[&'w str]) {
        let mut added = 0;
        for place in places {
            if self.lines.len() >= limits::CAUSES {
                break;
            }
            added += 1;
            let index = *self.at.entry(place).or_insert(self.lines.len());
            if index == self.lines.len() {
                self.lines.push(Line {
                    place,
                    verbs: Vec::new(),
                    seen: HashSet::new(),
                });
            }
            let line = &mut self.lines[index];
            // One verb more than is shown, so that the text says that there are more.
            let verbs = verbs.iter().copied().take(limits::CAUSES + 1);
            line.verbs.extend(verbs.filter(|verb| line.seen.insert(*verb)));
        }
        self.more = self.more.saturating_add(count - added);
    }

    /// Takes in a product of groups, resources and names.
    fn add_product(
        &mut self,
        groups: &[&'w str],
        resources: &[&'w str],
        names: &[&'w str],
        verbs: &[&'w str],
    ) {
        let pairs = groups.len().saturating_mul(resources.len());
        let count = pairs.saturating_mul(names.len().max(1));
        let places = groups.iter().flat_map(|group| {
            resources.iter().flat_map(move |resource| {
                let unnamed = names.is_empty().then_some(Place::Resource(group, resource, None));
                let named = names
                    .iter()
                    .map(move |name| Place::Resource(group, resource, Some(*name)));
                unnamed.into_iter().chain(named)
            })
        });
        self.add(places, count, verbs);
    }

    /// In words, a line each, sorted.
    pub(super) fn describe(&self) -> String {
        let mut out = String::new();
        let mut more = self.more;
        for line in self.lines.iter().map(Line::describe).collect::<BTreeSet<_>>() {
            // Half of what a message may hold: the rest is for what stands before and behind.
            if out.len() + line.len() > limits::MESSAGE_BYTES / 2 {
                more += 1;
                continue;
            }
            if !out.is_empty() {
                out.push('\n');
            }
            out.push_str(&line);
        }
        if more > 0 {
            out.push_str(&format!("\nand {more} more"));
        }
        out
    }
}

impl Line<'_> {
    fn describe(&self) -> String {
        match self.place {
            Place::Resource(group, resource, name) => {
                let name = name.map_or_else(String::new, |name| {
                    format!(", ResourceNames:{}", quote_list(&[name]))
                });
                format!(
                    "{{APIGroups:{}, Resources:{}{name}, Verbs:{}}}",
                    quote_list(&[group]),
                    quote_list(&[resource]),
                    quote_list(&self.verbs)
                )
            }
            Place::Path(path, verb) => {
                format!(
                    "{{NonResourceURLs:{}, Verbs:{}}}",
                    quote_list(&[path]),
                    quote_list(&[verb])
                )
            }
        }
    }
}

/// A list as Go's `%q` prints it; of a long list its beginning.
pub(super) fn quote_list<T: AsRef<str>>(list: &[T]) -> String {
    let mut out = String::from("[");
    for (index, text) in list.iter().enumerate() {
        if index > 0 {
            out.push(' ');
        }
        let text = text.as_ref();
        if index >= limits::CAUSES || out.len() + text.len() > limits::SHOWN_VALUE_BYTES {
            out.push_str("...");
            break;
        }
        out.push_str(&quote(text));
    }
    out.push(']');
    out
}

/// Each value once, in its first place.
fn distinct(list: &[String]) -> Vec<&str> {
    let mut seen = HashSet::with_capacity(list.len());
    list.iter()
        .map(String::as_str)
        .filter(|value| seen.insert(*value))
        .collect()
}

/// The part of the wanted rules that no held rule covers.
///
/// # Errors
/// [`TooManySteps`] when the answer would cost more than [`limits::ESCALATION_STEPS`].
pub(super) fn missing<'w>(
    held: &[&PolicyRule],
    wanted: &'w [PolicyRule],
) -> Result<Missing<'w>, TooManySteps> {
    let mut steps = Steps(limits::ESCALATION_STEPS);
    compare(held, wanted, &mut steps)
}

fn compare<'w>(
    held: &[&PolicyRule],
    wanted: &'w [PolicyRule],
    steps: &mut Steps,
) -> Result<Missing<'w>, TooManySteps> {
    steps.take(held.iter().map(|rule| rule.strings()).sum())?;
    let held = Held::new(held);
    let mut missing = Missing::default();
    for rule in wanted {
        steps.take(rule.strings())?;
        let verbs = distinct(&rule.verbs);
        if verbs.is_empty() {
            continue;
        }
        for path in distinct(&rule.non_resource_urls) {
            let rules = held.rules_of_path(path, steps)?;
            for verb in held.missing_verbs(&rules, &verbs, steps)?.iter() {
                steps.take(1)?;
                missing.add(std::iter::once(Place::Path(path, verb)), 1, &[verb]);
            }
        }
        if !held.everything {
            compare_resources(&held, rule, &verbs, &mut missing, steps)?;
        }
    }
    Ok(missing)
}

fn compare_resources<'w>(
    held: &Held<'_>,
    rule: &'w PolicyRule,
    verbs: &[&'w str],
    missing: &mut Missing<'w>,
    steps: &mut Steps,
) -> Result<(), TooManySteps> {
    let names = distinct(&rule.resource_names);
    let by_name = held.names.classes(&names, false);
    let by_group = held.groups.classes(&distinct(&rule.api_groups), false);
    for resources in held.resources.classes(&distinct(&rule.resources), true) {
        let of_resource = held.resources.rules(resources.key);
        steps.take(1 + of_resource.len())?;
        for groups in &by_group {
            steps.take(1 + of_resource.len())?;
            let of_group = held.groups.filter(&of_resource, groups.key);
            let mut judge = |rules: &[usize], names: &[&'w str], steps: &mut Steps| {
                let verbs = held.missing_verbs(rules, verbs, steps)?;
                if !verbs.is_empty() {
                    missing.add_product(&groups.values, &resources.values, names, &verbs);
                }
                Ok(())
            };
            if of_group.is_empty() {
                judge(&[], &names, steps)?;
            } else if names.is_empty() {
                judge(&held.names.filter(&of_group, [None, None]), &[], steps)?;
            } else {
                for named in &by_name {
                    steps.take(1 + of_group.len())?;
                    judge(&held.names.filter(&of_group, named.key), &named.values, steps)?;
                }
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
