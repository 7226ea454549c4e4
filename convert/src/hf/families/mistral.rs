//! Mistral and Mixtral: Llamas that were trained with a sliding window, which runtimes of their GGUFs do not know; the
//! second has experts.

use super::super::HfError;
use super::super::keys::{CONTEXT_LENGTH, EXPERT_COUNT, SLIDING_WINDOW};
use super::super::losses::Losses;
use super::dims::Dims;
use super::family::Fallback::Number;
use super::family::{Biases, CONTEXT_128K, EPS_5, EPS_6, Family, HEAD_DIM, ROPE_10K};
use super::llama::{LIKE_LLAMA, export_factors};
use super::rules::Dim::{Embd, Expert, Ff};
use super::rules::{Change, ENDS, PERMUTED_ATTENTION, PRE_NORMS, TensorRule, rule};

pub(super) const MISTRAL: Family = Family {
    class: "MistralForCausalLM",
    model_type: "mistral",
    architecture: "llama",
    defaults: &[CONTEXT_128K, ROPE_10K, ("num_key_value_heads", Number(8.0)), HEAD_DIM, EPS_6],
    losses: window_within_context,
    ..LIKE_LLAMA
};

pub(super) const MIXTRAL: Family = Family {
    class: "MixtralForCausalLM",
    model_type: "mixtral",
    architecture: "llama",
    biases: Biases::None,
    tensors: &[ENDS, PRE_NORMS, PERMUTED_ATTENTION, EXPERTS],
    defaults: &[
        CONTEXT_128K,
        ("num_local_experts", Number(8.0)),
        ("num_experts_per_tok", Number(2.0)),
        ("rope_theta", Number(1e6)),
        ("num_key_value_heads", Number(8.0)),
        EPS_5,
    ],
    losses: window_within_context,
    is_of: |keys| Ok(keys.u64(EXPERT_COUNT.gguf)?.is_some_and(|n| n > 0)),
    export: |keys, config| {
        if let Some(n) = keys.u64(EXPERT_COUNT.gguf)? {
            config.insert("num_local_experts".to_owned(), n.into());
        }
        export_factors(keys, config)
    },
    ..LIKE_LLAMA
};

const EXPERTS: &[TensorRule] = &[
    rule("model.layers.{}.block_sparse_moe.gate.weight", "blk.{}.ffn_gate_inp.weight", &[Expert, Embd]),
    rule("model.layers.{}.block_sparse_moe.experts.{}.w1.weight", "blk.{}.ffn_gate_exps.weight", &[Ff, Embd])
        .change(Change::Expert),
    rule("model.layers.{}.block_sparse_moe.experts.{}.w2.weight", "blk.{}.ffn_down_exps.weight", &[Embd, Ff])
        .change(Change::Expert),
    rule("model.layers.{}.block_sparse_moe.experts.{}.w3.weight", "blk.{}.ffn_up_exps.weight", &[Ff, Embd])
        .change(Change::Expert),
];

/// A window matters where the context is longer.
pub(super) fn window_within_context(losses: &mut Losses<'_>, _: &Dims) -> Result<(), HfError> {
    let (window, context) =
        (losses.config.u32(SLIDING_WINDOW.names)?, losses.config.u32(CONTEXT_LENGTH.names)?);
    if let (Some(window), Some(context)) = (window, context)
        && window < context
    {
        losses.tell("sliding_window", &window.to_string(), "null");
    }
    Ok(())
}
