//! The API server's side of the stand-in for etcd: whether the server of `--etcd-servers` is one, proved rather than believed.

use std::net::{IpAddr, SocketAddr};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Empty};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::TcpStream;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::{DIRECTORY, PATH, PROOF, PROOF_FILE, SERVER_DIRECTORY};
use crate::StartError;
use crate::config::Etcd;

/// How long a server on this machine may take to say what it is. One that does not is left to the client of etcd.
const TIMEOUT: Duration = Duration::from_secs(2);
/// The longest answer of a stand-in: a path and a proof.
const MAX_ANSWER: usize = 8 << 10;

/// A stand-in for etcd that has proved itself.
#[derive(Debug)]
pub(crate) struct StandIn {
    url: String,
    directory: PathBuf,
    ended: CancellationToken,
    /// Ends the task that waits for its end.
    _following: DropGuard,
}

impl StandIn {
    /// Where it listens.
    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// The directory for the API server.
    pub(crate) fn directory(&self) -> PathBuf {
        self.directory.join(SERVER_DIRECTORY)
    }

    /// Fires when its process has ended.
    pub(crate) fn ended(&self) -> &CancellationToken {
        &self.ended
    }
}

/// Asks the server of `--etcd-servers` what it is, when it is one on this machine's loopback address without TLS. `None` for everything else,
/// which is etcd's client to judge.
///
/// # Errors
/// When a server says that it is a stand-in, and cannot prove that it shares a directory with this one.
pub(crate) async fn recognise(etcd: &Etcd) -> Result<Option<StandIn>, StartError> {
    let [url] = etcd.servers.as_slice() else {
        return Ok(None);
    };
    let Some(address) = loopback(url) else {
        return Ok(None);
    };
    let asked = tokio::time::timeout(TIMEOUT, ask(address)).await;
    let Some((answer, body)) = asked.ok().flatten() else {
        return Ok(None);
    };
    let text = |name: &str| answer[name].as_str().unwrap_or_default().to_string();
    let (directory, proof) = (PathBuf::from(text(DIRECTORY)), text(PROOF));
    let refused = |why: String| {
        Err(StartError::StandIn(format!(
            "{url} says that it is a stand-in for etcd: {why}"
        )))
    };
    if let Err(why) = proved(&directory, &proof) {
        return refused(why);
    }
    if !etcd.overrides.is_empty() {
        return refused("--etcd-servers-overrides does not go with it".into());
    }
    let (ended, following) = (CancellationToken::new(), CancellationToken::new());
    let (fired, stopped) = (ended.clone(), following.clone());
    tokio::spawn(async move {
        tokio::select! {
            () = stopped.cancelled() => {}
            () = end_of(body) => fired.cancel(),
        }
    });
    Ok(Some(StandIn {
        url: url.clone(),
        directory,
        ended,
        _following: following.drop_guard(),
    }))
}

/// The address of a plain URL that no other machine can be behind.
fn loopback(url: &str) -> Option<SocketAddr> {
    let uri: http::Uri = url.parse().ok()?;
    // etcd's own clients take an address without a scheme for plain HTTP.
    if uri.scheme_str().is_some_and(|scheme| scheme != "http") {
        return None;
    }
    let host = uri.host()?.trim_matches(['[', ']']);
    let ip = match host {
        "localhost" => IpAddr::from([127, 0, 0, 1]),
        host => host.parse().ok()?,
    };
    ip.is_loopback()
        .then(|| SocketAddr::new(ip, uri.port_u16().unwrap_or(2379)))
}

/// The answer of a stand-in, whose body goes on; `None` from everything else.
async fn ask(address: SocketAddr) -> Option<(Value, Incoming)> {
    let stream = TcpStream::connect(address).await.ok()?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.ok()?;
    // It ends with the body, or when that is dropped.
    tokio::spawn(connection);
    let request = http::Request::get(PATH)
        .header(http::header::HOST, address.to_string())
        .body(Empty::<Bytes>::new())
        .ok()?;
    let response = sender.send_request(request).await.ok()?;
    if response.status() != http::StatusCode::OK {
        return None;
    }
    let mut body = response.into_body();
    let frame = body.frame().await?.ok()?.into_data().ok()?;
    if frame.len() > MAX_ANSWER {
        return None;
    }
    let answer: Value = serde_json::from_slice(&frame).ok()?;
    answer.get(DIRECTORY).is_some().then_some((answer, body))
}

/// Whether the directory holds what the stand-in says that it does, and is this user's.
fn proved(directory: &Path, proof: &str) -> Result<(), String> {
    let named = directory.display();
    if !directory.is_absolute() || proof.is_empty() {
        return Err("its answer names no directory".into());
    }
    if let Some(other) = open_to_others(directory)? {
        return Err(format!("others can change {}", other.display()));
    }
    let file = directory.join(PROOF_FILE);
    let cannot = |error: std::io::Error| format!("{} cannot be read: {error}", file.display());
    let metadata = std::fs::symlink_metadata(&file).map_err(cannot)?;
    if metadata.uid() != rustix::process::geteuid().as_raw() {
        return Err(format!("the directory {named} is another user's"));
    }
    if !metadata.is_file() || metadata.len() != proof.len() as u64 {
        return Err(format!("the directory {named} is not its own"));
    }
    match std::fs::read_to_string(&file).map_err(cannot)? == proof {
        true => Ok(()),
        false => Err(format!("the directory {named} is not its own")),
    }
}

/// The directory itself or the first above it in which another user could put something else in the place of what was looked at. Whoever
/// listens on the stand-in's port can name any directory, so keys go only where nobody else has a say.
fn open_to_others(directory: &Path) -> Result<Option<PathBuf>, String> {
    let cannot = |error: std::io::Error| format!("{} cannot be read: {error}", directory.display());
    if directory.canonicalize().map_err(cannot)? != directory {
        // A link on the way could lead elsewhere later.
        return Ok(Some(directory.to_path_buf()));
    }
    let own = rustix::process::geteuid().as_raw();
    for (depth, above) in directory.ancestors().enumerate() {
        let found = std::fs::symlink_metadata(above).map_err(cannot)?;
        let is_sticky = found.mode() & 0o1000 != 0 && depth > 0;
        let is_own = found.uid() == own || depth > 0 && found.uid() == 0;
        if !is_own || found.mode() & 0o022 != 0 && !is_sticky {
            return Ok(Some(above.to_path_buf()));
        }
    }
    Ok(None)
}

/// Resolves when the body ends, in whatever way.
async fn end_of(mut body: Incoming) {
    while let Some(Ok(_)) = body.frame().await {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_plain_loopback_urls_are_asked() {
        #[track_caller]
        fn check(url: &str, expected: Option<&str>) {
            assert_eq!(loopback(url).map(|a| a.to_string()).as_deref(), expected, "{url}");
        }
        check("http://127.0.0.1:2379", Some("127.0.0.1:2379"));
        check("http://127.0.0.1:1/", Some("127.0.0.1:1"));
        check("http://localhost:7", Some("127.0.0.1:7"));
        check("http://[::1]:2379", Some("[::1]:2379"));
        check("127.0.0.1:2379", Some("127.0.0.1:2379"));
        check("http://127.1.2.3", Some("127.1.2.3:2379"));
        check("https://127.0.0.1:2379", None);
        check("unix:///run/etcd.sock", None);
        check("http://10.0.0.1:2379", None);
        check("http://etcd:2379", None);
        check("", None);
    }

    #[test]
    fn directories_that_others_can_change_are_none() {
        use std::os::unix::fs::{PermissionsExt as _, symlink};
        let dir = tempfile::tempdir().expect("a directory");
        let base = dir.path().canonicalize().expect("a path");
        let inner = base.join("inner");
        std::fs::create_dir(&inner).expect("made");
        let mode = |path: &Path, mode: u32| {
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).expect("changed");
        };
        mode(&inner, 0o755);
        assert_eq!(open_to_others(&inner), Ok(None));
        mode(&inner, 0o777);
        assert_eq!(open_to_others(&inner), Ok(Some(inner.clone())));
        mode(&inner, 0o1777);
        assert_eq!(open_to_others(&inner), Ok(Some(inner.clone())));
        mode(&inner, 0o700);
        mode(&base, 0o770);
        assert_eq!(open_to_others(&inner), Ok(Some(base.clone())));
        mode(&base, 0o1777);
        assert_eq!(open_to_others(&inner), Ok(None), "only owners rename there");
        let link = base.join("link");
        symlink(&inner, &link).expect("linked");
        assert_eq!(open_to_others(&link), Ok(Some(link.clone())));
        assert!(open_to_others(&base.join("absent")).is_err());
    }

    #[test]
    fn a_directory_is_proved_by_its_content() {
        let dir = tempfile::tempdir().expect("a directory");
        assert!(
            proved(dir.path(), "a")
                .expect_err("no file")
                .contains("cannot be read")
        );
        std::fs::write(dir.path().join(PROOF_FILE), "a").expect("written");
        assert_eq!(proved(dir.path(), "a"), Ok(()));
        for other in ["b", "ab"] {
            assert!(
                proved(dir.path(), other)
                    .expect_err("another")
                    .contains("not its own")
            );
        }
        assert!(proved(dir.path(), "").is_err());
        assert!(proved(Path::new("relative"), "a").is_err());
        let other = tempfile::tempdir().expect("a directory");
        std::os::unix::fs::symlink(dir.path().join(PROOF_FILE), other.path().join(PROOF_FILE))
            .expect("linked");
        assert!(proved(other.path(), "a").is_err());
    }
}
