//! Leases for keys with a time to live, shared by keys of the same one.
//!
//! As upstream does: a lease lives a little longer than asked, and serves all keys that come within that surplus, up to a
//! number. So a burst of events costs one lease, not one each.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use tokio::sync::Mutex;

use super::client::{Client, Repeat};
use super::messages::{self, LeaseGrantRequest, LeaseGrantResponse};
use crate::StorageError;

/// Keys on one lease at most, as upstream's `--lease-max-object-count` by default.
const MAX_KEYS: u64 = 1000;
/// Times to live for which a lease is kept ready.
const MAX_SLOTS: usize = 64;

#[derive(Debug)]
pub(super) struct Leases {
    reuse: Duration,
    /// By time to live in seconds.
    slots: Mutex<HashMap<u64, Slot>>,
}

#[derive(Debug)]
struct Slot {
    id: i64,
    ends: Instant,
    keys: u64,
}

impl Leases {
    pub(super) fn new(reuse: Duration) -> Leases {
        Leases {
            reuse,
            slots: Mutex::default(),
        }
    }

    /// A lease that ends no earlier than `ttl` from now.
    pub(super) async fn get(&self, client: &Client, ttl: Duration) -> Result<i64, StorageError> {
        let seconds = ttl.as_secs() + u64::from(ttl.subsec_nanos() > 0);
        let now = Instant::now();
        let mut slots = self.slots.lock().await;
        if let Some(slot) = slots.get_mut(&seconds)
            && slot.ends >= now + Duration::from_secs(seconds)
            && slot.keys < MAX_KEYS
        {
            slot.keys += 1;
            return Ok(slot.id);
        }
        let surplus = self.reuse.as_secs().min(seconds / 20);
        let request = LeaseGrantRequest {
            ttl: messages::signed(seconds + surplus),
        };
        // Repeating it at worst leaves a lease without keys, which ends by itself.
        let granted: LeaseGrantResponse = client
            .call(messages::LEASE_GRANT, request, Repeat::Freely, 0)
            .await?;
        slots.retain(|_, slot| slot.ends > now);
        if slots.len() < MAX_SLOTS {
            let ends = now + Duration::from_secs(messages::unsigned(granted.ttl));
            slots.insert(
                seconds,
                Slot {
                    id: granted.id,
                    ends,
                    keys: 1,
                },
            );
        }
        Ok(granted.id)
    }

    /// Forgets leases that the cluster does not know.
    pub(super) async fn forget(&self) {
        self.slots.lock().await.clear();
    }
}
