//! `/`: the paths that there are.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::json;

use super::DiscoverySource;
use crate::endpoint::{Endpoint, json_response};
use crate::request::{Authorized, Request, Response};

/// Lists the paths of a server, as upstream does at `/` and `/index.html`.
#[derive(Debug)]
pub struct RootPaths {
    /// Paths beside those of the API groups.
    pub others: Vec<String>,
    /// The API groups.
    pub groups: Arc<dyn DiscoverySource>,
}

impl RootPaths {
    fn list(&self) -> BTreeSet<String> {
        let mut paths: BTreeSet<String> = self.others.iter().cloned().collect();
        paths.extend(
            [
                "/api",
                "/apis",
                "/apis/",
                "/openapi/v2",
                "/openapi/v3",
                "/openapi/v3/",
            ]
            .map(str::to_string),
        );
        for group in self.groups.groups().iter() {
            let root = match &*group.group {
                "" => "/api".to_string(),
                name => format!("/apis/{name}"),
            };
            paths.extend(group.versions.iter().map(|v| format!("{root}/{}", v.version)));
            paths.insert(root);
        }
        paths
    }
}

#[async_trait::async_trait]
impl Endpoint for RootPaths {
    async fn serve(&self, _authorized: &Authorized, request: Request) -> Response {
        json_response(&request, || json!({"paths": self.list()}).to_string().into())
    }
}
