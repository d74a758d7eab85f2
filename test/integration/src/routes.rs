//! Every route that the server lists asks who the client is and whether it may: all methods of all resources of discovery, and all paths outside the
//! API, as somebody with a wrong credential, as nobody, and as a user without rights. A custom resource and the group of a server that is not there are
//! among them.

use std::sync::Arc;

use control_plane::ControlPlane;
use generic_server::chain::Chain;
use generic_server::request::full;
use http::{Method, Request, StatusCode};
use serde_json::json;
use test_support::{Client, plane_with};

const SOMEBODY: &str = "Bearer of-somebody";
/// Served, and listed nowhere.
const UNLISTED: [&str; 7] = [
    "/version/",
    "/debug/authorization/explain",
    "/debug/authorization/usage",
    "/debug/api_priority_and_fairness/dump_queues",
    "/debug/pprof/",
    "/debug/pprof/profile",
    "/logs/",
];
/// The version of a group that another server has, which cannot be reached: who is refused is so before that is noticed.
const REMOTE: &str = "/apis/remote.example.com/v1";
/// The version of a custom resource.
const CUSTOM: &str = "/apis/custom.example.com/v1";
/// What every authenticated user may do by the first roles of a cluster.
const REVIEWS: [&str; 3] = [
    "selfsubjectaccessreviews",
    "selfsubjectrulesreviews",
    "selfsubjectreviews",
];

/// A request that a route takes.
#[derive(Debug, Clone)]
struct Route {
    method: Method,
    path: String,
    /// Whether every authenticated user may send it, and whether everybody may.
    authenticated: bool,
    everybody: bool,
}

fn method_of(verb: &str) -> Method {
    match verb {
        "create" => Method::POST,
        "update" => Method::PUT,
        "patch" => Method::PATCH,
        "delete" | "deletecollection" => Method::DELETE,
        "get" | "list" | "watch" => Method::GET,
        other => panic!("discovery lists an unknown verb: {other}"),
    }
}

/// The requests that the resources of a group version take.
async fn resources(client: &Client, base: &str, routes: &mut Vec<Route>) {
    let list = client.get(base).await.expect(200);
    for resource in list["resources"].as_array().expect("resources") {
        let name = resource["name"].as_str().expect("a name");
        let (resource_name, subresource) = name.split_once('/').unwrap_or((name, ""));
        let space = match resource["namespaced"].as_bool() {
            Some(true) => "/namespaces/default",
            _ => "",
        };
        let collection = format!("{base}{space}/{resource_name}");
        for verb in resource["verbs"].as_array().expect("verbs") {
            let verb = verb.as_str().expect("a verb");
            let of_collection =
                subresource.is_empty() && matches!(verb, "create" | "list" | "watch" | "deletecollection");
            let path = match (of_collection, subresource) {
                (true, _) => collection.clone(),
                (false, "") => format!("{collection}/some"),
                (false, subresource) => format!("{collection}/some/{subresource}"),
            };
            let path = match verb {
                "watch" => format!("{path}?watch=1&timeoutSeconds=1"),
                _ => path,
            };
            routes.push(Route {
                method: method_of(verb),
                path,
                authenticated: REVIEWS.contains(&name) && verb == "create",
                everybody: false,
            });
        }
    }
}

/// Whether a path outside the API may be read by every authenticated user, and by everybody: as upstream's first roles have it, and the files of the
/// status page.
fn public(path: &str) -> (bool, bool) {
    let health = ["/healthz", "/livez", "/readyz", "/version", "/version/"];
    let below = |root: &str| {
        path.strip_prefix(root)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    let discovery = ["/api", "/apis", "/openapi"].into_iter().any(below);
    let everybody = health.contains(&path) || below("/ui");
    (everybody || discovery, everybody)
}

async fn all_routes(client: &Client) -> Vec<Route> {
    let mut routes = Vec::new();
    let root = client.get("/").await.expect(200);
    let listed = root["paths"].as_array().expect("paths");
    let listed = listed.iter().map(|path| path.as_str().expect("a path"));
    let mut versions = vec!["/api/v1".to_string()];
    for path in listed.chain(UNLISTED) {
        // Its resources are not known.
        if path == REMOTE {
            continue;
        }
        if path.starts_with("/apis/") && path.split('/').count() == 4 {
            versions.push(path.into());
        }
        let (authenticated, everybody) = public(path);
        for method in [
            Method::GET,
            Method::POST,
            Method::PUT,
            Method::DELETE,
            Method::PATCH,
        ] {
            let reads = method == Method::GET;
            routes.push(Route {
                method,
                path: path.into(),
                authenticated: authenticated && reads,
                everybody: everybody && reads,
            });
        }
    }
    assert!(versions.iter().any(|version| version == CUSTOM));
    for version in versions {
        resources(client, &version, &mut routes).await;
    }
    for space in ["", "/namespaces/default"] {
        for rest in ["", "/some", "/some/status", "/some/proxy/deep/er"] {
            let methods = [
                Method::GET,
                Method::POST,
                Method::PUT,
                Method::DELETE,
                Method::PATCH,
            ];
            routes.extend(methods.map(|method| Route {
                method,
                path: format!("{REMOTE}{space}/things{rest}"),
                authenticated: false,
                everybody: false,
            }));
        }
    }
    routes
}

/// Gives the server a custom resource with subresources, and the group of a server that is not there.
async fn extend(client: &Client) {
    let replicas = json!({"type": "object", "properties": {"replicas": {"type": "integer"}}});
    let definition = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.custom.example.com"}, "spec": {"group": "custom.example.com", "scope": "Namespaced",
            "names": {"plural": "widgets", "kind": "Widget"}, "versions": [{"name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": replicas, "status": replicas}}},
                "subresources": {"status": {}, "scale": {"specReplicasPath": ".spec.replicas",
                    "statusReplicasPath": ".status.replicas"}}}]}});
    let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    client.post(path, &definition).await.expect(201);
    let service = json!({"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
        "metadata": {"name": "v1.remote.example.com"}, "spec": {"group": "remote.example.com", "version": "v1",
            "groupPriorityMinimum": 100, "versionPriority": 100, "insecureSkipTLSVerify": true,
            "service": {"name": "nobody", "namespace": "default"}}});
    let path = "/apis/apiregistration.k8s.io/v1/apiservices";
    client.post(path, &service).await.expect(201);
}

async fn send(chain: &Arc<Chain>, route: &Route, authorization: Option<&str>) -> StatusCode {
    let mut request = Request::builder()
        .method(route.method.clone())
        .uri(&route.path)
        .header("content-type", "application/json");
    if let Some(authorization) = authorization {
        request = request.header("authorization", authorization);
    }
    let request = request.body(full("{}")).expect("a request");
    chain.serve(request).await.status()
}

/// Requests that a handler was asked about.
async fn handled(client: &Client) -> u64 {
    let body = client.get("/metrics").await.body;
    let metrics = String::from_utf8(body.to_vec()).expect("text");
    let counts = metrics
        .lines()
        .filter(|line| line.starts_with("apiserver_request_total{"));
    counts
        .map(|line| {
            line.rsplit(' ')
                .next()
                .and_then(|count| count.parse::<u64>().ok())
                .expect("a count")
        })
        .sum()
}

async fn server() -> (ControlPlane, Client, tempfile::TempDir) {
    let folder = tempfile::tempdir().expect("a directory");
    let tokens = folder.path().join("tokens");
    std::fs::write(&tokens, "of-somebody,somebody,1\n").expect("a file");
    let (plane, client) = plane_with(|builder| {
        builder.with(|options| {
            options.token_auth_file = Some(tokens);
            // Controllers would be counted among those that have been served.
            options.controllers = vec!["-*".into()];
        })
    })
    .await;
    (plane, client, folder)
}

#[tokio::test]
async fn every_route_asks_who_and_whether() {
    let (plane, client, _folder) = server().await;
    extend(&client).await;
    let routes = all_routes(&client).await;
    for part in [
        "/widgets/some/status",
        "/widgets/some/scale",
        "/things/some/proxy",
    ] {
        assert!(routes.iter().any(|route| route.path.contains(part)), "{part}");
    }
    assert!(routes.len() > 500, "{} routes are few", routes.len());
    let before = handled(&client).await;
    let mut wrong = Vec::new();
    let mut served = 0;
    for route in &routes {
        let cases = [
            (Some("Bearer wrong"), StatusCode::UNAUTHORIZED, false),
            (None, StatusCode::FORBIDDEN, route.everybody),
            (Some(SOMEBODY), StatusCode::FORBIDDEN, route.authenticated),
        ];
        for (authorization, refusal, allowed) in cases {
            let status = send(plane.chain(), route, authorization).await;
            let refused = matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN);
            served += u64::from(allowed);
            if if allowed { refused } else { status != refusal } {
                wrong.push(format!(
                    "{authorization:?} {} {}: {status}",
                    route.method, route.path
                ));
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "{} of {}:\n{}",
        wrong.len(),
        routes.len(),
        wrong.join("\n")
    );
    // Refused requests reach no handler. The second read of the metrics is counted itself.
    assert_eq!(handled(&client).await, before + served + 1);
    plane.stop().await;
}
