//! Stages that look at the whole shape of the distribution: spread, entropy, the slope of the largest logits.

use super::{Candidate, Candidates, largest, logit_key, probability_key};
use crate::sampler::SamplerError;

impl Candidates {
    /// Keeps the logits within `n` standard deviations of the largest; 0 or less keeps all.
    pub fn top_n_sigma(&mut self, n: f32) {
        if n <= 0.0 {
            return;
        }
        // The temperatures scale the deviation as they scale the distances.
        self.keep_only_weighed();
        self.weighed = false;
        let all = || self.logits.iter().copied().filter(|&l| l != f32::NEG_INFINITY);
        let floor = if self.listed {
            sigma_floor(|| self.list.iter().map(|c| c.logit), n)
        } else {
            sigma_floor(all, n)
        };
        if self.listed {
            self.list.retain(|c| f64::from(c.logit) >= floor);
        } else {
            for logit in &mut self.logits {
                *logit = if f64::from(*logit) >= floor { *logit } else { f32::NEG_INFINITY };
            }
        }
    }

    /// Of the tokens at least `threshold` probable, keeps the least probable only, and what is below.
    pub fn exclude_top(&mut self, threshold: f32) -> Result<(), SamplerError> {
        self.weigh()?;
        self.enlist(f32::MIN_POSITIVE);
        let mass = self.mass;
        let key = |c: &Candidate| probability_key(c.weight, c.logit, c.id);
        let is_top = |c: &Candidate| (f64::from(c.weight) / mass) as f32 >= threshold;
        if let Some(last) = self.list.iter().filter(|c| is_top(c)).map(key).max() {
            self.list.retain(|c| key(c) >= last);
            self.weighed = false;
        }
        Ok(())
    }

    /// Divides what comes later by a temperature between `low` and `high`: the higher, the nearer the entropy, to the
    /// power of `exponent`, is to that of as many equally probable tokens.
    pub fn heat_by_entropy(&mut self, low: f32, high: f32, exponent: f32) -> Result<(), SamplerError> {
        self.weigh()?;
        self.keep_only_weighed();
        let n = if self.listed {
            self.list.len()
        } else {
            self.logits.iter().filter(|&&l| l != f32::NEG_INFINITY).count()
        };
        if n <= 1 {
            return Ok(());
        }
        self.enlist(f32::MIN_POSITIVE);
        // -sum of p ln p, where ln p is the exponent of the weight less the logarithm of the sum.
        let entropy = libm::log(self.mass) - self.mean_exponent();
        let share = (entropy / libm::log(n as f64)).clamp(0.0, 1.0);
        let temperature = low + (high - low) * libm::pow(share, f64::from(exponent)) as f32;
        if temperature > 0.0 {
            self.heat(temperature);
        } else {
            self.top_k(1);
        }
        Ok(())
    }

    /// The differences between neighbours of the `n` largest logits, after the temperatures.
    pub fn falls(&mut self, n: usize) -> impl Iterator<Item = f64> {
        self.keep_only_weighed();
        if self.listed {
            self.keys.clear();
            self.keys.extend(self.list.iter().map(|c| logit_key(c.logit, c.id)));
            self.keys.sort_unstable();
            self.keys.truncate(n);
        } else {
            largest(&self.logits, n, &mut self.keys);
        }
        let temperature = f64::from(self.temperature);
        let logit = |key: u64| f64::from(self.logits[key as u32 as usize]);
        self.keys.windows(2).map(move |pair| (logit(pair[0]) - logit(pair[1])) / temperature)
    }

    /// Keeps the tokens whose probability is at least `p`, and in any case the best one.
    pub fn at_least(&mut self, p: f64) -> Result<(), SamplerError> {
        self.weigh()?;
        // The heaviest token weighs 1.
        let floor = (p * self.mass) as f32;
        if floor > 1.0 {
            self.top_k(1);
            return Ok(());
        }
        self.min_p(floor)
    }

    /// Puts in place of each logit how near its probability is to `target`; the probabilities are kept for
    /// [`Candidates::probability_before`].
    pub fn prefer(&mut self, target: f32) -> Result<(), SamplerError> {
        // llama.cpp's curve: quadratic near the target, falling linearly far from it.
        const WIDTH: f32 = 0.3;
        const PEAK: f32 = 5.0;
        const SHARPNESS: f32 = 10.0;
        self.weigh()?;
        self.enlist(f32::MIN_POSITIVE);
        self.list.retain(|c| c.weight > 0.0);
        self.before.clear();
        for c in &mut self.list {
            let p = (f64::from(c.weight) / self.mass) as f32;
            let distance = (p - target).abs() / WIDTH;
            c.logit = PEAK - SHARPNESS * distance * distance / (1.0 + distance);
            self.before.push((c.id, p));
        }
        self.temperature = 1.0;
        self.weighed = false;
        Ok(())
    }

    /// The probability that `token`, which is one of them, had before [`Candidates::prefer`].
    pub fn probability_before(&self, token: u32) -> f32 {
        self.before.iter().find(|(id, _)| *id == token).map_or(0.0, |&(_, p)| p)
    }

    /// The probability of `token`, which was drawn.
    pub fn probability(&self, token: u32) -> f64 {
        let weight = if self.listed {
            self.list.iter().find(|c| c.id == token).map_or(0.0, |c| c.weight)
        } else {
            self.weights[token as usize]
        };
        f64::from(weight) / self.mass
    }
}

/// The largest of `logits` less `n` times their standard deviation.
fn sigma_floor<I: Iterator<Item = f32>>(logits: impl Fn() -> I, n: f32) -> f64 {
    let (count, sum, max) = logits().fold((0u64, 0.0, f64::NEG_INFINITY), |(count, sum, max), l| {
        let l = f64::from(l);
        (count + 1, sum + l, l.max(max))
    });
    let mean = sum / count as f64;
    let squares: f64 = logits().map(|l| (f64::from(l) - mean) * (f64::from(l) - mean)).sum();
    max - f64::from(n) * (squares / count as f64).sqrt()
}
