//! The stage before the first request: the stores are read, a cluster's first objects are written, and everything that requests
//! are decided on is known.

use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use generic_server::chain::OuterLayers;
use generic_server::encryption::Encryption;
use generic_server::lifecycle::Timeline;
use generic_server::startup::{self, STORE_TIMEOUT, retry_while_slow};
use kube_apiserver::{Facts, Masters, authorization, follow_rbac};
use machinery::GroupResource;
use tokio::sync::watch;

use super::keys;
use super::readiness::Stage;
use super::servers::Servers;
use crate::guard::Guard;
use crate::origin::{SameOptions, Source};
use crate::{ControlPlane, Options, StartError, local_url, replicas};

/// How long the start waits for admission configuration that cannot be read, before it serves without being ready: reads work, and
/// an administrator needs access to repair the configuration.
const ADMISSION_TIMEOUT: Duration = Duration::from_secs(10);

/// Resources that the start itself reads: it waits until their keys can be had.
const READ_AT_START: [(&str, &str); 5] = [
    ("apiextensions.k8s.io", "customresourcedefinitions"),
    ("apiregistration.k8s.io", "apiservices"),
    ("", "namespaces"),
    ("", "configmaps"),
    ("rbac.authorization.k8s.io", "clusterroles"),
];

type Task = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Servers that could answer the first request rightly.
pub(super) struct Prepared {
    servers: Servers,
    facts: Facts,
    /// All first objects were written; else a full disk has kept some from it.
    complete: bool,
    /// The tasks that keep the indexes of the authorizers up to date, by name.
    followers: Vec<(&'static str, Task)>,
    kubeconfig_file: Option<PathBuf>,
    /// The content of `kube-root-ca.crt`.
    root_ca: watch::Receiver<String>,
}

impl Prepared {
    /// `begun`: it is a fork, in whose store the first objects are.
    pub(super) async fn new(mut servers: Servers, begun: bool) -> Result<Self, StartError> {
        let stores = &servers.stores;
        wait_for_keys(stores.encryption.as_deref()).await;
        let started = retry_while_slow(|| servers.custom.start(&stores.tasks)).await;
        started.map_err(StartError::Bootstrap)?;
        servers.readiness.finish(Stage::CustomResources);
        let facts = facts(&servers);
        // Together, so that their writes share commits.
        let bootstrap = retry_while_slow(async || match begun {
            true => kube_apiserver::bootstrap_fork(&facts).await.map(|()| true),
            false => kube_apiserver::bootstrap(&facts).await,
        });
        let aggregation = retry_while_slow(|| servers.aggregator.start());
        let (complete, ()) = tokio::try_join!(bootstrap, aggregation).map_err(StartError::Bootstrap)?;
        servers.readiness.finish(Stage::Bootstrap);
        servers.readiness.finish(Stage::Aggregation);
        // After that, because the roles and bindings that were just written count too.
        let mut followers: Vec<(&'static str, Task)> = Vec::new();
        if let Some(rbac) = &servers.access.rbac() {
            let tasks = follow_rbac(rbac, &stores.directory).await;
            for task in tasks.map_err(StartError::Bootstrap)? {
                followers.push(("rbac", Box::pin(task)));
            }
        }
        if let Some(nodes) = &servers.access.nodes() {
            let tasks =
                retry_while_slow(|| authorization::node::follow(nodes.clone(), &stores.directory)).await;
            for task in tasks.map_err(StartError::Bootstrap)? {
                followers.push(("node authorizer", Box::pin(task)));
            }
        }
        // Not before the first objects are written, with which most requests have levels of their own, and their keys are there.
        if let Some(fairness) = &servers.fairness {
            let follower = fairness.clone().follow(stores.directory.clone());
            followers.push(("configuration of priority and fairness", Box::pin(follower)));
        }
        servers.readiness.finish(Stage::Rbac);
        servers.admission.wait_until_synced(ADMISSION_TIMEOUT).await;
        servers.readiness.finish(Stage::Admission);
        if let [_, ..] = servers.admission.unsynced()[..] {
            tracing::error!(
                plugins = servers.admission.unsynced().join(" "),
                "admission configuration cannot be read: not ready, and writes are refused"
            );
        }
        let stores = &mut servers.stores;
        let url = local_url(stores.listener.address());
        Ok(Prepared {
            root_ca: replicas::root_ca(&stores.config, &stores.pki, &mut stores.reload)?,
            kubeconfig_file: keys::write_kubeconfig(&stores.config, &stores.pki, &url)?,
            servers,
            facts,
            complete,
            followers,
        })
    }

    /// Serves requests and starts the controllers.
    pub(super) fn run(self, options: Options, layers: OuterLayers) -> ControlPlane {
        let Servers {
            stores,
            builtin,
            aggregator,
            chain,
            tls,
            discovery,
            ..
        } = self.servers;
        let (config, tasks) = (stores.config, stores.tasks);
        let prepared = startup::Prepared {
            listener: stores.listener,
            tls,
            limits: config.tls.limits(),
            chain,
            layers: layers.clone(),
            timeline: Timeline {
                delay: config.requests.shutdown_delay,
                requests: config.requests.timeout,
                watches: config.requests.shutdown_watches,
            },
            tasks: tasks.clone(),
            engines: stores.storage.engines(),
        };
        let running = prepared.run();
        let source = Source {
            options,
            layers,
            storage: stores.storage,
            facts: self.facts.clone(),
            same: self.complete.then_some(SameOptions { discovery }),
        };
        if stores.health.is_ready() {
            stores.lifecycle.set_ready();
        }
        if !self.complete {
            tasks.spawn("bootstrap", kube_apiserver::bootstrap_later(self.facts.clone()));
        }
        tasks.spawn(
            "cluster authentication trust",
            kube_apiserver::keep_trust(&self.facts),
        );
        tasks.spawn(
            "default ServiceCIDR",
            kube_apiserver::keep_service_cidr(&self.facts, aggregator.clone()),
        );
        tasks.spawn("token tracking", kube_apiserver::keep_token_tracking(&self.facts));
        if config.features.identity {
            let stop = tasks.stopping().clone().cancelled_owned();
            let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
            tasks.spawn_to_end(
                "identity lease",
                kube_apiserver::keep_identity(&self.facts, host, stop),
            );
        }
        let endpoints =
            kube_apiserver::keep_endpoints(self.facts, tasks.stopping().clone().cancelled_owned());
        tasks.spawn_to_end("kubernetes-endpoints", endpoints);
        tasks.spawn(
            "objects of priority and fairness",
            kube_apiserver::keep_flow_control(stores.directory.clone()),
        );
        tasks.spawn("node ports", kube_apiserver::keep_node_ports(builtin.clone()));
        for (name, follower) in self.followers {
            tasks.spawn(name, follower);
        }
        let controllers = kube_apiserver::controllers(&builtin, self.root_ca, aggregator);
        // It would take the dependents of a lost owner for orphans.
        let collects = !builtin
            .storage
            .engines()
            .iter()
            .any(|engine| !engine.lost().is_empty());
        for controller in controllers {
            if config.controllers.runs(controller.name)
                && (collects || controller.name != "garbage-collector-controller")
            {
                tasks.spawn(controller.name, controller.run);
            }
        }
        if let Some(own) = stores.own_pki {
            let kubeconfig = self
                .kubeconfig_file
                .clone()
                .map(|file| (file, local_url(running.address())));
            // It writes into the data directory for as long as it runs.
            let lock = stores.data_lock.clone();
            tasks.spawn("own certificates", async move {
                own.keep(kubeconfig).await;
                drop(lock);
            });
        }
        let reload = Arc::new(stores.reload);
        tasks.spawn("files", reload.clone().follow());
        ControlPlane {
            guard: Guard::new(running, stores.data_lock),
            tokens: config.access.issued_tokens,
            pki: stores.pki,
            directory: stores.directory,
            kubeconfig_file: self.kubeconfig_file,
            reload,
            stand_in: stores.stand_in,
            source,
        }
    }
}

/// Waits until what the start reads can be decrypted, no longer than for a slow store.
async fn wait_for_keys(encryption: Option<&Encryption>) {
    if let Some(encryption) = encryption {
        let resources = READ_AT_START.map(|(group, resource)| GroupResource::new(group, resource));
        encryption.wait_for_keys(&resources, STORE_TIMEOUT).await;
    }
}

/// The facts that the first objects of a cluster state.
fn facts(servers: &Servers) -> Facts {
    let (stores, builtin) = (&servers.stores, &servers.builtin);
    let engine = stores.storage.engine().clone();
    Facts {
        directory: stores.directory.clone(),
        advertise: builtin.advertise,
        masters: stores
            .config
            .keeps_endpoints
            .then(|| Masters::new(engine, &stores.config.storage.prefix, stores.advertise)),
        service_cidrs: builtin.service_cidrs.clone(),
        authorities: servers.access.cluster_authorities.clone(),
        front_proxy_names: stores.config.access.front_proxy.allowed_names.clone(),
        features: builtin.features,
    }
}
