//! Takes the texts of the API (what `kubectl explain` shows) out of the sources of `k8s-openapi` and packs them.
//!
//! They are an embellishment: where the sources cannot be had, the crate builds without them and says so.

#[path = "build/source.rs"]
mod source;

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::write::DeflateEncoder;
use serde_json::Value;

fn main() {
    print_directive("cargo::rerun-if-changed=build.rs");
    print_directive("cargo::rerun-if-changed=build/source.rs");
    print_directive("cargo::rerun-if-changed=Cargo.toml");
    let texts = texts().unwrap_or_else(|error| {
        print_directive(&format!(
            "cargo::warning=OpenAPI will have no descriptions: {error}"
        ));
        String::new()
    });
    if let Err(error) = pack(&texts) {
        print_directive(&format!("cargo::error=cannot pack descriptions: {error}"));
    }
}

fn print_directive(line: &str) {
    println!("{line}");
}

/// A line for each type (`name<tab>text`), each followed by lines for its fields (`<tab>name<tab>text`).
fn texts() -> Result<String, String> {
    let here = PathBuf::from(std::env::var_os("CARGO_MANIFEST_DIR").ok_or("no manifest")?);
    let sources = source::source_of(&here, "k8s-openapi")?.join("src/v1_36");
    let mut out = String::new();
    for (name, definition) in source::read(&sources)? {
        let text = |schema: &Value| {
            let text = schema["description"].as_str().unwrap_or_default();
            text.replace('\\', "\\\\")
                .replace('\n', "\\n")
                .replace('\t', "\\t")
        };
        let _ = writeln!(out, "{name}\t{}", text(&definition.schema));
        for (field, schema) in definition.schema["properties"].as_object().into_iter().flatten() {
            let _ = writeln!(out, "\t{field}\t{}", text(schema));
        }
    }
    Ok(out)
}

fn pack(texts: &str) -> std::io::Result<()> {
    let dir = std::env::var_os("OUT_DIR").unwrap_or_default();
    let file = std::fs::File::create(Path::new(&dir).join("descriptions.deflate"))?;
    let mut encoder = DeflateEncoder::new(file, Compression::best());
    encoder.write_all(texts.as_bytes())?;
    encoder.finish()?;
    Ok(())
}
