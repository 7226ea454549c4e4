//! The model under test, and its description.

use std::path::Path;
use std::sync::Arc;

use qgguf::model::{Model, ModelOptions};
use qgguf_gguf::{GgufFile, file_type_name};

use super::plan::LoadMode;
use super::work::Work;
use crate::cli::error::Result;
use crate::cli::inspect::Summary;

/// An opened model.
pub struct Subject {
    pub model: Arc<Model>,
    /// As llama.cpp describes it: `qwen3 0.6B Q4_K - Medium`.
    pub model_type: String,
    /// Bytes of all tensors.
    pub n_bytes: u64,
    /// Elements of all tensors.
    pub n_params: u64,
    /// Positions that the longest of its tests takes.
    pub n_ctx: usize,
    /// What its tokens cost.
    pub work: Work,
}

impl Subject {
    /// Opens a model for contexts of up to `n_ctx` positions.
    pub fn open(path: &Path, load_mode: LoadMode, n_ctx: usize) -> Result<Subject> {
        let options = ModelOptions {
            mlock: load_mode == LoadMode::Mlock,
            no_mmap: load_mode == LoadMode::None,
            ..ModelOptions::default()
        };
        let model = Model::open(path, &options)?;
        let summary = Summary::of(model.file());
        let all = summary.all;
        let size = size_label(model.file(), all.n_parameters);
        Ok(Subject {
            model_type: format!("{} {size} {}", model.hparams().arch, file_type(model.file(), &summary)),
            n_bytes: all.n_bytes,
            n_params: all.n_parameters,
            n_ctx,
            work: Work::of(&model),
            model: Arc::new(model),
        })
    }
}

/// What the file calls its size, or its number of parameters in the same style.
fn size_label(file: &GgufFile, n_params: u64) -> String {
    match file.metadata().str("general.size_label") {
        Ok(Some(label)) => label.to_owned(),
        _ if n_params < 1_000_000_000 => format!("{:.0}M", n_params as f64 / 1e6),
        _ => format!("{:.1}B", n_params as f64 / 1e9),
    }
}

/// llama.cpp's words for what most weights were quantized to; the type with the most bytes if the file is silent.
fn file_type(file: &GgufFile, summary: &Summary) -> String {
    let named = file.metadata().u32("general.file_type").ok().flatten().and_then(file_type_name);
    let Some(name) = named else {
        let largest = summary.types.iter().max_by_key(|(_, totals)| totals.n_bytes);
        return largest.map_or(String::new(), |(ty, _)| format!("(guessed) {}", ty.name().to_uppercase()));
    };
    match name {
        "F32" => "all F32".to_owned(),
        "Q2_K" => "Q2_K - Medium".to_owned(),
        "MXFP4_MOE" => "MXFP4 MoE".to_owned(),
        "TQ1_0" => "TQ1_0 - 1.69 bpw ternary".to_owned(),
        "TQ2_0" => "TQ2_0 - 2.06 bpw ternary".to_owned(),
        "IQ4_NL" => "IQ4_NL - 4.5 bpw".to_owned(),
        "IQ4_XS" => "IQ4_XS - 4.25 bpw".to_owned(),
        _ => match name.rsplit_once("_K_") {
            Some((bits, "S")) => format!("{bits}_K - Small"),
            Some((bits, "M")) => format!("{bits}_K - Medium"),
            Some((bits, "L")) => format!("{bits}_K - Large"),
            _ => name.to_owned(),
        },
    }
}
