//! Subresources that are more than a view: bindings, evictions, tokens, and streams to nodes.

use std::borrow::Cow;
use std::sync::Arc;

use bytes::Bytes;
use generic_server::admission::{Attributes, Operation};
use generic_server::handlers::SubresourceBody;
use generic_server::registry::write::{DeleteOptions, Preconditions};
use generic_server::request::full;
use generic_server::request_info::query_value;
use generic_server::resource::{SubresourceCall, SubresourceHandler};
use generic_server::{ApiError, Authorized, Request, Response};
use machinery::field::go_quote;
use machinery::selector::LabelSelector;
use machinery::time::Timestamp;
use machinery::{Cause, FieldPath, GroupKind, GroupResource, GroupVersion, GroupVersionKind, Map, meta};
use serde_json::{Value, json as object};

use crate::client::Client;
use crate::deps::{TokenClaims, TokenIssuer};
use crate::faults::Faults;
use crate::groups::core::pod_spec;
use crate::json::Json;

/// An answer in JSON.
fn answer(code: u16, value: &Value) -> Response {
    let mut response = Response::new(full(value.to_string()));
    *response.status_mut() = http::StatusCode::from_u16(code).unwrap_or(http::StatusCode::OK);
    response.headers_mut().insert(
        http::header::CONTENT_TYPE,
        http::HeaderValue::from_static("application/json"),
    );
    response
}

/// The Status of something done.
pub(crate) fn created() -> Value {
    object!({"apiVersion": "v1", "kind": "Status", "metadata": {}, "status": "Success", "code": 201})
}

/// The value of a query parameter, decoded as Go does.
fn query<'r>(request: &'r Request, key: &str) -> Option<Cow<'r, str>> {
    query_value(request.uri().query().unwrap_or_default(), key)
}

/// `pods/binding`.
#[derive(Debug)]
pub(crate) struct Binding(pub(crate) Client);

#[async_trait::async_trait]
impl SubresourceHandler for Binding {
    fn verbs(&self) -> &'static [&'static str] {
        &["create"]
    }

    fn kind(&self) -> GroupVersionKind {
        GroupVersionKind::new("", "v1", "Binding")
    }

    async fn handle(&self, call: SubresourceCall<'_>, request: Request) -> Result<Response, ApiError> {
        only(&call, "create")?;
        let mut body = call.read(request, &self.kind(), &[]).await?;
        same_namespace(&body.object, call.namespace)?;
        admit(&call, &self.kind(), &mut body).await?;
        bind(&self.0, call.namespace, call.name, &body.object, body.dry_run).await?;
        Ok(answer(201, &created()))
    }
}

/// Assigns a pod to a node.
pub(crate) async fn bind(
    client: &Client,
    namespace: &str,
    name: &str,
    binding: &Value,
    dry: bool,
) -> Result<(), ApiError> {
    if meta::name(binding) != name {
        return Err(ApiError::bad_request(
            "name in URL does not match name in Binding object",
        ));
    }
    let target = binding.dig("target");
    let faults = Faults::collect(|faults| {
        let path = FieldPath::new("target");
        let kind = target.text("kind");
        if !matches!(kind, "" | "Node") {
            faults.unsupported(&path.child("kind"), kind, &["Node", "<empty>"]);
        }
        faults.need(&path.child("name"), target.text("name"));
    });
    if !faults.is_empty() {
        let texts: Vec<String> = faults.iter().map(ToString::to_string).collect();
        let text = match texts.as_slice() {
            [one] => one.clone(),
            many => format!("[{}]", many.join(", ")),
        };
        return Err(ApiError::raw_internal(text));
    }
    let node = target.text("name").to_string();
    let uid = meta::uid(binding).to_string();
    let pods = GroupResource::new("", "pods");
    let check = |pod: &Value| -> Result<(), ApiError> {
        if !uid.is_empty() && uid != meta::uid(pod) {
            let why = format!(
                "Precondition failed: UID in precondition: {uid}, UID in object meta: {}",
                meta::uid(pod)
            );
            return Err(ApiError::conflict(&pods, name, why));
        }
        let bindings = GroupResource::new("", "pods/binding");
        if meta::deletion_timestamp(pod).is_some() {
            let why = format!("pod {name} is being deleted, cannot be assigned to a host");
            return Err(ApiError::conflict(&bindings, name, why));
        }
        let assigned = pod.text("spec.nodeName");
        if !assigned.is_empty() {
            let why = format!("pod {name} is already assigned to node \"{assigned}\"");
            return Err(ApiError::conflict(&bindings, name, why));
        }
        if !pod.list("spec.schedulingGates").is_empty() {
            let why = format!("pod {name} has non-empty .spec.schedulingGates");
            return Err(ApiError::conflict(&bindings, name, why));
        }
        Ok(())
    };
    if dry {
        let pod = client.find(("", "pods"), namespace, name).await?;
        return check(&pod.ok_or_else(|| ApiError::not_found(&pods, name))?);
    }
    client
        .assign(namespace, name, |pod| {
            check(pod)?;
            pod.ensure("spec").put("nodeName", node.as_str());
            for kind in ["annotations", "labels"] {
                for (key, value) in binding.dig("metadata").entries(kind) {
                    pod.ensure("metadata").ensure(kind).put(key, value.clone());
                }
            }
            let now = Timestamp::now().to_rfc3339();
            let status = pod.ensure("status");
            let mut conditions = status.list("conditions").to_vec();
            conditions.retain(|c| c.text("type") != "PodScheduled");
            conditions.push(
                object!({"type": "PodScheduled", "status": "True", "lastProbeTime": null,
                "lastTransitionTime": now}),
            );
            status.put("conditions", conditions);
            Ok(())
        })
        .await
}

fn same_namespace(body: &Value, namespace: &str) -> Result<(), ApiError> {
    match meta::namespace(body) {
        "" => Ok(()),
        own if own == namespace => Ok(()),
        _ => Err(ApiError::bad_request(
            "the namespace of the provided object does not match the namespace sent on the request",
        )),
    }
}

/// 405 for another verb than the handler's.
fn only(call: &SubresourceCall<'_>, verb: &str) -> Result<(), ApiError> {
    match call.authorized.info().verb == verb {
        true => Ok(()),
        false => Err(ApiError::method_not_allowed()),
    }
}

/// Runs admission on the body of a creating subresource.
async fn admit(
    call: &SubresourceCall<'_>,
    kind: &GroupVersionKind,
    body: &mut SubresourceBody,
) -> Result<(), ApiError> {
    let attributes = Attributes {
        authorized: call.authorized,
        operation: Operation::Create,
        gvk: kind,
        gvr: &call.resource.gvr,
        subresource: &call.authorized.info().subresource,
        namespace: call.namespace,
        name: call.name,
        old: None,
        dry_run: body.dry_run,
        options: Some(&body.options),
        resource: None,
        rounds: None,
    };
    call.admission.admit(&attributes, Some(&mut body.object)).await?;
    call.admission.validate(&attributes, Some(&body.object)).await
}

/// `pods/eviction`.
#[derive(Debug)]
pub(crate) struct Eviction(pub(crate) Client);

#[async_trait::async_trait]
impl SubresourceHandler for Eviction {
    fn verbs(&self) -> &'static [&'static str] {
        &["create"]
    }

    fn kind(&self) -> GroupVersionKind {
        GroupVersionKind::new("policy", "v1", "Eviction")
    }

    async fn handle(&self, call: SubresourceCall<'_>, request: Request) -> Result<Response, ApiError> {
        only(&call, "create")?;
        let mut body = call.read(request, &self.kind(), &["policy/v1beta1"]).await?;
        same_namespace(&body.object, call.namespace)?;
        if meta::name(&body.object) != call.name {
            return Err(ApiError::bad_request(
                "name in URL does not match name in Eviction object",
            ));
        }
        body.dry_run |= body.object.strings("deleteOptions.dryRun").any(|d| d == "All");
        admit(&call, &self.kind(), &mut body).await?;
        let (eviction, dry) = (body.object, body.dry_run);
        let pods = GroupResource::new("", "pods");
        let pod = self.0.find(("", "pods"), call.namespace, call.name).await?;
        let pod = pod.ok_or_else(|| ApiError::not_found(&pods, call.name))?;
        let ignores_budget = matches!(pod.text("status.phase"), "Succeeded" | "Failed" | "Pending")
            || meta::deletion_timestamp(&pod).is_some();
        if !ignores_budget {
            self.spend(call.namespace, &pod, dry).await?;
        }
        if !dry {
            let options = eviction.dig("deleteOptions");
            let text = |path: &str| Some(options.text(path).to_string()).filter(|t| !t.is_empty());
            let delete = DeleteOptions {
                grace: options.int("gracePeriodSeconds"),
                preconditions: Preconditions {
                    uid: text("preconditions.uid"),
                    resource_version: text("preconditions.resourceVersion"),
                },
                orphan_dependents: options.dig("orphanDependents").as_bool(),
                propagation: text("propagationPolicy"),
                ..DeleteOptions::default()
            };
            self.0.disrupt(call.namespace, call.name, &delete).await?;
        }
        Ok(answer(201, &created()))
    }
}

impl Eviction {
    /// Takes one disruption from the pod's budget, where it has one.
    async fn spend(&self, namespace: &str, pod: &Value, dry: bool) -> Result<(), ApiError> {
        let empty = Map::new();
        let labels = meta::labels(pod).unwrap_or(&empty);
        let budgets = self.0.list(("policy", "poddisruptionbudgets"), namespace).await?;
        let mut matching = budgets.iter().map(|entry| entry.value()).filter(|budget| {
            let selector = budget.dig("spec.selector");
            !selector.is_null() && LabelSelector::from_value(selector).is_ok_and(|s| s.matches(labels))
        });
        let Some(budget) = matching.next() else {
            return Ok(());
        };
        if matching.next().is_some() {
            return Err(ApiError::raw_internal(
                "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.",
            ));
        }
        let ready = pod
            .list("status.conditions")
            .iter()
            .any(|c| c.text("type") == "Ready" && c.text("status") == "True");
        let status = |key: &str| budget.dig("status").int(key).unwrap_or_default();
        if !ready {
            let always = budget.text("spec.unhealthyPodEvictionPolicy") == "AlwaysAllow";
            let healthy =
                status("currentHealthy") >= status("desiredHealthy") && status("desiredHealthy") > 0;
            if always || healthy {
                return Ok(());
            }
        }
        let pod_name = meta::name(pod).to_string();
        if dry {
            return allowed(&budget);
        }
        let name = meta::name(&budget).to_string();
        let now = Timestamp::now().to_rfc3339();
        self.0
            .update(
                ("policy", "poddisruptionbudgets"),
                namespace,
                &name,
                "status",
                |live| {
                    allowed(live)?;
                    let generation = meta::generation(live);
                    let status = live.ensure("status");
                    let left = status.int("disruptionsAllowed").unwrap_or_default() - 1;
                    status.put("disruptionsAllowed", left);
                    status.ensure("disruptedPods").put(&pod_name, now.as_str());
                    if left == 0 {
                        let mut conditions = status.list("conditions").to_vec();
                        let changed = !conditions
                            .iter()
                            .any(|c| c.text("type") == "DisruptionAllowed" && c.text("status") == "False");
                        if changed {
                            conditions.retain(|c| c.text("type") != "DisruptionAllowed");
                            conditions.push(object!({"type": "DisruptionAllowed", "status": "False", "message": "",
                                "reason": "InsufficientPods", "observedGeneration": generation, "lastTransitionTime": now}));
                            status.put("conditions", conditions);
                        }
                    }
                    Ok(())
                },
            )
            .await
    }
}

/// Whether a budget has a disruption left; 429 with the reason when not.
fn allowed(budget: &Value) -> Result<(), ApiError> {
    let name = meta::name(budget);
    let text = "Cannot evict pod as it would violate the pod's disruption budget.";
    let cause = |message: String| Cause {
        reason: "DisruptionBudget".into(),
        message,
        field: String::new(),
    };
    let status = |key: &str| budget.dig("status").int(key).unwrap_or_default();
    if status("observedGeneration") < meta::generation(budget) {
        let why = format!("The disruption budget {name} is still being processed by the server.");
        return Err(ApiError::too_many_requests(text, 10).with_cause(cause(why)));
    }
    if status("disruptionsAllowed") > 0 {
        return Ok(());
    }
    let budgets = GroupResource::new("policy", "poddisruptionbudget");
    if status("disruptionsAllowed") < 0 {
        return Err(ApiError::forbidden(
            &budgets,
            name,
            "pdb disruptions allowed is negative",
        ));
    }
    let condition = budget
        .list("status.conditions")
        .iter()
        .find(|c| c.text("type") == "DisruptionAllowed" && c.text("status") == "False")
        .filter(|c| !c.text("message").is_empty());
    let why = match condition {
        Some(c) if c.text("reason") == "SyncFailed" => format!(
            "The disruption budget {name} does not allow evicting pods currently because it failed sync: {}",
            c.text("message")
        ),
        _ if status("currentHealthy") <= status("desiredHealthy") => format!(
            "The disruption budget {name} needs {} healthy pods and has {} currently",
            status("desiredHealthy"),
            status("currentHealthy")
        ),
        Some(c) => format!(
            "The disruption budget {name} does not allow evicting pods currently ({}): {}",
            c.text("reason"),
            c.text("message")
        ),
        None => format!("The disruption budget {name} does not allow evicting pods currently"),
    };
    Err(ApiError::too_many_requests(text, 0).with_cause(cause(why)))
}

/// `serviceaccounts/token`.
#[derive(Debug)]
pub(crate) struct Token {
    pub(crate) client: Client,
    pub(crate) issuer: Arc<dyn TokenIssuer>,
}

#[async_trait::async_trait]
impl SubresourceHandler for Token {
    fn verbs(&self) -> &'static [&'static str] {
        &["create"]
    }

    fn kind(&self) -> GroupVersionKind {
        GroupVersionKind::new("authentication.k8s.io", "v1", "TokenRequest")
    }

    async fn handle(&self, call: SubresourceCall<'_>, request: Request) -> Result<Response, ApiError> {
        only(&call, "create")?;
        let mut body = call.read(request, &self.kind(), &[]).await?;
        same_namespace(&body.object, call.namespace)?;
        let issued = self.issue(&call, &mut body).await?;
        Ok(answer(201, &issued))
    }
}

/// What a token dies with.
#[derive(Debug)]
struct Bound {
    /// Kind, name and uid.
    object: (String, String, String),
    /// Name and uid of the node of a pod; without a uid when there is no such node.
    node: Option<(String, String)>,
}

impl Token {
    /// Checks a request as upstream does, in its order, and issues what it asks for.
    async fn issue(&self, call: &SubresourceCall<'_>, body: &mut SubresourceBody) -> Result<Value, ApiError> {
        let kind = GroupKind::new("authentication.k8s.io", "TokenRequest");
        for (key, own) in [("name", call.name), ("namespace", call.namespace)] {
            let given = body.object.dig("metadata").text(key);
            if !given.is_empty() && given != own {
                let faults = Faults::collect(|faults| {
                    let path = FieldPath::new("metadata");
                    let text = format!("must match the service account {key} if specified");
                    faults.invalid(&path.child(key), given, text);
                });
                return Err(ApiError::invalid(&kind, call.name, &faults));
            }
        }
        let accounts = GroupResource::new("", "serviceaccounts");
        let account = self
            .client
            .find(("", "serviceaccounts"), call.namespace, call.name)
            .await?
            .ok_or_else(|| ApiError::not_found(&accounts, call.name))?;
        let (asked, uid) = (meta::uid(&body.object), meta::uid(&account));
        if !asked.is_empty() && asked != uid {
            let why = format!(
                "the UID in the token request ({asked}) does not match the UID of the service account ({uid})"
            );
            let requests = GroupResource::new("authentication.k8s.io", "TokenRequest");
            return Err(ApiError::conflict(&requests, call.name, why));
        }
        let spec = body.object.ensure("spec");
        if !spec.has("expirationSeconds") {
            spec.put("expirationSeconds", 3600);
        }
        let seconds = spec.int("expirationSeconds").unwrap_or_default();
        let faults = Faults::collect(|faults| {
            pod_spec::expiration(faults, &FieldPath::new("spec.expirationSeconds"), Some(seconds));
        });
        if !faults.is_empty() {
            return Err(ApiError::invalid(&kind, "", &faults));
        }
        admit(call, &self.kind(), body).await?;
        let request = &body.object;
        let mut audiences: Vec<String> = request.strings("spec.audiences").map(str::to_string).collect();
        if audiences.is_empty() {
            audiences = self.issuer.default_audiences();
        }
        let reference = request.dig("spec.boundObjectRef");
        let bound = match reference.is_null() {
            true => None,
            false => Some(self.bound(call.namespace, call.name, reference).await?),
        };
        let (bound, node) = bound.map_or((None, None), |bound| (Some(bound.object), bound.node));
        let claims = TokenClaims {
            namespace: call.namespace.into(),
            name: call.name.into(),
            uid: uid.into(),
            audiences: audiences.clone(),
            expiration_seconds: seconds,
            bound,
            node,
        };
        let token = match body.dry_run {
            true => None,
            false => Some(self.issuer.issue(&claims).await?),
        };
        let status = match token {
            Some(token) => object!({"token": token.token, "expirationTimestamp": token.expiration}),
            None => object!({"token": "", "expirationTimestamp": null}),
        };
        Ok(object!({
            "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
            "metadata": {"name": call.name, "namespace": call.namespace, "uid": uid,
                "creationTimestamp": Timestamp::now().to_rfc3339()},
            "spec": {"audiences": audiences, "expirationSeconds": seconds, "boundObjectRef": reference},
            "status": status,
        }))
    }

    /// The object that a token dies with: a pod that runs as the account, a secret of the namespace, or a node.
    async fn bound(&self, namespace: &str, account: &str, reference: &Value) -> Result<Bound, ApiError> {
        let (version, kind, name) = (
            reference.text("apiVersion"),
            reference.text("kind"),
            reference.text("name"),
        );
        // The version counts for nothing, and what is no version is of the core group.
        let parsed = GroupVersion::parse(version).unwrap_or_else(|| GroupVersion::new("", ""));
        let (resource, scope) = match (&*parsed.group, kind) {
            ("", "Pod") => ("pods", namespace),
            ("", "Secret") => ("secrets", namespace),
            ("", "Node") => ("nodes", ""),
            _ => {
                return Err(ApiError::bad_request(format!(
                    "cannot bind token to object of type {}",
                    GroupVersionKind::new(&parsed.group, &parsed.version, kind)
                )));
            }
        };
        let found = self.client.find(("", resource), scope, name).await?;
        let found = found.ok_or_else(|| ApiError::not_found(&GroupResource::new("", resource), name))?;
        if kind == "Pod" && found.text("spec.serviceAccountName") != account {
            return Err(ApiError::bad_request(format!(
                "cannot bind token for serviceaccount {} to pod running with different serviceaccount name.",
                go_quote(account)
            )));
        }
        let mut node = None;
        let node_name = found.text("spec.nodeName");
        if kind == "Pod" && !node_name.is_empty() {
            let object = self.client.find(("", "nodes"), "", node_name).await?;
            let uid = object.map(|node| meta::uid(&node).to_string());
            node = Some((node_name.to_string(), uid.unwrap_or_default()));
        }
        let (asked, own) = (reference.text("uid"), meta::uid(&found));
        if !asked.is_empty() && asked != own {
            let why = format!(
                "the UID in the bound object reference ({asked}) does not match the UID in record. The object might have been deleted and then recreated"
            );
            return Err(ApiError::conflict(&GroupResource::new("", kind), name, why));
        }
        Ok(Bound {
            object: (kind.into(), name.into(), own.into()),
            node,
        })
    }
}

/// What is asked of the node that runs a pod, or of a node or service itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stream {
    /// `pods/log`.
    Log,
    /// `pods/exec` and `pods/attach`.
    Run(&'static str),
    /// `pods/portforward`.
    Forward,
    /// `pods/proxy`, `services/proxy`, `nodes/proxy`.
    Proxy(&'static str),
}

/// Answers what can be answered without a node; the rest needs a way to nodes, which is not there.
#[derive(Debug)]
pub(crate) struct ToNode {
    pub(crate) client: Client,
    pub(crate) stream: Stream,
}

#[async_trait::async_trait]
impl SubresourceHandler for ToNode {
    fn verbs(&self) -> &'static [&'static str] {
        match self.stream {
            Stream::Log => &["get"],
            Stream::Run(_) | Stream::Forward => &["create", "get"],
            Stream::Proxy(_) => &["create", "delete", "get", "patch", "update"],
        }
    }

    fn kind(&self) -> GroupVersionKind {
        GroupVersionKind::new(
            "",
            "v1",
            match self.stream {
                Stream::Log => "Pod",
                Stream::Run(kind) | Stream::Proxy(kind) => kind,
                Stream::Forward => "PodPortForwardOptions",
            },
        )
    }

    async fn handle(&self, call: SubresourceCall<'_>, request: Request) -> Result<Response, ApiError> {
        let verb = call.authorized.info().verb.as_str();
        if !self.verbs().contains(&verb) && verb != "watch" {
            return Err(ApiError::method_not_allowed());
        }
        let name = call
            .name
            .split(':')
            .find(|part| !part.is_empty())
            .unwrap_or(call.name);
        let gvr = &call.resource.gvr;
        let name = if matches!(self.stream, Stream::Proxy(_)) {
            name
        } else {
            call.name
        };
        let object = self
            .client
            .find((&gvr.group, &gvr.resource), call.namespace, name)
            .await?
            .ok_or_else(|| ApiError::not_found(&gvr.group_resource(), name))?;
        let authorized: &Authorized = call.authorized;
        let attributes = Attributes {
            authorized,
            operation: Operation::Connect,
            gvk: &self.kind(),
            gvr,
            subresource: &authorized.info().subresource,
            namespace: call.namespace,
            name: call.name,
            old: None,
            dry_run: false,
            options: None,
            resource: None,
            rounds: None,
        };
        if self.stream != Stream::Log {
            call.admission.admit(&attributes, None).await?;
            call.admission.validate(&attributes, None).await?;
        }
        if self.stream == Stream::Log {
            log_options(&request, call.name)?;
        }
        if matches!(self.stream, Stream::Log | Stream::Run(_)) {
            container(&request, &object)?;
        }
        let node = object.text("spec.nodeName");
        match self.stream {
            Stream::Log if node.is_empty() => {
                let mut response = Response::new(full(Bytes::new()));
                *response.status_mut() = http::StatusCode::NO_CONTENT;
                Ok(response)
            }
            Stream::Run(_) | Stream::Forward if node.is_empty() => Err(ApiError::bad_request(format!(
                "pod {} does not have a host assigned",
                call.name
            ))),
            Stream::Proxy("PodProxyOptions") if object.list("status.podIPs").is_empty() => {
                Err(ApiError::bad_request("address not allowed"))
            }
            Stream::Proxy("ServiceProxyOptions") => Err(ApiError::unavailable(format!(
                "no endpoints available for service \"{}\"",
                call.name
            ))),
            _ => Err(ApiError::unavailable(
                "no way to the node: this server has no proxy to nodes yet",
            )),
        }
    }
}

/// The container that a log or command is for; it must be named when there are several.
fn container(request: &Request, pod: &Value) -> Result<(), ApiError> {
    let name = meta::name(pod);
    let names = |list: &str| -> Vec<&str> {
        let containers = pod.dig("spec").list(list);
        containers.iter().map(|c| c.text("name")).collect()
    };
    let regular = names("containers");
    let others = || {
        ["initContainers", "ephemeralContainers"]
            .into_iter()
            .flat_map(names)
    };
    match query(request, "container").filter(|c| !c.is_empty()) {
        None if regular.len() == 1 => Ok(()),
        None => {
            let chosen = meta::annotations(pod)
                .and_then(|a| a.get("kubectl.kubernetes.io/default-container"))
                .and_then(Value::as_str)
                .is_some_and(|c| regular.contains(&c));
            if chosen {
                return Ok(());
            }
            let mut text = format!(
                "a container name must be specified for pod {name}, choose one of: [{}]",
                regular.join(" ")
            );
            let init = names("initContainers");
            if !init.is_empty() {
                text.push_str(&format!(" or one of the init containers: [{}]", init.join(" ")));
            }
            Err(ApiError::bad_request(text))
        }
        Some(asked) if regular.contains(&&*asked) || others().any(|other| other == asked) => Ok(()),
        Some(asked) => Err(ApiError::bad_request(format!(
            "container {asked} is not valid for pod {name}"
        ))),
    }
}

fn log_options(request: &Request, name: &str) -> Result<(), ApiError> {
    let number = |key: &str| query(request, key).and_then(|text| text.parse::<i64>().ok());
    let faults = Faults::collect(|faults| {
        faults.non_negative(&FieldPath::new("tailLines"), number("tailLines"));
        if let Some(limit) = number("limitBytes").filter(|n| *n < 1) {
            faults.invalid(&FieldPath::new("limitBytes"), limit, "must be greater than 0");
        }
        if let Some(seconds) = number("sinceSeconds").filter(|n| *n < 1) {
            faults.invalid(&FieldPath::new("sinceSeconds"), seconds, "must be greater than 0");
        }
        if query(request, "sinceSeconds").is_some() && query(request, "sinceTime").is_some() {
            faults.forbidden(
                &FieldPath::new(""),
                "at most one of `sinceTime` or `sinceSeconds` may be specified",
            );
        }
    });
    match faults.is_empty() {
        true => Ok(()),
        false => Err(ApiError::invalid(
            &GroupKind::new("", "PodLogOptions"),
            name,
            &faults,
        )),
    }
}
