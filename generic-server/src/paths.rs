//! Look-up by path: one trie, made with the snapshot that it belongs to and never changed under a request.
//!
//! Two sorts of keys: whole paths of documents outside the API, and the segments of a resource (group, version, name) as
//! [`crate::RequestInfo`] has them. The second are not parsed from the path again: the authorized request is the routed one.

use machinery::limits;

/// Values by path.
#[derive(Debug, Clone)]
pub struct Paths<T> {
    trie: matchit::Router<T>,
}

impl<T> Default for Paths<T> {
    fn default() -> Self {
        Paths {
            trie: matchit::Router::new(),
        }
    }
}

impl<T> Paths<T> {
    /// Sets the value of exactly this path.
    pub fn insert(&mut self, path: &str, value: T) {
        self.put(escape(path), value);
    }

    /// Sets the value of a path and of everything below it.
    pub fn insert_below(&mut self, path: &str, value: T)
    where
        T: Clone,
    {
        let path = escape(path.trim_end_matches('/'));
        self.put(format!("{path}/"), value.clone());
        self.put(format!("{path}/{{*below}}"), value.clone());
        self.put(path, value);
    }

    /// Sets the value of a sequence of segments.
    pub fn insert_segments(&mut self, segments: &[&str], value: T) {
        self.insert(&format!("/{}", segments.join("/")), value);
    }

    fn put(&mut self, path: String, value: T) {
        // The last value counts.
        let _ = self.trie.remove(path.as_str());
        if let Err(error) = self.trie.insert(path, value) {
            tracing::error!(%error, "a path cannot be routed");
        }
    }

    /// The value of a path.
    pub fn get(&self, path: &str) -> Option<&T> {
        Some(self.trie.at(path).ok()?.value)
    }

    /// The value of a sequence of segments. Those that are longer than any that are routed have none.
    pub fn get_segments(&self, segments: &[&str]) -> Option<&T> {
        let mut key = [0; limits::ROUTE_BYTES];
        let mut length = 0;
        for segment in segments {
            let end = length + 1 + segment.len();
            let (slash, place) = key.get_mut(length..end)?.split_first_mut()?;
            *slash = b'/';
            place.copy_from_slice(segment.as_bytes());
            length = end;
        }
        self.get(std::str::from_utf8(key.get(..length)?).ok()?)
    }
}

/// Braces are the trie's own.
fn escape(path: &str) -> String {
    path.replace('{', "{{").replace('}', "}}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(paths: &Paths<&str>, path: &str, expected: Option<&str>) {
        assert_eq!(paths.get(path).copied(), expected, "{path}");
    }

    #[test]
    fn exact_paths_and_those_below() {
        let mut paths = Paths::default();
        paths.insert("/", "index");
        paths.insert("/version", "old");
        paths.insert("/version", "version");
        paths.insert("/a{b}", "braces");
        paths.insert_below("/livez", "livez");
        check(&paths, "/", Some("index"));
        check(&paths, "/version", Some("version"));
        check(&paths, "/version/", None);
        check(&paths, "/a{b}", Some("braces"));
        check(&paths, "/axb", None);
        for path in ["/livez", "/livez/", "/livez/ping", "/livez/poststarthook/rbac/x"] {
            check(&paths, path, Some("livez"));
        }
        check(&paths, "/livezz", None);
        check(&paths, "", None);
    }

    #[test]
    fn segments_are_whole() {
        let mut paths = Paths::default();
        paths.insert_segments(&["", "v1", "pods"], 1);
        paths.insert_segments(&["apps", "v1", "deployments"], 2);
        paths.insert_segments(&["apps"], 3);
        for (segments, expected) in [
            (&["", "v1", "pods"][..], Some(1)),
            (&["apps", "v1", "deployments"], Some(2)),
            (&["apps"], Some(3)),
            (&["apps", "v1"], None),
            (&["apps", "v1", "deploy"], None),
            (&["apps", "v1", "deploymentsx"], None),
            (&["", "v1", "deployments"], None),
        ] {
            assert_eq!(paths.get_segments(segments).copied(), expected, "{segments:?}");
        }
    }

    #[test]
    fn segments_at_the_limit_and_one_past_it() {
        let longest = "x".repeat(limits::ROUTE_BYTES - 1);
        let mut paths = Paths::default();
        paths.insert_segments(&[&longest], ());
        paths.insert_segments(&[&format!("{longest}x")], ());
        assert!(paths.get_segments(&[&longest]).is_some());
        assert!(paths.get_segments(&[&format!("{longest}x")]).is_none());
    }
}
