//! What the tests of several crates share: where the big sets of reference data are, random numbers from fixed sequences,
//! comparisons by bits.

use std::path::{Path, PathBuf};

/// Where the big sets of reference data are looked for, which are not in the repository: in `QGGUF_FIXTURES`, else beside
/// the repository.
pub fn fixtures_path() -> PathBuf {
    std::env::var_os("QGGUF_FIXTURES")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/fixtures"), PathBuf::from)
}

/// The folder of reference data, or `None` with a visible note that `test` skips what needs it.
///
/// # Panics
/// If it is not there and `CI` is set: then nothing may be skipped.
pub fn fixtures(test: &str) -> Option<PathBuf> {
    let dir = fixtures_path();
    if dir.is_dir() {
        return Some(dir);
    }
    let ci = std::env::var_os("CI").is_some_and(|ci| !ci.is_empty());
    assert!(!ci, "{test}: no fixtures at {}", dir.display());
    eprintln!("SKIPPED {test}: no fixtures at {}", dir.display());
    None
}

/// The little-endian f32 of some bytes, a multiple of four of them.
pub fn f32s(bytes: &[u8]) -> Vec<f32> {
    bytes.as_chunks().0.iter().map(|&b| f32::from_le_bytes(b)).collect()
}

/// Numbers from a fixed sequence (SplitMix64) that begins at a seed.
pub struct Random(pub u64);

impl Random {
    /// The next 64 bits.
    #[allow(clippy::should_implement_trait, reason = "a sequence without an end")]
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    /// From -1 to 1.
    pub fn f32(&mut self) -> f32 {
        (self.next() >> 40) as f32 / (1 << 23) as f32 - 1.0
    }

    /// `n` numbers from -1 to 1.
    pub fn f32s(&mut self, n: usize) -> Vec<f32> {
        (0..n).map(|_| self.f32()).collect()
    }

    /// `n` bytes.
    pub fn bytes(&mut self, n: usize) -> Vec<u8> {
        (0..n).map(|_| self.next() as u8).collect()
    }
}

/// Equal by bits; any two NaN are equal.
pub fn assert_same_bits(a: &[f32], b: &[f32], what: &str) {
    assert_eq!(a.len(), b.len(), "{what}");
    for (i, (a, b)) in a.iter().zip(b).enumerate() {
        let same = a.to_bits() == b.to_bits() || (a.is_nan() && b.is_nan());
        assert!(same, "{what}: value {i} is {a:e} or {b:e}");
    }
}

/// Distance in units of the last place of the exact value.
pub fn ulps(value: f32, exact: f64) -> f64 {
    let ulp = f64::from(f32::from_bits((exact as f32).abs().to_bits() + 1)) - f64::from((exact as f32).abs());
    (f64::from(value) - exact).abs() / ulp
}
