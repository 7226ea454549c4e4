//! From logits to the next token.
//!
//! [`SamplerParams`] says what to do and in which order, [`Sampler`] holds the random numbers and the recent
//! tokens. A fixed seed gives the same tokens on every machine: the random numbers are ChaCha8's, and weights and
//! sums do not depend on a math library or on the order of additions.

mod candidates;
mod constraint;
mod file_defaults;
mod nucleus;
mod params;
#[cfg(test)]
mod tests;

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::hash::{BuildHasher, Hasher, RandomState};

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

use candidates::Candidates;
pub use constraint::{Constraint, ConstraintError};
pub use params::{Order, Preset, SamplerParams, Stage};

/// What keeps a sampler from being made or from choosing a token.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum SamplerError {
    /// A setting has a value without a meaning.
    #[error("sampling setting {name}: expected {expected}, found {value}")]
    BadValue {
        /// The setting.
        name: String,
        /// What was given.
        value: String,
        /// What makes sense.
        expected: &'static str,
    },
    /// A list of stages has a name that nobody knows.
    #[error("unknown sampling stage '{name}'; known: {}", Stage::DEFAULT_ORDER.map(Stage::name).join(", "))]
    UnknownStage {
        /// The name.
        name: String,
    },
    /// There is no preset of that name.
    #[error("unknown preset '{name}'; known: {}", Preset::ALL.map(Preset::name).join(", "))]
    UnknownPreset {
        /// The name.
        name: String,
    },
    /// A logit bias names a token that the vocabulary does not have.
    #[error("logit_bias of token {token}: the vocabulary has {n_vocab} tokens, from 0 to {}", n_vocab - 1)]
    BiasOutOfRange {
        /// The token.
        token: u32,
        /// The size of the vocabulary.
        n_vocab: usize,
    },
    /// There was nothing to choose from.
    #[error("no logits to sample from")]
    NoLogits,
    /// The model's output is not a number.
    #[error("the logit of token {token} is {value}: the model's output is broken, no token can be chosen")]
    BadLogit {
        /// The first such token.
        token: usize,
        /// NaN or infinity.
        value: f32,
    },
    /// Every token is banned.
    #[error("every token has the logit -inf: there is none to choose")]
    NoCandidates,
}

/// Chooses tokens. It allocates while the first token is drawn; later draws reuse its buffers.
#[derive(Clone)]
pub struct Sampler {
    params: SamplerParams,
    seed: u64,
    rng: ChaCha8Rng,
    history: History,
    candidates: Candidates,
}

impl Sampler {
    /// A sampler with `params`; without a `seed` a random one is taken, which [`Sampler::seed`] tells.
    ///
    /// # Errors
    /// A setting without a meaning, by name.
    pub fn new(params: SamplerParams, seed: Option<u64>) -> Result<Sampler, SamplerError> {
        params.validate()?;
        // 32 random bits: a seed that is to be typed again should be short.
        let seed = seed.unwrap_or_else(|| RandomState::new().build_hasher().finish() >> 32);
        let history = History { capacity: params.penalty_last_n as usize, ..History::default() };
        Ok(Sampler { params, seed, rng: generator(seed), history, candidates: Candidates::new() })
    }

    /// The settings in force.
    pub fn params(&self) -> &SamplerParams {
        &self.params
    }

    /// The seed in use, given or random.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// Chooses a token by the `logits` of the whole vocabulary, one per token. A draw takes exactly one random
    /// number (none at temperature 0). The token enters the penalties only with [`Sampler::accept`].
    ///
    /// # Errors
    /// A NaN or infinite logit, by its token; a bias for a token outside the vocabulary; nothing to choose from.
    pub fn sample(&mut self, logits: &[f32]) -> Result<u32, SamplerError> {
        if self.params.is_greedy() {
            self.start(logits)?;
            self.penalize();
            return self.candidates.best();
        }
        self.run(logits)?;
        // 53 random bits: every f64 in 0..1 on that grid is as likely.
        let u = (self.rng.next_u64() >> 11) as f64 * (0.5f64).powi(53);
        self.candidates.draw(u)
    }

    /// The tokens that [`Sampler::sample`] would draw from and their probabilities, most probable first. No random
    /// number is used up.
    ///
    /// # Errors
    /// As for [`Sampler::sample`].
    pub fn distribution(&mut self, logits: &[f32]) -> Result<Vec<(u32, f64)>, SamplerError> {
        if self.params.is_greedy() {
            self.start(logits)?;
            self.penalize();
            return Ok(vec![(self.candidates.best()?, 1.0)]);
        }
        self.run(logits)?;
        self.candidates.distribution()
    }

    /// Tells the penalties that `token` is part of the text now. Prompt tokens count too, as in llama.cpp.
    pub fn accept(&mut self, token: u32) {
        if self.params.has_penalties() {
            self.history.push(token);
        }
    }

    /// Forgets the accepted tokens, for a new text. The random numbers go on.
    pub fn forget(&mut self) {
        self.history.tokens.clear();
        self.history.counts.clear();
    }

    /// Takes all logits and applies the biases.
    fn start(&mut self, logits: &[f32]) -> Result<(), SamplerError> {
        self.candidates.reset(logits)?;
        for &(token, bias) in &self.params.logit_bias {
            if token as usize >= logits.len() {
                return Err(SamplerError::BiasOutOfRange { token, n_vocab: logits.len() });
            }
            self.candidates.change_logit(token, |l| l + bias);
        }
        Ok(())
    }

    /// Biases and stages, up to the draw.
    fn run(&mut self, logits: &[f32]) -> Result<(), SamplerError> {
        self.start(logits)?;
        for i in 0..self.params.order.len() {
            match self.params.order[i] {
                Stage::Penalties => self.penalize(),
                Stage::Temperature => self.candidates.heat(self.params.temperature),
                Stage::TopK => self.candidates.top_k(usize::try_from(self.params.top_k).unwrap_or(0)),
                Stage::TypicalP => self.candidates.typical(self.params.typical_p)?,
                Stage::TopP => self.candidates.top_p(self.params.top_p)?,
                Stage::MinP => self.candidates.min_p(self.params.min_p)?,
            }
        }
        Ok(())
    }

    fn penalize(&mut self) {
        if !self.params.has_penalties() || self.history.tokens.is_empty() {
            return;
        }
        self.candidates.settle_temperature();
        let SamplerParams { repeat_penalty, frequency_penalty, presence_penalty, .. } = self.params;
        for (&token, &count) in &self.history.counts {
            self.candidates.change_logit(token, |l| {
                let l = if l <= 0.0 { l * repeat_penalty } else { l / repeat_penalty };
                l - (count as f32 * frequency_penalty + presence_penalty)
            });
        }
    }
}

impl fmt::Debug for Sampler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sampler")
            .field("params", &self.params)
            .field("seed", &self.seed)
            .finish_non_exhaustive()
    }
}

impl fmt::Display for Sampler {
    /// The settings in force and the seed, on one line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.params)?;
        if !self.params.is_greedy() {
            write!(f, " (seed {})", self.seed)?;
        }
        Ok(())
    }
}

/// The generator of a seed. The key is the seed as 8 little-endian bytes and zeros, so that the numbers do not
/// depend on a library's way of stretching seeds.
fn generator(seed: u64) -> ChaCha8Rng {
    let mut key = [0; 32];
    key[..8].copy_from_slice(&seed.to_le_bytes());
    ChaCha8Rng::from_seed(key)
}

/// The last accepted tokens and how often each occurs among them. It grows by use, not by the window asked for.
#[derive(Clone, Debug, Default)]
struct History {
    capacity: usize,
    tokens: VecDeque<u32>,
    counts: HashMap<u32, u32>,
}

impl History {
    fn push(&mut self, token: u32) {
        if self.tokens.len() == self.capacity
            && let Some(oldest) = self.tokens.pop_front()
            && let Some(count) = self.counts.get_mut(&oldest)
        {
            *count -= 1;
            if *count == 0 {
                self.counts.remove(&oldest);
            }
        }
        self.tokens.push_back(token);
        *self.counts.entry(token).or_insert(0) += 1;
    }
}
