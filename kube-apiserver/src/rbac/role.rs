//! The rules of one role, arranged for deciding. A request looks into every role that its user holds, so what a role costs must not
//! grow with its length: rules of many strings are searched by halves, short ones from front to back.

use std::cmp::Ordering;

use generic_server::authz::Attributes;
use serde_json::Value;

use super::rule::PolicyRule;

/// How many strings a rule is made of before it gets an order to search by. Below, comparing them all is as quick.
const SHORT: usize = 64;

/// The rules of a role.
#[derive(Debug)]
pub(super) struct Role {
    rules: Vec<PolicyRule>,
    /// Of each rule its order, where it is long; empty when none is.
    orders: Vec<Option<Order>>,
}

impl Role {
    /// From a Role or ClusterRole.
    pub(super) fn read(object: &Value) -> Self {
        let rules = PolicyRule::read_all(object);
        let mut orders: Vec<Option<Order>> = rules
            .iter()
            .map(|rule| (rule.strings() > SHORT).then(|| Order::new(rule)))
            .collect();
        if orders.iter().all(Option::is_none) {
            orders = Vec::new();
        }
        Role { rules, orders }
    }

    /// The rules as they are written.
    pub(super) fn rules(&self) -> &[PolicyRule] {
        &self.rules
    }

    /// Whether a rule allows the request. Allocates nothing.
    pub(super) fn allows(&self, a: &Attributes<'_>) -> bool {
        self.allowing(a).is_some()
    }

    /// The position of the first rule that allows the request.
    pub(super) fn allowing(&self, a: &Attributes<'_>) -> Option<usize> {
        if self.orders.is_empty() {
            return self.rules.iter().position(|rule| rule.allows(a));
        }
        let mut rules = self.rules.iter().zip(&self.orders);
        rules.position(|(rule, order)| match order {
            Some(order) => order.allows(rule, a),
            None => rule.allows(a),
        })
    }
}

/// The strings of a long rule in order. Decides as [`PolicyRule::allows`] does.
#[derive(Debug)]
struct Order {
    verbs: Sorted,
    api_groups: Sorted,
    resources: Sorted,
    resource_names: Sorted,
    paths: Sorted,
    stems: Stems,
}

impl Order {
    fn new(rule: &PolicyRule) -> Self {
        Order {
            verbs: Sorted::new(&rule.verbs),
            api_groups: Sorted::new(&rule.api_groups),
            resources: Sorted::new(&rule.resources),
            resource_names: Sorted::new(&rule.resource_names),
            paths: Sorted::new(&rule.non_resource_urls),
            stems: Stems::new(&rule.non_resource_urls),
        }
    }

    fn allows(&self, rule: &PolicyRule, a: &Attributes<'_>) -> bool {
        if !self.verbs.has_or_every(&rule.verbs, a.verb) {
            return false;
        }
        if !a.is_resource {
            let paths = &rule.non_resource_urls;
            return self.paths.has(paths, &[a.path]) || self.stems.has_prefix_of(paths, a.path);
        }
        self.api_groups.has_or_every(&rule.api_groups, a.group)
            && self.has_resource(&rule.resources, a.resource, a.subresource)
            && (rule.resource_names.is_empty() || self.resource_names.has(&rule.resource_names, &[a.name]))
    }

    fn has_resource(&self, list: &[String], resource: &str, subresource: &str) -> bool {
        if subresource.is_empty() {
            return self.resources.has_or_every(list, resource);
        }
        self.resources.has_or_every(list, "*")
            || self.resources.has(list, &[resource, "/", subresource])
            || self.resources.has(list, &["*/", subresource])
    }
}

/// A list's positions in the order of its strings, so that no string is kept twice.
#[derive(Debug)]
struct Sorted {
    positions: Box<[usize]>,
    /// Whether `*` is among the strings.
    every: bool,
}

impl Sorted {
    fn new(list: &[String]) -> Self {
        let mut positions: Box<[usize]> = (0..list.len()).collect();
        positions.sort_by_key(|at| list.get(*at));
        let every = list.iter().any(|text| text == "*");
        Sorted { positions, every }
    }

    /// Whether the parts, joined, are one of the strings.
    fn has(&self, list: &[String], parts: &[&str]) -> bool {
        let order = |at: &usize| compare(text(list, *at), parts);
        self.positions.binary_search_by(order).is_ok()
    }

    fn has_or_every(&self, list: &[String], wanted: &str) -> bool {
        self.every || self.has(list, &[wanted])
    }
}

/// The patterns that end with `*`, without it: in order, and none that begins with another. So at most one of them begins a path, and
/// that is the last one that is not behind the path.
#[derive(Debug)]
struct Stems(Box<[usize]>);

impl Stems {
    fn new(list: &[String]) -> Self {
        let mut positions: Vec<usize> = (0..list.len())
            .filter(|at| text(list, *at).ends_with('*'))
            .collect();
        positions.sort_by_key(|at| stem(list, *at));
        let mut kept: Option<usize> = None;
        positions.retain(|at| {
            let covered = kept.is_some_and(|before| stem(list, *at).starts_with(stem(list, before)));
            if !covered {
                kept = Some(*at);
            }
            !covered
        });
        Stems(positions.into())
    }

    fn has_prefix_of(&self, list: &[String], path: &str) -> bool {
        let before = |at: &usize| compare(stem(list, *at), &[path]) != Ordering::Greater;
        let end = self.0.partition_point(before);
        let last = end.checked_sub(1).and_then(|at| self.0.get(at));
        last.is_some_and(|at| path.starts_with(stem(list, *at)))
    }
}

fn text(list: &[String], at: usize) -> &str {
    list.get(at).map(String::as_str).unwrap_or_default()
}

fn stem(list: &[String], at: usize) -> &str {
    text(list, at).trim_end_matches('*')
}

/// Compares a string with parts that are read as one.
fn compare(text: &str, parts: &[&str]) -> Ordering {
    #[cfg(test)]
    crate::json::steps::count();
    text.bytes().cmp(parts.iter().flat_map(|part| part.bytes()))
}

#[cfg(test)]
mod tests {
    use std::sync::LazyLock;

    use generic_server::User;
    use serde_json::json;

    use super::*;
    use crate::json::steps;

    static USER: LazyLock<User> = LazyLock::new(User::default);

    /// A GET of pods.
    fn get() -> Attributes<'static> {
        Attributes {
            user: &USER,
            verb: "get",
            is_resource: true,
            group: "",
            version: "v1",
            resource: "pods",
            subresource: "",
            namespace: "default",
            name: "",
            path: "",
            field_selector: "",
            label_selector: "",
        }
    }

    /// A rule and the same rule made long by strings that match nothing decide alike.
    #[track_caller]
    fn check(rule: Value, attributes: &Attributes<'_>, expected: bool) {
        let short = Role::read(&json!({"rules": [rule.clone()]}));
        assert!(short.orders.is_empty());
        assert_eq!(short.allows(attributes), expected, "short");
        let mut long = rule;
        for key in [
            "verbs",
            "apiGroups",
            "resources",
            "resourceNames",
            "nonResourceURLs",
        ] {
            if let Some(list) = long[key].as_array_mut() {
                list.extend((0..SHORT).map(|n| json!(format!("-{n}"))));
                list.extend((0..SHORT).map(|n| json!(format!("~{n}"))));
            }
        }
        let long = Role::read(&json!({"rules": [long]}));
        assert_eq!(long.orders.len(), 1);
        assert_eq!(long.allows(attributes), expected, "long");
    }

    #[test]
    fn long_rules_decide_as_short_ones() {
        let rule = |resource: &str| json!({"verbs": ["get"], "apiGroups": [""], "resources": [resource]});
        let sub = Attributes {
            subresource: "log",
            ..get()
        };
        let two = Attributes {
            resource: "a/b",
            subresource: "c",
            ..get()
        };
        for (resource, plain, of_log, of_two) in [
            ("pods", true, false, false),
            ("*", true, true, true),
            ("pods/log", false, true, false),
            ("*/log", false, true, false),
            ("pods/*", false, false, false),
            ("pods/logs", false, false, false),
            ("a/b/c", false, false, true),
            ("*/c", false, false, true),
            ("", false, false, false),
        ] {
            check(rule(resource), &get(), plain);
            check(rule(resource), &sub, of_log);
            check(rule(resource), &two, of_two);
        }
        let named = json!({"verbs": ["*"], "apiGroups": ["*"], "resources": ["pods"], "resourceNames": ["b", "a", "*"]});
        for (name, expected) in [("a", true), ("b", true), ("c", false), ("", false), ("*", true)] {
            check(named.clone(), &Attributes { name, ..get() }, expected);
        }
        check(
            json!({"verbs": ["list"], "apiGroups": [""], "resources": ["*"]}),
            &get(),
            false,
        );
        check(
            json!({"verbs": ["get"], "apiGroups": ["apps"], "resources": ["*"]}),
            &get(),
            false,
        );
    }

    #[test]
    fn long_lists_of_paths_decide_as_short_ones() {
        let urls = |urls: &[&str]| json!({"verbs": ["get"], "nonResourceURLs": urls});
        let path = |path: &'static str| Attributes {
            is_resource: false,
            resource: "",
            path,
            ..get()
        };
        for (patterns, asked, expected) in [
            (&["/healthz"][..], "/healthz", true),
            (&["/healthz"], "/healthz/", false),
            (&["/healthz/*"], "/healthz/", true),
            (&["/healthz/*"], "/healthz", false),
            (&["*"], "/", true),
            (&["*"], "", true),
            (&["/a/b/*", "/a/*", "/a/c/*"], "/a/d", true),
            (&["/a/b/*", "/a/c/*"], "/a/d", false),
            (&["/a/b/*", "/a/c/*"], "/a/c/d", true),
            (&["/a**"], "/ab", true),
            (&["/a*b"], "/a*b", true),
            (&["/a*b"], "/axb", false),
            (&[], "/", false),
        ] {
            check(urls(patterns), &path(asked), expected);
        }
    }

    #[test]
    fn ten_thousand_names_are_not_compared_one_by_one() {
        let names: Vec<String> = (0..10_000).map(|n| format!("config-{n}")).collect();
        let role = json!({"rules": [
            {"verbs": ["get"], "apiGroups": [""], "resources": ["configmaps"], "resourceNames": names}]});
        let role = Role::read(&role);
        for (name, expected) in [
            ("config-0", true),
            ("config-9999", true),
            ("other", false),
            ("", false),
        ] {
            let attributes = Attributes {
                resource: "configmaps",
                name,
                ..get()
            };
            let steps = steps::of(|| assert_eq!(role.allows(&attributes), expected, "{name}"));
            assert!((1..=20).contains(&steps), "{name}: {steps} comparisons");
        }
    }
}
