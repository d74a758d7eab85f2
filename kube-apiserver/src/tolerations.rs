//! Sets of tolerations: which of them a single toleration covers, and their union. A toleration covers another when it tolerates all taints
//! that the other tolerates. Every question is answered by hashing, so that a union costs no more than its length.

use std::collections::{HashMap, HashSet};

use serde_json::Value;

use crate::json::Json;

/// A toleration as it is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Toleration<'v> {
    key: &'v str,
    operator: &'v str,
    value: &'v str,
    effect: &'v str,
    seconds: Option<i64>,
}

/// The taints that a toleration is about: their key (empty for all keys), their effect (empty for all) and their value (`None` for all).
type Scope<'v> = (&'v str, &'v str, Option<&'v str>);

/// How long a toleration holds; greater is longer. Only `NoExecute` ends.
fn duration(effect: &str, seconds: Option<i64>) -> i64 {
    match effect {
        "NoExecute" => seconds.unwrap_or(i64::MAX),
        _ => i64::MAX,
    }
}

impl<'v> Toleration<'v> {
    fn of(value: &'v Value) -> Self {
        Toleration {
            key: value.text("key"),
            operator: value.text("operator"),
            value: value.text("value"),
            effect: value.text("effect"),
            seconds: value.int("tolerationSeconds"),
        }
    }

    /// The scope of a toleration that can cover others.
    fn scope(&self) -> Option<Scope<'v>> {
        match self.operator {
            "Exists" => Some((self.key, self.effect, None)),
            "Equal" | "" => Some((self.key, self.effect, Some(self.value))),
            _ => None,
        }
    }

    /// The scopes of the tolerations that can cover this one.
    fn covering(&self) -> impl Iterator<Item = Scope<'v>> {
        let equal = (self.operator == "Equal").then_some(Some(self.value));
        let own = [Some(None), equal].into_iter().flatten();
        let scopes = own
            .map(|value| (self.key, value))
            .chain([("", None)])
            .collect::<Vec<_>>();
        let effect = self.effect;
        scopes
            .into_iter()
            .flat_map(move |(key, value)| [(key, effect, value), (key, "", value)])
    }
}

/// A set of tolerations to ask whether they cover others.
#[derive(Debug, Default)]
struct Index<'v> {
    all: HashSet<Toleration<'v>>,
    /// The two different tolerations of each scope that hold longest, the longer one first.
    longest: HashMap<Scope<'v>, (Toleration<'v>, Option<Toleration<'v>>)>,
}

impl<'v> Index<'v> {
    fn of(list: &'v [Value]) -> Self {
        let mut index = Index::default();
        for toleration in list {
            index.insert(Toleration::of(toleration));
        }
        index
    }

    fn insert(&mut self, new: Toleration<'v>) {
        let is_new = self.all.insert(new);
        let Some(scope) = new.scope().filter(|_| is_new) else {
            return;
        };
        let length = |one: &Toleration<'_>| duration(one.effect, one.seconds);
        self.longest
            .entry(scope)
            .and_modify(|(first, second)| {
                if length(&new) > length(first) {
                    *second = Some(std::mem::replace(first, new));
                } else if second.as_ref().is_none_or(|second| length(&new) > length(second)) {
                    *second = Some(new);
                }
            })
            .or_insert((new, None));
    }

    /// Whether a toleration that differs from this one covers it.
    fn covers_by_another(&self, one: &Toleration<'_>) -> bool {
        one.covering().any(|scope| {
            let Some((first, second)) = self.longest.get(&scope) else {
                return false;
            };
            let longest = match first == one {
                true => second.as_ref(),
                false => Some(first),
            };
            longest.is_some_and(|longest| {
                // A toleration without an end is covered by such a one alone.
                duration(longest.effect, longest.seconds) >= duration(longest.effect, one.seconds)
            })
        })
    }

    fn covers(&self, one: &Toleration<'_>) -> bool {
        self.all.contains(one) || self.covers_by_another(one)
    }
}

/// The tolerations of both lists in their order, without those that another one covers; of equal ones the first stays. Mirrors
/// upstream's `MergeTolerations`.
pub(crate) fn merged(first: &[Value], second: &[Value]) -> Vec<Value> {
    let all: Vec<&Value> = first.iter().chain(second).collect();
    let mut later = Index::default();
    let mut covered_later = vec![false; all.len()];
    for (at, value) in all.iter().enumerate().rev() {
        let one = Toleration::of(value);
        covered_later[at] = later.covers_by_another(&one);
        later.insert(one);
    }
    let mut kept = Index::default();
    let mut merged = Vec::new();
    for (value, covered_later) in all.into_iter().zip(covered_later) {
        let one = Toleration::of(value);
        if !covered_later && !kept.covers(&one) {
            kept.insert(one);
            merged.push(value.clone());
        }
    }
    merged
}

/// Whether each toleration is covered by one that is allowed. Mirrors upstream's `VerifyAgainstWhitelist`: an empty list allows all.
pub(crate) fn are_allowed(tolerations: &[Value], allowed: &[Value]) -> bool {
    if allowed.is_empty() {
        return true;
    }
    let allowed = Index::of(allowed);
    tolerations.iter().all(|one| allowed.covers(&Toleration::of(one)))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// `key operator value effect seconds`, with `-` for what is absent.
    fn list(text: &[&str]) -> Vec<Value> {
        let one = |text: &&str| {
            let names = ["key", "operator", "value", "effect"];
            let mut toleration = json!({});
            let mut words = text.split(' ');
            for (name, word) in names.iter().zip(words.by_ref()) {
                if word != "-" {
                    toleration[*name] = word.into();
                }
            }
            if let Some(seconds) = words.next() {
                toleration["tolerationSeconds"] = seconds.parse::<i64>().expect("a number").into();
            }
            toleration
        };
        text.iter().map(one).collect()
    }

    /// Upstream's definition, pair by pair.
    fn is_superset(ss: &Value, t: &Value) -> bool {
        let (ss, t) = (Toleration::of(ss), Toleration::of(t));
        if ss == t {
            return true;
        }
        if (t.key != ss.key && !(ss.key.is_empty() && ss.operator == "Exists"))
            || (t.effect != ss.effect && !ss.effect.is_empty())
        {
            return false;
        }
        if let (Some(most), "NoExecute") = (ss.seconds, ss.effect)
            && t.seconds.is_none_or(|seconds| seconds > most)
        {
            return false;
        }
        match ss.operator {
            "Equal" | "" => t.operator == "Equal" && t.value == ss.value,
            "Exists" => true,
            _ => false,
        }
    }

    fn merged_by_pairs(all: &[Value]) -> Vec<Value> {
        let mut merged: Vec<Value> = Vec::new();
        for (at, one) in all.iter().enumerate() {
            let before = merged.iter().any(|other| is_superset(other, one));
            let after = all[at + 1..]
                .iter()
                .any(|other| Toleration::of(other) != Toleration::of(one) && is_superset(other, one));
            if !before && !after {
                merged.push(one.clone());
            }
        }
        merged
    }

    #[test]
    fn unions() {
        #[track_caller]
        fn check(first: &[&str], second: &[&str], expected: &[&str]) {
            assert_eq!(merged(&list(first), &list(second)), list(expected));
        }
        check(&[], &[], &[]);
        check(&["a Equal b NoSchedule"], &[], &["a Equal b NoSchedule"]);
        check(
            &["a Equal b -", "a Equal b -"],
            &["a Equal b -"],
            &["a Equal b -"],
        );
        check(&["a Equal b NoSchedule"], &["a Exists - -"], &["a Exists - -"]);
        check(
            &["a Exists - -"],
            &["a Equal b NoSchedule", "c"],
            &["a Exists - -", "c"],
        );
        check(&["a", "b Exists"], &["- Exists"], &["- Exists"]);
        // One that holds longer covers the other, and one that does not end covers both.
        check(
            &["a Exists - NoExecute 5"],
            &["a Exists - NoExecute 9", "a Exists - NoExecute 7"],
            &["a Exists - NoExecute 9"],
        );
        check(
            &["a Exists - NoExecute 5", "a Exists - NoExecute"],
            &[],
            &["a Exists - NoExecute"],
        );
        // An empty operator means Equal in the one that covers, and not in the covered one.
        check(&["a Equal b"], &["a - b"], &["a - b"]);
        check(
            &["a - b -"],
            &["a - b NoSchedule"],
            &["a - b -", "a - b NoSchedule"],
        );
    }

    /// The index answers as a comparison of all pairs does.
    #[test]
    fn the_index_agrees_with_all_pairs() {
        let mut state = 7_u64;
        let mut pick = |of: &[&str]| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            of[usize::try_from(state >> 33).expect("it fits") % of.len()].to_string()
        };
        for _ in 0..3_000 {
            let texts: Vec<String> = (0..6)
                .map(|_| {
                    let mut text = pick(&["-", "a"]);
                    for words in [
                        &["-", "Equal", "Exists", "Lt"][..],
                        &["-", "1"],
                        &["-", "NoExecute", "NoSchedule"],
                    ] {
                        text = format!("{text} {}", pick(words));
                    }
                    text + &pick(&["", " 5", " 9"])
                })
                .collect();
            let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
            let all = list(&texts);
            assert_eq!(merged(&all[..3], &all[3..]), merged_by_pairs(&all), "{texts:?}");
            let allowed = all[..3]
                .iter()
                .all(|t| all[3..].iter().any(|w| is_superset(w, t)));
            assert_eq!(are_allowed(&all[..3], &all[3..]), allowed, "{texts:?}");
        }
    }

    #[test]
    fn an_empty_list_allows_all() {
        assert!(are_allowed(&list(&["a"]), &[]));
        assert!(are_allowed(&[], &list(&["a"])));
        assert!(!are_allowed(&list(&["a"]), &list(&["b"])));
    }
}
