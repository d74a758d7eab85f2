//! Fetches the discovery and OpenAPI documents of a remote server. The last ones are kept while it does not answer.

use std::sync::Arc;

use arc_swap::ArcSwapOption;
use generic_server::openapi::{SwaggerPart, digest};
use http::HeaderMap;

use super::condition::Condition;
use crate::backend::{Backend, CachedDocument};
use crate::remote_discovery;

const DISCOVERY: &str = "discovery";

/// The result of fetching a server's documents.
#[derive(Debug, Default)]
pub(super) struct Learned {
    /// The served resources have changed.
    pub(super) moved: bool,
    /// The documents that cannot be used, and why.
    faults: Vec<(&'static str, String)>,
}

impl Learned {
    /// The condition that names what cannot be used; `None` when all can be.
    pub(super) fn condition(&self) -> Option<Condition> {
        if self.faults.is_empty() {
            return None;
        }
        let reason = match self.faults.iter().any(|(what, _)| *what == DISCOVERY) {
            true => "DiscoveryUnreadable",
            false => "OpenAPIUnreadable",
        };
        let messages = self.faults.iter().map(|(what, why)| format!("{what}: {why}"));
        Some(Condition::no(reason, messages.collect::<Vec<_>>().join("; ")))
    }
}

/// Fetches all documents of a server, as the user in `headers`.
pub(super) async fn fetch(backend: &Arc<Backend>, headers: &HeaderMap) -> Learned {
    let mut learned = Learned::default();
    match remote_discovery::fetch(backend, headers).await {
        Ok(version) => {
            let known = backend.known.load_full();
            learned.moved = known.is_none_or(|known| known.aggregated != version.aggregated);
            if learned.moved {
                backend.known.store(Some(Arc::new(version)));
            }
        }
        Err(why) => learned.faults.push((DISCOVERY, why)),
    }
    if let Err(why) = fetch_openapi(backend, headers).await {
        learned.faults.push(("OpenAPI v3", why));
    }
    if let Err(why) = fetch_swagger(backend, headers).await {
        learned.faults.push(("OpenAPI v2", why));
    }
    learned
}

fn etag_of<T>(kept: &ArcSwapOption<CachedDocument<T>>) -> String {
    kept.load()
        .as_ref()
        .map(|kept| kept.etag.clone())
        .unwrap_or_default()
}

async fn fetch_openapi(backend: &Arc<Backend>, headers: &HeaderMap) -> Result<(), String> {
    let path = format!("/openapi/v3{}", remote_discovery::path(&backend.spec));
    let etag = etag_of(&backend.openapi);
    if let Some(given) = remote_discovery::fetch_openapi(backend, headers, &path, &etag).await? {
        backend.openapi.store(Some(Arc::new(CachedDocument {
            hash: digest(&given.body),
            etag: given.etag,
            document: given.body,
        })));
    }
    Ok(())
}

async fn fetch_swagger(backend: &Arc<Backend>, headers: &HeaderMap) -> Result<(), String> {
    let etag = etag_of(&backend.swagger);
    let Some(given) = remote_discovery::fetch_openapi(backend, headers, "/openapi/v2", &etag).await? else {
        return Ok(());
    };
    let (hash, etag) = (digest(&given.body), given.etag);
    let below = format!("{}/", remote_discovery::path(&backend.spec));
    let body = given.body;
    // Large documents take a while to read.
    let part = tokio::task::spawn_blocking(move || {
        let document = serde_json::from_slice(&body).unwrap_or_default();
        SwaggerPart::of_document(document, |path| path.starts_with(&below))
    });
    let document = part.await.ok().flatten();
    let document = document.ok_or("it is not a swagger 2.0 document")?;
    backend
        .swagger
        .store(Some(Arc::new(CachedDocument { hash, etag, document })));
    Ok(())
}
