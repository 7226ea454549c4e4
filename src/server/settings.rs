//! How an answer is drawn: the fields that every family has, under whatever names.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::sampler::{Breakers, Mirostat, Order, SamplerParams, Stage};
use crate::tokenizer::Tokenizer;

use super::error::{ApiError, Result};
use super::fields::{Fields, kind};
use super::limits::{MAX_LOGIT_BIAS, MAX_STOP_BYTES, MAX_STOPS, at_most};

/// How the answers to one request are drawn and when they end.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Sampling.
    pub params: SamplerParams,
    /// The seed of the first answer; the next ones count on from it. `None` for random ones.
    pub seed: Option<u64>,
    /// Tokens of an answer at most; `None` for as many as the context holds.
    pub n_predict: Option<usize>,
    /// Texts that end an answer.
    pub stop: Vec<String>,
    /// Never end by an end-of-generation token.
    pub ignore_eos: bool,
    /// Answers to each prompt.
    pub n: usize,
    /// Whether the prompt's start may come from what others evaluated.
    pub cache_prompt: bool,
    /// `Some(k)`: tell the logprobs of the tokens drawn and of the `k` most probable ones.
    pub logprobs: Option<usize>,
}

/// What holds where a request says nothing.
#[derive(Clone, Debug, Default)]
pub struct Defaults {
    /// Sampling.
    pub params: SamplerParams,
    /// The seed; `None` for random ones.
    pub seed: Option<u64>,
    /// Tokens of an answer at most.
    pub n_predict: Option<usize>,
}

/// Names of the limit on an answer's tokens, the one that wins first.
const LENGTH: [&str; 4] = ["n_predict", "max_completion_tokens", "max_tokens", "max_output_tokens"];

/// Says whether a setting does nothing at a value.
type DoesNothing = fn(f64) -> bool;

/// Sampling that llama-server has and this server has not.
const REFUSED: [(&str, DoesNothing); 4] = [
    ("min_keep", |x| x == 0.0),
    ("n_indent", |x| x == 0.0),
    ("t_max_predict_ms", |x| x <= 0.0),
    ("n_discard", |x| x == 0.0),
];

impl Settings {
    /// The settings of a server without a request.
    pub fn new(defaults: &Defaults) -> Settings {
        Settings {
            params: defaults.params.clone(),
            seed: defaults.seed,
            n_predict: defaults.n_predict,
            stop: Vec::new(),
            ignore_eos: false,
            n: 1,
            cache_prompt: true,
            logprobs: None,
        }
    }

    /// Takes the fields that OpenAI's and the native routes share out of `fields`; what is absent keeps its default.
    ///
    /// # Errors
    /// A value of the wrong type, out of range, or one that this server cannot honour; each by its field.
    pub fn read(
        fields: &mut Fields,
        defaults: &Defaults,
        tokenizer: &Tokenizer,
        max_choices: usize,
    ) -> Result<Settings> {
        for (name, is_off) in REFUSED {
            fields.refuse_unless(name, |value| value.as_f64().is_some_and(is_off))?;
        }
        fields.refuse_unless("lora", |value| value.as_array().is_some_and(Vec::is_empty))?;
        fields.refuse_unless("post_sampling_probs", |value| value == &json!(false))?;
        let mut settings = Settings::new(defaults);
        settings.read_params(fields)?;
        if settings.params.dry.is_on() {
            let texts = match fields.value("dry_sequence_breakers") {
                Some(texts) => stops(&fields.name("dry_sequence_breakers"), texts)?,
                None => Breakers::DEFAULT.map(str::to_owned).into(),
            };
            let texts = texts.iter().map(String::as_str);
            settings.params.dry.breakers = Arc::new(Breakers::new(tokenizer, texts));
        }
        if let Some(bias) = fields.value("logit_bias") {
            settings.params.logit_bias.extend(logit_bias(&fields.name("logit_bias"), bias, tokenizer)?);
        }
        if let Some(seed) = fields.take::<i64>("seed")? {
            settings.seed = (seed != -1).then_some(seed as u64);
        }
        settings.read_length(fields)?;
        if let Some(stop) = fields.value("stop") {
            settings.stop = stops(&fields.name("stop"), stop)?;
        }
        if let Some(n) = fields.integer("n", 1, max_choices as i64)? {
            settings.n = n as usize;
        }
        if let Some(n) = fields.integer("n_cmpl", 1, max_choices as i64)? {
            settings.n = n as usize;
        }
        // As many candidates as answers: nothing is chosen among them.
        let n = settings.n as u64;
        fields.refuse_unless("best_of", |value| value.as_u64() == Some(n))?;
        settings.cache_prompt = fields.take("cache_prompt")?.unwrap_or(true);
        settings.ignore_eos = fields.take("ignore_eos")?.unwrap_or(false);
        Ok(settings)
    }

    /// Sampling proper. Values outside their range are moved to its end, as llama-server does.
    pub fn read_params(&mut self, fields: &mut Fields) -> Result<()> {
        let p = &mut self.params;
        let mut number = |name: &str, field: &mut f32, min: f32, max: f32| -> Result<()> {
            if let Some(value) = fields.take::<f32>(name)? {
                *field = value.clamp(min, max);
            }
            Ok(())
        };
        number("temperature", &mut p.temperature, 0.0, f32::INFINITY)?;
        number("top_p", &mut p.top_p, 0.0, 1.0)?;
        number("min_p", &mut p.min_p, 0.0, 1.0)?;
        number("typical_p", &mut p.typical_p, 0.0, 1.0)?;
        let all = f32::INFINITY;
        number("dynatemp_range", &mut p.dynatemp_range, -all, all)?;
        number("dynatemp_exponent", &mut p.dynatemp_exponent, -all, all)?;
        number("top_n_sigma", &mut p.top_n_sigma, -all, all)?;
        number("xtc_probability", &mut p.xtc_probability, 0.0, 1.0)?;
        number("xtc_threshold", &mut p.xtc_threshold, 0.0, 1.0)?;
        number("mirostat_tau", &mut p.mirostat_tau, 0.0, all)?;
        number("mirostat_eta", &mut p.mirostat_eta, 0.0, all)?;
        number("adaptive_target", &mut p.adaptive_target, -1.0, 1.0)?;
        number("adaptive_decay", &mut p.adaptive_decay, 0.0, 0.99)?;
        number("dry_multiplier", &mut p.dry.multiplier, 0.0, all)?;
        number("dry_base", &mut p.dry.base, 0.0, all)?;
        number("repeat_penalty", &mut p.repeat_penalty, -all, all)?;
        number("presence_penalty", &mut p.presence_penalty, -all, all)?;
        number("frequency_penalty", &mut p.frequency_penalty, -all, all)?;
        if let Some(version) = fields.integer("mirostat", 0, 2)? {
            p.mirostat = Mirostat::from_number(version as i32).unwrap_or_default();
        }
        if let Some(n) = fields.integer("dry_allowed_length", 0, u32::MAX.into())? {
            p.dry.allowed_length = n as u32;
        }
        if let Some(n) = fields.integer("dry_penalty_last_n", -1, u32::MAX.into())? {
            p.dry.penalty_last_n = u32::try_from(n).unwrap_or(u32::MAX);
        }
        if let Some(top_k) = fields.take::<i64>("top_k")? {
            p.top_k = top_k.clamp(0, i32::MAX.into()) as i32;
        }
        if let Some(n) = fields.integer("repeat_last_n", -1, u32::MAX.into())? {
            // -1 is the whole context; the window grows by use.
            p.penalty_last_n = u32::try_from(n).unwrap_or(u32::MAX);
        }
        if let Some(samplers) = fields.value("samplers") {
            p.order = order(&fields.name("samplers"), samplers)?;
        }
        p.validate().map_err(|e| match e {
            crate::sampler::SamplerError::BadValue { name, value, expected } => {
                ApiError::field(fields.name(&name), format!("expected {expected}, found {value}"))
            }
            other => ApiError::invalid(other.to_string()),
        })
    }

    fn read_length(&mut self, fields: &mut Fields) -> Result<()> {
        let given = fields.first::<i64>(&LENGTH)?;
        // The names that lost are no unknown fields.
        LENGTH.iter().for_each(|name| drop(fields.value(name)));
        match given {
            None => {}
            Some((name, n)) if n < -1 => {
                return Err(ApiError::field(name, format!("expected -1 (no limit) or more, found {n}")));
            }
            Some((_, n)) => self.n_predict = usize::try_from(n).ok(),
        }
        Ok(())
    }

    /// The sampler's settings, for `generation_settings` and `/props`.
    pub fn json(&self) -> Value {
        let p = &self.params;
        // 0.8 and not 0.800000011920929; JSON has no infinity.
        let number = |x: f32| x.to_string().parse::<f64>().ok().filter(|x| x.is_finite());
        let bias = |&(token, bias): &(u32, f32)| json!({ "token": token, "bias": number(bias).map_or(json!(false), Value::from) });
        json!({
            "seed": self.seed.map_or(json!(-1), Value::from),
            "temperature": number(p.temperature),
            "top_k": p.top_k,
            "top_p": number(p.top_p),
            "min_p": number(p.min_p),
            "typical_p": number(p.typical_p),
            "repeat_penalty": number(p.repeat_penalty),
            "repeat_last_n": p.penalty_last_n,
            "presence_penalty": number(p.presence_penalty),
            "dynatemp_range": number(p.dynatemp_range),
            "dynatemp_exponent": number(p.dynatemp_exponent),
            "top_n_sigma": number(p.top_n_sigma),
            "xtc_probability": number(p.xtc_probability),
            "xtc_threshold": number(p.xtc_threshold),
            "mirostat": p.mirostat as u8,
            "mirostat_tau": number(p.mirostat_tau),
            "mirostat_eta": number(p.mirostat_eta),
            "adaptive_target": number(p.adaptive_target),
            "adaptive_decay": number(p.adaptive_decay),
            "dry_multiplier": number(p.dry.multiplier),
            "dry_base": number(p.dry.base),
            "dry_allowed_length": p.dry.allowed_length,
            "dry_penalty_last_n": p.dry.penalty_last_n,
            "frequency_penalty": number(p.frequency_penalty),
            "logit_bias": p.logit_bias.iter().map(bias).collect::<Vec<_>>(),
            "samplers": p.order.iter().map(|stage| stage.name()).collect::<Vec<_>>(),
            "stop": self.stop,
            "n_predict": self.n_predict.map_or(json!(-1), Value::from),
            "ignore_eos": self.ignore_eos,
            "n_probs": self.logprobs.unwrap_or(0),
        })
    }
}

/// One stop string or several. Empty ones are dropped.
pub fn stops(field: &str, value: Value) -> Result<Vec<String>> {
    let list = match value {
        Value::String(text) => vec![text],
        Value::Array(items) => items
            .into_iter()
            .map(|item| match item {
                Value::String(text) => Ok(text),
                other => Err(ApiError::field(field, format!("expected strings, found {}", kind(&other)))),
            })
            .collect::<Result<_>>()?,
        other => {
            return Err(ApiError::field(
                field,
                format!("expected a string or an array of them, found {}", kind(&other)),
            ));
        }
    };
    at_most(field, MAX_STOPS, list.len(), "strings")?;
    let longest = list.iter().map(String::len).max().unwrap_or(0);
    at_most(field, MAX_STOP_BYTES, longest, "bytes in a string")?;
    Ok(list.into_iter().filter(|text| !text.is_empty()).collect())
}

/// `{"15043": 1.5, " Hello": false}` or `[[15043, 1.5], [" Hello", false]]`; `false` bans a token. A text stands for
/// each of its tokens.
fn logit_bias(field: &str, value: Value, tokenizer: &Tokenizer) -> Result<Vec<(u32, f32)>> {
    let pairs: Vec<(Value, Value)> = match value {
        Value::Object(map) => map.into_iter().map(|(key, bias)| (Value::String(key), bias)).collect(),
        Value::Array(items) => items
            .into_iter()
            .map(|item| {
                serde_json::from_value::<(Value, Value)>(item)
                    .map_err(|_| ApiError::field(field, "expected pairs of a token and a bias"))
            })
            .collect::<Result<_>>()?,
        other => {
            return Err(ApiError::field(
                field,
                format!("expected an object or an array of pairs, found {}", kind(&other)),
            ));
        }
    };
    at_most(field, MAX_LOGIT_BIAS, pairs.len(), "entries")?;
    let mut all = Vec::new();
    for (token, bias) in pairs {
        let bias = match &bias {
            Value::Bool(false) => f32::NEG_INFINITY,
            Value::Number(n) => n.as_f64().unwrap_or(f64::NAN) as f32,
            other => {
                return Err(ApiError::field(
                    field,
                    format!("expected a number or false as bias, found {}", kind(other)),
                ));
            }
        };
        for token in biased_tokens(field, &token, tokenizer)? {
            all.push((token, bias));
        }
    }
    at_most(field, MAX_LOGIT_BIAS, all.len(), "tokens")?;
    Ok(all)
}

fn biased_tokens(field: &str, token: &Value, tokenizer: &Tokenizer) -> Result<Vec<u32>> {
    let id = match token {
        Value::String(text) => match text.parse::<u64>() {
            Ok(id) => id,
            Err(_) => return Ok(tokenizer.encode(text, false, false)),
        },
        other => other
            .as_u64()
            .ok_or_else(|| ApiError::field(field, format!("expected a token id or a text, found {other}")))?,
    };
    match u32::try_from(id) {
        Ok(id) if (id as usize) < tokenizer.n_vocab() => Ok(vec![id]),
        _ => Err(ApiError::field(
            field,
            format!("token {id} is outside the vocabulary of {}", tokenizer.n_vocab()),
        )),
    }
}

/// Names in an array, or llama.cpp's letters in a string.
fn order(field: &str, value: Value) -> Result<Vec<Stage>> {
    let names = match value {
        Value::String(letters) => {
            letters.chars().map(|letter| of_letter(field, letter)).collect::<Result<Vec<_>>>()?.join(";")
        }
        other => {
            serde_json::from_value::<Vec<String>>(other).map_err(|e| ApiError::field(field, e))?.join(";")
        }
    };
    let order: Order = names.parse().map_err(|e| ApiError::field(field, e))?;
    Ok(order.stages)
}

fn of_letter(field: &str, letter: char) -> Result<&'static str> {
    Ok(match letter {
        'd' => "dry",
        'k' => "top_k",
        'y' => "typ_p",
        'p' => "top_p",
        's' => "top_n_sigma",
        'm' => "min_p",
        't' => "temperature",
        'x' => "xtc",
        'i' => "infill",
        'e' => "penalties",
        _ => return Err(ApiError::field(field, format!("unknown sampler '{letter}'"))),
    })
}
