use machinery::{GroupKind, GroupResource, GroupVersionKind, GroupVersionResource, limits};
use serde_json::json;
use storage::{MvccStore, Revision};

use super::*;
use crate::admission::{AdmissionChain, AdmissionPlugin, Operation};
use crate::authz::AlwaysAllow;
use crate::client::egress::EgressSelector;
use crate::directory::Directory;
use crate::registry::cache::{JsonCodec, Prepared, Snapshot};
use crate::registry::config::StoreConfig;
use crate::registry::{Entry, ObjectStore};
use crate::request::Authorized;
use crate::webhook::{Services, WebhookUsers};

/// Creates an object without a namespace and gives the outcome.
pub(super) async fn create(
    plugin: Arc<dyn AdmissionPlugin>,
    group: &str,
    resource: &str,
) -> Result<(), ApiError> {
    let gvk = GroupVersionKind::new(group, "v1", "Any");
    let gvr = GroupVersionResource::new(group, "v1", resource);
    let authorized = Authorized::system();
    let attributes = Attributes {
        authorized: &authorized,
        operation: Operation::Create,
        gvk: &gvk,
        gvr: &gvr,
        subresource: "",
        namespace: "",
        name: "one",
        old: None,
        dry_run: false,
        options: None,
        resource: None,
        rounds: None,
    };
    let chain = AdmissionChain::new(vec![plugin]);
    let mut object = serde_json::json!({"metadata": {"name": "one"}});
    chain.admit(&attributes, Some(&mut object)).await?;
    chain.validate(&attributes, Some(&object)).await
}

/// The answer to a write that comes before what it is decided on.
pub(super) fn not_ready(resource: &str) -> (u16, String) {
    let text = format!("{resource} \"one\" is forbidden: not yet ready to handle request");
    (403, text)
}

/// An object as the cache has it, at a revision.
pub(super) fn entry(mut object: Value, revision: u64) -> Arc<Entry> {
    let config = StoreConfig {
        resource: GroupResource::new("admissionregistration.k8s.io", "configurations"),
        kind: GroupKind::new("admissionregistration.k8s.io", "Configuration"),
        prefix: "/registry/configurations".into(),
        namespaced: false,
        fields: Vec::new(),
        ttl: None,
    };
    object["apiVersion"] = "admissionregistration.k8s.io/v1".into();
    object["kind"] = "Configuration".into();
    let store = ObjectStore::new(MvccStore::memory(), config);
    let prepared = Prepared::from_value(store.config(), &object, &JsonCodec).expect("it can be laid out");
    Arc::new(prepared.finish(Revision(revision)))
}

pub(super) fn snapshot(entries: &[Arc<Entry>]) -> Snapshot {
    let objects = entries
        .iter()
        .map(|entry| (Arc::<str>::from(entry.name()), entry.clone()));
    Snapshot {
        objects: objects.collect(),
        ..Snapshot::default()
    }
}

#[tokio::test(start_paused = true)]
async fn configuration_that_was_never_read_lets_nothing_pass() {
    let directory = Arc::new(Directory::default());
    let authorizer = Arc::new(AlwaysAllow);
    let services = Services::new(directory.clone(), EgressSelector::default());
    let plugins: [Arc<dyn AdmissionPlugin>; 4] = [
        policy::Policies::new(
            policy::Phase::Mutating,
            directory.clone(),
            authorizer.clone(),
            Arc::default(),
        ),
        policy::Policies::new(
            policy::Phase::Validating,
            directory.clone(),
            authorizer.clone(),
            Arc::default(),
        ),
        webhook::Webhooks::new(
            webhook::Phase::Mutating,
            services.clone(),
            authorizer.clone(),
            WebhookUsers::default(),
            Arc::default(),
        ),
        webhook::Webhooks::new(
            webhook::Phase::Validating,
            services,
            authorizer,
            WebhookUsers::default(),
            Arc::default(),
        ),
    ];
    for plugin in plugins {
        let name = plugin.name();
        assert!(!plugin.is_synced(), "{name}");
        let refused = create(plugin.clone(), "", "configmaps").await.unwrap_err();
        let answer = (refused.code(), refused.message().to_string());
        assert_eq!(answer, not_ready("configmaps"), "{name}");
        // Objects that configure a plugin are never blocked by it: a broken configuration must stay removable.
        let group = "admissionregistration.k8s.io";
        let resource = "validatingadmissionpolicies";
        assert!(create(plugin, group, resource).await.is_ok(), "{name}");
    }
}

/// An object of so many bytes, as they count towards the room.
fn of_bytes(name: &str, bytes: usize) -> Arc<Entry> {
    let make = |pad: usize| entry(json!({"metadata": {"name": name}, "pad": "x".repeat(pad)}), 1);
    let made = make(bytes - make(0).untyped().len());
    assert_eq!(made.untyped().len(), bytes);
    made
}

/// How many of these objects are compiled at once.
async fn at_once(sizes: &[usize]) -> usize {
    use std::sync::atomic::{AtomicUsize, Ordering};

    let compiler = compiling::Compiler::of(crate::cpu::Pool::new(1));
    let (started, end) = (
        Arc::new(AtomicUsize::new(0)),
        Arc::new(tokio::sync::Semaphore::new(0)),
    );
    let mut compiled = Vec::new();
    for (index, bytes) in sizes.iter().enumerate() {
        let (started, end) = (started.clone(), end.clone());
        let origin = compiling::Origin::Stored(of_bytes(&format!("o{index}"), *bytes));
        compiled.push(compiler.start(&origin, |_| async move {
            started.fetch_add(1, Ordering::Relaxed);
            end.acquire().await.is_ok()
        }));
    }
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    let first = started.load(Ordering::Relaxed);
    end.add_permits(sizes.len());
    for one in &compiled {
        assert!(
            one.wait(Duration::from_secs(60)).await.is_some(),
            "all get their turn"
        );
    }
    first
}

#[tokio::test]
async fn bytes_that_are_compiled_at_once() {
    const ALL: usize = limits::COMPILED_BYTES;
    assert_eq!(at_once(&[1_000, ALL - 1_000]).await, 2);
    assert_eq!(at_once(&[1_000, ALL - 999]).await, 1);
    assert_eq!(at_once(&[ALL]).await, 1);
    assert_eq!(at_once(&[ALL + 1, 100]).await, 1);
}
