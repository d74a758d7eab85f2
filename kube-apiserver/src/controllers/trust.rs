//! Maintains the `extension-apiserver-authentication` ConfigMap with the authorities that extension servers trust: recreated
//! when deleted, and this server's entries are restored when edited out. Entries of others stay, replicas may have other
//! authorities; those that have expired go. Mirrors upstream's `clusterauthenticationtrust`; as there, no option turns it off.

use std::time::{Duration, SystemTime};

use generic_server::ApiError;
use generic_server::pki;
use generic_server::registry::cache::Interest;
use generic_server::registry::{Event, Reflector};
use machinery::meta;
use serde_json::{Map, Value, json};
use tokio::sync::watch;
use tracing::warn;

use super::REST;
use crate::bootstrap::{ClusterAuthorities, authentication_config};
use crate::client::{At, Client};
use crate::json::Json;

const MAPS: At<'static> = ("", "configmaps");
const BEGIN: &str = "-----BEGIN CERTIFICATE-----";
const END: &str = "-----END CERTIFICATE-----";
/// How often it is looked at without a cause: authorities expire.
const INTERVAL: Duration = Duration::from_secs(60);
/// How long an authority stays after it has expired: clocks differ.
const SLACK: Duration = Duration::from_secs(5 * 60);

/// Keeps the ConfigMap as it must be with these authorities and names of front proxies.
pub(super) async fn run(
    client: Client,
    mut authorities: watch::Receiver<ClusterAuthorities>,
    names: Vec<String>,
) {
    let mut wanted = authentication_config(&authorities.borrow_and_update(), &names);
    let own = (
        meta::namespace(&wanted).to_string(),
        meta::name(&wanted).to_string(),
    );
    let store = loop {
        match client.resource(MAPS) {
            Ok(registered) => break registered.store,
            Err(_) => tokio::time::sleep(REST).await,
        }
    };
    let interest = Interest::Key(store.key(&own.0, &own.1).into());
    let mut reflector = Reflector::of(store, interest);
    let mut changes = Vec::new();
    loop {
        tokio::select! {
            event = reflector.next(&mut changes) => if let Event::Failed(error) = event {
                warn!(error = error.message(), "cannot read the trusted authorities; retrying");
                continue;
            },
            Ok(()) = authorities.changed() => {
                wanted = authentication_config(&authorities.borrow_and_update(), &names);
            }
            () = tokio::time::sleep(INTERVAL) => {}
        }
        changes.clear();
        while let Err(error) = restore(&client, &wanted).await {
            warn!(error = error.message(), "cannot publish the trusted authorities");
            tokio::time::sleep(REST).await;
        }
    }
}

async fn restore(client: &Client, wanted: &Value) -> Result<(), ApiError> {
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
    let alive_at = SystemTime::now() - SLACK;
    if merged(&data(&live), &own, alive_at) == data(&live) {
        return Ok(());
    }
    let change = |object: &mut Value| {
        let all = merged(&data(object), &own, alive_at);
        object.put("data", Value::Object(all));
        Ok(())
    };
    client.update(MAPS, namespace, name, "", change).await
}

/// The authorities that are there and those that this server needs, without authorities that had expired at a time.
fn merged(there: &Map<String, Value>, own: &Map<String, Value>, alive_at: SystemTime) -> Map<String, Value> {
    let mut all = there.clone();
    for (key, value) in own {
        let (old, new) = (
            all.get(key).and_then(Value::as_str).unwrap_or_default(),
            value.as_str().unwrap_or_default(),
        );
        let both = if key.ends_with("-file") {
            certificates(old, new, alive_at)
        } else {
            names(old, new)
        };
        all.insert(key.clone(), both.into());
    }
    all
}

/// The certificates of both bundles, each once and none that has expired; a bundle that is so already stays as it is.
fn certificates(there: &str, own: &str, alive_at: SystemTime) -> String {
    let alive_at = alive_at
        .duration_since(SystemTime::UNIX_EPOCH)
        .map_or(0, |since| since.as_secs());
    // One that cannot be read does not last, either.
    let lasts =
        |block: &&str| pki::expires(block).is_some_and(|at| u64::try_from(at).is_ok_and(|at| at > alive_at));
    let blocks = |bundle| str::split_inclusive(bundle, END).filter_map(block);
    let mut all: Vec<&str> = Vec::new();
    for block in blocks(there).chain(blocks(own)).filter(lasts) {
        if !all.contains(&block) {
            all.push(block);
        }
    }
    if all.iter().copied().eq(blocks(there)) {
        return there.to_string();
    }
    all.iter().flat_map(|block| [*block, "\n"]).collect()
}

/// A certificate's PEM block, without what stands before and after it.
fn block(text: &str) -> Option<&str> {
    let block = text.trim();
    block
        .ends_with(END)
        .then(|| block.find(BEGIN).map(|at| &block[at..]))?
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

    #[test]
    fn entries_of_others_stay_until_they_expire() {
        let certificate = |name: &str| pki::Authority::generate(name).expect("an authority").certificate;
        let (mine, other) = (certificate("mine"), certificate("other"));
        let own = json!({"client-ca-file": mine, "requestheader-allowed-names": "[\"front\"]", "requestheader-group-headers": "[\"X-G\"]"});
        let there = json!({
            "client-ca-file": format!("{other}# of another replica\nnot a certificate\n{END}\n"),
            "requestheader-allowed-names": "[\"other\"]", "more": "x",
        });
        let map = |value: &Value| value.as_object().cloned().unwrap_or_default();
        let merged = |there: &Map<String, Value>, own: &Value| merged(there, &map(own), SystemTime::now());
        let both = merged(&map(&there), &own);
        let expected = json!({
            "client-ca-file": format!("{}\n{}\n", other.trim(), mine.trim()), "more": "x",
            "requestheader-allowed-names": "[\"other\",\"front\"]", "requestheader-group-headers": "[\"X-G\"]",
        });
        assert_eq!(Value::Object(both.clone()), expected);
        assert_eq!(merged(&both, &own), both, "a second merge changes nothing");
        let expiry = pki::expires(&other).and_then(|at| u64::try_from(at).ok());
        let expired = SystemTime::UNIX_EPOCH + Duration::from_secs(expiry.expect("it expires"));
        assert_eq!(certificates(&other, &other, expired), "");
        assert_eq!(certificates(&other, &other, expired - SLACK), other);
        // Any name at all is more than a list of some.
        assert_eq!(names("[\"other\"]", "[]"), "[]");
        assert_eq!(names("garbage", "[\"front\"]"), "[\"front\"]");
    }
}
