//! ValidatingAdmissionPolicy over one write.

use std::collections::{BTreeMap, HashSet};
use std::time::{Duration, Instant};

use kube_cel::Val;
use machinery::{ApiError, Cause, Reason};
use serde_json::{Value, json};

use super::variables::Lazy;
use super::{
    Action, Attributes, Binding, Body, Hosts, Input, Namespaces, Policies, Policy, RequestAuthorizer, Rules,
    View, namespace_of,
};
use super::{configuration, params, request_value, shown_name};
use crate::dynamic_admission::expression::{Expression, Matched};

/// The longest message an expression may give, in bytes.
const MOST_MESSAGE: usize = 5 * 1024;
/// The longest audit annotation, in bytes.
const MOST_ANNOTATION: usize = 10 * 1024;

/// A failed validation.
struct Decision {
    index: usize,
    message: String,
    reason: &'static str,
    took: Duration,
}

/// The first refusal decides the answer.
struct Denial<'p> {
    policy: &'p Policy,
    binding: Option<&'p Binding>,
    message: String,
    reason: &'static str,
}

const INVALID: &str = "Invalid";

fn known_reason(reason: &str) -> &'static str {
    match reason {
        "Forbidden" => "Forbidden",
        "Unauthorized" => "Unauthorized",
        "RequestEntityTooLarge" => "RequestEntityTooLarge",
        _ => INVALID,
    }
}

impl Denial<'_> {
    fn answer(&self, attributes: &Attributes<'_>, object: Option<&Value>) -> ApiError {
        let name = &self.policy.name;
        let bound = self.binding.map_or(String::new(), |binding| {
            format!(" with binding '{}'", binding.name)
        });
        let message = format!(
            "ValidatingAdmissionPolicy '{name}'{bound} denied request: {}",
            self.message
        );
        let forbidden = ApiError::forbidden(
            &attributes.gvr.group_resource(),
            shown_name(attributes, object),
            &message,
        );
        let (code, reason) = match self.reason {
            "Forbidden" => (403, Reason::Forbidden),
            "Unauthorized" => (401, Reason::Unauthorized),
            "RequestEntityTooLarge" => (413, Reason::RequestEntityTooLarge),
            _ => (422, Reason::Invalid),
        };
        let error = ApiError::new(code, reason, forbidden.message());
        let error = match forbidden.details() {
            Some(details) => error.with_details(details.clone()),
            None => error,
        };
        error.with_cause(Cause {
            message,
            ..Cause::default()
        })
    }
}

/// The input of one evaluation of a policy.
struct Invocation<'s> {
    view: &'s View<'s>,
    object: Option<&'s Value>,
    namespace: Option<&'s Value>,
    params: Option<&'s Value>,
    authorizer: &'s RequestAuthorizer<'s>,
}

/// The findings of one evaluation of a policy.
#[derive(Default)]
struct Findings {
    failed: Vec<Decision>,
    /// How long the validations took that hold.
    held: Vec<Duration>,
    annotations: Vec<(String, String)>,
    /// Annotations that could not be evaluated: a refusal regardless of the binding's actions.
    refusals: Vec<String>,
}

impl Findings {
    fn error(policy: &Policy, message: String, took: Duration) -> Self {
        let mut findings = Findings::default();
        if !policy.ignore_failures {
            findings.failed.push(Decision {
                index: 0,
                message,
                reason: "",
                took,
            });
        }
        findings
    }
}

impl Policies {
    /// Evaluates every active policy that is about this write.
    pub(super) async fn check(
        &self,
        attributes: &Attributes<'_>,
        object: Option<&Value>,
    ) -> Result<(), ApiError> {
        let lists = self.lists(attributes, object).await?;
        // Expressions may be long computations, however small the object.
        crate::cpu::pause(crate::cpu::Lane::Bodies).await;
        let namespaces = Namespaces(self.directory.clone());
        let context = attributes.authorized.context();
        let authorizer = RequestAuthorizer::of(attributes, &self.authorizer);
        let mut denials: Vec<Denial<'_>> = Vec::new();
        for one in lists.iter().flat_map(|list| list.iter()) {
            let policy = &*one.policy;
            let misconfigured = |binding, why: String| Denial {
                policy,
                binding,
                message: match binding {
                    None => format!("failed to configure policy: {why}"),
                    Some(_) => format!("failed to configure binding: {why}"),
                },
                reason: "",
            };
            let target = match policy.matcher.matches(attributes, object, &namespaces).await {
                Ok(Some(target)) if policy.constrained => target,
                Ok(_) => continue,
                Err(_) if policy.ignore_failures => continue,
                Err(error) => {
                    denials.push(misconfigured(None, error.message().to_string()));
                    continue;
                }
            };
            let seen = async {
                let view = View::new(target, attributes).await?;
                let own = view.converted(object).await?;
                Ok::<_, ApiError>((view, own))
            };
            let (view, own) = match seen.await {
                Ok(seen) => seen,
                Err(_) if policy.ignore_failures => continue,
                Err(error) => {
                    let why = format!("failed to convert object version: {}", error.message());
                    denials.push(misconfigured(None, why));
                    continue;
                }
            };
            let mut annotations: BTreeMap<String, Distinct> = BTreeMap::new();
            for binding in one.bindings.iter() {
                let params = match binding.matches(attributes, object, &namespaces).await {
                    Ok(false) => continue,
                    Ok(true) => {
                        let reference = binding.params.as_ref();
                        params::collect(&self.directory, policy, reference, namespace_of(attributes)).await
                    }
                    Err(error) => Err(error.message().to_string()),
                };
                let params = match params {
                    Ok(params) => params,
                    Err(_) if policy.ignore_failures => continue,
                    Err(why) => {
                        denials.push(misconfigured(Some(binding), why));
                        continue;
                    }
                };
                let namespace = self.namespace(attributes, &namespaces).await?;
                let rules = configuration(&policy.rules, attributes, object).await?;
                for params in &params {
                    let invocation = Invocation {
                        view: &view,
                        object: own.as_ref().or(object),
                        namespace: namespace.as_ref(),
                        params: params.as_ref(),
                        authorizer: &authorizer,
                    };
                    let findings = self.evaluate(policy, &rules, &invocation).await;
                    for took in findings.held {
                        self.metrics
                            .validation(&policy.name, &binding.name, None, "allow", took);
                    }
                    for decision in findings.failed {
                        self.act(policy, binding, &decision, attributes, &mut |message, reason| {
                            denials.push(Denial {
                                policy,
                                binding: Some(binding),
                                message,
                                reason,
                            });
                        });
                    }
                    for message in findings.refusals {
                        denials.push(Denial {
                            policy,
                            binding: Some(binding),
                            message,
                            reason: "",
                        });
                    }
                    for (key, value) in findings.annotations {
                        annotations.entry(key).or_default().add(value);
                    }
                }
            }
            for (key, values) in annotations {
                context.annotate(|| (format!("{}/{key}", policy.name), values.list.join(", ")));
            }
        }
        match denials.first() {
            Some(denial) => Err(denial.answer(attributes, object)),
            None => Ok(()),
        }
    }

    /// Does what a binding says about a failure.
    fn act(
        &self,
        policy: &Policy,
        binding: &Binding,
        decision: &Decision,
        attributes: &Attributes<'_>,
        deny: &mut dyn FnMut(String, &'static str),
    ) {
        let context = attributes.authorized.context();
        for action in &binding.actions {
            let label = match action {
                Action::Deny => "deny",
                Action::Warn => "warn",
                Action::Audit => "audit",
            };
            let message = Some(&*decision.message);
            self.metrics
                .validation(&policy.name, &binding.name, message, label, decision.took);
            match action {
                Action::Deny => deny(decision.message.clone(), decision.reason),
                Action::Warn => context.warn(format!(
                    "Validation failed for ValidatingAdmissionPolicy '{}' with binding '{}': {}",
                    policy.name, binding.name, decision.message
                )),
                Action::Audit => context.annotate(|| {
                    let actions = binding.actions.iter().map(|action| match action {
                        Action::Deny => "Deny",
                        Action::Warn => "Warn",
                        Action::Audit => "Audit",
                    });
                    let failure = json!([{
                        "message": decision.message, "policy": policy.name, "binding": binding.name,
                        "expressionIndex": decision.index, "validationActions": actions.collect::<Vec<_>>(),
                    }]);
                    (
                        "validation.policy.admission.k8s.io/validation_failure",
                        failure.to_string(),
                    )
                }),
            }
        }
    }

    async fn evaluate(&self, policy: &Policy, rules: &Rules, invocation: &Invocation<'_>) -> Findings {
        let Body::Validations {
            validations,
            annotations,
        } = &rules.body
        else {
            return Findings::default();
        };
        let (attributes, requested) = (invocation.view.attributes(), invocation.view.requested());
        let request = request_value(&attributes, requested);
        let input = Input {
            object: invocation.object,
            old: attributes.old,
            request: &request,
            namespace: invocation.namespace,
            params: invocation.params,
            authorizer: invocation.authorizer,
        };
        let lazy = Lazy::new(&rules.variables, input.bindings());
        let bindings = lazy.bindings();
        let hosts = Hosts {
            lazy: Some(&lazy),
            authorizer: invocation.authorizer,
        };
        let conditions = self.conditions_of(policy, rules, &bindings, hosts, attributes.operation);
        match conditions.await {
            Matched::Yes => {}
            Matched::No => return Findings::default(),
            Matched::Failed(why) => return Findings::error(policy, why, Duration::ZERO),
        }
        let mut budget = kube_cel::RUNTIME_BUDGET;
        let mut results = Vec::with_capacity(validations.len());
        for validation in validations {
            let begun = Instant::now();
            let result = validation.expression.eval(&bindings, hosts, &mut budget);
            match result.await {
                Ok(result) => results.push((result, begun.elapsed())),
                Err(spent) => return Findings::error(policy, spent, begun.elapsed()),
            }
        }
        let mut findings = Findings::default();
        for (index, (validation, (result, took))) in validations.iter().zip(results).enumerate() {
            match result {
                Err(message) if !policy.ignore_failures => findings.failed.push(Decision {
                    index,
                    message,
                    reason: "",
                    took,
                }),
                Err(_) => {}
                Ok(value) if value.as_bool() == Some(true) => findings.held.push(took),
                Ok(_) => {
                    let said = match &validation.message_expression {
                        Some(expression) => {
                            let said = expression.eval(&bindings, hosts, &mut budget).await;
                            said.ok().and_then(Result::ok).and_then(message)
                        }
                        None => None,
                    };
                    let fallback = || match validation.message.as_str() {
                        "" => format!("failed expression: {}", validation.expression.source.trim()),
                        message => message.to_string(),
                    };
                    findings.failed.push(Decision {
                        index,
                        message: said.unwrap_or_else(fallback),
                        reason: known_reason(&validation.reason),
                        took,
                    });
                }
            }
        }
        let mut budget = kube_cel::RUNTIME_BUDGET;
        for (key, expression) in annotations {
            match annotation(expression, &bindings, hosts, &mut budget).await {
                Ok(Some(value)) => findings.annotations.push((key.clone(), value)),
                Ok(None) => {}
                Err(_) if policy.ignore_failures => {}
                Err(why) => findings.refusals.push(why),
            }
        }
        findings
    }
}

/// Values in the order of their first appearance, each once.
#[derive(Default)]
struct Distinct {
    list: Vec<String>,
    seen: HashSet<String>,
}

impl Distinct {
    fn add(&mut self, value: String) {
        if self.seen.insert(value.clone()) {
            self.list.push(value);
        }
    }
}

/// A message that an expression gave, if it is fit to be shown.
fn message(value: Val<'_>) -> Option<String> {
    let text = value.as_str()?.trim();
    let fit = !text.is_empty() && text.len() <= MOST_MESSAGE && !text.contains('\n');
    fit.then(|| text.to_string())
}

async fn annotation(
    expression: &Expression,
    bindings: &kube_cel::Bindings<'_>,
    hosts: Hosts<'_>,
    budget: &mut u64,
) -> Result<Option<String>, String> {
    let value = expression.eval(bindings, hosts, budget).await??;
    let text = value.as_str().map(str::trim).filter(|text| !text.is_empty());
    Ok(text.map(|text| {
        let mut end = text.len().min(MOST_ANNOTATION);
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        text[..end].to_string()
    }))
}
