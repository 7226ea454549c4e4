//! The sampling settings that a model file brings along (`general.sampling.*`).

use qgguf_gguf::{Error, Metadata};

use super::SamplerError;
use super::params::{Order, SamplerParams};
use super::selector::Mirostat;

fn key(name: &str) -> String {
    format!("general.sampling.{name}")
}

impl SamplerParams {
    /// The defaults, replaced by what the file's `general.sampling.*` keys say. What the file asks for and this
    /// sampler does not have is in [`SamplerParams::left_out`].
    ///
    /// # Errors
    /// A value of the wrong type or without a meaning, by its key.
    pub fn from_metadata(metadata: &Metadata) -> Result<SamplerParams, Error> {
        let mut params = SamplerParams::default();
        let number = |name: &str, field: &mut f32| {
            *field = metadata.f32(&key(name))?.unwrap_or(*field);
            Ok::<(), Error>(())
        };
        number("temp", &mut params.temperature)?;
        number("top_p", &mut params.top_p)?;
        number("min_p", &mut params.min_p)?;
        number("penalty_repeat", &mut params.repeat_penalty)?;
        number("xtc_probability", &mut params.xtc_probability)?;
        number("xtc_threshold", &mut params.xtc_threshold)?;
        number("mirostat_tau", &mut params.mirostat_tau)?;
        number("mirostat_eta", &mut params.mirostat_eta)?;
        if let Some(top_k) = metadata.i32(&key("top_k"))? {
            params.top_k = top_k;
        }
        if let Some(last_n) = metadata.i32(&key("penalty_last_n"))? {
            // Negative means off, as in llama.cpp.
            params.penalty_last_n = u32::try_from(last_n).unwrap_or(0);
        }
        if let Some(sequence) = metadata.str(&key("sequence"))? {
            params.set_sequence(sequence);
        }
        if let Some(number) = metadata.i32(&key("mirostat"))? {
            params.mirostat = Mirostat::from_number(number).ok_or_else(|| Error::WrongType {
                key: key("mirostat"),
                expected: "0 (off), 1 or 2".to_owned(),
                found: number.to_string(),
            })?;
        }
        params.validate().map_err(without_meaning)?;
        Ok(params)
    }

    /// Takes over the stages of `sequence` that exist here.
    fn set_sequence(&mut self, sequence: &str) {
        self.order.clear();
        for name in sequence.split(';') {
            match name.parse::<Order>() {
                Ok(mut one) => {
                    self.order.append(&mut one.stages);
                    self.left_out.append(&mut one.left_out);
                }
                Err(_) => self.left_out.push(name.trim().to_owned()),
            }
        }
    }
}

/// The error of [`SamplerParams::validate`] as one of the file.
fn without_meaning(error: SamplerError) -> Error {
    let (name, expected, found) = match error {
        SamplerError::BadValue { name, value, expected } => (name, expected.to_owned(), value),
        other => (String::new(), "sampling settings".to_owned(), other.to_string()),
    };
    let name = match name.as_str() {
        "temperature" => "temp",
        "repeat_penalty" => "penalty_repeat",
        same => same,
    };
    Error::WrongType { key: key(name), expected, found }
}

#[cfg(test)]
mod tests {
    use super::super::{Sampler, Stage};
    use super::*;
    use qgguf_gguf::MetadataValue as Value;

    fn metadata(values: &[(&str, Value)]) -> Metadata {
        let mut metadata = Metadata::default();
        for (name, value) in values {
            metadata.set(&key(name), value.clone());
        }
        metadata
    }

    #[test]
    fn a_file_without_settings_leaves_the_defaults() {
        assert_eq!(SamplerParams::from_metadata(&Metadata::default()).unwrap(), SamplerParams::default());
    }

    #[test]
    fn a_files_settings_replace_the_defaults_and_are_shown() {
        let metadata = metadata(&[
            ("temp", Value::F32(0.6)),
            ("top_k", Value::I32(20)),
            ("top_p", Value::F64(0.8)),
            ("min_p", Value::F32(0.0)),
            ("penalty_repeat", Value::F32(1.1)),
            ("penalty_last_n", Value::I32(-1)),
            ("sequence", Value::String("top_k;top_p;xtc;temperature".into())),
            ("mirostat", Value::I32(0)),
            ("xtc_probability", Value::F32(0.5)),
            ("xtc_threshold", Value::F32(0.2)),
        ]);
        let params = SamplerParams::from_metadata(&metadata).unwrap();
        assert_eq!(params.order, [Stage::TopK, Stage::TopP, Stage::Xtc, Stage::Temperature]);
        assert_eq!((params.repeat_penalty, params.penalty_last_n), (1.1, 0));
        let sampler = Sampler::new(params, Some(7)).unwrap();
        assert_eq!(
            sampler.to_string(),
            "top_k 20 > top_p 0.8 > xtc 0.5 (from 0.2) > temperature 0.6 > draw (seed 7)"
        );
    }

    #[test]
    fn wrong_values_in_a_file_are_named_by_their_key() {
        for (name, value, want) in [
            ("top_k", Value::String("x".into()), "expected an integer in the range of i32"),
            ("temp", Value::F32(f32::NAN), "expected a finite number"),
            ("penalty_repeat", Value::F32(0.0), "expected a finite number above 0"),
            ("top_p", Value::F32(-1.0), "expected a probability"),
            ("mirostat", Value::I32(3), "expected 0 (off), 1 or 2"),
        ] {
            let error = SamplerParams::from_metadata(&metadata(&[(name, value)])).unwrap_err().to_string();
            assert!(error.contains(&key(name)) && error.contains(want), "{error}");
        }
    }
}
