//! A webhook that takes lists of events.

use std::time::Duration;

use bytes::Bytes;

use super::event::Event;
use super::options::WebhookOptions;
use super::sink::Destination;
use crate::client::egress::Route;
use crate::delegated::retry::{self, Pauses};
use crate::delegated::{KubeClient, Kubeconfig};

/// How long an answer may take. Upstream's figure.
const TIMEOUT: Duration = Duration::from_secs(30);

const HEAD: &[u8] = b"{\"kind\":\"EventList\",\"apiVersion\":\"audit.k8s.io/v1\",\"metadata\":{},\"items\":[";

/// The server of a kubeconfig, asked at the very URL that it names.
#[derive(Debug)]
pub(super) struct Webhook {
    client: KubeClient,
    pauses: Pauses,
}

impl Webhook {
    pub(super) fn new(options: &WebhookOptions, route: &Route) -> Result<Self, String> {
        let config = Kubeconfig::read(&options.config_file).map_err(|error| error.to_string())?;
        let client = KubeClient::of_webhook(&config, route, TIMEOUT).map_err(|error| error.to_string())?;
        Ok(Webhook {
            client,
            pauses: Pauses(options.initial_backoff),
        })
    }
}

/// An `EventList` of encoded events.
fn list(events: &[Bytes]) -> Bytes {
    let size: usize = events.iter().map(Bytes::len).sum();
    let mut out = Vec::with_capacity(HEAD.len() + size + 2);
    out.extend_from_slice(HEAD);
    for (index, event) in events.iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        let (head, rest) = Event::item(event);
        out.extend_from_slice(head);
        out.extend_from_slice(rest);
    }
    out.extend_from_slice(b"]}");
    out.into()
}

#[async_trait::async_trait]
impl Destination for Webhook {
    async fn deliver(&self, events: Vec<Bytes>) -> Result<(), String> {
        let body = list(&events);
        drop(events);
        // Whatever the error is: the service may be back at the next attempt.
        let sent = retry::in_any_case(self.pauses, || self.client.post("", body.clone())).await;
        sent.map_err(|error| error.to_string())
    }

    fn is_concurrent(&self) -> bool {
        true
    }
}
