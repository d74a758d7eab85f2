//! AdmissionReview, `v1` and `v1beta1`: the question, and reading the answer. Mirrors upstream's `webhook/request`.

use std::collections::BTreeMap;

use base64::Engine;
use machinery::{ApiError, meta};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use serde_json::{Value, json};

use crate::admission::Attributes;
use crate::dynamic_admission::expression::request_value;
use crate::dynamic_admission::view::View;
use crate::zero_values::{object, or_default, texts};

const GROUP: &str = "admission.k8s.io";

/// An AdmissionReview that is sent to a webhook.
#[derive(Debug)]
pub(super) struct ReviewRequest {
    pub(super) uid: String,
    version: &'static str,
    pub(super) body: Value,
}

/// The answer of a webhook.
#[derive(Debug, Default)]
pub(super) struct ReviewResponse {
    pub(super) allowed: bool,
    /// The patch, decoded.
    pub(super) patch: Option<Value>,
    /// `status` of a refusal.
    pub(super) status: Option<Value>,
    pub(super) warnings: Vec<String>,
    pub(super) annotations: Vec<(String, String)>,
}

/// An object as webhooks see it.
fn shown(attributes: &Attributes<'_>, object: Option<&Value>) -> Value {
    let Some(object) = object else { return Value::Null };
    let mut object = object.clone();
    if let Some(fields) = object.as_object_mut() {
        fields
            .entry("apiVersion")
            .or_insert_with(|| attributes.gvk.group_version().to_string().into());
        fields
            .entry("kind")
            .or_insert_with(|| attributes.gvk.kind.to_string().into());
    }
    object
}

impl ReviewRequest {
    /// In the first of the webhook's versions that is known.
    pub(super) fn new(versions: &[String], view: &View<'_>, object: Option<&Value>) -> Result<Self, String> {
        let known = versions.iter().find_map(|version| match version.as_str() {
            "v1" => Some("v1"),
            "v1beta1" => Some("v1beta1"),
            _ => None,
        });
        let version = known.ok_or(
            "could not create admission objects: webhook does not accept known AdmissionReview versions (v1, v1beta1)",
        )?;
        let uid = uuid::Uuid::new_v4().to_string();
        let attributes = &view.attributes();
        let mut request = request_value(attributes, view.requested());
        request["uid"] = uid.clone().into();
        request["object"] = shown(attributes, object);
        request["oldObject"] = shown(attributes, attributes.old);
        if request.get("options").is_none() {
            request["options"] = Value::Null;
        }
        let body = json!({"kind": "AdmissionReview", "apiVersion": format!("{GROUP}/{version}"), "request": request});
        Ok(ReviewRequest { uid, version, body })
    }

    /// Reads the answer; the error says what is wrong with it.
    pub(super) fn read(&self, answer: &Answer, mutating: bool) -> Result<ReviewResponse, String> {
        let response = answer.response.as_ref().ok_or("webhook response was absent")?;
        let (patch, patch_type) = (&*response.patch, response.patch_type.as_deref());
        if self.version == "v1" {
            if response.uid != self.uid {
                let found = machinery::go::quote(&response.uid);
                return Err(format!("expected response.uid=\"{}\", got {found}", self.uid));
            }
            let (version, kind) = (&answer.api_version, &answer.kind);
            if version != "admission.k8s.io/v1" || kind != "AdmissionReview" {
                return Err(format!(
                    "expected webhook response of {GROUP}/v1, Kind=AdmissionReview, got {version}, Kind={kind}"
                ));
            }
            match (mutating, patch.is_empty(), patch_type) {
                (false, false, _) => return Err("validating webhook may not return response.patch".into()),
                (false, true, Some(_)) => {
                    return Err("validating webhook may not return response.patchType".into());
                }
                (true, false, None) => {
                    return Err("webhook returned response.patch but not response.patchType".into());
                }
                (true, true, Some(_)) => {
                    return Err("webhook returned response.patchType but not response.patch".into());
                }
                (true, false, Some("")) => {
                    return Err("webhook returned invalid response.patchType of \"\"".into());
                }
                (true, false, Some(other)) if other != "JSONPatch" => {
                    return Err(format!("unsupported patch type \"{other}\""));
                }
                _ => {}
            }
        }
        let patch = match mutating && !patch.is_empty() {
            true => Some(decode(patch)?),
            false => None,
        };
        let annotations = response.audit_annotations.iter();
        Ok(ReviewResponse {
            allowed: response.allowed,
            patch,
            status: response.status.as_ref().map(|status| status.0.clone()),
            warnings: response.warnings.clone(),
            annotations: annotations
                .map(|(key, value)| (key.clone(), value.clone().unwrap_or_default()))
                .collect(),
        })
    }
}

/// An AdmissionReview as a webhook sends it. A field of another type than its own is an error: nothing that was badly written may pass for a decision.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Answer {
    #[serde(deserialize_with = "or_default")]
    api_version: String,
    #[serde(deserialize_with = "or_default")]
    kind: String,
    #[serde(deserialize_with = "present")]
    response: Option<Response>,
}

/// `None` for null alone.
fn present<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Response>, D::Error> {
    let value = Value::deserialize(from)?;
    match value.is_null() {
        true => Ok(None),
        false => object(value).map(Some).map_err(D::Error::custom),
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Response {
    #[serde(deserialize_with = "or_default")]
    uid: String,
    #[serde(deserialize_with = "or_default")]
    allowed: bool,
    #[serde(deserialize_with = "or_default")]
    patch: String,
    patch_type: Option<String>,
    status: Option<AnsweredStatus>,
    #[serde(deserialize_with = "texts")]
    warnings: Vec<String>,
    #[serde(deserialize_with = "or_default")]
    audit_annotations: BTreeMap<String, Option<String>>,
}

/// A Status, whose fields have their types.
#[derive(Debug, Deserialize)]
#[serde(try_from = "Value")]
struct AnsweredStatus(Value);

impl TryFrom<Value> for AnsweredStatus {
    type Error = String;

    fn try_from(status: Value) -> Result<Self, String> {
        let fields = status.as_object().ok_or("the status is no object")?;
        for (key, value) in fields {
            let fits = match key.as_str() {
                "message" | "reason" | "status" | "kind" | "apiVersion" => value.is_string(),
                "code" => value.as_i64().is_some_and(|code| i32::try_from(code).is_ok()),
                "details" | "metadata" => value.is_object(),
                _ => true,
            };
            if !fits && !value.is_null() {
                return Err(format!("{key} of the status has another type"));
            }
        }
        Ok(AnsweredStatus(status))
    }
}

impl Answer {
    /// Of an answer's body.
    ///
    /// # Errors
    /// It is no AdmissionReview.
    pub(super) fn of(review: &Value) -> Result<Self, String> {
        object(review).map_err(|error: serde_json::Error| error.to_string())
    }
}

fn decode(patch: &str) -> Result<Value, String> {
    let bad = |why: String| format!("received undecodable patch in webhook response: {why}");
    let bytes = base64::engine::general_purpose::STANDARD
        .decode(patch)
        .map_err(|error| bad(error.to_string()))?;
    serde_json::from_slice(&bytes).map_err(|error| bad(error.to_string()))
}

/// The refusal of a webhook as the client sees it.
pub(super) fn refusal(hook: &str, status: Option<Value>) -> ApiError {
    let denied = format!("admission webhook \"{hook}\" denied the request");
    let mut status = status.unwrap_or_else(|| json!({}));
    let text = |status: &Value, key: &str| meta::dig_str(status, &[key]).to_string();
    let message = match (text(&status, "message"), text(&status, "reason")) {
        (message, _) if !message.is_empty() => format!("{denied}: {message}"),
        (_, reason) if !reason.is_empty() => format!("{denied}: {reason}"),
        _ => format!("{denied} without explanation"),
    };
    let code = status.get("code").and_then(Value::as_u64).unwrap_or(0);
    status["kind"] = "Status".into();
    status["code"] = code.clamp(400, 599).into();
    status["message"] = message.clone().into();
    ApiError::from_value(&status).unwrap_or_else(|| ApiError::bad_request(message))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_read_whole_or_not_at_all() {
        let response = |response: Value| Answer::of(&json!({"response": response}));
        for good in [
            json!({"allowed": true, "warnings": null, "auditAnnotations": {"k": null}, "status": null}),
            json!({"allowed": false, "status": {"code": 403, "message": "m", "details": null}}),
            Value::Null,
        ] {
            assert!(response(good.clone()).is_ok(), "{good}");
        }
        for bad in [
            json!([]),
            json!("x"),
            json!({"allowed": "true"}),
            json!({"allowed": 1}),
            json!({"warnings": "w"}),
            json!({"warnings": [1]}),
            json!({"auditAnnotations": ["x"]}),
            json!({"auditAnnotations": {"k": 1}}),
            json!({"status": "no"}),
            json!({"status": {"code": "403"}}),
            json!({"status": {"message": 1}}),
            json!({"patch": {}}),
            json!({"patchType": 1}),
        ] {
            assert!(response(bad.clone()).is_err(), "{bad}");
        }
        assert!(Answer::of(&json!([])).is_err());
    }
}
