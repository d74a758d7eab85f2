//! The `Accept` header, read and ranked as goautoneg does it.

use machinery::limits::ACCEPT_CLAUSES;

/// One alternative.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Clause<'a> {
    pub(super) kind: &'a str,
    pub(super) subtype: &'a str,
    quality: f32,
    params: Vec<(&'a str, &'a str)>,
}

impl<'a> Clause<'a> {
    pub(super) fn param(&self, name: &str) -> Option<&'a str> {
        // Of a parameter given twice the last counts.
        self.params
            .iter()
            .rev()
            .find(|(k, _)| *k == name)
            .map(|(_, v)| *v)
    }

    fn before(&self, other: &Self) -> bool {
        self.quality > other.quality
            || (self.kind != "*" && other.kind == "*")
            || (self.subtype != "*" && other.subtype == "*")
    }
}

/// The alternatives, best first.
pub(super) fn parse(header: &str) -> impl Iterator<Item = Clause<'_>> {
    let parts = header.split(',').take(ACCEPT_CLAUSES);
    let mut read = parts.filter_map(|part| clause(part.trim_matches(' ')));
    // Without wildcards and qualities the order is the client's, and the first is most often taken: the others stay unread.
    let ordered = !header.bytes().any(|byte| matches!(byte, b'*' | b'q'));
    let mut ranked = match ordered {
        true => Vec::new(),
        false => rank(&mut read),
    }
    .into_iter();
    std::iter::from_fn(move || if ordered { read.next() } else { ranked.next() })
}

fn rank<'a>(read: impl Iterator<Item = Clause<'a>>) -> Vec<Clause<'a>> {
    let mut clauses: Vec<Clause<'_>> = Vec::new();
    for clause in read {
        // Insertion, as upstream's sort does for so few: its order is not transitive, so the way matters.
        let mut at = clauses.len();
        while at > 0 && clause.before(&clauses[at - 1]) {
            at -= 1;
        }
        clauses.insert(at, clause);
    }
    clauses
}

fn clause(part: &str) -> Option<Clause<'_>> {
    let mut pieces = part.split(';');
    let media = pieces.next().unwrap_or_default();
    let (kind, subtype) = match media.split_once('/') {
        Some((_, subtype)) if subtype.contains('/') => return None,
        Some((kind, subtype)) if !subtype.is_empty() => (kind.trim_matches(' '), subtype.trim_matches(' ')),
        _ if media.trim_matches([' ', '/']) == "*" => ("*", "*"),
        _ => return None,
    };
    let mut clause = Clause {
        kind,
        subtype,
        quality: 1.0,
        params: Vec::new(),
    };
    for piece in pieces.take(ACCEPT_CLAUSES) {
        let Some((key, value)) = piece.split_once('=') else {
            continue;
        };
        if value.is_empty() || value.contains('=') {
            continue;
        }
        match key.trim_matches(' ') {
            "q" => clause.quality = value.parse().unwrap_or_default(),
            key => clause.params.push((key, value.trim_matches(' '))),
        }
    }
    Some(clause)
}

/// Whether a route that produces `offers` is considered at all: the types are compared without parameters, and only `*/*`
/// is a wildcard. No header takes everything.
pub(super) fn produces(header: &str, offers: &[&str]) -> bool {
    header.is_empty()
        || header.split(',').any(|part| {
            let media = part.split(';').next().unwrap_or_default().trim_matches(' ');
            media == "*/*" || offers.contains(&media)
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parsed_media_types_are_bounded() {
        let clauses = |count: usize| parse(&vec!["a/b"; count].join(",")).count();
        assert_eq!(clauses(ACCEPT_CLAUSES), ACCEPT_CLAUSES);
        assert_eq!(clauses(ACCEPT_CLAUSES + 1), ACCEPT_CLAUSES);
        let params = |count: usize| {
            let header = format!("a/b{}", ";c=d".repeat(count));
            parse(&header).map(|clause| clause.params.len()).sum::<usize>()
        };
        assert_eq!(params(ACCEPT_CLAUSES), ACCEPT_CLAUSES);
        assert_eq!(params(250_000), ACCEPT_CLAUSES);
    }
}
