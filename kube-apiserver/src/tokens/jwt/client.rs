//! Requests to token issuers: answers of a bounded size, within a bounded time, from hosts at permitted addresses.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use generic_server::client::egress::Route;
use generic_server::client::trust::{TrustedPeers, settings};
use generic_server::client::{Outgoing, fault_of, is_forbidden};
use http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use machinery::go::quote;
use machinery::limits;

/// Bytes of an answer that are shown in an error.
const SHOWN_BYTES: usize = 256;

/// Asks one issuer, and those that its tokens name, trusting the same authorities.
#[derive(Debug, Clone)]
pub(super) struct IssuerClient(Outgoing);

/// An answer, whole.
pub(super) struct Answer {
    pub(super) status: StatusCode,
    pub(super) body: Vec<u8>,
}

impl Answer {
    /// Status and body, for errors.
    pub(super) fn shown(&self) -> String {
        let body = &self.body[..self.body.len().min(SHOWN_BYTES)];
        format!("{}: {}", self.status, String::from_utf8_lossy(body))
    }
}

impl IssuerClient {
    /// A client that trusts these authorities (PEM), or without any those of the host, and whose connections go by `route`.
    ///
    /// # Errors
    /// They cannot be read.
    pub(super) fn new(certificate_authority: &str, route: &Route) -> Result<Self, String> {
        let bundle = BASE64_STANDARD.encode(certificate_authority);
        let peers = match certificate_authority.is_empty() {
            true => TrustedPeers::System,
            false => TrustedPeers::Bundle(&bundle),
        };
        let tls = settings(peers)?.with_no_client_auth();
        let client = Outgoing::within(tls, route, |address| !is_forbidden(address));
        client.map(IssuerClient).map_err(|error| error.to_string())
    }

    /// Fetches a document, with a bearer token where one is given.
    ///
    /// # Errors
    /// There is no answer, in the words of Go's client.
    pub(super) async fn get(&self, url: &str, token: Option<&str>) -> Result<Answer, String> {
        let why = |text: String| format!("Get {}: {text}", quote(url));
        let mut headers = HeaderMap::new();
        if let Some(token) = token {
            let bearer = HeaderValue::try_from(format!("Bearer {token}"));
            headers.insert(
                header::AUTHORIZATION,
                bearer.map_err(|error| why(error.to_string()))?,
            );
        }
        let answer = async {
            let sent = self.0.send(Method::GET, url, headers, Bytes::new()).await;
            let mut response = sent.map_err(|error| why(fault_of(&error)))?;
            let mut body = Vec::new();
            while let Some(bytes) = response.chunk().await.map_err(|error| why(fault_of(&*error)))? {
                if body.len() + bytes.len() > limits::ISSUER_ANSWER_BYTES {
                    return Err(why("the answer is too long".into()));
                }
                body.extend_from_slice(&bytes);
            }
            Ok(Answer {
                status: response.status(),
                body,
            })
        };
        in_time(answer)
            .await
            .unwrap_or_else(|| Err(why("context deadline exceeded".into())))
    }
}

/// What an issuer answers, if it does so in time.
async fn in_time<T>(answer: impl Future<Output = T>) -> Option<T> {
    tokio::time::timeout(limits::ISSUER_TIMEOUT, answer).await.ok()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn issuers_have_their_time() {
        let after = async |time| in_time(tokio::time::sleep(time)).await.is_some();
        assert!(after(limits::ISSUER_TIMEOUT).await);
        assert!(!after(limits::ISSUER_TIMEOUT + Duration::from_millis(1)).await);
    }
}
