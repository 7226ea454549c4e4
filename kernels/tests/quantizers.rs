//! Quantizing on every instruction set of this CPU: ggml's bytes, and the same bytes everywhere.

use std::path::Path;

use qgguf_gguf::GgmlType;
use qgguf_gguf::dequantize::dequantize_row;
use qgguf_kernels::{Isa, Kernels, QuantizeError, quantizable};
use qgguf_testing::{Random, assert_same_bits, f32s, fixtures};

const N_COLS: usize = 1024;

fn floats(path: &Path) -> Vec<f32> {
    f32s(&std::fs::read(path).unwrap())
}

fn quantized(
    isa: Isa,
    ty: GgmlType,
    x: &[f32],
    n_cols: usize,
    importance: Option<&[f32]>,
) -> Result<Vec<u8>, QuantizeError> {
    let mut out = vec![0xa5; ty.row_bytes(x.len()).unwrap()];
    Kernels::new(isa).unwrap().quantize_rows(ty, x, n_cols, importance, &mut out)?;
    Ok(out)
}

/// The blocks that differ, and the first of them, if any does.
fn assert_same_blocks(ty: GgmlType, a: &[u8], b: &[u8], what: &str) {
    assert_eq!(a.len(), b.len(), "{what}");
    let size = ty.block_bytes();
    let differ: Vec<usize> =
        (0..a.len() / size).filter(|i| a[i * size..][..size] != b[i * size..][..size]).collect();
    if let Some(&i) = differ.first() {
        let (a, b) = (&a[i * size..][..size], &b[i * size..][..size]);
        panic!(
            "{what}: {} blocks of {} differ ({differ:?}); block {i} is\n{a:02x?} or\n{b:02x?}",
            differ.len(),
            ty
        );
    }
}

#[test]
fn blocks_are_the_reference_s() {
    let Some(dir) = fixtures("blocks_are_the_reference_s") else { return };
    let dir = dir.join("quant");
    let x = floats(&dir.join("input.f32.bin"));
    let importance = floats(&dir.join("imatrix.f32.bin"));
    let mut cases = 0;
    for ty in GgmlType::all().filter(|&ty| quantizable(ty) && ty != GgmlType::F32) {
        let name = ty.name().to_uppercase();
        let plain = std::fs::read(dir.join(format!("{name}.bin"))).unwrap();
        let weighted = std::fs::read(dir.join(format!("{name}.imat.bin"))).ok();
        for isa in Isa::available() {
            let mut check = |rows: std::ops::Range<usize>, importance: Option<&[f32]>, expected: &[u8]| {
                let row = ty.row_bytes(N_COLS).unwrap();
                let what = format!("{ty} {isa} rows {rows:?}, with importance: {}", importance.is_some());
                let found =
                    quantized(isa, ty, &x[N_COLS * rows.start..N_COLS * rows.end], N_COLS, importance);
                let found = found.unwrap_or_else(|e| panic!("{what}: {e}"));
                assert_same_blocks(ty, &found, &expected[row * rows.start..row * rows.end], &what);
                cases += 1;
            };
            // Types without a file of their own take no notice of importance.
            let weighted = weighted.as_ref().unwrap_or(&plain);
            check(0..21, None, &plain);
            check(0..21, Some(&importance), weighted);
            check(3..8, Some(&importance), weighted);
            check(5..6, None, &plain);
        }
    }
    assert!(cases >= 4 * 20);
}

#[test]
fn every_instruction_set_gives_the_same_blocks() {
    let mut random = Random(11);
    for ty in GgmlType::all().filter(|&ty| quantizable(ty)) {
        let n_cols = 9 * ty.block_size().max(32);
        // Rows of all sizes that a type may meet, and one of zeros; few different values, so that many are equal.
        let scales = [1.0, 0.0, 1e-30, 1e-3, 1e2, 7e-6, 1e-12];
        let bytes = random.bytes(n_cols * scales.len());
        let x: Vec<f32> =
            bytes.iter().enumerate().map(|(i, &b)| f32::from(b as i8) / 16.0 * scales[i / n_cols]).collect();
        let importance: Vec<f32> = random.bytes(n_cols).iter().map(|&b| f32::from(b) / 7.0).collect();
        for importance in [None, Some(&importance[..])] {
            let on = |isa| {
                let mut out = vec![0; ty.row_bytes(x.len()).unwrap()];
                let kernels = Kernels::new(isa).unwrap();
                kernels.quantize_rows_as_they_are(ty, &x, n_cols, importance, &mut out).unwrap();
                out
            };
            let expected = on(Isa::Portable);
            for isa in Isa::available() {
                assert_same_blocks(ty, &on(isa), &expected, &format!("{ty} {isa}"));
            }
        }
    }
}

#[test]
fn numbers_that_are_not_finite_do_no_harm() {
    let mut random = Random(13);
    for ty in GgmlType::all().filter(|&ty| quantizable(ty)) {
        let n_cols = 4 * ty.block_size().max(64);
        let any = random.bytes(4 * 20 * n_cols);
        let x: Vec<f32> = any.as_chunks().0.iter().map(|&b| f32::from_le_bytes(b)).collect();
        let importance: Vec<f32> = random.bytes(n_cols).iter().map(|&b| f32::from(b) * 1e30).collect();
        for importance in [None, Some(&importance[..])] {
            for isa in Isa::available() {
                let mut out = vec![0; ty.row_bytes(x.len()).unwrap()];
                let kernels = Kernels::new(isa).unwrap();
                kernels.quantize_rows_as_they_are(ty, &x, n_cols, importance, &mut out).unwrap();
            }
        }
    }
}

#[test]
fn widening_is_exact() {
    let mut random = Random(7);
    for ty in GgmlType::all().filter(|&ty| quantizable(ty)) {
        let n_cols = 3 * ty.block_size();
        let bytes = random.bytes(ty.row_bytes(7 * n_cols).unwrap());
        let mut expected = vec![0.0; 7 * n_cols];
        dequantize_row(ty, &bytes, &mut expected).unwrap();
        for isa in Isa::available() {
            let mut found = vec![0.0; expected.len()];
            Kernels::new(isa).unwrap().widen_rows(ty, &bytes, n_cols, &mut found).unwrap();
            assert_same_bits(&found, &expected, &format!("{ty} {isa}"));
        }
    }
}

#[test]
fn what_cannot_be_quantized_is_refused() {
    let text = |ty, x: &[f32], n_cols, importance: Option<&[f32]>| {
        let mut out = vec![0; ty_bytes(ty, x.len())];
        Kernels::best().quantize_rows(ty, x, n_cols, importance, &mut out).unwrap_err().to_string()
    };
    fn ty_bytes(ty: GgmlType, n: usize) -> usize {
        n.div_ceil(ty.block_size()) * ty.block_bytes()
    }
    let mut x = vec![1.0; 512];
    use GgmlType::*;
    assert_eq!(text(IQ2_XS, &x, 256, None), "quantizing to iq2_xs is not possible yet");
    assert_eq!(text(Q8_K, &x, 256, None), "quantizing to q8_K is not possible");
    assert_eq!(text(Q4_K, &x, 128, None), "rows of 128 weights are not whole blocks of q4_K, which hold 256");
    assert_eq!(text(Q4_0, &x, 0, None), "rows of 0 weights are not whole blocks of q4_0, which hold 32");
    assert_eq!(text(Q4_0, &x, 384, None), "512 weights in rows of 384 do not fill 288 bytes of q4_0");
    assert_eq!(text(Q4_0, &x, 256, Some(&[1.0; 32])), "the importance has 32 values for rows of 256 weights");
    let mut importance = [1.0; 256];
    importance[9] = f32::NAN;
    assert_eq!(text(Q4_0, &x, 256, Some(&importance)), "the importance of column 9 is NaN");
    x[300] = 1e6;
    assert_eq!(
        text(F16, &x, 256, None),
        "the weights of row 1 from column 44 on are too large or too small for f16"
    );
    x[300] = 1e9;
    for (ty, column) in
        [(Q4_0, 32), (Q4_1, 32), (Q4_K, 0), (Q6_K, 0), (Q2_K, 0), (Q3_K, 0), (TQ1_0, 0), (IQ4_XS, 0)]
    {
        let expected =
            format!("the weights of row 1 from column {column} on are too large or too small for {ty}");
        assert_eq!(text(ty, &x, 256, None), expected);
    }
    x[300] = f32::MAX;
    assert_eq!(
        text(BF16, &x, 256, None),
        "the weights of row 1 from column 44 on are too large or too small for bf16"
    );
    x[300] = f32::INFINITY;
    assert_eq!(text(Q8_0, &x, 256, None), "the weight in row 1, column 44 is inf");
    let tiny = vec![2e-38; 32];
    assert_eq!(
        text(MXFP4, &tiny, 32, None),
        "the weights of row 0 from column 0 on are too large or too small for mxfp4"
    );
}
