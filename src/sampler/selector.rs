//! Draws that steer themselves: mirostat and adaptive-p remember how probable the tokens drawn were.

use super::params::SamplerParams;

/// Which mirostat is used (Basu et al. 2020). It replaces every stage but the temperature.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mirostat {
    /// None.
    #[default]
    Off,
    /// Estimates how fast probabilities fall, and from that how many tokens to keep.
    V1,
    /// Keeps the tokens whose surprise is at most the bound.
    V2,
}

impl Mirostat {
    /// 0, 1 or 2, as in llama.cpp.
    pub fn from_number(number: i32) -> Option<Mirostat> {
        [Mirostat::Off, Mirostat::V1, Mirostat::V2].into_iter().find(|m| *m as i32 == number)
    }
}

/// What the draws so far lead to.
#[derive(Clone, Copy, Debug)]
pub(super) struct Selector {
    /// Mirostat: the surprise, in bits, that a token may have.
    pub mu: f64,
    /// Adaptive-p: the decaying sum of the probabilities of the tokens drawn.
    sum: f32,
    /// Adaptive-p: the decaying sum of their number.
    count: f32,
    /// Adaptive-p: the token drawn last, which counts once it is accepted, and its probability.
    drawn: Option<(u32, f32)>,
}

impl Selector {
    /// As if the tokens before had been what is aimed at.
    pub fn new(params: &SamplerParams) -> Selector {
        let count = 1.0 / (1.0 - params.adaptive_decay);
        let sum = params.adaptive_target * count;
        Selector { mu: 2.0 * f64::from(params.mirostat_tau), sum, count, drawn: None }
    }

    /// Mirostat: a token of this probability was drawn.
    pub fn surprise(&mut self, probability: f64, params: &SamplerParams) {
        let error = -libm::log2(probability) - f64::from(params.mirostat_tau);
        self.mu -= f64::from(params.mirostat_eta) * error;
    }

    /// Adaptive-p: the probability to aim at, so that the average comes to the target.
    pub fn aim(&self, params: &SamplerParams) -> f32 {
        (2.0 * params.adaptive_target - self.sum / self.count).clamp(0.0, 1.0)
    }

    /// Adaptive-p: `token` of this probability was drawn.
    pub fn draw(&mut self, token: u32, probability: f32) {
        self.drawn = Some((token, probability));
    }

    /// Adaptive-p: `token` is part of the text.
    pub fn accept(&mut self, token: u32, params: &SamplerParams) {
        if let Some((_, probability)) = self.drawn.take().filter(|drawn| drawn.0 == token) {
            self.sum = probability + params.adaptive_decay * self.sum;
            self.count = 1.0 + params.adaptive_decay * self.count;
        }
    }
}

/// Mirostat 1: how many tokens to keep so that the expected surprise is `mu` bits. `falls` are the differences between
/// neighbours of the largest logits, after the temperature; `n_vocab` is the size of the vocabulary.
pub(super) fn mirostat_top_k(falls: impl Iterator<Item = f64>, mu: f64, n_vocab: usize) -> usize {
    let (mut products, mut squares) = (0.0, 0.0);
    for (i, fall) in falls.enumerate() {
        let t = libm::log((i + 2) as f64 / (i + 1) as f64);
        products += t * fall;
        squares += t * t;
    }
    let s = products / squares;
    let epsilon = s - 1.0;
    let k = libm::pow(epsilon * libm::exp2(mu) / (1.0 - libm::pow(n_vocab as f64, -epsilon)), 1.0 / s);
    // Without two candidates, or with s = 1, it is not a number.
    k.max(1.0) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mirostat_one_knows_zipfs_law() {
        // p(i) ~ i^-2: s is exactly 2, epsilon 1, and k = sqrt(2^mu / (1 - 1/n)).
        let falls = (1..100).map(|i| 2.0 * (f64::from(i + 1) / f64::from(i)).ln());
        for (mu, n_vocab, k) in [(10.0, 1000, 32), (4.0, 1000, 4), (4.0, 2, 5), (-3.0, 1000, 1)] {
            assert_eq!(mirostat_top_k(falls.clone(), mu, n_vocab), k, "{mu}");
        }
    }

    #[test]
    fn mirostat_one_keeps_a_token_whatever_the_logits() {
        assert_eq!(mirostat_top_k([].into_iter(), 5.0, 1), 1);
        assert_eq!(mirostat_top_k([0.0; 9].into_iter(), 1.0, 10), 1);
        assert_eq!(mirostat_top_k([f64::MAX; 9].into_iter(), 1.0, 10), 1);
    }

    #[test]
    fn adaptive_p_aims_below_after_what_was_above() {
        let params = SamplerParams { adaptive_target: 0.5, adaptive_decay: 0.5, ..SamplerParams::default() };
        let mut selector = Selector::new(&params);
        assert_eq!(selector.aim(&params), 0.5);
        selector.draw(7, 1.0);
        selector.accept(7, &params);
        // sum = 1 + 0.5·1, count = 1 + 0.5·2: an average of 0.75, so 0.25 is next.
        assert_eq!(selector.aim(&params), 0.25);
        // A token that was not drawn here, or is accepted twice, counts nothing.
        selector.draw(7, 0.0);
        selector.accept(8, &params);
        selector.accept(7, &params);
        assert_eq!(selector.aim(&params), 0.25);
    }
}
