//! JSON text with gaps: made once, filled in for each CRD.

use serde_json::Value;

/// The content of a gap.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Slot {
    Group,
    Version,
    Plural,
    Kind,
    ListKind,
    /// `ExampleComV1`, in operation ids.
    Operation,
    /// `exampleCom_v1`.
    Tag,
    /// `com.example.v1`, before the name of a kind.
    Model,
}

const SLOTS: [Slot; 8] = [
    Slot::Group,
    Slot::Version,
    Slot::Plural,
    Slot::Kind,
    Slot::ListKind,
    Slot::Operation,
    Slot::Tag,
    Slot::Model,
];
/// Marks a gap; the number of its slot follows. A control character is in no text of ours.
const MARK: char = '\u{1}';
/// As JSON writes it.
const WRITTEN_MARK: &str = "\\u0001";

impl Slot {
    /// The placeholder of the slot in the value that a template is made of.
    pub(super) fn mark(self) -> String {
        let at = SLOTS.iter().position(|slot| *slot == self).unwrap_or_default();
        format!("{MARK}{at}")
    }
}

/// The contents of the gaps for one version of a CRD, as JSON.
#[derive(Debug)]
pub(super) struct Filling([String; SLOTS.len()]);

impl Filling {
    /// One text for each slot.
    pub(super) fn new(text: impl Fn(Slot) -> String) -> Self {
        Filling(SLOTS.map(|slot| {
            let quoted = Value::from(text(slot)).to_string();
            quoted[1..quoted.len() - 1].to_string()
        }))
    }
}

/// A text with gaps.
#[derive(Debug)]
pub(super) struct Template {
    /// The text before each gap, with the number of its slot.
    gaps: Vec<(Box<str>, usize)>,
    /// The text after the last.
    rest: Box<str>,
}

impl Template {
    /// From JSON in which [`Slot::mark`]s stand for the parts to be filled in.
    pub(super) fn of(value: &Value) -> Self {
        Self::parse(&value.to_string(), WRITTEN_MARK)
    }

    /// From a plain text.
    pub(super) fn of_text(text: &str) -> Self {
        Self::parse(text, &MARK.to_string())
    }

    fn parse(text: &str, mark: &str) -> Self {
        let mut parts = text.split(mark);
        let mut before: Box<str> = parts.next().unwrap_or_default().into();
        let mut gaps = Vec::new();
        for part in parts {
            let slot = part.bytes().next().map_or(0, |digit| usize::from(digit - b'0'));
            gaps.push((std::mem::replace(&mut before, part[1..].into()), slot));
        }
        Template { gaps, rest: before }
    }

    /// The text with its gaps filled.
    pub(super) fn fill(&self, with: &Filling) -> String {
        let length: usize = self
            .gaps
            .iter()
            .map(|(text, slot)| text.len() + with.0[*slot].len())
            .sum();
        let mut out = String::with_capacity(length + self.rest.len());
        for (text, slot) in &self.gaps {
            out.push_str(text);
            out.push_str(&with.0[*slot]);
        }
        out.push_str(&self.rest);
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn gaps_are_filled() {
        let value =
            json!({Slot::Kind.mark(): [format!("a {} of {}", Slot::Model.mark(), Slot::Group.mark()), 1]});
        let filling = Filling::new(|slot| match slot {
            Slot::Kind => "Q\"".to_string(),
            other => format!("{other:?}"),
        });
        let filled = Template::of(&value).fill(&filling);
        let read: Value = serde_json::from_str(&filled).expect("it is JSON");
        assert_eq!(read, json!({"Q\"": ["a Model of Group", 1]}));
        let plain = Template::of_text(&format!("/{}/{}", Slot::Plural.mark(), Slot::Version.mark()));
        assert_eq!(plain.fill(&filling), "/Plural/Version");
        assert_eq!(Template::of_text("none").fill(&filling), "none");
    }
}
