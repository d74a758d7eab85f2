//! Impersonation of other users: the `Impersonate-*` headers.
//!
//! Constrained modes (KEP-5284) are asked first: the user needs `impersonate-on:MODE:VERB` for the request and `impersonate:MODE`
//! for the identity. The legacy `impersonate` verb is the last mode. The mode that worked last for a user is tried first, so that
//! a user who impersonates in the legacy way keeps paying its price alone. Mirrors upstream's `endpoints/filters/impersonation`.

mod metrics;

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write;
use std::sync::Arc;
use std::time::Instant;

use http::HeaderMap;
use machinery::ApiError;
use machinery::go::quote;
use parking_lot::Mutex;

use crate::authn::anonymous::{ANONYMOUS, AUTHENTICATED, UNAUTHENTICATED};
use crate::authn::request_header::{has_prefix, unescape_key};
use crate::authn::split_service_account;
use crate::authz::{Attributes, Authorizer, forbidden};
use crate::metrics::Collect;
use crate::request::{RequestInfo, User};
use metrics::ImpersonationMetrics;

const USER: &str = "impersonate-user";
const GROUP: &str = "impersonate-group";
const UID: &str = "impersonate-uid";
const EXTRA: &str = "impersonate-extra-";
/// From this many checks on, one for `*` is tried first.
const WILDCARD_CHECK_THRESHOLD: usize = 4;
/// How many users' modes are remembered.
const REMEMBERED: usize = 10_000;
const AUTHENTICATION: &str = "authentication.k8s.io";

/// The ways of impersonating, in the order they are tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    AssociatedNode,
    ArbitraryNode,
    ServiceAccount,
    UserInfo,
    Legacy,
}

const MODES: [Mode; 5] = [
    Mode::AssociatedNode,
    Mode::ArbitraryNode,
    Mode::ServiceAccount,
    Mode::UserInfo,
    Mode::Legacy,
];

impl Mode {
    fn name(self) -> &'static str {
        match self {
            Mode::AssociatedNode => "associated-node",
            Mode::ArbitraryNode => "arbitrary-node",
            Mode::ServiceAccount => "serviceaccount",
            Mode::UserInfo => "user-info",
            Mode::Legacy => "",
        }
    }

    /// Its name in metrics.
    fn label(self) -> &'static str {
        match self {
            Mode::Legacy => "legacy",
            mode => mode.name(),
        }
    }

    /// The verb about the identity.
    fn verb(self) -> String {
        match self {
            Mode::Legacy => "impersonate".to_string(),
            mode => format!("impersonate:{}", mode.name()),
        }
    }

    /// Whether the mode is about such a user at all.
    fn applies(self, wanted: &User, requestor: &User) -> bool {
        let name_only = wanted.uid.is_empty() && wanted.groups.is_empty() && wanted.extra.is_empty();
        let node = node_name(&wanted.name);
        let account = split_service_account(&wanted.name);
        match self {
            Mode::AssociatedNode => {
                name_only
                    && split_service_account(&requestor.name).is_some()
                    && node.is_some_and(|node| {
                        let own = requestor.extra.get("authentication.kubernetes.io/node-name");
                        own.is_some_and(|own| own.len() == 1 && own[0] == node)
                    })
            }
            Mode::ArbitraryNode => name_only && node.is_some(),
            Mode::ServiceAccount => name_only && account.is_some(),
            Mode::UserInfo => node.is_none() && account.is_none(),
            Mode::Legacy => true,
        }
    }
}

/// Decides on impersonation and remembers the mode that worked for each user.
#[derive(Debug, Default)]
pub(crate) struct Impersonation {
    last: Mutex<HashMap<String, Mode>>,
    metrics: Arc<ImpersonationMetrics>,
}

/// The user that a request runs as.
#[derive(Debug)]
pub(crate) struct Impersonated {
    pub(crate) user: User,
    /// The verb of the constrained mode that allowed it; `None` for the legacy one.
    pub(crate) constraint: Option<String>,
}

/// Whether there is anything to do; most requests end here.
pub(crate) fn asked(headers: &HeaderMap) -> bool {
    headers
        .keys()
        .any(|name| name.as_str().starts_with("impersonate-"))
}

impl Impersonation {
    /// How often it was tried, and what that took.
    pub(crate) fn metrics(&self) -> Arc<dyn Collect> {
        self.metrics.clone()
    }

    /// The user to act as in this request, after it was allowed to `requestor`. The headers leave the request.
    pub(crate) async fn resolve(
        &self,
        headers: &mut HeaderMap,
        requestor: &User,
        info: &RequestInfo,
        authorizer: &dyn Authorizer,
    ) -> Result<Option<Impersonated>, ApiError> {
        let wanted = read(headers);
        if wanted.name.is_empty() {
            if wanted.groups.is_empty() && wanted.extra.is_empty() && wanted.uid.is_empty() {
                return Ok(None);
            }
            let what = describe(&wanted);
            return Err(ApiError::bad_request(format!(
                "requested {what} without impersonating a user name"
            )));
        }
        strip(headers);
        let began = Instant::now();
        let decided = self.decide(&wanted, requestor, info, authorizer).await;
        let mode = decided.as_ref().ok().map(|(mode, _)| mode.label());
        self.metrics.attempted(mode, began.elapsed());
        let (mode, user) = decided?;
        let constraint = (mode != Mode::Legacy).then(|| mode.verb());
        Ok(Some(Impersonated { user, constraint }))
    }

    /// The mode that allows it, and the user to act as.
    async fn decide(
        &self,
        wanted: &User,
        requestor: &User,
        info: &RequestInfo,
        authorizer: &dyn Authorizer,
    ) -> Result<(Mode, User), ApiError> {
        let last = self.last.lock().get(&requestor.name).copied();
        let mut refusal = None;
        for mode in last
            .into_iter()
            .chain(MODES.into_iter().filter(|mode| Some(*mode) != last))
        {
            if !mode.applies(wanted, requestor) {
                continue;
            }
            let checks = Checks {
                authorizer,
                mode,
                metrics: &self.metrics,
            };
            match check(mode, wanted, requestor, info, &checks).await {
                Ok(user) => {
                    if last != Some(mode) {
                        let mut all = self.last.lock();
                        if all.len() >= REMEMBERED {
                            all.clear();
                        }
                        all.insert(requestor.name.clone(), mode);
                    }
                    return Ok((mode, user));
                }
                Err(error) => drop(refusal.get_or_insert(error)),
            }
        }
        Err(refusal.unwrap_or_else(|| ApiError::raw_internal("all impersonation modes failed")))
    }
}

/// The authorizer as one mode asks it.
struct Checks<'a> {
    authorizer: &'a dyn Authorizer,
    mode: Mode,
    metrics: &'a ImpersonationMetrics,
}

impl Checks<'_> {
    async fn ask(&self, attributes: &Attributes<'_>) -> Result<(), ApiError> {
        // A head has room for thousands of groups, each with a check that may not wait for anything.
        tokio::task::consume_budget().await;
        let began = Instant::now();
        let permitted = self.authorizer.authorize(attributes).await.permits();
        self.metrics
            .checked(self.mode.label(), permitted.is_ok(), began.elapsed());
        permitted.map_err(|reason| forbidden(attributes, &reason))
    }
}

async fn check(
    mode: Mode,
    wanted: &User,
    requestor: &User,
    info: &RequestInfo,
    checks: &Checks<'_>,
) -> Result<User, ApiError> {
    let constrained = mode != Mode::Legacy;
    // In this mode the decision depends on the kinds of association that the requestor has, not on their values.
    let stand_in = (mode == Mode::AssociatedNode).then(|| {
        let keys = requestor.extra.keys().cloned().collect();
        let extra = BTreeMap::from([(
            "authentication.kubernetes.io/associated-node-keys".to_string(),
            keys,
        )]);
        User {
            extra,
            ..requestor.clone()
        }
    });
    let requestor = stand_in.as_ref().unwrap_or(requestor);

    let verb = mode.verb();
    if constrained {
        let on = format!("impersonate-on:{}:{}", mode.name(), info.verb);
        checks
            .ask(&Attributes {
                verb: &on,
                ..Attributes::of(requestor, info)
            })
            .await?;
    }

    let mut acting = wanted.clone();
    let authentication = Attributes {
        user: requestor,
        verb: &verb,
        is_resource: true,
        group: AUTHENTICATION,
        version: "v1",
        resource: "users",
        subresource: "",
        namespace: "",
        name: &wanted.name,
        path: "",
        field_selector: "",
        label_selector: "",
    };
    let (group, version) = if constrained {
        (AUTHENTICATION, "v1")
    } else {
        ("", "v1")
    };
    let identity = Attributes {
        group,
        version,
        ..authentication
    };

    if let Some(node) = node_name(&wanted.name).filter(|_| constrained) {
        acting.groups = vec!["system:nodes".into()];
        let name = if mode == Mode::AssociatedNode { "*" } else { node };
        checks
            .ask(&Attributes {
                resource: "nodes",
                name,
                ..identity
            })
            .await?;
    } else if let Some((namespace, name)) = split_service_account(&wanted.name) {
        if wanted.groups.is_empty() {
            acting.groups = vec![
                "system:serviceaccounts".into(),
                format!("system:serviceaccounts:{namespace}"),
            ];
        }
        checks
            .ask(&Attributes {
                resource: "serviceaccounts",
                namespace,
                name,
                ..identity
            })
            .await?;
    } else {
        checks.ask(&identity).await?;
    }
    if !wanted.uid.is_empty() {
        checks
            .ask(&Attributes {
                resource: "uids",
                name: &wanted.uid,
                ..authentication
            })
            .await?;
    }
    let groups = Attributes {
        resource: "groups",
        name: "",
        ..identity
    };
    check_groups(constrained, &wanted.groups, &groups, checks).await?;
    let extra = Attributes {
        resource: "userextras",
        name: "",
        ..authentication
    };
    check_extra(constrained, &wanted.extra, &extra, checks).await?;

    let has = |group: &str| acting.groups.iter().any(|g| g == group);
    if acting.name == ANONYMOUS {
        if !has(UNAUTHENTICATED) {
            acting.groups.push(UNAUTHENTICATED.into());
        }
    } else if !has(UNAUTHENTICATED) && !has(AUTHENTICATED) {
        acting.groups.push(AUTHENTICATED.into());
    }
    Ok(acting)
}

async fn check_groups(
    constrained: bool,
    groups: &[String],
    base: &Attributes<'_>,
    checks: &Checks<'_>,
) -> Result<(), ApiError> {
    if constrained {
        if groups.iter().any(String::is_empty) {
            return Err(forbidden(
                base,
                "impersonating the empty string group is not allowed",
            ));
        }
        if groups.iter().any(|group| group == "system:masters") {
            let base = Attributes {
                name: "system:masters",
                ..*base
            };
            return Err(forbidden(
                &base,
                "impersonating the system:masters group is not allowed",
            ));
        }
        if groups.len() >= WILDCARD_CHECK_THRESHOLD
            && checks.ask(&Attributes { name: "*", ..*base }).await.is_ok()
        {
            return Ok(());
        }
    }
    for group in groups {
        checks.ask(&Attributes { name: group, ..*base }).await?;
    }
    Ok(())
}

async fn check_extra(
    constrained: bool,
    extra: &BTreeMap<String, Vec<String>>,
    base: &Attributes<'_>,
    checks: &Checks<'_>,
) -> Result<(), ApiError> {
    if constrained {
        for (key, values) in extra {
            judge_extra(key, values).map_err(|why| forbidden(base, &why))?;
        }
        let large = extra.len() >= WILDCARD_CHECK_THRESHOLD
            || extra.values().map(Vec::len).sum::<usize>() >= WILDCARD_CHECK_THRESHOLD;
        let all = Attributes {
            subresource: "*",
            name: "*",
            ..*base
        };
        if large && checks.ask(&all).await.is_ok() {
            return Ok(());
        }
    }
    for (key, values) in extra {
        for value in values {
            checks
                .ask(&Attributes {
                    subresource: key,
                    name: value,
                    ..*base
                })
                .await?;
        }
    }
    Ok(())
}

/// The checks of extra keys and values in constrained modes.
fn judge_extra(key: &str, values: &[String]) -> Result<(), String> {
    if key.is_empty() {
        return Err("impersonating the empty string key in extra is not allowed".into());
    }
    if !key
        .split_once('/')
        .is_some_and(|(domain, path)| !domain.is_empty() && !path.is_empty())
    {
        let key = quote(key);
        return Err(format!(
            "impersonating an invalid key in extra is not allowed: extra.key: Invalid value: {key}: must be a domain-prefixed path (such as \"acme.io/foo\")"
        ));
    }
    if key.chars().any(char::is_uppercase) {
        let key = quote(key);
        return Err(format!(
            "impersonating a non-lowercase key in extra is not allowed: {key}"
        ));
    }
    if values.iter().any(String::is_empty) {
        return Err("impersonating the empty string value in extra is not allowed".into());
    }
    Ok(())
}

fn read(headers: &HeaderMap) -> User {
    let text = |value: &http::HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
    let one = |name: &str| headers.get(name).map(text).unwrap_or_default();
    let mut wanted = User {
        name: one(USER),
        groups: headers.get_all(GROUP).iter().map(text).collect(),
        uid: one(UID),
        ..User::default()
    };
    for (name, value) in headers {
        if let Some(key) = name.as_str().strip_prefix(EXTRA) {
            wanted
                .extra
                .entry(unescape_key(key))
                .or_default()
                .push(text(value));
        }
    }
    wanted
}

fn strip(headers: &mut HeaderMap) {
    let doomed: Vec<_> = headers
        .keys()
        .filter(|name| matches!(name.as_str(), USER | GROUP | UID) || has_prefix(name.as_str(), EXTRA))
        .cloned()
        .collect();
    for name in doomed {
        headers.remove(name);
    }
}

fn node_name(user: &str) -> Option<&str> {
    let name = user.strip_prefix("system:node:")?;
    machinery::names::name_is_dns_subdomain(name, false)
        .is_empty()
        .then_some(name)
}

/// The user as Go's `%#v` prints it, which is what clients see.
fn describe(user: &User) -> String {
    let list = |items: &[String]| {
        let quoted: Vec<String> = items.iter().map(|item| quote(item)).collect();
        format!("[]string{{{}}}", quoted.join(", "))
    };
    let groups = if user.groups.is_empty() {
        "[]string(nil)".to_string()
    } else {
        list(&user.groups)
    };
    let mut extra = String::from("map[string][]string");
    if user.extra.is_empty() {
        extra.push_str("(nil)");
    } else {
        extra.push('{');
        for (index, (key, values)) in user.extra.iter().enumerate() {
            let comma = if index > 0 { ", " } else { "" };
            let _ = write!(extra, "{comma}{}:{}", quote(key), list(values));
        }
        extra.push('}');
    }
    let (name, uid) = (quote(&user.name), quote(&user.uid));
    format!("&user.DefaultInfo{{Name:{name}, UID:{uid}, Groups:{groups}, Extra:{extra}}}")
}
