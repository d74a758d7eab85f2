//! The policy in force and the sinks behind it.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use arc_swap::ArcSwap;
use futures_util::future::join_all;
use tokio::sync::oneshot;

use super::delivery::Delivery;
use super::event::Event;
use super::log::Log;
use super::metrics::{AuditMetrics, Plugin};
use super::options::{AuditOptions, Format};
use super::policy::Policy;
use super::sink::Sink;
use super::webhook::Webhook;
use super::{Level, Stage};
use crate::authz::Attributes;
use crate::client::egress::Route;
use crate::metrics::{Metrics, Reloads};
use crate::reload::Reload;
use crate::request::User;
use crate::request::audit::{Arrival, Capture};
use crate::spawn::Tasks;

impl AuditOptions {
    /// Reads the files that they name, and opens nothing.
    ///
    /// # Errors
    /// As of [`Auditor::start`].
    pub fn check(&self, route: &Route) -> Result<(), String> {
        if let Some(path) = &self.policy_file {
            read_policy(path).map_err(unreadable)?;
        }
        if let Some(webhook) = &self.webhook {
            Webhook::new(webhook, route).map_err(uninitialized)?;
        }
        Ok(())
    }
}

fn unreadable(error: String) -> String {
    format!("loading audit policy file: {error}")
}

fn uninitialized(error: String) -> String {
    format!("initializing audit webhook: {error}")
}

/// Decides what is recorded and gives it to the sinks.
#[derive(Debug, Default)]
pub struct Auditor {
    policy: Option<Arc<ArcSwap<Policy>>>,
    sinks: Vec<Arc<dyn Sink>>,
    metrics: Arc<AuditMetrics>,
    tasks: Tasks,
}

/// The policy of a file.
fn read_policy(path: &Path) -> Result<(Vec<u8>, Policy), String> {
    let shown = path.display();
    let data =
        std::fs::read(path).map_err(|error| format!("failed to read file path \"{shown}\": {error}"))?;
    let (policy, faults) = Policy::parse(&data).map_err(|error| format!("{error}: from file {shown}"))?;
    if let Some(faults) = faults {
        tracing::warn!(
            error = faults,
            "Audit policy contains errors, falling back to lenient decoding"
        );
    }
    Ok((data, policy))
}

impl Auditor {
    /// By a policy, to sinks.
    pub fn new(policy: Policy, sinks: Vec<Arc<dyn Sink>>) -> Self {
        Auditor {
            policy: Some(Arc::new(ArcSwap::from_pointee(policy))),
            sinks,
            metrics: Arc::default(),
            tasks: Tasks::new(),
        }
    }

    /// As options say. Files are opened, a webhook is reached by `route`, queues run in `tasks`, and the policy is followed by `reload`.
    ///
    /// # Errors
    /// A file cannot be read, or is no policy or kubeconfig; the log cannot be opened.
    pub fn start(
        options: &AuditOptions,
        route: &Route,
        metrics: &Metrics,
        reload: &mut Reload,
        tasks: &Tasks,
    ) -> Result<Self, String> {
        let Some(path) = options.policy_file.clone() else {
            return Ok(Auditor::default());
        };
        let (data, policy) = read_policy(&path).map_err(unreadable)?;
        let mut auditor = Auditor::new(policy, Vec::new());
        auditor.tasks = tasks.clone();
        if let Some(log) = &options.log {
            let destination = Log::open(log).map_err(|error| format!("ensureLogFile: {error}"))?;
            auditor.sinks.push(Arc::new(Delivery::new(
                Plugin::Log,
                Arc::new(destination),
                log.format,
                log.mode,
                (log.batching, log.truncation),
                (&auditor.metrics, tasks),
            )));
        }
        if let Some(webhook) = &options.webhook {
            let destination = Webhook::new(webhook, route).map_err(uninitialized)?;
            auditor.sinks.push(Arc::new(Delivery::new(
                Plugin::Webhook,
                Arc::new(destination),
                Format::Json,
                webhook.mode,
                (webhook.batching, webhook.truncation),
                (&auditor.metrics, tasks),
            )));
        }
        metrics.register(auditor.metrics.clone());
        auditor.follow(path, &data, metrics, reload);
        Ok(auditor)
    }

    fn follow(&self, path: std::path::PathBuf, data: &[u8], metrics: &Metrics, reload: &mut Reload) {
        let Some(policy) = self.policy.clone() else { return };
        let reloads = Arc::new(Reloads::new("audit_policy"));
        reloads.applied(data);
        metrics.register(reloads.clone());
        reload.watch("audit policy", [path.clone()], move || {
            let read = read_policy(&path);
            reloads.reloaded(read.is_ok());
            let (data, changed) = read?;
            reloads.applied(&data);
            policy.store(Arc::new(changed));
            Ok(())
        });
    }

    /// Begins to gather what the policy wants of a request; `None` where that is nothing.
    pub(crate) fn begin(&self, arrival: &Arrival<'_>) -> Option<Arc<Capture>> {
        let policy = self.policy.as_ref()?;
        if self.sinks.is_empty() {
            return None;
        }
        let nobody;
        let user = match arrival.user {
            Some(user) => user,
            None => {
                nobody = User::default();
                &nobody
            }
        };
        let attributes = Attributes::of(user, arrival.info);
        let verdict = policy.load().evaluate(&attributes, arrival.user.is_some());
        self.metrics.level(verdict.level);
        (verdict.level > Level::None).then(|| Arc::new(Capture::new(verdict, arrival)))
    }

    fn event<'c>(&self, capture: &'c Capture, stage: Stage, code: Option<u16>) -> Option<Event<'c>> {
        if capture.verdict.omitted.has(stage) {
            return None;
        }
        self.metrics.events.fetch_add(1, Ordering::Relaxed);
        Some(Event::new(capture, stage, code))
    }

    /// Records a stage of a request. False when the request must not go on. Once begun it goes on without the request, which may have
    /// lost its client.
    pub(crate) async fn record(
        self: &Arc<Self>,
        capture: &Arc<Capture>,
        stage: Stage,
        code: Option<u16>,
    ) -> bool {
        if capture.verdict.omitted.has(stage) {
            return true;
        }
        let (auditor, capture) = (self.clone(), capture.clone());
        let (done, taken) = oneshot::channel();
        self.tasks.spawn_to_end("audit", async move {
            // Nobody waits for the outcome when the request is gone.
            let _ = done.send(auditor.take(&capture, stage, code).await);
        });
        taken.await.unwrap_or_default()
    }

    async fn take(&self, capture: &Capture, stage: Stage, code: Option<u16>) -> bool {
        let Some(event) = self.event(capture, stage, code) else {
            return true;
        };
        join_all(self.sinks.iter().map(|sink| sink.take(&event)))
            .await
            .into_iter()
            .all(|taken| taken)
    }

    /// The same for a request that ends where nothing can wait.
    pub(crate) fn offer(&self, capture: &Capture, stage: Stage, code: Option<u16>) {
        let Some(event) = self.event(capture, stage, code) else {
            return;
        };
        self.sinks.iter().for_each(|sink| sink.offer(&event));
    }

    /// Counts a request that was refused because its event was lost.
    pub(crate) fn rejected(&self) {
        self.metrics.rejected.fetch_add(1, Ordering::Relaxed);
    }

    /// Delivers what is queued, and takes no more.
    pub async fn flush(&self) {
        for sink in &self.sinks {
            sink.flush().await;
        }
    }
}
