//! What the operating system says of the process, under the names of Prometheus' own client.

use super::{family, sample};

/// When the process started.
pub(crate) fn start(out: &mut String, started: std::time::SystemTime) {
    let since = started
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap_or_default()
        .as_secs_f64();
    family(
        out,
        "process_start_time_seconds",
        "gauge",
        "Start time since the epoch in seconds.",
    );
    sample(out, "process_start_time_seconds", &[], since);
}

/// The operating system's figures of the process; on other systems than Linux only the start time.
pub(super) fn write(out: &mut String, started: std::time::SystemTime) {
    start(out, started);
    if let Ok(status) = std::fs::read_to_string("/proc/self/status") {
        for (key, name, help) in [
            (
                "VmRSS:",
                "process_resident_memory_bytes",
                "Resident memory in bytes.",
            ),
            (
                "VmSize:",
                "process_virtual_memory_bytes",
                "Virtual memory in bytes.",
            ),
        ] {
            let line = status.lines().find_map(|line| line.strip_prefix(key));
            if let Some(kib) = line.and_then(|l| l.split_whitespace().next()?.parse::<u64>().ok()) {
                family(out, name, "gauge", help);
                sample(out, name, &[], kib * 1024);
            }
        }
    }
    if let Ok(stat) = std::fs::read_to_string("/proc/self/stat") {
        // Fields after the command's closing bracket; user and system time are the 14th and 15th of all, in hundredths.
        let fields: Vec<&str> = stat
            .rsplit(')')
            .next()
            .unwrap_or_default()
            .split_whitespace()
            .collect();
        if let (Some(user), Some(system)) = (fields.get(11), fields.get(12))
            && let (Ok(user), Ok(system)) = (user.parse::<u32>(), system.parse::<u32>())
        {
            family(
                out,
                "process_cpu_seconds_total",
                "counter",
                "User and system time in seconds.",
            );
            let seconds = (f64::from(user) + f64::from(system)) / 100.0;
            sample(out, "process_cpu_seconds_total", &[], seconds);
        }
    }
    if let Ok(descriptors) = std::fs::read_dir("/proc/self/fd") {
        family(out, "process_open_fds", "gauge", "Open file descriptors.");
        sample(out, "process_open_fds", &[], descriptors.count());
    }
    if let Ok(limits) = std::fs::read_to_string("/proc/self/limits") {
        for (key, name, help) in [
            (
                "Max open files",
                "process_max_fds",
                "Limit of open file descriptors.",
            ),
            (
                "Max address space",
                "process_virtual_memory_max_bytes",
                "Limit of virtual memory in bytes.",
            ),
        ] {
            if let Some(limit) = limit(&limits, key) {
                family(out, name, "gauge", help);
                sample(out, name, &[], limit);
            }
        }
    }
    if let Ok(counters) = std::fs::read_to_string("/proc/self/net/netstat") {
        for (key, name, help) in [
            (
                "InOctets",
                "process_network_receive_bytes_total",
                "Bytes that the network namespace of the process has received.",
            ),
            (
                "OutOctets",
                "process_network_transmit_bytes_total",
                "Bytes that the network namespace of the process has sent.",
            ),
        ] {
            if let Some(bytes) = octets(&counters, key) {
                family(out, name, "counter", help);
                sample(out, name, &[], bytes);
            }
        }
    }
}

/// The soft limit of a line of `/proc/self/limits`; what is not limited is the largest number, as Go has it.
fn limit(limits: &str, key: &str) -> Option<u64> {
    let rest = limits.lines().find_map(|line| line.strip_prefix(key))?;
    match rest.split_whitespace().next()? {
        "unlimited" => Some(u64::MAX),
        number => number.parse().ok(),
    }
}

/// A counter of `/proc/self/net/netstat`, whose lines are pairs of names and values.
fn octets(counters: &str, key: &str) -> Option<u64> {
    let mut lines = counters.lines().skip_while(|line| !line.starts_with("IpExt:"));
    let (names, values) = (lines.next()?, lines.next()?);
    let mut pairs = names.split_whitespace().zip(values.split_whitespace());
    pairs.find(|(name, _)| *name == key)?.1.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_and_counters_are_found() {
        let limits = "Limit                     Soft Limit           Hard Limit           Units     \n\
                      Max open files            1024                 524288               files     \n\
                      Max address space         unlimited            unlimited            bytes     \n";
        assert_eq!(limit(limits, "Max open files"), Some(1024));
        assert_eq!(limit(limits, "Max address space"), Some(u64::MAX));
        assert_eq!(limit(limits, "Max cpu time"), None);
        let counters = "TcpExt: A InOctets\nTcpExt: 1 2\nIpExt: InNoRoutes InOctets\nIpExt: 0 77\n";
        assert_eq!(octets(counters, "InOctets"), Some(77));
        assert_eq!(octets(counters, "OutOctets"), None);
    }
}
