//! Which test shows the effect of which flag.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use clap::CommandFactory;
use control_plane::{Options, UnservedFlags};

const ADMISSION: &str = "cmd/kube-apiserver/tests/binary/admission_config.rs";
const AUDIT: &str = "cmd/kube-apiserver/tests/binary/effects/audit.rs";
const HERE: &str = "cmd/kube-apiserver/tests/binary/effects.rs";
const ISSUERS: &str = "cmd/kube-apiserver/tests/binary/effects/issuers.rs";
const TLS: &str = "cmd/kube-apiserver/tests/binary/effects/tls.rs";
const USERS: &str = "cmd/kube-apiserver/tests/binary/effects/users.rs";
const ON_ETCD: &str = "cmd/kube-apiserver/tests/binary/effects/etcd.rs";
const CLUSTER: &str = "cmd/kube-apiserver/tests/binary/effects/cluster.rs";
const FLAGS: &str = "cmd/kube-apiserver/tests/binary/flags.rs";
const MAIN: &str = "cmd/kube-apiserver/tests/binary/main.rs";
const SERVING: &str = "cmd/kube-apiserver/tests/binary/serving.rs";
const ACCESS: &str = "test/integration/src/access.rs";
const EGRESS: &str = "test/integration/src/egress.rs";
const ENCRYPTION: &str = "test/integration/src/encryption.rs";
const NODES: &str = "test/integration/src/nodes.rs";
const STREAMS: &str = "test/integration/src/nodes/trust.rs";
const SIGNER: &str = "test/integration/src/signer.rs";
const ROUTING: &str = "test/integration/src/aggregation/routing.rs";

/// Flags whose effect a test of the binary shows: the file and name of the test. It, or a function of the file that it calls, gives the
/// flag on the command line.
const SHOWN: &[(&str, &str, &str)] = &[
    (
        "show-hidden-metrics-for-version",
        FLAGS,
        "metrics_are_chosen_by_flags",
    ),
    ("disabled-metrics", FLAGS, "metrics_are_chosen_by_flags"),
    ("allow-metric-labels", FLAGS, "metrics_are_chosen_by_flags"),
    (
        "allow-metric-labels-manifest",
        FLAGS,
        "metrics_are_chosen_by_flags",
    ),
    ("profiling", FLAGS, "flags_are_shown_and_debugging_is_turned_off"),
    ("external-hostname", CLUSTER, "names_tolerations_and_endpoints"),
    (
        "endpoint-reconciler-type",
        CLUSTER,
        "names_tolerations_and_endpoints",
    ),
    (
        "enable-garbage-collector",
        CLUSTER,
        "names_tolerations_and_endpoints",
    ),
    (
        "default-not-ready-toleration-seconds",
        CLUSTER,
        "names_tolerations_and_endpoints",
    ),
    (
        "default-unreachable-toleration-seconds",
        CLUSTER,
        "names_tolerations_and_endpoints",
    ),
    ("enable-bootstrap-token-auth", CLUSTER, "tokens_of_its_own"),
    (
        "service-account-max-token-expiration",
        CLUSTER,
        "tokens_of_its_own",
    ),
    ("service-account-jwks-uri", CLUSTER, "tokens_of_its_own"),
    (
        "service-account-extend-token-expiration",
        CLUSTER,
        "tokens_of_pods_hold_longer",
    ),
    ("permit-port-sharing", CLUSTER, "two_servers_on_one_port"),
    (
        "shutdown-watch-termination-grace-period",
        CLUSTER,
        "watches_have_a_while_at_the_end",
    ),
    ("tls-curve-preferences", TLS, "cipher_suites_are_chosen"),
    (
        "http2-max-streams-per-connection",
        TLS,
        "streams_are_bounded_and_the_certificate_is_in_a_directory",
    ),
    (
        "cert-dir",
        TLS,
        "streams_are_bounded_and_the_certificate_is_in_a_directory",
    ),
    ("admission-control-config-file", ADMISSION, "events_are_limited"),
    ("advertise-address", HERE, "networks_and_services"),
    (
        "allow-empty",
        HERE,
        "a_lost_store_is_refused_unless_it_may_be_empty",
    ),
    (
        "allow-privileged",
        FLAGS,
        "privileged_containers_are_forbidden_by_flag",
    ),
    ("enable-ui", FLAGS, "the_status_page_is_turned_off_by_flag"),
    (
        "webhook-break-glass",
        FLAGS,
        "what_brings_a_webhook_back_goes_past_it_by_flag",
    ),
    ("anonymous-auth", USERS, "anonymous_requests_and_audiences"),
    ("api-audiences", USERS, "anonymous_requests_and_audiences"),
    ("audit-log-batch-buffer-size", AUDIT, "the_audit_log_in_batches"),
    ("audit-log-batch-max-size", AUDIT, "the_audit_log_in_batches"),
    ("audit-log-batch-max-wait", AUDIT, "the_audit_log_in_batches"),
    (
        "audit-log-batch-throttle-burst",
        AUDIT,
        "the_audit_log_in_batches",
    ),
    (
        "audit-log-batch-throttle-enable",
        AUDIT,
        "the_audit_log_in_batches",
    ),
    ("audit-log-batch-throttle-qps", AUDIT, "the_audit_log_in_batches"),
    ("audit-log-compress", AUDIT, "the_audit_log_is_rotated"),
    ("audit-log-format", AUDIT, "the_audit_log_in_batches"),
    ("audit-log-maxage", AUDIT, "the_audit_log_is_rotated"),
    ("audit-log-maxbackup", AUDIT, "the_audit_log_is_rotated"),
    ("audit-log-maxsize", AUDIT, "the_audit_log_is_rotated"),
    ("audit-log-mode", AUDIT, "the_audit_log_in_batches"),
    ("audit-log-path", AUDIT, "the_audit_log_is_rotated"),
    ("audit-log-truncate-enabled", AUDIT, "the_audit_log_is_rotated"),
    (
        "audit-log-truncate-max-batch-size",
        AUDIT,
        "the_audit_log_is_rotated",
    ),
    (
        "audit-log-truncate-max-event-size",
        AUDIT,
        "the_audit_log_is_rotated",
    ),
    ("audit-log-version", AUDIT, "the_audit_log_is_rotated"),
    ("audit-policy-file", AUDIT, "the_audit_log_is_rotated"),
    ("audit-webhook-batch-buffer-size", AUDIT, "the_audit_webhook"),
    (
        "audit-webhook-batch-initial-backoff",
        AUDIT,
        "a_webhook_that_is_away_is_asked_again_by_the_deprecated_flag",
    ),
    ("audit-webhook-batch-max-size", AUDIT, "the_audit_webhook"),
    ("audit-webhook-batch-max-wait", AUDIT, "the_audit_webhook"),
    ("audit-webhook-batch-throttle-burst", AUDIT, "the_audit_webhook"),
    ("audit-webhook-batch-throttle-enable", AUDIT, "the_audit_webhook"),
    ("audit-webhook-batch-throttle-qps", AUDIT, "the_audit_webhook"),
    ("audit-webhook-config-file", AUDIT, "the_audit_webhook"),
    ("audit-webhook-initial-backoff", AUDIT, "the_audit_webhook"),
    (
        "audit-webhook-mode",
        AUDIT,
        "a_webhook_that_is_away_is_asked_again_by_the_deprecated_flag",
    ),
    ("audit-webhook-truncate-enabled", AUDIT, "the_audit_webhook"),
    (
        "audit-webhook-truncate-max-batch-size",
        AUDIT,
        "the_audit_webhook",
    ),
    (
        "audit-webhook-truncate-max-event-size",
        AUDIT,
        "the_audit_webhook",
    ),
    ("audit-webhook-version", AUDIT, "the_audit_webhook"),
    (
        "tls-min-version",
        TLS,
        "certificates_by_name_and_the_lowest_version",
    ),
    (
        "tls-sni-cert-key",
        TLS,
        "certificates_by_name_and_the_lowest_version",
    ),
    (
        "disable-http2-serving",
        TLS,
        "certificates_by_name_and_the_lowest_version",
    ),
    ("tls-cipher-suites", TLS, "cipher_suites_are_chosen"),
    ("authorization-config", USERS, "authorizers_of_flags_and_files"),
    (
        "authorization-policy-file",
        USERS,
        "authorizers_of_flags_and_files",
    ),
    (
        "authorization-webhook-cache-authorized-ttl",
        USERS,
        "authorizers_of_flags_and_files",
    ),
    (
        "authorization-webhook-cache-unauthorized-ttl",
        USERS,
        "authorizers_of_flags_and_files",
    ),
    (
        "authorization-webhook-config-file",
        USERS,
        "authorizers_of_flags_and_files",
    ),
    (
        "authorization-webhook-version",
        USERS,
        "authorizers_of_flags_and_files",
    ),
    ("authorization-mode", USERS, "authorizers_of_flags_and_files"),
    ("authentication-config", ISSUERS, "a_file_of_jwt_authenticators"),
    (
        "authentication-token-webhook-cache-ttl",
        USERS,
        "answers_of_a_token_webhook_expire",
    ),
    (
        "authentication-token-webhook-config-file",
        USERS,
        "answers_of_a_token_webhook_expire",
    ),
    ("bind-address", HERE, "the_address_that_it_listens_on"),
    ("client-ca-file", FLAGS, "given_authorities_are_the_only_ones"),
    ("controllers", HERE, "networks_and_services"),
    ("cors-allowed-origins", HERE, "networks_and_services"),
    ("data-dir", MAIN, "every_acknowledged_write_survives_kill_9"),
    ("default-watch-cache-size", HERE, "logs_and_warnings"),
    (
        "disable-admission-plugins",
        FLAGS,
        "admission_plugins_are_turned_off",
    ),
    (
        "enable-priority-and-fairness",
        SERVING,
        "seats_are_bounded_by_flags",
    ),
    ("etcd-cafile", ON_ETCD, "tls_and_health"),
    ("etcd-certfile", ON_ETCD, "tls_and_health"),
    ("etcd-compaction-interval", ON_ETCD, "leases_and_compaction"),
    (
        "etcd-count-metric-poll-period",
        HERE,
        "keys_and_values_of_the_store",
    ),
    (
        "etcd-db-metric-poll-interval",
        HERE,
        "keys_and_values_of_the_store",
    ),
    ("etcd-healthcheck-timeout", ON_ETCD, "tls_and_health"),
    ("etcd-keyfile", ON_ETCD, "tls_and_health"),
    ("etcd-prefix", HERE, "keys_and_values_of_the_store"),
    ("etcd-readycheck-timeout", ON_ETCD, "tls_and_health"),
    ("etcd-servers", ON_ETCD, "tls_and_health"),
    ("event-ttl", HERE, "networks_and_services"),
    (
        "goaway-chance",
        SERVING,
        "connections_are_asked_to_go_now_and_then",
    ),
    ("help", HERE, "help_and_version"),
    ("history-max-changes", HERE, "history_is_cut_by_changes"),
    ("history-max-mib", HERE, "history_is_cut_by_bytes"),
    ("history-retention", HERE, "history_is_cut_by_age"),
    ("lease-reuse-duration-seconds", ON_ETCD, "leases_and_compaction"),
    ("logging-format", HERE, "logs_and_warnings"),
    (
        "max-mutating-requests-inflight",
        SERVING,
        "seats_are_bounded_by_flags",
    ),
    ("max-requests-inflight", SERVING, "seats_are_bounded_by_flags"),
    ("min-free-disk-mib", HERE, "a_first_start_needs_free_space"),
    ("min-request-timeout", HERE, "networks_and_services"),
    ("oidc-ca-file", ISSUERS, "flags_about_an_issuer"),
    ("oidc-client-id", ISSUERS, "flags_about_an_issuer"),
    ("oidc-groups-claim", ISSUERS, "flags_about_an_issuer"),
    ("oidc-groups-prefix", ISSUERS, "flags_about_an_issuer"),
    ("oidc-issuer-url", ISSUERS, "flags_about_an_issuer"),
    ("oidc-required-claim", ISSUERS, "flags_about_an_issuer"),
    ("oidc-signing-algs", ISSUERS, "flags_about_an_issuer"),
    ("oidc-username-claim", ISSUERS, "flags_about_an_issuer"),
    ("oidc-username-prefix", ISSUERS, "flags_about_an_issuer"),
    ("request-timeout", SERVING, "a_request_ends_with_its_timeout"),
    (
        "requestheader-allowed-names",
        FLAGS,
        "given_authorities_are_the_only_ones",
    ),
    (
        "requestheader-client-ca-file",
        FLAGS,
        "given_authorities_are_the_only_ones",
    ),
    (
        "requestheader-extra-headers-prefix",
        USERS,
        "headers_of_front_proxies",
    ),
    ("requestheader-group-headers", USERS, "headers_of_front_proxies"),
    ("requestheader-uid-headers", USERS, "headers_of_front_proxies"),
    (
        "requestheader-username-headers",
        FLAGS,
        "given_authorities_are_the_only_ones",
    ),
    ("scrub-interval", HERE, "keys_and_values_of_the_store"),
    ("secure-port", MAIN, "faults_at_start_are_one_line_and_a_code"),
    (
        "service-account-issuer",
        FLAGS,
        "the_first_issuer_issues_and_all_are_accepted",
    ),
    ("service-cluster-ip-range", HERE, "networks_and_services"),
    ("service-node-port-range", HERE, "networks_and_services"),
    ("shutdown-delay-duration", MAIN, "a_second_signal_ends_it_at_once"),
    (
        "shutdown-send-retry-after",
        SERVING,
        "a_server_that_stops_says_when_to_come_again",
    ),
    ("storage-backend", HERE, "keys_and_values_of_the_store"),
    ("storage-media-type", HERE, "keys_and_values_of_the_store"),
    (
        "strict-transport-security-directives",
        FLAGS,
        "transport_security_is_announced",
    ),
    ("v", HERE, "logs_and_warnings"),
    ("version", HERE, "help_and_version"),
    ("watch-cache", HERE, "logs_and_warnings"),
    ("watch-cache-history-mib", HERE, "networks_and_services"),
    ("watch-cache-sizes", HERE, "logs_and_warnings"),
];

/// Flags whose effect a test of a server in process shows, which sets the field that the flag is parsed into. These tests need more of
/// the server than a process shows, or several servers.
const SHOWN_IN_PROCESS: &[(&str, &str, &str)] = &[
    (
        "egress-selector-config-file",
        EGRESS,
        "nodes_are_reached_through_konnectivity",
    ),
    (
        "kubelet-certificate-authority",
        STREAMS,
        "kubelets_are_trusted_by_flags",
    ),
    (
        "kubelet-client-certificate",
        STREAMS,
        "kubelets_are_trusted_by_flags",
    ),
    ("kubelet-client-key", STREAMS, "kubelets_are_trusted_by_flags"),
    ("kubelet-port", STREAMS, "nodes_are_reached_by_flags"),
    (
        "kubelet-preferred-address-types",
        STREAMS,
        "nodes_are_reached_by_flags",
    ),
    ("kubelet-timeout", STREAMS, "nodes_are_reached_by_flags"),
    (
        "authentication-token-webhook-version",
        ACCESS,
        "a_webhook_authenticates_tokens",
    ),
    (
        "enable-admission-plugins",
        NODES,
        "a_kubelet_reads_objects_of_its_pods",
    ),
    (
        "enable-aggregator-routing",
        ROUTING,
        "endpoints_share_the_requests_and_stand_in_for_each_other",
    ),
    (
        "encryption-provider-config",
        ENCRYPTION,
        "values_are_hidden_and_keys_rotate",
    ),
    (
        "encryption-provider-config-automatic-reload",
        ENCRYPTION,
        "values_are_hidden_and_keys_rotate",
    ),
    (
        "etcd-servers-overrides",
        "test/integration/src/etcd.rs",
        "resources_may_have_a_prefix_and_an_etcd_of_their_own",
    ),
    (
        "feature-gates",
        "test/integration/src/custom_migration.rs",
        "objects_move_to_the_new_storage_version",
    ),
    (
        "proxy-client-cert-file",
        ROUTING,
        "the_certificate_that_vouches_is_read_again",
    ),
    (
        "proxy-client-key-file",
        ROUTING,
        "the_certificate_that_vouches_is_read_again",
    ),
    (
        "runtime-config",
        "test/integration/src/custom_migration.rs",
        "objects_move_to_the_new_storage_version",
    ),
    (
        "service-account-key-file",
        ACCESS,
        "keys_of_tokens_are_read_again",
    ),
    (
        "service-account-signing-key-file",
        ACCESS,
        "keys_of_tokens_are_read_again",
    ),
    (
        "service-account-signing-endpoint",
        SIGNER,
        "a_program_signs_the_tokens_of_service_accounts",
    ),
    (
        "tls-cert-file",
        ACCESS,
        "certificates_and_authorities_are_read_again",
    ),
    (
        "tls-private-key-file",
        ACCESS,
        "certificates_and_authorities_are_read_again",
    ),
    ("token-auth-file", ACCESS, "escalation_is_refused"),
];

/// The functions of a file by name, each with its text to the line that closes it.
fn functions(source: &str) -> BTreeMap<&str, &str> {
    let starts = source.match_indices("fn ").filter_map(|(at, _)| {
        let text = &source[at + 3..];
        let name = &text[..text.find(['(', '<'])?];
        Some((name, &text[..text.find("\n}\n").unwrap_or(text.len())]))
    });
    starts.collect()
}

/// Whether a function, or one of the file that it calls, contains a text.
fn mentions<'s>(
    functions: &BTreeMap<&'s str, &'s str>,
    name: &'s str,
    text: &dyn Fn(&str) -> bool,
    seen: &mut BTreeSet<&'s str>,
) -> bool {
    let Some(body) = functions.get(name).filter(|_| seen.insert(name)) else {
        return false;
    };
    text(body)
        || (functions.keys()).any(|callee| calls(body, callee) && mentions(functions, callee, text, seen))
}

/// Whether a source calls a function by its bare name. Methods, functions of other modules and longer names are others.
fn calls(source: &str, name: &str) -> bool {
    let other = |before: char| before.is_alphanumeric() || "_.:".contains(before);
    let call = format!("{name}(");
    let mut found = source.match_indices(&call);
    found.any(|(at, _)| !source[..at].ends_with(other))
}

/// Whether a text is in a source and no longer name goes on after it.
fn has(source: &str, text: &str) -> bool {
    let longer = |after: char| after.is_alphanumeric() || "_-".contains(after);
    let mut found = source.match_indices(text);
    found.any(|(at, _)| !source[at + text.len()..].starts_with(longer))
}

#[test]
fn names_are_whole() {
    let source = "list.map(x); self.post(a); serde::map(y); remap(z)";
    assert!(!calls(source, "map") && !calls(source, "post") && calls(source, "remap"));
    assert!(calls("map(x)", "map") && calls("a(map(x))", "map"));
    assert!(has("\"--v=4\"", "\"--v") && has("\"--v\"", "\"--v"));
    assert!(!has("\"--version\", \"--v-more\"", "\"--v"));
}

#[test]
fn every_flag_shows_its_effect() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut command = Options::command();
    command.build();
    let flags: Vec<&str> = command
        .get_arguments()
        .filter_map(|flag| flag.get_long())
        .collect();
    for flag in &flags {
        let row = |table: &[(_, &'static str, &'static str)]| {
            let row = table.iter().find(|(name, ..)| name == flag);
            row.map(|(_, file, test)| (*file, *test))
        };
        let (shown, in_process) = (row(SHOWN), row(SHOWN_IN_PROCESS));
        assert!(
            shown.is_none() || in_process.is_none(),
            "--{flag} is twice in the tables"
        );
        if UnservedFlags::names().any(|name| name == *flag) {
            continue;
        }
        let Some((file, test)) = shown.or(in_process) else {
            panic!("--{flag}: write a test of its effect in a running server and name it in SHOWN");
        };
        let of_binary = file.starts_with("cmd/kube-apiserver/tests/");
        assert_eq!(
            of_binary,
            shown.is_some(),
            "--{flag}: {file} is in the wrong table"
        );
        let given = match of_binary {
            true => format!("\"--{flag}"),
            false => format!("options.{}", flag.replace('-', "_")),
        };
        let source = std::fs::read_to_string(root.join(file)).expect("a source file");
        let functions = functions(&source);
        assert!(functions.contains_key(test), "--{flag}: no `{test}` in {file}");
        let names = |body: &str| has(body, &given);
        let found = mentions(&functions, test, &names, &mut BTreeSet::new());
        assert!(found, "{given} does not occur in `{test}` of {file}");
    }
    for (name, ..) in SHOWN.iter().chain(SHOWN_IN_PROCESS) {
        assert!(flags.contains(name), "--{name} is no flag");
    }
}
