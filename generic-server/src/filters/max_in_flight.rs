//! How many requests run at once: the seam for fairness, and upstream's plain limit.

use std::any::Any;
use std::fmt::Debug;
use std::sync::Arc;

use http::{HeaderValue, StatusCode, header};
use tokio::sync::Semaphore;

use crate::request::{RequestInfo, Response, User};

/// The right to run, given back when dropped.
pub struct Permit(#[allow(dead_code, reason = "held for its drop")] Option<Box<dyn Any + Send>>);

impl Debug for Permit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Permit").finish_non_exhaustive()
    }
}

impl Permit {
    /// A right that costs nothing.
    pub fn free() -> Self {
        Permit(None)
    }

    /// A right that is given back by dropping `guard`.
    pub fn held(guard: impl Send + 'static) -> Self {
        Permit(Some(Box::new(guard)))
    }
}

/// Decides when a request may run. Asked after authentication and impersonation, before authorization.
#[async_trait::async_trait]
pub trait Admit: Send + Sync + Debug {
    /// Waits for the right to run. `Err` is the answer for a request that must go away (usually 429).
    async fn admit(
        &self,
        user: &User,
        info: &RequestInfo,
        long_running: bool,
    ) -> Result<Permit, Box<Response>>;
}

/// Upstream's answer to a request that is one too many.
pub fn too_many_requests() -> Box<Response> {
    let mut response = super::text_error(
        StatusCode::TOO_MANY_REQUESTS,
        "Too many requests, please try again later.",
    );
    response
        .headers_mut()
        .insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
    Box::new(response)
}

/// `--max-requests-inflight` and `--max-mutating-requests-inflight`: two counts, no queue.
#[derive(Debug)]
pub struct MaxInFlight {
    reading: Option<Arc<Semaphore>>,
    mutating: Option<Arc<Semaphore>>,
}

impl MaxInFlight {
    /// With these limits; zero means none.
    pub fn new(reading: usize, mutating: usize) -> Self {
        let limit = |n: usize| (n > 0).then(|| Arc::new(Semaphore::new(n)));
        MaxInFlight {
            reading: limit(reading),
            mutating: limit(mutating),
        }
    }
}

#[async_trait::async_trait]
impl Admit for MaxInFlight {
    async fn admit(
        &self,
        user: &User,
        info: &RequestInfo,
        long_running: bool,
    ) -> Result<Permit, Box<Response>> {
        let reads = matches!(&*info.verb, "get" | "list" | "watch");
        let limit = if reads { &self.reading } else { &self.mutating };
        let Some(limit) = limit.as_ref().filter(|_| !long_running) else {
            return Ok(Permit::free());
        };
        match limit.clone().try_acquire_owned() {
            Ok(held) => Ok(Permit::held(held)),
            // An administrator always gets an answer.
            Err(_) if user.in_group("system:masters") => Ok(Permit::free()),
            Err(_) => Err(too_many_requests()),
        }
    }
}
