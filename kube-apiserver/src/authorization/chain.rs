//! The authorizers of this server in their order, as flags or the file of `--authorization-config` name them. `system:masters` may do
//! everything before them. The file is read again while the server runs.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use generic_server::User;
use generic_server::authz::{
    AlwaysAllow, AlwaysDeny, Attributes, Authorizer, Decision, Failure, Privileged, ResolvedRules, Union,
};
use generic_server::client::egress::Route;
use generic_server::delegated::{
    AccessWebhook, AccessWebhookMetrics, AccessWebhookOptions, KubeClient, Kubeconfig, access_review_spec,
};
use generic_server::metrics::{Collect, Histogram, Metrics, Reloads, family, sample};
use parking_lot::Mutex;

use super::abac::PolicyList;
use super::conditions::Conditions;
use super::config::{self, AuthorizerConfig, KINDS, WebhookConfig};
use super::node::NodeAuthorizer;
use super::options::{
    AuthorizationMode, AuthorizationOptions, AuthorizationSource, AuthorizationWebhookOptions,
};
use crate::blocking;
use crate::config_file;
use crate::rbac::Rbac;

/// Upstream's buckets of `apiserver_authorization_match_condition_evaluation_seconds`.
const CONDITION_BUCKETS: &[f64] = &[0.001, 0.005, 0.01, 0.025, 0.1, 0.2, 0.25];
/// How long a webhook named by a flag may take.
const FLAG_TIMEOUT: Duration = Duration::from_secs(30);

/// Authorizes requests by the authorizers that are configured now.
#[derive(Debug)]
pub(crate) struct AuthorizerChain {
    privileged: Privileged,
    parts: Parts,
    current: ArcSwap<Links>,
    /// The metrics of what was configured before, too: names stay.
    all: Mutex<Vec<Arc<Link>>>,
    webhooks: Arc<AccessWebhookMetrics>,
    /// The way to webhooks.
    route: Route,
    reloads: Option<(PathBuf, Arc<Reloads>)>,
}

/// The authorizers that outlive a reload.
#[derive(Debug, Default)]
struct Parts {
    rbac: Option<Arc<Rbac>>,
    nodes: Option<Arc<NodeAuthorizer>>,
    policies: Option<Arc<PolicyList>>,
    /// The kinds of the first configuration; later ones need all of them that are no webhooks.
    required: BTreeSet<&'static str>,
}

/// What is asked, in order.
#[derive(Debug)]
struct Links {
    union: Union,
    /// One for each of them.
    links: Vec<Arc<Link>>,
}

/// The metrics of one authorizer.
#[derive(Debug)]
struct Link {
    kind: &'static str,
    name: String,
    allowed: AtomicU64,
    denied: AtomicU64,
    conditions: Option<ConditionFigures>,
}

#[derive(Debug)]
struct ConditionFigures {
    took: Histogram,
    errors: AtomicU64,
    exclusions: AtomicU64,
}

impl AuthorizerChain {
    /// Reads the files that the options name. Webhooks are reached by `route`.
    ///
    /// # Errors
    /// A file that cannot be read or has faults; the text begins with the flag.
    pub(crate) fn new(options: &AuthorizationOptions, route: Route) -> Result<Arc<Self>, String> {
        let mut reloads = None;
        let (configs, flag) = match &options.source {
            AuthorizationSource::Modes { modes, webhook } => (
                of_flags(modes, webhook.as_ref())?,
                "--authorization-webhook-config-file",
            ),
            AuthorizationSource::File(path) => {
                let flag = "--authorization-config";
                let data = config_file::read(path).map_err(|why| format!("{flag}: {why}"))?;
                let within = |why| format!("{flag}: \"{}\": {why}", path.display());
                let configs = config::parse(&data).map_err(within)?;
                let metrics = Reloads::new("authorization");
                metrics.applied(&data);
                reloads = Some((path.clone(), Arc::new(metrics)));
                (configs, flag)
            }
        };
        let parts = Parts::new(&configs, options)?;
        let chain = AuthorizerChain {
            privileged: Privileged::default(),
            parts,
            current: ArcSwap::from_pointee(Links {
                union: Union::default(),
                links: Vec::new(),
            }),
            all: Mutex::default(),
            webhooks: Arc::default(),
            route,
            reloads,
        };
        let links = chain.links(&configs).map_err(|why| format!("{flag}: {why}"))?;
        chain.current.store(Arc::new(links));
        Ok(Arc::new(chain))
    }

    /// The roles and bindings, where RBAC is among the authorizers.
    pub(crate) fn rbac(&self) -> Option<Arc<Rbac>> {
        self.parts.rbac.clone()
    }

    /// The authorizer of kubelets, where Node is among them.
    pub(crate) fn nodes(&self) -> Option<Arc<NodeAuthorizer>> {
        self.parts.nodes.clone()
    }

    /// The decision about a question that is no request, which is not counted, and the name of the authorizer that allowed or denied.
    pub(crate) async fn decide(&self, attributes: &Attributes<'_>) -> (Decision, Option<String>) {
        if self.privileged.includes(attributes.user) {
            return (Decision::Allow(String::new()), Some("system:masters".into()));
        }
        let links = self.current.load_full();
        let (decision, by) = links.union.decide(attributes).await;
        let by = by.and_then(|index| links.links.get(index));
        (decision, by.map(|link| link.name.clone()))
    }

    /// The file that is read again.
    pub(crate) fn file(&self) -> Option<PathBuf> {
        self.reloads.as_ref().map(|(path, _)| path.clone())
    }

    /// Reads the file again.
    ///
    /// # Errors
    /// It cannot be used; what was configured stays.
    pub(crate) fn reload(&self) -> Result<(), String> {
        let Some((path, metrics)) = &self.reloads else {
            return Ok(());
        };
        let data = config_file::read(path)?;
        let taken = config::parse(&data).and_then(|configs| {
            self.parts.check(&configs)?;
            self.links(&configs)
        });
        metrics.reloaded(taken.is_ok());
        self.current.store(Arc::new(taken?));
        metrics.applied(&data);
        Ok(())
    }

    /// Adds the metrics of this chain.
    pub(crate) fn register(self: &Arc<Self>, metrics: &Metrics) {
        metrics.register(self.clone());
        metrics.register(self.webhooks.clone());
        if let Some(nodes) = self.nodes() {
            metrics.register(nodes);
        }
        if let Some((_, reloads)) = &self.reloads {
            metrics.register(reloads.clone());
        }
    }

    fn links(&self, configs: &[AuthorizerConfig]) -> Result<Links, String> {
        let mut authorizers: Vec<Arc<dyn Authorizer>> = Vec::new();
        let mut links = Vec::new();
        for config in configs {
            let kind = config.kind();
            let link = self.link(kind, config.name());
            authorizers.push(match config {
                AuthorizerConfig::Mode(mode) => self.parts.authorizer(*mode)?,
                AuthorizerConfig::Webhook(webhook) => self.webhook(webhook, &link)?,
            });
            links.push(link);
        }
        Ok(Links {
            union: Union(authorizers),
            links,
        })
    }

    /// The figures of an authorizer, which go on over reloads.
    fn link(&self, kind: &'static str, name: String) -> Arc<Link> {
        let mut all = self.all.lock();
        if let Some(known) = all.iter().find(|link| link.kind == kind && link.name == name) {
            return known.clone();
        }
        let link = Arc::new(Link {
            kind,
            name,
            allowed: AtomicU64::new(0),
            denied: AtomicU64::new(0),
            conditions: (kind == "Webhook").then(|| ConditionFigures {
                took: Histogram::new(CONDITION_BUCKETS),
                errors: AtomicU64::new(0),
                exclusions: AtomicU64::new(0),
            }),
        });
        all.push(link.clone());
        link
    }

    fn webhook(&self, config: &WebhookConfig, link: &Arc<Link>) -> Result<Arc<dyn Authorizer>, String> {
        let kubeconfig = Kubeconfig::read(&config.kubeconfig).map_err(|error| error.to_string())?;
        let client = KubeClient::of_webhook(&kubeconfig, &self.route, config.options.timeout)
            .map_err(|error| error.to_string())?;
        let webhook = AccessWebhook::new(client, config.options.clone(), self.webhooks.clone());
        if config.conditions.is_empty() {
            return Ok(Arc::new(webhook));
        }
        Ok(Arc::new(Conditional {
            conditions: config.conditions.clone(),
            webhook,
            fails_closed: config.options.fails_closed,
            link: link.clone(),
        }))
    }
}

impl AuthorizerConfig {
    fn kind(&self) -> &'static str {
        let mode = match self {
            AuthorizerConfig::Mode(mode) => *mode,
            AuthorizerConfig::Webhook(_) => AuthorizationMode::Webhook,
        };
        KINDS
            .iter()
            .find(|(_, known)| *known == mode)
            .map_or("Webhook", |(name, _)| *name)
    }

    fn name(&self) -> String {
        match self {
            AuthorizerConfig::Mode(_) => self.kind().to_lowercase(),
            AuthorizerConfig::Webhook(webhook) => webhook.options.name.clone(),
        }
    }
}

fn of_flags(
    modes: &[AuthorizationMode],
    webhook: Option<&AuthorizationWebhookOptions>,
) -> Result<Vec<AuthorizerConfig>, String> {
    let configs = modes.iter().map(|mode| match (mode, webhook) {
        (AuthorizationMode::Webhook, None) => {
            Err("authorization-mode Webhook's authorization config file not passed".to_string())
        }
        (AuthorizationMode::Webhook, Some(webhook)) => Ok(AuthorizerConfig::Webhook(WebhookConfig {
            options: AccessWebhookOptions {
                name: "default".into(),
                version: webhook.version,
                timeout: FLAG_TIMEOUT,
                authorized_ttl: webhook.authorized_ttl,
                unauthorized_ttl: webhook.unauthorized_ttl,
                fails_closed: false,
            },
            kubeconfig: webhook.config_file.clone(),
            conditions: Arc::default(),
        })),
        (mode, _) => Ok(AuthorizerConfig::Mode(*mode)),
    });
    configs.collect()
}

impl Parts {
    fn new(configs: &[AuthorizerConfig], options: &AuthorizationOptions) -> Result<Self, String> {
        let mut parts = Parts::default();
        for config in configs {
            let AuthorizerConfig::Mode(mode) = config else {
                continue;
            };
            parts.required.insert(config.kind());
            match mode {
                AuthorizationMode::Abac => {
                    let Some(file) = &options.policy_file else {
                        return Err(
                            "authorization-mode ABAC's authorization policy file not passed".to_string()
                        );
                    };
                    let policies = PolicyList::read(file)
                        .map_err(|why| format!("--authorization-policy-file: {why}"))?;
                    parts.policies = Some(Arc::new(policies));
                }
                AuthorizationMode::Node => parts.nodes = Some(NodeAuthorizer::new(options.features)),
                AuthorizationMode::Rbac => parts.rbac = Some(Rbac::new()),
                AuthorizationMode::AlwaysAllow
                | AuthorizationMode::AlwaysDeny
                | AuthorizationMode::Webhook => {}
            }
        }
        Ok(parts)
    }

    /// Whether a new configuration has all that is there since the start: others depend on it.
    fn check(&self, configs: &[AuthorizerConfig]) -> Result<(), String> {
        let mut missing = self.required.clone();
        for config in configs {
            missing.remove(config.kind());
        }
        if missing.is_empty() {
            return Ok(());
        }
        let missing: Vec<&str> = missing.into_iter().collect();
        Err(format!("missing required types: [{}]", missing.join(" ")))
    }

    fn authorizer(&self, mode: AuthorizationMode) -> Result<Arc<dyn Authorizer>, String> {
        let found: Option<Arc<dyn Authorizer>> = match mode {
            AuthorizationMode::AlwaysAllow => Some(Arc::new(AlwaysAllow)),
            AuthorizationMode::AlwaysDeny => Some(Arc::new(AlwaysDeny)),
            AuthorizationMode::Abac => self.policies.clone().map(|part| part as _),
            AuthorizationMode::Node => self.nodes.clone().map(|part| part as _),
            AuthorizationMode::Rbac => self.rbac.clone().map(|part| part as _),
            AuthorizationMode::Webhook => None,
        };
        found.ok_or_else(|| {
            format!(
                "authorizer type {} is not allowed if it was not enabled at initial server startup",
                AuthorizerConfig::Mode(mode).kind()
            )
        })
    }
}

#[async_trait::async_trait]
impl Authorizer for AuthorizerChain {
    async fn authorize(&self, attributes: &Attributes<'_>) -> Decision {
        // They are not counted and have no rules in a review, as upstream has it.
        if self.privileged.includes(attributes.user) {
            return Decision::Allow(String::new());
        }
        let links = self.current.load_full();
        let (decision, by) = links.union.decide(attributes).await;
        if let Some(link) = by.and_then(|index| links.links.get(index)) {
            let count = match &decision {
                Decision::Allow(_) => &link.allowed,
                _ => &link.denied,
            };
            count.fetch_add(1, Ordering::Relaxed);
        }
        decision
    }

    fn used(&self, attributes: &Attributes<'_>, reason: &str) {
        if let Some(rbac) = &self.parts.rbac {
            rbac.used(attributes, reason);
        }
    }

    async fn rules_for(&self, user: &User, namespace: &str) -> ResolvedRules {
        self.current.load_full().union.rules_for(user, namespace).await
    }
}

/// A webhook that is asked about the requests that its conditions match.
#[derive(Debug)]
struct Conditional {
    conditions: Arc<Conditions>,
    webhook: AccessWebhook,
    fails_closed: bool,
    link: Arc<Link>,
}

#[async_trait::async_trait]
impl Authorizer for Conditional {
    async fn authorize(&self, attributes: &Attributes<'_>) -> Decision {
        let began = Instant::now();
        let spec = access_review_spec(attributes);
        // Selectors and groups are the client's.
        let bytes = spec.to_string().len();
        let conditions = self.conditions.clone();
        let matched = blocking::compute(bytes, move || conditions.match_request(spec));
        let matched = matched.await.and_then(|matched| matched);
        if let Some(figures) = &self.link.conditions {
            figures.took.observe(began.elapsed());
            let count = match &matched {
                Ok(true) => None,
                Ok(false) => Some(&figures.exclusions),
                Err(_) => Some(&figures.errors),
            };
            if let Some(count) = count {
                count.fetch_add(1, Ordering::Relaxed);
            }
        }
        match matched {
            Ok(true) => self.webhook.authorize(attributes).await,
            Ok(false) => Decision::NoOpinion(String::new()),
            Err(error) => Decision::Failed(Failure {
                error,
                reason: String::new(),
                denies: self.fails_closed,
            }),
        }
    }

    async fn rules_for(&self, user: &User, namespace: &str) -> ResolvedRules {
        self.webhook.rules_for(user, namespace).await
    }
}

impl Collect for AuthorizerChain {
    fn collect(&self, out: &mut String) {
        let all = self.all.lock();
        let count = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let name = "apiserver_authorization_decisions_total";
        let help = "Total number of terminal decisions made by an authorizer split by authorizer type, name, and decision.";
        family(out, name, "counter", help);
        for link in &*all {
            for (decision, value) in [("allowed", &link.allowed), ("denied", &link.denied)] {
                if count(value) > 0 {
                    let labels = [("type", link.kind), ("name", &*link.name), ("decision", decision)];
                    sample(out, name, &labels, count(value));
                }
            }
        }
        let conditions = || {
            all.iter().filter_map(|link| {
                let figures = link.conditions.as_ref()?;
                let labels = [("type", link.kind), ("name", &*link.name)];
                (figures.took.count() > 0).then_some((figures, labels))
            })
        };
        if conditions().next().is_none() {
            return;
        }
        let name = "apiserver_authorization_match_condition_evaluation_errors_total";
        let help = "Total number of errors when an authorization webhook encounters a match condition error split by authorizer type and name.";
        family(out, name, "counter", help);
        for (figures, labels) in conditions() {
            sample(out, name, &labels, count(&figures.errors));
        }
        let name = "apiserver_authorization_match_condition_exclusions_total";
        let help = "Total number of exclusions when an authorization webhook is skipped because match conditions exclude it.";
        family(out, name, "counter", help);
        for (figures, labels) in conditions() {
            sample(out, name, &labels, count(&figures.exclusions));
        }
        let name = "apiserver_authorization_match_condition_evaluation_seconds";
        let help =
            "Authorization match condition evaluation time in seconds, split by authorizer type and name.";
        family(out, name, "histogram", help);
        for (figures, labels) in conditions() {
            figures.took.write(out, name, &labels);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use generic_server::delegated::AccessReviewVersion;

    use super::*;
    use crate::deps::KindFeatures;

    fn options(file: &Path) -> AuthorizationOptions {
        AuthorizationOptions {
            source: AuthorizationSource::File(file.into()),
            policy_file: None,
            features: KindFeatures::default(),
        }
    }

    fn write(file: &Path, authorizers: &str) {
        let text = format!(
            "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthorizationConfiguration\nauthorizers: {authorizers}\n"
        );
        std::fs::write(file, text).expect("it is written");
    }

    fn attributes(user: &User) -> Attributes<'_> {
        Attributes {
            user,
            verb: "get",
            is_resource: false,
            group: "",
            version: "",
            resource: "",
            subresource: "",
            namespace: "",
            name: "",
            path: "/healthz",
            field_selector: "",
            label_selector: "",
        }
    }

    #[tokio::test]
    async fn a_changed_file_takes_effect_and_a_broken_one_does_not() {
        let folder = tempfile::tempdir().expect("a directory");
        let file = folder.path().join("authorization.yaml");
        write(
            &file,
            "[{type: RBAC, name: rbac}, {type: AlwaysDeny, name: alwaysdeny}]",
        );
        let chain = AuthorizerChain::new(&options(&file), Route::Direct).expect("a chain");
        let user = User::default();
        let denied = Decision::NoOpinion("Everything is forbidden.".into());
        assert_eq!(chain.authorize(&attributes(&user)).await, denied);
        for (broken, why) in [
            (
                "[{type: AlwaysAllow, name: alwaysallow}]",
                "missing required types: [AlwaysDeny RBAC]",
            ),
            (
                "[{type: RBAC, name: rbac}, {type: AlwaysDeny, name: alwaysdeny}, {type: Node, name: node}]",
                "authorizer type Node is not allowed if it was not enabled at initial server startup",
            ),
            (
                "[]",
                "authorizers: Required value: at least one authorization mode must be defined",
            ),
        ] {
            write(&file, broken);
            assert_eq!(chain.reload(), Err(why.to_string()));
            assert_eq!(chain.authorize(&attributes(&user)).await, denied);
        }
        write(
            &file,
            "[{type: RBAC, name: rbac}, {type: AlwaysDeny, name: alwaysdeny}, {type: AlwaysAllow, name: alwaysallow}]",
        );
        assert_eq!(chain.reload(), Ok(()));
        assert_eq!(
            chain.authorize(&attributes(&user)).await,
            Decision::Allow(String::new())
        );
        let mut out = String::new();
        chain.collect(&mut out);
        let counted = "apiserver_authorization_decisions_total{type=\"AlwaysAllow\",name=\"alwaysallow\",decision=\"allowed\"} 1\n";
        assert!(out.contains(counted), "{out}");
    }

    #[test]
    fn files_that_cannot_be_used_are_named() {
        #[track_caller]
        fn check(options: AuthorizationOptions, expected: &str) {
            let why = AuthorizerChain::new(&options, Route::Direct).expect_err("it is refused");
            assert!(why.starts_with(expected), "{why}");
        }
        check(
            options(Path::new("/nowhere")),
            "--authorization-config: \"/nowhere\": ",
        );
        let folder = tempfile::tempdir().expect("a directory");
        let file = folder.path().join("authorization.yaml");
        write(&file, "[{type: ABAC, name: abac}]");
        check(
            options(&file),
            "authorization-mode ABAC's authorization policy file not passed",
        );
        let policies = AuthorizationOptions {
            policy_file: Some("/nowhere".into()),
            features: KindFeatures::default(),
            ..options(&file)
        };
        check(policies, "--authorization-policy-file: open /nowhere: ");
        let webhook = AuthorizationOptions {
            source: AuthorizationSource::Modes {
                modes: vec![AuthorizationMode::Webhook],
                webhook: Some(AuthorizationWebhookOptions {
                    config_file: "/nowhere".into(),
                    version: AccessReviewVersion::V1,
                    authorized_ttl: Duration::ZERO,
                    unauthorized_ttl: Duration::ZERO,
                }),
            },
            policy_file: None,
            features: KindFeatures::default(),
        };
        check(
            webhook,
            "--authorization-webhook-config-file: stat /nowhere: no such file or directory",
        );
    }
}
