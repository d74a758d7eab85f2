//! Lists, and the options of lists and watches: selectors, resource versions, pages.
//!
//! The matrix of resourceVersion, resourceVersionMatch, limit and continue is upstream's
//! (`k8s.io/apiserver/pkg/storage/cacher/delegator` and `docs/reference/using-api/api-concepts`); the answers all come from
//! snapshots of the cache. Encoding is elsewhere.

mod entries;
mod options;
#[cfg(test)]
mod tests;
mod token;

use std::ops::Bound;
use std::sync::Arc;

use machinery::selector::{FieldSelector, LabelSelector};
use machinery::{ApiError, Reason, limits};
use storage::Revision;

pub(crate) use entries::Entries;
pub(crate) use options::ListOptions;

use crate::cpu;
use crate::registry::cache::{Entry, Interest, Snapshot, Unreadable};
use crate::registry::{ObjectStore, View};
use token::Token;

/// A resourceVersion as clients write it; empty and `0` are zero. The error is upstream's text.
pub(crate) fn parse_version(text: &str) -> Result<Revision, String> {
    if text.is_empty() {
        return Ok(Revision(0));
    }
    // Rust takes a plus sign, Go does not.
    let parsed = if text.starts_with('+') {
        "x".parse()
    } else {
        text.parse::<u64>()
    };
    parsed.map(Revision).map_err(|error| {
        let why = match error.kind() {
            std::num::IntErrorKind::PosOverflow => "value out of range",
            _ => "invalid syntax",
        };
        let shown = machinery::go::quote(text);
        format!("resourceVersion: Invalid value: {shown}: strconv.ParseUint: parsing {shown}: {why}")
    })
}

/// The newest state that is no older than a resourceVersion that a client named: any for zero.
pub(crate) async fn read_version(store: View<'_>, revision: Revision) -> Result<Arc<Snapshot>, ApiError> {
    let cache = store.cache().await?;
    match revision {
        Revision(0) => Ok(cache.snapshot()),
        revision => cache.wait_for(revision).await,
    }
}

/// Where a requirement of a field selector looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Field {
    Name,
    Namespace,
    /// The index in the store's list.
    Indexed(usize),
    /// The kind has no such field: the empty string.
    Absent,
}

/// Which objects are asked for: selectors resolved against a store, and the part of the key space they can be in.
#[derive(Debug, Clone)]
pub(crate) struct Selection {
    labels: LabelSelector,
    fields: Box<[(Field, Box<str>, bool)]>,
    /// The prefix of keys, with its final slash; or a whole key.
    keys: Keys,
}

#[derive(Debug, Clone)]
enum Keys {
    Under(String),
    One(Box<str>, String),
}

impl Selection {
    /// The objects of a namespace (all when empty) that the selectors take.
    pub(crate) fn new(
        store: &ObjectStore,
        namespace: &str,
        labels: LabelSelector,
        fields: &FieldSelector,
    ) -> Self {
        let config = store.config();
        let resolve = |name: &str| match name {
            "metadata.name" => Field::Name,
            "metadata.namespace" => Field::Namespace,
            other => config
                .fields
                .iter()
                .position(|f| f.name == other)
                .map_or(Field::Absent, Field::Indexed),
        };
        let tests = fields.requirements().iter();
        let tests = tests
            .map(|r| (resolve(&r.field), r.value.clone(), r.negated))
            .collect();
        let exact = |field: &str| fields.requires_exact_match(field).unwrap_or_default();
        let namespace = match (config.namespaced, namespace) {
            (false, _) => "",
            (true, "") => exact("metadata.namespace"),
            (true, named) => named,
        };
        let under = match namespace {
            "" => format!("{}/", config.prefix),
            namespace => format!("{}/{namespace}/", config.prefix),
        };
        let name = exact("metadata.name");
        let keys = if !name.is_empty() && (!config.namespaced || !namespace.is_empty()) {
            Keys::One(store.key(namespace, name).into(), under)
        } else {
            Keys::Under(under)
        };
        Selection {
            labels,
            fields: tests,
            keys,
        }
    }

    /// No selector narrows it: remaining items can be counted.
    fn is_everything(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty()
    }

    /// Whether an object is asked for.
    pub(crate) fn matches(&self, entry: &Entry) -> bool {
        let in_scope = match &self.keys {
            Keys::Under(prefix) => entry.key.starts_with(prefix.as_str()),
            Keys::One(key, _) => *entry.key == **key,
        };
        in_scope && self.selects(entry)
    }

    fn selects(&self, entry: &Entry) -> bool {
        self.fields.iter().all(|(field, value, negated)| {
            let found = match field {
                Field::Name => entry.name(),
                Field::Namespace => entry.namespace(),
                Field::Indexed(index) => entry.field(*index),
                Field::Absent => "",
            };
            (found == &**value) != *negated
        }) && self.labels.matches(entry)
    }

    /// The events that can concern a watcher of this at most.
    pub(crate) fn interest(&self, store: &ObjectStore) -> Interest {
        if let Keys::One(key, _) = &self.keys {
            return Interest::Key(key.clone());
        }
        let indexed = self
            .fields
            .iter()
            .find_map(|(field, value, negated)| match field {
                Field::Indexed(index) if !negated => Some(Interest::Field(*index, value.clone())),
                _ => None,
            });
        if let Some(interest) = indexed {
            return interest;
        }
        let all = store.config().prefix.len() + 1;
        match &self.keys {
            Keys::Under(prefix) if prefix.len() > all => {
                Interest::Namespace(prefix[all..].trim_end_matches('/').into())
            }
            _ => Interest::All,
        }
    }

    /// The key prefix that continue tokens are relative to.
    fn prefix(&self) -> &str {
        match &self.keys {
            Keys::Under(prefix) | Keys::One(_, prefix) => prefix,
        }
    }

    /// The first `most` objects asked for, in key order, from a key on. Others have their turn now and then.
    pub(crate) async fn gather(
        &self,
        snapshot: &Snapshot,
        from: Option<&str>,
        most: usize,
    ) -> Vec<Arc<Entry>> {
        let mut found = Vec::new();
        let mut scope = self.scope(snapshot, from);
        let steps = 1 + self.fields.len() + self.labels.requirements().len();
        let batch = (limits::SLICE_STEPS / steps).max(1);
        loop {
            let mut seen = 0;
            for entry in scope.by_ref().take(batch) {
                seen += 1;
                if self.selects(entry) {
                    found.push(entry.clone());
                    if found.len() == most {
                        return found;
                    }
                }
            }
            if seen < batch {
                return found;
            }
            cpu::pause(cpu::Lane::Answers).await;
        }
    }

    /// How many objects are in scope from a key on, whether selected or not.
    async fn count(&self, snapshot: &Snapshot, from: &str) -> u64 {
        let mut scope = self.scope(snapshot, Some(from));
        let mut count = 0;
        loop {
            let seen = scope.by_ref().take(limits::SLICE_STEPS).count();
            count += seen as u64;
            if seen < limits::SLICE_STEPS {
                return count;
            }
            cpu::pause(cpu::Lane::Answers).await;
        }
    }

    /// The objects in a page's part of the scope that cannot be read. Whether selectors would match them is unknown.
    fn unreadable(
        &self,
        snapshot: &Snapshot,
        from: Option<&str>,
        last: Option<&Entry>,
    ) -> Vec<Arc<Unreadable>> {
        if snapshot.unreadable.is_empty() {
            return Vec::new();
        }
        let in_page = |key: &str| {
            let in_scope = match &self.keys {
                Keys::Under(prefix) => key.starts_with(prefix.as_str()),
                Keys::One(wanted, _) => *key == **wanted,
            };
            let after = from.is_none_or(|from| key >= from);
            in_scope && after && last.is_none_or(|last| *key < *last.key)
        };
        let all = snapshot.unreadable.values();
        all.filter(|object| in_page(&object.key)).cloned().collect()
    }

    /// The part of the key space from a key on in which all objects are asked for, if there is one.
    fn range<'s>(&'s self, from: Option<&'s str>) -> Option<(&'s str, String)> {
        match &self.keys {
            Keys::Under(prefix) if self.is_everything() => Some(within(prefix, from)),
            Keys::Under(_) | Keys::One(..) => None,
        }
    }

    /// All objects in scope, whether selected or not.
    fn scope<'s>(
        &'s self,
        snapshot: &'s Snapshot,
        from: Option<&str>,
    ) -> impl Iterator<Item = &'s Arc<Entry>> {
        let (mut one, mut indexed, mut under) = (None, None, None);
        match &self.keys {
            Keys::One(key, _) => one = snapshot.objects.get(&**key),
            Keys::Under(prefix) => {
                let (start, end) = within(prefix, from);
                match self.index(snapshot) {
                    Some(value) => indexed = Some(snapshot.by_field.keys(value, start, &end)),
                    None => {
                        let range = (Bound::Included(start), Bound::Excluded(end.as_str()));
                        under = Some(snapshot.objects.range::<_, str>(range));
                    }
                }
            }
        }
        let indexed = indexed.into_iter().flatten();
        one.into_iter()
            .chain(indexed.filter_map(|key| snapshot.objects.get(key)))
            .chain(under.into_iter().flatten().map(|(_, entry)| entry))
    }

    /// The value that objects have to have in the field that the snapshot has an index of.
    fn index(&self, snapshot: &Snapshot) -> Option<&str> {
        let wanted = self
            .fields
            .iter()
            .find_map(|(field, value, negated)| match field {
                Field::Indexed(at) if !negated && snapshot.by_field.covers(*at) => Some(&**value),
                _ => None,
            });
        wanted.filter(|value| !value.is_empty())
    }
}

/// Where the keys with a prefix begin, or those of them from one on, and where they end.
fn within<'s>(prefix: &'s str, from: Option<&'s str>) -> (&'s str, String) {
    let start = from.filter(|f| *f > prefix).unwrap_or(prefix);
    // The byte after the slash ends the prefix.
    (start, format!("{}0", prefix.trim_end_matches('/')))
}

/// The result of a list.
#[derive(Debug)]
pub(crate) struct Page {
    /// In key order.
    pub(crate) entries: Entries,
    /// The list's resourceVersion.
    pub(crate) revision: Revision,
    /// Where the next page begins; empty on the last one.
    pub(crate) next: String,
    /// How many follow, where that can be said.
    pub(crate) remaining: Option<u64>,
}

/// Lists.
pub(crate) async fn list(
    store: View<'_>,
    selection: &Selection,
    options: &ListOptions,
) -> Result<Page, ApiError> {
    let cache = store.cache().await?;
    let mut token = None;
    let snapshot = if !options.token.is_empty() {
        let given = Token::decode(&options.token)
            .map_err(|why| ApiError::bad_request(format!("invalid continue token: {why}")))?;
        if !matches!(options.version.as_str(), "" | "0") {
            let message = "specifying resource version is not allowed when using continue";
            return Err(ApiError::bad_request(message));
        }
        let given = token.insert(given);
        match given.revision() {
            // The state of the first page.
            Some(revision) => cache
                .exactly(revision)
                .await
                .map_err(|error| expired_page(error, given))?,
            // The client has chosen to continue with the current state.
            None => cache.fresh().await?,
        }
    } else {
        let bad = |why: String| ApiError::bad_request(format!("invalid resource version: {why}"));
        let revision = parse_version(&options.version).map_err(bad)?;
        let exactly = match options.version_match.as_str() {
            "Exact" => true,
            "NotOlderThan" => false,
            // The old way to ask for a state: a version and a limit.
            _ => options.limit > 0 && revision > Revision(0),
        };
        match (options.version.as_str(), exactly) {
            ("", _) => {
                let fresh = cache.fresh().await;
                cache.figures().read_consistently(fresh.is_ok());
                fresh?
            }
            (_, true) => cache.exactly(revision).await?,
            (_, false) => read_version(store, revision).await?,
        }
    };
    cache.figures().listed(selection.index(&snapshot).is_some());
    // `0` means any available state, which is all of it.
    let limit = match usize::try_from(options.limit) {
        Ok(limit) if limit > 0 && options.version != "0" => limit,
        _ => usize::MAX,
    };
    let from = token
        .as_ref()
        .map(|t| format!("{}{}", selection.prefix(), t.start()));
    if limit == usize::MAX
        && snapshot.unreadable.is_empty()
        && let Some((begin, end)) = selection.range(from.as_deref())
    {
        return Ok(Page {
            revision: snapshot.revision,
            entries: Entries::scope(snapshot, begin, &end),
            next: String::new(),
            remaining: None,
        });
    }
    let mut snapshot = snapshot;
    let (mut page, last) = cut(selection, &snapshot, from.as_deref(), limit, token.as_ref()).await;
    let unreadable = selection.unreadable(&snapshot, from.as_deref(), last.as_deref());
    if !unreadable.is_empty() {
        if let Some(error) = store.unreadable_in_list(&unreadable).await? {
            return Err(error);
        }
        // They can be read by now.
        snapshot = store.fresh().await?;
        (page, _) = cut(selection, &snapshot, from.as_deref(), limit, None).await;
    }
    if !page.next.is_empty() {
        cache.retain(&snapshot);
    }
    Ok(page)
}

/// The selected objects up to a limit, and what is to be said of the rest; and the last object, if others follow.
async fn cut(
    selection: &Selection,
    snapshot: &Snapshot,
    from: Option<&str>,
    limit: usize,
    token: Option<&Token>,
) -> (Page, Option<Arc<Entry>>) {
    let found = selection.gather(snapshot, from, limit).await;
    let number = found.len();
    let last = found.last().filter(|_| number == limit).cloned();
    let mut page = Page {
        entries: found.into(),
        revision: snapshot.revision,
        next: String::new(),
        remaining: None,
    };
    let Some(last) = last else {
        return (page, None);
    };
    let start = format!(
        "{}\0",
        last.key.strip_prefix(selection.prefix()).unwrap_or_default()
    );
    let rest = format!("{}\0", last.key);
    // As upstream: another page is promised when anything follows in scope, selected or not.
    if selection.scope(snapshot, Some(&rest)).next().is_none() {
        return (page, None);
    }
    let mut next = Token::at(snapshot.revision, start);
    if selection.is_everything() {
        // Counting the rest of a huge collection for each page would make listing it quadratic: the token remembers.
        let known = token
            .filter(|t| t.revision() == Some(snapshot.revision))
            .and_then(Token::left);
        let left = match known {
            Some(left) => left.saturating_sub(number as u64),
            None => selection.count(snapshot, &rest).await,
        };
        next = next.with_left(left);
        page.remaining = Some(left);
    }
    page.next = next.encode();
    (page, Some(last))
}

/// A page's state is gone: the offer to go on without it.
fn expired_page(error: ApiError, token: &Token) -> ApiError {
    if error.reason() != Reason::Expired {
        return error;
    }
    const INCONSISTENT: &str = "The provided continue parameter is too old to display a consistent list result. You can start a new list without the continue parameter, or use the continue token in this response to retrieve the remainder of the results. Continuing with the provided token results in an inconsistent list - objects that were created, modified, or deleted between the time the first chunk was returned and now may show up in the list.";
    ApiError::expired(INCONSISTENT).with_continue(Token::unpinned(token.start()).encode())
}
