//! The way back: a GGUF of a known architecture becomes a checkpoint that `convert` and transformers read.
//!
//! Everything is decided from the metadata first ([`config`], [`tokenizer`]); the rows of [`tensors`] are streamed. What
//! the converter would then write for the architecture's keys is compared with what the file says, and with the small
//! files written all other keys are ([`lost_keys`]).

mod card;
mod config;
mod tensors;
mod tokenizer;

use std::path::Path;

use qgguf_gguf::{GgmlType, GgufFile, Metadata, MetadataValue};
use serde_json::Value;

use super::Config;
use super::convert::{ConvertError, Options, Source};
pub use super::error::ExportError;
use super::families::{Dims, Family};
use super::keys::KeyReader;
use crate::gguf_rows::Shards;
use crate::pipeline::OutputTensor;

/// A checkpoint that can be written.
pub struct Export<'a> {
    /// Its family.
    pub family: &'static Family,
    /// Small files: their names and what is in them.
    pub files: Vec<(&'static str, Vec<u8>)>,
    /// The tensors of `model.safetensors`, sorted by name.
    pub tensors: Vec<OutputTensor<'a>>,
    /// What the user should know.
    pub warnings: Vec<String>,
}

impl<'a> Export<'a> {
    /// Decides everything about the checkpoint of `file`, whose matrices get the type `ty`, or keep theirs if it is
    /// `None`: quantized ones become f16. Vectors and norms are f32 as in every GGUF.
    pub fn of(
        file: &'a GgufFile,
        shards: &'a Shards,
        ty: Option<GgmlType>,
    ) -> Result<Export<'a>, ExportError> {
        if file.big_endian() {
            return Err(ExportError::Model("a big-endian file cannot be exported".to_owned()));
        }
        let keys = KeyReader { architecture: file.architecture()?, file };
        let family = Family::of_file(&keys)?;
        let mut warnings = Vec::new();
        let tensors = tensors::Tensors::of(family, file)?;
        let config = config::config(family, &keys, tensors.matrix_type(ty))?;
        let parsed = Config::new("config.json".into(), config.clone());
        let dims = Dims::of(&parsed)?;
        check(family, file.metadata(), &parsed, &dims, &mut warnings)?;
        let tensors = tensors.plan(family, file, &dims, shards, ty, &mut warnings)?;
        let mut files = vec![
            ("config.json", pretty(&Value::Object(config))),
            ("generation_config.json", pretty(&config::generation_config(file.metadata())?)),
            ("README.md", card::card(file.metadata())?.into_bytes()),
        ];
        files.extend(tokenizer::files(family, file.metadata(), &dims)?);
        Ok(Export { family, files, tensors, warnings })
    }
}

/// Compares the keys that the converter would write from this configuration with those of the file.
fn check(
    family: &Family,
    metadata: &Metadata,
    config: &Config,
    dims: &Dims,
    warnings: &mut Vec<String>,
) -> Result<(), ExportError> {
    let mut written = Metadata::default();
    family.derive(config, dims, &mut written)?;
    family.write_keys(config, dims, 0, &mut written)?;
    let prefix = format!("{}.", family.architecture);
    for (key, value) in metadata.iter().filter(|(key, _)| key.starts_with(&prefix)) {
        let found = written.get(key);
        if found.is_some_and(|found| same(found, value)) {
            continue;
        }
        let after = found.map_or_else(|| "missing".to_owned(), short);
        warnings.push(format!(
            "{key} = {} has no place in a {}: after convert it is {after}",
            short(value),
            family.class
        ));
    }
    Ok(())
}

/// The keys that convert does not find in `folder`, where the small files of the exported checkpoint are. Those of the
/// architecture are not among them: [`Export::of`] warns of each.
pub fn lost_keys(file: &GgufFile, folder: &Path) -> Result<Vec<String>, ConvertError> {
    let written = Source::open_vocabulary(folder)?.convert(&Options::default())?.metadata;
    let of_architecture = format!("{}.", file.architecture().unwrap_or_default());
    // How the file came about is not what the model is.
    let ignored = [of_architecture.as_str(), "general.alignment", "split.", "quantize."];
    let is_lost =
        |key: &str| written.get(key).is_none() && !ignored.iter().any(|start| key.starts_with(start));
    Ok(file.metadata().iter().map(|(key, _)| key).filter(|key| is_lost(key)).map(str::to_owned).collect())
}

/// Whether two values mean the same: files of other programs have other widths of integers.
fn same(a: &MetadataValue, b: &MetadataValue) -> bool {
    match (a.as_integer(), b.as_integer()) {
        (Some(a), Some(b)) => a == b,
        _ => a == b,
    }
}

/// A value as a warning shows it.
fn short(value: &MetadataValue) -> String {
    let text = format!("{value:?}");
    match text.char_indices().nth(80) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

fn pretty(value: &Value) -> Vec<u8> {
    let mut text = serde_json::to_vec_pretty(value).expect("JSON can be written");
    text.push(b'\n');
    text
}
