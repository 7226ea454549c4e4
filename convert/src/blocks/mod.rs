//! Block quantizers: from rows of f32 to blocks, byte for byte as llama.cpp's plain C code has them on x86-64.
//!
//! Every f32 operation is rounded by itself and sums run in order, with the operations as they are written here; that is
//! what equal bytes take. The searches for scales work on eight sub-blocks at a time (see [`lanes`]).

mod k;
mod lanes;
mod plain;
#[cfg(test)]
mod tests;

use half::f16;
use qgguf_gguf::GgmlType;

/// Quantizes one row; `importance` has a weight for each column.
type Row = fn(row: &[f32], importance: Option<&[f32]>, out: &mut [u8]);

/// True if [`quantize_row`] can make the type.
pub(crate) fn is_supported(ty: GgmlType) -> bool {
    function(ty).is_some()
}

/// Quantizes one row of whole blocks; `None` if the type is not known.
pub(crate) fn quantize_row(
    ty: GgmlType,
    row: &[f32],
    importance: Option<&[f32]>,
    out: &mut [u8],
) -> Option<()> {
    function(ty)?(row, importance, out);
    Some(())
}

fn function(ty: GgmlType) -> Option<Row> {
    Some(match ty {
        GgmlType::Q4_0 => plain::q4_0,
        GgmlType::Q4_1 => plain::q4_1,
        GgmlType::Q5_0 => plain::q5_0,
        GgmlType::Q5_1 => plain::q5_1,
        GgmlType::Q8_0 => plain::q8_0,
        GgmlType::Q1_0 => plain::q1_0,
        GgmlType::Q2_0 => plain::q2_0,
        GgmlType::MXFP4 => plain::mxfp4,
        GgmlType::TQ1_0 => plain::tq1_0,
        GgmlType::TQ2_0 => plain::tq2_0,
        GgmlType::IQ4_NL => plain::iq4_nl,
        GgmlType::IQ4_XS => k::iq4_xs,
        GgmlType::Q2_K => k::q2_k,
        GgmlType::Q3_K => k::q3_k,
        GgmlType::Q4_K => k::q4_k,
        GgmlType::Q5_K => k::q5_k,
        GgmlType::Q6_K => k::q6_k,
        _ => return None,
    })
}

/// Calls `make` for one block after the other, with its weights, its number and its bytes.
fn each<const N: usize>(
    ty: GgmlType,
    row: &[f32],
    out: &mut [u8],
    make: impl Fn(&[f32; N], usize, &mut [u8]),
) {
    let blocks = out.chunks_exact_mut(ty.block_bytes());
    row.as_chunks::<N>().0.iter().zip(blocks).enumerate().for_each(|(i, (x, out))| make(x, i, out));
}

/// Fills a block with its fields.
fn fill(out: &mut [u8], fields: &[&[u8]]) {
    let mut rest = out;
    for field in fields {
        let (now, later) = rest.split_at_mut(field.len());
        now.copy_from_slice(field);
        rest = later;
    }
}

fn half(v: f32) -> [u8; 2] {
    f16::from_f32(v).to_le_bytes()
}

/// A number as it is after it was stored in half precision.
fn halved(v: f32) -> f32 {
    f16::from_f32(v).to_f32()
}

/// The nearest integer, ties to even, by the bits of a sum; out of its range the same garbage as everywhere.
fn nearest(v: f32) -> i32 {
    ((v + 12_582_912.0).to_bits() & 0x007f_ffff) as i32 - 0x0040_0000
}

/// Without its fraction; 0 in the low bytes if it is beyond i32 or undefined, as happens with inverses of denormals.
fn truncate(v: f32) -> i32 {
    if v.abs() < 2_147_483_648.0 { v as i32 } else { i32::MIN }
}

fn inverse(d: f32) -> f32 {
    if d != 0.0 { 1.0 / d } else { 0.0 }
}

/// Sum of squares, in order.
fn sum_squares(x: &[f32]) -> f32 {
    x.iter().fold(0.0, |sum, x| sum + x * x)
}

/// The value of largest magnitude, the first of several.
fn signed_max(x: &[f32]) -> f32 {
    x.iter()
        .fold(
            (0.0f32, 0.0),
            |(magnitude, max), &x| {
                if x.abs() > magnitude { (x.abs(), x) } else { (magnitude, max) }
            },
        )
        .1
}
