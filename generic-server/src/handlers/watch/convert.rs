//! Answers of a converter that is asked, for the next events of one watch.

use std::collections::HashMap;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use machinery::ApiError;
use storage::Revision;

use crate::registry::cache::Entry;
use crate::resource::RemoteConverter;

/// How many objects a watch asks about at once.
const BATCH: usize = 500;

/// A write of an object.
type Id = (Arc<str>, Revision);
type Conversion = Pin<Box<dyn Future<Output = Result<Vec<(Id, Bytes)>, ApiError>> + Send>>;

/// Asks ahead of what is written, a batch at a time.
pub(super) struct Answers {
    converter: Arc<dyn RemoteConverter>,
    conversion: Option<Conversion>,
    known: HashMap<Id, Bytes>,
}

impl fmt::Debug for Answers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Answers")
            .field("converter", &self.converter)
            .field("known", &self.known.len())
            .finish_non_exhaustive()
    }
}

fn id(entry: &Entry) -> Id {
    (entry.key.clone(), entry.revision)
}

impl Answers {
    pub(super) fn new(converter: Arc<dyn RemoteConverter>) -> Self {
        Answers {
            converter,
            conversion: None,
            known: HashMap::new(),
        }
    }

    /// The answer about an entry; it is needed once.
    pub(super) fn take(&mut self, entry: &Entry) -> Option<Bytes> {
        self.known.remove(&id(entry))
    }

    /// Ready when the answer about the first of these is known, or there is none to be known.
    pub(super) fn poll<'e>(
        &mut self,
        cx: &mut Context<'_>,
        upcoming: impl Iterator<Item = &'e Arc<Entry>>,
    ) -> Poll<Result<(), ApiError>> {
        if self.conversion.is_none() {
            let mut upcoming = upcoming.peekable();
            match upcoming.peek() {
                Some(first) if !self.known.contains_key(&id(first)) => {}
                _ => return Poll::Ready(Ok(())),
            }
            let entries: Vec<Arc<Entry>> = upcoming.take(BATCH).cloned().collect();
            self.conversion = Some(ask(self.converter.clone(), entries));
        }
        let Some(conversion) = &mut self.conversion else {
            return Poll::Ready(Ok(()));
        };
        let answered = std::task::ready!(conversion.as_mut().poll(cx));
        self.conversion = None;
        self.known.extend(answered?);
        Poll::Ready(Ok(()))
    }
}

fn ask(converter: Arc<dyn RemoteConverter>, entries: Vec<Arc<Entry>>) -> Conversion {
    Box::pin(async move {
        let answers = converter.from_stored(&entries).await?;
        Ok(entries.iter().map(|entry| id(entry)).zip(answers).collect())
    })
}
