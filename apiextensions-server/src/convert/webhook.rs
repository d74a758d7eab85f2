//! Versions that a webhook converts between.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use generic_server::registry::Entry;
use generic_server::resource::RemoteConverter;
use machinery::custom;
use machinery::schema::KindSchema;
use machinery::{ApiError, GroupVersion, meta};
use serde::Deserialize;
use serde_json::Value;

use super::cache::Key;
use super::client::WebhookClient;
use super::flight::{Answered, Answers, Known};
use super::review;
use crate::usage::Usage;

/// Objects and bytes of one ConversionReview at most; longer lists are sent as several.
const MOST_OBJECTS: usize = 5000;
const MOST_BYTES: usize = 8 << 20;

/// Asks a webhook.
#[derive(Clone)]
pub(crate) struct ByWebhook {
    pub(crate) served: GroupVersion,
    pub(crate) stored: GroupVersion,
    pub(crate) client: Arc<WebhookClient>,
    pub(crate) answers: Arc<Answers>,
    /// Fields that the stored version does not know are not stored; absent when all versions have one schema.
    pub(crate) prune: Option<KindSchema>,
    /// Where the time of its calls is recorded.
    pub(crate) usage: Arc<Usage>,
}

impl fmt::Debug for ByWebhook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ByWebhook")
            .field("served", &self.served)
            .field("stored", &self.stored)
            .finish_non_exhaustive()
    }
}

/// The identity of an entry; the rest of the object is skipped.
#[derive(Deserialize)]
struct Head<'a> {
    #[serde(borrow, rename = "apiVersion")]
    api_version: Cow<'a, str>,
}

/// The uid, which distinguishes it from an earlier object of the same name.
#[derive(Deserialize)]
struct Uid<'a> {
    #[serde(borrow, default)]
    uid: Cow<'a, str>,
}

/// The version that an entry is stored at, and its uid.
fn identity(entry: &Entry) -> Result<(String, String), ApiError> {
    // `{"kind":K,"apiVersion":V,` and `"metadata":{...}`, each made whole.
    let head = entry.json[..entry.untyped_at()].trim_ascii_end();
    let head = [head.strip_suffix(b",").unwrap_or(head), b"}"].concat();
    let metadata = entry.metadata();
    let metadata = metadata.strip_prefix(b"\"metadata\":").unwrap_or(metadata);
    let head: Head<'_> = serde_json::from_slice(&head).map_err(ApiError::internal)?;
    let of: Uid<'_> = serde_json::from_slice(metadata).map_err(ApiError::internal)?;
    Ok((head.api_version.into_owned(), of.uid.into_owned()))
}

impl ByWebhook {
    /// Converts objects, in order. Those that are of the version already are not sent.
    pub(crate) async fn convert(
        &self,
        mut objects: Vec<Value>,
        to: &GroupVersion,
    ) -> Result<Vec<Value>, ApiError> {
        let version = to.to_string();
        let sent: Vec<usize> = (0..objects.len())
            .filter(|i| meta::api_version(&objects[*i]) != version)
            .collect();
        let Some(first) = sent.first() else {
            return Ok(objects);
        };
        let kind = review::kind_of(&objects[*first]);
        let asked: Vec<&Value> = sent.iter().map(|i| &objects[*i]).collect();
        let (single, wanted) = (asked.len() == 1, asked.len());
        let fail = |why: String| ApiError::internal(format!("conversion webhook for {kind} {why}"));
        let begun = Instant::now();
        let answer = self.client.ask(&asked, &version).await;
        self.usage.converted(begun.elapsed(), answer.is_ok());
        let converted = answer.map_err(|why| fail(format!("failed: {why}")))?;
        if converted.len() != wanted {
            let got = converted.len();
            return Err(fail(format!("returned {got} objects, expected {wanted}")));
        }
        for (n, (i, converted)) in sent.into_iter().zip(converted).enumerate() {
            objects[i] = review::accept(&objects[i], converted, to, n, single).map_err(fail)?;
        }
        Ok(objects)
    }

    /// Converts stored objects with one review.
    async fn convert_batch(self, entries: Vec<Arc<Entry>>, keys: Vec<Key>) -> Answered {
        let objects = entries.iter().map(|entry| entry.value()).collect();
        drop(entries);
        let converted = self.convert(objects, &self.served).await?;
        let mut answered = HashMap::with_capacity(keys.len());
        for (key, object) in keys.into_iter().zip(converted) {
            let json = serde_json::to_vec(&object).map_err(ApiError::internal)?;
            answered.insert(key, json.into());
        }
        Ok(Arc::new(answered))
    }

    /// Splits some of these entries into batches, each with its conversion.
    fn split_into_batches(
        &self,
        unknown: Vec<usize>,
        asked: &[(usize, &Arc<Entry>)],
        keys: &[Key],
    ) -> Vec<(Vec<usize>, BoxFuture<'static, Answered>)> {
        let mut batches: Vec<Vec<usize>> = Vec::new();
        let mut bytes = MOST_BYTES;
        for index in unknown {
            let size = asked[index].1.json.len();
            match batches.last_mut() {
                Some(batch) if batch.len() < MOST_OBJECTS && bytes + size <= MOST_BYTES => {
                    batch.push(index);
                    bytes += size;
                }
                _ => {
                    batches.push(vec![index]);
                    bytes = size;
                }
            }
        }
        let with_conversion = |batch: Vec<usize>| {
            let entries = batch.iter().map(|i| asked[*i].1.clone()).collect();
            let about = batch.iter().map(|i| keys[*i].clone()).collect();
            let converted = self.clone().convert_batch(entries, about).boxed();
            (batch, converted)
        };
        batches.into_iter().map(with_conversion).collect()
    }
}

#[async_trait::async_trait]
impl RemoteConverter for ByWebhook {
    async fn from_stored(&self, entries: &[Arc<Entry>]) -> Result<Vec<Bytes>, ApiError> {
        let version = self.served.to_string();
        let mut out: Vec<Bytes> = entries.iter().map(|entry| entry.json.clone()).collect();
        let (mut asked, mut keys) = (Vec::new(), Vec::new());
        for (index, entry) in entries.iter().enumerate() {
            let (stored, uid) = identity(entry)?;
            if stored != version {
                asked.push((index, entry));
                keys.push((uid, entry.revision.0, version.clone()));
            }
        }
        if asked.is_empty() {
            return Ok(out);
        }
        let known = self
            .answers
            .look_up(&keys, |unknown| self.split_into_batches(unknown, &asked, &keys));
        for (((index, _), key), known) in asked.iter().zip(&keys).zip(known) {
            out[*index] = match known {
                Known::Answer(answer) => answer,
                Known::Asked(flight) => {
                    let answered = flight.await?;
                    let answer = answered.get(key).cloned();
                    answer
                        .ok_or_else(|| ApiError::internal("conversion webhook failed, no objects returned"))?
                }
                Known::Nothing => return Err(ApiError::internal("the object has not been asked about")),
            };
        }
        Ok(out)
    }

    async fn to_stored(&self, object: Value) -> Result<Value, ApiError> {
        let mut converted = self.convert(vec![object], &self.stored).await?;
        let mut object = converted
            .pop()
            .ok_or_else(|| ApiError::internal("conversion webhook failed, no objects returned"))?;
        if let Some(schema) = &self.prune {
            custom::prune(schema.root(), &mut object, true);
        }
        Ok(object)
    }
}
