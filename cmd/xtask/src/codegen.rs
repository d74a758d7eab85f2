//! Makes `machinery`'s table of facts about built-in types from the sources of the `k8s-openapi` and `k8s-pb` crates.
//!
//! Neither crate is compiled: both are dependencies for a platform that does not exist, so cargo fetches their sources and
//! no more. `k8s-openapi` knows JSON names, types, what is required and the kinds; `k8s-pb` knows field numbers and the
//! list, map and patch markers. They are joined by name. Facts that neither has (pointers, fields newer than `k8s-pb`, defaults
//! named by a constant) stand in `facts/supplement.facts`, which is kept by hand and overrides the rest.

#[path = "../../../generic-server/machinery/build/source.rs"]
mod openapi;
mod protobuf;
mod table;

use std::path::Path;

use openapi::source_of;

const OUTPUT: &str = "generic-server/machinery/src/facts/builtin.facts";
const SUPPLEMENT: &str = "generic-server/machinery/src/facts/supplement.facts";

/// Writes the table, or with `check` fails when the committed one differs.
pub(crate) fn run(root: &Path, check: bool) -> Result<(), String> {
    let openapi_dir = source_of(root, "k8s-openapi")?.join("src/v1_36");
    let protobuf_dir = source_of(root, "k8s-pb")?.join("src");
    let types = openapi::read(&openapi_dir)?;
    let messages = protobuf::read(&protobuf_dir)?;
    let supplement = std::fs::read_to_string(root.join(SUPPLEMENT))
        .map_err(|error| format!("cannot read {SUPPLEMENT}: {error}"))?;
    let text = table::join(&types, &messages, &supplement)?;
    let path = root.join(OUTPUT);
    if check {
        let committed = std::fs::read_to_string(&path).unwrap_or_default();
        if committed != text {
            return Err(format!("{OUTPUT} is out of date: run `cargo xtask codegen`"));
        }
        return Ok(());
    }
    std::fs::write(&path, text).map_err(|error| format!("cannot write {OUTPUT}: {error}"))
}
