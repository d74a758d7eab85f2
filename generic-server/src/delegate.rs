//! The delegation chain: which server answers. The aggregator asks itself, then kube-apiserver, then apiextensions.

use std::sync::Arc;

use crate::discovery::Documents;
use crate::openapi::OpenApi;
use crate::request::{Authorized, Request, Response};

/// What a server says of a request.
#[derive(Debug)]
pub enum Handled {
    /// It is answered.
    Answered(Response),
    /// It is not this server's: the request, untouched, for the next one.
    NotMine(Request),
}

/// A server in the chain. Called after authorization; never fails: an error is an answer.
#[async_trait::async_trait]
pub trait Delegate: Send + Sync + std::fmt::Debug {
    /// Answers the request or hands it back.
    async fn handle(&self, authorized: &Authorized, request: Request) -> Handled;
}

/// Servers asked one after the other, until one answers.
#[derive(Debug, Clone)]
pub struct InOrder(pub Vec<Arc<dyn Delegate>>);

#[async_trait::async_trait]
impl Delegate for InOrder {
    async fn handle(&self, authorized: &Authorized, mut request: Request) -> Handled {
        for server in &self.0 {
            match server.handle(authorized, request).await {
                Handled::NotMine(untouched) => request = untouched,
                answered => return answered,
            }
        }
        Handled::NotMine(request)
    }
}

/// A server with the documents about it: what a server that stands alone is put together with.
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
