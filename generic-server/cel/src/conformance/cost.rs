//! Estimates and run-time costs, to the digit.

use serde_json::json;

use super::{env, evaluate};
use crate::{Bindings, DeclType, Env, EvalError, FieldDecl, ListType, PER_CALL_LIMIT, Val};

/// Source, highest estimate, actual cost.
#[track_caller]
fn costs(cases: &[(&str, u64, u64)]) {
    let mut wrong = Vec::new();
    for (source, estimate, actual) in cases {
        let program = env()
            .0
            .compile(source)
            .unwrap_or_else(|errors| panic!("{source}: {errors}"));
        let max = program.estimate_cost().max;
        let cost = evaluate(source, |_, cost| cost);
        if (max, cost) != (*estimate, *actual) {
            wrong.push(format!("(r#\"{source}\"#, {max}, {cost}),"));
        }
    }
    assert!(wrong.is_empty(), "not as expected:\n{}", wrong.join("\n"));
}

/// The estimated cost of a walk over a string field without a bound.
const STRING: u64 = 314_573;

#[test]
fn selection_and_comparison() {
    costs(&[
        // A variable and each selection cost one. Scalars of the schema have no size, so comparing them is estimated free.
        ("self.i == self.j", 4, 5),
        ("self.i + 1 == 4", 4, 4),
        ("type(self.i) == int", 4, 4),
        ("size(self.s) == 5", 4, 4),
        // Asking is free, the way there is not.
        ("has(self.s)", 1, 1),
        ("has(self.nested.inner)", 2, 2),
        ("self.s == self.t", STRING + 4, 5),
        ("self.short == 'abc'", 3, 3),
        ("self.s.startsWith('h')", 3, 3),
        ("self.short.contains('bc')", 6, 3),
        ("self.short.matches('^[a-z]+$')", 12, 4),
        ("self.s + self.t == 'a'", 4 + 2 * STRING + 1, 6),
        ("self.b && self.i == 3", 4, 5),
        ("false && self.i == 3", 2, 0),
        ("self.b ? self.i == 3 : self.s == 'x'", 5, 5),
        ("self.s in ['a', 'b']", 14, 2),
        ("1 in self.ints", 1_572_865, 5),
    ]);
}

#[test]
fn macros_and_literals() {
    costs(&[
        ("[1, 2, 3].all(x, x > 0)", 26, 16),
        ("self.few.all(x, x.size() > 0)", 27, 15),
        ("self.few.exists(x, x == 'b')", 27, 15),
        ("self.few.map(x, x + 'y').size() == 2", 79, 33),
        ("self.few.filter(x, x == 'a').size() == 1", 75, 22),
        ("{'a': 1}.all(k, k == 'a')", 35, 6),
        ("self.few.transformMap(i, v, v).size() == 2", 51, 13),
        ("optional.of('a').optMap(v, v == 'value').hasValue()", 18, 8),
        ("self.?s.orValue('x') == 'x'", 4, 3),
        ("[1, 2].sortBy(x, -x).size() == 2", 82, 52),
    ]);
}

#[test]
fn libraries() {
    costs(&[
        ("quantity('50k').add(quantity('20')) == quantity('50.02k')", 5, 5),
        ("isQuantity(self.s)", STRING + 2, 3),
        ("ip('192.168.0.1') == ip('192.168.0.1')", 5, 5),
        ("cidr('192.168.0.0/24').containsIP('192.168.0.1')", 8, 5),
        ("url(self.short).getHost() == ''", 7, 4),
        (
            "format.dns1123Label().validate(self.s).hasValue()",
            10_066_340,
            12,
        ),
        ("self.few.join(',') == 'a,b'", 12, 4),
        ("self.s.split(',').size() == 1", 629_150, 5),
        ("self.short.replace('a', 'bb') == 'x'", 11, 4),
        ("sets.contains(self.few, ['a'])", 17, 5),
        ("self.few.isSorted()", 14, 2),
        ("self.few.sort().size() == 2", 49, 23),
        ("self.few.slice(0, 1).size() == 1", 16, 16),
        ("semver('1.2.3').major() == 1", 3, 3),
        ("self.s.find('[a-z]') == 'h'", 629_149, 5),
    ]);
}

#[test]
fn estimates_follow_the_bounds_of_the_schema() {
    let check = |decl: DeclType, source: &str, want: u64| {
        let env = Env::builder().variable("self", &decl.named("self")).build();
        assert_eq!(
            env.compile(source).unwrap().estimate_cost().max,
            want,
            "{source} over {}",
            decl.cel_type()
        );
    };
    let list = |elem: DeclType, max| DeclType::list(elem, max, ListType::Atomic);
    check(list(DeclType::double(), None), "self.all(x, true)", 4_718_591);
    check(list(DeclType::double(), Some(10)), "self.all(x, true)", 32);
    check(list(DeclType::string(), None), "self.all(x, true)", 3_145_727);
    check(list(DeclType::bool(), None), "self.all(x, true)", 1_887_437);
    check(
        list(list(DeclType::int(), None), None),
        "self.all(x, true)",
        3_145_727,
    );
    check(
        DeclType::map(DeclType::double(), None),
        "self.all(x, true)",
        1_348_169,
    );
    let object = DeclType::object(
        "o",
        [FieldDecl::new("required", DeclType::string()).required(true, false)],
    );
    check(list(object, Some(50)), "self.all(x, true)", 152);
    check(DeclType::string(), "self.contains('a')", 314_574);
    check(DeclType::string().with_max_length(5), "self.contains('a')", 3);
}

#[test]
fn evaluation_stops_at_the_limit() {
    let decl = DeclType::list(DeclType::int(), None, ListType::Atomic);
    let data = json!(vec![1; 3000]);
    let env = Env::builder().variable("self", &decl).build();
    let run = |source: &str, budget: u64| {
        let mut left = budget;
        let bindings = Bindings::new().with("self", Val::json(&data, &decl).unwrap());
        let result = env
            .compile(source)
            .unwrap()
            .eval(&bindings, &mut left)
            .map(|val| val.as_bool());
        (result, left)
    };
    assert_eq!(
        run("self.all(x, self.all(y, x == y))", 10_000_000).0,
        Err(EvalError::CostLimit)
    );
    // Unlike other errors, the cost limit is not absorbed by `||`.
    assert_eq!(
        run("self.all(x, self.all(y, x == y)) || true", 10_000_000).0,
        Err(EvalError::CostLimit)
    );
    let (_, cost) = env
        .compile("self.all(x, x == 1)")
        .unwrap()
        .eval_counted(&Bindings::new().with("self", Val::json(&data, &decl).unwrap()));
    assert!(cost < PER_CALL_LIMIT);
    assert_eq!(run("self.all(x, x == 1)", cost), (Ok(Some(true)), 0));
    assert_eq!(run("self.all(x, x == 1)", cost - 1), (Err(EvalError::Budget), 0));
}
