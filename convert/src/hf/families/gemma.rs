//! Gemma 2 and 3 (text): norms around every block that multiply by one more than what is stored, and layers that see a
//! window only.

use qgguf_gguf::{MetadataArray, MetadataValue};
use serde_json::{Map, Value};

use super::super::error::ExportError;
use super::super::keys::{
    ATTENTION_SOFTCAP, BLOCK_COUNT, CONTEXT_LENGTH, EMBEDDING_LENGTH, FEED_FORWARD_LENGTH, FINAL_SOFTCAP,
    HEAD_COUNT, HEAD_COUNT_KV, KEY_LENGTH, KeyReader, RMS_EPSILON, SLIDING_WINDOW, VALUE_LENGTH,
};
use super::super::losses::Losses;
use super::super::{Config, HfError};
use super::dims::Dims;
use super::family::Fallback::{Number, NumberOrNull};
use super::family::{
    COMMON, CONTEXT_128K, EPS_6, Family, SLIDING_PATTERN, Vocabulary, common_keys, sliding_layers,
};
use super::rules::Dim::{Embd, Vocab};
use super::rules::{ATTENTION, Change, ENDS, HEAD_NORMS, MLP, POST_NORMS, TensorRule, rule};

pub(super) const GEMMA2: Family = Family {
    class: "Gemma2ForCausalLM",
    model_type: "gemma2",
    architecture: "gemma2",
    tensors: &[ENDS_TIED, PRE_NORMS, POST_NORMS, ATTENTION, MLP],
    defaults: &[
        ("num_key_value_heads", Number(4.0)),
        ("head_dim", Number(256.0)),
        ("query_pre_attn_scalar", Number(256.0)),
        (CAPS_OF_2[0].0, NumberOrNull(CAPS_OF_2[0].1)),
        (CAPS_OF_2[1].0, NumberOrNull(CAPS_OF_2[1].1)),
        ("sliding_window", Number(4096.0)),
        ("max_position_embeddings", Number(8192.0)),
        EPS_6,
    ],
    scalings: &[],
    write_keys: |keys, _| {
        keys.write(&[
            CONTEXT_LENGTH,
            EMBEDDING_LENGTH,
            BLOCK_COUNT,
            FEED_FORWARD_LENGTH,
            HEAD_COUNT,
            HEAD_COUNT_KV,
            RMS_EPSILON,
            KEY_LENGTH,
            VALUE_LENGTH,
        ])?;
        keys.file_type();
        keys.write(&[ATTENTION_SOFTCAP, FINAL_SOFTCAP, SLIDING_WINDOW])?;
        // What runtimes take without the key is not written.
        let theta = keys.config.rope()?.theta()?.filter(|&theta| theta != 10_000.0);
        keys.set_f32("rope.freq_base", theta);
        Ok(())
    },
    losses: |losses, dims| {
        for (cap, usual) in CAPS_OF_2 {
            if losses.config.is_null(cap) {
                losses.tell(cap, "null", &usual.to_string());
            }
        }
        scale_of_queries(losses, dims, GEMMA2_27B)
    },
    export: |keys, config| export_scale(keys, config, GEMMA2_27B),
    ..GEMMA
};

pub(super) const GEMMA3: Family = Family {
    class: "Gemma3ForCausalLM",
    model_type: "gemma3_text",
    architecture: "gemma3",
    tensors: &[ENDS, PRE_NORMS, POST_NORMS, ATTENTION, HEAD_NORMS, MLP],
    defaults: &[
        ("num_attention_heads", Number(8.0)),
        ("num_key_value_heads", Number(4.0)),
        ("head_dim", Number(256.0)),
        ("query_pre_attn_scalar", Number(256.0)),
        ("rope_theta", Number(1e6)),
        ("rope_local_base_freq", Number(10_000.0)),
        ("sliding_window", Number(4096.0)),
        CONTEXT_128K,
        EPS_6,
    ],
    usual: &[("attn_logit_softcapping", "null")],
    write_keys: |keys, dims| {
        common_keys(keys)?;
        keys.write(&[FINAL_SOFTCAP])?;
        let windows = Windows::of(keys.config, dims)?;
        if windows == Windows::Every(1) {
            return Ok(());
        }
        keys.write(&[SLIDING_WINDOW])?;
        match windows {
            Windows::Every(PERIOD) => {}
            Windows::Every(period) => keys.set(SLIDING_PATTERN, MetadataValue::U32(period)),
            Windows::Listed(list) => {
                keys.set(SLIDING_PATTERN, MetadataValue::Array(MetadataArray::Bool(list)));
            }
        }
        Ok(())
    },
    losses: |losses, dims| {
        if ![Windows::Every(1), Windows::Every(PERIOD)].contains(&Windows::of(losses.config, dims)?) {
            losses.note(
                "not every sixth layer is the one that sees everything, which the GGUF says in a key that runtimes may not \
                 know: those take every sixth",
            );
        }
        scale_of_queries(losses, dims, GEMMA3_27B)
    },
    export: |keys, config| {
        export_scale(keys, config, GEMMA3_27B)?;
        let mut period = if keys.has(SLIDING_WINDOW.gguf) { PERIOD } else { 1 };
        match keys.file.metadata().get(&keys.name(SLIDING_PATTERN)) {
            Some(MetadataValue::Array(MetadataArray::Bool(slides))) => {
                let name = |&slides: &bool| if slides { "sliding_attention" } else { "full_attention" };
                config.insert("layer_types".to_owned(), slides.iter().map(name).collect());
            }
            Some(&MetadataValue::U32(stated)) => period = stated,
            _ => {}
        }
        config.insert(PATTERN.to_owned(), period.into());
        Ok(())
    },
    ..GEMMA
};

pub(super) const GEMMA3_WITH_VISION: Family =
    Family { class: "Gemma3ForConditionalGeneration", model_type: "gemma3", ..GEMMA3 };

/// What both generations share.
const GEMMA: Family = Family {
    vocabulary: Vocabulary::SentencePieceOrBpe,
    norms_from_one: true,
    // Configurations often name the form without tanh for models that were trained with the other.
    activation: ("hidden_activation", &["\"gelu_pytorch_tanh\"", "\"gelu_new\"", "\"gelu\""]),
    tied: true,
    adds_space_prefix: Some(false),
    ..COMMON
};

/// The layers of the largest models, which scale attention by the width for each head; no key says so.
const GEMMA2_27B: u64 = 46;
const GEMMA3_27B: u64 = 62;
/// One layer of Gemma 3 in so many sees everything.
const PERIOD: u32 = 6;
const PATTERN: &str = "sliding_window_pattern";
/// What Gemma 2 caps scores and logits at. Runtimes cap them where no key says so, too.
const CAPS_OF_2: [(&str, f64); 2] = [("attn_logit_softcapping", 50.0), ("final_logit_softcapping", 30.0)];

/// Which layers of Gemma 3 see a window only.
#[derive(PartialEq)]
enum Windows {
    /// All but one in so many, the last of them.
    Every(u32),
    /// Those that are true.
    Listed(Vec<bool>),
}

impl Windows {
    fn of(config: &Config, dims: &Dims) -> Result<Windows, HfError> {
        let stated = config.u32(&[PATTERN, "_sliding_window_pattern"])?.unwrap_or(PERIOD);
        let Some(list) = sliding_layers(config, dims)? else {
            return match stated {
                0 => Err(config.wrong(PATTERN, "an integer above 0")),
                period => Ok(Windows::Every(period)),
            };
        };
        // The usual period first: it also is that of models that are shorter.
        let is_of = |&period: &u32| list.iter().zip(1..).all(|(&slides, i)| slides == (i % period != 0));
        let periods = [PERIOD].into_iter().chain(1..=list.len() as u32);
        Ok(periods.into_iter().find(is_of).map_or(Windows::Listed(list), Windows::Every))
    }
}

const ENDS_TIED: &[TensorRule] = &[
    rule("model.embed_tokens.weight", "token_embd.weight", &[Vocab, Embd]),
    rule("lm_head.weight", "output.weight", &[Vocab, Embd]).optional().change(Change::Drop),
    rule("model.norm.weight", "output_norm.weight", &[Embd]),
];
const PRE_NORMS: &[TensorRule] = &[
    rule("model.layers.{}.input_layernorm.weight", "blk.{}.attn_norm.weight", &[Embd]),
    rule("model.layers.{}.pre_feedforward_layernorm.weight", "blk.{}.ffn_norm.weight", &[Embd]),
];

/// Queries are scaled by the width of a head, of the largest model by the width of the residual stream for each head.
fn scale_of_queries(losses: &mut Losses<'_>, dims: &Dims, layers_of_27b: u64) -> Result<(), HfError> {
    let usual = if dims.n_layer == layers_of_27b { dims.n_embd / dims.n_head } else { dims.head_dim };
    match losses.config.f32(&["query_pre_attn_scalar"])? {
        Some(found) if found != usual as f32 => {
            losses.tell("query_pre_attn_scalar", &found.to_string(), &usual.to_string());
        }
        _ => {}
    }
    Ok(())
}

fn export_scale(
    keys: &KeyReader<'_>,
    config: &mut Map<String, Value>,
    layers_of_27b: u64,
) -> Result<(), ExportError> {
    let width = keys.u64(EMBEDDING_LENGTH.gguf)?.zip(keys.u64(HEAD_COUNT.gguf)?);
    let scalar = match width {
        Some((width, heads @ 1..)) if keys.n_layer()? == layers_of_27b => Some(width / heads),
        _ => keys.u64(KEY_LENGTH.gguf)?,
    };
    if let Some(scalar) = scalar {
        config.insert("query_pre_attn_scalar".to_owned(), scalar.into());
    }
    Ok(())
}
