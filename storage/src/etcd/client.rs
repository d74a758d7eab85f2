//! Calls to a cluster: one connection per member, the next member when one does not answer.

use std::path::Path;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use http::uri::PathAndQuery;
use tonic::metadata::MetadataValue;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};
use tonic::{Status, Streaming};

use super::EtcdOptions;
use super::errors::{self, Sent};
use super::messages::{self, Answer};
use crate::StorageError;
use crate::grpc::ProstCodec;

/// As upstream's client: pings keep half-dead connections from going unnoticed.
const KEEPALIVE_EVERY: Duration = Duration::from_secs(30);
const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(10);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
const ROUNDS: usize = 3;
const RETRY_DELAY: Duration = Duration::from_millis(50);

#[derive(Debug)]
pub(super) struct Client {
    members: Vec<Channel>,
    current: AtomicUsize,
    timeout: Duration,
    /// The newest revision seen, and the newest known to be compacted.
    newest: AtomicU64,
    compacted: AtomicU64,
}

/// Whether a call may be repeated when its outcome is unknown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Repeat {
    Freely,
    IfNotSent,
}

impl Client {
    /// Connects when first used. Fails when the options make no sense.
    pub(super) fn new(options: &EtcdOptions) -> Result<Client, StorageError> {
        let tls = tls(options)?;
        if options.endpoints.is_empty() {
            return Err(invalid("no etcd endpoint is given"));
        }
        let member = |text: &String| -> Result<Channel, StorageError> {
            let bad = |error| because(&format!("`{text}` is not an etcd endpoint"), error);
            let uri = match text.split_once("://") {
                Some(_) => text.clone(),
                None => format!("http://{text}"),
            };
            let mut endpoint = Endpoint::from_shared(uri)
                .map_err(bad)?
                .connect_timeout(CONNECT_TIMEOUT)
                .tcp_nodelay(true)
                .http2_keep_alive_interval(KEEPALIVE_EVERY)
                .keep_alive_timeout(KEEPALIVE_TIMEOUT)
                .keep_alive_while_idle(true)
                .initial_stream_window_size(1 << 20)
                .initial_connection_window_size(4 << 20);
            match endpoint.uri().scheme_str() {
                Some("http" | "unix") => {}
                Some("https") => {
                    endpoint = endpoint
                        .tls_config(tls.clone())
                        .map_err(|error| because(&format!("cannot set up TLS to `{text}`"), error))?
                }
                _ => return Err(invalid(&format!("`{text}` is not an etcd endpoint"))),
            }
            Ok(match &options.dialer {
                Some(dialer) if endpoint.uri().scheme_str() != Some("unix") => {
                    endpoint.connect_with_connector_lazy(dialer.connector())
                }
                _ => endpoint.connect_lazy(),
            })
        };
        Ok(Client {
            members: options.endpoints.iter().map(member).collect::<Result<_, _>>()?,
            current: AtomicUsize::new(0),
            timeout: options.timeout,
            newest: AtomicU64::new(0),
            compacted: AtomicU64::new(0),
        })
    }

    pub(super) fn newest(&self) -> u64 {
        self.newest.load(Ordering::Relaxed)
    }

    pub(super) fn compacted(&self) -> u64 {
        self.compacted.load(Ordering::Relaxed)
    }

    pub(super) fn observe_revision(&self, revision: u64) {
        self.newest.fetch_max(revision, Ordering::Relaxed);
    }

    pub(super) fn observe_compacted(&self, revision: u64) {
        self.compacted.fetch_max(revision, Ordering::Relaxed);
    }

    pub(super) fn members(&self) -> usize {
        self.members.len()
    }

    /// One call, to whichever member answers. `asked` is the revision it is about, for the error.
    pub(super) async fn call<Req, Resp>(
        &self,
        path: &'static str,
        request: Req,
        repeat: Repeat,
        asked: u64,
    ) -> Result<Resp, StorageError>
    where
        Req: prost::Message + Clone + 'static,
        Resp: Answer,
    {
        let mut tries = 0;
        loop {
            let member = self.current.load(Ordering::Relaxed) % self.members.len();
            let status = match self.call_member(member, path, request.clone()).await {
                Ok(response) => {
                    let response: Resp = response;
                    self.observe_revision(response.revision());
                    return Ok(response);
                }
                Err(status) => status,
            };
            tries += 1;
            let sent = errors::retry(&status);
            if sent.is_some() {
                self.turn_from(member);
            }
            let again = match (sent, repeat) {
                (Some(Sent::No), _) | (Some(Sent::Perhaps), Repeat::Freely) => {
                    tries < ROUNDS.max(2 * self.members.len())
                }
                (Some(Sent::Perhaps), Repeat::IfNotSent) => {
                    return Err(StorageError::Uncertain(format!(
                        "etcd did not answer: {}",
                        status.message()
                    )));
                }
                (None, _) => false,
            };
            if !again {
                return Err(errors::translate(status, asked, self.compacted(), self.newest()));
            }
            if tries >= self.members.len() {
                tokio::time::sleep(RETRY_DELAY * u32::try_from(tries).unwrap_or(1)).await;
            }
        }
    }

    /// One call to one member.
    pub(super) async fn call_member<Req, Resp>(
        &self,
        member: usize,
        path: &'static str,
        request: Req,
    ) -> Result<Resp, Status>
    where
        Req: prost::Message + 'static,
        Resp: prost::Message + Default + 'static,
    {
        let mut grpc = self.grpc(member);
        let call = async {
            // A channel is always ready in the end; failures come with the call.
            grpc.ready()
                .await
                .map_err(|error| Status::from_error(error.into()))?;
            let path = PathAndQuery::from_static(path);
            grpc.unary(tonic::Request::new(request), path, ProstCodec::default())
                .await
        };
        match tokio::time::timeout(self.timeout, call).await {
            Ok(result) => result.map(tonic::Response::into_inner),
            Err(_) => Err(Status::deadline_exceeded("no answer in time")),
        }
    }

    /// Opens a watch stream on a member. Gives the member with it.
    pub(super) async fn watch(
        &self,
        requests: impl futures_util::Stream<Item = messages::WatchRequest> + Send + 'static,
    ) -> Result<(usize, Streaming<messages::WatchResponse>), Status> {
        let member = self.current.load(Ordering::Relaxed) % self.members.len();
        let mut grpc = self.grpc(member);
        let mut request = tonic::Request::new(requests);
        // A member cut off from the others ends the stream rather than go quiet.
        request
            .metadata_mut()
            .insert("hasleader", MetadataValue::from_static("true"));
        let call = async {
            grpc.ready()
                .await
                .map_err(|error| Status::from_error(error.into()))?;
            grpc.streaming(
                request,
                PathAndQuery::from_static(messages::WATCH),
                ProstCodec::default(),
            )
            .await
        };
        match tokio::time::timeout(self.timeout, call).await {
            Ok(result) => result.map(|response| (member, response.into_inner())),
            Err(_) => Err(Status::deadline_exceeded("no answer in time")),
        }
        .inspect_err(|_| self.turn_from(member))
    }

    /// Prefers the next member, unless another caller has done so already.
    pub(super) fn turn_from(&self, member: usize) {
        let next = (member + 1) % self.members.len();
        let _ = self
            .current
            .compare_exchange(member, next, Ordering::Relaxed, Ordering::Relaxed);
    }

    fn grpc(&self, member: usize) -> tonic::client::Grpc<Channel> {
        tonic::client::Grpc::new(self.members[member].clone()).max_decoding_message_size(usize::MAX)
    }
}

fn tls(options: &EtcdOptions) -> Result<ClientTlsConfig, StorageError> {
    let read = |path: &Path| {
        std::fs::read(path).map_err(|error| because(&format!("cannot read `{}`", path.display()), error))
    };
    let mut tls = match &options.ca_file {
        Some(path) => ClientTlsConfig::new().ca_certificate(Certificate::from_pem(read(path)?)),
        None => ClientTlsConfig::new().with_native_roots(),
    };
    match (&options.cert_file, &options.key_file) {
        (Some(cert), Some(key)) => tls = tls.identity(Identity::from_pem(read(cert)?, read(key)?)),
        (None, None) => {}
        _ => {
            return Err(invalid(
                "an etcd client certificate needs its key, and a key its certificate",
            ));
        }
    }
    Ok(tls)
}

fn invalid(message: &str) -> StorageError {
    StorageError::Engine {
        message: message.to_owned(),
        source: None,
    }
}

fn because(message: &str, error: impl std::error::Error + Send + Sync + 'static) -> StorageError {
    StorageError::Engine {
        message: message.to_owned(),
        source: Some(Box::new(error)),
    }
}
