//! Patches: an object, a NUL, and the patch.

use machinery::apply::{Options, SameShape};
use machinery::{GroupVersionKind, codec, patch};
use serde_json::Value;

use crate::decoders::chosen;
use crate::{halves, weight};

fn parts(data: &[u8]) -> Option<(Value, Value, usize)> {
    let (object, patch) = halves(data);
    let object = codec::json::decode(object).ok()?.value;
    let patch = codec::json::decode_exactly(patch).ok()?.value;
    Some((object, patch, data.len()))
}

/// JSON patch.
pub fn json_patch(data: &[u8]) {
    let Some((object, patch, length)) = parts(data) else {
        return;
    };
    let _ = patch::json::strict_errors(&patch);
    if let Ok(patched) = patch::json::apply(&object, &patch) {
        let copies = machinery::limits::JSON_PATCH_COPY_BYTES;
        assert!(weight(&patched) <= 4 * length + copies, "no more than was copied");
    }
}

/// JSON merge patch.
pub fn merge_patch(data: &[u8]) {
    let Some((object, patch, length)) = parts(data) else {
        return;
    };
    if let Ok(patched) = patch::merge::apply(&object, &patch) {
        assert!(weight(&patched) <= 4 * length + 1, "no more than both");
        let twice = patch::merge::apply(&patched, &patch).expect("what was patched can be patched");
        assert_eq!(twice, patched, "patched once is patched");
    }
}

/// Strategic merge patch of a kind that the first byte chooses.
pub fn strategic_patch(data: &[u8]) {
    let Some((schema, _, _, rest)) = chosen(data) else {
        return;
    };
    let Some((object, patch, length)) = parts(rest) else {
        return;
    };
    if let Ok(patched) = patch::strategic::apply(&object, &patch, schema.root()) {
        assert!(weight(&patched) <= 8 * length + 16, "no more than both");
    }
}

/// Server-side apply of a kind that the first byte chooses, by one manager over what another wrote.
pub fn apply(data: &[u8]) {
    let Some((schema, api_version, kind, rest)) = chosen(data) else {
        return;
    };
    let Some((mut object, mut patch, length)) = parts(rest) else {
        return;
    };
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version.as_str()));
    let gvk = GroupVersionKind::new(group, version, kind);
    let versions = SameShape {
        api_versions: &[&api_version],
        schema: schema.root(),
    };
    let options = |manager| Options {
        manager,
        subresource: "",
        kind: &gvk,
        now: "2026-01-01T00:00:00Z",
        filters: &[],
    };
    for value in [&mut object, &mut patch] {
        let Some(map) = value.as_object_mut() else { return };
        map.insert("apiVersion".into(), api_version.clone().into());
        map.insert("kind".into(), kind.into());
    }
    machinery::apply::update(None, &mut object, &versions, &options("writer"));
    let Ok(applied) = machinery::apply::apply(Some(&object), &patch, &versions, &options("applier"), true)
    else {
        return;
    };
    // Both managers record the paths of their fields, with the keys of list items at each step.
    assert!(
        weight(&applied.object) <= 64 * length + 4_096,
        "no more than both and their owners"
    );
    let again = machinery::apply::apply(
        Some(&applied.object),
        &patch,
        &versions,
        &options("applier"),
        true,
    );
    let again = again.expect("what was applied can be applied");
    assert!(!again.changed, "applied twice is applied once");
}
