//! Tensors by rules: what they are called here and there, what shape they have, and what happens to them on the way. The
//! groups are those that several families have.

/// A dimension, by its meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dim {
    /// Rows of the embedding.
    Vocab,
    /// Width of the residual stream.
    Embd,
    /// Width of the feed-forward network.
    Ff,
    /// Gate and up projection together.
    TwoFf,
    /// All query heads together.
    Q,
    /// All key or value heads together.
    Kv,
    /// Queries, keys and values together.
    Qkv,
    /// One head.
    Head,
    /// Experts.
    Expert,
    /// Width of an expert.
    ExpertFf,
    /// Gate and up projection of an expert together.
    TwoExpertFf,
}

/// What happens to a tensor on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Nothing.
    None,
    /// Query rows are reordered.
    PermuteQ,
    /// Key rows are reordered.
    PermuteK,
    /// It is one of several that become one with a new outer dimension.
    Expert,
    /// All experts' gate and up projections in one; the GGUF name is that of the gate.
    FusedExperts,
    /// It is left out.
    Drop,
}

/// One tensor of a family; `{}` in names stands for a number.
#[derive(Clone, Copy, Debug)]
pub struct TensorRule {
    /// Its name in the checkpoint.
    pub hf: &'static str,
    /// Its name in a GGUF.
    pub gguf: &'static str,
    /// Its shape in the checkpoint, row length last.
    pub shape: &'static [Dim],
    /// What happens to it.
    pub change: Change,
    /// Whether a model may lack it.
    pub optional: bool,
}

pub(super) const fn rule(hf: &'static str, gguf: &'static str, shape: &'static [Dim]) -> TensorRule {
    TensorRule { hf, gguf, shape, change: Change::None, optional: false }
}

impl TensorRule {
    pub(super) const fn optional(self) -> TensorRule {
        TensorRule { optional: true, ..self }
    }

    pub(super) const fn change(self, change: Change) -> TensorRule {
        TensorRule { change, ..self }
    }
}

use Dim::{Embd, Ff, Head, Kv, Q, Vocab};

pub(super) const ENDS: &[TensorRule] = &[
    rule("model.embed_tokens.weight", "token_embd.weight", &[Vocab, Embd]),
    rule("lm_head.weight", "output.weight", &[Vocab, Embd]).optional(),
    rule("model.norm.weight", "output_norm.weight", &[Embd]),
];
pub(super) const PRE_NORMS: &[TensorRule] = &[
    rule("model.layers.{}.input_layernorm.weight", "blk.{}.attn_norm.weight", &[Embd]),
    rule("model.layers.{}.post_attention_layernorm.weight", "blk.{}.ffn_norm.weight", &[Embd]),
];
pub(super) const POST_NORMS: &[TensorRule] = &[
    rule("model.layers.{}.post_attention_layernorm.weight", "blk.{}.post_attention_norm.weight", &[Embd]),
    rule("model.layers.{}.post_feedforward_layernorm.weight", "blk.{}.post_ffw_norm.weight", &[Embd]),
];
pub(super) const ATTENTION: &[TensorRule] = &[
    rule("model.layers.{}.self_attn.q_proj.weight", "blk.{}.attn_q.weight", &[Q, Embd]),
    rule("model.layers.{}.self_attn.k_proj.weight", "blk.{}.attn_k.weight", &[Kv, Embd]),
    rule("model.layers.{}.self_attn.v_proj.weight", "blk.{}.attn_v.weight", &[Kv, Embd]),
    rule("model.layers.{}.self_attn.o_proj.weight", "blk.{}.attn_output.weight", &[Embd, Q]),
    rule("model.layers.{}.self_attn.q_proj.bias", "blk.{}.attn_q.bias", &[Q]).optional(),
    rule("model.layers.{}.self_attn.k_proj.bias", "blk.{}.attn_k.bias", &[Kv]).optional(),
    rule("model.layers.{}.self_attn.v_proj.bias", "blk.{}.attn_v.bias", &[Kv]).optional(),
    rule("model.layers.{}.self_attn.o_proj.bias", "blk.{}.attn_output.bias", &[Embd]).optional(),
];
pub(super) const PERMUTED_ATTENTION: &[TensorRule] = &[
    ATTENTION[0].change(Change::PermuteQ),
    ATTENTION[1].change(Change::PermuteK),
    ATTENTION[2],
    ATTENTION[3],
    ATTENTION[4].change(Change::PermuteQ),
    ATTENTION[5].change(Change::PermuteK),
    ATTENTION[6],
    ATTENTION[7],
];
pub(super) const HEAD_NORMS: &[TensorRule] = &[
    rule("model.layers.{}.self_attn.q_norm.weight", "blk.{}.attn_q_norm.weight", &[Head]),
    rule("model.layers.{}.self_attn.k_norm.weight", "blk.{}.attn_k_norm.weight", &[Head]),
];
pub(super) const MLP: &[TensorRule] = &[
    rule("model.layers.{}.mlp.gate_proj.weight", "blk.{}.ffn_gate.weight", &[Ff, Embd]),
    rule("model.layers.{}.mlp.up_proj.weight", "blk.{}.ffn_up.weight", &[Ff, Embd]),
    rule("model.layers.{}.mlp.down_proj.weight", "blk.{}.ffn_down.weight", &[Embd, Ff]),
    rule("model.layers.{}.mlp.gate_proj.bias", "blk.{}.ffn_gate.bias", &[Ff]).optional(),
    rule("model.layers.{}.mlp.up_proj.bias", "blk.{}.ffn_up.bias", &[Ff]).optional(),
    rule("model.layers.{}.mlp.down_proj.bias", "blk.{}.ffn_down.bias", &[Embd]).optional(),
];

/// Splits a name at its numbers: `model.layers.3.mlp` is `model.layers.{}.mlp` and `[3]`.
pub fn template(name: &str) -> (String, Vec<u64>) {
    let mut numbers = Vec::new();
    let parts: Vec<&str> = name
        .split('.')
        .map(|part| match part.parse() {
            // Not `+3` or `03`: those would not be written so again.
            Ok(n) if part == "0" || part.starts_with(|c: char| ('1'..='9').contains(&c)) => {
                numbers.push(n);
                "{}"
            }
            _ => part,
        })
        .collect();
    (parts.join("."), numbers)
}

/// Puts numbers into a template.
pub fn fill(template: &str, numbers: &[u64]) -> String {
    numbers.iter().fold(template.to_owned(), |name, n| name.replacen("{}", &n.to_string(), 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_taken_apart_and_put_together_again() {
        let name = "model.layers.12.mlp.experts.3.up_proj.weight";
        let (template, numbers) = template(name);
        assert_eq!(template, "model.layers.{}.mlp.experts.{}.up_proj.weight");
        assert_eq!(numbers, [12, 3]);
        assert_eq!(fill(&template, &numbers), name);
    }

    #[test]
    fn odd_numbers_in_names_are_no_numbers() {
        for name in ["a.+3.b", "a.03.b", "a.99999999999999999999.b", "a..b"] {
            assert_eq!(template(name), (name.to_owned(), vec![]));
        }
    }
}
