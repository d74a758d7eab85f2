//! Binding ports and accepting TCP connections.

use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::sockopt;
use tokio::net::{TcpListener, TcpSocket, TcpStream};

/// Upstream's period of TCP keep-alive.
const KEEP_ALIVE: Duration = Duration::from_secs(180);

/// A bound port.
#[derive(Debug)]
pub struct Listener {
    inner: TcpListener,
    address: SocketAddr,
}

/// Binds an address; port 0 takes any. The unspecified IPv4 address means every address of both families, as in Go.
///
/// # Errors
/// The error of the operating system, such as that the port is taken.
pub async fn bind(address: SocketAddr) -> io::Result<Listener> {
    bind_as(address, false)
}

/// The same for a port that other processes that ask for it, too, may listen on (`SO_REUSEPORT`).
///
/// # Errors
/// As of [`bind`].
pub async fn bind_shared(address: SocketAddr) -> io::Result<Listener> {
    bind_as(address, true)
}

fn bind_as(address: SocketAddr, shared: bool) -> io::Result<Listener> {
    let inner = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => {
            let dual = SocketAddr::new(IpAddr::V6(Ipv6Addr::UNSPECIFIED), address.port());
            match listen(dual, shared) {
                Ok(listener) => listener,
                // A host without IPv6.
                Err(error) if error.kind() != io::ErrorKind::AddrInUse => listen(address, shared)?,
                Err(error) => return Err(error),
            }
        }
        _ => listen(address, shared)?,
    };
    let address = inner.local_addr()?;
    Ok(Listener { inner, address })
}

/// Go's backlog where the system says nothing else, as tokio's.
const BACKLOG: u32 = 1024;

fn listen(address: SocketAddr, shared: bool) -> io::Result<TcpListener> {
    let socket = match address {
        SocketAddr::V4(_) => TcpSocket::new_v4()?,
        SocketAddr::V6(_) => TcpSocket::new_v6()?,
    };
    // A port whose connections of before still linger can always be bound again, as in Go.
    socket.set_reuseaddr(true)?;
    if shared {
        socket.set_reuseport(true)?;
    }
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

impl Listener {
    /// Where it listens, with the real port.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The next connection. Cancel-safe: no connection is lost.
    ///
    /// # Errors
    /// Why there is none: the next one may be accepted at once, or only after a pause.
    pub(super) async fn accept(&self) -> Result<(TcpStream, SocketAddr), AcceptError> {
        let (stream, peer) = self.inner.accept().await.map_err(AcceptError::of)?;
        // Without it small answers wait for the peer's delayed acknowledgements.
        let tuned = stream.set_nodelay(true).and_then(|()| keep_alive(&stream));
        if let Err(error) = tuned {
            tracing::debug!(%error, "cannot set options of a connection");
        }
        Ok((stream, SocketAddr::new(peer.ip().to_canonical(), peer.port())))
    }
}

/// Lets the operating system find out about peers that are gone, in upstream's time.
fn keep_alive(stream: &TcpStream) -> io::Result<()> {
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, KEEP_ALIVE)?;
    sockopt::set_tcp_keepintvl(stream, KEEP_ALIVE)?;
    Ok(())
}

/// Why no connection was accepted.
#[derive(Debug)]
pub(super) enum AcceptError {
    /// The client went away again.
    Client,
    /// The server cannot: trying again at once would only spin.
    Server {
        error: io::Error,
        /// Whether descriptors ran out.
        exhausted: bool,
    },
}

impl AcceptError {
    fn of(error: io::Error) -> Self {
        match Errno::from_io_error(&error) {
            Some(Errno::CONNABORTED | Errno::CONNRESET | Errno::CONNREFUSED) => AcceptError::Client,
            errno => AcceptError::Server {
                error,
                exhausted: matches!(errno, Some(Errno::MFILE | Errno::NFILE)),
            },
        }
    }
}

/// How long the server waits before it accepts again: as Go, from 5 ms on twice as long each time, up to a second.
#[derive(Debug, Default)]
pub(super) struct Backoff(Duration);

impl Backoff {
    pub(super) fn next(&mut self) -> Duration {
        self.0 = (self.0 * 2).clamp(Duration::from_millis(5), Duration::from_secs(1));
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accepting_again() {
        let mut backoff = Backoff::default();
        let pauses: Vec<u128> = (0..10).map(|_| backoff.next().as_millis()).collect();
        assert_eq!(pauses, [5, 10, 20, 40, 80, 160, 320, 640, 1000, 1000]);
    }

    #[test]
    fn failures_to_accept() {
        let of = |errno: Errno| match AcceptError::of(errno.into()) {
            AcceptError::Client => "client",
            AcceptError::Server { exhausted: true, .. } => "exhausted",
            AcceptError::Server { exhausted: false, .. } => "server",
        };
        assert_eq!(of(Errno::CONNABORTED), "client");
        assert_eq!(of(Errno::MFILE), "exhausted");
        assert_eq!(of(Errno::NFILE), "exhausted");
        assert_eq!(of(Errno::NOBUFS), "server");
    }
}
