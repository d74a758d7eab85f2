//! What deciding about requests costs: authentication and authorization beside many roles and bindings, auditing at each level, priority and
//! fairness; and how a client fares beside another that floods the server. One line per row, for [`crate::suite::compare`].
//!
//! The requests are those of service accounts, because an administrator is let past RBAC and fairness.

mod audited;
mod bindings;
mod flood;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use serde_json::{Value, json};

use crate::client::{Client, Error, Target};
use crate::figures::{JSON, percentiles, round};
use crate::process::{cpu_seconds, resident_mib};

pub(crate) use audited::POLICY;

/// What is measured, and how often.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Access {
    /// The rows to measure; all but `audit` when unset.
    #[arg(value_enum)]
    pub(crate) parts: Vec<Part>,
    /// RoleBindings in the namespace, of other users.
    #[arg(long, default_value_t = 10_000)]
    pub(crate) bindings: usize,
    /// Roles that these give.
    #[arg(long, default_value_t = 1_000)]
    pub(crate) roles: usize,
    /// Requests of each row.
    #[arg(long, default_value_t = 6_000)]
    pub(crate) count: usize,
    /// Clients at once, each with a connection of its own.
    #[arg(long, default_value_t = 8)]
    pub(crate) clients: usize,
    /// Requests that the abuser keeps under way.
    #[arg(long, default_value_t = 400)]
    pub(crate) flood: usize,
    /// Seconds of the flood.
    #[arg(long, default_value_t = 10)]
    pub(crate) seconds: u64,
}

/// A part of the rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Part {
    /// Gets and reviews beside ten bindings and beside many.
    Rbac,
    /// Creates at each level of auditing; the server has to run with the policy that `audit-policy` prints.
    Audit,
    /// Gets of a user who is not exempt. The row says whether the server has priority and fairness.
    Fairness,
    /// A polite client alone and beside an abuser.
    Flood,
}

/// Runs the rows; `print` gets each line when it is there.
pub(crate) async fn run(
    target: &Target,
    namespace: &str,
    pids: &[u32],
    access: &Access,
    print: &mut (dyn FnMut(Value) + Send),
) -> Result<(), Error> {
    let of = Rows {
        target,
        admin: target.connect().await?,
        base: format!("/api/v1/namespaces/{namespace}"),
        namespace,
        pids,
        access,
    };
    let default = [Part::Rbac, Part::Fairness, Part::Flood];
    let parts = match access.parts.as_slice() {
        [] => &default,
        chosen => chosen,
    };
    for part in parts {
        match part {
            Part::Rbac => bindings::run(&of, print).await?,
            Part::Audit => audited::run(&of, print).await?,
            Part::Fairness => of.fairness(print).await?,
            Part::Flood => flood::run(&of, print).await?,
        }
    }
    Ok(())
}

/// The object that small gets are of.
const SMALL: &str = "small";

/// What the rows have in common.
struct Rows<'a> {
    target: &'a Target,
    admin: Client,
    namespace: &'a str,
    /// The path of the namespace.
    base: String,
    pids: &'a [u32],
    access: &'a Access,
}

/// A request that is sent again and again; its body and path are of the request's number.
type Request = dyn Fn(usize) -> (&'static str, String, Bytes) + Send + Sync;

impl Rows<'_> {
    /// Makes an object, unless it is there.
    async fn make(&self, collection: &str, object: &Value) -> Result<(), Error> {
        let body = object.to_string().into();
        let (status, _) = self.admin.call("POST", collection, JSON, body).await?;
        match status {
            201 | 409 => Ok(()),
            _ => Err(format!("POST {collection}: {status}").into()),
        }
    }

    /// A role of the namespace.
    fn role(name: &str, resources: &[&str]) -> Value {
        json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": name},
            "rules": [{"apiGroups": [""], "resources": resources, "verbs": ["get", "list", "watch"]}]})
    }

    /// A binding of such a role to a service account of the namespace.
    fn binding(&self, name: &str, role: &str, account: &str) -> Value {
        json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": {"name": name},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": role},
            "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": self.namespace}]})
    }

    fn rbac(&self, resource: &str) -> String {
        format!(
            "/apis/rbac.authorization.k8s.io/v1/namespaces/{}/{resource}",
            self.namespace
        )
    }

    /// A service account that may read ConfigMaps by a binding of its own; with its token.
    async fn reader(&self, name: &str) -> Result<Target, Error> {
        let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name}});
        let accounts = format!("{}/serviceaccounts", self.base);
        self.make(&accounts, &account).await?;
        let small =
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": SMALL}, "data": {"a": "b"}});
        self.make(&format!("{}/configmaps", self.base), &small).await?;
        self.make(&self.rbac("roles"), &Self::role("reader", &["configmaps"]))
            .await?;
        // Behind the others in the order of names.
        let binding = self.binding(&format!("z-{name}"), "reader", name);
        self.make(&self.rbac("rolebindings"), &binding).await?;
        let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 7200}});
        let path = format!("{accounts}/{name}/token");
        let answer = self.admin.json("POST", &path, review.to_string().into()).await?;
        let token = answer["status"]["token"].as_str();
        let token = token.ok_or_else(|| format!("POST {path}: no token"))?;
        let target = self.target.with_token(token)?;
        let client = target.connect().await?;
        let until = Instant::now() + PATIENCE;
        while client.call("GET", &self.small(), "", Bytes::new()).await?.0 != 200 {
            if Instant::now() > until {
                return Err(format!("{name} may not read what it has been given").into());
            }
            tokio::time::sleep(LOOK).await;
        }
        Ok(target)
    }

    fn small(&self) -> String {
        format!("{}/configmaps/{SMALL}", self.base)
    }

    /// Sends `count` requests by several clients; gives the latencies and how many were refused.
    async fn send(
        &self,
        target: &Target,
        (from, count): (usize, usize),
        request: &Arc<Request>,
    ) -> Result<Sent, Error> {
        let next = Arc::new(AtomicUsize::new(from));
        let end = from + count;
        let mut clients = Vec::new();
        for _ in 0..self.access.clients.max(1) {
            let client = target.connect().await?;
            // The connection and the token are known before it is measured.
            client.call("GET", "/version", "", Bytes::new()).await?;
            clients.push(client);
        }
        let (cpu, begun) = (cpu_seconds(self.pids), Instant::now());
        let mut workers = tokio::task::JoinSet::new();
        for client in clients {
            let (next, request) = (next.clone(), request.clone());
            workers.spawn(async move {
                let (mut times, mut failed) = (Vec::new(), 0_usize);
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    if index >= end {
                        return Ok::<_, Error>((times, failed));
                    }
                    let (method, path, body) = request(index);
                    let begun = Instant::now();
                    let (status, _) = client.call(method, &path, JSON, body).await?;
                    times.push(begun.elapsed());
                    failed += usize::from(status >= 300);
                }
            });
        }
        let mut sent = Sent::default();
        while let Some(done) = workers.join_next().await {
            let (times, failed) = done??;
            sent.times.extend(times);
            sent.failed += failed;
        }
        sent.seconds = begun.elapsed().as_secs_f64();
        sent.cpu = cpu_seconds(self.pids) - cpu;
        Ok(sent)
    }

    /// The same as a row's line.
    async fn row(&self, row: &str, target: &Target, request: &Arc<Request>) -> Result<Value, Error> {
        // Caches of tokens and decisions are warm in a server that runs.
        let few = (0, self.access.count / 20);
        self.send(target, few, request).await?;
        let sent = self.send(target, (0, self.access.count), request).await?;
        Ok(self.line(row, sent))
    }

    fn line(&self, row: &str, sent: Sent) -> Value {
        #[expect(clippy::cast_precision_loss, reason = "counts are small")]
        let operations = sent.times.len().max(1) as f64;
        let mut line = json!({"phase": "access", "row": row, "clients": self.access.clients,
            "operations": sent.times.len(), "failed": sent.failed, "seconds": round(sent.seconds),
            "per_second": round(operations / sent.seconds), "ms": percentiles(sent.times)});
        if !self.pids.is_empty() {
            line["cpu_ms_each"] = round(sent.cpu * 1000.0 / operations).into();
            line["rss_mib"] = round(resident_mib(self.pids)).into();
        }
        line
    }

    /// Gets by a user whose requests are classified and queued, with the server's word on whether they are.
    async fn fairness(&self, print: &mut (dyn FnMut(Value) + Send)) -> Result<(), Error> {
        let target = self.reader("reader").await?;
        let path = self.small();
        let answer = target
            .connect()
            .await?
            .open("GET", &path, "", Bytes::new())
            .await?;
        let state = match answer.headers().contains_key("x-kubernetes-pf-flowschema-uid") {
            true => "on",
            false => "off",
        };
        let request: Arc<Request> = Arc::new(move |_| ("GET", path.clone(), Bytes::new()));
        print(
            self.row(&format!("get, fairness {state}"), &target, &request)
                .await?,
        );
        Ok(())
    }
}

/// How long a server may take to follow roles and bindings.
const PATIENCE: Duration = Duration::from_secs(60);
/// Between two looks at it.
const LOOK: Duration = Duration::from_millis(20);

/// What came of some requests.
#[derive(Default)]
struct Sent {
    times: Vec<Duration>,
    failed: usize,
    seconds: f64,
    /// Seconds of the server's CPU.
    cpu: f64,
}

impl Sent {
    fn add(&mut self, more: Sent) {
        self.times.extend(more.times);
        self.failed += more.failed;
        self.seconds += more.seconds;
        self.cpu += more.cpu;
    }
}
