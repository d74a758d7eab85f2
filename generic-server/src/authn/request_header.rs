//! The front proxy: a peer with a trusted certificate names the user in headers.
//!
//! The headers count only from a peer whose certificate the request-header authorities signed, and whose common name is on the
//! list if there is one. Mirrors upstream's `authentication/request/headerrequest`.

use std::collections::BTreeMap;
use std::sync::Arc;

use arc_swap::ArcSwap;
use http::header::AsHeaderName;
use http::request::Parts;
use http::{HeaderMap, HeaderName};

use super::x509::ClientAuthorities;
use super::{Authenticator, Verdict};
use crate::request::{ConnectionInfo, User};

/// The `--requestheader-*` flags.
#[derive(Debug, Clone)]
pub struct RequestHeaderOptions {
    /// Common names that a proxy may have; empty for any.
    pub allowed_names: Vec<String>,
    /// Headers with the user name, the first that is there counts.
    pub username_headers: Vec<String>,
    /// Headers with the uid, likewise.
    pub uid_headers: Vec<String>,
    /// Headers with groups, all count.
    pub group_headers: Vec<String>,
    /// Prefixes of headers with anything else.
    pub extra_prefixes: Vec<String>,
}

impl Default for RequestHeaderOptions {
    fn default() -> Self {
        RequestHeaderOptions {
            allowed_names: Vec::new(),
            username_headers: vec!["x-remote-user".into()],
            uid_headers: vec!["x-remote-uid".into()],
            group_headers: vec!["x-remote-group".into()],
            extra_prefixes: vec!["x-remote-extra-".into()],
        }
    }
}

/// The headers in which a front proxy names users, beside the standard ones, which are always known.
#[derive(Debug, Clone, Default)]
pub struct FrontProxyHeaders {
    /// Whole names.
    pub names: Vec<String>,
    /// Prefixes of names.
    pub prefixes: Vec<String>,
}

impl From<RequestHeaderOptions> for FrontProxyHeaders {
    fn from(options: RequestHeaderOptions) -> Self {
        let names = [
            options.username_headers,
            options.uid_headers,
            options.group_headers,
        ];
        FrontProxyHeaders {
            names: names.concat(),
            prefixes: options.extra_prefixes,
        }
    }
}

/// Authenticates users by the headers of a trusted proxy.
#[derive(Debug)]
pub struct RequestHeader {
    authorities: Arc<ClientAuthorities>,
    loaded: ArcSwap<Loaded>,
}

/// The options as requests are read by them: most have none of these headers, which is seen by the names of the first.
#[derive(Debug)]
struct Loaded {
    options: RequestHeaderOptions,
    username_headers: Vec<HeaderName>,
}

impl From<RequestHeaderOptions> for Loaded {
    fn from(options: RequestHeaderOptions) -> Self {
        let names = options.username_headers.iter();
        // No request carries a header by another name.
        let username_headers = names.filter_map(|name| name.parse().ok()).collect();
        Loaded {
            options,
            username_headers,
        }
    }
}

impl RequestHeader {
    /// With these authorities for proxies.
    pub fn new(authorities: Arc<ClientAuthorities>, options: RequestHeaderOptions) -> Self {
        RequestHeader {
            authorities,
            loaded: ArcSwap::from_pointee(options.into()),
        }
    }

    /// Names and headers from now on.
    pub fn reload(&self, options: RequestHeaderOptions) {
        self.loaded.store(Arc::new(options.into()));
    }
}

#[async_trait::async_trait]
impl Authenticator for RequestHeader {
    async fn authenticate(&self, head: &Parts) -> Verdict {
        let Some(connection) = head.extensions.get::<Arc<ConnectionInfo>>() else {
            return Verdict::NotRequested;
        };
        let loaded = self.loaded.load();
        let options = &loaded.options;
        // An ordinary client's certificate is of another authority: looked at only when the headers are there.
        let Some(name) = first(&head.headers, &loaded.username_headers) else {
            return Verdict::NotRequested;
        };
        match self.authorities.verify(connection) {
            None => return Verdict::NotRequested,
            Some(Err(why)) => return Verdict::Failed((*why).into()),
            Some(Ok(proxy)) => {
                let allowed = &options.allowed_names;
                if !allowed.is_empty() && !allowed.contains(&proxy.common_name) {
                    let name = &proxy.common_name;
                    let why = format!("x509: subject with cn={name} is not in the allowed list");
                    return Verdict::Failed(why.into());
                }
            }
        }
        Verdict::User(User {
            name,
            uid: first(&head.headers, &options.uid_headers).unwrap_or_default(),
            groups: all(&head.headers, &options.group_headers),
            extra: extra(&head.headers, &options.extra_prefixes),
            notes: None,
        })
    }
}

fn text(value: &http::HeaderValue) -> String {
    String::from_utf8_lossy(value.as_bytes()).into_owned()
}

fn first(headers: &HeaderMap, names: impl IntoIterator<Item: AsHeaderName>) -> Option<String> {
    names
        .into_iter()
        .filter_map(|name| headers.get(name))
        .map(text)
        .find(|value| !value.is_empty())
}

fn all(headers: &HeaderMap, names: &[String]) -> Vec<String> {
    names
        .iter()
        .flat_map(|name| headers.get_all(name))
        .map(text)
        .filter(|value| !value.is_empty())
        .collect()
}

fn extra(headers: &HeaderMap, prefixes: &[String]) -> BTreeMap<String, Vec<String>> {
    let mut found: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for prefix in prefixes {
        for (name, value) in headers {
            if has_prefix(name.as_str(), prefix) {
                found
                    .entry(unescape_key(&name.as_str()[prefix.len()..]))
                    .or_default()
                    .push(text(value));
            }
        }
    }
    found
}

/// Whether a header name begins with a prefix, whatever the case.
pub(crate) fn has_prefix(name: &str, prefix: &str) -> bool {
    name.get(..prefix.len())
        .is_some_and(|start| start.eq_ignore_ascii_case(prefix))
}

/// Extra keys travel percent-encoded; one that cannot be decoded is taken as it is.
pub(crate) fn unescape_key(key: &str) -> String {
    percent_encoding::percent_decode_str(key)
        .decode_utf8()
        .map_or_else(|_| key.to_string(), std::borrow::Cow::into_owned)
}
