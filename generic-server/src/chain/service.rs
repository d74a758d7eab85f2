//! The chain from outside, as a [`tower::Service`]: a product puts layers of its own around it, an in-process client calls it.
//!
//! A service is boxed here once. Without layers connections call the [`Chain`] itself, so that they cost nothing where there are none.

use std::convert::Infallible;
use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tower::util::{BoxCloneSyncService, BoxCloneSyncServiceLayer};
use tower::{Layer, Service};

use super::Chain;
use crate::request::{Request, Response};
use crate::serve::{ConnectionMetrics, Handler};

/// The service that answers every request, with all layers around it. It never fails: an error is an answer.
pub type OuterService = BoxCloneSyncService<Request, Response, Infallible>;

type Answer = Pin<Box<dyn Future<Output = Response> + Send>>;

/// The chain as a service.
#[derive(Debug, Clone)]
pub struct ChainService(Arc<Chain>);

impl Service<Request> for ChainService {
    type Response = Response;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request) -> Self::Future {
        let chain = self.0.clone();
        Box::pin(async move { Ok(chain.serve(request).await) })
    }
}

/// Layers around the chain, the first outermost. A layer sees requests before anything of the chain and answers after all of it: it
/// is outside authentication, the audit log and the recovery from panics.
#[derive(Clone, Default)]
pub struct OuterLayers(Vec<BoxCloneSyncServiceLayer<OuterService, Request, Response, Infallible>>);

impl fmt::Debug for OuterLayers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("OuterLayers").field(&self.0.len()).finish()
    }
}

impl OuterLayers {
    /// Puts a layer inside those that are there.
    pub fn push<L>(&mut self, layer: L)
    where
        L: Layer<OuterService> + Send + Sync + 'static,
        L::Service: Service<Request, Response = Response, Error = Infallible> + Clone + Send + Sync + 'static,
        <L::Service as Service<Request>>::Future: Send + 'static,
    {
        self.0.push(BoxCloneSyncServiceLayer::new(layer));
    }

    /// The chain with the layers around it.
    pub fn around(&self, chain: &Arc<Chain>) -> OuterService {
        let inner = OuterService::new(ChainService(chain.clone()));
        self.0.iter().rev().fold(inner, |inner, layer| layer.layer(inner))
    }

    /// The service that connections call: the chain itself where there are no layers.
    pub(crate) fn handler(&self, chain: &Arc<Chain>) -> Arc<dyn Handler> {
        match self.0.is_empty() {
            true => chain.clone(),
            false => Arc::new(Layered {
                service: self.around(chain),
                chain: chain.clone(),
            }),
        }
    }
}

/// Layers as a handler of connections.
struct Layered {
    service: OuterService,
    chain: Arc<Chain>,
}

impl Handler for Layered {
    fn handle(self: Arc<Self>, request: Request) -> Answer {
        let mut service = self.service.clone();
        Box::pin(async move {
            let Ok(()) = poll_fn(|cx| service.poll_ready(cx)).await;
            let Ok(response) = service.call(request).await;
            response
        })
    }

    fn connection_metrics(&self) -> Arc<ConnectionMetrics> {
        self.chain.connection_metrics()
    }
}
