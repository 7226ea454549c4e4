//! What there is to know of a model family. Each file beside this one has one of them, or a few that share most.

use qgguf_gguf::Metadata;
use serde_json::{Map, Value};

use super::super::error::ExportError;
use super::super::keys::{
    BLOCK_COUNT, CONTEXT_LENGTH, EMBEDDING_LENGTH, EXPERT_COUNT, EXPERT_USED_COUNT, FEED_FORWARD_LENGTH,
    HEAD_COUNT, HEAD_COUNT_KV, KEY_LENGTH, RMS_EPSILON, VALUE_LENGTH,
};
use super::super::keys::{KeyReader, KeyWriter};
use super::super::losses::Losses;
use super::super::{Config, HfError, rope};
use super::dims::Dims;
use super::rules::TensorRule;
use qgguf_gguf::MetadataValue;

/// One model class of transformers: data, and functions where data does not reach.
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
    /// The biases that the class has.
    pub(crate) biases: Biases,
    /// The tensors, in groups.
    pub(super) tensors: &'static [&'static [TensorRule]],
    /// Configuration keys and the values they have when absent.
    pub(super) defaults: &'static [(&'static str, Fallback)],
    /// The key and the names of the activation that runtimes compute, as JSON, the usual first.
    pub(crate) activation: (&'static str, &'static [&'static str]),
    /// Scalings of rotary embeddings of which a GGUF says anything.
    pub(super) scalings: &'static [&'static str],
    /// A GGUF says between which wave lengths YaRN bends.
    pub(super) says_yarn_bends: bool,
    /// Configuration keys that no GGUF has, and what runtimes do, as JSON.
    pub(super) usual: &'static [(&'static str, &'static str)],
    /// The names of pre-tokenizers that its published checkpoints have, where one structure has several names.
    pub(crate) pre_tokenizers: &'static [&'static str],
    /// Whether the output uses the embeddings if the configuration does not say.
    pub(super) tied: bool,
    /// `tokenizer.ggml.add_space_prefix`, where the family says it and not the tokenizer.
    pub(crate) adds_space_prefix: Option<bool>,
    /// Tensors of a GGUF that follow from the configuration.
    pub(crate) derived: &'static [&'static str],
    /// Makes [`Family::derived`], and writes what stands in front of all other keys.
    pub(super) derive: Derive,
    /// Writes the `<architecture>.*` keys.
    pub(super) write_keys: fn(&mut KeyWriter<'_>, &Dims) -> Result<(), HfError>,
    /// Tells what a GGUF cannot say, beyond what is common to all.
    pub(super) losses: fn(&mut Losses<'_>, &Dims) -> Result<(), HfError>,
    /// Whether a GGUF is of this class and not of the first of its architecture.
    pub(super) is_of: fn(&KeyReader<'_>) -> Result<bool, ExportError>,
    /// Completes an exported configuration.
    pub(super) export: fn(&KeyReader<'_>, &mut Map<String, Value>) -> Result<(), ExportError>,
}

/// Names and values of tensors.
pub(super) type Derived = Vec<(String, Vec<f32>)>;
type Derive = fn(&Config, &Dims, &mut Metadata) -> Result<Derived, HfError>;

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

/// The biases that a class of transformers has a place for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Biases {
    /// Every projection's.
    All,
    /// Those of attention.
    Attention,
    /// Those of queries, keys and values.
    Qkv,
    /// None.
    None,
}

impl Biases {
    /// Whether the bias of this name in a GGUF is one of them.
    pub fn include(self, name: &str) -> bool {
        match self {
            Biases::All => true,
            Biases::Attention => name.contains(".attn_"),
            Biases::Qkv => name.contains(".attn_") && !name.contains(".attn_output."),
            Biases::None => false,
        }
    }
}

/// A value that a key has when it is absent.
#[derive(Clone, Copy, Debug)]
pub(super) enum Fallback {
    Number(f64),
    /// A number, but null is a value of its own.
    NumberOrNull(f64),
    Flag(bool),
    /// That of another key.
    Same(&'static str),
    /// The width of a head if the heads divide the width of the model.
    HeadDim,
}

use Fallback::{HeadDim, Number, Same};

pub(super) const ROPE_10K: (&str, Fallback) = ("rope_theta", Number(10_000.0));
pub(super) const ALL_HEADS: (&str, Fallback) = ("num_key_value_heads", Same("num_attention_heads"));
pub(super) const HEAD_DIM: (&str, Fallback) = ("head_dim", HeadDim);
pub(super) const CONTEXT_2K: (&str, Fallback) = ("max_position_embeddings", Number(2048.0));
pub(super) const CONTEXT_32K: (&str, Fallback) = ("max_position_embeddings", Number(32_768.0));
pub(super) const CONTEXT_128K: (&str, Fallback) = ("max_position_embeddings", Number(131_072.0));
pub(super) const EPS_6: (&str, Fallback) = ("rms_norm_eps", Number(1e-6));
pub(super) const EPS_5: (&str, Fallback) = ("rms_norm_eps", Number(1e-5));

/// What most families have; the rest of the fields says who one is.
pub(super) const COMMON: Family = Family {
    class: "",
    model_type: "",
    architecture: "",
    vocabulary: Vocabulary::Any,
    permuted: false,
    norms_from_one: false,
    biases: Biases::Attention,
    tensors: &[],
    defaults: &[],
    activation: ("hidden_act", &["\"silu\"", "\"swish\""]),
    scalings: &["linear", "yarn", "su", "longrope"],
    says_yarn_bends: false,
    usual: &[],
    pre_tokenizers: &[],
    tied: false,
    adds_space_prefix: None,
    derived: &[],
    derive: |_, _, _| Ok(Vec::new()),
    write_keys: |keys, _| common_keys(keys),
    losses: |_, _| Ok(()),
    is_of: |_| Ok(false),
    export: |_, _| Ok(()),
};

/// Which layers see a window only, if the configuration lists them.
pub(super) fn sliding_layers(config: &Config, dims: &Dims) -> Result<Option<Vec<bool>>, HfError> {
    let Some(types) = config.get(&["layer_types"]) else { return Ok(None) };
    let list = types.as_array().filter(|list| list.len() as u64 == dims.n_layer);
    let list =
        list.ok_or_else(|| config.wrong("layer_types", &format!("a list of {} layers", dims.n_layer)))?;
    Ok(Some(list.iter().map(|kind| kind == "sliding_attention").collect()))
}

/// The key that says which layers see a window only, by a period or layer by layer.
pub(super) const SLIDING_PATTERN: &str = "attention.sliding_window_pattern";

/// The keys that most architectures have, in llama.cpp's order.
pub(super) fn common_keys(keys: &mut KeyWriter<'_>) -> Result<(), HfError> {
    keys_without_head_width(keys)?;
    keys.write(&[KEY_LENGTH, VALUE_LENGTH])?;
    keys.file_type();
    Ok(())
}

/// [`common_keys`] up to the width of a head.
pub(super) fn keys_without_head_width(keys: &mut KeyWriter<'_>) -> Result<(), HfError> {
    keys.write(&[
        BLOCK_COUNT,
        CONTEXT_LENGTH,
        EMBEDDING_LENGTH,
        FEED_FORWARD_LENGTH,
        HEAD_COUNT,
        HEAD_COUNT_KV,
    ])?;
    if keys.config.get(&["is_causal"]) == Some(&Value::Bool(false)) {
        keys.set("attention.causal", MetadataValue::Bool(false));
    }
    rope::write(keys)?;
    keys.write(&[RMS_EPSILON, EXPERT_COUNT, EXPERT_USED_COUNT])
}
