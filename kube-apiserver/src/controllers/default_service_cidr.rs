//! Maintains the ServiceCIDR `kubernetes`, which states the ranges of `--service-cluster-ip-range`: made again when it was deleted,
//! extended when a second range was added to the flag, and declared ready. Mirrors upstream's `defaultservicecidr`; as there, no
//! option turns it off.

use std::sync::Arc;
use std::time::Duration;

use generic_server::ApiError;
use generic_server::delegate::Delegate;
use generic_server::registry::cache::Interest;
use generic_server::registry::{Event, Reflector};
use machinery::meta;
use machinery::time::Timestamp;
use serde_json::{Value, json};
use tracing::{info, warn};

use super::api::Api;
use crate::client::{At, Client};
use crate::json::Json;
use crate::net::{Cidr, service_cidr_ready};

const CIDRS: At<'static> = ("networking.k8s.io", "servicecidrs");
const NAME: &str = "kubernetes";
const MANAGER: &str = "kubernetes-service-cidr-controller";
/// How long a pass that failed is waited with.
const PAUSE: Duration = Duration::from_secs(10);

/// Keeps it as these ranges say, where ServiceCIDRs are served.
pub(super) async fn run(client: Client, api: Arc<dyn Delegate>, ranges: Vec<Cidr>) {
    let Ok(registered) = client.resource(CIDRS) else {
        return;
    };
    if ranges.is_empty() {
        return;
    }
    let api = Api::new(api);
    let ranges: Vec<String> = ranges.iter().map(ToString::to_string).collect();
    let interest = Interest::Key(registered.store.key("", NAME).into());
    let mut reflector = Reflector::of(registered.store, interest);
    let mut changes = Vec::new();
    let mut told = None;
    loop {
        if let Event::Failed(error) = reflector.next(&mut changes).await {
            warn!(
                error = error.message(),
                "cannot read the default ServiceCIDR; retrying"
            );
            continue;
        }
        changes.clear();
        let trouble = loop {
            match sync(&client, &api, &ranges).await {
                Ok(trouble) => break trouble,
                Err(error) => {
                    warn!(%error, object.name = NAME, "cannot maintain the default ServiceCIDR; retrying");
                    tokio::time::sleep(PAUSE).await;
                }
            }
        };
        if let Some(trouble) = trouble.filter(|trouble| told != Some(*trouble)) {
            warn!(object.name = NAME, "{trouble}");
            told = Some(trouble);
        }
    }
}

/// One pass. Gives what an administrator has to put right.
async fn sync(client: &Client, api: &Api, ranges: &[String]) -> Result<Option<&'static str>, ApiError> {
    let Some(live) = client.find(CIDRS, "", NAME).await? else {
        let object = json!({
            "apiVersion": "networking.k8s.io/v1", "kind": "ServiceCIDR", "metadata": {"name": NAME}, "spec": {"cidrs": ranges},
        });
        if client.create(CIDRS, "", object).await? {
            info!(object.name = NAME, "the default ServiceCIDR has been created");
        }
        return declare_ready(api).await;
    };
    let stored: Vec<&str> = live.strings("spec.cidrs").collect();
    if stored.len() == 1 && ranges.len() == 2 && stored[0] == ranges[0] {
        let change = |object: &mut Value| {
            object.ensure("spec").put("cidrs", ranges.to_vec());
            Ok(())
        };
        client.update(CIDRS, "", NAME, "", change).await?;
        info!(
            object.name = NAME,
            "the default ServiceCIDR has got its second range"
        );
        return Ok(None);
    }
    if meta::deletion_timestamp(&live).is_some() {
        return Ok(None);
    }
    if stored != ranges {
        return Ok(Some(
            "the default ServiceCIDR has other ranges than --service-cluster-ip-range; those of the object are used",
        ));
    }
    match service_cidr_ready(&live) {
        "True" => Ok(None),
        "False" => Ok(Some(
            "the default ServiceCIDR is not ready: services get no addresses from it",
        )),
        _ => declare_ready(api).await,
    }
}

async fn declare_ready(api: &Api) -> Result<Option<&'static str>, ApiError> {
    let path =
        format!("/apis/networking.k8s.io/v1/servicecidrs/{NAME}/status?fieldManager={MANAGER}&force=true");
    let condition = json!({
        "type": "Ready", "status": "True", "reason": "", "message": "Kubernetes default Service CIDR is ready",
        "lastTransitionTime": Timestamp::now().to_rfc3339(),
    });
    let object = json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "ServiceCIDR", "metadata": {"name": NAME}, "status": {"conditions": [condition]},
    });
    let applied = api.apply(&path, &object).await;
    applied
        .map(|()| None)
        .map_err(|refusal| ApiError::internal(refusal.message))
}
