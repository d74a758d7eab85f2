//! YAML whose aliases make much of little.

use std::fmt::Write as _;

use super::attack;
use crate::{Arena, Attack, Bound, Error, Outcome, Place, Shot};

const REVIEWS: &str = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
const REVIEW: &str = "apiVersion: authorization.k8s.io/v1\nkind: SelfSubjectAccessReview\n\
                      spec: {nonResourceAttributes: {path: /, verb: get}}\n";
/// Fields that no kind has may be passed over, so that a body which stays small is fine too.
const REFUSED_OR_SMALL: Bound = Bound::codes(&[201, 400, 413, 422]);
const REFUSED: Bound = Bound::codes(&[400, 413]);

pub(super) fn attacks() -> Vec<Attack> {
    vec![
        attack(
            "YAML: one string of 100 KB, 200 aliases",
            "1",
            Place::Quick,
            REFUSED,
            |arena| Box::pin(review(arena, strings(100_000, 200))),
        ),
        attack(
            "YAML: one string of 500 KB, 3,000 aliases",
            "1",
            Place::Large,
            REFUSED,
            |arena| Box::pin(review(arena, strings(500_000, 3_000))),
        ),
        attack(
            "YAML: a map of 100 keys of 1,000 bytes, 200 aliases",
            "1",
            Place::Quick,
            REFUSED,
            |arena| Box::pin(review(arena, keys(100, 200))),
        ),
        attack(
            "YAML: anchors nested 100 deep around 500 KB",
            "1",
            Place::Large,
            REFUSED_OR_SMALL,
            |arena| Box::pin(review(arena, nested(100, 500_000))),
        ),
        attack(
            "YAML: 5,000 merges of a map with 5,000 keys",
            "1",
            Place::Large,
            REFUSED,
            |arena| Box::pin(review(arena, merges(5_000, 5_000))),
        ),
        attack("YAML: billion laughs", "held", Place::Quick, REFUSED, |arena| {
            Box::pin(review(arena, laughs()))
        }),
        attack(
            "YAML: aliases in an apply patch",
            "1",
            Place::Quick,
            REFUSED,
            |arena| Box::pin(applied(arena)),
        ),
        attack(
            "YAML: 100,000 duplicate keys with long names",
            "1",
            Place::Large,
            Bound::codes(&[201, 400, 413]),
            |arena| Box::pin(review(arena, duplicates())),
        ),
    ]
}

async fn review(arena: &Arena, more: String) -> Result<Outcome, Error> {
    let body = format!("{REVIEW}{more}");
    let shot = Shot::of("POST", REVIEWS)
        .body("application/yaml", body)
        .by(&arena.nobody);
    arena.shoot(shot).await
}

async fn applied(arena: &Arena) -> Result<Outcome, Error> {
    let path = arena.path("configmaps/aliases?fieldManager=adversary");
    let head = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: aliases}\n";
    let body = format!("{head}{}", strings(100_000, 200));
    arena
        .shoot(Shot::patch(path, "apply-patch+yaml", body).by(&arena.tenant))
        .await
}

/// One long string and a list of aliases of it.
fn strings(length: usize, aliases: usize) -> String {
    format!(
        "x: &x \"{}\"\ny: [{}]\n",
        "x".repeat(length),
        "*x,".repeat(aliases)
    )
}

/// A map with keys of 1,000 bytes and a list of aliases of it.
fn keys(count: usize, aliases: usize) -> String {
    let long = "k".repeat(990);
    let map: String = (0..count).fold(String::new(), |mut text, i| {
        let _ = write!(text, "{long}{i}: 1,");
        text
    });
    format!("x: &x {{{map}}}\ny: [{}]\n", "*x,".repeat(aliases))
}

/// A long string in lists that are anchored each.
fn nested(depth: usize, length: usize) -> String {
    let open: String = (0..depth).fold(String::new(), |mut text, i| {
        // Writing to a string cannot fail.
        let _ = write!(text, "&a{i} [");
        text
    });
    format!("x: {open}\"{}\"{}\n", "x".repeat(length), "]".repeat(depth))
}

/// One long map and a list of maps that merge it.
fn merges(keys: usize, merges: usize) -> String {
    let base: String = (0..keys).fold(String::new(), |mut text, i| {
        let _ = write!(text, "k{i}: v,");
        text
    });
    format!("x: &x {{{base}}}\ny: [{}]\n", "{<<: *x},".repeat(merges))
}

fn laughs() -> String {
    let mut text = "a0: &a0 [l,l,l,l,l,l,l,l,l,l]\n".to_string();
    for i in 1..10 {
        let before = format!("*a{},", i - 1).repeat(10);
        let _ = writeln!(text, "a{i}: &a{i} [{before}]");
    }
    text
}

fn duplicates() -> String {
    let name = "n".repeat(20);
    format!("{name}: 1\n").repeat(100_000)
}
