//! Duplicates in a list, and its items by name: found by hashing, in one pass.
//!
//! Every rule about duplicates or about names of another list of the same object goes through here. A search of a list for each item
//! of a list grows with the square of what a client sends.

use std::borrow::Borrow;
use std::collections::{HashMap, HashSet};
use std::hash::Hash;

use serde_json::Value;

use crate::json::Json;

/// The values met so far.
#[derive(Debug)]
pub(crate) struct Seen<T>(HashSet<T>);

impl<T> Default for Seen<T> {
    fn default() -> Self {
        Seen(HashSet::new())
    }
}

impl<T: Eq + Hash> Seen<T> {
    /// Takes a value in and says whether it was there before.
    pub(crate) fn again(&mut self, value: T) -> bool {
        !self.0.insert(value)
    }

    /// Whether a value was met.
    pub(crate) fn has<Q: Eq + Hash + ?Sized>(&self, value: &Q) -> bool
    where
        T: Borrow<Q>,
    {
        self.0.contains(value)
    }
}

impl<T: Eq + Hash> FromIterator<T> for Seen<T> {
    fn from_iter<I: IntoIterator<Item = T>>(values: I) -> Self {
        Seen(values.into_iter().collect())
    }
}

impl<T: Eq + Hash> Extend<T> for Seen<T> {
    fn extend<I: IntoIterator<Item = T>>(&mut self, values: I) {
        self.0.extend(values);
    }
}

/// The texts at a path of each item of a list.
pub(crate) fn texts<'v>(list: &'v [Value], path: &str) -> Seen<&'v str> {
    list.iter().map(|item| item.text(path)).collect()
}

/// The first item of a list for each text at a path.
pub(crate) fn first_by<'v>(list: &'v [Value], path: &str) -> HashMap<&'v str, &'v Value> {
    let mut first = HashMap::with_capacity(list.len());
    for item in list {
        first.entry(item.text(path)).or_insert(item);
    }
    first
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_first_of_each_name_is_kept() {
        let list = [
            json!({"name": "a", "n": 1}),
            json!({"name": "a", "n": 2}),
            json!({"n": 3}),
        ];
        let first = first_by(&list, "name");
        assert_eq!((first["a"].int("n"), first[""].int("n")), (Some(1), Some(3)));
        assert!(texts(&list, "name").has("a") && !texts(&list, "name").has("b"));
        let mut seen = Seen::default();
        assert_eq!([1, 2, 1].map(|n| seen.again(n)), [false, false, true]);
    }
}
