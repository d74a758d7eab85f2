//! The 403 of a request that is not allowed, in upstream's texts.

use machinery::go::quote;
use machinery::{ApiError, GroupResource};

use super::Attributes;

/// The 403 of a request that no authorizer allows. `reason` is what the authorizers had to say, or empty.
pub fn forbidden(attributes: &Attributes<'_>, reason: &str) -> ApiError {
    let mut why = sanitize(&message(attributes));
    if !reason.is_empty() {
        why.push_str(": ");
        why.push_str(reason);
    }
    let resource = GroupResource::new(attributes.group, attributes.resource);
    ApiError::forbidden(&resource, attributes.name, why)
}

fn message(a: &Attributes<'_>) -> String {
    let user = quote(&a.user.name);
    if !a.is_resource {
        return format!("User {user} cannot {} path {}", a.verb, quote(a.path));
    }
    let resource = if a.subresource.is_empty() {
        quote(a.resource)
    } else {
        quote(&format!("{}/{}", a.resource, a.subresource))
    };
    let what = format!(
        "User {user} cannot {} resource {resource} in API group {}",
        a.verb,
        quote(a.group)
    );
    if a.namespace.is_empty() {
        format!("{what} at the cluster scope")
    } else {
        format!("{what} in the namespace {}", quote(a.namespace))
    }
}

/// Nothing in an error may look like HTML: browsers ask API servers too.
pub(crate) fn sanitize(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}
