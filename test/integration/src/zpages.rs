//! Pages about the server itself.

use test_support::{Client, plane, plane_with};

#[tokio::test]
async fn the_server_says_since_when_it_runs() {
    let (plane, client) = plane().await;
    let text = client.get("/statusz").await;
    assert_eq!(text.headers["content-type"], "text/plain; charset=utf-8");
    let text = String::from_utf8_lossy(&text.body).into_owned();
    assert!(text.starts_with("\napiserver statusz\nWarning: "), "{text}");
    assert!(text.contains("\nBinary version: 1.36.2\n"), "{text}");
    let asks = |accept: &str| Client::from_kubeconfig(plane.kubeconfig().as_bytes()).header("accept", accept);
    let media = "application/json;g=config.k8s.io;v=v1beta1;as=Statusz";
    let object = asks(media).get("/statusz").await;
    assert_eq!(object.headers["content-type"], media);
    let object = object.expect(200);
    assert_eq!(
        (&object["kind"], &object["metadata"]["name"]),
        (&"Statusz".into(), &"apiserver".into())
    );
    let old = asks("application/yaml;g=config.k8s.io;v=v1alpha1;as=Statusz")
        .get("/statusz")
        .await;
    assert!(
        old.headers["warning"]
            .to_str()
            .expect("text")
            .contains("deprecated")
    );
    let refused = asks("application/json").get("/statusz").await.expect(406);
    assert_eq!(
        refused["message"],
        "only the following media types are accepted: application/json, application/yaml, text/plain"
    );
    let stranger = client.anonymous(plane.ca_certificate());
    stranger.get("/statusz").await.expect(403);
    stranger.get("/metrics/slis").await.expect(403);
}

#[tokio::test]
async fn statusz_has_a_gate() {
    let (_plane, client) = plane_with(|builder| {
        builder.with(|options| options.feature_gates = vec!["ComponentStatusz=false".into()])
    })
    .await;
    client.get("/statusz").await.expect(404);
}

#[tokio::test]
async fn outcomes_of_health_checks_are_counted() {
    let (_plane, client) = plane().await;
    for _ in 0..2 {
        client.get("/livez?exclude=log").await.expect(200);
    }
    let metrics = client.get("/metrics/slis").await;
    let metrics = String::from_utf8_lossy(&metrics.body).into_owned();
    let has = |line: &str| metrics.lines().any(|known| known == line);
    assert!(
        has("kubernetes_healthcheck{name=\"ping\",type=\"livez\"} 1"),
        "{metrics}"
    );
    assert!(
        has("kubernetes_healthchecks_total{name=\"ping\",status=\"success\",type=\"livez\"} 2"),
        "{metrics}"
    );
    assert!(!metrics.contains("name=\"log\",type=\"livez\""), "{metrics}");
}
