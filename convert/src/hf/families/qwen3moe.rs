//! Qwen 3 with experts in every layer, whose weights are normalized over those that are chosen.

use serde_json::json;

use super::super::keys::{EXPERT_COUNT, EXPERT_FF_LENGTH, SHARED_FF_LENGTH};
use super::family::Fallback::{Flag, Number};
use super::family::{COMMON, CONTEXT_32K, EPS_6, Family, ROPE_10K, Vocabulary, common_keys};
use super::rules::Dim::{Embd, Expert, ExpertFf, TwoExpertFf};
use super::rules::{ATTENTION, Change, ENDS, HEAD_NORMS, PRE_NORMS, TensorRule, rule};

pub(super) const QWEN3MOE: Family = Family {
    class: "Qwen3MoeForCausalLM",
    model_type: "qwen3_moe",
    architecture: "qwen3moe",
    vocabulary: Vocabulary::Bpe,
    tensors: &[ENDS, PRE_NORMS, ATTENTION, HEAD_NORMS, EXPERTS],
    defaults: &[
        CONTEXT_32K,
        ROPE_10K,
        ("num_key_value_heads", Number(4.0)),
        ("num_experts", Number(128.0)),
        ("num_experts_per_tok", Number(8.0)),
        ("norm_topk_prob", Flag(false)),
        EPS_6,
    ],
    usual: &[
        ("norm_topk_prob", "true"),
        ("mlp_only_layers", "[]"),
        ("decoder_sparse_step", "1"),
        ("use_sliding_window", "false"),
    ],
    write_keys: |keys, _| {
        common_keys(keys)?;
        keys.write(&[EXPERT_FF_LENGTH, SHARED_FF_LENGTH])
    },
    export: |keys, config| {
        if let Some(n) = keys.u64(EXPERT_COUNT.gguf)?.filter(|&n| n > 0) {
            config.insert("num_experts".to_owned(), n.into());
        }
        config.insert("norm_topk_prob".to_owned(), true.into());
        config.insert("decoder_sparse_step".to_owned(), 1.into());
        config.insert("mlp_only_layers".to_owned(), json!([]));
        Ok(())
    },
    ..COMMON
};

/// Experts come out in the order in which they stand here.
const EXPERTS: &[TensorRule] = &[
    rule("model.layers.{}.mlp.gate.weight", "blk.{}.ffn_gate_inp.weight", &[Expert, Embd]),
    rule("model.layers.{}.mlp.experts.{}.down_proj.weight", "blk.{}.ffn_down_exps.weight", &[Embd, ExpertFf])
        .change(Change::Expert),
    rule("model.layers.{}.mlp.experts.{}.gate_proj.weight", "blk.{}.ffn_gate_exps.weight", &[ExpertFf, Embd])
        .change(Change::Expert),
    rule("model.layers.{}.mlp.experts.{}.up_proj.weight", "blk.{}.ffn_up_exps.weight", &[ExpertFf, Embd])
        .change(Change::Expert),
    rule("model.layers.{}.mlp.experts.down_proj", "blk.{}.ffn_down_exps.weight", &[Expert, Embd, ExpertFf])
        .optional(),
    rule(
        "model.layers.{}.mlp.experts.gate_up_proj",
        "blk.{}.ffn_gate_exps.weight",
        &[Expert, TwoExpertFf, Embd],
    )
    .optional()
    .change(Change::FusedExperts),
];
