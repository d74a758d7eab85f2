use std::os::unix::fs::PermissionsExt as _;

use generic_server::pki::{Pki, ServingNames};

use super::*;

fn run(flags: &[&str]) -> Result<String, String> {
    let line = ["kubeconfig"].iter().chain(flags);
    let command = KubeconfigCommand::try_parse_from(line).map_err(|error| error.to_string())?;
    command.run().map_err(|error| {
        assert_eq!(error.exit_code(), 2, "{error}");
        error.to_string()
    })
}

#[test]
fn what_cannot_be_certified_is_refused_with_its_flag() {
    #[track_caller]
    fn check(flags: &[&str], expected: &str) {
        let refused = run(flags).expect_err("it is refused");
        assert!(refused.contains(expected), "{refused}");
    }
    let dir = tempfile::tempdir().expect("a directory");
    let data = dir.path().to_str().expect("text");
    check(&[], "--user <NAME>");
    check(&["--user="], "--user: it is empty");
    check(&["--user=a", "--group="], "--group: it is empty");
    check(&["--user=a", "--group=system:masters"], "--system-masters");
    check(&["--user=a", "--expires-in=0s"], "--expires-in: it is 0");
    check(&["--user=a", "--expires-in=-1h"], "--expires-in");
    check(&["--user=a", "--data-dir", data], "has no authority of its own");
    Pki::open(&dir.path().join("pki"), &ServingNames::default()).expect("made");
    check(
        &["--user=a", "--data-dir", data, "--expires-in=900000h"],
        "--expires-in: the authority in",
    );
    let there = dir.path().join("there");
    std::fs::write(&there, "kept").expect("written");
    let out = there.to_str().expect("text");
    check(
        &["--user=a", "--data-dir", data, "--out", out],
        "is there already",
    );
    assert_eq!(std::fs::read_to_string(&there).expect("read"), "kept");
}

#[test]
fn the_file_is_the_owners_alone_and_names_the_server() {
    let dir = tempfile::tempdir().expect("a directory");
    let data = dir.path().to_str().expect("text");
    let pki = Pki::open(&dir.path().join("pki"), &ServingNames::default()).expect("made");
    let text = run(&["--user=al\"ice", "--data-dir", data]).expect("made");
    assert!(text.contains(LOCAL), "{text}");
    pki.write_kubeconfig(&dir.path().join("admin.kubeconfig"), "https://192.0.2.1:1")
        .expect("written");
    let out = dir.path().join("alice.kubeconfig");
    let file = out.to_str().expect("text");
    let said = run(&[
        "--user=alice",
        "--group=dev",
        "--group=ops",
        "--data-dir",
        data,
        "--out",
        file,
    ]);
    let said = said.expect("made");
    assert!(
        said.ends_with("alice at https://192.0.2.1:1, valid for 24h0m0s"),
        "{said}"
    );
    let mode = std::fs::metadata(&out).expect("there").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let written = yaml::decode(&std::fs::read(&out).expect("read")).expect("YAML");
    assert_eq!(
        written.value["clusters"][0]["cluster"]["server"],
        "https://192.0.2.1:1"
    );
}
