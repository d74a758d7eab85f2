//! The parts of URLs as Go's `net/url` reads them, with its errors.

use crate::{Quoted, quote};

/// The scheme of a URL in lower case, and what is behind its colon; without a scheme an empty one and the whole.
///
/// # Errors
/// There is a colon, and nothing before it.
pub fn scheme(raw: &str) -> Result<(String, &str), &'static str> {
    for (at, c) in raw.char_indices() {
        match c {
            'a'..='z' | 'A'..='Z' => {}
            '0'..='9' | '+' | '-' | '.' if at > 0 => {}
            ':' if at == 0 => return Err("missing protocol scheme"),
            ':' => return Ok((raw[..at].to_ascii_lowercase(), &raw[at + 1..])),
            _ => break,
        }
    }
    Ok((String::new(), raw))
}

/// Whether a URL may have this host, with or without a port.
///
/// # Errors
/// Why not.
pub fn check_host(host: &str) -> Result<(), String> {
    let port = match host.strip_prefix('[') {
        Some(rest) => {
            let Some((_, port)) = rest.split_once(']') else {
                return Err("missing ']' in host".to_string());
            };
            port
        }
        None => host.rfind(':').map_or("", |at| &host[at..]),
    };
    let digits = port.strip_prefix(':').unwrap_or(port);
    if !port.is_empty() && !port.starts_with(':') || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return Err(format!("invalid port {} after host", Quoted(port)));
    }
    let odd = |c: char| matches!(c, ' ' | '"' | '<' | '>' | '\\' | '^' | '`' | '{' | '}' | '|');
    if let Some(c) = host.chars().find(|c| odd(*c)) {
        return Err(format!(
            "invalid character {} in host name",
            quote(&c.to_string())
        ));
    }
    match bad_escape(host) {
        Some(escape) => Err(format!("invalid URL escape {}", Quoted(escape))),
        None => Ok(()),
    }
}

/// The first percent sign that begins no escape, with what follows it.
pub fn bad_escape(text: &str) -> Option<&str> {
    text.match_indices('%').find_map(|(at, _)| {
        let escape = text.get(at..at + 3);
        match escape {
            Some(escape) if escape[1..].bytes().all(|b| b.is_ascii_hexdigit()) => None,
            Some(escape) => Some(escape),
            None => Some(&text[at..]),
        }
    })
}
