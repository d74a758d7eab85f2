//! Bearer tokens: their authenticators, and the issuer of service account tokens.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use generic_server::ApiError;
use generic_server::authn::TokenAuthenticator;
use generic_server::authn::token_cache::TokenCache;
use generic_server::authn::token_file::TokenFile;
use generic_server::authn::token_metrics::TokenCacheMetrics;
use generic_server::authn::union::TokenUnion;
use generic_server::client::egress::{EgressSelector, Network, Route};
use generic_server::delegated::{KubeClient, Kubeconfig, Lookups, TokenWebhook};
use generic_server::directory::Directory;
use generic_server::endpoint::StaticJson;
use generic_server::pki::Pki;
use generic_server::reload::Reload;
use generic_server::spawn::Tasks;
use machinery::GroupResource;
use machinery::limits;
use machinery::time::Timestamp;
use serde_json::Value;

use super::{AccessError, AccessOptions, TokenWebhookOptions};
use crate::client::Client;
use crate::deps::{IssuedToken, TokenClaims, TokenIssuer, TokenLifetimes};
use crate::json::Json;
use crate::tokens::bootstrap_token::BootstrapToken;
use crate::tokens::jwt::{AnonymousConfig, JwtAuthenticators};
use crate::tokens::service_account::{
    self, ExternalSigner, ObjectRef, PublicKeys, ServiceAccounts, SigningKey, TokenIssuer as Signer,
    TokenMetrics,
};
use crate::tokens::{LAST_USED, TokenObjectKind, TokenObjects};

const SIGNING_FLAG: &str = "--service-account-signing-key-file";
const KEY_FLAG: &str = "--service-account-key-file";
const OWN_KEYS: &str = "the server's own keys of service accounts";

/// The parts of access that are about tokens.
pub(super) struct Tokens {
    pub(super) authenticator: Arc<dyn TokenAuthenticator>,
    pub(super) issuer: Arc<dyn TokenIssuer>,
    /// Issuer discovery, by path.
    pub(super) endpoints: Vec<(&'static str, Arc<StaticJson>)>,
    /// What the caches of tokens do.
    pub(super) caches: Arc<TokenCacheMetrics>,
    /// The lookups of the token webhook.
    pub(super) lookups: Option<Arc<Lookups>>,
    /// Tokens of other issuers.
    pub(super) jwt: Option<Arc<JwtAuthenticators>>,
    /// The program that signs service account tokens.
    pub(super) external: Option<Arc<ExternalSigner>>,
    /// How service account tokens are used.
    pub(super) metrics: Arc<TokenMetrics>,
    /// What their configuration says of anonymous requests.
    pub(super) anonymous: Option<AnonymousConfig>,
}

pub(super) fn build(
    options: &AccessOptions,
    pki: &Pki,
    directory: &Arc<Directory>,
    egress: &EgressSelector,
    reload: &mut Reload,
    tasks: &Tasks,
) -> Result<Tokens, AccessError> {
    let (issuers, audiences) = (&options.tokens.issuers, options.tokens.audiences.clone());
    let issuer = issuers.first().cloned().unwrap_or_default();
    let endpoint = options.tokens.signing_endpoint.as_ref();
    let external = endpoint.map(|socket| ExternalSigner::new(&issuer, socket.clone()));
    // Keys of files count for nothing beside the program that signs.
    let mut own = None;
    let mut keys = PublicKeys::default();
    if external.is_none() {
        let sources = KeySources::new(options, pki)?;
        let signing;
        (signing, keys) = sources.read()?;
        own = Some((sources, signing));
    }
    let jwks_uri = options
        .tokens
        .jwks_uri
        .clone()
        .unwrap_or_else(|| format!("{}/openid/v1/jwks", issuer.trim_end_matches('/')));
    let whole = |media, document: &Value| {
        let external = external.clone();
        let lifetime = move || match &external {
            Some(external) => external.keys_last(),
            None => DOCUMENT_SECONDS,
        };
        StaticJson::cached(media, document, lifetime).map_err(AccessError::Document)
    };
    let discovery = whole("application/json", &keys.discovery(&issuer, &jwks_uri))?;
    let jwks = whole("application/jwk-set+json", &keys.jwks())?;
    let endpoints = vec![
        ("/.well-known/openid-configuration", discovery.clone()),
        ("/openid/v1/jwks", jwks.clone()),
    ];

    let objects: Arc<dyn TokenObjects> = Arc::new(Objects(directory.clone()));
    let mut all: Vec<Arc<dyn TokenAuthenticator>> = Vec::new();
    if let Some(file) = &options.token_auth_file {
        let file = TokenFile::read(file, audiences.clone()).map_err(|error| {
            let cause = std::error::Error::source(&error).map(|cause| format!(": {cause}"));
            AccessError::Option(format!("--token-auth-file: {error}{}", cause.unwrap_or_default()))
        })?;
        all.push(Arc::new(file));
    }
    all.push(Arc::new(options.issued_tokens.authenticator(audiences.clone())));
    let keys = Arc::new(ArcSwap::from_pointee(keys));
    let accounts = ServiceAccounts::new(issuers.clone(), keys.clone(), audiences.clone(), objects.clone())
        .with_external(external.clone());
    let metrics = accounts.metrics();
    all.push(Arc::new(accounts));
    if options.bootstrap_tokens {
        all.push(Arc::new(BootstrapToken::new(objects, audiences.clone())));
    }
    // After those of service accounts: a token of another issuer may cost a request to it.
    let jwt = options
        .jwt
        .load(&audiences, issuers, egress, tasks)
        .map_err(AccessError::Option)?;
    if let Some(authenticators) = &jwt.authenticators {
        all.push(authenticators.clone());
    }
    let caches = Arc::<TokenCacheMetrics>::default();
    let lookups = match &options.token_webhook {
        None => None,
        Some(webhook) => {
            let lookups = token_webhook(
                webhook,
                &audiences,
                &egress.route(Network::ControlPlane),
                caches.clone(),
            )?;
            let cache = TokenCache::of_remote(lookups.clone(), webhook.cache_ttl, caches.clone());
            all.push(cache.map_err(|_| AccessError::Randomness)?);
            Some(lookups)
        }
    };
    let deletions = Deletions(directory.clone());
    let authenticator = TokenCache::new(
        Arc::new(TokenUnion(all)),
        Box::new(move || deletions.count()),
        caches.clone(),
    )
    .map_err(|_| AccessError::Randomness)?;
    if let Some(file) = jwt.file {
        let cache = authenticator.clone();
        file.when_changed(move || cache.clear());
        reload.follow_file(file);
    }
    let cache = authenticator.clone();
    let publish = move |keys: &PublicKeys| -> Result<(), String> {
        let documents = [
            (&discovery, keys.discovery(&issuer, &jwks_uri)),
            (&jwks, keys.jwks()),
        ];
        for (endpoint, document) in documents {
            endpoint.replace(&document).map_err(|error| error.to_string())?;
        }
        Ok(())
    };
    let signer = match (&external, own) {
        (None, Some((sources, signing))) => {
            let first = options.tokens.issuers.first().cloned().unwrap_or_default();
            let signer = Arc::new(ArcSwap::from_pointee(Signer::new(&first, signing)));
            let kept = signer.clone();
            reload.watch("service account keys", sources.files(), move || {
                let (signing, read) = sources.read().map_err(|error| error.to_string())?;
                publish(&read)?;
                keys.store(Arc::new(read));
                // A key signs when it is accepted.
                kept.store(Arc::new(Signer::new(&first, signing)));
                cache.clear();
                Ok(())
            });
            Signing::Key(signer)
        }
        (Some(external), _) => {
            external.when_changed(move |keys| {
                if let Err(error) = publish(keys) {
                    tracing::error!(error, "the documents about token keys cannot be written");
                }
                cache.clear();
            });
            Signing::External(external.clone())
        }
        (None, None) => return Err(AccessError::Option(format!("{SIGNING_FLAG}: there is no key"))),
    };
    Ok(Tokens {
        authenticator,
        issuer: Arc::new(Issuer {
            signer,
            audiences,
            lifetimes: options.tokens.lifetimes,
        }),
        endpoints,
        caches,
        lookups,
        jwt: jwt.authenticators,
        external,
        metrics,
        anonymous: jwt.anonymous,
    })
}

/// The token webhook, without a cache. Its kubeconfig is read at the start, as upstream's.
fn token_webhook(
    options: &TokenWebhookOptions,
    audiences: &[String],
    route: &Route,
    caches: Arc<TokenCacheMetrics>,
) -> Result<Arc<Lookups>, AccessError> {
    let wrong = |error: &dyn std::fmt::Display| {
        AccessError::Option(format!("--authentication-token-webhook-config-file: {error}"))
    };
    let config = Kubeconfig::read(&options.config_file).map_err(|error| wrong(&error))?;
    let client =
        KubeClient::of_webhook(&config, route, limits::TOKEN_LOOKUP_TIME).map_err(|error| wrong(&error))?;
    let webhook = TokenWebhook::new(client, options.version, audiences.to_vec());
    Ok(Lookups::new(Arc::new(webhook), caches))
}

/// Where the keys of service account tokens come from.
struct KeySources {
    signing: SigningSource,
    /// The server's own public keys, among them those that signed before.
    own_public: Option<PathBuf>,
    /// The files of `--service-account-key-file`.
    more: Vec<PathBuf>,
}

enum SigningSource {
    /// Named by a flag and read once, as upstream has it, or in memory.
    Text(String),
    /// The server's own, which is rotated.
    File(PathBuf),
}

impl KeySources {
    fn new(options: &AccessOptions, pki: &Pki) -> Result<Self, AccessError> {
        let given = options.tokens.signing_key_file.as_ref();
        let signing = match (given, pki.file("sa.key")) {
            (Some(file), _) => SigningSource::Text(read(SIGNING_FLAG, file)?),
            (None, Some(file)) => SigningSource::File(file),
            (None, None) => SigningSource::Text(pki.service_account_key.clone()),
        };
        Ok(KeySources {
            signing,
            own_public: pki.file("sa.pub").filter(|_| given.is_none()),
            more: options.tokens.key_files.clone(),
        })
    }

    /// The files that can change.
    fn files(&self) -> Vec<PathBuf> {
        let signing = match &self.signing {
            SigningSource::Text(_) => None,
            SigningSource::File(file) => Some(file),
        };
        let all = signing.into_iter().chain(&self.own_public).chain(&self.more);
        all.cloned().collect()
    }

    /// The key that signs, and all that are accepted.
    fn read(&self) -> Result<(SigningKey, PublicKeys), AccessError> {
        let signing = match &self.signing {
            SigningSource::Text(text) => text.clone(),
            SigningSource::File(file) => read(OWN_KEYS, file)?,
        };
        let mut texts = vec![signing];
        if let Some(file) = &self.own_public {
            texts.push(read(OWN_KEYS, file)?);
        }
        for file in &self.more {
            texts.push(read(KEY_FLAG, file)?);
        }
        let key = SigningKey::from_pem(&texts[0])
            .map_err(|error| AccessError::Option(format!("{SIGNING_FLAG}: {error}")))?;
        let keys = PublicKeys::from_pem(texts.iter().map(String::as_str))
            .map_err(|error| AccessError::Option(format!("{KEY_FLAG}: {error}")))?;
        Ok((key, keys))
    }
}

fn read(flag: &str, file: &Path) -> Result<String, AccessError> {
    std::fs::read_to_string(file)
        .map_err(|error| AccessError::Option(format!("{flag}: cannot read {}: {error}", file.display())))
}

/// How many objects that tokens depend on have been deleted. Caches know before a deletion is acknowledged, so that a deleted
/// account's token is not taken out of memory afterwards.
struct Deletions(Arc<Directory>);

impl Deletions {
    fn count(&self) -> u64 {
        let stores = ["serviceaccounts", "secrets", "pods", "nodes"].into_iter();
        let found = stores.filter_map(|resource| self.0.get(&GroupResource::new("", resource)));
        found.map(|registered| registered.store.deletions()).sum()
    }
}

/// How long clients may keep the documents about keys of files.
const DOCUMENT_SECONDS: u64 = 3600;

/// How long a request with a token in a secret may wait for the day of its use to be written down.
const TRACKING: Duration = Duration::from_secs(2);

/// The objects that tokens depend on, out of the caches.
#[derive(Debug)]
struct Objects(Arc<Directory>);

#[async_trait::async_trait]
impl TokenObjects for Objects {
    async fn get(&self, kind: TokenObjectKind, namespace: &str, name: &str) -> Result<Option<Value>, String> {
        let resource = match kind {
            TokenObjectKind::ServiceAccount => "serviceaccounts",
            TokenObjectKind::Secret => "secrets",
            TokenObjectKind::Pod => "pods",
            TokenObjectKind::Node => "nodes",
        };
        let registered = self
            .0
            .get(&GroupResource::new("", resource))
            .ok_or("the kind is not served")?;
        let found = registered
            .store
            .as_system()
            .find(namespace, name)
            .await
            .map_err(|error| error.to_string())?;
        Ok(found.map(|entry| entry.value()))
    }

    async fn used(&self, namespace: &str, secret: &str, day: &str) {
        let client = Client::new(self.0.clone());
        let labelled = client.update(("", "secrets"), namespace, secret, "", |object| {
            let labels = object.ensure("metadata").ensure("labels");
            labels.put(LAST_USED, day);
            Ok(())
        });
        let why = match tokio::time::timeout(TRACKING, labelled).await {
            Ok(Ok(())) => return,
            Ok(Err(error)) => error.message().to_string(),
            Err(_) => "the store does not answer".to_string(),
        };
        tracing::warn!(
            object.namespace = namespace,
            object.name = secret,
            error = why,
            "cannot write down the use of a token"
        );
    }
}

/// Who signs.
#[derive(Debug)]
enum Signing {
    Key(Arc<ArcSwap<Signer>>),
    External(Arc<ExternalSigner>),
}

/// Signs what the service account resource has checked.
#[derive(Debug)]
struct Issuer {
    signer: Signing,
    audiences: Vec<String>,
    lifetimes: TokenLifetimes,
}

#[async_trait::async_trait]
impl TokenIssuer for Issuer {
    fn default_audiences(&self) -> Vec<String> {
        self.audiences.clone()
    }

    fn lifetimes(&self) -> TokenLifetimes {
        let most = match &self.signer {
            Signing::Key(_) => None,
            Signing::External(external) => external.most_seconds(),
        };
        TokenLifetimes {
            most_seconds: self.lifetimes.most_seconds.or(most),
            most_extended_seconds: most,
            ..self.lifetimes
        }
    }

    async fn issue(&self, claims: &TokenClaims) -> Result<IssuedToken, ApiError> {
        let bound = |kind: &str| {
            let (bound, name, uid) = claims.bound.as_ref()?;
            (bound == kind).then(|| ObjectRef {
                name: name.clone(),
                uid: uid.clone(),
            })
        };
        let node = claims.node.as_ref().map(|(name, uid)| ObjectRef {
            name: name.clone(),
            uid: uid.clone(),
        });
        let signed = service_account::TokenClaims {
            namespace: claims.namespace.clone(),
            service_account: ObjectRef {
                name: claims.name.clone(),
                uid: claims.uid.clone(),
            },
            audiences: claims.audiences.clone(),
            expiration_seconds: claims.expiration_seconds,
            pod: bound("Pod"),
            secret: bound("Secret"),
            node: node.or_else(|| bound("Node")),
            warn_after: claims.warn_after,
        };
        let token = match &self.signer {
            Signing::Key(signer) => signer.load().issue(&signed).map_err(|error| error.to_string()),
            Signing::External(external) => external.issue(&signed).await,
        };
        let token =
            token.map_err(|error| ApiError::internal(format_args!("failed to generate token: {error}")))?;
        // The time that was asked for, also when it holds longer.
        let longer = claims
            .warn_after
            .map_or(0, |asked| claims.expiration_seconds - asked);
        let expiration = Timestamp::from_unix(token.expires - longer).to_rfc3339();
        Ok(IssuedToken {
            token: token.token,
            id: token.id,
            expiration,
        })
    }
}
