//! Why Go's `netip.ParseAddr` refuses a text, in its words.

use go_text::Quoted;

/// The reason of a parse error, and the rest of the text from there on.
type Refusal<'t> = (&'static str, &'t str);

/// The error text for an address that does not parse.
pub(super) fn reason(text: &str) -> String {
    let refusal = match text.find(['.', ':', '%']).map(|at| text.as_bytes()[at]) {
        Some(b'.') => v4(text),
        Some(b':') => v6(text),
        Some(_) => Some(("missing IPv6 address", "")),
        None => None,
    };
    let (why, at) = refusal.unwrap_or(("unable to parse IP", ""));
    match at.is_empty() {
        true => format!("ParseAddr({text}): {why}", text = Quoted(text)),
        false => format!(
            "ParseAddr({text}): {why} (at {at})",
            text = Quoted(text),
            at = Quoted(at)
        ),
    }
}

fn v4(text: &str) -> Option<Refusal<'_>> {
    let bytes = text.as_bytes();
    let (mut value, mut digits, mut fields) = (0u32, 0, 0);
    for (at, b) in bytes.iter().enumerate() {
        match b {
            b'0'..=b'9' => {
                if digits == 1 && value == 0 {
                    return Some(("IPv4 field has octet with leading zero", ""));
                }
                value = value * 10 + u32::from(b - b'0');
                digits += 1;
                if value > 255 {
                    return Some(("IPv4 field has value >255", ""));
                }
            }
            b'.' if at == 0 || at + 1 == bytes.len() || bytes[at - 1] == b'.' => {
                return Some(("IPv4 field must have at least one digit", &text[at..]));
            }
            b'.' if fields == 3 => return Some(("IPv4 address too long", "")),
            b'.' => (value, digits, fields) = (0, 0, fields + 1),
            _ => return Some(("unexpected character", text.get(at..).unwrap_or(""))),
        }
    }
    (fields < 3).then_some(("IPv4 address too short", ""))
}

fn v6(text: &str) -> Option<Refusal<'_>> {
    let mut rest = text;
    if let Some((addr, zone)) = text.split_once('%') {
        if zone.is_empty() {
            return Some(("zone must be a non-empty string", ""));
        }
        rest = addr;
    }
    let mut ellipsis = false;
    if let Some(tail) = rest.strip_prefix("::") {
        ellipsis = true;
        rest = tail;
        if rest.is_empty() {
            return None;
        }
    }
    let mut fields = 0;
    while fields < 8 {
        let digits = rest.bytes().take_while(u8::is_ascii_hexdigit).count();
        if digits == 0 {
            return Some(("each colon-separated field must have at least one digit", rest));
        }
        if digits > 4 {
            return Some(("each group must have 4 or less digits", rest));
        }
        if rest[digits..].starts_with('.') {
            if !ellipsis && fields != 6 {
                return Some((
                    "embedded IPv4 address must replace the final 2 fields of the address",
                    rest,
                ));
            }
            if fields > 6 {
                return Some((
                    "too many hex fields to fit an embedded IPv4 at the end of the address",
                    rest,
                ));
            }
            return v4(rest);
        }
        fields += 1;
        rest = &rest[digits..];
        if rest.is_empty() {
            break;
        }
        match rest.strip_prefix(':') {
            None => return Some(("unexpected character, want colon", rest)),
            Some("") => return Some(("colon must be followed by more characters", rest)),
            Some(tail) => rest = tail,
        }
        if let Some(tail) = rest.strip_prefix(':') {
            if ellipsis {
                return Some(("multiple :: in address", rest));
            }
            ellipsis = true;
            rest = tail;
            if rest.is_empty() {
                break;
            }
        }
    }
    if !rest.is_empty() {
        return Some(("trailing garbage after address", rest));
    }
    match (fields, ellipsis) {
        (8, true) => Some(("the :: must expand to at least one field of zeros", "")),
        (..8, false) => Some(("address string too short", "")),
        _ => None,
    }
}
