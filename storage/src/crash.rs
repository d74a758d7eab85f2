//! Where a crash may come: each step that changes a file or a name passes here first. Outside of tests that is nothing.
//!
//! Tests let the Nth step of their thread fail, and all that follow, as nothing follows a crash: the disk then has what a
//! process leaves that is killed at that moment.

/// About to change a file, or a name.
#[cfg(not(test))]
#[inline(always)]
pub(crate) fn point() -> std::io::Result<()> {
    Ok(())
}

#[cfg(test)]
pub(crate) use self::injected::{point, until};

#[cfg(test)]
mod injected {
    use std::cell::Cell;
    use std::io;

    thread_local! {
        static LEFT: Cell<Option<u64>> = const { Cell::new(None) };
        static KILLED: Cell<bool> = const { Cell::new(false) };
    }

    pub(crate) fn point() -> io::Result<()> {
        match LEFT.get() {
            None => Ok(()),
            Some(0) => {
                KILLED.set(true);
                Err(io::Error::other("killed by a test"))
            }
            Some(left) => {
                LEFT.set(Some(left - 1));
                Ok(())
            }
        }
    }

    /// Runs `work` on this thread until it has made so many steps. Says whether it was killed.
    pub(crate) fn until<T>(steps: u64, work: impl FnOnce() -> T) -> (T, bool) {
        LEFT.set(Some(steps));
        let done = work();
        LEFT.set(None);
        (done, KILLED.take())
    }
}
