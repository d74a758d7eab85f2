//! Runs targets in turn without an instrumented build: `rotate SECONDS CORPUS [TARGET...]`. The input that is under way is in the file
//! `last-TARGET` of the directory where it runs, so that what ended the process is there afterwards.

use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant, SystemTime};

use fuzz_targets::{Mutator, TARGETS};

#[expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "its output is its purpose"
)]
fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [seconds, corpus, chosen @ ..] = arguments.as_slice() else {
        eprintln!("usage: rotate SECONDS CORPUS [TARGET...]");
        return ExitCode::FAILURE;
    };
    let Ok(seconds) = seconds.parse() else {
        eprintln!("rotate: `{seconds}` is no number of seconds");
        return ExitCode::FAILURE;
    };
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let seed = now.map_or(1, |since| since.as_secs());
    for target in TARGETS {
        if !chosen.is_empty() && !chosen.iter().any(|name| name == target.name) {
            continue;
        }
        let inputs = match inputs(&Path::new(corpus).join(target.name)) {
            Ok(inputs) => inputs,
            Err(error) => {
                eprintln!("rotate: {}: {error}", target.name);
                return ExitCode::FAILURE;
            }
        };
        let mut mutator = Mutator::new(inputs, seed);
        let begun = Instant::now();
        let (mut runs, mut slowest) = (0_u64, Duration::ZERO);
        while begun.elapsed() < Duration::from_secs(seconds) {
            let input = mutator.next_input();
            if let Err(error) = std::fs::write(format!("last-{}", target.name), &input) {
                eprintln!("rotate: cannot write the input: {error}");
                return ExitCode::FAILURE;
            }
            let one = Instant::now();
            (target.run)(&input);
            runs += 1;
            if one.elapsed() > slowest {
                slowest = one.elapsed();
                // Slow inputs are worth a look as well.
                let _ = std::fs::write(format!("slowest-{}", target.name), &input);
            }
        }
        println!(
            "{}: {runs} runs in {seconds} s, seed {seed}, the slowest {slowest:?}",
            target.name
        );
    }
    ExitCode::SUCCESS
}

fn inputs(directory: &Path) -> std::io::Result<Vec<Vec<u8>>> {
    let mut paths = Vec::new();
    for file in std::fs::read_dir(directory)? {
        paths.push(file?.path());
    }
    paths.sort();
    paths.iter().map(std::fs::read).collect()
}
