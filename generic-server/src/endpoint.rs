//! Endpoints outside the API, by path: documents, health, metrics.

mod document;

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::paths::Paths;
use crate::request::{Authorized, Request, Response};

pub(crate) use document::json_response;
pub use document::{StaticJson, Version};

/// Answers one path outside the API: health, metrics, version, documents.
#[async_trait::async_trait]
pub trait Endpoint: Send + Sync + std::fmt::Debug {
    /// Answers; the request is authorized.
    async fn serve(&self, authorized: &Authorized, request: Request) -> Response;

    /// Whether it serves bytes that are in memory and the same for everybody: several of these may be asked for over one HTTP/2 connection
    /// without credentials, as a browser does that loads a page.
    fn is_static(&self) -> bool {
        false
    }
}

/// The endpoints by path.
#[derive(Debug, Default, Clone)]
pub struct Endpoints {
    routes: Paths<Arc<dyn Endpoint>>,
    /// The paths that were added.
    listed: BTreeSet<String>,
}

impl Endpoints {
    /// Serves exactly this path.
    pub fn add(&mut self, path: &str, endpoint: Arc<dyn Endpoint>) {
        self.listed.insert(path.to_string());
        self.routes.insert(path, endpoint);
    }

    /// Serves this path and everything below it.
    pub fn add_below(&mut self, path: &str, endpoint: Arc<dyn Endpoint>) {
        self.listed.insert(path.to_string());
        self.routes.insert_below(path, endpoint);
    }

    /// The paths that are served exactly, sorted: for the index at `/`.
    pub fn paths(&self) -> Vec<String> {
        self.listed.iter().cloned().collect()
    }

    pub(crate) fn find(&self, path: &str) -> Option<&Arc<dyn Endpoint>> {
        self.routes.get(path)
    }
}
