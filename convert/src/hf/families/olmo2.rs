//! OLMo 2 and 3: norms behind each block, queries and keys normed at full width; the third has layers that see a window
//! only.

use qgguf_gguf::{MetadataArray, MetadataValue};

use super::super::HfError;
use super::super::keys::{KeyWriter, SLIDING_WINDOW};
use super::dims::Dims;
use super::family::Fallback::Number;
use super::family::{
    ALL_HEADS, COMMON, CONTEXT_2K, EPS_5, Family, ROPE_10K, SLIDING_PATTERN, Vocabulary, common_keys,
    sliding_layers,
};
use super::rules::Dim::{Kv, Q};
use super::rules::{ATTENTION, ENDS, MLP, POST_NORMS, TensorRule, rule};

pub(super) const OLMO2: Family = Family {
    class: "Olmo2ForCausalLM",
    model_type: "olmo2",
    architecture: "olmo2",
    vocabulary: Vocabulary::Bpe,
    tensors: &[ENDS, POST_NORMS, ATTENTION, FULL_NORMS, MLP],
    defaults: &[CONTEXT_2K, ROPE_10K, ALL_HEADS, EPS_5],
    write_keys: |keys, dims| {
        common_keys(keys)?;
        windows(keys, dims)
    },
    ..COMMON
};

pub(super) const OLMO3: Family = Family {
    class: "Olmo3ForCausalLM",
    model_type: "olmo3",
    defaults: &[CONTEXT_2K, ROPE_10K, ALL_HEADS, EPS_5, ("sliding_window", Number(4096.0))],
    is_of: |keys| Ok(keys.has(SLIDING_WINDOW.gguf)),
    export: |keys, config| {
        let n_layer = keys.n_layer()? as usize;
        if let Some(slides) = keys.file.metadata().bool_per_layer(&keys.name(SLIDING_PATTERN), n_layer)? {
            let name = |&slides: &bool| if slides { "sliding_attention" } else { "full_attention" };
            config.insert("layer_types".to_owned(), slides.iter().map(name).collect());
        }
        Ok(())
    },
    ..OLMO2
};

const FULL_NORMS: &[TensorRule] = &[
    rule("model.layers.{}.self_attn.q_norm.weight", "blk.{}.attn_q_norm.weight", &[Q]),
    rule("model.layers.{}.self_attn.k_norm.weight", "blk.{}.attn_k_norm.weight", &[Kv]),
];

/// The window, and which layers have it.
fn windows(keys: &mut KeyWriter<'_>, dims: &Dims) -> Result<(), HfError> {
    let Some(window) = keys.config.u32(SLIDING_WINDOW.names)? else { return Ok(()) };
    let usual = || (1..=dims.n_layer.min(u64::from(u16::MAX))).map(|i| i % 4 != 0).collect();
    let pattern = sliding_layers(keys.config, dims)?.unwrap_or_else(usual);
    keys.set(SLIDING_WINDOW.gguf, MetadataValue::U32(window));
    keys.set(SLIDING_PATTERN, MetadataValue::Array(MetadataArray::Bool(pattern)));
    Ok(())
}
