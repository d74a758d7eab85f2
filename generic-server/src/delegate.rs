//! The delegation chain: which server answers. The aggregator asks itself, then kube-apiserver, then apiextensions.

use std::sync::Arc;

use crate::request::{Authorized, Request, Response};

/// The outcome of a request at one server.
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
    /// Answers the request or returns it.
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
