//! Which requests a FlowSchema is for.

use super::objects::{NonResourceRule, PolicyRule, ResourceRule, SchemaSpec, Subject};
use crate::request::{RequestInfo, User};

const SERVICE_ACCOUNTS: &str = "system:serviceaccount:";

/// The rules of a schema, made for matching.
#[derive(Debug)]
pub(crate) struct Rules(Vec<Rule>);

#[derive(Debug)]
struct Rule {
    subjects: Vec<Who>,
    resources: Vec<Resources>,
    paths: Vec<Paths>,
}

#[derive(Debug)]
enum Who {
    Anyone,
    User(String),
    Group(String),
    /// Names of users begin with this: the service accounts of a namespace.
    Prefix(String),
}

/// A list in which a lone `*` stands for everything.
#[derive(Debug)]
enum Names {
    All,
    These(Vec<String>),
}

#[derive(Debug)]
struct Resources {
    verbs: Names,
    groups: Names,
    /// With their subresources, as `pods/log`.
    resources: Names,
    cluster_scope: bool,
    namespaces: Names,
}

#[derive(Debug)]
struct Paths {
    verbs: Names,
    /// Each with the prefix that it stands for, too: upstream has every path stand for those below it.
    paths: Vec<(String, String)>,
    all: bool,
}

impl Rules {
    /// The rules of a schema.
    pub(crate) fn compile(spec: &SchemaSpec) -> Self {
        Rules(spec.rules.iter().map(Rule::compile).collect())
    }

    /// Whether a request is one of the schema's.
    pub(crate) fn matches(&self, user: &User, info: &RequestInfo) -> bool {
        self.0.iter().any(|rule| {
            rule.subjects.iter().any(|who| who.matches(user))
                && match info.is_resource {
                    true => rule.resources.iter().any(|resources| resources.matches(info)),
                    false => rule.paths.iter().any(|paths| paths.matches(info)),
                }
        })
    }
}

impl Rule {
    fn compile(rule: &PolicyRule) -> Self {
        Rule {
            subjects: rule.subjects.iter().filter_map(Who::compile).collect(),
            resources: rule.resource_rules.iter().map(Resources::compile).collect(),
            paths: rule.non_resource_rules.iter().map(Paths::compile).collect(),
        }
    }
}

impl Who {
    /// `None` for a subject that matches nobody.
    fn compile(subject: &Subject) -> Option<Self> {
        match subject.kind.as_str() {
            "User" => subject.user.as_ref().map(|user| match user.name.as_str() {
                "*" => Who::Anyone,
                name => Who::User(name.into()),
            }),
            "Group" => subject.group.as_ref().map(|group| match group.name.as_str() {
                "*" => Who::Anyone,
                name => Who::Group(name.into()),
            }),
            "ServiceAccount" => subject.service_account.as_ref().map(|account| {
                let prefix = format!("{SERVICE_ACCOUNTS}{}:", account.namespace);
                match account.name.as_str() {
                    "*" => Who::Prefix(prefix),
                    name => Who::User(prefix + name),
                }
            }),
            _ => None,
        }
    }

    fn matches(&self, user: &User) -> bool {
        match self {
            Who::Anyone => true,
            Who::User(name) => user.name == *name,
            Who::Group(group) => user.in_group(group),
            Who::Prefix(prefix) => user.name.starts_with(prefix),
        }
    }
}

impl Names {
    fn compile(list: &[String]) -> Self {
        match list {
            [one] if one == "*" => Names::All,
            list => Names::These(list.to_vec()),
        }
    }

    fn has(&self, name: &str) -> bool {
        self.any(|known| known == name)
    }

    fn any(&self, is: impl Fn(&str) -> bool) -> bool {
        match self {
            Names::All => true,
            Names::These(names) => names.iter().any(|name| is(name)),
        }
    }
}

impl Resources {
    fn compile(rule: &ResourceRule) -> Self {
        Resources {
            verbs: Names::compile(&rule.verbs),
            groups: Names::compile(&rule.api_groups),
            resources: Names::compile(&rule.resources),
            cluster_scope: rule.cluster_scope,
            namespaces: Names::compile(&rule.namespaces),
        }
    }

    fn matches(&self, info: &RequestInfo) -> bool {
        let is_asked = |known: &str| match info.subresource.is_empty() {
            true => known == info.resource,
            false => known
                .split_once('/')
                .is_some_and(|(resource, sub)| resource == info.resource && sub == info.subresource),
        };
        self.verbs.has(&info.verb)
            && self.resources.any(is_asked)
            && self.groups.has(&info.group)
            && match info.namespace.is_empty() {
                true => self.cluster_scope,
                false => self.namespaces.has(&info.namespace),
            }
    }
}

impl Paths {
    fn compile(rule: &NonResourceRule) -> Self {
        let prefix = |path: &String| {
            let mut prefix = path.strip_suffix('*').unwrap_or(path).to_string();
            if !prefix.ends_with('/') {
                prefix.push('/');
            }
            (path.clone(), prefix)
        };
        Paths {
            verbs: Names::compile(&rule.verbs),
            all: rule.urls.iter().any(|path| path == "*"),
            paths: rule.urls.iter().map(prefix).collect(),
        }
    }

    fn matches(&self, info: &RequestInfo) -> bool {
        let below = |(path, prefix): &(String, String)| info.path == *path || info.path.starts_with(prefix);
        self.verbs.has(&info.verb) && (self.all || self.paths.iter().any(below))
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;
    use serde_json::{Value, json};

    use super::*;

    fn user(name: &str, groups: &[&str]) -> User {
        User {
            name: name.into(),
            groups: groups.iter().map(ToString::to_string).collect(),
            ..User::default()
        }
    }

    fn info(method: &http::Method, path: &str) -> RequestInfo {
        let uri: http::Uri = path.parse().expect("a path");
        crate::request_info::resolve(method, &uri).expect("a request")
    }

    fn rules(rules: &Value) -> Rules {
        let spec = SchemaSpec::deserialize(json!({"rules": rules})).expect("rules");
        Rules::compile(&spec)
    }

    #[test]
    fn subjects() {
        #[track_caller]
        fn check(subject: Value, who: &User, expected: bool) {
            let resources =
                json!([{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "clusterScope": true}]);
            let rules = rules(&json!([{"subjects": [subject], "resourceRules": resources}]));
            let info = info(&http::Method::GET, "/api/v1/nodes");
            assert_eq!(rules.matches(who, &info), expected, "{subject} {}", who.name);
        }
        let named = |kind: &str, key: &str, name: &str| json!({"kind": kind, key: {"name": name}});
        let account = |namespace: &str, name: &str| json!({"kind": "ServiceAccount", "serviceAccount": {"namespace": namespace, "name": name}});
        let (anna, sa) = (
            user("anna", &["dev"]),
            user("system:serviceaccount:ns:robot", &[]),
        );
        check(named("User", "user", "anna"), &anna, true);
        check(named("User", "user", "ann"), &anna, false);
        check(named("User", "user", "*"), &sa, true);
        check(named("Group", "group", "dev"), &anna, true);
        check(named("Group", "group", "ops"), &anna, false);
        check(named("Group", "group", "*"), &user("", &[]), true);
        check(account("ns", "robot"), &sa, true);
        check(account("ns", "*"), &sa, true);
        check(account("ns", "rob"), &sa, false);
        check(account("n", "*"), &sa, false);
        check(account("ns", "*"), &anna, false);
        // Parts that do not go with the kind.
        check(named("User", "group", "dev"), &anna, false);
        check(named("Other", "user", "anna"), &anna, false);
    }

    #[test]
    fn resources() {
        #[track_caller]
        fn check(rule: Value, method: &http::Method, path: &str, expected: bool) {
            let subjects = json!([{"kind": "Group", "group": {"name": "*"}}]);
            let rules = rules(&json!([{"subjects": subjects, "resourceRules": [rule]}]));
            let info = info(method, path);
            assert_eq!(
                rules.matches(&user("u", &[]), &info),
                expected,
                "{rule} {method} {path}"
            );
        }
        let (get, post) = (&http::Method::GET, &http::Method::POST);
        let pods = "/api/v1/namespaces/ns/pods";
        let rule = |verbs: Value, groups: Value, resources: Value, cluster: bool, namespaces: Value| {
            json!({
                "verbs": verbs, "apiGroups": groups, "resources": resources, "clusterScope": cluster, "namespaces": namespaces,
            })
        };
        let all = || json!(["*"]);
        check(rule(all(), all(), all(), true, all()), get, pods, true);
        check(
            rule(json!(["list", "get"]), all(), all(), true, all()),
            get,
            pods,
            true,
        );
        check(rule(json!(["get"]), all(), all(), true, all()), get, pods, false);
        check(
            rule(all(), json!([""]), json!(["pods"]), false, json!(["ns"])),
            post,
            pods,
            true,
        );
        check(
            rule(all(), json!(["apps"]), json!(["pods"]), false, json!(["ns"])),
            post,
            pods,
            false,
        );
        check(
            rule(all(), all(), json!(["pods"]), true, json!(["other"])),
            get,
            pods,
            false,
        );
        // All namespaces at once are the cluster's scope.
        check(
            rule(all(), all(), all(), false, all()),
            get,
            "/api/v1/pods",
            false,
        );
        check(
            rule(all(), all(), all(), true, json!([])),
            get,
            "/api/v1/pods",
            true,
        );
        check(rule(all(), all(), all(), true, json!([])), get, pods, false);
        // Subresources are named with their resource.
        let log = "/api/v1/namespaces/ns/pods/p/log";
        check(rule(all(), all(), json!(["pods"]), true, all()), get, log, false);
        check(
            rule(all(), all(), json!(["pods/log"]), true, all()),
            get,
            log,
            true,
        );
        check(
            rule(all(), all(), json!(["pods/log"]), true, all()),
            get,
            pods,
            false,
        );
        check(
            rule(all(), all(), json!(["pods/*"]), true, all()),
            get,
            log,
            false,
        );
        // A star beside others is none.
        check(
            rule(all(), all(), json!(["*", "x"]), true, all()),
            get,
            pods,
            false,
        );
        check(rule(all(), all(), all(), true, all()), get, "/healthz", false);
    }

    #[test]
    fn paths() {
        #[track_caller]
        fn check(urls: Value, verbs: Value, path: &str, expected: bool) {
            let subjects = json!([{"kind": "Group", "group": {"name": "*"}}]);
            let rule = json!({"verbs": verbs, "nonResourceURLs": urls});
            let rules = rules(&json!([{"subjects": subjects, "nonResourceRules": [rule]}]));
            let info = info(&http::Method::GET, path);
            assert_eq!(rules.matches(&user("u", &[]), &info), expected, "{urls} {path}");
        }
        let get = || json!(["get"]);
        check(json!(["*"]), get(), "/anything", true);
        check(json!(["*"]), json!(["put"]), "/anything", false);
        check(json!(["/healthz"]), get(), "/healthz", true);
        check(json!(["/healthz"]), get(), "/healthzz", false);
        check(json!(["/healthz"]), get(), "/healthz/ping", true);
        check(json!(["/a/*"]), get(), "/a/b", true);
        check(json!(["/a/*"]), get(), "/a", false);
        check(json!(["/x", "/y"]), get(), "/y", true);
        check(json!(["*"]), get(), "/api/v1/pods", false);
    }
}
