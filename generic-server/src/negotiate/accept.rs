//! The `Accept` header, read and ranked as goautoneg does it.

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

/// The most alternatives that are looked at.
const MOST: usize = 64;

/// The alternatives, best first.
pub(super) fn parse(header: &str) -> impl Iterator<Item = Clause<'_>> {
    let mut clauses: Vec<Clause<'_>> = Vec::new();
    for part in header.split(',').take(MOST) {
        let Some(clause) = clause(part.trim_matches(' ')) else {
            continue;
        };
        // Insertion, as upstream's sort does for so few: its order is not transitive, so the way matters.
        let mut at = clauses.len();
        while at > 0 && clause.before(&clauses[at - 1]) {
            at -= 1;
        }
        clauses.insert(at, clause);
    }
    clauses.into_iter()
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
    for piece in pieces {
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
