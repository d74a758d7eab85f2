//! Each target with its corpus, and with mutations of it that are the same on every run.

use std::path::PathBuf;

use super::*;

fn corpus(name: &str) -> Vec<Vec<u8>> {
    let directory = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("corpus")
        .join(name);
    let files = std::fs::read_dir(&directory).unwrap_or_else(|e| panic!("{}: {e}", directory.display()));
    let mut paths: Vec<PathBuf> = files.map(|file| file.expect("a file").path()).collect();
    paths.sort();
    paths
        .iter()
        .map(|path| std::fs::read(path).expect("a file"))
        .collect()
}

/// Shows the input that a target panicked on.
struct Shown<'a> {
    target: &'a str,
    input: &'a [u8],
}

impl Drop for Shown<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let shown = &self.input[..self.input.len().min(4_096)];
            eprintln!("{}: found by \"{}\"", self.target, shown.escape_ascii());
        }
    }
}

#[track_caller]
fn check(name: &str) {
    let target = TARGETS
        .iter()
        .find(|target| target.name == name)
        .expect("a target");
    let corpus = corpus(name);
    assert!(!corpus.is_empty(), "{name} has a corpus");
    let run = |input: &[u8]| {
        let _shown = Shown { target: name, input };
        (target.run)(input);
    };
    corpus.iter().for_each(|input| run(input));
    let rounds = std::env::var("FUZZ_ROUNDS")
        .ok()
        .and_then(|text| text.parse().ok());
    let seed = std::env::var("FUZZ_SEED").ok().and_then(|text| text.parse().ok());
    let mut mutator = Mutator::new(corpus, seed.unwrap_or(20_261_122));
    for _ in 0..rounds.unwrap_or(target.rounds) {
        run(&mutator.next_input());
    }
}

macro_rules! replays {
    ($($name:ident)*) => {
        $(#[test]
        fn $name() {
            check(stringify!($name));
        })*

        #[test]
        fn every_target_is_replayed() {
            let named = [$(stringify!($name)),*];
            for target in TARGETS {
                assert!(named.contains(&target.name), "{}", target.name);
            }
        }
    };
}

replays! {
    json typed yaml protobuf cbor json_patch merge_patch strategic_patch apply label_selector field_selector quantity pattern time jsonpath cel
    certificates kubeconfig tokens admission encryption jws jwks authentication abac authorization match_conditions request_info request
    audit_policy egress spdy websocket
}
