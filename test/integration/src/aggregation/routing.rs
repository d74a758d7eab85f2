//! How aggregated servers are reached: by cluster IP or by endpoints, as which client, and what happens to requests when a
//! server, its connection or the client goes away.

use generic_server::pki::Authority;
use machinery::GroupResource;
use serde_json::{Value, json};
use test_support::{Client, eventually, plane_with};

use super::backend::{Backend, Identity, Speaks, Way};
use super::{SERVICES, api_service, reason};

const CORE_SERVICES: &str = "/api/v1/namespaces/default/services";

/// Puts an EndpointSlice into the store: no client may name loopback addresses in one.
pub(crate) async fn slice(
    plane: &control_plane::ControlPlane,
    service: &str,
    name: &str,
    at: std::net::SocketAddr,
) {
    let slices = GroupResource::new("discovery.k8s.io", "endpointslices");
    let store = plane.directory().get(&slices).expect("its store").store;
    let object = json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
        "metadata": {"name": name, "namespace": "default", "uid": name, "labels": {"kubernetes.io/service-name": service}},
        "endpoints": [{"addresses": [at.ip().to_string()], "conditions": {"ready": true}}],
        "ports": [{"name": "https", "port": at.port(), "protocol": "TCP"}],
    });
    store
        .as_system()
        .insert(&object, None)
        .await
        .expect("it is stored");
}

/// A Service without a cluster network behind it.
async fn service(client: &Client, name: &str) {
    let service = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": name},
        "spec": {"ports": [{"name": "https", "port": 443}]},
    });
    client.post(CORE_SERVICES, &service).await.expect(201);
}

/// A plane that goes by endpoints.
async fn by_endpoints() -> (control_plane::ControlPlane, Client) {
    plane_with(|builder| builder.with(|options| options.enable_aggregator_routing = true)).await
}

/// Registers the group `NAME.io` at the service of this name, and waits until it is served.
async fn register(client: &Client, name: &str, port: u16, authority: &Authority) {
    let group = format!("{name}.io");
    let object = api_service(&group, name, port, Some(&authority.certificate));
    client.post(SERVICES, &object).await.expect(201);
    reason(client, &group, "Passed").await;
    eventually("it is routed to", || async {
        (client.get(&format!("/apis/{group}/v1")).await.status == 200).then_some(())
    })
    .await;
}

fn identity<'a>(authority: &'a Authority, service: &'a str) -> Identity<'a> {
    Identity {
        authority,
        service,
        asks_clients: false,
    }
}

#[tokio::test]
async fn a_cluster_ip_leads_to_its_server() {
    let range = "127.77.0.0/24";
    let (plane, client) =
        plane_with(|builder| builder.with(|options| options.service_cluster_ip_range = range.into())).await;
    let authority = Authority::generate("test").expect("an authority");
    let backend = Backend::start(&identity(&authority, "ip"), "127.77.0.9:0", Speaks::Http2).await;
    let (ip, port) = (backend.address.ip().to_string(), backend.address.port());
    // Of its two ports the one whose number the APIService names.
    let object = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": "ip"},
        "spec": {"clusterIP": ip, "ports": [{"name": "other", "port": 1}, {"name": "https", "port": port}]},
    });
    client.post(CORE_SERVICES, &object).await.expect(201);
    let wrong = api_service("wrong.io", "ip", 2, Some(&authority.certificate));
    client.post(SERVICES, &wrong).await.expect(201);
    let message = reason(&client, "wrong.io", "ServicePortError").await;
    assert_eq!(message, "service/ip in \"default\" is not listening on port 2");
    let right = api_service("ip.io", "ip", port, Some(&authority.certificate));
    client.post(SERVICES, &right).await.expect(201);
    let message = reason(&client, "ip.io", "EndpointsNotFound").await;
    assert_eq!(
        message,
        "cannot find endpointslices for service/ip in \"default\""
    );
    // That there is an endpoint is all that matters of it.
    slice(&plane, "ip", "ip-1", "192.0.2.1:9".parse().expect("an address")).await;
    reason(&client, "ip.io", "Passed").await;
    let answer = eventually("it is routed to", || async {
        let answer = client.get("/apis/ip.io/v1/things").await;
        (answer.status == 200).then_some(answer.json)
    })
    .await;
    assert_eq!(answer["address"], backend.address.to_string());
    plane.stop().await;
}

#[tokio::test]
async fn endpoints_share_the_requests_and_stand_in_for_each_other() {
    let (plane, client) = by_endpoints().await;
    let authority = Authority::generate("test").expect("an authority");
    service(&client, "two").await;
    let one = Backend::start(&identity(&authority, "two"), "127.0.0.1:0", Speaks::Http2).await;
    let other = Backend::start(&identity(&authority, "two"), "127.0.0.1:0", Speaks::Http1).await;
    slice(&plane, "two", "two-1", one.address).await;
    slice(&plane, "two", "two-2", other.address).await;
    register(&client, "two", 443, &authority).await;
    for _ in 0..20 {
        client.get("/apis/two.io/v1/things").await.expect(200);
    }
    assert!(one.asked() > 0 && other.asked() > 0, "both are asked");

    // One dies; its endpoint is still there. No request notices.
    let gone = one.address.to_string();
    drop(one);
    let thing = json!({"apiVersion": "two.io/v1", "kind": "Thing", "metadata": {"name": "a"}});
    for _ in 0..10 {
        let answer = client.get("/apis/two.io/v1/things").await.expect(200);
        assert_eq!(answer["address"], other.address.to_string());
        // A request that cannot have arrived may be retried, too: nothing accepts connections there.
        client.post("/apis/two.io/v1/things", &thing).await.expect(200);
    }
    // It is replaced by one elsewhere, and that is asked without anybody saying so.
    let third = Backend::start(&identity(&authority, "two"), "127.0.0.1:0", Speaks::Http2).await;
    assert_ne!(third.address.to_string(), gone);
    slice(&plane, "two", "two-3", third.address).await;
    eventually("the new one is asked", || async {
        client.get("/apis/two.io/v1/things").await.expect(200);
        (third.asked() > 0).then_some(())
    })
    .await;
    plane.stop().await;
}

#[tokio::test]
async fn a_connection_that_goes_dead_is_found() {
    let (plane, client) = by_endpoints().await;
    let authority = Authority::generate("test").expect("an authority");
    service(&client, "dead").await;
    let backend = Backend::start(&identity(&authority, "dead"), "127.0.0.1:0", Speaks::Http2).await;
    let way = Way::to(backend.address).await;
    slice(&plane, "dead", "dead-1", way.address).await;
    register(&client, "dead", 443, &authority).await;
    client.get("/apis/dead.io/v1/things").await.expect(200);
    let mut watch = client.watch("/apis/dead.io/v1/things?watch=1").await;
    watch.next().await.expect("its event");

    // Nothing is closed, nothing is answered. Waiting requests are retried on another endpoint long before their deadline.
    way.goes_dead();
    let other = Backend::start(&identity(&authority, "dead"), "127.0.0.1:0", Speaks::Http2).await;
    slice(&plane, "dead", "dead-2", other.address).await;
    for _ in 0..4 {
        let answer = client
            .get("/apis/dead.io/v1/things?timeout=30s")
            .await
            .expect(200);
        assert_eq!(answer["address"], other.address.to_string());
    }
    assert!(watch.next().await.is_none(), "the watch ends");
    plane.stop().await;
}

#[tokio::test]
async fn cancelled_requests_and_watches_hold_no_seats() {
    let (plane, client) = by_endpoints().await;
    let authority = Authority::generate("test").expect("an authority");
    for (name, speaks) in [("first", Speaks::Http1), ("second", Speaks::Http2)] {
        service(&client, name).await;
        let backend = Backend::start(&identity(&authority, name), "127.0.0.1:0", speaks).await;
        slice(&plane, name, name, backend.address).await;
        register(&client, name, 443, &authority).await;
        let things = format!("/apis/{name}.io/v1/things");
        let giving_up = tokio::spawn({
            let (client, path) = (client.clone(), format!("{things}/wait"));
            async move { client.get(&path).await }
        });
        let waiting = async |count: usize| {
            eventually("so many wait", || async {
                (backend.waiting() == count).then_some(())
            })
            .await;
        };
        waiting(1).await;
        giving_up.abort();
        waiting(0).await;

        // More than there are seats.
        let mut watches = Vec::new();
        for _ in 0..110 {
            let mut watch = client.watch(&format!("{things}?watch=1")).await;
            watch.next().await.expect("its event");
            watches.push(watch);
        }
        waiting(110).await;
        client.get(&things).await.expect(200);
        drop(watches);
        waiting(0).await;
    }
    plane.stop().await;
}

#[tokio::test]
async fn the_certificate_that_vouches_is_read_again() {
    let authority = Authority::generate("test").expect("an authority");
    let directory = tempfile::tempdir().expect("a directory");
    let files = ["tls.crt", "tls.key"].map(|name| directory.path().join(name));
    let write = |name: &str| -> String {
        let issued = authority.client(name, "proxies").expect("a certificate");
        std::fs::write(&files[0], &issued.certificate).expect("a file");
        std::fs::write(&files[1], &issued.key).expect("a file");
        issued.certificate
    };
    let first = write("first");
    let (plane, client) = plane_with(|builder| {
        builder.with(|options| {
            options.enable_aggregator_routing = true;
            options.proxy_client_cert_file = Some(files[0].clone());
            options.proxy_client_key_file = Some(files[1].clone());
        })
    })
    .await;
    service(&client, "vouched").await;
    let of = Identity {
        asks_clients: true,
        ..identity(&authority, "vouched")
    };
    let backend = Backend::start(&of, "127.0.0.1:0", Speaks::Http2).await;
    slice(&plane, "vouched", "vouched-1", backend.address).await;
    register(&client, "vouched", 443, &authority).await;
    let shown = || {
        use rustls::pki_types::pem::PemObject;
        let seen = backend.seen.client.lock().clone();
        move |pem: &str| {
            seen.as_ref()
                == rustls::pki_types::CertificateDer::from_pem_slice(pem.as_bytes())
                    .ok()
                    .as_ref()
        }
    };
    client.get("/apis/vouched.io/v1/things").await.expect(200);
    assert!(shown()(&first));

    // Half a change is none.
    std::fs::write(&files[0], "not a certificate").expect("a file");
    assert_eq!(plane.reload().await, [""; 0]);
    client.get("/apis/vouched.io/v1/things").await.expect(200);
    let second = write("second");
    assert_eq!(plane.reload().await, ["proxy client certificate"]);
    client.get("/apis/vouched.io/v1/things").await.expect(200);
    assert!(shown()(&second), "at once");
    plane.stop().await;
}

/// An ExternalName that changes is followed.
#[tokio::test]
async fn an_external_name_is_followed() {
    let (plane, client) = plane_with(|builder| builder).await;
    let authority = Authority::generate("test").expect("an authority");
    let backend = Backend::start(&identity(&authority, "out"), "127.0.0.1:0", Speaks::Http1).await;
    let named = |host: &str| {
        json!({
            "apiVersion": "v1", "kind": "Service", "metadata": {"name": "out"},
            "spec": {"type": "ExternalName", "externalName": host},
        })
    };
    client
        .post(CORE_SERVICES, &named("nowhere.invalid"))
        .await
        .expect(201);
    let port = backend.address.port();
    let object = api_service("out.io", "out", port, Some(&authority.certificate));
    client.post(SERVICES, &object).await.expect(201);
    let message = reason(&client, "out.io", "FailedDiscoveryCheck").await;
    assert!(
        message.contains("dial tcp: lookup nowhere.invalid: no such host"),
        "{message}"
    );
    let moved: Value = json!({"spec": {"externalName": "localhost"}});
    client
        .patch(&format!("{CORE_SERVICES}/out"), "merge-patch+json", &moved)
        .await
        .expect(200);
    reason(&client, "out.io", "Passed").await;
    eventually("it is routed to", || async {
        (client.get("/apis/out.io/v1/things").await.status == 200).then_some(())
    })
    .await;
    plane.stop().await;
}
