//! The status page at `/ui/`: static files of the binary, and the one document that the page needs beside the API.
//!
//! The files hold no data and may be loaded by whoever is authenticated, `system:anonymous` included. What the page shows it asks of the
//! API with the credentials of its user, so that authorization decides on every figure and every object. `docs/ui.md` is for users.

mod access;
mod files;
mod page;
mod status;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use generic_server::authz::Authorizer;
use generic_server::endpoint::Endpoints;

pub(crate) use access::PagePaths;
pub(crate) use status::{CertificateSource, Status};

use page::Page;

/// The page is this path and those below it.
const PATH: &str = "/ui";
/// The document about this server.
const STATUS_PATH: &str = "/debug/status";

/// Serves the page and its document.
pub(crate) fn install(endpoints: &mut Endpoints, status: Arc<Status>) {
    endpoints.add_below(PATH, Arc::new(Page));
    endpoints.add(STATUS_PATH, status);
}

/// An authorizer that allows reading the page's files and leaves all else to `authorizer`.
pub(crate) fn allow_page(authorizer: Arc<dyn Authorizer>) -> Arc<dyn Authorizer> {
    Arc::new(PagePaths(authorizer))
}
