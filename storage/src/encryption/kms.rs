//! Envelope encryption with a key management plugin, as Kubernetes' KMS v2: the plugin encrypts a seed, values are encrypted
//! with keys derived from it, and the encrypted seed lies beside each value. The plugin is asked once per seed, not per value.
//!
//! Reads go on for ever with seeds that are known. Writes go on for [`COAST`] after the plugin was last seen healthy: beyond that
//! an operator who has changed the key could not know when the old one is out of use.

mod keys;
mod messages;

use std::path::PathBuf;
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

use bytes::Bytes;
use parking_lot::{Mutex, RwLock};
use prost::Message as _;
use ring::digest;

use self::keys::{KeyHash, Keys};
use self::messages::{
    DecryptRequest, DecryptResponse, EncryptRequest, EncryptResponse, EncryptedObject, StatusRequest,
    StatusResponse,
};
use super::seed::{DataKey, LENGTH};
use super::{Plain, TransformError, Transformer, random};
use crate::grpc::{self, SocketClient};

/// How long a seed may be written with after the plugin was last found healthy with the same key.
const COAST: Duration = Duration::from_secs(3 * 60);
/// How often the plugin is asked for its status while it is well, and while it is not.
const WELL: Duration = Duration::from_secs(20);
const UNWELL: Duration = Duration::from_secs(3);

/// Where a plugin is.
#[derive(Debug, Clone)]
pub struct KmsOptions {
    /// The provider's name; part of the prefix of stored values.
    pub name: String,
    /// Its socket; `@name` for one of Linux' abstract namespace.
    pub socket: PathBuf,
    /// How long a call may take.
    pub timeout: Duration,
}

/// A plugin, the seed that is written with, and the seeds that were read. Whoever makes one also runs [`Kms::follow`].
#[derive(Debug)]
pub struct Kms {
    name: String,
    client: SocketClient,
    /// The key that writes use.
    writing: RwLock<Option<Arc<Writing>>>,
    keys: Keys,
    /// The version that the plugin named first; it may not change.
    version: OnceLock<String>,
    health: Mutex<Result<(), String>>,
}

#[derive(Debug)]
struct Writing {
    key: Arc<DataKey>,
    hash: KeyHash,
    /// Everything of the envelope but the data.
    envelope: EncryptedObject,
    expires: Instant,
}

impl Kms {
    /// A plugin that has not been asked anything yet.
    pub fn new(options: KmsOptions) -> Arc<Self> {
        let unasked = format!("kmsv2 Provider {} has not been asked yet", options.name);
        Arc::new(Kms {
            client: SocketClient::new(options.socket, options.timeout),
            name: options.name,
            writing: RwLock::default(),
            keys: Keys::default(),
            version: OnceLock::new(),
            health: Mutex::new(Err(unasked)),
        })
    }

    /// The provider's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// How the plugin was when it was last asked.
    ///
    /// # Errors
    /// Why it is unhealthy.
    pub fn health(&self) -> Result<(), String> {
        self.health.lock().clone()
    }

    /// How many seeds are known.
    pub fn known_keys(&self) -> usize {
        self.keys.len()
    }

    /// Asks the plugin how it is, and makes a new seed when its key has changed.
    ///
    /// # Errors
    /// Why it is unhealthy. The current key stays in use.
    pub async fn check(&self) -> Result<(), String> {
        let outcome = self.ask().await;
        if outcome.is_ok() {
            self.keys.forgive();
        }
        self.health.lock().clone_from(&outcome);
        outcome
    }

    async fn ask(&self) -> Result<(), String> {
        // Before the call: the bound is an upper one.
        let expires = Instant::now() + COAST;
        let status: StatusResponse = self
            .client
            .call(messages::STATUS, StatusRequest {})
            .await
            .map_err(|status| {
                format!(
                    "failed to perform status section of the healthz check for KMS Provider {}, error: {}",
                    self.name,
                    grpc::text(&status)
                )
            })?;
        let mut faults = Vec::new();
        if status.healthz != "ok" {
            faults.push(format!("got unexpected healthz status: {}", status.healthz));
        }
        if !matches!(status.version.as_str(), "v2" | "v2beta1") {
            faults.push(format!("expected KMSv2 API version v2, got {}", status.version));
        } else {
            let first = self.version.get_or_init(|| status.version.clone());
            if *first != status.version {
                faults.push(format!(
                    "KMSv2 API version should not change after the initial status response version {first}, got {}",
                    status.version
                ));
            }
        }
        match keys::check_key_id(&status.key_id) {
            Ok(()) => faults.extend(self.rotate(&status.key_id, expires).await.err()),
            Err(why) => faults.push(format!(
                "got invalid KMSv2 KeyID hash \"{}\": {why}",
                id_hash(&status.key_id)
            )),
        }
        if faults.is_empty() {
            return Ok(());
        }
        Err(format!(
            "kmsv2 Provider {} is not healthy, error: {}",
            self.name,
            go_text::aggregate(&faults)
        ))
    }

    /// Goes on with the seed when the plugin's key is the one it was encrypted with, else makes another.
    async fn rotate(&self, key_id: &str, expires: Instant) -> Result<(), String> {
        let current = self.writing.read().clone();
        if let Some(current) = current.filter(|current| current.envelope.key_id == key_id) {
            *self.writing.write() = Some(Arc::new(Writing {
                key: current.key.clone(),
                hash: current.hash,
                envelope: current.envelope.clone(),
                expires,
            }));
            return Ok(());
        }
        let made = self.make(expires).await;
        let made = made.map_err(|why| format!("failed to rotate DEK, errGen={why}"))?;
        if made.envelope.key_id != key_id {
            return Err(format!(
                "failed to rotate DEK, statusKeyIDHash=\"{}\", encryptKeyIDHash=\"{}\"",
                id_hash(key_id),
                id_hash(&made.envelope.key_id)
            ));
        }
        self.keys.put(made.hash, made.key.clone());
        tracing::info!(
            provider.name = self.name,
            key.id_hash = id_hash(key_id),
            "a new data encryption seed"
        );
        *self.writing.write() = Some(Arc::new(made));
        Ok(())
    }

    async fn make(&self, expires: Instant) -> Result<Writing, String> {
        let mut seed = [0; LENGTH];
        random(&mut seed).map_err(|error| error.to_string())?;
        let request = EncryptRequest {
            plaintext: Bytes::copy_from_slice(&seed),
            uid: uid()?,
        };
        let answer: EncryptResponse = self
            .client
            .call(messages::ENCRYPT, request)
            .await
            .map_err(|status| format!("failed to encrypt DEK, error: {}", grpc::text(&status)))?;
        let envelope = EncryptedObject {
            data: Bytes::new(),
            key_id: answer.key_id,
            encrypted_source: answer.ciphertext,
            annotations: answer.annotations,
            source_type: messages::SOURCE_SEED,
        };
        keys::check(
            envelope.source_type,
            &envelope.encrypted_source,
            &envelope.key_id,
            &envelope.annotations,
        )?;
        Ok(Writing {
            key: Arc::new(DataKey::new(&seed, true).map_err(|error| error.to_string())?),
            hash: keys::hash(&envelope),
            envelope,
            expires,
        })
    }

    /// Asks the plugin from time to time, until it is no longer used.
    pub async fn follow(kms: Weak<Self>) {
        loop {
            let pause = match kms.upgrade() {
                None => return,
                Some(kms) if kms.health().is_ok() => WELL,
                Some(_) => UNWELL,
            };
            tokio::time::sleep(pause).await;
            let Some(kms) = kms.upgrade() else { return };
            let was_well = kms.health().is_ok();
            match kms.check().await {
                Ok(()) if !was_well => {
                    tracing::info!(provider.name = kms.name, "the KMS plugin is healthy again")
                }
                Err(error) if was_well => {
                    tracing::warn!(provider.name = kms.name, %error, "the KMS plugin is unhealthy")
                }
                _ => {}
            }
        }
    }

    fn open(&self, stored: &Bytes) -> Result<EncryptedObject, TransformError> {
        let object = EncryptedObject::decode(stored.clone())
            .map_err(|_| TransformError::failed("the stored envelope cannot be decoded"))?;
        let empty = object
            .data
            .is_empty()
            .then(|| "encrypted data is empty".to_string());
        let checked = empty.map_or(Ok(()), Err).and_then(|()| {
            keys::check(
                object.source_type,
                &object.encrypted_source,
                &object.key_id,
                &object.annotations,
            )
        });
        checked.map_err(TransformError::Failed)?;
        Ok(object)
    }
}

#[async_trait::async_trait]
impl Transformer for Kms {
    fn read(&self, stored: &Bytes, context: &[u8]) -> Result<Plain, TransformError> {
        let object = self.open(stored)?;
        let hash = keys::hash(&object);
        let Some(key) = self.keys.get(&hash) else {
            return Err(self.keys.refusal(&hash).unwrap_or(TransformError::KeyNeeded));
        };
        let plain = key.read(&object.data, context)?;
        let writing = self.writing.read();
        let current = writing.as_ref().map(|w| &w.envelope);
        let stale =
            current.is_some_and(|now| now.key_id != object.key_id || now.source_type != object.source_type);
        Ok(Plain { stale, ..plain })
    }

    fn write(&self, plain: &[u8], context: &[u8]) -> Result<Vec<u8>, TransformError> {
        let Some(writing) = self.writing.read().clone() else {
            return Err(TransformError::Failed(format!(
                "the KMS provider {} has given no key yet",
                self.name
            )));
        };
        let late = Instant::now().saturating_duration_since(writing.expires);
        if !late.is_zero() {
            return Err(TransformError::Failed(format!(
                "encryptedDEKSource with keyID hash \"{}\" expired {} seconds ago",
                id_hash(&writing.envelope.key_id),
                late.as_secs()
            )));
        }
        // A written value must be readable, so its seed stays cached.
        if self.keys.get(&writing.hash).is_none() {
            self.keys.put(writing.hash, writing.key.clone());
        }
        let object = EncryptedObject {
            data: writing.key.write(plain, context)?.into(),
            ..writing.envelope.clone()
        };
        Ok(object.encode_to_vec())
    }

    fn lacks_key(&self, stored: &Bytes) -> bool {
        match self.open(stored) {
            Ok(object) => self.keys.get(&keys::hash(&object)).is_none(),
            Err(_) => false,
        }
    }

    async fn prepare(&self, stored: &Bytes) -> Result<(), TransformError> {
        let object = self.open(stored)?;
        let hash = keys::hash(&object);
        if self.keys.get(&hash).is_some() {
            return Ok(());
        }
        if let Some(refusal) = self.keys.refusal(&hash) {
            return Err(refusal);
        }
        let request = DecryptRequest {
            ciphertext: object.encrypted_source,
            uid: uid().map_err(TransformError::Failed)?,
            key_id: object.key_id,
            annotations: object.annotations,
        };
        let answer: Result<DecryptResponse, _> = self.client.call(messages::DECRYPT, request).await;
        let (error, away) = match answer {
            Ok(answer) => {
                match DataKey::new(&answer.plaintext, object.source_type == messages::SOURCE_SEED) {
                    Ok(key) => {
                        self.keys.put(hash, Arc::new(key));
                        return Ok(());
                    }
                    Err(error) => (error, false),
                }
            }
            Err(status) => {
                let text = format!("failed to decrypt DEK, error: {}", grpc::text(&status));
                (TransformError::Failed(text), grpc::is_away(&status))
            }
        };
        self.keys.refuse(hash, error.clone(), away);
        Err(error)
    }
}

/// Key ids are not for logs.
fn id_hash(id: &str) -> String {
    if id.is_empty() {
        return String::new();
    }
    let hash = digest::digest(&digest::SHA256, id.as_bytes());
    let hex: String = hash.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256:{hex}")
}

/// A random identifier of a call (UUID version 4), for the plugin's log.
fn uid() -> Result<String, String> {
    let mut bytes = [0; 16];
    random(&mut bytes).map_err(|error| error.to_string())?;
    bytes[6] = bytes[6] & 0x0f | 0x40;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    let parts = [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]];
    Ok(parts.join("-"))
}
