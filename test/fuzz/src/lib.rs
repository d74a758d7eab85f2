//! Fuzz targets: a plain function for each parser that reads a client's or an operator's bytes. Each gives up where a property does not
//! hold, by a panic: that is what a fuzzer looks for.
//!
//! `cargo test -p fuzz-targets` replays `corpus/TARGET/*` and some thousand mutations that are the same on every run; `libfuzzer/` has the
//! same targets for libFuzzer, and the program `rotate` runs them without it.

mod access;
mod authorizers;
mod decoders;
mod expressions;
mod issuers;
mod mutate;
mod patches;
mod requests;
mod streams;

pub use access::{admission, certificates, egress, encryption, kubeconfig, tokens};
pub use authorizers::{abac, audit_policy, authorization, match_conditions};
pub use decoders::{cbor, json, protobuf, typed, yaml};
pub use expressions::{cel, field_selector, jsonpath, label_selector, pattern, quantity, time};
pub use issuers::{authentication, jwks, jws};
pub use mutate::Mutator;
pub use patches::{apply, json_patch, merge_patch, strategic_patch};
pub use requests::{request, request_info};
pub use streams::{spdy, websocket};

/// A target.
#[derive(Debug, Clone, Copy)]
pub struct Target {
    /// Its name, which is that of its corpus.
    pub name: &'static str,
    /// Runs the target on an input.
    pub run: fn(&[u8]),
    /// Mutations in a test; those that start much do fewer.
    pub rounds: usize,
}

/// All targets.
pub const TARGETS: &[Target] = &[
    target("json", json, 3_000),
    target("typed", typed, 3_000),
    target("yaml", yaml, 3_000),
    target("protobuf", protobuf, 3_000),
    target("cbor", cbor, 3_000),
    target("json_patch", json_patch, 2_000),
    target("merge_patch", merge_patch, 2_000),
    target("strategic_patch", strategic_patch, 2_000),
    target("apply", apply, 2_000),
    target("label_selector", label_selector, 3_000),
    target("field_selector", field_selector, 3_000),
    target("quantity", quantity, 3_000),
    target("pattern", pattern, 1_000),
    target("time", time, 3_000),
    target("jsonpath", jsonpath, 3_000),
    target("cel", cel, 1_000),
    target("certificates", certificates, 1_000),
    target("kubeconfig", kubeconfig, 1_000),
    target("tokens", tokens, 1_000),
    target("admission", admission, 1_000),
    target("encryption", encryption, 300),
    target("jws", jws, 3_000),
    target("jwks", jwks, 3_000),
    target("authentication", authentication, 500),
    target("abac", abac, 3_000),
    target("authorization", authorization, 1_000),
    target("match_conditions", match_conditions, 1_000),
    target("audit_policy", audit_policy, 1_000),
    target("egress", egress, 500),
    target("spdy", spdy, 3_000),
    target("websocket", websocket, 3_000),
    target("request_info", request_info, 3_000),
    target("request", request, 300),
];

const fn target(name: &'static str, run: fn(&[u8]), rounds: usize) -> Target {
    Target { name, run, rounds }
}

/// Two parts of an input: the bytes before the first NUL, and those behind it.
fn halves(data: &[u8]) -> (&[u8], &[u8]) {
    let at = data.iter().position(|byte| *byte == 0).unwrap_or(data.len());
    (&data[..at], data.get(at + 1..).unwrap_or_default())
}

/// Nodes and bytes of text of a value: its memory, but for a factor.
fn weight(value: &serde_json::Value) -> usize {
    use serde_json::Value;
    let mut weight = 0;
    let mut rest = vec![value];
    while let Some(value) = rest.pop() {
        weight += 1;
        match value {
            Value::String(text) => weight += text.len(),
            Value::Array(items) => rest.extend(items),
            Value::Object(map) => {
                weight += map.keys().map(String::len).sum::<usize>();
                rest.extend(map.values());
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }
    weight
}

#[cfg(test)]
mod tests;
