//! The model families: which tensors they have, what they are called here and there, and what shapes they have.
//!
//! Everything is data that can be read in both directions: from Hugging Face names to GGUF names and back.

use serde_json::{Value, json};

use super::{Config, HfError};

/// One model class of transformers.
#[derive(Debug)]
pub struct Family {
    /// The class, e.g. `LlamaForCausalLM`.
    pub class: &'static str,
    /// `model_type` in `config.json`.
    pub model_type: &'static str,
    /// `general.architecture`.
    pub architecture: &'static str,
    /// How the vocabulary is stored.
    pub vocabulary: Vocabulary,
    /// Query and key rows are stored in the order of the original Llama: the two halves of a head interleaved.
    pub permuted: bool,
    /// Norms multiply by one more than what is stored.
    pub norms_from_one: bool,
    /// The tensors, in groups that families share.
    tensors: &'static [&'static [TensorRule]],
    /// Configuration keys and the values they have when absent.
    defaults: &'static [(&'static str, Fallback)],
}

/// How the vocabulary is stored, in the order in which places are tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Vocabulary {
    /// `tokenizer.model`, a SentencePiece vocabulary in `tokenizer.json`, byte-pair encoding in `tokenizer.json`.
    Any,
    /// `tokenizer.model`, else byte-pair encoding.
    SentencePieceOrBpe,
    /// `tokenizer.model` (with the added tokens of `tokenizer.json`), else byte-pair encoding.
    Phi3,
    /// Byte-pair encoding.
    Bpe,
}

/// A value that a key has when it is absent.
#[derive(Clone, Copy, Debug)]
enum Fallback {
    Number(f64),
    Flag(bool),
    /// That of another key.
    Same(&'static str),
    /// The width of a head if the heads divide the width of the model.
    HeadDim,
}

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

const fn rule(hf: &'static str, gguf: &'static str, shape: &'static [Dim]) -> TensorRule {
    TensorRule { hf, gguf, shape, change: Change::None, optional: false }
}

impl TensorRule {
    const fn optional(self) -> TensorRule {
        TensorRule { optional: true, ..self }
    }

    const fn change(self, change: Change) -> TensorRule {
        TensorRule { change, ..self }
    }
}

use Dim::{Embd, Expert, ExpertFf, Ff, Head, Kv, Q, Qkv, TwoExpertFf, TwoFf, Vocab};

const ENDS: &[TensorRule] = &[
    rule("model.embed_tokens.weight", "token_embd.weight", &[Vocab, Embd]),
    rule("lm_head.weight", "output.weight", &[Vocab, Embd]).optional(),
    rule("model.norm.weight", "output_norm.weight", &[Embd]),
];
const ENDS_TIED: &[TensorRule] = &[
    rule("model.embed_tokens.weight", "token_embd.weight", &[Vocab, Embd]),
    rule("lm_head.weight", "output.weight", &[Vocab, Embd]).optional().change(Change::Drop),
    rule("model.norm.weight", "output_norm.weight", &[Embd]),
];
const PRE_NORMS: &[TensorRule] = &[
    rule("model.layers.{}.input_layernorm.weight", "blk.{}.attn_norm.weight", &[Embd]),
    rule("model.layers.{}.post_attention_layernorm.weight", "blk.{}.ffn_norm.weight", &[Embd]),
];
const POST_NORMS: &[TensorRule] = &[
    rule("model.layers.{}.post_attention_layernorm.weight", "blk.{}.post_attention_norm.weight", &[Embd]),
    rule("model.layers.{}.post_feedforward_layernorm.weight", "blk.{}.post_ffw_norm.weight", &[Embd]),
];
const GEMMA_PRE_NORMS: &[TensorRule] = &[
    rule("model.layers.{}.input_layernorm.weight", "blk.{}.attn_norm.weight", &[Embd]),
    rule("model.layers.{}.pre_feedforward_layernorm.weight", "blk.{}.ffn_norm.weight", &[Embd]),
];
const ATTENTION: &[TensorRule] = &[
    rule("model.layers.{}.self_attn.q_proj.weight", "blk.{}.attn_q.weight", &[Q, Embd]),
    rule("model.layers.{}.self_attn.k_proj.weight", "blk.{}.attn_k.weight", &[Kv, Embd]),
    rule("model.layers.{}.self_attn.v_proj.weight", "blk.{}.attn_v.weight", &[Kv, Embd]),
    rule("model.layers.{}.self_attn.o_proj.weight", "blk.{}.attn_output.weight", &[Embd, Q]),
    rule("model.layers.{}.self_attn.q_proj.bias", "blk.{}.attn_q.bias", &[Q]).optional(),
    rule("model.layers.{}.self_attn.k_proj.bias", "blk.{}.attn_k.bias", &[Kv]).optional(),
    rule("model.layers.{}.self_attn.v_proj.bias", "blk.{}.attn_v.bias", &[Kv]).optional(),
    rule("model.layers.{}.self_attn.o_proj.bias", "blk.{}.attn_output.bias", &[Embd]).optional(),
];
const PERMUTED_ATTENTION: &[TensorRule] = &[
    ATTENTION[0].change(Change::PermuteQ),
    ATTENTION[1].change(Change::PermuteK),
    ATTENTION[2],
    ATTENTION[3],
    ATTENTION[4].change(Change::PermuteQ),
    ATTENTION[5].change(Change::PermuteK),
    ATTENTION[6],
    ATTENTION[7],
];
const FUSED_ATTENTION: &[TensorRule] = &[
    rule("model.layers.{}.self_attn.qkv_proj.weight", "blk.{}.attn_qkv.weight", &[Qkv, Embd]),
    rule("model.layers.{}.self_attn.o_proj.weight", "blk.{}.attn_output.weight", &[Embd, Q]),
];
const HEAD_NORMS: &[TensorRule] = &[
    rule("model.layers.{}.self_attn.q_norm.weight", "blk.{}.attn_q_norm.weight", &[Head]),
    rule("model.layers.{}.self_attn.k_norm.weight", "blk.{}.attn_k_norm.weight", &[Head]),
];
const FULL_NORMS: &[TensorRule] = &[
    rule("model.layers.{}.self_attn.q_norm.weight", "blk.{}.attn_q_norm.weight", &[Q]),
    rule("model.layers.{}.self_attn.k_norm.weight", "blk.{}.attn_k_norm.weight", &[Kv]),
];
const MLP: &[TensorRule] = &[
    rule("model.layers.{}.mlp.gate_proj.weight", "blk.{}.ffn_gate.weight", &[Ff, Embd]),
    rule("model.layers.{}.mlp.up_proj.weight", "blk.{}.ffn_up.weight", &[Ff, Embd]),
    rule("model.layers.{}.mlp.down_proj.weight", "blk.{}.ffn_down.weight", &[Embd, Ff]),
    rule("model.layers.{}.mlp.gate_proj.bias", "blk.{}.ffn_gate.bias", &[Ff]).optional(),
    rule("model.layers.{}.mlp.up_proj.bias", "blk.{}.ffn_up.bias", &[Ff]).optional(),
    rule("model.layers.{}.mlp.down_proj.bias", "blk.{}.ffn_down.bias", &[Embd]).optional(),
];
const FUSED_MLP: &[TensorRule] = &[
    rule("model.layers.{}.mlp.gate_up_proj.weight", "blk.{}.ffn_up.weight", &[TwoFf, Embd]),
    rule("model.layers.{}.mlp.down_proj.weight", "blk.{}.ffn_down.weight", &[Embd, Ff]),
];
/// Experts come out in the order in which they stand here.
const QWEN_EXPERTS: &[TensorRule] = &[
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
const MIXTRAL_EXPERTS: &[TensorRule] = &[
    rule("model.layers.{}.block_sparse_moe.gate.weight", "blk.{}.ffn_gate_inp.weight", &[Expert, Embd]),
    rule("model.layers.{}.block_sparse_moe.experts.{}.w1.weight", "blk.{}.ffn_gate_exps.weight", &[Ff, Embd])
        .change(Change::Expert),
    rule("model.layers.{}.block_sparse_moe.experts.{}.w2.weight", "blk.{}.ffn_down_exps.weight", &[Embd, Ff])
        .change(Change::Expert),
    rule("model.layers.{}.block_sparse_moe.experts.{}.w3.weight", "blk.{}.ffn_up_exps.weight", &[Ff, Embd])
        .change(Change::Expert),
];

/// The layers of the largest Gemmas, which scale attention by the width for each head; no key says so.
pub(crate) const GEMMA_27B: [(&str, u64); 2] = [("gemma2", 46), ("gemma3", 62)];
const LLAMA: &[&[TensorRule]] = &[ENDS, PRE_NORMS, PERMUTED_ATTENTION, MLP];

use Fallback::{Flag, HeadDim, Number, Same};

const ROPE_10K: (&str, Fallback) = ("rope_theta", Number(10_000.0));
const ALL_HEADS: (&str, Fallback) = ("num_key_value_heads", Same("num_attention_heads"));
const HEAD_DIM: (&str, Fallback) = ("head_dim", HeadDim);
const CONTEXT_2K: (&str, Fallback) = ("max_position_embeddings", Number(2048.0));
const CONTEXT_4K: (&str, Fallback) = ("max_position_embeddings", Number(4096.0));
const CONTEXT_32K: (&str, Fallback) = ("max_position_embeddings", Number(32_768.0));
const CONTEXT_128K: (&str, Fallback) = ("max_position_embeddings", Number(131_072.0));
const EPS_6: (&str, Fallback) = ("rms_norm_eps", Number(1e-6));
const EPS_5: (&str, Fallback) = ("rms_norm_eps", Number(1e-5));

/// All families; of those with one `general.architecture` the first is the one that is exported.
const FAMILIES: &[Family] = &[
    Family {
        class: "LlamaForCausalLM",
        model_type: "llama",
        architecture: "llama",
        vocabulary: Vocabulary::Any,
        permuted: true,
        norms_from_one: false,
        tensors: LLAMA,
        defaults: &[CONTEXT_2K, ROPE_10K, ALL_HEADS, HEAD_DIM, EPS_6],
    },
    Family {
        class: "MistralForCausalLM",
        model_type: "mistral",
        architecture: "llama",
        vocabulary: Vocabulary::Any,
        permuted: true,
        norms_from_one: false,
        tensors: LLAMA,
        defaults: &[CONTEXT_128K, ROPE_10K, ("num_key_value_heads", Number(8.0)), HEAD_DIM, EPS_6],
    },
    Family {
        class: "MixtralForCausalLM",
        model_type: "mixtral",
        architecture: "llama",
        vocabulary: Vocabulary::Any,
        permuted: true,
        norms_from_one: false,
        tensors: &[ENDS, PRE_NORMS, PERMUTED_ATTENTION, MIXTRAL_EXPERTS],
        defaults: &[
            CONTEXT_128K,
            ("num_local_experts", Number(8.0)),
            ("num_experts_per_tok", Number(2.0)),
            ("rope_theta", Number(1e6)),
            ("num_key_value_heads", Number(8.0)),
            EPS_5,
        ],
    },
    Family {
        class: "Ministral3ForCausalLM",
        model_type: "ministral3",
        architecture: "mistral3",
        vocabulary: Vocabulary::Any,
        permuted: true,
        norms_from_one: false,
        tensors: LLAMA,
        defaults: &[ALL_HEADS, HEAD_DIM, EPS_5],
    },
    Family {
        class: "Mistral3ForConditionalGeneration",
        model_type: "mistral3",
        architecture: "mistral3",
        vocabulary: Vocabulary::Any,
        permuted: true,
        norms_from_one: false,
        tensors: LLAMA,
        defaults: &[ALL_HEADS, HEAD_DIM, EPS_5],
    },
    Family {
        class: "Qwen2ForCausalLM",
        model_type: "qwen2",
        architecture: "qwen2",
        vocabulary: Vocabulary::SentencePieceOrBpe,
        permuted: false,
        norms_from_one: false,
        tensors: &[ENDS, PRE_NORMS, ATTENTION, MLP],
        defaults: &[CONTEXT_32K, ROPE_10K, ("num_key_value_heads", Number(32.0)), EPS_6],
    },
    Family {
        class: "Qwen3ForCausalLM",
        model_type: "qwen3",
        architecture: "qwen3",
        vocabulary: Vocabulary::SentencePieceOrBpe,
        permuted: false,
        norms_from_one: false,
        tensors: &[ENDS, PRE_NORMS, ATTENTION, HEAD_NORMS, MLP],
        defaults: &[
            CONTEXT_32K,
            ROPE_10K,
            ("num_key_value_heads", Number(32.0)),
            ("head_dim", Number(128.0)),
            EPS_6,
        ],
    },
    Family {
        class: "Qwen3MoeForCausalLM",
        model_type: "qwen3_moe",
        architecture: "qwen3moe",
        vocabulary: Vocabulary::Bpe,
        permuted: false,
        norms_from_one: false,
        tensors: &[ENDS, PRE_NORMS, ATTENTION, HEAD_NORMS, QWEN_EXPERTS],
        defaults: &[
            CONTEXT_32K,
            ROPE_10K,
            ("num_key_value_heads", Number(4.0)),
            ("num_experts", Number(128.0)),
            ("num_experts_per_tok", Number(8.0)),
            ("norm_topk_prob", Flag(false)),
            EPS_6,
        ],
    },
    Family {
        class: "Gemma2ForCausalLM",
        model_type: "gemma2",
        architecture: "gemma2",
        vocabulary: Vocabulary::SentencePieceOrBpe,
        permuted: false,
        norms_from_one: true,
        tensors: &[ENDS_TIED, GEMMA_PRE_NORMS, POST_NORMS, ATTENTION, MLP],
        defaults: &[
            ("num_key_value_heads", Number(4.0)),
            ("head_dim", Number(256.0)),
            ("query_pre_attn_scalar", Number(256.0)),
            ("attn_logit_softcapping", Number(50.0)),
            ("final_logit_softcapping", Number(30.0)),
            ("sliding_window", Number(4096.0)),
            ("max_position_embeddings", Number(8192.0)),
            EPS_6,
        ],
    },
    Family {
        class: "Gemma3ForCausalLM",
        model_type: "gemma3_text",
        architecture: "gemma3",
        vocabulary: Vocabulary::SentencePieceOrBpe,
        permuted: false,
        norms_from_one: true,
        tensors: GEMMA3,
        defaults: GEMMA3_DEFAULTS,
    },
    Family {
        class: "Gemma3ForConditionalGeneration",
        model_type: "gemma3",
        architecture: "gemma3",
        vocabulary: Vocabulary::SentencePieceOrBpe,
        permuted: false,
        norms_from_one: true,
        tensors: GEMMA3,
        defaults: GEMMA3_DEFAULTS,
    },
    Family {
        class: "Phi3ForCausalLM",
        model_type: "phi3",
        architecture: "phi3",
        vocabulary: Vocabulary::Phi3,
        permuted: false,
        norms_from_one: false,
        tensors: &[ENDS, PRE_NORMS, FUSED_ATTENTION, FUSED_MLP],
        defaults: &[
            CONTEXT_4K,
            ROPE_10K,
            ALL_HEADS,
            EPS_5,
            ("original_max_position_embeddings", Number(4096.0)),
            ("partial_rotary_factor", Number(1.0)),
        ],
    },
    Family {
        class: "SmolLM3ForCausalLM",
        model_type: "smollm3",
        architecture: "smollm3",
        vocabulary: Vocabulary::Any,
        permuted: true,
        norms_from_one: false,
        tensors: LLAMA,
        defaults: &[CONTEXT_32K, ("rope_theta", Number(2e6)), ("num_key_value_heads", Number(4.0)), EPS_6],
    },
    Family {
        class: "Olmo2ForCausalLM",
        model_type: "olmo2",
        architecture: "olmo2",
        vocabulary: Vocabulary::Bpe,
        permuted: false,
        norms_from_one: false,
        tensors: OLMO2,
        defaults: &[CONTEXT_2K, ROPE_10K, ALL_HEADS, EPS_5],
    },
    Family {
        class: "Olmo3ForCausalLM",
        model_type: "olmo3",
        architecture: "olmo2",
        vocabulary: Vocabulary::Bpe,
        permuted: false,
        norms_from_one: false,
        tensors: OLMO2,
        defaults: &[CONTEXT_2K, ROPE_10K, ALL_HEADS, EPS_5, ("sliding_window", Number(4096.0))],
    },
    Family {
        class: "GraniteForCausalLM",
        model_type: "granite",
        architecture: "granite",
        vocabulary: Vocabulary::Any,
        permuted: true,
        norms_from_one: false,
        tensors: LLAMA,
        defaults: &[
            CONTEXT_2K,
            ("attention_multiplier", Number(1.0)),
            ("embedding_multiplier", Number(1.0)),
            ("residual_multiplier", Number(1.0)),
            ("logits_scaling", Number(1.0)),
            ROPE_10K,
            ALL_HEADS,
            EPS_6,
        ],
    },
];

const GEMMA3: &[&[TensorRule]] = &[ENDS, GEMMA_PRE_NORMS, POST_NORMS, ATTENTION, HEAD_NORMS, MLP];
const GEMMA3_DEFAULTS: &[(&str, Fallback)] = &[
    ("num_attention_heads", Number(8.0)),
    ("num_key_value_heads", Number(4.0)),
    ("head_dim", Number(256.0)),
    ("query_pre_attn_scalar", Number(256.0)),
    ("rope_theta", Number(1e6)),
    ("rope_local_base_freq", Number(10_000.0)),
    ("sliding_window", Number(4096.0)),
    CONTEXT_128K,
    EPS_6,
];
const OLMO2: &[&[TensorRule]] = &[ENDS, POST_NORMS, ATTENTION, FULL_NORMS, MLP];

impl Family {
    /// The family of a configuration, whose absent keys get their defaults.
    pub fn of(config: &mut Config) -> Result<&'static Family, HfError> {
        let class = config.class()?;
        let family = Family::of_class(class).ok_or_else(|| HfError::Architecture {
            path: config.path().to_owned(),
            found: class.chars().take(100).collect(),
            known: FAMILIES.iter().map(|family| family.class).collect::<Vec<_>>().join(", "),
        })?;
        for (key, default) in family.defaults {
            let value = match *default {
                Number(number) if number.fract() == 0.0 => Some(json!(number as i64)),
                Number(number) => Some(json!(number)),
                Flag(flag) => Some(json!(flag)),
                Same(other) => config.get(&[other]).cloned(),
                HeadDim => match (config.u32(&["hidden_size"])?, config.u32(&["num_attention_heads"])?) {
                    (Some(width), Some(heads @ 1..)) => Some(json!(width / heads)),
                    _ => None,
                },
            };
            config.set_default(key, value.unwrap_or(Value::Null));
        }
        Ok(family)
    }

    /// The family of a class.
    pub fn of_class(class: &str) -> Option<&'static Family> {
        FAMILIES.iter().find(|family| family.class == class)
    }

    /// The family that a GGUF of this architecture is exported as.
    pub fn of_architecture(architecture: &str) -> Option<&'static Family> {
        FAMILIES.iter().find(|family| family.architecture == architecture)
    }

    /// The architectures of all families.
    pub fn architectures() -> Vec<&'static str> {
        let mut names: Vec<_> = FAMILIES.iter().map(|family| family.architecture).collect();
        names.dedup();
        names
    }

    /// Its tensors.
    pub fn rules(&self) -> impl Iterator<Item = &'static TensorRule> {
        self.tensors.iter().flat_map(|group| group.iter())
    }
}

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

/// The sizes behind [`Dim`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Dims {
    pub n_layer: u64,
    pub n_vocab: u64,
    pub n_embd: u64,
    pub n_ff: u64,
    pub n_head: u64,
    pub n_head_kv: u64,
    pub head_dim: u64,
    pub n_expert: u64,
    pub n_expert_ff: u64,
}

impl Dims {
    /// The size of a dimension.
    pub fn size(&self, dim: Dim) -> u64 {
        match dim {
            Dim::Vocab => self.n_vocab,
            Dim::Embd => self.n_embd,
            Dim::Ff => self.n_ff,
            Dim::TwoFf => 2 * self.n_ff,
            Dim::Q => self.n_head * self.head_dim,
            Dim::Kv => self.n_head_kv * self.head_dim,
            Dim::Qkv => (self.n_head + 2 * self.n_head_kv) * self.head_dim,
            Dim::Head => self.head_dim,
            Dim::Expert => self.n_expert,
            Dim::ExpertFf => self.n_expert_ff,
            Dim::TwoExpertFf => 2 * self.n_expert_ff,
        }
    }

    /// The shape of a tensor, row length last.
    pub fn shape(&self, rule: &TensorRule) -> Vec<u64> {
        rule.shape.iter().map(|&dim| self.size(dim)).collect()
    }

    /// Reads them from a configuration.
    pub fn of(config: &Config) -> Result<Dims, HfError> {
        let n_embd = config.require(&["hidden_size", "n_embd", "dim"])?;
        let n_head = config.require(&["num_attention_heads", "n_head", "n_heads"])?;
        let n_head_kv = config.u32(&["num_key_value_heads", "n_kv_heads"])?.unwrap_or(n_head);
        if n_head_kv == 0 || n_head % n_head_kv != 0 {
            return Err(config.wrong("num_key_value_heads", &format!("a divisor of the {n_head} heads")));
        }
        let head_dim = match config.u32(&["head_dim"])? {
            Some(0) => return Err(config.wrong("head_dim", "an integer above 0")),
            Some(head_dim) => head_dim,
            None => n_embd / n_head,
        };
        let n_expert = config.u32(&["num_local_experts", "num_experts", "n_routed_experts"])?.unwrap_or(0);
        let n_expert_ff = config.u32(&["moe_intermediate_size"])?.unwrap_or(0);
        Ok(Dims {
            n_layer: config.require(&["n_layers", "num_hidden_layers", "n_layer", "num_layers"])?.into(),
            n_vocab: config.require(&["vocab_size"])?.into(),
            n_embd: n_embd.into(),
            n_ff: config.require(&["intermediate_size", "n_inner", "hidden_dim"])?.into(),
            n_head: n_head.into(),
            n_head_kv: n_head_kv.into(),
            head_dim: head_dim.into(),
            n_expert: n_expert.into(),
            n_expert_ff: n_expert_ff.into(),
        })
    }
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

    #[test]
    fn no_family_has_two_rules_for_one_name() {
        for family in FAMILIES {
            let names: Vec<_> = family.rules().map(|rule| rule.hf).collect();
            let distinct: std::collections::HashSet<_> = names.iter().collect();
            assert_eq!(distinct.len(), names.len(), "{}", family.class);
        }
    }
}
