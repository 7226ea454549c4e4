//! The tokens still in the game, and the stages that thin them out.
//!
//! While most of the vocabulary is in, logits and weights are arrays indexed by token and a token is taken out by
//! the logit minus infinity; once few are left they are a list. All buffers are kept from draw to draw.

mod shape;

use qgguf_kernels::Kernels;

use super::SamplerError;
use super::nucleus::{Ranked, Vocabulary, last_of_prefix, logit_key, probability_key};

/// Tokens whose weights are summed together; a draw skips whole blocks before it looks at single tokens.
const BLOCK: usize = 512;

/// A list is used from this many tokens down.
const LIST: usize = 8192;

#[derive(Clone, Copy, Debug, PartialEq)]
struct Candidate {
    id: u32,
    logit: f32,
    weight: f32,
}

/// See the module.
///
/// A weight is what [`Kernels::softmax_weights`] makes of a logit; sums of weights are exact.
#[derive(Clone)]
pub(super) struct Candidates {
    kernels: Kernels,
    /// One logit per token, as long as `listed` is false.
    logits: Vec<f32>,
    /// One weight per token, valid while `weighed` and not `listed`.
    weights: Vec<f32>,
    block_sums: Vec<f64>,
    /// The remaining tokens, valid while `listed`; with weights while `weighed`.
    list: Vec<Candidate>,
    listed: bool,
    weighed: bool,
    /// The sum of the weights of all that are left, valid while `weighed`.
    mass: f64,
    /// The product of the temperatures so far; they act when weights are made.
    temperature: f32,
    keys: Vec<u64>,
    ranked: Vec<Ranked>,
    ids: Vec<u32>,
    scratch: Vec<f32>,
    /// Tokens and probabilities before `prefer`.
    before: Vec<(u32, f32)>,
}

impl Candidates {
    /// Nothing yet. Every instruction set gives the same tokens, so the best one is taken.
    pub fn new() -> Candidates {
        Candidates {
            kernels: Kernels::best(),
            logits: Vec::new(),
            weights: Vec::new(),
            block_sums: Vec::new(),
            list: Vec::new(),
            listed: false,
            weighed: false,
            mass: 0.0,
            temperature: 1.0,
            keys: Vec::new(),
            ranked: Vec::new(),
            ids: Vec::new(),
            scratch: Vec::new(),
            before: Vec::new(),
        }
    }

    /// Starts over with all tokens of `logits`.
    pub fn reset(&mut self, logits: &[f32]) -> Result<(), SamplerError> {
        if logits.is_empty() {
            return Err(SamplerError::NoLogits);
        }
        let (max, nan) = self.kernels.largest_and_nan(logits);
        if nan || max == f32::INFINITY {
            let at = logits.iter().position(|l| l.is_nan() || *l == f32::INFINITY).unwrap_or(0);
            return Err(SamplerError::BadLogit { token: at, value: logits[at] });
        }
        self.logits.clear();
        self.logits.extend_from_slice(logits);
        self.listed = false;
        self.weighed = false;
        self.temperature = 1.0;
        Ok(())
    }

    /// Takes out, from all tokens, those whose bit in `mask` (32 tokens a word) is not set.
    pub fn restrict(&mut self, mask: &[u32]) -> Result<(), SamplerError> {
        let words = mask.iter().copied().chain(std::iter::repeat(0));
        let mut allowed = 0;
        for (logits, word) in self.logits.chunks_mut(u32::BITS as usize).zip(words) {
            let word = word & (u32::MAX >> (u32::BITS as usize - logits.len()));
            allowed |= word;
            if word == 0 {
                logits.fill(f32::NEG_INFINITY);
            } else if word != u32::MAX {
                for (i, logit) in logits.iter_mut().enumerate() {
                    *logit = if word >> i & 1 == 0 { f32::NEG_INFINITY } else { *logit };
                }
            }
        }
        if allowed == 0 { Err(SamplerError::NothingAllowed) } else { Ok(()) }
    }

    /// The number of tokens in the vocabulary.
    pub fn n_vocab(&self) -> usize {
        self.logits.len()
    }

    /// Replaces the logit of token `id`, if it is still in, by `change` of it (after the temperatures so far).
    pub fn change_logit(&mut self, id: u32, change: impl FnOnce(f32) -> f32) {
        let logit = if self.listed {
            self.list.iter_mut().find(|c| c.id == id).map(|c| &mut c.logit)
        } else {
            self.logits.get_mut(id as usize)
        };
        if let Some(logit) = logit.filter(|logit| **logit != f32::NEG_INFINITY) {
            *logit = change(*logit).min(f32::MAX);
            self.weighed = false;
        }
    }

    /// Divides what comes later by `temperature`, which is positive.
    pub fn heat(&mut self, temperature: f32) {
        if temperature != 1.0 {
            self.keep_only_weighed();
            self.temperature *= temperature;
            self.weighed = false;
        }
    }

    /// Applies the temperatures so far to the logits themselves, for a stage that adds to logits.
    pub fn settle_temperature(&mut self) {
        if self.temperature == 1.0 {
            return;
        }
        self.keep_only_weighed();
        let t = self.temperature;
        let settle =
            |l: &mut f32| *l = if *l == f32::NEG_INFINITY { *l } else { (*l / t).clamp(f32::MIN, f32::MAX) };
        if self.listed {
            self.list.iter_mut().for_each(|c| settle(&mut c.logit));
        } else {
            self.logits.iter_mut().for_each(settle);
        }
        self.temperature = 1.0;
        self.weighed = false;
    }

    /// The token with the largest logit, the lowest id on ties.
    pub fn best(&self) -> Result<u32, SamplerError> {
        if self.listed {
            let best = self.list.iter().min_by_key(|c| logit_key(c.logit, c.id));
            return best.map(|c| c.id).ok_or(SamplerError::NoCandidates);
        }
        let (max, _) = self.kernels.largest_and_nan(&self.logits);
        if max == f32::NEG_INFINITY {
            return Err(SamplerError::NoCandidates);
        }
        // `max` is one of the values, so it is found.
        Ok(self.logits.iter().position(|&l| l == max).unwrap_or(0) as u32)
    }

    /// Keeps the `k` largest logits, lower ids first on ties; 0 keeps all.
    pub fn top_k(&mut self, k: usize) {
        if k == 0 || k >= if self.listed { self.list.len() } else { self.logits.len() } {
            return;
        }
        self.keep_only_weighed();
        if self.listed {
            self.keys.clear();
            self.keys.extend(self.list.iter().map(|c| logit_key(c.logit, c.id)));
            let (_, &mut last, _) = self.keys.select_nth_unstable(k - 1);
            self.list.retain(|c| logit_key(c.logit, c.id) <= last);
        } else {
            largest(&self.logits, k, &mut self.keys);
            self.list.clear();
            let logits = &self.logits;
            self.list.extend(self.keys.iter().map(|&key| {
                let id = key as u32;
                Candidate { id, logit: logits[id as usize], weight: 0.0 }
            }));
            self.listed = true;
        }
        self.weighed = false;
    }

    /// Keeps the smallest set of most probable tokens whose probabilities, rounded to f32, reach `p` together.
    pub fn top_p(&mut self, p: f32) -> Result<(), SamplerError> {
        if p >= 1.0 {
            return Ok(());
        }
        self.weigh()?;
        let total = self.mass;
        let reached = |mass: f64| (mass / total) as f32 >= p;
        if self.listed {
            self.ranked.clear();
            self.ranked
                .extend(self.list.iter().map(|c| (probability_key(c.weight, c.logit, c.id), c.weight)));
            if let Some((last, mass)) = last_of_prefix(&mut self.ranked, 0.0, reached) {
                self.list.retain(|c| probability_key(c.weight, c.logit, c.id) <= last);
                self.mass = mass;
            }
            return Ok(());
        }
        // All tokens below this weight together are less than what may be left out.
        let least = (1.0 - f64::from(p)) * total / self.logits.len() as f64 * 0.999;
        let vocabulary = Vocabulary { kernels: self.kernels, logits: &self.logits, weights: &self.weights };
        let cut =
            vocabulary.cut(total, least as f32, reached, &mut self.ranked, &mut self.scratch, &mut self.ids);
        let Some(cut) = cut else { return Ok(()) };
        if cut.all_ranked && cut.count <= LIST {
            let inside = self.ranked.iter().filter(|item| item.0 <= cut.key);
            self.list.clear();
            self.list.extend(inside.map(|&(key, weight)| {
                let id = key as u32;
                Candidate { id, logit: self.logits[id as usize], weight }
            }));
            self.list.sort_unstable_by_key(|c| c.id);
            self.mass = self.list.iter().map(|c| f64::from(c.weight)).sum();
            self.listed = true;
        } else {
            // Of the tokens from the floor up only some ranked ones are outside.
            for &(key, _) in self.ranked.iter().filter(|item| item.0 > cut.key) {
                self.weights[key as u32 as usize] = 0.0;
            }
            self.keep_from(cut.floor, cut.count);
        }
        Ok(())
    }

    /// Keeps the tokens that weigh at least `p` times as much as the heaviest one.
    pub fn min_p(&mut self, p: f32) -> Result<(), SamplerError> {
        if p <= 0.0 {
            return Ok(());
        }
        self.weigh()?;
        if self.listed {
            let threshold = p * self.list.iter().fold(0.0f32, |best, c| best.max(c.weight));
            self.list.retain(|c| c.weight >= threshold);
            self.mass = self.list.iter().map(|c| f64::from(c.weight)).sum();
        } else {
            // The largest logit is always in while there is no list, and weighs 1.
            let [kept, _] = self.kernels.mass_above(&self.weights, [p, f32::INFINITY]);
            self.keep_from(p, kept.count);
        }
        Ok(())
    }

    /// Keeps the smallest set, nearest to the expected surprise first, whose probability exceeds `p`.
    pub fn typical(&mut self, p: f32) -> Result<(), SamplerError> {
        if p >= 1.0 {
            return Ok(());
        }
        self.weigh()?;
        self.enlist(f32::MIN_POSITIVE);
        // -ln p(i) - H = mean - x(i), where x is the exponent of the weight and `mean` its expectation: the
        // logarithm of the sum cancels, and no logarithm has to be taken.
        let (max, inverse) = (self.max(), self.inverse_temperature());
        let exponent = |c: &Candidate| f64::from((c.logit - max) * inverse);
        let mean = self.mean_exponent();
        let key = |c: &Candidate| u128::from((mean - exponent(c)).abs().to_bits()) << 32 | u128::from(c.id);
        self.ranked.clear();
        self.ranked.extend(self.list.iter().map(|c| (key(c), c.weight)));
        let total = self.mass;
        if let Some((last, mass)) = last_of_prefix(&mut self.ranked, 0.0, |mass| (mass / total) as f32 > p) {
            self.list.retain(|c| key(c) <= last);
            self.mass = mass;
        }
        Ok(())
    }

    /// The token at which the running sum of probabilities passes `u`, which is in `0.0..1.0`.
    pub fn draw(&mut self, u: f64) -> Result<u32, SamplerError> {
        self.weigh()?;
        let goal = u * self.mass;
        let mut mass = 0.0;
        if self.listed {
            let found = self.list.iter().find(|c| {
                mass += f64::from(c.weight);
                mass > goal
            });
            return found.map(|c| c.id).ok_or(SamplerError::NoCandidates);
        }
        for (b, (&block, weights)) in self.block_sums.iter().zip(self.weights.chunks(BLOCK)).enumerate() {
            if mass + block <= goal {
                mass += block;
                continue;
            }
            for (i, &w) in weights.iter().enumerate() {
                mass += f64::from(w);
                if mass > goal {
                    return Ok((b * BLOCK + i) as u32);
                }
            }
        }
        Err(SamplerError::NoCandidates)
    }

    /// What is left, most probable first, with probabilities.
    pub fn distribution(&mut self) -> Result<Vec<(u32, f64)>, SamplerError> {
        self.weigh()?;
        self.enlist(f32::MIN_POSITIVE);
        self.list.retain(|c| c.weight > 0.0);
        self.list.sort_unstable_by_key(|c| probability_key(c.weight, c.logit, c.id));
        Ok(self.list.iter().map(|c| (c.id, f64::from(c.weight) / self.mass)).collect())
    }

    fn max(&self) -> f32 {
        if self.listed {
            self.list.iter().fold(f32::NEG_INFINITY, |best, c| best.max(c.logit))
        } else {
            self.kernels.largest_and_nan(&self.logits).0
        }
    }

    /// Kept finite, so that a difference of 0 stays 0 at the smallest temperatures.
    fn inverse_temperature(&self) -> f32 {
        (1.0 / self.temperature).min(f32::MAX)
    }

    /// The expectation of the exponents of the weights of a list.
    fn mean_exponent(&self) -> f64 {
        let (max, inverse) = (self.max(), self.inverse_temperature());
        let exponent = |c: &Candidate| f64::from((c.logit - max) * inverse);
        self.list.iter().map(|c| f64::from(c.weight) * exponent(c)).sum::<f64>() / self.mass
    }

    /// Makes the weights, unless they are there.
    fn weigh(&mut self) -> Result<(), SamplerError> {
        if self.weighed {
            return Ok(());
        }
        let (max, inverse) = (self.max(), self.inverse_temperature());
        if max == f32::NEG_INFINITY {
            return Err(SamplerError::NoCandidates);
        }
        if self.listed {
            self.scratch.clear();
            self.scratch.extend(self.list.iter().map(|c| c.logit));
            self.mass = self.kernels.softmax_weights(&mut self.scratch, max, inverse);
            for (c, &w) in self.list.iter_mut().zip(&self.scratch) {
                c.weight = w;
            }
        } else {
            self.weights.resize(self.logits.len(), 0.0);
            self.block_sums.clear();
            for (weights, logits) in self.weights.chunks_mut(BLOCK).zip(self.logits.chunks(BLOCK)) {
                weights.copy_from_slice(logits);
                self.block_sums.push(self.kernels.softmax_weights(weights, max, inverse));
            }
            self.mass = self.block_sums.iter().sum();
        }
        self.weighed = true;
        Ok(())
    }

    /// Takes out the tokens whose weight was set to 0, before the weights are forgotten.
    fn keep_only_weighed(&mut self) {
        if !self.weighed {
            return;
        }
        if self.listed {
            self.list.retain(|c| c.weight > 0.0);
        } else {
            for (logit, &w) in self.logits.iter_mut().zip(&self.weights) {
                *logit = if w > 0.0 { *logit } else { f32::NEG_INFINITY };
            }
        }
    }

    /// Takes out what weighs less than `floor`, which is positive, from the weights of the whole vocabulary;
    /// `count` tokens are left then.
    fn keep_from(&mut self, floor: f32, count: usize) {
        if count <= LIST {
            return self.enlist(floor);
        }
        self.block_sums.clear();
        for weights in self.weights.chunks_mut(BLOCK) {
            self.block_sums.push(self.kernels.drop_below(weights, floor));
        }
        self.mass = self.block_sums.iter().sum();
    }

    /// Turns what weighs at least `floor` into a list, in the order of ids.
    fn enlist(&mut self, floor: f32) {
        if self.listed {
            return;
        }
        self.ids.clear();
        self.kernels.indices_within(&self.weights, floor, f32::INFINITY, &mut self.ids);
        self.list.clear();
        self.list.extend(self.ids.iter().map(|&id| {
            let (logit, weight) = (self.logits[id as usize], self.weights[id as usize]);
            Candidate { id, logit, weight }
        }));
        self.mass = self.list.iter().map(|c| f64::from(c.weight)).sum();
        self.listed = true;
    }
}

/// Leaves in `keys` the keys of the `k` largest logits above minus infinity (or of all, if they are fewer), sorted.
/// One pass: `keys` collects what beats the `k`-th best so far, and is cut back to `k` when it is full.
fn largest(logits: &[f32], k: usize, keys: &mut Vec<u64>) {
    const STEP: usize = 64;
    // Room for a step beyond the mark, so that a step never needs a check inside.
    let full = 2 * k + STEP;
    keys.clear();
    let mut threshold = f32::NEG_INFINITY;
    for (b, block) in logits.chunks(STEP).enumerate() {
        let hits: u32 = block.iter().map(|&l| u32::from(l > threshold)).sum();
        if hits == 0 {
            continue;
        }
        for (i, &l) in block.iter().enumerate() {
            if l > threshold {
                keys.push(logit_key(l, (b * STEP + i) as u32));
            }
        }
        if keys.len() >= full {
            let (_, &mut last, _) = keys.select_nth_unstable(k - 1);
            keys.truncate(k);
            threshold = logits[last as u32 as usize];
        }
    }
    if keys.len() > k {
        keys.select_nth_unstable(k - 1);
        keys.truncate(k);
    }
    keys.sort_unstable();
}
