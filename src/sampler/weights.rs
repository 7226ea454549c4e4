//! Softmax weights over a whole vocabulary: plain loops that the compiler turns into SIMD on any target.
//!
//! A weight is `exp((logit - max) / temperature)` rounded to a multiple of 2^-34, so it lies in `0..=1` and sums
//! of up to 2^19 of them are exact in f64. Sums therefore do not depend on their order, and cut-offs and draws
//! are the same on every machine. What is lost are tokens less than 3e-11 times as probable as the best one.

/// Tokens whose weights are summed together; a draw skips whole blocks before it looks at single tokens.
pub(super) const BLOCK: usize = 256;

/// Values handled at once in a pass: enough independent lanes to keep any SIMD unit busy.
const LANES: usize = 16;

/// `exp(x)` for `x <= 0`, rounded to a multiple of 2^-34; exactly 1 at 0. One range reduction and one polynomial
/// (Cephes' coefficients) in plain f32 operations, hence the same bits everywhere, unlike libm's.
#[inline(always)]
pub(super) fn weight(x: f32) -> f32 {
    const LN2_HIGH: f32 = 0.693_359_4;
    const LN2_LOW: f32 = -2.121_944_4e-4;
    /// Adding this leaves the nearest integer in the low bits of the mantissa.
    const ROUND: f32 = 12_582_912.0;
    /// Adding and subtracting this rounds to a multiple of 2^-34 (half of the smallest weight is e^-24.2).
    const GRID: f32 = 3.0 / 4096.0;

    let shifted = x * std::f32::consts::LOG2_E + ROUND;
    let n = shifted - ROUND;
    let r = x - n * LN2_HIGH - n * LN2_LOW;
    let mut p = 1.987_569_1e-4_f32;
    for c in [1.398_2e-3, 8.333_452e-3, 4.166_579_6e-2, 0.166_666_66, 0.5] {
        p = p * r + c;
    }
    let mantissa = p * (r * r) + r + 1.0;
    let exponent = shifted.to_bits().wrapping_sub(ROUND.to_bits()).wrapping_shl(23);
    let exp = f32::from_bits(mantissa.to_bits().wrapping_add(exponent));
    if x > -25.0 { (exp + GRID) - GRID } else { 0.0 }
}

/// The largest value, and whether any value is NaN.
pub(super) fn max_and_nan(values: &[f32]) -> (f32, bool) {
    let mut max = [f32::NEG_INFINITY; LANES];
    let mut nan = [0u32; LANES];
    let mut chunks = values.chunks_exact(LANES);
    for chunk in &mut chunks {
        for i in 0..LANES {
            max[i] = if chunk[i] > max[i] { chunk[i] } else { max[i] };
            nan[i] |= u32::from(chunk[i].is_nan());
        }
    }
    let rest = chunks.remainder();
    let best = max.iter().chain(rest).fold(f32::NEG_INFINITY, |best, &v| if v > best { v } else { best });
    (best, nan.iter().any(|&n| n != 0) || rest.iter().any(|v| v.is_nan()))
}

/// Turns logits into weights at `1 / temperature`, and writes the sum of each [`BLOCK`]; returns the total.
pub(super) fn weigh(
    logits: &[f32],
    max: f32,
    inverse_temperature: f32,
    weights: &mut Vec<f32>,
    block_sums: &mut Vec<f64>,
) -> f64 {
    weights.resize(logits.len(), 0.0);
    block_sums.clear();
    for (weights, logits) in weights.chunks_mut(BLOCK).zip(logits.chunks(BLOCK)) {
        for (w, &l) in weights.iter_mut().zip(logits) {
            *w = weight((l - max) * inverse_temperature);
        }
        block_sums.push(sum(weights));
    }
    block_sums.iter().sum()
}

/// The exact sum of weights.
pub(super) fn sum(weights: &[f32]) -> f64 {
    let mut lanes = [0.0f64; LANES];
    let mut chunks = weights.chunks_exact(LANES);
    for chunk in &mut chunks {
        for i in 0..LANES {
            lanes[i] += f64::from(chunk[i]);
        }
    }
    lanes.iter().sum::<f64>() + chunks.remainder().iter().map(|&w| f64::from(w)).sum::<f64>()
}

/// How many weights reach a threshold, and their sum.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Above {
    pub count: usize,
    pub mass: f64,
}

/// [`Above`] for two thresholds in one pass.
pub(super) fn above(weights: &[f32], thresholds: [f32; 2]) -> [Above; 2] {
    let mut total = [Above::default(); 2];
    // Blocks keep the lanes' counters from overflowing and the sums in registers.
    for block in weights.chunks(1 << 16) {
        let mut mass = [[0.0f64; LANES]; 2];
        let mut count = [[0u32; LANES]; 2];
        let mut chunks = block.chunks_exact(LANES);
        for chunk in &mut chunks {
            for t in 0..2 {
                for i in 0..LANES {
                    let keep = chunk[i] >= thresholds[t];
                    mass[t][i] += f64::from(if keep { chunk[i] } else { 0.0 });
                    count[t][i] += u32::from(keep);
                }
            }
        }
        for t in 0..2 {
            let rest = chunks.remainder().iter().filter(|&&w| w >= thresholds[t]);
            total[t].mass += mass[t].iter().sum::<f64>() + rest.clone().map(|&w| f64::from(w)).sum::<f64>();
            total[t].count += count[t].iter().sum::<u32>() as usize + rest.count();
        }
    }
    total
}

/// Calls `visit` with the index and value of each element that is at least `threshold`, in order. Blocks without
/// one are passed over at the speed of a comparison.
pub(super) fn for_each_at_least(values: &[f32], threshold: f32, mut visit: impl FnMut(usize, f32)) {
    for (b, block) in values.chunks(64).enumerate() {
        let hits: u32 = block.iter().map(|&v| u32::from(v >= threshold)).sum();
        if hits != 0 {
            for (i, &v) in block.iter().enumerate() {
                if v >= threshold {
                    visit(b * 64 + i, v);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weight_is_exp_within_rounding() {
        for i in 0..200_000 {
            let x = -(i as f32) * 1.5e-4;
            let (got, want) = (f64::from(weight(x)), f64::from(x).exp());
            let error = (got - want).abs();
            assert!(error <= want * 1.2e-7 + 2f64.powi(-34), "exp({x}) = {got}, want {want}");
        }
    }

    #[test]
    fn weight_at_the_edges() {
        assert_eq!(weight(0.0), 1.0);
        assert_eq!(weight(-0.0), 1.0);
        for x in [-30.0, -1e4, -2e38, f32::MIN, f32::NEG_INFINITY] {
            assert_eq!(weight(x), 0.0);
        }
    }

    #[test]
    fn weights_lie_on_the_grid() {
        for i in 0..30_000 {
            let scaled = f64::from(weight(-(i as f32) * 1e-3)) * 2f64.powi(34);
            assert_eq!(scaled.fract(), 0.0);
        }
    }

    #[test]
    fn passes_equal_plain_loops_at_every_length() {
        for n in 0..300usize {
            let values: Vec<f32> = (0..n).map(|i| weight(-((i * 7919 % 997) as f32) * 0.01)).collect();
            let exact = |t: f32| values.iter().filter(|&&w| w >= t).map(|&w| f64::from(w)).sum::<f64>();
            assert_eq!(sum(&values), exact(0.0));
            let got = above(&values, [0.5, 0.01]);
            for (got, t) in got.iter().zip([0.5, 0.01]) {
                assert_eq!(got.mass, exact(t));
                assert_eq!(got.count, values.iter().filter(|&&w| w >= t).count());
            }
            let mut seen = Vec::new();
            for_each_at_least(&values, 0.5, |i, v| seen.push((i, v)));
            let want: Vec<_> = values.iter().copied().enumerate().filter(|&(_, v)| v >= 0.5).collect();
            assert_eq!(seen, want);
            assert_eq!(
                max_and_nan(&values),
                (values.iter().copied().fold(f32::NEG_INFINITY, f32::max), false)
            );
        }
    }

    #[test]
    fn nan_is_seen_in_every_position() {
        for n in 1..40 {
            for at in 0..n {
                let mut values = vec![1.0; n];
                values[at] = f32::NAN;
                assert!(max_and_nan(&values).1, "{at} of {n}");
            }
        }
    }
}
