//! How rotary embeddings are scaled: what a configuration says of it, as keys and factors of a GGUF, and back.

use qgguf_gguf::MetadataValue;
use serde_json::{Map, Value};

use super::error::ExportError;
use super::json::number;
use super::keys::{KeyReader, KeyWriter};
use super::losses::Losses;
use super::{Config, HfError};

/// The factors of Llama 3 in a GGUF, by which pairs of dimensions turn slower.
pub(crate) const LLAMA3_FACTORS: &str = "rope_freqs.weight";

/// Keys of a GGUF, without the architecture, and names among the parameters.
const YARN: [(&str, &str); 5] = [
    ("rope.scaling.factor", "factor"),
    ("rope.scaling.yarn_ext_factor", "extrapolation_factor"),
    ("rope.scaling.yarn_attn_factor", "attention_factor"),
    ("rope.scaling.yarn_beta_fast", "beta_fast"),
    ("rope.scaling.yarn_beta_slow", "beta_slow"),
];

/// Appends what the keys of a GGUF say of it.
pub(crate) fn write(keys: &mut KeyWriter<'_>) -> Result<(), HfError> {
    let config = keys.config;
    let rope = config.rope()?;
    let kind = |kind: &str| MetadataValue::String(kind.to_owned());
    match rope.kind() {
        "linear" => {
            keys.set("rope.scaling.type", kind("linear"));
            keys.set("rope.scaling.factor", MetadataValue::F32(rope.require("factor")?));
        }
        "yarn" => {
            let original =
                rope.original_context()?.map_or_else(|| rope.require("original_max_position_embeddings"), Ok);
            keys.set("rope.scaling.type", kind("yarn"));
            keys.set("rope.scaling.factor", MetadataValue::F32(rope.require("factor")?));
            keys.set("rope.scaling.original_context_length", MetadataValue::U32(original? as u32));
            keys.set_f32("rope.scaling.yarn_ext_factor", rope.f32("extrapolation_factor")?);
            let attn_factor = rope.f32("attention_factor")?.or(rope.f32("attn_factor")?);
            keys.set_f32("rope.scaling.yarn_attn_factor", attn_factor);
            keys.set_f32("rope.scaling.yarn_beta_fast", rope.f32("beta_fast")?);
            keys.set_f32("rope.scaling.yarn_beta_slow", rope.f32("beta_slow")?);
        }
        "su" | "longrope" => keys.set("rope.scaling.type", kind("longrope")),
        "llama3" | "dynamic" | "default" | "mrope" => {}
        other => {
            let reason = format!(
                "rope_type \"{}\" is not supported (supported: default, linear, yarn, longrope, llama3, dynamic)",
                other.chars().take(60).collect::<String>()
            );
            return Err(HfError::file(config.path(), reason));
        }
    }
    keys.set_f32("rope.freq_base", rope.theta()?);
    keys.set_f32("rope.freq_base_swa", rope.local_theta()?);
    Ok(())
}

/// Appends what makes runtimes of a GGUF turn YaRN's embeddings as long as the checkpoint does. Those go by the factor, of
/// some architectures also by a multiplier that stands among the keys already, and by nothing else; what is missing to the
/// stated length is a factor of its own.
pub(crate) fn write_magnitude(keys: &mut KeyWriter<'_>) -> Result<(), HfError> {
    let key = |name: &str| format!("{}.rope.scaling.{name}", keys.architecture);
    if !matches!(keys.metadata.get(&key("type")), Some(MetadataValue::String(kind)) if kind == "yarn") {
        return Ok(());
    }
    let number = |name: &str| match keys.metadata.get(&key(name)) {
        Some(&MetadataValue::F32(x)) => f64::from(x),
        _ => 0.0,
    };
    let factor = number("factor");
    let rope = keys.config.rope()?;
    let stated = rope.f32("attention_factor")?.or(rope.f32("attn_factor")?).map(f64::from);
    let multipliers = [rope.f32("mscale")?, rope.f32("mscale_all_dim")?].map(|x| x.unwrap_or(0.0).into());
    let missing = stated.unwrap_or_else(|| magnitude(factor, multipliers))
        / magnitude(factor, [1.0, number("yarn_log_multiplier")]);
    if !missing.is_finite() || missing <= 0.0 {
        let reason =
            format!("rope parameters: YaRN's attention factor would be {missing}, expected a number above 0");
        return Err(HfError::file(keys.config.path(), reason));
    }
    if (missing - 1.0).abs() > 1e-6 {
        keys.set_f32("rope.scaling.attn_factor", Some(missing as f32));
    }
    Ok(())
}

/// How much longer YaRN makes what it turns: that of one multiplier by that of another; those of 0 do not count.
fn magnitude(factor: f64, [over, under]: [f64; 2]) -> f64 {
    let one = |multiplier: f64| if factor <= 1.0 { 1.0 } else { 0.1 * multiplier * factor.ln() + 1.0 };
    if over == 0.0 || under == 0.0 { one(1.0) } else { one(over) / one(under) }
}

/// Tells of what YaRN has and a GGUF has not; where the turns are bent some architectures say (`says_bends`).
pub(crate) fn losses(losses: &mut Losses<'_>, says_bends: bool) -> Result<(), HfError> {
    let rope = losses.config.rope()?;
    if rope.kind() != "yarn" {
        return Ok(());
    }
    if !says_bends {
        for (key, usual) in [("beta_fast", 32.0), ("beta_slow", 1.0)] {
            if let Some(found) = rope.f32(key)?.filter(|&found| found != usual && found != 0.0) {
                losses.tell(key, &found.to_string(), &usual.to_string());
            }
        }
    }
    if rope.is_false("truncate") {
        losses.tell("truncate", "false", "true");
    }
    Ok(())
}

/// Puts what a GGUF's keys say of it into an exported configuration.
pub(crate) fn read(keys: &KeyReader<'_>, config: &mut Map<String, Value>) -> Result<(), ExportError> {
    for (key, name) in [("rope.freq_base", "rope_theta"), ("rope.freq_base_swa", "rope_local_base_freq")] {
        if let Some(x) = keys.f32(key)? {
            config.insert(name.to_owned(), number(x));
        }
    }
    let mut scaling = Map::new();
    let mut set = |name: &str, value: Value| _ = scaling.insert(name.to_owned(), value);
    match keys.str("rope.scaling.type")? {
        Some("yarn") => {
            set("rope_type", "yarn".into());
            for (key, name) in YARN {
                if let Some(x) = keys.f32(key)? {
                    set(name, number(x));
                }
            }
            if let (Some(missing), Some(factor)) =
                (keys.f32("rope.scaling.attn_factor")?, keys.f32("rope.scaling.factor")?)
            {
                let multiplier = keys.f32("rope.scaling.yarn_log_multiplier")?.unwrap_or(0.0);
                let whole = f64::from(missing) * magnitude(factor.into(), [1.0, multiplier.into()]);
                set("attention_factor", number(whole as f32));
            }
            if let Some(n) = keys.u64("rope.scaling.original_context_length")? {
                set("original_max_position_embeddings", n.into());
            }
        }
        Some("linear") => {
            set("rope_type", "linear".into());
            if let Some(x) = keys.f32("rope.scaling.factor")? {
                set("factor", number(x));
            }
        }
        _ => {}
    }
    if !scaling.is_empty() {
        config.insert("rope_scaling".to_owned(), scaling.into());
    }
    Ok(())
}

/// The tensor of Llama 3's factors, for a family that has a place for it.
pub(crate) fn llama3_factors(config: &Config, head_dim: u64) -> Result<Vec<(String, Vec<f32>)>, HfError> {
    if config.rope()?.kind() != "llama3" {
        return Ok(Vec::new());
    }
    Ok(vec![(LLAMA3_FACTORS.to_owned(), Llama3::read(config)?.factors(head_dim))])
}

/// Llama 3 turns long waves slower, in a smooth step between two wave lengths.
struct Llama3 {
    /// `rope_theta`.
    base: f32,
    /// How much slower.
    factor: f32,
    /// Waves are long that fit into the context fewer times than this.
    low: f32,
    /// Waves are short that fit into the context more often than this.
    high: f32,
    /// The context of the training.
    context: f32,
}

impl Llama3 {
    fn read(config: &Config) -> Result<Llama3, HfError> {
        let rope = config.rope()?;
        let base = rope.theta()?.unwrap_or(10_000.0);
        let factor = rope.f32("factor")?.unwrap_or(8.0);
        let low = rope.f32("low_freq_factor")?.unwrap_or(1.0);
        let high = rope.f32("high_freq_factor")?.unwrap_or(4.0);
        let context = rope.f32("original_max_position_embeddings")?.unwrap_or(8192.0);
        if factor > 0.0 && low > 0.0 && high > low && context > 0.0 && base > 0.0 {
            return Ok(Llama3 { base, factor, low, high, context });
        }
        let reason = format!(
            "rope parameters: expected positive numbers, low_freq_factor below high_freq_factor, found rope_theta {base}, \
             factor {factor}, low_freq_factor {low}, high_freq_factor {high}, \
             original_max_position_embeddings {context}"
        );
        Err(HfError::file(config.path(), reason))
    }

    /// The factor of each pair of dimensions of a head.
    fn factors(&self, head_dim: u64) -> Vec<f32> {
        (0..head_dim / 2)
            .map(|i| {
                let exponent = (2 * i) as f32 / head_dim as f32;
                let frequency = 1.0 / f64::from(self.base).powf(exponent.into()) as f32;
                // A quotient of a number and a tensor is a product with the reciprocal where the reference computes this.
                let wave = (1.0 / frequency) * (2.0 * std::f64::consts::PI) as f32;
                if wave < self.context / self.high {
                    1.0
                } else if wave > self.context / self.low {
                    self.factor
                } else {
                    let smooth = ((1.0 / wave) * self.context - self.low) / (self.high - self.low);
                    1.0 / ((1.0 - smooth) / self.factor + smooth)
                }
            })
            .collect()
    }
}

/// The parameters from which the converter computes these factors, found by trying: the largest factor is one of them,
/// the others are those of Llama 3 but for the context that it was trained with first.
pub(crate) fn read_llama3(
    keys: &KeyReader<'_>,
    factors: &[f32],
    head_dim: u64,
) -> Result<Map<String, Value>, ExportError> {
    if factors.len() as u64 * 2 != head_dim {
        return Err(ExportError::Model(format!(
            "tensor \"{LLAMA3_FACTORS}\": expected {} factors for heads of {head_dim}, found {}",
            head_dim / 2,
            factors.len()
        )));
    }
    let base = keys.f32("rope.freq_base")?.unwrap_or(10_000.0);
    let factor = factors.iter().copied().fold(1.0, f32::max);
    let (low, high) = (1.0, 4.0);
    let contexts = [8192].into_iter().chain((5..21).map(|n| 1u64 << n));
    for context in contexts {
        let expected = Llama3 { base, factor, low, high, context: context as f32 };
        let expected = expected.factors(factors.len() as u64 * 2);
        // Other libraries than the converter's may have rounded otherwise.
        if expected.iter().zip(factors).all(|(a, b)| (a - b).abs() <= 1e-6 * a.abs()) {
            return Ok(Map::from_iter([
                ("rope_type".to_owned(), "llama3".into()),
                ("factor".to_owned(), number(factor)),
                ("low_freq_factor".to_owned(), low.into()),
                ("high_freq_factor".to_owned(), high.into()),
                ("original_max_position_embeddings".to_owned(), context.into()),
            ]));
        }
    }
    Err(ExportError::Model(
        "tensor \"rope_freqs.weight\": its factors are not those of Llama 3 for any context that is a power of two".to_owned(),
    ))
}
