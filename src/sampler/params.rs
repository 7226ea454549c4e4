//! What a sampler is told to do: the settings, their order, presets, and what the model file itself asks for.

use std::fmt;
use std::str::FromStr;

use super::SamplerError;

/// One step of the sampling chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Stage {
    /// Repetition, frequency and presence penalties over the last tokens.
    Penalties,
    /// Divides the logits by the temperature.
    Temperature,
    /// Keeps the `top_k` largest logits.
    TopK,
    /// Keeps the tokens whose surprise is nearest to the expected one (locally typical sampling, Meister et al. 2022).
    TypicalP,
    /// Keeps the smallest set of most probable tokens whose sum reaches `top_p` (nucleus sampling, Holtzman et al. 2019).
    TopP,
    /// Keeps the tokens at least `min_p` times as probable as the best one.
    MinP,
}

impl Stage {
    /// Every stage, in the default order.
    pub const DEFAULT_ORDER: [Stage; 6] =
        [Stage::Penalties, Stage::Temperature, Stage::TopK, Stage::TypicalP, Stage::TopP, Stage::MinP];

    /// The name in a `--samplers` list, as in llama.cpp.
    pub fn name(self) -> &'static str {
        match self {
            Stage::Penalties => "penalties",
            Stage::Temperature => "temperature",
            Stage::TopK => "top_k",
            Stage::TypicalP => "typ_p",
            Stage::TopP => "top_p",
            Stage::MinP => "min_p",
        }
    }

    fn from_name(name: &str) -> Option<Stage> {
        Some(match name.replace(['-', '_'], "").to_ascii_lowercase().as_str() {
            "penalties" => Stage::Penalties,
            "temperature" | "temp" => Stage::Temperature,
            "topk" => Stage::TopK,
            "typp" | "typ" | "typicalp" | "typical" => Stage::TypicalP,
            "topp" | "nucleus" => Stage::TopP,
            "minp" => Stage::MinP,
            _ => return None,
        })
    }
}

/// Stages that llama.cpp's lists may hold and this sampler lacks. They do nothing in llama.cpp either until a
/// value is set for them, so its default list can be pasted.
const NOT_IMPLEMENTED: [&str; 5] = ["dry", "topnsigma", "xtc", "infill", "adaptivep"];

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
                None if NOT_IMPLEMENTED.contains(&plain.as_str()) => order.left_out.push(name.to_owned()),
                None => return Err(SamplerError::UnknownStage { name: name.to_owned() }),
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

/// How to choose the next token. The defaults are llama.cpp's, except that the temperature comes first in the
/// order; no penalty is on.
#[derive(Clone, Debug, PartialEq)]
pub struct SamplerParams {
    /// Divides the logits. 0 (or less) takes the largest logit, the lowest id on ties, whatever is kept otherwise;
    /// logit bias and penalties still count.
    pub temperature: f32,
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
            top_k: 40,
            top_p: 0.95,
            min_p: 0.05,
            typical_p: 1.0,
            repeat_penalty: 1.0,
            frequency_penalty: 0.0,
            presence_penalty: 0.0,
            penalty_last_n: 64,
            logit_bias: Vec::new(),
            order: Stage::DEFAULT_ORDER.to_vec(),
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
        self.temperature <= 0.0
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
        if !(0.0..=1.0).contains(&self.min_p) {
            return bad("min_p", self.min_p, "a probability from 0 (off) to 1");
        }
        if !(self.repeat_penalty.is_finite() && self.repeat_penalty > 0.0) {
            return bad("repeat_penalty", self.repeat_penalty, "a finite number above 0 (1 turns it off)");
        }
        for (name, p) in
            [("frequency_penalty", self.frequency_penalty), ("presence_penalty", self.presence_penalty)]
        {
            if !p.is_finite() {
                return bad(name, p, "a finite number (0 turns it off)");
            }
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

    fn write_stage(&self, stage: Stage, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = stage.name();
        match stage {
            Stage::Penalties if self.has_penalties() => write!(
                f,
                "penalties over the last {} (repeat {}, frequency {}, presence {})",
                self.penalty_last_n, self.repeat_penalty, self.frequency_penalty, self.presence_penalty
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
            self.write_stage(Stage::Penalties, f)?;
            f.write_str(" > the largest logit (temperature 0)")?;
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
