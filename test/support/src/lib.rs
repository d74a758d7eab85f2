//! Helpers of whole-server tests: a control plane in process, a small client for any kubeconfig, waiting on conditions, and
//! looking for the tools that a machine may have.
//!
//! Not a product: it panics where a test should fail.

mod client;
mod connect_proxy;
mod https;
mod issuer;
mod kubectl;
mod kubelet;
mod upstream;
mod webhook;

pub use client::{Answer, Client, Upgraded, Watch};
pub use connect_proxy::ConnectProxy;
pub use https::{HttpsServer, json_answer};
pub use issuer::{Issuer, Signing, hs256};
pub use kubectl::kubectl;
pub use kubelet::{FILE, Kubelet, own_address};
pub use test_tools::{Cluster, Etcd, PATIENCE, Proxy, eventually, linearizable, named_tool, tool};
pub use upstream::Upstream;
pub use webhook::{Reply, Webhook};

/// A control plane in memory with a client of its administrator.
pub async fn plane() -> (control_plane::ControlPlane, Client) {
    plane_with(|builder| builder).await
}

/// The same with other options.
pub async fn plane_with(
    change: impl FnOnce(control_plane::Builder) -> control_plane::Builder,
) -> (control_plane::ControlPlane, Client) {
    let builder = change(control_plane::ControlPlane::builder().in_memory());
    let plane = builder.start().await.expect("the control plane starts");
    let client = Client::from_kubeconfig(plane.kubeconfig().as_bytes());
    (plane, client)
}
