//! Nothing makes the crate panic or hang.

use proptest::prelude::*;

use super::env;

/// Words that make random text look like expressions.
const WORDS: &[&str] = &[
    "self",
    ".",
    "i",
    "s",
    "ints",
    "(",
    ")",
    "[",
    "]",
    "{",
    "}",
    ",",
    "?",
    ":",
    "+",
    "-",
    "*",
    "/",
    "%",
    "!",
    "&&",
    "||",
    "==",
    "<",
    "in",
    "1",
    "2u",
    "1.5",
    "'a'",
    "b'\\xff'",
    "\"\"\"",
    "r'",
    "`a-b`",
    "true",
    "null",
    "has",
    "all",
    "exists",
    "map",
    "filter",
    "x",
    "y",
    "optMap",
    "orValue",
    "size",
    "dyn",
    "type",
    "transformMap",
    "sortBy",
    " ",
    "\n",
    "//",
    "é",
    "\\",
    "0x",
    "duration",
    "format",
    "'%d'",
    "keyed",
    "matches",
    "@",
    "__result__",
];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn any_text_is_answered(source in ".{0,80}") {
        let _ = env().0.compile(&source);
    }

    #[test]
    fn any_words_are_answered(picks in prop::collection::vec(0..WORDS.len(), 0..40)) {
        let source: String = picks.into_iter().map(|pick| WORDS[pick]).collect();
        if let Err(errors) = env().0.compile(&source) {
            prop_assert!(errors.to_string().starts_with("ERROR: <input>:"));
        }
    }
}

#[test]
fn deep_and_wide_sources_are_refused_or_answered() {
    let (env, _) = env();
    // A chain of optMap repeats its receiver, which doubles the tree at each step.
    let chain = format!("self.?i{}.hasValue()", ".optMap(x, x)".repeat(60));
    assert!(env.compile(&chain).is_err());
    let wide = format!("true{}", " && true".repeat(5000));
    let shapes: &[fn(usize) -> String] = &[
        |n| format!("1{}", " + 1".repeat(n)),
        |n| format!("{}1{}", "(".repeat(n), ")".repeat(n)),
        |n| format!("{}1{}", "[".repeat(n), "]".repeat(n)),
        |n| format!("{}[]{}", "[1].map(x, ".repeat(n), ")".repeat(n)),
        |n| format!("{}true{}", "{1: 2}.all(k, v, v > 1 && ".repeat(n), ")".repeat(n)),
        |n| format!("{}1 == 1", "true ? true : ".repeat(n)),
        |n| format!("{}1", "!-".repeat(n)),
        |n| format!("dyn([]){}", "[0]".repeat(n)),
        |n| format!("dyn({{}}){}", ".a".repeat(n)),
        |n| format!("self.s{}", ".trim()".repeat(n)),
        |n| format!("{}1{}", "dyn(".repeat(n), ")".repeat(n)),
        |n| {
            format!(
                "{}1{}",
                "dyn(".repeat(n),
                &format!("){}", ".a".repeat(100)).repeat(n)
            )
        },
        |n| {
            format!(
                "{}1{}",
                "(".repeat(n),
                &format!("{})", " + 1".repeat(100)).repeat(n)
            )
        },
        |n| {
            format!(
                "{}1{}",
                "(".repeat(n),
                &format!(").map(x, x){}", ".size()".repeat(9)).repeat(n)
            )
        },
    ];
    // Every expression within the depth limit must also be checked, estimated, planned, evaluated and dropped.
    for shape in shapes {
        let deepest =
            [300, 120, 60, 30, 10, 3]
                .into_iter()
                .map(shape)
                .find(|source| match env.compile(source) {
                    Ok(_) => true,
                    Err(errors) => !errors
                        .messages()
                        .any(|message| message.contains("recursion limit")),
                });
        let source = deepest.expect("shallow sources compile");
        if let Ok(program) = env.compile(&source) {
            let _ = program.eval_counted(&crate::Bindings::new());
        }
    }
    assert!(env.compile(&wide).is_ok());
}
