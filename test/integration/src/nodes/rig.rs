//! A control plane with a node whose kubelet is a stand-in.

use std::net::{IpAddr, Ipv4Addr};

use control_plane::ControlPlane;
use generic_server::streaming::websocket::{End, Event, Reader, Writer};
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use test_support::{Client, Kubelet, eventually, plane_with};
use tokio::io::{ReadHalf, WriteHalf};

pub(super) const NAMESPACE: &str = "/api/v1/namespaces/default";

pub(super) struct Rig {
    pub(super) plane: ControlPlane,
    pub(super) client: Client,
    pub(super) kubelet: Kubelet,
}

/// A node at an address, with the port of its kubelet.
pub(super) fn node(name: &str, address: IpAddr, port: u16) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": name},
        "status": {
            "addresses": [{"type": "InternalIP", "address": address.to_string()}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": port}},
        },
    })
}

/// A pod on a node, or on none, with these containers.
pub(super) fn pod(name: &str, node: &str, containers: &[&str]) -> Value {
    let containers: Vec<Value> = containers
        .iter()
        .map(|container| json!({"name": container, "image": "i", "ports": [{"containerPort": 80}]}))
        .collect();
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
        "spec": {"nodeName": node, "automountServiceAccountToken": false, "containers": containers},
    })
}

impl Rig {
    /// One with the node `n1` on the loopback address, and the pod `p` with the container `c`.
    pub(super) async fn start() -> Self {
        Self::start_with(|builder, _| builder).await
    }

    pub(super) async fn start_with(
        change: impl FnOnce(control_plane::Builder, &Kubelet) -> control_plane::Builder,
    ) -> Self {
        let kubelet = Kubelet::start().await;
        let (plane, client) = plane_with(|builder| change(builder, &kubelet)).await;
        let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}});
        client
            .post(&format!("{NAMESPACE}/serviceaccounts"), &account)
            .await;
        let rig = Rig {
            plane,
            client,
            kubelet,
        };
        let made = node("n1", Ipv4Addr::LOCALHOST.into(), rig.kubelet.port());
        rig.client.post("/api/v1/nodes", &made).await.expect(201);
        rig.add(&pod("p", "n1", &["c"])).await;
        rig
    }

    pub(super) async fn add(&self, pod: &Value) {
        self.client
            .post(&format!("{NAMESPACE}/pods"), pod)
            .await
            .expect(201);
    }

    /// Waits until nothing is connected to the kubelet.
    pub(super) async fn is_free(&self) {
        eventually("no connection to the kubelet is left", || async {
            (self.kubelet.connections() == 0).then_some(())
        })
        .await;
    }

    /// A WebSocket to a path, or the status and text of the refusal; and the subprotocol that was chosen.
    pub(super) async fn websocket(
        &self,
        path: &str,
        protocols: &str,
    ) -> Result<(Socket, String), (u16, String)> {
        let headers = [
            ("upgrade", "websocket"),
            ("sec-websocket-version", "13"),
            ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
            ("sec-websocket-protocol", protocols),
        ];
        match self.client.upgrade("GET", path, &headers).await {
            Ok(upgraded) => {
                let chosen = upgraded.headers.get("sec-websocket-protocol");
                let chosen = chosen.map(|name| name.to_str().expect("text").to_string());
                Ok((Socket::new(upgraded.io), chosen.unwrap_or_default()))
            }
            Err(answer) => Err((answer.status, String::from_utf8_lossy(&answer.body).into_owned())),
        }
    }
}

/// The client's end of a WebSocket.
pub(super) struct Socket {
    pub(super) reader: Reader<ReadHalf<TokioIo<Upgraded>>>,
    pub(super) writer: Writer<WriteHalf<TokioIo<Upgraded>>>,
}

impl Socket {
    fn new(io: TokioIo<Upgraded>) -> Self {
        let (from, to) = tokio::io::split(io);
        Socket {
            reader: Reader::new(from, End::Server),
            writer: Writer::new(to, End::Client),
        }
    }

    /// Everything until the server says that it is done, by the channel that each message begins with.
    pub(super) async fn channels(&mut self) -> [String; 5] {
        let mut all: [Vec<u8>; 5] = Default::default();
        let mut channel = 0;
        let reading = async {
            loop {
                match self.reader.next().await.expect("an event") {
                    Some(Event::Data { mut bytes, first, .. }) => {
                        if first {
                            channel = usize::from(bytes.split_to(1)[0]);
                        }
                        all[channel].extend_from_slice(&bytes);
                    }
                    Some(Event::Close(status)) => break assert_eq!(status, Some(1000)),
                    Some(_) => {}
                    None => panic!("the end is not said"),
                }
            }
        };
        tokio::time::timeout(test_support::PATIENCE, reading)
            .await
            .expect("an end in time");
        all.map(|bytes| String::from_utf8(bytes).expect("text"))
    }
}
