//! `/debug/authorization/usage`: which rules of RBAC are used, through which binding and by whom. POST begins a recording, GET reads it, DELETE ends it.
//!
//! Whoever may ask for this path sees the names of users, roles and bindings. No first role of a cluster but `cluster-admin` gives it.

use std::borrow::Cow;
use std::sync::Arc;

use generic_server::endpoint::Endpoint;
use generic_server::request::{Authorized, Request, Response};
use generic_server::request_info::query_pairs;
use generic_server::{ApiError, respond};
use http::Method;
use machinery::time::GoDuration;
use serde_json::Value;

use crate::rbac::Rbac;

/// Where it is.
pub(super) const PATH: &str = "/debug/authorization/usage";
/// How long a recording lasts that says nothing else.
const USUAL_SECONDS: i64 = 3600;
/// The longest.
const MOST_SECONDS: i64 = 7 * 24 * 3600;

/// The endpoint.
#[derive(Debug)]
pub(super) struct UsageOfRules(pub(super) Arc<Rbac>);

impl UsageOfRules {
    fn answer(&self, method: &Method, query: &str) -> Result<Value, ApiError> {
        let (mut role, mut seconds) = (None, None);
        for (key, value) in query_pairs(query) {
            match (method, &*key) {
                (&Method::GET, "role") => role = Some(checked(value)?),
                (&Method::POST, "for") => seconds = Some(duration(&value)?),
                (_, other) => {
                    return Err(ApiError::bad_request(format!(
                        "{} is unknown: GET takes role, POST takes for",
                        machinery::go::quote(other)
                    )));
                }
            }
        }
        let usage = self.0.usage();
        match *method {
            Method::GET => {}
            Method::POST => usage.record_for(Some(seconds.unwrap_or(USUAL_SECONDS))),
            Method::DELETE => usage.record_for(None),
            _ => return Err(ApiError::method_not_allowed()),
        }
        Ok(usage.report(&self.0.index(), role.as_deref()))
    }
}

/// The name of a role, as answers have it.
fn checked(role: Cow<'_, str>) -> Result<Cow<'_, str>, ApiError> {
    let is_whole = match role.split('/').collect::<Vec<_>>()[..] {
        ["ClusterRole", name] => !name.is_empty(),
        ["Role", namespace, name] => !namespace.is_empty() && !name.is_empty(),
        _ => false,
    };
    match is_whole {
        true => Ok(role),
        false => Err(ApiError::bad_request(format!(
            "{} is no role: it is ClusterRole/NAME or Role/NAMESPACE/NAME",
            machinery::go::quote(&role)
        ))),
    }
}

fn duration(text: &str) -> Result<i64, ApiError> {
    let parsed = GoDuration::parse(text).map_err(ApiError::bad_request)?;
    let seconds = parsed
        .to_std()
        .and_then(|time| i64::try_from(time.as_secs()).ok());
    let fits = seconds.filter(|seconds| (1..=MOST_SECONDS).contains(seconds));
    fits.ok_or_else(|| {
        ApiError::bad_request("a recording lasts for a second at least, and for a week (168h) at most")
    })
}

#[async_trait::async_trait]
impl Endpoint for UsageOfRules {
    async fn serve(&self, _authorized: &Authorized, request: Request) -> Response {
        let query = request.uri().query().unwrap_or_default();
        respond::plain(self.answer(request.method(), query))
    }
}
