//! Eight sub-blocks side by side, one in each lane.
//!
//! Sums run over the elements of a sub-block in order, as the bytes of llama.cpp demand; across lanes nothing is ever
//! added. So the lanes cost no exactness, and whatever the CPU offers for eight floats is used.

use wide::{f32x8, i32x8};

/// Sub-blocks side by side.
pub(super) const LANES: usize = 8;
/// Magnitudes below this count as zero.
pub(super) const EPS: f32 = 1e-15;

/// Eight sub-blocks of `N` weights that lie one after the other.
pub(super) fn gather<const N: usize>(x: &[f32]) -> [f32x8; N] {
    std::array::from_fn(|e| f32x8::new(std::array::from_fn(|lane| x[lane * N + e])))
}

/// The codes of eight sub-blocks, one after the other.
fn scatter<const N: usize>(codes: &[f32x8; N], out: &mut [u8]) {
    for (e, codes) in codes.iter().enumerate() {
        let codes = codes.fast_round_int().to_array();
        (0..LANES).for_each(|lane| out[lane * N + e] = codes[lane] as u8);
    }
}

/// The nearest integer, ties to even, by the bits of a sum; out of its range the same garbage as everywhere.
#[inline(always)]
fn nearest(v: f32x8) -> i32x8 {
    let bits: i32x8 = wide::bytemuck::cast(v + f32x8::splat(12_582_912.0));
    (bits & i32x8::splat(0x007f_ffff)) - i32x8::splat(0x0040_0000)
}

/// The nearest integer between two others. As floats they take one operation each on every CPU.
#[inline(always)]
fn clamped(v: f32x8, low: i32, high: i32) -> f32x8 {
    let whole = nearest(v).round_float();
    whole.fast_max(f32x8::splat(low as f32)).fast_min(f32x8::splat(high as f32))
}

#[inline(always)]
fn select(mask: f32x8, a: f32x8, b: f32x8) -> f32x8 {
    mask.bitselect(a, b)
}

const ZERO: f32x8 = f32x8::ZERO;

/// The value of largest magnitude, the first of several.
fn signed_max<const N: usize>(x: &[f32x8; N]) -> (f32x8, f32x8) {
    let (mut magnitude, mut max) = (ZERO, ZERO);
    for &x in x {
        let larger = x.abs().simd_gt(magnitude);
        magnitude = select(larger, x.abs(), magnitude);
        max = select(larger, x, max);
    }
    (magnitude, max)
}

/// Scales, and codes 0 to `2 n - 1` for `-n` to `n - 1`, for the smallest weighted squared error; weights are the
/// squares unless given.
pub(super) fn symmetric<const N: usize>(
    n: i32,
    x: &[f32x8; N],
    weights: Option<&[f32x8; N]>,
    out: &mut [u8],
) -> [f32; LANES] {
    let (magnitude, max) = signed_max(x);
    let zero = magnitude.simd_lt(f32x8::splat(EPS));
    let own: [f32x8; N];
    let w = match weights {
        Some(w) => w,
        None => {
            own = std::array::from_fn(|e| x[e] * x[e]);
            &own
        }
    };
    let wx: [f32x8; N] = std::array::from_fn(|e| w[e] * x[e]);
    let code = |inverse: f32x8, x: f32x8| clamped(inverse * x, -n, n - 1);
    let sums = |inverse: f32x8| {
        let (mut slx, mut sl2) = (ZERO, ZERO);
        for e in 0..N {
            let l = code(inverse, x[e]);
            slx += wx[e] * l;
            sl2 += w[e] * l * l;
        }
        (slx, sl2)
    };
    let mut inverse = f32x8::splat(-n as f32) / max;
    let (slx, sl2) = sums(inverse);
    let mut scale = select(sl2.simd_ne(ZERO), slx / sl2, ZERO);
    let mut best = scale * slx;
    for k in (-9..=9).filter(|&k| k != 0) {
        let candidate = f32x8::splat(-(n as f32 + 0.1 * k as f32)) / max;
        let (slx, sl2) = sums(candidate);
        let better = sl2.simd_gt(ZERO) & (slx * slx).simd_gt(best * sl2);
        scale = select(better, slx / sl2, scale);
        best = select(better, scale * slx, best);
        inverse = select(better, candidate, inverse);
    }
    scatter(&std::array::from_fn::<_, N, _>(|e| (code(inverse, x[e]) + f32x8::splat(n as f32)) & !zero), out);
    select(zero, ZERO, scale).to_array()
}

/// Scales, and codes 0 to 7 for -4 to 3: from a first guess, one code after the other moves to where it is best.
pub(super) fn descent(x: &[f32x8; 16], out: &mut [u8]) -> [f32; LANES] {
    const N: i32 = 4;
    let (magnitude, max) = signed_max(x);
    let zero = magnitude.simd_lt(f32x8::splat(EPS));
    let inverse = f32x8::splat(-N as f32) / max;
    let w: [f32x8; 16] = std::array::from_fn(|e| x[e] * x[e]);
    let mut codes: [f32x8; 16] = std::array::from_fn(|e| clamped(inverse * x[e], -N, N - 1));
    let (mut slx, mut sl2) = (ZERO, ZERO);
    for e in 0..16 {
        slx += w[e] * x[e] * codes[e];
        sl2 += w[e] * codes[e] * codes[e];
    }
    for _ in 0..5 {
        let mut changed = ZERO;
        for e in 0..16 {
            let (w, x, l) = (w[e], x[e], codes[e]);
            let mut a = slx - w * x * l;
            let mut b = sl2 - w * l * l;
            let positive = a.simd_gt(ZERO);
            let new = clamped(x * b / a, -N, N - 1);
            a += w * x * new;
            b += w * new * new;
            let better = positive & new.simd_ne(l) & b.simd_gt(ZERO) & (a * a * sl2).simd_gt(slx * slx * b);
            codes[e] = select(better, new, l);
            slx = select(better, a, slx);
            sl2 = select(better, b, sl2);
            changed |= better;
        }
        if !changed.any() {
            break;
        }
    }
    scatter(&std::array::from_fn::<_, 16, _>(|e| (codes[e] + f32x8::splat(N as f32)) & !zero), out);
    select(zero, ZERO, select(sl2.simd_gt(ZERO), slx / sl2, ZERO)).to_array()
}

/// How [`asymmetric`] searches.
#[derive(Clone, Copy)]
pub(super) struct Search {
    /// The largest code.
    pub n: i32,
    /// The first candidate moves the largest code by this, each further one by `step` more.
    pub first: f32,
    pub step: f32,
    pub n_steps: i32,
    /// Errors count by their magnitude, not by their square.
    pub absolute: bool,
    /// Sub-blocks without a spread are those whose maximum is at most the minimum, not only equal to it.
    pub at_most: bool,
}

/// Scales, minima (negated) and codes for `scale * code - min`.
pub(super) fn asymmetric<const N: usize>(
    search: Search,
    x: &[f32x8; N],
    w: &[f32x8; N],
    out: &mut [u8],
) -> ([f32; LANES], [f32; LANES]) {
    let n = search.n as f32;
    let (mut min, mut max) = (x[0], x[0]);
    let mut sw = w[0];
    let mut sx = sw * x[0];
    for e in 1..N {
        min = select(x[e].simd_lt(min), x[e], min);
        max = select(x[e].simd_gt(max), x[e], max);
        sw += w[e];
        sx += w[e] * x[e];
    }
    min = select(min.simd_gt(ZERO), ZERO, min);
    let flat = if search.at_most { max.simd_le(min) } else { max.simd_eq(min) };
    let flat_min = min;
    let code = |inverse: f32x8, min: f32x8, x: f32x8| clamped(inverse * (x - min), 0, search.n);
    let error = |d: f32x8| if search.absolute { d.abs() } else { d * d };

    let mut inverse = f32x8::splat(n) / (max - min);
    let mut inverse_min = min;
    let mut scale = f32x8::splat(1.0) / inverse;
    let mut best = ZERO;
    for e in 0..N {
        let l = code(inverse, min, x[e]);
        best += w[e] * error(scale * l + min - x[e]);
    }
    for k in 0..=search.n_steps {
        let candidate = f32x8::splat(search.first + search.step * k as f32 + n) / (max - min);
        let (mut sl, mut sl2, mut sxl) = (ZERO, ZERO, ZERO);
        let mut codes = [ZERO; N];
        for e in 0..N {
            let l = code(candidate, min, x[e]);
            codes[e] = l;
            let wl = w[e] * l;
            sl += wl;
            sl2 += wl * l;
            sxl += wl * x[e];
        }
        let determinant = sw * sl2 - sl * sl;
        let solvable = determinant.simd_gt(ZERO);
        let s = (sw * sxl - sx * sl) / determinant;
        let t = (sl2 * sx - sl * sxl) / determinant;
        let positive = t.simd_gt(ZERO);
        let s = select(positive, sxl / sl2, s);
        let t = select(positive, ZERO, t);
        let mut sum = ZERO;
        for e in 0..N {
            sum += w[e] * error(s * codes[e] + t - x[e]);
        }
        let better = solvable & sum.simd_lt(best);
        best = select(better, sum, best);
        scale = select(better, s, scale);
        inverse = select(better, candidate, inverse);
        inverse_min = select(better, min, inverse_min);
        min = select(better, t, min);
    }
    scatter(&std::array::from_fn::<_, N, _>(|e| code(inverse, inverse_min, x[e]) & !flat), out);
    (select(flat, ZERO, scale).to_array(), (-select(flat, flat_min, min)).to_array())
}

/// Scales for codes of a table of 16 values, tried with its end at up to seven steps from the largest weight. Lanes
/// that are all zero have none. The codes are found later.
pub(super) fn table(values: &[f32; 16], x: &[f32x8; 32], w: &[f32x8; 32]) -> [f32; LANES] {
    let (magnitude, max) = signed_max(x);
    let zero = magnitude.simd_lt(f32x8::splat(EPS));
    let sums = |inverse: f32x8| {
        let (mut sqx, mut sq2) = (ZERO, ZERO);
        for e in 0..32 {
            let v = nearest_value(values, inverse * x[e]);
            let wv = w[e] * v;
            sqx += wv * x[e];
            sq2 += wv * v;
        }
        (sqx, sq2)
    };
    let first = -max / f32x8::splat(values[0]);
    let (sqx, sq2) = sums(f32x8::splat(1.0) / first);
    let mut scale = select(sq2.simd_gt(ZERO), sqx / sq2, ZERO);
    let mut best = scale * sqx;
    for k in -7..=7 {
        let (sqx, sq2) = sums(f32x8::splat(k as f32 + values[0]) / max);
        let better = sq2.simd_gt(ZERO) & (sqx * sqx).simd_gt(best * sq2);
        scale = select(better, sqx / sq2, scale);
        best = select(better, scale * sqx, best);
    }
    select(zero, ZERO, scale).to_array()
}

/// The value of an ascending table that is nearest, the larger of two equally near ones.
#[inline(always)]
fn nearest_value(values: &[f32; 16], v: f32x8) -> f32x8 {
    let mut found = f32x8::splat(values[0]);
    for pair in values.windows(2) {
        let (below, above) = (f32x8::splat(pair[0]), f32x8::splat(pair[1]));
        let nearer_below = (v - below).simd_lt(above - v);
        found = select(nearer_below, found, above);
    }
    found
}
