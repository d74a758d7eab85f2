//! The answers of get, list and watch for each resourceVersion, resourceVersionMatch, limit, continue, sendInitialEvents and
//! bookmarks: the whole matrix as kube-apiserver v1.36.2 answered it, with nothing but the numbers replaced.

use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use control_plane::ControlPlane;
use serde_json::{Value, json};
use storage::Revision;
use test_support::{Client, plane_with};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const AHEAD: u64 = 1_000_000;

/// The revisions of the story that the answers are about: maps `a` to `d` are made, a page is asked for, `b` changes, `c` goes.
struct Story {
    /// By name: `ra`, ..., `rb2`.
    known: Vec<(&'static str, u64)>,
    newest: u64,
    token: String,
}

/// A server whose controllers add no objects to those of the test.
async fn plane() -> (ControlPlane, Client) {
    plane_with(|builder| builder.with(|options| options.controllers = vec!["-*".into()])).await
}

fn version(object: &Value) -> u64 {
    let text = object["metadata"]["resourceVersion"].as_str().expect("a version");
    text.parse().expect("a number")
}

fn map(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "labels": {"l": name}}})
}

impl Story {
    async fn record(client: &Client) -> Story {
        let mut known = Vec::new();
        for (name, symbol) in [("a", "ra"), ("b", "rb"), ("c", "rc"), ("d", "rd")] {
            known.push((symbol, version(&client.post(MAPS, &map(name)).await.expect(201))));
        }
        let page = client.get(&format!("{MAPS}?limit=2")).await.expect(200);
        let token = page["metadata"]["continue"]
            .as_str()
            .expect("a token")
            .to_string();
        let mut b = map("b");
        b["data"] = json!({"x": "1"});
        known.push((
            "rb2",
            version(&client.put(&format!("{MAPS}/b"), &b).await.expect(200)),
        ));
        client.delete(&format!("{MAPS}/c")).await.expect(200);
        let newest = version(&client.get(MAPS).await.expect(200));
        Story { known, newest, token }
    }

    fn query(&self, query: &str) -> String {
        let mut query = query.replace("{token}", &self.token);
        for (symbol, revision) in &self.known {
            query = query.replace(&format!("{{{symbol}}}"), &revision.to_string());
        }
        query
            .replace("{newest}", &self.newest.to_string())
            .replace("{future}", &(self.newest + AHEAD).to_string())
    }

    fn symbol(&self, revision: &str) -> String {
        let number: u64 = revision.parse().unwrap_or_default();
        let known = self.known.iter().find(|(_, known)| *known == number);
        match known {
            Some((symbol, _)) => format!("{{{symbol}}}"),
            // The server itself writes meanwhile.
            None if number >= self.newest => "{newest}".into(),
            None => revision.into(),
        }
    }

    fn named(&self, object: &Value) -> String {
        let metadata = &object["metadata"];
        let version = metadata["resourceVersion"].as_str().unwrap_or_default();
        let name = metadata["name"].as_str().unwrap_or_default();
        format!("{name}@{}", self.symbol(version))
    }

    fn status(&self, status: &Value) -> String {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_string();
        let mut message = text(&status["message"]).replace(&(self.newest + AHEAD).to_string(), "{future}");
        if let Some((front, _)) = message.split_once("current: ") {
            message = format!("{front}current: N");
        }
        format!("{} {}: {message}", status["code"], text(&status["reason"]))
    }

    /// An answer as the recording has it.
    async fn answer(&self, client: &Client, verb: &str, query: &str, expected: &str) -> String {
        let query = self.query(query);
        if verb == "WATCH" && expected.starts_with("200") {
            return self.watched(client, &query, expected.matches('(').count()).await;
        }
        let path = match verb {
            "GET" => format!("{MAPS}/a?{query}"),
            "LIST" => format!("{MAPS}?{query}"),
            _ => format!("{MAPS}?watch=1&timeoutSeconds=1&{query}"),
        };
        let answer = client.get(&path).await;
        let json = &answer.json;
        if json["kind"] == "Status" {
            let mut text = self.status(json);
            if answer.status == 504 {
                let cause = &json["details"]["causes"][0]["reason"];
                assert_eq!(cause, "ResourceVersionTooLarge");
                let wait = answer.headers.get("retry-after").map(http_text);
                text += &format!(" (retry after {})", wait.unwrap_or_default());
            }
            return text;
        }
        let Some(items) = json["items"].as_array() else {
            return format!("{} {}", answer.status, self.named(json));
        };
        let mut text = answer.status.to_string();
        for item in items {
            text += &format!(" {}", self.named(item));
        }
        let metadata = &json["metadata"];
        let revision = metadata["resourceVersion"].as_str().unwrap_or_default();
        text += &format!(" rv={}", self.symbol(revision));
        if let Some(token) = metadata["continue"].as_str().filter(|token| !token.is_empty()) {
            let token = URL_SAFE_NO_PAD.decode(token).expect("a token");
            let token: Value = serde_json::from_slice(&token).expect("a token");
            assert_eq!(token["rv"].to_string(), revision, "{query}");
            let start = token["start"].as_str().unwrap_or_default();
            text += &format!(" next={}", start.trim_matches(['/', '\0']));
        }
        if let Some(left) = metadata["remainingItemCount"].as_i64() {
            text += &format!(" left={left}");
        }
        text
    }

    /// The first events of a watch. None are expected of one that is over at once, others have all the time they need.
    async fn watched(&self, client: &Client, query: &str, events: usize) -> String {
        let seconds = if events == 0 { 1 } else { 60 };
        let mut watch = client
            .watch(&format!("{MAPS}?watch=1&timeoutSeconds={seconds}&{query}"))
            .await;
        let mut text = String::from("200");
        let mut seen = 0;
        while events == 0 || seen < events {
            let Some(event) = watch.next().await else { break };
            seen += 1;
            let kind = event["type"].as_str().unwrap_or_default();
            let object = &event["object"];
            let what = match object["metadata"]["annotations"].as_object() {
                _ if kind == "ERROR" => self.status(object),
                None => self.named(object),
                Some(annotations) => {
                    let pairs: Vec<String> = annotations
                        .iter()
                        .map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default()))
                        .collect();
                    format!("{} {}", self.named(object), pairs.join(","))
                }
            };
            text += &format!(" {kind}({what})");
        }
        text
    }
}

fn http_text(value: &impl AsRef<[u8]>) -> String {
    String::from_utf8_lossy(value.as_ref()).into_owned()
}

#[tokio::test]
async fn every_resource_version_is_answered_as_upstream_does() {
    let (plane, client) = plane().await;
    let story = Arc::new(Story::record(&client).await);
    let lines = include_str!("resource_versions/recorded.txt").lines();
    let permits = Arc::new(tokio::sync::Semaphore::new(32));
    let (mut expected, mut asked) = ("", tokio::task::JoinSet::new());
    for line in lines.filter(|line| !line.starts_with('#')) {
        let Some((verb, query)) = line
            .strip_prefix("  ")
            .map(|q| q.split_once(' ').unwrap_or((q, "")))
        else {
            expected = line;
            continue;
        };
        let (story, client, permits) = (story.clone(), client.clone(), permits.clone());
        asked.spawn(async move {
            let _permit = permits.acquire().await.expect("open");
            let found = story.answer(&client, verb, query, expected).await;
            (found != expected).then(|| format!("{verb} {query}\n  expected {expected}\n  found    {found}"))
        });
    }
    let answers = asked.join_all().await;
    assert!(answers.len() > 300);
    let faults: Vec<String> = answers.into_iter().flatten().collect();
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    plane.stop().await;
}

#[tokio::test]
async fn compacted_revisions_are_expired() {
    let (plane, client) = plane().await;
    let story = Story::record(&client).await;
    plane
        .engine()
        .compact(Revision(story.newest))
        .await
        .expect("compacts");
    let revision = |symbol: &str| {
        let known = story.known.iter().find(|(known, _)| *known == symbol);
        known.expect("a symbol").1
    };
    // The state of a page is kept until the next one has been asked for.
    let page = client
        .get(&format!("{MAPS}?limit=1&continue={}", story.token))
        .await
        .expect(200);
    assert_eq!(
        (page["items"].as_array().map(Vec::len), version(&page)),
        (Some(1), revision("rd"))
    );

    // Any other is gone; the answer offers to go on with what is there now.
    let token = json!({"v": "meta.k8s.io/v1", "rv": revision("rc"), "start": "/a\u{0}"});
    let token = URL_SAFE_NO_PAD.encode(token.to_string());
    let expired = client
        .get(&format!("{MAPS}?limit=1&continue={token}"))
        .await
        .expect(410);
    assert_eq!(expired["reason"], "Expired");
    let message = expired["message"].as_str().expect("a message");
    assert!(
        message
            .starts_with("The provided continue parameter is too old to display a consistent list result.")
    );
    let token = expired["metadata"]["continue"].as_str().expect("a token");
    let rest = client.get(&format!("{MAPS}?continue={token}")).await.expect(200);
    let names: Vec<&str> = rest["items"]
        .as_array()
        .expect("items")
        .iter()
        .filter_map(|item| item["metadata"]["name"].as_str())
        .collect();
    assert_eq!(names, ["b", "d"], "c is no more, and the rest is of now");
    assert!(version(&rest) >= story.newest);

    for query in ["resourceVersionMatch=Exact", "limit=1"] {
        let path = format!("{MAPS}?resourceVersion={}&{query}", revision("rc"));
        let expired = client.get(&path).await.expect(410);
        assert_eq!(
            (expired["reason"].as_str(), expired["message"].as_str()),
            (
                Some("Expired"),
                Some("The resourceVersion for the provided list is too old.")
            )
        );
    }
    // These are requested for the first time, so there are no recent events of theirs.
    let elsewhere = "/api/v1/namespaces/default/podtemplates?watch=1&resourceVersion=1";
    let mut watch = client.watch(elsewhere).await;
    let event = watch.next().await.expect("an event");
    assert_eq!(
        (event["type"].as_str(), event["object"]["reason"].as_str()),
        (Some("ERROR"), Some("Expired"))
    );
    plane.stop().await;
}

#[tokio::test]
async fn a_watch_with_an_end_says_how_far_it_came() {
    let (plane, client) = plane().await;
    let story = Story::record(&client).await;
    let query = format!(
        "watch=1&allowWatchBookmarks=true&timeoutSeconds=4&resourceVersion={}",
        story.newest
    );
    let mut watch = client.watch(&format!("{MAPS}?{query}")).await;
    // Other resources move on meanwhile, this one does not.
    let elsewhere = client
        .post(
            "/api/v1/namespaces/default/secrets",
            &json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}}),
        )
        .await
        .expect(201);
    let event = watch.next().await.expect("a bookmark");
    assert_eq!(event["type"], "BOOKMARK");
    assert!(version(&event["object"]) >= version(&elsewhere));
    assert_eq!(watch.next().await, None);
    plane.stop().await;
}

/// Each state of a collection as it was answered when it was the newest, by its resourceVersion.
async fn states(client: &Client, rounds: usize) -> Vec<(u64, Vec<Value>)> {
    const OBJECTS: usize = 10;
    for n in 0..OBJECTS {
        let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": format!("m{n}")}});
        client.post(MAPS, &object).await.expect(201);
    }
    let mut states = Vec::new();
    for round in 0..rounds {
        let path = format!("{MAPS}/m{}", round % OBJECTS);
        if round % OBJECTS == 3 {
            client.delete(&path).await.expect(200);
            let again = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m3"}});
            client.post(MAPS, &again).await.expect(201);
        } else {
            let change = json!({"data": {"round": round.to_string()}});
            client.patch(&path, "merge-patch+json", &change).await.expect(200);
        }
        let now = client.get(MAPS).await.expect(200);
        states.push((version(&now), now["items"].as_array().expect("items").clone()));
    }
    states
}

#[tokio::test]
async fn the_past_is_read_for_the_whole_window() {
    let dir = tempfile::tempdir().expect("a directory");
    let start = || {
        plane_with(|builder| {
            builder.data_dir(dir.path()).with(|options| {
                options.storage_backend = None;
                options.min_free_disk_mib = 1;
                options.controllers = vec!["-*".into()];
                options.history_retention = std::time::Duration::from_secs(3 * 24 * 3600);
            })
        })
    };
    let (plane, client) = start().await;
    // More states than the cache keeps snapshots.
    let states = states(&client, 60).await;
    plane.stop().await;

    let (plane, client) = start().await;
    for (revision, items) in &states {
        let exact = format!("{MAPS}?resourceVersion={revision}&resourceVersionMatch=Exact");
        let then = client.get(&exact).await.expect(200);
        assert_eq!((version(&then), &then["items"]), (*revision, &json!(items)));
        // In pages, each of the same moment.
        let mut paged = Vec::new();
        let mut next = format!("{exact}&limit=4");
        loop {
            let page = client.get(&next).await.expect(200);
            assert_eq!(version(&page), *revision);
            paged.extend(page["items"].as_array().expect("items").clone());
            match page["metadata"]["continue"].as_str() {
                Some(token) => next = format!("{MAPS}?limit=4&continue={token}"),
                None => break,
            }
        }
        assert_eq!(&paged, items);
    }
    // From the oldest to the newest, event by event.
    let (oldest, newest) = (states[0].0, states[states.len() - 1].0);
    let mut watch = client
        .watch(&format!("{MAPS}?watch=1&resourceVersion={oldest}"))
        .await;
    let mut seen = oldest;
    let mut state = states[0].1.clone();
    while seen < newest {
        let mut event = watch.next().await.expect("an event");
        let object = &mut event["object"];
        assert!(version(object) > seen);
        seen = version(object);
        // Items of lists do not say what they are.
        if let Some(object) = object.as_object_mut() {
            object.retain(|key, _| !["kind", "apiVersion"].contains(&&**key));
        }
        state.retain(|known| known["metadata"]["name"] != object["metadata"]["name"]);
        let object = object.take();
        if event["type"] != "DELETED" {
            state.push(object);
        }
        state.sort_by_key(|known| known["metadata"]["name"].to_string());
        if let Some((_, items)) = states.iter().find(|(revision, _)| *revision == seen) {
            assert_eq!(&state, items);
        }
    }
    plane.stop().await;
}
