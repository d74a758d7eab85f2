//! The quick attacks against a server in process. Times say nothing on a busy machine; codes, sizes and properties do.

use test_support::plane;

use super::*;

/// Plays the quick attacks whose findings are these.
async fn play(findings: &[&str]) {
    let (plane, _) = plane().await;
    let target =
        Target::parse(plane.kubeconfig().as_bytes(), std::path::Path::new(".")).expect("a kubeconfig");
    let site = Site {
        target,
        pid: None,
        binary: None,
    };
    let arena = Arena::build(site).await.expect("an arena");
    let mut fell = Vec::new();
    let mut played = 0;
    for attack in attacks::all() {
        if attack.place != Place::Quick || !findings.contains(&attack.finding) {
            continue;
        }
        played += 1;
        let outcome = arena.play(&attack).await;
        let faults = attack.bound.faults(&outcome);
        if !faults.is_empty() {
            fell.push(format!("{}: {}", attack.name, faults.join(", ")));
        }
    }
    assert!(played > 0, "there are attacks of {findings:?}");
    assert!(fell.is_empty(), "the server falls to:\n  {}", fell.join("\n  "));
    plane.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn yaml_and_roles() {
    play(&["1", "2"]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn patches_and_objects() {
    play(&["5", "5a", "5b", "5c", "5d"]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_aggregator() {
    play(&["6", "7"]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn credentials_and_heads() {
    play(&["9", "10", "12", "13"]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn attacks_that_held_before() {
    play(&["held"]).await;
}

#[test]
fn every_attack_is_named_once_and_every_quick_one_is_played() {
    let played = [
        "1", "2", "5", "5a", "5b", "5c", "5d", "6", "7", "9", "10", "12", "13", "held",
    ];
    let mut names = std::collections::BTreeSet::new();
    for attack in attacks::all() {
        assert!(names.insert(attack.name), "{} is there twice", attack.name);
        let quick = attack.place == Place::Quick;
        assert!(!quick || played.contains(&attack.finding), "{}", attack.name);
    }
}

#[test]
fn a_bound_names_violations() {
    #[track_caller]
    fn check(bound: Bound, codes: &[u16], largest: usize, expected: &[&str]) {
        let mut outcome = Outcome::new();
        outcome.largest = largest;
        outcome.codes = codes.iter().map(|code| (*code, 1)).collect();
        assert_eq!(bound.faults(&outcome), expected);
    }
    check(Bound::DEFAULT, &[200, 404], 10, &[]);
    check(Bound::DEFAULT, &[500], 10, &["code 500"]);
    check(Bound::DEFAULT, &[0], 10, &["no answer"]);
    check(Bound::codes(&[400]), &[400], 10, &[]);
    check(Bound::codes(&[400]), &[201, 400], 10, &["code 201"]);
    check(Bound::DEFAULT.answer(9), &[200], 10, &["an answer of 10 bytes"]);
}
