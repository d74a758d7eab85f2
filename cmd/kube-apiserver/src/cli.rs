//! The command line of the binary: the server's flags, and the commands beside them.

use std::ffi::OsString;

use clap::{CommandFactory as _, FromArgMatches as _, ValueEnum};
use clap_complete::Shell;
use generic_server::endpoint::Version;
use generic_server::version;

use crate::Options;
use crate::backup::{BackupCommand, RestoreCommand};
use crate::check::ScrubCommand;
use crate::envtest::AssetsCommand;
use crate::kubeconfig::KubeconfigCommand;

/// Columns where there is no terminal.
const COLUMNS: usize = 80;
/// `--help`: the commands first, since there are few of them.
const HELP: &str = "{about-with-newline}
{usage-heading} {usage}

{all-args}{after-help}";
/// The exit codes of the server and of the commands.
const EXIT_CODES: [(u8, &str); 5] = [
    (0, "done, or stopped as asked"),
    (
        1,
        "failed, found something wrong, or was not given the time to stop",
    ),
    (2, "a flag, or a file that it names, is wrong"),
    (3, "the data directory cannot be used"),
    (4, "the address cannot be listened on"),
];

/// The shells that completions are written for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum CompletionShell {
    Bash,
    Zsh,
    Fish,
}

/// What a command line asks for.
#[derive(Debug)]
pub enum Invocation {
    /// The server.
    Serve(Box<Options>),
    /// A snapshot.
    Backup(BackupCommand),
    /// A store from a snapshot.
    Restore(RestoreCommand),
    /// A report about a start that does not happen.
    Check(Box<Options>),
    /// A report about the records of a store.
    Scrub(ScrubCommand),
    /// The programs of envtest.
    Assets(AssetsCommand),
    /// A kubeconfig for a user.
    Kubeconfig(KubeconfigCommand),
    /// A text.
    Print(Vec<u8>),
}

/// The server's flags and all commands.
pub fn command() -> clap::Command {
    let shell = clap::Arg::new("shell")
        .required(true)
        .value_parser(clap::value_parser!(CompletionShell));
    let completion = plain("completion")
        .about(
            "Prints a script that completes commands and flags: source it, or keep it where the shell looks",
        )
        .arg(shell);
    Options::command()
        .args_conflicts_with_subcommands(true)
        .subcommand_negates_reqs(true)
        .subcommand_value_name("COMMAND")
        .subcommand_help_heading("Commands, each with a --help of its own")
        .help_template(HELP)
        .after_help(after_help())
        .term_width(columns())
        .subcommand(named::<BackupCommand>("backup"))
        .subcommand(named::<RestoreCommand>("restore"))
        .subcommand(
            Options::command()
                .name("check")
                .bin_name("kube-apiserver check")
                .about("Says whether a server could start with these flags, files and store, and does not start it"),
        )
        .subcommand(named::<ScrubCommand>("scrub"))
        .subcommand(named::<KubeconfigCommand>("kubeconfig"))
        .subcommand(named::<AssetsCommand>("envtest-assets").about("Writes the programs that envtest starts, and prints their directory"))
        .subcommand(completion)
        .subcommand(plain("man").about("Prints the manual page, for man -l or a man directory"))
        .subcommand(plain("version").about("Prints the version of Kubernetes that it is compatible with, and its own"))
}

fn named<C: clap::CommandFactory>(name: &'static str) -> clap::Command {
    C::command().name(name).arg(help_flag())
}

fn plain(name: &'static str) -> clap::Command {
    clap::Command::new(name).arg(help_flag())
}

/// clap makes none by itself, since the setting of the server's command is inherited.
fn help_flag() -> clap::Arg {
    clap::Arg::new("help")
        .long("help")
        .short('h')
        .action(clap::ArgAction::HelpShort)
        .help("Prints this help")
}

/// The end of `--help`.
fn after_help() -> String {
    let codes = EXIT_CODES.map(|(code, meaning)| format!("{code} {meaning}"));
    format!("Exit codes: {}.", codes.join("; "))
}

/// The width of the terminal.
fn columns() -> usize {
    let size = rustix::termios::tcgetwinsize(std::io::stdout());
    let columns = size.map_or(0, |size| usize::from(size.ws_col));
    if columns == 0 { COLUMNS } else { columns }
}

/// Flags that upstream takes as not set when their value is empty, as templates of manifests write them.
const EMPTY_IS_UNSET: [&str; 44] = [
    "admission-control-config-file",
    "audit-log-format",
    "audit-log-mode",
    "audit-log-path",
    "audit-log-version",
    "audit-policy-file",
    "audit-webhook-config-file",
    "audit-webhook-mode",
    "audit-webhook-version",
    "authentication-config",
    "authentication-token-webhook-config-file",
    "authentication-token-webhook-version",
    "authorization-config",
    "authorization-mode",
    "authorization-policy-file",
    "authorization-webhook-config-file",
    "authorization-webhook-version",
    "cert-dir",
    "client-ca-file",
    "cors-allowed-origins",
    "egress-selector-config-file",
    "emulated-version",
    "encryption-provider-config",
    "endpoint-reconciler-type",
    "etcd-cafile",
    "etcd-certfile",
    "etcd-keyfile",
    "kubelet-certificate-authority",
    "kubelet-client-certificate",
    "kubelet-client-key",
    "min-compatibility-version",
    "proxy-client-cert-file",
    "proxy-client-key-file",
    "requestheader-allowed-names",
    "requestheader-client-ca-file",
    "requestheader-extra-headers-prefix",
    "requestheader-group-headers",
    "requestheader-uid-headers",
    "requestheader-username-headers",
    "service-account-jwks-uri",
    "storage-backend",
    "storage-media-type",
    "strict-transport-security-directives",
    "token-auth-file",
];

/// The command line without the flags whose empty value says that they are not set, nor what was said of them before.
fn without_empty(arguments: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
    let mut kept: Vec<OsString> = Vec::new();
    for argument in arguments {
        let emptied = argument.to_str().and_then(|text| {
            let name = text.strip_prefix("--")?.strip_suffix('=')?;
            EMPTY_IS_UNSET.contains(&name).then(|| text.to_owned())
        });
        match emptied {
            Some(flag) => {
                kept.retain(|before| before.to_str().is_none_or(|before| !before.starts_with(&flag)))
            }
            None => kept.push(argument),
        }
    }
    kept
}

/// Takes a command line apart.
///
/// # Errors
/// When it is wrong, or asks for help: clap's error prints that and has the exit code.
pub fn parse(arguments: impl IntoIterator<Item = OsString>) -> Result<Invocation, clap::Error> {
    let matches = command().try_get_matches_from(without_empty(arguments))?;
    if let Some((name, given)) = matches.subcommand() {
        return Ok(match name {
            "backup" => Invocation::Backup(BackupCommand::from_arg_matches(given)?),
            "restore" => Invocation::Restore(RestoreCommand::from_arg_matches(given)?),
            "check" => Invocation::Check(Box::new(Options::from_arg_matches(given)?)),
            "scrub" => Invocation::Scrub(ScrubCommand::from_arg_matches(given)?),
            "kubeconfig" => Invocation::Kubeconfig(KubeconfigCommand::from_arg_matches(given)?),
            "envtest-assets" => Invocation::Assets(AssetsCommand::from_arg_matches(given)?),
            "completion" => Invocation::Print(completion(given)),
            "man" => Invocation::Print(manual()),
            _ => Invocation::Print(versions().into_bytes()),
        });
    }
    match matches.get_one::<String>("version").map(String::as_str) {
        Some("true") => return Ok(Invocation::Print(format!("{}\n", version::line()).into_bytes())),
        Some("raw") => {
            return Ok(Invocation::Print(
                format!("{}\n", Version::default().go_syntax()).into_bytes(),
            ));
        }
        _ => {}
    }
    Ok(Invocation::Serve(Box::new(Options::from_arg_matches(&matches)?)))
}

fn completion(given: &clap::ArgMatches) -> Vec<u8> {
    let shell = match given.get_one::<CompletionShell>("shell") {
        Some(CompletionShell::Zsh) => Shell::Zsh,
        Some(CompletionShell::Fish) => Shell::Fish,
        Some(CompletionShell::Bash) | None => Shell::Bash,
    };
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut command(), "kube-apiserver", &mut script);
    script
}

fn manual() -> Vec<u8> {
    let mut page = Vec::new();
    // Writing into memory does not fail.
    let _ = clap_mangen::Man::new(command()).section("8").render(&mut page);
    page
}

fn versions() -> String {
    format!("{}\nkube-apiserver {}\n", version::line(), version::OWN)
}

#[cfg(test)]
mod reference;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn empty_values_are_as_no_flags() {
        let defaults = parsed(&[]).expect("the defaults");
        for name in EMPTY_IS_UNSET {
            let (set, empty) = (format!("--{name}=x"), format!("--{name}="));
            for line in [vec![&*empty], vec![&*set, &*empty]] {
                let emptied = parsed(&line).expect(name);
                assert_eq!(format!("{emptied:?}"), format!("{defaults:?}"), "{line:?}");
            }
        }
        // Others are refused as before.
        assert!(parsed(&["--bind-address="]).is_err());
    }

    fn parsed(line: &[&str]) -> Result<Invocation, String> {
        let line = ["kube-apiserver"].iter().chain(line).map(OsString::from);
        parse(line).map_err(|error| error.to_string())
    }

    #[test]
    fn the_command_is_whole() {
        command().debug_assert();
    }

    #[test]
    fn every_command_has_help() {
        for command in command().get_subcommands() {
            for flag in ["--help", "-h"] {
                let asked = ["kube-apiserver", command.get_name(), flag].map(OsString::from);
                let shown = parse(asked).expect_err("help is an error of clap");
                assert_eq!(shown.kind(), clap::error::ErrorKind::DisplayHelp);
                let usage = format!("kube-apiserver {}", command.get_name());
                assert!(shown.to_string().contains(&usage), "{shown}");
            }
        }
    }

    #[test]
    fn commands_and_flags_are_told_apart() {
        assert!(matches!(parsed(&[]), Ok(Invocation::Serve(_))));
        assert!(matches!(
            parsed(&["--version=false", "-v", "4"]),
            Ok(Invocation::Serve(_))
        ));
        assert!(matches!(parsed(&["check", "-v=4"]), Ok(Invocation::Check(_))));
        assert!(matches!(
            parsed(&["backup", "--to", "f"]),
            Ok(Invocation::Backup(_))
        ));
        for (line, hint) in [
            (&["bakcup"][..], "a similar subcommand exists: 'backup'"),
            (&["--data-dri=x"], "a similar argument exists: '--data-dir'"),
            (&["--data-dir=x", "backup"], "backup"),
            (&["completion", "tcsh"], "[possible values: bash, zsh, fish]"),
            (&["--version=1.2"], "[possible values: true, false, raw]"),
            (&["--secure-port=many"], "--secure-port"),
        ] {
            let refused = parsed(line).expect_err("it is refused");
            assert!(refused.contains(hint), "{line:?}: {refused}");
        }
    }

    #[test]
    fn texts_are_printed() {
        for (line, part) in [
            (&["version"][..], "Kubernetes v1.36.2\nkube-apiserver 0."),
            (&["--version"], "Kubernetes v1.36.2\n"),
            (
                &["--version=raw"],
                "version.Info{Major:\"1\", Minor:\"36\", EmulationMajor:",
            ),
            (&["completion", "bash"], "--storage-backend"),
            (&["completion", "zsh"], "#compdef kube-apiserver"),
            (&["completion", "fish"], "complete -c kube-apiserver"),
            (&["man"], ".TH kube-apiserver 8"),
        ] {
            let Ok(Invocation::Print(text)) = parsed(line) else {
                panic!("{line:?} prints nothing");
            };
            let text = String::from_utf8_lossy(&text).into_owned();
            assert!(text.contains(part), "{line:?}: {text}");
        }
    }
}
