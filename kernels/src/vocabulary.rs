//! Passes over one value per token of a vocabulary, for the choice of the next token.
//!
//! A weight is `exp((logit - largest) / temperature)` rounded to a multiple of 2^-34, so it lies in `0..=1` and
//! sums of up to 2^19 of them are exact in f64. Such sums do not depend on their order: the loops below are plain,
//! and the compiler may use whatever an instruction set has. What is lost are tokens less than 3e-11 times as
//! probable as the best one.

use crate::Kernels;
use crate::math;
use crate::simd::{Simd, map_in_place};

/// Values handled together: enough independent sums to keep the units busy without running out of registers.
const LANES: usize = 8;

/// Values that a pass works on twice, so that they are still in the nearest cache the second time.
const BLOCK: usize = 512;

/// The weights that reach a threshold.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Above {
    /// How many.
    pub count: usize,
    /// Their sum.
    pub mass: f64,
}

impl Kernels {
    /// The largest of `logits` (minus infinity if there is none), and whether one of them is NaN.
    pub fn largest_and_nan(self, logits: &[f32]) -> (f32, bool) {
        // SAFETY: the table belongs to this CPU.
        unsafe { (self.table().largest_and_nan)(logits) }
    }

    /// Turns `logits` into weights, in place, and returns their sum. `largest` must be at least the largest of them.
    pub fn softmax_weights(self, logits: &mut [f32], largest: f32, inverse_temperature: f32) -> f64 {
        // SAFETY: the table belongs to this CPU.
        unsafe { (self.table().softmax_weights)(logits, largest, inverse_temperature) }
    }

    /// The weights that reach each of two thresholds, in one pass.
    pub fn mass_above(self, weights: &[f32], thresholds: [f32; 2]) -> [Above; 2] {
        // SAFETY: the table belongs to this CPU.
        unsafe { (self.table().mass_above)(weights, thresholds) }
    }

    /// Appends to `out` the indices of the values of `low..high`, in order.
    pub fn indices_within(self, x: &[f32], low: f32, high: f32, out: &mut Vec<u32>) {
        // SAFETY: the table belongs to this CPU.
        unsafe { (self.table().indices_within)(x, low, high, out) }
    }

    /// Sets the weights below `floor` to 0 and returns the sum of the others.
    pub fn drop_below(self, weights: &mut [f32], floor: f32) -> f64 {
        // SAFETY: the table belongs to this CPU.
        unsafe { (self.table().drop_below)(weights, floor) }
    }
}

#[inline(always)]
pub(crate) fn largest_and_nan<S: Simd>(_: S, x: &[f32]) -> (f32, bool) {
    let mut max = [f32::NEG_INFINITY; 4 * LANES];
    let mut nan = [0u32; 4 * LANES];
    let (body, tail) = x.as_chunks::<{ 4 * LANES }>();
    for chunk in body {
        for i in 0..4 * LANES {
            max[i] = if chunk[i] > max[i] { chunk[i] } else { max[i] };
            nan[i] |= u32::from(chunk[i].is_nan());
        }
    }
    let largest = max.iter().chain(tail).fold(f32::NEG_INFINITY, |m, &x| if x > m { x } else { m });
    (largest, nan.iter().any(|&n| n != 0) || tail.iter().any(|x| x.is_nan()))
}

#[inline(always)]
pub(crate) fn softmax_weights<S: Simd>(s: S, x: &mut [f32], largest: f32, inverse_temperature: f32) -> f64 {
    // Adding and subtracting this rounds to a multiple of 2^-34.
    let grid = s.splat(3.0 / 4096.0);
    let (largest, factor) = (s.splat(largest), s.splat(inverse_temperature));
    let mut total = 0.0;
    for block in x.chunks_mut(BLOCK) {
        map_in_place(
            s,
            block,
            #[inline(always)]
            |x| {
                let e = math::exp(s, s.mul(s.sub(x, largest), factor));
                s.sub(s.add(e, grid), grid)
            },
        );
        total += sum(block);
    }
    total
}

#[inline(always)]
fn sum(weights: &[f32]) -> f64 {
    let mut lanes = [0.0f64; 2 * LANES];
    let (body, tail) = weights.as_chunks::<{ 2 * LANES }>();
    for chunk in body {
        for i in 0..2 * LANES {
            lanes[i] += f64::from(chunk[i]);
        }
    }
    lanes.iter().sum::<f64>() + tail.iter().map(|&w| f64::from(w)).sum::<f64>()
}

/// `w` from `floor` up, 0 below. On bits, and into a buffer: a conditional store in place would become a masked one,
/// which some CPUs do slowly.
#[inline(always)]
fn keep(w: f32, floor: f32) -> f32 {
    f32::from_bits(w.to_bits() & u32::from(w >= floor).wrapping_neg())
}

#[inline(always)]
pub(crate) fn mass_above<S: Simd>(_: S, weights: &[f32], thresholds: [f32; 2]) -> [Above; 2] {
    let mut total = [Above::default(); 2];
    let mut kept = [0.0; BLOCK];
    for block in weights.chunks(BLOCK) {
        for (total, threshold) in total.iter_mut().zip(thresholds) {
            let kept = &mut kept[..block.len()];
            let mut count = 0;
            for (kept, &w) in kept.iter_mut().zip(block) {
                *kept = keep(w, threshold);
                count += u32::from(w >= threshold);
            }
            total.count += count as usize;
            total.mass += sum(kept);
        }
    }
    total
}

/// Stretches without a hit are passed over at the speed of a comparison.
#[inline(always)]
pub(crate) fn indices_within<S: Simd>(_: S, x: &[f32], low: f32, high: f32, out: &mut Vec<u32>) {
    const STEP: usize = 4 * LANES;
    for (b, block) in x.chunks(STEP).enumerate() {
        let hits = block.iter().fold(0, |hits, &v| hits | u32::from(v >= low) & u32::from(v < high));
        if hits != 0 {
            // Written at every value and kept at hits: no branch to guess.
            let (mut found, mut n) = ([0; STEP], 0);
            for (i, &v) in block.iter().enumerate() {
                found[n] = (b * STEP + i) as u32;
                n += usize::from(v >= low && v < high);
            }
            out.extend_from_slice(&found[..n]);
        }
    }
}

#[inline(always)]
pub(crate) fn drop_below<S: Simd>(_: S, weights: &mut [f32], floor: f32) -> f64 {
    let mut kept = [0.0; BLOCK];
    let mut total = 0.0;
    for block in weights.chunks_mut(BLOCK) {
        let kept = &mut kept[..block.len()];
        for (kept, &w) in kept.iter_mut().zip(block.iter()) {
            *kept = keep(w, floor);
        }
        block.copy_from_slice(kept);
        total += sum(kept);
    }
    total
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Isa;

    fn available() -> impl Iterator<Item = Kernels> {
        Isa::ALL.iter().filter_map(|&isa| Kernels::new(isa).ok())
    }

    /// Weights with ties and zeros.
    fn weights(n: usize) -> Vec<f32> {
        let mut x: Vec<f32> = (0..n).map(|i| (i * 7919 % 997) as f32 * -0.03).collect();
        Kernels::new(Isa::Portable).expect("always there").softmax_weights(&mut x, 0.0, 1.0);
        x
    }

    #[test]
    fn weights_are_exp_on_the_grid() {
        for kernels in available() {
            let logits: Vec<f32> = (0..60_000).map(|i| 3.0 - i as f32 * 5e-4).collect();
            let mut got = logits.clone();
            let sum = kernels.softmax_weights(&mut got, 3.0, 2.0);
            assert_eq!(got[0], 1.0);
            assert_eq!(sum, got.iter().map(|&w| f64::from(w)).sum::<f64>());
            for (&w, &l) in got.iter().zip(&logits) {
                let (w, want) = (f64::from(w), (f64::from(l - 3.0) * 2.0).exp());
                assert!((w - want).abs() <= want * 2.4e-7 + 2f64.powi(-34), "exp of {l} is {w}, want {want}");
                assert_eq!((w * 2f64.powi(34)).fract(), 0.0);
            }
        }
    }

    #[test]
    fn far_away_logits_weigh_nothing() {
        for kernels in available() {
            let mut x = [0.0, -25.0, -1e4, f32::MIN, f32::NEG_INFINITY];
            assert_eq!(kernels.softmax_weights(&mut x, 0.0, 1.0), 1.0);
            assert_eq!(x, [1.0, 0.0, 0.0, 0.0, 0.0]);
            let mut x = [1e4, 1e4, -1e4];
            assert_eq!(kernels.softmax_weights(&mut x, 1e4, f32::MAX), 2.0);
        }
    }

    #[test]
    fn every_isa_and_length_equals_a_plain_loop() {
        for kernels in available() {
            for n in 0..200 {
                let x = weights(n);
                let exact = |t: f32| x.iter().filter(|&&w| w >= t).map(|&w| f64::from(w)).sum::<f64>();
                for (got, t) in kernels.mass_above(&x, [0.5, 0.01]).iter().zip([0.5, 0.01]) {
                    let count = x.iter().filter(|&&w| w >= t).count();
                    assert_eq!(*got, Above { count, mass: exact(t) }, "{n} weights");
                }
                let mut got = Vec::new();
                kernels.indices_within(&x, 0.1, 0.7, &mut got);
                let want: Vec<u32> = (0..n as u32).filter(|&i| (0.1..0.7).contains(&x[i as usize])).collect();
                assert_eq!(got, want);
                let mut dropped = x.clone();
                assert_eq!(kernels.drop_below(&mut dropped, 0.1), exact(0.1));
                assert!(dropped.iter().zip(&x).all(|(&d, &w)| d == if w >= 0.1 { w } else { 0.0 }));
                let largest = x.iter().copied().fold(f32::NEG_INFINITY, f32::max);
                assert_eq!(kernels.largest_and_nan(&x), (largest, false));
            }
        }
    }

    #[test]
    fn nan_is_seen_in_every_position() {
        for kernels in available() {
            for n in 1..70 {
                for at in 0..n {
                    let mut x = vec![1.0; n];
                    x[at] = f32::NAN;
                    assert!(kernels.largest_and_nan(&x).1, "{at} of {n}");
                }
            }
        }
    }
}
