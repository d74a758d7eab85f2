//! Reading and writing objects as the server itself, shared by bootstrap, admission and the controllers. Writes run the
//! whole write path but admission; nothing here is reachable by a request that was not authorized.

use std::sync::Arc;

use generic_server::admission::AdmissionChain;
use generic_server::directory::Directory;
use generic_server::directory::Registered;
use generic_server::registry::Entry;
use generic_server::registry::cache::Unreadable;
use generic_server::registry::strategy::Strategy;
use generic_server::resource::Subresource;
use generic_server::write::{self, DeleteOptions, Deleted, Stored, UpdateRules, WriteCall};
use generic_server::{ApiError, Authorized};
use machinery::time::Timestamp;
use machinery::{GroupResource, Reason};
use serde_json::{Value, json};

use crate::json::Json;

/// The server's own access to every resource of the process.
#[derive(Debug, Clone)]
pub(crate) struct Client {
    directory: Arc<Directory>,
    authorized: Authorized,
    none: AdmissionChain,
}

/// A strategy without rules: for writes that have been checked otherwise.
#[derive(Debug)]
struct Anything;

impl Strategy for Anything {}

/// A resource by group and plural name.
pub(crate) type At<'a> = (&'a str, &'a str);

impl Client {
    pub(crate) fn new(directory: Arc<Directory>) -> Self {
        Client {
            directory,
            authorized: Authorized::system(),
            none: AdmissionChain::default(),
        }
    }

    pub(crate) fn directory(&self) -> &Arc<Directory> {
        &self.directory
    }

    /// The store of a resource; 404 when it is not served.
    pub(crate) fn resource(&self, (group, resource): At<'_>) -> Result<Registered, ApiError> {
        self.directory
            .get(&GroupResource::new(group, resource))
            .ok_or_else(ApiError::no_such_path)
    }

    /// An object as it is cached, no older than any write acknowledged before the call.
    pub(crate) async fn entry(
        &self,
        at: At<'_>,
        namespace: &str,
        name: &str,
    ) -> Result<Option<Arc<Entry>>, ApiError> {
        self.resource(at)?.store.as_system().find(namespace, name).await
    }

    /// An object.
    pub(crate) async fn find(
        &self,
        at: At<'_>,
        namespace: &str,
        name: &str,
    ) -> Result<Option<Value>, ApiError> {
        Ok(self.entry(at, namespace, name).await?.map(|entry| entry.value()))
    }

    /// Every object of a resource that can be read, of one namespace where one is named. The log has those that cannot, from when
    /// the cache found them. For defaults, aggregation and warnings: one damaged object does not stop its kind.
    pub(crate) async fn list_readable(
        &self,
        at: At<'_>,
        namespace: &str,
    ) -> Result<Vec<Arc<Entry>>, ApiError> {
        let (entries, _) = list_of(&self.resource(at)?, namespace).await?;
        Ok(entries)
    }

    /// Whether an object is there and cannot be read.
    pub(crate) async fn is_unreadable(
        &self,
        at: At<'_>,
        namespace: &str,
        name: &str,
    ) -> Result<bool, ApiError> {
        let registered = self.resource(at)?;
        let snapshot = registered.store.as_system().fresh().await?;
        let key = registered.store.key(namespace, name);
        Ok(snapshot.unreadable.contains_key(key.as_str()))
    }

    /// Every object of a resource, of one namespace where one is named. All of them or an error, for what limits or protects
    /// (quotas, limit ranges, disruption budgets): an object that cannot be read must not be taken for one that is not there.
    pub(crate) async fn list(&self, at: At<'_>, namespace: &str) -> Result<Vec<Arc<Entry>>, ApiError> {
        let registered = self.resource(at)?;
        let (entries, unreadable) = list_of(&registered, namespace).await?;
        if unreadable.is_empty() {
            return Ok(entries);
        }
        match registered
            .store
            .as_system()
            .unreadable_in_list(&unreadable)
            .await?
        {
            Some(error) => Err(error),
            None => Err(ApiError::server_timeout(
                &GroupResource::new(at.0, at.1),
                "list",
                1,
            )),
        }
    }

    /// Creates an object; gives false when there is one of that name.
    pub(crate) async fn create(&self, at: At<'_>, namespace: &str, object: Value) -> Result<bool, ApiError> {
        Ok(self.create_entry(at, namespace, object).await?.is_some())
    }

    /// Creates an object and gives it as it is stored; `None` when there is one of that name.
    pub(crate) async fn create_entry(
        &self,
        at: At<'_>,
        namespace: &str,
        mut object: Value,
    ) -> Result<Option<Arc<Entry>>, ApiError> {
        let registered = self.resource(at)?;
        let resource = &registered.resource;
        resource.strategy.default(&mut object);
        let call = WriteCall::internal(resource, &self.authorized, &self.none, namespace);
        match write::create(&call, object).await {
            Ok(Stored::Entry(entry)) => Ok(Some(entry)),
            Ok(Stored::Value(_)) => Err(ApiError::internal("an object that was created is not stored")),
            Err(error) if error.reason() == Reason::AlreadyExists => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Changes an object, through a subresource where one is named. The change is applied to the newest state, and again after
    /// a conflict.
    pub(crate) async fn update(
        &self,
        at: At<'_>,
        namespace: &str,
        name: &str,
        subresource: &str,
        change: impl FnMut(&mut Value) -> Result<(), ApiError> + Send,
    ) -> Result<(), ApiError> {
        self.write(at, namespace, name, subresource, None, change).await
    }

    async fn write(
        &self,
        at: At<'_>,
        namespace: &str,
        name: &str,
        subresource: &str,
        strategy: Option<&dyn Strategy>,
        mut change: impl FnMut(&mut Value) -> Result<(), ApiError> + Send,
    ) -> Result<(), ApiError> {
        let registered = self.resource(at)?;
        let resource = &registered.resource;
        let mut call = WriteCall::internal(resource, &self.authorized, &self.none, namespace);
        call.subresource = subresource;
        if let Some(Subresource::View(strategy)) = resource.subresource(subresource) {
            call.strategy = &**strategy;
        }
        if let Some(strategy) = strategy {
            call.strategy = strategy;
        }
        let missing = ApiError::not_found(&resource.gvr.group_resource(), name);
        let rules = UpdateRules {
            retry: true,
            ..UpdateRules::default()
        };
        let mut transform = |live: Option<&Value>| -> Result<Value, ApiError> {
            // It names the version that was read, which kinds without unconditional updates insist on.
            let mut object = live.cloned().ok_or_else(|| missing.clone())?;
            change(&mut object)?;
            Ok(object)
        };
        write::update(&call, name, &rules, &mut transform).await?;
        Ok(())
    }

    /// Changes a pod as the binding of it may: its node, labels and status in one write, without the rules for updates.
    pub(crate) async fn assign(
        &self,
        namespace: &str,
        name: &str,
        change: impl FnMut(&mut Value) -> Result<(), ApiError> + Send,
    ) -> Result<(), ApiError> {
        self.write(("", "pods"), namespace, name, "binding", Some(&Anything), change)
            .await
    }

    /// Deletes a pod that is evicted, and sets its condition when it stays for its grace period. In a dry run only whether it could be
    /// deleted is found out.
    pub(crate) async fn disrupt(
        &self,
        namespace: &str,
        name: &str,
        options: &DeleteOptions,
        dry_run: bool,
    ) -> Result<(), ApiError> {
        let pods = self.resource(("", "pods"))?;
        let found = self
            .delete_or_try(&pods, namespace, name, options, dry_run)
            .await?;
        if dry_run {
            return Ok(());
        }
        if found.is_some_and(|deleted| !deleted.gone) {
            let now = Timestamp::now().to_rfc3339();
            let done = self
                .update(("", "pods"), namespace, name, "status", |pod| {
                    let status = pod.ensure("status");
                    let mut conditions = status.list("conditions").to_vec();
                    if !conditions.iter().any(|c| c.text("type") == "DisruptionTarget") {
                        conditions.push(json!({"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI",
                            "message": "Eviction API: evicting", "lastProbeTime": null, "lastTransitionTime": now}));
                    }
                    status.put("conditions", conditions);
                    Ok(())
                })
                .await;
            return match done {
                Err(error) if error.reason() == Reason::NotFound => Ok(()),
                done => done,
            };
        }
        Ok(())
    }

    /// Deletes an object, or marks it. One that is not there is fine.
    pub(crate) async fn delete(
        &self,
        at: At<'_>,
        namespace: &str,
        name: &str,
        options: &DeleteOptions,
    ) -> Result<Option<Deleted>, ApiError> {
        let registered = self.resource(at)?;
        self.delete_of(&registered, namespace, name, options).await
    }

    /// The same for a resource at hand.
    pub(crate) async fn delete_of(
        &self,
        registered: &Registered,
        namespace: &str,
        name: &str,
        options: &DeleteOptions,
    ) -> Result<Option<Deleted>, ApiError> {
        self.delete_or_try(registered, namespace, name, options, false)
            .await
    }

    async fn delete_or_try(
        &self,
        registered: &Registered,
        namespace: &str,
        name: &str,
        options: &DeleteOptions,
        dry_run: bool,
    ) -> Result<Option<Deleted>, ApiError> {
        let mut call = WriteCall::internal(&registered.resource, &self.authorized, &self.none, namespace);
        call.dry_run = dry_run;
        match write::delete(&call, name, options).await {
            Ok(deleted) => Ok(Some(deleted)),
            Err(error) if error.reason() == Reason::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// Every object of a resource at hand, of one namespace where one is named, and those that cannot be read. Costs what it gives,
/// not what the store holds.
pub(crate) async fn list_of(
    registered: &Registered,
    namespace: &str,
) -> Result<(Vec<Arc<Entry>>, Vec<Arc<Unreadable>>), ApiError> {
    let snapshot = registered.store.as_system().fresh().await?;
    let prefix = match namespace {
        "" => String::new(),
        _ => registered.store.key(namespace, ""),
    };
    let from: Arc<str> = prefix.as_str().into();
    let entries = snapshot.objects.range(from.clone()..);
    let entries = entries.take_while(|(key, _)| key.starts_with(&prefix));
    let unreadable = snapshot.unreadable.range(from..);
    let unreadable = unreadable.take_while(|(key, _)| key.starts_with(&prefix));
    Ok((
        entries.map(|(_, entry)| entry.clone()).collect(),
        unreadable.map(|(_, one)| one.clone()).collect(),
    ))
}
