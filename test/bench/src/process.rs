//! Resource usage of processes, from `/proc`.

/// CPU seconds (user and system) of these processes so far.
pub(crate) fn cpu_seconds(pids: &[u32]) -> f64 {
    pids.iter().filter_map(|pid| ticks(*pid)).sum::<f64>() / TICKS_PER_SECOND
}

/// Linux counts in hundredths of a second for user space, regardless of the kernel's own tick.
const TICKS_PER_SECOND: f64 = 100.0;

fn ticks(pid: u32) -> Option<f64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name may hold anything; the fields after its closing parenthesis are numbered from the third on.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    Some(fields.get(11)?.parse::<f64>().ok()? + fields.get(12)?.parse::<f64>().ok()?)
}

/// Resident memory of these processes, in MiB.
pub(crate) fn resident_mib(pids: &[u32]) -> f64 {
    let kib = |pid: &u32| {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        let line = status.lines().find(|line| line.starts_with("VmRSS:"))?;
        line.split_whitespace().nth(1)?.parse::<f64>().ok()
    };
    pids.iter().filter_map(kib).sum::<f64>() / 1024.0
}
