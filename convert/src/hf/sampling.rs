//! `generation_config.json` as `general.sampling.*` keys.

use std::path::Path;

use qgguf_gguf::{Metadata, MetadataValue};
use serde_json::Value;

use super::config::describe;
use super::overrides::Overrides;
use super::{HfError, json};

/// One setting.
pub(crate) struct Setting {
    /// Without `general.sampling.` in front.
    pub key: &'static str,
    /// In `generation_config.json`.
    pub name: &'static str,
    kind: Kind,
}

/// The values that a setting can have.
#[derive(Clone, Copy)]
enum Kind {
    Integer,
    NotNegative,
    Positive,
    Probability,
}

const fn setting(key: &'static str, name: &'static str, kind: Kind) -> Setting {
    Setting { key, name, kind }
}

/// All settings, in order.
pub(crate) const SETTINGS: [Setting; 12] = [
    setting("top_k", "top_k", Kind::Integer),
    setting("top_p", "top_p", Kind::Probability),
    setting("min_p", "min_p", Kind::Probability),
    setting("xtc_probability", "xtc_probability", Kind::Probability),
    setting("xtc_threshold", "xtc_threshold", Kind::NotNegative),
    setting("temp", "temperature", Kind::NotNegative),
    setting("penalty_last_n", "penalty_last_n", Kind::Integer),
    setting("penalty_repeat", "penalty_repeat", Kind::Positive),
    setting("penalty_repeat", "repetition_penalty", Kind::Positive),
    setting("mirostat", "mirostat", Kind::Integer),
    setting("mirostat_tau", "mirostat_tau", Kind::NotNegative),
    setting("mirostat_eta", "mirostat_eta", Kind::NotNegative),
];

impl Kind {
    fn expected(self) -> &'static str {
        match self {
            Kind::Integer => "an integer",
            Kind::NotNegative => "a number not below 0",
            Kind::Positive => "a number above 0",
            Kind::Probability => "a number from 0 to 1",
        }
    }

    /// The value for a GGUF; `None` if it is of another kind or out of range.
    fn read(self, value: &Value) -> Option<MetadataValue> {
        let number = |is_in_range: fn(f32) -> bool| {
            let x = value.as_f64()? as f32;
            (x.is_finite() && is_in_range(x)).then_some(MetadataValue::F32(x))
        };
        match self {
            Kind::Integer => i32::try_from(value.as_i64()?).ok().map(MetadataValue::I32),
            Kind::NotNegative => number(|x| x >= 0.0),
            Kind::Positive => number(|x| x > 0.0),
            Kind::Probability => number(|x| (0.0..=1.0).contains(&x)),
        }
    }
}

/// Appends what the folder's `generation_config.json` recommends; `overrides` stand over it. A value that no sampler can
/// use is an error in the overrides; the file's is left out, and told.
pub(super) fn write(
    dir: &Path,
    overrides: &Overrides,
    metadata: &mut Metadata,
) -> Result<Vec<String>, HfError> {
    let path = dir.join("generation_config.json");
    let config = json::read_object(&path)?.unwrap_or_default();
    let mut warnings = Vec::new();
    let mut sequence = config.get("sequence").and_then(Value::as_str).map(str::to_owned);
    overrides.text("general.sampling.sequence", &mut sequence)?;
    if let Some(sequence) = sequence.filter(|text| !text.is_empty()) {
        metadata.set("general.sampling.sequence", MetadataValue::String(sequence));
    }
    for Setting { key, name, kind } in SETTINGS {
        let key = format!("general.sampling.{key}");
        let replaced = overrides.get(&key);
        let Some(value) = replaced.or(config.get(name)).filter(|value| !value.is_null()) else { continue };
        if metadata.get(&key).is_some() {
            continue;
        }
        let wrong =
            |name: &str| format!("\"{name}\": expected {}, found {}", kind.expected(), describe(value));
        match (kind.read(value), replaced) {
            (Some(value), _) => _ = metadata.set(&key, value),
            (None, Some(_)) => return Err(HfError::file(&overrides.path, wrong(&key))),
            (None, None) => warnings.push(format!("{}: {}; it is left out", path.display(), wrong(name))),
        }
    }
    Ok(warnings)
}
