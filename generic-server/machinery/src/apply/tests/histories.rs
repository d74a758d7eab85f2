//! Random histories of updates and applies against naive models of ownership.

use proptest::prelude::*;

use super::*;

/// One write of a random history: its manager, operation, data, and force.
#[derive(Debug, Clone)]
struct Write {
    manager: u8,
    apply: bool,
    force: bool,
    data: Vec<(u8, u8)>,
}

fn writes() -> impl Strategy<Value = Vec<Write>> {
    let data = proptest::collection::btree_map(0u8..5, 0u8..3, 0..5);
    let write =
        (0u8..3, any::<bool>(), any::<bool>(), data).prop_map(|(manager, apply, force, data)| Write {
            manager,
            apply,
            force,
            data: data.into_iter().collect(),
        });
    proptest::collection::vec(write, 1..12)
}

/// The rules said plainly: a value and a set of owners per key.
#[derive(Default)]
struct Model {
    keys: std::collections::BTreeMap<u8, (u8, Vec<(u8, bool)>)>,
}

impl Model {
    /// Returns whether the write is accepted.
    fn write(&mut self, write: &Write) -> bool {
        let own = (write.manager, write.apply);
        let differs = |keys: &Model, key: u8, value: u8| keys.keys.get(&key).map(|(v, _)| *v) != Some(value);
        if !write.apply {
            self.keys
                .retain(|key, _| write.data.iter().any(|(k, _)| k == key));
            for (key, value) in &write.data {
                if differs(self, *key, *value) {
                    self.keys.insert(*key, (*value, vec![own]));
                }
            }
            return true;
        }
        let owned_by_others = |(_, owners): &(u8, Vec<(u8, bool)>)| owners.iter().any(|o| *o != own);
        let conflict = write.data.iter().any(|(key, value)| {
            differs(self, *key, *value) && self.keys.get(key).is_some_and(owned_by_others)
        });
        if conflict && !write.force {
            return false;
        }
        self.keys.retain(|key, (_, owners)| {
            let applied = write.data.iter().any(|(k, _)| k == key);
            if applied || !owners.contains(&own) {
                return true;
            }
            owners.retain(|o| *o != own);
            !owners.is_empty()
        });
        for (key, value) in &write.data {
            if differs(self, *key, *value) {
                self.keys.insert(*key, (*value, vec![own]));
            } else if let Some((_, owners)) = self.keys.get_mut(key)
                && !owners.contains(&own)
            {
                owners.push(own);
            }
        }
        true
    }
}

/// The naive model of a list that is a set: the owners of each item. Conflicts are impossible.
#[derive(Default)]
struct SetModel {
    items: std::collections::BTreeMap<u8, std::collections::BTreeSet<(u8, bool)>>,
}

impl SetModel {
    fn write(&mut self, write: &Write) {
        let id = (write.manager, write.apply);
        let sent = |item: &u8| write.data.iter().any(|(k, _)| k == item);
        if write.apply {
            // An item whose last owner gives it up is gone.
            self.items
                .retain(|item, owners| sent(item) || !owners.remove(&id) || !owners.is_empty());
            for (item, _) in &write.data {
                self.items.entry(*item).or_default().insert(id);
            }
        } else {
            self.items.retain(|item, _| sent(item));
            for (item, _) in &write.data {
                self.items.entry(*item).or_insert_with(|| [id].into());
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Any history of updates and applies leaves the data and the owners that the plain rules give.
    #[test]
    fn histories_agree_with_the_model(history in writes()) {
        let mut server = Server::config_map();
        let mut model = Model::default();
        let name = |manager: u8| format!("m{manager}");
        // Somebody always owns something: an object without owners is not tracked until it is applied to.
        server.write("root", json!({"metadata": {"name": "a", "labels": {"root": "1"}}}));
        for write in &history {
            let data: Map<String, Value> =
                write.data.iter().map(|(k, v)| (format!("k{k}"), v.to_string().into())).collect();
            let mut object = json!({"metadata": {"name": "a"}});
            if !data.is_empty() {
                object["data"] = Value::Object(data);
            }
            let taken = if write.apply {
                server.try_apply(&name(write.manager), object, write.force).is_ok()
            } else {
                object["metadata"] = server.live.as_ref().unwrap()["metadata"].clone();
                server.write(&name(write.manager), object);
                true
            };
            prop_assert_eq!(taken, model.write(write));
            let live = server.live.as_ref().unwrap();
            let found: Vec<(String, String)> = live
                .get("data")
                .and_then(Value::as_object)
                .into_iter()
                .flatten()
                .map(|(k, v)| (k.clone(), v.as_str().unwrap().to_owned()))
                .collect();
            let expected: Vec<(String, String)> =
                model.keys.iter().map(|(k, (v, _))| (format!("k{k}"), v.to_string())).collect();
            prop_assert_eq!(found, expected);
            for manager in 0..3 {
                for apply in [false, true] {
                    let entry = server.entry(&name(manager), if apply { "Apply" } else { "Update" });
                    for key in 0..5 {
                        let owns = model.keys.get(&key).is_some_and(|(_, o)| o.contains(&(manager, apply)));
                        let path = format!("f:k{key}");
                        let recorded = entry.is_some_and(|e| e["fieldsV1"]["f:data"].get(&path).is_some());
                        prop_assert_eq!(recorded, owns, "m{} {} {}: {:?}", manager, apply, key, server.live);
                    }
                }
            }
        }
    }
    /// The same of a set: finalizers.
    #[test]
    fn histories_of_sets_agree_with_the_model(history in writes()) {
        let mut server = Server::config_map();
        let mut model = SetModel::default();
        let name = |manager: u8| format!("m{manager}");
        server.write("root", json!({"metadata": {"name": "a", "labels": {"root": "1"}}}));
        for write in &history {
            let items: Vec<Value> = write.data.iter().map(|(k, _)| format!("e.com/k{k}").into()).collect();
            let mut object = json!({"metadata": {"name": "a"}});
            if write.apply {
                if !items.is_empty() {
                    object["metadata"]["finalizers"] = items.into();
                }
                prop_assert!(server.try_apply(&name(write.manager), object, write.force).is_ok());
            } else {
                object["metadata"] = server.live.as_ref().unwrap()["metadata"].clone();
                if items.is_empty() {
                    meta::set(&mut object, "finalizers", Value::Null);
                } else {
                    meta::set(&mut object, "finalizers", items);
                }
                server.write(&name(write.manager), object);
            }
            model.write(write);
            let live = server.live.as_ref().unwrap();
            let mut found: Vec<&str> = meta::finalizers(live).collect();
            found.sort_unstable();
            let expected: Vec<String> = model.items.keys().map(|k| format!("e.com/k{k}")).collect();
            prop_assert_eq!(&found, &expected);
            for manager in 0..3 {
                for apply in [false, true] {
                    let entry = server.entry(&name(manager), if apply { "Apply" } else { "Update" });
                    for item in 0..5 {
                        let owns = model.items.get(&item).is_some_and(|o| o.contains(&(manager, apply)));
                        let path = format!("v:\"e.com/k{item}\"");
                        let set = entry.and_then(|e| e["fieldsV1"]["f:metadata"]["f:finalizers"].get(&path));
                        prop_assert_eq!(set.is_some(), owns, "m{} {} {}: {:?}", manager, apply, item, server.live);
                    }
                }
            }
        }
    }
}
