//! The string formats that custom resources may ask for. Mirrors `k8s.io/kube-openapi/pkg/validation/strfmt`.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::LazyLock;

use regex::Regex;

use crate::time::GoDuration;

/// A check; `None` when the format is not known. Dashes in names do not count.
pub(crate) fn find(name: &str) -> Option<fn(&str) -> bool> {
    Some(match name.replace('-', "").as_str() {
        "bsonobjectid" => |s| s.len() == 24 && s.bytes().all(|b| b.is_ascii_hexdigit()),
        "uri" => is_request_uri,
        "email" => is_email,
        "hostname" => is_hostname,
        "ipv4" => |s| s.contains('.') && is_ip(s),
        "ipv6" => |s| s.contains(':') && s.parse::<Ipv6Addr>().is_ok(),
        "cidr" => is_cidr,
        "mac" => is_mac,
        "uuid" => |s| is_uuid(s, None, false),
        "uuid3" => |s| is_uuid(s, Some(b'3'), false),
        "uuid4" => |s| is_uuid(s, Some(b'4'), true),
        "uuid5" => |s| is_uuid(s, Some(b'5'), true),
        "isbn" => |s| is_isbn10(s) || is_isbn13(s),
        "isbn10" => is_isbn10,
        "isbn13" => is_isbn13,
        "creditcard" => is_credit_card,
        "ssn" => is_ssn,
        "hexcolor" => |s| {
            let digits = s.strip_prefix('#').unwrap_or(s);
            matches!(digits.len(), 3 | 6) && digits.bytes().all(|b| b.is_ascii_hexdigit())
        },
        "rgbcolor" => is_rgb_color,
        "byte" => is_base64,
        "password" => |_| true,
        "date" => is_date,
        "duration" => is_duration,
        "datetime" => is_date_time,
        "k8sshortname" => |s| s.len() <= 63 && is_label(s),
        "k8slongname" => |s| s.len() <= 253 && s.split('.').all(is_label),
        _ => return None,
    })
}

fn is_label(s: &str) -> bool {
    let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    let bytes = s.as_bytes();
    match (bytes.first(), bytes.last()) {
        (Some(first), Some(last)) => {
            plain(*first) && plain(*last) && bytes.iter().all(|b| plain(*b) || *b == b'-')
        }
        _ => false,
    }
}

/// As Go's `url.ParseRequestURI`: an absolute path, or anything with a scheme.
fn is_request_uri(s: &str) -> bool {
    if s.is_empty() || s.bytes().any(|b| b < 0x20 || b == 0x7f) {
        return false;
    }
    if s == "*" {
        return true;
    }
    let mut scheme = "";
    for (index, byte) in s.bytes().enumerate() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' => {}
            b'0'..=b'9' | b'+' | b'-' | b'.' if index > 0 => {}
            b':' if index > 0 => {
                scheme = &s[..index];
                break;
            }
            b':' => return false,
            _ => break,
        }
    }
    let rest = if scheme.is_empty() {
        s
    } else {
        &s[scheme.len() + 1..]
    };
    let rest = rest.split('?').next().unwrap_or_default();
    if !rest.starts_with('/') {
        return !scheme.is_empty();
    }
    let mut path = rest;
    if let Some(behind) = rest.strip_prefix("//")
        && !scheme.is_empty()
    {
        let (authority, tail) = behind.split_at(behind.find('/').unwrap_or(behind.len()));
        path = tail;
        let host = authority.rsplit('@').next().unwrap_or_default();
        if !is_host(host) {
            return false;
        }
    }
    percents_are_right(path)
}

fn percents_are_right(s: &str) -> bool {
    let bytes = s.as_bytes();
    bytes
        .iter()
        .enumerate()
        .filter(|(_, b)| **b == b'%')
        .all(|(at, _)| {
            bytes
                .get(at + 1..at + 3)
                .is_some_and(|hex| hex.iter().all(u8::is_ascii_hexdigit))
        })
}

fn is_host(s: &str) -> bool {
    let port = match s.strip_prefix('[') {
        Some(inner) => match inner.split_once(']') {
            Some((_, port)) => port,
            None => return false,
        },
        None => s.find(':').map_or("", |at| &s[at..]),
    };
    let port_is_right = port.is_empty()
        || port
            .strip_prefix(':')
            .is_some_and(|digits| digits.bytes().all(|b| b.is_ascii_digit()));
    port_is_right
        && s.bytes()
            .all(|b| !b.is_ascii() || b.is_ascii_alphanumeric() || b"-_.~!$&'()*+,;=:[]<>\"%".contains(&b))
        && percents_are_right(s)
}

/// An address as Go's `mail.ParseAddress` takes it, alone or behind a display name in angle brackets.
fn is_email(s: &str) -> bool {
    let s = s.trim();
    let address = match s.rfind('<') {
        Some(open) => match s[open + 1..].strip_suffix('>') {
            Some(inside) => inside,
            None => return false,
        },
        None => s,
    };
    let Some((local, domain)) = address.rsplit_once('@') else {
        return false;
    };
    let atom = |b: u8| b.is_ascii_alphanumeric() || !b.is_ascii() || b"!#$%&'*+-/=?^_`{|}~".contains(&b);
    let dot_atom = |s: &str| {
        s.split('.')
            .all(|part| !part.is_empty() && part.bytes().all(atom))
    };
    let quoted = local.len() > 2
        && local.starts_with('"')
        && local.ends_with('"')
        && !local[1..local.len() - 1].contains(['"', '\\']);
    let literal = domain.starts_with('[') && domain.ends_with(']') && is_ip(domain.trim_matches(['[', ']']));
    (quoted || dot_atom(local)) && (literal || dot_atom(domain))
}

fn is_hostname(s: &str) -> bool {
    static HOSTNAME: LazyLock<Option<Regex>> = LazyLock::new(|| {
        Regex::new(concat!(
            r"^([a-zA-Z0-9\p{S}\p{L}]((-?[a-zA-Z0-9\p{S}\p{L}]{0,62})?)|",
            r"([a-zA-Z0-9\p{S}\p{L}](([a-zA-Z0-9\-\p{S}\p{L}]{0,61}[a-zA-Z0-9\p{S}\p{L}])?)(\.)){1,}",
            r"([a-zA-Z\p{L}]){2,63})$"
        ))
        .ok()
    });
    s.len() <= 255
        && s.split('.').all(|part| part.len() <= 63)
        && HOSTNAME.as_ref().is_some_and(|regex| regex.is_match(s))
}

/// Four numbers, leading zeros allowed.
fn parse_ipv4(s: &str) -> Option<Ipv4Addr> {
    let mut octets = [0_u8; 4];
    let mut parts = s.split('.');
    for octet in &mut octets {
        let part = parts.next()?;
        if part.is_empty() || !part.bytes().all(|b| b.is_ascii_digit()) {
            return None;
        }
        *octet = part.parse().ok()?;
    }
    parts.next().is_none().then(|| octets.into())
}

fn is_ip(s: &str) -> bool {
    parse_ipv4(s).is_some() || s.parse::<Ipv6Addr>().is_ok()
}

fn is_cidr(s: &str) -> bool {
    let Some((address, length)) = s.split_once('/') else {
        return false;
    };
    let max = if parse_ipv4(address).is_some() {
        32
    } else if address.parse::<Ipv6Addr>().is_ok() {
        128
    } else {
        return false;
    };
    length.bytes().all(|b| b.is_ascii_digit()) && length.parse::<u8>().is_ok_and(|length| length <= max)
}

/// 6, 8 or 20 bytes in hex, by `:` or `-`, or in groups of two bytes by `.`.
fn is_mac(s: &str) -> bool {
    let (separator, digits) = match s.as_bytes().get(2) {
        Some(b':') => (':', 2),
        Some(b'-') => ('-', 2),
        _ => ('.', 4),
    };
    let parts: Vec<&str> = s.split(separator).collect();
    matches!(parts.len() * digits, 12 | 16 | 40)
        && parts
            .iter()
            .all(|part| part.len() == digits && part.bytes().all(|b| b.is_ascii_hexdigit()))
}

/// 32 hex digits, with a dash allowed behind the 8th, 12th, 16th and 20th.
fn is_uuid(s: &str, version: Option<u8>, variant: bool) -> bool {
    let mut digits = Vec::with_capacity(32);
    let mut after_dash = false;
    for byte in s.bytes() {
        if byte == b'-' {
            if after_dash || !matches!(digits.len(), 8 | 12 | 16 | 20) {
                return false;
            }
            after_dash = true;
        } else if byte.is_ascii_hexdigit() {
            digits.push(byte.to_ascii_lowercase());
            after_dash = false;
        } else {
            return false;
        }
    }
    digits.len() == 32
        && version.is_none_or(|version| digits[12] == version)
        && (!variant || b"89ab".contains(&digits[16]))
}

fn digits_without(s: &str, dropped: impl Fn(char) -> bool) -> String {
    s.chars().filter(|c| !dropped(*c)).collect()
}

fn is_isbn10(s: &str) -> bool {
    let clean = digits_without(s, |c| c.is_ascii_whitespace() || c == '-');
    let bytes = clean.as_bytes();
    if bytes.len() != 10 || !bytes[..9].iter().all(u8::is_ascii_digit) {
        return false;
    }
    let last = match bytes[9] {
        b'X' => 10,
        digit @ b'0'..=b'9' => u32::from(digit - b'0'),
        _ => return false,
    };
    let sum: u32 = (1..)
        .zip(&bytes[..9])
        .map(|(weight, b)| weight * u32::from(b - b'0'))
        .sum();
    (sum + 10 * last).is_multiple_of(11)
}

fn is_isbn13(s: &str) -> bool {
    let clean = digits_without(s, |c| c.is_ascii_whitespace() || c == '-');
    if clean.len() != 13 || !clean.bytes().all(|b| b.is_ascii_digit()) {
        return false;
    }
    let sum: u32 = clean
        .bytes()
        .enumerate()
        .map(|(at, b)| u32::from(b - b'0') * if at % 2 == 0 { 1 } else { 3 })
        .sum();
    sum.is_multiple_of(10)
}

fn is_credit_card(s: &str) -> bool {
    static CARD: LazyLock<Option<Regex>> = LazyLock::new(|| {
        Regex::new(concat!(
            "^(?:4[0-9]{12}(?:[0-9]{3})?|5[1-5][0-9]{14}|6(?:011|5[0-9][0-9])[0-9]{12}|3[47][0-9]{13}|",
            "3(?:0[0-5]|[68][0-9])[0-9]{11}|(?:2131|1800|35[0-9]{3})[0-9]{11})$"
        ))
        .ok()
    });
    let clean = digits_without(s, |c| !c.is_ascii_digit());
    if !CARD.as_ref().is_some_and(|regex| regex.is_match(&clean)) {
        return false;
    }
    let sum: u32 = clean
        .bytes()
        .rev()
        .enumerate()
        .map(|(at, b)| {
            let digit = u32::from(b - b'0');
            match at % 2 {
                0 => digit,
                _ if digit > 4 => digit * 2 - 9,
                _ => digit * 2,
            }
        })
        .sum();
    sum.is_multiple_of(10)
}

/// `123-45-6789`, by dashes or spaces.
fn is_ssn(s: &str) -> bool {
    let bytes = s.as_bytes();
    bytes.len() == 11
        && bytes.iter().enumerate().all(|(at, b)| match at {
            3 | 6 => matches!(b, b'-' | b' '),
            _ => b.is_ascii_digit(),
        })
}

fn is_rgb_color(s: &str) -> bool {
    let inside = s.strip_prefix("rgb(").and_then(|rest| rest.strip_suffix(')'));
    let Some(inside) = inside else { return false };
    let parts: Vec<&str> = inside
        .split(',')
        .map(|part| part.trim_matches([' ', '\t', '\n', '\r']))
        .collect();
    parts.len() == 3
        && parts
            .iter()
            .all(|part| part.parse::<u8>().is_ok_and(|value| value.to_string() == **part))
}

fn is_base64(s: &str) -> bool {
    let body = s.trim_end_matches('=');
    let padding = s.len() - body.len();
    !s.is_empty()
        && s.len().is_multiple_of(4)
        && padding <= 2
        && body
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b == b'+' || b == b'/')
}

/// `2006-01-02`, a day that there is.
fn is_date(s: &str) -> bool {
    let bytes = s.as_bytes();
    if bytes.len() != 10 || bytes[4] != b'-' || bytes[7] != b'-' {
        return false;
    }
    let number = |range: std::ops::Range<usize>| s.get(range).and_then(|text| text.parse::<u16>().ok());
    let (Some(year), Some(month), Some(day)) = (number(0..4), number(5..7), number(8..10)) else {
        return false;
    };
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let days = match month {
        2 if leap => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        1..=12 => 31,
        _ => return false,
    };
    bytes
        .iter()
        .enumerate()
        .all(|(at, b)| at == 4 || at == 7 || b.is_ascii_digit())
        && (1..=days).contains(&day)
}

fn is_date_time(s: &str) -> bool {
    static CLOCK: LazyLock<Option<Regex>> = LazyLock::new(|| {
        Regex::new(r"^([0-9]{2}):([0-9]{2}):([0-9]{2})(.[0-9]+)?(z|([+-][0-9]{2}:[0-9]{2}))$").ok()
    });
    let lower = s.to_lowercase();
    let mut parts = lower.split('t');
    let (Some(date), Some(clock)) = (parts.next(), parts.next()) else {
        return false;
    };
    let Some(found) = CLOCK.as_ref().and_then(|regex| regex.captures(clock)) else {
        return false;
    };
    is_date(date) && &found[1] <= "23" && &found[2] <= "59" && &found[3] <= "59"
}

/// A Go duration, or numbers with units in words (`2 days`).
fn is_duration(s: &str) -> bool {
    const UNITS: &[&str] = &["ns", "us", "\u{b5}s", "ms", "s", "m", "h", "hr", "d", "w", "wk"];
    const PREFIXES: &[&str] = &["nano", "micro", "milli", "sec", "min", "hour", "day", "week"];
    if GoDuration::parse(s).is_ok() {
        return true;
    }
    let mut rest = s;
    let mut found = false;
    while let Some(start) = rest.find(|c: char| c.is_ascii_digit()) {
        rest = &rest[start..];
        let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        let number = &rest[..digits];
        rest = rest[digits..].trim_start();
        let end = rest
            .find(|c: char| !c.is_ascii_alphabetic() && c != '\u{b5}')
            .unwrap_or(rest.len());
        if end == 0 {
            continue;
        }
        if number.parse::<i64>().is_err() {
            return false;
        }
        let unit = rest[..end].to_lowercase();
        found |= UNITS.contains(&unit.as_str()) || PREFIXES.iter().any(|prefix| unit.starts_with(prefix));
        rest = &rest[end..];
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(format: &str, yes: &[&str], no: &[&str]) {
        let is = find(format).unwrap();
        for text in yes {
            assert!(is(text), "{format} {text:?}");
        }
        for text in no {
            assert!(!is(text), "{format} {text:?}");
        }
    }

    #[test]
    fn formats_accept_and_refuse() {
        check("bsonobjectid", &["507f1f77bcf86cd799439011"], &["", "507f"]);
        check(
            "uri",
            &["http://a.b/c?d#e", "/a", "x:y", "https://[::1]:80/"],
            &["", "not a uri", "a/b", "http://a b/", "http://a:b/", "/%zz", ":x"],
        );
        check(
            "email",
            &["a@b.c", "A B <a.b@c>"],
            &["x", "@b", "a@", "a..b@c", "a b@c", ""],
        );
        check(
            "hostname",
            &["a", "a.example.com", "1.co"],
            &["", "-a", "a_b", "a..b"],
        );
        check(
            "ipv4",
            &["1.2.3.4", "001.2.3.4"],
            &["1.2.3", "1.2.3.256", "::1", ""],
        );
        check("ipv6", &["::1", "fe80::1"], &["1.2.3.4", ":::", ""]);
        check(
            "cidr",
            &["10.0.0.0/8", "::/0"],
            &["10.0.0.0", "10.0.0.0/33", "x/8", "::/129"],
        );
        check(
            "mac",
            &["00:11:22:33:44:55", "0011.2233.4455"],
            &["", "00:11", "00:11:22:33:44:5g"],
        );
        check(
            "uuid",
            &["123E4567-e89b-12d3-a456-426614174000"],
            &["123", "", "g23e4567e89b12d3a456426614174000"],
        );
        check(
            "uuid4",
            &["123e4567-e89b-42d3-a456-426614174000"],
            &["123e4567-e89b-12d3-a456-426614174000"],
        );
        check(
            "isbn",
            &["0321751043", "978-0321751041"],
            &["0321751044", "9780321751042", ""],
        );
        check("creditcard", &["4111 1111 1111 1111"], &["4111111111111112", ""]);
        check("ssn", &["111-22-3333"], &["111223333", ""]);
        check("hexcolor", &["#fff", "A0b1C2"], &["#ff", "ggg", ""]);
        check(
            "rgbcolor",
            &["rgb(1, 2,255)"],
            &["rgb(1,2)", "rgb(01,2,3)", "rgb(1,2,256)"],
        );
        check("byte", &["aGk=", "aGkh"], &["***", "", "aGk", "a==="]);
        check(
            "date",
            &["2020-02-29"],
            &["2020-02-30", "2021-02-29", "20-01-01", "2020-1-1", ""],
        );
        check(
            "date-time",
            &["2014-12-15T19:30:20.000Z", "2014-12-15t19:30:20+01:00"],
            &["2020-13-01", "2014-12-15T24:00:00Z", ""],
        );
        check(
            "duration",
            &["5s", "22 ns", "2 days", "1h5m"],
            &["5 fortnights", "", "x"],
        );
        check("k8s-short-name", &["a-b"], &["a.b", "A", "-a", ""]);
        check("k8s-long-name", &["a-b.c"], &["a..b", "A", ""]);
        assert!(find("nonsense").is_none());
    }
}
