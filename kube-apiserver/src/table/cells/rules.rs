//! Cells of roles, policies, webhooks and flow control.

use serde_json::Value;

use super::*;

printer!(
    ROLE_BINDING,
    "Name|string|name|0;Role|string||0;Age|string||0;Users|string||1;Groups|string||1;ServiceAccounts|string||1",
    |o, ages| {
        let of = |kind: &str| -> Value {
            let subjects = o.list("subjects").iter().filter(|s| s.text("kind") == kind);
            let names: Vec<String> = subjects
                .map(|s| match (kind, s.text("namespace")) {
                    ("ServiceAccount", "") => s.text("name").to_string(),
                    ("ServiceAccount", namespace) => format!("{namespace}/{}", s.text("name")),
                    _ => s.text("name").to_string(),
                })
                .collect();
            names.join(", ").into()
        };
        vec![
            name(o),
            format!("{}/{}", o.text("roleRef.kind"), o.text("roleRef.name")).into(),
            age(o, ages),
            of("User"),
            of("Group"),
            of("ServiceAccount"),
        ]
    }
);

printer!(
    MUTATING_POLICY,
    "Name|string|name|0;Mutations|integer||0;ParamKind|string||0;Age|string||0",
    |o, ages| vec![
        name(o),
        o.list("spec.mutations").len().into(),
        param_kind(o).into(),
        age(o, ages)
    ]
);

printer!(
    VALIDATING_POLICY,
    "Name|string|name|0;Validations|integer||0;ParamKind|string||0;Age|string||0",
    |o, ages| vec![
        name(o),
        o.list("spec.validations").len().into(),
        param_kind(o).into(),
        age(o, ages)
    ]
);

printer!(
    POLICY_BINDING,
    "Name|string|name|0;PolicyName|string||0;ParamRef|string||0;Age|string||0",
    |o, ages| {
        let reference = o.dig("spec.paramRef");
        let text = match (reference.text("name"), reference.text("namespace")) {
            ("", _) if reference.has("selector") => go_selector(reference.dig("selector")),
            ("", _) => "<unset>".to_string(),
            (name, "") => format!("*/{name}"),
            (name, namespace) => format!("{namespace}/{name}"),
        };
        vec![
            name(o),
            o.text("spec.policyName").into(),
            text.into(),
            age(o, ages),
        ]
    }
);

/// A selector as upstream prints the Go value.
fn go_selector(selector: &Value) -> String {
    let labels = selector.entries("matchLabels");
    let labels = labels.map(|(key, value)| format!("{key}: {},", value.as_str().unwrap_or_default()));
    let expressions = selector.list("matchExpressions").iter().map(|expression| {
        let values: Vec<&str> = expression.strings("values").collect();
        format!(
            "LabelSelectorRequirement{{Key:{},Operator:{},Values:[{}],}},",
            expression.text("key"),
            expression.text("operator"),
            values.join(" ")
        )
    });
    format!(
        "&LabelSelector{{MatchLabels:map[string]string{{{}}},MatchExpressions:[]LabelSelectorRequirement{{{}}},}}",
        labels.collect::<String>(),
        expressions.collect::<String>()
    )
}

printer!(
    WEBHOOK_CONFIGURATION,
    "Name|string|name|0;Webhooks|integer||0;Age|string||0",
    |o, ages| vec![name(o), o.list("webhooks").len().into(), age(o, ages)]
);

printer!(
    FLOW_SCHEMA,
    "Name|string|name|0;PriorityLevel|string||0;MatchingPrecedence|string||0;DistinguisherMethod|string||0;Age|string||0;MissingPL|string||0",
    |o, ages| {
        let dangling = o
            .list("status.conditions")
            .iter()
            .find(|c| c.text("type") == "Dangling");
        vec![
            name(o),
            o.text("spec.priorityLevelConfiguration.name").into(),
            number(o, "spec.matchingPrecedence"),
            or(o.text("spec.distinguisherMethod.type"), "<none>").into(),
            age(o, ages),
            dangling.map_or("?", |c| c.text("status")).into(),
        ]
    }
);

printer!(
    PRIORITY_LEVEL,
    "Name|string|name|0;Type|string||0;NominalConcurrencyShares|string||0;Queues|string||0;HandSize|string||0;QueueLengthLimit|string||0;Age|string||0",
    |o, ages| {
        let show = |path: &str| match o.dig(path) {
            Value::Null => "<none>".into(),
            value => value.clone(),
        };
        vec![
            name(o),
            o.text("spec.type").into(),
            show("spec.limited.nominalConcurrencyShares"),
            show("spec.limited.limitResponse.queuing.queues"),
            show("spec.limited.limitResponse.queuing.handSize"),
            show("spec.limited.limitResponse.queuing.queueLengthLimit"),
            age(o, ages),
        ]
    }
);

fn param_kind(object: &Value) -> String {
    let kind = object.dig("spec.paramKind");
    match kind.is_null() {
        true => "<unset>".into(),
        false => format!("{}/{}", kind.text("apiVersion"), kind.text("kind")),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn selectors_are_printed_as_go_values() {
        #[track_caller]
        fn check(selector: &Value, expected: &str) {
            assert_eq!(go_selector(selector), expected);
        }
        check(
            &json!({}),
            "&LabelSelector{MatchLabels:map[string]string{},MatchExpressions:[]LabelSelectorRequirement{},}",
        );
        check(
            &json!({"matchLabels": {"b": "1", "a": "2"}, "matchExpressions": [{"key": "k", "operator": "In", "values": ["x", "y"]}]}),
            "&LabelSelector{MatchLabels:map[string]string{a: 2,b: 1,},MatchExpressions:[]LabelSelectorRequirement{LabelSelectorRequirement{Key:k,Operator:In,Values:[x y],},},}",
        );
    }
}
