//! The parts of an issuer's URL that the configuration is checked for, as Go's `url.Parse` sees them.

use machinery::go::quote;
use machinery::go::url::{bad_escape, check_host, scheme};

/// What a URL has.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Parts {
    pub(super) scheme: String,
    /// A user, with or without a password.
    pub(super) user: bool,
    /// A query that is not empty.
    pub(super) query: bool,
    /// A fragment that is not empty.
    pub(super) fragment: bool,
}

impl Parts {
    /// Takes a URL apart.
    ///
    /// # Errors
    /// It is none, in the words of Go.
    pub(super) fn parse(raw: &str) -> Result<Self, String> {
        let (body, fragment) = raw.split_once('#').unwrap_or((raw, ""));
        let refuse = |why: &str| Err(format!("parse {}: {why}", quote(body)));
        if raw.bytes().any(|byte| byte < b' ' || byte == 0x7f) {
            return refuse("net/url: invalid control character in URL");
        }
        let (scheme, rest) = match scheme(body) {
            Ok(split) => split,
            Err(why) => return refuse(why),
        };
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let first = rest.split('/').next().unwrap_or_default();
        if scheme.is_empty() && first.contains(':') {
            return refuse("first path segment in URL cannot contain colon");
        }
        let (authority, path) = match rest.strip_prefix("//") {
            Some(rest) => rest.split_at(rest.find('/').unwrap_or(rest.len())),
            None => ("", rest),
        };
        let (user, host) = match authority.rsplit_once('@') {
            Some((_, host)) => (true, host),
            None => (false, authority),
        };
        if let Err(why) = check_host(host) {
            return refuse(&why);
        }
        if let Some(escape) = [path, fragment].into_iter().find_map(bad_escape) {
            return refuse(&format!("invalid URL escape {}", quote(escape)));
        }
        Ok(Parts {
            scheme,
            user,
            query: !query.is_empty(),
            fragment: !fragment.is_empty(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_taken_apart_as_go_does() {
        #[track_caller]
        fn check(raw: &str, expected: Result<(&str, bool, bool, bool), &str>) {
            let parts =
                Parts::parse(raw).map(|parts| (parts.scheme, parts.user, parts.query, parts.fragment));
            let expected = expected
                .map(|(scheme, user, query, fragment)| (scheme.to_owned(), user, query, fragment))
                .map_err(str::to_owned);
            assert_eq!(parts, expected, "{raw}");
        }
        check("https://a.example/b", Ok(("https", false, false, false)));
        check("HTTPS://a:8443", Ok(("https", false, false, false)));
        check("https://[::1]:8443/x", Ok(("https", false, false, false)));
        check("https://u:p@a", Ok(("https", true, false, false)));
        check("https://a?b=c", Ok(("https", false, true, false)));
        check("https://a?", Ok(("https", false, false, false)));
        check("https://a#b", Ok(("https", false, false, true)));
        check("a.example", Ok(("", false, false, false)));
        check("", Ok(("", false, false, false)));
        check(":a", Err("parse \":a\": missing protocol scheme"));
        check(
            "https://a:b",
            Err("parse \"https://a:b\": invalid port \":b\" after host"),
        );
        check("https://[::1", Err("parse \"https://[::1\": missing ']' in host"));
        check(
            "https://a b",
            Err("parse \"https://a b\": invalid character \" \" in host name"),
        );
        check(
            "https://a/%zz",
            Err("parse \"https://a/%zz\": invalid URL escape \"%zz\""),
        );
        check(
            "https://a/%é",
            Err("parse \"https://a/%é\": invalid URL escape \"%é\""),
        );
        check(
            "https://a\n",
            Err("parse \"https://a\\n\": net/url: invalid control character in URL"),
        );
        check(
            "1:a",
            Err("parse \"1:a\": first path segment in URL cannot contain colon"),
        );
    }
}
