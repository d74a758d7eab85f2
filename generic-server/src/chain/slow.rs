//! The log line of a slow request: one, with where the time went. Its figures are measured for metrics anyway.

use std::time::Duration;

use http::{Method, StatusCode};

use crate::request::RequestContext;

/// Upstream traces requests from half a second; a line at every verbosity wants an answer that people wait for.
pub(super) const THRESHOLD: Duration = Duration::from_secs(1);

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
        let shown = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        tracing::warn!(
            target: "operator",
            code = self.code.as_u16(),
            request.id = context.audit_id,
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
}
