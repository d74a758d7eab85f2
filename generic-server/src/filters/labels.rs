//! Labels of `apiserver_request_total` and its kin: upstream's, without names that nothing is
//! routed by.

use crate::metrics::Labels;
use crate::request::Routed;
use crate::request_info::{RequestInfo, query_value};

/// The labels of a request, by its head.
pub(crate) fn of_head<'a>(
    info: &'a RequestInfo,
    method: &http::Method,
    headers: &http::HeaderMap,
    uri: &http::Uri,
    agent: &'a str,
) -> Labels<'a> {
    let apply = headers
        .get(http::header::CONTENT_TYPE)
        .is_some_and(|kind| kind.as_bytes().starts_with(b"application/apply-patch"));
    of(info, method, uri.query().unwrap_or_default(), apply, agent)
}

/// The labels of a request.
fn of<'a>(
    info: &'a RequestInfo,
    head: &http::Method,
    query: &str,
    apply: bool,
    agent: &'a str,
) -> Labels<'a> {
    let connect = info.is_resource
        && matches!(
            &*info.subresource,
            "proxy" | "exec" | "attach" | "portforward" | "log"
        );
    let verb = match &*info.verb {
        _ if connect => "CONNECT",
        "watch" => "WATCH",
        "list" => "LIST",
        "deletecollection" => "DELETECOLLECTION",
        "patch" if apply => "APPLY",
        _ => match *head {
            http::Method::GET | http::Method::HEAD => "GET",
            http::Method::POST => "POST",
            http::Method::PUT => "PUT",
            http::Method::PATCH => "PATCH",
            http::Method::DELETE => "DELETE",
            _ => "other",
        },
    };
    let dry_run = match query.contains("dryRun").then(|| query_value(query, "dryRun")) {
        Some(Some(value)) if value == "All" => "All",
        Some(Some(_)) => "invalid",
        _ => "",
    };
    with(info, verb, dry_run, agent)
}

/// The labels of a request whose verb and dry run are known.
pub(crate) fn with<'a>(
    info: &'a RequestInfo,
    verb: &'static str,
    dry_run: &'static str,
    agent: &'a str,
) -> Labels<'a> {
    let scope = if !info.name.is_empty() || info.verb == "create" {
        "resource"
    } else if !info.namespace.is_empty() {
        "namespace"
    } else if info.is_resource {
        "cluster"
    } else {
        ""
    };
    let known = [
        "kube-apiserver",
        "kube-controller-manager",
        "kube-scheduler",
        "cluster-policy-controller",
    ];
    let name = agent.split_once('/').map_or("", |(name, _)| name);
    let client = if known.contains(&name) { name } else { "" };
    // Upstream counts paths outside the API under their first segment as a subresource.
    let subresource = if info.is_resource {
        &*info.subresource
    } else {
        known_path(&info.path)
    };
    Labels {
        verb,
        dry_run,
        group: &info.group,
        version: &info.version,
        resource: &info.resource,
        subresource,
        scope,
        client,
    }
}

/// The same, without the names that nothing is routed by.
pub(crate) fn routed<'a>(mut labels: Labels<'a>, info: &RequestInfo, routed: Routed) -> Labels<'a> {
    // Paths outside the API are labelled by what is known of them.
    if !info.is_resource {
        return labels;
    }
    if routed < Routed::Everything {
        labels.subresource = "";
    }
    if routed < Routed::Resource {
        labels.resource = "";
    }
    if routed < Routed::GroupVersion {
        (labels.group, labels.version) = ("", "");
    }
    labels
}

fn known_path(path: &str) -> &str {
    for known in [
        "/livez",
        "/readyz",
        "/healthz",
        "/metrics",
        "/version",
        "/openapi/v2",
        "/openapi/v3",
    ] {
        if path.starts_with(known) {
            return known;
        }
    }
    ""
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::metrics::{MAX_SERIES, Metrics};

    fn count(metrics: &Metrics, path: &str, code: u16) {
        count_routed(metrics, path, code, Routed::Everything);
    }

    fn count_routed(metrics: &Metrics, path: &str, code: u16, routed: Routed) {
        let method = http::Method::GET;
        let info = crate::request_info::resolve(&method, &path.parse().unwrap()).unwrap();
        let labels = of(&info, &method, "", false, "kubectl/v1");
        metrics
            .request(super::routed(labels, &info, routed))
            .done(crate::metrics::Outcome {
                code,
                took: Duration::from_millis(7),
                waited: Duration::ZERO,
                size: Some(5),
            });
    }

    #[test]
    fn requests_are_counted_by_verb_and_resource() {
        let metrics = Metrics::default();
        count(&metrics, "/api/v1/namespaces/a/pods", 200);
        count(&metrics, "/api/v1/namespaces/b/pods", 200);
        count(&metrics, "/api/v1/pods", 403);
        let text = metrics.render();
        let namespaced = "verb=\"LIST\",dry_run=\"\",group=\"\",version=\"v1\",resource=\"pods\",subresource=\"\",scope=\"namespace\"";
        assert!(
            text.contains(&format!(
                "apiserver_request_total{{{namespaced},system_client=\"\",component=\"apiserver\",code=\"200\"}} 2\n"
            )),
            "{text}"
        );
        for line in [
            format!(
                "apiserver_request_duration_seconds_bucket{{{namespaced},component=\"apiserver\",le=\"0.005\"}} 0\n"
            ),
            format!(
                "apiserver_request_duration_seconds_bucket{{{namespaced},component=\"apiserver\",le=\"+Inf\"}} 2\n"
            ),
            format!("apiserver_request_duration_seconds_count{{{namespaced},component=\"apiserver\"}} 2\n"),
        ] {
            assert!(text.contains(&line), "{line}\n{text}");
        }
    }

    #[test]
    fn unrouted_paths_are_no_labels() {
        #[track_caller]
        fn check(routed: Routed, path: &str, expected: [&str; 4]) {
            let metrics = Metrics::default();
            count_routed(&metrics, path, 404, routed);
            let text = metrics.render();
            let names = ["group", "version", "resource", "subresource"];
            let labels: Vec<String> = names
                .iter()
                .zip(expected)
                .map(|(n, v)| format!("{n}={v:?}"))
                .collect();
            assert!(text.contains(&labels.join(",")), "{path}: {text}");
        }
        let path = "/apis/g/v1/namespaces/a/r/b/s";
        check(Routed::Nothing, path, ["", "", "", ""]);
        check(Routed::GroupVersion, path, ["g", "v1", "", ""]);
        check(Routed::Resource, path, ["g", "v1", "r", ""]);
        check(Routed::Everything, path, ["g", "v1", "r", "s"]);
        check(Routed::Nothing, "/api//r/b/s", ["", "", "", ""]);
        check(Routed::Nothing, "/readyz/invented", ["", "", "", "/readyz"]);
        check(Routed::Nothing, "/invented/a/b", ["", "", "", ""]);
    }

    #[test]
    fn series_are_bounded() {
        let metrics = Metrics::default();
        for n in 0..MAX_SERIES + 50 {
            count(&metrics, &format!("/apis/g{n}/v1/things"), 404);
        }
        let text = metrics.render();
        let series = text
            .lines()
            .filter(|line| line.starts_with("apiserver_request_total{"));
        assert!(series.count() <= MAX_SERIES + 1);
        assert!(text.contains("resource=\"other\""));
    }
}
