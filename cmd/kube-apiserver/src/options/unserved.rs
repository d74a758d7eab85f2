//! Flags of upstream for what this server does not have. They are parsed as upstream parses them, so that its command lines start
//! unchanged; one that asks for something is named at the start, or refused where going on without it would not be safe.

use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches};
use machinery::time::GoDuration;

use super::{ADMISSION, AUTHENTICATION, ETCD, FEATURES, GENERIC, LOGS, MISC, SERVING};

const TRACES: &str = "Traces flags";

/// The values of a flag.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Values {
    Bool,
    Number,
    Duration,
    /// Anything.
    Text,
}

/// The answer to a value that asks for something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Answer {
    /// Names the flag at the start.
    Warn,
    /// Refuses the start.
    Refuse,
}

use Answer::{Refuse, Warn};

/// A flag: its heading and name, the type of its values, the values that this server satisfies (`*` for all), and the answer to other
/// values with its reason.
type Unserved = (
    &'static str,
    &'static str,
    Values,
    &'static [&'static str],
    Answer,
    &'static str,
);

const NOT_EMULATED: &str = "no older version is emulated";
const ONE_STREAM: &str = "all lines go to the standard error, and each at once";
const NO_PEERS: &str = "requests are not forwarded to replicas of other versions";
const NO_PROFILES: &str = "no profiles are served";
const ELECTION: &str = "leaders are not elected by the server";

#[rustfmt::skip]
const FLAGS: &[Unserved] = &[
    (GENERIC, "emulated-version", Values::Text, &["1.36", "kube=1.36"], Refuse, NOT_EMULATED),
    (GENERIC, "emulation-forward-compatible", Values::Bool, &["false"], Warn, NOT_EMULATED),
    (GENERIC, "min-compatibility-version", Values::Text, &["1.36", "kube=1.36", "1.35", "kube=1.35"], Refuse, NOT_EMULATED),
    (GENERIC, "runtime-config-emulation-forward-compatible", Values::Bool, &["false"], Warn, NOT_EMULATED),
    (GENERIC, "send-retry-after-while-not-ready-once", Values::Bool, &["false"], Warn, "the port is served once the server is ready to answer"),
    (GENERIC, "livez-grace-period", Values::Duration, &["*"], Warn, "the port is served once all hooks have finished"),
    (GENERIC, "storage-initialization-timeout", Values::Duration, &["1m0s"], Warn, "a start waits a minute for the store"),
    (SERVING, "permit-address-sharing", Values::Bool, &["*"], Warn, "a port whose connections linger can always be bound again"),
    (ETCD, "delete-collection-workers", Values::Number, &["1"], Warn, "one worker deletes a collection"),
    (AUTHENTICATION, "service-account-lookup", Values::Bool, &["true"], Warn, "tokens of service accounts, pods and secrets that are gone are always refused"),
    (ADMISSION, "admission-control", Values::Text, &[""], Refuse, "--enable-admission-plugins and --disable-admission-plugins are its successors"),
    (FEATURES, "contention-profiling", Values::Bool, &["false"], Warn, NO_PROFILES),
    (FEATURES, "debug-socket-path", Values::Text, &[""], Warn, NO_PROFILES),
    (TRACES, "tracing-config-file", Values::Text, &[""], Warn, "no traces are sent"),
    (LOGS, "log-flush-frequency", Values::Duration, &["*"], Warn, ONE_STREAM),
    (LOGS, "log-json-info-buffer-size", Values::Text, &["", "0"], Warn, ONE_STREAM),
    (LOGS, "log-json-split-stream", Values::Bool, &["false"], Warn, ONE_STREAM),
    (LOGS, "log-text-info-buffer-size", Values::Text, &["", "0"], Warn, ONE_STREAM),
    (LOGS, "log-text-split-stream", Values::Bool, &["false"], Warn, ONE_STREAM),
    (LOGS, "vmodule", Values::Text, &[""], Warn, "-v takes a filter by module, such as info,hyper=debug"),
    (MISC, "aggregator-reject-forwarding-redirect", Values::Bool, &["true"], Warn, "redirects of extension servers are never passed on"),
    (MISC, "coordinated-leadership-lease-duration", Values::Duration, &["15s"], Warn, ELECTION),
    (MISC, "coordinated-leadership-renew-deadline", Values::Duration, &["10s"], Warn, ELECTION),
    (MISC, "coordinated-leadership-retry-period", Values::Duration, &["2s"], Warn, ELECTION),
    (MISC, "enable-logs-handler", Values::Bool, &["false"], Warn, "/logs is not served"),
    (MISC, "kubernetes-service-node-port", Values::Number, &["0"], Refuse, "the Service `kubernetes` is of type ClusterIP"),
    (MISC, "max-connection-bytes-per-sec", Values::Number, &["0"], Warn, "connections are not slowed down"),
    (MISC, "peer-advertise-ip", Values::Text, &[""], Warn, NO_PEERS),
    (MISC, "peer-advertise-port", Values::Text, &[""], Warn, NO_PEERS),
    (MISC, "peer-ca-file", Values::Text, &[""], Warn, NO_PEERS),
];

/// Those of these flags that were given, with their values.
#[derive(Debug, Clone, Default)]
pub struct UnservedFlags(Vec<(&'static Unserved, Vec<String>)>);

impl UnservedFlags {
    /// The names of all these flags.
    pub fn names() -> impl Iterator<Item = &'static str> {
        FLAGS.iter().map(|flag| flag.1)
    }

    /// The default of one of these flags, where it is not empty and what this server does.
    pub(super) fn default_of(name: &str) -> Option<&'static str> {
        let flag = FLAGS
            .iter()
            .find(|flag| flag.1 == name && flag.2 != Values::Text)?;
        flag.3.first().copied().filter(|value| *value != "*")
    }

    /// Reports each flag whose value this server does not satisfy, as a fault or as a warning.
    pub(crate) fn judge(&self, mut fault: impl FnMut(String), mut warn: impl FnMut(String)) {
        for ((_, name, kind, fine, answer, why), values) in &self.0 {
            if *kind == Values::Duration && values.iter().any(|value| value.starts_with('-')) {
                fault(format!("--{name} can not be a negative value"));
                continue;
            }
            let is_fine = |value: &String| fine.contains(&"*") || fine.contains(&value.as_str());
            let Some(value) = values.iter().find(|value| !is_fine(value)) else {
                continue;
            };
            match answer {
                Refuse => fault(format!("--{name}={value}: {why}")),
                Warn => warn(format!("--{name}={value} has no effect: {why}")),
            }
        }
    }
}

fn argument((heading, name, values, _, answer, why): &'static Unserved) -> Arg {
    let help = match answer {
        Warn => format!("Accepted without effect: {why}."),
        Refuse => format!("Refused but for its default: {why}."),
    };
    let arg = Arg::new(*name)
        .long(*name)
        .help_heading(*heading)
        .help(help)
        .action(ArgAction::Append);
    match values {
        Values::Bool => arg
            .num_args(0..=1)
            .default_missing_value("true")
            .value_name("BOOL")
            .value_parser(|text: &str| match text.to_ascii_lowercase().as_str() {
                "true" | "t" | "1" => Ok("true".to_string()),
                "false" | "f" | "0" => Ok("false".to_string()),
                _ => Err("it is true or false"),
            }),
        Values::Number => arg.value_name("NUMBER").value_parser(|text: &str| {
            let number = text.parse::<i64>().map_err(|error| error.to_string());
            number.map(|number| number.to_string())
        }),
        Values::Duration => arg
            .value_name("DURATION")
            .value_parser(|text: &str| GoDuration::parse(text).map(|duration| duration.to_string())),
        Values::Text => arg
            .value_name("STRING")
            .value_parser(|text: &str| Ok::<_, String>(text.to_string())),
    }
}

impl Args for UnservedFlags {
    fn augment_args(command: Command) -> Command {
        command.args(FLAGS.iter().map(argument))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for UnservedFlags {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let given = FLAGS.iter().filter_map(|flag| {
            let values = matches.get_many::<String>(flag.1)?;
            Some((flag, values.cloned().collect()))
        });
        Ok(UnservedFlags(given.collect()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::options::Options;

    fn judged(flag: &str) -> (Vec<String>, Vec<String>) {
        let options = Options::try_parse_from(["kube-apiserver", flag]).expect(flag);
        let (mut faults, mut warnings) = (Vec::new(), Vec::new());
        options
            .unserved
            .judge(|fault| faults.push(fault), |warning| warnings.push(warning));
        (faults, warnings)
    }

    #[test]
    fn one_that_asks_for_something_is_named_or_refused() {
        for (_, name, values, fine, answer, why) in FLAGS {
            for value in fine.iter().filter(|value| **value != "*") {
                assert_eq!(judged(&format!("--{name}={value}")), Default::default(), "{name}");
            }
            let other = match values {
                Values::Bool if fine.contains(&"true") => "false",
                Values::Bool => "true",
                Values::Number => "7",
                Values::Duration => "7s",
                Values::Text => "x=y",
            };
            let (faults, warnings) = judged(&format!("--{name}={other}"));
            let said = match answer {
                _ if fine.contains(&"*") => continue,
                Warn => &warnings,
                Refuse => &faults,
            };
            assert!(
                said.len() == 1 && said[0].contains(why),
                "{name}: {faults:?} {warnings:?}"
            );
            assert!(said[0].starts_with(&format!("--{name}={other}")), "{said:?}");
        }
    }

    #[test]
    fn values_are_checked() {
        for wrong in [
            "--contention-profiling=perhaps",
            "--delete-collection-workers=many",
            "--log-flush-frequency=soon",
        ] {
            let parsed = Options::try_parse_from(["kube-apiserver", wrong]);
            assert!(parsed.is_err(), "{wrong}");
        }
        let (faults, _) = judged("--livez-grace-period=-1s");
        assert_eq!(faults, ["--livez-grace-period can not be a negative value"]);
        // A switch alone is true.
        assert_eq!(judged("--contention-profiling").1.len(), 1);
    }
}
