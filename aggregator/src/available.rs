//! Watches over remote servers: whether they can be reached, as the Available condition, and their documents.
//!
//! One task per backend. It looks when the APIService, its Service or its endpoints change, when requests begin to fail, and
//! now and then. Mirrors upstream's `remote_available_controller.go`, with its reasons and messages.

mod condition;
mod documents;
mod preconditions;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use generic_server::User;
use generic_server::endpoint_slices::SERVICE_NAME;
use generic_server::registry::cache::Change;
use generic_server::registry::{Event, ObjectStore, Reflector};
use generic_server::resource::ServedResource;
use generic_server::spawn::Tasks;
use http::{HeaderMap, HeaderValue, StatusCode, header};
use parking_lot::Mutex;
use tokio::sync::watch;

use crate::backend::Backend;
use crate::remote::RemoteSpec;
use crate::remote_discovery;
use crate::resolve::Resolver;
use crate::routes::Routes;
use condition::{AVAILABLE, Condition, READABLE};

pub(crate) use condition::{replace_condition, write_status};

/// How often a server that answers is looked at.
const INTERVAL: Duration = Duration::from_secs(10);
/// How often one that does not is, at first and after a while.
const RETRY: Duration = Duration::from_secs(1);
const RETRY_LATER: Duration = Duration::from_secs(5);
const PATIENT_AFTER: u32 = 60;
/// How old the knowledge of what a server serves may grow.
const REFRESH: Duration = Duration::from_secs(60);

/// Watches over all backends.
#[derive(Debug)]
pub(crate) struct Watch {
    resolver: Resolver,
    resource: Arc<ServedResource>,
    /// The identity of the checks, and the header that marks them as this server's.
    headers: HeaderMap,
    /// Moves when what a backend serves becomes known.
    published: watch::Sender<u64>,
    /// By APIService, with its task.
    watched: Mutex<HashMap<String, (Arc<Backend>, tokio::task::AbortHandle)>>,
    any: watch::Sender<bool>,
    tasks: Tasks,
}

impl Watch {
    pub(crate) fn new(
        resolver: Resolver,
        resource: Arc<ServedResource>,
        mark: (http::HeaderName, HeaderValue),
        published: watch::Sender<u64>,
        tasks: Tasks,
    ) -> Arc<Self> {
        let mut headers = HeaderMap::new();
        let user = User {
            name: "system:kube-aggregator".into(),
            groups: vec!["system:masters".into()],
            ..User::default()
        };
        crate::proxy::identify(&mut headers, &user);
        headers.insert(mark.0, mark.1);
        headers.insert(header::USER_AGENT, HeaderValue::from_static("kube-aggregator"));
        Arc::new(Watch {
            resolver,
            resource,
            headers,
            published,
            watched: Mutex::default(),
            any: watch::Sender::new(false),
            tasks,
        })
    }

    /// Follows Services and EndpointSlices once there is a backend.
    pub(crate) fn start(self: &Arc<Self>) {
        for slices in [false, true] {
            let watch = self.clone();
            self.tasks.spawn("aggregator endpoints", async move {
                let mut any = watch.any.subscribe();
                if any.wait_for(|any| *any).await.is_ok() {
                    watch.follow(slices).await;
                }
            });
        }
    }

    /// Takes the backends of a new routing table: new ones get a task, gone ones lose theirs.
    pub(crate) fn update_routes(self: &Arc<Self>, routes: &Routes) {
        let mut watched = self.watched.lock();
        let mut old = std::mem::take(&mut *watched);
        for backend in routes.backends() {
            let name = backend.spec.name.clone();
            match old.remove(&name) {
                Some((same, task)) if Arc::ptr_eq(&same, backend) => {
                    watched.insert(name, (same, task));
                }
                other => {
                    if let Some((_, task)) = other {
                        task.abort();
                    }
                    let (watch, own) = (self.clone(), backend.clone());
                    let task = self
                        .tasks
                        .spawn("availability", async move { watch.guard(&own).await });
                    watched.insert(name, (backend.clone(), task.abort_handle()));
                }
            }
        }
        for (_, task) in old.into_values() {
            task.abort();
        }
        if !watched.is_empty() {
            self.any.send_replace(true);
        }
    }

    /// Something was written to these APIServices.
    pub(crate) fn touched<'a>(&self, names: impl Iterator<Item = &'a str>) {
        let watched = self.watched.lock();
        for name in names {
            if let Some((backend, _)) = watched.get(name) {
                backend.wake.notify_one();
            }
        }
    }

    async fn follow(&self, slices: bool) {
        loop {
            let store = if slices {
                self.resolver.slices()
            } else {
                self.resolver.services()
            };
            if let Some(store) = store {
                self.follow_store(store, slices).await;
            }
            // The store is not there or its cache restarts.
            tokio::time::sleep(Duration::from_millis(200)).await;
            self.probe(|_| true).await;
        }
    }

    async fn follow_store(&self, store: Arc<ObjectStore>, slices: bool) {
        let mut reflector = Reflector::new(store);
        let mut changes: Vec<Arc<Change>> = Vec::new();
        loop {
            match reflector.next(&mut changes).await {
                Event::Listed(_) => self.probe(|_| true).await,
                Event::Changed => {
                    let touches = |spec: &RemoteSpec, change: &Change| {
                        let entry = &change.entry;
                        let about = |entry: &generic_server::registry::cache::Entry| {
                            if slices {
                                entry.label(SERVICE_NAME) == Some(&*spec.service)
                            } else {
                                entry.name() == spec.service
                            }
                        };
                        entry.namespace() == spec.namespace
                            && (about(entry) || change.previous.as_deref().is_some_and(about))
                    };
                    self.probe(|spec| changes.iter().any(|change| touches(spec, change)))
                        .await;
                    changes.clear();
                }
                Event::Failed(_) => return,
            }
        }
    }

    /// Resolves and checks the backends of these specs again.
    async fn probe(&self, which: impl Fn(&RemoteSpec) -> bool) {
        let backends: Vec<Arc<Backend>> = {
            let watched = self.watched.lock();
            watched.values().map(|(backend, _)| backend.clone()).collect()
        };
        for backend in backends.iter().filter(|backend| which(&backend.spec)) {
            let found = self.resolver.find(&backend.spec).await;
            backend.set_targets(self.resolver.addresses(&backend.spec, &found));
            backend.wake.notify_one();
        }
    }

    /// One backend's life.
    async fn guard(&self, backend: &Arc<Backend>) {
        // A server is checked even while its documents are slow.
        tokio::join!(self.keep_checking(backend), self.keep_learning(backend));
    }

    async fn keep_checking(&self, backend: &Arc<Backend>) {
        let mut failures = 0_u32;
        let mut known = None;
        loop {
            let condition = tokio::select! {
                condition = self.check(backend) => condition,
                // The configuration of the check has changed: start over.
                () = backend.wake.notified() => continue,
            };
            let available = condition.status == "True";
            if known != Some(available) {
                note(&backend.spec.name, &condition, known.is_some());
                known = Some(available);
            }
            failures = if available { 0 } else { failures.saturating_add(1) };
            if available {
                backend.answers();
            } else {
                backend.outdated.store(true, Ordering::Release);
            }
            let written = condition::write(&self.resource, &backend.spec, AVAILABLE, Some(&condition)).await;
            if let Err(error) = written {
                tracing::warn!(apiservice = backend.spec.name, %error, "cannot write its availability");
            }
            if available && backend.outdated.swap(false, Ordering::AcqRel) {
                backend.learn.notify_one();
            }
            let pause = match failures {
                0 => INTERVAL,
                1..PATIENT_AFTER => RETRY,
                _ => RETRY_LATER,
            };
            // Early when something about it changes.
            let _ = tokio::time::timeout(pause, backend.wake.notified()).await;
        }
    }

    /// Fetches its documents when it comes back, and now and then.
    async fn keep_learning(&self, backend: &Arc<Backend>) {
        backend.learn.notified().await;
        loop {
            let learned = documents::fetch(backend, &self.headers).await;
            if learned.moved {
                self.published.send_modify(|n| *n += 1);
            }
            let gone = backend.outdated.load(Ordering::Acquire);
            let condition = learned.condition();
            if condition.is_some() {
                // The next time that it is found available.
                backend.outdated.store(true, Ordering::Release);
            }
            // Gone backends: Available already reports it; skip this condition.
            let write =
                async || condition::write(&self.resource, &backend.spec, READABLE, condition.as_ref()).await;
            if !gone && let Err(error) = write().await {
                tracing::warn!(apiservice = backend.spec.name, %error, "cannot write its state");
            }
            while tokio::time::timeout(REFRESH, backend.learn.notified())
                .await
                .is_err()
            {
                // One that is outdated is fetched when it is found available.
                if !backend.outdated.load(Ordering::Acquire) {
                    break;
                }
            }
        }
    }

    async fn check(&self, backend: &Arc<Backend>) -> Condition {
        let spec = &backend.spec;
        let found = self.resolver.find(spec).await;
        backend.set_targets(self.resolver.addresses(spec, &found));
        if let Some(refused) = preconditions::unmet(spec, &found) {
            return refused;
        }
        let path = remote_discovery::path(spec);
        match remote_discovery::get(backend, &path, &self.headers, None).await {
            Ok(answer) if answer.status.is_success() => Condition::passed(),
            Ok(answer) => failed(&answer.url, &bad_status(&answer.url, answer.status)),
            Err(fault) if fault.url.is_empty() => Condition::no("FailedDiscoveryCheck", fault.why),
            Err(fault) => failed(&fault.url, &format!("Get \"{}\": {}", fault.url, fault.why)),
        }
    }
}

/// Tells the operator of a change. A server that is found available at first is no news.
fn note(name: &str, condition: &Condition, known: bool) {
    if condition.status != "True" {
        tracing::warn!(
            target: "operator",
            apiservice = name,
            reason = condition.reason,
            why = condition.message,
            "an APIService is not available"
        );
    } else if known {
        tracing::info!(target: "operator", apiservice = name, "an APIService is available again");
    }
}

fn failed(url: &str, why: &str) -> Condition {
    let message = format!("failing or missing response from {url}: {why}");
    Condition::no("FailedDiscoveryCheck", message)
}

fn bad_status(url: &str, status: StatusCode) -> String {
    format!("bad status from {url}: {}", status.as_u16())
}
