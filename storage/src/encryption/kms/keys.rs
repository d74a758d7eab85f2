//! Data keys that the plugin has decrypted, by what they are stored as; and for a moment those that it would not.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use parking_lot::Mutex;
use ring::digest;

use super::messages::EncryptedObject;
use crate::encryption::TransformError;
use crate::encryption::seed::DataKey;

/// Keys that are kept. Each start of a server and each rotation makes one.
const KEPT_KEYS: usize = 4096;
/// How long a refusal counts.
const REFUSED_FOR: Duration = Duration::from_secs(1);

/// Identifies an encrypted data key: a hash of all that the plugin is asked with.
pub(super) type KeyHash = [u8; 32];

/// The hash of an envelope's key.
pub(super) fn hash(object: &EncryptedObject) -> KeyHash {
    let mut context = digest::Context::new(&digest::SHA256);
    // Every part with its length before it: no two different keys make the same bytes.
    let mut part = |bytes: &[u8]| {
        context.update(&(bytes.len() as u64).to_be_bytes());
        context.update(bytes);
    };
    part(&object.source_type.to_be_bytes());
    part(&object.encrypted_source);
    part(object.key_id.as_bytes());
    for (name, value) in &object.annotations {
        part(name.as_bytes());
        part(value);
    }
    let mut out = [0; 32];
    out.copy_from_slice(context.finish().as_ref());
    out
}

#[derive(Debug, Default)]
pub(super) struct Keys(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    known: HashMap<KeyHash, (u64, Arc<DataKey>)>,
    /// In the order of their arrival, which is also that in which they go.
    order: BTreeMap<u64, KeyHash>,
    arrivals: u64,
    refused: HashMap<KeyHash, (Instant, TransformError)>,
    /// The plugin does not answer.
    away: Option<(Instant, TransformError)>,
}

impl Keys {
    pub(super) fn get(&self, hash: &KeyHash) -> Option<Arc<DataKey>> {
        self.0.lock().known.get(hash).map(|(_, key)| key.clone())
    }

    pub(super) fn put(&self, hash: KeyHash, key: Arc<DataKey>) {
        let mut state = self.0.lock();
        state.refused.remove(&hash);
        state.away = None;
        let arrival = state.arrivals;
        state.arrivals += 1;
        if let Some((old, _)) = state.known.insert(hash, (arrival, key)) {
            state.order.remove(&old);
        }
        state.order.insert(arrival, hash);
        while state.known.len() > KEPT_KEYS {
            let Some((_, oldest)) = state.order.pop_first() else {
                return;
            };
            state.known.remove(&oldest);
        }
    }

    pub(super) fn len(&self) -> usize {
        self.0.lock().known.len()
    }

    /// The recent error of the plugin about this key.
    pub(super) fn refusal(&self, hash: &KeyHash) -> Option<TransformError> {
        let state = self.0.lock();
        let recent =
            |(at, error): &(Instant, TransformError)| (at.elapsed() < REFUSED_FOR).then(|| error.clone());
        state
            .away
            .as_ref()
            .and_then(recent)
            .or_else(|| state.refused.get(hash).and_then(recent))
    }

    pub(super) fn refuse(&self, hash: KeyHash, error: TransformError, away: bool) {
        let mut state = self.0.lock();
        let now = Instant::now();
        if away {
            state.away = Some((now, error));
            return;
        }
        if state.refused.len() >= KEPT_KEYS {
            state.refused.clear();
        }
        state.refused.insert(hash, (now, error));
    }

    /// The plugin is back: refused keys are requested again.
    pub(super) fn forgive(&self) {
        let mut state = self.0.lock();
        state.refused.clear();
        state.away = None;
    }
}

const MAX_SOURCE: usize = 1024;
const MAX_KEY_ID: usize = 1024;
const MAX_ANNOTATIONS: usize = 32 * 1024;

/// Upstream's requirements on a key id.
pub(super) fn check_key_id(id: &str) -> Result<(), String> {
    match id.len() {
        0 => Err("keyID is empty".into()),
        1..=MAX_KEY_ID => Ok(()),
        length => Err(format!(
            "keyID is {length} bytes, which exceeds the max size of {MAX_KEY_ID}"
        )),
    }
}

/// Upstream's requirements on an envelope, its data aside.
pub(super) fn check(
    source_type: i32,
    source: &Bytes,
    key_id: &str,
    annotations: &BTreeMap<String, Bytes>,
) -> Result<(), String> {
    if !(0..=1).contains(&source_type) {
        return Err(format!("unknown encryptedDEKSourceType: {source_type}"));
    }
    if source.is_empty() {
        return Err("failed to validate encrypted DEK source: encrypted DEK source is empty".into());
    }
    if source.len() > MAX_SOURCE {
        return Err(format!(
            "failed to validate encrypted DEK source: encrypted DEK source is {} bytes, which exceeds the max size of {MAX_SOURCE}",
            source.len()
        ));
    }
    check_key_id(key_id).map_err(|why| format!("failed to validate key id: {why}"))?;
    let size: usize = annotations.iter().map(|(k, v)| k.len() + v.len()).sum();
    if size > MAX_ANNOTATIONS {
        return Err(format!(
            "failed to validate annotations: total size of annotations is {size}, which exceeds the max size of {MAX_ANNOTATIONS}"
        ));
    }
    if let Some(name) = annotations.keys().find(|name| !is_full_domain_name(name)) {
        return Err(format!(
            "failed to validate annotations: annotations: Invalid value: \"{name}\": should be a domain with at least two segments separated by dots"
        ));
    }
    Ok(())
}

/// RFC 1123, in lower case, of at least two labels; a final dot is fine.
fn is_full_domain_name(name: &str) -> bool {
    let name = name.strip_suffix('.').unwrap_or(name);
    let label = |label: &str| {
        let bytes = label.as_bytes();
        let plain = |b: &u8| b.is_ascii_lowercase() || b.is_ascii_digit();
        (1..=63).contains(&bytes.len())
            && bytes.iter().all(|b| plain(b) || *b == b'-')
            && bytes.first().is_some_and(plain)
            && bytes.last().is_some_and(plain)
    };
    name.len() <= 253 && name.contains('.') && name.split('.').all(label)
}
