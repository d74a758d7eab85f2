//! The log line of a slow request: one, with where the time went. Its figures are measured for metrics anyway.

use std::time::{Duration, Instant};

use http::{Method, StatusCode};
use parking_lot::Mutex;

use crate::request::RequestContext;

/// Upstream traces requests from half a second; a line at every verbosity wants an answer that people wait for.
pub(super) const THRESHOLD: Duration = Duration::from_secs(1);

/// At most so many lines in such a time, because under overload every request is slow. Those past it are left out.
const LINES: u32 = 100;
const WINDOW: Duration = Duration::from_secs(10);

/// When the window began, and the lines in it.
static WRITTEN: Mutex<Option<(Instant, u32)>> = Mutex::new(None);

/// Takes a line of the window, if there is one.
fn takes_line(written: &mut Option<(Instant, u32)>, now: Instant) -> bool {
    match written {
        Some((since, lines)) if now.saturating_duration_since(*since) < WINDOW => {
            *lines = lines.saturating_add(1);
            *lines <= LINES
        }
        _ => {
            *written = Some((now, 1));
            true
        }
    }
}

/// The time of a request that is not long-running, by part.
#[derive(Debug)]
pub(super) struct Slow {
    pub(super) total: Duration,
    pub(super) authentication: Duration,
    /// Waiting for a seat.
    pub(super) queue: Duration,
    pub(super) authorization: Duration,
    pub(super) code: StatusCode,
}

impl Slow {
    /// What is left is reading the body, admission, the store and encoding.
    fn handler(&self) -> Duration {
        let before = self.authentication + self.queue + self.authorization;
        self.total.saturating_sub(before)
    }

    pub(super) fn log(&self, context: &RequestContext, method: &Method) {
        if !takes_line(&mut WRITTEN.lock(), Instant::now()) {
            return;
        }
        let shown = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        tracing::warn!(
            target: "operator",
            code = self.code.as_u16(),
            request.id = context.shown_id(),
            %method,
            path = context.info.path,
            verb = &*context.info.verb,
            user.name = context.user.name,
            user.agent = context.user_agent,
            total_ms = shown(self.total),
            authentication_ms = shown(self.authentication),
            queue_ms = shown(self.queue),
            authorization_ms = shown(self.authorization),
            handler_ms = shown(self.handler()),
            "a request was slow"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_handler_has_what_is_left() {
        let ms = Duration::from_millis;
        let slow = |authentication| Slow {
            total: ms(1200),
            authentication: ms(authentication),
            queue: ms(150),
            authorization: ms(50),
            code: StatusCode::OK,
        };
        assert_eq!(slow(0).handler(), ms(1000));
        assert_eq!(slow(2000).handler(), ms(0));
    }

    #[test]
    fn lines_are_bounded_in_each_window() {
        let (mut written, start) = (None, Instant::now());
        let taken = (0..LINES * 2).filter(|_| takes_line(&mut written, start)).count();
        assert_eq!(taken, 100);
        assert!(!takes_line(&mut written, start + WINDOW / 2));
        assert!(takes_line(&mut written, start + WINDOW));
    }
}
