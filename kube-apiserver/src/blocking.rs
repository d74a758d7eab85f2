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
    async fn evaluations_at_once_are_bounded() {
        use futures_util::poll;
        let (under_way, started) = std::sync::mpsc::channel();
        let (release, released) = std::sync::mpsc::channel::<()>();
        let released = std::sync::Arc::new(parking_lot::Mutex::new(released));
        let work = || {
            let (under_way, released) = (under_way.clone(), released.clone());
            compute(limits::ACCESS_EXPRESSION_BYTES, move || {
                let _ = under_way.send(());
                let _ = released.lock().recv();
            })
        };
        let mut all: Vec<_> = (0..=limits::ACCESS_EXPRESSIONS)
            .map(|_| Box::pin(work()))
            .collect();
        // Another test may have a seat for a moment.
        while SEATS.available_permits() > 0 {
            for one in &mut all {
                assert!(poll!(one).is_pending());
            }
            tokio::task::yield_now().await;
        }
        for _ in 0..limits::ACCESS_EXPRESSIONS - 1 {
            started.recv().expect("it is under way");
        }
        assert!(poll!(&mut all[limits::ACCESS_EXPRESSIONS]).is_pending());
        for _ in 0..all.len() {
            release.send(()).expect("somebody waits");
        }
        for one in all {
            assert_eq!(one.await, Ok(()));
        }
    }

    #[tokio::test]
    async fn large_inputs_leave_the_thread() {
        let here = std::thread::current().id();
        let thread = async |bytes| compute(bytes, || std::thread::current().id()).await;
        assert_eq!(thread(limits::ACCESS_EXPRESSION_BYTES - 1).await, Ok(here));
        assert_ne!(thread(limits::ACCESS_EXPRESSION_BYTES).await, Ok(here));
    }
}
