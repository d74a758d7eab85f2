//! Keeps the `extension-apiserver-authentication` ConfigMap saying whom extension servers may trust: made anew when it is
//! deleted, and what this server needs is put back when it is edited out. What others put there stays: replicas may have other
//! authorities. Mirrors upstream's `clusterauthenticationtrust`; as there, no option turns it off.

use std::collections::BTreeSet;

use generic_server::ApiError;
use generic_server::registry::cache::Interest;
use machinery::meta;
use serde_json::{Map, Value, json};
use tracing::warn;

use super::REST;
use crate::client::{At, Client};
use crate::json::Json;

const MAPS: At<'static> = ("", "configmaps");
const END: &str = "-----END CERTIFICATE-----";

/// Keeps the ConfigMap as `wanted` has it, in its namespace and by its name.
pub(super) async fn run(client: Client, wanted: Value) {
    let (namespace, name) = (meta::namespace(&wanted), meta::name(&wanted));
    loop {
        let Ok(store) = client.resource(MAPS).map(|r| r.store) else {
            tokio::time::sleep(REST).await;
            continue;
        };
        let (Ok(snapshot), Ok(cache)) = (store.fresh().await, store.cache().await) else {
            tokio::time::sleep(REST).await;
            continue;
        };
        let key = store.key(namespace, name);
        let interest = Interest::Key(key.as_str().into());
        let Ok(mut feed) = cache.feed(snapshot.revision, interest).await else {
            tokio::time::sleep(REST).await;
            continue;
        };
        drop(snapshot);
        let mut changes = Vec::new();
        loop {
            if let Err(error) = mend(&client, &wanted).await {
                warn!(error = error.message(), "cannot publish whom to trust");
                tokio::time::sleep(REST).await;
                continue;
            }
            changes.clear();
            if feed.next(&mut changes).await.is_err() {
                break;
            }
        }
    }
}

async fn mend(client: &Client, wanted: &Value) -> Result<(), ApiError> {
    let (namespace, name) = (meta::namespace(wanted), meta::name(wanted));
    let Some(live) = client.find(MAPS, namespace, name).await? else {
        return client.create(MAPS, namespace, wanted.clone()).await.map(|_| ());
    };
    let data = |object: &Value| {
        object
            .get("data")
            .and_then(Value::as_object)
            .cloned()
            .unwrap_or_default()
    };
    let own = data(wanted);
    if merged(&data(&live), &own) == data(&live) {
        return Ok(());
    }
    let change = |object: &mut Value| {
        let all = merged(&data(object), &own);
        object.put("data", Value::Object(all));
        Ok(())
    };
    client.update(MAPS, namespace, name, "", change).await
}

/// What is there and what this server needs.
fn merged(there: &Map<String, Value>, own: &Map<String, Value>) -> Map<String, Value> {
    let mut all = there.clone();
    for (key, value) in own {
        let (old, new) = (
            all.get(key).and_then(Value::as_str).unwrap_or_default(),
            value.as_str().unwrap_or_default(),
        );
        let both = if key.ends_with("-file") {
            certificates(old, new)
        } else {
            names(old, new)
        };
        all.insert(key.clone(), both.into());
    }
    all
}

/// The certificates of both bundles, each once; a bundle that has all of the other's stays as it is.
fn certificates(there: &str, own: &str) -> String {
    let each = |bundle: &str| -> Vec<String> {
        let blocks = bundle.split_inclusive(END).map(str::trim);
        blocks
            .filter(|block| block.ends_with(END))
            .map(str::to_string)
            .collect()
    };
    let known: BTreeSet<String> = each(there).into_iter().collect();
    let missing: Vec<String> = each(own)
        .into_iter()
        .filter(|block| !known.contains(block))
        .collect();
    if missing.is_empty() && !known.is_empty() {
        return there.to_string();
    }
    let mut all = String::new();
    for block in each(there).iter().chain(&missing) {
        all.push_str(block);
        all.push('\n');
    }
    all
}

/// The names of both lists, each once. No names at all means any: then that stays.
fn names(there: &str, own: &str) -> String {
    let parse = |text: &str| serde_json::from_str::<Vec<String>>(text).ok();
    let (old, new) = (parse(there), parse(own).unwrap_or_default());
    let Some(mut all) = old.filter(|_| !new.is_empty()) else {
        return own.to_string();
    };
    let missing: Vec<String> = new.into_iter().filter(|name| !all.contains(name)).collect();
    if missing.is_empty() {
        return there.to_string();
    }
    all.extend(missing);
    json!(all).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(text: &str) -> String {
        format!("-----BEGIN CERTIFICATE-----\n{text}\n{END}\n")
    }

    #[test]
    fn what_others_put_there_stays() {
        let own = json!({"client-ca-file": block("a"), "requestheader-allowed-names": "[\"front\"]", "requestheader-group-headers": "[\"X-G\"]"});
        let there =
            json!({"client-ca-file": block("b"), "requestheader-allowed-names": "[\"other\"]", "more": "x"});
        let map = |value: &Value| value.as_object().cloned().unwrap_or_default();
        let both = merged(&map(&there), &map(&own));
        let expected = json!({
            "client-ca-file": format!("{}{}", block("b"), block("a")), "more": "x",
            "requestheader-allowed-names": "[\"other\",\"front\"]", "requestheader-group-headers": "[\"X-G\"]",
        });
        assert_eq!(Value::Object(both.clone()), expected);
        assert_eq!(merged(&both, &map(&own)), both, "and then it is settled");
        assert_eq!(merged(&Map::new(), &map(&own)), map(&own));
        // Any name at all is more than a list of some.
        assert_eq!(names("[\"other\"]", "[]"), "[]");
        assert_eq!(names("garbage", "[\"front\"]"), "[\"front\"]");
    }
}
