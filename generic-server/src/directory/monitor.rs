//! How the stores are: whether an engine can serve, how many objects each resource has, how large the engines' files are.
//! And the release of unused caches.
//!
//! It is looked up in the background, so that health checks and `/metrics` read the results. An engine that answers at once is asked by these
//! themselves: a server in memory that nobody asks has no work to do.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use futures_util::FutureExt;
use machinery::GroupResource;
use parking_lot::Mutex;
use storage::{RangeRequest, Store, StoreStatus};

use crate::directory::Directory;
use crate::metrics::{Collect, family, sample};
use crate::registry::ObjectStore;

/// How often caches are looked at; one that is empty and was not used for one to two such times goes.
const SWEEP_EVERY: Duration = Duration::from_secs(120);

/// Whether an engine can serve, as of a moment ago.
#[derive(Debug)]
pub struct Probe {
    engine: Arc<dyn Store>,
    timeout: Duration,
    outcome: ArcSwap<Result<(), String>>,
}

impl Probe {
    /// A probe that has not looked yet, which counts as a failure. A look takes at most `timeout`.
    pub fn new(engine: Arc<dyn Store>, timeout: Duration) -> Arc<Self> {
        let unknown = Err("etcd client connection not yet established".to_string());
        Arc::new(Probe {
            engine,
            timeout,
            outcome: ArcSwap::from_pointee(unknown),
        })
    }

    /// The result of the last check; the text is upstream's.
    ///
    /// # Errors
    /// When the engine could not serve, or not in time.
    pub fn outcome(&self) -> Result<(), String> {
        if self.engine.answers_at_once()
            && let Some(status) = self.engine.status().now_or_never()
        {
            self.store(status.map_err(|error| error.to_string()));
        }
        Result::clone(&self.outcome.load())
    }

    /// Looks once.
    pub async fn poll_once(&self) {
        self.store(self.status().await);
    }

    fn store(&self, status: Result<StoreStatus, String>) {
        let outcome = match status {
            Ok(_) => Ok(()),
            Err(why) => Err(format!("error getting data from etcd: {why}")),
        };
        self.outcome.store(Arc::new(outcome));
    }

    async fn status(&self) -> Result<StoreStatus, String> {
        match tokio::time::timeout(self.timeout, self.engine.status()).await {
            Ok(status) => status.map_err(|error| error.to_string()),
            Err(_) => Err("context deadline exceeded".into()),
        }
    }

    /// Looks twice per timeout, until dropped. Ends at once where an answer takes no time: then each question is one.
    pub async fn run(self: Arc<Self>) {
        if self.engine.answers_at_once() {
            return;
        }
        let pause = (self.timeout / 2).max(Duration::from_millis(100));
        loop {
            tokio::time::sleep(pause).await;
            self.poll_once().await;
        }
    }
}

/// The figures of all stores, for `/metrics`.
#[derive(Debug, Default)]
pub struct StoreMetrics {
    /// By resource; `None` when it could not be counted.
    objects: Mutex<BTreeMap<GroupResource, Option<u64>>>,
    /// Bytes of the engines that say so, in their order.
    sizes: Mutex<Vec<Option<u64>>>,
    /// What counts when the figures are asked for, where that takes no time.
    on_demand: Mutex<Option<OnDemand>>,
}

/// Counts when it is asked, and not more often than that.
#[derive(Debug)]
struct OnDemand {
    directory: Arc<Directory>,
    every: Duration,
    last: Option<Instant>,
}

impl StoreMetrics {
    /// Figures that are empty until something is polled.
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    /// Counts the objects of every resource once. A started cache knows; otherwise the engine is asked.
    pub async fn count(&self, directory: &Directory) {
        let mut counts = BTreeMap::new();
        for (resource, registered) in directory.all().iter() {
            counts.insert(resource.clone(), count(&registered.store).await);
        }
        *self.objects.lock() = counts;
    }

    /// Asks every engine for its size once.
    pub async fn measure(&self, engines: &[Arc<dyn Store>], timeout: Duration) {
        let mut sizes = Vec::with_capacity(engines.len());
        for engine in engines {
            let status = tokio::time::timeout(timeout, engine.status()).await;
            sizes.push(
                status
                    .ok()
                    .and_then(Result::ok)
                    .and_then(|status| status.size_bytes),
            );
        }
        *self.sizes.lock() = sizes;
    }

    /// Counts again and again, until dropped (`--etcd-count-metric-poll-period`). Where these engines answer at once, it ends at once:
    /// objects are then counted when the figures are asked for, no more often.
    pub async fn keep_counting(
        self: Arc<Self>,
        directory: Arc<Directory>,
        engines: &[Arc<dyn Store>],
        every: Duration,
    ) {
        if engines.iter().all(|engine| engine.answers_at_once()) {
            *self.on_demand.lock() = Some(OnDemand {
                directory,
                every,
                last: None,
            });
            return;
        }
        loop {
            self.count(&directory).await;
            tokio::time::sleep(every).await;
        }
    }

    /// Counts, where that takes no time and is due.
    fn count_on_demand(&self) {
        let mut on_demand = self.on_demand.lock();
        let Some(due) = on_demand.as_mut() else { return };
        if due.last.is_none_or(|last| last.elapsed() >= due.every) {
            due.last = Some(Instant::now());
            self.count(&due.directory).now_or_never();
        }
    }

    /// Measures again and again, until dropped (`--etcd-db-metric-poll-interval`). Ends after the first time where no engine has files.
    pub async fn keep_measuring(self: Arc<Self>, engines: Vec<Arc<dyn Store>>, every: Duration) {
        loop {
            self.measure(&engines, every).await;
            if engines.iter().all(|engine| engine.answers_at_once()) {
                return;
            }
            tokio::time::sleep(every).await;
        }
    }
}

async fn count(store: &ObjectStore) -> Option<u64> {
    if let Some(cache) = store.as_system().started_cache() {
        return u64::try_from(cache.snapshot().objects.len()).ok();
    }
    let request = RangeRequest {
        prefix: format!("{}/", store.config().prefix),
        count_only: true,
        ..RangeRequest::default()
    };
    Some(store.as_system().engine().range(request).await.ok()?.count)
}

impl Collect for StoreMetrics {
    fn collect(&self, out: &mut String) {
        self.count_on_demand();
        let objects = self.objects.lock().clone();
        let value = |count: &Option<u64>| count.map_or("-1".to_string(), |count| count.to_string());
        if !objects.is_empty() {
            let name = "apiserver_resource_objects";
            family(
                out,
                name,
                "gauge",
                "Stored objects when last counted, -1 when they could not be.",
            );
            for (resource, count) in &objects {
                let labels = [("group", &*resource.group), ("resource", &*resource.resource)];
                sample(out, name, &labels, value(count));
            }
            let name = "apiserver_storage_objects";
            family(
                out,
                name,
                "gauge",
                "As apiserver_resource_objects, which replaces it.",
            );
            for (resource, count) in &objects {
                sample(out, name, &[("resource", &resource.to_string())], value(count));
            }
        }
        let sizes = self.sizes.lock().clone();
        if sizes.iter().any(Option::is_some) {
            let name = "apiserver_storage_size_bytes";
            family(out, name, "gauge", "Bytes of the store's files on disk.");
            for (index, size) in sizes.iter().enumerate() {
                if let Some(size) = size {
                    sample(
                        out,
                        name,
                        &[("storage_cluster_id", &format!("etcd-{index}"))],
                        size,
                    );
                }
            }
        }
    }
}

/// Releases caches that are empty and unused, until dropped. They are recreated on their next use.
pub async fn drop_idle_caches(directory: Arc<Directory>) {
    loop {
        tokio::time::sleep(SWEEP_EVERY).await;
        for registered in directory.all().values() {
            registered.store.drop_idle_cache();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::handlers::fixture::fixture;

    #[tokio::test]
    async fn figures_are_collected() {
        let fixture = fixture(false);
        fixture.put("a", "p", "x", "n").await;
        let directory = Directory::default();
        directory.register(fixture.resource.clone());
        let metrics = StoreMetrics::new();
        let mut out = String::new();
        metrics.collect(&mut out);
        assert_eq!(out, "", "nothing is known yet");
        metrics.count(&directory).await;
        metrics.collect(&mut out);
        assert!(
            out.contains("apiserver_storage_objects{resource=\"pods\"} 1\n"),
            "{out}"
        );
        assert!(
            out.contains("apiserver_resource_objects{group=\"\",resource=\"pods\"} 1\n"),
            "{out}"
        );
    }

    #[tokio::test]
    async fn a_probe_sees_an_engine_come_and_go() {
        let engine = storage::memory();
        let probe = Probe::new(engine.clone(), Duration::from_secs(60));
        // An engine in memory is asked by whoever asks the probe.
        assert_eq!(probe.outcome(), Ok(()));
        probe.poll_once().await;
        assert_eq!(probe.outcome(), Ok(()));
        engine.shutdown().await;
        let why = probe.outcome().expect_err("it is shut down");
        assert!(why.starts_with("error getting data from etcd: "), "{why}");
    }
}
