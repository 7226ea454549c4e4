//! Superblocks of 256 weights: sub-blocks with scales (and minima) that are quantized themselves.

use qgguf_gguf::GgmlType;

use super::lanes::{self, EPS, LANES, Search};
use super::plain::{VALUES, iq4_weights, nearest_code, nibbles, positive};
use super::{each, fill, half, halved, inverse, nearest, sum_squares};

/// How scales and minima are searched if there is importance.
const WEIGHTED: Search =
    Search { n: 0, first: -0.9, step: 0.05, n_steps: 36, absolute: false, at_most: true };

/// Two-bit codes: 32 bytes hold four runs of 32.
pub(super) fn two_bits(codes: &[u8; 256]) -> [u8; 64] {
    std::array::from_fn(|i| {
        let (half, l) = (i / 32, i % 32);
        (0..4).fold(0, |byte, run| byte | (codes[128 * half + 32 * run + l] & 3) << (2 * run))
    })
}

/// Four-bit codes: 32 bytes hold two runs of 32.
fn four_bits(codes: &[u8; 256]) -> [u8; 128] {
    std::array::from_fn(|i| {
        let (quarter, l) = (i / 32, i % 32);
        codes[64 * quarter + l] & 15 | (codes[64 * quarter + 32 + l] & 15) << 4
    })
}

/// One bit of each code: bit `run` of byte l is that of weight `32 run + l`.
fn one_bit(codes: &[u8; 256], bit: u32) -> [u8; 32] {
    std::array::from_fn(|l| (0..8).fold(0, |byte, run| byte | (codes[32 * run + l] >> bit & 1) << run))
}

/// Codes of a sub-block once its scale and minimum are known; those of the search stay if there is no scale.
fn requantize(x: &[f32], d: f32, m: f32, (low, high): (i32, i32), codes: &mut [u8]) {
    if d != 0.0 {
        for (code, x) in codes.iter_mut().zip(x) {
            *code = (nearest((x + m) / d).clamp(low, high) - low) as u8;
        }
    }
}

/// Weights of a superblock by the importance of its columns, and their sums over each sub-block.
fn weigh<const G: usize>(x: &[f32; 256], q: &[f32], sigma2: f32) -> ([f32; 256], [f32; G]) {
    let w: [f32; 256] = std::array::from_fn(|i| q[i] * (sigma2 + x[i] * x[i]).sqrt());
    let sums = std::array::from_fn(|g| w[256 / G * g..][..256 / G].iter().fold(0.0, |sum, w| sum + w));
    (w, sums)
}

/// The columns of superblock `i`.
fn columns(importance: Option<&[f32]>, i: usize) -> Option<&[f32]> {
    importance.map(|q| &q[256 * i..][..256])
}

/// Searches 16 sub-blocks of 16, eight at a time.
fn asymmetric_16(search: Search, x: &[f32], w: &[f32], codes: &mut [u8; 256]) -> ([f32; 16], [f32; 16]) {
    let (mut scales, mut mins) = ([0.0; 16], [0.0; 16]);
    for half in 0..2 {
        let at = 128 * half;
        let (x, w) = (lanes::gather::<16>(&x[at..]), lanes::gather::<16>(&w[at..]));
        let (s, m) = lanes::asymmetric(search, &x, &w, &mut codes[at..][..128]);
        scales[LANES * half..][..LANES].copy_from_slice(&s);
        mins[LANES * half..][..LANES].copy_from_slice(&m);
    }
    (scales, mins)
}

/// Scales of 16 sub-blocks of 16 without minima.
fn symmetric_16(n: i32, x: &[f32], w: Option<&[f32]>, codes: &mut [u8; 256]) -> [f32; 16] {
    let mut scales = [0.0; 16];
    for half in 0..2 {
        let at = 128 * half;
        let w = w.map(|w| lanes::gather::<16>(&w[at..]));
        let s = lanes::symmetric(n, &lanes::gather::<16>(&x[at..]), w.as_ref(), &mut codes[at..][..128]);
        scales[LANES * half..][..LANES].copy_from_slice(&s);
    }
    scales
}

/// The scale of largest magnitude, the first of several.
fn largest(scales: &[f32]) -> f32 {
    super::signed_max(scales)
}

/// The largest value, at least 0.
fn maximum(x: &[f32]) -> f32 {
    x.iter().fold(0.0, |max, &x| if x > max { x } else { max })
}

pub(super) fn q2_k(row: &[f32], importance: Option<&[f32]>, out: &mut [u8]) {
    each::<256>(GgmlType::Q2_K, row, out, |x, i, out| {
        let mut codes = [0; 256];
        let (mut sc, mut mn) = ([0u8; 16], [0u8; 16]);
        let (d, dmin);
        if let Some(q) = columns(importance, i) {
            let (w, sums) = weigh::<16>(x, q, sum_squares(x) / 256.0);
            let (scales, mins) = asymmetric_16(Search { n: 3, ..WEIGHTED }, x, &w, &mut codes);
            d = positive(15, &scales, &sums, &mut sc);
            dmin = positive(15, &mins, &sums, &mut mn);
        } else {
            let search = Search { n: 3, first: -0.5, step: 0.1, n_steps: 15, absolute: true, at_most: false };
            let (scales, mins) = asymmetric_16(search, x, &x.map(f32::abs), &mut codes);
            let quantize = |values: &[f32; 16], out: &mut [u8; 16]| {
                let max = maximum(values);
                if max > 0.0 {
                    let inverse = 15.0 / max;
                    *out = values.map(|v| nearest(inverse * v) as u8);
                    max / 15.0
                } else {
                    0.0
                }
            };
            d = quantize(&scales, &mut sc);
            dmin = quantize(&mins, &mut mn);
        }
        let (hd, hm) = (halved(d), halved(dmin));
        for (g, codes) in codes.chunks_mut(16).enumerate() {
            let m = hm * f32::from(mn[g] & 15);
            requantize(&x[16 * g..][..16], hd * f32::from(sc[g] & 15), m, (0, 3), codes);
        }
        let scales: [u8; 16] = std::array::from_fn(|g| sc[g] | mn[g] << 4);
        fill(out, &[&scales, &two_bits(&codes), &half(d), &half(dmin)]);
    });
}

pub(super) fn q3_k(row: &[f32], importance: Option<&[f32]>, out: &mut [u8]) {
    each::<256>(GgmlType::Q3_K, row, out, |x, i, out| {
        let mut codes = [0; 256];
        // Codes of the scales, 0 to 63 for -32 to 31.
        let mut sc = [0u8; 16];
        let d;
        if let Some(q) = columns(importance, i) {
            let (w, sums) = weigh::<16>(x, q, 2.0 * sum_squares(x) / 256.0);
            let scales = symmetric_16(4, x, Some(&w), &mut codes);
            d = scale_of_scales(&scales, &sums, &mut sc);
        } else {
            let mut scales = [0.0; 16];
            for half in 0..2 {
                let x = lanes::gather::<16>(&x[128 * half..]);
                let s = lanes::descent(&x, &mut codes[128 * half..][..128]);
                scales[LANES * half..][..LANES].copy_from_slice(&s);
            }
            let max = largest(&scales);
            let inverse = -32.0 / max;
            d = if max != 0.0 { 1.0 / inverse } else { 0.0 };
            if max != 0.0 {
                sc = scales.map(|s| (nearest(inverse * s).clamp(-32, 31) + 32) as u8);
            }
        }
        let hd = halved(d);
        for (g, codes) in codes.chunks_mut(16).enumerate() {
            let scale = hd * (i32::from(sc[g]) - 32) as f32;
            requantize(&x[16 * g..][..16], scale, 0.0, (-4, 3), codes);
        }
        let scales: [u8; 12] = std::array::from_fn(|j| match j {
            0..8 => sc[j] & 15 | (sc[j + 8] & 15) << 4,
            _ => (0..4).fold(0, |byte, k| byte | (sc[j - 8 + 4 * k] >> 4) << (2 * k)),
        });
        fill(out, &[&one_bit(&codes, 2), &two_bits(&codes), &scales, &half(d)]);
    });
}

/// The common scale of 16 signed scales, and their codes 0 to 63.
fn scale_of_scales(scales: &[f32; 16], weights: &[f32; 16], codes: &mut [u8; 16]) -> f32 {
    // One block of 16 is one lane; the others search among zeros, for nothing.
    let alone = |v: &[f32; 16]| {
        let mut all = [0.0; 16 * LANES];
        all[..16].copy_from_slice(v);
        lanes::gather::<16>(&all)
    };
    let mut all = [0; 16 * LANES];
    let found = lanes::symmetric(32, &alone(scales), Some(&alone(weights)), &mut all);
    codes.copy_from_slice(&all[..16]);
    found[0]
}

pub(super) fn q4_k(row: &[f32], importance: Option<&[f32]>, out: &mut [u8]) {
    let search = Search { n: 15, first: -1.0, step: 0.1, n_steps: 20, absolute: false, at_most: false };
    each::<256>(GgmlType::Q4_K, row, out, |x, i, out| {
        let (d, dmin, scales, codes) = q4_or_q5_k(search, x, columns(importance, i));
        fill(out, &[&half(d), &half(dmin), &scales, &four_bits(&codes)]);
    });
}

pub(super) fn q5_k(row: &[f32], importance: Option<&[f32]>, out: &mut [u8]) {
    let search = Search { n: 31, first: -0.5, step: 0.1, n_steps: 15, absolute: false, at_most: false };
    each::<256>(GgmlType::Q5_K, row, out, |x, i, out| {
        let (d, dmin, scales, codes) = q4_or_q5_k(search, x, columns(importance, i));
        fill(out, &[&half(d), &half(dmin), &scales, &one_bit(&codes, 4), &four_bits(&codes)]);
    });
}

/// Scale of the scales, scale of the minima, both packed, and codes.
fn q4_or_q5_k(search: Search, x: &[f32; 256], q: Option<&[f32]>) -> (f32, f32, [u8; 12], [u8; 256]) {
    let mut codes = [0; 256];
    let (mut sc, mut mn) = ([0u8; 8], [0u8; 8]);
    let (d, dmin);
    if let Some(q) = q {
        let (w, sums) = weigh::<8>(x, q, 2.0 * sum_squares(x) / 256.0);
        let search = Search { n: search.n, ..WEIGHTED };
        let (scales, mins) =
            lanes::asymmetric::<32>(search, &lanes::gather(x), &lanes::gather(&w), &mut codes);
        d = positive(63, &scales, &sums, &mut sc);
        dmin = positive(63, &mins, &sums, &mut mn);
    } else {
        let w: [f32; 256] = {
            let average: [f32; 8] = std::array::from_fn(|g| (sum_squares(&x[32 * g..][..32]) / 32.0).sqrt());
            std::array::from_fn(|i| average[i / 32] + x[i].abs())
        };
        let (scales, mins) =
            lanes::asymmetric::<32>(search, &lanes::gather(x), &lanes::gather(&w), &mut codes);
        let quantize = |values: &[f32; 8], out: &mut [u8; 8]| {
            let max = maximum(values);
            let inverse = if max > 0.0 { 63.0 / max } else { 0.0 };
            *out = values.map(|v| (nearest(inverse * v) as u8).min(63));
            max / 63.0
        };
        d = quantize(&scales, &mut sc);
        dmin = quantize(&mins, &mut mn);
    }
    let (hd, hm) = (halved(d), halved(dmin));
    for (g, codes) in codes.chunks_mut(32).enumerate() {
        let m = hm * f32::from(mn[g]);
        requantize(&x[32 * g..][..32], hd * f32::from(sc[g]), m, (0, search.n), codes);
    }
    let packed = std::array::from_fn(|j| match j {
        0..4 => sc[j] | sc[j + 4] >> 4 << 6,
        4..8 => mn[j - 4] | mn[j] >> 4 << 6,
        _ => sc[j - 4] & 15 | (mn[j - 4] & 15) << 4,
    });
    (d, dmin, packed, codes)
}

pub(super) fn q6_k(row: &[f32], importance: Option<&[f32]>, out: &mut [u8]) {
    each::<256>(GgmlType::Q6_K, row, out, |x, i, out| {
        let mut codes = [0; 256];
        let scales = symmetric_16(32, x, columns(importance, i), &mut codes);
        let max = largest(&scales);
        if max.abs() < EPS {
            return out.fill(0);
        }
        let inverse = -128.0 / max;
        let d = 1.0 / inverse;
        let sc = scales.map(|s| nearest(inverse * s).min(127) as i8);
        let hd = halved(d);
        for (g, codes) in codes.chunks_mut(16).enumerate() {
            requantize(&x[16 * g..][..16], hd * f32::from(sc[g]), 0.0, (-32, 31), codes);
        }
        let ql: [u8; 128] = std::array::from_fn(|i| {
            let (half, l) = (i / 64, i % 64);
            codes[128 * half + l] & 15 | (codes[128 * half + 64 + l] & 15) << 4
        });
        fill(out, &[&ql, &two_bits(&codes.map(|code| code >> 4)), &sc.map(|s| s as u8), &half(d)]);
    });
}

pub(super) fn iq4_xs(row: &[f32], importance: Option<&[f32]>, out: &mut [u8]) {
    each::<256>(GgmlType::IQ4_XS, row, out, |x, i, out| {
        let mut w = [0.0; 256];
        iq4_weights(x, columns(importance, i), &mut w);
        let scales = lanes::table(&VALUES, &lanes::gather(x), &lanes::gather(&w));
        let d = -largest(&scales) / 32.0;
        let id = inverse(d);
        let (mut high, mut low, mut qs) = (0u16, [0u8; 4], [0u8; 128]);
        for (g, x) in x.as_chunks::<32>().0.iter().enumerate() {
            let l = nearest(id * scales[g]).clamp(-32, 31);
            let idl = inverse(d * l as f32);
            qs[16 * g..][..16].copy_from_slice(&nibbles(&x.map(|x| nearest_code(idl * x))));
            let l = (l + 32) as u8;
            low[g / 2] |= (l & 15) << (4 * (g % 2));
            high |= u16::from(l >> 4) << (2 * g);
        }
        fill(out, &[&half(d), &high.to_le_bytes(), &low, &qs]);
    });
}
