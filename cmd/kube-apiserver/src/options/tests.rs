use generic_server::registry::cache::StoredForm;

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
        let config = Config::new(options).expect("no faults");
        assert_eq!(config.storage.stored_form, form, "{flags:?}");
    }
    let refused = Options::try_parse_from(["kube-apiserver", "--storage-media-type=application/cbor"]);
    assert!(refused.is_err());
}

#[test]
fn what_cannot_be_is_refused_with_its_flag() {
    let cases: &[(&[&str], &str)] = &[
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
            &["--runtime-config=bogus/v1=true"],
            "--runtime-config: unknown api groups bogus/v1: name them as group/version=true, or remove them",
        ),
        (
            &["--controllers=bogus"],
            "--controllers: \"bogus\" is not in the list of known controllers: namespace-controller, serviceaccount-controller, root-ca-certificate-publisher-controller, clusterrole-aggregation-controller, garbage-collector-controller, storage-version-migrator-controller",
        ),
        (
            &["-v", "notalevel"],
            "-v notalevel: it is a number from 0 to 10, or levels such as `info` or `debug,hyper=warn`",
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
            &["--enable-admission-plugins=Bogus"],
            "enable-admission-plugins plugin \"Bogus\" is unknown",
        ),
        (
            &["--enable-admission-plugins=EventRateLimit"],
            "--enable-admission-plugins: plugin \"EventRateLimit\" does not exist in this server: remove it from the flag",
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
    ] {
        check(good, &[]);
    }
}

#[test]
fn what_has_no_effect_is_named() {
    #[track_caller]
    fn warns(flag: &str, expected: &str) {
        let options = Options::try_parse_from(["kube-apiserver", flag]).expect("it parses");
        let config = Config::new(options).expect("no faults");
        assert_eq!(config.warnings, [expected], "{flag}");
    }
    warns(
        "--watch-cache=false",
        "--watch-cache has no effect: watch caches follow what they hold",
    );
    warns(
        "--watch-cache-sizes=pods#10",
        "--watch-cache-sizes has no effect: watch caches follow what they hold",
    );
    warns(
        "--runtime-config=apps/v1=false",
        "--runtime-config: `apps/v1=false` has no effect: only storagemigration.k8s.io/v1beta1 can be turned on and off",
    );
    warns(
        "--enable-admission-plugins=PodTopologyLabels",
        "--enable-admission-plugins: plugin \"PodTopologyLabels\" does not exist in this server and has no effect",
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
    ] {
        assert!(
            Options::try_parse_from(["kube-apiserver", flag]).is_err(),
            "{flag}"
        );
    }
}
