//! The HTTP client of the server's own requests: one configured builder, over reqwest.
//!
//! For requests whose answer is read to its end or as one stream of bytes. A request that pins a connection (a service's address
//! with another name to verify), upgrades it or passes bodies on unread uses hyper with [`super::connect`].
//!
//! Its rules: HTTPS alone; only the given TLS settings decide on trust; no redirects, which would lead around both; no proxies of the
//! environment. It has no rule about addresses, since an administrator has named the server.

use std::net::SocketAddr;
use std::time::Duration;

use http::Method;
use machinery::go::Quoted;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::{Client, RequestBuilder, Url, redirect};
use rustls::ClientConfig;

use super::Fault;

/// How long a connection may take to come about.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// With the timeout below, a dead connection is found within fifteen seconds.
const PING_EVERY: Duration = Duration::from_secs(10);
const PING_TIMEOUT: Duration = Duration::from_secs(5);
/// Bytes of one answer that may be under way.
const WINDOW: u32 = 1 << 20;

/// Sends requests of the server's own. Clones share connections.
#[derive(Debug, Clone)]
pub struct Outgoing {
    client: Client,
}

impl Outgoing {
    /// A client with the trust and the client certificate of `tls`.
    ///
    /// # Errors
    /// When the client cannot be made of these settings.
    pub fn new(mut tls: ClientConfig) -> Result<Self, Fault> {
        tls.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        let client = Client::builder()
            .tls_backend_preconfigured(tls)
            .https_only(true)
            .no_proxy()
            .redirect(redirect::Policy::none())
            .referer(false)
            .dns_resolver(Resolver)
            .connect_timeout(CONNECT_TIMEOUT)
            .http2_keep_alive_interval(PING_EVERY)
            .http2_keep_alive_timeout(PING_TIMEOUT)
            .http2_initial_stream_window_size(WINDOW)
            .http2_initial_connection_window_size(WINDOW)
            .build()
            .map_err(|error| Fault(super::fault_of(&error)))?;
        Ok(Outgoing { client })
    }

    /// A request, to be completed and sent.
    ///
    /// # Errors
    /// When the URL is none.
    pub fn request(&self, method: Method, url: &str) -> Result<RequestBuilder, Fault> {
        let parsed = Url::parse(url).map_err(|error| Fault(format!("parse {}: {error}", Quoted(url))))?;
        Ok(self.client.request(method, parsed))
    }
}

/// Resolves names as the system does, and fails in the words of Go's client.
struct Resolver;

impl Resolve for Resolver {
    fn resolve(&self, name: Name) -> Resolving {
        Box::pin(async move {
            let host = name.as_str();
            let found = tokio::net::lookup_host((host, 0))
                .await
                .map_err(|_| Fault(format!("dial tcp: lookup {host}: no such host")))?;
            let found: Vec<SocketAddr> = found.collect();
            Ok(Box::new(found.into_iter()) as Addrs)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::trust::{TrustedPeers, settings};

    fn client() -> Outgoing {
        let tls = settings(TrustedPeers::Anyone)
            .expect("settings")
            .with_no_client_auth();
        Outgoing::new(tls).expect("a client")
    }

    #[tokio::test]
    async fn plain_http_is_refused() {
        let request = client().request(Method::GET, "http://127.0.0.1:1/");
        let error = request.expect("a URL").send().await.expect_err("no TLS");
        assert!(error.is_builder(), "{error:?}");
        assert!(client().request(Method::GET, "no url").is_err());
    }
}
