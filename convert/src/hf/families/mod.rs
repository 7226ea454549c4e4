//! The model families: which tensors they have, what they are called here and there, and what shapes they have; which keys
//! a GGUF of them has, what it cannot say, and what an exported configuration says.
//!
//! One file per family, as in the runtime's `architectures`. To add one: write the file, add its line to [`FAMILIES`].

mod dims;
mod family;
mod gemma;
mod granite;
mod llama;
mod mistral;
mod mistral3;
mod olmo2;
mod phi3;
mod qwen2;
mod qwen3;
mod qwen3moe;
mod rules;
mod smollm3;

use qgguf_gguf::Metadata;
use serde_json::{Map, Value, json};

use super::config::describe;
use super::error::ExportError;
use super::keys::{KeyReader, KeyWriter};
use super::losses::Losses;
use super::{Config, HfError, rope};
pub use dims::Dims;
use family::Fallback;
pub use family::{Family, Vocabulary};
pub use rules::{Change, Dim, TensorRule, fill, template};

/// All families; of those with one `general.architecture` the first is the one that is exported, unless another says
/// that the file is its own.
const FAMILIES: &[Family] = &[
    llama::LLAMA,
    mistral::MISTRAL,
    mistral::MIXTRAL,
    mistral3::MINISTRAL3,
    mistral3::MISTRAL3,
    qwen2::QWEN2,
    qwen3::QWEN3,
    qwen3moe::QWEN3MOE,
    gemma::GEMMA2,
    gemma::GEMMA3,
    gemma::GEMMA3_WITH_VISION,
    phi3::PHI3,
    smollm3::SMOLLM3,
    olmo2::OLMO2,
    olmo2::OLMO3,
    granite::GRANITE,
];

/// Whether the output uses the embeddings.
pub(crate) const TIED: &str = "tie_word_embeddings";

impl Family {
    /// The family of a configuration, whose absent keys get their defaults.
    pub fn of(config: &mut Config) -> Result<&'static Family, HfError> {
        let class = config.class()?;
        let family = FAMILIES.iter().find(|family| family.class == class);
        let family = family.ok_or_else(|| HfError::Architecture {
            path: config.path().to_owned(),
            found: class.chars().take(100).collect(),
            known: FAMILIES.iter().map(|family| family.class).collect::<Vec<_>>().join(", "),
        })?;
        for (key, default) in family.defaults {
            if matches!(default, Fallback::NumberOrNull(_)) && config.is_null(key) {
                continue;
            }
            let value = match *default {
                Fallback::Number(x) | Fallback::NumberOrNull(x) if x.fract() == 0.0 => Some(json!(x as i64)),
                Fallback::Number(x) | Fallback::NumberOrNull(x) => Some(json!(x)),
                Fallback::Flag(flag) => Some(json!(flag)),
                Fallback::Same(other) => config.get(&[other]).cloned(),
                Fallback::HeadDim => {
                    match (config.u32(&["hidden_size"])?, config.u32(&["num_attention_heads"])?) {
                        (Some(width), Some(heads @ 1..)) => Some(json!(width / heads)),
                        _ => None,
                    }
                }
            };
            config.set_default(key, value.unwrap_or(Value::Null));
        }
        config.set_default(TIED, family.tied.into());
        Ok(family)
    }

    /// The family that a GGUF is exported as.
    pub(crate) fn of_file(keys: &KeyReader<'_>) -> Result<&'static Family, ExportError> {
        let mut first = None;
        for family in FAMILIES.iter().filter(|family| family.architecture == keys.architecture) {
            if (family.is_of)(keys)? {
                return Ok(family);
            }
            first = first.or(Some(family));
        }
        let mut known: Vec<_> = FAMILIES.iter().map(|family| family.architecture).collect();
        known.dedup();
        first.ok_or_else(|| ExportError::Architecture {
            found: keys.architecture.chars().take(60).collect(),
            known: known.join(", "),
        })
    }

    /// Its tensors.
    pub fn rules(&self) -> impl Iterator<Item = &'static TensorRule> {
        self.tensors.iter().flat_map(|group| group.iter())
    }

    /// Tensors that follow from the configuration; what is written about them stands before all other keys.
    pub(crate) fn derive(
        &self,
        config: &Config,
        dims: &Dims,
        metadata: &mut Metadata,
    ) -> Result<Vec<(String, Vec<f32>)>, HfError> {
        (self.derive)(config, dims, metadata)
    }

    /// Appends the `<architecture>.*` keys, `general.file_type` among them.
    pub(crate) fn write_keys(
        &self,
        config: &Config,
        dims: &Dims,
        file_type: u32,
        metadata: &mut Metadata,
    ) -> Result<(), HfError> {
        let architecture = self.architecture;
        let mut keys = KeyWriter { architecture, config, file_type, metadata };
        (self.write_keys)(&mut keys, dims)?;
        rope::write_magnitude(&mut keys)
    }

    /// A warning for each key that says something else than what runtimes of a GGUF do.
    pub(crate) fn losses(&self, config: &Config, dims: &Dims) -> Result<Vec<String>, HfError> {
        let mut losses = Losses::new(config, self.architecture);
        if let Some((key, found)) = config.entry(&["hidden_activation", "hidden_act"]) {
            if !found.is_string() {
                return Err(config.wrong(key, "a string"));
            }
            if !self.activation.1.contains(&found.to_string().as_str()) {
                losses.tell(key, &describe(found), self.activation.1[0]);
            }
        }
        self.usual.iter().for_each(|(key, usual)| losses.unless(key, usual));
        (self.losses)(&mut losses, dims)?;
        let scaling = config.rope()?.kind();
        // Text has the same position in all sections of mrope.
        if !["default", "mrope"].contains(&scaling) && !self.scalings.contains(&scaling) {
            losses.tell("rope_type", &describe(&scaling.into()), "\"default\"");
        }
        rope::losses(&mut losses, self.says_yarn_bends)?;
        Ok(losses.warnings())
    }

    /// Completes an exported configuration by what only this family has.
    pub(crate) fn export(
        &self,
        keys: &KeyReader<'_>,
        config: &mut Map<String, Value>,
    ) -> Result<(), ExportError> {
        (self.export)(keys, config)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_family_has_two_rules_for_one_name() {
        for family in FAMILIES {
            let names: Vec<_> = family.rules().map(|rule| rule.hf).collect();
            let distinct: std::collections::HashSet<_> = names.iter().collect();
            assert_eq!(distinct.len(), names.len(), "{}", family.class);
        }
    }
}
