//! SmolLM3: a Llama of which every fourth layer does not rotate.

use serde_json::Value;

use super::super::config::describe;
use super::family::Fallback::Number;
use super::family::{Biases, CONTEXT_32K, EPS_6, Family};
use super::llama::{LIKE_LLAMA, export_factors};

pub(super) const SMOLLM3: Family = Family {
    class: "SmolLM3ForCausalLM",
    model_type: "smollm3",
    architecture: "smollm3",
    biases: Biases::All,
    defaults: &[CONTEXT_32K, ("rope_theta", Number(2e6)), ("num_key_value_heads", Number(4.0)), EPS_6],
    usual: &[("use_sliding_window", "false")],
    tied: true,
    losses: |losses, dims| {
        let config = losses.config;
        let usual: Value = rotates(dims.n_layer.min(u64::from(u16::MAX)));
        match (config.get(&[LAYERS]), config.get(&[EVERY])) {
            (Some(layers), _) if *layers != usual => {
                losses.tell(LAYERS, &describe(layers), &describe(&usual));
            }
            (None, Some(every)) if *every != INTERVAL => {
                losses.tell(EVERY, &describe(every), &INTERVAL.to_string());
            }
            _ => {}
        }
        Ok(())
    },
    export: |keys, config| {
        config.insert(EVERY.to_owned(), INTERVAL.into());
        config.insert(LAYERS.to_owned(), rotates(keys.n_layer()?));
        export_factors(keys, config)
    },
    ..LIKE_LLAMA
};

/// One layer in so many does not rotate, the last of them.
const INTERVAL: u64 = 4;
const EVERY: &str = "no_rope_layer_interval";
const LAYERS: &str = "no_rope_layers";

/// 1 for each layer that rotates.
fn rotates(n_layer: u64) -> Value {
    (1..=n_layer).map(|i| u8::from(i % INTERVAL != 0)).collect()
}
