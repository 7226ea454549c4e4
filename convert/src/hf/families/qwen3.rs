//! Qwen 3 (dense): queries and keys are normed per head.

use super::family::Fallback::Number;
use super::family::{COMMON, CONTEXT_32K, EPS_6, Family, ROPE_10K, Vocabulary};
use super::rules::{ATTENTION, ENDS, HEAD_NORMS, MLP, PRE_NORMS};

pub(super) const QWEN3: Family = Family {
    class: "Qwen3ForCausalLM",
    model_type: "qwen3",
    architecture: "qwen3",
    vocabulary: Vocabulary::SentencePieceOrBpe,
    tensors: &[ENDS, PRE_NORMS, ATTENTION, HEAD_NORMS, MLP],
    defaults: &[
        CONTEXT_32K,
        ROPE_10K,
        ("num_key_value_heads", Number(32.0)),
        ("head_dim", Number(128.0)),
        EPS_6,
    ],
    usual: &[("use_sliding_window", "false")],
    ..COMMON
};
