//! The named formats: `format.dns1123Label().validate(text)`.

use super::url;
use crate::decls::FORMATS;
use crate::scalar::{codec, time as times};

/// A named format, by its place in the list of names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NamedFormat(usize);

const LABEL: &str = "[a-z0-9]([-a-z0-9]*[a-z0-9])?";
const LABEL_MESSAGE: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must \
                             start and end with an alphanumeric character";
const SUBDOMAIN_MESSAGE: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or \
                                 '.', and must start and end with an alphanumeric character";
const LABEL_1035: &str = "[a-z]([-a-z0-9]*[a-z0-9])?";
const LABEL_1035_MESSAGE: &str = "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an \
                                  alphabetic character, and end with an alphanumeric character";
const QUALIFIED: &str = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]";
const QUALIFIED_MESSAGE: &str = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character";
const LABEL_VALUE_MESSAGE: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or \
                                   '.', and must start and end with an alphanumeric character";

impl NamedFormat {
    pub(crate) fn named(name: &str) -> Option<NamedFormat> {
        FORMATS.iter().position(|known| *known == name).map(NamedFormat)
    }

    /// The length of the pattern validation is priced by.
    pub(crate) fn regex_size(self) -> u64 {
        match FORMATS[self.0] {
            "dns1123Label" | "dns1035Label" | "dns1123LabelPrefix" | "dns1035LabelPrefix" => 30,
            "dns1123Subdomain" | "qualifiedName" | "dns1123SubdomainPrefix" => 60,
            "labelValue" => 40,
            "uri" => 1103,
            "uuid" => 76,
            "byte" => 84,
            _ => 76,
        }
    }

    /// The reasons why a text does not have this format.
    pub(crate) fn faults(self, text: &str) -> Vec<String> {
        let masked = mask(text);
        match FORMATS[self.0] {
            "dns1123Label" => label(text),
            "dns1123LabelPrefix" => label(&masked),
            "dns1123Subdomain" => subdomain(text),
            "dns1123SubdomainPrefix" => subdomain(&masked),
            "dns1035Label" => label_1035(text),
            "dns1035LabelPrefix" => label_1035(&masked),
            "qualifiedName" => qualified_name(text),
            "labelValue" => label_value(text),
            "uri" => url::parse(text).err().into_iter().collect(),
            "uuid" => fault(is_uuid(text), "does not match the UUID format"),
            "byte" => fault(
                !text.is_empty() && codec::base64(text).is_some(),
                "invalid base64",
            ),
            "date" => fault(times::parse_date(text).is_some(), "invalid date"),
            _ => fault(is_date_time(text), "invalid datetime"),
        }
    }
}

fn fault(sound: bool, message: &str) -> Vec<String> {
    if sound {
        Vec::new()
    } else {
        vec![message.to_string()]
    }
}

/// A prefix may end in a dash, because something will follow it.
fn mask(text: &str) -> String {
    match text.strip_suffix('-') {
        Some(rest) if !rest.is_empty() => {
            let mut chars = rest.chars();
            chars.next_back();
            format!("{}a", chars.as_str())
        }
        _ => text.to_string(),
    }
}

fn length(text: &str, max: usize) -> Vec<String> {
    fault(text.len() <= max, &format!("must be no more than {max} bytes"))
}

fn with_pattern(message: &str, pattern: &str, examples: &[&str]) -> String {
    let examples: Vec<String> = examples.iter().map(|example| format!("'{example}', ")).collect();
    format!(
        "{message} (e.g. {}regex used for validation is '{pattern}')",
        examples.join(" or ")
    )
}

fn lower(b: u8) -> bool {
    b.is_ascii_lowercase() || b.is_ascii_digit()
}

/// A non-empty text of these bytes whose ends are of the stricter kind.
fn framed(text: &str, inside: fn(u8) -> bool, ends: fn(u8) -> bool) -> bool {
    let bytes = text.as_bytes();
    matches!((bytes.first(), bytes.last()), (Some(first), Some(last)) if ends(*first) && ends(*last))
        && bytes.iter().all(|b| inside(*b))
}

pub(crate) fn is_label(text: &str) -> bool {
    text.len() <= 63 && label_shaped(text)
}

fn label_shaped(text: &str) -> bool {
    framed(text, |b| lower(b) || b == b'-', lower)
}

fn subdomain_shaped(text: &str) -> bool {
    text.split('.').all(label_shaped)
}

pub(crate) fn is_subdomain(text: &str) -> bool {
    text.len() <= 253 && subdomain_shaped(text)
}

fn label(text: &str) -> Vec<String> {
    let mut faults = length(text, 63);
    if !label_shaped(text) {
        faults.push(match subdomain_shaped(text) {
            true => "must not contain dots".to_string(),
            false => with_pattern(LABEL_MESSAGE, LABEL, &["my-name", "123-abc"]),
        });
    }
    faults
}

fn subdomain(text: &str) -> Vec<String> {
    let mut faults = length(text, 253);
    if !subdomain_shaped(text) {
        faults.push(with_pattern(
            SUBDOMAIN_MESSAGE,
            &format!("{LABEL}(\\.{LABEL})*"),
            &["example.com"],
        ));
    }
    faults
}

fn label_1035(text: &str) -> Vec<String> {
    let mut faults = length(text, 63);
    if !label_shaped(text) || !text.starts_with(|c: char| c.is_ascii_lowercase()) {
        faults.push(with_pattern(
            LABEL_1035_MESSAGE,
            LABEL_1035,
            &["my-name", "abc-123"],
        ));
    }
    faults
}

fn name_shaped(text: &str) -> bool {
    framed(
        text,
        |b| b.is_ascii_alphanumeric() || b"-_.".contains(&b),
        |b| b.is_ascii_alphanumeric(),
    )
}

fn qualified_name(text: &str) -> Vec<String> {
    const EXAMPLES: &[&str] = &["MyName", "my.name", "123-abc"];
    let mut faults = Vec::new();
    let parts: Vec<&str> = text.split('/').collect();
    let name = match parts[..] {
        [name] => name,
        [prefix, name] => {
            match prefix.is_empty() {
                true => faults.push("prefix part must be non-empty".to_string()),
                false => faults.extend(
                    subdomain(prefix)
                        .into_iter()
                        .map(|fault| format!("prefix part {fault}")),
                ),
            }
            name
        }
        _ => {
            let message = format!("a valid label key {QUALIFIED_MESSAGE}");
            let pattern = with_pattern(&message, QUALIFIED, EXAMPLES);
            return vec![format!(
                "{pattern} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
            )];
        }
    };
    if name.is_empty() {
        faults.push("name part must be non-empty".to_string());
    } else {
        faults.extend(
            length(name, 63)
                .into_iter()
                .map(|fault| format!("name part {fault}")),
        );
    }
    if !name_shaped(name) {
        faults.push(format!(
            "name part {}",
            with_pattern(QUALIFIED_MESSAGE, QUALIFIED, EXAMPLES)
        ));
    }
    faults
}

fn label_value(text: &str) -> Vec<String> {
    let mut faults = length(text, 63);
    if !text.is_empty() && !name_shaped(text) {
        let pattern = format!("({QUALIFIED})?");
        faults.push(with_pattern(
            LABEL_VALUE_MESSAGE,
            &pattern,
            &["MyValue", "my_value", "12345"],
        ));
    }
    faults
}

fn is_uuid(text: &str) -> bool {
    let mut rest = text;
    for (index, size) in [8, 4, 4, 4, 12].into_iter().enumerate() {
        if index > 0 {
            rest = rest.strip_prefix('-').unwrap_or(rest);
        }
        match rest.get(..size) {
            Some(part) if part.bytes().all(|b| b.is_ascii_hexdigit()) => rest = &rest[size..],
            _ => return false,
        }
    }
    rest.is_empty()
}

fn is_date_time(text: &str) -> bool {
    let text = text.to_ascii_uppercase();
    let Some((date, time)) = text.split_once('T') else {
        return false;
    };
    let Some((clock, rest)) = time.split_at_checked(8) else {
        return false;
    };
    let bytes = clock.as_bytes();
    let digits = |range: std::ops::Range<usize>| bytes[range].iter().all(u8::is_ascii_digit);
    let clock_sound = digits(0..2) && digits(3..5) && digits(6..8) && bytes[2] == b':' && bytes[5] == b':';
    let in_range = clock_sound && &clock[..2] <= "23" && &clock[3..5] <= "59" && &clock[6..] <= "59";
    let fraction = rest.strip_prefix('.').map_or(0, |digits| {
        1 + digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len())
    });
    let zone = &rest.as_bytes()[fraction..];
    let offset = zone.len() == 6
        && matches!(zone[0], b'+' | b'-')
        && zone[3] == b':'
        && [1, 2, 4, 5].iter().all(|at| zone[*at].is_ascii_digit());
    times::parse_date(date).is_some() && in_range && (zone == b"Z" || offset)
}
