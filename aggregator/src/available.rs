//! Watches over remote servers: whether they can be reached, as the Available condition, and what they serve.
//!
//! One task per backend. It looks when the APIService, its Service or its endpoints change, when requests begin to fail, and
//! now and then. Mirrors upstream's `remote_available_controller.go`, with its reasons and messages.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use generic_server::User;
use generic_server::admission::AdmissionChain;
use generic_server::openapi::{SwaggerPart, digest};
use generic_server::registry::cache::{Change, Interest};
use generic_server::registry::store::ObjectStore;
use generic_server::registry::write::{self, UpdateRules, WriteCall, book_own_write};
use generic_server::request::Authorized;
use generic_server::resource::{ServedResource, Subresource};
use generic_server::spawn::Tasks;
use http::{HeaderMap, HeaderValue, StatusCode, header};
use machinery::{ApiError, meta};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::apiservice;
use crate::backend::{Backend, Kept};
use crate::remote_discovery;
use crate::resolve::{Found, Resolver, SERVICE_NAME, is_ready, port_of, service_type};
use crate::routes::{RemoteSpec, Routes};

/// How often a server that answers is looked at.
const EVERY: Duration = Duration::from_secs(10);
/// How often one that does not is, at first and after a while.
const RETRY: Duration = Duration::from_secs(1);
const RETRY_LATER: Duration = Duration::from_secs(5);
const PATIENT_AFTER: u32 = 60;
/// How old the knowledge of what a server serves may grow.
const REFRESH: Duration = Duration::from_secs(60);

/// Upstream's condition.
const AVAILABLE: &str = "Available";
/// This server's own: there, and `False`, as long as a server's discovery or OpenAPI cannot be used. Its requests are served.
const READABLE: &str = "DocumentsReadable";

/// A condition, without its type and time.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Condition {
    status: &'static str,
    reason: &'static str,
    message: String,
}

impl Condition {
    fn no(reason: &'static str, message: String) -> Self {
        Condition {
            status: "False",
            reason,
            message,
        }
    }

    fn passed() -> Self {
        Condition {
            status: "True",
            reason: "Passed",
            message: "all checks passed".into(),
        }
    }
}

/// Watches over all backends.
#[derive(Debug)]
pub(crate) struct Watch {
    resolver: Resolver,
    resource: Arc<ServedResource>,
    /// Who the checks are made as, and what marks them as this server's.
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
    pub(crate) fn take(self: &Arc<Self>, routes: &Routes) {
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
                self.follow_store(&store, slices).await;
            }
            // The store is not there or its cache starts anew.
            tokio::time::sleep(Duration::from_millis(200)).await;
            self.look(|_| true).await;
        }
    }

    async fn follow_store(&self, store: &ObjectStore, slices: bool) {
        let Ok(cache) = store.cache().await else {
            return;
        };
        let Ok(mut feed) = cache.feed(cache.snapshot().revision, Interest::All).await else {
            return;
        };
        let mut changes: Vec<Arc<Change>> = Vec::new();
        while feed.next(&mut changes).await.is_ok() {
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
            self.look(|spec| changes.iter().any(|change| touches(spec, change)))
                .await;
            changes.clear();
        }
    }

    /// Resolves and checks the backends of these specs anew.
    async fn look(&self, which: impl Fn(&RemoteSpec) -> bool) {
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
        // A server whose documents are slow is looked after all the same.
        tokio::join!(self.keep_checking(backend), self.keep_learning(backend));
    }

    async fn keep_checking(&self, backend: &Arc<Backend>) {
        let mut failures = 0_u32;
        loop {
            let condition = tokio::select! {
                condition = self.check(backend) => condition,
                // What it is being checked by has changed: from the beginning.
                () = backend.wake.notified() => continue,
            };
            let available = condition.status == "True";
            failures = if available { 0 } else { failures.saturating_add(1) };
            if available {
                backend.answers();
            } else {
                backend.outdated.store(true, Ordering::Release);
            }
            if let Err(error) = self.write(&backend.spec, AVAILABLE, Some(&condition)).await {
                tracing::warn!(apiservice = backend.spec.name, %error, "cannot write its availability");
            }
            if available && backend.outdated.swap(false, Ordering::AcqRel) {
                backend.learn.notify_one();
            }
            let pause = match failures {
                0 => EVERY,
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
            let faults = self.fetch(backend).await;
            let gone = backend.outdated.load(Ordering::Acquire);
            let condition = (!faults.is_empty()).then(|| {
                // The next time that it is found available.
                backend.outdated.store(true, Ordering::Release);
                let reason = match faults.iter().any(|(what, _)| *what == "discovery") {
                    true => "DiscoveryUnreadable",
                    false => "OpenAPIUnreadable",
                };
                let told: Vec<String> = faults
                    .iter()
                    .map(|(what, why)| format!("{what}: {why}"))
                    .collect();
                Condition::no(reason, told.join("; "))
            });
            // Of one that went away meanwhile the other condition says all there is to say.
            if !gone && let Err(error) = self.write(&backend.spec, READABLE, condition.as_ref()).await {
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
        if let Some(refused) = preconditions(spec, &found) {
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

    /// What it serves and how that looks. A backend that cannot tell keeps what it last told; gives what cannot be used, and why.
    async fn fetch(&self, backend: &Arc<Backend>) -> Vec<(&'static str, String)> {
        let mut faults = Vec::new();
        match remote_discovery::fetch(backend, &self.headers).await {
            Ok(version) => {
                let same = backend
                    .known
                    .load()
                    .as_ref()
                    .is_some_and(|known| known.aggregated == version.aggregated);
                if !same {
                    backend.known.store(Some(Arc::new(version)));
                    self.published.send_modify(|n| *n += 1);
                }
            }
            Err(why) => faults.push(("discovery", why)),
        }
        let own = remote_discovery::path(&backend.spec);
        let known = backend.openapi.load_full();
        let etag = known.as_ref().map_or("", |known| &*known.etag);
        match remote_discovery::fetch_openapi(backend, &self.headers, &format!("/openapi/v3{own}"), etag)
            .await
        {
            Ok(Some(given)) => {
                let hash = digest(&given.body);
                backend.openapi.store(Some(Arc::new(Kept {
                    hash,
                    etag: given.etag,
                    document: given.body,
                })));
            }
            Ok(None) => {}
            Err(why) => faults.push(("OpenAPI v3", why)),
        }
        let known = backend.swagger.load_full();
        let etag = known.as_ref().map_or("", |known| &*known.etag);
        match remote_discovery::fetch_openapi(backend, &self.headers, "/openapi/v2", etag).await {
            Ok(Some(given)) => {
                let hash = digest(&given.body);
                let part = tokio::task::spawn_blocking(move || {
                    let document = serde_json::from_slice(&given.body).unwrap_or_default();
                    let below = format!("{own}/");
                    let part = SwaggerPart::of_document(document, |path| path.starts_with(&below));
                    (part, given.etag)
                });
                match part.await {
                    Ok((Some(document), etag)) => {
                        backend
                            .swagger
                            .store(Some(Arc::new(Kept { hash, etag, document })));
                    }
                    _ => faults.push(("OpenAPI v2", "it is not a swagger 2.0 document".into())),
                }
            }
            Ok(None) => {}
            Err(why) => faults.push(("OpenAPI v2", why)),
        }
        faults
    }

    /// Writes a condition; `None` takes it away.
    async fn write(
        &self,
        spec: &RemoteSpec,
        kind: &str,
        condition: Option<&Condition>,
    ) -> Result<(), ApiError> {
        let Some(store) = self.resource.store() else {
            return Ok(());
        };
        let Some(entry) = store.find("", &spec.name).await? else {
            return Ok(());
        };
        let mut live = entry.value();
        if RemoteSpec::of(&live).as_ref() != Some(spec) || !set_condition(&mut live, kind, condition) {
            return Ok(());
        }
        tracing::info!(
            apiservice = spec.name,
            condition = kind,
            status = condition.map_or("", |c| c.status),
            reason = condition.map_or("", |c| c.reason),
            message = condition.map_or("", |c| &c.message),
            "an APIService's condition changes"
        );
        write_status(&self.resource, &spec.name, &mut |object| {
            RemoteSpec::of(object).as_ref() == Some(spec) && set_condition(object, kind, condition)
        })
        .await
    }
}

fn failed(url: &str, why: &str) -> Condition {
    let message = format!("failing or missing response from {url}: {why}");
    Condition::no("FailedDiscoveryCheck", message)
}

fn bad_status(url: &str, status: StatusCode) -> String {
    format!("bad status from {url}: {}", status.as_u16())
}

/// Writes an APIService's status when `change` changes something. One that is gone is no fault.
pub(crate) async fn write_status(
    resource: &ServedResource,
    name: &str,
    change: &mut (dyn FnMut(&mut Value) -> bool + Send),
) -> Result<(), ApiError> {
    let Some(Subresource::View(strategy)) = resource.subresource("status") else {
        return Ok(());
    };
    let (authorized, none) = (Authorized::system(), AdmissionChain::default());
    let call = WriteCall {
        strategy: &**strategy,
        subresource: "status",
        ..WriteCall::internal(resource, &authorized, &none, "")
    };
    let rules = UpdateRules {
        retry: true,
        ..UpdateRules::default()
    };
    let mut transform = |live: Option<&Value>| {
        let live = live.cloned().unwrap_or_default();
        let mut object = live.clone();
        if change(&mut object) {
            book_own_write(&call, &live, &mut object);
        }
        Ok(object)
    };
    match write::update(&call, name, &rules, &mut transform).await {
        Err(error) if error.code() == 404 => Ok(()),
        done => done.map(|_| ()),
    }
}

/// Sets a condition, or takes it away; says whether anything changed. The time moves with the status alone.
fn set_condition(object: &mut Value, kind: &str, condition: Option<&Condition>) -> bool {
    let old = apiservice::condition(object, kind).cloned();
    let Some(condition) = condition else {
        let conditions = object
            .pointer_mut("/status/conditions")
            .and_then(Value::as_array_mut);
        if let Some(conditions) = conditions.filter(|_| old.is_some()) {
            conditions.retain(|c| c.get("type").and_then(Value::as_str) != Some(kind));
            return true;
        }
        return false;
    };
    let text = |key: &str| old.as_ref().map_or("", |c| meta::dig_str(c, &[key]));
    if (text("status"), text("reason"), text("message"))
        == (condition.status, condition.reason, &*condition.message)
    {
        return false;
    }
    let time = if text("status") == condition.status {
        text("lastTransitionTime").to_string()
    } else {
        write::now()
    };
    let new = json!({
        "type": kind,
        "status": condition.status,
        "lastTransitionTime": time,
        "reason": condition.reason,
        "message": condition.message,
    });
    replace_condition(object, new);
    true
}

/// Puts a condition where the one of its type was, or last.
pub(crate) fn replace_condition(object: &mut Value, new: Value) {
    if !object.get("status").is_some_and(Value::is_object) {
        object["status"] = json!({});
    }
    let status = &mut object["status"];
    match status.get_mut("conditions").and_then(Value::as_array_mut) {
        None => status["conditions"] = json!([new]),
        Some(conditions) => {
            let at = conditions.iter().position(|c| c.get("type") == new.get("type"));
            match at.and_then(|at| conditions.get_mut(at)) {
                Some(old) => *old = new,
                None => conditions.push(new),
            }
        }
    }
}

/// What can be told without asking the server.
fn preconditions(spec: &RemoteSpec, found: &Found) -> Option<Condition> {
    let (name, namespace) = (&spec.service, machinery::field::go_quote(&spec.namespace));
    let Some(service) = &found.service else {
        let message = format!("service/{name} in {namespace} is not present");
        return Some(Condition::no("ServiceNotFound", message));
    };
    if service_type(service) != "ClusterIP" {
        return None;
    }
    let Ok(port) = port_of(service, spec.port) else {
        let message = format!(
            "service/{name} in {namespace} is not listening on port {}",
            spec.port
        );
        return Some(Condition::no("ServicePortError", message));
    };
    if found.slices.is_empty() {
        let message = format!("cannot find endpointslices for service/{name} in {namespace}");
        return Some(Condition::no("EndpointsNotFound", message));
    }
    if !found.slices.iter().any(|slice| has_endpoint(slice, &port)) {
        let port = machinery::field::go_quote(&port);
        let message = format!(
            "endpointslices for service/{name} in {namespace} have no addresses with port name {port}"
        );
        return Some(Condition::no("MissingEndpoints", message));
    }
    None
}

fn has_endpoint(slice: &Value, port: &str) -> bool {
    let list = |key: &str| slice.get(key).and_then(Value::as_array).into_iter().flatten();
    let named = |p: &Value| {
        p.get("name").and_then(Value::as_str) == Some(port) && p.get("port").is_some_and(Value::is_number)
    };
    list("endpoints").any(is_ready) && list("ports").any(named)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(service: Option<Value>, slices: Vec<Value>, expected: Option<(&str, &str)>) {
        let spec = RemoteSpec {
            name: "v1.a.io".into(),
            group: "a.io".into(),
            version: "v1".into(),
            namespace: "n".into(),
            service: "s".into(),
            port: 443,
            ca_bundle: None,
            insecure: false,
        };
        let condition = preconditions(&spec, &Found { service, slices });
        let told = condition.as_ref().map(|c| (c.reason, &*c.message));
        assert_eq!(told, expected);
    }

    #[test]
    fn reasons_and_messages_are_upstreams() {
        let service = |port: u16| Some(json!({"spec": {"ports": [{"name": "https", "port": port}]}}));
        check(
            None,
            vec![],
            Some(("ServiceNotFound", "service/s in \"n\" is not present")),
        );
        check(
            service(444),
            vec![],
            Some((
                "ServicePortError",
                "service/s in \"n\" is not listening on port 443",
            )),
        );
        check(
            service(443),
            vec![],
            Some((
                "EndpointsNotFound",
                "cannot find endpointslices for service/s in \"n\"",
            )),
        );
        let missing = "endpointslices for service/s in \"n\" have no addresses with port name \"https\"";
        let slice = |port: &str, ready: bool| {
            json!({"endpoints": [{"addresses": ["10.0.0.1"], "conditions": {"ready": ready}}],
                   "ports": [{"name": port, "port": 1}]})
        };
        check(
            service(443),
            vec![slice("other", true)],
            Some(("MissingEndpoints", missing)),
        );
        check(
            service(443),
            vec![slice("https", false)],
            Some(("MissingEndpoints", missing)),
        );
        check(service(443), vec![slice("https", true)], None);
        check(Some(json!({"spec": {"type": "ExternalName"}})), vec![], None);
    }

    #[test]
    fn the_time_moves_with_the_status() {
        let mut object = json!({"status": {"conditions": [
            {"type": "Other"},
            {"type": "Available", "status": "False", "reason": "a", "message": "b", "lastTransitionTime": "then"}]}});
        let condition = Condition::no("c", "d".into());
        let set =
            |object: &mut Value, condition: &Condition| set_condition(object, AVAILABLE, Some(condition));
        assert!(set(&mut object, &condition));
        assert_eq!(object["status"]["conditions"][1]["lastTransitionTime"], "then");
        assert!(!set(&mut object, &condition));
        assert!(set(&mut object, &Condition::passed()));
        assert_ne!(object["status"]["conditions"][1]["lastTransitionTime"], "then");
        assert_eq!(object["status"]["conditions"].as_array().map(Vec::len), Some(2));
        assert!(!set_condition(&mut object, READABLE, None));
        assert!(set_condition(&mut object, READABLE, Some(&condition)));
        assert_eq!(object["status"]["conditions"][2]["type"], READABLE);
        assert!(set_condition(&mut object, READABLE, None));
        assert_eq!(object["status"]["conditions"].as_array().map(Vec::len), Some(2));
    }
}
