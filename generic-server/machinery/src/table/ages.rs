//! Ages in cells. A row says the same for as long as its object does, but for the ages in it: so cells can be made with marks where ages are,
//! kept, and filled in as they are sent.

use std::hash::{BuildHasher, RandomState};
use std::sync::LazyLock;

use crate::time::{Timestamp, age_since};

/// How ages are written into cells.
#[derive(Debug, Clone, Copy)]
pub struct Ages(Option<Timestamp>);

impl Ages {
    /// As they are at a moment.
    pub fn at(moment: Timestamp) -> Self {
        Ages(Some(moment))
    }

    /// As they are now.
    pub fn now() -> Self {
        Ages::at(Timestamp::now())
    }

    /// As marks for [`fill_ages`].
    pub fn marked() -> Self {
        Ages(None)
    }

    /// The age of something of this time (RFC 3339), `<unknown>` when it is none.
    pub fn of(&self, time: Option<&str>) -> String {
        match time.and_then(Timestamp::parse_rfc3339) {
            Some(time) => self.since(time),
            None => age_since(None, Timestamp::from_unix(0)),
        }
    }

    /// The time that has passed since a moment.
    pub fn since(&self, moment: Timestamp) -> String {
        match self.0 {
            Some(now) => now.since(moment).human(),
            None => format!("{}{:016x}", &*MARK, moment.unix()),
        }
    }
}

/// What marks begin with: a character that no text has, and a number that nobody knows, so that no object can contain one.
static MARK: LazyLock<String> = LazyLock::new(|| {
    let number = || RandomState::new().hash_one("ages");
    format!("\u{fdd0}{:016x}{:016x}", number(), number())
});

/// The digits of a mark's moment.
const DIGITS: usize = 16;

/// Appends cells as JSON with their marks filled in; gives the seconds for which they hold, if there were any.
pub fn fill_ages(out: &mut Vec<u8>, cells: &[u8], now: Timestamp) -> Option<i64> {
    let mark = MARK.as_bytes();
    let (mut rest, mut holds) = (cells, None);
    while let Some((before, moment, after)) = split(rest, mark) {
        out.extend_from_slice(before);
        let age = now.since(moment);
        out.extend_from_slice(age.human().as_bytes());
        let seconds = age.human_holds();
        holds = Some(holds.map_or(seconds, |least: i64| least.min(seconds)));
        rest = after;
    }
    out.extend_from_slice(rest);
    holds
}

/// What is before the first mark, its moment, and what is after it.
fn split<'t>(text: &'t [u8], mark: &[u8]) -> Option<(&'t [u8], Timestamp, &'t [u8])> {
    let mut from = 0;
    loop {
        let at = from
            + text
                .get(from..)?
                .iter()
                .position(|byte| Some(byte) == mark.first())?;
        let moment = text[at..]
            .strip_prefix(mark)
            .and_then(|rest| rest.split_at_checked(DIGITS));
        if let Some((digits, after)) = moment
            && let Some(seconds) = std::str::from_utf8(digits)
                .ok()
                .and_then(|d| u64::from_str_radix(d, 16).ok())
        {
            return Some((&text[..at], Timestamp::from_unix(seconds.cast_signed()), after));
        }
        from = at + 1;
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// Cells that are made with marks and filled in are those that are made at once.
    #[track_caller]
    fn check(times: &[Option<&str>], now: i64) {
        let now = Timestamp::from_unix(now);
        let cells = |ages: Ages| -> Value {
            let cell = |time: &Option<&str>| format!("\u{fdd0} 3 ({} ago) ï \"", ages.of(*time));
            times.iter().map(cell).collect::<Vec<_>>().into()
        };
        let mut filled = Vec::new();
        let holds = fill_ages(&mut filled, cells(Ages::marked()).to_string().as_bytes(), now);
        assert_eq!(
            String::from_utf8(filled).ok(),
            Some(cells(Ages::at(now)).to_string())
        );
        let known = times
            .iter()
            .flatten()
            .any(|time| Timestamp::parse_rfc3339(time).is_some());
        assert_eq!(holds.is_some(), known);
    }

    #[test]
    fn marks_are_filled_in() {
        check(&[], 0);
        check(&[None, Some(""), Some("x")], 5);
        check(
            &[Some("1970-01-01T00:00:10Z"), None, Some("1970-01-01T00:00:00Z")],
            1_000,
        );
        check(
            &[Some("0001-01-01T00:00:00Z"), Some("9999-01-01T00:00:00Z")],
            1_000,
        );
    }

    #[test]
    fn what_looks_like_a_mark_is_none() {
        for text in [
            "",
            "\u{fdd0}",
            "\u{fdd0}00",
            "ï",
            &MARK[..],
            &format!("{}12", &*MARK),
        ] {
            let mut out = Vec::new();
            assert_eq!(
                fill_ages(&mut out, text.as_bytes(), Timestamp::from_unix(0)),
                None
            );
            assert_eq!(out, text.as_bytes());
        }
    }

    #[test]
    fn ages_hold_as_long_as_they_say() {
        let start = Timestamp::from_unix(0);
        for seconds in [
            -5, -1, 0, 1, 119, 120, 599, 600, 601, 10_799, 10_800, 28_799, 28_800, 172_800, 691_199, 691_200,
            70_000_000,
        ] {
            let age = Timestamp::from_unix(seconds).since(start);
            let holds = age.human_holds();
            assert!(holds >= 1, "{seconds}");
            let later = Timestamp::from_unix(seconds + holds - 1).since(start);
            assert_eq!(later.human(), age.human(), "{seconds} for {holds}");
        }
    }

    #[test]
    fn cells_are_json() {
        let cells = json!([Ages::marked().of(Some("1970-01-01T00:00:00Z"))]);
        let mut out = Vec::new();
        fill_ages(
            &mut out,
            cells.to_string().as_bytes(),
            Timestamp::from_unix(7_200),
        );
        assert_eq!(out, b"[\"120m\"]");
    }
}
