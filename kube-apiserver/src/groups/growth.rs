//! The cost of validating an object grows linearly with its lists: for every kind, every strategy and every object in it that has
//! lists, the field look-ups are counted with `n`, `2n` and `3n` items. A pass that searches a list for each item of a list shows
//! in the second difference, which is nothing for a pass that is linear.

use std::sync::Arc;

use generic_server::Authorized;
use generic_server::registry::strategy::{Strategy, WriteContext};
use generic_server::resource::{ServedResource, Subresource};
use machinery::schema::{Format, SchemaRef, Type, builtin};
use serde_json::{Map, Value, json};

use super::check;
use crate::json::steps;

/// The smallest length of the lists.
const N: usize = 24;
/// How much the second difference may be: the work that a pass does once more or less at a bound. A single search of a list for
/// each of its items makes it at least `N * N`.
const SLACK: usize = 12 * N;

/// A scalar; `item` makes those of different items distinct.
fn scalar(schema: SchemaRef<'_>, item: usize) -> Option<Value> {
    let text = match &schema.node().format {
        Some(Format::Quantity) => format!("{}", item + 1),
        Some(Format::DateTime) => "2026-01-01T00:00:00Z".into(),
        Some(Format::MicroTime) => "2026-01-01T00:00:00.000000Z".into(),
        Some(Format::Byte) => "YWJj".into(),
        _ => format!("a{item}"),
    };
    match schema.node().ty {
        Type::String => Some(text.into()),
        Type::Integer | Type::IntOrString => Some((item + 1).into()),
        Type::Boolean => Some(true.into()),
        _ => None,
    }
}

/// An object of scalars, and of objects of scalars to some depth.
fn flat(schema: SchemaRef<'_>, item: usize, depth: usize) -> Value {
    if let Some(value) = scalar(schema, item) {
        return value;
    }
    let mut out = Map::new();
    for field in schema.node().fields.iter() {
        let inner = schema.at(field.node);
        let value = match inner.node().ty {
            Type::Object if depth > 0 && inner.node().additional.is_none() => {
                Some(flat(inner, item, depth - 1))
            }
            _ => scalar(inner, item),
        };
        out.extend(value.map(|value| (field.name.to_string(), value)));
    }
    Value::Object(out)
}

/// Steps from an object to one below it.
#[derive(Debug, Clone)]
struct Place {
    keys: Vec<String>,
}

impl Place {
    fn below(&self, key: &str) -> Place {
        let mut keys = self.keys.clone();
        keys.push(key.to_string());
        Place { keys }
    }

    fn depth(&self, key: &str) -> usize {
        self.keys.iter().filter(|own| *own == key).count()
    }
}

/// Every object of a kind that has lists or maps. Templates of pods are left to the pod itself.
fn places(schema: SchemaRef<'_>, at: &Place, kind: &str, out: &mut Vec<Place>) {
    let node = schema.node();
    let mut has_lists = false;
    for field in node.fields.iter() {
        let inner = schema.at(field.node);
        let own = inner.node();
        if own.items.is_some() || own.additional.is_some() {
            has_lists = true;
        }
        let object = own.items.map_or(inner, |items| inner.at(items));
        let skipped = matches!(&*field.name, "metadata" | "managedFields")
            || &*field.name == "template" && kind != "PodTemplate" && !at.keys.is_empty()
            || at.depth(&field.name) > 0
            || at.keys.len() > 8;
        if !skipped && !object.node().fields.is_empty() {
            places(object, &at.below(&field.name), kind, out);
        }
    }
    if has_lists {
        out.push(at.clone());
    }
}

/// An object with lists and maps of `count` items at a place, alike or different, and one item in the lists on the way there.
fn sample(schema: SchemaRef<'_>, way: &[String], count: usize, alike: bool) -> Value {
    let item = |index: usize| if alike { 0 } else { index };
    let mut out = flat(schema, 0, 1);
    let Some(map) = out.as_object_mut() else {
        return out;
    };
    match way.split_first() {
        Some((key, rest)) => {
            if let Some((_, inner)) = schema.field(key) {
                let value = match inner.node().items {
                    Some(items) => json!([sample(inner.at(items), rest, count, alike)]),
                    None => sample(inner, rest, count, alike),
                };
                map.insert(key.clone(), value);
            }
        }
        None => {
            for field in schema.node().fields.iter() {
                let inner = schema.at(field.node);
                let node = inner.node();
                let value = match (node.items, node.additional) {
                    (Some(items), _) => (0..count)
                        .map(|index| flat(inner.at(items), item(index), 1))
                        .collect(),
                    (_, Some(values)) => (0..count)
                        .map(|index| {
                            (
                                format!("hugepages-{index}"),
                                flat(inner.at(values), item(index), 1),
                            )
                        })
                        .collect::<Map<_, _>>()
                        .into(),
                    _ => continue,
                };
                map.insert(field.name.to_string(), value);
            }
        }
    }
    out
}

/// Everything that a strategy does with an object, and its cells in a table.
fn judge(resource: &ServedResource, strategy: &dyn Strategy, object: &Value) {
    let authorized = Authorized::system();
    let ctx = WriteContext {
        authorized: &authorized,
        namespace: "n",
        gvk: &resource.gvk,
        dry_run: false,
        expression_faults: &[],
    };
    let mut new = object.clone();
    strategy.default(&mut new);
    strategy.prepare_for_create(&ctx, &mut new);
    strategy.validate_create(&ctx, &new);
    strategy.warnings_on_create(&ctx, &new);
    let old = new.clone();
    let mut new = object.clone();
    strategy.default(&mut new);
    strategy.prepare_for_update(&ctx, &mut new, &old);
    strategy.validate_update(&ctx, &new, &old);
    strategy.warnings_on_update(&ctx, &new, &old);
    strategy.canonicalize(&mut new);
    resource.table.cells(&new, &machinery::table::Ages::now());
}

/// The strategies of a resource and of its subresources that write the whole object.
fn strategies(resource: &ServedResource) -> impl Iterator<Item = &Arc<dyn Strategy>> {
    let views = resource
        .subresources
        .iter()
        .filter_map(|(_, subresource)| match subresource {
            Subresource::View(strategy) => Some(strategy),
            _ => None,
        });
    std::iter::once(&resource.strategy).chain(views)
}

#[test]
fn validation_is_linear_in_the_lists_of_an_object() {
    let mut errors = Vec::new();
    let mut judged = 0;
    for resource in check::resources() {
        let gvk = &resource.gvk;
        let Some(schema) = builtin().kind(&gvk.group, &gvk.version, &gvk.kind) else {
            continue;
        };
        let mut all = Vec::new();
        places(schema.root(), &Place { keys: Vec::new() }, &gvk.kind, &mut all);
        let strategies: Vec<_> = strategies(&resource).collect();
        for (place, alike) in all.iter().flat_map(|place| [(place, false), (place, true)]) {
            let objects = [1, 2, 3].map(|times| sample(schema.root(), &place.keys, times * N, alike));
            for strategy in &strategies {
                judged += 1;
                let [once, twice, thrice] = objects
                    .each_ref()
                    .map(|object| steps::of(|| judge(&resource, &***strategy, object)));
                // A list that is longer than it may be is not looked into, so that more of it costs less.
                let bounded = thrice < once;
                if !bounded && (once + thrice).abs_diff(2 * twice) > SLACK {
                    let path = place.keys.join(".");
                    errors.push(format!(
                        "{} .{path} alike={alike}: {once} {twice} {thrice}",
                        gvk.kind
                    ));
                }
            }
        }
    }
    assert!(judged > 500, "{judged}");
    assert!(errors.is_empty(), "{judged} judged:\n{}", errors.join("\n"));
}

/// The resource, what is tried, and the object with so many items.
type Together = (&'static str, &'static str, fn(usize) -> Value);

/// Objects with lists that belong together, of which the places alone show one at a time.
fn together() -> Vec<Together> {
    fn list(count: usize, item: impl Fn(usize) -> Value) -> Value {
        (0..count).map(item).collect()
    }
    fn map(count: usize, key: impl Fn(usize) -> String) -> Value {
        let members = (0..count).map(|index| (key(index), Value::from("v")));
        members.collect::<Map<_, _>>().into()
    }
    fn selecting(count: usize) -> Value {
        json!({
            "topologyKey": "zone", "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule",
            "matchLabelKeys": list(count, |index| format!("k{index}").into()),
            "mismatchLabelKeys": list(count, |index| format!("m{index}").into()),
            "labelSelector": {"matchExpressions": list(count, |index| json!({"key": format!("j{index}"), "operator": "Exists"}))},
        })
    }
    fn labelled(count: usize, spec: Value) -> Value {
        let key = |index: usize| format!("{}{}", if index.is_multiple_of(2) { "k" } else { "m" }, index / 2);
        json!({"metadata": {"name": "p", "labels": map(2 * count, key)}, "spec": spec})
    }
    vec![
        ("pods", "labels and keys of a spread constraint", |count| {
            labelled(count, json!({"topologySpreadConstraints": [selecting(count)]}))
        }),
        ("pods", "labels and keys of an affinity term", |count| {
            let terms = json!({"requiredDuringSchedulingIgnoredDuringExecution": [selecting(count)]});
            labelled(count, json!({"affinity": {"podAffinity": terms}}))
        }),
        ("pods", "profiles by annotation and containers", |count| {
            let key = |index| format!("container.apparmor.security.beta.kubernetes.io/c{index}");
            json!({"metadata": {"name": "p", "annotations": map(count, key)},
                "spec": {"containers": list(count, |index| json!({"name": format!("c{index}")}))}})
        }),
        ("pods", "claims of a container and their health", |count| {
            let claim = |index| json!({"name": "g", "request": format!("r{index}")});
            let health = |index| json!({"name": format!("claim:g/r{index}"), "resources": []});
            json!({"metadata": {"name": "p"},
                "spec": {"containers": [{"name": "c", "resources": {"claims": list(count, claim)}}]},
                "status": {"containerStatuses": [{"name": "c", "allocatedResourcesStatus": list(count, health)}]}})
        }),
        ("pods", "claims of a pod and their statuses", |count| {
            let claim = |index| json!({"name": format!("c{index}"), "resourceClaimName": "x"});
            json!({"metadata": {"name": "p"}, "spec": {"resourceClaims": list(count, claim)},
                "status": {"resourceClaimStatuses": list(count, claim)}})
        }),
        ("pods", "volumes and their mounts", |count| {
            let volume = |index| json!({"name": format!("v{index}"), "emptyDir": {}});
            let mount = |index| json!({"name": format!("v{index}"), "mountPath": format!("/m{index}")});
            json!({"metadata": {"name": "p"}, "spec": {"volumes": list(count, volume),
                "containers": [{"name": "c", "image": "i", "volumeMounts": list(count, mount)}]}})
        }),
        ("pods", "containers and their statuses", |count| {
            let container = |index| json!({"name": format!("c{index}"), "image": "i"});
            json!({"metadata": {"name": "p"}, "spec": {"containers": list(count, container)},
                "status": {"containerStatuses": list(count, container)}})
        }),
        ("services", "ports and node ports", |count| {
            let port = |index: usize| json!({"name": format!("p{index}"), "port": index + 1, "nodePort": index + 30_000});
            json!({"metadata": {"name": "s"}, "spec": {"type": "NodePort", "ports": list(count, port)}})
        }),
        ("jobs.batch", "containers and rules about them", |count| {
            let container = |index| json!({"name": format!("c{index}"), "image": "i"});
            let rule = |index| json!({"action": "Ignore", "onExitCodes": {"containerName": format!("c{index}"), "operator": "In", "values": [1]}});
            json!({"metadata": {"name": "j"}, "spec": {"podFailurePolicy": {"rules": list(count, rule)},
                "template": {"spec": {"restartPolicy": "Never", "containers": list(count, container)}}}})
        }),
        ("nodes", "capacity, what can be allocated, and taints", |count| {
            let amounts = map(count, |index| format!("example.com/r{index}"));
            let taint = |index| json!({"key": format!("k{index}"), "effect": "NoSchedule"});
            json!({"metadata": {"name": "n"}, "spec": {"taints": list(count, taint)},
                "status": {"capacity": amounts, "allocatable": amounts}})
        }),
    ]
}

#[test]
fn validation_is_linear_in_lists_that_belong_together() {
    let mut errors = Vec::new();
    let resources = check::resources();
    for (name, what, object) in together() {
        let resource = resources
            .iter()
            .find(|resource| resource.gvr.group_resource().to_string() == name)
            .unwrap_or_else(|| panic!("no resource {name}"));
        for strategy in strategies(resource) {
            let [once, twice, thrice] =
                [1, 2, 3].map(|times| steps::of(|| judge(resource, &**strategy, &object(times * N))));
            if (once + thrice).abs_diff(2 * twice) > SLACK {
                errors.push(format!("{name}, {what}: {once} {twice} {thrice}"));
            }
        }
    }
    assert!(errors.is_empty(), "{}", errors.join("\n"));
}
