//! Computations whose size a client decides, before its request has a place in the CPU pool: expressions of authentication and
//! authorization. They run beside the threads that serve connections, few at once.

use std::time::Duration;

use machinery::limits;
use tokio::sync::Semaphore;

static SEATS: Semaphore = Semaphore::const_new(limits::ACCESS_EXPRESSIONS);
/// How long a computation waits for a seat.
const WAIT_TIMEOUT: Duration = Duration::from_secs(10);

/// The outcome of a computation over an input of so many bytes; a small one is done in place.
///
/// # Errors
/// There are too many for too long.
pub(crate) async fn compute<T: Send + 'static>(
    bytes: usize,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, String> {
    if bytes < limits::ACCESS_EXPRESSION_BYTES {
        return Ok(work());
    }
    let busy = || "too many expressions about access are being evaluated".to_string();
    let seat = tokio::time::timeout(WAIT_TIMEOUT, SEATS.acquire())
        .await
        .map_err(|_| busy())?
        .map_err(|_| busy())?;
    let outcome = tokio::task::spawn_blocking(work).await;
    drop(seat);
    outcome.map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn large_inputs_leave_the_thread() {
        let here = std::thread::current().id();
        let thread = async |bytes| compute(bytes, || std::thread::current().id()).await;
        assert_eq!(thread(limits::ACCESS_EXPRESSION_BYTES - 1).await, Ok(here));
        assert_ne!(thread(limits::ACCESS_EXPRESSION_BYTES).await, Ok(here));
    }
}
