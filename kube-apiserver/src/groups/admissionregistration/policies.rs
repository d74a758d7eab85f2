//! Common parts of validating and mutating admission policies and their bindings: validation, expressions included.

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use generic_server::dynamic_admission::policy::{self, Phase};
use machinery::jsonpath::JsonPath;
use machinery::names::{
    dns1035_label, dns1123_subdomain, name_is_dns_subdomain, path_segment_name, qualified_name,
    validate_conditions,
};
use machinery::{FieldError, FieldPath, meta};
use serde_json::Value;

use super::webhooks::{conditions, operations, selector};
use crate::errors::Errors;
use crate::json::Json;
use crate::unique::Seen;

const MOST_ANNOTATIONS: usize = 20;
const MOST_ANNOTATION_SOURCE: usize = 5 * 1024;
/// The faults of a policy's expressions.
pub(super) fn validating_faults(policy: &Value) -> BoxFuture<'_, Vec<FieldError>> {
    policy::faults(Phase::Validating, policy).boxed()
}

/// The same of a mutating one.
pub(super) fn mutating_faults(policy: &Value) -> BoxFuture<'_, Vec<FieldError>> {
    policy::faults(Phase::Mutating, policy).boxed()
}

/// Checks a ValidatingAdmissionPolicy.
pub(super) fn validating(errors: &mut Errors, object: &Value) {
    let (root, spec) = (FieldPath::new("spec"), object.dig("spec"));
    common(errors, &root, spec);
    let (validations, annotations) = (spec.list("validations"), spec.list("auditAnnotations"));
    if validations.is_empty() && annotations.is_empty() {
        let text = "validations or auditAnnotations must contain at least one item";
        errors.required(&root.child("validations"), text);
        errors.required(&root.child("auditAnnotations"), text);
        return;
    }
    let at = root.child("validations");
    for (index, one) in validations.iter().enumerate() {
        validation(errors, &at.index(index), one);
    }
    let at = root.child("auditAnnotations");
    if annotations.len() > MOST_ANNOTATIONS {
        let text = format!("must not have more than {MOST_ANNOTATIONS} auditAnnotations");
        errors.invalid_value(&at, spec.dig("auditAnnotations"), text);
    }
    let mut keys = Seen::default();
    for (index, one) in annotations.iter().enumerate() {
        let path = at.index(index);
        annotation(errors, &path, meta::name(object), one);
        let key = one.text("key");
        if keys.again(key) {
            errors.duplicate(&path.child("key"), key);
        }
    }
}

/// Checks a MutatingAdmissionPolicy.
pub(super) fn mutating(errors: &mut Errors, object: &Value) {
    let (root, spec) = (FieldPath::new("spec"), object.dig("spec"));
    common(errors, &root, spec);
    let at = root.child("mutations");
    let mutations = spec.list("mutations");
    if mutations.is_empty() {
        errors.required(&at, "mutations must contain at least one item");
    }
    for (index, one) in mutations.iter().enumerate() {
        mutation(errors, &at.index(index), one);
    }
    let at = root.child("reinvocationPolicy");
    errors.required_one_of(&at, spec.text("reinvocationPolicy"), &["IfNeeded", "Never"]);
}

/// Checks a binding; mutating ones act on nothing but creates and updates.
pub(super) fn binding(errors: &mut Errors, object: &Value, mutating: bool) {
    let (root, spec) = (FieldPath::new("spec"), object.dig("spec"));
    let name = spec.text("policyName");
    let at = root.child("policyName");
    if errors.need(&at, name) {
        errors.text(&at, name, name_is_dns_subdomain(name, false));
    }
    if spec.has("paramRef") {
        params(errors, &root.child("paramRef"), spec.dig("paramRef"));
    }
    let at = root.child("matchResources");
    if spec.has("matchResources") {
        matching(errors, &at, spec.dig("matchResources"));
    }
    if mutating {
        mutable(errors, &at, spec.dig("matchResources"));
    } else {
        actions(errors, &root.child("validationActions"), spec);
    }
}

/// A text that has a default, so that an empty one is wrong rather than missing.
fn one_of(errors: &mut Errors, path: &FieldPath<'_>, object: &Value, key: &str, known: &[&str]) {
    match object.dig(key).as_str() {
        Some(text) => _ = errors.one_of(&path.child(key), text, known),
        None => errors.required(&path.child(key), ""),
    }
}

fn common(errors: &mut Errors, root: &FieldPath<'_>, spec: &Value) {
    one_of(errors, root, spec, "failurePolicy", &["Fail", "Ignore"]);
    if spec.has("paramKind") {
        param_kind(errors, &root.child("paramKind"), spec.dig("paramKind"));
    }
    let at = root.child("matchConstraints");
    if spec.has("matchConstraints") {
        let constraints = spec.dig("matchConstraints");
        matching(errors, &at, constraints);
        if constraints.list("resourceRules").is_empty() {
            errors.required(&at.child("resourceRules"), "");
        }
        if spec.has("mutations") || spec.has("reinvocationPolicy") {
            mutable(errors, &at, constraints);
        }
    } else {
        errors.required(&at, "");
    }
    let at = root.child("matchConditions");
    conditions(errors, &at, spec.list("matchConditions"));
    let at = root.child("variables");
    for (index, variable) in spec.list("variables").iter().enumerate() {
        let path = at.index(index);
        let name = variable.text("name");
        let at = path.child("name");
        if name.trim().is_empty() {
            errors.required(&at, "name is not specified");
        } else if !kube_cel::is_identifier(name) {
            errors.invalid(&at, name, "must be a valid CEL identifier");
        }
        expression(
            errors,
            &path.child("expression"),
            variable.text("expression"),
            "expression is not specified",
        );
    }
}

fn expression(errors: &mut Errors, path: &FieldPath<'_>, source: &str, missing: &str) {
    match source.trim().is_empty() {
        true => errors.required(path, missing),
        false => errors.expression(path),
    }
}

fn param_kind(errors: &mut Errors, path: &FieldPath<'_>, value: &Value) {
    let (at, version) = (path.child("apiVersion"), value.text("apiVersion"));
    if errors.need(&at, version) {
        let (group, name) = version.rsplit_once('/').unwrap_or(("", version));
        if group.contains('/') {
            let text = format!("unexpected GroupVersion string: {version}");
            errors.invalid(&at, version, text);
        } else {
            if !group.is_empty() {
                errors.text(&at, group, dns1123_subdomain(group));
            }
            match name {
                "" => errors.invalid(&at, version, "version must be specified"),
                name => errors.text(&at, name, dns1035_label(name)),
            }
        }
    }
    let (at, kind) = (path.child("kind"), value.text("kind"));
    if errors.need(&at, kind) {
        let texts = dns1035_label(&kind.to_lowercase());
        if !texts.is_empty() {
            let text = format!(
                "may have mixed case, but should otherwise match: {}",
                texts.join(",")
            );
            errors.invalid(&at, kind, text);
        }
    }
}

fn matching(errors: &mut Errors, path: &FieldPath<'_>, resources: &Value) {
    one_of(errors, path, resources, "matchPolicy", &["Equivalent", "Exact"]);
    for key in ["namespaceSelector", "objectSelector"] {
        match resources.has(key) {
            true => selector(errors, &path.child(key), resources.dig(key)),
            false => errors.required(&path.child(key), ""),
        }
    }
    for key in ["resourceRules", "excludeResourceRules"] {
        let at = path.child(key);
        for (index, rule) in resources.list(key).iter().enumerate() {
            let path = at.index(index);
            let mut names = Seen::default();
            for (index, name) in rule.strings("resourceNames").enumerate() {
                let at = path.child("resourceNames");
                let at = at.index(index);
                errors.text(&at, name, path_segment_name(name));
                if names.again(name) {
                    errors.duplicate(&at, name);
                }
            }
            operations(errors, &path, rule);
        }
    }
}

fn mutable(errors: &mut Errors, path: &FieldPath<'_>, resources: &Value) {
    let at = path.child("resourceRules");
    let at = at.child("operations");
    for rule in resources.list("resourceRules") {
        for operation in rule.strings("operations") {
            errors.one_of(&at, operation, &["*", "CONNECT", "CREATE", "UPDATE"]);
        }
    }
}

fn validation(errors: &mut Errors, path: &FieldPath<'_>, value: &Value) {
    let source = value.text("expression");
    let missing = "expression is not specified";
    expression(errors, &path.child("expression"), source, missing);
    let (at, source) = (path.child("messageExpression"), value.text("messageExpression"));
    match (source.is_empty(), source.trim().is_empty()) {
        (false, true) => errors.invalid(&at, source, "must be non-empty if specified"),
        (false, false) => errors.expression(&at),
        (true, _) => {}
    }
    let (at, message) = (path.child("message"), value.text("message"));
    if !message.is_empty() && message.trim().is_empty() {
        errors.invalid(&at, message, "must be non-empty if specified");
    } else if message.trim().contains(['\n', '\r']) {
        errors.invalid(&at, message, "must not contain line breaks");
    }
    if value.has("reason") {
        let known = ["Forbidden", "Invalid", "RequestEntityTooLarge"];
        errors.one_of(&path.child("reason"), value.text("reason"), &known);
    }
}

fn annotation(errors: &mut Errors, path: &FieldPath<'_>, policy: &str, value: &Value) {
    let (at, key) = (path.child("key"), value.text("key"));
    if policy.is_empty() {
        errors.invalid(&at, key, "requires metadata.name be non-empty");
    } else {
        let whole = format!("{policy}/{key}");
        errors.text(&at, &whole, qualified_name(&whole));
    }
    let (at, source) = (path.child("valueExpression"), value.text("valueExpression"));
    if source.trim().len() > MOST_ANNOTATION_SOURCE {
        let text = format!("must not exceed {MOST_ANNOTATION_SOURCE} bytes in length");
        return errors.required(&at, &text);
    }
    expression(errors, &at, source, "valueExpression is not specified");
}

fn mutation(errors: &mut Errors, path: &FieldPath<'_>, value: &Value) {
    let known = ["ApplyConfiguration", "JSONPatch"];
    let kind = value.text("patchType");
    if !errors.required_one_of(&path.child("patchType"), kind, &known) {
        return;
    }
    let (own, other) = match kind {
        "JSONPatch" => ("jsonPatch", "applyConfiguration"),
        _ => ("applyConfiguration", "jsonPatch"),
    };
    let at = path.child(own);
    if value.has(own) {
        let source = value.dig(own).text("expression");
        expression(errors, &at.child("expression"), source, "");
    } else {
        errors.required(&at, &format!("must be specified when patchType is {kind}"));
    }
    if value.has(other) {
        let text = format!("must not be specified when patchType is {kind}");
        errors.invalid(&path.child(other), format!("{{{other}}}"), text);
    }
}

fn params(errors: &mut Errors, path: &FieldPath<'_>, reference: &Value) {
    let name = reference.text("name");
    let selects = reference.has("selector");
    let exclusive = "name and selector are mutually exclusive";
    if !name.is_empty() {
        let at = path.child("name");
        errors.text(&at, name, path_segment_name(name));
        if selects {
            errors.forbidden(&at, exclusive);
        }
    }
    if selects {
        let at = path.child("selector");
        selector(errors, &at, reference.dig("selector"));
        if !name.is_empty() {
            errors.forbidden(&at, exclusive);
        }
    }
    if name.is_empty() && !selects {
        errors.required(path, "one of name or selector must be specified");
    }
    let action = reference.text("parameterNotFoundAction");
    errors.required_one_of(&path.child("parameterNotFoundAction"), action, &["Deny", "Allow"]);
}

fn actions(errors: &mut Errors, path: &FieldPath<'_>, spec: &Value) {
    let list: Vec<&str> = spec.strings("validationActions").collect();
    let mut seen = Seen::default();
    for (index, action) in list.iter().enumerate() {
        let at = path.index(index);
        errors.one_of(&at, action, &["Audit", "Deny", "Warn"]);
        if seen.again(*action) {
            errors.duplicate(&at, *action);
        }
    }
    if list.contains(&"Deny") && list.contains(&"Warn") {
        let text = "must not contain both Deny and Warn (repeating the same validation failure information in the API response and headers serves no purpose)";
        errors.invalid_value(path, spec.dig("validationActions"), text);
    }
    if list.is_empty() {
        errors.required(path, "at least one validation action is required");
    }
}

/// Checks the status of a validating policy: what was found of its expressions' types, and conditions.
pub(super) fn validating_status(errors: &mut Errors, policy: &Value) {
    let path = FieldPath::new("status");
    let at = path.child("typeChecking");
    let at = at.child("expressionWarnings");
    for (index, warning) in policy
        .list("status.typeChecking.expressionWarnings")
        .iter()
        .enumerate()
    {
        let at = at.index(index);
        errors.need(&at.child("warning"), warning.text("warning"));
        let field = warning.text("fieldRef").trim();
        if errors.need(&at.child("fieldRef"), field)
            && let Err(why) = JsonPath::parse(field)
        {
            errors.invalid(&at.child("fieldRef"), field, format!("invalid JSONPath: {why}"));
        }
    }
    for error in validate_conditions(policy.list("status.conditions"), &path.child("conditions")) {
        errors.push(error);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::groups::admissionregistration::defaults;
    use serde_json::json;

    fn check(object: &mut Value, validate: fn(&mut Errors, &Value), expected: &[&str]) {
        defaults::policy(object);
        let phase = match object.dig("spec").has("mutations") {
            true => Phase::Mutating,
            false => Phase::Validating,
        };
        let faults = policy::faults(phase, object).now_or_never();
        let faults = faults.expect("nothing is awaited outside of requests");
        let found = Errors::collect_with(&faults, |errors| validate(errors, object));
        let found: Vec<String> = found
            .iter()
            .map(|e| format!("{}: {}", e.field, e.body()))
            .collect();
        assert_eq!(found, expected);
    }

    fn rules() -> Value {
        json!({"resourceRules": [{"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]}]})
    }

    #[test]
    fn policies_need_match_rules_and_compile() {
        let policy = |spec: Value| json!({"metadata": {"name": "p"}, "spec": spec});
        check(
            &mut policy(
                json!({"matchConstraints": rules(), "variables": [{"name": "n", "expression": "size(object.metadata.name)"}],
                    "validations": [{"expression": "variables.n < 5 && request.operation == 'CREATE'", "messageExpression": "'too long: ' + string(variables.n)"}]}),
            ),
            validating,
            &[],
        );
        check(
            &mut policy(json!({})),
            validating,
            &[
                "spec.matchConstraints: Required value",
                "spec.validations: Required value: validations or auditAnnotations must contain at least one item",
                "spec.auditAnnotations: Required value: validations or auditAnnotations must contain at least one item",
            ],
        );
        let mut bad = policy(
            json!({"matchConstraints": rules(), "validations": [{"expression": "1 + 1"}, {"expression": " "}], "variables": [{"name": "in", "expression": "true"}]}),
        );
        check(
            &mut bad,
            validating,
            &[
                r#"spec.variables[0].name: Invalid value: "in": must be a valid CEL identifier"#,
                r#"spec.validations[0].expression: Invalid value: "1 + 1": must evaluate to bool but got int"#,
                "spec.validations[1].expression: Required value: expression is not specified",
            ],
        );
    }

    #[test]
    fn mutations_are_of_one_kind() {
        let mut policy = json!({"metadata": {"name": "p"}, "spec": {"matchConstraints": rules(), "reinvocationPolicy": "Never", "mutations": [
            {"patchType": "JSONPatch", "jsonPatch": {"expression": "[JSONPatch{op: 'add', path: '/a', value: 1}]"}},
            {"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": "Object{metadata: Object.metadata{labels: {'a': 'b'}}}"}},
            {"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": "'x'"}},
            {"patchType": "JSONPatch", "applyConfiguration": {"expression": "x"}}]}});
        check(
            &mut policy,
            mutating,
            &[
                r#"spec.mutations[2].applyConfiguration.expression: Invalid value: "'x'": must evaluate to Object but got string"#,
                "spec.mutations[3].jsonPatch: Required value: must be specified when patchType is JSONPatch",
                r#"spec.mutations[3].applyConfiguration: Invalid value: "{applyConfiguration}": must not be specified when patchType is JSONPatch"#,
            ],
        );
    }

    #[test]
    fn bindings_do_something() {
        let check = |spec: Value, mutating: bool, expected: &[&str]| {
            let object = json!({"spec": spec});
            let found = Errors::collect(|errors| binding(errors, &object, mutating));
            let found: Vec<String> = found
                .iter()
                .map(|e| format!("{}: {}", e.field, e.body()))
                .collect();
            assert_eq!(found, expected);
        };
        check(json!({"policyName": "p"}), true, &[]);
        check(
            json!({"policyName": "p", "paramRef": {"parameterNotFoundAction": "Deny"}}),
            false,
            &[
                "spec.paramRef: Required value: one of name or selector must be specified",
                "spec.validationActions: Required value: at least one validation action is required",
            ],
        );
    }
}
