//! From logits to the next token.
//!
//! [`SamplerParams`] says what to do and in which order, [`Sampler`] holds the random numbers and the recent
//! tokens. A fixed seed gives the same tokens on every machine: the random numbers are ChaCha8's, and weights and
//! sums do not depend on a math library or on the order of additions.

mod candidates;
mod constraint;
mod dry;
mod file_defaults;
mod nucleus;
mod params;
mod selector;
#[cfg(test)]
mod tests;

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::hash::{BuildHasher, Hasher, RandomState};

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

use candidates::Candidates;
pub use constraint::{Constraint, ConstraintError};
use dry::Dry;
pub use dry::{Breakers, DryParams};
pub use params::{Order, Preset, SamplerParams, Stage};
pub use selector::Mirostat;
use selector::Selector;

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
    #[error("unknown sampling stage '{name}'; known: {}", Stage::ALL.map(Stage::name).join(", "))]
    UnknownStage {
        /// The name.
        name: String,
    },
    /// A sequence of letters has one that stands for no stage.
    #[error(
        "unknown letter '{letter}' for a sampling stage; known: {}",
        Stage::ALL.map(|stage| format!("{} ({})", stage.letter(), stage.name())).join(", ")
    )]
    UnknownLetter {
        /// The letter.
        letter: char,
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
    /// A constraint cannot tell what it allows.
    #[error(transparent)]
    Constraint(#[from] ConstraintError),
    /// A mask has no bit set for any token.
    #[error("the constraint allows no token to come next")]
    NothingAllowed,
}

/// Chooses tokens. It allocates while the first token is drawn; later draws reuse its buffers.
///
/// A clone goes on with the same random numbers and the same recent tokens.
#[derive(Clone)]
pub struct Sampler {
    params: SamplerParams,
    seed: u64,
    rng: ChaCha8Rng,
    /// XTC's own stream of the same seed: with or without it, the draws have the same numbers.
    xtc_rng: ChaCha8Rng,
    history: History,
    dry: Dry,
    selector: Selector,
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
        Ok(Sampler {
            seed,
            rng: generator(seed, Stream::Draws),
            xtc_rng: generator(seed, Stream::Xtc),
            history,
            dry: Dry::default(),
            selector: Selector::new(&params),
            candidates: Candidates::new(),
            params,
        })
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
    /// number (none at temperature 0), and where XTC is on exactly one more, of a stream of its own. Penalties, DRY and
    /// adaptive-p see the token only with [`Sampler::accept`]; mirostat counts it as drawn.
    ///
    /// # Errors
    /// A NaN or infinite logit, by its token; a bias for a token outside the vocabulary; nothing to choose from.
    pub fn sample(&mut self, logits: &[f32]) -> Result<u32, SamplerError> {
        self.candidates.reset(logits)?;
        self.choose()
    }

    /// [`Sampler::sample`] among the tokens that `mask` allows: bit `i % 32` of word `i / 32` is set for token `i`,
    /// tokens beyond the mask are forbidden. A forbidden token is out before every stage, so that what is cut off and
    /// how probable the rest is depends on allowed tokens alone.
    ///
    /// # Errors
    /// As for [`Sampler::sample`]; a mask that allows no token.
    pub fn sample_within(&mut self, logits: &[f32], mask: &[u32]) -> Result<u32, SamplerError> {
        self.candidates.reset(logits)?;
        self.candidates.restrict(mask)?;
        self.choose()
    }

    /// Stages and draw, once the candidates are set.
    fn choose(&mut self) -> Result<u32, SamplerError> {
        let xtc =
            self.params.has_xtc() && uniform(&mut self.xtc_rng) <= f64::from(self.params.xtc_probability);
        self.run(xtc)?;
        if self.params.is_greedy() {
            return self.candidates.best();
        }
        let token = self.candidates.draw(uniform(&mut self.rng))?;
        if self.params.mirostat != Mirostat::Off {
            self.selector.surprise(self.candidates.probability(token), &self.params);
        } else if self.params.has_adaptive_p() {
            self.selector.draw(token, self.candidates.probability_before(token));
        }
        Ok(token)
    }

    /// The tokens that [`Sampler::sample`] would draw from and their probabilities, most probable first. No random
    /// number is used up.
    ///
    /// # Errors
    /// As for [`Sampler::sample`].
    pub fn distribution(&mut self, logits: &[f32]) -> Result<Vec<(u32, f64)>, SamplerError> {
        self.candidates.reset(logits)?;
        let xtc = self.params.has_xtc()
            && uniform(&mut self.xtc_rng.clone()) <= f64::from(self.params.xtc_probability);
        self.run(xtc)?;
        if self.params.is_greedy() {
            return Ok(vec![(self.candidates.best()?, 1.0)]);
        }
        self.candidates.distribution()
    }

    /// Tells penalties, DRY and adaptive-p that `token` is part of the text now. Prompt tokens count too, as in llama.cpp.
    pub fn accept(&mut self, token: u32) {
        if self.params.has_penalties() {
            self.history.push(token);
        }
        if self.params.has_dry() {
            self.dry.push(token, &self.params.dry);
        }
        if self.params.has_adaptive_p() {
            self.selector.accept(token, &self.params);
        }
    }

    /// Forgets the accepted tokens and what mirostat and adaptive-p made of those drawn, for a new text. The random numbers go on.
    pub fn forget(&mut self) {
        self.history.tokens.clear();
        self.history.counts.clear();
        self.dry.forget();
        self.selector = Selector::new(&self.params);
    }

    fn bias(&mut self) -> Result<(), SamplerError> {
        let n_vocab = self.candidates.n_vocab();
        for &(token, bias) in &self.params.logit_bias {
            if token as usize >= n_vocab {
                return Err(SamplerError::BiasOutOfRange { token, n_vocab });
            }
            self.candidates.change_logit(token, |l| l + bias);
        }
        Ok(())
    }

    /// Biases and stages, up to the draw; `xtc` says whether XTC acts this time.
    fn run(&mut self, xtc: bool) -> Result<(), SamplerError> {
        self.bias()?;
        if self.params.is_greedy() {
            return self.run_stages(xtc, |stage| matches!(stage, Stage::Penalties | Stage::Dry | Stage::Xtc));
        }
        if self.params.mirostat != Mirostat::Off {
            return self.run_mirostat();
        }
        self.run_stages(xtc, |_| true)?;
        if self.params.has_adaptive_p() {
            self.candidates.prefer(self.selector.aim(&self.params))?;
        }
        Ok(())
    }

    fn run_stages(&mut self, xtc: bool, counts: impl Fn(Stage) -> bool) -> Result<(), SamplerError> {
        for i in 0..self.params.order.len() {
            let stage = self.params.order[i];
            if !counts(stage) {
                continue;
            }
            match stage {
                Stage::Penalties => self.penalize(),
                Stage::Dry => self.penalize_repetitions(),
                Stage::TopNSigma => self.candidates.top_n_sigma(self.params.top_n_sigma),
                Stage::TopK => self.candidates.top_k(usize::try_from(self.params.top_k).unwrap_or(0)),
                Stage::TypicalP => self.candidates.typical(self.params.typical_p)?,
                Stage::TopP => self.candidates.top_p(self.params.top_p)?,
                Stage::MinP => self.candidates.min_p(self.params.min_p)?,
                Stage::Xtc if xtc => self.candidates.exclude_top(self.params.xtc_threshold)?,
                Stage::Temperature => self.heat()?,
                Stage::Xtc | Stage::AdaptiveP => {}
            }
        }
        Ok(())
    }

    fn run_mirostat(&mut self) -> Result<(), SamplerError> {
        /// The logits whose slope mirostat 1 looks at.
        const SLOPE: usize = 100;
        self.heat()?;
        match self.params.mirostat {
            Mirostat::V1 => {
                let n_vocab = self.candidates.n_vocab();
                let k = selector::mirostat_top_k(self.candidates.falls(SLOPE), self.selector.mu, n_vocab);
                self.candidates.top_k(k);
                Ok(())
            }
            _ => self.candidates.at_least(libm::exp2(-self.selector.mu)),
        }
    }

    fn heat(&mut self) -> Result<(), SamplerError> {
        let SamplerParams { temperature, dynatemp_range: range, dynatemp_exponent, .. } = self.params;
        if range > 0.0 {
            let low = (temperature - range).max(0.0);
            return self.candidates.heat_by_entropy(low, temperature + range, dynatemp_exponent);
        }
        self.candidates.heat(temperature);
        Ok(())
    }

    fn penalize_repetitions(&mut self) {
        if !self.params.has_dry() {
            return;
        }
        self.candidates.settle_temperature();
        for (token, penalty) in self.dry.penalties(&self.params.dry) {
            self.candidates.change_logit(token, |l| (l - penalty).max(f32::MIN));
        }
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

/// What random numbers are for.
#[derive(Clone, Copy)]
enum Stream {
    Draws,
    Xtc,
}

/// The generator of a seed. The key is the seed as 8 little-endian bytes and zeros, so that the numbers do not
/// depend on a library's way of stretching seeds.
fn generator(seed: u64, stream: Stream) -> ChaCha8Rng {
    let mut key = [0; 32];
    key[..8].copy_from_slice(&seed.to_le_bytes());
    let mut rng = ChaCha8Rng::from_seed(key);
    rng.set_stream(stream as u64);
    rng
}

/// A number in `0.0..1.0`: 53 random bits, every f64 on that grid is as likely.
fn uniform(rng: &mut ChaCha8Rng) -> f64 {
    (rng.next_u64() >> 11) as f64 * (0.5f64).powi(53)
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
