//! MutatingAdmissionPolicy over one write.

use std::time::Instant;

use kube_cel::{List, Val};
use machinery::{ApiError, Cause, Reason};
use serde_json::{Map, Value};

use super::compile::Mutation;
use super::variables::Lazy;
use super::{
    AdmissionPlugin, Attributes, Binding, Body, Hosts, Input, Namespaces, Policies, Policy,
    RequestAuthorizer, Rules, View,
};
use super::{configuration, namespace_of, params, request_value, shown_name};
use crate::admission::ObjectKind;
use crate::dynamic_admission::expression::{Expression, Matched};

/// A policy that could not do its work. By its failure policy that refuses the write.
struct Fault<'p> {
    policy: &'p Policy,
    binding: Option<&'p Binding>,
    message: String,
    reason: Option<Reason>,
}

/// Why a mutation did not happen.
enum Stop {
    /// By failure policy.
    Fault(String),
    Status(ApiError),
}

impl From<String> for Stop {
    fn from(why: String) -> Self {
        Stop::Fault(why)
    }
}

impl Policies {
    /// Lets every active policy that is about this write change the object.
    pub(super) async fn mutate(
        &self,
        attributes: &Attributes<'_>,
        mut object: Option<&mut Value>,
    ) -> Result<(), ApiError> {
        let lists = self.lists(attributes, object.as_deref()).await?;
        // Expressions may be long computations, however small the object.
        crate::cpu::pause(crate::cpu::Lane::Bodies).await;
        let namespaces = Namespaces(self.directory.clone());
        let rounds = attributes.rounds;
        if let Some(rounds) = rounds {
            rounds.enter(self.name(), object.as_deref());
        }
        let authorizer = RequestAuthorizer::of(attributes, &self.authorizer);
        let mut faults: Vec<Fault<'_>> = Vec::new();
        let mut called = false;
        for one in lists.iter().flat_map(|list| list.iter()) {
            let policy = &*one.policy;
            let shown = object.as_deref();
            let misconfigured = |binding: Option<_>, why: &str| Fault {
                policy,
                binding,
                message: match binding {
                    None => format!("failed to configure policy: {why}"),
                    Some(_) => format!("failed to configure binding: {why}"),
                },
                reason: None,
            };
            let target = match policy.matcher.matches(attributes, shown, &namespaces).await {
                Ok(Some(target)) if policy.constrained => target,
                Ok(_) => continue,
                Err(error) => {
                    faults.push(misconfigured(None, error.message()));
                    continue;
                }
            };
            let unconverted =
                |error: ApiError| format!("failed to convert object version: {}", error.message());
            let view = match View::new(target, attributes).await {
                Ok(view) => view,
                Err(error) => {
                    faults.push(misconfigured(None, &unconverted(error)));
                    continue;
                }
            };
            for binding in one.bindings.iter() {
                let params = match binding.matches(attributes, object.as_deref(), &namespaces).await {
                    Ok(false) => continue,
                    Ok(true) => {
                        let reference = binding.params.as_ref();
                        params::collect(&self.directory, policy, reference, namespace_of(attributes)).await
                    }
                    Err(error) => Err(error.message().to_string()),
                };
                let params = match params {
                    Ok(params) => params,
                    Err(why) => {
                        faults.push(misconfigured(Some(&**binding), &why));
                        continue;
                    }
                };
                let namespace = self.namespace(attributes, &namespaces).await?;
                let rules = configuration(&policy.rules, attributes, object.as_deref()).await?;
                let Body::Mutations { mutations, reinvoked } = &rules.body else {
                    continue;
                };
                for (index, params) in params.iter().enumerate() {
                    let id = format!("{}/{}/{index}", policy.name, binding.name);
                    let mut fault = |message: String| {
                        faults.push(Fault {
                            policy,
                            binding: Some(binding),
                            message,
                            reason: Some(Reason::Invalid),
                        });
                    };
                    let invocation = Invocation {
                        policies: self,
                        rules: &rules,
                        view: &view,
                        namespace: namespace.as_ref(),
                        params: params.as_ref(),
                        authorizer: &authorizer,
                    };
                    let mut own = match view.converted(object.as_deref()).await {
                        Ok(own) => own,
                        Err(error) => {
                            fault(unconverted(error));
                            continue;
                        }
                    };
                    match invocation
                        .wanted(policy, own.as_ref().or(object.as_deref()))
                        .await
                    {
                        Matched::Yes => {}
                        Matched::No => continue,
                        Matched::Failed(why) => {
                            fault(why);
                            continue;
                        }
                    }
                    if rounds.is_some_and(|rounds| !rounds.calls(self.name(), &id)) {
                        continue;
                    }
                    called = true;
                    let begun = Instant::now();
                    let mut failed: Option<String> = None;
                    let mut changed = false;
                    for mutation in mutations {
                        let Some(object) = own.as_mut().or(object.as_deref_mut()) else {
                            break;
                        };
                        match invocation.apply(mutation, object).await {
                            Ok(new) => {
                                changed |= new != *object;
                                *object = new;
                            }
                            Err(Stop::Fault(why)) => {
                                failed.get_or_insert_with(|| why.clone());
                                fault(why);
                            }
                            Err(Stop::Status(error)) => return Err(error),
                        }
                    }
                    let took = begun.elapsed();
                    self.metrics
                        .mutation(&policy.name, &binding.name, failed.as_deref(), took);
                    if let (true, Some(own), Some(object)) = (changed, own, object.as_deref_mut()) {
                        *object = view.back(own).await?;
                    }
                    if let Some(rounds) = rounds {
                        if changed {
                            rounds.changed(self.name());
                        }
                        if *reinvoked {
                            rounds.invoked(self.name(), &id);
                        }
                    }
                }
            }
        }
        if called && let Some(rounds) = rounds {
            rounds.leave(self.name(), object.as_deref());
        }
        faults.retain(|fault| !fault.policy.ignore_failures);
        match faults.is_empty() {
            true => Ok(()),
            false => Err(refusal(&faults, attributes, object.as_deref())),
        }
    }
}

fn refusal(faults: &[Fault<'_>], attributes: &Attributes<'_>, object: Option<&Value>) -> ApiError {
    let texts = faults.iter().map(|fault| match fault.binding {
        Some(binding) => format!(
            "policy '{}' with binding '{}' denied request: {}",
            fault.policy.name, binding.name, fault.message
        ),
        None => format!(
            "policy \"{}\" denied request: {}",
            fault.policy.name, fault.message
        ),
    });
    let texts: Vec<String> = texts.collect();
    let resource = attributes.gvr.group_resource();
    let base = ApiError::forbidden(&resource, shown_name(attributes, object), "");
    let reason = faults.first().and_then(|fault| fault.reason);
    let mut error = ApiError::new(
        403,
        reason.unwrap_or(Reason::Forbidden),
        texts.first().cloned().unwrap_or_default(),
    );
    if let Some(details) = base.details() {
        error = error.with_details(details.clone());
    }
    for message in texts {
        error = error.with_cause(Cause {
            message,
            ..Cause::default()
        });
    }
    error
}

/// The input of one invocation of a policy besides the object.
struct Invocation<'s> {
    policies: &'s Policies,
    rules: &'s Rules,
    view: &'s View<'s>,
    namespace: Option<&'s Value>,
    params: Option<&'s Value>,
    authorizer: &'s RequestAuthorizer<'s>,
}

impl Invocation<'_> {
    fn input<'i>(&'i self, object: Option<&'i Value>, request: &'i Value) -> Input<'i> {
        Input {
            object,
            old: self.view.attributes().old,
            request,
            namespace: self.namespace,
            params: self.params,
            authorizer: self.authorizer,
        }
    }

    fn request(&self) -> Value {
        request_value(&self.view.attributes(), self.view.requested())
    }

    fn hosts<'i>(&'i self, lazy: &'i Lazy<'_>) -> Hosts<'i> {
        Hosts {
            lazy: Some(lazy),
            authorizer: self.authorizer,
        }
    }

    async fn wanted(&self, policy: &Policy, object: Option<&Value>) -> Matched {
        let request = self.request();
        let lazy = Lazy::new(&self.rules.variables, self.input(object, &request).bindings());
        let (bindings, hosts) = (lazy.bindings(), self.hosts(&lazy));
        let operation = self.view.requested().operation;
        self.policies
            .conditions_of(policy, self.rules, &bindings, hosts, operation)
            .await
    }

    /// The result of an expression, as JSON.
    async fn evaluate(
        &self,
        expression: &Expression,
        object: &Value,
        read: fn(&Val<'_>) -> Result<Value, String>,
    ) -> Result<Value, Stop> {
        let request = self.request();
        let lazy = Lazy::new(
            &self.rules.variables,
            self.input(Some(object), &request).bindings(),
        );
        let (bindings, hosts) = (lazy.bindings(), self.hosts(&lazy));
        let mut budget = kube_cel::RUNTIME_BUDGET;
        let value = expression.eval(&bindings, hosts, &mut budget).await??;
        Ok(read(&value)?)
    }

    /// The object as a mutation leaves it.
    async fn apply(&self, mutation: &Mutation, object: &Value) -> Result<Value, Stop> {
        let new = match mutation {
            Mutation::Apply(expression) => self.overlay(expression, object).await?,
            Mutation::Patch(expression) => self.patch(expression, object).await?,
        };
        self.view.attributes().reread(new).map_err(Stop::Status)
    }

    async fn overlay(&self, expression: &Expression, object: &Value) -> Result<Value, Stop> {
        let read: fn(&Val<'_>) -> _ = |value| {
            placed(value)?;
            value.to_json().map_err(|error| error.to_string())
        };
        let mut config = self.evaluate(expression, object, read).await?;
        for key in ["apiVersion", "kind"] {
            if let (Some(text), Some(fields)) = (object.get(key), config.as_object_mut()) {
                fields.insert(key.into(), text.clone());
            }
        }
        let attributes = self.view.attributes();
        let schema = attributes.resource.and_then(ObjectKind::schema);
        let Some(schema) = schema else {
            return Err(Stop::Status(ApiError::unavailable(format!(
                "Resource kind {} not found. There can be a delay between when CustomResourceDefinitions are created and when they are available.",
                attributes.gvk
            ))));
        };
        machinery::apply::overlay(object, &config, schema.root())
            .map_err(|why| Stop::Fault(format!("error applying patch: {why}")))
    }

    async fn patch(&self, expression: &Expression, object: &Value) -> Result<Value, Stop> {
        let patch = self.evaluate(expression, object, operations_of).await?;
        if patch.as_array().is_some_and(Vec::is_empty) {
            return Ok(object.clone());
        }
        match machinery::patch::json::apply_wanted(object, &patch) {
            Ok(new) => Ok(new),
            Err(failure) if failure.is_test => Ok(object.clone()),
            Err(failure) => Err(Stop::Fault(format!("JSON Patch: {}", failure.error))),
        }
    }
}

/// Whether what is built stands where its type says.
fn placed(value: &Val<'_>) -> Result<(), String> {
    let faults = value.misplaced_types();
    match faults.is_empty() {
        true => Ok(()),
        false => Err(format!("type mismatch: {}", faults.join("\n"))),
    }
}

fn operations_of(value: &Val<'_>) -> Result<Value, String> {
    match value {
        Val::List(list) => operations(list),
        _ => Err("type mismatch: JSONPatchType.expression should evaluate to array".to_string()),
    }
}

/// JSON patch operations as an expression built them.
fn operations(list: &List<'_>) -> Result<Value, String> {
    let mut out = Vec::with_capacity(list.len());
    for item in list.iter() {
        let item = item.map_err(|error| error.to_string())?;
        let Val::Map(fields) = &item else {
            return Err(
                "type mismatch: JSONPatchType.expression should evaluate to array of JSONPatch".into(),
            );
        };
        let mut operation = Map::new();
        for key in ["op", "path", "from", "value"] {
            let Some(value) = fields.field(key) else { continue };
            let value = value.map_err(|error| error.to_string())?;
            placed(&value)?;
            let value = value.to_json().map_err(|error| {
                format!(
                    "JSONPath valueExpression evaluated to a type that could not marshal to JSON: {error}"
                )
            })?;
            operation.insert(key.into(), value);
        }
        out.push(Value::Object(operation));
    }
    Ok(Value::Array(out))
}
