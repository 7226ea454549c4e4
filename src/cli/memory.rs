//! What memory the command uses.

use std::fs;

use qgguf::session::Session;

use super::terminal::{self, note};

/// Says what memory a session and its model use.
pub fn report(session: &Session) {
    let memory = session.memory();
    let peak =
        peak_resident().map_or(String::new(), |n| format!(", at most {} resident", terminal::bytes(n)));
    note!(
        "qgguf: memory: {} mapped, {} keys and values, {} scratch{peak}",
        terminal::bytes(session.model().file().mapped_bytes()),
        terminal::bytes(memory.kv as u64),
        terminal::bytes(memory.scratch as u64),
    );
}

/// The most memory that this process has had resident, pages of mapped files included; where the system tells.
pub fn peak_resident() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    Some(line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.saturating_mul(1024))
}

/// Lets the peak begin anew, so that what is over by now is not part of it; where the system can.
pub fn forget_peak() {
    let _ = fs::write("/proc/self/clear_refs", "5");
}
