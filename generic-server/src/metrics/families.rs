//! Families of samples that come from many places, each written as a whole.

use std::collections::BTreeMap;

use super::family;

/// Samples by family.
#[derive(Debug, Default)]
pub(crate) struct Families(BTreeMap<&'static str, Samples>);

#[derive(Debug)]
struct Samples {
    kind: &'static str,
    help: &'static str,
    text: String,
}

impl Families {
    /// Where the samples of a family are appended.
    pub(crate) fn of(&mut self, name: &'static str, kind: &'static str, help: &'static str) -> &mut String {
        let samples = self.0.entry(name).or_insert_with(|| Samples {
            kind,
            help,
            text: String::new(),
        });
        &mut samples.text
    }

    /// Appends all families.
    pub(crate) fn write(&self, out: &mut String) {
        for (name, samples) in &self.0 {
            family(out, name, samples.kind, samples.help);
            out.push_str(&samples.text);
        }
    }
}
