use kube_cel::{Bindings, DeclType, FieldDecl, LazyObject, Map, Val};
use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;
use crate::admission::Operation;
use crate::authz::{Failure, ResolvedRules};
use crate::dynamic_admission::expression::{Expression, Hosts, Metered, OUT_OF_BUDGET, Scope, Wanted};
use crate::request::Authorized;

/// Answers later, as a webhook does, by the verb.
#[derive(Debug, Default)]
struct Later {
    asked: Mutex<Vec<String>>,
    now: AtomicUsize,
    most: AtomicUsize,
}

#[async_trait::async_trait]
impl Authorizer for Later {
    async fn authorize(&self, attributes: &authz::Attributes<'_>) -> Decision {
        let asked = format!("{} {}", attributes.user.name, attributes.verb);
        self.asked.lock().push(asked);
        let now = self.now.fetch_add(1, Ordering::Relaxed) + 1;
        self.most.fetch_max(now, Ordering::Relaxed);
        tokio::task::yield_now().await;
        self.now.fetch_sub(1, Ordering::Relaxed);
        match attributes.verb {
            "fail" => Decision::Failed(Failure {
                error: "it is down".into(),
                reason: "unknown".into(),
                denies: true,
            }),
            verb if verb.starts_with("get") => Decision::Allow("reads".into()),
            verb => Decision::Deny(format!("no {verb}")),
        }
    }

    async fn rules_for(&self, _user: &User, _namespace: &str) -> ResolvedRules {
        ResolvedRules::default()
    }
}

/// Evaluates an expression about a write of pods. Gives its result, what was asked and how much of that at once, and its cost.
async fn evaluate(source: &str) -> (Result<Result<String, String>, String>, Vec<String>, usize, u64) {
    let later = Arc::new(Later::default());
    let authorizer: Arc<dyn Authorizer> = later.clone();
    let authorized = Authorized::system();
    let gvk = machinery::GroupVersionKind::new("", "v1", "Pod");
    let gvr = GroupVersionResource::new("", "v1", "pods");
    let attributes = Attributes {
        authorized: &authorized,
        operation: Operation::Create,
        gvk: &gvk,
        gvr: &gvr,
        subresource: "",
        namespace: "a",
        name: "one",
        old: None,
        dry_run: false,
        options: None,
        resource: None,
        rounds: None,
    };
    let checks = RequestAuthorizer::of(&attributes, &authorizer);
    let scope = Scope {
        authorizer: true,
        ..Scope::default()
    };
    let expression = Expression::compile(&scope.env().build(), source, &Wanted::Any);
    let bindings = Bindings::new().with("authorizer", Val::authorizer(&checks)).with(
        "authorizer.requestResource",
        Val::resource_check(&checks, checks.request_resource()),
    );
    let hosts = Hosts {
        lazy: None,
        authorizer: &checks,
    };
    let mut budget = kube_cel::RUNTIME_BUDGET;
    let result = expression.eval(&bindings, hosts, &mut budget).await;
    let result = result.map(|result| result.map(|value| value.to_json().unwrap_or_default().to_string()));
    let asked = later.asked.lock().clone();
    let most = later.most.load(Ordering::Relaxed);
    (result, asked, most, kube_cel::RUNTIME_BUDGET - budget)
}

const CHECK: &str = "authorizer.requestResource.check";

#[track_caller]
fn says(found: &Result<Result<String, String>, String>, expected: &str) {
    assert_eq!(found, &Ok(Ok(expected.to_string())));
}

#[tokio::test]
async fn expressions_wait_for_an_authorizer_that_answers_later() {
    for (expression, expected) in [
        ("CHECK('get').allowed()", "true"),
        ("CHECK('get').reason()", "\"reads\""),
        ("CHECK('delete').allowed()", "false"),
        ("CHECK('delete').reason()", "\"no delete\""),
        ("CHECK('delete').errored()", "false"),
        ("CHECK('delete').error()", "\"\""),
        ("CHECK('fail').allowed()", "false"),
        ("CHECK('fail').errored()", "true"),
        ("CHECK('fail').error()", "\"it is down\""),
        ("CHECK('delete').allowed() || CHECK('get').allowed()", "true"),
        (
            "[CHECK('get').allowed(), CHECK('drop').allowed()]",
            "[true,false]",
        ),
        (
            "['get', 'drop'].exists(v, CHECK(v).reason().endsWith('drop'))",
            "true",
        ),
    ] {
        let (found, ..) = evaluate(&expression.replace("CHECK", CHECK)).await;
        says(&found, expected);
    }
}

#[tokio::test]
async fn a_check_is_asked_once_and_beside_others() {
    let twice = format!("{CHECK}('get').allowed() && {CHECK}('get').reason() == 'reads'");
    let (found, asked, _, cost) = evaluate(&twice).await;
    says(&found, "true");
    assert_eq!(asked, ["system:apiserver get"]);
    // What was evaluated before the answer was there costs nothing: two checks are paid for, as upstream counts them.
    assert!(
        (2 * kube_cel::AUTHZ_CHECK..3 * kube_cel::AUTHZ_CHECK).contains(&cost),
        "{cost}"
    );
    let both = format!("{CHECK}('delete').allowed() || {CHECK}('get').allowed()");
    let (found, asked, most, _) = evaluate(&both).await;
    says(&found, "true");
    assert_eq!((asked.len(), most), (2, 2));
    let other = "authorizer.serviceAccount('a', 'robot').path('/x').check('get').allowed()";
    let (found, asked, ..) = evaluate(other).await;
    says(&found, "true");
    assert_eq!(asked, ["system:serviceaccount:a:robot get"]);
}

#[tokio::test]
async fn checks_end_with_the_cost_that_one_expression_may_have() {
    let many = "['a', 'b', 'c', 'd', 'e', 'f'].map(v, CHECK(v).allowed())".replace("CHECK", CHECK);
    let (found, asked, ..) = evaluate(&many).await;
    let text =
        format!("expression '{many}' resulted in error: operation cancelled: actual cost limit exceeded");
    assert_eq!(found, Ok(Err(text)));
    assert_eq!(asked.len(), 2, "a third is not paid for");
}

/// A variable each time with another check, so that no round is the last.
#[derive(Debug)]
struct Endless<'a> {
    checks: &'a RequestAuthorizer<'a>,
    round: AtomicUsize,
}

impl LazyObject for Endless<'_> {
    fn get(&self, _field: &str) -> Option<Result<Val<'_>, EvalError>> {
        let round = self.round.fetch_add(1, Ordering::Relaxed);
        let check = AuthzCheck {
            verb: format!("get{round}"),
            ..AuthzCheck::default()
        };
        Some(kube_cel::Authorizer::check(self.checks, &check).map(|answer| Val::Bool(answer.allowed)))
    }

    fn len(&self) -> usize {
        1
    }
}

impl Metered for Endless<'_> {
    fn take(&self) -> u64 {
        0
    }

    fn forget(&self) {}
}

#[tokio::test]
async fn rounds_end() {
    let later = Arc::new(Later::default());
    let authorizer: Arc<dyn Authorizer> = later.clone();
    let authorized = Authorized::system();
    let gvk = machinery::GroupVersionKind::new("", "v1", "Pod");
    let gvr = GroupVersionResource::new("", "v1", "pods");
    let checks = RequestAuthorizer {
        authorizer: &authorizer,
        user: authorized.user(),
        gvr: &gvr,
        subresource: "",
        namespace: "",
        name: &gvk.kind,
        checks: Mutex::default(),
    };
    let endless = Endless {
        checks: &checks,
        round: AtomicUsize::new(0),
    };
    let variables = DeclType::object("v", [FieldDecl::new("a", DeclType::bool())]);
    let env = kube_cel::Env::builder()
        .typed("variables", variables.cel_type().clone())
        .build();
    let expression = Expression::compile(&env, "variables.a", &Wanted::Any);
    let bindings = Bindings::new().with("variables", Val::Map(Map::Lazy(&endless)));
    let hosts = Hosts {
        lazy: Some(&endless),
        authorizer: &checks,
    };
    let mut budget = kube_cel::RUNTIME_BUDGET;
    let found = expression.eval(&bindings, hosts, &mut budget).await;
    assert_eq!(found.map(|_| ()), Err(OUT_OF_BUDGET.to_string()));
    assert!(later.asked.lock().len() <= 31);

    // Answers of one write are bounded, too.
    for verb in 0..limits::CHECKS_PER_WRITE + 1 {
        let check = AuthzCheck {
            verb: format!("other{verb}"),
            ..AuthzCheck::default()
        };
        let answer = kube_cel::Authorizer::check(&checks, &check);
        if verb == limits::CHECKS_PER_WRITE {
            let text = "expressions ask for more than 1024 authorization checks about one request";
            assert_eq!(answer.map(|_| ()), Err(EvalError::new(text)));
        }
    }
    checks.wait().await;
    assert!(!checks.is_asked());
}
