//! PodSecurity: the Pod Security Standards (KEP-2579), as the labels of namespaces ask for them. Pods are refused, audited or warned
//! of; of objects that hold a pod's template there are audit annotations and warnings alone. The
//! configuration says what holds for namespaces without labels, and which users, namespaces and runtime classes are exempt.

mod checks;
mod config;
mod metrics;
mod policy;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use generic_server::ApiError;
use generic_server::admission::{AdmissionPlugin, Attributes, Operation};
use generic_server::metrics::Collect;
use generic_server::registry::Entry;
use machinery::go;
use machinery::{GroupVersionResource, meta};
use serde_json::Value;

use self::checks::{Violation, in_detail, in_short, violations};
pub(super) use self::config::{PodSecurityConfig, PodSecurityFile};
use self::metrics::{Mode, PodSecurityMetrics};
use self::policy::{Level, LevelVersion, PREFIX, Policy};
use super::is;
use crate::client::Client;
use crate::json::Json;

/// Pods of a namespace that are looked at when it asks for more than before.
const MOST_PODS: usize = 3000;
/// Subresources that cannot change a pod's spec.
const IGNORED: [&str; 8] = [
    "exec",
    "attach",
    "binding",
    "eviction",
    "log",
    "portforward",
    "proxy",
    "status",
];

#[derive(Debug)]
pub(super) struct PodSecurity {
    client: Client,
    config: PodSecurityConfig,
    metrics: Arc<PodSecurityMetrics>,
}

/// The relation of a resource to pods.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    Namespace,
    Pod,
    /// Where the pod's template is.
    Template(&'static str),
}

/// The relation of a resource to pods, if any.
pub(super) fn role(gvr: &GroupVersionResource) -> Option<Role> {
    let template = |there: bool, path: &'static str| there.then_some(Role::Template(path));
    let any = |group: &str, resources: &[&str]| resources.iter().any(|r| is(gvr, group, r));
    match () {
        () if is(gvr, "", "namespaces") => Some(Role::Namespace),
        () if is(gvr, "", "pods") => Some(Role::Pod),
        () if is(gvr, "", "podtemplates") => Some(Role::Template("template")),
        () if is(gvr, "batch", "cronjobs") => Some(Role::Template("spec.jobTemplate.spec.template")),
        () => template(
            is(gvr, "", "replicationcontrollers")
                || is(gvr, "batch", "jobs")
                || any(
                    "apps",
                    &["deployments", "replicasets", "statefulsets", "daemonsets"],
                ),
            "spec.template",
        ),
    }
}

#[async_trait::async_trait]
impl AdmissionPlugin for PodSecurity {
    fn name(&self) -> &'static str {
        "PodSecurity"
    }

    fn handles(&self, operation: Operation, gvr: &GroupVersionResource, subresource: &str) -> bool {
        matches!(operation, Operation::Create | Operation::Update)
            && match role(gvr) {
                Some(Role::Pod) => !IGNORED.contains(&subresource),
                Some(_) => subresource.is_empty(),
                None => false,
            }
    }

    fn metrics(&self) -> Option<Arc<dyn Collect>> {
        Some(self.metrics.clone())
    }

    async fn validate(&self, attributes: &Attributes<'_>, object: Option<&Value>) -> Result<(), ApiError> {
        let (Some(role), Some(object)) = (role(attributes.gvr), object) else {
            return Ok(());
        };
        match role {
            Role::Namespace => self.validate_namespace(attributes, object).await,
            Role::Pod | Role::Template(_) if self.is_exempt(attributes) => Ok(()),
            Role::Pod => {
                let Some(namespace) = self.namespace(attributes).await? else {
                    self.metrics.failed(true, attributes);
                    let why = format!("failed to lookup namespace \"{}\"", attributes.namespace);
                    return Err(ApiError::internal(why));
                };
                let old = attributes
                    .old
                    .filter(|_| attributes.operation == Operation::Update);
                if old.is_some_and(|old| !matters(object, old)) {
                    return Ok(());
                }
                self.evaluate(attributes, &namespace, object, true)
            }
            Role::Template(path) => {
                let template = object.dig(path);
                match self.namespace(attributes).await? {
                    Some(namespace) if template.is_object() => {
                        self.evaluate(attributes, &namespace, template, false)
                    }
                    Some(_) => Ok(()),
                    None => {
                        self.metrics.failed(true, attributes);
                        Ok(())
                    }
                }
            }
        }
    }
}

/// Whether an update of a pod changes what the checks are about.
fn matters(pod: &Value, old: &Value) -> bool {
    let list = |of: &'_ Value, path: &str| -> Vec<(String, String)> {
        let all = of.list(path).iter();
        all.map(|c| (c.text("name").to_string(), c.text("image").to_string()))
            .collect()
    };
    for path in ["spec.containers", "spec.initContainers"] {
        let (new, before) = (list(pod, path), list(old, path));
        let changed = |(a, b): (&(String, String), &(String, String))| a.1 != b.1;
        if new.len() != before.len() || new.iter().zip(&before).any(changed) {
            return true;
        }
    }
    let before = list(old, "spec.ephemeralContainers");
    let before: HashSet<&(String, String)> = before.iter().collect();
    let new = list(pod, "spec.ephemeralContainers");
    new.iter().any(|container| !before.contains(container))
}

impl PodSecurity {
    pub(super) fn new(client: Client, config: PodSecurityConfig) -> Self {
        PodSecurity {
            client,
            config,
            metrics: Arc::default(),
        }
    }

    /// Whether the namespace or the user of a request is exempt, which is recorded.
    fn is_exempt(&self, attributes: &Attributes<'_>) -> bool {
        let exempt = match () {
            () if self.config.namespaces.contains(attributes.namespace) => "namespace",
            () if self.config.users.contains(&*attributes.authorized.user().name) => "user",
            () => return false,
        };
        let context = attributes.authorized.context();
        context.annotate(|| (format!("{PREFIX}exempt"), exempt));
        self.metrics.exempted(attributes);
        true
    }

    /// Refuses, annotates and warns as the policy of the namespace has it.
    fn evaluate(
        &self,
        attributes: &Attributes<'_>,
        namespace: &Entry,
        pod: &Value,
        enforce: bool,
    ) -> Result<(), ApiError> {
        let context = attributes.authorized.context();
        let (policy, errors) = Policy::of_labels(|key| namespace.label(key), self.config.defaults);
        let audited = [policy.audit, policy.warn];
        let nothing = match enforce {
            true => policy.is_privileged(),
            false => audited.iter().all(|one| one.level == Level::Privileged),
        };
        if nothing && errors.is_empty() {
            if enforce {
                // Whichever version the labels name.
                context.annotate(|| (format!("{PREFIX}enforce-policy"), "privileged:latest"));
                self.metrics
                    .evaluated(false, policy.enforce, Mode::Enforce, attributes);
            }
            return Ok(());
        }
        if self.config.exempts_class(pod) {
            context.annotate(|| (format!("{PREFIX}exempt"), "runtimeClass"));
            self.metrics.exempted(attributes);
            return Ok(());
        }
        if !errors.is_empty() {
            self.metrics.failed(false, attributes);
            context.annotate(|| {
                let all: Vec<String> = errors.iter().map(ToString::to_string).collect();
                let all = go::aggregate(&all);
                (format!("{PREFIX}error"), format!("Failed to parse policy: {all}"))
            });
        }
        let mut known: HashMap<LevelVersion, Vec<Violation>> = HashMap::new();
        let mut found = |asked: LevelVersion| {
            let found = known.entry(asked).or_insert_with(|| violations(asked, pod));
            (!found.is_empty()).then(|| in_detail(found))
        };
        let mut refused = None;
        if enforce {
            context.annotate(|| (format!("{PREFIX}enforce-policy"), policy.enforce.to_string()));
            refused = found(policy.enforce);
            self.metrics
                .evaluated(refused.is_some(), policy.enforce, Mode::Enforce, attributes);
        }
        if let Some(why) = found(policy.audit) {
            self.metrics
                .evaluated(true, policy.audit, Mode::Audit, attributes);
            context.annotate(|| {
                (
                    format!("{PREFIX}audit-violations"),
                    format!("would violate PodSecurity \"{}\": {why}", policy.audit),
                )
            });
        }
        if let Some(why) = refused {
            let why = format!("violates PodSecurity \"{}\": {why}", policy.enforce);
            let resource = attributes.gvr.group_resource();
            return Err(ApiError::forbidden(&resource, attributes.name, why));
        }
        if let Some(why) = found(policy.warn) {
            context.warn(format!("would violate PodSecurity \"{}\": {why}", policy.warn));
            self.metrics.evaluated(true, policy.warn, Mode::Warn, attributes);
        }
        Ok(())
    }

    async fn namespace(&self, attributes: &Attributes<'_>) -> Result<Option<Arc<Entry>>, ApiError> {
        self.client
            .entry(("", "namespaces"), "", attributes.namespace)
            .await
    }

    async fn validate_namespace(
        &self,
        attributes: &Attributes<'_>,
        namespace: &Value,
    ) -> Result<(), ApiError> {
        let of = |namespace: &Value| Policy::of(namespace, self.config.defaults);
        let (policy, errors) = of(namespace);
        let before = attributes
            .old
            .filter(|_| attributes.operation == Operation::Update);
        let before = before.map(of);
        let known = before
            .as_ref()
            .map(|(_, errors)| errors.as_slice())
            .unwrap_or_default();
        let texts = |errors: &[machinery::FieldError]| -> Vec<String> {
            errors.iter().map(ToString::to_string).collect()
        };
        if !errors.is_empty() && texts(&errors) != texts(known) {
            let kind = attributes.gvk.group_kind();
            return Err(ApiError::invalid(&kind, attributes.name, &errors));
        }
        let context = attributes.authorized.context();
        let is_exempt = self.config.namespaces.contains(meta::name(namespace));
        let warn_of_exemption = || {
            if let Some(warning) = self.config.exempt_warning(namespace, &policy) {
                context.warn(warning);
            }
        };
        let Some((before, _)) = before else {
            if is_exempt {
                warn_of_exemption();
            }
            return Ok(());
        };
        let (new, old) = (policy.enforce, before.enforce);
        let relaxed = new.version == old.version && new.level <= old.level;
        if new == old || new.level == Level::Privileged || relaxed {
            return Ok(());
        }
        if is_exempt {
            warn_of_exemption();
            return Ok(());
        }
        for warning in self.of_pods(meta::name(namespace), new).await {
            context.warn(warning);
        }
        Ok(())
    }

    /// The violations of the pods of a namespace, those of the same controller last.
    async fn of_pods(&self, namespace: &str, asked: LevelVersion) -> Vec<String> {
        let Ok(entries) = self.client.list_readable(("", "pods"), namespace).await else {
            return vec!["failed to list pods while checking new PodSecurity enforce level".into()];
        };
        let (mut controllers, mut exempt) = (HashSet::new(), 0);
        let (mut first, mut rest) = (Vec::new(), Vec::new());
        for entry in &entries {
            let pod = entry.value();
            if self.config.exempts_class(&pod) {
                exempt += 1;
                continue;
            }
            let owners = meta::owner_references(&pod).iter();
            let mut controller = owners.filter(|o| o.flag("controller"));
            let uid = controller.next().map(|o| o.text("uid").to_string());
            let again = uid.is_some_and(|uid| !controllers.insert(uid));
            if again {
                rest.push(pod);
            } else {
                first.push(pod);
            }
            // The others would not be looked at.
            if first.len() > MOST_PODS {
                break;
            }
        }
        first.append(&mut rest);
        first.truncate(MOST_PODS);
        let mut found: BTreeMap<String, (String, usize)> = BTreeMap::new();
        for pod in &first {
            let violations = violations(asked, pod);
            if violations.is_empty() {
                continue;
            }
            let name = meta::name(pod);
            let (least, count) = found
                .entry(in_short(&violations))
                .or_insert_with(|| (name.to_string(), 0));
            if name < least.as_str() {
                *least = name.to_string();
            }
            *count += 1;
        }
        let mut warnings = Vec::new();
        let total = entries.len() - exempt;
        if first.len() < total {
            warnings.push(format!(
                "new PodSecurity enforce level only checked against the first {} of {} existing pods",
                first.len(),
                total
            ));
        }
        if !found.is_empty() {
            warnings.push(format!(
                "existing pods in namespace \"{namespace}\" violate the new PodSecurity enforce level \"{asked}\""
            ));
        }
        let mut texts: Vec<String> = found
            .into_iter()
            .map(|(what, (name, count))| match count {
                1 => format!("{name}: {what}"),
                2 => format!("{name} (and 1 other pod): {what}"),
                more => format!("{name} (and {} other pods): {what}", more - 1),
            })
            .collect();
        texts.sort();
        warnings.extend(texts);
        warnings
    }
}
