//! Unquantized weights times f32 activations: 16 partial sums for each output, element i into sum i mod 16.

use crate::activations::FloatRows;
use crate::layout::{NumberFormat, Panel};
use crate::simd::{Simd, load_tail};

/// How the rows of unquantized weights are widened to f32.
pub(crate) trait FloatFormat {
    /// How a weight lies in memory.
    const NUMBERS: NumberFormat;
    /// Bytes per weight.
    const BYTES: usize = if matches!(Self::NUMBERS, NumberFormat::F32) { 4 } else { 2 };
    /// 16 weights from `16 * BYTES` bytes.
    fn load<S: Simd>(s: S, bytes: &[u8]) -> S::F32;
}

/// `out[token][row]`. A few tokens meet all rows before the next ones do: they are in the L1 cache then, and the rows in
/// L2.
#[inline(always)]
pub(crate) fn floats<S: Simd, W: FloatFormat>(
    s: S,
    panel: Panel<'_>,
    x: FloatRows<'_>,
    out: &mut [[f32; 16]],
) {
    let n = out.len();
    let four = 4 * panel.n_cols * W::BYTES;
    let mut t = 0;
    while t < n {
        let at_once = match n - t {
            4.. if S::FLOAT_TOKENS == 4 => 4,
            // The code for three fetches nothing.
            3.. if S::FLOAT_TOKENS == 3 && t > 0 => 3,
            2.. => 2,
            _ => 1,
        };
        for r in (0..16).step_by(4) {
            // The first tokens to meet these rows ask for the next ones, a line for each line that they read.
            let ahead = (t == 0).then(|| if r == 12 { panel.next } else { &panel.w[(r / 4 + 1) * four..] });
            match at_once {
                4 => rows::<S, W, 4, 4>(s, panel, r, x, t, ahead, out),
                3 => {
                    rows::<S, W, 2, 3>(s, panel, r, x, t, None, out);
                    rows::<S, W, 2, 3>(s, panel, r + 2, x, t, None, out);
                }
                2 => {
                    // Two by two, for fewer registers.
                    rows::<S, W, 2, 2>(s, panel, r, x, t, ahead, out);
                    rows::<S, W, 2, 2>(s, panel, r + 2, x, t, None, out);
                }
                _ => rows::<S, W, 4, 1>(s, panel, r, x, t, ahead, out),
            }
        }
        t += at_once;
    }
}

/// `R` rows from `r` times `T` tokens from `t`; meanwhile `ahead` is fetched.
#[inline(always)]
fn rows<S: Simd, W: FloatFormat, const R: usize, const T: usize>(
    s: S,
    panel: Panel<'_>,
    r: usize,
    x: FloatRows<'_>,
    t: usize,
    ahead: Option<&[u8]>,
    out: &mut [[f32; 16]],
) {
    let n_cols = panel.n_cols;
    let row_bytes = n_cols * W::BYTES;
    let w: [&[u8]; R] = std::array::from_fn(|i| &panel.w[(r + i) * row_bytes..][..row_bytes]);
    // Loops below, because what `array::map` calls is not always inlined.
    let x: [&[f32]; T] = std::array::from_fn(|i| &x.x[x.map.row(t + i) * n_cols..][..n_cols]);
    let n_whole = n_cols / 16;
    let mut sums = match s.float_products::<R, T>(W::NUMBERS, &w, &x, 16 * n_whole) {
        Some(sums) => sums,
        None => by_columns::<S, W, R, T>(s, &w, &x, n_whole, ahead),
    };
    if n_whole * 16 < n_cols {
        let x: [S::F32; T] = x.map(|x| load_tail(s, &x[16 * n_whole..]));
        for (sums, w) in sums.iter_mut().zip(&w) {
            let tail = &w[16 * n_whole * W::BYTES..];
            let mut padded = [0; 64];
            padded[..tail.len()].copy_from_slice(tail);
            let w = W::load(s, &padded[..16 * W::BYTES]);
            for (sum, x) in sums.iter_mut().zip(x) {
                *sum = s.mul_add(w, x, *sum);
            }
        }
    }
    for (i, sums) in sums.into_iter().enumerate() {
        for (j, sum) in sums.into_iter().enumerate() {
            out[t + j][r + i] = s.sum(sum);
        }
    }
}

/// The products of `n_whole` times 16 columns; meanwhile four rows at the start of `ahead` are fetched.
#[inline(always)]
fn by_columns<S: Simd, W: FloatFormat, const R: usize, const T: usize>(
    s: S,
    w: &[&[u8]; R],
    x: &[&[f32]; T],
    n_whole: usize,
    ahead: Option<&[u8]>,
) -> [[S::F32; T]; R] {
    let mut sums = [[s.splat(0.0); T]; R];
    // Bytes of the next four rows for each column.
    let each = 4 * 16 * W::BYTES;
    for c in 0..n_whole {
        if let Some(ahead) = ahead {
            for line in (0..each).step_by(64) {
                s.prefetch(ahead.as_ptr().wrapping_add(each * c + line));
            }
        }
        let mut values = [s.splat(0.0); T];
        for (value, x) in values.iter_mut().zip(x) {
            *value = s.load(x[16 * c..16 * c + 16].try_into().expect("16 values"));
        }
        for (sums, w) in sums.iter_mut().zip(w) {
            let w = W::load(s, &w[16 * c * W::BYTES..16 * (c + 1) * W::BYTES]);
            for (sum, x) in sums.iter_mut().zip(values) {
                *sum = s.mul_add(w, x, *sum);
            }
        }
    }
    sums
}
