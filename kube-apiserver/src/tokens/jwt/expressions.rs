//! The expressions of a JWT authenticator: over the claims of a token, and over the user that they make.
//!
//! Mirrors upstream's `authentication/cel`: compiled once, each evaluation bounded by the limit of one call.

use std::sync::LazyLock;

use generic_server::User;
use kube_cel::{Bindings, DeclType, Env, FieldDecl, ListType, Program, Type, Val};
use serde_json::{Map, Value, json};

/// The variable of an expression.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Subject {
    /// `claims`, a map.
    Claims,
    /// `user`, with `username`, `uid`, `groups` and `extra`.
    User,
}

static CLAIMS_ENV: LazyLock<Env> = LazyLock::new(|| {
    let claims = DeclType::map(DeclType::dynamic(), None);
    Env::builder().variable(Subject::CLAIMS, &claims).build()
});

static USER_ENV: LazyLock<Env> = LazyLock::new(|| {
    let strings = || DeclType::list(DeclType::string(), None, ListType::Atomic);
    let user = DeclType::object(
        "kubernetes.UserInfo",
        [
            FieldDecl::new("username", DeclType::string()),
            FieldDecl::new("uid", DeclType::string()),
            FieldDecl::new("groups", strings()),
            FieldDecl::new("extra", DeclType::map(strings(), None)),
        ],
    );
    Env::builder().variable(Subject::USER, &user).build()
});

impl Subject {
    pub(super) const CLAIMS: &str = "claims";
    const USER: &str = "user";

    fn env(self) -> &'static Env {
        match self {
            Subject::Claims => &CLAIMS_ENV,
            Subject::User => &USER_ENV,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Subject::Claims => Self::CLAIMS,
            Subject::User => Self::USER,
        }
    }
}

/// A compiled expression.
#[derive(Debug)]
pub(super) struct Expression {
    subject: Subject,
    source: String,
    program: Program,
}

/// An expression that has to be true, else a token is refused with this message.
#[derive(Debug)]
pub(super) struct Rule {
    pub(super) expression: Expression,
    pub(super) message: String,
}

/// An expression that gives the values of an extra attribute.
#[derive(Debug)]
pub(super) struct ExtraExpression {
    pub(super) key: String,
    pub(super) expression: Expression,
}

/// The expressions of one authenticator.
#[derive(Debug, Default)]
pub(super) struct Mapper {
    pub(super) username: Option<Expression>,
    pub(super) groups: Option<Expression>,
    pub(super) uid: Option<Expression>,
    pub(super) extra: Vec<ExtraExpression>,
    pub(super) claim_rules: Vec<Rule>,
    pub(super) user_rules: Vec<Rule>,
}

impl Expression {
    /// Compiles an expression. `condition`: it has to give a bool.
    ///
    /// # Errors
    /// The detail of upstream's field error.
    pub(super) fn compile(subject: Subject, condition: bool, source: &str) -> Result<Self, String> {
        let program = subject.env().compile(source).map_err(|errors| errors.detail())?;
        if condition && !matches!(program.output_type(), Type::Bool) {
            return Err("must evaluate to bool".into());
        }
        Ok(Expression {
            subject,
            source: source.to_owned(),
            program,
        })
    }

    pub(super) fn program(&self) -> &Program {
        &self.program
    }

    fn eval<'v>(&self, value: &'v Value) -> Result<Val<'v>, String> {
        let bindings = Bindings::new().with(self.subject.name(), Val::untyped(value));
        let (result, _) = self.program.eval_counted(&bindings);
        result.map_err(|error| format!("expression '{}' resulted in error: {error}", self.source))
    }

    /// The value as a string; `None` when it is none.
    pub(super) fn text(&self, claims: &Value) -> Result<Option<String>, String> {
        Ok(self.eval(claims)?.as_str().map(str::to_owned))
    }

    /// The value as a list of strings, of which empty ones are left out. A string is a list of one, null an empty one.
    pub(super) fn texts(&self, claims: &Value) -> Result<Vec<String>, String> {
        const WRONG: &str = "expression must return a string or a list of strings";
        let mut texts = match self.eval(claims)? {
            Val::Null => Vec::new(),
            Val::String(text) => vec![text.to_string()],
            Val::List(list) => {
                let mut texts = Vec::with_capacity(list.len());
                for item in list.iter() {
                    match item {
                        Ok(Val::String(text)) => texts.push(text.to_string()),
                        _ => return Err(WRONG.into()),
                    }
                }
                texts
            }
            _ => return Err(WRONG.into()),
        };
        texts.retain(|text| !text.is_empty());
        Ok(texts)
    }
}

/// Says which rule does not hold, if one does not. All are evaluated before the first verdict, as upstream does.
///
/// # Errors
/// The text that upstream logs.
pub(super) fn check_rules(rules: &[Rule], value: &Value) -> Result<(), String> {
    let mut verdicts = Vec::with_capacity(rules.len());
    for rule in rules {
        verdicts.push(rule.expression.eval(value)?.as_bool());
    }
    for (rule, verdict) in rules.iter().zip(verdicts) {
        match verdict {
            Some(true) => {}
            None => return Err("validation expression must return a boolean".into()),
            Some(false) => {
                return Err(format!(
                    "validation expression '{}' failed: {}",
                    rule.expression.source, rule.message
                ));
            }
        }
    }
    Ok(())
}

/// A user as the rules about it see it: every field is there.
pub(super) fn user_value(user: &User) -> Value {
    let extra: Map<String, Value> = user
        .extra
        .iter()
        .map(|(key, values)| (key.clone(), json!(values)))
        .collect();
    json!({"username": user.name, "uid": user.uid, "groups": user.groups, "extra": extra})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn claims_are_seen_as_go_decodes_them() {
        #[track_caller]
        fn check(source: &str, expected: Result<&[&str], &str>) {
            let claims = json!({
                "sub": "jane", "n": 3, "list": ["a", "", "b"], "mixed": ["a", 1], "none": null,
                "example.com/roles": ["x"], "deep": {"a-b": {"c/d": [{"e.f": "g"}]}}, "namespace": "ns",
            });
            let expression = Expression::compile(Subject::Claims, false, source).expect(source);
            let texts = expression.texts(&claims);
            let expected = expected
                .map(|texts| texts.iter().map(ToString::to_string).collect())
                .map_err(str::to_owned);
            assert_eq!(texts, expected, "{source}");
        }
        let wrong = Err("expression must return a string or a list of strings");
        check("claims.sub", Ok(&["jane"]));
        check("'oidc:' + claims.sub", Ok(&["oidc:jane"]));
        check("claims.list", Ok(&["a", "b"]));
        check("claims.list.map(role, 'p:' + role)", Ok(&["p:a", "p:", "p:b"]));
        check("claims.none", Ok(&[]));
        check("claims.?other.orValue('')", Ok(&[]));
        check("claims.mixed", wrong);
        check("claims.n", wrong);
        check("claims.example__dot__com__slash__roles", Ok(&["x"]));
        check("claims['example.com/roles']", Ok(&["x"]));
        check("claims.deep.a__dash__b.c__slash__d[0].e__dot__f", Ok(&["g"]));
        check("claims.__namespace__", Ok(&["ns"]));
        check("has(claims.sub) && !has(claims.other) ? 'y' : 'n'", Ok(&["y"]));
        // Numbers are doubles.
        check(
            "claims.n == 3 && type(claims.n) == double ? 'y' : 'n'",
            Ok(&["y"]),
        );
        check("string(claims.n)", Ok(&["3"]));
        check(
            "claims.other",
            Err("expression 'claims.other' resulted in error: no such key: other"),
        );
        check(
            "claims.n + 1",
            Err("expression 'claims.n + 1' resulted in error: no such overload"),
        );
    }

    #[test]
    fn rules_hold_or_say_why_not() {
        #[track_caller]
        fn check(subject: Subject, source: &str, expected: Result<(), &str>) {
            let expression = match Expression::compile(subject, true, source) {
                Ok(expression) => expression,
                Err(why) => return assert_eq!(Err(why.as_str()), expected, "{source}"),
            };
            let rule = Rule {
                expression,
                message: "it has to".into(),
            };
            let user = User {
                name: "jane".into(),
                groups: vec!["a".into()],
                extra: [("example.com/k".to_owned(), vec!["v".to_owned()])].into(),
                ..User::default()
            };
            let value = match subject {
                Subject::Claims => json!({"iat": 1.0, "exp": 100}),
                Subject::User => user_value(&user),
            };
            assert_eq!(
                check_rules(&[rule], &value),
                expected.map_err(str::to_owned),
                "{source}"
            );
        }
        check(Subject::Claims, "claims.exp - claims.iat <= 99", Ok(()));
        check(
            Subject::Claims,
            "claims.exp == 1",
            Err("validation expression 'claims.exp == 1' failed: it has to"),
        );
        check(Subject::Claims, "claims.exp", Err("must evaluate to bool"));
        check(Subject::Claims, "1", Err("must evaluate to bool"));
        check(
            Subject::Claims,
            "user.uid == ''",
            Err(
                "compilation failed: ERROR: <input>:1:1: undeclared reference to 'user' (in container '')\n | user.uid == ''\n | ^",
            ),
        );
        check(Subject::User, "!user.username.startsWith('system:')", Ok(()));
        check(Subject::User, "user.uid == '' && has(user.uid)", Ok(()));
        check(Subject::User, "user.groups == ['a']", Ok(()));
        check(
            Subject::User,
            "user.extra.example__dot__com__slash__k == ['v']",
            Ok(()),
        );
        check(Subject::User, "user.extra['example.com/k'][0] == 'v'", Ok(()));
        check(Subject::User, "user.groups.all(g, g != 'b')", Ok(()));
        check(
            Subject::User,
            "user.name == 'a'",
            Err(
                "compilation failed: ERROR: <input>:1:5: undefined field 'name'\n | user.name == 'a'\n | ....^",
            ),
        );
        // The cost of one evaluation is bounded.
        let many = "[1,2,3,4,5,6,7,8,9,10]";
        let deep = format!(
            "{many}.all(a, {many}.all(b, {many}.all(c, {many}.all(d, {many}.all(e, {many}.all(f, a+b+c+d+e+f > 0))))))"
        );
        let why =
            format!("expression '{deep}' resulted in error: operation cancelled: actual cost limit exceeded");
        check(Subject::Claims, &deep, Err(&why));
    }
}
