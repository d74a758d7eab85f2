//! Since when the use of tokens in secrets is tracked: a ConfigMap that the controller manager reads before it removes tokens that
//! nobody uses. Mirrors upstream's `legacytokentracking`.

use std::time::Duration;

use generic_server::ApiError;
use generic_server::registry::cache::Interest;
use generic_server::registry::{Event, Reflector};
use machinery::time::Timestamp;
use serde_json::{Value, json};
use tokio::time::Instant;
use tracing::warn;

use super::REST;
use crate::client::{At, Client};
use crate::json::Json;
use crate::tokens::day_of;

const MAPS: At<'static> = ("", "configmaps");
const NAMESPACE: &str = "kube-system";
const NAME: &str = "kube-apiserver-legacy-service-account-token-tracking";
const KEY: &str = "since";
/// How often it is made again at most: a server beside this one may not track tokens, and removes it.
const AGAIN: Duration = Duration::from_secs(30 * 60);

/// Keeps the ConfigMap as long as the server runs.
pub(super) async fn run(client: Client) {
    let store = loop {
        match client.resource(MAPS) {
            Ok(registered) => break registered.store,
            Err(_) => tokio::time::sleep(REST).await,
        }
    };
    let interest = Interest::Key(store.key(NAMESPACE, NAME).into());
    let mut reflector = Reflector::of(store, interest);
    let mut changes = Vec::new();
    let mut made: Option<Instant> = None;
    loop {
        let now = Instant::now();
        let later = made.map(|made| made + AGAIN).filter(|at| *at > now);
        tokio::select! {
            event = reflector.next(&mut changes) => if let Event::Failed(error) = event {
                warn!(error = error.message(), "cannot read since when tokens are tracked; retrying");
                continue;
            },
            () = tokio::time::sleep_until(later.unwrap_or(now)), if later.is_some() => {}
        }
        changes.clear();
        let may_make = made.is_none_or(|made| made + AGAIN <= Instant::now());
        match restore(&client, may_make).await {
            Ok(false) => {}
            Ok(true) => made = Some(Instant::now()),
            Err(error) => {
                warn!(
                    error = error.message(),
                    "cannot write since when tokens are tracked"
                );
                tokio::time::sleep(REST).await;
            }
        }
    }
}

/// Whether the ConfigMap was made.
async fn restore(client: &Client, may_make: bool) -> Result<bool, ApiError> {
    let today = day_of(Timestamp::now());
    let Some(live) = client.find(MAPS, NAMESPACE, NAME).await? else {
        if !may_make {
            return Ok(false);
        }
        let object = json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": NAME, "namespace": NAMESPACE}, "data": {KEY: today},
        });
        return client.create(MAPS, NAMESPACE, object).await;
    };
    if is_day(live.dig("data").text(KEY)) {
        return Ok(false);
    }
    let change = |object: &mut Value| {
        object.ensure("data").put(KEY, today.as_str());
        Ok(())
    };
    client
        .update(MAPS, NAMESPACE, NAME, "", change)
        .await
        .map(|()| false)
}

/// Whether a text is a day, `2006-01-02`.
fn is_day(text: &str) -> bool {
    text.len() == 10 && Timestamp::parse_rfc3339(&format!("{text}T00:00:00Z")).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days() {
        let check = |text: &str, expected: bool| assert_eq!(is_day(text), expected, "{text}");
        check("2026-11-23", true);
        check("2026-02-30", false);
        check("2026-11-2", false);
        check("yesterday!", false);
        check("", false);
        assert!(is_day(&day_of(Timestamp::now())));
    }
}
