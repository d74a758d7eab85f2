//! `/livez`, `/readyz` and `/healthz`: named checks, in order, in upstream's plain text.
//!
//! Checks are cheap questions about state that others keep; nothing is probed while a request waits. Start-up work takes a
//! [`Hook`] and finishes it, so that readiness names the unfinished work.

mod slis;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::SystemTime;

use http::{HeaderValue, StatusCode, header};
use machinery::go::quote;
use parking_lot::RwLock;

use crate::endpoint::{Endpoint, Endpoints};
use crate::filters::{not_found, text_error};
use crate::lifecycle::Lifecycle;
use crate::metrics::Metrics;
use crate::request::{Authorized, Request, Response, full};
use crate::request_info::query_pairs;

/// Which documents a check is part of. `/healthz` has all of them but `shutdown`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// `/livez`, `/readyz` and `/healthz`.
    Everywhere,
    /// `/livez` and `/healthz`.
    Live,
    /// `/readyz` alone.
    Ready,
}

type CheckFn = Box<dyn Fn() -> Result<(), String> + Send + Sync>;

struct Check {
    name: String,
    part: Part,
    ask: CheckFn,
}

/// The checks of a server.
pub struct Health {
    checks: RwLock<Vec<Check>>,
    notes: RwLock<Vec<Note>>,
    lifecycle: Lifecycle,
    slis: slis::Slis,
    started: SystemTime,
}

/// Lines of verbose documents beside the checks.
struct Note {
    name: String,
    ask: Box<dyn Fn() -> Option<String> + Send + Sync>,
}

impl std::fmt::Debug for Health {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Health")
            .field("checks", &self.checks.read().len())
            .finish_non_exhaustive()
    }
}

/// Start-up work that readiness waits for; finishing it is what makes its check pass.
#[derive(Debug, Clone, Default)]
pub struct Hook(Arc<AtomicBool>);

impl Hook {
    /// The work is done.
    pub fn finish(&self) {
        self.0.store(true, Ordering::Release);
    }
}

impl Health {
    /// With the checks that every server has.
    pub fn new(lifecycle: Lifecycle) -> Arc<Self> {
        let health = Health {
            checks: RwLock::default(),
            notes: RwLock::default(),
            lifecycle,
            slis: slis::Slis::default(),
            started: SystemTime::now(),
        };
        health.add("ping", Part::Everywhere, || Ok(()));
        health.add("log", Part::Everywhere, || Ok(()));
        Arc::new(health)
    }

    /// Adds a check. The text of a failure goes to the log and to users that may request the check by name.
    pub fn add(&self, name: &str, part: Part, ask: impl Fn() -> Result<(), String> + Send + Sync + 'static) {
        self.checks.write().push(Check {
            name: name.to_string(),
            part,
            ask: Box::new(ask),
        });
    }

    /// Adds a line to the verbose forms of all three documents, which failures have as well, while `ask` returns a text. It changes no outcome.
    pub fn note(&self, name: &str, ask: impl Fn() -> Option<String> + Send + Sync + 'static) {
        self.notes.write().push(Note {
            name: name.to_string(),
            ask: Box::new(ask),
        });
    }

    /// Adds start-up work: `poststarthook/NAME` fails until the hook is finished.
    pub fn hook(&self, name: &str) -> Hook {
        self.hook_named(&format!("poststarthook/{name}"))
    }

    /// The same under its full name.
    pub fn hook_named(&self, name: &str) -> Hook {
        let hook = Hook::default();
        let done = hook.clone();
        self.add(name, Part::Everywhere, move || {
            if done.0.load(Ordering::Acquire) {
                Ok(())
            } else {
                Err("not finished".into())
            }
        });
        hook
    }

    /// Serves the three documents, and how often each check has passed and failed in them.
    pub fn install(self: &Arc<Self>, endpoints: &mut Endpoints, metrics: &Arc<Metrics>) {
        for name in ["livez", "readyz", "healthz"] {
            let document = Document {
                health: self.clone(),
                name,
            };
            endpoints.add_below(&format!("/{name}"), Arc::new(document));
        }
        let slis = slis::Document {
            health: self.clone(),
            metrics: metrics.clone(),
        };
        endpoints.add("/metrics/slis", Arc::new(slis));
    }

    /// Whether everything that readiness asks for holds.
    pub fn is_ready(&self) -> bool {
        let checks = self.checks.read();
        let mut wanted = checks.iter().filter(|check| check.part != Part::Live);
        !self.lifecycle.is_stop_requested() && wanted.all(|check| (check.ask)().is_ok())
    }
}

#[derive(Debug)]
struct Document {
    health: Arc<Health>,
    name: &'static str,
}

#[async_trait::async_trait]
impl Endpoint for Document {
    async fn serve(&self, authorized: &Authorized, request: Request) -> Response {
        let prefix = self.name.len() + 2;
        match authorized.info().path.get(prefix..) {
            None => self.whole(request.uri().query().unwrap_or_default()),
            Some(check) => self.one(check),
        }
    }
}

impl Document {
    fn has(&self, check: &Check) -> bool {
        match check.part {
            Part::Everywhere => true,
            Part::Live => self.name != "readyz",
            Part::Ready => self.name == "readyz",
        }
    }

    fn shutdown(&self) -> Option<Result<(), String>> {
        (self.name == "readyz").then(|| {
            if self.health.lifecycle.is_stop_requested() {
                Err("process is shutting down".into())
            } else {
                Ok(())
            }
        })
    }

    fn whole(&self, query: &str) -> Response {
        let mut excluded: Vec<(String, bool)> = Vec::new();
        let mut verbose = false;
        for (key, value) in query_pairs(query) {
            match &*key {
                "exclude" => excluded.push((value.into_owned(), false)),
                "verbose" => verbose = true,
                _ => {}
            }
        }
        let mut out = String::new();
        let mut failed = false;
        let name = self.name;
        let mut ask = |check: &str, outcome: &dyn Fn() -> Result<(), String>| {
            if let Some((_, known)) = excluded.iter_mut().find(|(e, _)| e == check) {
                *known = true;
                out.push_str(&format!("[+]{check} excluded: ok\n"));
                return;
            }
            let outcome = outcome();
            self.health.slis.observe(check, name, outcome.is_ok());
            match outcome {
                Ok(()) => out.push_str(&format!("[+]{check} ok\n")),
                Err(why) => {
                    tracing::info!(check.name = check, error = why, "{name} check failed");
                    failed = true;
                    out.push_str(&format!("[-]{check} failed: reason withheld\n"));
                }
            }
        };
        for check in self.health.checks.read().iter().filter(|check| self.has(check)) {
            ask(&check.name, &*check.ask);
        }
        if let Some(outcome) = self.shutdown() {
            ask("shutdown", &|| outcome.clone());
        }
        let mut unknown: Vec<String> = excluded
            .iter()
            .filter(|(_, known)| !known)
            .map(|(e, _)| quote(e))
            .collect();
        if !unknown.is_empty() {
            unknown.sort();
            unknown.dedup();
            let unknown = unknown.join(",");
            out.push_str(&format!(
                "warn: some health checks cannot be excluded: no matches for {unknown}\n"
            ));
        }
        let notes: Vec<String> = match verbose || failed {
            true => self.notes(),
            false => Vec::new(),
        };
        if failed {
            out.extend(notes);
            return text_error(
                StatusCode::INTERNAL_SERVER_ERROR,
                &format!("{out}{name} check failed"),
            );
        }
        if name == "readyz" {
            self.health.lifecycle.set_ready();
        }
        if verbose {
            out.extend(notes);
            out.push_str(&format!("{name} check passed\n"));
            passed(out)
        } else {
            passed("ok".into())
        }
    }

    fn notes(&self) -> Vec<String> {
        let line = |note: &Note| (note.ask)().map(|text| format!("[!]{} {text}\n", note.name));
        self.health.notes.read().iter().filter_map(line).collect()
    }

    fn one(&self, name: &str) -> Response {
        let checks = self.health.checks.read();
        let found = checks
            .iter()
            .find(|check| check.name == name && self.has(check))
            .map(|check| (check.ask)());
        let found = found.or_else(|| if name == "shutdown" { self.shutdown() } else { None });
        match found {
            None => not_found(),
            Some(Ok(())) => {
                let mut response = passed("ok".into());
                response.headers_mut().remove(header::X_CONTENT_TYPE_OPTIONS);
                response
            }
            Some(Err(why)) => text_error(
                StatusCode::INTERNAL_SERVER_ERROR,
                &format!("internal server error: {why}"),
            ),
        }
    }
}

fn passed(text: String) -> Response {
    let mut response = Response::new(full(text));
    let headers = response.headers_mut();
    headers.insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("text/plain; charset=utf-8"),
    );
    headers.insert(
        header::X_CONTENT_TYPE_OPTIONS,
        HeaderValue::from_static("nosniff"),
    );
    response
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt;

    use super::*;
    use crate::request::empty;

    async fn ask(health: &Arc<Health>, name: &'static str, uri: &str) -> (u16, String) {
        let document = Document {
            health: health.clone(),
            name,
        };
        let request: Request = http::Request::get(uri).body(empty()).unwrap();
        let info = crate::RequestInfo {
            path: request.uri().path().into(),
            ..crate::RequestInfo::default()
        };
        let context = crate::RequestContext::new(info, crate::User::system(), String::new());
        let response = document.serve(&Authorized::new(Arc::new(context)), request).await;
        let code = response.status().as_u16();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        (code, String::from_utf8(body.to_vec()).unwrap())
    }

    #[tokio::test]
    async fn documents() {
        let life = Lifecycle::new();
        let health = Health::new(life.clone());
        health.add("informer-sync", Part::Ready, || Ok(()));
        let hook = health.hook("rbac/bootstrap-roles");
        let failed = "[+]ping ok\n[+]log ok\n[-]poststarthook/rbac/bootstrap-roles failed: reason withheld\nlivez check failed\n";
        assert_eq!(ask(&health, "livez", "/livez").await, (500, failed.into()));
        let one = ask(&health, "livez", "/livez/poststarthook/rbac/bootstrap-roles").await;
        assert_eq!(one, (500, "internal server error: not finished\n".into()));
        let excluded = ask(
            &health,
            "livez",
            "/livez?exclude=poststarthook/rbac/bootstrap-roles&exclude=x",
        )
        .await;
        assert_eq!(excluded, (200, "ok".into()));
        let text = ask(
            &health,
            "livez",
            "/livez?verbose&exclude=poststarthook/rbac/bootstrap-roles&exclude=x",
        )
        .await
        .1;
        assert_eq!(
            text,
            "[+]ping ok\n[+]log ok\n[+]poststarthook/rbac/bootstrap-roles excluded: ok\nwarn: some health checks cannot be excluded: no matches for \"x\"\nlivez check passed\n"
        );

        assert!(!health.is_ready());
        hook.finish();
        assert!(health.is_ready());
        assert!(!life.has_been_ready());
        assert_eq!(ask(&health, "readyz", "/readyz").await, (200, "ok".into()));
        assert!(life.has_been_ready());
        assert_eq!(
            ask(&health, "readyz", "/readyz?verbose").await.1,
            "[+]ping ok\n[+]log ok\n[+]informer-sync ok\n[+]poststarthook/rbac/bootstrap-roles ok\n[+]shutdown ok\nreadyz check passed\n"
        );
        assert_eq!(ask(&health, "livez", "/livez/informer-sync").await.0, 404);
        // A note changes neither the outcome nor the short form.
        health.note("storage-integrity", || Some("1 object cannot be read".into()));
        health.note("quiet", || None);
        assert_eq!(ask(&health, "readyz", "/readyz").await, (200, "ok".into()));
        let text = ask(&health, "readyz", "/readyz?verbose").await.1;
        let line = "[!]storage-integrity 1 object cannot be read\nreadyz check passed\n";
        assert!(text.ends_with(line) && !text.contains("quiet"), "{text}");
        assert_eq!(
            ask(&health, "livez", "/livez/").await,
            (404, "404 page not found\n".into())
        );
        assert_eq!(
            ask(&health, "readyz", "/readyz/shutdown").await,
            (200, "ok".into())
        );

        life.request_stop();
        assert_eq!(ask(&health, "livez", "/livez").await.0, 200);
        let (code, text) = ask(&health, "readyz", "/readyz").await;
        let lines = "[-]shutdown failed: reason withheld\n[!]storage-integrity 1 object cannot be read\nreadyz check failed\n";
        assert!(code == 500 && text.ends_with(lines), "{text}");
        assert_eq!(ask(&health, "readyz", "/readyz/shutdown").await.0, 500);
    }
}
