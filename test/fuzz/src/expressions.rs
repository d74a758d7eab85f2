//! Small languages: selectors, quantities, times, paths, CEL.

use std::sync::LazyLock;

use kube_cel::{Bindings, DeclType, Env, FieldDecl, ListType, PER_CALL_LIMIT, Val};
use machinery::jsonpath::JsonPath;
use machinery::limits;
use machinery::quantity::Quantity;
use machinery::schema::{Pattern, check_pattern, excessive_repetition, patterns_weight};
use machinery::selector::field::FieldSelector;
use machinery::selector::label::LabelSelector;
use machinery::time::{GoDuration, Timestamp};
use serde_json::{Value, json};

use crate::halves;

fn text(data: &[u8]) -> Option<&str> {
    std::str::from_utf8(data).ok()
}

/// A label selector: its text says what it is.
pub fn label_selector(data: &[u8]) {
    let Some(text) = text(data) else { return };
    if let Ok(selector) = LabelSelector::parse(text) {
        let printed = selector.to_string();
        let again = LabelSelector::parse(&printed).expect("its own text is a selector");
        assert_eq!(again.to_string(), printed, "its text is its own");
        let none = serde_json::Map::new();
        assert_eq!(
            selector.matches(&none),
            again.matches(&none),
            "it selects the same"
        );
    }
    if let Ok(value) = serde_json::from_str::<Value>(text) {
        let _ = LabelSelector::from_value(&value);
    }
}

/// A field selector: its text says what it is, but for the order.
pub fn field_selector(data: &[u8]) {
    let Some(text) = text(data) else { return };
    if let Ok(selector) = FieldSelector::parse(text) {
        let printed = selector.to_string();
        let again = FieldSelector::parse(&printed).expect("its own text is a selector");
        // Requirements are in the order of their texts as they were written, so that escapes may change it once.
        let settled = FieldSelector::parse(&again.to_string()).expect("its own text is a selector");
        assert_eq!(settled.to_string(), again.to_string(), "its text is its own");
        assert_eq!(
            selector.matches(|_| ""),
            again.matches(|_| ""),
            "it selects the same"
        );
    }
}

/// A quantity: its normal form is its own, once it has been printed twice.
pub fn quantity(data: &[u8]) {
    let Some(text) = text(data) else { return };
    if let Ok(quantity) = Quantity::parse(text) {
        let printed = quantity.to_string();
        let again = Quantity::parse(&printed).expect("its own text is a quantity");
        // A fraction with a binary suffix that comes to a whole number is printed without a suffix, as Go does; what is read of that is
        // decimal and may get one.
        let settled = Quantity::parse(&again.to_string()).expect("its own text is a quantity");
        assert_eq!(settled.to_string(), again.to_string(), "its text is its own");
        let _ = (quantity.value(), quantity.milli_value(), quantity.as_f64());
        let _ = quantity.add(&again).sub(&again).mul(3).neg().to_string();
    }
}

/// A pattern of a schema, a NUL, and the text that it is held against.
pub fn pattern(data: &[u8]) {
    let (pattern, value) = halves(data);
    let (Some(pattern), Some(value)) = (text(pattern), text(value)) else {
        return;
    };
    let weight = patterns_weight([pattern]);
    assert_eq!(patterns_weight([pattern, pattern]), weight, "it counts once");
    // As at the admission of a definition: what is refused is not compiled.
    if excessive_repetition(pattern).is_some() || weight > limits::PATTERN_WEIGHT {
        return;
    }
    let compiles = check_pattern(pattern).is_ok();
    let matches = Pattern::new(pattern).matches(value);
    assert_eq!(
        matches.is_some(),
        compiles,
        "what compiles can be held against a text"
    );
    assert_eq!(
        Pattern::new(pattern).matches(value),
        matches,
        "and says the same of it again"
    );
}

/// Times and durations.
pub fn time(data: &[u8]) {
    let Some(text) = text(data) else { return };
    if let Some(time) = Timestamp::parse_rfc3339(text) {
        let printed = time.to_rfc3339();
        assert_eq!(
            Timestamp::parse_rfc3339(&printed).map(Timestamp::unix),
            Some(time.unix()),
            "its own text is the same time: {printed}"
        );
    }
    if let Some(time) = Timestamp::parse_micro(text) {
        let printed = time.to_rfc3339_micro();
        assert!(
            Timestamp::parse_micro(&printed).is_some(),
            "its own text is a time: {printed}"
        );
    }
    if let Ok(duration) = GoDuration::parse(text) {
        let printed = duration.to_string();
        assert!(
            GoDuration::parse(&printed).is_ok(),
            "its own text is a duration: {printed}"
        );
        let _ = (duration.human(), duration.human_short(), duration.to_std());
        let _ = Timestamp::from_unix(0).plus(duration);
    }
}

/// A path, a NUL, and the object that it goes through.
pub fn jsonpath(data: &[u8]) {
    let (path, object) = halves(data);
    let Some(path) = text(path) else { return };
    let object = serde_json::from_slice(object).unwrap_or_else(|_| json!({"a": [{"b": "c"}, {"b": [1, 2]}]}));
    if let Ok(path) = JsonPath::parse(path) {
        let _ = path.find(&object);
        let _ = path.first(&object);
    }
}

fn declaration() -> &'static DeclType {
    static DECLARATION: LazyLock<DeclType> = LazyLock::new(|| {
        let strings = DeclType::list(DeclType::string(), None, ListType::Set);
        DeclType::object(
            "object",
            [
                FieldDecl::new("b", DeclType::bool()),
                FieldDecl::new("i", DeclType::int()),
                FieldDecl::new("d", DeclType::double()),
                FieldDecl::new("s", DeclType::string()),
                FieldDecl::new("at", DeclType::date_time()),
                FieldDecl::new("dur", DeclType::duration()),
                FieldDecl::new("any", DeclType::dynamic()),
                FieldDecl::new("ints", DeclType::list(DeclType::int(), None, ListType::Atomic)),
                FieldDecl::new("set", strings),
                FieldDecl::new("map", DeclType::map(DeclType::string(), None)),
            ],
        )
        .named("self")
    });
    &DECLARATION
}

/// CEL: compiled and evaluated, within its cost.
pub fn cel(data: &[u8]) {
    static ENV: LazyLock<Env> = LazyLock::new(|| {
        Env::builder()
            .variable("self", declaration())
            .variable("oldSelf", declaration())
            .build()
    });
    let Some(source) = text(data) else { return };
    let Ok(program) = ENV.compile(source) else { return };
    let estimate = program.estimate_cost();
    assert!(estimate.min <= estimate.max, "no less than the least");
    let object = json!({
        "b": true, "i": 3, "d": 2.5, "s": "hello", "at": "2021-01-02T03:04:05Z", "dur": "90s",
        "any": {"x": [1, "a", 1.5]}, "ints": [3, 1, 2], "set": ["x", "y"], "map": {"one": "1"},
    });
    let Ok(value) = Val::json(&object, declaration()) else {
        return;
    };
    let bindings = Bindings::new().with("self", value.clone()).with("oldSelf", value);
    let (_, cost) = program.eval_counted(&bindings);
    assert!(cost <= 2 * PER_CALL_LIMIT, "stopped soon after its limit: {cost}");
}
