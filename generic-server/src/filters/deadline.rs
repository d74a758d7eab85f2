//! How long a request may take: `--request-timeout`, or less when the client says so by `?timeout=`.

use std::time::{Duration, Instant};

use machinery::ApiError;
use machinery::go::quote;

use crate::request::Response;
use crate::request_info::query_value;

/// The time a request has. 400 when its `timeout` cannot be read.
pub(crate) fn of(query: &str, most: Duration) -> Result<Duration, ApiError> {
    if !query.contains("timeout") {
        return Ok(most);
    }
    match query_value(query, "timeout").filter(|text| !text.is_empty()) {
        None => Ok(most),
        Some(text) => match parse_go_duration(&text) {
            Ok(asked) if asked > 0.0 && asked < most.as_secs_f64() => Ok(Duration::from_secs_f64(asked)),
            Ok(_) => Ok(most),
            Err(why) => Err(ApiError::bad_request(format!(
                "invalid timeout specified in the request URL - {why}"
            ))),
        },
    }
}

/// A time that long after another; as good as never when the clock does not reach that far.
pub(crate) fn after(start: Instant, limit: Duration) -> Instant {
    const FAR: Duration = Duration::from_secs(365 * 24 * 3600);
    start.checked_add(limit).unwrap_or_else(|| start + FAR)
}

/// The answer when the time is over.
pub(crate) fn exceeded() -> Response {
    crate::respond::error(&ApiError::timeout(
        "request did not complete within the allotted timeout",
        0,
    ))
}

/// Reads what Go's `time.ParseDuration` reads, as seconds; the error is Go's.
pub(crate) fn parse_go_duration(text: &str) -> Result<f64, String> {
    let invalid = || format!("time: invalid duration {}", quote(text));
    let (sign, mut rest) = match text.strip_prefix('-') {
        Some(rest) => (-1.0, rest),
        None => (1.0, text.strip_prefix('+').unwrap_or(text)),
    };
    if rest == "0" {
        return Ok(0.0);
    }
    if rest.is_empty() {
        return Err(invalid());
    }
    let mut total = 0.0;
    while !rest.is_empty() {
        let digits = rest
            .find(|c: char| !c.is_ascii_digit() && c != '.')
            .unwrap_or(rest.len());
        let number: f64 = rest[..digits].parse().map_err(|_| invalid())?;
        rest = &rest[digits..];
        let unit = rest
            .find(|c: char| c.is_ascii_digit() || c == '.')
            .unwrap_or(rest.len());
        let scale = match &rest[..unit] {
            "" => return Err(format!("time: missing unit in duration {}", quote(text))),
            "ns" => 1e-9,
            "us" | "µs" | "μs" => 1e-6,
            "ms" => 1e-3,
            "s" => 1.0,
            "m" => 60.0,
            "h" => 3600.0,
            other => {
                let (unit, text) = (quote(other), quote(text));
                return Err(format!("time: unknown unit {unit} in duration {text}"));
            }
        };
        total += number * scale;
        rest = &rest[unit..];
    }
    // Go's durations end at 292 years.
    if total > 9_223_372_036.0 {
        return Err(invalid());
    }
    Ok(sign * total)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations() {
        let check = |text: &str, expected: Result<f64, &str>| {
            assert_eq!(
                parse_go_duration(text),
                expected.map_err(str::to_string),
                "{text}"
            );
        };
        check("5s", Ok(5.0));
        check("1h30m", Ok(5400.0));
        check("1.5s", Ok(1.5));
        check("-2m", Ok(-120.0));
        check("0", Ok(0.0));
        check("10", Err("time: missing unit in duration \"10\""));
        check("x", Err("time: invalid duration \"x\""));
        check("", Err("time: invalid duration \"\""));
        check("1x", Err("time: unknown unit \"x\" in duration \"1x\""));
        check("999999999h", Err("time: invalid duration \"999999999h\""));
    }

    #[test]
    fn no_limit_is_too_far() {
        let start = Instant::now();
        assert_eq!(
            after(start, Duration::from_secs(5)),
            start + Duration::from_secs(5)
        );
        assert!(after(start, Duration::MAX) > start);
    }

    #[test]
    fn deadlines() {
        let most = Duration::from_secs(60);
        let of = |query: &str| {
            of(query, most)
                .map(|d| d.as_secs())
                .map_err(|e| e.message().to_string())
        };
        assert_eq!(of("a=b"), Ok(60));
        assert_eq!(of("timeout=5s"), Ok(5));
        assert_eq!(of("timeout=0s"), Ok(60));
        assert_eq!(of("timeout=5m"), Ok(60));
        assert_eq!(of("timeoutSeconds=5"), Ok(60));
        assert_eq!(
            of("timeout=7"),
            Err("invalid timeout specified in the request URL - time: missing unit in duration \"7\"".into())
        );
    }
}
