//! Rotary position embeddings: angles, and their application to heads.

use crate::math::sin_cos;
use crate::simd::Simd;

/// Which elements of a head are rotated together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RopeLayout {
    /// Neighbours: (0, 1), (2, 3), …
    Norm,
    /// First and second half: (0, d/2), (1, d/2 + 1), …
    Neox,
}

/// What the angles are made of; the names are those of the `rope.*` metadata.
#[derive(Clone, Debug, PartialEq)]
pub struct RopeParams {
    /// Elements of a head that are rotated; even. The others stay.
    pub n_dims: usize,
    /// Base of the frequencies.
    pub freq_base: f32,
    /// Factor on all angles: 1 / scaling factor.
    pub freq_scale: f32,
    /// 0 for linear scaling, 1 for YaRN.
    pub ext_factor: f32,
    /// Factor on the rotated values.
    pub attn_factor: f32,
    /// Rotations over the original context above which YaRN does not scale.
    pub beta_fast: f32,
    /// Rotations over the original context below which YaRN scales fully.
    pub beta_slow: f32,
    /// Context length of the original training.
    pub n_ctx_orig: usize,
    /// Divisors of the angles, `n_dims / 2` of them.
    pub factors: Option<Vec<f32>>,
    /// The divisors in a context larger than the original one, if they are others.
    pub long_factors: Option<Vec<f32>>,
}

/// Cosines and sines (times the magnitude), `[token][n_dims / 2]`.
#[derive(Clone, Debug, Default)]
pub struct RopeTable {
    cos: Vec<f32>,
    sin: Vec<f32>,
    n_pairs: usize,
}

impl RopeParams {
    /// Computes the table for tokens, each given by its position and the size of its context.
    ///
    /// The undivided angle goes from pair to pair by one f32 multiplication, as in ggml.
    pub fn fill(&self, table: &mut RopeTable, tokens: impl IntoIterator<Item = (usize, usize)>) {
        let n_pairs = self.n_dims / 2;
        let step = f64::from(self.freq_base).powf(-2.0 / self.n_dims as f64) as f32;
        let ramp = self.ramp();
        let magnitude = if self.ext_factor == 0.0 {
            self.attn_factor
        } else {
            self.attn_factor * (1.0 + 0.1 * f64::from(1.0 / self.freq_scale).ln() as f32)
        };
        table.n_pairs = n_pairs;
        table.cos.clear();
        table.sin.clear();
        for (pos, n_ctx) in tokens {
            // The size of the context decides, not how much of it is used: the cache holds rotated keys.
            let long = self.long_factors.as_ref().filter(|_| n_ctx > self.n_ctx_orig);
            let factors = long.or(self.factors.as_ref());
            let mut base = pos as f32;
            for i in 0..n_pairs {
                let angle = base / factors.map_or(1.0, |factors| factors[i]);
                let scaled = self.freq_scale * angle;
                let mix = ramp(i);
                let angle = if mix == 0.0 { scaled } else { scaled * (1.0 - mix) + angle * mix };
                let (sin, cos) = sin_cos(angle);
                table.cos.push(cos * magnitude);
                table.sin.push(sin * magnitude);
                base *= step;
            }
        }
    }

    /// YaRN's share of the unscaled angle for pair `i`; 0 without YaRN.
    fn ramp(&self) -> impl Fn(usize) -> f32 {
        let d = self.n_dims as f64;
        let rotations = |beta: f32| {
            let wavelength = self.n_ctx_orig as f64 / (f64::from(beta) * 2.0 * std::f64::consts::PI);
            (d * wavelength.ln() / (2.0 * f64::from(self.freq_base).ln())) as f32
        };
        let low = rotations(self.beta_fast).floor().max(0.0);
        let high = rotations(self.beta_slow).ceil().min(self.n_dims as f32 - 1.0);
        let ext_factor = self.ext_factor;
        move |i| {
            if ext_factor == 0.0 {
                return 0.0;
            }
            // ggml compares the pair's number with borders counted in pairs.
            let y = (i as f32 - low) / (high - low).max(0.001);
            ext_factor * (1.0 - y.clamp(0.0, 1.0))
        }
    }
}

impl RopeTable {
    /// Cosines and sines of a token's pairs.
    pub(crate) fn token(&self, token: usize) -> [&[f32]; 2] {
        let pairs = token * self.n_pairs..(token + 1) * self.n_pairs;
        [&self.cos[pairs.clone()], &self.sin[pairs]]
    }

    pub(crate) fn n_tokens(&self) -> usize {
        self.cos.len() / self.n_pairs.max(1)
    }

    pub(crate) fn n_dims(&self) -> usize {
        2 * self.n_pairs
    }
}

/// Rotates the heads of one token, in place. Plain loops, which the compiler turns into vector operations: with
/// each product rounded there is only one possible result.
#[inline(always)]
pub(crate) fn rotate<S: Simd>(
    _: S,
    row: &mut [f32],
    head_dim: usize,
    [cos, sin]: [&[f32]; 2],
    layout: RopeLayout,
) {
    for head in row.chunks_exact_mut(head_dim) {
        match layout {
            RopeLayout::Norm => {
                for ((x, &cos), &sin) in head.as_chunks_mut::<2>().0.iter_mut().zip(cos).zip(sin) {
                    *x = rotated(x[0], x[1], cos, sin);
                }
            }
            RopeLayout::Neox => {
                let (first, rest) = head.split_at_mut(cos.len());
                for (((x0, x1), &cos), &sin) in first.iter_mut().zip(rest).zip(cos).zip(sin) {
                    [*x0, *x1] = rotated(*x0, *x1, cos, sin);
                }
            }
        }
    }
}

#[inline(always)]
fn rotated(x0: f32, x1: f32, cos: f32, sin: f32) -> [f32; 2] {
    [x0 * cos - x1 * sin, x0 * sin + x1 * cos]
}
