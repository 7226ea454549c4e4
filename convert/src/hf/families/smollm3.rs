//! SmolLM3: a Llama of which every fourth layer does not rotate.

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
    export: |keys, config| {
        let rotates = (1..=keys.n_layer()?).map(|i| u8::from(i % INTERVAL != 0)).collect();
        config.insert("no_rope_layer_interval".to_owned(), INTERVAL.into());
        config.insert("no_rope_layers".to_owned(), rotates);
        export_factors(keys, config)
    },
    ..LIKE_LLAMA
};

/// One layer in so many does not rotate, the last of them.
const INTERVAL: u64 = 4;
