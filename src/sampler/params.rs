//! What a sampler is told to do: the settings, their order, presets, and what the model file itself asks for.

use std::fmt;
use std::str::FromStr;

use super::SamplerError;
use super::dry::DryParams;
use super::selector::Mirostat;

/// One step of the sampling chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Stage {
    /// Repetition, frequency and presence penalties over the last tokens.
    Penalties,
    /// Penalties on tokens that go on with a repetition.
    Dry,
    /// Keeps the logits near the largest, in standard deviations (top-nσ, Tang et al. 2024).
    TopNSigma,
    /// Keeps the `top_k` largest logits.
    TopK,
    /// Keeps the tokens whose surprise is nearest to the expected one (locally typical sampling, Meister et al. 2022).
    TypicalP,
    /// Keeps the smallest set of most probable tokens whose sum reaches `top_p` (nucleus sampling, Holtzman et al. 2019).
    TopP,
    /// Keeps the tokens at least `min_p` times as probable as the best one.
    MinP,
    /// Now and then takes out the most probable tokens but for the last of them (exclude top choices).
    Xtc,
    /// Divides the logits by the temperature.
    Temperature,
    /// Draws near a target probability instead of by probability; always last, wherever it is listed.
    AdaptiveP,
}

impl Stage {
    /// Every stage.
    pub const ALL: [Stage; 10] = [
        Stage::Penalties,
        Stage::Dry,
        Stage::TopNSigma,
        Stage::TopK,
        Stage::TypicalP,
        Stage::TopP,
        Stage::MinP,
        Stage::Xtc,
        Stage::Temperature,
        Stage::AdaptiveP,
    ];

    /// llama.cpp's order: every stage but adaptive-p.
    pub fn default_order() -> Vec<Stage> {
        Stage::ALL[..9].to_vec()
    }

    /// The name in a `--samplers` list, as in llama.cpp.
    pub fn name(self) -> &'static str {
        match self {
            Stage::Penalties => "penalties",
            Stage::Dry => "dry",
            Stage::TopNSigma => "top_n_sigma",
            Stage::TopK => "top_k",
            Stage::TypicalP => "typ_p",
            Stage::TopP => "top_p",
            Stage::MinP => "min_p",
            Stage::Xtc => "xtc",
            Stage::Temperature => "temperature",
            Stage::AdaptiveP => "adaptive_p",
        }
    }

    /// The letter in a `--sampler-seq`, as in llama.cpp.
    pub fn letter(self) -> char {
        match self {
            Stage::Penalties => 'e',
            Stage::Dry => 'd',
            Stage::TopNSigma => 's',
            Stage::TopK => 'k',
            Stage::TypicalP => 'y',
            Stage::TopP => 'p',
            Stage::MinP => 'm',
            Stage::Xtc => 'x',
            Stage::Temperature => 't',
            Stage::AdaptiveP => 'a',
        }
    }

    fn from_name(name: &str) -> Option<Stage> {
        Some(match name.replace(['-', '_'], "").to_ascii_lowercase().as_str() {
            "penalties" => Stage::Penalties,
            "dry" => Stage::Dry,
            "topnsigma" => Stage::TopNSigma,
            "topk" => Stage::TopK,
            "typp" | "typ" | "typicalp" | "typical" => Stage::TypicalP,
            "topp" | "nucleus" => Stage::TopP,
            "minp" => Stage::MinP,
            "xtc" => Stage::Xtc,
            "temperature" | "temp" => Stage::Temperature,
            "adaptivep" => Stage::AdaptiveP,
            _ => return None,
        })
    }
}

/// The stage that llama.cpp's lists may hold and this sampler lacks, and its letter.
const NOT_IMPLEMENTED: (&str, char) = ("infill", 'i');

/// A list of stages as written in `--samplers` or in `general.sampling.sequence`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Order {
    /// The stages, in order; one may occur more than once.
    pub stages: Vec<Stage>,
    /// Names known to llama.cpp that this sampler does not have and leaves out.
    pub left_out: Vec<String>,
}

impl FromStr for Order {
    type Err = SamplerError;

    /// Parses `penalties;top_k;temperature`: names separated by semicolons, case and `-`/`_` do not matter.
    fn from_str(text: &str) -> Result<Order, SamplerError> {
        let mut order = Order::default();
        for name in text.split(';').map(str::trim).filter(|name| !name.is_empty()) {
            let plain = name.replace(['-', '_'], "").to_ascii_lowercase();
            match Stage::from_name(name) {
                Some(stage) => order.stages.push(stage),
                None if plain == NOT_IMPLEMENTED.0 => order.left_out.push(name.to_owned()),
                None => return Err(SamplerError::UnknownStage { name: name.to_owned() }),
            }
        }
        Ok(order)
    }
}

impl Order {
    /// Parses `edskypmxt`: a letter for each stage.
    ///
    /// # Errors
    /// A letter that stands for no stage.
    pub fn from_letters(letters: &str) -> Result<Order, SamplerError> {
        let mut order = Order::default();
        for letter in letters.chars() {
            match Stage::ALL.into_iter().find(|stage| stage.letter() == letter) {
                Some(stage) => order.stages.push(stage),
                None if letter == NOT_IMPLEMENTED.1 => order.left_out.push(NOT_IMPLEMENTED.0.to_owned()),
                None => return Err(SamplerError::UnknownLetter { letter }),
            }
        }
        Ok(order)
    }
}

/// Settings published by the authors of a model family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Preset {
    /// Qwen3 with thinking: temperature 0.6, top-p 0.95, top-k 20, min-p 0.
    Qwen3Thinking,
    /// Qwen3 without thinking: temperature 0.7, top-p 0.8, top-k 20, min-p 0.
    Qwen3,
}

impl Preset {
    /// Every preset.
    pub const ALL: [Preset; 2] = [Preset::Qwen3Thinking, Preset::Qwen3];

    /// The name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Preset::Qwen3Thinking => "qwen3-thinking",
            Preset::Qwen3 => "qwen3",
        }
    }

    /// Sets the published values and leaves the rest of `params` as it is.
    pub fn apply(self, params: &mut SamplerParams) {
        let (temperature, top_p) = match self {
            Preset::Qwen3Thinking => (0.6, 0.95),
            Preset::Qwen3 => (0.7, 0.8),
        };
        params.temperature = temperature;
        params.top_p = top_p;
        params.top_k = 20;
        params.min_p = 0.0;
    }
}

impl FromStr for Preset {
    type Err = SamplerError;

    fn from_str(name: &str) -> Result<Preset, SamplerError> {
        let found = Preset::ALL.into_iter().find(|preset| preset.name() == name);
        found.ok_or_else(|| SamplerError::UnknownPreset { name: name.to_owned() })
    }
}

/// How to choose the next token. The defaults are llama.cpp's; no penalty is on.
#[derive(Clone, Debug, PartialEq)]
pub struct SamplerParams {
    /// Divides the logits. 0 (or less) takes the largest logit, the lowest id on ties, whatever is kept otherwise;
    /// logit bias, penalties, DRY and XTC still count.
    pub temperature: f32,
    /// The temperature goes up and down by this much with the entropy; 0 or less: it is fixed.
    pub dynatemp_range: f32,
    /// The power of the relative entropy that the temperature follows.
    pub dynatemp_exponent: f32,
    /// How many standard deviations below the largest logit are kept; 0 or less: all.
    pub top_n_sigma: f32,
    /// How often XTC acts, from 0 (off) to 1.
    pub xtc_probability: f32,
    /// How probable a token must be for XTC to see it; above 0.5: off, as two tokens cannot be.
    pub xtc_threshold: f32,
    /// Mirostat, which replaces every stage but the temperature.
    pub mirostat: Mirostat,
    /// Mirostat's target: the surprise per token, in bits.
    pub mirostat_tau: f32,
    /// How fast mirostat follows.
    pub mirostat_eta: f32,
    /// The probability near which adaptive-p draws; negative: off. It has to be listed in the order too.
    pub adaptive_target: f32,
    /// How long adaptive-p remembers: over about 1/(1 - decay) tokens; up to 0.99.
    pub adaptive_decay: f32,
    /// Penalties on going on with a repetition.
    pub dry: DryParams,
    /// How many of the largest logits to keep; 0 or less, or the size of the vocabulary and more: all.
    pub top_k: i32,
    /// The probability that the kept tokens must reach together; 1 or more: off. At least one token is kept.
    pub top_p: f32,
    /// The least probability kept, relative to the best token's; 0: off.
    pub min_p: f32,
    /// The probability that the most typical tokens must exceed together; 1 or more: off.
    pub typical_p: f32,
    /// Divides positive logits of repeated tokens and multiplies the others; 1: off.
    pub repeat_penalty: f32,
    /// Subtracted from the logit of a repeated token once per occurrence; 0: off.
    pub frequency_penalty: f32,
    /// Subtracted from the logit of a repeated token; 0: off.
    pub presence_penalty: f32,
    /// How many of the last accepted tokens (prompt included) the penalties look at; 0: no penalties.
    pub penalty_last_n: u32,
    /// Added to the logits of single tokens before everything else; minus infinity bans a token.
    pub logit_bias: Vec<(u32, f32)>,
    /// The stages in the order in which they work. A stage that is not listed is off.
    pub order: Vec<Stage>,
    /// What the model file asks for and this sampler does not have; only shown.
    pub left_out: Vec<String>,
}

impl Default for SamplerParams {
    fn default() -> SamplerParams {
        SamplerParams {
            temperature: 0.8,
            dynatemp_range: 0.0,
            dynatemp_exponent: 1.0,
            top_n_sigma: -1.0,
            xtc_probability: 0.0,
            xtc_threshold: 0.1,
            mirostat: Mirostat::Off,
            mirostat_tau: 5.0,
            mirostat_eta: 0.1,
            adaptive_target: -1.0,
            adaptive_decay: 0.9,
            dry: DryParams::default(),
            top_k: 40,
            top_p: 0.95,
            min_p: 0.05,
            typical_p: 1.0,
            repeat_penalty: 1.0,
            frequency_penalty: 0.0,
            presence_penalty: 0.0,
            penalty_last_n: 64,
            logit_bias: Vec::new(),
            order: Stage::default_order(),
            left_out: Vec::new(),
        }
    }
}

impl SamplerParams {
    /// The plain softmax: temperature 1, nothing cut off, no penalty.
    pub fn neutral() -> SamplerParams {
        SamplerParams { temperature: 1.0, top_k: 0, top_p: 1.0, min_p: 0.0, ..SamplerParams::default() }
    }

    /// Always the most probable token.
    pub fn greedy() -> SamplerParams {
        SamplerParams { temperature: 0.0, ..SamplerParams::neutral() }
    }

    /// Whether the temperature asks for the largest logit instead of a draw.
    pub fn is_greedy(&self) -> bool {
        self.temperature <= 0.0 && self.dynatemp_range <= 0.0
    }

    /// Checks the values.
    ///
    /// # Errors
    /// Names the first setting whose value has no meaning, with what was expected.
    pub fn validate(&self) -> Result<(), SamplerError> {
        let bad = |name: &str, value: f32, expected| {
            Err(SamplerError::BadValue { name: name.to_owned(), value: value.to_string(), expected })
        };
        if !self.temperature.is_finite() {
            return bad("temperature", self.temperature, "a finite number, 0 for the most probable token");
        }
        for (name, p) in [("top_p", self.top_p), ("typical_p", self.typical_p)] {
            if !(p.is_finite() && p >= 0.0) {
                return bad(name, p, "a probability from 0 to 1 (1 turns it off)");
            }
        }
        for (name, p) in [("min_p", self.min_p), ("xtc_probability", self.xtc_probability)] {
            if !(0.0..=1.0).contains(&p) {
                return bad(name, p, "a probability from 0 (off) to 1");
            }
        }
        if self.xtc_threshold.is_nan() || self.xtc_threshold < 0.0 {
            return bad(
                "xtc_threshold",
                self.xtc_threshold,
                "a probability from 0 to 1 (above 0.5 turns it off)",
            );
        }
        if self.adaptive_target.is_nan() || self.adaptive_target > 1.0 {
            return bad(
                "adaptive_target",
                self.adaptive_target,
                "a probability from 0 to 1 (negative turns it off)",
            );
        }
        if !(0.0..=0.99).contains(&self.adaptive_decay) {
            return bad("adaptive_decay", self.adaptive_decay, "a number from 0 to 0.99");
        }
        if !(self.repeat_penalty.is_finite() && self.repeat_penalty > 0.0) {
            return bad("repeat_penalty", self.repeat_penalty, "a finite number above 0 (1 turns it off)");
        }
        let off_at_0 = [
            ("frequency_penalty", self.frequency_penalty),
            ("presence_penalty", self.presence_penalty),
            ("dynatemp_range", self.dynatemp_range),
            ("top_n_sigma", self.top_n_sigma),
            ("dry_multiplier", self.dry.multiplier),
        ];
        if let Some((name, x)) = off_at_0.into_iter().find(|(_, x)| !x.is_finite()) {
            return bad(name, x, "a finite number (0 turns it off)");
        }
        let numbers = [
            ("dynatemp_exponent", self.dynatemp_exponent),
            ("dry_base", self.dry.base),
            ("mirostat_tau", self.mirostat_tau),
            ("mirostat_eta", self.mirostat_eta),
        ];
        if let Some((name, x)) = numbers.into_iter().find(|(_, x)| !x.is_finite()) {
            return bad(name, x, "a finite number");
        }
        for &(token, bias) in &self.logit_bias {
            if bias.is_nan() || bias == f32::INFINITY {
                return bad(&format!("logit_bias of token {token}"), bias, "a finite number or -inf");
            }
        }
        Ok(())
    }

    /// Whether the penalties change anything.
    pub(super) fn has_penalties(&self) -> bool {
        let neutral =
            self.repeat_penalty == 1.0 && self.frequency_penalty == 0.0 && self.presence_penalty == 0.0;
        self.penalty_last_n > 0 && !neutral && self.order.contains(&Stage::Penalties)
    }

    /// Whether DRY changes anything.
    pub(super) fn has_dry(&self) -> bool {
        self.dry.is_on() && self.order.contains(&Stage::Dry)
    }

    /// Whether XTC takes its random number.
    pub(super) fn has_xtc(&self) -> bool {
        self.xtc_probability > 0.0 && self.xtc_threshold <= 0.5 && self.order.contains(&Stage::Xtc)
    }

    /// Whether the draw is adaptive-p's.
    pub(super) fn has_adaptive_p(&self) -> bool {
        self.adaptive_target >= 0.0 && self.order.contains(&Stage::AdaptiveP)
    }

    fn write_stage(&self, stage: Stage, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = stage.name();
        match stage {
            Stage::Penalties if self.has_penalties() => write!(
                f,
                "penalties over the last {} (repeat {}, frequency {}, presence {})",
                self.penalty_last_n, self.repeat_penalty, self.frequency_penalty, self.presence_penalty
            ),
            Stage::Dry if self.has_dry() => write!(
                f,
                "dry over the last {} ({} times {} to the power of repeated tokens beyond {})",
                self.dry.penalty_last_n, self.dry.multiplier, self.dry.base, self.dry.allowed_length
            ),
            Stage::Xtc if self.has_xtc() => {
                write!(f, "xtc {} (from {})", self.xtc_probability, self.xtc_threshold)
            }
            Stage::TopNSigma if self.top_n_sigma > 0.0 => write!(f, "{name} {}", self.top_n_sigma),
            Stage::AdaptiveP if self.has_adaptive_p() => {
                write!(f, "{name} {} (decay {})", self.adaptive_target, self.adaptive_decay)
            }
            Stage::Temperature if self.dynatemp_range > 0.0 => write!(
                f,
                "temperature {} ± {} (exponent {})",
                self.temperature, self.dynatemp_range, self.dynatemp_exponent
            ),
            Stage::Temperature => write!(f, "temperature {}", self.temperature),
            Stage::TopK if self.top_k > 0 => write!(f, "{name} {}", self.top_k),
            Stage::TypicalP if self.typical_p < 1.0 => write!(f, "{name} {}", self.typical_p),
            Stage::TopP if self.top_p < 1.0 => write!(f, "{name} {}", self.top_p),
            Stage::MinP if self.min_p > 0.0 => write!(f, "{name} {}", self.min_p),
            _ => write!(f, "{name} off"),
        }
    }
}

impl fmt::Display for SamplerParams {
    /// The chain in force, in order, with what is off named as off:
    /// `penalties off > temperature 0.8 > top_k 40 > typ_p off > top_p 0.95 > min_p 0.05 > draw`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.logit_bias.is_empty() {
            write!(f, "logit_bias on {} tokens > ", self.logit_bias.len())?;
        }
        if self.is_greedy() {
            let shown = |stage| match stage {
                Stage::Penalties => true,
                Stage::Dry => self.has_dry(),
                Stage::Xtc => self.has_xtc(),
                _ => false,
            };
            for stage in [Stage::Penalties, Stage::Dry, Stage::Xtc].into_iter().filter(|&stage| shown(stage))
            {
                self.write_stage(stage, f)?;
                f.write_str(" > ")?;
            }
            f.write_str("the largest logit (temperature 0)")?;
        } else if self.mirostat != Mirostat::Off {
            self.write_stage(Stage::Temperature, f)?;
            write!(
                f,
                " > mirostat {} (tau {}, eta {}) > draw",
                self.mirostat as i32, self.mirostat_tau, self.mirostat_eta
            )?;
        } else {
            for &stage in &self.order {
                self.write_stage(stage, f)?;
                f.write_str(" > ")?;
            }
            f.write_str("draw")?;
        }
        if !self.left_out.is_empty() {
            write!(f, "; not available: {}", self.left_out.join(", "))?;
        }
        Ok(())
    }
}
