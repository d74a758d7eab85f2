//! Times and durations in the forms of the API: `metav1.Time`, `metav1.MicroTime`, Go's durations, and ages for tables.

use std::fmt::Write;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A moment, in nanoseconds since 1970 (UTC). Printed with seconds or microseconds, as the field asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(i128);

const SECOND: i128 = 1_000_000_000;
const DAY: i128 = 86_400;

/// Days since 1970 of a date in the proleptic Gregorian calendar.
fn days_from_civil(year: i64, month: u32, day: u32) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let of_era = year.rem_euclid(400);
    let shifted = i64::from((month + 9) % 12);
    let of_year = (153 * shifted + 2) / 5 + i64::from(day) - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

fn civil_from_days(days: i64) -> (i64, u32, u32) {
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let of_era = days.rem_euclid(146_097);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * of_year + 2) / 153;
    let day = of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    (
        year,
        u32::try_from(month).unwrap_or(1),
        u32::try_from(day).unwrap_or(1),
    )
}

fn month_length(year: i64, month: u32) -> u32 {
    match month {
        2 if year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

fn number(bytes: &[u8]) -> Option<u32> {
    bytes.iter().try_fold(0u32, |n, b| {
        b.is_ascii_digit().then(|| n * 10 + u32::from(b - b'0'))
    })
}

impl Timestamp {
    /// The moment of the wall clock.
    pub fn now() -> Self {
        Self::from(SystemTime::now())
    }

    /// Seconds since 1970.
    pub fn from_unix(seconds: i64) -> Self {
        Timestamp(i128::from(seconds) * SECOND)
    }

    /// Nanoseconds since 1970.
    pub fn from_unix_nanos(nanos: i128) -> Self {
        Timestamp(nanos)
    }

    /// Whole seconds since 1970, rounded down.
    pub fn unix(self) -> i64 {
        i64::try_from(self.0.div_euclid(SECOND)).unwrap_or(i64::MAX)
    }

    /// Nanoseconds since 1970.
    pub fn unix_nanos(self) -> i128 {
        self.0
    }

    /// The nanoseconds of the second.
    pub fn subsec_nanos(self) -> u32 {
        u32::try_from(self.0.rem_euclid(SECOND)).unwrap_or_default()
    }

    /// The time from `earlier` until this moment; negative when `earlier` is later.
    pub fn since(self, earlier: Timestamp) -> GoDuration {
        let nanos = self.0 - earlier.0;
        GoDuration(i64::try_from(nanos).unwrap_or(if nanos < 0 { i64::MIN } else { i64::MAX }))
    }

    /// This moment moved by a duration.
    #[must_use]
    pub fn plus(self, by: GoDuration) -> Self {
        Timestamp(self.0 + i128::from(by.0))
    }

    /// Reads RFC 3339 as Go's `time.RFC3339` layout does: any number of fraction digits, `Z` or an offset.
    pub fn parse_rfc3339(text: &str) -> Option<Self> {
        Self::parse(text, |fraction| fraction != 0 || !text.contains(['.', ',']))
    }

    /// Reads a `MicroTime`: RFC 3339 with exactly six fraction digits.
    pub fn parse_micro(text: &str) -> Option<Self> {
        Self::parse(text, |fraction| fraction == 6)
    }

    fn parse(text: &str, fraction_fits: impl Fn(usize) -> bool) -> Option<Self> {
        let bytes = text.as_bytes();
        if bytes.len() < 20 || !text.is_ascii() {
            return None;
        }
        let separators = [(4, b'-'), (7, b'-'), (10, b'T'), (13, b':'), (16, b':')];
        if separators.iter().any(|(at, byte)| bytes[*at] != *byte) {
            return None;
        }
        let year = i64::from(number(&bytes[0..4])?);
        let month = number(&bytes[5..7])?;
        let day = number(&bytes[8..10])?;
        let hour = number(&bytes[11..13])?;
        let minute = number(&bytes[14..16])?;
        let second = number(&bytes[17..19])?;
        let dates = (1..=12).contains(&month) && (1..=month_length(year, month)).contains(&day);
        if !dates || hour > 23 || minute > 59 || second > 59 {
            return None;
        }
        let mut rest = &bytes[19..];
        let mut nanos = 0u32;
        let mut digits = 0;
        if let [b'.' | b',', fraction @ ..] = rest {
            digits = fraction.iter().take_while(|b| b.is_ascii_digit()).count();
            for place in 0..9 {
                let digit = fraction.get(place).filter(|_| place < digits);
                nanos = nanos * 10 + digit.map_or(0, |b| u32::from(b - b'0'));
            }
            rest = &fraction[digits..];
        }
        if !fraction_fits(digits) {
            return None;
        }
        let offset = match rest {
            [b'Z'] => 0,
            [sign @ (b'+' | b'-'), h1, h2, b':', m1, m2] => {
                let (hours, minutes) = (number(&[*h1, *h2])?, number(&[*m1, *m2])?);
                if hours > 24 || minutes > 60 {
                    return None;
                }
                let seconds = i128::from(hours * 3600 + minutes * 60);
                if *sign == b'-' { -seconds } else { seconds }
            }
            _ => return None,
        };
        let days = i128::from(days_from_civil(year, month, day));
        let seconds = days * DAY + i128::from(hour * 3600 + minute * 60 + second) - offset;
        Some(Timestamp(seconds * SECOND + i128::from(nanos)))
    }

    fn write_to_seconds(self) -> String {
        let seconds = self.0.div_euclid(SECOND);
        let days = i64::try_from(seconds.div_euclid(DAY)).unwrap_or_default();
        let of_day = seconds.rem_euclid(DAY);
        let (year, month, day) = civil_from_days(days);
        let (hour, minute, second) = (of_day / 3600, of_day / 60 % 60, of_day % 60);
        let mut out = String::with_capacity("2006-01-02T15:04:05.000000Z".len());
        match u32::try_from(year) {
            Ok(year @ 0..=9999) => push_digits(&mut out, year, 4),
            _ => drop(write!(out, "{year:04}")),
        }
        for (before, number) in [
            ('-', i128::from(month)),
            ('-', i128::from(day)),
            ('T', hour),
            (':', minute),
            (':', second),
        ] {
            out.push(before);
            push_digits(&mut out, u32::try_from(number).unwrap_or_default(), 2);
        }
        out
    }

    /// `2006-01-02T15:04:05Z`: how `metav1.Time` is written.
    pub fn to_rfc3339(self) -> String {
        let mut out = self.write_to_seconds();
        out.push('Z');
        out
    }

    /// `2006-01-02T15:04:05.000000Z`: how `metav1.MicroTime` is written.
    pub fn to_rfc3339_micro(self) -> String {
        let mut out = self.write_to_seconds();
        out.push('.');
        push_digits(&mut out, self.subsec_nanos() / 1000, 6);
        out.push('Z');
        out
    }
}

/// The last digits of a number. Times are in every object and event, and formatting takes ten times as long.
fn push_digits(out: &mut String, number: u32, digits: u32) {
    for place in (0..digits).rev() {
        let digit = number / 10u32.pow(place) % 10;
        out.push(char::from_digit(digit, 10).unwrap_or('0'));
    }
}

impl From<SystemTime> for Timestamp {
    fn from(time: SystemTime) -> Self {
        let nanos = |d: Duration| i128::try_from(d.as_nanos()).unwrap_or(i128::MAX);
        match time.duration_since(UNIX_EPOCH) {
            Ok(after) => Timestamp(nanos(after)),
            Err(before) => Timestamp(-nanos(before.duration())),
        }
    }
}

/// A Go `time.Duration`: nanoseconds, printed as `1h2m3.5s`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct GoDuration(pub i64);

impl GoDuration {
    /// From seconds; saturates.
    pub fn from_secs(seconds: i64) -> Self {
        GoDuration(seconds.saturating_mul(1_000_000_000))
    }

    /// As a `std` duration; `None` when negative.
    pub fn to_std(self) -> Option<Duration> {
        u64::try_from(self.0).ok().map(Duration::from_nanos)
    }

    /// Reads Go's form: `300ms`, `-1.5h`, `2h45m`, `0`.
    ///
    /// # Errors
    /// Go's text: `time: invalid duration "x"`, `time: missing unit in duration "1"`, `time: unknown unit "y" in duration "1y"`.
    pub fn parse(text: &str) -> Result<Self, String> {
        let shown = crate::go::quote(text);
        let invalid = || format!("time: invalid duration {shown}");
        let (negative, mut rest) = match text.as_bytes() {
            [b'-', ..] => (true, &text[1..]),
            [b'+', ..] => (false, &text[1..]),
            _ => (false, text),
        };
        if rest == "0" {
            return Ok(GoDuration(0));
        }
        if rest.is_empty() {
            return Err(invalid());
        }
        let digits = |s: &str| s.bytes().take_while(u8::is_ascii_digit).count();
        let mut total = 0u64;
        while !rest.is_empty() {
            let (whole, after) = rest.split_at(digits(rest));
            let (fraction, after) = match after.strip_prefix('.') {
                Some(after) => after.split_at(digits(after)),
                None => ("", after),
            };
            if whole.is_empty() && fraction.is_empty() {
                return Err(invalid());
            }
            let end = after
                .find(|c: char| c == '.' || c.is_ascii_digit())
                .unwrap_or(after.len());
            let (unit, after) = after.split_at(end);
            let scale: u64 = match unit {
                "" => return Err(format!("time: missing unit in duration {shown}")),
                "ns" => 1,
                "us" | "µs" | "μs" => 1_000,
                "ms" => 1_000_000,
                "s" => 1_000_000_000,
                "m" => 60_000_000_000,
                "h" => 3_600_000_000_000,
                _ => {
                    let unit = crate::go::quote(unit);
                    return Err(format!("time: unknown unit {unit} in duration {shown}"));
                }
            };
            let whole: u64 = if whole.is_empty() {
                0
            } else {
                whole.parse().map_err(|_| invalid())?
            };
            let mut value = whole.checked_mul(scale).ok_or_else(invalid)?;
            // Digits beyond the eighteenth do not show in nanoseconds of an hour.
            let fraction = &fraction[..fraction.len().min(18)];
            if let Ok(part) = fraction.parse::<u64>() {
                let power = 10u128.pow(u32::try_from(fraction.len()).unwrap_or(18));
                let part = u128::from(part) * u128::from(scale) / power;
                value = value
                    .checked_add(u64::try_from(part).map_err(|_| invalid())?)
                    .ok_or_else(invalid)?;
            }
            total = total.checked_add(value).ok_or_else(invalid)?;
            rest = after;
        }
        let total = i128::from(total) * if negative { -1 } else { 1 };
        i64::try_from(total).map(GoDuration).map_err(|_| invalid())
    }

    /// Upstream's `duration.HumanDuration`: the ages in tables, `5m`, `3d4h`, `<invalid>` when more than a second ahead.
    pub fn human(self) -> String {
        let seconds = self.0 / 1_000_000_000;
        let (minutes, hours) = (seconds / 60, seconds / 3600);
        let pair = |big: i64, unit: &str, small: i64, small_unit: &str| {
            if small == 0 {
                format!("{big}{unit}")
            } else {
                format!("{big}{unit}{small}{small_unit}")
            }
        };
        match () {
            () if seconds < -1 => "<invalid>".into(),
            () if seconds < 0 => "0s".into(),
            () if seconds < 120 => format!("{seconds}s"),
            () if minutes < 10 => pair(minutes, "m", seconds % 60, "s"),
            () if minutes < 180 => format!("{minutes}m"),
            () if hours < 8 => pair(hours, "h", minutes % 60, "m"),
            () if hours < 48 => format!("{hours}h"),
            () if hours < 24 * 8 => pair(hours / 24, "d", hours % 24, "h"),
            () if hours < 24 * 365 * 2 => format!("{}d", hours / 24),
            () if hours < 24 * 365 * 8 => pair(hours / 24 / 365, "y", hours / 24 % 365, "d"),
            () => format!("{}y", hours / 24 / 365),
        }
    }

    /// For how many seconds [`GoDuration::human`] says the same of a duration that grows, at least; one or more.
    pub fn human_holds(self) -> i64 {
        let seconds = self.0 / 1_000_000_000;
        let step = match seconds {
            ..600 => 1,
            600..28_800 => 60,
            28_800..691_200 => 3_600,
            _ => 86_400,
        };
        step - seconds.rem_euclid(step)
    }

    /// Upstream's `duration.ShortHumanDuration`: one unit only.
    pub fn human_short(self) -> String {
        let seconds = self.0 / 1_000_000_000;
        match seconds {
            ..-1 => "<invalid>".into(),
            -1 => "0s".into(),
            0..60 => format!("{seconds}s"),
            60..3600 => format!("{}m", seconds / 60),
            3600..86_400 => format!("{}h", seconds / 3600),
            86_400..31_536_000 => format!("{}d", seconds / 86_400),
            _ => format!("{}y", seconds / 31_536_000),
        }
    }
}

impl std::fmt::Display for GoDuration {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let nanos = self.0.unsigned_abs();
        if nanos == 0 {
            return f.write_str("0s");
        }
        if self.0 < 0 {
            f.write_str("-")?;
        }
        let decimal = |f: &mut std::fmt::Formatter<'_>, value: u64, unit: u64, name: &str| {
            let (whole, rest) = (value / unit, value % unit);
            write!(f, "{whole}")?;
            if rest != 0 {
                let width = unit.ilog10() as usize;
                let digits = format!("{rest:0width$}");
                write!(f, ".{}", digits.trim_end_matches('0'))?;
            }
            f.write_str(name)
        };
        match nanos {
            0..1_000 => write!(f, "{nanos}ns"),
            1_000..1_000_000 => decimal(f, nanos, 1_000, "µs"),
            1_000_000..1_000_000_000 => decimal(f, nanos, 1_000_000, "ms"),
            _ => {
                let minutes = nanos / 60_000_000_000;
                if minutes >= 60 {
                    write!(f, "{}h", minutes / 60)?;
                }
                if minutes > 0 {
                    write!(f, "{}m", minutes % 60)?;
                }
                decimal(f, nanos % 60_000_000_000, 1_000_000_000, "s")
            }
        }
    }
}

/// The age of something created at `created` (RFC 3339), as tables show it: `<unknown>` when there is no such time.
pub fn age_since(created: Option<&str>, now: Timestamp) -> String {
    match created.and_then(Timestamp::parse_rfc3339) {
        Some(created) => now.since(created).human(),
        None => "<unknown>".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times() {
        for (text, expected) in [
            ("1970-01-01T00:00:00Z", Some("1970-01-01T00:00:00Z")),
            ("2024-02-29T23:59:59Z", Some("2024-02-29T23:59:59Z")),
            ("2024-01-01T00:00:00+02:00", Some("2023-12-31T22:00:00Z")),
            ("2024-01-01T00:00:00.123456789Z", Some("2024-01-01T00:00:00Z")),
            ("0001-01-01T00:00:00Z", Some("0001-01-01T00:00:00Z")),
            ("1969-12-31T23:59:59.5Z", Some("1969-12-31T23:59:59Z")),
            ("2023-02-29T00:00:00Z", None),
            ("2024-01-01T24:00:00Z", None),
            ("2024-01-01t00:00:00Z", None),
            ("2024-01-01T00:00:00", None),
            ("2024-01-01T00:00:00.Z", None),
            ("2024-01-01 00:00:00Z", None),
            ("", None),
            ("äääääääääääääääääääää", None),
        ] {
            let got = Timestamp::parse_rfc3339(text).map(Timestamp::to_rfc3339);
            assert_eq!(got.as_deref(), expected, "{text}");
        }
        for (text, expected) in [
            ("2024-01-01T00:00:00.123456Z", Some("2024-01-01T00:00:00.123456Z")),
            ("2024-01-01T00:00:00.12345Z", None),
            ("2024-01-01T00:00:00Z", None),
        ] {
            let got = Timestamp::parse_micro(text).map(Timestamp::to_rfc3339_micro);
            assert_eq!(got.as_deref(), expected, "{text}");
        }
    }

    #[test]
    fn durations() {
        for (text, expected) in [
            ("0", "0s"),
            ("1h2m3s", "1h2m3s"),
            ("90m", "1h30m0s"),
            ("1.5h", "1h30m0s"),
            ("300ms", "300ms"),
            ("1.5s", "1.5s"),
            ("-2us", "-2µs"),
            ("1500ns", "1.5µs"),
            (".5s", "500ms"),
        ] {
            assert_eq!(GoDuration::parse(text).unwrap().to_string(), expected, "{text}");
        }
        for (text, expected) in [
            ("", "time: invalid duration \"\""),
            ("1", "time: missing unit in duration \"1\""),
            ("1y", "time: unknown unit \"y\" in duration \"1y\""),
            ("s", "time: invalid duration \"s\""),
            ("9999999999h", "time: invalid duration \"9999999999h\""),
            ("é", "time: invalid duration \"é\""),
        ] {
            assert_eq!(GoDuration::parse(text).unwrap_err(), expected, "{text}");
        }
    }

    #[test]
    fn ages() {
        for (seconds, expected) in [
            (-2, "<invalid>"),
            (-1, "0s"),
            (119, "119s"),
            (120, "2m"),
            (150, "2m30s"),
            (600, "10m"),
            (3 * 3600, "3h"),
            (3 * 3600 + 60, "3h1m"),
            (8 * 3600, "8h"),
            (48 * 3600, "2d"),
            (76 * 3600, "3d4h"),
            (8 * 86_400, "8d"),
            (2 * 365 * 86_400, "2y"),
            (2 * 365 * 86_400 + 86_400, "2y1d"),
            (9 * 365 * 86_400, "9y"),
        ] {
            assert_eq!(GoDuration::from_secs(seconds).human(), expected);
        }
        let now = Timestamp::from_unix(3600);
        assert_eq!(age_since(Some("1970-01-01T00:50:00Z"), now), "10m");
        assert_eq!(age_since(None, now), "<unknown>");
    }
}
