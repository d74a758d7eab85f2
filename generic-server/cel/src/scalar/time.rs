//! Timestamps and durations as Go and schemas write them.

use time::{Date, OffsetDateTime, PrimitiveDateTime, Time, macros::format_description};

/// RFC 3339, as Go's `time.RFC3339` reads it.
pub(crate) fn parse_timestamp(text: &str) -> Option<OffsetDateTime> {
    let bytes = text.as_bytes();
    let shaped =
        bytes.len() >= 20 && bytes[4] == b'-' && bytes[7] == b'-' && bytes[10] == b'T' && bytes[13] == b':';
    if !shaped || !bytes[17].is_ascii_digit() || text.contains('z') {
        return None;
    }
    OffsetDateTime::parse(text, &time::format_description::well_known::Rfc3339)
        .ok()
        .filter(|at| at.year() >= 1)
}

/// The date-time formats a schema's `format: date-time` accepts.
pub(crate) fn parse_open_timestamp(text: &str) -> Option<OffsetDateTime> {
    if text.is_empty() {
        return Some(OffsetDateTime::UNIX_EPOCH);
    }
    parse_timestamp(text).or_else(|| {
        let plain = format_description!("[year]-[month]-[day]T[hour]:[minute]:[second]");
        PrimitiveDateTime::parse(text, &plain)
            .ok()
            .map(PrimitiveDateTime::assume_utc)
    })
}

/// `YYYY-MM-DD` at midnight.
pub(crate) fn parse_date(text: &str) -> Option<OffsetDateTime> {
    let date = Date::parse(text, &format_description!("[year]-[month]-[day]")).ok()?;
    Some(PrimitiveDateTime::new(date, Time::MIDNIGHT).assume_utc())
}

/// RFC 3339 with as many fraction digits as needed.
pub(crate) fn format(at: OffsetDateTime) -> String {
    let mut out = format!(
        "{:04}-{:02}-{:02}T{:02}:{:02}:{:02}",
        at.year(),
        u8::from(at.month()),
        at.day(),
        at.hour(),
        at.minute(),
        at.second()
    );
    if at.nanosecond() > 0 {
        let fraction = format!(".{:09}", at.nanosecond());
        out.push_str(fraction.trim_end_matches('0'));
    }
    match at.offset() {
        offset if offset.is_utc() => out.push('Z'),
        offset => {
            let sign = if offset.is_negative() { '-' } else { '+' };
            let (hours, minutes, _) = offset.as_hms();
            out.push_str(&format!("{sign}{:02}:{:02}", hours.abs(), minutes.abs()));
        }
    }
    out
}

/// A Go duration string, in nanoseconds.
pub(crate) fn parse_duration(text: &str) -> Option<i64> {
    let (negative, mut rest) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    if rest == "0" {
        return Some(0);
    }
    if rest.is_empty() {
        return None;
    }
    let mut total: i128 = 0;
    while !rest.is_empty() {
        let digits = rest
            .find(|c: char| !c.is_ascii_digit() && c != '.')
            .unwrap_or(rest.len());
        let (number, tail) = rest.split_at(digits);
        let unit_len = tail
            .find(|c: char| c.is_ascii_digit() || c == '.')
            .unwrap_or(tail.len());
        let (unit, tail) = tail.split_at(unit_len);
        let scale: i128 = match unit {
            "ns" => 1,
            "us" | "µs" | "μs" => 1_000,
            "ms" => 1_000_000,
            "s" => 1_000_000_000,
            "m" => 60_000_000_000,
            "h" => 3_600_000_000_000,
            _ => return None,
        };
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if whole.is_empty() && fraction.is_empty() || fraction.contains('.') || whole.len() > 20 {
            return None;
        }
        if !whole.is_empty() {
            total += whole.parse::<i128>().ok()? * scale;
        }
        let mut part = scale;
        for digit in fraction.bytes() {
            total += i128::from(digit - b'0') * part / 10;
            part /= 10;
        }
        rest = tail;
    }
    i64::try_from(if negative { -total } else { total }).ok()
}

const UNITS: &[(&[&str], i64)] = &[
    (&["ns", "nano"], 1),
    (&["us", "µs", "micro"], 1_000),
    (&["ms", "milli"], 1_000_000),
    (&["s", "sec"], 1_000_000_000),
    (&["m", "min"], 60_000_000_000),
    (&["h", "hr", "hour"], 3_600_000_000_000),
    (&["d", "day"], 86_400_000_000_000),
    (&["w", "wk", "week"], 604_800_000_000_000),
];

/// The duration formats a schema's `format: duration` accepts: Go's, and numbers with words (`3 days`).
pub(crate) fn parse_open_duration(text: &str) -> Option<i64> {
    parse_duration(text).or_else(|| parse_word_duration(text))
}

fn parse_word_duration(text: &str) -> Option<i64> {
    let mut total: Option<i64> = None;
    let mut rest = text;
    while let Some(start) = rest.find(|c: char| c.is_ascii_digit()) {
        rest = &rest[start..];
        let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        let (number, tail) = rest.split_at(digits);
        let tail = tail.trim_start();
        let letters = tail
            .find(|c: char| !c.is_ascii_alphabetic() && c != 'µ')
            .unwrap_or(tail.len());
        let (unit, tail) = tail.split_at(letters);
        rest = tail;
        let unit = unit.to_lowercase();
        for (variants, scale) in UNITS {
            let Some((last, exact)) = variants.split_last() else {
                continue;
            };
            if unit.starts_with(last) || exact.contains(&unit.as_str()) {
                let amount = number.parse::<i64>().ok()?.wrapping_mul(*scale);
                total = Some(total.unwrap_or(0).wrapping_add(amount));
            }
        }
    }
    total
}
