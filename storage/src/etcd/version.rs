//! Whether the members' progress messages can be trusted.
//!
//! Before 3.4.31 and 3.5.13 a requested progress message could overtake the events it speaks for (etcd issue 15220).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::client::Client;
use super::messages::{self, StatusRequest, StatusResponse};

const ASK_AGAIN: Duration = Duration::from_secs(5);

/// Asks every member once, until each has answered; only then, and if all are new enough, sets `trusted`.
pub(super) async fn learn(client: Arc<Client>, trusted: Arc<AtomicBool>) {
    for member in 0..client.members() {
        let version = loop {
            match client
                .call_member::<_, StatusResponse>(member, messages::STATUS, StatusRequest {})
                .await
            {
                Ok(status) => break status.version,
                Err(_) => tokio::time::sleep(ASK_AGAIN).await,
            }
        };
        if !orders_progress(&version) {
            tracing::info!(
                version,
                "etcd sends progress notifications too early, the keys are looked at instead"
            );
            return;
        }
    }
    trusted.store(true, Ordering::Relaxed);
}

fn orders_progress(version: &str) -> bool {
    let release = version.split(['-', '+']).next().unwrap_or_default();
    let parts: Option<Vec<u32>> = release.split('.').map(|part| part.parse().ok()).collect();
    match parts.as_deref() {
        Some([3, 4, patch]) => *patch >= 31,
        Some([3, 5, patch]) => *patch >= 13,
        Some([3, minor, _]) => *minor > 5,
        Some([major, _, _]) => *major > 3,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_fixed_versions_are_trusted() {
        #[track_caller]
        fn check(version: &str, expected: bool) {
            assert_eq!(orders_progress(version), expected, "{version}");
        }
        check("3.4.30", false);
        check("3.4.31", true);
        check("3.5.12", false);
        check("3.5.13", true);
        check("3.6.0", true);
        check("3.6.0-rc.1", true);
        check("4.0.0", true);
        check("3.3.27", false);
        check("", false);
        check("nonsense", false);
    }
}
