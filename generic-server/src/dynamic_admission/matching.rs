//! Which writes a webhook or policy is about: operations, resources, scope, and selectors on the namespace and the object.
//!
//! Mirrors upstream's `webhook/predicates` and `policy/matching`.

use std::sync::Arc;

use machinery::selector::LabelSelector;
use machinery::{ApiError, GroupResource, GroupVersionResource, meta};
use serde_json::{Map, Value};

use crate::admission::{Attributes, Operation};
use crate::directory::{Directory, Versions};

const CONFIGURATION_GROUP: &str = "admissionregistration.k8s.io";

/// Whether a resource configures admission itself. Webhooks and policies never see those: a broken one could not be removed.
pub(super) fn exempt(gvr: &GroupVersionResource) -> bool {
    &*gvr.group == CONFIGURATION_GROUP
}

/// Whether policies that are stored never see a resource: those that configure policies. They see the configurations of webhooks.
pub(super) fn exempt_from_policies(gvr: &GroupVersionResource) -> bool {
    exempt(gvr) && !gvr.resource.ends_with("webhookconfigurations")
}

/// Whether no policy sees a resource: reviews of tokens and of access, without which nothing in a cluster works.
pub(super) fn without_policies(gvr: &GroupVersionResource) -> bool {
    let resource = &*gvr.resource;
    match &*gvr.group {
        "authentication.k8s.io" => matches!(resource, "selfsubjectreviews" | "tokenreviews"),
        "authorization.k8s.io" => matches!(
            resource,
            "localsubjectaccessreviews"
                | "selfsubjectaccessreviews"
                | "selfsubjectrulesreviews"
                | "subjectaccessreviews"
        ),
        _ => false,
    }
}

/// One entry of `rules`, `resourceRules` or `excludeResourceRules`.
#[derive(Debug)]
pub(super) struct Rule {
    groups: Vec<String>,
    versions: Vec<String>,
    operations: Vec<String>,
    resources: Vec<String>,
    scope: String,
    /// Names it is limited to; empty: none.
    names: Vec<String>,
}

fn texts(value: &Value, key: &str) -> Vec<String> {
    let items = value.get(key).and_then(Value::as_array).into_iter().flatten();
    items.filter_map(Value::as_str).map(str::to_string).collect()
}

impl Rule {
    /// The rules under a key.
    pub(super) fn list(value: &Value, key: &str) -> Vec<Rule> {
        let rules = value.get(key).and_then(Value::as_array).into_iter().flatten();
        rules
            .map(|rule| Rule {
                groups: texts(rule, "apiGroups"),
                versions: texts(rule, "apiVersions"),
                operations: texts(rule, "operations"),
                resources: texts(rule, "resources"),
                scope: meta::dig_str(rule, &["scope"]).to_string(),
                names: texts(rule, "resourceNames"),
            })
            .collect()
    }

    /// Whether it is about such writes, of any object.
    pub(super) fn covers(&self, operation: Operation, gvr: &GroupVersionResource, subresource: &str) -> bool {
        let any = |list: &[String], wanted: &str| list.iter().any(|item| item == "*" || item == wanted);
        any(&self.operations, operation.as_str())
            && any(&self.groups, &gvr.group)
            && any(&self.versions, &gvr.version)
            && self.resources.iter().any(|pattern| {
                let (resource, sub) = pattern.split_once('/').unwrap_or((pattern, ""));
                (resource == "*" || resource == &*gvr.resource) && (sub == "*" || sub == subresource)
            })
    }

    /// Whether it is about a write, if that were one of this resource.
    fn matches(&self, attributes: &Attributes<'_>, gvr: &GroupVersionResource) -> bool {
        let clustered = is_namespace(attributes) || attributes.namespace.is_empty();
        let scope = match self.scope.as_str() {
            "Namespaced" => !clustered,
            "Cluster" => clustered,
            _ => true,
        };
        scope
            && self.covers(attributes.operation, gvr, attributes.subresource)
            && (self.names.is_empty() || self.names.iter().any(|name| name == attributes.name))
    }
}

/// `Equivalent` is the default of both kinds.
fn is_equivalent(value: &Value) -> bool {
    meta::dig_str(value, &["matchPolicy"]) != "Exact"
}

fn is_namespace(attributes: &Attributes<'_>) -> bool {
    attributes.gvr.group.is_empty() && &*attributes.gvr.resource == "namespaces"
}

/// The namespace as webhooks and policies see it: requests about a namespace have its name there.
pub(super) fn namespace_of<'a>(attributes: &Attributes<'a>) -> &'a str {
    if is_namespace(attributes) {
        attributes.name
    } else {
        attributes.namespace
    }
}

/// The namespaces of the process.
#[derive(Debug, Clone)]
pub(super) struct Namespaces(pub(super) Arc<Directory>);

impl Namespaces {
    /// A namespace, or 404.
    pub(super) async fn get(&self, name: &str) -> Result<Value, ApiError> {
        let resource = GroupResource::new("", "namespaces");
        let registered = self.0.get(&resource);
        let registered = registered.ok_or_else(|| ApiError::not_found(&resource, name))?;
        Ok(registered.store.as_system().get("", name).await?.value())
    }
}

/// The version of a write that rules are about.
#[derive(Debug)]
pub(super) enum Target {
    /// That of the request.
    Requested,
    /// Another one of the same objects.
    Other(Arc<dyn Versions>, usize),
}

/// Everything that decides whether a webhook, policy or binding is about a write.
#[derive(Debug)]
pub(super) struct Matcher {
    namespaces: Result<LabelSelector, String>,
    objects: Result<LabelSelector, String>,
    rules: Vec<Rule>,
    excluded: Vec<Rule>,
    /// Without rules everything matches (bindings); else nothing does.
    open: bool,
    /// Rules count for every version of what they name.
    equivalent: bool,
}

impl Matcher {
    fn selectors(value: &Value) -> [Result<LabelSelector, String>; 2] {
        ["namespaceSelector", "objectSelector"].map(|key| match value.get(key) {
            Some(selector) if !selector.is_null() => LabelSelector::from_value(selector),
            _ => Ok(LabelSelector::everything()),
        })
    }

    /// Of a webhook.
    pub(super) fn of_webhook(hook: &Value) -> Self {
        let [namespaces, objects] = Self::selectors(hook);
        Matcher {
            namespaces,
            objects,
            rules: Rule::list(hook, "rules"),
            excluded: Vec::new(),
            open: false,
            equivalent: is_equivalent(hook),
        }
    }

    /// Of `matchConstraints` or `matchResources`.
    pub(super) fn of_resources(resources: &Value) -> Self {
        let [namespaces, objects] = Self::selectors(resources);
        let rules = Rule::list(resources, "resourceRules");
        Matcher {
            namespaces,
            objects,
            open: rules.is_empty(),
            rules,
            excluded: Rule::list(resources, "excludeResourceRules"),
            equivalent: is_equivalent(resources),
        }
    }

    /// Whether it may match such writes, for any object.
    pub(super) fn covers(
        &self,
        operation: Operation,
        gvr: &GroupVersionResource,
        subresource: &str,
        directory: &Directory,
    ) -> bool {
        let covers = |gvr: &GroupVersionResource| {
            let mut rules = self.rules.iter();
            rules.any(|rule| rule.covers(operation, gvr, subresource))
        };
        let equivalents = || {
            let versions = directory.versions(&gvr.group_resource());
            versions.is_some_and(|versions| {
                let mut served = versions.served().iter();
                served.any(|version| version.has(subresource) && covers(&version.gvr))
            })
        };
        self.open || covers(gvr) || (self.equivalent && equivalents())
    }

    /// The version under which one of some rules is about a write.
    fn find(&self, rules: &[Rule], attributes: &Attributes<'_>, directory: &Directory) -> Option<Target> {
        if rules.iter().any(|rule| rule.matches(attributes, attributes.gvr)) {
            return Some(Target::Requested);
        }
        if !self.equivalent || rules.is_empty() {
            return None;
        }
        let versions = directory.versions(&attributes.gvr.group_resource())?;
        let index = rules.iter().find_map(|rule| {
            versions.served().iter().position(|version| {
                version.gvr != *attributes.gvr
                    && version.has(attributes.subresource)
                    && rule.matches(attributes, &version.gvr)
            })
        })?;
        Some(Target::Other(versions, index))
    }

    /// The version under which it is about this write; `None` when it is not.
    ///
    /// # Errors
    /// A namespace that is not there, and selectors that do not parse, when the rest matches.
    pub(super) async fn matches(
        &self,
        attributes: &Attributes<'_>,
        object: Option<&Value>,
        namespaces: &Namespaces,
    ) -> Result<Option<Target>, ApiError> {
        let directory = &*namespaces.0;
        if self.find(&self.excluded, attributes, directory).is_some() {
            return Ok(None);
        }
        let target = match self.open {
            true => Some(Target::Requested),
            false => self.find(&self.rules, attributes, directory),
        };
        let selected = target.is_some()
            && self.selects_object(attributes, object)?
            && self.selects_namespace(attributes, object, namespaces).await?;
        Ok(target.filter(|_| selected))
    }

    fn selects_object(&self, attributes: &Attributes<'_>, object: Option<&Value>) -> Result<bool, ApiError> {
        let selector = self.objects.as_ref().map_err(ApiError::internal)?;
        if selector.is_empty() {
            return Ok(true);
        }
        let selected = |object: Option<&Value>| object.is_some_and(|object| selects(selector, object));
        Ok(selected(object) || selected(attributes.old))
    }

    async fn selects_namespace(
        &self,
        attributes: &Attributes<'_>,
        object: Option<&Value>,
        namespaces: &Namespaces,
    ) -> Result<bool, ApiError> {
        // Objects without a namespace are never exempted.
        if !is_namespace(attributes) && attributes.namespace.is_empty() {
            return Ok(true);
        }
        let selector = self.namespaces.as_ref().map_err(ApiError::internal)?;
        if selector.is_empty() {
            return Ok(true);
        }
        let written = matches!(attributes.operation, Operation::Create | Operation::Update);
        if is_namespace(attributes)
            && attributes.subresource.is_empty()
            && written
            && let Some(namespace) = object
        {
            return Ok(selects(selector, namespace));
        }
        Ok(selects(
            selector,
            &namespaces.get(namespace_of(attributes)).await?,
        ))
    }
}

fn selects(selector: &LabelSelector, object: &Value) -> bool {
    static NONE: std::sync::LazyLock<Map<String, Value>> = std::sync::LazyLock::new(Map::new);
    selector.matches(meta::labels(object).unwrap_or(&NONE))
}
