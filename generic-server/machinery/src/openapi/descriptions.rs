//! What documents say of built-in types and no pass over objects needs: texts, packed into the binary by the build script,
//! and enumerations.

use std::collections::HashMap;
use std::io::Read;

static ENUMERATIONS: &str = include_str!("../facts/enums.facts");

static PACKED: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/descriptions.deflate"));

/// The texts, unpacked. About a megabyte: keep it only while documents are being made.
#[derive(Debug, Default)]
pub struct Descriptions {
    types: HashMap<String, Texts>,
    /// The values of an enumeration, by `type.field`, without the `io.k8s.` that all types begin with.
    enumerations: HashMap<&'static str, &'static str>,
}

#[derive(Debug, Default)]
struct Texts {
    text: String,
    fields: HashMap<String, String>,
}

impl Descriptions {
    /// Unpacks the texts. Empty when the crate was built without them.
    pub fn unpack() -> Self {
        let mut text = String::new();
        if flate2::read::DeflateDecoder::new(PACKED)
            .read_to_string(&mut text)
            .is_err()
        {
            text.clear();
        }
        let mut types: HashMap<String, Texts> = HashMap::new();
        let mut current = String::new();
        for line in text.lines() {
            if let Some(field) = line.strip_prefix('\t') {
                if let (Some((name, text)), Some(texts)) = (field.split_once('\t'), types.get_mut(&current)) {
                    texts.fields.insert(name.to_owned(), plain(text));
                }
            } else if let Some((name, text)) = line.split_once('\t') {
                current = name.to_owned();
                let texts = Texts {
                    text: plain(text),
                    fields: HashMap::new(),
                };
                types.insert(current.clone(), texts);
            }
        }
        Descriptions {
            types,
            enumerations: enumerations().collect(),
        }
    }

    /// The values that a string field, its items or its members may have, where they are enumerated.
    pub fn values_of(&self, name: &str, field: &str) -> Option<Vec<&'static str>> {
        let key = format!("{}.{field}", name.strip_prefix("io.k8s.")?);
        Some(self.enumerations.get(&*key)?.split('|').collect())
    }

    /// The text of a type.
    pub fn of_type(&self, name: &str) -> Option<&str> {
        let texts = self.types.get(name)?;
        Some(texts.text.as_str()).filter(|text| !text.is_empty())
    }

    /// The text of a field of a type.
    pub fn of_field(&self, name: &str, field: &str) -> Option<&str> {
        let text = self.types.get(name)?.fields.get(field)?;
        Some(text.as_str()).filter(|text| !text.is_empty())
    }
}

/// The fields of the table, each with its values.
pub(super) fn enumerations() -> impl Iterator<Item = (&'static str, &'static str)> {
    let lines = ENUMERATIONS.lines().filter(|line| !line.starts_with('#'));
    lines
        .filter_map(|line| line.split_once('\t'))
        .flat_map(|(values, fields)| fields.split(' ').map(move |field| (field, values)))
}

fn plain(escaped: &str) -> String {
    if !escaped.contains('\\') {
        return escaped.to_owned();
    }
    let mut out = String::with_capacity(escaped.len());
    let mut chars = escaped.chars();
    while let Some(c) = chars.next() {
        match (c, c == '\\') {
            (_, true) => match chars.next() {
                Some('n') => out.push('\n'),
                Some('t') => out.push('\t'),
                Some(other) => out.push(other),
                None => {}
            },
            (plain, false) => out.push(plain),
        }
    }
    out
}
