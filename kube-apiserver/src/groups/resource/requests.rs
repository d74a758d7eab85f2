//! The requests of a claim, and what else of it names them.

use std::collections::HashMap;

use machinery::FieldPath;
use serde_json::Value;

use super::device::{fits, request_name, unique};
use super::selectors::REQUESTS;
use crate::errors::Errors;
use crate::json::Json;
use crate::unique::Seen;

/// The most configurations of a claim.
pub(super) const CONFIGURATIONS: usize = 32;
const NO_REQUEST: &str =
    "must be the name of a request in the claim or the name of a request and a subrequest separated by '/'";

/// The requests of a claim by name, each with the names of its alternatives.
#[derive(Debug)]
pub(super) struct Requests<'v>(HashMap<&'v str, Seen<&'v str>>);

impl<'v> Requests<'v> {
    /// The requests of a specification.
    pub(super) fn of(spec: &'v Value) -> Self {
        let requests = spec.list("devices.requests").iter();
        let named = requests.map(|request| {
            let alternatives = request.list("firstAvailable").iter();
            let alternatives = alternatives.map(|alternative| alternative.text("name"));
            (request.text("name"), alternatives.collect())
        });
        Requests(named.collect())
    }

    /// A name that has to be that of a request, or `request/alternative`.
    pub(super) fn check(&self, errors: &mut Errors, path: &FieldPath<'_>, name: &str) {
        let mut parts = name.split('/');
        let (request, alternative) = (parts.next().unwrap_or_default(), parts.next());
        if parts.next().is_some() {
            return errors.invalid(path, name, NO_REQUEST);
        }
        request_name(errors, path, request);
        if let Some(alternative) = alternative {
            request_name(errors, path, alternative);
        }
        let known = self
            .0
            .get(request)
            .is_some_and(|alternatives| alternative.is_none_or(|alternative| alternatives.has(alternative)));
        if !known {
            errors.invalid(path, name, NO_REQUEST);
        }
    }

    /// The `requests` that a constraint or a configuration is about.
    pub(super) fn check_all(&self, errors: &mut Errors, path: &FieldPath<'_>, owner: &Value) {
        let at = path.child("requests");
        if !fits(errors, &at, owner.list("requests").len(), REQUESTS) {
            return;
        }
        for (index, name) in owner.strings("requests").enumerate() {
            self.check(errors, &at.index(index), name);
        }
        unique(errors, &at, owner.strings("requests"));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::groups::check::check_errors;

    #[test]
    fn names_are_those_of_requests() {
        let spec = json!({"devices": {"requests": [
            {"name": "a"}, {"name": "b", "firstAvailable": [{"name": "x"}, {"name": "y"}]},
        ]}});
        let known = Requests::of(&spec);
        let check = |name: &str, is_known: bool| {
            let expected = format!("r: Invalid value: \"{name}\": {NO_REQUEST}");
            let expected = [expected.as_str()];
            let path = FieldPath::new("r");
            let expected = if is_known { &expected[..0] } else { &expected[..] };
            check_errors(|errors| known.check(errors, &path, name), expected);
        };
        check("a", true);
        check("b", true);
        check("b/x", true);
        check("b/z", false);
        check("a/x", false);
        check("c", false);
        check("b/x/y", false);
    }
}
