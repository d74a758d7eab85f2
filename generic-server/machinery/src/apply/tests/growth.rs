//! The cost of updates and applies, and the bounds on their error texts.

use super::*;
use crate::limits;

/// `managedFields` of so many managers that each applied one key of `data`.
fn one_key_each(managers: usize) -> Value {
    (0..managers)
        .map(|n| {
            json!({"manager": format!("m{n}"), "operation": "Apply", "apiVersion": "v1", "fieldsType": "FieldsV1",
                "fieldsV1": {"f:data": {format!("f:k{n}"): {}}}})
        })
        .collect()
}

/// A ConfigMap whose keys are each owned by another manager.
fn shared(keys: usize, value: &str) -> Value {
    let data: Map<String, Value> = (0..keys).map(|n| (format!("k{n}"), value.into())).collect();
    json!({"apiVersion": "v1", "kind": "ConfigMap", "data": data,
        "metadata": {"name": "a", "uid": "u", "managedFields": one_key_each(keys)}})
}

#[test]
fn work_is_linear_in_managers_and_their_fields() {
    let server = Server::config_map();
    // All keys change, and all managers lose theirs.
    crate::steps::check_growth(100, |size| {
        let (live, mut new, server) = (shared(size, "old"), shared(size, "new"), &server);
        move || {
            server.run("writer", "", |versions, options| {
                update(Some(&live), &mut new, versions, options);
            });
            assert_eq!(
                managed_fields(&new).and_then(Value::as_array).map(Vec::len),
                Some(1)
            );
        }
    });
    // One manager applies all keys, then another set of them.
    crate::steps::check_growth(100, |size| {
        let (live, server) = (shared(size, "old"), &server);
        let patch = |value: &str| {
            let mut patch = shared(size, value);
            patch["metadata"].as_object_mut().unwrap().remove("managedFields");
            patch
        };
        let (first, mut second) = (patch("new"), patch("newer"));
        let second_data = second["data"].as_object_mut().unwrap();
        *second_data = std::mem::take(second_data).into_iter().step_by(2).collect();
        move || {
            server.run("m0", "", |versions, options| {
                let applied = apply(Some(&live), &first, versions, options, true).unwrap();
                let applied = apply(Some(&applied.object), &second, versions, options, true).unwrap();
                assert_eq!(applied.object["data"].as_object().map(Map::len), Some(size / 2));
            });
        }
    });
}

#[test]
fn conflicts_are_listed_up_to_a_figure() {
    let mut server = Server::config_map();
    let refusal = |server: &mut Server, keys: usize| {
        server.live = Some(shared(keys, "old"));
        let mut patch = shared(keys, "new");
        patch["metadata"] = json!({"name": "a"});
        server.try_apply("writer", patch, false).unwrap_err()
    };
    let causes = |error: &ApiError| error.details().map_or(0, |details| details.causes.len());
    let all = refusal(&mut server, limits::CAUSES);
    assert_eq!(causes(&all), limits::CAUSES);
    assert!(
        all.message()
            .starts_with("Apply failed with 100 conflicts: conflicts with \"m0\":\n- .data.k0\n")
    );
    assert!(all.message().ends_with("conflicts with \"m99\":\n- .data.k99"));
    let cut = refusal(&mut server, limits::CAUSES + 1);
    assert_eq!(causes(&cut), limits::CAUSES);
    assert!(cut.message().starts_with("Apply failed with 101 conflicts: "));
    assert!(cut.message().ends_with("\nand 1 more"), "{cut}");
}

#[test]
fn faults_of_a_configuration_are_listed_up_to_a_figure() {
    let faults = |count: usize| {
        let data: Map<String, Value> = (0..count).map(|n| (format!("k{n}"), json!([]))).collect();
        let error = Server::config_map()
            .try_apply("a", cm(data.into()), false)
            .unwrap_err();
        error.message().lines().map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(faults(limits::CAUSES).len(), 1 + limits::CAUSES);
    let cut = faults(limits::CAUSES + 5);
    assert_eq!(cut.len(), 2 + limits::CAUSES);
    assert_eq!(cut[limits::CAUSES + 1], "  and 5 more");
}

#[test]
fn paths_are_rendered_only_when_shown() {
    let server = Server::config_map();
    let config = |count: usize| {
        let long = "k".repeat(1 << 16);
        let inner: Map<String, Value> = (0..count).map(|n| (format!("k{n}"), json!([1]))).collect();
        server.complete(json!({"metadata": {"name": "a"}, "data": {long: inner}}))
    };
    for size in [1_000, 2_000] {
        let config = config(size);
        let steps = crate::steps::of(|| {
            assert!(fields::validate(Ty::root(server.schema.root()), &config, Duplicates::Refused).is_err());
            assert!(overlay(&json!({}), &config, server.schema.root()).is_err());
        });
        assert!(steps < 10 * limits::CAUSES, "{steps}");
    }
}

#[test]
fn a_deep_merge_copies_each_value_once() {
    let nested = |leaf: Value| (0..200).fold(leaf, |inner, _| json!({ "a": inner }));
    let many: Value = (0..1_000)
        .map(|n| (format!("k{n}"), json!(n)))
        .collect::<Map<_, _>>()
        .into();
    let (live, config) = (nested(many), nested(json!({"x": 1})));
    let steps = crate::steps::of(|| merge::merge(Ty::Deduced, &live, &config).unwrap());
    assert!(steps < 3_000, "{steps}");
}

#[test]
fn a_deep_comparison_looks_at_each_value_a_few_times() {
    let nested =
        |leaf: Value| (0..200).fold(leaf, |inner, _| json!({"a": {"n": 1}, "b": inner, "c": {"n": 1}}));
    let many = |last: &str| -> Value {
        let members = (0..1_000).map(|n| (format!("k{n}"), json!(n)));
        members
            .chain([("z".into(), last.into())])
            .collect::<Map<_, _>>()
            .into()
    };
    let (old, new) = (nested(many("old")), nested(many("new")));
    let (old, new) = (Side::Some(&old), Side::Some(&new));
    let steps = crate::steps::of(|| {
        let difference = compare(View::Merged, Ty::Deduced, old, new).unwrap();
        assert_eq!((difference.modified.len(), difference.added.len()), (1, 0));
    });
    assert!(steps < 4_000, "{steps}");
}
