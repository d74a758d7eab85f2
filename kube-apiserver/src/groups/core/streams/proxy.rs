//! `pods/proxy`, `services/proxy` and `nodes/proxy`: any method, upgrades, and `Location` led back through the proxy. Mirrors
//! `upgradeaware.go` and `transport.go` of `k8s.io/apimachinery/pkg/util/proxy`.

use generic_server::client::is_forbidden;
use generic_server::request::full;
use generic_server::resource::ConnectCall;
use generic_server::streaming::headers::{asks_upgrade, escaped_path, strip_hop_by_hop};
use generic_server::streaming::{Peer, exchange};
use generic_server::{ApiError, Request, RequestInfo, Response};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri, header};
use machinery::{GroupResource, go};
use rand::RngExt;
use serde_json::{Value, json};

use super::{NodeStream, Target, passing};
use crate::json::Json;
use crate::nodes::is_global_unicast;

/// Headers by which a server behind the proxy would speak for this one.
const CORS: [HeaderName; 4] = [
    header::ACCESS_CONTROL_ALLOW_CREDENTIALS,
    header::ACCESS_CONTROL_ALLOW_HEADERS,
    header::ACCESS_CONTROL_ALLOW_METHODS,
    header::ACCESS_CONTROL_ALLOW_ORIGIN,
];
const FORWARDED_URI: HeaderName = HeaderName::from_static("x-forwarded-uri");

/// `name`, `name:port` or `scheme:name:port`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Asked<'a> {
    scheme: &'a str,
    name: &'a str,
    port: &'a str,
}

impl<'a> Asked<'a> {
    fn parse(id: &'a str) -> Option<Self> {
        let parts: Vec<&str> = id.split(':').collect();
        let (scheme, name, port) = match parts[..] {
            [name] => ("", name, ""),
            [name, port] => ("", name, port),
            [scheme, name, port] => (scheme, name, port),
            _ => return None,
        };
        (!name.is_empty() && matches!(scheme, "" | "http" | "https")).then_some(Asked { scheme, name, port })
    }
}

/// Digits alone: Go's dialer takes no sign.
fn number(port: &str) -> Result<u16, ApiError> {
    let is_number = port.bytes().all(|byte| byte.is_ascii_digit());
    let number = port.parse().ok().filter(|_| is_number);
    number.ok_or_else(|| {
        let why = match is_number {
            true => format!("dial tcp: address {port}: invalid port"),
            false => format!("dial tcp: lookup tcp/{port}: unknown port"),
        };
        ApiError::unavailable(format!("error trying to reach service: {why}"))
    })
}

fn default_port(scheme: &str) -> u16 {
    if scheme == "https" { 443 } else { 80 }
}

/// The options of a proxy, but for their kind: what follows the subresource in the path.
pub(super) fn options(info: &RequestInfo) -> Value {
    let mut path = info.parts.get(3..).unwrap_or_default().join("/");
    if !path.is_empty() && !path.starts_with('/') {
        path.insert(0, '/');
    }
    if info.path.ends_with('/') && !path.ends_with('/') {
        path.push('/');
    }
    match path.is_empty() {
        true => json!({}),
        false => json!({"path": path}),
    }
}

impl NodeStream {
    /// Passes a request to a pod, a service or a node.
    pub(super) async fn proxy(
        &self,
        call: &ConnectCall<'_>,
        kind: &str,
        request: Request,
    ) -> Result<Response, ApiError> {
        let what = match kind {
            "PodProxyOptions" => "pod",
            "NodeProxyOptions" => "node",
            _ => "service",
        };
        let asked = Asked::parse(call.name).ok_or_else(|| {
            ApiError::bad_request(format!("invalid {what} request {}", go::quote(call.name)))
        })?;
        let peer = match what {
            "pod" => self.of_pod(call, asked).await?,
            "node" => self.of_node(call, asked).await?,
            _ => self.of_service(call, asked).await?,
        };
        self.pass(call, peer, request).await
    }

    async fn of_pod(&self, call: &ConnectCall<'_>, asked: Asked<'_>) -> Result<Peer, ApiError> {
        let pod = self.pod(call, asked.name).await?;
        let declared = pod.list("spec.containers").iter().find_map(|container| {
            let port = container.list("ports").first()?.int("containerPort")?;
            u16::try_from(port).ok()
        });
        let port = match asked.port {
            "" => declared.unwrap_or_else(|| default_port(asked.scheme)),
            port => number(port)?,
        };
        let ip = pod
            .list("status.podIPs")
            .first()
            .map(|ip| ip.text("ip"))
            .unwrap_or_default();
        match ip.parse() {
            Ok(address) if is_global_unicast(address) => {
                self.nodes
                    .server(call.authorized.user(), asked.scheme, ip.into(), port)
            }
            _ => Err(ApiError::bad_request("address not allowed")),
        }
    }

    async fn of_node(&self, call: &ConnectCall<'_>, asked: Asked<'_>) -> Result<Peer, ApiError> {
        let user = call.authorized.user();
        let kubelet = self
            .nodes
            .kubelet(&self.client, user, asked.name, true)
            .await?
            .peer;
        let host = kubelet.host.clone();
        // A name behind a proxy is resolved there.
        if !self.nodes.are_behind_proxy() {
            let found = tokio::net::lookup_host((host.as_str(), kubelet.port)).await;
            let unknown = |_| ApiError::bad_request(format!("lookup {host}: no such host"));
            let found: Vec<_> = found.map_err(unknown)?.collect();
            if found.is_empty() {
                return Err(ApiError::bad_request("no addresses for hostname"));
            }
            if !found.iter().all(|address| is_global_unicast(address.ip())) {
                return Err(ApiError::bad_request("address not allowed"));
            }
        }
        if asked.port.is_empty() || asked.port == kubelet.port.to_string() {
            // What the name resolves to was checked, and may be another address by now.
            return Ok(Peer {
                permitted: is_global_unicast,
                ..kubelet
            });
        }
        self.nodes
            .server(user, asked.scheme, kubelet.host, number(asked.port)?)
    }

    /// A ready endpoint of a service, any of them, that is a pod of the service's namespace.
    async fn of_service(&self, call: &ConnectCall<'_>, asked: Asked<'_>) -> Result<Peer, ApiError> {
        let service = self
            .client
            .find(("", "services"), call.namespace, asked.name)
            .await?;
        let service = service.ok_or_else(|| ApiError::not_found(&call.gvr.group_resource(), asked.name))?;
        let port = port_name(&service, asked)?;
        let endpoints = self
            .client
            .find(("", "endpoints"), call.namespace, asked.name)
            .await?;
        let endpoints =
            endpoints.ok_or_else(|| ApiError::not_found(&GroupResource::new("", "endpoints"), asked.name))?;
        let none = |name: &str| {
            ApiError::unavailable(format!("no endpoints available for service {}", go::quote(name)))
        };
        let subsets = endpoints.list("subsets");
        if subsets.is_empty() {
            return Err(none(asked.name));
        }
        for subset in from_anywhere(subsets) {
            let ports = subset.list("ports").iter();
            for entry in ports.filter(|entry| entry.text("name") == port) {
                let number = entry.int("port").and_then(|port| u16::try_from(port).ok());
                for address in from_anywhere(subset.list("addresses")) {
                    let Some(number) = number else { continue };
                    if self.is_of_pod(call, address).await? {
                        return Ok(Peer {
                            // Endpoints are of this server's own making or checked when they were written; what no router passes on is refused.
                            permitted: |address| !is_forbidden(address),
                            ..self.nodes.server(
                                call.authorized.user(),
                                asked.scheme,
                                address.text("ip").into(),
                                number,
                            )?
                        });
                    }
                }
            }
        }
        Err(none(call.name))
    }

    /// Whether an endpoint's address is one of the pod that it names.
    async fn is_of_pod(&self, call: &ConnectCall<'_>, address: &Value) -> Result<bool, ApiError> {
        let target = address.dig("targetRef");
        if target.text("namespace") != call.namespace {
            return Ok(false);
        }
        let pod = self
            .client
            .find(("", "pods"), call.namespace, target.text("name"))
            .await?;
        let ips = pod
            .as_ref()
            .map(|pod| pod.list("status.podIPs"))
            .unwrap_or_default();
        Ok(ips.iter().any(|ip| ip.text("ip") == address.text("ip")))
    }

    async fn pass(
        &self,
        call: &ConnectCall<'_>,
        peer: Peer,
        mut request: Request,
    ) -> Result<Response, ApiError> {
        let info = call.authorized.info();
        let path = target_path(call.options.text("path"), &info.path);
        let query = request.uri().query().map(str::to_string);
        let location = |path: &str| {
            let mut location = escaped_path(if path.is_empty() { "/" } else { path });
            if let Some(query) = &query {
                location.push('?');
                location.push_str(query);
            }
            location
        };
        let target = Target {
            peer,
            location: location(&path),
        };
        let tasks = self.nodes.tasks();
        if asks_upgrade(request.headers()) {
            let passed_on = passing::upgrade(&request, &target)?;
            return passing::pass(tasks, &target, passed_on, &mut request).await;
        }
        if path.is_empty() && matches!(*request.method(), Method::GET | Method::HEAD) {
            return moved(&format!("{}/", info.path), query.as_deref());
        }
        let prefix = info
            .path
            .strip_suffix(path.as_str())
            .unwrap_or(&info.path)
            .to_string();
        let headers = self.headers(&prefix, &path, &target, &request)?;
        let host = headers
            .get(header::HOST)
            .and_then(|host| host.to_str().ok())
            .map(str::to_string);
        let (head, body) = request.into_parts();
        let mut passed_on = http::Request::new(body);
        *passed_on.method_mut() = head.method;
        *passed_on.uri_mut() = target.location.parse().map_err(ApiError::internal)?;
        *passed_on.headers_mut() = headers;
        let answer = exchange(tasks, &target.peer, passed_on)
            .await
            .map_err(|fault| ApiError::unavailable(format!("error trying to reach service: {fault}")))?;
        let (head, body) = answer.into_parts();
        let mut response = Response::new(body);
        *response.status_mut() = head.status;
        *response.headers_mut() = head.headers;
        let headers = response.headers_mut();
        strip_hop_by_hop(headers);
        passing::remove_own(headers);
        for name in CORS {
            headers.remove(name);
        }
        if let Some(led_back) = led_back(headers, &prefix, &target.peer.authority(), host.as_deref())? {
            headers.insert(header::LOCATION, led_back);
        }
        Ok(response)
    }

    fn headers(
        &self,
        prefix: &str,
        path: &str,
        target: &Target,
        request: &Request,
    ) -> Result<HeaderMap, ApiError> {
        let mut headers = passing::passed_on(request.headers(), passing::client_address(request), target)?;
        let mut forwarded = clean(&format!("{prefix}/{}", escaped_path(path)));
        if path.ends_with('/') && !forwarded.ends_with('/') {
            forwarded.push('/');
        }
        if let Ok(value) = HeaderValue::from_str(&forwarded) {
            headers.insert(FORWARDED_URI, value);
        }
        Ok(headers)
    }
}

/// The name of the service's port that is meant; a number stands for the port that has it.
fn port_name<'a>(service: &'a Value, asked: Asked<'a>) -> Result<&'a str, ApiError> {
    let Ok(number) = asked.port.parse::<i64>() else {
        return Ok(asked.port);
    };
    let ports = service.list("spec.ports");
    let port = ports.iter().find(|port| port.int("port") == Some(number));
    port.map(|port| port.text("name")).ok_or_else(|| {
        let name = go::quote(asked.name);
        ApiError::unavailable(format!("no service port {number} found for service {name}"))
    })
}

/// All items, beginning with any of them.
fn from_anywhere(items: &[Value]) -> impl Iterator<Item = &Value> {
    let start = rand::rng().random_range(0..items.len().max(1));
    items.iter().cycle().skip(start).take(items.len())
}

/// Go's `path.Clean`, of an absolute path.
fn clean(path: &str) -> String {
    let mut kept: Vec<&str> = Vec::new();
    for segment in path.split('/') {
        match segment {
            "" | "." => {}
            ".." => drop(kept.pop()),
            segment => kept.push(segment),
        }
    }
    format!("/{}", kept.join("/"))
}

/// The path behind the proxy: that of the options, cleaned, with its final slash.
fn target_path(rest: &str, whole: &str) -> String {
    let slash = whole.ends_with('/');
    if rest.is_empty() {
        return if slash { "/".into() } else { String::new() };
    }
    let mut path = clean(rest);
    if slash && !path.ends_with('/') {
        path.push('/');
    }
    path
}

/// Sends a client to the path with a final slash, so that relative links lead through the proxy.
fn moved(path: &str, query: Option<&str>) -> Result<Response, ApiError> {
    let query = query
        .filter(|query| !query.is_empty())
        .map(|query| format!("?{query}"));
    let location = format!("{}{}", escaped_path(path), query.unwrap_or_default());
    let mut response = Response::new(full(bytes::Bytes::new()));
    *response.status_mut() = StatusCode::MOVED_PERMANENTLY;
    let value = HeaderValue::from_str(&location).map_err(ApiError::internal)?;
    response.headers_mut().insert(header::LOCATION, value);
    Ok(response)
}

/// `Location` as it leads through the proxy, where it is of the server behind it. 500 when it is no URL.
fn led_back(
    headers: &HeaderMap,
    prefix: &str,
    authority: &str,
    host: Option<&str>,
) -> Result<Option<HeaderValue>, ApiError> {
    let Some(location) = headers
        .get(header::LOCATION)
        .filter(|location| !location.is_empty())
    else {
        return Ok(None);
    };
    let wrong = |why: &dyn std::fmt::Display| {
        ApiError::internal(format!("error trying to parse Location header: {why}"))
    };
    let text = location.to_str().map_err(|error| wrong(&error))?;
    if !text.starts_with('/') && !text.contains("://") {
        // Relative to the request's own path.
        return Ok(None);
    }
    let url: Uri = text.parse().map_err(|error| wrong(&error))?;
    let theirs = url.authority().map(|authority| authority.as_str());
    if theirs.is_some_and(|theirs| theirs != authority && Some(theirs) != host) {
        return Ok(None);
    }
    let path = url.path();
    let mut out = if path.starts_with(prefix) && !prefix.is_empty() {
        path.to_string()
    } else {
        let mut led = clean(&format!("{prefix}/{path}"));
        if path.ends_with('/') && !led.ends_with('/') {
            led.push('/');
        }
        led
    };
    if let Some(query) = url.query() {
        out.push('?');
        out.push_str(query);
    }
    if let Some((_, fragment)) = text.split_once('#') {
        out.push('#');
        out.push_str(fragment);
    }
    HeaderValue::from_str(&out)
        .map(Some)
        .map_err(|error| wrong(&error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_schemes_and_ports() {
        let check = |id: &str, expected: Option<(&str, &str, &str)>| {
            let got = Asked::parse(id).map(|asked| (asked.scheme, asked.name, asked.port));
            assert_eq!(got, expected, "{id}");
        };
        check("a", Some(("", "a", "")));
        check("a:80", Some(("", "a", "80")));
        check("https:a:web", Some(("https", "a", "web")));
        check("https:a:", Some(("https", "a", "")));
        check(":a:80", Some(("", "a", "80")));
        check("ftp:a:80", None);
        check(":80", None);
        check("a:b:c:d", None);
    }

    #[test]
    fn ports_are_named_or_numbered() {
        let service = json!({"spec": {"ports": [{"name": "web", "port": 80}, {"port": 81}]}});
        let check = |port: &str, expected: Result<&str, &str>| {
            let asked = Asked {
                scheme: "",
                name: "s",
                port,
            };
            let got = port_name(&service, asked).map(str::to_string);
            let expected = expected.map(str::to_string).map_err(str::to_string);
            assert_eq!(got.map_err(|error| error.message().to_string()), expected);
        };
        check("web", Ok("web"));
        check("80", Ok("web"));
        check("81", Ok(""));
        check("", Ok(""));
        check("82", Err("no service port 82 found for service \"s\""));
    }

    #[test]
    fn paths_are_cleaned_and_keep_their_final_slash() {
        let check = |rest: &str, whole: &str, expected: &str| {
            assert_eq!(target_path(rest, whole), expected, "{rest}")
        };
        check("", "/api/v1/nodes/n/proxy", "");
        check("", "/api/v1/nodes/n/proxy/", "/");
        check("a/b", "/api/v1/nodes/n/proxy/a/b", "/a/b");
        check("a//b", "/api/v1/nodes/n/proxy/a//b/", "/a/b/");
        check("a/../../b", "/api/v1/nodes/n/proxy/a/../../b", "/b");
    }

    #[test]
    fn locations_lead_through_the_proxy() {
        let check = |location: &'static str, expected: Option<&str>| {
            let headers = HeaderMap::from_iter([(header::LOCATION, HeaderValue::from_static(location))]);
            let got = led_back(&headers, "/api/v1/p/proxy", "10.0.0.1:80", Some("api:6443")).unwrap();
            assert_eq!(
                got.as_ref().map(|value| value.to_str().unwrap()),
                expected,
                "{location}"
            );
        };
        check("/a/b/", Some("/api/v1/p/proxy/a/b/"));
        check("/a?b=c#d", Some("/api/v1/p/proxy/a?b=c#d"));
        check("http://10.0.0.1:80/a", Some("/api/v1/p/proxy/a"));
        check("https://api:6443/a", Some("/api/v1/p/proxy/a"));
        check("/api/v1/p/proxy/a", Some("/api/v1/p/proxy/a"));
        check("https://elsewhere/a", None);
        check("a/b", None);
        check("../b", None);
    }
}
