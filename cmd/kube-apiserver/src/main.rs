//! The process: parse, log, compose, run, exit. `docs/operations.md` documents the exit codes.

use std::io::Write as _;
use std::process::ExitCode;

use control_plane::check::check;
use control_plane::cli::{self, Invocation};
use control_plane::envtest::{self, AssetsCommand};
use control_plane::progress::Progress;
use control_plane::signals::Signals;
use control_plane::{ControlPlane, Options, StartError, stopping};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Exit codes: 0 stopped as asked, 1 could not start, failed, or was not given the time to stop, 2 a fault of the command line, 3 the data directory cannot be
/// used, 4 the address cannot be listened on.
fn main() -> ExitCode {
    let called = std::env::args_os().next().unwrap_or_default();
    if envtest::is_etcd(&called) {
        return etcd();
    }
    // For the clients of storage, which know nothing of the server's own settings: those of etcd.
    if generic_server::crypto::provider().install_default().is_err() {
        complain("the process has another TLS provider already");
        return ExitCode::FAILURE;
    }
    match cli::parse(std::env::args_os()) {
        Ok(Invocation::Serve(options)) => serve(*options),
        Ok(Invocation::Backup(backup)) => command(backup.run()),
        Ok(Invocation::Restore(restore)) => command(restore.run()),
        Ok(Invocation::Check(options)) => command(check(*options)),
        Ok(Invocation::Scrub(scrub)) => command(scrub.run()),
        Ok(Invocation::Assets(command)) => assets(command),
        Ok(Invocation::Kubeconfig(kubeconfig)) => command(async { kubeconfig.run() }),
        Ok(Invocation::Print(text)) => {
            print(&text);
            ExitCode::SUCCESS
        }
        Err(error) => {
            // A closed stream is no reason to panic.
            let _ = error.print();
            ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2))
        }
    }
}

/// Runs the server to its end.
fn serve(options: Options) -> ExitCode {
    let faults = options.validate();
    if !faults.is_empty() {
        faults.iter().for_each(|fault| complain(fault));
        return ExitCode::from(2);
    }
    if let Err(fault) = control_plane::logging::init(&options.v, options.logging_format) {
        complain(&fault);
        return ExitCode::from(2);
    }
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            complain(&format!("cannot start the runtime: {error}"));
            return ExitCode::FAILURE;
        }
    };
    let code = runtime.block_on(async {
        run(options).await.unwrap_or_else(|error| {
            complain(&error.to_string());
            ExitCode::from(error.exit_code())
        })
    });
    // Tasks that still run have had their time.
    runtime.shutdown_background();
    code
}

/// Runs a subcommand to its end and prints its report.
fn command(run: impl Future<Output = Result<String, StartError>>) -> ExitCode {
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            complain(&format!("cannot start the runtime: {error}"));
            return ExitCode::FAILURE;
        }
    };
    match runtime.block_on(run) {
        Ok(done) => {
            announce(&done);
            ExitCode::SUCCESS
        }
        Err(error) => {
            complain(&error.to_string());
            ExitCode::from(error.exit_code())
        }
    }
}

/// Writes the programs for envtest. Their directory alone goes to standard output, so that a shell can take it.
fn assets(command: AssetsCommand) -> ExitCode {
    match command.run() {
        Ok(written) => {
            written.notes.iter().for_each(|note| complain(note));
            announce(&written.directory.display().to_string());
            ExitCode::SUCCESS
        }
        Err(error) => {
            complain(&error.to_string());
            ExitCode::from(error.exit_code())
        }
    }
}

/// The stand-in for etcd, which the program is when it is called by that name.
fn etcd() -> ExitCode {
    let say = |text: &str| {
        // A closed stream is no reason to end.
        let _ = std::io::stderr().write_all(format!("etcd: {text}\n").as_bytes());
    };
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            say(&format!("cannot start the runtime: {error}"));
            return ExitCode::FAILURE;
        }
    };
    let outcome = runtime.block_on(envtest::run_etcd(std::env::args_os().skip(1), say));
    runtime.shutdown_background();
    match outcome {
        Ok(text) => {
            if !text.is_empty() {
                announce(&text);
            }
            ExitCode::SUCCESS
        }
        Err(fault) => {
            say(&fault);
            ExitCode::FAILURE
        }
    }
}

/// Starts, serves until a signal, and stops in order; a second signal ends that, as upstream has it.
async fn run(options: Options) -> Result<ExitCode, StartError> {
    let mut signals = Signals::new().map_err(StartError::Signals)?;
    let progress = Progress::begin("starting", Vec::new());
    let plane = tokio::select! {
        started = ControlPlane::start(options) => started?,
        signal = signals.next() => {
            stopping(signal);
            return Ok(ExitCode::SUCCESS);
        }
    };
    drop(progress);
    announce(&plane.greeting());
    tokio::select! {
        signal = signals.next() => stopping(signal),
        () = plane.abandoned() => {
            complain("the stand-in for etcd has ended, and this server with it");
            stopping("the stand-in for etcd has ended");
        }
    }
    tokio::select! {
        () = plane.stop() => Ok(ExitCode::SUCCESS),
        _ = signals.next() => {
            complain("a second signal: not waiting for requests in flight");
            Ok(ExitCode::FAILURE)
        }
    }
}

/// Prints for a person at a terminal; a reader that closes the stream after the first line does not end the server.
fn announce(text: &str) {
    print(format!("{text}\n").as_bytes());
}

fn print(text: &[u8]) {
    let mut out = std::io::stdout().lock();
    let _ = out.write_all(text).and_then(|()| out.flush());
}

/// The server may have no log yet. A closed stream is no reason to panic.
fn complain(text: &str) {
    let _ = std::io::stderr().write_all(format!("kube-apiserver: {text}\n").as_bytes());
}
