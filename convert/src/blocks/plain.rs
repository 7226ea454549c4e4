//! Types with one scale (and minimum) for all weights of a block.

use qgguf_gguf::GgmlType;
use qgguf_gguf::blocks::{FP4, NL4, e8m0_half};

use super::lanes::{self, EPS, LANES, Search};
use super::{each, fill, half, inverse, nearest, signed_max, sum_squares, truncate};

/// Nibbles of 32 codes: the first half low, the second half high.
pub(super) fn nibbles(codes: &[u8]) -> [u8; 16] {
    std::array::from_fn(|j| codes[j] & 15 | (codes[j + 16] & 15) << 4)
}

/// Fifth bits of 32 codes.
fn fifths(codes: &[u8]) -> [u8; 4] {
    codes.iter().enumerate().fold(0u32, |bits, (j, &code)| bits | u32::from(code >> 4 & 1) << j).to_le_bytes()
}

/// Each block of 32 with what a search over eight of them found: scale, minimum and codes.
fn each_searched(
    ty: GgmlType,
    row: &[f32],
    importance: &[f32],
    out: &mut [u8],
    search: impl Fn(&[wide::f32x8; 32], &[wide::f32x8; 32], &mut [u8]) -> ([f32; LANES], [f32; LANES]),
    write: impl Fn(&mut [u8], f32, f32, &[u8]),
) {
    let sigma2 = sum_squares(row) / row.len() as f32;
    let eight = 32 * LANES;
    let blocks = out.chunks_mut(LANES * ty.block_bytes());
    for ((x, q), out) in row.chunks(eight).zip(importance.chunks(eight)).zip(blocks) {
        // Lanes without a block search among ones, for nothing.
        let (mut all, mut weights) = ([1.0; 32 * LANES], [1.0; 32 * LANES]);
        all[..x.len()].copy_from_slice(x);
        for (w, (x, q)) in weights.iter_mut().zip(x.iter().zip(q)) {
            *w = q * (sigma2 + x * x).sqrt();
        }
        let mut codes = [0; 32 * LANES];
        let (scales, mins) = search(&lanes::gather(&all), &lanes::gather(&weights), &mut codes);
        for (i, out) in out.chunks_exact_mut(ty.block_bytes()).enumerate() {
            write(out, scales[i], mins[i], &codes[32 * i..][..32]);
        }
    }
}

pub(super) fn q4_0(row: &[f32], importance: Option<&[f32]>, out: &mut [u8]) {
    let write = |out: &mut [u8], d: f32, codes: &[u8]| fill(out, &[&half(d), &nibbles(codes)]);
    let Some(q) = importance else {
        return each::<32>(GgmlType::Q4_0, row, out, |x, _, out| {
            let d = signed_max(x) / -8.0;
            let id = inverse(d);
            write(out, d, &x.map(|x| (truncate(x * id + 8.5) as u8).min(15)));
        });
    };
    let search =
        |x: &_, w: &_, codes: &mut [u8]| (lanes::symmetric::<32>(8, x, Some(w), codes), [0.0; LANES]);
    each_searched(GgmlType::Q4_0, row, q, out, search, |out, d, _, codes| write(out, d, codes));
}

pub(super) fn q5_0(row: &[f32], importance: Option<&[f32]>, out: &mut [u8]) {
    let write =
        |out: &mut [u8], d: f32, codes: &[u8]| fill(out, &[&half(d), &fifths(codes), &nibbles(codes)]);
    let Some(q) = importance else {
        return each::<32>(GgmlType::Q5_0, row, out, |x, _, out| {
            let d = signed_max(x) / -16.0;
            let id = inverse(d);
            write(out, d, &x.map(|x| (truncate(x * id + 16.5) as u8).min(31)));
        });
    };
    let search =
        |x: &_, w: &_, codes: &mut [u8]| (lanes::symmetric::<32>(16, x, Some(w), codes), [0.0; LANES]);
    each_searched(GgmlType::Q5_0, row, q, out, search, |out, d, _, codes| write(out, d, codes));
}

/// Minimum and maximum of a block.
fn bounds(x: &[f32]) -> (f32, f32) {
    x.iter().fold((f32::MAX, -f32::MAX), |(min, max), &x| {
        (if x < min { x } else { min }, if x > max { x } else { max })
    })
}

/// How scales and minima of blocks of 32 are searched if there is importance.
const WITH_MIN: Search =
    Search { n: 15, first: -0.9, step: 0.05, n_steps: 36, absolute: false, at_most: true };

pub(super) fn q4_1(row: &[f32], importance: Option<&[f32]>, out: &mut [u8]) {
    let write = |out: &mut [u8], d: f32, min: f32, codes: &[u8]| {
        fill(out, &[&half(d), &half(min), &nibbles(codes)]);
    };
    let Some(q) = importance else {
        return each::<32>(GgmlType::Q4_1, row, out, |x, _, out| {
            let (min, max) = bounds(x);
            let d = (max - min) / 15.0;
            let id = inverse(d);
            write(out, d, min, &x.map(|x| (truncate((x - min) * id + 0.5) as u8).min(15)));
        });
    };
    let search = |x: &_, w: &_, codes: &mut [u8]| lanes::asymmetric::<32>(WITH_MIN, x, w, codes);
    each_searched(GgmlType::Q4_1, row, q, out, search, |out, d, m, codes| write(out, d, -m, codes));
}

pub(super) fn q5_1(row: &[f32], importance: Option<&[f32]>, out: &mut [u8]) {
    let write = |out: &mut [u8], d: f32, min: f32, codes: &[u8]| {
        fill(out, &[&half(d), &half(min), &fifths(codes), &nibbles(codes)]);
    };
    let Some(q) = importance else {
        return each::<32>(GgmlType::Q5_1, row, out, |x, _, out| {
            let (min, max) = bounds(x);
            let d = (max - min) / 31.0;
            let id = inverse(d);
            write(out, d, min, &x.map(|x| truncate((x - min) * id + 0.5) as u8));
        });
    };
    let search =
        |x: &_, w: &_, codes: &mut [u8]| lanes::asymmetric::<32>(Search { n: 31, ..WITH_MIN }, x, w, codes);
    each_searched(GgmlType::Q5_1, row, q, out, search, |out, d, m, codes| write(out, d, -m, codes));
}

/// The largest magnitude.
fn largest(x: &[f32]) -> f32 {
    x.iter().fold(0.0, |max, x| x.abs().max(max))
}

pub(super) fn q8_0(row: &[f32], _: Option<&[f32]>, out: &mut [u8]) {
    each::<32>(GgmlType::Q8_0, row, out, |x, _, out| {
        let d = largest(x) / 127.0;
        let id = inverse(d);
        fill(out, &[&half(d), &x.map(|x| truncate((x * id).round()) as u8)]);
    });
}

pub(super) fn q1_0(row: &[f32], _: Option<&[f32]>, out: &mut [u8]) {
    each::<128>(GgmlType::Q1_0, row, out, |x, _, out| {
        let d = x.iter().fold(0.0, |sum, x| sum + x.abs()) / 128.0;
        let byte = |j: usize| (0..8).fold(0, |byte, i| byte | u8::from(x[8 * j + i] >= 0.0) << i);
        fill(out, &[&half(d), &std::array::from_fn::<u8, 16, _>(byte)]);
    });
}

pub(super) fn q2_0(row: &[f32], _: Option<&[f32]>, out: &mut [u8]) {
    each::<64>(GgmlType::Q2_0, row, out, |x, _, out| {
        let d = largest(x);
        let id = if d > 0.0 { 1.0 / d } else { 0.0 };
        let code = |x: f32| truncate((x * id).round()).saturating_add(1).clamp(0, 3) as u8;
        let byte = |j: usize| (0..4).fold(0, |byte, i| byte | code(x[4 * j + i]) << (2 * i));
        fill(out, &[&half(d), &std::array::from_fn::<u8, 16, _>(byte)]);
    });
}

pub(super) fn mxfp4(row: &[f32], _: Option<&[f32]>, out: &mut [u8]) {
    each::<32>(GgmlType::MXFP4, row, out, |x, _, out| {
        let max = largest(x);
        // The logarithm is rounded to f32 first; below 2^-125 the exponent wraps.
        let log2 = f64::from(max).log2() as f32;
        let e = if max > 0.0 { (log2.floor() as i32 - 2 + 127) as u8 } else { 0 };
        let d = e8m0_half(e);
        let code = |x: f32| {
            let error = |i: usize| (f32::from(FP4[i]) * d - x).abs();
            (1..16).fold(0, |best, i| if error(i) < error(best) { i } else { best }) as u8
        };
        fill(out, &[&[e], &nibbles(&x.map(code))]);
    });
}

/// The ternary digits 0 to 2 of 256 weights, and their scale.
fn ternary(x: &[f32; 256]) -> (f32, [u8; 256]) {
    let d = largest(x);
    let id = inverse(d);
    (d, x.map(|x| (truncate((x * id).round()) as u8).wrapping_add(1)))
}

pub(super) fn tq1_0(row: &[f32], _: Option<&[f32]>, out: &mut [u8]) {
    each::<256>(GgmlType::TQ1_0, row, out, |x, _, out| {
        let (d, digits) = ternary(x);
        // Five digits in base 3, scaled so that a multiplication brings each to the top.
        let byte = |digits: [u8; 5]| {
            let q = digits.iter().fold(0u8, |q, &digit| q.wrapping_mul(3).wrapping_add(digit));
            (u16::from(q) * 256).div_ceil(243) as u8
        };
        let qs: [u8; 48] = std::array::from_fn(|m| match m {
            0..32 => byte(std::array::from_fn(|n| digits[32 * n + m])),
            _ => byte(std::array::from_fn(|n| digits[160 + 16 * n + m - 32])),
        });
        let qh: [u8; 4] = std::array::from_fn(|j| {
            byte(std::array::from_fn(|n| if n < 4 { digits[240 + 4 * n + j] } else { 0 }))
        });
        fill(out, &[&qs, &qh, &half(d)]);
    });
}

pub(super) fn tq2_0(row: &[f32], _: Option<&[f32]>, out: &mut [u8]) {
    each::<256>(GgmlType::TQ2_0, row, out, |x, _, out| {
        let (d, digits) = ternary(x);
        fill(out, &[&super::k::two_bits(&digits), &half(d)]);
    });
}

/// Values of the codes of IQ4_NL and IQ4_XS.
pub(super) const VALUES: [f32; 16] = {
    let mut values = [0.0; 16];
    let mut i = 0;
    while i < 16 {
        values[i] = NL4[i] as f32;
        i += 1;
    }
    values
};

/// The code whose value is nearest, the larger of two equally near ones.
pub(super) fn nearest_code(v: f32) -> u8 {
    (0..15).map(|k| u8::from(v - VALUES[k] >= VALUES[k + 1] - v)).sum()
}

pub(super) fn iq4_nl(row: &[f32], importance: Option<&[f32]>, out: &mut [u8]) {
    let blocks = out.chunks_mut(LANES * GgmlType::IQ4_NL.block_bytes());
    for (i, (x, out)) in row.chunks(32 * LANES).zip(blocks).enumerate() {
        let (mut all, mut weights) = ([0.0; 32 * LANES], [0.0; 32 * LANES]);
        all[..x.len()].copy_from_slice(x);
        for (j, x) in x.chunks(32).enumerate() {
            let q = importance.map(|q| &q[32 * (LANES * i + j)..][..32]);
            iq4_weights(x, q, &mut weights[32 * j..][..32]);
        }
        let scales = lanes::table(&VALUES, &lanes::gather(&all), &lanes::gather(&weights));
        let bytes = out.chunks_exact_mut(GgmlType::IQ4_NL.block_bytes());
        for ((x, out), &d) in x.as_chunks::<32>().0.iter().zip(bytes).zip(&scales) {
            let id = inverse(d);
            fill(out, &[&half(d), &nibbles(&x.map(|x| nearest_code(id * x)))]);
        }
    }
}

/// How much the weights of a block count, by themselves or together with the importance of their columns.
pub(super) fn iq4_weights(x: &[f32], importance: Option<&[f32]>, out: &mut [f32]) {
    let sigma2 = sum_squares(x) * (2.0 / x.len() as f32);
    match importance {
        Some(q) => {
            out.iter_mut().zip(x.iter().zip(q)).for_each(|(w, (x, q))| *w = q * (sigma2 + x * x).sqrt())
        }
        None => out.iter_mut().zip(x).for_each(|(w, x)| *w = x * x),
    }
}

/// Scales 0 to `n` and their common scale for positive values, with the smallest weighted squared error.
pub(super) fn positive(n: i32, x: &[f32], w: &[f32], out: &mut [u8]) -> f32 {
    let max = x.iter().fold(0.0, |max, &x| if x > max { x } else { max });
    if max < EPS {
        out.fill(0);
        return 0.0;
    }
    let code = |inverse: f32, x: f32| nearest(inverse * x).min(n);
    let error = |inverse: f32, code: &dyn Fn(f32, f32) -> i32| {
        let scale = 1.0 / inverse;
        x.iter().zip(w).fold(0.0, |sum, (&x, &w)| {
            let d = x - scale * code(inverse, x) as f32;
            sum + w * d * d
        })
    };
    let mut best_inverse = n as f32 / max;
    let mut best = error(best_inverse, &|inverse, x| i32::from(nearest(inverse * x) as u8));
    for k in (-4..=4).filter(|&k| k != 0) {
        let candidate = (0.1 * k as f32 + n as f32) / max;
        let sum = error(candidate, &code);
        if sum < best {
            best = sum;
            best_inverse = candidate;
        }
    }
    let (mut slx, mut sl2) = (0.0f32, 0.0f32);
    for ((out, &x), &w) in out.iter_mut().zip(x).zip(w) {
        *out = code(best_inverse, x) as u8;
        let l = f32::from(*out);
        slx += w * x * l;
        sl2 += w * l * l;
    }
    for _ in 0..5 {
        let mut changed = false;
        for ((out, &x), &w) in out.iter_mut().zip(x).zip(w) {
            let l = f32::from(*out);
            let (mut a, mut b) = (slx - w * x * l, sl2 - w * l * l);
            if a > 0.0 && b > 0.0 {
                let new = code(x * b / a, 1.0);
                if new != i32::from(*out) {
                    let l = new as f32;
                    a += w * x * l;
                    b += w * l * l;
                    if a * a * sl2 > slx * slx * b {
                        *out = new as u8;
                        (slx, sl2, changed) = (a, b, true);
                    }
                }
            }
        }
        if !changed {
            break;
        }
    }
    if sl2 > 0.0 { slx / sl2 } else { 0.0 }
}
