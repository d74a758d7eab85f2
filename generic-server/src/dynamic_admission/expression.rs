//! CEL over admission requests: the variables that upstream declares, match conditions, and a budget shared by expressions.
//!
//! `object` and `oldObject` are untyped, as upstream has them; `request` and `namespaceObject` are typed. Mirrors
//! `apiserver/pkg/admission/plugin/cel`.

use std::sync::LazyLock;

use kube_cel::{Bindings, DeclType, Env, EnvBuilder, FieldDecl, Library, ListType, Program, Type, Val};
use machinery::go;
use machinery::{FieldError, FieldPath};
use serde_json::{Value, json};

use super::checks::RequestAuthorizer;
use super::matching;
use crate::admission::Attributes;
use crate::cpu;

/// No expression is looked at any more: the budget is spent.
pub(super) const OUT_OF_BUDGET: &str =
    "validation failed due to running out of cost budget, no further validation rules will be run";

fn object(name: &str, fields: &[(&str, &DeclType, bool)]) -> DeclType {
    let fields = fields
        .iter()
        .map(|(name, decl, required)| FieldDecl::new(name, (*decl).clone()).required(*required, false));
    DeclType::object(name, fields)
}

static REQUEST: LazyLock<DeclType> = LazyLock::new(|| {
    let text = &DeclType::string();
    let texts = &DeclType::list(text.clone(), None, ListType::Atomic);
    let triple = |name: &str, last: &str| {
        object(
            name,
            &[("group", text, true), ("version", text, true), (last, text, true)],
        )
    };
    let kind = &triple("kubernetes.GroupVersionKind", "kind");
    let resource = &triple("kubernetes.GroupVersionResource", "resource");
    let extra = &DeclType::map(texts.clone(), None);
    let user = &object(
        "kubernetes.UserInfo",
        &[
            ("username", text, false),
            ("uid", text, false),
            ("groups", texts, false),
            ("extra", extra, false),
        ],
    );
    object(
        "kubernetes.AdmissionRequest",
        &[
            ("kind", kind, true),
            ("resource", resource, true),
            ("subResource", text, false),
            ("requestKind", kind, true),
            ("requestResource", resource, true),
            ("requestSubResource", text, false),
            ("name", text, true),
            ("namespace", text, false),
            ("operation", text, true),
            ("userInfo", user, true),
            ("dryRun", &DeclType::bool(), false),
            ("options", &DeclType::dynamic(), false),
        ],
    )
});

static NAMESPACE: LazyLock<DeclType> = LazyLock::new(|| {
    let (text, number, time) = (&DeclType::string(), &DeclType::int(), &DeclType::date_time());
    let texts = &DeclType::list(text.clone(), None, ListType::Atomic);
    let pairs = &DeclType::map(text.clone(), None);
    let condition = object(
        "kubernetes.NamespaceCondition",
        &[
            ("status", text, true),
            ("type", text, true),
            ("lastTransitionTime", time, true),
            ("message", text, true),
            ("reason", text, true),
        ],
    );
    let conditions = &DeclType::list(condition, None, ListType::Atomic);
    let metadata = &object(
        "kubernetes.NamespaceMetadata",
        &[
            ("name", text, true),
            ("generateName", text, true),
            ("namespace", text, true),
            ("labels", pairs, true),
            ("annotations", pairs, true),
            ("UID", text, true),
            ("creationTimestamp", time, true),
            ("deletionGracePeriodSeconds", number, true),
            ("deletionTimestamp", time, true),
            ("generation", number, true),
            ("resourceVersion", text, true),
            ("finalizers", texts, true),
        ],
    );
    object(
        "kubernetes.Namespace",
        &[
            ("metadata", metadata, true),
            (
                "spec",
                &object("kubernetes.NamespaceSpec", &[("finalizers", texts, true)]),
                true,
            ),
            (
                "status",
                &object(
                    "kubernetes.NamespaceStatus",
                    &[("conditions", conditions, true), ("phase", text, true)],
                ),
                true,
            ),
        ],
    )
});

/// The variables that expressions of a place may use besides the request and its objects.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Scope {
    pub(super) params: bool,
    pub(super) authorizer: bool,
    /// `Object` and `JSONPatch`.
    pub(super) patches: bool,
}

impl Scope {
    /// The environment with objects, and parameters where there are any, of these types.
    pub(super) fn env_about(self, object: &Type, params: Option<&Type>) -> EnvBuilder {
        let mut env = Env::builder()
            .typed("object", object.clone())
            .typed("oldObject", object.clone())
            .typed("namespaceObject", NAMESPACE.cel_type().clone())
            .typed("request", REQUEST.cel_type().clone());
        if let Some(params) = params {
            env = env.typed("params", params.clone());
        }
        if self.authorizer {
            env = env.typed("authorizer", Type::AUTHORIZER);
        }
        env
    }

    /// The environment, to be extended. Objects are untyped in it.
    pub(super) fn env(self) -> EnvBuilder {
        let params = self.params.then_some(&Type::Dyn);
        let mut env = self.env_about(&Type::Dyn, params);
        if self.authorizer {
            env = env.typed("authorizer.requestResource", Type::RESOURCE_CHECK);
        }
        if self.patches {
            let text = &DeclType::string();
            let patch = object(
                "JSONPatch",
                &[
                    ("op", text, false),
                    ("path", text, false),
                    ("from", text, false),
                    ("value", &DeclType::dynamic(), false),
                ],
            );
            env = env
                .structure(&patch)
                .library(Library::JsonPatch)
                .library(Library::Objects);
        }
        env
    }
}

/// An expression as it was written, with its program or why there is none.
#[derive(Debug)]
pub(super) struct Expression {
    pub(super) source: String,
    pub(super) program: Result<Program, String>,
}

impl Expression {
    /// Compiles. `wanted` says which types of result will do, and how upstream names them.
    pub(super) fn compile(env: &Env, source: &str, wanted: &Wanted) -> Self {
        let program = env
            .compile(source)
            .map_err(|faults| faults.detail())
            .and_then(|program| wanted.check(program));
        Expression {
            source: source.to_string(),
            program,
        }
    }

    /// Evaluates out of a budget. The outer error ends all evaluation: the budget is spent.
    ///
    /// Where an authorizer has to be waited for, all checks that the evaluation came upon are asked at once, and it is done again: what
    /// it came upon first is then known.
    pub(super) async fn eval<'a>(
        &self,
        bindings: &Bindings<'a>,
        hosts: Hosts<'_>,
        budget: &mut u64,
    ) -> Result<Result<Val<'a>, String>, String> {
        let program = match &self.program {
            Ok(program) => program,
            Err(why) => return Ok(Err(format!("compilation error: {why}"))),
        };
        for _ in 0..MOST_ROUNDS {
            let (result, cost) = program.eval_counted(bindings);
            if hosts.authorizer.is_asked() {
                drop(result);
                if let Some(lazy) = hosts.lazy {
                    lazy.forget();
                }
                hosts.authorizer.wait().await;
                cpu::slice().await;
                continue;
            }
            let cost = cost.saturating_add(hosts.lazy.map_or(0, Metered::take));
            let Some(left) = budget.checked_sub(cost) else {
                break;
            };
            *budget = left;
            return Ok(
                result.map_err(|error| format!("expression '{}' resulted in error: {error}", self.source))
            );
        }
        *budget = 0;
        Err(OUT_OF_BUDGET.into())
    }
}

/// How often one expression is evaluated while answers are waited for. Each time there is an answer that the one before lacked, and
/// no budget pays for so many checks.
const MOST_ROUNDS: u64 = kube_cel::RUNTIME_BUDGET / kube_cel::AUTHZ_CHECK + 2;

/// What an evaluation calls upon.
#[derive(Debug, Clone, Copy)]
pub(super) struct Hosts<'h> {
    pub(super) lazy: Option<&'h dyn Metered>,
    pub(super) authorizer: &'h RequestAuthorizer<'h>,
}

/// Something that evaluates on demand and records its cost.
pub(super) trait Metered: std::fmt::Debug + Sync {
    /// The cost since the last call.
    fn take(&self) -> u64;

    /// Takes back the cost since the last call of `take`: the evaluation does not count.
    fn forget(&self);
}

/// The result types that an expression may have.
#[derive(Debug)]
pub(super) enum Wanted {
    Bool,
    Text,
    TextOrNull,
    Any,
    /// `Object`.
    Object,
    /// `list(JSONPatch)`.
    Patches,
}

impl Wanted {
    fn check(&self, program: Program) -> Result<Program, String> {
        let found = program.output_type();
        let fits = match self {
            Self::Bool => matches!(found, Type::Bool),
            Self::Text => matches!(found, Type::String),
            Self::TextOrNull => matches!(found, Type::String | Type::Null),
            Self::Any => true,
            Self::Object => found.name() == "Object",
            Self::Patches => matches!(found, Type::List(item) if item.name() == "JSONPatch"),
        };
        let wanted = match self {
            _ if fits => return Ok(program),
            Self::TextOrNull => {
                return Err(format!(
                    "must evaluate to one of [string null_type] but got {found}"
                ));
            }
            Self::Bool => "bool",
            Self::Text => "string",
            Self::Any => "any",
            Self::Object => "Object",
            Self::Patches => "list(JSONPatch)",
        };
        Err(format!("must evaluate to {wanted} but got {found}"))
    }
}

/// The input of expressions for one write.
#[derive(Debug, Clone, Copy)]
pub(super) struct Input<'a> {
    pub(super) object: Option<&'a Value>,
    pub(super) old: Option<&'a Value>,
    pub(super) request: &'a Value,
    pub(super) namespace: Option<&'a Value>,
    pub(super) params: Option<&'a Value>,
    pub(super) authorizer: &'a RequestAuthorizer<'a>,
}

impl<'a> Input<'a> {
    pub(super) fn bindings(&self) -> Bindings<'a> {
        let dynamic = |value: Option<&'a Value>| value.map_or(Val::Null, Val::dynamic);
        let typed = |value: &'a Value, decl: &'static DeclType| Val::json(value, decl).unwrap_or(Val::Null);
        Bindings::new()
            .with("object", dynamic(self.object))
            .with("oldObject", dynamic(self.old))
            .with("params", dynamic(self.params))
            .with("request", typed(self.request, &REQUEST))
            .with(
                "namespaceObject",
                self.namespace.map_or(Val::Null, |value| typed(value, &NAMESPACE)),
            )
            .with("authorizer", Val::authorizer(self.authorizer))
            .with(
                "authorizer.requestResource",
                Val::resource_check(self.authorizer, self.authorizer.request_resource()),
            )
    }
}

/// The `request` of expressions and, with what is added to it, of AdmissionReviews.
/// `requested`: the same write as it was requested, which may be in another version.
pub(super) fn request_value(attributes: &Attributes<'_>, requested: &Attributes<'_>) -> Value {
    let user = attributes.authorized.user();
    let kind = |attributes: &Attributes<'_>| {
        let gvk = attributes.gvk;
        json!({"group": &*gvk.group, "version": &*gvk.version, "kind": &*gvk.kind})
    };
    let resource = |attributes: &Attributes<'_>| {
        let gvr = attributes.gvr;
        json!({"group": &*gvr.group, "version": &*gvr.version, "resource": &*gvr.resource})
    };
    let mut info = json!({"username": user.name});
    if !user.uid.is_empty() {
        info["uid"] = user.uid.clone().into();
    }
    if !user.groups.is_empty() {
        info["groups"] = json!(user.groups);
    }
    if !user.extra.is_empty() {
        info["extra"] = json!(user.extra);
    }
    let mut request = json!({
        "kind": kind(attributes), "resource": resource(attributes),
        "requestKind": kind(requested), "requestResource": resource(requested),
        "operation": attributes.operation.as_str(), "userInfo": info, "dryRun": attributes.dry_run,
    });
    for (key, text) in [
        ("subResource", attributes.subresource),
        ("requestSubResource", attributes.subresource),
        ("name", attributes.name),
        ("namespace", matching::namespace_of(attributes)),
    ] {
        if !text.is_empty() {
            request[key] = text.into();
        }
    }
    if let Some(options) = attributes.options {
        request["options"] = options.clone();
    }
    request
}

/// `matchConditions`.
#[derive(Debug, Default)]
pub(super) struct Conditions(Vec<Expression>);

/// The outcome of match conditions for a write.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Matched {
    Yes,
    No,
    /// Some could not be evaluated, and none says no.
    Failed(String),
}

impl Matched {
    /// Whether they hold; `None` when that could not be said.
    pub(super) fn held(&self) -> Option<bool> {
        match self {
            Matched::Yes => Some(true),
            Matched::No => Some(false),
            Matched::Failed(_) => None,
        }
    }
}

impl Conditions {
    /// Compiles those of a webhook.
    pub(super) fn compile(value: &Value, env: &Env) -> Self {
        let mut conditions = Conditions::default();
        let list = value.get("matchConditions").and_then(Value::as_array);
        for condition in list.into_iter().flatten() {
            conditions.push(condition, env);
        }
        conditions
    }

    /// Compiles one more.
    pub(super) fn push(&mut self, condition: &Value, env: &Env) {
        let source = machinery::meta::dig_str(condition, &["expression"]);
        self.0.push(Expression::compile(env, source, &Wanted::Bool));
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Expression> {
        self.0.iter()
    }

    /// The errors of those that do not compile.
    pub(super) fn faults(&self, path: &FieldPath<'_>) -> Vec<FieldError> {
        let faults = self.0.iter().enumerate().filter_map(|(index, condition)| {
            let why = condition.program.as_ref().err()?;
            let path = path.index(index);
            let path = path.child("expression");
            Some(FieldError::invalid_str(&path, &condition.source, why.clone()))
        });
        faults.collect()
    }

    /// Evaluates all of them.
    pub(super) async fn matches(&self, bindings: &Bindings<'_>, hosts: Hosts<'_>) -> Matched {
        let mut budget = kube_cel::MATCH_CONDITIONS_BUDGET;
        let mut errors = Vec::new();
        for condition in &self.0 {
            match condition.eval(bindings, hosts, &mut budget).await {
                Err(spent) => return Matched::Failed(spent),
                Ok(Err(why)) => errors.push(why),
                Ok(Ok(value)) if value.as_bool() == Some(false) => return Matched::No,
                Ok(Ok(_)) => {}
            }
        }
        if errors.is_empty() {
            return Matched::Yes;
        }
        Matched::Failed(go::aggregate(&errors).into_owned())
    }
}
