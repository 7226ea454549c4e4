//! Ministral 3 and Mistral Small 3 (text): Llamas whose queries may grow with the position.

use serde_json::{Map, Value};

use super::super::HfError;
use super::super::error::ExportError;
use super::super::json::number;
use super::super::keys::{KeyReader, KeyWriter};
use super::dims::Dims;
use super::family::{ALL_HEADS, Biases, EPS_5, Family, HEAD_DIM, common_keys};
use super::llama::{LIKE_LLAMA, export_factors, vocabulary_and_rotated};
use super::mistral::window_within_context;

pub(super) const MINISTRAL3: Family = Family {
    class: "Ministral3ForCausalLM",
    model_type: "ministral3",
    architecture: "mistral3",
    biases: Biases::None,
    defaults: &[ALL_HEADS, HEAD_DIM, EPS_5],
    says_yarn_bends: true,
    write_keys,
    losses: window_within_context,
    export,
    ..LIKE_LLAMA
};

pub(super) const MISTRAL3: Family = Family {
    class: "Mistral3ForConditionalGeneration",
    model_type: "mistral3",
    biases: Biases::Attention,
    ..MINISTRAL3
};

/// Keys of a GGUF and names among the parameters of rotary embeddings.
const PARAMETERS: [(&str, &str); 2] = [
    ("rope.scaling.yarn_log_multiplier", "mscale_all_dim"),
    ("attention.temperature_scale", "llama_4_scaling_beta"),
];

fn write_keys(keys: &mut KeyWriter<'_>, dims: &Dims) -> Result<(), HfError> {
    common_keys(keys)?;
    vocabulary_and_rotated(keys, dims)?;
    let rope = keys.config.rope()?;
    for (key, name) in PARAMETERS {
        keys.set_f32(key, rope.f32(name)?);
    }
    Ok(())
}

fn export(keys: &KeyReader<'_>, config: &mut Map<String, Value>) -> Result<(), ExportError> {
    export_factors(keys, config)?;
    let scaling = config.shift_remove("rope_scaling");
    let mut scaling = scaling.and_then(|value| value.as_object().cloned()).unwrap_or_default();
    for (key, name) in PARAMETERS.into_iter().chain([("rope.freq_base", "rope_theta")]) {
        if let Some(x) = keys.f32(key)? {
            scaling.insert(name.to_owned(), number(x));
        }
    }
    if scaling.contains_key("mscale_all_dim") {
        // What the other is measured by; without it transformers would not look at either.
        scaling.insert("mscale".to_owned(), number(1.0));
    }
    if !scaling.is_empty() {
        config.insert("rope_parameters".to_owned(), scaling.into());
    }
    Ok(())
}
