//! Rows of quantized weights times quantized activations.
//!
//! Four rows at a time: their blocks are unpacked once, meet every token, and the integer sums of the four
//! rows are totalled together. Each output has one f32 accumulator that takes the blocks in ascending order:
//! `acc = fma(d * d_a, sum, acc)`, then for formats with a minimum `acc = fma(m * d_a, sum of codes, acc)`.

use qgguf_gguf::blocks::{Block, BlockNVFP4, FP4, blocks, ue4m3_half};

use crate::quantize::Codes;
use crate::simd::Simd;
use crate::weights::{Small, Super};

/// Rows that are worked on together.
const ROWS: usize = 4;

/// The blocks of four rows from row `r`; past the end, the last row again.
#[inline(always)]
fn four_rows<B: Block>(all: &[B], per_row: usize, r: usize) -> [&[B]; ROWS] {
    let last = all.len() / per_row - 1;
    std::array::from_fn(|i| {
        let row = (r + i).min(last);
        &all[row * per_row..(row + 1) * per_row]
    })
}

/// Writes the accumulators of up to four rows to `out[token][n_rows]`.
#[inline(always)]
fn write(out: &mut [f32], n_rows: usize, r: usize, token: usize, acc: [f32; ROWS]) {
    let n = ROWS.min(n_rows - r);
    out[token * n_rows + r..][..n].copy_from_slice(&acc[..n]);
}

/// `out[token][row]` for formats of 32 weights. `w` has whole rows of `n_cols`, at least one.
#[inline(always)]
pub(crate) fn small<S: Simd, B: Small>(s: S, w: &[u8], n_cols: usize, x: Codes<'_>, out: &mut [f32]) {
    let all = blocks::<B>(w).expect("whole rows");
    let per_row = n_cols / 32;
    let n_rows = all.len() / per_row;
    let n_tokens = x.d.len() / per_row;
    let mut accs = [[0.0; ROWS]; TOKENS];
    for r in (0..n_rows).step_by(ROWS) {
        let rows = four_rows(all, per_row, r);
        for t0 in (0..n_tokens).step_by(TOKENS) {
            let n = TOKENS.min(n_tokens - t0);
            accs[..n].fill([0.0; ROWS]);
            for b in 0..per_row {
                let unpacked = rows.map(|row| SmallRow::unpack(s, &row[b]));
                for (t, acc) in accs[..n].iter_mut().enumerate() {
                    let at = (t0 + t) * per_row + b;
                    let a = s.signed_bytes(x.q[at * 32..at * 32 + 32].try_into().expect("a block"));
                    small_block::<S, B>(s, &unpacked, a, x.d[at], x.sums[at], acc);
                }
            }
            for (t, acc) in accs[..n].iter().enumerate() {
                write(out, n_rows, r, t0 + t, *acc);
            }
        }
    }
}

/// Tokens whose accumulators are kept at a time.
const TOKENS: usize = 64;

/// One unpacked block of 32.
#[derive(Clone, Copy)]
struct SmallRow<S: Simd> {
    w: S::Bytes,
    d: f32,
    m: f32,
}

impl<S: Simd> SmallRow<S> {
    #[inline(always)]
    fn unpack<B: Small>(s: S, block: &B) -> SmallRow<S> {
        SmallRow { w: block.weights(s), d: block.d(s), m: block.m(s) }
    }
}

#[inline(always)]
fn small_block<S: Simd, B: Small>(
    s: S,
    rows: &[SmallRow<S>; ROWS],
    a: S::Bytes,
    d_a: f32,
    sum_a: i16,
    acc: &mut [f32; ROWS],
) {
    let one = s.splat_word(1);
    let zero = s.zero_sums();
    let sums = rows.map(|row| {
        if B::SIGNED { s.dot_signed(zero, row.w, a, one) } else { s.dot_unsigned(zero, row.w, a, one) }
    });
    let totals = s.totals(sums);
    let offset = B::OFFSET * i32::from(sum_a);
    for i in 0..ROWS {
        acc[i] = (rows[i].d * d_a).mul_add((totals[i] - offset) as f32, acc[i]);
    }
    if B::MIN {
        let sum = f32::from(sum_a);
        for i in 0..ROWS {
            acc[i] = (rows[i].m * d_a).mul_add(sum, acc[i]);
        }
    }
}

/// One unpacked block of 256: weights, their scales spread over the products, and what sums of codes are
/// multiplied by (the offsets of the scales, or the minimums).
#[derive(Clone, Copy)]
struct SuperRow<S: Simd> {
    w: [S::Bytes; 8],
    scale: [S::Bytes; 8],
    offset: S::Bytes,
    min: S::Bytes,
    d: f32,
    dmin: f32,
}

impl<S: Simd> SuperRow<S> {
    #[inline(always)]
    fn unpack<B: Super>(s: S, block: &B) -> SuperRow<S> {
        let (scales, mins) = block.scales();
        SuperRow {
            w: std::array::from_fn(|g| block.weights(s, g)),
            scale: std::array::from_fn(|g| s.word_halves(scales[2 * g], scales[2 * g + 1])),
            offset: s.words(&scales.map(|scale| -scale * B::OFFSET)),
            min: s.words(&mins),
            d: block.d(s),
            dmin: block.dmin(s),
        }
    }
}

/// `out[token][row]` for formats of 256 weights. `w` has whole rows of `n_cols`, at least one.
#[inline(always)]
pub(crate) fn superblocks<S: Simd, B: Super>(s: S, w: &[u8], n_cols: usize, x: Codes<'_>, out: &mut [f32]) {
    let all = blocks::<B>(w).expect("whole rows");
    let per_row = n_cols / 256;
    let n_rows = all.len() / per_row;
    let n_tokens = x.d.len() / per_row;
    let mut accs = [[0.0; ROWS]; TOKENS];
    for r in (0..n_rows).step_by(ROWS) {
        let rows = four_rows(all, per_row, r);
        for t0 in (0..n_tokens).step_by(TOKENS) {
            let n = TOKENS.min(n_tokens - t0);
            accs[..n].fill([0.0; ROWS]);
            for b in 0..per_row {
                let unpacked = rows.map(|row| SuperRow::unpack(s, &row[b]));
                for (t, acc) in accs[..n].iter_mut().enumerate() {
                    let at = (t0 + t) * per_row + b;
                    let q = x.q[at * 256..at * 256 + 256].try_into().expect("a block");
                    let sums = x.sums[at * 16..at * 16 + 16].try_into().expect("a block");
                    superblock::<S, B>(s, &unpacked, q, sums, x.d[at], acc);
                }
            }
            for (t, acc) in accs[..n].iter().enumerate() {
                write(out, n_rows, r, t0 + t, *acc);
            }
        }
    }
}

#[inline(always)]
fn superblock<S: Simd, B: Super>(
    s: S,
    rows: &[SuperRow<S>; ROWS],
    q: &[i8; 256],
    code_sums: &[i16; 16],
    d_a: f32,
    acc: &mut [f32; ROWS],
) {
    let code_sums = s.words(code_sums);
    let mut sums = [s.zero_sums(); ROWS];
    for (g, a) in q.as_chunks::<32>().0.iter().enumerate() {
        let a = s.signed_bytes(a);
        for (sum, row) in sums.iter_mut().zip(rows) {
            *sum = if B::SIGNED {
                s.dot_signed(*sum, row.w[g], a, row.scale[g])
            } else {
                s.dot_unsigned(*sum, row.w[g], a, row.scale[g])
            };
        }
    }
    if B::OFFSET != 0 {
        for (sum, row) in sums.iter_mut().zip(rows) {
            *sum = s.dot_words(*sum, row.offset, code_sums);
        }
    }
    let totals = s.totals(sums);
    for i in 0..ROWS {
        acc[i] = (rows[i].d * d_a).mul_add(totals[i] as f32, acc[i]);
    }
    if B::MIN {
        let mins = s.totals(std::array::from_fn(|i| s.dot_words(s.zero_sums(), rows[i].min, code_sums)));
        for i in 0..ROWS {
            acc[i] = (-(rows[i].dmin * d_a)).mul_add(mins[i] as f32, acc[i]);
        }
    }
}

/// `out[token][row]` for NVFP4: four scales in a block of 64, each a step of its own of the accumulator.
#[inline(always)]
pub(crate) fn nvfp4<S: Simd>(s: S, w: &[u8], n_cols: usize, x: Codes<'_>, out: &mut [f32]) {
    let all = blocks::<BlockNVFP4>(w).expect("whole rows");
    let per_row = n_cols / 64;
    let n_rows = all.len() / per_row;
    let n_tokens = x.d.len() / (2 * per_row);
    let zero = s.zero_sums();
    let (first, second) = (s.word_halves(1, 0), s.word_halves(0, 1));
    for (r, row) in all.chunks_exact(per_row).enumerate() {
        for t in 0..n_tokens {
            let mut acc = 0f32;
            for (b, block) in row.iter().enumerate() {
                for half in 0..2 {
                    let at = (t * per_row + b) * 2 + half;
                    let qs: &[u8; 16] = block.qs[16 * half..16 * half + 16].try_into().expect("16 bytes");
                    let w = s.lookup(&FP4, s.bytes(&nvfp4_order(qs)));
                    let a = s.signed_bytes(x.q[at * 32..at * 32 + 32].try_into().expect("a block"));
                    let sums =
                        [s.dot_signed(zero, w, a, first), s.dot_signed(zero, w, a, second), zero, zero];
                    let totals = s.totals(sums);
                    for (&scale, &total) in block.scales[2 * half..].iter().zip(&totals[..2]) {
                        acc = (ue4m3_half(scale) * x.d[at]).mul_add(total as f32, acc);
                    }
                }
            }
            out[t * n_rows + r] = acc;
        }
    }
}

/// The codes of 32 weights: in each 8 bytes the low nibbles come first, then the high ones.
#[inline(always)]
fn nvfp4_order(qs: &[u8; 16]) -> [u8; 32] {
    std::array::from_fn(|w| {
        let byte = qs[w / 16 * 8 + w % 8];
        if w % 16 < 8 { byte & 15 } else { byte >> 4 }
    })
}

/// How the rows of unquantized weights are widened to f32.
pub(crate) trait Wide {
    /// Bytes per weight.
    const BYTES: usize;
    /// 16 weights from `16 * BYTES` bytes.
    fn load<S: Simd>(s: S, bytes: &[u8]) -> S::F32;
}

/// f32, f16 and bf16 weights.
pub(crate) struct WideF32;
pub(crate) struct WideF16;
pub(crate) struct WideBf16;

impl Wide for WideF32 {
    const BYTES: usize = 4;
    #[inline(always)]
    fn load<S: Simd>(s: S, bytes: &[u8]) -> S::F32 {
        s.load(&std::array::from_fn(|i| {
            f32::from_le_bytes(bytes[4 * i..4 * i + 4].try_into().expect("4 bytes"))
        }))
    }
}

impl Wide for WideF16 {
    const BYTES: usize = 2;
    #[inline(always)]
    fn load<S: Simd>(s: S, bytes: &[u8]) -> S::F32 {
        s.load_f16(bytes.try_into().expect("32 bytes"))
    }
}

impl Wide for WideBf16 {
    const BYTES: usize = 2;
    #[inline(always)]
    fn load<S: Simd>(s: S, bytes: &[u8]) -> S::F32 {
        s.load_bf16(bytes.try_into().expect("32 bytes"))
    }
}

/// Tokens that meet a row of unquantized weights at a time.
const WIDE_TOKENS: usize = 4;

/// `out[token][row]` for unquantized weights: 16 partial sums per output, element i into sum i mod 16.
#[inline(always)]
pub(crate) fn wide<S: Simd, W: Wide>(s: S, w: &[u8], n_cols: usize, x: &[f32], out: &mut [f32]) {
    let row_bytes = n_cols * W::BYTES;
    let n_rows = w.len() / row_bytes;
    let n_tokens = x.len() / n_cols;
    for t0 in (0..n_tokens).step_by(WIDE_TOKENS) {
        // Past the end, the last token again; its result is not written.
        let xs: [&[f32]; WIDE_TOKENS] =
            std::array::from_fn(|i| &x[(t0 + i).min(n_tokens - 1) * n_cols..][..n_cols]);
        for (r, row) in w.chunks_exact(row_bytes).enumerate() {
            let sums = if n_tokens == 1 {
                [wide_row::<S, W, 1>(s, row, [xs[0]])[0]; WIDE_TOKENS]
            } else {
                wide_row::<S, W, WIDE_TOKENS>(s, row, xs)
            };
            for (i, sum) in sums.iter().enumerate().take(n_tokens - t0) {
                out[(t0 + i) * n_rows + r] = *sum;
            }
        }
    }
}

#[inline(always)]
fn wide_row<S: Simd, W: Wide, const N: usize>(s: S, row: &[u8], xs: [&[f32]; N]) -> [f32; N] {
    let mut sums = [s.splat(0.0); N];
    let whole = row.chunks_exact(16 * W::BYTES);
    let tail = whole.remainder();
    let n_whole = whole.len() * 16;
    for (c, weights) in whole.enumerate() {
        let weights = W::load(s, weights);
        for (sum, x) in sums.iter_mut().zip(&xs) {
            let x = x[16 * c..16 * c + 16].try_into().expect("16 values");
            *sum = s.mul_add(weights, s.load(x), *sum);
        }
    }
    if !tail.is_empty() {
        let mut padded = [0; 64];
        padded[..tail.len()].copy_from_slice(tail);
        let weights = W::load(s, &padded[..16 * W::BYTES]);
        for (sum, x) in sums.iter_mut().zip(&xs) {
            *sum = s.mul_add(weights, crate::simd::load_tail(s, &x[n_whole..]), *sum);
        }
    }
    sums.map(|sum| s.sum(sum))
}
