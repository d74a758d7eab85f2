//! Go's pattern syntax, rewritten for the `regex` crate where the two differ: `\d`, `\s`, `\w` and `\b` are ASCII in Go, brackets
//! within a class are plain characters, a brace that is no repetition is one too, and `\Q..\E` quotes.

/// Rewrites a pattern, or says in Go's words why it is none.
pub(super) fn translate(pattern: &str) -> Result<String, String> {
    let mut out = String::with_capacity(pattern.len() + 16);
    let mut rest = pattern;
    let mut in_class = false;
    while let Some(c) = rest.chars().next() {
        let eaten = match (c, in_class) {
            ('\\', _) => escape(rest, in_class, &mut out)?,
            ('[', false) => {
                in_class = true;
                open_class(rest, &mut out)
            }
            (_, false) => outside(c, rest, &mut out)?,
            (']', true) => {
                in_class = false;
                out.push(']');
                1
            }
            ('[', true) if rest.starts_with("[:") && rest[2..].contains(":]") => {
                let end = 2 + rest[2..].find(":]").unwrap_or(0) + 2;
                out.push_str(&rest[..end]);
                end
            }
            ('[' | '&' | '~', true) => {
                out.push('\\');
                out.push(c);
                1
            }
            ('-', true) if rest[1..].starts_with('-') => {
                out.push_str("\\-");
                1
            }
            _ => {
                out.push(c);
                c.len_utf8()
            }
        };
        rest = &rest[eaten..];
    }
    Ok(out)
}

/// The opening of a class, with the closing bracket that is a member when it comes first.
fn open_class(rest: &str, out: &mut String) -> usize {
    out.push('[');
    let mut eaten = 1;
    if rest[eaten..].starts_with('^') {
        out.push('^');
        eaten += 1;
    }
    if rest[eaten..].starts_with(']') {
        out.push_str("\\]");
        eaten += 1;
    }
    eaten
}

fn outside(c: char, rest: &str, out: &mut String) -> Result<usize, String> {
    if c == '{' {
        match repetition(rest) {
            Some(text) => {
                let large = text
                    .split(|c: char| !c.is_ascii_digit())
                    .any(|n| n.parse().is_ok_and(|n: u32| n > 1000));
                if large || text.len() > 12 {
                    return Err(format!("invalid repeat count: `{text}`"));
                }
                out.push_str(text);
                return Ok(text.len());
            }
            None => out.push('\\'),
        }
    }
    if c == '(' && rest.starts_with("(?") {
        let flags = rest[2..]
            .find([':', ')', '<', 'P', '=', '!'])
            .map_or("", |end| &rest[2..2 + end]);
        if flags.contains(['x', 'R', 'u']) {
            let end = 2 + flags.find(['x', 'R', 'u']).unwrap_or(0) + 1;
            return Err(format!("invalid or unsupported Perl syntax: `{}`", &rest[..end]));
        }
    }
    out.push(c);
    Ok(c.len_utf8())
}

/// `{n}`, `{n,}` or `{n,m}` at the start.
fn repetition(text: &str) -> Option<&str> {
    let end = text.find('}')?;
    let (low, high) = match text[1..end].split_once(',') {
        Some((low, high)) => (low, high),
        None => (&text[1..end], "0"),
    };
    let digits = |text: &str| text.bytes().all(|b| b.is_ascii_digit());
    (!low.is_empty() && digits(low) && digits(high)).then(|| &text[..=end])
}

/// Translates an escape and gives its length.
fn escape(rest: &str, in_class: bool, out: &mut String) -> Result<usize, String> {
    let Some(c) = rest[1..].chars().next() else {
        return Err("trailing backslash at end of expression: ``".to_string());
    };
    let set = |out: &mut String, inside: &str, negated: bool| {
        let caret = if negated { "^" } else { "" };
        match in_class && !negated {
            true => out.push_str(inside),
            false => out.push_str(&format!("[{caret}{inside}]")),
        }
    };
    match c {
        'd' | 'D' => set(out, "0-9", c == 'D'),
        's' | 'S' => set(out, "\\t\\n\\x0C\\r\\x20", c == 'S'),
        'w' | 'W' => set(out, "0-9A-Za-z_", c == 'W'),
        'b' | 'B' if !in_class => out.push_str(&format!("(?-u:\\{c})")),
        'Q' if !in_class => {
            let body = &rest[2..];
            let end = body.find("\\E").unwrap_or(body.len());
            out.push_str(&regex::escape(&body[..end]));
            return Ok(2 + end + if end < body.len() { 2 } else { 0 });
        }
        'p' | 'P' | 'x' | 'A' | 'z' | 'a' | 'f' | 'n' | 'r' | 't' | 'v' => {
            out.push('\\');
            out.push(c);
        }
        '0'..='7' => {
            let digits = rest[1..]
                .bytes()
                .take(3)
                .take_while(|b| matches!(b, b'0'..=b'7'))
                .count();
            // A single digit other than zero would be a back reference, which Go has not.
            if c != '0' && digits < 2 {
                return Err(format!("invalid escape sequence: `{}`", &rest[..2]));
            }
            let code = u32::from_str_radix(&rest[1..1 + digits], 8).unwrap_or(0);
            out.push_str(&format!("\\x{{{code:x}}}"));
            return Ok(1 + digits);
        }
        c if c.is_ascii_punctuation() => out.push_str(&regex::escape(&c.to_string())),
        c => return Err(format!("invalid escape sequence: `\\{c}`")),
    }
    Ok(1 + c.len_utf8())
}

/// Go's words for why a translated pattern does not compile.
pub(super) fn reason(pattern: &str, error: &regex::Error) -> String {
    let text = error.to_string();
    let from = |start: char| pattern.rfind(start).map_or(pattern, |at| &pattern[at..]);
    if text.contains("unopened group") {
        format!("unexpected ): `{pattern}`")
    } else if text.contains("unclosed group") {
        format!("missing closing ): `{pattern}`")
    } else if text.contains("unclosed character class") {
        format!("missing closing ]: `{}`", from('['))
    } else if text.contains("missing expression") || text.contains("repetition operator") {
        let at = pattern.find(['*', '+', '?']).unwrap_or(0);
        format!(
            "missing argument to repetition operator: `{}`",
            &pattern[at..].chars().take(1).collect::<String>()
        )
    } else if text.contains("look-around") || text.contains("look-ahead") || text.contains("look-behind") {
        let at = pattern.find("(?").unwrap_or(0);
        let length = if pattern[at..].starts_with("(?<") { 4 } else { 3 };
        format!(
            "invalid or unsupported Perl syntax: `{}`",
            pattern[at..].chars().take(length).collect::<String>()
        )
    } else if text.contains("invalid character class range") {
        format!("invalid character class range: `{}`", from('['))
    } else if text.contains("Unicode property") {
        format!("invalid character class range: `{}`", from('\\'))
    } else if text.contains("size limit") {
        "expression too large".to_string()
    } else {
        format!("invalid or unsupported syntax: `{pattern}`")
    }
}

#[cfg(test)]
mod tests {
    use super::super::compile;

    #[test]
    fn patterns_match_as_in_go() {
        let check = |pattern: &str, text: &str, want: bool| {
            assert_eq!(
                compile(pattern).unwrap().is_match(text),
                want,
                "{pattern} on {text}"
            );
        };
        check(r"^\d+$", "42", true);
        check(r"^\d+$", "٤٢", false);
        check(r"^\w$", "é", false);
        check(r"^\D$", "é", true);
        check(r"^[\d-]+$", "4-2", true);
        check(r"^[^\s]+$", "ab", true);
        check(r"^[\W]$", "-", true);
        check(r"\bfoo\b", "a foo", true);
        check("^[[]$", "[", true);
        check("^[]a]+$", "]a", true);
        check("^[^]a]$", "b", true);
        check("^[a&&b]+$", "&a", true);
        check("^[[:alpha:]]+$", "ab", true);
        check("^a{$", "a{", true);
        check("^a{2}$", "aa", true);
        check("^a{,2}$", "a{,2}", true);
        check(r"^\Qa.b\E$", "a.b", true);
        check(r"^\Qa.b\E$", "axb", false);
        check(r"^\<$", "<", true);
        check(r"^\/\-\_$", "/-_", true);
        check(r"^\x41\x{42}\101$", "ABA", true);
        check("(?i)^ab$", "AB", true);
        check("^é.$", "éß", true);
        check(
            r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$",
            "a.b-c",
            true,
        );
    }

    #[test]
    fn errors_have_the_text_of_go() {
        let check = |pattern: &str, want: &str| {
            assert_eq!(
                compile(pattern).unwrap_err().to_string(),
                format!("error parsing regexp: {want}")
            );
        };
        check(")", "unexpected ): `)`");
        check("(a", "missing closing ): `(a`");
        check("x[a", "missing closing ]: `[a`");
        check("*", "missing argument to repetition operator: `*`");
        check("(?=a)", "invalid or unsupported Perl syntax: `(?=`");
        check(r"\q", r"invalid escape sequence: `\q`");
        check("a{1001}", "invalid repeat count: `{1001}`");
        check("a\\", "trailing backslash at end of expression: ``");
        check(r"(\pL{900}){900}", "expression too large");
    }
}
