//! `ConversionReview`: the request, and the checks of the answer.

use machinery::go;
use machinery::names::object_meta::{validate_annotations, validate_labels};
use machinery::{FieldPath, GroupVersion, meta};
use serde_json::{Map, Value, json};

/// `group/version, Kind=K` of an object.
pub(super) fn kind_of(object: &Value) -> String {
    let version = meta::api_version(object);
    let shown = match version.contains('/') {
        true => version.to_string(),
        false => format!("/{version}"),
    };
    format!("{shown}, Kind={}", meta::kind(object))
}

/// The question, in the first review version that both sides speak.
pub(super) fn request(
    versions: &[String],
    uid: &str,
    objects: &[&Value],
    desired: &str,
) -> Result<(String, Value), String> {
    let version = versions.iter().find(|v| matches!(v.as_str(), "v1" | "v1beta1"));
    let Some(version) = version else {
        return Err("no supported conversion review versions".into());
    };
    let review = json!({
        "kind": "ConversionReview",
        "apiVersion": format!("apiextensions.k8s.io/{version}"),
        "request": {"uid": uid, "desiredAPIVersion": desired, "objects": objects},
    });
    Ok((version.clone(), review))
}

/// The converted objects of an answer, or its error.
pub(super) fn response(version: &str, uid: &str, review: Value) -> Result<Vec<Value>, String> {
    let quote = machinery::go::quote;
    if version == "v1" {
        let wanted = "apiextensions.k8s.io/v1, Kind=ConversionReview";
        let got = kind_of(&review);
        if got != wanted {
            return Err(format!("expected webhook response of {wanted}, got {got}"));
        }
    }
    let Some(response) = review.get("response").filter(|r| r.is_object()) else {
        return Err("no response provided".into());
    };
    let text = |path: &str| response.pointer(path).and_then(Value::as_str).unwrap_or_default();
    if version == "v1" && text("/uid") != uid {
        let (want, got) = (quote(uid), quote(text("/uid")));
        return Err(format!("expected response.uid={want}, got {got}"));
    }
    let status = text("/result/status");
    if status != "Success" {
        let message = text("/result/message");
        return Err(match message {
            "" => format!("response.result.status was '{status}', not 'Success'"),
            message => message.to_string(),
        });
    }
    Ok(match review {
        Value::Object(mut review) => match review
            .get_mut("response")
            .and_then(|r| r.get_mut("convertedObjects"))
        {
            Some(Value::Array(objects)) => std::mem::take(objects),
            _ => Vec::new(),
        },
        _ => Vec::new(),
    })
}

/// A converted object with the metadata of the one that was sent, labels and annotations aside. The error follows
/// `conversion webhook for K `.
pub(super) fn accept(
    sent: &Value,
    mut converted: Value,
    to: &GroupVersion,
    index: usize,
    single: bool,
) -> Result<Value, String> {
    let at = match single {
        true => "object at index 0".to_string(),
        false => format!("converted object at index {index}"),
    };
    let got = meta::api_version(&converted);
    if got != to.to_string() {
        return Err(format!(
            "returned invalid {at}: invalid groupVersion (expected {to}, received {got})"
        ));
    }
    let (want, got) = (meta::kind(sent), meta::kind(&converted));
    if want != got {
        return Err(format!(
            "returned invalid {at}: invalid kind (expected {want}, received {got})"
        ));
    }
    let (whole, metadata) = match single {
        true => ("object".to_string(), "metadata".to_string()),
        false => (at, format!("metadata in object at index {index}")),
    };
    for (what, of) in [
        ("name", meta::name as fn(&Value) -> &str),
        ("namespace", meta::namespace),
        ("UID", meta::uid),
    ] {
        let (want, got) = (of(sent), of(&converted));
        if want != got {
            return Err(format!(
                "returned invalid {whole}: must have the same {what}: {want} != {got}"
            ));
        }
    }
    let restored = restore(sent, &converted).map_err(|why| format!("returned invalid {metadata}: {why}"))?;
    converted["metadata"] = Value::Object(restored);
    Ok(converted)
}

fn restore(sent: &Value, converted: &Value) -> Result<Map<String, Value>, String> {
    let answered = match converted.get("metadata") {
        None => return Err("missing metadata in converted object".into()),
        Some(Value::Object(map)) => map,
        Some(odd) => {
            let ty = go::type_name(odd);
            return Err(format!("invalid metadata of type {ty} in converted object"));
        }
    };
    let mut metadata = meta::metadata(sent).cloned().unwrap_or_default();
    for field in ["labels", "annotations"] {
        let new = match answered.get(field) {
            None | Some(Value::Null) => {
                metadata.remove(field);
                continue;
            }
            Some(Value::Object(map)) => map,
            Some(odd) => {
                let ty = go::type_name(odd);
                return Err(format!(
                    "invalid metadata.{field} of type {ty} in converted object"
                ));
            }
        };
        if let Some((key, odd)) = new.iter().find(|(_, v)| !v.is_string()) {
            let ty = go::type_name(odd);
            return Err(format!(
                "metadata.{field}[{key}] must be a string, but is {ty} in converted object"
            ));
        }
        if metadata.get(field).and_then(Value::as_object) != Some(new) {
            let root = FieldPath::new("metadata");
            let faults = match field {
                "labels" => validate_labels(new, &root.child("labels")),
                _ => validate_annotations(new, &root.child("annotation")),
            };
            let faults: Vec<String> = faults.iter().map(ToString::to_string).collect();
            if !faults.is_empty() {
                return Err(go::aggregate(&faults).into_owned());
            }
        }
        metadata.insert(field.into(), Value::Object(new.clone()));
    }
    Ok(metadata)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(version: &str, labels: Value) -> Value {
        json!({"apiVersion": version, "kind": "Foo", "spec": {},
            "metadata": {"name": "a", "namespace": "n", "uid": "u", "generation": 3, "labels": labels}})
    }

    #[test]
    fn only_labels_and_annotations_are_taken() {
        let to = GroupVersion::new("g.io", "v2");
        let sent = object("g.io/v1", json!({"a": "b"}));
        let mut answer = object("g.io/v2", json!({"c": "d"}));
        answer["metadata"]["generation"] = 9.into();
        let got = accept(&sent, answer, &to, 0, true);
        let got = got
            .as_ref()
            .map(|g| (&g["metadata"]["generation"], &g["metadata"]["labels"]));
        assert_eq!(got, Ok((&json!(3), &json!({"c": "d"}))));

        let check = |change: fn(&mut Value), expected: &str| {
            let mut answer = object("g.io/v2", json!({}));
            change(&mut answer);
            assert_eq!(accept(&sent, answer, &to, 0, true), Err(expected.to_string()));
        };
        check(
            |o| o["apiVersion"] = "g.io/v3".into(),
            "returned invalid object at index 0: invalid groupVersion (expected g.io/v2, received g.io/v3)",
        );
        check(
            |o| o["metadata"]["name"] = "b".into(),
            "returned invalid object: must have the same name: a != b",
        );
        check(
            |o| o["metadata"]["labels"] = json!({"x": 1}),
            "returned invalid metadata: metadata.labels[x] must be a string, but is int64 in converted object",
        );
    }

    #[test]
    fn answers_are_judged() {
        let check = |review: Value, expected: Result<usize, &str>| {
            let got = response("v1", "u", review).map(|objects| objects.len());
            assert_eq!(
                got.as_ref().map_err(String::as_str),
                expected.as_ref().map_err(|e| *e)
            );
        };
        let review = |response: Value| json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview", "response": response});
        check(
            review(json!({"uid": "u", "result": {"status": "Success"}, "convertedObjects": [{}]})),
            Ok(1),
        );
        check(review(json!(null)), Err("no response provided"));
        check(
            review(json!({"uid": "x"})),
            Err("expected response.uid=\"u\", got \"x\""),
        );
        check(
            review(json!({"uid": "u", "result": {"status": "Failure", "message": "no"}})),
            Err("no"),
        );
        check(
            review(json!({"uid": "u"})),
            Err("response.result.status was '', not 'Success'"),
        );
        check(
            json!({"kind": "List"}),
            Err(
                "expected webhook response of apiextensions.k8s.io/v1, Kind=ConversionReview, got /, Kind=List",
            ),
        );
    }
}
