//! How other clients fare beside an attack: a thread of its own asks for `/readyz` and one small object again and again, and looks at
//! the server's memory.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::{Bound, Credential, Error, Shot, Target};

/// Between two looks.
const PAUSE: Duration = Duration::from_millis(20);
/// How long an answer is waited for.
const PATIENCE: Duration = Duration::from_secs(15);
/// MiB at which a server that was started here is ended, before the machine suffers.
const CEILING: f64 = 5_000.0;

/// The measurements of other users' requests meanwhile.
#[derive(Debug, Default, Clone)]
pub struct Strain {
    /// Milliseconds of each answer, in ascending order; those that did not come count with the time they were waited for.
    pub times: Vec<f64>,
    /// How many did not come, or failed.
    pub failed: usize,
    /// MiB by which the server's memory grew at most.
    pub growth: f64,
    /// Whether the server was ended because it took too much memory.
    pub ended: bool,
}

impl Strain {
    /// The time that this share of the answers took at most.
    pub fn at(&self, share: f64) -> f64 {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            clippy::cast_precision_loss,
            reason = "an index below a short length"
        )]
        let index = ((self.times.len() as f64 - 1.0) * share).max(0.0) as usize;
        self.times.get(index).copied().unwrap_or_default()
    }
}

impl Strain {
    /// The violations of a bound.
    pub(crate) fn faults(&self, bound: &Bound) -> Vec<String> {
        let mut faults = Vec::new();
        if self.growth > bound.memory {
            faults.push(format!("memory +{:.0} MiB", self.growth));
        }
        #[expect(clippy::cast_precision_loss, reason = "a bound of seconds")]
        if self.at(1.0) > bound.probe as f64 {
            faults.push(format!("others waited {:.1} s", self.at(1.0) / 1000.0));
        }
        if self.ended {
            faults.push("the server was ended at 5,000 MiB".into());
        } else if self.failed > 0 {
            faults.push(format!("{} requests of others failed", self.failed));
        }
        faults
    }

    /// The measurements in words.
    pub(crate) fn describe(&self) -> String {
        let (usual, longest) = (self.at(0.99), self.at(1.0));
        let mut text = format!(
            "+{:.0} MiB; others p99 {usual:.0} ms, max {longest:.0} ms",
            self.growth
        );
        if self.failed > 0 {
            text += &format!("; {} of {} failed", self.failed, self.times.len());
        }
        text
    }
}

/// A running prober.
#[derive(Debug)]
pub(crate) struct Prober {
    over: Arc<AtomicBool>,
    thread: JoinHandle<Strain>,
}

impl Prober {
    /// Starts one. A server that `may_end` is killed when its memory passes a ceiling.
    pub(crate) fn start(target: &Target, pid: Option<u32>, may_end: bool) -> Self {
        let over = Arc::new(AtomicBool::new(false));
        let (target, until) = (target.clone(), over.clone());
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.map_or_else(
                |_| Strain::default(),
                |runtime| runtime.block_on(probe(&target, pid, may_end, &until)),
            )
        });
        Prober { over, thread }
    }

    /// Ends it, and gives what it saw.
    pub(crate) fn end(self) -> Strain {
        self.over.store(true, Ordering::Relaxed);
        self.thread.join().unwrap_or_default()
    }
}

async fn probe(target: &Target, pid: Option<u32>, may_end: bool, over: &AtomicBool) -> Strain {
    let mut strain = Strain::default();
    let before = pid.and_then(resident).unwrap_or_default();
    let memory = async {
        let mut most: f64 = before;
        let mut ended = false;
        while !over.load(Ordering::Relaxed) {
            let now = pid.and_then(resident).unwrap_or_default();
            most = most.max(now);
            if may_end && now > CEILING && !ended {
                ended = true;
                if let Some(pid) = pid {
                    let mut kill = std::process::Command::new("kill");
                    // Whether it was still there makes no difference.
                    let _ = kill.arg("-9").arg(pid.to_string()).status();
                }
            }
            tokio::time::sleep(PAUSE).await;
        }
        (most - before, ended)
    };
    let times = async {
        let (mut times, mut failed) = (Vec::new(), 0);
        let mut turn = 0_usize;
        while !over.load(Ordering::Relaxed) {
            let path = ["/readyz", "/api/v1/namespaces/default"][turn % 2];
            turn += 1;
            let begun = Instant::now();
            let asked = tokio::time::timeout(PATIENCE, ask(target, path)).await;
            times.push(begun.elapsed().as_secs_f64() * 1000.0);
            failed += usize::from(!matches!(asked, Ok(Ok(200))));
            tokio::time::sleep(PAUSE).await;
        }
        (times, failed)
    };
    let ((growth, ended), (times, failed)) = tokio::join!(memory, times);
    (strain.growth, strain.ended, strain.times, strain.failed) = (growth, ended, times, failed);
    strain.times.sort_by(f64::total_cmp);
    strain
}

/// A connection of its own each time: a server that no longer accepts fails others too.
async fn ask(target: &Target, path: &str) -> Result<u16, Error> {
    let shot = Shot::get(path).by(&Credential::Admin);
    Ok(target.send(shot).await?.status)
}

/// Resident memory of a process, in MiB.
fn resident(pid: u32) -> Option<f64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find(|line| line.starts_with("VmRSS:"))?;
    Some(line.split_whitespace().nth(1)?.parse::<f64>().ok()? / 1024.0)
}
