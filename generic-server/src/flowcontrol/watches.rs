//! How many watches an event is sent to: what a write costs after its answer.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use parking_lot::Mutex;

use crate::request::RequestInfo;

/// The watches under way, by what they watch. Those of equal hashes are counted together: it is an estimate.
#[derive(Debug, Default)]
pub(crate) struct Watches {
    counts: Mutex<HashMap<u64, u64>>,
    hasher: RandomState,
}

/// A watch under way, until dropped.
#[derive(Debug)]
pub(crate) struct Watch {
    watches: Arc<Watches>,
    key: u64,
}

impl Watches {
    fn key(&self, info: &RequestInfo, namespace: &str, name: &str) -> u64 {
        self.hasher
            .hash_one((&*info.group, &*info.resource, namespace, name))
    }

    /// Counts a watch. `None` for one of the pods of a node: an event is sent to few of these, found by an index.
    pub(crate) fn register(self: &Arc<Self>, info: &RequestInfo) -> Option<Watch> {
        if info.resource == "pods" && is_of_one_node(&info.field_selector) {
            return None;
        }
        let key = self.key(info, &info.namespace, &info.name);
        *self.counts.lock().entry(key).or_default() += 1;
        Some(Watch {
            watches: self.clone(),
            key,
        })
    }

    /// How many watches the event of a write is sent to: of all objects, of its namespace, and of the object.
    pub(crate) fn interested_in(&self, info: &RequestInfo) -> u64 {
        let counts = self.counts.lock();
        if counts.is_empty() {
            return 0;
        }
        let count = |namespace: &str, name: &str| {
            let key = self.key(info, namespace, name);
            counts.get(&key).copied().unwrap_or_default()
        };
        let mut all = count("", "");
        if !info.namespace.is_empty() {
            all += count(&info.namespace, "");
        }
        if !info.name.is_empty() {
            all += count(&info.namespace, &info.name);
        }
        all
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let mut counts = self.watches.counts.lock();
        if let Some(count) = counts.get_mut(&self.key) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.key);
            }
        }
    }
}

fn is_of_one_node(field_selector: &str) -> bool {
    field_selector.split(',').any(|term| {
        let value = term.strip_prefix("spec.nodeName=");
        let value = value.map(|value| value.strip_prefix('=').unwrap_or(value));
        value.is_some_and(|value| !value.is_empty())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info(path: &str) -> RequestInfo {
        let uri: http::Uri = path.parse().expect("a path");
        crate::request_info::resolve(&http::Method::GET, &uri).expect("a request")
    }

    #[test]
    fn watches_of_an_object_its_namespace_and_all_count() {
        let watches: Arc<Watches> = Arc::default();
        let paths = [
            "/api/v1/configmaps?watch=1",
            "/api/v1/namespaces/a/configmaps?watch=1",
            "/api/v1/namespaces/a/configmaps?watch=1",
            "/api/v1/namespaces/a/configmaps?watch=1&fieldSelector=metadata.name%3Dx",
            "/api/v1/namespaces/b/configmaps?watch=1",
            "/api/v1/secrets?watch=1",
        ];
        let held: Vec<_> = paths.iter().map(|path| watches.register(&info(path))).collect();
        let check = |path: &str, expected| assert_eq!(watches.interested_in(&info(path)), expected, "{path}");
        check("/api/v1/namespaces/a/configmaps/x", 4);
        check("/api/v1/namespaces/a/configmaps/y", 3);
        check("/api/v1/namespaces/b/configmaps", 2);
        check("/api/v1/namespaces/c/configmaps", 1);
        check("/apis/apps/v1/namespaces/c/configmaps", 0);
        drop(held);
        check("/api/v1/namespaces/a/configmaps/x", 0);
        assert!(watches.counts.lock().is_empty());
    }

    #[test]
    fn watches_of_one_node_do_not_count() {
        #[track_caller]
        fn check(selector: &str, expected: bool) {
            assert_eq!(is_of_one_node(selector), expected, "{selector}");
        }
        check("spec.nodeName=n1", true);
        check("status.phase!=Failed,spec.nodeName==n1", true);
        check("spec.nodeName=", false);
        check("spec.nodeName!=n1", false);
        check("", false);
    }
}
