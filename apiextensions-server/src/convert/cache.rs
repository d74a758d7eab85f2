//! What a webhook has answered, so that it is asked once about each write of an object.

use std::collections::HashMap;

use machinery::meta;
use parking_lot::Mutex;
use serde_json::Value;

/// Answers kept at most, per CRD, in each of two generations.
const MOST: usize = 4096;

/// The uid, the resourceVersion and the version it was converted to.
type Key = (String, String, String);

/// Two generations: when the newer one is full it becomes the older, and what was in that is forgotten.
#[derive(Debug, Default)]
pub(crate) struct Answers(Mutex<(HashMap<Key, Value>, HashMap<Key, Value>)>);

fn key(object: &Value, version: &str) -> Option<Key> {
    let (uid, at) = (meta::uid(object), meta::resource_version(object));
    let known = !uid.is_empty() && !at.is_empty();
    known.then(|| (uid.into(), at.into(), version.into()))
}

impl Answers {
    pub(crate) fn has(&self, object: &Value, version: &str) -> bool {
        let Some(key) = key(object, version) else {
            return false;
        };
        let generations = self.0.lock();
        generations.0.contains_key(&key) || generations.1.contains_key(&key)
    }

    pub(crate) fn get(&self, object: &Value, version: &str) -> Option<Value> {
        let key = key(object, version)?;
        let generations = self.0.lock();
        generations
            .0
            .get(&key)
            .or_else(|| generations.1.get(&key))
            .cloned()
    }

    pub(crate) fn keep(&self, version: &str, converted: Value) {
        let Some(key) = key(&converted, version) else {
            return;
        };
        let mut generations = self.0.lock();
        if generations.0.len() >= MOST {
            generations.1 = std::mem::take(&mut generations.0);
        }
        generations.0.insert(key, converted);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn answers_are_of_one_write_and_version() {
        let answers = Answers::default();
        let object = |rv: &str| json!({"metadata": {"uid": "u", "resourceVersion": rv}});
        answers.keep("g/v2", object("1"));
        assert!(answers.has(&object("1"), "g/v2"));
        assert!(!answers.has(&object("2"), "g/v2"));
        assert!(!answers.has(&object("1"), "g/v3"));
        answers.keep("g/v2", json!({"metadata": {"uid": "u"}}));
        for n in 0..2 * MOST {
            answers.keep("g/v2", object(&(n + 10).to_string()));
        }
        assert!(!answers.has(&object("1"), "g/v2"), "old answers go");
    }
}
