//! Objects that a plane is given at its start, or later: from files or as values.

use std::path::{Path, PathBuf};

use generic_server::request::full;
use http::{Method, header};
use http_body_util::BodyExt as _;
use machinery::codec::yaml;
use serde_json::Value;

use crate::{ControlPlane, StartError, User, administrator};

/// The field manager of applied objects.
const MANAGER: &str = "control-plane";

fn fault(text: impl Into<String>) -> StartError {
    StartError::Option(text.into())
}

/// Reads the objects of a file of YAML documents or JSON, or of the `.yaml`, `.yml` and `.json` files of a directory in the order of their
/// names. Lists are taken apart.
///
/// # Errors
/// When a file cannot be read or understood; the text names it.
pub fn read(path: impl AsRef<Path>) -> Result<Vec<Value>, StartError> {
    let path = path.as_ref();
    let unreadable = |error: std::io::Error| fault(format!("cannot read {}: {error}", path.display()));
    if !path.is_dir() {
        let text = std::fs::read_to_string(path).map_err(unreadable)?;
        return parse(&text).map_err(|error| fault(format!("{}: {error}", path.display())));
    }
    let entries: Result<Vec<PathBuf>, _> = std::fs::read_dir(path)
        .map_err(unreadable)?
        .map(|entry| entry.map(|entry| entry.path()))
        .collect();
    let mut files = entries.map_err(unreadable)?;
    files.retain(|file| {
        let extension = file.extension().and_then(|extension| extension.to_str());
        matches!(extension, Some("yaml" | "yml" | "json")) && file.is_file()
    });
    files.sort();
    let mut all = Vec::new();
    for file in files {
        all.extend(read(file)?);
    }
    Ok(all)
}

/// The objects of a text of YAML documents, of which JSON is one.
///
/// # Errors
/// What is wrong with the first document that cannot be read.
pub fn parse(text: &str) -> Result<Vec<Value>, String> {
    let mut all = Vec::new();
    let mut document = String::new();
    for line in text.lines().chain(["---"]) {
        // As `kubectl` separates them.
        if !line.starts_with("---") {
            document.push_str(line);
            document.push('\n');
            continue;
        }
        let said = |line: &str| !line.trim().is_empty() && !line.trim_start().starts_with('#');
        if document.lines().any(said) {
            let decoded = yaml::decode(document.as_bytes()).map_err(|error| error.to_string())?;
            flatten(decoded.value, &mut all);
        }
        document.clear();
    }
    Ok(all)
}

fn flatten(mut object: Value, into: &mut Vec<Value>) {
    let is_list = object["kind"].as_str().is_some_and(|kind| kind.ends_with("List"));
    match object.get_mut("items").map(Value::take) {
        Some(Value::Array(items)) if is_list => items.into_iter().for_each(|item| flatten(item, into)),
        Some(items) => {
            object["items"] = items;
            into.push(object);
        }
        None => into.push(object),
    }
}

/// Definitions and namespaces before what needs them.
fn rank(object: &Value) -> u8 {
    match object["kind"].as_str() {
        Some("CustomResourceDefinition") => 0,
        Some("Namespace") => 1,
        _ => 2,
    }
}

impl ControlPlane {
    /// Applies objects as the administrator (server-side, taking fields over from others), so that it may be repeated: definitions of
    /// custom resources first, then namespaces, then the rest in their order. Namespaced objects without a namespace go to `default`.
    ///
    /// # Errors
    /// At the first object that is refused, which the text names.
    pub async fn apply(&self, objects: impl IntoIterator<Item = Value>) -> Result<(), StartError> {
        let mut objects: Vec<Value> = objects.into_iter().collect();
        objects.sort_by_key(rank);
        for object in objects {
            self.apply_one(&object).await?;
        }
        Ok(())
    }

    async fn apply_one(&self, object: &Value) -> Result<(), StartError> {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_string();
        let (version, kind) = (text(&object["apiVersion"]), text(&object["kind"]));
        let name = text(&object["metadata"]["name"]);
        let refused = |why: &str| fault(format!("cannot apply {kind} {name} of {version}: {why}"));
        if version.is_empty() || kind.is_empty() || name.is_empty() {
            return Err(refused("it needs an apiVersion, a kind and a name"));
        }
        let group = match version.contains('/') {
            true => format!("/apis/{version}"),
            false => format!("/api/{version}"),
        };
        let resources = self
            .ask(Method::GET, &group, None)
            .await
            .map_err(|why| refused(&why))?;
        let resource = resources["resources"]
            .as_array()
            .into_iter()
            .flatten()
            .find(|resource| {
                resource["kind"] == kind && !resource["name"].as_str().is_some_and(|name| name.contains('/'))
            });
        let Some(resource) = resource else {
            return Err(refused("there is no such kind"));
        };
        let plural = text(&resource["name"]);
        let path = match resource["namespaced"] == true {
            true => {
                let namespace = object["metadata"]["namespace"].as_str().unwrap_or("default");
                format!("{group}/namespaces/{namespace}/{plural}/{name}")
            }
            false => format!("{group}/{plural}/{name}"),
        };
        let path = format!("{path}?fieldManager={MANAGER}&force=true");
        let applied = self.ask(Method::PATCH, &path, Some(object)).await;
        applied.map(drop).map_err(|why| refused(&why))
    }

    /// A request of the administrator, on the chain. The error is the answer's message.
    async fn ask(&self, method: Method, path: &str, object: Option<&Value>) -> Result<Value, String> {
        let request = http::Request::builder()
            .method(method)
            .uri(path)
            .header(header::AUTHORIZATION, self.bearer(&administrator()))
            .header(header::CONTENT_TYPE, "application/apply-patch+yaml")
            .body(full(object.map(Value::to_string).unwrap_or_default()))
            .map_err(|error| error.to_string())?;
        let response = self.chain().serve(request).await;
        let failed = !response.status().is_success();
        let body = response
            .into_body()
            .collect()
            .await
            .map_err(|error| error.to_string())?;
        let answer: Value = serde_json::from_slice(&body.to_bytes()).map_err(|error| error.to_string())?;
        match failed {
            true => Err(answer["message"].as_str().unwrap_or("it is refused").to_string()),
            false => Ok(answer),
        }
    }

    /// The value of the header `Authorization` for a user.
    pub(crate) fn bearer(&self, user: &User) -> String {
        format!("Bearer {}", self.token_for(user))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn documents_are_read_as_kubectl_reads_them() {
        #[track_caller]
        fn check(text: &str, names: &[&str]) {
            let objects = parse(text).expect("it is YAML");
            let found: Vec<&str> = objects
                .iter()
                .filter_map(|o| o["metadata"]["name"].as_str())
                .collect();
            assert_eq!(found, names, "{text}");
        }
        check("", &[]);
        check("# nothing\n---\n\n---\n", &[]);
        check(
            "---\nmetadata: {name: a}\n--- # next\nmetadata: {name: b}\n",
            &["a", "b"],
        );
        check(r#"{"metadata": {"name": "a"}}"#, &["a"]);
        check(
            r#"{"kind": "List", "items": [{"metadata": {"name": "a"}}, {"metadata": {"name": "b"}}]}"#,
            &["a", "b"],
        );
        check("kind: ConfigMap\nmetadata: {name: a}\nitems: [x]\n", &["a"]);
        assert!(parse("a: [").is_err());
    }

    #[tokio::test]
    async fn objects_are_applied_in_the_order_that_they_need() {
        let dir = tempfile::tempdir().expect("a directory");
        let widgets = json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": "widgets.example.com"},
            "spec": {
                "group": "example.com", "scope": "Namespaced",
                "names": {"plural": "widgets", "singular": "widget", "kind": "Widget"},
                "versions": [{"name": "v1", "served": true, "storage": true,
                    "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}],
            },
        });
        let widget = "apiVersion: example.com/v1\nkind: Widget\nmetadata: {name: w, namespace: shop}\n---\n\
                      apiVersion: v1\nkind: Namespace\nmetadata: {name: shop}\n";
        std::fs::write(dir.path().join("a.yaml"), widget).expect("written");
        std::fs::write(dir.path().join("b.json"), widgets.to_string()).expect("written");
        std::fs::write(dir.path().join("notes.txt"), "no: [").expect("written");
        let plane = ControlPlane::builder()
            .in_memory()
            .manifests(dir.path())
            .start()
            .await
            .expect("it starts");
        let path = "/apis/example.com/v1/namespaces/shop/widgets/w";
        plane.ask(Method::GET, path, None).await.expect("it is there");
        plane
            .apply(read(dir.path()).expect("read"))
            .await
            .expect("it can be repeated");

        let refused = async |object: Value| plane.apply([object]).await.expect_err("refused").to_string();
        let unknown =
            refused(json!({"apiVersion": "v1", "kind": "Nothing", "metadata": {"name": "n"}})).await;
        assert_eq!(unknown, "cannot apply Nothing n of v1: there is no such kind");
        let nameless = refused(json!({"apiVersion": "v1", "kind": "ConfigMap"})).await;
        assert!(
            nameless.ends_with("it needs an apiVersion, a kind and a name"),
            "{nameless}"
        );
        let nowhere = refused(
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c", "namespace": "gone"}}),
        );
        assert!(nowhere.await.contains("namespaces \"gone\" not found"));
        plane.stop().await;

        let missing = ControlPlane::builder()
            .in_memory()
            .manifests(dir.path().join("gone"));
        let error = missing.start().await.expect_err("there is none").to_string();
        assert!(
            error.contains("cannot read ") && error.contains("gone"),
            "{error}"
        );
    }
}
