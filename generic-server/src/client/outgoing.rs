//! The HTTP client of the server's own requests: one configured builder, over reqwest.
//!
//! For requests whose answer is read to its end or as one stream of bytes. A request that pins a connection (a service's address
//! with another name to verify), upgrades it or passes bodies on unread uses hyper with [`super::connect`].
//!
//! Its rules: HTTPS alone; only the given TLS settings decide on trust; no redirects, which would lead around both; no proxies of the
//! environment. [`Outgoing::new`] has no rule about addresses, since an administrator has named the server; [`Outgoing::within`] is for URLs that come
//! from elsewhere.

use std::net::{IpAddr, SocketAddr};
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
    permitted: fn(IpAddr) -> bool,
}

impl Outgoing {
    /// A client with the trust and the client certificate of `tls`.
    ///
    /// # Errors
    /// When the client cannot be made of these settings.
    pub fn new(tls: ClientConfig) -> Result<Self, Fault> {
        Outgoing::within(tls, |_| true)
    }

    /// The same, for servers at permitted addresses alone: names are resolved to no other ones.
    ///
    /// # Errors
    /// When the client cannot be made of these settings.
    pub fn within(mut tls: ClientConfig, permitted: fn(IpAddr) -> bool) -> Result<Self, Fault> {
        tls.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        let client = Client::builder()
            .tls_backend_preconfigured(tls)
            .https_only(true)
            .no_proxy()
            .redirect(redirect::Policy::none())
            .referer(false)
            .dns_resolver(Resolver(permitted))
            .connect_timeout(CONNECT_TIMEOUT)
            .http2_keep_alive_interval(PING_EVERY)
            .http2_keep_alive_timeout(PING_TIMEOUT)
            .http2_initial_stream_window_size(WINDOW)
            .http2_initial_connection_window_size(WINDOW)
            .build()
            .map_err(|error| Fault(super::fault_of(&error)))?;
        Ok(Outgoing { client, permitted })
    }

    /// A request, to be completed and sent.
    ///
    /// # Errors
    /// When the URL is none, or names an address that is not permitted.
    pub fn request(&self, method: Method, url: &str) -> Result<RequestBuilder, Fault> {
        let parsed = Url::parse(url).map_err(|error| Fault(format!("parse {}: {error}", Quoted(url))))?;
        // Addresses are not resolved, so the resolver does not see them.
        let host = parsed.host_str().unwrap_or_default();
        let literal = host
            .trim_start_matches('[')
            .trim_end_matches(']')
            .parse::<IpAddr>();
        if literal.is_ok_and(|address| !(self.permitted)(address)) {
            return Err(forbidden(host));
        }
        Ok(self.client.request(method, parsed))
    }
}

fn forbidden(host: &str) -> Fault {
    Fault(format!(
        "dial tcp {host}: no permitted address: link-local and unspecified ones are refused"
    ))
}

/// Resolves names as the system does, to permitted addresses, and fails in the words of Go's client.
struct Resolver(fn(IpAddr) -> bool);

impl Resolve for Resolver {
    fn resolve(&self, name: Name) -> Resolving {
        let permitted = self.0;
        Box::pin(async move {
            let host = name.as_str();
            let found = tokio::net::lookup_host((host, 0))
                .await
                .map_err(|_| Fault(format!("dial tcp: lookup {host}: no such host")))?;
            let found: Vec<SocketAddr> = found.filter(|address| permitted(address.ip())).collect();
            if found.is_empty() {
                return Err(forbidden(host).into());
            }
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

    #[test]
    fn forbidden_addresses_are_refused() {
        let tls = settings(TrustedPeers::Anyone)
            .expect("settings")
            .with_no_client_auth();
        let client =
            Outgoing::within(tls, |address| !crate::client::is_forbidden(address)).expect("a client");
        #[track_caller]
        fn check(client: &Outgoing, url: &str, permitted: bool) {
            assert_eq!(client.request(Method::GET, url).is_ok(), permitted, "{url}");
        }
        check(&client, "https://127.0.0.1/", true);
        check(&client, "https://[::1]/", true);
        check(&client, "https://issuer.example/", true);
        check(&client, "https://169.254.169.254/", false);
        check(&client, "https://0xa9fea9fe/", false);
        check(&client, "https://[fe80::1]/", false);
        check(&client, "https://[::ffff:169.254.169.254]/", false);
    }
}
