//! A connection to a program beside the server for one call whose requests and answers are streams.

use std::path::Path;
use std::time::Duration;

use http::uri::PathAndQuery;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::{Channel, Endpoint};
use tonic::{Status, Streaming};

use super::codec::ProstCodec;
use super::socket::connector;

/// Requests that wait for the connection. A sender waits while there are more.
const QUEUE: usize = 4;

/// A connection on which nothing has been called yet.
#[derive(Debug)]
pub struct SocketStream {
    channel: Channel,
}

/// Sends the requests of a call. The call's requests end when all clones are dropped.
#[derive(Debug)]
pub struct RequestSender<T>(mpsc::Sender<T>);

impl<T> Clone for RequestSender<T> {
    fn clone(&self) -> Self {
        RequestSender(self.0.clone())
    }
}

/// The answers of a call. An answer is read from the connection when it is asked for, so that HTTP/2's windows hold back a program whose
/// answers nobody takes. Dropping it, and the senders, ends the call and the connection.
#[derive(Debug)]
pub struct Answers<T>(Streaming<T>);

impl SocketStream {
    /// Connects to a socket within this time. `@name` is a socket of Linux' abstract namespace.
    ///
    /// # Errors
    /// Nobody listens there, or not in time.
    pub async fn connect(socket: &Path, within: Duration) -> Result<Self, Status> {
        let endpoint = Endpoint::from_static("http://localhost");
        let connecting = endpoint.connect_with_connector(connector(socket.to_path_buf()));
        let channel = tokio::time::timeout(within, connecting)
            .await
            .map_err(|_| Status::deadline_exceeded("context deadline exceeded"))?
            .map_err(|error| Status::unavailable(error.to_string()))?;
        Ok(SocketStream { channel })
    }

    /// Calls the method at a path with a first request. Waits until the program begins to answer, which it may put off until it has one.
    ///
    /// # Errors
    /// What the program answers.
    pub async fn call<Req, Resp>(
        self,
        path: &'static str,
        first: Req,
    ) -> Result<(RequestSender<Req>, Answers<Resp>), Status>
    where
        Req: prost::Message + Send + 'static,
        Resp: prost::Message + Default + Send + 'static,
    {
        let (sender, requests) = mpsc::channel(QUEUE);
        // The queue is empty and its other end is here.
        sender
            .try_send(first)
            .map_err(|error| Status::internal(error.to_string()))?;
        let mut grpc = tonic::client::Grpc::new(self.channel);
        grpc.ready()
            .await
            .map_err(|error| Status::unavailable(error.to_string()))?;
        let requests = tonic::Request::new(ReceiverStream::new(requests));
        let path = PathAndQuery::from_static(path);
        let answers = grpc.streaming(requests, path, ProstCodec::default()).await?;
        Ok((RequestSender(sender), Answers(answers.into_inner())))
    }
}

impl<T> RequestSender<T> {
    /// Sends a request once there is room for it. Gives it back when the call has ended.
    pub async fn send(&self, request: T) -> Result<(), T> {
        self.0.send(request).await.map_err(|error| error.0)
    }
}

impl<T> Answers<T> {
    /// The next answer; `None` at the end.
    ///
    /// # Errors
    /// The call failed.
    pub async fn next(&mut self) -> Result<Option<T>, Status> {
        self.0.message().await
    }
}
