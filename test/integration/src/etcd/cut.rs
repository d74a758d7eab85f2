//! The view of a replica's clients while nothing passes between it and etcd: answers in time, its health, and watches that lose nothing.

use serde_json::{Value, json};
use test_support::{Client, Etcd, Proxy, eventually};

use super::{MAPS, map, replica, replica_with};

/// A cut replica's answer to a request, which has to come by the request's deadline. The test's own patience is far longer.
async fn refused(client: &Client, method: &str, path: &str, body: Value) {
    let sent = client.try_raw(method, path, "application/json", body.to_string().into());
    let answer = sent.await.expect("an answer");
    let expected = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": "Timeout: request did not complete within the allotted timeout",
        "reason": "Timeout", "details": {}, "code": 504,
    });
    assert_eq!(answer.expect(504), expected, "{method} {path}");
}

async fn text(client: &Client, path: &str) -> (u16, String) {
    let answer = client.get(path).await;
    (answer.status, String::from_utf8_lossy(&answer.body).into_owned())
}

#[tokio::test]
async fn clients_of_a_replica_that_is_cut_off() {
    let Some(etcd) = Etcd::start().await else { return };
    let wire = Proxy::to(etcd.port()).await;
    let (near, on_near, _first) = replica(&etcd).await;
    let (far, on_far, _second) = replica_with(&etcd, |options| {
        options.etcd_servers = vec![format!("http://127.0.0.1:{}", wire.port())];
        options.request_timeout = std::time::Duration::from_secs(2);
    })
    .await;
    let made = on_far.post(MAPS, &map("before", "1")).await.expect(201);
    let version = made["metadata"]["resourceVersion"].as_str().expect("a version");
    let mut watch = on_far
        .watch(&format!(
            "{MAPS}?watch=1&resourceVersion={version}&timeoutSeconds=300"
        ))
        .await;

    for round in 0..2 {
        wire.cut();
        let one = format!("{MAPS}/before");
        let soon = format!("{one}?timeout=1s");
        let absent = format!("{MAPS}/nothing?timeout=1s");
        let names = format!("{MAPS}?timeout=1s");
        let lost = format!("lost-r{round}");
        // By the deadline that the client has asked for, or by the server's.
        tokio::join!(
            refused(&on_far, "GET", &soon, Value::Null),
            refused(&on_far, "GET", &names, Value::Null),
            refused(&on_far, "GET", &one, Value::Null),
            refused(&on_far, "POST", &names, map(&lost, "1")),
            refused(&on_far, "PUT", &one, map("before", "2")),
            refused(&on_far, "DELETE", &absent, json!({})),
        );
        // Reads that accept any revision are answered.
        let cached = on_far.get(&format!("{one}?resourceVersion=0")).await.expect(200);
        assert_eq!(cached["metadata"]["name"], "before");
        // Its health names what fails, and the reason is in the log alone.
        let failed = |check: &str| format!("[-]{check} failed: reason withheld\n");
        eventually("that readyz says so", || async {
            let (status, text) = text(&on_far, "/readyz?verbose").await;
            let named = text.contains(&failed("etcd")) && text.contains(&failed("etcd-readiness"));
            (status == 500 && named).then_some(())
        })
        .await;
        let (status, livez) = text(&on_far, "/livez?verbose").await;
        assert_eq!(status, 500, "{livez}");
        assert!(
            livez.contains(&failed("etcd")) && !livez.contains("etcd-readiness"),
            "{livez}"
        );
        assert!(livez.contains("[+]ping ok\n"), "{livez}");
        assert_eq!(text(&on_far, "/livez?exclude=etcd").await.0, 200);
        assert_eq!(text(&on_near, "/readyz").await.0, 200);
        for n in 0..5 {
            let name = format!("meanwhile-{n}-r{round}");
            on_near.post(MAPS, &map(&name, "1")).await.expect(201);
        }

        wire.heal();
        for path in ["/readyz", "/livez"] {
            eventually("that it is well again", || async {
                (text(&on_far, path).await.0 == 200).then_some(())
            })
            .await;
        }
        let after = format!("after-r{round}");
        eventually("that it writes again", || async {
            let answer = on_far.post(MAPS, &map(&after, "1")).await;
            matches!(answer.status, 201 | 409).then_some(())
        })
        .await;
        // The watch that was open has every change, once and in order: also what was refused and has happened all the same.
        let everything = on_near.get(MAPS).await.expect(200);
        let items = everything["items"].as_array().expect("items").iter();
        let version = |object: &Value| -> u64 {
            let text = object["metadata"]["resourceVersion"].as_str();
            text.expect("a version").parse().expect("a number")
        };
        let mut last = 0;
        let mut told = Vec::new();
        while !told.contains(&after) {
            let event = watch.next().await.expect("the watch goes on");
            let object = &event["object"];
            assert!(version(object) > last, "{event}");
            last = version(object);
            told.push(object["metadata"]["name"].as_str().expect("a name").to_owned());
        }
        let mine = |name: &String| name.ends_with(&format!("-r{round}"));
        let mut there: Vec<(u64, String)> = items
            .map(|item| {
                let name = item["metadata"]["name"].as_str().expect("a name");
                (version(item), name.to_owned())
            })
            .filter(|(_, name)| mine(name))
            .collect();
        there.sort();
        there.retain(|(at, _)| *at <= last);
        let there: Vec<String> = there.into_iter().map(|(_, name)| name).collect();
        told.retain(mine);
        assert_eq!(told, there);
        assert!(there.len() >= 6, "{there:?}");
    }
    far.stop().await;
    near.stop().await;
}
