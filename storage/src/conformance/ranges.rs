//! Ranges, paging, counts.
#![allow(missing_docs)]

use super::Subject;
use crate::{RangeRequest, Txn};

async fn fill(s: &Subject, names: &[&'static str]) {
    for name in names {
        s.write(name, *name).await;
    }
}

async fn names(s: &Subject, request: RangeRequest) -> (Vec<String>, u64) {
    let response = s.store.range(request).await.unwrap();
    (
        response.kvs.iter().map(|pair| s.name(pair)).collect(),
        response.count,
    )
}

pub async fn ranges_are_in_order(s: &Subject) {
    fill(
        s,
        &[
            "pods/b", "pods/a/z", "pods/a", "nodes/x", "pods/B", "pods/é", "podsx", "pods/a-1",
        ],
    )
    .await;
    let all = names(
        s,
        RangeRequest {
            prefix: s.key("pods/"),
            ..Default::default()
        },
    )
    .await;
    assert_eq!(
        all,
        (
            ["pods/B", "pods/a", "pods/a-1", "pods/a/z", "pods/b", "pods/é"]
                .map(String::from)
                .to_vec(),
            6
        )
    );
    let none = names(
        s,
        RangeRequest {
            prefix: s.key("pods/c"),
            ..Default::default()
        },
    )
    .await;
    assert_eq!(none, (vec![], 0));
}

pub async fn ranges_begin_at_start(s: &Subject) {
    fill(s, &["p/a", "p/b", "p/c", "q/a"]).await;
    for (start, expected) in [
        ("p/b", &["p/b", "p/c"][..]),
        ("p/b\0", &["p/c"]),
        ("p/", &["p/a", "p/b", "p/c"]),
        ("a", &["p/a", "p/b", "p/c"]),
        ("p/d", &[]),
        ("q/a", &[]),
    ] {
        let request = RangeRequest {
            prefix: s.key("p/"),
            start: Some(s.key(start)),
            ..Default::default()
        };
        let (found, count) = names(s, request).await;
        assert_eq!(
            (found, count),
            (
                expected.iter().map(|name| name.to_string()).collect(),
                expected.len() as u64
            )
        );
    }
}

pub async fn ranges_page_at_one_revision(s: &Subject) {
    let expected: Vec<String> = (0..25).map(|n| format!("p/{n:02}")).collect();
    for name in &expected {
        s.write(name, "1").await;
    }
    let (mut seen, mut start, mut at) = (Vec::new(), None, None);
    loop {
        let request = RangeRequest {
            prefix: s.key("p/"),
            start,
            limit: 4,
            at,
            ..Default::default()
        };
        let page = s.store.range(request).await.unwrap();
        assert_eq!(page.count as usize, expected.len() - seen.len());
        assert!(page.kvs.len() <= 4);
        assert!(page.kvs.iter().all(|pair| pair.value == "1"));
        seen.extend(page.kvs.iter().map(|pair| s.name(pair)));
        at = Some(page.revision);
        start = page.kvs.last().map(|pair| format!("{}\0", pair.key));
        if seen.len() as u64 >= expected.len() as u64 {
            break;
        }
        // Changes between pages are not seen.
        s.write(&format!("p/{:02}x", seen.len()), "2").await;
        s.write(&expected[seen.len()], "2").await;
        s.remove(&expected[expected.len() - 1]).await;
    }
    assert_eq!(seen, expected);
}

pub async fn ranges_count(s: &Subject) {
    fill(s, &["p/a", "p/b", "p/c"]).await;
    s.remove("p/b").await;
    let request = RangeRequest {
        prefix: s.key("p/"),
        count_only: true,
        ..Default::default()
    };
    let response = s.store.range(request).await.unwrap();
    assert_eq!((response.kvs.len(), response.count), (0, 2));
    let request = RangeRequest {
        prefix: s.key("p/"),
        limit: 1,
        ..Default::default()
    };
    let response = s.store.range(request).await.unwrap();
    assert_eq!((response.kvs.len(), response.count), (1, 2));
}

pub async fn prefixes_are_not_paths(s: &Subject) {
    fill(s, &["a", "ab", "abc", "b"]).await;
    let found = names(
        s,
        RangeRequest {
            prefix: s.key("ab"),
            ..Default::default()
        },
    )
    .await;
    assert_eq!(found.0, ["ab", "abc"]);
}

pub async fn ranges_equal_gets(s: &Subject) {
    // Written in another order than the keys', some several times, of all sizes, some in one transaction.
    for n in 0..400usize {
        let len = [0, 1, 2000, 0, 700, 120_000][(n * 7 + n / 11) % if n % 40 == 0 { 6 } else { 5 }];
        let names = [(n * 37) % 250, (n * 91 + 1) % 250];
        let put = |name: &usize| s.put(&format!("r/{name:03}"), vec![n as u8; len]);
        let distinct = if names[0] == names[1] {
            &names[..1]
        } else {
            &names[..]
        };
        s.commit(vec![], distinct.iter().map(put).collect()).await;
        if n % 13 == 0 {
            s.remove(&format!("r/{:03}", n % 250)).await;
        }
    }
    let request = RangeRequest {
        prefix: s.key("r/"),
        ..Default::default()
    };
    let range = s.store.range(request).await.unwrap();
    assert!(range.kvs.len() > 150, "{}", range.kvs.len());
    for pair in range.kvs {
        let (got, _) = s.store.get(&pair.key, Some(range.revision)).await.unwrap();
        assert_eq!(got, Some(pair));
    }
}

pub async fn many_keys(s: &Subject) {
    const KEYS: usize = 3000;
    for chunk in (0..KEYS).collect::<Vec<_>>().chunks(100) {
        let ops = chunk
            .iter()
            .map(|n| s.put(&format!("many/{n:05}"), format!("value {n}")))
            .collect();
        s.store.commit(Txn { guards: vec![], ops }).await.unwrap();
    }
    let all = s.list("many/", None).await;
    assert_eq!(all.len(), KEYS);
    for (n, (name, value)) in all.iter().enumerate() {
        assert_eq!(
            (name, &value[..]),
            (&format!("many/{n:05}"), format!("value {n}").as_bytes())
        );
    }
}
