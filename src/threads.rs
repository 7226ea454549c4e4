//! How many threads to use when nobody says, and what they share.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Physical cores that this process may use: those in its affinity mask, within its cgroup's CPU quota.
pub fn default_threads() -> usize {
    // The standard library counts CPUs in the mask and heeds the quota, but knows nothing of cores.
    let cpus = std::thread::available_parallelism().map_or(1, |n| n.get());
    physical_cores().map_or(cpus, |cores| cores.clamp(1, cpus))
}

/// Distinct cores behind the CPUs of the affinity mask.
#[cfg(target_os = "linux")]
fn physical_cores() -> Option<usize> {
    let topology = |cpu: usize, file: &str| {
        std::fs::read_to_string(format!("/sys/devices/system/cpu/cpu{cpu}/topology/{file}")).ok()
    };
    let cores: Option<std::collections::HashSet<_>> = allowed_cpus()?
        .iter()
        .map(|&cpu| Some((topology(cpu, "physical_package_id")?, topology(cpu, "core_id")?)))
        .collect();
    Some(cores?.len())
}

#[cfg(not(target_os = "linux"))]
fn physical_cores() -> Option<usize> {
    None
}

/// The CPUs of the affinity mask, from `Cpus_allowed_list` ("0-3,8").
#[cfg(target_os = "linux")]
fn allowed_cpus() -> Option<Vec<usize>> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?;
    parse_cpu_list(list.trim())
}

#[cfg(any(target_os = "linux", test))]
fn parse_cpu_list(list: &str) -> Option<Vec<usize>> {
    let mut cpus = Vec::new();
    for part in list.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        cpus.extend(first.parse::<usize>().ok()?..=last.parse().ok()?);
    }
    Some(cpus)
}

/// Locks what threads share; that another one panicked while it held the lock does not matter.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_lists_are_read() {
        assert_eq!(parse_cpu_list("0-3,8"), Some(vec![0, 1, 2, 3, 8]));
        assert_eq!(parse_cpu_list("5"), Some(vec![5]));
        assert_eq!(parse_cpu_list("x"), None);
    }

    #[test]
    fn at_least_one_thread() {
        assert!(default_threads() >= 1);
    }
}
