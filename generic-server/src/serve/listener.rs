//! Binding ports and accepting TCP connections.

use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};

/// A bound port.
#[derive(Debug)]
pub struct Listener {
    inner: TcpListener,
    address: SocketAddr,
}

/// Binds an address; port 0 takes any. The unspecified IPv4 address means every address of both families, as in Go.
///
/// # Errors
/// What the operating system says, such as that the port is taken.
pub async fn bind(address: SocketAddr) -> io::Result<Listener> {
    let inner = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => {
            let dual = SocketAddr::new(IpAddr::V6(Ipv6Addr::UNSPECIFIED), address.port());
            match TcpListener::bind(dual).await {
                Ok(listener) => listener,
                // A host without IPv6.
                Err(error) if error.kind() != io::ErrorKind::AddrInUse => TcpListener::bind(address).await?,
                Err(error) => return Err(error),
            }
        }
        _ => TcpListener::bind(address).await?,
    };
    let address = inner.local_addr()?;
    Ok(Listener { inner, address })
}

impl Listener {
    /// Where it listens, with the real port.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The next connection. Failures to accept are logged and waited out: they are the client's or pass.
    /// Cancel-safe: no connection is lost.
    pub(crate) async fn accept(&self) -> (TcpStream, SocketAddr) {
        loop {
            match self.inner.accept().await {
                Ok((stream, peer)) => {
                    // Without it small answers wait for the peer's delayed acknowledgements.
                    if let Err(error) = stream.set_nodelay(true) {
                        tracing::debug!(%error, "cannot set TCP_NODELAY");
                    }
                    return (stream, SocketAddr::new(peer.ip().to_canonical(), peer.port()));
                }
                Err(error) => {
                    let gone = matches!(
                        error.kind(),
                        io::ErrorKind::ConnectionAborted
                            | io::ErrorKind::ConnectionReset
                            | io::ErrorKind::ConnectionRefused
                    );
                    if !gone {
                        // Out of descriptors, most likely: accepting again at once would only spin.
                        tracing::warn!(%error, "cannot accept a connection");
                        tokio::time::sleep(Duration::from_millis(50)).await;
                    }
                }
            }
        }
    }
}
