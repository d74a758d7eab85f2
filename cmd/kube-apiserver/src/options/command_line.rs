//! The flags and their values as the command line has them, for `/flagz`.

use std::collections::BTreeMap;
use std::fmt;

use clap::{Arg, ArgMatches, Args, Command, CommandFactory as _, FromArgMatches};
use machinery::time::GoDuration;

use super::{Options, UnservedFlags};

/// Shown in the place of a secret.
const CLASSIFIED: &str = "CLASSIFIED";
/// Lists that upstream prints without brackets.
const MAPS: [&str; 2] = ["feature-gates", "runtime-config"];

/// The values of all flags, by the parser's names; nothing where there was no command line.
#[derive(Clone, Default)]
pub struct CommandLine(BTreeMap<String, Vec<String>>);

impl fmt::Debug for CommandLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Its values are those of the other options.
        f.debug_struct("CommandLine").finish_non_exhaustive()
    }
}

impl CommandLine {
    /// Every flag with its value as Go prints it; `None` where there was no command line.
    pub(crate) fn flags(&self) -> Option<BTreeMap<String, String>> {
        if self.0.is_empty() {
            return None;
        }
        let command = Options::command();
        let flags = command.get_arguments().filter_map(|argument| {
            let name = argument.get_long()?;
            let own = ["help", "version"].contains(&name);
            let given = self.0.get(argument.get_id().as_str());
            let default = || UnservedFlags::default_of(name).map(|value| vec![value.to_owned()]);
            let values = given.cloned().or_else(default).unwrap_or_default();
            (!own).then(|| (name.to_owned(), shown(argument, name, &values)))
        });
        Some(flags.collect())
    }
}

/// A value as Go prints that of a flag.
fn shown(argument: &Arg, name: &str, values: &[String]) -> String {
    if values.iter().any(|value| has_password(value)) {
        return CLASSIFIED.to_owned();
    }
    let kind = argument.get_value_names().and_then(|names| names.first());
    match kind.map(|kind| kind.as_str()) {
        Some("LIST" | "MAP") if MAPS.contains(&name) => {
            let mut items: Vec<&str> = values
                .iter()
                .map(String::as_str)
                .filter(|item| !item.is_empty())
                .collect();
            items.sort_unstable();
            items.join(",")
        }
        Some("LIST" | "MAP") => format!("[{}]", values.join(",")),
        Some("DURATION") => {
            let value = values.last().map(String::as_str).unwrap_or_default();
            GoDuration::parse(value).map_or_else(|_| value.to_owned(), |duration| duration.to_string())
        }
        _ => values.last().cloned().unwrap_or_default(),
    }
}

/// Whether a value is a URL with a password, which servers of etcd may have.
fn has_password(value: &str) -> bool {
    let authority = value
        .split_once("://")
        .and_then(|(_, rest)| rest.split('/').next());
    authority.is_some_and(|authority| authority.contains('@'))
}

impl Args for CommandLine {
    fn augment_args(command: Command) -> Command {
        command
    }

    fn augment_args_for_update(command: Command) -> Command {
        command
    }
}

impl FromArgMatches for CommandLine {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let given = matches.ids().filter_map(|id| {
            let values = matches.try_get_raw(id.as_str()).ok().flatten()?;
            let values = values.map(|value| value.to_string_lossy().into_owned());
            Some((id.to_string(), values.collect()))
        });
        Ok(CommandLine(given.collect()))
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

    #[test]
    fn flags_are_shown_as_go_prints_them() {
        let line = [
            "kube-apiserver",
            "--anonymous-auth=false",
            "--request-timeout=90s",
            "--feature-gates=B=true,A=false",
            "--enable-admission-plugins=x,y",
            "--etcd-servers=https://a,https://user:secret@b",
            "-v",
            "4",
        ];
        let options = Options::try_parse_from(line).expect("it parses");
        let flags = options.command_line.flags().expect("a command line");
        for (flag, expected) in [
            ("anonymous-auth", "false"),
            ("request-timeout", "1m30s"),
            ("min-request-timeout", "1800"),
            ("feature-gates", "A=false,B=true"),
            ("enable-admission-plugins", "[x,y]"),
            ("disable-admission-plugins", "[]"),
            ("client-ca-file", ""),
            ("contention-profiling", "false"),
            ("etcd-servers", CLASSIFIED),
            ("v", "4"),
        ] {
            assert_eq!(flags.get(flag).map(String::as_str), Some(expected), "{flag}");
        }
        assert!(!flags.contains_key("help"));
        assert!(Options::defaults().command_line.flags().is_none());
    }
}
