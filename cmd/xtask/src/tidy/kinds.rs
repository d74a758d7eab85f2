//! Tests of kinds stand beside the kinds: a file of a built-in group that validates or defaults has a table of tests.

/// Where the built-in groups are.
const GROUPS: &str = "kube-apiserver/src/groups/";

/// By these a file has rules of its own, rather than only naming those of others.
const RULES: [&str; 5] = [
    "&mut Errors",
    "Errors::collect",
    ".fill(",
    ".fill_text(",
    "impl Strategy for",
];

/// Files whose rules are shown elsewhere, and where.
const ELSEWHERE: [(&str, &str); 1] = [(
    "core/namespace/finalize.rs",
    "namespace.rs writes through the subresource",
)];

/// The file, when it has rules and no tests, or tests in spite of its place in [`ELSEWHERE`].
pub(super) fn fault(name: &str, text: &str) -> Option<String> {
    let file = name.strip_prefix(GROUPS)?;
    // Shared parts, such as `check.rs`, are beside the groups.
    let (_, _) = file.split_once('/')?;
    if file.ends_with("/tests.rs") {
        return None;
    }
    let tests = text.contains("#[cfg(test)]");
    let elsewhere = ELSEWHERE.iter().any(|(known, _)| *known == file);
    let rules = RULES.iter().any(|rule| text.contains(rule));
    match (rules && !tests, elsewhere) {
        (true, false) => Some(format!(
            "{name} validates or defaults without a table of tests beside it"
        )),
        (false, true) => Some(format!(
            "{name} is on the list of kinds without tests, and does not need to be"
        )),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(file: &str, text: &str, expected: bool) {
        assert_eq!(fault(file, text).is_some(), expected, "{file}");
    }

    #[test]
    fn rules_want_tests() {
        let kind = "kube-apiserver/src/groups/apps/deployment.rs";
        let rules = "fn validate(errors: &mut Errors) {}";
        check(kind, rules, true);
        check(kind, &format!("{rules}\n#[cfg(test)]\nmod tests;"), false);
        check(kind, "pub(crate) static RULES: Rules = Rules::PLAIN;", false);
        check("kube-apiserver/src/groups/growth.rs", rules, false);
        check("kube-apiserver/src/groups/apps/deployment/tests.rs", rules, false);
        check("generic-server/src/chain.rs", rules, false);
    }

    #[test]
    fn the_list_is_of_files_that_need_it() {
        let listed = "kube-apiserver/src/groups/core/namespace/finalize.rs";
        check(listed, "impl Strategy for Finalize {}", false);
        check(
            listed,
            "impl Strategy for Finalize {}\n#[cfg(test)]\nmod tests;",
            true,
        );
    }
}
