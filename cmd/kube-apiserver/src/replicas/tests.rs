use generic_server::pki::ServingNames;
use serde_json::json;
use storage::{MvccStore, RangeRequest, Store};
use test_support::{Client, Etcd, eventually};
use test_tools::Cluster;

use super::*;
use crate::ControlPlane;

fn stores() -> (Arc<MvccStore>, StorageFactory) {
    let engine = MvccStore::memory();
    (engine.clone(), StorageFactory::new(engine))
}

fn opened(directory: &Path) -> Pki {
    Pki::open(directory, &ServingNames::default()).expect("it can be opened")
}

#[tokio::test]
async fn replicas_have_one_identity_whoever_is_first() {
    let (engine, stores) = stores();
    let directories: Vec<_> = (0..5)
        .map(|_| tempfile::tempdir().expect("a directory"))
        .collect();
    let all = directories
        .iter()
        .map(|dir| agree(&stores, "etcd", "/registry", dir.path()));
    futures_util::future::try_join_all(all).await.expect("they agree");
    let first = opened(directories[0].path());
    for dir in &directories[1..] {
        let other = opened(dir.path());
        assert_eq!(other.ca.certificate, first.ca.certificate);
        assert_eq!(other.front_proxy_ca.certificate, first.front_proxy_ca.certificate);
        assert_eq!(other.service_account_key, first.service_account_key);
        assert_ne!(
            other.serving.key, first.serving.key,
            "what shows who one is stays one's own"
        );
    }
    let request = RangeRequest {
        prefix: "/registry/".into(),
        ..RangeRequest::default()
    };
    let found = engine.range(request).await.expect("the engine is there");
    assert_eq!(
        (found.count, found.revision.0),
        (1, found.kvs[0].mod_revision.0),
        "written once"
    );
    assert_eq!(&*found.kvs[0].key, "/registry/_servers/pki");
    // Another start writes nothing.
    agree(&stores, "etcd", "/registry", directories[0].path())
        .await
        .expect("they agree");
    assert_eq!(engine.fresh().await.expect("there"), found.revision);
}

#[tokio::test]
async fn stored_values_that_are_invalid_are_refused() {
    let (engine, stores) = stores();
    let dir = tempfile::tempdir().expect("a directory");
    let ops = vec![Op::Put {
        key: "/registry/_servers/pki".into(),
        value: "{}".into(),
        ttl: None,
    }];
    engine.commit(Txn { guards: vec![], ops }).await.expect("stored");
    let error = agree(&stores, "etcd", "/registry", dir.path())
        .await
        .expect_err("it is no identity");
    assert!(error.to_string().contains("/registry/_servers/pki"), "{error}");
    assert!(!dir.path().join("ca.crt").exists());
}

async fn replica(url: String, dir: &Path) -> (ControlPlane, Client) {
    let builder = ControlPlane::builder().on_free_port().data_dir(dir);
    let builder = builder.with(|options| options.etcd_servers = vec![url]);
    let plane = builder.start().await.expect("it starts");
    let client = Client::from_kubeconfig(plane.kubeconfig().as_bytes());
    (plane, client)
}

const ROOT_CA: &str = "/api/v1/namespaces/default/configmaps/kube-root-ca.crt";
const TOKENS: &str = "/api/v1/namespaces/default/serviceaccounts/default/token";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_commands_make_a_pair() {
    let Some(etcd) = Etcd::start().await else { return };
    let (one_dir, other_dir) = (
        tempfile::tempdir().expect("a directory"),
        tempfile::tempdir().expect("a directory"),
    );
    let (one, client) = replica(etcd.url(), one_dir.path()).await;
    let (other, other_client) = replica(etcd.url(), other_dir.path()).await;
    // The certificate of one's administrator is good at the other, whose certificate its authority vouches for.
    let crossed = one.kubeconfig().replace(&one.url(), &other.url());
    let crossed = Client::from_kubeconfig(crossed.as_bytes());
    crossed.get("/api/v1/namespaces").await.expect(200);
    // So is a token.
    let made = eventually("the service account is there", || async {
        let asked = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}});
        client
            .try_post(TOKENS, &asked)
            .await
            .ok()
            .filter(|answer| answer.status == 201)
    })
    .await;
    let token = made.json["status"]["token"]
        .as_str()
        .expect("a token")
        .to_string();
    let review =
        json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token}});
    let reviewed = other_client
        .post("/apis/authentication.k8s.io/v1/tokenreviews", &review)
        .await
        .expect(201);
    assert_eq!(reviewed["status"]["authenticated"], true, "{reviewed}");
    // Neither rewrites the certificate of the other.
    let map = eventually("the certificate is published", || async {
        let answer = client.get(ROOT_CA).await;
        (answer.status == 200).then_some(answer.json)
    })
    .await;
    let marker = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "marker"}});
    for client in [&client, &other_client] {
        let namespace =
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"generateName": "more-"}});
        let made = client.post("/api/v1/namespaces", &namespace).await.expect(201);
        let name = made["metadata"]["name"].as_str().expect("a name").to_string();
        for client in [client, &other_client] {
            eventually("it is published in a new namespace", || async {
                let path = format!("/api/v1/namespaces/{name}/configmaps/kube-root-ca.crt");
                (client.get(&path).await.status == 200).then_some(())
            })
            .await;
        }
    }
    client
        .post("/api/v1/namespaces/default/configmaps", &marker)
        .await
        .expect(201);
    let after = other_client.get(ROOT_CA).await.expect(200);
    assert_eq!(
        after["metadata"]["resourceVersion"],
        map["metadata"]["resourceVersion"]
    );
    other.stop().await;
    one.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_alarm_of_etcd_does_not_keep_a_server_from_starting() {
    let quota = vec!["--quota-backend-bytes".into(), (16 << 20).to_string()];
    let Some(etcd) = Cluster::start_with(1, "http", quota).await else {
        return;
    };
    let url = etcd.endpoints().swap_remove(0);
    let dir = tempfile::tempdir().expect("a directory");
    let (plane, client) = replica(url.clone(), dir.path()).await;
    let map = |name: &str| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}});
    let maps = "/api/v1/namespaces/default/configmaps";
    client.post(maps, &map("one")).await.expect(201);
    plane.stop().await;

    let options = storage::EtcdOptions {
        endpoints: vec![url.clone()],
        ..storage::EtcdOptions::default()
    };
    let engine = storage::open_etcd(&options).expect("it is there");
    let mut refused = None;
    for n in 0..64 {
        let put = Op::Put {
            key: format!("/filler/{n}"),
            value: vec![0u8; 1 << 20].into(),
            ttl: None,
        };
        let txn = Txn {
            guards: vec![],
            ops: vec![put],
        };
        if let Err(error) = engine.commit(txn).await {
            refused = Some(error);
            break;
        }
    }
    assert!(matches!(refused, Some(StorageError::NoSpace(_))), "{refused:?}");
    engine.shutdown().await;

    let (plane, client) = replica(url, dir.path()).await;
    client.get(&format!("{maps}/one")).await.expect(200);
    client.post(maps, &map("two")).await.expect(507);
    // Deletions are allowed.
    client.delete(&format!("{maps}/one")).await.expect(200);
    plane.stop().await;
}
