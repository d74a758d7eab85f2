//! Several transformers, selected by the prefix of a stored value: the first writes, any reads.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;

use super::{Plain, TransformError, Transformer};

/// The common prefix of encrypted values of all providers.
const ENCRYPTED: &[u8] = b"k8s:enc:";

/// Values as they are. Refuses to read encrypted values.
#[derive(Debug, Clone, Copy, Default)]
pub struct Identity;

impl Transformer for Identity {
    fn read(&self, stored: &Bytes, _context: &[u8]) -> Result<Plain, TransformError> {
        if stored.starts_with(ENCRYPTED) {
            return Err(TransformError::failed(
                "identity transformer tried to read encrypted data",
            ));
        }
        Ok(Plain {
            data: stored.clone(),
            stale: false,
        })
    }

    fn write(&self, plain: &[u8], _context: &[u8]) -> Result<Vec<u8>, TransformError> {
        Ok(plain.to_vec())
    }
}

/// A transformer of values that begin with a prefix, which it does not see.
#[derive(Clone)]
pub struct Prefixed {
    /// The prefix; empty for [`Identity`].
    pub prefix: Box<[u8]>,
    /// The transformer of the rest.
    pub transformer: Arc<dyn Transformer>,
}

impl fmt::Debug for Prefixed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Prefixed")
            .field("prefix", &String::from_utf8_lossy(&self.prefix))
            .field("transformer", &self.transformer)
            .finish()
    }
}

impl Prefixed {
    fn rest(&self, stored: &Bytes) -> Option<Bytes> {
        stored
            .starts_with(&self.prefix)
            .then(|| stored.slice(self.prefix.len()..))
    }
}

/// The transformers of a resource, or the keys of a provider. Values that the first one does not read are stale.
#[derive(Debug, Clone)]
pub struct PrefixedTransformers {
    all: Vec<Prefixed>,
    unmatched: &'static str,
}

impl PrefixedTransformers {
    /// In order. `unmatched` is the error for values that match no prefix.
    pub fn new(unmatched: &'static str, all: Vec<Prefixed>) -> Self {
        PrefixedTransformers { all, unmatched }
    }

    /// The prefix that is written now.
    pub fn writes(&self) -> &[u8] {
        self.all.first().map_or(&[], |first| &first.prefix)
    }

    /// The first prefix that a stored value has, when there is one.
    pub fn prefix_of(&self, stored: &[u8]) -> Option<&[u8]> {
        let all = self.all.iter().map(|one| &*one.prefix);
        all.into_iter().find(|prefix| stored.starts_with(prefix))
    }
}

#[async_trait::async_trait]
impl Transformer for PrefixedTransformers {
    fn read(&self, stored: &Bytes, context: &[u8]) -> Result<Plain, TransformError> {
        let mut errors: Vec<String> = Vec::new();
        let mut key_needed = false;
        for (index, one) in self.all.iter().enumerate() {
            let Some(rest) = one.rest(stored) else { continue };
            // A prefix that fits says nothing yet: the same provider may be there again with another key.
            match one.transformer.read(&rest, context) {
                Ok(plain) => {
                    return Ok(Plain {
                        stale: plain.stale || index != 0,
                        ..plain
                    });
                }
                // Encrypted: the next ones may know more.
                Err(_) if one.prefix.is_empty() => {}
                Err(TransformError::KeyNeeded) => key_needed = true,
                Err(TransformError::Failed(why)) => errors.push(why),
            }
        }
        if key_needed {
            return Err(TransformError::KeyNeeded);
        }
        if errors.is_empty() {
            return Err(TransformError::failed(self.unmatched));
        }
        Err(TransformError::Failed(go_text::aggregate(&errors).into_owned()))
    }

    fn write(&self, plain: &[u8], context: &[u8]) -> Result<Vec<u8>, TransformError> {
        let Some(first) = self.all.first() else {
            return Err(TransformError::failed(self.unmatched));
        };
        let body = first.transformer.write(plain, context)?;
        Ok([&*first.prefix, &body].concat())
    }

    fn lacks_key(&self, stored: &Bytes) -> bool {
        let mut rests = self.all.iter().filter_map(|one| Some((one, one.rest(stored)?)));
        rests.any(|(one, rest)| one.transformer.lacks_key(&rest))
    }

    async fn prepare(&self, stored: &Bytes) -> Result<(), TransformError> {
        let mut outcome = Ok(());
        for one in &self.all {
            if let Some(rest) = one.rest(stored) {
                // Each may be the one that reads it.
                let prepared = one.transformer.prepare(&rest).await;
                outcome = outcome.and(prepared);
            }
        }
        outcome
    }
}
