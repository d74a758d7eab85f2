//! The corpus: expressions with the value, the error or the cost they must have, over data described by declarations.

mod admission;
mod compile;
mod cost;
mod properties;
mod values;

use serde_json::{Value, json};

use crate::{Bindings, DeclType, Env, EvalError, FieldDecl, ListType, Val};

/// An object with a field of every kind of declaration.
fn decl() -> DeclType {
    let item = DeclType::object(
        "object",
        [
            FieldDecl::new("k", DeclType::string()),
            FieldDecl::new("v", DeclType::int()),
        ],
    );
    let keyed = ListType::Map(vec!["k".into()]);
    DeclType::object(
        "object",
        [
            FieldDecl::new("b", DeclType::bool()),
            FieldDecl::new("i", DeclType::int()),
            FieldDecl::new("j", DeclType::int()),
            FieldDecl::new("d", DeclType::double()),
            FieldDecl::new("s", DeclType::string()),
            FieldDecl::new("t", DeclType::string()),
            FieldDecl::new("short", DeclType::string().with_max_length(10)),
            FieldDecl::new("bytes", DeclType::bytes()),
            FieldDecl::new("date", DeclType::date()),
            FieldDecl::new("at", DeclType::date_time()),
            FieldDecl::new("dur", DeclType::duration()),
            FieldDecl::new("either", DeclType::int_or_string()),
            FieldDecl::new("any", DeclType::dynamic()),
            FieldDecl::new("maybe", DeclType::string().nullable(true)),
            FieldDecl::new("ints", DeclType::list(DeclType::int(), None, ListType::Atomic)),
            FieldDecl::new(
                "few",
                DeclType::list(DeclType::string().with_max_length(5), Some(4), ListType::Atomic),
            ),
            FieldDecl::new("set", DeclType::list(DeclType::string(), None, ListType::Set)),
            FieldDecl::new("keyed", DeclType::list(item.clone(), None, keyed)),
            FieldDecl::new("map", DeclType::map(DeclType::string(), None)),
            FieldDecl::new(
                "nested",
                DeclType::object("object", [FieldDecl::new("inner", item)]),
            ),
            FieldDecl::new("namespace", DeclType::string()),
            FieldDecl::new("with-dash", DeclType::string()),
            FieldDecl::new("kept", DeclType::preserved()),
        ],
    )
    .named("self")
}

fn data() -> Value {
    json!({
        "b": true, "i": 3, "j": 3, "d": 2, "s": "héllo", "t": "héllo", "short": "abc", "bytes": "aGVsbG8=",
        "date": "2021-01-02", "at": "2021-01-02T03:04:05Z", "dur": "90s", "either": "50%", "any": {"x": [1, "a", 1.5]},
        "maybe": null, "ints": [3, 1, 2], "few": ["a", "b"], "set": ["x", "y"],
        "keyed": [{"k": "a", "v": 1}, {"k": "b", "v": 2}], "map": {"one": "1", "two": "2"},
        "nested": {"inner": {"k": "z", "v": 9}}, "namespace": "ns", "with-dash": "dash", "kept": {"deep": [1]}
    })
}

fn env() -> (Env, DeclType) {
    let decl = decl();
    let env = Env::builder()
        .variable("self", &decl)
        .variable("oldSelf", &decl)
        .build();
    (env, decl)
}

/// Evaluates over the data and gives the value and its cost to `look`.
#[track_caller]
fn evaluate<T>(source: &str, look: impl FnOnce(Result<Val<'_>, EvalError>, u64) -> T) -> T {
    let (env, decl) = env();
    let program = env
        .compile(source)
        .unwrap_or_else(|errors| panic!("{source}: {errors}"));
    let mut old = data();
    old["i"] = json!(2);
    old["keyed"] = json!([{"k": "b", "v": 2}, {"k": "a", "v": 1}]);
    old["set"] = json!(["y", "x"]);
    let data = data();
    let bindings = Bindings::new()
        .with("self", Val::json(&data, &decl).unwrap())
        .with("oldSelf", Val::json(&old, &decl).unwrap());
    let (result, cost) = program.eval_counted(&bindings);
    look(result, cost)
}
