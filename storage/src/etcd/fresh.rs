//! The cluster's newest revision, read once for all concurrent callers.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::oneshot;

use super::client::{Client, Repeat};
use super::messages::{self, Answer, RangeRequest, RangeResponse};
use crate::StorageError;

#[derive(Debug, Default)]
pub(super) struct Fresh(Mutex<ReadState>);

#[derive(Debug, Default)]
struct ReadState {
    running: bool,
    /// As many as there are callers.
    waiting: Vec<oneshot::Sender<Result<u64, String>>>,
}

impl Fresh {
    /// A revision at or after every write acknowledged before this call.
    pub(super) async fn get(self: &Arc<Self>, client: &Arc<Client>) -> Result<u64, StorageError> {
        let (reply, answer) = oneshot::channel();
        let begin = {
            let mut state = self.0.lock();
            state.waiting.push(reply);
            !std::mem::replace(&mut state.running, true)
        };
        if begin {
            // On a task of its own: others wait for it even if this caller goes away. It ends when no caller waits.
            tokio::spawn(self.clone().ask(client.clone()));
        }
        let unavailable = |message| StorageError::Unavailable {
            message,
            source: None,
        };
        match answer.await {
            Ok(result) => result.map_err(unavailable),
            Err(_) => Err(unavailable(
                "the question for the newest revision was dropped".into(),
            )),
        }
    }

    async fn ask(self: Arc<Self>, client: Arc<Client>) {
        loop {
            let waiting = {
                let mut state = self.0.lock();
                if state.waiting.is_empty() {
                    state.running = false;
                    return;
                }
                std::mem::take(&mut state.waiting)
            };
            let result = read_revision(&client).await.map_err(|error| error.to_string());
            for waiting in waiting {
                // A caller that is gone no longer needs the result.
                let _ = waiting.send(result.clone());
            }
        }
    }
}

/// A linearizable read of next to nothing.
pub(super) async fn read_revision(client: &Client) -> Result<u64, StorageError> {
    let request = RangeRequest {
        key: "compact_rev_key".into(),
        count_only: true,
        ..RangeRequest::default()
    };
    let response: RangeResponse = client.call(messages::RANGE, request, Repeat::Freely, 0).await?;
    Ok(response.revision())
}
