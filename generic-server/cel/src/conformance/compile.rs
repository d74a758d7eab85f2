//! Faults found before anything runs, with upstream's text and place.

use super::env;

#[track_caller]
fn refuses(source: &str, want: &str) {
    match env().0.compile(source) {
        Ok(_) => panic!("{source} compiles"),
        Err(errors) => assert_eq!(errors.to_string(), want, "{source}"),
    }
}

#[test]
fn types_are_checked() {
    refuses(
        "foo == 'x'",
        "ERROR: <input>:1:1: undeclared reference to 'foo' (in container '')\n | foo == 'x'\n | ^",
    );
    refuses(
        "self.c == 'x'",
        "ERROR: <input>:1:5: undefined field 'c'\n | self.c == 'x'\n | ....^",
    );
    refuses(
        "self.s > 5",
        "ERROR: <input>:1:8: found no matching overload for '_>_' applied to '(string, int)'\n | self.s > 5\n | .......^",
    );
    refuses(
        "self.s.foo(1)",
        "ERROR: <input>:1:11: undeclared reference to 'foo' (in container '')\n | self.s.foo(1)\n | ..........^",
    );
    refuses(
        "self.i.startsWith('a')",
        "ERROR: <input>:1:18: found no matching overload for 'startsWith' applied to 'int.(string)'\n | \
         self.i.startsWith('a')\n | .................^",
    );
    refuses(
        "self.i && true",
        "ERROR: <input>:1:5: expected type 'bool' but found 'int'\n | self.i && true\n | ....^",
    );
    refuses(
        "self.i.all(x, true)",
        "ERROR: <input>:1:5: expression of type 'int' cannot be range of a comprehension (must be list, map, or dynamic)\n | \
         self.i.all(x, true)\n | ....^",
    );
    refuses(
        "[1, 'a'] == []",
        "ERROR: <input>:1:5: expected type 'int' but found 'string'\n | [1, 'a'] == []\n | ....^",
    );
    refuses(
        "self.i == null",
        "ERROR: <input>:1:8: found no matching overload for '_==_' applied to '(int, null)'\n | self.i == null\n | .......^",
    );
    refuses(
        "self.s.x == 1",
        "ERROR: <input>:1:7: type 'string' does not support field selection\n | self.s.x == 1\n | ......^",
    );
    refuses(
        "self.keyed.all(e, e.z == 1 && e.v == 'a')",
        "ERROR: <input>:1:20: undefined field 'z'\n | self.keyed.all(e, e.z == 1 && e.v == 'a')\n | ...................^\n\
         ERROR: <input>:1:35: found no matching overload for '_==_' applied to '(int, string)'\n | \
         self.keyed.all(e, e.z == 1 && e.v == 'a')\n | ..................................^",
    );
    refuses(
        "cel.bind(x, 1, x) == 1",
        "ERROR: <input>:1:1: undeclared reference to 'cel' (in container '')\n | cel.bind(x, 1, x) == 1\n | ^\n\
         ERROR: <input>:1:9: undeclared reference to 'bind' (in container '')\n | cel.bind(x, 1, x) == 1\n | ........^\n\
         ERROR: <input>:1:10: undeclared reference to 'x' (in container '')\n | cel.bind(x, 1, x) == 1\n | .........^\n\
         ERROR: <input>:1:16: undeclared reference to 'x' (in container '')\n | cel.bind(x, 1, x) == 1\n | ...............^",
    );
}

#[test]
fn syntax_is_checked() {
    const OPERAND: &str = "{'[', '{', '(', '.', '-', '!', 'true', 'false', 'null', NUM_FLOAT, NUM_INT, NUM_UINT, STRING, \
                           BYTES, IDENTIFIER}";
    refuses(
        "1 +",
        &format!(
            "ERROR: <input>:1:4: Syntax error: mismatched input '<EOF>' expecting {OPERAND}\n | 1 +\n | ...^"
        ),
    );
    refuses(
        "1 2",
        "ERROR: <input>:1:3: Syntax error: extraneous input '2' expecting <EOF>\n | 1 2\n | ..^",
    );
    refuses(
        "for",
        "ERROR: <input>:1:1: reserved identifier: for\n | for\n | ^",
    );
    refuses(
        "has(1)",
        "ERROR: <input>:1:5: invalid argument to has() macro\n | has(1)\n | ....^",
    );
    refuses(
        "[1].all(x.y, true)",
        "ERROR: <input>:1:10: argument must be a simple name\n | [1].all(x.y, true)\n | .........^",
    );
    refuses(
        "99999999999999999999 == 1",
        "ERROR: <input>:1:1: invalid int literal\n | 99999999999999999999 == 1\n | ^",
    );
    refuses(
        &"(".repeat(600),
        "ERROR: <input>:-1:0: expression recursion limit exceeded: 250",
    );
    refuses(
        &"a".repeat(100_001),
        "ERROR: <input>:-1:0: expression code point size exceeds limit: size: 100001, limit 100000",
    );
    refuses(
        "a\n  && true",
        "ERROR: <input>:1:1: undeclared reference to 'a' (in container '')\n | a\n | ^",
    );
    refuses(
        "'é' + x",
        "ERROR: <input>:1:7: undeclared reference to 'x' (in container '')\n | 'é' + x\n | .\u{ff0e}....^",
    );
}

#[test]
fn literals_are_checked() {
    refuses(
        "self.dur > duration('1 day')",
        "ERROR: <input>:1:21: invalid duration argument\n | self.dur > duration('1 day')\n | ....................^",
    );
    refuses(
        "self.at > timestamp('now')",
        "ERROR: <input>:1:21: invalid timestamp argument\n | self.at > timestamp('now')\n | ....................^",
    );
    refuses(
        "self.s.matches('(')",
        "ERROR: <input>:1:16: invalid matches argument\n | self.s.matches('(')\n | ...............^",
    );
    refuses(
        "[1, dyn('a')].size() == 2",
        "ERROR: <input>:1:8: expected type 'int' but found 'dyn'\n | [1, dyn('a')].size() == 2\n | .......^",
    );
    refuses(
        "'%d'.format(['a']) == ''",
        "ERROR: <input>:1:14: error during formatting: decimal clause can only be used on integers, was given string\n | \
         '%d'.format(['a']) == ''\n | .............^",
    );
}

#[test]
fn programs_know_their_type_and_variables() {
    let (env, _) = env();
    let check = |source: &str, ty: &str, uses_old: bool| {
        let program = env.compile(source).unwrap();
        assert_eq!(program.output_type().to_string(), ty, "{source}");
        assert_eq!(program.uses("oldSelf"), uses_old, "{source}");
    };
    check("self.i", "int", false);
    check("self.map.?x", "optional_type(string)", false);
    check("[]", "list(dyn)", false);
    check("self == oldSelf", "bool", true);
    check("self.keyed", "list(self.keyed.@idx)", false);
    check("[1, 2].map(x, string(x))", "list(string)", false);
}
