//! The handler chain of the control plane: which layers it has, and which paths outside the API are served.

use std::sync::Arc;

use aggregator::Aggregator;
use generic_server::admission::AdmissionReport;
use generic_server::audit::Auditor;
use generic_server::chain::{self, Chain, ChainConfig};
use generic_server::client::egress::Network;
use generic_server::discovery::RootPaths;
use generic_server::endpoint::{Endpoints, StaticJson};
use generic_server::filters::max_in_flight::MaxInFlight;
use generic_server::flagz::Flagz;
use generic_server::flowcontrol::FlowControl;
use generic_server::statusz::Statusz;
use kube_apiserver::Access;

use super::keys;
use super::stores::Stores;
use crate::StartError;
use crate::backup::{self, Backups};
use crate::config::Engine;
use crate::logging;
use crate::profiling::Profiles;
use crate::ui;
use crate::verbosity::{FlagIndex, Verbosity};

/// The chain in front of the aggregator.
pub(super) fn chain(
    stores: &mut Stores,
    access: &mut Access,
    aggregator: Arc<Aggregator>,
    fairness: Option<Arc<FlowControl>>,
) -> Result<Arc<Chain>, StartError> {
    let mut endpoints = endpoints(stores, access, &aggregator)?;
    if let Some(fairness) = &fairness {
        fairness.install(&mut endpoints);
    }
    let requests = &mut stores.config.requests;
    let authenticator = access.authenticator.clone();
    let authorizer = match stores.config.enable_ui {
        true => ui::allow_page(access.authorizer()),
        false => access.authorizer(),
    };
    let mut config = ChainConfig::new(authenticator, authorizer, aggregator);
    config.endpoints = endpoints;
    config.lifecycle = stores.lifecycle.clone();
    config.metrics = stores.metrics.clone();
    let auditor = Auditor::start(
        &stores.config.audit,
        &stores.egress.route(Network::ControlPlane),
        &stores.metrics,
        &mut stores.reload,
        &stores.tasks,
    );
    config.audit = Arc::new(auditor.map_err(StartError::Option)?);
    config.admit = match fairness {
        Some(fairness) => fairness,
        None => {
            let limited = Arc::new(MaxInFlight::new(
                requests.max_inflight,
                requests.max_mutating_inflight,
            ));
            stores.metrics.register(limited.clone());
            limited
        }
    };
    config.request_timeout = requests.timeout;
    config.goaway_chance = requests.goaway_chance;
    config.hsts = requests.hsts.clone();
    config.cors = std::mem::take(&mut requests.cors);
    config.serves_cbor = stores.config.features.cbor;
    config.shutdown_send_retry_after = requests.shutdown_send_retry_after;
    config.front_proxy_headers = stores.config.access.front_proxy.clone().into();
    Ok(chain::build(config))
}

/// Priority and fairness, where it is on. It knows no objects until they are followed.
pub(super) fn fairness(stores: &Stores) -> Option<Arc<FlowControl>> {
    let requests = &stores.config.requests;
    if !requests.fairness {
        return None;
    }
    let seats = requests
        .max_inflight
        .saturating_add(requests.max_mutating_inflight);
    let directory = &stores.directory;
    let control = FlowControl::new(seats, requests.timeout, Some(directory.clone()));
    stores.metrics.register(control.clone());
    stores.tasks.spawn("priority and fairness", control.clone().run());
    Some(control)
}

/// The paths outside the API.
fn endpoints(
    stores: &Stores,
    access: &mut Access,
    aggregator: &Arc<Aggregator>,
) -> Result<Endpoints, StartError> {
    let mut endpoints = Endpoints::default();
    stores.health.install(&mut endpoints, &stores.metrics);
    endpoints.add("/metrics", stores.metrics.clone());
    let report = AdmissionReport(stores.admission_costs.clone());
    endpoints.add(AdmissionReport::PATH, Arc::new(report));
    let version = StaticJson::version().map_err(|_| StartError::Build("the version cannot be written"))?;
    endpoints.add("/version", version.clone());
    if let Engine::Embedded { .. } = stores.config.storage.engine {
        let dir = stores.config.data_dir.clone();
        let backups = Backups {
            engine: stores.storage.engine().clone(),
            dir: dir.unwrap_or_else(std::env::temp_dir),
        };
        endpoints.add(backup::PATH, Arc::new(backups));
    }
    for (path, document) in std::mem::take(&mut access.endpoints) {
        endpoints.add(path, document);
    }
    if stores.config.enable_ui {
        let status = ui::Status::new(
            stores.storage.engines(),
            stores.lifecycle.clone(),
            keys::shown(&stores.config, &stores.pki),
        );
        stores
            .tasks
            .spawn("time of readiness", status.clone().note_readiness());
        ui::install(&mut endpoints, status);
    }
    if let Some(flags) = stores
        .config
        .command_line
        .flags()
        .filter(|_| stores.config.features.flagz)
    {
        endpoints.add(Flagz::PATH, Arc::new(Flagz::new(flags)));
    }
    if stores.config.features.statusz {
        endpoints.add(Statusz::PATH, Arc::new(Statusz::new(&endpoints.paths())));
    }
    let index = Arc::new(RootPaths {
        others: endpoints.paths(),
        groups: aggregator.discovery(),
    });
    for path in ["/", "/index.html"] {
        endpoints.add(path, index.clone());
    }
    // Served, but not listed in the index.
    if stores.config.profiling {
        endpoints.add_below(Profiles::PATH, Arc::new(Profiles));
        if logging::is_adjustable() {
            endpoints.add_below(FlagIndex::PATH, Arc::new(FlagIndex));
            endpoints.add(Verbosity::PATH, Arc::new(Verbosity));
        }
    }
    endpoints.add("/version/", version);
    for (path, endpoint) in access.debugging() {
        endpoints.add(path, endpoint);
    }
    Ok(endpoints)
}
