//! What the system says about the CPU and the memory.

use std::collections::HashMap;
use std::fs;

/// The CPU's name; its architecture where the system does not tell.
pub fn name() -> String {
    let cpus = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    field(&cpus, "model name").unwrap_or(std::env::consts::ARCH).to_owned()
}

/// Bytes of all third-level caches together.
pub fn last_cache_bytes() -> Option<usize> {
    let mut caches = HashMap::new();
    for cpu in fs::read_dir("/sys/devices/system/cpu").ok()?.flatten() {
        let read = |file: &str| fs::read_to_string(cpu.path().join("cache/index3").join(file)).ok();
        if let (Some(sharers), Some(size)) = (read("shared_cpu_list"), read("size")) {
            caches.insert(sharers, kibibytes(&size)?);
        }
    }
    (!caches.is_empty()).then(|| caches.values().sum())
}

/// Bytes of memory that can be had without swapping.
pub fn available_bytes() -> Option<usize> {
    kibibytes(field(&fs::read_to_string("/proc/meminfo").ok()?, "MemAvailable")?)
}

/// The value of the first line `name: value`.
fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines().find_map(|line| {
        let (key, value) = line.split_once(':')?;
        (key.trim() == name).then(|| value.trim())
    })
}

/// Bytes of `32768K` or `23 kB`.
fn kibibytes(text: &str) -> Option<usize> {
    let digits = text.trim().trim_end_matches(['K', 'k', 'B']).trim();
    digits.parse::<usize>().ok()?.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_files_of_linux_are_read() {
        let text = "processor\t: 0\nmodel name\t: A CPU: fast\nMemAvailable:   23 kB\n";
        assert_eq!(field(text, "model name"), Some("A CPU: fast"));
        assert_eq!(field(text, "MemAvailable").and_then(kibibytes), Some(23 << 10));
        assert_eq!(kibibytes("32768K\n"), Some(32 << 20));
        assert_eq!(kibibytes("many"), None);
    }
}
