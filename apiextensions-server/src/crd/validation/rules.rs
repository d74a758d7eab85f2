//! `x-kubernetes-validations` at CRD admission: do they compile, and what may they cost.
//!
//! Costs are estimated per expression and summed per schema; limits and texts are upstream's
//! (`pkg/apis/apiextensions/validation/cel_validation.go`).

use machinery::field::FieldErrorKind;
use machinery::{FieldError, FieldPath, limits};
use serde_json::Value;

use crate::crd::internal::Spec;
use crate::props::Props;

/// The most that one expression may be estimated to cost.
const EXPRESSION_LIMIT: u64 = 10_000_000;
/// The most that all rules of a schema may be estimated to cost.
const SCHEMA_LIMIT: u64 = 100_000_000;

/// Refuses a definition that has too many rules, unless it had so before: nothing else may compile them then.
pub(super) fn too_many(crd: &Value, old: Option<&Value>) -> Option<FieldError> {
    let count = |crd: &Value| {
        Spec::of(crd)
            .schemas()
            .map(crate::rules::count_rules)
            .sum::<usize>()
    };
    let is_excessive = |crd: &Value| count(crd) > limits::DEFINITION_RULES;
    (is_excessive(crd) && !old.is_some_and(is_excessive)).then(|| {
        let most = limits::DEFINITION_RULES;
        let why = format!("the schemas must not have more than {most} validation rules together");
        FieldError::forbidden(&FieldPath::new("spec").child("versions"), why)
    })
}

/// How often the values of a node can occur in one object, as far as limits above it say.
#[derive(Debug, Clone, Copy)]
pub(super) struct CostContext<'a> {
    schema: Props<'a>,
    /// `None`: unbounded.
    cardinality: Option<u64>,
    /// Its values are whole objects.
    root: bool,
}

impl<'a> CostContext<'a> {
    pub(super) fn root(schema: Props<'a>) -> Self {
        CostContext {
            schema,
            cardinality: Some(1),
            root: true,
        }
    }

    /// The context of a node right below.
    pub(super) fn child(&self, schema: Props<'a>) -> Self {
        let factor = max_elements(self.schema);
        CostContext {
            schema,
            cardinality: self.cardinality.zip(factor).map(|(n, f)| n.saturating_mul(f)),
            root: schema.embedded(),
        }
    }
}

fn max_elements(schema: Props<'_>) -> Option<u64> {
    let limit = |key: &str| schema.get(key).and_then(Value::as_i64).map(|n| n.max(0) as u64);
    match schema.ty() {
        "object" if schema.additional().is_some() => limit("maxProperties"),
        "array" => limit("maxItems"),
        _ => Some(1),
    }
}

/// The estimated cost of all rules of a schema together.
#[derive(Debug, Default)]
pub(super) struct TotalCost {
    total: u64,
    /// The four dearest of those that take at least a hundredth of the limit, dearest first.
    dearest: Vec<(u64, String)>,
}

impl TotalCost {
    fn add(&mut self, path: &FieldPath<'_>, cost: u64) {
        self.total = self.total.saturating_add(cost);
        if cost < SCHEMA_LIMIT / 100 {
            return;
        }
        let at = self.dearest.partition_point(|(c, _)| *c >= cost);
        self.dearest.insert(at, (cost, path.to_string()));
        self.dearest.truncate(4);
    }

    /// Adds the errors of a schema that is too dear.
    pub(super) fn report(&self, schema: &FieldPath<'_>, errors: &mut Vec<FieldError>) {
        if self.total <= SCHEMA_LIMIT {
            return;
        }
        let detail =
            "contributed to estimated rule cost total exceeding cost limit for entire OpenAPIv3 schema";
        errors.extend(self.dearest.iter().map(|(_, field)| FieldError {
            kind: FieldErrorKind::Forbidden,
            field: field.clone(),
            value: None,
            detail: detail.into(),
        }));
        let what = "x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema";
        errors.push(FieldError::forbidden(
            schema,
            exceeded(what, self.total, SCHEMA_LIMIT),
        ));
    }
}

fn exceeded(what: &str, cost: u64, limit: u64) -> String {
    let factor = cost as f64 / limit as f64;
    let factor = if factor > 100.0 {
        "more than 100x".to_string()
    } else if factor < 1.5 {
        format!("{factor:.6}x")
    } else {
        format!("{factor:.1}x")
    };
    format!(
        "{what} exceeds budget by factor of {factor} (try simplifying the rule, or adding maxItems, maxProperties, and maxLength where arrays, maps, and strings are declared)"
    )
}

/// Where a node's rules are, and what holds there.
#[derive(Debug, Clone, Copy)]
pub(super) struct RuleSite<'a> {
    /// `...x-kubernetes-validations`.
    pub(super) path: &'a FieldPath<'a>,
    /// The path above which `oldSelf` has no counterpart.
    pub(super) uncorrelatable: Option<&'a str>,
    /// The schema is unchanged: its rules are exempt from the cost limit.
    pub(super) suppress_cost: bool,
}

/// A rule as upstream prints it: the Go struct as JSON, with Go's escaping of HTML.
fn show_rule(rule: Props<'_>) -> String {
    let quoted = |key: &str| go_json(&Value::from(rule.text(key)));
    let optional = |key: &str| rule.get(key).map_or_else(|| "null".to_string(), go_json);
    format!(
        "{{\"Rule\":{},\"Message\":{},\"MessageExpression\":{},\"Reason\":{},\"FieldPath\":{},\"OptionalOldSelf\":{}}}",
        quoted("rule"),
        quoted("message"),
        quoted("messageExpression"),
        optional("reason"),
        quoted("fieldPath"),
        optional("optionalOldSelf"),
    )
}

fn go_json(value: &Value) -> String {
    value
        .to_string()
        .replace('<', "\\u003c")
        .replace('>', "\\u003e")
        .replace('&', "\\u0026")
        .replace('\u{2028}', "\\u2028")
        .replace('\u{2029}', "\\u2029")
}

/// Compiles the rules of a node and judges their costs.
pub(super) fn check(
    context: &CostContext<'_>,
    site: &RuleSite<'_>,
    total: &mut TotalCost,
    errors: &mut Vec<FieldError>,
) {
    let verdicts = crate::rules::verdicts_of_node(context.schema, context.root);
    let verdicts = match &*verdicts {
        Ok(verdicts) => verdicts,
        Err(why) => {
            errors.push(FieldError::internal(site.path, why.clone()));
            return;
        }
    };
    let rules = context.schema.list("x-kubernetes-validations");
    for (i, (rule, verdict)) in rules.iter().map(Props::new).zip(verdicts).enumerate() {
        let at = site.path.index(i);
        let (at_rule, at_message) = (at.child("rule"), at.child("messageExpression"));
        let invalid = |path: &FieldPath<'_>, value: String, detail: String| FieldError {
            kind: FieldErrorKind::Invalid,
            field: path.to_string(),
            value: Some(value),
            detail,
        };
        let cardinality = context.cardinality.unwrap_or(verdict.max_cardinality);
        let cost = verdict.max_cost.saturating_mul(cardinality);
        if !site.suppress_cost && cost > EXPRESSION_LIMIT {
            errors.push(FieldError::forbidden(
                &at_rule,
                exceeded("estimated rule cost", cost, EXPRESSION_LIMIT),
            ));
        }
        total.add(&at_rule, cost);
        if let Some(fault) = &verdict.error {
            errors.push(invalid(&at_rule, show_rule(rule), fault.clone()));
        }
        match &verdict.message {
            Err(fault) => errors.push(invalid(&at_message, show_rule(rule), fault.clone())),
            Ok(None) => {}
            Ok(Some(cost)) => {
                let cost = *cost;
                if !site.suppress_cost && cost > EXPRESSION_LIMIT {
                    errors.push(FieldError::forbidden(
                        &at_message,
                        exceeded("estimated messageExpression cost", cost, EXPRESSION_LIMIT),
                    ));
                }
                total.add(&at_message, cost);
            }
        }
        if verdict.uses_old_self {
            if let Some(above) = site.uncorrelatable {
                let detail = format!(
                    "oldSelf cannot be used on the uncorrelatable portion of the schema within {above}"
                );
                errors.push(FieldError::invalid_str(&at_rule, rule.text("rule"), detail));
            }
        } else if let Some(optional) = rule.get("optionalOldSelf") {
            let detail = "may not be set if oldSelf is not used in rule";
            errors.push(FieldError::invalid(
                &at.child("optionalOldSelf"),
                optional,
                detail,
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_number_of_rules_is_bounded() {
        let crd = |count: usize| {
            let schema = |rules: usize| {
                let rules = vec![json!({"rule": "true"}); rules];
                let spec = json!({"type": "object", "x-kubernetes-validations": rules});
                json!({"schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}}})
            };
            json!({"spec": {"versions": [schema(1), schema(count - 1)]}})
        };
        let most = limits::DEFINITION_RULES;
        assert!(too_many(&crd(most), None).is_none());
        let error = too_many(&crd(most + 1), None).expect("an error");
        assert_eq!(
            error.to_string(),
            "spec.versions: Forbidden: the schemas must not have more than 5000 validation rules together"
        );
        assert!(
            too_many(&crd(most + 1), Some(&crd(most + 2))).is_none(),
            "it was so before"
        );
    }

    #[test]
    fn factors_and_rules_print_as_upstream() {
        assert!(exceeded("x", 12_000_000, 10_000_000).contains("factor of 1.200000x"));
        assert!(exceeded("x", 25_000_000, 10_000_000).contains("factor of 2.5x"));
        assert!(exceeded("x", u64::MAX, 10_000_000).contains("factor of more than 100x"));
        let rule = json!({"rule": "self > 5", "reason": "FieldValueForbidden"});
        assert_eq!(
            show_rule(Props::new(&rule)),
            "{\"Rule\":\"self \\u003e 5\",\"Message\":\"\",\"MessageExpression\":\"\",\"Reason\":\"FieldValueForbidden\",\"FieldPath\":\"\",\"OptionalOldSelf\":null}"
        );
    }
}
