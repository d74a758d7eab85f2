//! The error of the API: upstream's `metav1.Status` with named constructors per reason and upstream's wording.
//!
//! [`ApiError`] is what every layer above storage returns with `?`; it becomes HTTP in one place only, the generic
//! server's `respond` module. Only texts for clients are in here; internal detail belongs in logs.

use std::collections::HashSet;
use std::fmt;

use serde_json::{Map, Value, json};

use crate::field::{clip_escaped, clip_text};
use crate::limits;
use crate::{FieldError, GroupKind, GroupResource};

/// The machine-readable reason (`metav1.StatusReason`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// No reason given; printed as the empty string.
    Unknown,
    /// 401.
    Unauthorized,
    /// 403.
    Forbidden,
    /// 404.
    NotFound,
    /// 409 on create.
    AlreadyExists,
    /// 409 on a lost race or a precondition.
    Conflict,
    /// 410 for paths and watches that are gone.
    Gone,
    /// 410 for a resource version or continue token that is too old.
    Expired,
    /// 422.
    Invalid,
    /// 504 with retry: the operation may be tried again.
    ServerTimeout,
    /// 504.
    Timeout,
    /// 429.
    TooManyRequests,
    /// 400.
    BadRequest,
    /// 405.
    MethodNotAllowed,
    /// 406.
    NotAcceptable,
    /// 413.
    RequestEntityTooLarge,
    /// 415.
    UnsupportedMediaType,
    /// 500.
    InternalError,
    /// 503.
    ServiceUnavailable,
    /// 500 for an object that cannot be read from the store.
    StorageReadError,
}

impl Reason {
    /// The wire form.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Unknown => "",
            Self::Unauthorized => "Unauthorized",
            Self::Forbidden => "Forbidden",
            Self::NotFound => "NotFound",
            Self::AlreadyExists => "AlreadyExists",
            Self::Conflict => "Conflict",
            Self::Gone => "Gone",
            Self::Expired => "Expired",
            Self::Invalid => "Invalid",
            Self::ServerTimeout => "ServerTimeout",
            Self::Timeout => "Timeout",
            Self::TooManyRequests => "TooManyRequests",
            Self::BadRequest => "BadRequest",
            Self::MethodNotAllowed => "MethodNotAllowed",
            Self::NotAcceptable => "NotAcceptable",
            Self::RequestEntityTooLarge => "RequestEntityTooLarge",
            Self::UnsupportedMediaType => "UnsupportedMediaType",
            Self::InternalError => "InternalError",
            Self::ServiceUnavailable => "ServiceUnavailable",
            Self::StorageReadError => "StorageReadError",
        }
    }
}

/// One entry of `details.causes`. Empty strings are left out on the wire.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Cause {
    /// The machine-readable cause, such as `FieldValueInvalid`.
    pub reason: String,
    /// The text for people.
    pub message: String,
    /// The field concerned.
    pub field: String,
}

/// `details` of a Status. Empty strings are left out on the wire.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Details {
    /// The object's name.
    pub name: String,
    /// The API group.
    pub group: String,
    /// A kind, or (upstream's habit) a resource.
    pub kind: String,
    /// The object's uid.
    pub uid: String,
    /// The individual causes.
    pub causes: Vec<Cause>,
    /// When to try again; also sent as `Retry-After`.
    pub retry_after_seconds: u32,
}

/// A failure as the client sees it. Boxed inside, so that `Result<_, ApiError>` stays small.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApiError(Box<Inner>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct Inner {
    code: u16,
    reason: Reason,
    message: String,
    details: Option<Details>,
    /// `metadata.continue`, or empty.
    token: String,
    /// The reason of a Status of another server that is none of [`Reason`], which is [`Reason::Unknown`] then.
    foreign_reason: Option<Box<str>>,
}

impl ApiError {
    /// Any code and reason, without details. Prefer the named constructors. A message past [`limits::MESSAGE_BYTES`] is cut.
    pub fn new(code: u16, reason: Reason, message: impl Into<String>) -> Self {
        ApiError(Box::new(Inner {
            code,
            reason,
            message: clip_escaped(limits::MESSAGE_BYTES, message.into()),
            details: None,
            token: String::new(),
            foreign_reason: None,
        }))
    }

    /// The same with other details, of which at most [`limits::CAUSES`] causes are kept.
    #[must_use]
    pub fn with_details(mut self, mut details: Details) -> Self {
        details.causes.truncate(limits::CAUSES);
        let Details {
            name,
            group,
            kind,
            uid,
            ..
        } = &mut details;
        for text in [name, group, kind, uid] {
            *text = clip_text(limits::SHOWN_VALUE_BYTES, std::mem::take(text));
        }
        self.0.details = Some(details);
        self
    }

    /// The same with one more cause, if there is room for it.
    #[must_use]
    pub fn with_cause(mut self, cause: Cause) -> Self {
        let causes = &mut self.0.details.get_or_insert_default().causes;
        if causes.len() < limits::CAUSES {
            causes.push(Cause {
                message: clip_escaped(limits::MESSAGE_BYTES, cause.message),
                ..cause
            });
        }
        self
    }

    /// The same, asking the client to try again after `seconds`.
    #[must_use]
    pub fn with_retry_after(mut self, seconds: u32) -> Self {
        self.0.details.get_or_insert_default().retry_after_seconds = seconds;
        self
    }

    /// The same with a token to go on with, for a list whose page has expired.
    #[must_use]
    pub fn with_continue(mut self, token: impl Into<String>) -> Self {
        self.0.token = token.into();
        self
    }

    /// The same with another message.
    #[must_use]
    pub fn with_message(mut self, message: impl Into<String>) -> Self {
        self.0.message = clip_escaped(limits::MESSAGE_BYTES, message.into());
        self
    }

    /// The HTTP status code.
    pub fn code(&self) -> u16 {
        self.0.code
    }

    /// The reason.
    pub fn reason(&self) -> Reason {
        self.0.reason
    }

    /// The text that the client sees.
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// The details, where there are any.
    pub fn details(&self) -> Option<&Details> {
        self.0.details.as_ref()
    }

    /// Seconds for `Retry-After`, when the error asks for it.
    pub fn retry_after(&self) -> Option<u32> {
        self.0
            .details
            .as_ref()
            .map(|d| d.retry_after_seconds)
            .filter(|s| *s > 0)
    }

    /// 404 `pods "x" not found`.
    pub fn not_found(resource: &GroupResource, name: &str) -> Self {
        Self::about(
            404,
            Reason::NotFound,
            resource,
            name,
            format!("{resource} \"{name}\" not found"),
        )
    }

    /// 404 for a path that leads nowhere: `the server could not find the requested resource`.
    pub fn no_such_path() -> Self {
        Self::new(
            404,
            Reason::NotFound,
            "the server could not find the requested resource",
        )
        .with_details(Details::default())
    }

    /// 409 `pods "x" already exists`.
    pub fn already_exists(resource: &GroupResource, name: &str) -> Self {
        Self::about(
            409,
            Reason::AlreadyExists,
            resource,
            name,
            format!("{resource} \"{name}\" already exists"),
        )
    }

    /// 409 `Operation cannot be fulfilled on pods "x": why`.
    pub fn conflict(resource: &GroupResource, name: &str, why: impl fmt::Display) -> Self {
        let message = format!("Operation cannot be fulfilled on {resource} \"{name}\": {why}");
        Self::about(409, Reason::Conflict, resource, name, message)
    }

    /// The conflict of a write with an old resourceVersion, in the words that clients match.
    pub fn modified(resource: &GroupResource, name: &str) -> Self {
        let why =
            "the object has been modified; please apply your changes to the latest version and try again";
        Self::conflict(resource, name, why)
    }

    /// 403 `pods "x" is forbidden: why` (without a name `pods is forbidden: why`).
    pub fn forbidden(resource: &GroupResource, name: &str, why: impl fmt::Display) -> Self {
        let message = match (resource.resource.is_empty(), name.is_empty()) {
            (true, _) => format!("forbidden: {why}"),
            (false, true) => format!("{resource} is forbidden: {why}"),
            (false, false) => format!("{resource} \"{name}\" is forbidden: {why}"),
        };
        Self::about(403, Reason::Forbidden, resource, name, message)
    }

    /// 422 with every field error as a cause. Equal messages are said once, as upstream's aggregate does. Past
    /// [`limits::CAUSES`] the errors are only counted.
    pub fn invalid(kind: &GroupKind, name: &str, errors: &[FieldError]) -> Self {
        let mut texts: Vec<String> = Vec::with_capacity(errors.len().min(limits::CAUSES));
        let mut known = HashSet::new();
        let mut more = 0;
        for (index, error) in errors.iter().enumerate() {
            if texts.len() == limits::CAUSES {
                more = errors.len() - index;
                break;
            }
            let text = error.to_string();
            if known.insert(text.clone()) {
                texts.push(text);
            }
        }
        let mut message = format!("{kind} \"{name}\" is invalid");
        if !texts.is_empty() {
            message.push_str(": ");
            message.push_str(&crate::go::aggregate_first(&texts, more));
        }
        let causes = errors
            .iter()
            .take(limits::CAUSES)
            .map(|e| Cause {
                reason: e.kind.cause().into(),
                message: e.body(),
                field: e.field.clone(),
            })
            .collect();
        Self::new(422, Reason::Invalid, message).with_details(Details {
            name: name.into(),
            group: kind.group.to_string(),
            kind: kind.kind.to_string(),
            causes,
            ..Details::default()
        })
    }

    /// 400.
    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::new(400, Reason::BadRequest, message)
    }

    /// 401 `Unauthorized`.
    pub fn unauthorized() -> Self {
        Self::new(401, Reason::Unauthorized, "Unauthorized")
    }

    /// 405 `create is not supported on resources of kind "pods"`.
    pub fn method_not_supported(resource: &GroupResource, action: &str) -> Self {
        let message = format!("{action} is not supported on resources of kind \"{resource}\"");
        Self::about(405, Reason::MethodNotAllowed, resource, "", message)
    }

    /// 405 for a method that the path does not know.
    pub fn method_not_allowed() -> Self {
        let message = "the server does not allow this method on the requested resource";
        Self::new(405, Reason::MethodNotAllowed, message).with_details(Details::default())
    }

    /// 406, listing the media types on offer.
    pub fn not_acceptable(offers: &[&str]) -> Self {
        let message = format!(
            "only the following media types are accepted: {}",
            offers.join(", ")
        );
        Self::new(406, Reason::NotAcceptable, message)
    }

    /// 415, listing the accepted media types.
    pub fn unsupported_media_type(offers: &[&str]) -> Self {
        let message = format!(
            "the body of the request was in an unknown format - accepted media types include: {}",
            offers.join(", ")
        );
        Self::new(415, Reason::UnsupportedMediaType, message)
    }

    /// 410 `Expired`.
    pub fn expired(message: impl Into<String>) -> Self {
        Self::new(410, Reason::Expired, message)
    }

    /// 413 `Request entity too large: why`.
    pub fn too_large(why: impl fmt::Display) -> Self {
        Self::new(
            413,
            Reason::RequestEntityTooLarge,
            format!("Request entity too large: {why}"),
        )
    }

    /// 429 with a time to wait.
    pub fn too_many_requests(message: impl Into<String>, retry_after_seconds: u32) -> Self {
        Self::new(429, Reason::TooManyRequests, message).with_retry_after(retry_after_seconds)
    }

    /// 500 `Internal error occurred: why`. `why` reaches the client: no secrets, no internals.
    pub fn internal(why: impl fmt::Display) -> Self {
        let why = why.to_string();
        Self::new(
            500,
            Reason::InternalError,
            format!("Internal error occurred: {why}"),
        )
        .with_cause(Cause {
            message: why,
            ..Cause::default()
        })
    }

    /// 500 whose message is the bare text (upstream's answer for errors that carry no status).
    pub fn raw_internal(message: impl Into<String>) -> Self {
        Self::new(500, Reason::Unknown, message)
    }

    /// 503.
    pub fn unavailable(message: impl Into<String>) -> Self {
        Self::new(503, Reason::ServiceUnavailable, message)
    }

    /// 504 `Timeout: why`.
    pub fn timeout(why: impl fmt::Display, retry_after_seconds: u32) -> Self {
        Self::new(504, Reason::Timeout, format!("Timeout: {why}")).with_retry_after(retry_after_seconds)
    }

    /// 504 `The get operation against pods could not be completed at this time, please try again.`
    pub fn server_timeout(resource: &GroupResource, operation: &str, retry_after_seconds: u32) -> Self {
        let message = format!(
            "The {operation} operation against {resource} could not be completed at this time, please try again."
        );
        Self::about(500, Reason::ServerTimeout, resource, operation, message)
            .with_retry_after(retry_after_seconds)
    }

    fn about(code: u16, reason: Reason, resource: &GroupResource, name: &str, message: String) -> Self {
        Self::new(code, reason, message).with_details(Details {
            name: name.into(),
            group: resource.group.to_string(),
            kind: resource.resource.to_string(),
            ..Details::default()
        })
    }

    /// The `Status` object. Fields at their zero value are left out, as upstream does.
    pub fn to_value(&self) -> Value {
        let inner = &*self.0;
        let mut out = json!({"apiVersion": "v1", "kind": "Status", "metadata": {}, "status": "Failure"});
        let object = out.as_object_mut().expect("a literal object");
        let mut put = |key: &str, text: &str| {
            if !text.is_empty() {
                object.insert(key.into(), text.into());
            }
        };
        put("message", &inner.message);
        put(
            "reason",
            inner.foreign_reason.as_deref().unwrap_or(inner.reason.as_str()),
        );
        object.insert("code".into(), inner.code.into());
        if !inner.token.is_empty() {
            object.insert("metadata".into(), json!({"continue": inner.token}));
        }
        if let Some(details) = &inner.details {
            object.insert("details".into(), details.to_value());
        }
        out
    }

    /// Reads a `Status` that another server sent.
    pub fn from_value(status: &Value) -> Option<Self> {
        if status.get("kind")?.as_str()? != "Status" {
            return None;
        }
        let text = |value: &Value, key: &str| {
            value
                .get(key)
                .and_then(Value::as_str)
                .unwrap_or_default()
                .to_string()
        };
        let code = u16::try_from(status.get("code").and_then(Value::as_u64).unwrap_or(500)).ok()?;
        let said = text(status, "reason");
        let reason = Reason::from_wire(&said);
        let mut error = Self::new(code, reason, text(status, "message"));
        if reason == Reason::Unknown && !said.is_empty() {
            error.0.foreign_reason = Some(clip_text(limits::SHOWN_VALUE_BYTES, said).into());
        }
        if let Some(details) = status.get("details") {
            let causes = details
                .get("causes")
                .and_then(Value::as_array)
                .map(Vec::as_slice)
                .unwrap_or_default();
            error = error.with_details(Details {
                name: text(details, "name"),
                group: text(details, "group"),
                kind: text(details, "kind"),
                uid: text(details, "uid"),
                causes: causes
                    .iter()
                    .map(|c| Cause {
                        reason: text(c, "reason"),
                        message: text(c, "message"),
                        field: text(c, "field"),
                    })
                    .collect(),
                retry_after_seconds: details
                    .get("retryAfterSeconds")
                    .and_then(Value::as_u64)
                    .and_then(|s| u32::try_from(s).ok())
                    .unwrap_or_default(),
            });
        }
        Some(error)
    }
}

impl Reason {
    fn from_wire(text: &str) -> Self {
        const ALL: [Reason; 19] = [
            Reason::Unauthorized,
            Reason::Forbidden,
            Reason::NotFound,
            Reason::AlreadyExists,
            Reason::Conflict,
            Reason::Gone,
            Reason::Expired,
            Reason::Invalid,
            Reason::ServerTimeout,
            Reason::Timeout,
            Reason::TooManyRequests,
            Reason::BadRequest,
            Reason::MethodNotAllowed,
            Reason::NotAcceptable,
            Reason::RequestEntityTooLarge,
            Reason::UnsupportedMediaType,
            Reason::InternalError,
            Reason::ServiceUnavailable,
            Reason::StorageReadError,
        ];
        ALL.into_iter()
            .find(|r| r.as_str() == text)
            .unwrap_or(Reason::Unknown)
    }
}

impl Details {
    /// The wire form.
    pub fn to_value(&self) -> Value {
        let mut out = Map::new();
        for (key, text) in [
            ("name", &self.name),
            ("group", &self.group),
            ("kind", &self.kind),
            ("uid", &self.uid),
        ] {
            if !text.is_empty() {
                out.insert(key.into(), text.as_str().into());
            }
        }
        if !self.causes.is_empty() {
            let causes = self.causes.iter().map(|cause| {
                let mut one = Map::new();
                for (key, text) in [
                    ("reason", &cause.reason),
                    ("message", &cause.message),
                    ("field", &cause.field),
                ] {
                    if !text.is_empty() {
                        one.insert(key.into(), text.as_str().into());
                    }
                }
                Value::Object(one)
            });
            out.insert("causes".into(), causes.collect());
        }
        if self.retry_after_seconds > 0 {
            out.insert("retryAfterSeconds".into(), self.retry_after_seconds.into());
        }
        Value::Object(out)
    }
}

impl fmt::Display for ApiError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.message)
    }
}

impl std::error::Error for ApiError {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::FieldPath;

    fn invalid(errors: usize) -> ApiError {
        let path = FieldPath::new("spec");
        let errors: Vec<FieldError> = (0..errors)
            .map(|index| FieldError::required(&path.index(index), ""))
            .collect();
        ApiError::invalid(&GroupKind::new("", "Pod"), "x", &errors)
    }

    #[test]
    fn reasons_of_other_servers_are_kept() {
        let status = |reason: &str| json!({"kind": "Status", "code": 403, "reason": reason, "message": "m"});
        let error = ApiError::from_value(&status("in use")).expect("a Status");
        assert_eq!(
            (error.reason(), &error.to_value()["reason"]),
            (Reason::Unknown, &json!("in use"))
        );
        let error = ApiError::from_value(&status("Forbidden")).expect("a Status");
        assert_eq!(
            (error.reason(), &error.to_value()["reason"]),
            (Reason::Forbidden, &json!("Forbidden"))
        );
        let error = ApiError::from_value(&status("")).expect("a Status");
        assert_eq!(error.to_value().get("reason"), None);
        let long = ApiError::from_value(&status(&"x".repeat(1 << 20))).expect("a Status");
        assert!(
            long.to_value()["reason"]
                .as_str()
                .is_some_and(|text| text.len() < 2 * limits::SHOWN_VALUE_BYTES)
        );
    }

    #[test]
    fn causes_are_bounded_and_the_others_counted() {
        let causes = |error: &ApiError| error.details().map_or(0, |details| details.causes.len());
        let all = invalid(limits::CAUSES);
        assert_eq!(causes(&all), limits::CAUSES);
        assert!(all.message().ends_with(", spec[99]: Required value]"), "{all}");
        let cut = invalid(limits::CAUSES + 1);
        assert_eq!(causes(&cut), limits::CAUSES);
        assert!(
            cut.message().ends_with("spec[99]: Required value, and 1 more]"),
            "{cut}"
        );
        let added = cut.with_cause(Cause::default());
        assert_eq!(causes(&added), limits::CAUSES);
        assert_eq!(
            invalid(1).message(),
            "Pod \"x\" is invalid: spec[0]: Required value"
        );
    }

    #[test]
    fn equal_errors_are_said_once() {
        let error = FieldError::required(&FieldPath::new("a"), "");
        let errors = vec![error; 2 * limits::CAUSES];
        let status = ApiError::invalid(&GroupKind::new("apps", "Deployment"), "x", &errors);
        assert_eq!(
            status.message(),
            "Deployment.apps \"x\" is invalid: a: Required value"
        );
    }

    #[test]
    fn messages_and_shown_values_are_bounded() {
        let fits = ApiError::bad_request("x".repeat(limits::MESSAGE_BYTES));
        assert_eq!(fits.message().len(), limits::MESSAGE_BYTES);
        let cut = ApiError::bad_request("x".repeat(limits::MESSAGE_BYTES + 1));
        assert_eq!(cut.message().len(), limits::MESSAGE_BYTES + 3);
        assert!(cut.message().ends_with("x..."));
        // As it is sent: a quote takes two bytes.
        let fits = ApiError::bad_request("\"".repeat(limits::MESSAGE_BYTES / 2));
        assert_eq!(fits.message().len(), limits::MESSAGE_BYTES / 2);
        let cut = ApiError::bad_request("\"".repeat(limits::MESSAGE_BYTES / 2 + 1));
        assert_eq!(cut.message().len(), limits::MESSAGE_BYTES / 2 + 3);

        let path = FieldPath::new("spec");
        let shown = |bytes: usize| FieldError::invalid_str(&path, &"x".repeat(bytes), "bad").body();
        let room = limits::SHOWN_VALUE_BYTES - 2;
        assert!(shown(room).ends_with("xx\": bad"));
        assert!(shown(room + 1).ends_with("xx...: bad"));
        let huge = "k".repeat(1 << 20);
        let error = FieldError::invalid(&path.key(&huge), &Value::from(huge.as_str()), huge.as_str());
        assert!(error.to_string().len() < 4 * limits::SHOWN_VALUE_BYTES);
    }
}
