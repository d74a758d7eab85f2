use super::*;

fn parse(arguments: &[&str]) -> Result<Command, String> {
    Command::parse(arguments.iter().map(OsString::from))
}

#[test]
fn flags_are_read_as_go_reads_them() {
    #[track_caller]
    fn check(arguments: &[&str], data_dir: &str, urls: &[&str]) {
        let expected = Settings {
            data_dir: data_dir.into(),
            urls: urls.iter().map(ToString::to_string).collect(),
        };
        assert_eq!(parse(arguments), Ok(Command::Run(expected)), "{arguments:?}");
    }
    let standard = ["http://localhost:2379"];
    check(&[], "default.etcd", &standard);
    // As envtest calls it.
    check(
        &[
            "--advertise-client-urls=http://127.0.0.1:1",
            "--data-dir=/tmp/k8s test",
            "--listen-client-urls=http://127.0.0.1:1",
            "--listen-peer-urls=http://127.0.0.1:2",
            "--unsafe-no-fsync=true",
        ],
        "/tmp/k8s test",
        &["http://127.0.0.1:1"],
    );
    check(
        &["-data-dir", "d", "--unsafe-no-fsync", "--name", "x"],
        "d",
        &standard,
    );
    check(
        &[
            "--force-new-cluster",
            "--listen-client-urls",
            "http://127.0.0.1:1,http://[::1]:1",
        ],
        "default.etcd",
        &["http://127.0.0.1:1", "http://[::1]:1"],
    );
    check(
        &["--quota-backend-bytes=1", "--data-dir=a", "--data-dir=b"],
        "b",
        &standard,
    );
    assert_eq!(parse(&["--version"]), Ok(Command::Version));
    assert_eq!(parse(&["--data-dir=x", "--help"]), Ok(Command::Help));
    assert_eq!(parse(&["gateway"]), Err("'gateway' is not a valid flag".into()));
    assert!(parse(&["--data-dir"]).is_err());
    // What envtest looks for to know whether there is the flag.
    assert!(
        HELP.lines()
            .any(|line| line.trim_start().starts_with("--unsafe-no-fsync"))
    );
}

#[test]
fn it_is_called_by_the_name_of_etcd() {
    for (program, expected) in [
        ("etcd", true),
        ("/a b/etcd", true),
        ("etcdctl", false),
        ("kube-apiserver", false),
    ] {
        assert_eq!(is_etcd(OsStr::new(program)), expected, "{program}");
    }
}

#[tokio::test]
async fn it_listens_where_no_other_machine_reaches_it() {
    for url in [
        "http://0.0.0.0:0",
        "https://127.0.0.1:0",
        "unix:///tmp/x",
        "127.0.0.1:0",
        "x",
        "",
    ] {
        let refused = listen(url).await.expect_err(url);
        assert!(refused.starts_with("--listen-client-urls: "), "{refused}");
    }
    let listeners = listen("http://127.0.0.1:0").await.expect("a free port");
    let taken = format!("http://{}", listeners[0].address());
    assert!(
        listen(&taken)
            .await
            .expect_err("taken")
            .contains("cannot listen: ")
    );
}

#[test]
fn a_data_directory_has_one_owner_and_is_no_etcds() {
    let dir = tempfile::tempdir().expect("a directory");
    let (_, lock) = open(dir.path()).expect("opened");
    assert!(open(dir.path()).expect_err("locked").contains("--data-dir="));
    drop(lock);
    std::fs::create_dir(dir.path().join("member")).expect("made");
    assert!(
        open(dir.path())
            .expect_err("etcd's")
            .contains("the data of an etcd")
    );
}
