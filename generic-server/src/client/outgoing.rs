//! The HTTP client of the server's own requests: one configured builder, over reqwest.
//!
//! For requests whose answer is read to its end or as one stream of bytes. A request that pins a connection (a service's address
//! with another name to verify), upgrades it or passes bodies on unread uses hyper with [`super::connect`].
//!
//! Its rules: HTTPS alone; only the given TLS settings decide on trust; addresses that are not permitted are never connected to,
//! whether a URL names them or a name resolves to them; no redirects, which would lead around both; no proxies of the environment.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use http::Method;
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

/// Which addresses may be connected to.
#[derive(Debug, Clone, Copy)]
pub enum Addresses {
    /// All: an administrator has named the server.
    Any,
    /// Those that are not forbidden: a user of the API has named the server.
    Permitted,
}

impl Addresses {
    fn permits(self, address: IpAddr) -> bool {
        match self {
            Addresses::Any => true,
            Addresses::Permitted => !is_forbidden(address),
        }
    }
}

/// The metadata service of a cloud at an address that is not link-local.
const METADATA_V6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254);

/// Link-local addresses are where clouds keep their credentials; nothing that users of the API may have this server reach is there.
pub fn is_forbidden(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(ip) => ip.is_link_local() || ip.is_unspecified() || ip.is_multicast(),
        IpAddr::V6(ip) => {
            ip.is_unicast_link_local() || ip.is_unspecified() || ip.is_multicast() || ip == METADATA_V6
        }
    }
}

/// Sends requests of the server's own. Clones share connections.
#[derive(Debug, Clone)]
pub struct Outgoing {
    client: Client,
    addresses: Addresses,
}

impl Outgoing {
    /// A client with the trust and the client certificate of `tls`.
    ///
    /// # Errors
    /// When the client cannot be made of these settings.
    pub fn new(mut tls: ClientConfig, addresses: Addresses) -> Result<Self, Fault> {
        tls.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        let client = Client::builder()
            .tls_backend_preconfigured(tls)
            .https_only(true)
            .no_proxy()
            .redirect(redirect::Policy::none())
            .referer(false)
            .dns_resolver(Judge(addresses))
            .connect_timeout(CONNECT_TIMEOUT)
            .http2_keep_alive_interval(PING_EVERY)
            .http2_keep_alive_timeout(PING_TIMEOUT)
            .http2_initial_stream_window_size(WINDOW)
            .http2_initial_connection_window_size(WINDOW)
            .build()
            .map_err(|error| Fault(super::fault_of(&error)))?;
        Ok(Outgoing { client, addresses })
    }

    /// A request, to be completed and sent.
    ///
    /// # Errors
    /// When the URL is none, or names an address that is not permitted.
    pub fn request(&self, method: Method, url: &str) -> Result<RequestBuilder, Fault> {
        let parsed = Url::parse(url).map_err(|error| Fault(format!("parse {url:?}: {error}")))?;
        let host = parsed.host_str().unwrap_or_default().trim_matches(['[', ']']);
        match host.parse::<IpAddr>() {
            Ok(address) if !self.addresses.permits(address) => Err(not_permitted(host)),
            _ => Ok(self.client.request(method, parsed)),
        }
    }
}

fn not_permitted(host: &str) -> Fault {
    Fault(format!(
        "dial tcp {host}: no permitted address: link-local and unspecified ones are refused"
    ))
}

/// Resolves names to their permitted addresses. Connections go to the addresses that it has checked.
struct Judge(Addresses);

impl Resolve for Judge {
    fn resolve(&self, name: Name) -> Resolving {
        let addresses = self.0;
        Box::pin(async move {
            let host = name.as_str();
            let found = tokio::net::lookup_host((host, 0))
                .await
                .map_err(|_| Fault(format!("dial tcp: lookup {host}: no such host")))?;
            let permitted: Vec<SocketAddr> = found.filter(|found| addresses.permits(found.ip())).collect();
            if permitted.is_empty() {
                return Err(not_permitted(host).into());
            }
            Ok(Box::new(permitted.into_iter()) as Addrs)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::trust::{Whom, settings};

    fn client(addresses: Addresses) -> Outgoing {
        let tls = settings(Whom::Anyone).expect("settings").with_no_client_auth();
        Outgoing::new(tls, addresses).expect("a client")
    }

    #[tokio::test]
    async fn forbidden_addresses_are_refused_before_a_connection() {
        let careful = client(Addresses::Permitted);
        for url in [
            "https://169.254.169.254/",
            "https://[fe80::1]/",
            "https://[fd00:ec2::254]/",
            "https://[::ffff:169.254.169.254]/",
            "https://0.0.0.0/",
        ] {
            let refused = careful.request(Method::GET, url).expect_err(url);
            assert!(refused.0.contains("no permitted address"), "{url}: {refused}");
            assert!(client(Addresses::Any).request(Method::GET, url).is_ok(), "{url}");
        }
        assert!(careful.request(Method::GET, "https://127.0.0.1:1/").is_ok());
        assert!(careful.request(Method::GET, "no url").is_err());
    }

    #[tokio::test]
    async fn plain_http_is_refused() {
        let request = client(Addresses::Any).request(Method::GET, "http://127.0.0.1:1/");
        let error = request.expect("a URL").send().await.expect_err("no TLS");
        assert!(error.is_builder(), "{error:?}");
    }
}
