//! Sampling flags, and the settings that result from them, the file and the defaults.

use qgguf::model::Model;
use qgguf::sampler::{Order, Preset, Sampler, SamplerParams};
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
    /// Added to the logit of a token: 15043+1, 29905-0.5, 2-inf to ban one; may be repeated
    #[arg(short, long, value_name = "ID±BIAS", value_parser = logit_bias)]
    logit_bias: Vec<(u32, f32)>,
    /// Samplers in their order, with semicolons between them
    /// [default: penalties;temperature;top_k;typ_p;top_p;min_p]
    #[arg(long, value_name = "NAMES")]
    samplers: Option<Order>,
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
        params.logit_bias.extend(&self.logit_bias);
        if let Some(order) = &self.samplers {
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
