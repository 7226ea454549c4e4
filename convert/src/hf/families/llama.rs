//! Llama 1 to 3, and what everything that is built like it shares.

use qgguf_gguf::MetadataValue;
use serde_json::{Map, Value};

use super::super::error::ExportError;
use super::super::keys::{KeyReader, KeyWriter, VOCAB_SIZE};
use super::super::{HfError, rope};
use super::dims::Dims;
use super::family::{ALL_HEADS, Biases, COMMON, CONTEXT_2K, EPS_6, Family, HEAD_DIM, ROPE_10K, common_keys};
use super::rules::{ENDS, MLP, PERMUTED_ATTENTION, PRE_NORMS};

pub(super) const LLAMA: Family = Family {
    class: "LlamaForCausalLM",
    model_type: "llama",
    architecture: "llama",
    biases: Biases::All,
    defaults: &[CONTEXT_2K, ROPE_10K, ALL_HEADS, HEAD_DIM, EPS_6],
    ..LIKE_LLAMA
};

/// Rotated rows are interleaved, and Llama 3's scaling of rotary embeddings is a tensor.
pub(super) const LIKE_LLAMA: Family = Family {
    permuted: true,
    tensors: &[ENDS, PRE_NORMS, PERMUTED_ATTENTION, MLP],
    scalings: &["linear", "yarn", "su", "longrope", "llama3"],
    derived: &[rope::LLAMA3_FACTORS],
    derive: |config, dims, _| rope::llama3_factors(config, dims.head_dim),
    write_keys: |keys, dims| {
        common_keys(keys)?;
        vocabulary_and_rotated(keys, dims)
    },
    export: export_factors,
    ..COMMON
};

/// The keys that follow the common ones.
pub(super) fn vocabulary_and_rotated(keys: &mut KeyWriter<'_>, dims: &Dims) -> Result<(), HfError> {
    keys.write(&[VOCAB_SIZE])?;
    keys.set("rope.dimension_count", MetadataValue::U32(dims.head_dim as u32));
    Ok(())
}

/// Factors of rotary embeddings become the parameters they were computed from.
pub(super) fn export_factors(
    keys: &KeyReader<'_>,
    config: &mut Map<String, Value>,
) -> Result<(), ExportError> {
    if let Some(factors) = keys.factors(rope::LLAMA3_FACTORS)? {
        let parsed = super::super::Config::new("config.json".into(), config.clone());
        let scaling = rope::read_llama3(keys, &factors, Dims::of(&parsed)?.head_dim)?;
        config.insert("rope_scaling".to_owned(), scaling.into());
    }
    Ok(())
}
