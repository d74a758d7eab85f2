//! The last stages of a server's start, the same for the control plane and for extension servers: a [`Prepared`] server has all
//! its parts and listens, but serves no requests; [`Prepared::run`] makes it a [`Running`] one. The stages before these differ: the
//! configuration, the stores and the groups of a server are its own.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use machinery::{ApiError, limits};
use storage::Store;

use crate::chain::{Chain, OuterLayers, OuterService};
use crate::lifecycle::{Lifecycle, Timeline};
use crate::serve::{ConnectionLimits, Listener, Server, Tls};
use crate::spawn::Tasks;

/// How long a store may be too slow for the start.
pub const STORE_TIMEOUT: Duration = Duration::from_secs(60);
/// The pause between two attempts.
const RETRY: Duration = Duration::from_secs(1);
/// How long connections may take to end.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(2);
/// How long a stop waits for audit events to be delivered.
const AUDIT_TIMEOUT: Duration = Duration::from_secs(10);
/// How long background tasks may take to end.
const TASKS_TIMEOUT: Duration = Duration::from_secs(5);

/// A server whose parts are all made. Its port is bound, so that clients wait rather than being refused; nothing is read from
/// connections yet.
#[derive(Debug)]
pub struct Prepared {
    /// Where it listens.
    pub listener: Listener,
    /// How connections are encrypted.
    pub tls: Arc<Tls>,
    /// How many there may be, and requests on each.
    pub limits: ConnectionLimits,
    /// The service that answers requests.
    pub chain: Arc<Chain>,
    /// Layers of a product around the chain; [`OuterLayers::default`] is none.
    pub layers: OuterLayers,
    /// How it ends.
    pub timeline: Timeline,
    /// Its background work, which ends with it.
    pub tasks: Tasks,
    /// The stores, closed last.
    pub engines: Vec<Arc<dyn Store>>,
}

/// A server that serves. Clones are the same server.
#[derive(Debug, Clone)]
pub struct Running {
    address: SocketAddr,
    chain: Arc<Chain>,
    service: OuterService,
    server: Arc<Server>,
    timeline: Timeline,
    tasks: Tasks,
    engines: Vec<Arc<dyn Store>>,
}

impl Prepared {
    /// Serves requests from here on: everything that they are decided on must have been read.
    pub fn run(self) -> Running {
        let Prepared {
            listener,
            tls,
            limits,
            chain,
            layers,
            timeline,
            tasks,
            engines,
        } = self;
        let address = listener.address();
        let server = Arc::new(Server::with_limits(
            layers.handler(&chain),
            limits.within_descriptors(),
        ));
        let (accepting, stop) = (server.clone(), chain.end_of_accepting().clone());
        tasks.spawn("listener", async move {
            accepting.run(listener, Some(tls), stop).await;
        });
        Running {
            address,
            service: layers.around(&chain),
            chain,
            server,
            timeline,
            tasks,
            engines,
        }
    }
}

impl Running {
    /// Where it listens, with the real port.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The handler chain: requests may be handed to it without a socket.
    pub fn chain(&self) -> &Arc<Chain> {
        &self.chain
    }

    /// The chain with the layers around it, as connections see it.
    pub fn service(&self) -> OuterService {
        self.service.clone()
    }

    /// The signals of its life.
    pub fn lifecycle(&self) -> &Lifecycle {
        self.chain.lifecycle()
    }

    /// Its background work.
    pub fn tasks(&self) -> &Tasks {
        &self.tasks
    }

    /// The stores; the first is that of every resource without one of its own.
    pub fn engines(&self) -> &[Arc<dyn Store>] {
        &self.engines
    }

    /// Ends it in order: not ready, no new requests, those in flight finish, watches end, the stores are closed.
    pub async fn stop(self) {
        self.lifecycle().shut_down(self.timeline).await;
        self.server.drain(DRAIN_TIMEOUT).await;
        // Streams that have left HTTP are not the connections' any more. Those that go on end with the tasks below.
        let _ = tokio::time::timeout(limits::LINGER, self.lifecycle().watches_ended()).await;
        let recorded = tokio::time::timeout(AUDIT_TIMEOUT, self.chain.auditor().flush()).await;
        if recorded.is_err() {
            tracing::error!("audit events that wait for their delivery are lost");
        }
        self.tasks.stop(TASKS_TIMEOUT).await;
        for engine in &self.engines {
            engine.shutdown().await;
        }
    }
}

/// Tries until it is done what a store that is merely slow has refused, for at most [`STORE_TIMEOUT`]. It has to be idempotent.
///
/// # Errors
/// Any other error of `attempt`, and the last refusal after that time.
pub async fn retry_while_slow<T, F>(mut attempt: impl FnMut() -> F) -> Result<T, ApiError>
where
    F: Future<Output = Result<T, ApiError>>,
{
    let deadline = tokio::time::Instant::now() + STORE_TIMEOUT;
    loop {
        match attempt().await {
            Err(error) if error.retry_after().is_some() && tokio::time::Instant::now() < deadline => {
                tracing::warn!(%error, "the store is slow, the start waits for it");
                tokio::time::sleep(RETRY).await;
            }
            done => return done,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_slow_store_is_waited_for_and_a_broken_one_is_not() {
        let slow = || ApiError::too_many_requests("slow", 1);
        let mut attempts = 0;
        let done = retry_while_slow(|| {
            attempts += 1;
            let outcome = if attempts < 3 { Err(slow()) } else { Ok(()) };
            async { outcome }
        });
        assert!(done.await.is_ok());
        assert_eq!(attempts, 3);
        let mut attempts = 0;
        let failed = retry_while_slow(|| {
            attempts += 1;
            async { Err::<(), _>(ApiError::internal("broken")) }
        });
        assert!(failed.await.is_err());
        assert_eq!(attempts, 1);
        assert!(retry_while_slow(|| async { Err::<(), _>(slow()) }).await.is_err());
    }
}
