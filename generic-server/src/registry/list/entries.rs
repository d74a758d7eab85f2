//! The objects of a page, which are read of the snapshot as they are written: a list of everything begins at once and takes no memory of its
//! own, however many there are.

use std::collections::VecDeque;
use std::fmt;
use std::ops::Bound;
use std::sync::Arc;
use std::vec::IntoIter;

use crate::registry::cache::{Entry, Snapshot};

/// How many objects are taken of a snapshot at once: each time costs a search.
const BATCH: usize = 256;

/// Objects in key order. To clone them costs little as long as they are read of a snapshot.
#[derive(Clone)]
pub(crate) struct Entries(Source);

#[derive(Clone)]
enum Source {
    /// Those that were selected.
    Found(IntoIter<Arc<Entry>>),
    /// All of a part of the key space.
    Scope {
        snapshot: Arc<Snapshot>,
        /// The key that comes next at the earliest.
        from: Bound<Arc<str>>,
        /// The key before which the part ends.
        end: Arc<str>,
        taken: VecDeque<Arc<Entry>>,
    },
}

impl fmt::Debug for Entries {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match &self.0 {
            Source::Found(_) => "Entries::Found",
            Source::Scope { .. } => "Entries::Scope",
        })
    }
}

impl From<Vec<Arc<Entry>>> for Entries {
    fn from(found: Vec<Arc<Entry>>) -> Self {
        Entries(Source::Found(found.into_iter()))
    }
}

impl Entries {
    /// All objects of a snapshot from a key on and before another.
    pub(super) fn scope(snapshot: Arc<Snapshot>, from: &str, end: &str) -> Self {
        Entries(Source::Scope {
            snapshot,
            from: Bound::Included(from.into()),
            end: end.into(),
            taken: VecDeque::new(),
        })
    }
}

impl Iterator for Entries {
    type Item = Arc<Entry>;

    fn next(&mut self) -> Option<Arc<Entry>> {
        match &mut self.0 {
            Source::Found(found) => found.next(),
            Source::Scope {
                snapshot,
                from,
                end,
                taken,
            } => {
                if taken.is_empty() {
                    let begin = from.as_ref().map(|key| &**key);
                    // A range must not begin behind its end.
                    if matches!(begin, Bound::Included(key) | Bound::Excluded(key) if key >= &**end) {
                        return None;
                    }
                    let range = snapshot.objects.range::<_, str>((begin, Bound::Excluded(&**end)));
                    taken.extend(range.take(BATCH).map(|(_, entry)| entry.clone()));
                    if let Some(last) = taken.back() {
                        *from = Bound::Excluded(last.key.clone());
                    }
                }
                taken.pop_front()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::handlers::fixture::fixture;

    #[tokio::test]
    async fn a_scope_is_read_in_batches_and_stays_as_it_was() {
        let f = fixture(false);
        let count = 2 * BATCH + 3;
        for n in 0..count {
            f.put("ns", &format!("p{n:05}"), "x", "n").await;
        }
        f.put("nt", "other", "x", "n").await;
        let cache = f.store().as_system().cache().await.expect("starts");
        let snapshot = cache.snapshot();
        let names = |from: &str| -> Vec<String> {
            let entries = Entries::scope(snapshot.clone(), from, "/registry/pods/ns0");
            entries.map(|entry| entry.name().to_string()).collect()
        };
        let mut begun = Entries::scope(snapshot.clone(), "/registry/pods/ns/", "/registry/pods/ns0");
        assert_eq!(
            begun.next().map(|entry| entry.name().to_string()),
            Some("p00000".into())
        );
        let again = begun.clone();
        f.remove("ns", "p00001").await;
        f.remove("ns", &format!("p{:05}", count - 1)).await;
        assert_eq!(names("/registry/pods/ns/").len(), count);
        assert_eq!((begun.count(), again.count()), (count - 1, count - 1));
        let from = format!("/registry/pods/ns/p{:05}", count - 2);
        assert_eq!(
            names(&from),
            [format!("p{:05}", count - 2), format!("p{:05}", count - 1)]
        );
        assert_eq!(names("/registry/pods/ns0"), Vec::<String>::new());
        assert_eq!(names("/registry/pods/nt/"), Vec::<String>::new());
    }
}
