//! Where the original comes from: a GGUF, or a Hugging Face checkpoint whose weights become f32 in memory.

use std::path::Path;

use qgguf::model::{Model, ModelOptions};
use qgguf_convert::file_type::FileType;
use qgguf_convert::hf::convert::{Options, Source};
use qgguf_gguf::{GgufFile, TensorSpec, in_memory};

use crate::cli::error::{Failure, Result};
use crate::cli::terminal::{self, note};

/// Opens a GGUF, or a checkpoint: its folder or its only `.safetensors` file.
pub fn open(path: &Path, options: &ModelOptions) -> Result<Model> {
    let is_checkpoint = path.is_dir() || path.extension().is_some_and(|extension| extension == "safetensors");
    if is_checkpoint { checkpoint(path, options) } else { Ok(Model::open(path, options)?) }
}

fn checkpoint(path: &Path, options: &ModelOptions) -> Result<Model> {
    let source = Source::open(path)?;
    let pre = options.tokenizer.pre_override.clone();
    let exact = Options { out_type: Some(FileType::F32), pre, ..Options::default() };
    let conversion = source.convert(&exact)?;
    conversion.warnings.iter().for_each(|warning| note!("qgguf: warning: {}", terminal::escape(warning)));
    let specs: Vec<TensorSpec> = conversion.tensors.iter().map(|tensor| tensor.spec.clone()).collect();
    let bytes = in_memory(path, &conversion.metadata, &specs, |i, out| -> Result<()> {
        let out = out.as_chunks_mut::<4>().0;
        let mut weights = vec![0.0; out.len()];
        let n_rows = specs[i].shape.iter().skip(1).product();
        let read = conversion.tensors[i].source.read_rows(0..n_rows, &mut weights);
        read.map_err(|error| Failure::Other(vec![specs[i].name.clone()], error))?;
        out.iter_mut().zip(weights).for_each(|(out, w)| *out = w.to_le_bytes());
        Ok(())
    })?;
    Ok(Model::from_file(GgufFile::from_bytes(path, bytes)?, options)?)
}
