//! What is served outside the API, by path.

use std::collections::HashMap;
use std::sync::Arc;

use crate::request::{Authorized, Request, Response};

/// Answers one path outside the API: health, metrics, version, documents.
#[async_trait::async_trait]
pub trait Endpoint: Send + Sync + std::fmt::Debug {
    /// Answers; the request is authorized.
    async fn serve(&self, authorized: &Authorized, request: Request) -> Response;
}

/// The endpoints by path.
#[derive(Debug, Default, Clone)]
pub struct Endpoints {
    exact: HashMap<String, Arc<dyn Endpoint>>,
    below: Vec<(String, Arc<dyn Endpoint>)>,
}

impl Endpoints {
    /// Serves exactly this path.
    pub fn add(&mut self, path: &str, endpoint: Arc<dyn Endpoint>) {
        self.exact.insert(path.to_string(), endpoint);
    }

    /// Serves this path and everything below it.
    pub fn add_below(&mut self, path: &str, endpoint: Arc<dyn Endpoint>) {
        self.exact.insert(path.to_string(), endpoint.clone());
        self.below.push((format!("{path}/"), endpoint));
    }

    /// The paths that are served exactly, sorted: for the index at `/`.
    pub fn paths(&self) -> Vec<String> {
        let mut paths: Vec<String> = self.exact.keys().cloned().collect();
        paths.sort();
        paths
    }

    pub(super) fn find(&self, path: &str) -> Option<&Arc<dyn Endpoint>> {
        let below = || {
            self.below
                .iter()
                .find(|(prefix, _)| path.starts_with(prefix.as_str()))
        };
        self.exact
            .get(path)
            .or_else(|| below().map(|(_, endpoint)| endpoint))
    }
}
