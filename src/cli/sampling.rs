//! Sampling flags, and the settings that result from them, the file and the defaults.

use std::sync::Arc;

use qgguf::model::Model;
use qgguf::sampler::{Breakers, Mirostat, Order, Preset, Sampler, SamplerParams};
use serde_json::{Value, json};

use super::error::{Failure, Result};
use super::terminal::{escape, note};

/// How the next token is chosen. What is not given comes from the preset, the model file, or the defaults.
#[derive(clap::Args, Debug)]
#[command(next_help_heading = "Sampling")]
pub struct SamplingArgs {
    /// Settings published for a model family: qwen3 or qwen3-thinking
    #[arg(long, value_name = "NAME")]
    preset: Option<Preset>,
    /// Temperature, 0 for always the likeliest token [default: 0.8]
    #[arg(long, alias = "temperature", value_name = "T", allow_negative_numbers = true)]
    temp: Option<f32>,
    /// Keep the N likeliest tokens, 0 for all [default: 40]
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    top_k: Option<i32>,
    /// Keep the likeliest tokens that have the probability P together, 1 for all [default: 0.95]
    #[arg(long, value_name = "P")]
    top_p: Option<f32>,
    /// Keep tokens at least P times as likely as the likeliest, 0 for all [default: 0.05]
    #[arg(long, value_name = "P")]
    min_p: Option<f32>,
    /// Locally typical sampling with probability P, 1 for off [default: 1]
    #[arg(long, alias = "typical-p", value_name = "P")]
    typical: Option<f32>,
    /// Penalty on repeated tokens, 1 for off [default: 1]
    #[arg(long, value_name = "X")]
    repeat_penalty: Option<f32>,
    /// Tokens that the penalties look back on, 0 for off [default: 64]
    #[arg(long, value_name = "N")]
    repeat_last_n: Option<u32>,
    /// Subtracted once from the logit of a repeated token [default: 0]
    #[arg(long, value_name = "X", allow_negative_numbers = true)]
    presence_penalty: Option<f32>,
    /// Subtracted from the logit of a token for every occurrence [default: 0]
    #[arg(long, value_name = "X", allow_negative_numbers = true)]
    frequency_penalty: Option<f32>,
    /// DRY: penalty on tokens that go on with a repetition, 0 for off [default: 0]
    #[arg(long, value_name = "X", allow_negative_numbers = true)]
    dry_multiplier: Option<f32>,
    /// DRY: growth of the penalty with every repeated token [default: 1.75]
    #[arg(long, value_name = "X")]
    dry_base: Option<f32>,
    /// DRY: tokens that may be repeated before the penalty grows [default: 2]
    #[arg(long, value_name = "N")]
    dry_allowed_length: Option<u32>,
    /// DRY: tokens that are searched for repetitions, 0 for off [default: 64]
    #[arg(long, value_name = "N")]
    dry_penalty_last_n: Option<u32>,
    /// DRY: text that ends a repetition, none for no such text; may be repeated [default: newline, colon, quote, *]
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    dry_sequence_breaker: Vec<String>,
    /// XTC: how often the likeliest tokens are left out, 0 for never [default: 0]
    #[arg(long, value_name = "P")]
    xtc_probability: Option<f32>,
    /// XTC: how likely a token must be for that, above 0.5 for off [default: 0.1]
    #[arg(long, value_name = "P")]
    xtc_threshold: Option<f32>,
    /// Keep logits within N standard deviations of the largest, -1 for all [default: -1]
    #[arg(long, alias = "top-nsigma", value_name = "N", allow_negative_numbers = true)]
    top_n_sigma: Option<f32>,
    /// The temperature follows the entropy by up to this much, 0 for off [default: 0]
    #[arg(long, value_name = "T", allow_negative_numbers = true)]
    dynatemp_range: Option<f32>,
    /// The power with which it follows [default: 1]
    #[arg(long, value_name = "X", allow_negative_numbers = true)]
    dynatemp_exp: Option<f32>,
    /// Mirostat 1 or 2 in place of all other samplers but the temperature, 0 for off [default: 0]
    #[arg(long, value_name = "N", value_parser = mirostat)]
    mirostat: Option<Mirostat>,
    /// Mirostat: how fast it learns (eta) [default: 0.1]
    #[arg(long, value_name = "X", allow_negative_numbers = true)]
    mirostat_lr: Option<f32>,
    /// Mirostat: bits of surprise per token to keep to (tau) [default: 5]
    #[arg(long, value_name = "X", allow_negative_numbers = true)]
    mirostat_ent: Option<f32>,
    /// Draw tokens near this probability, -1 for off; list adaptive_p in --samplers [default: -1]
    #[arg(long, value_name = "P", allow_negative_numbers = true)]
    adaptive_target: Option<f32>,
    /// How long adaptive-p remembers, from 0 to 0.99 [default: 0.9]
    #[arg(long, value_name = "X")]
    adaptive_decay: Option<f32>,
    /// Added to the logit of a token: 15043+1, 29905-0.5, 2-inf to ban one; may be repeated
    #[arg(short, long, value_name = "ID±BIAS", value_parser = logit_bias)]
    logit_bias: Vec<(u32, f32)>,
    /// Samplers in their order, with semicolons between them
    /// [default: penalties;dry;top_n_sigma;top_k;typ_p;top_p;min_p;xtc;temperature]
    #[arg(long, value_name = "NAMES")]
    samplers: Option<Order>,
    /// Samplers in their order, a letter for each [default: edskypmxt]
    #[arg(
        long,
        alias = "sampling-seq",
        value_name = "LETTERS",
        value_parser = Order::from_letters,
        overrides_with = "samplers"
    )]
    sampler_seq: Option<Order>,
    /// Seed of the draws, -1 for a random one [default: -1]
    #[arg(short, long, value_name = "N", allow_negative_numbers = true, value_parser = seed)]
    seed: Option<Seed>,
}

/// A seed from the command line; `None` inside is a random one.
#[derive(Clone, Copy, Debug)]
struct Seed(Option<u64>);

fn seed(text: &str) -> Result<Seed, String> {
    match text {
        "-1" => Ok(Seed(None)),
        _ => text.parse().map(|seed| Seed(Some(seed))).map_err(|e| e.to_string()),
    }
}

fn mirostat(text: &str) -> Result<Mirostat, String> {
    let known = text.parse().ok().and_then(Mirostat::from_number);
    known.ok_or_else(|| "expected 0 (off), 1 or 2".to_owned())
}

/// `ID+BIAS` or `ID-BIAS`.
fn logit_bias(text: &str) -> Result<(u32, f32), String> {
    let split = || {
        let (id, bias) = text.split_at(text.find(['+', '-'])?);
        Some((id.trim().parse().ok()?, bias.parse::<f32>().ok()?))
    };
    split()
        .filter(|&(_, bias)| !bias.is_nan() && bias != f32::INFINITY)
        .ok_or_else(|| "a token id, a sign and a number, like 15043+1 or 2-inf".to_owned())
}

/// A sampler with the settings in force.
pub struct Settings {
    /// The sampler.
    pub sampler: Sampler,
    /// Where the settings come from besides defaults and flags.
    from: Vec<&'static str>,
}

impl SamplingArgs {
    /// Defaults, then what the model file says, then the preset, then the flags.
    pub fn settings(&self, model: &Model, ignore_eos: bool) -> Result<Settings> {
        let mut from = Vec::new();
        let mut params = SamplerParams::from_metadata(model.file().metadata())?;
        if params != SamplerParams::default() {
            from.push("the model file");
        }
        if let Some(preset) = self.preset {
            preset.apply(&mut params);
            from.push(preset.name());
        }
        self.apply(&mut params);
        if params.dry.is_on() {
            params.dry.breakers = Arc::new(self.breakers(model));
        }
        if ignore_eos {
            let eog = model.tokenizer().eog_ids();
            params.logit_bias.extend(eog.iter().map(|&id| (id, f32::NEG_INFINITY)));
        }
        let n_vocab = model.hparams().n_vocab;
        if let Some((id, _)) = params.logit_bias.iter().find(|(id, _)| *id as usize >= n_vocab) {
            return Err(Failure::usage(format!(
                "--logit-bias: token {id} is outside the vocabulary of {n_vocab}"
            )));
        }
        let sampler = Sampler::new(params, self.seed()).map_err(Failure::usage)?;
        Ok(Settings { sampler, from })
    }

    /// The seed that was given, unless a random one was asked for.
    pub fn seed(&self) -> Option<u64> {
        self.seed.and_then(|seed| seed.0)
    }

    /// The first breaker given replaces llama.cpp's; "none" stands for no breaker.
    fn breakers(&self, model: &Model) -> Breakers {
        let given = self.dry_sequence_breaker.iter().map(String::as_str).filter(|&text| text != "none");
        if self.dry_sequence_breaker.is_empty() {
            Breakers::new(model.tokenizer(), Breakers::DEFAULT)
        } else {
            Breakers::new(model.tokenizer(), given)
        }
    }

    fn apply(&self, params: &mut SamplerParams) {
        fn set<T: Copy>(field: &mut T, flag: Option<T>) {
            *field = flag.unwrap_or(*field);
        }
        set(&mut params.temperature, self.temp);
        set(&mut params.top_k, self.top_k);
        set(&mut params.top_p, self.top_p);
        set(&mut params.min_p, self.min_p);
        set(&mut params.typical_p, self.typical);
        set(&mut params.repeat_penalty, self.repeat_penalty);
        set(&mut params.penalty_last_n, self.repeat_last_n);
        set(&mut params.presence_penalty, self.presence_penalty);
        set(&mut params.frequency_penalty, self.frequency_penalty);
        set(&mut params.dry.multiplier, self.dry_multiplier);
        set(&mut params.dry.base, self.dry_base);
        set(&mut params.dry.allowed_length, self.dry_allowed_length);
        set(&mut params.dry.penalty_last_n, self.dry_penalty_last_n);
        set(&mut params.xtc_probability, self.xtc_probability);
        set(&mut params.xtc_threshold, self.xtc_threshold);
        set(&mut params.top_n_sigma, self.top_n_sigma);
        set(&mut params.dynatemp_range, self.dynatemp_range);
        set(&mut params.dynatemp_exponent, self.dynatemp_exp);
        set(&mut params.mirostat, self.mirostat);
        set(&mut params.mirostat_eta, self.mirostat_lr);
        set(&mut params.mirostat_tau, self.mirostat_ent);
        set(&mut params.adaptive_target, self.adaptive_target);
        set(&mut params.adaptive_decay, self.adaptive_decay);
        params.logit_bias.extend(&self.logit_bias);
        if let Some(order) = self.samplers.as_ref().or(self.sampler_seq.as_ref()) {
            params.order = order.stages.clone();
            params.left_out.extend_from_slice(&order.left_out);
        }
    }
}

impl Settings {
    /// Says on stderr what is in force.
    pub fn announce(&self) {
        let from = match self.from.as_slice() {
            [] => String::new(),
            from => format!(" (from {})", from.join(" and ")),
        };
        note!("qgguf: sampling{from}: {}", escape(&self.sampler.params().to_string()));
        if !self.sampler.params().is_greedy() {
            note!("qgguf: seed {}", self.sampler.seed());
        }
    }

    /// The settings, for programs.
    pub fn json(&self) -> Value {
        let p = self.sampler.params();
        // 0.8 and not 0.800000011920929; JSON has no infinity.
        let number = |x: f32| x.to_string().parse::<f64>().ok().filter(|x| x.is_finite());
        let bias = |bias: f32| number(bias).map_or_else(|| json!("-inf"), |bias| json!(bias));
        let biases: Vec<Value> = p.logit_bias.iter().map(|&(id, b)| json!([id, bias(b)])).collect();
        json!({
            "order": p.order.iter().map(|stage| stage.name()).collect::<Vec<_>>(),
            "temperature": number(p.temperature),
            "top_k": p.top_k,
            "top_p": number(p.top_p),
            "min_p": number(p.min_p),
            "typical_p": number(p.typical_p),
            "repeat_penalty": number(p.repeat_penalty),
            "repeat_last_n": p.penalty_last_n,
            "presence_penalty": number(p.presence_penalty),
            "frequency_penalty": number(p.frequency_penalty),
            "dry_multiplier": number(p.dry.multiplier),
            "dry_base": number(p.dry.base),
            "dry_allowed_length": p.dry.allowed_length,
            "dry_penalty_last_n": p.dry.penalty_last_n,
            "xtc_probability": number(p.xtc_probability),
            "xtc_threshold": number(p.xtc_threshold),
            "top_n_sigma": number(p.top_n_sigma),
            "dynatemp_range": number(p.dynatemp_range),
            "dynatemp_exponent": number(p.dynatemp_exponent),
            "mirostat": p.mirostat as i32,
            "mirostat_tau": number(p.mirostat_tau),
            "mirostat_eta": number(p.mirostat_eta),
            "adaptive_target": number(p.adaptive_target),
            "adaptive_decay": number(p.adaptive_decay),
            "logit_bias": biases,
            "seed": self.sampler.seed(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logit_biases_have_a_sign() {
        assert_eq!(logit_bias("15043+1"), Ok((15043, 1.0)));
        assert_eq!(logit_bias("2-inf"), Ok((2, f32::NEG_INFINITY)));
        assert_eq!(logit_bias("7-1e-3"), Ok((7, -1e-3)));
        for wrong in ["7", "7+inf", "7+nan", "+1", "x+1", "7=1", "-1+2"] {
            assert!(logit_bias(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn seeds_are_numbers_or_minus_one() {
        assert_eq!(seed("42").unwrap().0, Some(42));
        assert_eq!(seed("-1").unwrap().0, None);
        assert!(seed("-2").is_err());
    }
}
