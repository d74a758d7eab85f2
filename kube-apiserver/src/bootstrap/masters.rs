//! Which servers of a cluster are alive. On a shared store each keeps a key that ends by itself soon after the server does, and the
//! endpoints of the `kubernetes` service are the addresses of all such keys.
//!
//! Mirrors `pkg/controlplane/reconcilers/lease.go`; keys, values and times are upstream's, so that both kinds of server agree.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use generic_server::ApiError;
use machinery::codec::protobuf;
use machinery::schema::builtin;
use serde_json::json;
use storage::{Op, Outcome, RangeRequest, StorageError, Store, Txn};

use super::{Facts, reconcile_endpoints};

/// How often a server says that it is alive, and for how long that holds.
const INTERVAL: Duration = Duration::from_secs(10);
const TTL: Duration = Duration::from_secs(15);

/// The keys of the servers that share a store.
#[derive(Debug, Clone)]
pub struct Masters {
    engine: Arc<dyn Store>,
    prefix: String,
    own: IpAddr,
}

impl Masters {
    /// Of the servers under a storage prefix (`/registry`); this one's address is `own`.
    pub fn new(engine: Arc<dyn Store>, prefix: &str, own: IpAddr) -> Self {
        Masters {
            engine,
            prefix: format!("{prefix}/masterleases/"),
            own,
        }
    }

    /// Whether others may share the store.
    fn shared(&self) -> bool {
        self.engine.published().is_none()
    }

    fn key(&self) -> String {
        format!("{}{}", self.prefix, self.own)
    }

    async fn write(&self, op: Op) -> Result<Outcome, StorageError> {
        let txn = Txn {
            guards: Vec::new(),
            ops: vec![op],
        };
        self.engine.commit(txn).await
    }

    /// Says that this server is alive.
    async fn renew(&self) -> Result<(), StorageError> {
        let Some(schema) = builtin().kind("", "v1", "Endpoints") else {
            return Ok(());
        };
        let object = json!({
            "apiVersion": "v1", "kind": "Endpoints", "metadata": {},
            "subsets": [{"addresses": [{"ip": self.own.to_string()}]}],
        });
        let put = Op::Put {
            key: self.key(),
            value: protobuf::encode(schema.root(), &object).into(),
            ttl: Some(TTL),
        };
        self.write(put).await.map(|_| ())
    }

    /// The addresses of the servers that are alive, this one's among them, in order.
    pub(super) async fn addresses(&self) -> Result<Vec<IpAddr>, StorageError> {
        let mut all = vec![self.own];
        if self.shared() {
            self.renew().await?;
            all.extend(self.others().await?);
        }
        all.sort_by_key(ToString::to_string);
        all.dedup();
        Ok(all)
    }

    async fn others(&self) -> Result<Vec<IpAddr>, StorageError> {
        let request = RangeRequest {
            prefix: self.prefix.clone(),
            ..RangeRequest::default()
        };
        let found = self.engine.range(request).await?;
        let address = |key: &str| key.strip_prefix(&self.prefix)?.parse().ok();
        Ok(found.kvs.iter().filter_map(|kv| address(&kv.key)).collect())
    }

    async fn leave(&self) -> Result<Vec<IpAddr>, StorageError> {
        self.write(Op::Delete { key: self.key() }).await?;
        self.others().await
    }
}

/// Keeps the endpoints of the `kubernetes` service as the servers come and go, until stopped; then takes this one out. Ends at
/// once where the store is not shared.
pub async fn keep_endpoints(facts: Facts, stop: impl Future<Output = ()> + Send) {
    let Some(masters) = facts.masters.as_ref().filter(|masters| masters.shared()) else {
        return;
    };
    let mut stop = std::pin::pin!(stop);
    loop {
        tokio::select! {
            () = &mut stop => break,
            () = tokio::time::sleep(INTERVAL) => {}
        }
        let done = match masters.addresses().await {
            Ok(addresses) => reconcile_endpoints(&facts, &addresses).await,
            Err(error) => Err(ApiError::internal(error)),
        };
        if let Err(error) = done {
            tracing::warn!(%error, "cannot maintain the endpoints of the kubernetes service");
        }
    }
    match masters.leave().await {
        Ok(left) if !left.is_empty() => {
            // The remaining servers do it, too.
            if let Err(error) = reconcile_endpoints(&facts, &left).await {
                tracing::info!(%error, "this server is still among the endpoints of the kubernetes service");
            }
        }
        Ok(_) => {}
        Err(error) => {
            tracing::info!(%error, "the endpoint lease of this server could not be removed; it expires")
        }
    }
}
