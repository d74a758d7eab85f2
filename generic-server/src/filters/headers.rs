//! Headers that every answer gets: cache control, HSTS, warnings.

use http::{HeaderMap, HeaderValue, header};

use crate::request::Response;

/// Upstream's bound for all warnings of an answer, in characters, before they are cut.
const ALL_WARNINGS: usize = 4 * 1024;
/// The length to which each is cut then.
const ONE_WARNING: usize = 256;

/// Nothing may be cached unless the handler said otherwise.
pub(crate) fn cache_control(headers: &mut HeaderMap) {
    headers
        .entry(header::CACHE_CONTROL)
        .or_insert(HeaderValue::from_static("no-cache, private"));
}

/// Errors that quote what the client sent must not be read as anything but what they are.
pub(crate) fn no_sniff(mut response: Response) -> Response {
    let headers = response.headers_mut();
    headers.insert(
        header::X_CONTENT_TYPE_OPTIONS,
        HeaderValue::from_static("nosniff"),
    );
    response
}

/// `Strict-Transport-Security`, when configured.
pub(crate) fn hsts(headers: &mut HeaderMap, directives: Option<&HeaderValue>) {
    if let Some(directives) = directives {
        headers
            .entry(header::STRICT_TRANSPORT_SECURITY)
            .or_insert_with(|| directives.clone());
    }
}

/// Adds warnings as `Warning: 299 - "text"`. Texts with control characters are dropped, as upstream drops them.
pub(crate) fn warnings(headers: &mut HeaderMap, warnings: &[String]) {
    let fits = |text: &&String| !text.is_empty() && !text.chars().any(char::is_control);
    let total: usize = warnings
        .iter()
        .filter(fits)
        .map(|text| text.chars().count())
        .sum();
    let cut = total > ALL_WARNINGS;
    let mut written = 0;
    for text in warnings.iter().filter(fits) {
        if cut && written >= ALL_WARNINGS {
            return;
        }
        let end = if cut {
            text.char_indices()
                .nth(ONE_WARNING)
                .map_or(text.len(), |(at, _)| at)
        } else {
            text.len()
        };
        written += text[..end].chars().count();
        if let Ok(value) = HeaderValue::from_bytes(warning(&text[..end]).as_bytes()) {
            headers.append(header::WARNING, value);
        }
    }
}

fn warning(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 10);
    out.push_str("299 - \"");
    for c in text.chars() {
        if c == '"' || c == '\\' {
            out.push('\\');
        }
        out.push(c);
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(texts: &[String]) -> Vec<String> {
        let mut headers = HeaderMap::new();
        warnings(&mut headers, texts);
        let all = headers.get_all(header::WARNING);
        all.iter()
            .map(|v| String::from_utf8_lossy(v.as_bytes()).into_owned())
            .collect()
    }

    #[test]
    fn quoted_and_bounded() {
        assert_eq!(written(&["a \"b\" \\c".into()]), [r#"299 - "a \"b\" \\c""#]);
        assert_eq!(written(&["näh".into()]), ["299 - \"näh\""]);
        assert!(written(&["two\nlines".into(), String::new()]).is_empty());
        let many: Vec<String> = (0..40).map(|n| format!("{n:0300}")).collect();
        let cut = written(&many);
        assert_eq!(cut.len(), 16);
        assert!(cut.iter().all(|text| text.len() == 256 + 8));
    }
}
