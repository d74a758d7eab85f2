use super::*;

/// What is wrong with a command line that parses.
#[track_caller]
fn check(flags: &[&str], faults: &[&str]) {
    let line = ["kube-apiserver"].iter().chain(flags);
    let options = Options::try_parse_from(line).expect("it parses");
    assert_eq!(options.validate(), faults, "{flags:?}");
}

#[test]
fn watch_caches_are_sized_in_upstreams_words() {
    check(&["--watch-cache-sizes=pods#10,deployments.apps#0"], &[]);
    check(&["--watch-cache=false", "--watch-cache-sizes=pods"], &[]);
    check(&["--default-watch-cache-size=0"], &[]);
    check(
        &[
            "--watch-cache-sizes=pods,pods#1#2,pods#x",
            "--watch-cache-sizes=pods#-1",
        ],
        &[
            "invalid value of watch cache size: pods",
            "invalid value of watch cache size: pods#1#2",
            "invalid size of watch cache size: pods#x",
            "watch cache size cannot be negative: pods#-1",
        ],
    );
}

#[test]
fn values_are_stored_as_the_flags_say() {
    for (flags, form) in [
        (&[][..], StoredForm::Json),
        (&["--etcd-servers=http://127.0.0.1:2379"], StoredForm::Protobuf),
        (
            &[
                "--etcd-servers=http://127.0.0.1:2379",
                "--storage-media-type=application/json",
            ],
            StoredForm::Json,
        ),
        (&["--storage-media-type=application/yaml"], StoredForm::Yaml),
        (
            &["--storage-media-type=application/vnd.kubernetes.protobuf"],
            StoredForm::Protobuf,
        ),
    ] {
        let line = ["kube-apiserver"].iter().chain(flags);
        let options = Options::try_parse_from(line).expect("it parses");
        assert_eq!(options.stored_form(), form, "{flags:?}");
    }
    let refused = Options::try_parse_from(["kube-apiserver", "--storage-media-type=application/cbor"]);
    assert!(refused.is_err());
}
