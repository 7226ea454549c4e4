//! The container and the blocks against files and bytes that ggml made.

use std::path::{Path, PathBuf};

use qgguf_gguf::dequantize::{dequantize_row, dequantize_supported};
use qgguf_gguf::{GgmlType, GgufFile, GgufWriter, TensorSpec};
use qgguf_testing::{f32s, fixtures};

/// The types of weights whose blocks are among the reference data.
fn types() -> impl Iterator<Item = GgmlType> {
    GgmlType::all().filter(|&ty| dequantize_supported(ty) && ![GgmlType::F32, GgmlType::Q8_K].contains(&ty))
}

fn assert_dequantizes(ty: GgmlType, bytes: &[u8], expected: &[f32]) {
    let mut out = vec![0.0; expected.len()];
    dequantize_row(ty, bytes, &mut out).unwrap();
    for (i, (a, b)) in out.iter().zip(expected).enumerate() {
        assert!(a.to_bits() == b.to_bits(), "{ty}: weight {i} is {a:e}, expected {b:e}");
    }
}

#[test]
fn blocks_dequantize_to_the_bit() {
    let Some(dir) = fixtures("blocks_dequantize_to_the_bit") else { return };
    for ty in types() {
        let read = |suffix: &str| {
            std::fs::read(dir.join("quant").join(format!("{}.{suffix}", ty.name().to_uppercase())))
        };
        let (bytes, expected) = (read("bin").unwrap(), read("deq.f32.bin").unwrap());
        assert_dequantizes(ty, &bytes, &f32s(&expected));
    }
}

#[test]
fn q8_k_dequantizes_to_its_codes_times_its_scale() {
    let Some(dir) = fixtures("q8_k_dequantizes_to_its_codes_times_its_scale") else { return };
    let bytes = std::fs::read(dir.join("quant/act.Q8_K.bin")).unwrap();
    let mut out = vec![0.0; 5 * 1024];
    dequantize_row(GgmlType::Q8_K, &bytes, &mut out).unwrap();
    for (block, weights) in bytes.chunks(292).zip(out.chunks(256)) {
        let d = f32::from_le_bytes(block[..4].try_into().unwrap());
        assert!(weights.iter().zip(&block[4..]).all(|(&w, &q)| w == d * f32::from(q as i8)));
    }
}

fn ggufs(dir: &Path) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> = ["gguf", "kjv", "tokenizer"]
        .iter()
        .flat_map(|sub| std::fs::read_dir(dir.join(sub)).unwrap())
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|e| e == "gguf"))
        .collect();
    files.sort();
    files
}

#[test]
fn every_reference_file_opens() {
    let Some(dir) = fixtures("every_reference_file_opens") else { return };
    let files = ggufs(&dir);
    assert!(files.len() > 40, "only {} files", files.len());
    for path in files {
        let file = GgufFile::open(&path).unwrap();
        assert!(
            file.tensors().iter().all(|t| file.tensor(&t.name).unwrap().bytes().len() as u64 == t.n_bytes)
        );
    }
}

#[test]
fn writing_what_was_read_gives_the_same_bytes() {
    let Some(dir) = fixtures("writing_what_was_read_gives_the_same_bytes") else { return };
    let out = tempfile::tempdir().unwrap();
    let target = out.path().join("copy.gguf");
    for path in ggufs(&dir) {
        let file = GgufFile::open(&path).unwrap();
        let specs: Vec<TensorSpec> = file.tensors().iter().map(TensorSpec::from).collect();
        let mut writer = GgufWriter::create(&target, file.version(), file.metadata(), &specs).unwrap();
        for tensor in file.tensors() {
            // Pieces of an odd size, to cross the borders of blocks.
            file.tensor(&tensor.name)
                .unwrap()
                .bytes()
                .chunks(100_003)
                .for_each(|part| writer.write(part).unwrap());
        }
        writer.finish().unwrap();
        let (copy, original) = (std::fs::read(&target).unwrap(), std::fs::read(&path).unwrap());
        assert!(copy == original, "{}: {} bytes, originally {}", path.display(), copy.len(), original.len());
    }
    assert_eq!(std::fs::read_dir(out.path()).unwrap().count(), 1, "temporary files are left");
}
