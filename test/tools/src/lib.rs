//! Programs that tests need and a machine may have: where they are, free ports for them, and etcd members;
//! waiting on conditions, and whether histories of clients are linearizable.
//!
//! It depends on no crate of the workspace, so that the lowest layer's tests can use it. Not a product: it panics where a test
//! should fail.

mod etcd;
pub mod linearizable;
mod proxy;

use std::fs::OpenOptions;
use std::future::Future;
use std::io::Write as _;
use std::net::TcpListener;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

pub use etcd::{Cluster, Etcd};
pub use proxy::Proxy;

/// How long a test waits for what should happen soon.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Asks again until the answer is there; fails the test when it does not come.
pub async fn eventually<T, F>(what: &str, mut ask: impl FnMut() -> F) -> T
where
    F: Future<Output = Option<T>>,
{
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(answer) = ask().await {
            return answer;
        }
        assert!(
            Instant::now() < deadline,
            "{what} did not happen within {PATIENCE:?}"
        );
        // The condition is of another task or process; there is nothing to be woken by.
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Where a program is; prints which test is skipped when it is not installed.
pub fn tool(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path)
        .map(|dir| dir.join(name))
        .find(|file| file.is_file());
    if found.is_none() {
        skipped(&format!("there is no `{name}` on the PATH"));
    }
    found
}

/// The program that an environment variable names; prints which test is skipped when there is none.
pub fn named_tool(variable: &str) -> Option<PathBuf> {
    let found = std::env::var_os(variable).map(PathBuf::from);
    let found = found.filter(|file| file.is_file());
    if found.is_none() {
        skipped(&format!("`{variable}` does not name a program"));
    }
    found
}

/// The file that skipped tests are listed in, one line each, where this variable names one: the output of a test that passes is shown
/// to nobody.
const LIST: &str = "SKIPPED_TESTS";

/// Says loudly that something is not tested here, and why.
#[expect(clippy::print_stderr, reason = "a skipped test has to be seen")]
pub fn skipped(why: &str) {
    eprintln!("SKIPPED: {why}");
    let Some(list) = std::env::var_os(LIST) else {
        return;
    };
    // The thread of a test has its name.
    let thread = std::thread::current();
    let line = format!("{}: {why}\n", thread.name().unwrap_or("a test"));
    // One write, so that lines of tests that run at once are not mixed.
    let written = OpenOptions::new()
        .create(true)
        .append(true)
        .open(list)
        .and_then(|mut file| file.write_all(line.as_bytes()));
    written.expect("the list of skipped tests can be written");
}

/// A port for a program, below those that the system gives out by itself, so that no other process takes it before the program
/// does.
pub fn free_port() -> u16 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    loop {
        let step = NEXT.fetch_add(1, Ordering::Relaxed);
        let port = 15_000 + std::process::id().wrapping_mul(131).wrapping_add(step) % 15_000;
        let port = u16::try_from(port).expect("below 30000");
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}

/// Waits until something listens on a port of this machine.
pub async fn listening(port: u16) {
    eventually("that the program listens", || async move {
        tokio::net::TcpStream::connect(("127.0.0.1", port)).await.ok()
    })
    .await;
}
