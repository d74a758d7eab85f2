//! Encryption at rest as `--encryption-provider-config` has it: which resources' values are stored how, read again when the file
//! changes. Mirrors upstream's `server/options/encryptionconfig`; the transformers are [`storage::encryption`].
//!
//! A store looks up its transformer for each value, so that a changed file counts for the next read and write. A file that
//! is invalid is logged and counted, and the previous one stays in use.

mod config;
mod metrics;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use bytes::Bytes;
use machinery::GroupResource;
use machinery::go;
use ring::digest;
use storage::encryption::{
    AesCbc, AesGcm, Identity, Kms, KmsOptions, Prefixed, PrefixedTransformers, Secretbox, TransformError,
    Transformer,
};

use crate::spawn::Tasks;
use config::{Key, Provider};
use metrics::Figures;

/// How long new KMS plugins may take to be healthy before a changed file is rejected for now.
const HEALTH_TIMEOUT: Duration = Duration::from_secs(10);
const HEALTH_INTERVAL: Duration = Duration::from_millis(100);

/// Why a file cannot be used; the text is upstream's and has no keys in it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct EncryptionError(String);

/// The encryption of all resources.
#[derive(Debug)]
pub struct Encryption {
    file: PathBuf,
    automatic: bool,
    current: ArcSwap<Loaded>,
    tasks: Tasks,
    pub(crate) figures: Figures,
}

/// The configuration of one state of the file.
#[derive(Debug)]
struct Loaded {
    /// `sha256:` and the hash of the text.
    hash: String,
    by_resource: HashMap<GroupResource, Arc<PrefixedTransformers>>,
    kms: Vec<Arc<Kms>>,
}

impl Encryption {
    /// Reads the file and asks its KMS plugins once; one that is away is asked again in the background. With `automatic`
    /// the server calls [`Encryption::poll_once`] from time to time.
    ///
    /// # Errors
    /// When the file cannot be read or is invalid.
    pub async fn load(file: &Path, automatic: bool, tasks: &Tasks) -> Result<Arc<Self>, EncryptionError> {
        let loaded = Loaded::read(file, automatic)?;
        for kms in &loaded.kms {
            if let Err(error) = kms.check().await {
                tracing::warn!(provider.name = kms.name(), %error, "the KMS plugin is unhealthy yet");
            }
        }
        let encryption = Arc::new(Encryption {
            file: file.to_path_buf(),
            automatic,
            current: ArcSwap::from_pointee(loaded),
            tasks: tasks.clone(),
            figures: Figures::default(),
        });
        encryption.keep_asking();
        Ok(encryption)
    }

    /// Waits, for as long as that, until values of these resources can be encrypted: a server whose own objects are encrypted by a
    /// KMS plugin cannot start without it. Reading or writing afterwards shows whether the keys have come.
    pub async fn wait_for_keys(&self, resources: &[GroupResource], patience: Duration) {
        let lacks_key = |resource: &GroupResource| {
            self.of(resource)
                .is_some_and(|transformers| transformers.write(b"", b"").is_err())
        };
        let deadline = tokio::time::Instant::now() + patience;
        let mut logged = false;
        while resources.iter().any(lacks_key) && tokio::time::Instant::now() < deadline {
            if !logged {
                tracing::warn!(
                    "the server's own objects are encrypted with a KMS plugin that is unhealthy, the start waits for it"
                );
                logged = true;
            }
            tokio::time::sleep(HEALTH_INTERVAL).await;
            for kms in &self.current.load().kms {
                // The next round shows the outcome.
                let _ = kms.check().await;
            }
        }
    }

    /// Looks at the file once: true when it had changed and counts from now on.
    ///
    /// # Errors
    /// When it is invalid, or a KMS plugin that it names is unhealthy. The previous one stays in use.
    pub async fn poll_once(&self) -> Result<bool, EncryptionError> {
        let outcome = self.look_quietly().await;
        match &outcome {
            Ok(true) => {
                self.figures.reloaded(true);
                tracing::info!("the encryption configuration was reloaded");
            }
            Ok(false) => {}
            Err(error) => {
                self.figures.reloaded(false);
                tracing::error!(%error, "the changed encryption configuration is invalid; the previous one stays in use");
            }
        }
        outcome
    }

    async fn look_quietly(&self) -> Result<bool, EncryptionError> {
        if hash_of(&read(&self.file)?) == self.current.load().hash {
            return Ok(false);
        }
        let loaded = Loaded::read(&self.file, true)?;
        let deadline = tokio::time::Instant::now() + HEALTH_TIMEOUT;
        for kms in &loaded.kms {
            while let Err(error) = kms.check().await {
                if tokio::time::Instant::now() >= deadline {
                    return Err(EncryptionError(format!(
                        "health check for new transformers failed, polling error timed out waiting for the condition: {error}"
                    )));
                }
                tokio::time::sleep(HEALTH_INTERVAL).await;
            }
        }
        self.current.store(Arc::new(loaded));
        self.keep_asking();
        Ok(true)
    }

    /// Whether the file's changes are to be followed.
    pub fn is_automatic(&self) -> bool {
        self.automatic
    }

    /// The health checks that this wants: name and question. Their number does not change.
    pub fn checks(
        self: &Arc<Self>,
    ) -> Vec<(String, impl Fn() -> Result<(), String> + Send + Sync + 'static)> {
        // As upstream names the one check of all KMS v2 providers.
        let wanted = self.automatic || !self.current.load().kms.is_empty();
        let encryption = self.clone();
        let ask = move || encryption.kms_health();
        wanted
            .then(|| ("kms-providers".to_string(), ask))
            .into_iter()
            .collect()
    }

    fn kms_health(&self) -> Result<(), String> {
        let loaded = self.current.load();
        let mut faults = Vec::new();
        for (index, kms) in loaded.kms.iter().enumerate() {
            if let Err(why) = kms.health() {
                faults.push(format!("kms-provider-{index}: {why}"));
            }
        }
        if faults.is_empty() {
            return Ok(());
        }
        Err(go::aggregate(&faults).into_owned())
    }

    fn keep_asking(&self) {
        for kms in &self.current.load().kms {
            self.tasks.spawn("kms provider", Kms::follow(Arc::downgrade(kms)));
        }
    }

    /// Decrypts a stored value, for callers that know it by its key alone, with the first transformer that reads it. Asks a KMS
    /// plugin for the key where needed.
    ///
    /// # Errors
    /// Why none of them does.
    pub async fn decrypt(&self, key: &str, stored: &Bytes) -> Result<Bytes, TransformError> {
        let loaded = self.current.load_full();
        let mut why = None;
        for transformers in loaded.by_resource.values() {
            let fits = |prefix: &[u8]| !prefix.is_empty();
            if !transformers.prefix_of(stored).is_some_and(fits) {
                continue;
            }
            let mut read = transformers.read(stored, key.as_bytes());
            if matches!(read, Err(TransformError::KeyNeeded)) {
                read = match transformers.prepare(stored).await {
                    Ok(()) => transformers.read(stored, key.as_bytes()),
                    Err(error) => Err(error),
                };
            }
            match read {
                Ok(plain) => return Ok(plain.data),
                Err(error) => why = Some(error),
            }
        }
        Err(why.unwrap_or_else(|| TransformError::Failed("no matching prefix found".into())))
    }

    /// The transformers of a resource now: its own, else its group's, else everything's. `None`: values are as they are.
    pub(crate) fn of(&self, resource: &GroupResource) -> Option<Arc<PrefixedTransformers>> {
        let loaded = self.current.load();
        let find = |group: &str, resource: &str| loaded.by_resource.get(&GroupResource::new(group, resource));
        find(&resource.group, &resource.resource)
            .or_else(|| find(&resource.group, "*"))
            .or_else(|| find("*", "*"))
            .cloned()
    }
}

fn read(file: &Path) -> Result<Vec<u8>, EncryptionError> {
    std::fs::read(file).map_err(|error| {
        EncryptionError(format!(
            "error while loading file: error reading encryption provider configuration file \"{}\": {error}",
            file.display()
        ))
    })
}

fn hash_of(data: &[u8]) -> String {
    let mut text = String::from("sha256:");
    for byte in digest::digest(&digest::SHA256, data).as_ref() {
        let _ = write!(text, "{byte:02x}");
    }
    text
}

impl Loaded {
    fn read(file: &Path, reload: bool) -> Result<Self, EncryptionError> {
        let data = read(file)?;
        let entries = config::parse(&file.display().to_string(), &data, reload)
            .map_err(|why| EncryptionError(format!("error while parsing file: {why}")))?;
        let building = |why: String| EncryptionError(format!("error while building transformers: {why}"));
        let mut lists: HashMap<GroupResource, Vec<Prefixed>> = HashMap::new();
        let mut kms = Vec::new();
        for entry in entries {
            let mut providers = Vec::new();
            for provider in entry.providers {
                let made = prefixed(provider, &mut kms);
                providers.push(made.map_err(|error| building(error.to_string()))?);
            }
            for text in &entry.resources {
                let resource = config::parse_resource(text);
                for mask in [
                    GroupResource::new(&resource.group, "*"),
                    GroupResource::new("*", "*"),
                ] {
                    if lists.contains_key(&mask) {
                        return Err(building(format!(
                            "resource \"{}\" is masked by earlier rule \"{}\"",
                            shown(&resource),
                            shown(&mask)
                        )));
                    }
                }
                lists
                    .entry(resource)
                    .or_default()
                    .extend(providers.iter().cloned());
            }
        }
        let by_resource = lists
            .into_iter()
            .map(|(resource, list)| {
                let all = PrefixedTransformers::new("no matching prefix found", list);
                (resource, Arc::new(all))
            })
            .collect();
        Ok(Loaded {
            hash: hash_of(&data),
            by_resource,
            kms,
        })
    }
}

fn shown(resource: &GroupResource) -> String {
    match (&*resource.group, &*resource.resource) {
        ("", "*") => "*.".into(),
        _ => resource.to_string(),
    }
}

fn prefixed(provider: Provider, kms: &mut Vec<Arc<Kms>>) -> Result<Prefixed, TransformError> {
    fn keyed<T: Transformer + 'static>(
        prefix: &str,
        unmatched: &'static str,
        keys: Vec<Key>,
        make: impl Fn(&[u8]) -> Result<T, TransformError>,
    ) -> Result<Prefixed, TransformError> {
        let mut all = Vec::with_capacity(keys.len());
        for key in keys {
            all.push(Prefixed {
                prefix: format!("{}:", key.name).into_bytes().into(),
                transformer: Arc::new(make(&key.secret)?),
            });
        }
        Ok(Prefixed {
            prefix: prefix.as_bytes().into(),
            transformer: Arc::new(PrefixedTransformers::new(unmatched, all)),
        })
    }
    const AES: &str = "no matching key was found for the provided AES transformer";
    const SECRETBOX: &str = "no matching key was found for the provided Secretbox transformer";
    match provider {
        Provider::AesGcm(keys) => keyed("k8s:enc:aesgcm:v1:", AES, keys, AesGcm::new),
        Provider::AesCbc(keys) => keyed("k8s:enc:aescbc:v1:", AES, keys, AesCbc::new),
        Provider::Secretbox(keys) => keyed("k8s:enc:secretbox:v1:", SECRETBOX, keys, Secretbox::new),
        Provider::Identity => Ok(Prefixed {
            prefix: Box::default(),
            transformer: Arc::new(Identity),
        }),
        Provider::Kms(options) => {
            let prefix = format!("k8s:enc:kms:v2:{}:", options.name);
            let provider = Kms::new(KmsOptions {
                name: options.name,
                socket: options.socket,
                timeout: options.timeout,
            });
            kms.push(provider.clone());
            Ok(Prefixed {
                prefix: prefix.into_bytes().into(),
                transformer: provider,
            })
        }
    }
}
