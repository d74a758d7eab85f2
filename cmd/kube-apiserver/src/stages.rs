//! Start-up in stages, each a type that consumes the one before:
//!
//! [`Options`] -> [`Config`] -> [`Stores`] -> [`Servers`] -> [`Prepared`] -> [`ControlPlane`], which runs.
//!
//! - `Config`: the options are whole and do not contradict each other. Nothing has been opened.
//! - `Stores`: the port is bound, keys and stores are open. Each store has been probed, replicas have agreed on the keys that they share
//!   through it, and no other object has been read.
//! - `Servers`: the three servers and the handler chain are made. They serve nothing.
//! - `Prepared`: a cluster's first objects are written, and everything that requests are decided on has been read.
//! - `ControlPlane`: requests are served and controllers run.
//!
//! The last two stages stand on [`generic_server::startup`], which extension servers share.

pub(crate) mod engines;
pub(crate) mod keys;
mod layers;
mod own_pki;
mod prepared;
mod readiness;
mod servers;
mod stores;

use generic_server::chain::OuterLayers;
use generic_server::version;

use crate::config::Config;
use crate::logging::OPERATOR;
use crate::origin::{Origin, options_of_fork};
use crate::{ControlPlane, Options, StartError};
use prepared::Prepared;
use servers::Servers;
use stores::Stores;

/// Goes through all stages. `layers` go around the handler chain. A fork begins with its `origin`.
pub(crate) async fn start(
    options: Options,
    layers: OuterLayers,
    origin: Option<&Origin>,
) -> Result<ControlPlane, StartError> {
    let options = match origin {
        Some(_) => options_of_fork(options),
        None => options,
    };
    let given = options.clone();
    let config = Config::new(options).map_err(|errors| StartError::Option(errors.join("; ")))?;
    for warning in &config.warnings {
        tracing::warn!("{warning}");
    }
    let summary = config.summary();
    let stores = Stores::open(config, origin).await?;
    let same = origin.and_then(|origin| origin.same.as_ref());
    let servers = Servers::new(stores, same).await?;
    let prepared = Prepared::new(servers, same.is_some()).await?;
    let plane = prepared.run(given, layers);
    tracing::info!(
        target: OPERATOR,
        version = version::KUBERNETES,
        release = version::OWN,
        address = %plane.address(),
        store = summary.store,
        on = summary.on,
        "kube-apiserver serves"
    );
    Ok(plane)
}
