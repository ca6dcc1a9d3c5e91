//! How much memory there is, and how much this process holds.
//!
//! Linux tells both; elsewhere a modest machine is assumed, and the limits can be set by hand.

use std::fs;

/// What a quad takes in memory, measured over provenance; long literals come on top.
pub(crate) const BYTES_A_QUAD: u64 = 342;

/// Assumed where the system does not say.
const ASSUMED: u64 = 4 << 30;

/// Memory this process may use: the machine's, or less if its control group says so.
pub(crate) fn total() -> u64 {
    let machine = field("/proc/meminfo", "MemTotal:");
    let group = [
        "/sys/fs/cgroup/memory.max",
        "/sys/fs/cgroup/memory/memory.limit_in_bytes",
    ]
    .into_iter()
    .find_map(|path| fs::read_to_string(path).ok()?.trim().parse().ok());
    match (machine, group) {
        (Some(machine), Some(group)) => machine.min(group),
        (Some(only), None) | (None, Some(only)) => only,
        (None, None) => ASSUMED,
    }
}

/// Memory this process holds now, if the system says.
pub(crate) fn resident() -> Option<u64> {
    field("/proc/self/status", "VmRSS:")
}

/// Memory another process holds now, if the system says.
pub(crate) fn resident_of(process: libc::pid_t) -> Option<u64> {
    field(&format!("/proc/{process}/status"), "VmRSS:")
}

/// Addresses this process has in use, if the system says.
pub(crate) fn address_space() -> Option<u64> {
    field("/proc/self/status", "VmSize:")
}

/// A field such as `VmRSS:   1234 kB`, in bytes.
fn field(path: &str, name: &str) -> Option<u64> {
    let text = fs::read_to_string(path).ok()?;
    let rest = text.lines().find_map(|line| line.strip_prefix(name))?;
    let kilobytes: u64 = rest.trim().trim_end_matches("kB").trim().parse().ok()?;
    Some(kilobytes * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_found_where_linux_says_it() {
        if cfg!(target_os = "linux") {
            let resident = resident().unwrap_or_default();
            assert!(resident > 1 << 20, "{resident}");
            assert!(total() > resident, "{} {resident}", total());
        }
    }
}
