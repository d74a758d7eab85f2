//! Flags that are set and that nothing reads, since another flag makes them void.

use std::time::Duration;

use super::features;
use crate::options::{Options, StorageBackend};

/// A flag, and whether it is set to something else than its default.
type Flag = (&'static str, bool);

/// A warning for each such flag.
pub(super) fn flags(options: &Options) -> Vec<String> {
    let defaults = Options::defaults();
    let differs = |of: fn(&Options) -> Duration| of(options) != of(&defaults);
    let (on_etcd, in_memory) = (
        !options.etcd_servers.is_empty(),
        options.storage_backend == Some(StorageBackend::Memory),
    );
    let of_etcd = [
        ("--etcd-cafile", options.etcd_cafile.is_some()),
        ("--etcd-certfile", options.etcd_certfile.is_some()),
        ("--etcd-keyfile", options.etcd_keyfile.is_some()),
        (
            "--etcd-compaction-interval",
            differs(|options| options.etcd_compaction_interval),
        ),
        (
            "--lease-reuse-duration-seconds",
            options.lease_reuse_duration_seconds != defaults.lease_reuse_duration_seconds,
        ),
    ];
    let of_history = [
        (
            "--history-retention",
            differs(|options| options.history_retention),
        ),
        (
            "--history-max-changes",
            options.history_max_changes != defaults.history_max_changes,
        ),
        (
            "--history-max-mib",
            options.history_max_mib != defaults.history_max_mib,
        ),
    ];
    let of_files = [
        ("--allow-empty", options.allow_empty),
        (
            "--min-free-disk-mib",
            options.min_free_disk_mib != defaults.min_free_disk_mib,
        ),
        ("--scrub-interval", differs(|options| options.scrub_interval)),
    ];
    let of_webhook = [
        (
            "--authentication-token-webhook-version",
            options.authentication_token_webhook_version != defaults.authentication_token_webhook_version,
        ),
        (
            "--authentication-token-webhook-cache-ttl",
            differs(|options| options.authentication_token_webhook_cache_ttl),
        ),
    ];
    let no_webhook = options.authentication_token_webhook_config_file.is_none();
    let groups: [(bool, &str, &[Flag]); 5] = [
        (!on_etcd, "without --etcd-servers", &of_etcd),
        (on_etcd, "with --etcd-servers", &of_history),
        (on_etcd, "with --etcd-servers", &of_files),
        (in_memory && !on_etcd, "with --storage-backend=memory", &of_files),
        (
            no_webhook,
            "without --authentication-token-webhook-config-file",
            &of_webhook,
        ),
    ];
    let void = groups.into_iter().filter(|(is_void, ..)| *is_void);
    void.flat_map(|(_, why, flags)| {
        let set = flags.iter().filter(|(_, is_set)| *is_set);
        set.map(move |(flag, _)| format!("{flag} has no effect {why}"))
    })
    .chain(features::lone_migration_switch(
        &options.feature_gates,
        &options.runtime_config,
    ))
    .collect()
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    #[test]
    fn each_is_named() {
        #[track_caller]
        fn check(flags: &[&str], expected: &[&str]) {
            let all = std::iter::once("kube-apiserver").chain(flags.iter().copied());
            let options = Options::try_parse_from(all).expect("it parses");
            assert_eq!(super::flags(&options), expected, "{flags:?}");
        }
        check(&[], &[]);
        check(
            &["--etcd-cafile=a", "--etcd-certfile=b", "--etcd-keyfile=c"],
            &[
                "--etcd-cafile has no effect without --etcd-servers",
                "--etcd-certfile has no effect without --etcd-servers",
                "--etcd-keyfile has no effect without --etcd-servers",
            ],
        );
        let etcd = "--etcd-servers=http://127.0.0.1:1";
        let more = [
            "--etcd-compaction-interval=1m",
            "--lease-reuse-duration-seconds=1",
        ];
        check(&[etcd, more[0], more[1]], &[]);
        check(
            &more,
            &[
                "--etcd-compaction-interval has no effect without --etcd-servers",
                "--lease-reuse-duration-seconds has no effect without --etcd-servers",
            ],
        );
        let history = [
            "--history-retention=1m",
            "--history-max-changes=1",
            "--history-max-mib=1",
        ];
        let files = ["--allow-empty", "--min-free-disk-mib=1", "--scrub-interval=1h"];
        check(&[history, files].concat(), &[]);
        check(
            &[&[etcd][..], &history, &files].concat(),
            &[
                "--history-retention has no effect with --etcd-servers",
                "--history-max-changes has no effect with --etcd-servers",
                "--history-max-mib has no effect with --etcd-servers",
                "--allow-empty has no effect with --etcd-servers",
                "--min-free-disk-mib has no effect with --etcd-servers",
                "--scrub-interval has no effect with --etcd-servers",
            ],
        );
        let memory = "--storage-backend=memory";
        check(
            &[&[memory][..], &history, &files].concat(),
            &[
                "--allow-empty has no effect with --storage-backend=memory",
                "--min-free-disk-mib has no effect with --storage-backend=memory",
                "--scrub-interval has no effect with --storage-backend=memory",
            ],
        );
        check(
            &[
                "--authentication-token-webhook-version=v1",
                "--authentication-token-webhook-cache-ttl=1s",
            ],
            &[
                "--authentication-token-webhook-version has no effect without --authentication-token-webhook-config-file",
                "--authentication-token-webhook-cache-ttl has no effect without --authentication-token-webhook-config-file",
            ],
        );
        let (gate, api) = (
            "--feature-gates=StorageVersionMigrator=true",
            "--runtime-config=storagemigration.k8s.io/v1beta1=true",
        );
        check(&[gate, api], &[]);
        check(&[gate, "--runtime-config=api/beta=true"], &[]);
        check(&["--runtime-config=api/all=true"], &[]);
        check(&[gate], &[&format!("{gate} has no effect without {api}")]);
        check(&[api], &[&format!("{api} has no effect without {gate}")]);
    }
}
