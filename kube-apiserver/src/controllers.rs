//! The few controllers without which a bare API server feels broken, in process: namespaces end, owned objects go with their
//! owners, namespaces have a default service account and the cluster's CA, aggregated roles have rules.
//!
//! They are an operator's to turn off (`--controllers`), by upstream's names, where the real controller manager runs.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use generic_server::delegate::Delegate;
use generic_server::registry::cache::Change;
use generic_server::registry::{Event, ObjectStore, Reflector};
use tokio::sync::watch;
use tracing::warn;

use crate::client::Client;
use crate::deps::Deps;

mod api;
mod default_service_cidr;
mod garbage;
mod identity;
mod legacy_tokens;
mod namespaces;
mod policy_status;
mod roles;
mod service_accounts;
mod storage_migration;
mod trust;

/// How long a controller rests after a failure before it begins again.
const REST: Duration = Duration::from_secs(1);

/// A controller, ready to be spawned. Ends only when dropped.
pub struct Controller {
    /// Upstream's name, as `--controllers` has it.
    pub name: &'static str,
    /// The work.
    pub run: Pin<Box<dyn Future<Output = ()> + Send>>,
}

impl fmt::Debug for Controller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

/// The names of all controllers, including those that run only with a feature that is off by default.
pub const CONTROLLERS: [&str; 7] = [
    "namespace-controller",
    "serviceaccount-controller",
    "root-ca-certificate-publisher-controller",
    "clusterrole-aggregation-controller",
    "garbage-collector-controller",
    policy_status::NAME,
    storage_migration::NAME,
];

/// All controllers. `root_ca` is what `kube-root-ca.crt` holds, PEM; some write through `api` as a client does.
pub fn controllers(deps: &Deps, root_ca: watch::Receiver<String>, api: Arc<dyn Delegate>) -> Vec<Controller> {
    let client = Client::new(deps.directory.clone());
    let make = |name, run| Controller { name, run };
    let mut all = vec![
        make(
            "namespace-controller",
            Box::pin(namespaces::run(client.clone())) as Pin<Box<dyn Future<Output = ()> + Send>>,
        ),
        make(
            "serviceaccount-controller",
            Box::pin(service_accounts::accounts(client.clone())),
        ),
        make(
            "root-ca-certificate-publisher-controller",
            Box::pin(service_accounts::root_ca(client.clone(), root_ca)),
        ),
        make(
            "clusterrole-aggregation-controller",
            Box::pin(roles::run(client.clone())),
        ),
        make(
            "garbage-collector-controller",
            Box::pin(garbage::run(client.clone(), deps.prefix.clone())),
        ),
        make(
            policy_status::NAME,
            Box::pin(policy_status::run(client.clone(), api.clone())),
        ),
    ];
    if deps.storage_migration {
        let run = storage_migration::run(client, api);
        all.push(make(storage_migration::NAME, Box::pin(run)));
    }
    all
}

/// Keeps the ServiceCIDR that states the server's ranges of cluster addresses; writes go through `api` as any client's would.
pub fn keep_service_cidr(
    facts: &crate::Facts,
    api: Arc<dyn Delegate>,
) -> Pin<Box<dyn Future<Output = ()> + Send>> {
    let client = Client::new(facts.directory.clone());
    Box::pin(default_service_cidr::run(
        client,
        api,
        facts.service_cidrs.clone(),
    ))
}

/// Keeps the lease of the server on a host, until it is stopped.
pub fn keep_identity(
    facts: &crate::Facts,
    host: String,
    stop: impl Future<Output = ()> + Send + 'static,
) -> Pin<Box<dyn Future<Output = ()> + Send>> {
    Box::pin(identity::run(Client::new(facts.directory.clone()), host, stop))
}

/// Keeps the ConfigMap that says since when the use of tokens in secrets is tracked.
pub fn keep_token_tracking(facts: &crate::Facts) -> Pin<Box<dyn Future<Output = ()> + Send>> {
    Box::pin(legacy_tokens::run(Client::new(facts.directory.clone())))
}

/// Maintains the trust configuration of extension servers. Runs as long as the server does.
pub fn keep_trust(facts: &crate::Facts) -> Pin<Box<dyn Future<Output = ()> + Send>> {
    let client = Client::new(facts.directory.clone());
    let (authorities, names) = (facts.authorities.clone(), facts.front_proxy_names.clone());
    Box::pin(trust::run(client, authorities, names))
}

/// Follows a store for ever: first everything that is there, then every change. `all` is called with each full state (again
/// when the follower fell behind), `change` with each change after it. Both are called in order and may take their time.
async fn follow<A, C, FA, FC>(store: &Arc<ObjectStore>, mut all: A, mut change: C)
where
    A: FnMut(Vec<Arc<generic_server::registry::Entry>>) -> FA,
    C: FnMut(Arc<Change>) -> FC,
    FA: Future<Output = ()>,
    FC: Future<Output = ()>,
{
    let mut reflector = Reflector::new(store.clone());
    let mut changes = Vec::new();
    loop {
        match reflector.next(&mut changes).await {
            Event::Listed(snapshot) => all(snapshot.objects.values().cloned().collect()).await,
            Event::Changed => {
                for one in changes.drain(..) {
                    change(one).await;
                }
            }
            Event::Failed(error) => warn!(error = error.message(), "cannot list; retrying"),
        }
    }
}
