//! Damage in the stores: counted for the metrics, reported by the verbose health documents, and looked for in the
//! background. A damaged object is an error of its own and makes no server unready by itself; changes that are lost with their keys do.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use machinery::{GroupResource, limits};
use storage::{ScrubReport, StorageError, Store};

use crate::directory::Directory;
use crate::metrics::{Collect, family, sample};

/// How sound the stores are, as far as anybody has looked.
#[derive(Debug)]
pub struct Integrity {
    directory: Arc<Directory>,
    engines: Vec<Arc<dyn Store>>,
    clean: AtomicU64,
    damaged: AtomicU64,
    failed: AtomicU64,
    /// When the last scrub ended, in seconds since 1970; zero before the first.
    last: AtomicU64,
}

impl Integrity {
    /// Of the resources of a directory and the engines below them.
    pub fn new(directory: Arc<Directory>, engines: Vec<Arc<dyn Store>>) -> Arc<Self> {
        Arc::new(Integrity {
            directory,
            engines,
            clean: AtomicU64::new(0),
            damaged: AtomicU64::new(0),
            failed: AtomicU64::new(0),
            last: AtomicU64::new(0),
        })
    }

    /// The number of unreadable objects by resource, of the resources in use.
    fn objects(&self) -> Vec<(GroupResource, usize)> {
        let mut all = Vec::new();
        for (resource, registered) in self.directory.all().iter() {
            let Some(cache) = registered.store.as_system().started_cache() else {
                continue;
            };
            let snapshot = cache.snapshot();
            if !snapshot.unreadable.is_empty() {
                all.push((resource.clone(), snapshot.unreadable.len()));
            }
        }
        all
    }

    /// Records that engines have found damaged, those of the past among them.
    fn records(&self) -> impl Iterator<Item = usize> {
        self.engines.iter().map(|engine| engine.damaged().len())
    }

    /// The message for operators where a store has lost changes whose keys cannot be read: no object of any kind is certain to be there,
    /// or to be the newest, so that the server is not ready and refuses writes. It stays so until the stores are opened again.
    pub fn lost(&self) -> Option<String> {
        let lost: usize = self.engines.iter().map(|engine| engine.lost().len()).sum();
        (lost > 0).then(|| {
            format!(
                "{lost} stored changes are lost, of objects that are not known, so that writes are refused; the log names their revisions. \
                 Restore a backup, or stop the server and take note of the loss: kube-apiserver scrub --drop-lost-changes"
            )
        })
    }

    /// The message for operators, `None` while no damage is known. It names no object: health
    /// documents are for everybody. The log and `kube-apiserver check` do.
    pub fn summary(&self) -> Option<String> {
        let objects: usize = self.objects().iter().map(|(_, number)| number).sum();
        let records: usize = self.records().sum();
        (objects + records > 0)
            .then(|| format!("{objects} objects cannot be read, {records} stored records are damaged"))
    }

    /// Reads all of every engine that can be read while it is in use, slowly, and counts what that finds.
    pub async fn scrub(&self) {
        for engine in &self.engines {
            let outcome = engine.scrub(limits::SCRUB_BYTES_PER_SECOND).await;
            self.note(&outcome);
        }
    }

    fn note(&self, outcome: &Result<ScrubReport, StorageError>) {
        let counter = match outcome {
            Ok(report) if report.is_clean() => &self.clean,
            Ok(_) => &self.damaged,
            Err(_) => &self.failed,
        };
        counter.fetch_add(1, Ordering::Relaxed);
        match outcome {
            Ok(report) if report.is_clean() => {
                tracing::debug!(
                    report.records,
                    report.bytes,
                    "the store was read through and is sound"
                );
            }
            Ok(report) => tracing::error!(
                report.records,
                report.bytes,
                damaged = report.damaged.len(),
                engine = report.engine.as_deref(),
                half_headers = report.half_headers,
                "the store was read through and is damaged"
            ),
            Err(error) => tracing::warn!(%error, "the store cannot be scrubbed"),
        }
        if outcome.is_ok() {
            let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            self.last.store(since.as_secs(), Ordering::Relaxed);
        }
    }

    /// Scrubs again and again, until dropped (`--scrub-interval`).
    pub async fn keep_scrubbing(self: Arc<Self>, every: Duration) {
        loop {
            tokio::time::sleep(every).await;
            self.scrub().await;
        }
    }
}

impl Collect for Integrity {
    fn collect(&self, out: &mut String) {
        let objects = self.objects();
        if !objects.is_empty() {
            let name = "apiserver_storage_damaged_objects";
            let help = "Stored objects that cannot be read, of the resources in use.";
            family(out, name, "gauge", help);
            for (resource, number) in &objects {
                let labels = [("group", &*resource.group), ("resource", &*resource.resource)];
                sample(out, name, &labels, number);
            }
        }
        let name = "apiserver_storage_damaged_records";
        family(
            out,
            name,
            "gauge",
            "Stored records that fail their checksum, those of the past among them.",
        );
        for (index, records) in self.records().enumerate() {
            sample(
                out,
                name,
                &[("storage_cluster_id", &format!("etcd-{index}"))],
                records,
            );
        }
        let name = "apiserver_storage_scrubs_total";
        family(out, name, "counter", "Scrubs of a store, by result.");
        let counters = [
            ("clean", &self.clean),
            ("damaged", &self.damaged),
            ("failed", &self.failed),
        ];
        for (result, counter) in counters {
            sample(out, name, &[("result", result)], counter.load(Ordering::Relaxed));
        }
        let name = "apiserver_storage_last_scrub_timestamp_seconds";
        family(
            out,
            name,
            "gauge",
            "When a store was last read through; 0 before the first time.",
        );
        sample(out, name, &[], self.last.load(Ordering::Relaxed));
    }
}

#[cfg(test)]
mod tests {
    use storage::{Op, Txn};

    use super::*;
    use crate::handlers::fixture::fixture;

    #[tokio::test(start_paused = true)]
    async fn a_scrub_takes_its_time() {
        let fixture = fixture(false);
        let large = "x".repeat(512 << 10);
        for n in 0..16 {
            fixture.put("a", &format!("p{n}"), "x", &large).await;
        }
        let integrity = Integrity::new(Arc::default(), vec![fixture.engine.clone()]);
        let began = tokio::time::Instant::now();
        integrity.scrub().await;
        let took = began.elapsed().as_secs_f64() * limits::SCRUB_BYTES_PER_SECOND as f64;
        // Eight megabytes and some, but for what is read last, after which nothing waits.
        let megabytes = |count: u32| f64::from(count << 20);
        assert!(took > megabytes(6) && took < megabytes(9), "{took}");
    }

    #[tokio::test]
    async fn damage_is_reported() {
        let fixture = fixture(false);
        fixture.put("a", "sound", "x", "n").await;
        let directory = Arc::new(Directory::default());
        directory.register(fixture.resource.clone());
        let integrity = Integrity::new(directory, vec![fixture.engine.clone()]);
        integrity.scrub().await;
        assert_eq!(integrity.summary(), None);
        let metrics = || {
            let mut out = String::new();
            integrity.collect(&mut out);
            out
        };
        assert!(!metrics().contains("damaged_objects"), "{}", metrics());
        assert!(
            metrics().contains("apiserver_storage_scrubs_total{result=\"clean\"} 1\n"),
            "{}",
            metrics()
        );

        let ops = ["one", "two"].map(|name| Op::Put {
            key: fixture.store().key("a", name),
            value: "not an object".into(),
            ttl: None,
        });
        let txn = Txn {
            ops: ops.into(),
            ..Txn::default()
        };
        fixture.engine.commit(txn).await.expect("stored");
        let text = "2 objects cannot be read, 0 stored records are damaged";
        assert_eq!(integrity.summary().as_deref(), Some(text));
        let line = "apiserver_storage_damaged_objects{group=\"\",resource=\"pods\"} 2\n";
        assert!(metrics().contains(line), "{}", metrics());
    }
}
