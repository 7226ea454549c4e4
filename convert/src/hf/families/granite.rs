//! Granite: a Llama with four multipliers.

use super::super::json::number;
use super::family::Fallback::Number;
use super::family::{ALL_HEADS, Biases, CONTEXT_2K, EPS_6, Family, ROPE_10K, keys_without_head_width};
use super::llama::{LIKE_LLAMA, export_factors, vocabulary_and_rotated};

pub(super) const GRANITE: Family = Family {
    class: "GraniteForCausalLM",
    model_type: "granite",
    architecture: "granite",
    biases: Biases::All,
    defaults: &[
        CONTEXT_2K,
        (MULTIPLIERS[0].1, Number(1.0)),
        (MULTIPLIERS[1].1, Number(1.0)),
        (MULTIPLIERS[2].1, Number(1.0)),
        (MULTIPLIERS[3].1, Number(1.0)),
        ROPE_10K,
        ALL_HEADS,
        EPS_6,
    ],
    pre_tokenizers: &["refact"],
    write_keys: |keys, dims| {
        keys_without_head_width(keys)?;
        keys.file_type();
        vocabulary_and_rotated(keys, dims)?;
        for (key, name) in MULTIPLIERS {
            keys.set_f32(key, keys.config.f32(&[name])?.filter(|&x| x != 0.0));
        }
        Ok(())
    },
    export: |keys, config| {
        for (key, name) in MULTIPLIERS {
            if let Some(x) = keys.f32(key)? {
                config.insert(name.to_owned(), number(x));
            }
        }
        export_factors(keys, config)
    },
    ..LIKE_LLAMA
};

/// Keys of a GGUF and names in the configuration.
const MULTIPLIERS: [(&str, &str); 4] = [
    ("attention.scale", "attention_multiplier"),
    ("embedding_scale", "embedding_multiplier"),
    ("residual_scale", "residual_multiplier"),
    ("logit_scale", "logits_scaling"),
];
