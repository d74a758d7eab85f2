//! Job.

use generic_server::registry::strategy::{DefaultPropagation, FieldValue, SelectableField, WriteContext};
use machinery::names::dns1123_label;
use machinery::{FieldError, FieldPath, Map, meta};
use serde_json::{Value, json};

use super::indexes::indexes_in;
use crate::errors::{Errors, Ratchet};
use crate::groups::core::pod_spec::{self, drop_disabled_at};
use crate::groups::core::pod_template;
use crate::groups::core::pod_template::{default_template, parse, validate_template};
use crate::json::{Json, same};
use crate::rules::Rules;
use crate::unique::Seen;

pub(crate) static RULES: Rules = Rules {
    drop_disabled: |features, object, old| drop_disabled_at(features, "spec.template.spec", object, old),
    status: true,
    generation: &["spec"],
    propagation: DefaultPropagation::Orphan,
    delete_warning: Some(
        "child pods are preserved by default when jobs are deleted; set propagationPolicy=Background to remove them or set propagationPolicy=Orphan to suppress this warning",
    ),
    default: |object| {
        default_job_spec(object.ensure("spec"));
        let labels = object.dig("spec.template.metadata.labels").clone();
        if labels.is_object() && object.entries("metadata.labels").next().is_none() {
            object.ensure("metadata").put("labels", labels);
        }
        object.ensure("status");
    },
    prepare_create: |_: &WriteContext<'_>, object| generate_selector(object),
    validate,
    validate_update,
    validate_status: super::job_status::validate,
    warnings: |object, old| {
        let mut out = Vec::new();
        if old.is_null() {
            out.extend(pod_template::name_warning(object));
        }
        if pod_template::is_changed(object, old) {
            out.extend(spec_warnings("spec", object.dig("spec")));
        }
        out
    },
    fields: || {
        vec![SelectableField {
            name: "status.successful".into(),
            value: FieldValue::Compute(|job| job.int("status.succeeded").unwrap_or_default().to_string()),
        }]
    },
    unknown_field: Some(|_, field| {
        format!(
            "field label {} not supported for Job",
            machinery::go::quote(field)
        )
    }),
    ..Rules::PLAIN
};

/// Warnings for the specification of a job at `path`.
pub(super) fn spec_warnings(path: &str, spec: &Value) -> Vec<String> {
    let mut out = Vec::new();
    let (completions, parallelism) = (spec.int("completions"), spec.int("parallelism"));
    if spec.text("completionMode") == "Indexed"
        && completions.is_some_and(|n| n > 100_000)
        && parallelism.is_some_and(|n| n > 10_000)
    {
        out.push(format!(
            "{path}: In Indexed Jobs with a number of completions higher than 10^5 and a parallelism higher than 10^4, Kubernetes might not be able to track completedIndexes when a big number of indexes fail"
        ));
    }
    out.extend(pod_spec::warnings(
        &format!("{path}.template"),
        spec.dig("template"),
    ));
    out
}

/// Fills in the specification of a job; those of cron jobs are completed less.
fn default_job_spec(spec: &mut Value) {
    if !spec.has("completions") && !spec.has("parallelism") {
        spec.put("completions", 1);
    }
    spec.fill("parallelism", 1);
    let limit = if spec.has("backoffLimitPerIndex") {
        i64::from(i32::MAX)
    } else {
        6
    };
    spec.fill("backoffLimit", limit);
    spec.fill("completionMode", "NonIndexed");
    spec.fill("suspend", false);
    let replacement = if spec.has("podFailurePolicy") {
        "Failed"
    } else {
        "TerminatingOrFailed"
    };
    spec.fill("podReplacementPolicy", replacement);
    spec.fill("manualSelector", false);
    default_template_of(spec);
}

/// The defaults of a job's template and failure policy, in jobs and cron jobs alike.
pub(super) fn default_template_of(spec: &mut Value) {
    for rule in spec.list_mut("podFailurePolicy.rules") {
        for pattern in rule.list_mut("onPodConditions") {
            pattern.fill_text("status", "True");
        }
    }
    default_template(spec.ensure("template"));
}

/// Makes a job's pods its own: labels with its uid, and a selector for it.
fn generate_selector(job: &mut Value) {
    if job.flag("spec.manualSelector") {
        return;
    }
    let (uid, name) = (meta::uid(job).to_string(), meta::name(job).to_string());
    // Labels that the job was given for want of its own are the template's, and stay so.
    let shared = same(
        job.dig("metadata.labels"),
        job.dig("spec.template.metadata.labels"),
    );
    let spec = job.ensure("spec");
    let labels = spec.ensure("template").ensure("metadata").ensure("labels");
    for key in ["job-name", "batch.kubernetes.io/job-name"] {
        labels.fill(key, name.as_str());
    }
    for key in ["controller-uid", "batch.kubernetes.io/controller-uid"] {
        labels.fill(key, uid.as_str());
    }
    let labels = labels.clone();
    let selector = spec.ensure("selector").ensure("matchLabels");
    selector.fill("batch.kubernetes.io/controller-uid", uid);
    if shared {
        job.ensure("metadata").put("labels", labels);
    }
}

fn validate(errors: &mut Errors, job: &Value) {
    generated_selector(errors, job, true);
    validate_spec(errors, &FieldPath::new("spec"), job.dig("spec"), true);
    let completions = job.int("spec.completions").unwrap_or_default();
    if job.text("spec.completionMode") == "Indexed" && completions > 0 {
        let host = format!("{}-{}", meta::name(job), completions - 1);
        if !dns1123_label(&host).is_empty() {
            errors.invalid(
                &FieldPath::new("metadata.name"),
                meta::name(job),
                format!("will not able to create pod with invalid DNS label: {host}"),
            );
        }
    }
}

/// `prefixed`: jobs had the labels with a prefix already when this one was made.
fn generated_selector(errors: &mut Errors, job: &Value, prefixed: bool) {
    let selector = job.dig("spec.selector");
    if job.flag("spec.manualSelector") || selector.is_null() {
        return;
    }
    let (uid, name) = (meta::uid(job), meta::name(job));
    let mut expected = Map::new();
    let path = FieldPath::new("spec.template.metadata");
    for (key, value) in [
        ("controller-uid", uid),
        ("job-name", name),
        ("batch.kubernetes.io/controller-uid", uid),
        ("batch.kubernetes.io/job-name", name),
    ] {
        if key.contains('/') && !prefixed {
            continue;
        }
        expected.insert(key.into(), value.into());
        let labels = job.dig("spec.template.metadata.labels");
        let at = path.child("labels");
        match labels.get(key).and_then(Value::as_str) {
            None => errors.required(&at.key(key), &format!("must be '{value}'")),
            Some(actual) if actual != value => {
                errors.invalid_value(&at.key(key), labels, format!("must be '{value}'"));
            }
            Some(_) => {}
        }
    }
    if parse(selector).is_ok_and(|s| !s.matches(&expected)) {
        errors.invalid_value(
            &FieldPath::new("spec.selector"),
            selector,
            "`selector` not auto-generated",
        );
    }
}

/// Checks the specification of a job; `own`: of a job, not of a cron job's template.
pub(super) fn validate_spec(errors: &mut Errors, path: &FieldPath<'_>, spec: &Value, own: bool) {
    for key in [
        "parallelism",
        "completions",
        "activeDeadlineSeconds",
        "backoffLimit",
        "ttlSecondsAfterFinished",
        "backoffLimitPerIndex",
        "maxFailedIndexes",
    ] {
        errors.non_negative(&path.child(key), spec.int(key));
    }
    if spec.has("maxFailedIndexes") && !spec.has("backoffLimitPerIndex") {
        errors.required(
            &path.child("backoffLimitPerIndex"),
            "when maxFailedIndexes is specified",
        );
    }
    if let Some(manager) = spec.dig("managedBy").as_str() {
        let at = path.child("managedBy");
        match manager.split_once('/') {
            Some((domain, rest)) if !rest.is_empty() => {
                errors.text(&at, domain, machinery::names::dns1123_subdomain(domain));
            }
            _ if manager.is_empty() => errors.required(&at, ""),
            _ => errors.invalid(
                &at,
                manager,
                "must be a domain-prefixed path (such as \"acme.io/foo\")",
            ),
        }
        if manager.len() > 63 {
            errors.too_long(&at, 63);
        }
    }
    indexed(errors, path, spec);
    failure_policy(errors, &path.child("podFailurePolicy"), spec);
    success_policy(errors, &path.child("successPolicy"), spec);
    let at = path.child("podReplacementPolicy");
    if spec.has("podReplacementPolicy") {
        let allowed: &[&str] = match spec.has("podFailurePolicy") {
            true => &["Failed"],
            false => &["Failed", "TerminatingOrFailed"],
        };
        errors.one_of(&at, spec.text("podReplacementPolicy"), allowed);
    }
    let template = path.child("template");
    validate_template(errors, &template, spec.dig("template"));
    let at = template.child("spec");
    let at = at.child("restartPolicy");
    match spec.text("template.spec.restartPolicy") {
        "Always" | "" => errors.required(&at, "valid values: \"OnFailure\", \"Never\""),
        "OnFailure" if spec.has("podFailurePolicy") => errors.invalid(
            &at,
            "OnFailure",
            "only \"Never\" is supported when podFailurePolicy is specified",
        ),
        "OnFailure" | "Never" => {}
        other => errors.unsupported(&at, other, &["OnFailure", "Never"]),
    }
    if !own {
        return;
    }
    let at = path.child("selector");
    let selector = spec.dig("selector");
    if selector.is_null() {
        errors.required(&at, "");
    } else {
        errors.selector(&at, selector, Some(Ratchet::SelectorValues));
    }
    if let Ok(selector) = parse(selector) {
        pod_template::selected(errors, &template, spec.dig("template"), &selector, false);
    }
}

fn indexed(errors: &mut Errors, path: &FieldPath<'_>, spec: &Value) {
    let mode = spec.text("completionMode");
    let (completions, parallelism) = (spec.int("completions"), spec.int("parallelism"));
    let failed = spec.int("maxFailedIndexes");
    if spec.has("completionMode") {
        errors.one_of(&path.child("completionMode"), mode, &["NonIndexed", "Indexed"]);
    }
    if mode == "Indexed" {
        if completions.is_none() {
            errors.required(&path.child("completions"), "when completion mode is Indexed");
        }
        if let Some(n) = parallelism.filter(|n| *n > 100_000) {
            errors.invalid(
                &path.child("parallelism"),
                n,
                "must be less than or equal to 100000 when completion mode is Indexed",
            );
        }
        let at = path.child("maxFailedIndexes");
        if let (Some(completions), Some(failed)) = (completions, failed)
            && failed > completions
        {
            errors.invalid(&at, failed, "must be less than or equal to completions");
        }
        if let Some(n) = failed.filter(|n| *n > 100_000) {
            errors.invalid(&at, n, "must be less than or equal to 100000");
        }
        if completions.is_some_and(|n| n > 100_000) && spec.has("backoffLimitPerIndex") {
            let text = "must be less than or equal to 10000 when completions are above 100000 and used with backoff limit per index";
            if failed.is_none() {
                errors.required(&at, "must be specified when completions is above 100000");
            }
            if let Some(n) = parallelism.filter(|n| *n > 10_000) {
                errors.invalid(&path.child("parallelism"), n, text);
            }
            if let Some(n) = failed.filter(|n| *n > 10_000) {
                errors.invalid(&at, n, text);
            }
        }
    } else if matches!(mode, "" | "NonIndexed") {
        for key in ["backoffLimitPerIndex", "maxFailedIndexes"] {
            if let Some(n) = spec.int(key) {
                errors.invalid(&path.child(key), n, "requires indexed completion mode");
            }
        }
    }
}

fn failure_policy(errors: &mut Errors, path: &FieldPath<'_>, spec: &Value) {
    let policy = spec.dig("podFailurePolicy");
    if policy.is_null() {
        return;
    }
    let rules = path.child("rules");
    let list = policy.list("rules");
    if list.len() > 20 {
        errors.push(FieldError::too_many(&rules, list.len(), 20));
    }
    let mut containers = Seen::default();
    for list in ["containers", "initContainers"] {
        containers.extend(
            spec.dig("template.spec")
                .list(list)
                .iter()
                .map(|c| c.text("name")),
        );
    }
    let actions = ["Count", "FailIndex", "FailJob", "Ignore"];
    for (index, rule) in list.iter().enumerate() {
        let at = rules.index(index);
        let action = rule.text("action");
        match action {
            "" => errors.required(
                &at.child("action"),
                "valid values: [\"Count\" \"FailIndex\" \"FailJob\" \"Ignore\"]",
            ),
            "FailIndex" if !spec.has("backoffLimitPerIndex") => errors.invalid(
                &at.child("action"),
                action,
                "requires the backoffLimitPerIndex to be set",
            ),
            _ => {
                errors.one_of(&at.child("action"), action, &actions);
            }
        }
        let codes = rule.dig("onExitCodes");
        let conditions = rule.list("onPodConditions");
        if !codes.is_null() {
            exit_codes(errors, &at.child("onExitCodes"), codes, &containers);
        }
        let patterns = at.child("onPodConditions");
        if conditions.len() > 20 {
            errors.push(FieldError::too_many(&patterns, conditions.len(), 20));
        }
        for (index, pattern) in conditions.iter().enumerate() {
            let at = patterns.index(index);
            let kind = pattern.text("type");
            errors.text(&at.child("type"), kind, machinery::names::qualified_name(kind));
            errors.one_of(
                &at.child("status"),
                pattern.text("status"),
                &["False", "True", "Unknown"],
            );
        }
        let mut both = FieldError::invalid(&at, &Value::Null, "");
        both.value = None;
        if !codes.is_null() && !conditions.is_empty() {
            both.detail = "specifying both OnExitCodes and OnPodConditions is not supported".into();
            errors.push(both);
        } else if codes.is_null() && conditions.is_empty() {
            both.detail = "specifying one of OnExitCodes and OnPodConditions is required".into();
            errors.push(both);
        }
    }
}

fn exit_codes(errors: &mut Errors, path: &FieldPath<'_>, codes: &Value, containers: &Seen<&str>) {
    let operator = codes.text("operator");
    if operator.is_empty() {
        errors.required(&path.child("operator"), "valid values: [\"In\" \"NotIn\"]");
    } else {
        errors.one_of(&path.child("operator"), operator, &["In", "NotIn"]);
    }
    if let Some(name) = codes.dig("containerName").as_str()
        && !containers.has(name)
    {
        errors.invalid(
            &path.child("containerName"),
            name,
            "must be one of the container or initContainer names in the pod template",
        );
    }
    let at = path.child("values");
    let values: Vec<i64> = codes.list("values").iter().filter_map(Value::as_i64).collect();
    if values.is_empty() {
        errors.invalid(&at, json!([]), "at least one value is required");
    } else if values.len() > 255 {
        errors.push(FieldError::too_many(&at, values.len(), 255));
    }
    let mut seen = Seen::default();
    for (index, value) in values.iter().enumerate() {
        if operator == "In" && *value == 0 {
            errors.invalid(&at.index(index), *value, "must not be 0 for the In operator");
        }
        if seen.again(*value) {
            errors.duplicate(&at.index(index), *value);
        }
    }
    if !values.is_sorted() {
        errors.invalid_value(&at, codes.dig("values"), "must be ordered");
    }
}

fn success_policy(errors: &mut Errors, path: &FieldPath<'_>, spec: &Value) {
    let policy = spec.dig("successPolicy");
    if policy.is_null() {
        return;
    }
    if spec.text("completionMode") != "Indexed" {
        return errors.invalid_value(path, policy, "requires indexed completion mode");
    }
    let rules = path.child("rules");
    let list = policy.list("rules");
    if list.is_empty() {
        errors.required(
            &rules,
            "at least one rules must be specified when the successPolicy is specified",
        );
    }
    if list.len() > 20 {
        errors.push(FieldError::too_many(&rules, list.len(), 20));
    }
    let completions = spec.int("completions").unwrap_or_default();
    for (index, rule) in list.iter().enumerate() {
        let at = rules.index(index);
        let indexes = rule.dig("succeededIndexes").as_str();
        let count = rule.int("succeededCount");
        if indexes.is_none() && count.is_none() {
            errors.required(
                &at,
                "at least one of succeededCount or succeededIndexes must be specified",
            );
        }
        let mut total = 0;
        if let Some(text) = indexes {
            match indexes_in(text, completions) {
                Ok(n) => total = n,
                Err(why) => errors.invalid(
                    &at.child("succeededIndexes"),
                    text,
                    format!("error parsing succeededIndexes: {why}"),
                ),
            }
        }
        if let Some(count) = count {
            let at = at.child("succeededCount");
            errors.non_negative(&at, Some(count));
            if count > completions {
                errors.invalid(
                    &at,
                    count,
                    format!(
                        "must be less than or equal to {completions} (the number of specified completions)"
                    ),
                );
            }
            if indexes.is_some() && count > total {
                errors.invalid(
                    &at,
                    count,
                    format!("must be less than or equal to {total} (the number of indexes in the specified succeededIndexes field)"),
                );
            }
        }
    }
}

fn validate_update(errors: &mut Errors, job: &Value, old: &Value) {
    let labels = old.dig("spec.template.metadata.labels");
    let prefixed = ["controller-uid", "job-name"].map(|key| format!("batch.kubernetes.io/{key}"));
    let had_prefixed = prefixed.iter().all(|key| labels.get(key).is_some());
    generated_selector(errors, job, had_prefixed);
    let path = FieldPath::new("spec");
    let (spec, before) = (job.dig("spec"), old.dig("spec"));
    errors.twice(|errors| validate_spec(errors, &path, spec, true));
    if spec.text("completionMode") != "Indexed" {
        errors.immutable(&path, "completions", spec, before);
    } else if let Some(completions) = spec.int("completions")
        && before.int("completions") != Some(completions)
        && spec.int("parallelism") != Some(completions)
    {
        let text = "can only be modified in tandem with spec.parallelism";
        errors.invalid(&path.child("completions"), completions, text);
    }
    errors.immutable(&path, "selector", spec, before);
    template_update(errors, &path, job, old);
    for key in [
        "completionMode",
        "podFailurePolicy",
        "backoffLimitPerIndex",
        "managedBy",
        "successPolicy",
    ] {
        errors.immutable(&path, key, spec, before);
    }
}

/// A template may change where it says how to schedule, while a job that has not begun is suspended.
fn template_update(errors: &mut Errors, path: &FieldPath<'_>, job: &Value, old: &Value) {
    let (new, mut before) = (job.dig("spec.template"), old.dig("spec.template").clone());
    let suspended = old.flag("spec.suspend");
    if suspended && !old.has("status.startTime") {
        let spec = before.ensure("spec");
        for key in ["nodeSelector", "tolerations", "schedulingGates"] {
            spec.copy_key(key, new.dig("spec"));
        }
        match new.dig("spec.affinity.nodeAffinity").clone() {
            Value::Null => {
                if let Some(affinity) = spec.dig_mut("affinity") {
                    affinity.take_key("nodeAffinity");
                }
            }
            affinity => spec.ensure("affinity").put("nodeAffinity", affinity),
        }
        let metadata = before.ensure("metadata");
        for key in ["annotations", "labels"] {
            metadata.copy_key(key, new.dig("metadata"));
        }
    }
    if !suspended {
        if !same(new, &before) {
            errors.invalid_value(&path.child("template"), new, crate::errors::IMMUTABLE);
        }
        return;
    }
    for list in ["containers", "initContainers"] {
        let from = new.dig("spec").list(list).to_vec();
        if let Some(spec) = before.dig_mut("spec") {
            for (container, from) in spec.list_mut(list).iter_mut().zip(&from) {
                if container.text("name") == from.text("name") {
                    container.copy_key("resources", from);
                }
            }
        }
    }
    if !same(new.dig("spec"), before.dig("spec")) {
        errors.invalid_value(
            &path.child("template.spec"),
            new.dig("spec"),
            crate::errors::IMMUTABLE,
        );
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::groups::check::{kind, with_spec};

    fn with(spec: Value) -> Value {
        let template =
            json!({"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}});
        let base = json!({"spec": {"template": template}});
        with_spec(base, &spec)
    }

    #[track_caller]
    fn check(spec: Value, expected: &[&str]) {
        kind("jobs.batch").create(&with(spec), expected);
    }

    #[test]
    fn jobs_are_validated() {
        check(json!({}), &[]);
        check(
            json!({"parallelism": -1, "completions": -1, "backoffLimit": -1, "ttlSecondsAfterFinished": -1, "activeDeadlineSeconds": -1}),
            &[
                "spec.parallelism: Invalid value: -1: must be greater than or equal to 0",
                "spec.completions: Invalid value: -1: must be greater than or equal to 0",
                "spec.activeDeadlineSeconds: Invalid value: -1: must be greater than or equal to 0",
                "spec.backoffLimit: Invalid value: -1: must be greater than or equal to 0",
                "spec.ttlSecondsAfterFinished: Invalid value: -1: must be greater than or equal to 0",
            ],
        );
        check(
            json!({"managedBy": "mine"}),
            &[
                r#"spec.managedBy: Invalid value: "mine": must be a domain-prefixed path (such as "acme.io/foo")"#,
            ],
        );
        check(
            json!({"completionMode": "Indexed", "parallelism": 1}),
            &["spec.completions: Required value: when completion mode is Indexed"],
        );
        check(
            json!({"backoffLimitPerIndex": 1}),
            &["spec.backoffLimitPerIndex: Invalid value: 1: requires indexed completion mode"],
        );
        check(
            json!({"template": {"spec": {"restartPolicy": "Always", "containers": [{"name": "c", "image": "i"}]}}}),
            &[r#"spec.template.spec.restartPolicy: Required value: valid values: "OnFailure", "Never""#],
        );
    }

    #[test]
    fn a_job_selects_its_own_pods() {
        let jobs = kind("jobs.batch");
        let made = jobs.created(&with(json!({})));
        let (uid, labels) = (
            &made["metadata"]["uid"],
            &made["spec"]["template"]["metadata"]["labels"],
        );
        assert_eq!(
            made["spec"]["selector"]["matchLabels"],
            json!({"batch.kubernetes.io/controller-uid": uid})
        );
        assert_eq!(
            (&labels["job-name"], &labels["controller-uid"]),
            (&json!("one"), uid)
        );
        jobs.defaults(
            &with(json!({})),
            &json!({"spec": {"completions": 1, "parallelism": 1, "backoffLimit": 6, "completionMode": "NonIndexed", "suspend": false,
                "podReplacementPolicy": "TerminatingOrFailed"}}),
        );
    }

    #[test]
    fn job_completions_are_immutable() {
        let jobs = kind("jobs.batch");
        jobs.update(
            &with(json!({})),
            &json!({"spec": {"parallelism": 3, "backoffLimit": 1}}),
            &[],
        );
        jobs.update(
            &with(json!({})),
            &json!({"spec": {"completions": 2}}),
            &["spec.completions: Invalid value: 2: field is immutable"],
        );
        // Indexed jobs grow and shrink with their parallelism.
        let indexed = with(json!({"completionMode": "Indexed", "completions": 3, "parallelism": 2}));
        jobs.update(&indexed, &json!({"spec": {"completions": 2}}), &[]);
        jobs.update(
            &indexed,
            &json!({"spec": {"completions": 4}}),
            &["spec.completions: Invalid value: 4: can only be modified in tandem with spec.parallelism"],
        );
    }
}
