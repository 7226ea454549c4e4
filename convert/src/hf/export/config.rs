//! `config.json` and `generation_config.json` from the keys of a GGUF.

use qgguf_gguf::{GgmlType, GgufFile, Metadata, MetadataValue};
use serde_json::{Map, Value, json};

use super::super::Config;
use super::super::families::{Dims, Family, GEMMA_27B};
use super::super::general::SAMPLING;
use super::super::hparams::Llama3;
use super::{ExportError, number};

/// Keys of the GGUF, without the architecture, and names in the configuration; what is absent there is left out here.
const INTEGERS: [(&str, &str); 10] = [
    ("embedding_length", "hidden_size"),
    ("feed_forward_length", "intermediate_size"),
    ("block_count", "num_hidden_layers"),
    ("attention.head_count", "num_attention_heads"),
    ("attention.head_count_kv", "num_key_value_heads"),
    ("context_length", "max_position_embeddings"),
    ("expert_used_count", "num_experts_per_tok"),
    ("expert_feed_forward_length", "moe_intermediate_size"),
    ("expert_shared_feed_forward_length", "shared_expert_intermediate_size"),
    ("attention.sliding_window", "sliding_window"),
];
/// The integers that every model has.
const REQUIRED: [&str; 5] =
    ["block_count", "context_length", "embedding_length", "feed_forward_length", "attention.head_count"];
const FLOATS: [(&str, &str); 9] = [
    ("attention.layer_norm_rms_epsilon", "rms_norm_eps"),
    ("rope.freq_base", "rope_theta"),
    ("rope.freq_base_swa", "rope_local_base_freq"),
    ("attn_logit_softcapping", "attn_logit_softcapping"),
    ("final_logit_softcapping", "final_logit_softcapping"),
    ("attention.scale", "attention_multiplier"),
    ("embedding_scale", "embedding_multiplier"),
    ("residual_scale", "residual_multiplier"),
    ("logit_scale", "logits_scaling"),
];
const YARN: [(&str, &str); 5] = [
    ("rope.scaling.factor", "factor"),
    ("rope.scaling.yarn_ext_factor", "extrapolation_factor"),
    ("rope.scaling.yarn_attn_factor", "attention_factor"),
    ("rope.scaling.yarn_beta_fast", "beta_fast"),
    ("rope.scaling.yarn_beta_slow", "beta_slow"),
];
/// Special tokens, in the configuration and in the GGUF.
pub(super) const IDS: [(&str, &str); 8] = [
    ("bos", "bos_token_id"),
    ("eos", "eos_token_id"),
    ("unk", "unknown_token_id"),
    ("sep", "seperator_token_id"),
    ("pad", "padding_token_id"),
    ("mask", "mask_token_id"),
    ("eot", "eot_token_id"),
    ("eom", "eom_token_id"),
];

/// Looks up keys of one architecture.
struct Keys<'a> {
    architecture: &'static str,
    metadata: &'a Metadata,
}

impl Keys<'_> {
    fn u64(&self, key: &str) -> Result<Option<u64>, qgguf_gguf::Error> {
        self.metadata.u64(&format!("{}.{key}", self.architecture))
    }

    fn f32(&self, key: &str) -> Result<Option<f32>, qgguf_gguf::Error> {
        self.metadata.f32(&format!("{}.{key}", self.architecture))
    }

    fn str(&self, key: &str) -> Result<Option<&str>, qgguf_gguf::Error> {
        self.metadata.str(&format!("{}.{key}", self.architecture))
    }
}

/// The configuration; `ty` is the type of the matrices.
pub(super) fn config(
    family: &Family,
    file: &GgufFile,
    ty: GgmlType,
) -> Result<Map<String, Value>, ExportError> {
    let metadata = file.metadata();
    let keys = Keys { architecture: family.architecture, metadata };
    // What transformers has a default for, and no runtime of GGUFs.
    for key in REQUIRED {
        if metadata.require_u32(&format!("{}.{key}", family.architecture))? == 0 {
            let reason = format!(
                "metadata key \"{}.{key}\": expected an integer above 0, found 0",
                family.architecture
            );
            return Err(ExportError::Model(reason));
        }
    }
    metadata.require_f32(&format!("{}.attention.layer_norm_rms_epsilon", family.architecture))?;
    let mut config = Map::new();
    let mut set = |name: &str, value: Value| _ = config.insert(name.to_owned(), value);
    set("architectures", json!([family.class]));
    set("model_type", family.model_type.into());
    let dtype = match ty {
        GgmlType::F32 => "float32",
        GgmlType::BF16 => "bfloat16",
        _ => "float16",
    };
    set("torch_dtype", dtype.into());
    for (key, name) in INTEGERS {
        if let Some(n) = keys.u64(key)? {
            set(name, n.into());
        }
    }
    // Without the key every head has its own keys and values; some of transformers' classes have another default.
    if let (None, Some(n)) = (keys.u64("attention.head_count_kv")?, keys.u64("attention.head_count")?) {
        set("num_key_value_heads", n.into());
    }
    // Only the rows of the embedding say how many tokens there are in every file.
    let n_vocab = file.require_tensor("token_embd.weight")?.info().n_rows();
    set("vocab_size", n_vocab.into());
    let head_dim = match keys.u64("attention.key_length")? {
        None if family.permuted => keys.u64("rope.dimension_count")?,
        length => length,
    };
    // Where the width of a head follows from others, some of transformers' classes do not know the key.
    let derived = match (keys.u64("embedding_length")?, keys.u64("attention.head_count")?) {
        (Some(width), Some(heads @ 1..)) if width % heads == 0 => Some(width / heads),
        _ => None,
    };
    let has_key = keys.u64("attention.key_length")?.is_some();
    if let Some(head_dim) = head_dim.filter(|&n| has_key || derived != Some(n)) {
        set("head_dim", head_dim.into());
    }
    for (key, name) in FLOATS {
        if let Some(x) = keys.f32(key)? {
            set(name, number(x));
        }
    }
    if let Some(n) = keys.u64("expert_count")?.filter(|&n| n > 0) {
        set(if family.model_type == "mixtral" { "num_local_experts" } else { "num_experts" }, n.into());
    }
    let has = |name: &str| file.tensor_index(name).is_some();
    set("tie_word_embeddings", (!has("output.weight")).into());
    // Where one projection has a bias and others lack theirs, transformers gives those one of zeros.
    let has_bias = |part: &str| {
        file.tensors().iter().any(|info| info.name.ends_with(".bias") && info.name.contains(part))
    };
    set("attention_bias", has_bias(".attn_").into());
    set("mlp_bias", has_bias(".ffn_").into());
    let activation = if family.norms_from_one {
        ("hidden_activation", "gelu_pytorch_tanh")
    } else {
        ("hidden_act", "silu")
    };
    set(activation.0, activation.1.into());
    for (kind, key) in IDS {
        if let Some(id) = metadata.u32(&format!("tokenizer.ggml.{key}"))? {
            set(&format!("{kind}_token_id"), id.into());
        }
    }
    special(family, &keys, &mut config)?;
    rope(family, file, &keys, &mut config)?;
    Ok(config)
}

/// What only one family has.
fn special(family: &Family, keys: &Keys<'_>, config: &mut Map<String, Value>) -> Result<(), ExportError> {
    let n_layer = keys.u64("block_count")?.unwrap_or(0).min(u64::from(u16::MAX));
    let mut set = |name: &str, value: Value| _ = config.insert(name.to_owned(), value);
    match family.model_type {
        "qwen3_moe" => {
            set("norm_topk_prob", true.into());
            set("decoder_sparse_step", 1.into());
            set("mlp_only_layers", json!([]));
        }
        "smollm3" => {
            set("no_rope_layer_interval", 4.into());
            set("no_rope_layers", (1..=n_layer).map(|i| u8::from(i % 4 != 0)).collect());
        }
        "gemma2" | "gemma3_text" => {
            let is_27b = GEMMA_27B.contains(&(family.architecture, n_layer));
            let width = keys.u64("embedding_length")?.zip(keys.u64("attention.head_count")?);
            let scalar = match width {
                Some((width, heads @ 1..)) if is_27b => Some(width / heads),
                _ => keys.u64("attention.key_length")?,
            };
            if let Some(scalar) = scalar {
                set("query_pre_attn_scalar", scalar.into());
            }
            if family.model_type == "gemma3_text" {
                let has_window = keys.u64("attention.sliding_window")?.is_some();
                set("sliding_window_pattern", if has_window { 6 } else { 1 }.into());
            }
        }
        "phi3" => {
            // A window of 0 stands for none.
            if keys.u64("attention.sliding_window")? == Some(0) {
                set("sliding_window", Value::Null);
            }
            let rotated = keys.u64("rope.dimension_count")?.zip(keys.u64("attention.head_count")?);
            if let (Some((rotated, heads)), Some(width @ 1..)) = (rotated, keys.u64("embedding_length")?)
                && rotated.checked_mul(heads).is_some_and(|n| n < width)
            {
                set("partial_rotary_factor", (rotated as f64 * heads as f64 / width as f64).into());
            }
            if let Some(context) = keys.u64("rope.scaling.original_context_length")? {
                set("original_max_position_embeddings", context.into());
            }
        }
        "olmo3" => {
            let key = format!("{}.attention.sliding_window_pattern", family.architecture);
            if let Some(slides) = keys.metadata.bool_per_layer(&key, n_layer as usize)? {
                let name = |&slides: &bool| if slides { "sliding_attention" } else { "full_attention" };
                set("layer_types", slides.iter().map(name).collect());
            }
        }
        _ => {}
    }
    Ok(())
}

/// How rotary embeddings are scaled: some keys say it, or tensors that the converter computed.
fn rope(
    family: &Family,
    file: &GgufFile,
    keys: &Keys<'_>,
    config: &mut Map<String, Value>,
) -> Result<(), ExportError> {
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
    if family.architecture == "mistral3" {
        for (key, name) in [
            ("rope.scaling.yarn_log_multiplier", "mscale_all_dim"),
            ("attention.temperature_scale", "llama_4_scaling_beta"),
            ("rope.freq_base", "rope_theta"),
        ] {
            if let Some(x) = keys.f32(key)? {
                set(name, number(x));
            }
        }
    }
    if family.architecture == "phi3" {
        let long = factors(file, "rope_factors_long.weight")?;
        if let (Some(long), Some(short)) = (long, factors(file, "rope_factors_short.weight")?) {
            set("rope_type", "longrope".into());
            set("type", "longrope".into());
            set("long_factor", long.into_iter().map(number).collect());
            set("short_factor", short.into_iter().map(number).collect());
        }
    } else if let Some(factors) = factors(file, "rope_freqs.weight")? {
        let parsed = Config::new("config.json".into(), config.clone());
        let head_dim = Dims::of(&parsed)?.head_dim;
        if factors.len() as u64 * 2 != head_dim {
            return Err(ExportError::Model(format!(
                "tensor \"rope_freqs.weight\": expected {} factors for heads of {head_dim}, found {}",
                head_dim / 2,
                factors.len()
            )));
        }
        scaling = llama3(&factors, keys.f32("rope.freq_base")?.unwrap_or(10_000.0))?;
    }
    let name = if family.architecture == "mistral3" { "rope_parameters" } else { "rope_scaling" };
    if !scaling.is_empty() {
        config.insert(name.to_owned(), scaling.into());
    }
    Ok(())
}

/// The numbers of a tensor that follows from the configuration, if it is there.
fn factors(file: &GgufFile, name: &str) -> Result<Option<Vec<f32>>, ExportError> {
    let Some(tensor) = file.tensor(name) else { return Ok(None) };
    if tensor.ty() != GgmlType::F32 || tensor.shape().len() != 1 {
        return Err(ExportError::Model(format!(
            "tensor \"{name}\": expected a vector of F32, found {} {:?}",
            tensor.ty(),
            tensor.shape()
        )));
    }
    let (numbers, _) = tensor.bytes().as_chunks::<4>();
    Ok(Some(numbers.iter().map(|&bytes| f32::from_le_bytes(bytes)).collect()))
}

/// The parameters from which the converter computes these factors, found by trying: the largest factor is one of them,
/// the others are those of Llama 3 but for the context that it was trained with first.
fn llama3(factors: &[f32], base: f32) -> Result<Map<String, Value>, ExportError> {
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

/// What the file recommends for sampling, and the tokens that begin and end texts.
pub(super) fn generation_config(metadata: &Metadata) -> Result<Value, ExportError> {
    let mut config = Map::new();
    for (kind, key) in IDS.into_iter().filter(|(kind, _)| ["bos", "pad"].contains(kind)) {
        if let Some(id) = metadata.u32(&format!("tokenizer.ggml.{key}"))? {
            config.insert(format!("{kind}_token_id"), id.into());
        }
    }
    let ends = ends_of_generation(metadata)?;
    match ends.as_slice() {
        [] => {}
        [id] => _ = config.insert("eos_token_id".to_owned(), (*id).into()),
        ids => _ = config.insert("eos_token_id".to_owned(), ids.into()),
    }
    if let Some(sequence) = metadata.str("general.sampling.sequence")? {
        config.insert("sequence".to_owned(), sequence.into());
    }
    for (key, name, _) in SAMPLING.into_iter().filter(|row| row.1 != "penalty_repeat") {
        let value = match metadata.get(&format!("general.sampling.{key}")) {
            Some(MetadataValue::F32(x)) => number(*x),
            Some(value) => match value.as_integer().and_then(|n| i64::try_from(n).ok()) {
                Some(n) => n.into(),
                None => continue,
            },
            None => continue,
        };
        config.insert(name.to_owned(), value);
        // Without it transformers takes the most probable token, whatever the settings.
        config.insert("do_sample".to_owned(), true.into());
    }
    Ok(config.into())
}

/// Texts of tokens that end a turn, whatever the keys say.
const ENDS_OF_TURN: [&str; 9] = [
    "<|im_end|>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<|end|>",
    "<end_of_turn>",
    "<|end_of_text|>",
    "<|endoftext|>",
    "<|end_of_turn|>",
    "<|return|>",
];

/// The ids that end an answer: those of the keys first, then those that are known by their text.
fn ends_of_generation(metadata: &Metadata) -> Result<Vec<u32>, ExportError> {
    let mut ids = Vec::new();
    for (_, key) in IDS.into_iter().filter(|(kind, _)| ["eos", "eot", "eom"].contains(kind)) {
        ids.extend(metadata.u32(&format!("tokenizer.ggml.{key}"))?);
    }
    if let Some(tokens) = metadata.strings("tokenizer.ggml.tokens")? {
        let known = tokens.iter().zip(0..).filter(|(text, _)| ENDS_OF_TURN.contains(text));
        ids.extend(known.map(|(_, id)| id));
    }
    let mut seen = std::collections::HashSet::new();
    ids.retain(|&id| seen.insert(id));
    Ok(ids)
}
