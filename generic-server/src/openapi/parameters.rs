//! The parameters of operations: their types and texts, and those that the operations of a v2 document share.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE;
use serde_json::{Map, Value, json};

/// Names of query parameters, with their types.
pub type Parameters = &'static [(&'static str, &'static str)];

/// Of lists and watches.
pub const LIST: Parameters = &[
    ("allowWatchBookmarks", "boolean"),
    ("continue", "string"),
    ("fieldSelector", "string"),
    ("labelSelector", "string"),
    ("limit", "integer"),
    ("resourceVersion", "string"),
    ("resourceVersionMatch", "string"),
    ("sendInitialEvents", "boolean"),
    ("shardSelector", "string"),
    ("timeoutSeconds", "integer"),
    ("watch", "boolean"),
];
/// Of creates and updates.
pub const WRITE: Parameters = &[
    ("dryRun", "string"),
    ("fieldManager", "string"),
    ("fieldValidation", "string"),
];
/// Of patches.
pub const PATCH: Parameters = &[
    ("dryRun", "string"),
    ("fieldManager", "string"),
    ("fieldValidation", "string"),
    ("force", "boolean"),
];
/// Of deletions.
pub const DELETE: Parameters = &[
    ("dryRun", "string"),
    ("gracePeriodSeconds", "integer"),
    ("ignoreStoreReadErrorWithClusterBreakingPotential", "boolean"),
    ("orphanDependents", "boolean"),
    ("propagationPolicy", "string"),
];
/// Of deletions of a whole list.
pub(super) const DELETE_COLLECTION: Parameters = &[
    ("continue", "string"),
    ("dryRun", "string"),
    ("fieldSelector", "string"),
    ("gracePeriodSeconds", "integer"),
    ("ignoreStoreReadErrorWithClusterBreakingPotential", "boolean"),
    ("labelSelector", "string"),
    ("limit", "integer"),
    ("orphanDependents", "boolean"),
    ("propagationPolicy", "string"),
    ("resourceVersion", "string"),
    ("resourceVersionMatch", "string"),
    ("sendInitialEvents", "boolean"),
    ("shardSelector", "string"),
    ("timeoutSeconds", "integer"),
];
/// Of all operations on objects.
pub(super) const PRETTY: Parameters = &[("pretty", "string")];

const ATTACH: Parameters = &[
    ("container", "string"),
    ("stderr", "boolean"),
    ("stdin", "boolean"),
    ("stdout", "boolean"),
    ("tty", "boolean"),
];
const EXEC: Parameters = &[
    ("command", "string"),
    ("container", "string"),
    ("stderr", "boolean"),
    ("stdin", "boolean"),
    ("stdout", "boolean"),
    ("tty", "boolean"),
];
const LOG: Parameters = &[
    ("container", "string"),
    ("follow", "boolean"),
    ("insecureSkipTLSVerifyBackend", "boolean"),
    ("limitBytes", "integer"),
    ("previous", "boolean"),
    ("sinceSeconds", "integer"),
    ("stream", "string"),
    ("tailLines", "integer"),
    ("timestamps", "boolean"),
];

/// Of a stream, by the name of its subresource.
pub(super) fn of_stream(subresource: &str) -> Parameters {
    match subresource {
        "attach" => ATTACH,
        "exec" => EXEC,
        "log" => LOG,
        "portforward" => &[("ports", "integer")],
        "proxy" => &[("path", "string")],
        _ => &[],
    }
}

fn text(name: &str) -> &'static str {
    match name {
        "allowWatchBookmarks" => "The watch may send BOOKMARK events. Without a watch it has no effect.",
        "command" => {
            "The command and its arguments, one in each parameter of this name. It is not run in a shell."
        }
        "container" => "The container. It may be left out when the pod has one.",
        "continue" => {
            "The token that a list with a limit answered, to go on where it ended. It expires; a list then answers 410 and a token \
             that goes on with later state."
        }
        "dryRun" => "`All`: everything is done but storing the result.",
        "fieldManager" => {
            "Who makes the change, as `managedFields` names it: at most 128 printable characters."
        }
        "fieldSelector" => "Only objects whose fields are so: all, when it is empty.",
        "fieldValidation" => {
            "What happens to unknown and duplicate fields: `Ignore`, `Warn` (the default) or `Strict`."
        }
        "follow" => "The log is followed while it is written.",
        "force" => "An apply takes the fields that other managers own, too. It is for apply patches alone.",
        "gracePeriodSeconds" => {
            "The seconds that the object has before it is deleted; zero deletes it at once."
        }
        "ignoreStoreReadErrorWithClusterBreakingPotential" => {
            "An object that cannot be read from the store is deleted without its finalizers. It can break a cluster, and needs \
             permission for `unsafe-delete-ignore-read-errors`."
        }
        "insecureSkipTLSVerifyBackend" => "The certificate of the node that serves the log is not checked.",
        "labelSelector" => "Only objects whose labels are so: all, when it is empty.",
        "limit" => "The most objects that a list answers; `metadata.continue` goes on with the rest.",
        "limitBytes" => "The most bytes of the log that are answered.",
        "namespace" => "The namespace of the object.",
        "orphanDependents" => "Deprecated for `propagationPolicy`. Whether dependents stay.",
        "path" => "The path that is asked for behind the proxy.",
        "ports" => "The ports that are forwarded, when the connection is a WebSocket.",
        "pretty" => "`true`: the answer is indented. It is for browsers and `curl` without being asked for.",
        "previous" => "The log of the container before its last restart.",
        "propagationPolicy" => "What becomes of dependents: `Orphan`, `Background` or `Foreground`.",
        "resourceVersion" => "The state that is asked for; what it means depends on the operation.",
        "resourceVersionMatch" => "How `resourceVersion` is meant by a list: `NotOlderThan` or `Exact`.",
        "sendInitialEvents" => {
            "A watch begins with the objects that there are, and a BOOKMARK behind them. `resourceVersionMatch` has to be \
             `NotOlderThan`."
        }
        "shardSelector" => "Only the objects of a shard. It is an alpha feature, which is off.",
        "sinceSeconds" => "The log of the last seconds.",
        "stderr" => "The standard error stream is passed on.",
        "stdin" => "The standard input stream is passed on.",
        "stdout" => "The standard output stream is passed on.",
        "stream" => "The stream of the log: `All`, `Stdout` or `Stderr`.",
        "tailLines" => "The last lines of the log.",
        "timeoutSeconds" => "The seconds after which a list or a watch ends.",
        "timestamps" => "Each line of the log begins with its time.",
        "tty" => "There is a terminal at the other end.",
        "watch" => "The changes are sent as they happen, beginning at `resourceVersion`.",
        _ => "",
    }
}

fn parameter(name: &str, place: &str, kind: &str, text: &str) -> Value {
    json!({"name": name, "in": place, "description": text, "schema": {"type": kind, "uniqueItems": true}})
}

/// Parameters of the query, as v3 says them.
pub fn query(list: &[(&str, &str)]) -> Vec<Value> {
    list.iter()
        .map(|(name, kind)| parameter(name, "query", kind, text(name)))
        .collect()
}

/// A parameter of the path, as v3 says it. `kind` is what a name is of.
pub fn in_path(name: &str, kind: &str) -> Value {
    let text = match name {
        "name" => format!("The name of the {kind}."),
        "path" => "What follows the proxy in the path.".to_owned(),
        _ => text(name).to_owned(),
    };
    let mut one = parameter(name, "path", "string", &text);
    one["required"] = true.into();
    one
}

/// The name of a parameter, and where it is, by which they are sorted.
fn key(parameter: &Value) -> (&str, &str) {
    let text = |key: &str| parameter.get(key).and_then(Value::as_str).unwrap_or_default();
    (text("name"), text("in"))
}

/// Parameters in the order of their names.
pub fn sorted(mut all: Vec<Value>) -> Value {
    all.sort_by(|a, b| key(a).cmp(&key(b)));
    Value::Array(all)
}

/// Takes the parameters that paths of a v2 document have in common out of them: they get references, by the names of what is
/// returned.
pub fn share(paths: &mut Map<String, Value>) -> Map<String, Value> {
    let mut shared = Map::new();
    for item in paths.values_mut().filter_map(Value::as_object_mut) {
        for (member, value) in item.iter_mut() {
            let list = if member == "parameters" {
                Some(value)
            } else {
                value.get_mut("parameters")
            };
            for one in list.and_then(Value::as_array_mut).into_iter().flatten() {
                if is_shared(one) {
                    let name = format!("{}-{}", key(one).0, mark(one));
                    let reference = json!({"$ref": format!("#/parameters/{name}")});
                    shared.insert(name, std::mem::replace(one, reference));
                }
            }
        }
    }
    shared
}

/// Not what is different for each kind, nor those that old versions of `kubectl` look for in the operation itself.
fn is_shared(parameter: &Value) -> bool {
    match key(parameter) {
        ("", _) | ("name", "path" | "query") | ("fieldValidation" | "dryRun", "query") => false,
        (_, "body") => parameter
            .pointer("/schema/$ref")
            .and_then(Value::as_str)
            .is_some_and(|name| name.starts_with("#/definitions/io.k8s.apimachinery")),
        _ => true,
    }
}

/// Tells parameters of one name apart: some characters of a digest.
fn mark(parameter: &Value) -> String {
    let digest = ring::digest::digest(&ring::digest::SHA256, parameter.to_string().as_bytes());
    URL_SAFE.encode(&digest.as_ref()[..6])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_parameter_has_a_text() {
        let streams = ["attach", "exec", "log", "portforward", "proxy"].map(of_stream);
        let all = [LIST, WRITE, PATCH, DELETE, DELETE_COLLECTION, PRETTY];
        for (name, _) in all.iter().chain(&streams).copied().flatten() {
            assert_ne!(text(name), "", "{name}");
        }
    }

    #[test]
    fn what_paths_have_in_common_is_shared() {
        let body = |of: &str| json!({"in": "body", "name": "body", "schema": {"$ref": format!("#/definitions/{of}")}});
        let path = json!({
            "parameters": [{"in": "path", "name": "name"}, {"in": "path", "name": "namespace"}],
            "put": {"parameters": [body("X"), {"in": "query", "name": "dryRun"}, {"in": "query", "name": "pretty"}]},
            "delete": {"parameters": [body("io.k8s.apimachinery.Options")]},
            "get": {},
        });
        let mut paths = Map::from_iter([("/a".to_string(), path.clone()), ("/b".to_string(), path)]);
        let shared = share(&mut paths);
        let mut names: Vec<&str> = shared.values().map(|one| key(one).0).collect();
        names.sort_unstable();
        assert_eq!(names, ["body", "namespace", "pretty"]);
        assert_eq!(paths["/a"], paths["/b"]);
        let reference = paths["/a"]["put"]["parameters"][2]["$ref"]
            .as_str()
            .expect("a reference");
        let name = reference.strip_prefix("#/parameters/").expect(reference);
        assert_eq!(shared[name], json!({"in": "query", "name": "pretty"}));
        assert_eq!(paths["/a"]["put"]["parameters"][0], body("X"));
        assert_eq!(share(&mut paths), Map::new(), "references stay");
    }
}
