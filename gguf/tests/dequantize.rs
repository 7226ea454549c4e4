//! The scalar meaning of every block type, against the weights that ggml reads from the same bytes.

use std::path::Path;

use qgguf_gguf::GgmlType;
use qgguf_gguf::blocks::{e8m0_half, ue4m3_half};
use qgguf_gguf::dequantize::{DequantizeError, dequantize_row, dequantize_supported};

/// Bytes of 1024 weights and the weights, from the samples in the repository.
fn sample(ty: GgmlType) -> (Vec<u8>, Vec<f32>) {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/data/quant");
    let read = |suffix: &str| {
        let name = format!("{}.{suffix}", ty.name().to_uppercase());
        std::fs::read(dir.join(&name)).unwrap_or_else(|e| panic!("{name}: {e}"))
    };
    let weights = read("deq.f32.bin");
    (read("bin"), weights.as_chunks::<4>().0.iter().map(|&b| f32::from_le_bytes(b)).collect())
}

/// All types but f32, which has nothing to compare with.
fn block_types() -> impl Iterator<Item = GgmlType> {
    GgmlType::all().filter(|&ty| dequantize_supported(ty) && ty != GgmlType::F32)
}

#[test]
fn every_type_reads_the_bits_that_ggml_reads() {
    let mut n_types = 0;
    for ty in block_types() {
        let (bytes, expected) = sample(ty);
        let mut out = vec![f32::NAN; expected.len()];
        dequantize_row(ty, &bytes, &mut out).unwrap();
        for (i, (a, b)) in out.iter().zip(&expected).enumerate() {
            assert!(a.to_bits() == b.to_bits(), "{ty}: weight {i} is {a:e}, expected {b:e}");
        }
        n_types += 1;
    }
    assert!(n_types >= 21, "only {n_types} types");
}

#[test]
fn blocks_do_not_depend_on_their_neighbours_or_on_alignment() {
    for ty in block_types() {
        let (bytes, expected) = sample(ty);
        let (n, size) = (ty.block_size(), ty.block_bytes());
        let mut shifted = vec![0xa5u8; size + 1];
        let mut out = vec![f32::NAN; n];
        for (block, expected) in bytes.chunks(size).zip(expected.chunks(n)) {
            shifted[1..].copy_from_slice(block);
            dequantize_row(ty, &shifted[1..], &mut out).unwrap();
            assert!(out.iter().zip(expected).all(|(a, b)| a.to_bits() == b.to_bits()), "{ty}");
        }
        dequantize_row(ty, &[], &mut []).unwrap();
    }
}

#[test]
fn plain_numbers_keep_every_bit() {
    let patterns = [0u32, 0x8000_0000, 1, 0x7f80_0000, 0xff80_0001, 0x7fc0_1234, 0x3f80_0000];
    let bytes: Vec<u8> = patterns.iter().flat_map(|p| p.to_le_bytes()).collect();
    let mut out = [0.0; 7];
    dequantize_row(GgmlType::F32, &bytes, &mut out).unwrap();
    assert_eq!(out.map(f32::to_bits), patterns);
    // bf16 is the upper half of an f32, signalling NaNs included.
    for high in 0..=u16::MAX {
        let mut out = [0.0];
        dequantize_row(GgmlType::BF16, &high.to_le_bytes(), &mut out).unwrap();
        assert_eq!(out[0].to_bits(), u32::from(high) << 16);
    }
}

#[test]
fn power_of_two_scales_are_exact() {
    for e in 0..=255 {
        assert_eq!(f64::from(e8m0_half(e)), 2f64.powi(i32::from(e) - 128), "{e}");
    }
}

#[test]
fn small_float_scales_are_exact() {
    for x in 0..=255u8 {
        let (exponent, mantissa) = (i32::from(x >> 3 & 15), f64::from(x & 7));
        let expected = match (x, exponent) {
            (0 | 0x7f, _) => 0.0,
            (_, 0) => mantissa * 2f64.powi(-9),
            _ => (1.0 + mantissa / 8.0) * 2f64.powi(exponent - 7),
        };
        assert_eq!(f64::from(ue4m3_half(x)), expected / 2.0, "{x:#x}");
    }
}

#[test]
fn types_without_a_meaning_here_are_named() {
    let numbers: Vec<&str> = GgmlType::all()
        .filter(|&ty| ty.block_size() == 1 && !dequantize_supported(ty))
        .map(GgmlType::name)
        .collect();
    assert_eq!(numbers.join(" "), "i8 i16 i32 i64 f64");
    let error = dequantize_row(GgmlType::I16, &[0; 8], &mut [0.0; 4]).unwrap_err();
    assert_eq!(error, DequantizeError::Unsupported(GgmlType::I16));
    assert_eq!(error.to_string(), "type i16 cannot be dequantized");
}

#[test]
fn wrong_lengths_are_errors_with_both_numbers() {
    let text = |bytes: usize, n: usize| {
        dequantize_row(GgmlType::Q4_K, &vec![0; bytes], &mut vec![0.0; n]).unwrap_err().to_string()
    };
    assert_eq!(text(143, 256), "143 bytes are not 256 weights of type q4_K, which take 144");
    assert_eq!(text(144, 512), "144 bytes are not 512 weights of type q4_K, which take 288");
    assert_eq!(text(144, 255), "144 bytes are not 255 weights of type q4_K");
}
