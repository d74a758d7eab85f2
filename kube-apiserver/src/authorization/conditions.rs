//! `matchConditions` of an authorization webhook: CEL over the request's SubjectAccessReviewSpec decides whether the webhook is asked.
//!
//! Mirrors upstream's `apiserver/pkg/authorization/cel`.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use kube_cel::{Bindings, DeclType, Env, FieldDecl, ListType, Program, Val};
use machinery::{FieldError, FieldPath, go, limits};
use serde_json::{Map, Value, json};

const USER: [&str; 2] = ["user", "uid"];
const RESOURCE: [&str; 7] = [
    "namespace",
    "verb",
    "group",
    "version",
    "resource",
    "subresource",
    "name",
];
const NON_RESOURCE: [&str; 2] = ["path", "verb"];

static REQUEST: LazyLock<DeclType> = LazyLock::new(|| {
    let text = || DeclType::string();
    let texts = || DeclType::list(text(), None, ListType::Atomic);
    let object = |name: &str, strings: &[&str], others: Vec<(&str, DeclType)>| {
        let strings = strings.iter().map(|name| (*name, text()));
        let fields = strings.chain(others);
        let fields = fields.map(|(name, decl)| FieldDecl::new(name, decl).required(false, false));
        DeclType::object(&format!("kubernetes.{name}"), fields)
    };
    let requirement = object(
        "SelectorRequirement",
        &["key", "operator"],
        vec![("values", texts())],
    );
    let selector = |name: &str| {
        let requirements = DeclType::list(requirement.clone(), None, ListType::Atomic);
        object(name, &["rawSelector"], vec![("requirements", requirements)])
    };
    let resource = object(
        "ResourceAttributes",
        &RESOURCE,
        vec![
            ("fieldSelector", selector("FieldSelectorAttributes")),
            ("labelSelector", selector("LabelSelectorAttributes")),
        ],
    );
    object(
        "SubjectAccessReviewSpec",
        &USER,
        vec![
            ("resourceAttributes", resource),
            (
                "nonResourceAttributes",
                object("NonResourceAttributes", &NON_RESOURCE, Vec::new()),
            ),
            ("groups", texts()),
            ("extra", DeclType::map(texts(), None)),
        ],
    )
});

static ENV: LazyLock<Env> = LazyLock::new(|| {
    Env::builder()
        .typed("request", REQUEST.cel_type().clone())
        .build()
});

/// The compiled conditions of one webhook.
#[derive(Debug, Default)]
pub(super) struct Conditions(Vec<Condition>);

#[derive(Debug)]
struct Condition {
    source: String,
    program: Program,
}

impl Conditions {
    /// Compiles expressions. `path`: of the list.
    ///
    /// # Errors
    /// Too many, empty or repeated expressions, and those that do not compile to a bool.
    pub(super) fn compile(sources: &[String], path: &FieldPath<'_>) -> Result<Self, Vec<FieldError>> {
        if sources.len() > limits::MATCH_CONDITIONS {
            let many = FieldError::too_many(path, sources.len(), limits::MATCH_CONDITIONS);
            return Err(vec![many]);
        }
        let (mut compiled, mut errors) = (Vec::new(), Vec::new());
        let mut seen = BTreeSet::new();
        for (index, source) in sources.iter().enumerate() {
            let path = path.index(index);
            let path = path.child("expression");
            if source.trim().is_empty() {
                errors.push(FieldError::required(&path, ""));
            } else if !seen.insert(source) {
                errors.push(FieldError::duplicate(&path, &source.as_str().into()));
            } else {
                match program(source) {
                    Ok(program) => compiled.push(Condition {
                        source: source.clone(),
                        program,
                    }),
                    Err(why) => errors.push(FieldError::invalid_str(&path, source, why)),
                }
            }
        }
        match errors.is_empty() {
            true => Ok(Conditions(compiled)),
            false => Err(errors),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether all conditions hold for a request, by the `spec` of its review.
    ///
    /// # Errors
    /// Some cannot be evaluated, and none says no.
    pub(super) fn match_request(&self, spec: Value) -> Result<bool, String> {
        // Of all of them: upstream bounds each expression alone.
        let mut budget = kube_cel::MATCH_CONDITIONS_BUDGET;
        let request = whole(spec);
        let request = Val::json(&request, &REQUEST).map_err(|error| error.to_string())?;
        let bindings = Bindings::new().with("request", request);
        let mut errors = Vec::new();
        for condition in &self.0 {
            let result = condition.program.eval(&bindings, &mut budget);
            match result.as_ref().map(Val::as_bool) {
                Ok(Some(false)) => return Ok(false),
                Ok(Some(true)) => {}
                Ok(None) => errors.push(format!(
                    "cel evaluation error: expression '{}' eval result type should be bool",
                    condition.source
                )),
                Err(error) => errors.push(format!(
                    "cel evaluation error: expression '{}' resulted in error: {error}",
                    condition.source
                )),
            }
        }
        match errors.is_empty() {
            true => Ok(true),
            false => Err(go::aggregate(&errors).into_owned()),
        }
    }
}

fn program(source: &str) -> Result<Program, String> {
    let program = ENV
        .compile(source)
        .map_err(|errors| errors.detail().to_string())?;
    let output = program.output_type();
    match output.name() {
        "bool" => Ok(program),
        other => Err(format!("must evaluate to bool but got {other}")),
    }
}

/// With every text there, as expressions expect it: a review leaves empty ones out.
fn whole(mut spec: Value) -> Value {
    let fill = |object: &mut Map<String, Value>, names: &[&str]| {
        for name in names {
            object.entry(*name).or_insert_with(|| "".into());
        }
    };
    if let Some(object) = spec.as_object_mut() {
        fill(object, &USER);
        object.entry("groups").or_insert_with(|| json!([]));
        object.entry("extra").or_insert_with(|| json!({}));
    }
    for (key, names) in [
        ("resourceAttributes", &RESOURCE[..]),
        ("nonResourceAttributes", &NON_RESOURCE),
    ] {
        if let Some(object) = spec.get_mut(key).and_then(Value::as_object_mut) {
            fill(object, names);
        }
    }
    spec
}

#[cfg(test)]
mod tests {
    use super::*;

    fn compile(sources: &[&str]) -> Result<Conditions, Vec<String>> {
        let sources: Vec<String> = sources.iter().map(|source| (*source).to_string()).collect();
        let path = FieldPath::new("matchConditions");
        Conditions::compile(&sources, &path)
            .map_err(|errors| errors.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn conditions_decide_about_requests() {
        #[track_caller]
        fn check(sources: &[&str], expected: Result<bool, &str>) {
            let spec = json!({
                "user": "u", "groups": ["g"],
                "resourceAttributes": {
                    "verb": "list", "resource": "pods", "version": "v1", "namespace": "kube-system",
                    "fieldSelector": {"requirements": [{"key": "spec.nodeName", "operator": "In", "values": ["n"]}]},
                },
            });
            let found = compile(sources).expect("it compiles").match_request(spec);
            assert_eq!(found, expected.map_err(str::to_string), "{sources:?}");
        }
        check(&[], Ok(true));
        check(&["has(request.resourceAttributes)"], Ok(true));
        check(&["has(request.nonResourceAttributes)"], Ok(false));
        check(
            &[
                "request.resourceAttributes.namespace == 'kube-system'",
                "request.user == 'x'",
            ],
            Ok(false),
        );
        check(
            &["request.resourceAttributes.group == '' && request.uid == '' && 'g' in request.groups"],
            Ok(true),
        );
        check(
            &[
                "request.resourceAttributes.fieldSelector.requirements.exists(r, r.key == 'spec.nodeName' && r.values == ['n'])",
            ],
            Ok(true),
        );
        check(&["!has(request.resourceAttributes.labelSelector)"], Ok(true));
        check(&["!('k' in request.extra)"], Ok(true));
        let failing = "request.nonResourceAttributes.path == '/'";
        let text = format!(
            "cel evaluation error: expression '{failing}' resulted in error: no such key: nonResourceAttributes"
        );
        check(&[failing], Err(&text));
        // A condition that does not hold decides before one that fails.
        check(&[failing, "false"], Ok(false));
    }

    #[test]
    fn faults_are_named() {
        #[track_caller]
        fn check(sources: &[&str], expected: &[&str]) {
            let found = compile(sources).expect_err("it is refused");
            let found: Vec<&str> = found
                .iter()
                .map(|text| text.lines().next().unwrap_or_default())
                .collect();
            assert_eq!(found, expected, "{sources:?}");
        }
        check(
            &["", "true", "true", "request.user"],
            &[
                "matchConditions[0].expression: Required value",
                r#"matchConditions[2].expression: Duplicate value: "true""#,
                r#"matchConditions[3].expression: Invalid value: "request.user": must evaluate to bool but got string"#,
            ],
        );
        check(
            &["request.nobody == ''"],
            &[
                r#"matchConditions[0].expression: Invalid value: "request.nobody == ''": compilation failed: ERROR: <input>:1:8: undefined field 'nobody'"#,
            ],
        );
        let many: Vec<String> = (0..=limits::MATCH_CONDITIONS)
            .map(|index| format!("{index} == {index}"))
            .collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        check(
            &many,
            &["matchConditions: Too many: 65: must have at most 64 items"],
        );
        assert!(compile(&many[..limits::MATCH_CONDITIONS]).is_ok());
    }
}
