//! Where the reference data is.

use std::path::{Path, PathBuf};

/// The folder of reference data, or `None` with a visible note; its absence fails in CI.
pub fn fixtures(test: &str) -> Option<PathBuf> {
    let dir = std::env::var_os("QGGUF_FIXTURES")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/fixtures"), PathBuf::from);
    if dir.is_dir() {
        return Some(dir);
    }
    assert!(std::env::var_os("CI").is_none(), "no fixtures at {}", dir.display());
    eprintln!("SKIPPED {test}: no fixtures at {}", dir.display());
    None
}
