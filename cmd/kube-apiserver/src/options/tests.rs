use clap::CommandFactory as _;

use generic_server::registry::cache::StoredForm;

use super::*;
use crate::config::Config;

/// The faults of a command line that parses.
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
fn signers_are_checked_in_upstreams_words() {
    const BOTH: &str = "can't set `--service-account-signing-key-file` and/or `--service-account-key-file` with `--service-account-signing-endpoint` (They are mutually exclusive)";
    for good in ["/run/signer.sock", "@a.b-c_9", "@a", "relative", ""] {
        check(&[&format!("--service-account-signing-endpoint={good}")], &[]);
    }
    for bad in ["@", "@a..b", "@a/b", "@.a", "@a b"] {
        let fault = format!(
            "invalid value \"{bad}\" passed for `--service-account-signing-endpoint`, when prefixed with @ must be a valid abstract socket name"
        );
        check(&[&format!("--service-account-signing-endpoint={bad}")], &[&fault]);
    }
    for other in [
        "--service-account-signing-key-file=k",
        "--service-account-key-file=k",
    ] {
        check(&["--service-account-signing-endpoint=s", other], &[BOTH]);
    }
}

#[test]
fn origins_are_pinned_to_hosts() {
    check(&["--cors-allowed-origins=//a[.]example:80$,^https://b$"], &[]);
    check(
        &[
            "--cors-allowed-origins=(",
            "--cors-allowed-origins=example[.]com$,//a",
        ],
        &[
            "--cors-allowed-origins has an invalid regular expression \"(\": unclosed group",
            "--cors-allowed-origins has an invalid regular expression \"example[.]com$\": regular expression does not pin to start/end of host in the origin header",
            "--cors-allowed-origins has an invalid regular expression \"//a\": regular expression does not pin to start/end of host in the origin header",
        ],
    );
    check(
        &["--cors-allowed-origins="],
        &["empty value in --cors-allowed-origins"],
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
        let config = Config::new(options).expect("no faults");
        assert_eq!(config.storage.stored_form, form, "{flags:?}");
    }
    let refused = Options::try_parse_from(["kube-apiserver", "--storage-media-type=application/cbor"]);
    assert!(refused.is_err());
}

#[test]
fn invalid_values_are_refused_with_their_flag() {
    let cases: &[(&[&str], &str)] = &[
        (
            &["--max-requests-inflight=0", "--max-mutating-requests-inflight=0"],
            "invalid configuration: MaxRequestsInFlight=0 and MaxMutatingRequestsInFlight=0; they must add up to something positive",
        ),
        (
            &["--service-account-issuer="],
            "service-account-issuer should not be an empty string",
        ),
        (
            &[
                "--service-account-issuer=https://a",
                "--service-account-issuer=https://a",
            ],
            "service-account-issuer \"https://a\" is already specified",
        ),
        (
            &["--service-account-issuer=http://a"],
            "--service-account-issuer: \"http://a\" is no https URL: name one such as https://kubernetes.default.svc, which clients verify tokens with",
        ),
        (
            &["--service-cluster-ip-range=10.0.0.0/4"],
            "specified --service-cluster-ip-range is too large; for 32-bit addresses, the mask must be >= 12",
        ),
        (
            &["--service-cluster-ip-range=10.0.0.0/16,10.1.0.0/16"],
            "--service-cluster-ip-range[0] and --service-cluster-ip-range[1] must be of different IP family",
        ),
        (
            &["--service-cluster-ip-range=10.0.0.0/30"],
            "--service-cluster-ip-range: the service cluster IP range must be at least 8 IP addresses",
        ),
        (
            &["--service-cluster-ip-range=fd00::/126"],
            "--service-cluster-ip-range: the service cluster IP range must be at least 8 IP addresses",
        ),
        (
            &["--advertise-address=169.254.1.1"],
            "--advertise-address: 169.254.1.1 may not be in the link-local range (169.254.0.0/16, fe80::/10)",
        ),
        (
            &["--advertise-address=224.0.0.1"],
            "--advertise-address: 224.0.0.1 may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)",
        ),
        (
            &["--advertise-address=2001:db8::1"],
            "--advertise-address: service IP family \"10.0.0.0/24\" must match public address family \"2001:db8::1\"",
        ),
        (
            &["--history-retention=0"],
            "--history-retention must be at least 1s",
        ),
        (
            &["--history-retention=999ms"],
            "--history-retention must be at least 1s",
        ),
        (
            &["--history-max-changes=0"],
            "--history-max-changes must be more than zero",
        ),
        (
            &["--history-max-mib=0"],
            "--history-max-mib must be more than zero",
        ),
        (
            &["--runtime-config=api/all=false"],
            "--runtime-config: invalid runtime-config with only api/all=false",
        ),
        (
            &["--disable-admission-plugins=LimitRanger,"],
            "disable-admission-plugins plugin \"\" is unknown",
        ),
        (
            &["--runtime-config=bogus/v1=true"],
            "--runtime-config: unknown api groups bogus/v1: name them as group/version=true, or remove them",
        ),
        (
            &["--controllers=bogus"],
            "--controllers: \"bogus\" is not in the list of known controllers: namespace-controller, serviceaccount-controller, root-ca-certificate-publisher-controller, clusterrole-aggregation-controller, garbage-collector-controller, validatingadmissionpolicy-status-controller, storage-version-migrator-controller",
        ),
        (
            &["-v", "notalevel"],
            "-v notalevel: it is a number such as 2, or levels such as `info` or `debug,hyper=warn`",
        ),
        (
            &["--goaway-chance=0.5"],
            "--goaway-chance can not be less than 0 or greater than 0.02",
        ),
        (
            &["--strict-transport-security-directives=max-age=1,forever"],
            "--strict-transport-security-directives invalid, allowed values: max-age=expireTime, includeSubDomains, preload. see https://tools.ietf.org/html/rfc6797#section-6.1 for more information",
        ),
        (
            &["--requestheader-allowed-names= "],
            "empty value in \"requestheader-allowed-names\"",
        ),
        (
            &["--requestheader-uid-headers=X-Uid"],
            "--requestheader-uid-headers is set without specifying the standard X-Remote-Uid header - API aggregation will not work",
        ),
        (
            &["--requestheader-client-ca-file=a", "--client-ca-file=a"],
            "--requestheader-client-ca-file and --client-ca-file contain overlapping certificates; --requestheader-allowed-names must be specified to ensure regular client certificates cannot set authenticating proxy headers for arbitrary users",
        ),
        (
            &["--oidc-issuer-url=https://a"],
            "oidc-issuer-url and oidc-client-id must be specified together when any oidc-* flags are set",
        ),
        (
            &["--oidc-groups-claim=groups"],
            "oidc-issuer-url and oidc-client-id must be specified together when any oidc-* flags are set",
        ),
        (
            &["--authentication-config=file", "--oidc-signing-algs=RS256"],
            "authentication-config file and oidc-* flags are mutually exclusive",
        ),
        (
            &["--authorization-mode=RBAC,Node,RBAC"],
            "authorization-mode [\"RBAC\" \"Node\" \"RBAC\"] has mode specified more than once",
        ),
        (
            &["--audit-log-path=f", "--audit-log-maxage=-1"],
            "--audit-log-maxage -1 can't be a negative number",
        ),
        (
            &["--audit-log-path=f", "--audit-log-maxage=9999999999"],
            "--audit-log-maxage 9999999999 is too large",
        ),
        (
            &[
                "--audit-log-path=f",
                "--audit-log-mode=batch",
                "--audit-log-batch-buffer-size=1000001",
            ],
            "invalid audit batch log buffer size 1000001, must be at most 1000000",
        ),
        (
            &["--audit-log-path=f", "--audit-log-maxbackup=-2"],
            "--audit-log-maxbackup -2 can't be a negative number",
        ),
        (
            &["--audit-log-path=f", "--audit-log-maxsize=-3"],
            "--audit-log-maxsize -3 can't be a negative number",
        ),
        (
            &[
                "--audit-log-path=f",
                "--audit-log-mode=batch",
                "--audit-log-batch-buffer-size=0",
            ],
            "invalid audit batch log buffer size 0, must be a positive number",
        ),
        (
            &[
                "--audit-webhook-config-file=f",
                "--audit-webhook-batch-max-size=-1",
            ],
            "invalid audit batch webhook max batch size -1, must be a positive number",
        ),
        (
            &[
                "--audit-webhook-config-file=f",
                "--audit-webhook-batch-throttle-qps=0",
            ],
            "invalid audit batch webhook throttle QPS 0, must be a positive number",
        ),
        (
            &[
                "--audit-webhook-config-file=f",
                "--audit-webhook-batch-throttle-burst=0",
            ],
            "invalid audit batch webhook throttle burst 0, must be a positive number",
        ),
        (
            &["--audit-log-path=f", "--audit-log-truncate-max-event-size=0"],
            "invalid audit truncate log max event size 0, must be a positive number",
        ),
        (
            &["--audit-log-path=f", "--audit-log-truncate-max-batch-size=9"],
            "invalid audit truncate log max batch size 9, must be greater than max event size (102400)",
        ),
        (
            &["--tls-min-version=VersionTLS14"],
            "--tls-min-version: unknown tls version \"VersionTLS14\": it is VersionTLS12 or VersionTLS13",
        ),
        (
            &["--tls-cipher-suites=TLS_NONE"],
            "--tls-cipher-suites: Cipher suite TLS_NONE not supported or doesn't exist",
        ),
        (
            &["--tls-cipher-suites=TLS_RSA_WITH_AES_128_CBC_SHA"],
            "--tls-cipher-suites names no suite that is spoken",
        ),
        (
            &["--tls-sni-cert-key=crt"],
            "invalid argument \"crt\" for \"--tls-sni-cert-key\" flag: expected comma separated certificate and key file paths",
        ),
        (
            &["--tls-sni-cert-key=crt,key:"],
            "invalid argument \"crt,key:\" for \"--tls-sni-cert-key\" flag: empty names list is not allowed",
        ),
        (
            &["--authorization-mode=ABAC"],
            "authorization-mode ABAC's authorization policy file not passed: name it with --authorization-policy-file",
        ),
        (
            &["--authorization-mode=Webhook"],
            "authorization-mode Webhook's authorization config file not passed: name it with --authorization-webhook-config-file",
        ),
        (
            &["--authorization-policy-file=f"],
            "cannot specify --authorization-policy-file without mode ABAC",
        ),
        (
            &["--authorization-webhook-config-file=f"],
            "cannot specify --authorization-webhook-config-file without mode Webhook",
        ),
        (
            &["--authorization-config=f", "--authorization-webhook-version=v1"],
            "--authorization-config can not be specified when --authorization-mode or --authorization-webhook-* flags are defined",
        ),
        (
            &["--enable-admission-plugins=Bogus"],
            "enable-admission-plugins plugin \"Bogus\" is unknown",
        ),
    ];
    for (flags, fault) in cases {
        check(flags, &[fault]);
    }
    for good in [
        &["-v", "4"][..],
        &["-v", "debug,hyper=warn"],
        &["--controllers=*,-garbage-collector-controller"],
        &[
            "--service-account-issuer=https://a",
            "--service-account-issuer=https://b",
        ],
        &["--service-cluster-ip-range=10.0.0.0/12,fd00::/108"],
        &["--disable-admission-plugins=NodeRestriction,ServiceAccount"],
        &[
            "--disable-admission-plugins=",
            "--enable-admission-plugins=",
            "--feature-gates=",
            "--runtime-config=",
            "--watch-cache-sizes=",
        ],
        &["--advertise-address=0.0.0.0"],
        &["--advertise-address=::"],
        &[
            "--advertise-address=fd00::1",
            "--service-cluster-ip-range=fd00::/125",
        ],
        &["--history-retention=1s"],
    ] {
        check(good, &[]);
    }
}

#[test]
fn flags_without_effect_are_named() {
    #[track_caller]
    fn warns(flags: &str, expected: &str) {
        let line = ["kube-apiserver"].into_iter().chain(flags.split(' '));
        let options = Options::try_parse_from(line).expect("it parses");
        let config = Config::new(options).expect("no faults");
        assert_eq!(config.warnings, [expected], "{flags}");
    }
    warns(
        "--watch-cache=false",
        "--watch-cache has no effect: watch caches grow and shrink with their content",
    );
    warns(
        "--watch-cache-sizes=pods#10",
        "--watch-cache-sizes has no effect: watch caches grow and shrink with their content",
    );
    warns(
        "--runtime-config=apps/v1beta1=true",
        "--runtime-config: `apps/v1beta1=true` has no effect: apps/v1beta1 is not served here",
    );
    warns(
        "--advertise-address=127.0.0.1",
        "--advertise-address: 127.0.0.1 is a loopback address: the Service `kubernetes` gets no endpoint",
    );
    warns(
        "--enable-admission-plugins=JobValidation",
        "--enable-admission-plugins: plugin \"JobValidation\" has no effect without --feature-gates=GenericWorkload=true",
    );
    warns(
        "--requestheader-group-headers=X-G",
        "--requestheader-group-headers is set without specifying the standard X-Remote-Group header - API aggregation will not work",
    );
}

#[test]
fn choices_are_closed() {
    for flag in [
        "--storage-backend=sqlite",
        "--logging-format=xml",
        "--authorization-mode=Everybody",
        "--allow-privileged=maybe",
        "--kubelet-timeout=soon",
        "--kubelet-port=70000",
        "--kubelet-client-certificate=crt",
        "--anonymous-auth=maybe",
        "--oidc-required-claim=claim",
    ] {
        assert!(
            Options::try_parse_from(["kube-apiserver", flag]).is_err(),
            "{flag}"
        );
    }
}

#[test]
fn help_is_grouped_as_upstreams_and_wrapped() {
    let mut command = crate::cli::command().term_width(120);
    command.build();
    for flag in command.get_arguments().filter(|flag| !flag.is_hide_set()) {
        let heading = flag.get_help_heading().unwrap_or_default();
        assert!(
            heading.ends_with(" flags"),
            "--{} is under `{heading}`",
            flag.get_id()
        );
        let help = flag.get_help().map(ToString::to_string).unwrap_or_default();
        assert!(!help.is_empty(), "--{} says nothing", flag.get_id());
    }
    let text = command.render_help().to_string();
    let mut headings: Vec<&str> = text
        .lines()
        .filter_map(|line| line.strip_suffix(" flags:"))
        .collect();
    headings.retain(|heading| *heading != "Global");
    let expected = [
        "Generic",
        "Etcd",
        "Embedded store",
        "Secure serving",
        "Auditing",
        "Authentication",
        "Authorization",
        "API enablement",
        "Egress selector",
        "Admission",
        "Metrics",
        "Features",
        "Traces",
        "Logs",
        "Misc",
    ];
    assert_eq!(headings, expected);
    for subcommand in [
        "backup",
        "restore",
        "check",
        "scrub",
        "kubeconfig",
        "completion",
        "man",
        "version",
    ] {
        let at = text.find(&format!("\n  {subcommand} "));
        assert!(at.is_some() && at < text.find("Generic flags:"), "{subcommand}");
    }
    let longest = text.lines().map(|line| line.chars().count()).max();
    assert!(longest <= Some(120), "{longest:?}");
    // Without a terminal.
    let narrow = crate::cli::command().term_width(80).render_help().to_string();
    let words = narrow.lines().filter(|line| line.split_whitespace().count() > 2);
    let longest = words.map(|line| line.chars().count()).max();
    assert!(longest <= Some(80), "{longest:?}");
}

/// Each flag with values that show that it is read: the configuration differs from that without it, or there is a warning or an error.
const EFFECTS: &[&[&str]] = &[
    &["--advertise-address=192.0.2.1"],
    &["--feature-gates=AllowUnsafeMalformedObjectDeletion=true"],
    &["--max-requests-inflight=1"],
    &["--max-mutating-requests-inflight=1"],
    &["--enable-priority-and-fairness=false"],
    &["--request-timeout=2m"],
    &["--min-request-timeout=1"],
    &["--shutdown-delay-duration=1s"],
    &["--shutdown-send-retry-after"],
    &["--goaway-chance=0.01"],
    &["--strict-transport-security-directives=preload"],
    &["--cors-allowed-origins=//example[.]com$"],
    &["--storage-backend=sled"],
    &["--etcd-servers=http://127.0.0.1:2379"],
    &["--etcd-cafile=ca", "--etcd-servers=http://127.0.0.1:2379"],
    &[
        "--etcd-certfile=crt",
        "--etcd-keyfile=key",
        "--etcd-servers=http://127.0.0.1:2379",
    ],
    &["--etcd-keyfile=key"],
    &["--etcd-prefix=/other"],
    &[
        "--etcd-servers-overrides=/events#http://127.0.0.1:2",
        "--etcd-servers=http://127.0.0.1:2379",
    ],
    &[
        "--etcd-compaction-interval=1m",
        "--etcd-servers=http://127.0.0.1:2379",
    ],
    &["--etcd-count-metric-poll-period=2m"],
    &["--etcd-db-metric-poll-interval=2m"],
    &["--etcd-healthcheck-timeout=1s"],
    &["--etcd-readycheck-timeout=1s"],
    &[
        "--lease-reuse-duration-seconds=1",
        "--etcd-servers=http://127.0.0.1:2379",
    ],
    &["--storage-media-type=application/yaml"],
    &["--watch-cache=false"],
    &["--default-watch-cache-size=1"],
    &["--watch-cache-sizes=pods#1"],
    &["--encryption-provider-config=file"],
    &["--encryption-provider-config-automatic-reload"],
    &["--data-dir=elsewhere"],
    &["--history-retention=1m"],
    &["--history-max-changes=1"],
    &["--history-max-mib=1"],
    &["--watch-cache-history-mib=1"],
    &["--scrub-interval=1m"],
    &["--min-free-disk-mib=1"],
    &["--allow-empty"],
    &["--bind-address=127.0.0.1"],
    &["--secure-port=1"],
    &["--tls-cert-file=crt", "--tls-private-key-file=key"],
    &["--tls-private-key-file=key", "--tls-cert-file=crt"],
    &["--tls-min-version=VersionTLS13"],
    &["--tls-cipher-suites=TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"],
    &["--tls-sni-cert-key=crt,key"],
    &["--disable-http2-serving"],
    &["--anonymous-auth=false"],
    &["--authentication-config=file"],
    &["--oidc-issuer-url=https://i", "--oidc-client-id=c"],
    &["--oidc-client-id=c", "--oidc-issuer-url=https://i"],
    &[
        "--oidc-ca-file=ca",
        "--oidc-issuer-url=https://i",
        "--oidc-client-id=c",
    ],
    &[
        "--oidc-username-claim=email",
        "--oidc-issuer-url=https://i",
        "--oidc-client-id=c",
    ],
    &[
        "--oidc-username-prefix=-",
        "--oidc-issuer-url=https://i",
        "--oidc-client-id=c",
    ],
    &[
        "--oidc-groups-claim=g",
        "--oidc-issuer-url=https://i",
        "--oidc-client-id=c",
    ],
    &[
        "--oidc-groups-prefix=g:",
        "--oidc-issuer-url=https://i",
        "--oidc-client-id=c",
    ],
    &[
        "--oidc-required-claim=a=b",
        "--oidc-issuer-url=https://i",
        "--oidc-client-id=c",
    ],
    &[
        "--oidc-signing-algs=ES256",
        "--oidc-issuer-url=https://i",
        "--oidc-client-id=c",
    ],
    &["--api-audiences=a"],
    &["--client-ca-file=ca"],
    &["--requestheader-client-ca-file=ca"],
    &["--requestheader-allowed-names=a"],
    &["--requestheader-username-headers=X-Remote-User,X-U"],
    &["--requestheader-uid-headers=X-Remote-Uid,X-I"],
    &["--requestheader-group-headers=X-Remote-Group,X-G"],
    &["--requestheader-extra-headers-prefix=X-Remote-Extra-,X-E-"],
    &["--service-account-issuer=https://a"],
    &["--service-account-key-file=key"],
    &["--token-auth-file=file"],
    &["--authentication-token-webhook-config-file=file"],
    &[
        "--authentication-token-webhook-version=v1",
        "--authentication-token-webhook-config-file=file",
    ],
    &[
        "--authentication-token-webhook-cache-ttl=1m",
        "--authentication-token-webhook-config-file=file",
    ],
    &["--audit-policy-file=f"],
    &["--audit-log-path=f"],
    &["--audit-log-maxage=1", "--audit-log-path=f"],
    &["--audit-log-maxbackup=1", "--audit-log-path=f"],
    &["--audit-log-maxsize=1", "--audit-log-path=f"],
    &["--audit-log-compress", "--audit-log-path=f"],
    &["--audit-log-format=legacy", "--audit-log-path=f"],
    &["--audit-log-mode=batch", "--audit-log-path=f"],
    &["--audit-log-truncate-enabled", "--audit-log-path=f"],
    &["--audit-log-batch-buffer-size=1", "--audit-log-path=f"],
    &["--audit-log-batch-max-size=2", "--audit-log-path=f"],
    &["--audit-log-batch-max-wait=1s", "--audit-log-path=f"],
    &["--audit-log-batch-throttle-enable", "--audit-log-path=f"],
    &[
        "--audit-log-batch-throttle-qps=1",
        "--audit-log-path=f",
        "--audit-log-batch-throttle-enable",
    ],
    &[
        "--audit-log-batch-throttle-burst=1",
        "--audit-log-path=f",
        "--audit-log-batch-throttle-enable",
    ],
    &[
        "--audit-log-truncate-max-batch-size=200000",
        "--audit-log-path=f",
        "--audit-log-truncate-enabled",
    ],
    &[
        "--audit-log-truncate-max-event-size=1",
        "--audit-log-path=f",
        "--audit-log-truncate-enabled",
    ],
    &["--audit-webhook-config-file=f"],
    &["--audit-log-version=audit.k8s.io/v2"],
    &["--audit-webhook-version=audit.k8s.io/v2"],
    &[
        "--audit-webhook-initial-backoff=1s",
        "--audit-webhook-config-file=f",
    ],
    &[
        "--audit-webhook-batch-initial-backoff=1s",
        "--audit-webhook-config-file=f",
    ],
    &["--audit-webhook-mode=blocking", "--audit-webhook-config-file=f"],
    &[
        "--audit-webhook-truncate-enabled",
        "--audit-webhook-config-file=f",
    ],
    &[
        "--audit-webhook-batch-buffer-size=1",
        "--audit-webhook-config-file=f",
    ],
    &[
        "--audit-webhook-batch-max-size=2",
        "--audit-webhook-config-file=f",
    ],
    &[
        "--audit-webhook-batch-max-wait=1s",
        "--audit-webhook-config-file=f",
    ],
    &[
        "--audit-webhook-batch-throttle-enable=false",
        "--audit-webhook-config-file=f",
    ],
    &[
        "--audit-webhook-batch-throttle-qps=1",
        "--audit-webhook-config-file=f",
    ],
    &[
        "--audit-webhook-batch-throttle-burst=1",
        "--audit-webhook-config-file=f",
    ],
    &[
        "--audit-webhook-truncate-max-batch-size=200000",
        "--audit-webhook-config-file=f",
        "--audit-webhook-truncate-enabled",
    ],
    &[
        "--audit-webhook-truncate-max-event-size=1",
        "--audit-webhook-config-file=f",
        "--audit-webhook-truncate-enabled",
    ],
    &["--authorization-mode=AlwaysDeny"],
    &["--authorization-config=f"],
    &["--authorization-policy-file=f", "--authorization-mode=ABAC"],
    &[
        "--authorization-webhook-config-file=f",
        "--authorization-mode=Webhook",
    ],
    &["--authorization-webhook-version=v1"],
    &["--authorization-webhook-cache-authorized-ttl=1s"],
    &["--authorization-webhook-cache-unauthorized-ttl=1s"],
    &["--runtime-config=apps/v1=true"],
    &["--enable-admission-plugins=JobValidation"],
    &["--disable-admission-plugins=LimitRanger"],
    &["--admission-control-config-file=/a"],
    &["-v=nothing"],
    &["--service-account-signing-key-file=key"],
    &["--service-account-signing-endpoint=socket"],
    &["--proxy-client-cert-file=crt", "--proxy-client-key-file=key"],
    &["--proxy-client-key-file=key", "--proxy-client-cert-file=crt"],
    &["--enable-aggregator-routing"],
    &["--service-cluster-ip-range=10.1.0.0/24"],
    &["--service-node-port-range=1-2"],
    &["--event-ttl=2h"],
    &["--enable-ui=false"],
    &["--webhook-break-glass"],
    &["--allow-privileged=false"],
    &["--kubelet-client-certificate=crt", "--kubelet-client-key=key"],
    &["--kubelet-client-key=key", "--kubelet-client-certificate=crt"],
    &["--kubelet-certificate-authority=ca"],
    &["--kubelet-preferred-address-types=InternalIP"],
    &["--kubelet-timeout=1s"],
    &["--egress-selector-config-file=/a"],
    &["--kubelet-port=1"],
    &["--controllers=-*"],
    &["--external-hostname=api.example.com"],
    &["--endpoint-reconciler-type=none"],
    &["--enable-garbage-collector=false"],
    &["--default-not-ready-toleration-seconds=1"],
    &["--default-unreachable-toleration-seconds=1"],
    &["--enable-bootstrap-token-auth"],
    &["--service-account-max-token-expiration=1h"],
    &["--service-account-extend-token-expiration=false"],
    &["--service-account-jwks-uri=https://keys.example.com"],
    &["--tls-curve-preferences=24"],
    &["--http2-max-streams-per-connection=7"],
    &["--cert-dir=/a"],
    &["--permit-port-sharing"],
    &["--shutdown-watch-termination-grace-period=1s"],
    &["--show-hidden-metrics-for-version=1.35"],
    &["--disabled-metrics=apiserver_request_total"],
    &["--allow-metric-labels=apiserver_request_total,verb=GET"],
    &["--allow-metric-labels-manifest=/a"],
    &["--profiling=false"],
];

/// Flags that act before there is a configuration.
const BEFORE: [&str; 3] = ["help", "version", "logging-format"];

#[test]
fn every_flag_has_an_effect_or_says_that_it_has_none() {
    let outcome = |flags: &[&str]| {
        let line = ["kube-apiserver"].iter().chain(flags);
        match Options::try_parse_from(line).map(Config::new) {
            Ok(Ok(config)) => format!("{config:?}"),
            Ok(Err(errors)) => errors.join("; "),
            // A flag that needs another.
            Err(error) => error.to_string(),
        }
    };
    for flags in EFFECTS {
        // Of several flags the first is meant.
        assert_ne!(outcome(flags), outcome(&flags[1..]), "{flags:?}");
    }
    let shown: Vec<&str> = EFFECTS
        .iter()
        .filter_map(|flags| flags[0].trim_start_matches('-').split('=').next())
        .collect();
    let mut command = Options::command();
    command.build();
    for flag in command.get_arguments() {
        let name = flag.get_long().unwrap_or_default();
        let is_unserved = UnservedFlags::names().any(|unserved| unserved == name);
        assert!(
            shown.contains(&name) || BEFORE.contains(&name) || is_unserved,
            "--{name}: show its effect in EFFECTS"
        );
    }
}

/// Every flag of kube-apiserver 1.36 is one here.
#[test]
fn upstreams_flags_are_all_there() {
    let known: Vec<&str> = include_str!("upstream.txt").split_whitespace().collect();
    assert!(known.len() > 150);
    let mut command = Options::command();
    command.build();
    let ours: Vec<&str> = command
        .get_arguments()
        .filter_map(|flag| flag.get_long())
        .collect();
    let missing: Vec<&&str> = known.iter().filter(|name| !ours.contains(name)).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

/// The command line of a static pod that kubeadm 1.36 writes.
#[test]
fn kubeadms_command_line_starts_without_a_word() {
    let pki = |file: &str| format!("/etc/kubernetes/pki/{file}");
    let flags = [
        "--advertise-address=192.0.2.10".to_string(),
        "--allow-privileged=true".into(),
        "--authorization-mode=Node,RBAC".into(),
        format!("--client-ca-file={}", pki("ca.crt")),
        "--enable-admission-plugins=NodeRestriction".into(),
        "--enable-bootstrap-token-auth=true".into(),
        format!("--etcd-cafile={}", pki("etcd/ca.crt")),
        format!("--etcd-certfile={}", pki("apiserver-etcd-client.crt")),
        format!("--etcd-keyfile={}", pki("apiserver-etcd-client.key")),
        "--etcd-servers=https://127.0.0.1:2379".into(),
        format!(
            "--kubelet-client-certificate={}",
            pki("apiserver-kubelet-client.crt")
        ),
        format!("--kubelet-client-key={}", pki("apiserver-kubelet-client.key")),
        "--kubelet-preferred-address-types=InternalIP,ExternalIP,Hostname".into(),
        format!("--proxy-client-cert-file={}", pki("front-proxy-client.crt")),
        format!("--proxy-client-key-file={}", pki("front-proxy-client.key")),
        "--requestheader-allowed-names=front-proxy-client".into(),
        format!("--requestheader-client-ca-file={}", pki("front-proxy-ca.crt")),
        "--requestheader-extra-headers-prefix=X-Remote-Extra-".into(),
        "--requestheader-group-headers=X-Remote-Group".into(),
        "--requestheader-username-headers=X-Remote-User".into(),
        "--secure-port=6443".into(),
        "--service-account-issuer=https://kubernetes.default.svc.cluster.local".into(),
        format!("--service-account-key-file={}", pki("sa.pub")),
        format!("--service-account-signing-key-file={}", pki("sa.key")),
        "--service-cluster-ip-range=10.96.0.0/12".into(),
        format!("--tls-cert-file={}", pki("apiserver.crt")),
        format!("--tls-private-key-file={}", pki("apiserver.key")),
    ];
    let line = std::iter::once("kube-apiserver".to_string()).chain(flags);
    let options = Options::try_parse_from(line).expect("it parses");
    let config = Config::new(options).expect("it is whole");
    // Upstream does not verify kubelets without a CA, and neither says nor asks.
    let words: Vec<&String> = config
        .warnings
        .iter()
        .filter(|warning| !warning.contains("kubelet-certificate-authority"))
        .collect();
    assert!(words.is_empty(), "{words:?}");
}
