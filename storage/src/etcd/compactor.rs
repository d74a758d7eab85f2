//! Compaction by one of however many replicas.
//!
//! All replicas, upstream's among them, agree through the key `compact_rev_key`: the first to increment its version in an
//! interval compacts to the revision that was newest an interval ago, the others only take note.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::client::{Client, Repeat};
use super::messages::{
    self, Answer, COMPARE_VERSION, CompactionRequest, CompactionResponse, Compare, CompareTarget, PutRequest,
    RangeRequest, Request, RequestOp, TxnRequest, TxnResponse,
};
use crate::StorageError;

const KEY: &str = "compact_rev_key";

/// Runs until dropped. Its owner is the store.
pub(super) async fn run(client: Arc<Client>, every: Duration) {
    let mut round = Round::default();
    loop {
        tokio::time::sleep(every).await;
        if let Err(error) = round.turn(&client).await {
            tracing::warn!(error = &error as &dyn std::error::Error, "etcd was not compacted");
        }
    }
}

/// The state of a replica from one interval to the next.
#[derive(Debug, Default)]
pub(super) struct Round {
    /// The version of the key when last seen.
    version: i64,
    /// The newest revision then.
    revision: u64,
}

impl Round {
    /// One interval's turn. True when this replica has compacted.
    pub(super) async fn turn(&mut self, client: &Client) -> Result<bool, StorageError> {
        let op = |request| RequestOp {
            request: Some(request),
        };
        let key = Bytes::from_static(KEY.as_bytes());
        let request = TxnRequest {
            compare: vec![Compare {
                result: 0,
                target: COMPARE_VERSION,
                key: key.clone(),
                value: Some(CompareTarget::Version(self.version)),
            }],
            success: vec![op(Request::Put(PutRequest {
                key: key.clone(),
                value: self.revision.to_string().into(),
                lease: 0,
            }))],
            failure: vec![op(Request::Range(RangeRequest {
                key,
                ..RangeRequest::default()
            }))],
        };
        // Done twice, the second time finds the version moved on and leaves compacting to the next interval.
        let response: TxnResponse = client.call(messages::TXN, request, Repeat::Freely, 0).await?;
        let to = std::mem::replace(&mut self.revision, response.revision());
        if !response.succeeded {
            let found = response
                .responses
                .first()
                .and_then(|op| op.range.as_ref())
                .and_then(|range| range.kvs.first());
            self.version = found.map_or(0, |pair| pair.version);
            if let Some(done) = found.and_then(|pair| std::str::from_utf8(&pair.value).ok()?.parse().ok()) {
                client.observe_compacted(done);
            }
            return Ok(false);
        }
        self.version += 1;
        if to == 0 {
            // The first interval: nothing is known to be old.
            return Ok(false);
        }
        compact(client, to).await?;
        Ok(true)
    }
}

/// Compacts. Already compacted is fine.
pub(super) async fn compact(client: &Client, to: u64) -> Result<(), StorageError> {
    let request = CompactionRequest {
        revision: messages::signed(to),
    };
    match client
        .call::<_, CompactionResponse>(messages::COMPACT, request, Repeat::Freely, to)
        .await
    {
        Ok(_) | Err(StorageError::Compacted { .. }) => {
            client.observe_compacted(to);
            Ok(())
        }
        Err(error) => Err(error),
    }
}
