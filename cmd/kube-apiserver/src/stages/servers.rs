//! The three servers in their order, and the handler chain in front of them. They are made here and read nothing yet.

use std::net::SocketAddr;
use std::sync::Arc;

use aggregator::Aggregator;
use apiextensions_server::ApiExtensions;
use generic_server::admission::AdmissionChain;
use generic_server::chain::Chain;
use generic_server::client::egress::Network;
use generic_server::delegate::InOrder;
use generic_server::discovery::{DiscoverySource, GroupDiscovery};
use generic_server::flowcontrol::FlowControl;
use generic_server::handlers::ServeEnv;
use generic_server::openapi::StaticDocuments;
use generic_server::serve::Tls;
use generic_server::server::ApiServer;
use generic_server::webhook::Services;
use kube_apiserver::{Access, AdmissionOptions, Nodes};
use machinery::limits;

use super::readiness::Readiness;
use super::stores::Stores;
use super::{keys, layers};
use crate::StartError;
use crate::origin::SameOptions;

/// The servers, over open stores.
#[derive(Debug)]
pub(super) struct Servers {
    pub(super) stores: Stores,
    pub(super) access: Access,
    /// The dependencies of the built-in groups.
    pub(super) builtin: kube_apiserver::Deps,
    pub(super) admission: AdmissionChain,
    pub(super) readiness: Readiness,
    pub(super) custom: Arc<ApiExtensions>,
    pub(super) aggregator: Arc<Aggregator>,
    pub(super) chain: Arc<Chain>,
    pub(super) fairness: Option<Arc<FlowControl>>,
    pub(super) tls: Arc<Tls>,
    /// Of the built-in groups.
    pub(super) discovery: Arc<Vec<Arc<GroupDiscovery>>>,
}

impl Servers {
    /// Makes them, each with the one behind it.
    pub(super) async fn new(mut stores: Stores, same: Option<&SameOptions>) -> Result<Self, StartError> {
        let mut access = Access::new(
            &stores.config.access,
            &stores.pki,
            &stores.directory,
            &stores.egress,
            &mut stores.reload,
            &stores.tasks,
        )?;
        access
            .connect(&stores.config.access.tokens, &stores.tasks)
            .await?;
        access.start(&stores.metrics);
        let nodes = Nodes::new(
            stores.config.kubelet.clone(),
            stores.egress.route(Network::Cluster),
            stores.tasks.clone(),
        );
        let nodes = Arc::new(nodes.map_err(StartError::Option)?);
        nodes.follow(&mut stores.reload);
        stores.metrics.register(nodes.metrics());
        let builtin = builtin(&stores, &access, nodes);
        let groups = kube_apiserver::groups(&builtin);
        let rbac = access.rbac();
        let services = Services::new(stores.directory.clone(), stores.egress.clone())
            .endpoints_only(stores.config.enable_aggregator_routing);
        stores.metrics.register(services.certificates().clone());
        let options = AdmissionOptions {
            plugins: &stores.config.plugins,
            configs: &stores.plugin_configs,
            tolerations: stores.config.tolerations,
            allow_privileged: stores.config.allow_privileged,
            rbac: rbac.as_ref(),
            break_glass: stores.config.webhook_break_glass,
            services: &services,
            metrics: &stores.metrics,
            costs: &stores.admission_costs,
        };
        let admission = kube_apiserver::admission_chain(&builtin, &options, &stores.tasks);
        let readiness = Readiness::new(&stores.health, admission.clone());
        let env = ServeEnv {
            admission: admission.clone(),
            authorizer: access.authorizer(),
            max_body: limits::BODY_BYTES,
            min_request_timeout: stores.config.requests.min_timeout,
        };
        let kube = Arc::new(match same {
            Some(same) => ApiServer::with_discovery(groups, env.clone(), same.discovery.clone()),
            None => ApiServer::new(groups, env.clone()),
        });
        let custom = ApiExtensions::new(apiextensions_server::Deps {
            storage: stores.storage.clone(),
            prefix: stores.config.storage.prefix.clone(),
            directory: stores.directory.clone(),
            services,
            env: env.clone(),
            limits: stores.config.custom_resource_limits,
            rule_times: Arc::default(),
        });
        stores
            .metrics
            .register(Arc::new(apiextensions_server::CostMetrics(custom.clone())));
        let aggregator = aggregator(&mut stores, env, &kube, &custom)?;
        let fairness = layers::fairness(&stores);
        let chain = layers::chain(&mut stores, &mut access, aggregator.clone(), fairness.clone())?;
        let tls = keys::serving_tls(&stores.config, &stores.pki, &mut stores.reload)?;
        stores.reload.encryption(stores.encryption.clone());
        Ok(Servers {
            stores,
            access,
            builtin,
            admission,
            readiness,
            custom,
            aggregator,
            chain,
            fairness,
            tls,
            discovery: DiscoverySource::groups(&*kube),
        })
    }
}

/// The dependencies of the built-in groups.
fn builtin(stores: &Stores, access: &Access, nodes: Arc<Nodes>) -> kube_apiserver::Deps {
    let config = &stores.config;
    kube_apiserver::Deps {
        storage: stores.storage.clone(),
        prefix: config.storage.prefix.clone(),
        stored_form: config.storage.stored_form,
        directory: stores.directory.clone(),
        authorizer: access.authorizer(),
        token_authenticator: access.tokens.clone(),
        token_issuer: access.issuer.clone(),
        service_cidrs: config.service_cidrs.clone(),
        node_ports: config.node_ports.clone(),
        event_ttl: config.event_ttl,
        served: config.features.apis.clone(),
        storage_migration: config.features.storage_migration,
        lease_candidates: config.features.lease_candidates,
        features: config.features.kinds,
        advertise: (stores.advertise, stores.listener.address().port()),
        nodes,
    }
}

/// `groupPriorityMinimum` and `versionPriority` of the built-in groups.
fn priorities(group: &str, version: &str) -> Option<(i32, i32)> {
    apiextensions_server::priority(group).or_else(|| kube_apiserver::priority(group, version))
}

/// The outermost server, with the other two behind it.
fn aggregator(
    stores: &mut Stores,
    env: ServeEnv,
    kube: &Arc<ApiServer>,
    custom: &Arc<ApiExtensions>,
) -> Result<Arc<Aggregator>, StartError> {
    let proxy_key = keys::proxy_key(&stores.config, &stores.pki, &mut stores.reload)?;
    let port = stores.listener.address().port();
    Aggregator::new(aggregator::Deps {
        storage: stores.storage.clone(),
        prefix: stores.config.storage.prefix.clone(),
        next: Arc::new(InOrder(vec![kube.clone(), custom.clone()])),
        priorities,
        openapi: vec![
            Arc::new(StaticDocuments::new(kube.groups().to_vec())),
            custom.clone(),
        ],
        local: vec![kube.clone() as Arc<dyn DiscoverySource>, custom.clone()],
        directory: stores.directory.clone(),
        env,
        server_address: match &stores.config.external_hostname {
            Some(host) => format!("{host}:{port}"),
            None => SocketAddr::new(stores.advertise, port).to_string(),
        },
        proxy_key,
        egress: stores.egress.route(Network::Cluster),
        endpoint_routing: stores.config.enable_aggregator_routing,
        metrics: stores.metrics.clone(),
        tasks: stores.tasks.clone(),
    })
    .ok_or(StartError::Build("the facts table has no APIService"))
}
