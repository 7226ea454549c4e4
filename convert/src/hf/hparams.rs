//! The `<architecture>.*` keys, in llama.cpp's order.

use qgguf_gguf::{Metadata, MetadataArray, MetadataValue};
use serde_json::Value;

use super::families::{Dims, Family};
use super::{Config, HfError};

/// Writes keys of one architecture.
struct Keys<'a> {
    architecture: &'static str,
    config: &'a Config,
    metadata: &'a mut Metadata,
}

impl Keys<'_> {
    fn set(&mut self, key: &str, value: MetadataValue) {
        self.metadata.set(&format!("{}.{key}", self.architecture), value);
    }

    /// A number of the configuration, if it is there.
    fn u32(&mut self, key: &str, names: &[&str]) -> Result<(), HfError> {
        if let Some(n) = self.config.u32(names)? {
            self.set(key, MetadataValue::U32(n));
        }
        Ok(())
    }

    /// A number of the configuration that has to be there, and above 0.
    fn required(&mut self, key: &str, names: &[&str]) -> Result<(), HfError> {
        self.set(key, MetadataValue::U32(self.config.require(names)?));
        Ok(())
    }

    /// A number of the configuration, if it is there.
    fn f32(&mut self, key: &str, names: &[&str]) -> Result<(), HfError> {
        if let Some(x) = self.config.f32(names)? {
            self.set(key, MetadataValue::F32(x));
        }
        Ok(())
    }

    fn f32_if(&mut self, key: &str, value: Option<f32>) {
        if let Some(x) = value {
            self.set(key, MetadataValue::F32(x));
        }
    }

    fn file_type(&mut self, file_type: u32) {
        self.metadata.set("general.file_type", MetadataValue::U32(file_type));
    }
}

/// Where the context length is stated, in the order in which it is looked for.
pub(crate) const CONTEXT: &[&str] = &[
    "max_position_embeddings",
    "n_ctx",
    "n_positions",
    "max_length",
    "max_sequence_length",
    "model_max_length",
];
const N_LAYER: &[&str] = &["n_layers", "num_hidden_layers", "n_layer", "num_layers"];
const N_EMBD: &[&str] = &["hidden_size", "n_embd", "dim"];
const N_FF: &[&str] = &[
    "prefix_dense_intermediate_size",
    "dense_intermediate_size",
    "intermediate_size",
    "n_inner",
    "hidden_dim",
];
const N_HEAD: &[&str] = &["num_attention_heads", "n_head", "n_heads"];
const N_HEAD_KV: &[&str] = &["num_key_value_heads", "n_kv_heads"];
const RMS_EPS: &[&str] = &["rms_norm_eps", "norm_eps"];

/// Appends the keys, `general.file_type` among them.
pub(crate) fn write(
    family: &Family,
    config: &Config,
    dims: &Dims,
    file_type: u32,
    metadata: &mut Metadata,
) -> Result<(), HfError> {
    let mut keys = Keys { architecture: family.architecture, config, metadata };
    match family.architecture {
        "gemma2" => return gemma2(&mut keys, file_type),
        "phi3" => return phi3(&mut keys, dims, file_type),
        _ => {}
    }
    common(&mut keys, family, file_type)?;
    match family.architecture {
        "llama" | "mistral3" | "smollm3" | "granite" => {
            keys.u32("vocab_size", &["vocab_size"])?;
            keys.set("rope.dimension_count", MetadataValue::U32(dims.head_dim as u32));
        }
        _ => {}
    }
    match family.architecture {
        "mistral3" => {
            let rope = config.rope()?;
            keys.f32_if("rope.scaling.yarn_log_multiplier", rope.f32("mscale_all_dim")?);
            keys.f32_if("attention.temperature_scale", rope.f32("llama_4_scaling_beta")?);
        }
        "granite" => {
            let scales = [
                ("attention.scale", "attention_multiplier"),
                ("embedding_scale", "embedding_multiplier"),
                ("residual_scale", "residual_multiplier"),
                ("logit_scale", "logits_scaling"),
            ];
            for (key, name) in scales {
                keys.f32_if(key, config.f32(&[name])?.filter(|&x| x != 0.0));
            }
        }
        "qwen3moe" => {
            keys.u32("expert_feed_forward_length", &["moe_intermediate_size"])?;
            keys.u32("expert_shared_feed_forward_length", &["shared_expert_intermediate_size"])?;
        }
        "olmo2" => olmo2(&mut keys, dims)?,
        "gemma3" => {
            keys.f32("final_logit_softcapping", &["final_logit_softcapping"])?;
            if config.u32(&["sliding_window_pattern"])? != Some(1) {
                keys.u32("attention.sliding_window", &["sliding_window"])?;
            }
        }
        _ => {}
    }
    Ok(())
}

/// What most architectures share.
fn common(keys: &mut Keys<'_>, family: &Family, file_type: u32) -> Result<(), HfError> {
    let config = keys.config;
    keys.u32("block_count", N_LAYER)?;
    keys.required("context_length", CONTEXT)?;
    keys.u32("embedding_length", N_EMBD)?;
    keys.u32("feed_forward_length", N_FF)?;
    keys.u32("attention.head_count", N_HEAD)?;
    keys.u32("attention.head_count_kv", N_HEAD_KV)?;
    if config.get(&["is_causal"]) == Some(&Value::Bool(false)) {
        keys.set("attention.causal", MetadataValue::Bool(false));
    }
    let rope = config.rope()?;
    match rope.kind() {
        "linear" => {
            keys.set("rope.scaling.type", MetadataValue::String("linear".to_owned()));
            keys.set("rope.scaling.factor", MetadataValue::F32(rope.require("factor")?));
        }
        "yarn" => {
            let original =
                rope.original_context()?.map_or_else(|| rope.require("original_max_position_embeddings"), Ok);
            keys.set("rope.scaling.type", MetadataValue::String("yarn".to_owned()));
            keys.set("rope.scaling.factor", MetadataValue::F32(rope.require("factor")?));
            keys.set("rope.scaling.original_context_length", MetadataValue::U32(original? as u32));
            keys.f32_if("rope.scaling.yarn_ext_factor", rope.f32("extrapolation_factor")?);
            let attn_factor = rope.f32("attention_factor")?.or(rope.f32("attn_factor")?);
            keys.f32_if("rope.scaling.yarn_attn_factor", attn_factor);
            keys.f32_if("rope.scaling.yarn_beta_fast", rope.f32("beta_fast")?);
            keys.f32_if("rope.scaling.yarn_beta_slow", rope.f32("beta_slow")?);
        }
        "su" | "longrope" => keys.set("rope.scaling.type", MetadataValue::String("longrope".to_owned())),
        "llama3" | "dynamic" | "default" | "mrope" => {}
        other => {
            let reason = format!(
                "rope_type \"{}\" is not supported (supported: default, linear, yarn, longrope, llama3, dynamic)",
                other.chars().take(60).collect::<String>()
            );
            return Err(HfError::file(config.path(), reason));
        }
    }
    keys.f32_if("rope.freq_base", rope.theta()?);
    keys.f32_if("rope.freq_base_swa", rope.local_theta()?);
    keys.f32("attention.layer_norm_rms_epsilon", RMS_EPS)?;
    keys.u32("expert_count", &["num_local_experts", "num_experts", "n_routed_experts"])?;
    keys.u32("expert_used_count", &["num_experts_per_tok", "num_experts_per_token", "top_k_experts"])?;
    if family.architecture != "granite" {
        keys.u32("attention.key_length", &["head_dim"])?;
        keys.u32("attention.value_length", &["head_dim"])?;
    }
    keys.file_type(file_type);
    Ok(())
}

fn gemma2(keys: &mut Keys<'_>, file_type: u32) -> Result<(), HfError> {
    keys.required("context_length", CONTEXT)?;
    keys.u32("embedding_length", N_EMBD)?;
    keys.u32("block_count", N_LAYER)?;
    keys.u32("feed_forward_length", N_FF)?;
    keys.u32("attention.head_count", N_HEAD)?;
    keys.u32("attention.head_count_kv", N_HEAD_KV)?;
    keys.f32("attention.layer_norm_rms_epsilon", RMS_EPS)?;
    keys.u32("attention.key_length", &["head_dim"])?;
    keys.u32("attention.value_length", &["head_dim"])?;
    keys.file_type(file_type);
    keys.f32("attn_logit_softcapping", &["attn_logit_softcapping"])?;
    keys.f32("final_logit_softcapping", &["final_logit_softcapping"])?;
    keys.u32("attention.sliding_window", &["sliding_window"])
}

fn phi3(keys: &mut Keys<'_>, dims: &Dims, file_type: u32) -> Result<(), HfError> {
    let config = keys.config;
    keys.required("context_length", CONTEXT)?;
    keys.u32("rope.scaling.original_context_length", &["original_max_position_embeddings"])?;
    keys.u32("embedding_length", N_EMBD)?;
    keys.u32("feed_forward_length", N_FF)?;
    keys.u32("block_count", N_LAYER)?;
    keys.u32("attention.head_count", N_HEAD)?;
    keys.u32("attention.head_count_kv", N_HEAD_KV)?;
    keys.f32("attention.layer_norm_rms_epsilon", RMS_EPS)?;
    let rope = config.rope()?;
    keys.set("rope.dimension_count", MetadataValue::U32(phi3_rope_dims(config, dims)? as u32));
    keys.f32_if("rope.freq_base", rope.theta()?);
    keys.file_type(file_type);
    // No window is written as a window of 0, by which llama.cpp knows Phi-4.
    let window = config.u32(&["sliding_window"])?.unwrap_or(0);
    keys.set("attention.sliding_window", MetadataValue::U32(window));
    Ok(())
}

/// Dimensions of a head that are rotated.
fn phi3_rope_dims(config: &Config, dims: &Dims) -> Result<u64, HfError> {
    let factor = config.get(&["partial_rotary_factor"]).and_then(Value::as_f64).unwrap_or(1.0);
    if !(factor > 0.0 && factor <= 1.0) {
        return Err(config.wrong("partial_rotary_factor", "a number above 0, at most 1"));
    }
    Ok((factor * dims.n_embd as f64) as u64 / dims.n_head)
}

fn olmo2(keys: &mut Keys<'_>, dims: &Dims) -> Result<(), HfError> {
    let Some(window) = keys.config.u32(&["sliding_window"])? else { return Ok(()) };
    let layer_types = keys.config.get(&["layer_types"]).and_then(Value::as_array);
    let pattern: Vec<bool> = match layer_types {
        Some(types) => types.iter().map(|ty| ty == "sliding_attention").collect(),
        None => (1..=dims.n_layer.min(u64::from(u16::MAX))).map(|i| i % 4 != 0).collect(),
    };
    if pattern.len() as u64 != dims.n_layer {
        return Err(keys.config.wrong("layer_types", &format!("a list of {} layers", dims.n_layer)));
    }
    keys.set("attention.sliding_window", MetadataValue::U32(window));
    keys.set("attention.sliding_window_pattern", MetadataValue::Array(MetadataArray::Bool(pattern)));
    Ok(())
}

/// Whether the GGUF of an architecture says anything of this scaling of rotary embeddings.
pub(crate) fn says_rope(architecture: &str, kind: &str) -> bool {
    match (architecture, kind) {
        // Text has the same position in all sections of mrope.
        (_, "default" | "mrope") => true,
        ("llama" | "mistral3" | "smollm3" | "granite", "llama3") => true,
        ("gemma2", _) | (_, "llama3" | "dynamic") | ("phi3", "linear") => false,
        _ => true,
    }
}

/// Tensors that follow from the configuration, and what is written about them before everything else.
pub(crate) fn generated(
    family: &Family,
    config: &Config,
    dims: &Dims,
    metadata: &mut Metadata,
) -> Result<Vec<(String, Vec<f32>)>, HfError> {
    match family.architecture {
        "phi3" => phi3_factors(config, dims, metadata),
        _ if config.rope()?.kind() == "llama3" && says_rope(family.architecture, "llama3") => {
            Ok(vec![("rope_freqs.weight".to_owned(), Llama3::read(config)?.factors(dims.head_dim))])
        }
        _ => Ok(Vec::new()),
    }
}

/// Llama 3 turns long waves slower, in a smooth step between two wave lengths.
pub(crate) struct Llama3 {
    /// `rope_theta`.
    pub base: f32,
    /// How much slower.
    pub factor: f32,
    /// Waves are long that fit into the context fewer times than this.
    pub low: f32,
    /// Waves are short that fit into the context more often than this.
    pub high: f32,
    /// The context of the training.
    pub context: f32,
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
    pub fn factors(&self, head_dim: u64) -> Vec<f32> {
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

/// Phi-3 has a factor per pair of dimensions, one set for long contexts and one for short ones.
fn phi3_factors(
    config: &Config,
    dims: &Dims,
    metadata: &mut Metadata,
) -> Result<Vec<(String, Vec<f32>)>, HfError> {
    let rope = config.rope()?;
    let n = (phi3_rope_dims(config, dims)? / 2) as usize;
    let (Some(long), Some(short)) = (rope.factors("long_factor", n)?, rope.factors("short_factor", n)?)
    else {
        return Ok(Vec::new());
    };
    let context = f64::from(config.require(CONTEXT)?);
    let original = f64::from(config.require(&["original_max_position_embeddings"])?);
    let scale = context / original;
    let attn_factor = match rope.kind() {
        "su" | "longrope" if scale > 1.0 => (1.0 + scale.ln() / original.ln()).sqrt(),
        "su" | "longrope" => 1.0,
        "yarn" if scale > 1.0 => 0.1 * scale.ln() + 1.0,
        "yarn" => 1.0,
        other => {
            let reason =
                format!("rope type \"{}\" has no meaning here (expected longrope, su or yarn)", other);
            return Err(HfError::file(config.path(), reason));
        }
    };
    metadata.set("phi3.rope.scaling.attn_factor", MetadataValue::F32(attn_factor as f32));
    Ok(vec![("rope_factors_long.weight".to_owned(), long), ("rope_factors_short.weight".to_owned(), short)])
}
