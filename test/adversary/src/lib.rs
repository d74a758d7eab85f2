//! Attacks on a running API server, seen from outside: its answers, its memory, and the latency of other clients.
//!
//! An [`Attack`] is a small value: a name, the finding whose fix it shows, a [`Bound`] and a function. The binary plays all of them
//! and prints a table; `cargo test -p adversary` plays the quick ones against a server in process and looks at codes, sizes and
//! properties, never at times.

mod arena;
pub mod attacks;
mod backend;
mod own;
mod prober;
pub mod report;
mod server;
mod wire;

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;

pub use arena::{Arena, Site};
pub use prober::Strain;
pub use report::play;
pub use server::Server;
pub use wire::{Answer, Credential, Shot, Target};

/// Why an attack could not be played.
pub type Error = Box<dyn std::error::Error + Send + Sync>;

/// The future of an attack's function.
pub type Playing<'a> = Pin<Box<dyn Future<Output = Result<Outcome, Error>> + Send + 'a>>;

/// One attack.
#[derive(Debug, Clone)]
pub struct Attack {
    /// The attack in short.
    pub name: &'static str,
    /// The finding of the review that it belongs to; `held` for attacks that failed then, `access` and `audit` for those that were added later.
    pub finding: &'static str,
    /// The bound that a server has to keep.
    pub bound: Bound,
    /// When and where it can be played.
    pub place: Place,
    /// Plays it.
    pub run: for<'a> fn(&'a Arena) -> Playing<'a>,
}

/// When and where an attack can be played.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// In tests too: each answer is there well within a second when the server holds, and tells by itself whether it did.
    Quick,
    /// In the table only: large, or judged by memory and the times of others.
    Large,
    /// In the table only, beside all others of its sort: it mostly waits.
    Patient,
    /// In the table only, with a server of its own.
    Own,
}

/// The behaviour that a server has to show.
#[derive(Debug, Clone, Copy)]
pub struct Bound {
    /// The codes that it may answer; empty for any that is not a failure of the server.
    pub codes: &'static [u16],
    /// Bytes of its largest answer.
    pub answer: usize,
    /// MiB by which its memory may grow.
    pub memory: f64,
    /// Milliseconds that a request beside the attack may take.
    pub probe: u64,
    /// Seconds after which the attack has to be over.
    pub seconds: u64,
}

/// The observations of an attack.
#[derive(Debug, Default, Clone)]
pub struct Outcome {
    /// How often each code was answered; 0 where the connection ended without an answer.
    pub codes: BTreeMap<u16, usize>,
    /// Bytes of the largest answer.
    pub largest: usize,
    /// The broken property, in words, where codes and sizes do not show it.
    pub broken: Option<String>,
    /// More to say about it.
    pub note: String,
    /// Why it was not played.
    pub skipped: Option<String>,
}

impl Bound {
    /// Any answer of the client's fault or none, a small one, in little memory; no other user waits for more than a second.
    pub const DEFAULT: Bound = Bound {
        codes: &[],
        answer: 512 * 1024,
        memory: 96.0,
        probe: 1_000,
        seconds: 30,
    };

    /// The same with these codes alone.
    #[must_use]
    pub const fn codes(codes: &'static [u16]) -> Self {
        Bound {
            codes,
            ..Self::DEFAULT
        }
    }

    /// The same with larger answers.
    #[must_use]
    pub const fn answer(mut self, bytes: usize) -> Self {
        self.answer = bytes;
        self
    }

    /// The same with more memory.
    #[must_use]
    pub const fn memory(mut self, mib: f64) -> Self {
        self.memory = mib;
        self
    }

    /// The same with more time for the attack itself.
    #[must_use]
    pub const fn seconds(mut self, seconds: u64) -> Self {
        self.seconds = seconds;
        self
    }

    /// The violations of the bound by an outcome's codes and sizes.
    pub fn faults(&self, outcome: &Outcome) -> Vec<String> {
        let mut faults: Vec<String> = outcome.broken.iter().cloned().collect();
        for code in outcome.codes.keys() {
            let allowed = match self.codes {
                [] => (200..500).contains(code),
                codes => codes.contains(code),
            };
            if !allowed {
                faults.push(match code {
                    0 => "no answer".to_string(),
                    code => format!("code {code}"),
                });
            }
        }
        if outcome.largest > self.answer {
            faults.push(format!("an answer of {} bytes", outcome.largest));
        }
        faults
    }

    /// The bound in words.
    pub fn describe(&self) -> String {
        let codes: Vec<String> = self.codes.iter().map(u16::to_string).collect();
        let codes = match codes.is_empty() {
            true => "2xx to 4xx".to_string(),
            false => codes.join(", ").replace(", 0", ", closed"),
        };
        let codes = if codes == "0" { "closed".into() } else { codes };
        format!(
            "{codes}; answer ≤ {} KiB; memory ≤ +{} MiB; others ≤ {} ms; over in {} s",
            self.answer / 1024,
            self.memory,
            self.probe,
            self.seconds,
        )
    }
}

impl Outcome {
    /// One without anything to be seen yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// An attack that was not played.
    pub fn skipped(why: impl Into<String>) -> Self {
        Outcome {
            skipped: Some(why.into()),
            ..Self::default()
        }
    }

    /// Counts an answer.
    pub fn count(&mut self, answer: &Answer) {
        *self.codes.entry(answer.status).or_default() += 1;
        self.largest = self.largest.max(answer.bytes);
    }

    /// Says what broke, the first time.
    pub fn broke(&mut self, what: impl Into<String>) {
        self.broken.get_or_insert_with(|| what.into());
    }

    /// Takes over what another one saw.
    pub fn merge(&mut self, other: Outcome) {
        for (code, count) in other.codes {
            *self.codes.entry(code).or_default() += count;
        }
        self.largest = self.largest.max(other.largest);
        self.broken = self.broken.take().or(other.broken);
        if self.note.is_empty() {
            self.note = other.note;
        }
    }
}

#[cfg(test)]
mod tests;
