//! The pod of a stream: its node and the container that is meant.

use generic_server::ApiError;
use generic_server::resource::ConnectCall;
use machinery::meta;
use serde_json::Value;

use super::NodeStream;
use crate::json::Json;

/// The lists of containers, in the order that upstream names them in.
const LISTS: [&str; 3] = [
    "spec.initContainers",
    "spec.containers",
    "spec.ephemeralContainers",
];

impl NodeStream {
    /// A pod. 404 when it is not there.
    pub(super) async fn pod(&self, call: &ConnectCall<'_>, name: &str) -> Result<Value, ApiError> {
        let pod = self.client.find(("", "pods"), call.namespace, name).await?;
        pod.ok_or_else(|| ApiError::not_found(&call.gvr.group_resource(), name))
    }
}

/// The node that a pod is on. 400 when it is on none.
pub(super) fn node(pod: &Value) -> Result<&str, ApiError> {
    match pod.text("spec.nodeName") {
        "" => Err(ApiError::bad_request(format!(
            "pod {} does not have a host assigned",
            meta::name(pod)
        ))),
        node => Ok(node),
    }
}

/// The container that is meant; it has to be named where there are several.
pub(super) fn container<'p>(pod: &'p Value, asked: &str) -> Result<&'p str, ApiError> {
    let name = meta::name(pod);
    let all = || {
        LISTS
            .into_iter()
            .flat_map(|list| pod.list(list))
            .map(|one| one.text("name"))
    };
    if !asked.is_empty() {
        return all()
            .find(|one| *one == asked)
            .ok_or_else(|| ApiError::bad_request(format!("container {asked} is not valid for pod {name}")));
    }
    match pod.list("spec.containers") {
        [one] => Ok(one.text("name")),
        [] => Err(ApiError::bad_request(format!(
            "a container name must be specified for pod {name}"
        ))),
        _ => Err(ApiError::bad_request(format!(
            "a container name must be specified for pod {name}, choose one of: [{}]",
            all().collect::<Vec<_>>().join(" ")
        ))),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn containers_are_named_where_there_are_several() {
        let check = |names: &[&str], asked: &str, expected: Result<&str, &str>| {
            let containers: Vec<Value> = names.iter().map(|name| json!({"name": name})).collect();
            let pod = json!({"metadata": {"name": "p"}, "spec": {
                "containers": containers,
                "initContainers": [{"name": "i"}],
                "ephemeralContainers": [{"name": "e"}],
            }});
            let got = container(&pod, asked).map(str::to_string);
            let expected = expected.map(str::to_string).map_err(str::to_string);
            assert_eq!(
                got.map_err(|error| error.message().to_string()),
                expected,
                "{names:?} {asked}"
            );
        };
        check(&["a"], "", Ok("a"));
        check(&["a", "b"], "b", Ok("b"));
        check(&["a"], "i", Ok("i"));
        check(&["a"], "e", Ok("e"));
        check(&["a"], "x", Err("container x is not valid for pod p"));
        check(&[], "", Err("a container name must be specified for pod p"));
        check(
            &["a", "b"],
            "",
            Err("a container name must be specified for pod p, choose one of: [i a b e]"),
        );
    }
}
