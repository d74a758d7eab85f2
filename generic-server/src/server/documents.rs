//! The documents of a server that stands alone, in front of it.

use std::sync::Arc;

use crate::delegate::{Delegate, Handled};
use crate::discovery::Documents;
use crate::openapi::OpenApi;
use crate::request::{Authorized, Request};

/// A server with the documents about it: the top of a standalone server.
#[derive(Debug)]
pub struct WithDocuments {
    /// `/api`, `/apis` and what is below them.
    pub discovery: Documents,
    /// `/openapi/v2` and `/openapi/v3`.
    pub openapi: OpenApi,
    /// The server itself.
    pub next: Arc<dyn Delegate>,
}

#[async_trait::async_trait]
impl Delegate for WithDocuments {
    async fn handle(&self, authorized: &Authorized, request: Request) -> Handled {
        if authorized.info().is_resource {
            return self.next.handle(authorized, request).await;
        }
        let (head, body) = request.into_parts();
        if let Some(answer) = self.discovery.answer(&head) {
            return Handled::Answered(answer);
        }
        if let Some(answer) = self.openapi.answer(&head).await {
            return Handled::Answered(answer);
        }
        self.next
            .handle(authorized, Request::from_parts(head, body))
            .await
    }
}
