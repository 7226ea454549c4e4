//! The big sets of reference data, which are not in the repository.

use std::path::{Path, PathBuf};

/// The folder, or `None` with a visible note; its absence fails in CI.
pub fn fixtures(test: &str) -> Option<PathBuf> {
    let dir = std::env::var_os("QGGUF_FIXTURES")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/fixtures"), PathBuf::from);
    if dir.is_dir() {
        return Some(dir);
    }
    let ci = std::env::var_os("CI").is_some_and(|ci| !ci.is_empty());
    assert!(!ci, "no fixtures at {}", dir.display());
    eprintln!("SKIPPED {test}: no fixtures at {}", dir.display());
    None
}
