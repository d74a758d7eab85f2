//! Options of streams in a query, as upstream's conversions read them: the first value counts, but for lists.

use std::borrow::Cow;

use generic_server::request_info::{query_bool, query_pairs, query_value};
use generic_server::{ApiError, Request};
use machinery::go;

/// The query of a request.
pub(super) fn of(request: &Request) -> &str {
    request.uri().query().unwrap_or_default()
}

/// A parameter.
pub(super) fn value<'q>(query: &'q str, key: &str) -> Option<Cow<'q, str>> {
    query_value(query, key)
}

/// A boolean parameter.
pub(super) fn flag(query: &str, key: &str) -> bool {
    query_bool(value(query, key).as_deref())
}

/// A parameter that may be repeated.
pub(super) fn list(query: &str, key: &str) -> Vec<String> {
    let pairs = query_pairs(query).filter(|(name, _)| name == key);
    pairs.map(|(_, value)| value.into_owned()).collect()
}

/// A number.
///
/// # Errors
/// 400 when it is none, in Go's words.
pub(super) fn number(query: &str, key: &str) -> Result<Option<i64>, ApiError> {
    value(query, key).map(|text| parse(&text, 64)).transpose()
}

/// A number of so many bits.
pub(super) fn parse(text: &str, bits: u32) -> Result<i64, ApiError> {
    let wrong =
        |why: &str| ApiError::bad_request(format!("strconv.ParseInt: parsing {}: {why}", go::quote(text)));
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(wrong("invalid syntax"));
    }
    let number: i64 = text.parse().map_err(|_| wrong("value out of range"))?;
    match bits == 64 || i32::try_from(number).is_ok() {
        true => Ok(number),
        false => Err(wrong("value out of range")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_gos() {
        let check = |text: &str, bits: u32, expected: Result<i64, &str>| {
            let expected =
                expected.map_err(|why| format!("strconv.ParseInt: parsing {}: {why}", go::quote(text)));
            assert_eq!(
                parse(text, bits).map_err(|error| error.message().to_string()),
                expected
            );
        };
        check("10", 64, Ok(10));
        check("-1", 64, Ok(-1));
        check("+1", 64, Ok(1));
        for text in ["", "-", "x", "1x", "1.5", "+-1", " 1"] {
            check(text, 64, Err("invalid syntax"));
        }
        check("99999999999999999999", 64, Err("value out of range"));
        check("2147483648", 32, Err("value out of range"));
        check("2147483647", 32, Ok(2_147_483_647));
    }
}
