//! Reads at places of a file.
//!
//! Weights are read, not mapped: errors of the disk are errors then, and what was read does not count as memory in use.

use std::fs::File;
use std::io;

#[cfg(unix)]
pub(crate) fn read_exact_at(file: &File, out: &mut [u8], at: u64) -> io::Result<()> {
    std::os::unix::fs::FileExt::read_exact_at(file, out, at)
}

#[cfg(windows)]
pub(crate) fn read_exact_at(file: &File, mut out: &mut [u8], mut at: u64) -> io::Result<()> {
    while !out.is_empty() {
        match std::os::windows::fs::FileExt::seek_read(file, out, at)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            n => {
                out = &mut out[n..];
                at += n as u64;
            }
        }
    }
    Ok(())
}

/// Asks the system to read ahead; it may have better things to do.
#[cfg(target_os = "linux")]
pub(crate) fn will_need(file: &File, at: u64, n: u64) {
    let _ = rustix::fs::fadvise(file, at, std::num::NonZeroU64::new(n), rustix::fs::Advice::WillNeed);
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn will_need(_: &File, _: u64, _: u64) {}
