//! URLs of webhooks.

use machinery::FieldPath;

use crate::errors::Errors;

const FORM: &str = "; desired format: https://host[/path]";

/// The parts of a URL that rules are about.
struct Url<'a> {
    scheme: &'a str,
    user: Option<&'a str>,
    host: &'a str,
    query: &'a str,
    fragment: &'a str,
}

/// A URL with a host and a path, and nothing else.
pub(super) fn webhook_url(errors: &mut Errors, path: &FieldPath<'_>, text: &str) {
    let url = match parse(text) {
        Ok(url) => url,
        Err(why) => {
            let text = format!("url must be a valid URL: parse {text:?}: {why}{FORM}");
            return errors.required(path, &text);
        }
    };
    let scheme = url.scheme.to_ascii_lowercase();
    if scheme != "https" {
        let why = format!("'https' is the only allowed URL scheme{FORM}");
        errors.invalid(path, scheme, why);
    }
    if url.host.is_empty() {
        errors.invalid(path, url.host, format!("host must be specified{FORM}"));
    }
    if let Some(user) = url.user {
        errors.invalid(path, user, "user information is not permitted in the URL");
    }
    if !url.fragment.is_empty() {
        errors.invalid(path, url.fragment, "fragments are not permitted in the URL");
    }
    if !url.query.is_empty() {
        errors.invalid(path, url.query, "query parameters are not permitted in the URL");
    }
}

/// # Errors
/// What is wrong with the text, as upstream's parser says it.
fn parse(text: &str) -> Result<Url<'_>, String> {
    let (rest, fragment) = text.split_once('#').unwrap_or((text, ""));
    if rest.bytes().any(|b| b < b' ' || b == 0x7f) {
        return Err("net/url: invalid control character in URL".into());
    }
    escapes(fragment)?;
    let (scheme, rest) = scheme(rest)?;
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    let mut url = Url {
        scheme,
        user: None,
        host: "",
        query,
        fragment,
    };
    if !rest.starts_with('/') {
        if !scheme.is_empty() {
            return Ok(url);
        }
        if rest.split('/').next().is_some_and(|first| first.contains(':')) {
            return Err("first path segment in URL cannot contain colon".into());
        }
    }
    let mut path = rest;
    if let Some(rest) = rest.strip_prefix("//")
        && !rest.starts_with('/')
    {
        let end = rest.find('/').unwrap_or(rest.len());
        let authority;
        (authority, path) = rest.split_at(end);
        url.host = authority;
        if let Some((user, host)) = authority.rsplit_once('@') {
            url.user = Some(user);
            url.host = host;
        }
        check_host(url.host)?;
    }
    escapes(path)?;
    Ok(url)
}

/// The scheme, and what follows it.
fn scheme(text: &str) -> Result<(&str, &str), String> {
    for (index, b) in text.bytes().enumerate() {
        match b {
            b'a'..=b'z' | b'A'..=b'Z' => {}
            b'0'..=b'9' | b'+' | b'-' | b'.' if index > 0 => {}
            b':' if index == 0 => return Err("missing protocol scheme".into()),
            b':' => return Ok((&text[..index], &text[index + 1..])),
            _ => break,
        }
    }
    Ok(("", text))
}

fn check_host(host: &str) -> Result<(), String> {
    let port = if host.starts_with('[') {
        let (_, port) = host.rsplit_once(']').ok_or("missing ']' in host")?;
        port
    } else {
        host.rfind(':').map_or("", |at| &host[at..])
    };
    let digits = port.strip_prefix(':').unwrap_or(port);
    if !port.is_empty() && (!port.starts_with(':') || !digits.bytes().all(|b| b.is_ascii_digit())) {
        return Err(format!("invalid port {port:?} after host"));
    }
    let plain = |c: char| c.is_ascii_alphanumeric() || !c.is_ascii() || "-_.~!$&'()*+,;=:[]<>\"%".contains(c);
    if let Some(odd) = host.chars().find(|c| !plain(*c)) {
        return Err(format!("invalid character {:?} in host name", odd.to_string()));
    }
    escapes(host)
}

/// Each `%` begins two hexadecimal digits.
fn escapes(text: &str) -> Result<(), String> {
    let bytes = text.as_bytes();
    for (index, _) in text.match_indices('%') {
        let digits = bytes.get(index + 1..index + 3);
        if !digits.is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit)) {
            let shown: String = text[index..].chars().take(3).collect();
            return Err(format!("invalid URL escape {shown:?}"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::groups::check::check_errors;

    #[track_caller]
    fn check(url: &str, expected: &[&str]) {
        let expected: Vec<String> = expected.iter().map(|text| format!("url: {text}")).collect();
        let expected: Vec<&str> = expected.iter().map(String::as_str).collect();
        check_errors(
            |errors| webhook_url(errors, &FieldPath::new("url"), url),
            &expected,
        );
    }

    #[test]
    fn urls_that_cannot_be_parsed_are_missing() {
        for (url, why) in [
            ("5%", r#"invalid URL escape "%""#),
            ("https://a/%zz", r#"invalid URL escape "%zz""#),
            ("::1", "missing protocol scheme"),
            (
                "2026-01-01T00:00:00Z",
                "first path segment in URL cannot contain colon",
            ),
            ("https://a:b/c", r#"invalid port ":b" after host"#),
            ("https://[::1/c", "missing ']' in host"),
            ("https://a b/c", r#"invalid character " " in host name"#),
        ] {
            let expected = format!("Required value: url must be a valid URL: parse {url:?}: {why}{FORM}");
            check(url, &[&expected]);
        }
    }

    #[test]
    fn urls_are_a_host_and_a_path() {
        for good in ["https://a", "HTTPS://a:443/b%20c", "https://[::1]:1/x"] {
            check(good, &[]);
        }
        let scheme =
            |scheme: &str| format!("Invalid value: {scheme:?}: 'https' is the only allowed URL scheme{FORM}");
        let no_host = format!(r#"Invalid value: "": host must be specified{FORM}"#);
        check("http://a", &[&scheme("http")]);
        check("a b", &[&scheme(""), &no_host]);
        check("https:a", &[&no_host]);
        check(
            "https://u@a?q#f",
            &[
                r#"Invalid value: "u": user information is not permitted in the URL"#,
                r#"Invalid value: "f": fragments are not permitted in the URL"#,
                r#"Invalid value: "q": query parameters are not permitted in the URL"#,
            ],
        );
    }
}
