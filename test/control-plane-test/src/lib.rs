//! A control plane for each test: in memory, on a port of its own, stopped when the test ends. When the test fails, what was asked of the
//! plane is printed with its output.
//!
//! ```no_run
//! use k8s_openapi::api::core::v1::Namespace;
//! use kube::Api;
//!
//! # async fn test() {
//! let plane = control_plane_test::plane().await;
//! let namespaces: Api<Namespace> = Api::all(plane.kube());
//! assert!(namespaces.get_opt("default").await.expect("an answer").is_some());
//! # }
//! ```
//!
//! `docs/testing-operators.md` has a whole controller with its test. Not a product: it panics where a test should fail.

mod record;

use std::ops::Deref;
use std::sync::Arc;

use control_plane::{Builder, ControlPlane, Snapshot, User, administrator};
use record::{Record, Recorded};

/// A running control plane and the record of what was asked of it. Everything of [`ControlPlane`] is there, too.
#[derive(Debug)]
pub struct Plane {
    plane: ControlPlane,
    record: Arc<Record>,
}

/// A control plane in memory.
///
/// # Panics
/// When it cannot start.
pub async fn plane() -> Plane {
    plane_with(|builder| builder).await
}

/// The same with more: objects, definitions of custom resources, options.
///
/// # Panics
/// When it cannot start, for which the message says why.
pub async fn plane_with(change: impl FnOnce(Builder) -> Builder) -> Plane {
    Plane::start(change(ControlPlane::builder().in_memory())).await
}

/// What tests have in common, made once: each test forks it, in milliseconds however much there is. It is kept in a static, since it belongs to
/// no runtime:
///
/// ```no_run
/// use control_plane_test::{Plane, Prepared};
/// use tokio::sync::OnceCell;
///
/// async fn plane() -> Plane {
///     static PREPARED: OnceCell<Prepared> = OnceCell::const_new();
///     let prepare = || Prepared::by(|builder| builder.manifests("config/crd"));
///     PREPARED.get_or_init(prepare).await.fork().await
/// }
/// ```
#[derive(Debug, Clone)]
pub struct Prepared(Snapshot);

impl Prepared {
    /// With what the builder is given.
    ///
    /// # Panics
    /// When the plane cannot start.
    pub async fn by(change: impl FnOnce(Builder) -> Builder) -> Prepared {
        plane_with(change).await.prepared().await
    }

    /// A plane of its own for a test.
    ///
    /// # Panics
    /// When it cannot start.
    pub async fn fork(&self) -> Plane {
        Plane::start(self.0.builder().without_layers()).await
    }

    /// The state, for [`ControlPlane::reset_to`].
    pub fn snapshot(&self) -> &Snapshot {
        &self.0
    }
}

impl Plane {
    async fn start(builder: Builder) -> Plane {
        let record = Arc::new(Record::default());
        match builder.layer(Recorded::by(record.clone())).start().await {
            Ok(plane) => Plane { plane, record },
            Err(error) => panic!("the control plane does not start: {error}"),
        }
    }

    /// The state that it is in, for other tests.
    ///
    /// # Panics
    /// When it is being stopped.
    pub async fn prepared(&self) -> Prepared {
        match self.plane.snapshot().await {
            Ok(snapshot) => Prepared(snapshot),
            Err(error) => panic!("the control plane cannot be kept: {error}"),
        }
    }

    /// An independent plane with the same objects, revisions and history, and a record of its own.
    ///
    /// # Panics
    /// When it cannot start.
    pub async fn fork(&self) -> Plane {
        self.prepared().await.fork().await
    }

    /// A client of the administrator, without a socket.
    ///
    /// # Panics
    /// Never for a plane that runs.
    pub fn kube(&self) -> kube::Client {
        self.kube_as(&administrator())
    }

    /// A client of another user, who may do what RBAC says.
    ///
    /// # Panics
    /// Never for a plane that runs.
    pub fn kube_as(&self, user: &User) -> kube::Client {
        match self.plane.client(user) {
            Ok(client) => client,
            Err(error) => panic!("no client: {error}"),
        }
    }

    /// The latest requests and their answers, a line each, oldest first.
    pub fn requests(&self) -> Vec<String> {
        self.record.lines()
    }
}

impl Deref for Plane {
    type Target = ControlPlane;

    fn deref(&self) -> &ControlPlane {
        &self.plane
    }
}

impl Drop for Plane {
    #[allow(
        clippy::print_stderr,
        reason = "the harness shows what a failed test prints by these macros alone"
    )]
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("The latest requests to the control plane of this test:");
            self.record.lines().iter().for_each(|line| eprintln!("  {line}"));
        }
    }
}
