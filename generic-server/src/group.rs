//! A group of resources with its versions: the source of servers, routes, discovery and OpenAPI.

use std::sync::Arc;

use crate::resource::ServedResource;

/// A group that a server brings.
#[derive(Debug, Clone)]
pub struct GroupSpec {
    /// The group, empty for core.
    pub group: Arc<str>,
    /// Its versions with their resources, preferred first.
    pub versions: Vec<(Arc<str>, Vec<Arc<ServedResource>>)>,
}
