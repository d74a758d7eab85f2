//! The figures of all stores, for `/metrics`: those that the stores count themselves, and the revisions of their caches.

use std::sync::Arc;

use crate::directory::Directory;
use crate::metrics::{Collect, Families, sample};

/// Upstream shows this many of a revision's last digits, so that a float holds them.
const REVISION_DIGITS: u64 = 1_000_000_000_000_000;

/// Writes the figures of the stores that there are. Those of a store go with it.
#[derive(Debug)]
pub struct ResourceFigures(pub Arc<Directory>);

impl Collect for ResourceFigures {
    fn collect(&self, out: &mut String) {
        let mut families = Families::default();
        for (resource, registered) in self.0.all().iter() {
            registered.store.figures().write(resource, &mut families);
            if let Some(cache) = registered.store.as_system().started_cache() {
                let metric = "apiserver_watch_cache_resource_version";
                let help = "The newest revision of the cache: its last 15 digits.";
                let labels = [("group", &*resource.group), ("resource", &*resource.resource)];
                let revision = cache.snapshot().revision.0 % REVISION_DIGITS;
                sample(families.of(metric, "gauge", help), metric, &labels, revision);
            }
        }
        families.write(out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::handlers::fixture::fixture;

    #[tokio::test]
    async fn figures_are_those_of_the_stores() {
        let fixture = fixture(false);
        fixture.put("a", "p", "x", "n").await;
        let directory = Directory::default();
        directory.register(fixture.resource.clone());
        let mut out = String::new();
        ResourceFigures(Arc::new(directory)).collect(&mut out);
        for line in [
            "etcd_requests_total{operation=\"create\",group=\"\",resource=\"pods\"} 1",
            "apiserver_storage_events_received_total{group=\"\",resource=\"pods\"} 1",
            "apiserver_watch_cache_initializations_total{group=\"\",resource=\"pods\"} 1",
            "apiserver_watch_cache_resource_version{group=\"\",resource=\"pods\"} 1",
        ] {
            assert!(out.lines().any(|known| known == line), "{line}\n{out}");
        }
    }
}
