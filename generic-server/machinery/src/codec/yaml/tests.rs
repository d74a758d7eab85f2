use serde_json::json;

use super::*;

#[track_caller]
fn reads(text: &str, expected: Value) {
    assert_eq!(decode(text.as_bytes()).unwrap().value, expected, "{text:?}");
}

#[track_caller]
fn prints(value: Value, expected: &str) {
    let text = to_string(&value);
    assert_eq!(text, expected);
    assert_eq!(decode(text.as_bytes()).unwrap().value, value, "reads back");
}

#[test]
fn plain_scalars_follow_yaml_1_1() {
    reads(
        "[yes, no, on, off, y, n, ~, '', null, 0755, 0o17, 0x10, 0b11, 1_000, 08, 1e2, .5, 1.50, -1, +2, 2024-01-01, 1.2.3, 12:30, 'yes']",
        json!([
            true,
            false,
            true,
            false,
            true,
            false,
            null,
            "",
            null,
            493,
            15,
            16,
            3,
            1000,
            8,
            100,
            0.5,
            1.5,
            -1,
            2,
            "2024-01-01",
            "1.2.3",
            "12:30",
            "yes"
        ]),
    );
    reads(
        "18446744073709551615: !!str 1\ntrue: x\n1.5: v\nb: !!binary aGk=\n",
        json!({"18446744073709551615": "1", "true": "x", "1.5": "v", "b": "hi"}),
    );
    // JSON, which upstream goes through, has no larger integers.
    for text in [
        "9223372036854775807\t",
        "9223372036854775808",
        "16005144815170536386\t",
        "[a, {b: -9223372036854775808, c: 18446744073709551615}]",
    ] {
        let decoded = decode(text.as_bytes()).unwrap().value;
        let json = decoded.to_string();
        assert_eq!(
            crate::codec::json::decode(json.as_bytes()).unwrap().value,
            decoded
        );
    }
    reads("9223372036854775808", json!(9_223_372_036_854_775_808.0));
}

#[test]
fn documents_aliases_and_merges() {
    reads("a: 1\n---\nb: 2\n", json!({"a": 1}));
    reads("", Value::Null);
    reads("# nothing\n", Value::Null);
    reads(
        "base: &b {x: 1, z: 2}\nc:\n  <<: *b\n  z: 3\nd: *b\n",
        json!({"base": {"x": 1, "z": 2}, "c": {"x": 1, "z": 3}, "d": {"x": 1, "z": 2}}),
    );
}

#[test]
fn duplicate_keys_are_reported_with_their_line() {
    let found =
        decode(b"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: b}\ndata:\n  k: '1'\n  k: '2'\n").unwrap();
    assert_eq!(found.value["data"]["k"], "2");
    assert_eq!(
        found.strict,
        [StrictError::Other(
            "yaml: unmarshal errors:\n  line 6: key \"k\" already set in map".into()
        )]
    );
}

#[test]
fn bombs_and_nonsense_are_errors() {
    let mut bomb = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n");
    for level in 1..10 {
        let list = vec![format!("*a{}", level - 1); 10].join(", ");
        bomb.push_str(&format!("a{level}: &a{level} [{list}]\n"));
    }
    for text in [
        bomb.as_str(),
        &"[".repeat(10_000),
        &"- ".repeat(10_000),
        "a: b: c\n",
        "a: &a [*a]\n",
        "a: *none\n",
        ".nan",
        "{",
        "? [a]\n: b\n",
    ] {
        assert!(
            decode(text.as_bytes()).is_err(),
            "{:?}",
            &text[..text.len().min(40)]
        );
    }
    assert!(decode(b"a: \xff\n").is_err());
}

#[test]
fn output_is_as_upstream_prints_it() {
    prints(
        json!({"apiVersion": "v1", "data": {"b": "true", "colon": "a: b", "empty": "", "multi": "a\nb\n", "n": "1", "q": "it's \"x\""},
            "list": [{"a": 1, "b": [1, [2, "x"]]}, "s", {}, []], "metadata": {"t": "2024-01-01T00:00:00Z", "f:x": {".": {}}}}),
        "apiVersion: v1\ndata:\n  b: \"true\"\n  colon: 'a: b'\n  empty: \"\"\n  multi: |\n    a\n    b\n  \"n\": \"1\"\n  q: it's \"x\"\n\
         list:\n- a: 1\n  b:\n  - 1\n  - - 2\n    - x\n- s\n- {}\n- []\nmetadata:\n  f:x:\n    .: {}\n  t: \"2024-01-01T00:00:00Z\"\n",
    );
    prints(
        json!({"a": " lead", "b": "trail ", "c": "tab\there", "d": "#x", "e": "- x", "f": "-x", "g": "x #y", "h": "x\n", "i": "\nx", "j": "x\n\n",
            "k": "\u{1f600}", "l": "é", "m": "null", "o": "1e3", "p": "0x1", "r": "12:30:00", "s": "a\n b", "u": "a \nb"}),
        "a: ' lead'\nb: 'trail '\nc: \"tab\\there\"\nd: '#x'\ne: '- x'\nf: -x\ng: 'x #y'\nh: |\n  x\ni: |2-\n\n  x\nj: |+\n  x\n\nk: \"\\U0001F600\"\n\
         l: é\nm: \"null\"\no: \"1e3\"\np: \"0x1\"\nr: \"12:30:00\"\ns: |-\n  a\n   b\nu: \"a \\nb\"\n",
    );
    prints(
        json!({"a10": 1, "a9": 2, "1b": 1.5, "z": 1e21, "A": null, "text": "word ".repeat(30).trim_end()}),
        &format!(
            "1b: 1.5\nA: null\na9: 2\na10: 1\ntext: {}\n  {}\nz: 1e+21\n",
            "word ".repeat(16).trim_end(),
            "word ".repeat(14).trim_end()
        ),
    );
}

/// A document whose first value is anchored and has `copies` aliases.
fn aliased(value: &str, copies: usize) -> String {
    format!("a: &a {value}\nb: [{}]\n", vec!["*a"; copies].join(","))
}

#[track_caller]
fn is_excessive(text: &str, expected: bool) {
    let outcome = decode(text.as_bytes()).map(drop);
    let excessive = DecodeError::Syntax("yaml: document contains excessive aliasing".into());
    assert_eq!(outcome, if expected { Err(excessive) } else { Ok(()) });
}

#[test]
fn aliases_add_no_more_bytes_than_a_body_has() {
    // One anchored string; each alias adds its bytes and those of its node.
    let each = limits::YAML_ALIAS_BYTES / 8;
    let text = "x".repeat(each - NODE_BYTES);
    is_excessive(&aliased(&text, 8), false);
    is_excessive(&aliased(&text, 9), true);
    is_excessive(&aliased(&format!("{text}x"), 8), true);
    // Keys count like values, and so do merged maps.
    is_excessive(
        &format!("a: &a\n  ? {text}\n  : 1\nb: [{}]\n", ["*a"; 8].join(",")),
        true,
    );
    let merged = [" - <<: *a\n"; 9].concat();
    is_excessive(&format!("a: &a {{k: {text}}}\nb:\n{merged}"), true);
    let merged = ["*a"; 9].join(",");
    is_excessive(&format!("a: &a {{k: {text}}}\nb:\n <<: [{merged}]\n"), true);
}

#[test]
fn nested_anchors_keep_no_more_bytes_than_a_body_has() {
    let nested = |levels: usize, bytes: usize| {
        let open: String = (0..levels).map(|level| format!("&a{level} [")).collect();
        format!("{open}{}{}\n", "x".repeat(bytes), "]".repeat(levels))
    };
    let bytes = limits::YAML_ALIAS_BYTES / 100;
    is_excessive(&nested(99, bytes), false);
    is_excessive(&nested(101, bytes), true);
}

#[test]
fn nodes_are_bounded() {
    // The root, three keys and three lists, an anchored list of 998 items, and of each alias itself and what it stands for.
    let items = |count: usize, item: &str| vec![item; count].join(",");
    let document = |rest: usize| {
        let (anchored, aliases) = (items(998, "1"), items(498, "*a"));
        format!("a: &a [{anchored}]\nb: [{aliases}]\nc: [{}]\n", items(rest, "1"))
    };
    let rest = limits::YAML_NODES - 7 - 998 - 498 * 1000;
    is_excessive(&document(rest), false);
    is_excessive(&document(rest + 1), true);
}

#[test]
fn repeated_keys_are_reported_up_to_a_figure() {
    let document = |keys: usize| "k: 1\n".repeat(keys + 1);
    let lines = |keys: usize| match decode(document(keys).as_bytes()).unwrap().strict.as_slice() {
        [error] => error.warnings().len(),
        other => panic!("{other:?}"),
    };
    assert_eq!(lines(limits::STRICT_ERRORS), limits::STRICT_ERRORS);
    assert_eq!(lines(limits::STRICT_ERRORS + 1), limits::STRICT_ERRORS);
    let key = "k".repeat(100_000);
    let long = decode(format!("? {key}\n: 1\n? {key}\n: 2\n").as_bytes()).unwrap();
    assert!(long.strict[0].to_string().len() < 2 * limits::SHOWN_VALUE_BYTES);
}

#[test]
fn indentation_is_bounded() {
    let deep = |items: usize| (0..200).fold(json!(vec![1; items]), |inner, _| json!([inner]));
    let lists: usize = (0..=200).map(|level| 2 * level).sum();
    let most = (limits::YAML_INDENTATION_BYTES - lists) / 402;
    let block = to_string(&deep(most));
    assert!(block.starts_with("- - - ") && block.ends_with(" - 1\n"));
    let flow = to_string(&deep(most + 1));
    assert!(flow.starts_with("[[[[") && flow.len() < 4 * most);
    assert_eq!(decode(to_string(&deep(1)).as_bytes()).unwrap().value, deep(1));
    let small = json!({"a": [1, "x\n\"\u{e9}\u{1}", null, 1.5e300], "b": {"c d": true}});
    assert_eq!(decode(format!("{small}\n").as_bytes()).unwrap().value, small);
}

#[test]
fn keys_with_a_contradictory_order_are_printed() {
    let letters = ["", "0", "1", "9", "a", "-", "\u{663}", "z"];
    let three = letters.iter().flat_map(|a| {
        letters
            .iter()
            .flat_map(move |b| letters.map(|c| format!("{a}{b}{c}")))
    });
    let object: Value = three.map(|key| (key, json!(1))).collect::<Map<_, _>>().into();
    assert_eq!(decode(to_string(&object).as_bytes()).unwrap().value, object);
}
