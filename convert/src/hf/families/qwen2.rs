//! Qwen 2 and 2.5: queries, keys and values have biases.

use super::family::Fallback::Number;
use super::family::{Biases, COMMON, CONTEXT_32K, EPS_6, Family, ROPE_10K, Vocabulary};
use super::rules::{ATTENTION, ENDS, MLP, PRE_NORMS};

pub(super) const QWEN2: Family = Family {
    class: "Qwen2ForCausalLM",
    model_type: "qwen2",
    architecture: "qwen2",
    vocabulary: Vocabulary::SentencePieceOrBpe,
    biases: Biases::Qkv,
    tensors: &[ENDS, PRE_NORMS, ATTENTION, MLP],
    defaults: &[CONTEXT_32K, ROPE_10K, ("num_key_value_heads", Number(32.0)), EPS_6],
    usual: &[("use_sliding_window", "false")],
    ..COMMON
};
