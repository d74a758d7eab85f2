//! Bounds have tests: each constant of `limits.rs` is named by a test, which shows it at the limit and past it.

use std::collections::BTreeSet;

/// Where the bounds are.
const LIMITS: &str = "generic-server/machinery/src/limits.rs";

/// The bounds, and the names that tests use.
#[derive(Debug, Default)]
pub(super) struct Bounds {
    all: Vec<String>,
    named: BTreeSet<String>,
}

impl Bounds {
    /// Adds a tracked file.
    pub(super) fn add(&mut self, path: &str, text: &str) {
        if path == LIMITS {
            let constants = text.lines().filter_map(|line| line.strip_prefix("pub const "));
            let names = constants.filter_map(|line| line.split(':').next());
            self.all = names.map(str::to_owned).collect();
        } else if path.ends_with(".rs") {
            let code = tests_of(path, text)
                .lines()
                .filter(|line| !line.trim_start().starts_with("//"));
            let words = code.flat_map(|line| line.split(|c: char| !c.is_alphanumeric() && c != '_'));
            let names =
                words.filter(|word| word.contains(char::is_uppercase) && !word.contains(char::is_lowercase));
            self.named.extend(names.map(str::to_owned));
        }
    }

    /// The bounds that no test names.
    pub(super) fn faults(&self) -> impl Iterator<Item = String> {
        let missing = self.all.iter().filter(|bound| !self.named.contains(*bound));
        missing.map(|bound| format!("{LIMITS}: no test names {bound}: show it at the limit and past it"))
    }
}

/// The part of a source file that is tests.
fn tests_of<'t>(path: &str, text: &'t str) -> &'t str {
    let is_test = |part: &str| part.starts_with("test") || part.ends_with("_tests.rs");
    if path.split('/').any(is_test) {
        return text;
    }
    let inner = text.split_once("#[cfg(test)]\nmod tests {");
    inner.map_or("", |(_, tests)| tests)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_want_tests() {
        #[track_caller]
        fn check(path: &str, text: &str, expected: bool) {
            let mut bounds = Bounds::default();
            bounds.add(path, text);
            bounds.add(
                LIMITS,
                "/// Bytes.\npub const BYTES: usize = 1;\nconst OTHER: usize = 2;\n",
            );
            assert_eq!(bounds.faults().count() == 1, expected, "{path} {text}");
        }
        let test = "#[cfg(test)]\nmod tests {\n    check(limits::BYTES + 1);\n}\n";
        check("generic-server/src/a.rs", test, false);
        check("generic-server/src/a.rs", "fn a() { limits::BYTES }\n", true);
        check(
            "generic-server/src/a.rs",
            "#[cfg(test)]\nmod tests;\nfn a() { BYTES }\n",
            true,
        );
        check(
            "generic-server/src/a.rs",
            &test.replace("BYTES", "MORE_BYTES"),
            true,
        );
        check("generic-server/src/a/tests.rs", "check(BYTES);\n", false);
        check("generic-server/src/a/tests/b.rs", "check(BYTES);\n", false);
        check("generic-server/src/a_tests.rs", "check(BYTES);\n", false);
        check("test/adversary/src/a.rs", "// BYTES\ncheck(OTHER);\n", true);
        check("docs/testing.md", "BYTES", true);
    }
}
