//! Against the bytes of ggml_quantize_chunk.

use std::fs;
use std::path::{Path, PathBuf};

use super::*;

fn fixtures() -> Option<PathBuf> {
    let dir = std::env::var_os("QGGUF_FIXTURES")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/fixtures"), PathBuf::from);
    let there = dir.is_dir();
    assert!(
        there || std::env::var_os("CI").is_none_or(|ci| ci.is_empty()),
        "no fixtures at {}",
        dir.display()
    );
    if !there {
        eprintln!("SKIPPED: no fixtures at {}", dir.display());
    }
    there.then(|| dir.join("quant"))
}

fn floats(path: &Path) -> Vec<f32> {
    fs::read(path).unwrap().as_chunks().0.iter().map(|&bytes| f32::from_le_bytes(bytes)).collect()
}

#[test]
fn blocks_are_those_of_ggml() {
    const N_COLUMNS: usize = 1024;
    let Some(dir) = fixtures() else { return };
    let (rows, importance) = (floats(&dir.join("input.f32.bin")), floats(&dir.join("imatrix.f32.bin")));
    let mut differing = Vec::new();
    let mut n_compared = 0;
    for ty in GgmlType::all().filter(|&ty| is_supported(ty)) {
        for (suffix, importance) in [("bin", None), ("imat.bin", Some(importance.as_slice()))] {
            // Types that pass over importance have the same bytes with it.
            let path = dir.join(format!("{}.{suffix}", ty.name().to_uppercase()));
            let path =
                if path.exists() { path } else { dir.join(format!("{}.bin", ty.name().to_uppercase())) };
            let expected = fs::read(path).unwrap();
            let row_bytes = ty.row_bytes(N_COLUMNS).unwrap();
            for (i, (row, expected)) in rows.chunks(N_COLUMNS).zip(expected.chunks(row_bytes)).enumerate() {
                let mut out = vec![0xaa; row_bytes];
                quantize_row(ty, row, importance, &mut out).unwrap();
                n_compared += 1;
                for (j, (a, b)) in
                    out.chunks(ty.block_bytes()).zip(expected.chunks(ty.block_bytes())).enumerate()
                {
                    if a != b {
                        differing.push(format!("{ty} {suffix} row {i} block {j}: {a:?} for {b:?}"));
                    }
                }
            }
        }
    }
    assert_eq!(n_compared, 17 * 2 * 21);
    assert!(
        differing.is_empty(),
        "{} blocks:\n{}",
        differing.len(),
        differing[..differing.len().min(40)].join("\n")
    );
}
