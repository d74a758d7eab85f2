//! The texts of built-in types, packed into the binary by the build script.

use std::collections::HashMap;
use std::io::Read;

static PACKED: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/descriptions.deflate"));

/// The texts, unpacked. About a megabyte: keep it only while documents are being made.
#[derive(Debug, Default)]
pub struct Descriptions {
    types: HashMap<String, Texts>,
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
            return Descriptions::default();
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
        Descriptions { types }
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
