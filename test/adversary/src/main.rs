//! Attacks an API server and prints a table of what held.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use adversary::report::{self, Plan};
use adversary::{Error, Server, Site, Target};
use clap::Parser;

/// Attacks an API server and prints a table of what held. Its objects are in the namespaces `adversary` and `adversary-large`.
#[derive(Debug, Parser)]
#[command(name = "adversary")]
struct Arguments {
    /// The kubeconfig of an administrator of a running server, with a client certificate.
    #[arg(long)]
    kubeconfig: Option<PathBuf>,
    /// The process of that server, for its memory.
    #[arg(long)]
    pid: Option<u32>,
    /// The program of the server: it is started, and again after each attack that it did not hold against. Attacks about start-up and flags
    /// need it.
    #[arg(long)]
    binary: Option<PathBuf>,
    /// Only attacks whose name has this, or of this finding.
    #[arg(long)]
    only: Option<String>,
    /// Only the quick ones.
    #[arg(long)]
    quick: bool,
    /// Where a line of JSON is written for each attack.
    #[arg(long)]
    lines: Option<PathBuf>,
    /// Prints two such files side by side instead.
    #[arg(long, num_args = 2, value_names = ["BEFORE", "AFTER"])]
    compare: Option<Vec<PathBuf>>,
}

#[tokio::main]
#[expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "its output is its purpose"
)]
async fn main() -> ExitCode {
    let arguments = Arguments::parse();
    if let Some([before, after]) = arguments.compare.as_deref() {
        return match report::compare(before, after) {
            Ok(table) => {
                print!("{table}");
                ExitCode::SUCCESS
            }
            Err(error) => {
                eprintln!("adversary: {error}");
                ExitCode::FAILURE
            }
        };
    }
    println!("{}", report::HEAD);
    match run(&arguments).await {
        Ok(0) => ExitCode::SUCCESS,
        Ok(fell) => {
            eprintln!("adversary: the server falls to {fell} attacks");
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("adversary: {error}");
            ExitCode::FAILURE
        }
    }
}

#[expect(clippy::print_stdout, reason = "its output is its purpose")]
async fn run(arguments: &Arguments) -> Result<usize, Error> {
    let plan = Plan {
        only: arguments.only.clone(),
        quick: arguments.quick,
    };
    let mut lines = arguments.lines.as_ref().map(std::fs::File::create).transpose()?;
    let (site, server) = match (&arguments.kubeconfig, &arguments.binary) {
        (Some(kubeconfig), binary) => {
            let site = Site {
                target: Target::read(kubeconfig)?,
                pid: arguments.pid,
                binary: binary.clone(),
            };
            (site, None)
        }
        (None, Some(binary)) => {
            let server = Server::start(binary, &[]).await?;
            (Site::of(&server), Some(server))
        }
        (None, None) => return Err("--kubeconfig or --binary is needed".into()),
    };
    let mut fell = 0;
    let mut failure = None;
    let played = report::play(site, server, &plan, |line| {
        println!("{}", report::row(line));
        fell += usize::from(line["verdict"] == "falls");
        if let Some(file) = &mut lines
            && let Err(error) = writeln!(file, "{line}")
        {
            failure = Some(error);
        }
    });
    played.await?;
    failure.map_or(Ok(fell), |error| Err(error.into()))
}
