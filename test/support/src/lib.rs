//! Helpers of whole-server tests: a control plane in process, a small client for any kubeconfig, waiting on conditions, and
//! looking for the tools that a machine may have.
//!
//! Not a product: it panics where a test should fail.

mod client;
mod kubectl;
mod upstream;
mod webhook;

use std::future::Future;
use std::time::{Duration, Instant};

pub use client::{Answer, Client, Watch};
pub use kubectl::kubectl;
pub use test_tools::{Etcd, named_tool, tool};
pub use upstream::Upstream;
pub use webhook::{Reply, Webhook};

/// How long a test waits for what should happen soon.
pub const PATIENCE: Duration = Duration::from_secs(60);

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

/// Asks again until the answer is there; fails the test when it does not come.
pub async fn eventually<T, F>(what: &str, mut ask: impl FnMut() -> F) -> T
where
    F: Future<Output = Option<T>>,
{
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(answer) = ask().await {
            return answer;
        }
        assert!(
            Instant::now() < deadline,
            "{what} did not happen within {PATIENCE:?}"
        );
        // The condition is of another task or process; there is nothing to be woken by.
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
