//! One checkpoint becomes one GGUF: what goes into it is decided first, then its rows are streamed.

use std::fs;
use std::path::{Path, PathBuf};

use half::f16;
use qgguf_gguf::{GgmlType, Metadata, MetadataValue, TensorSpec};
use rayon::iter::{IntoParallelRefIterator, ParallelIterator};
use serde_json::Value;

use super::checkpoint::{Checkpoint, Location};
use super::families::{Dims, Family, TIED};
use super::general::General;
use super::keys::CONTEXT_LENGTH;
use super::overrides::Overrides;
use super::tensors::{self, Planned};
use super::{Config, HfError, naming, quantization, sampling, tokenizer};
use crate::file_type::FileType;
use crate::model_shape::ModelShape;
use crate::pipeline::{OutputTensor, SourceError};
use crate::recipe::{self, Recipe, RecipeError};

/// What the user wants.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The type of the weights; that of the checkpoint if none is named.
    pub out_type: Option<FileType>,
    /// The pre-tokenizer, for tokenizers that are not recognized.
    pub pre: Option<String>,
    /// What stands over the description of the model.
    pub overrides: Overrides,
}

/// Why there is no GGUF.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConvertError {
    /// The checkpoint.
    #[error(transparent)]
    Checkpoint(#[from] HfError),
    /// The types.
    #[error(transparent)]
    Recipe(#[from] RecipeError),
    /// Weights cannot be had.
    #[error("tensor \"{tensor}\": {source}")]
    Source {
        /// The tensor.
        tensor: String,
        /// Why.
        source: SourceError,
    },
    /// The metadata.
    #[error(transparent)]
    Metadata(#[from] qgguf_gguf::Error),
}

/// A checkpoint that was opened and checked.
pub struct Source {
    /// Where it is.
    pub location: Location,
    /// Its family.
    pub family: &'static Family,
    config: Config,
    dims: Dims,
    /// Nothing if only the vocabulary is converted.
    checkpoint: Option<Checkpoint>,
    warnings: Vec<String>,
}

/// What will be written.
pub struct Conversion<'a> {
    /// The metadata.
    pub metadata: Metadata,
    /// The tensors.
    pub tensors: Vec<OutputTensor<'a>>,
    /// The name of the file that llama.cpp would choose.
    pub file_name: String,
    /// The type of most weights.
    pub file_type: FileType,
    /// What was found out on the way.
    pub notes: Vec<String>,
    /// What the user should know.
    pub warnings: Vec<String>,
}

impl Source {
    /// Opens a folder, a `.safetensors` file, or a repository in the cache.
    pub fn open(input: &Path) -> Result<Source, HfError> {
        Source::open_with(input, |location| Checkpoint::open(location).map(Some))
    }

    /// The same for a model of which only the vocabulary is wanted: it may have no weights.
    pub fn open_vocabulary(input: &Path) -> Result<Source, HfError> {
        Source::open_with(input, |_| Ok(None))
    }

    fn open_with(
        input: &Path,
        open_weights: impl Fn(&Location) -> Result<Option<Checkpoint>, HfError>,
    ) -> Result<Source, HfError> {
        let location = Location::find(input)?;
        location.refuse_adapter()?;
        let mut config = match Config::read(&location.dir) {
            Ok(config) => config,
            // A folder without anything, or with pickles, is better told from its weights.
            Err(e) if location.dir.join("config.json").symlink_metadata().is_err() => {
                open_weights(&location)?;
                return Err(e);
            }
            Err(e) => return Err(e),
        };
        let states_context = config.get(CONTEXT_LENGTH.names).is_some();
        let family = Family::of(&mut config)?;
        let dims = Dims::of(&config)?;
        let checkpoint = open_weights(&location)?;
        let mut source = Source { location, family, config, dims, checkpoint, warnings: Vec::new() };
        if let (false, Some(default)) = (states_context, source.config.u32(CONTEXT_LENGTH.names)?) {
            source.warnings.push(format!(
                "{}: no \"{}\", {default} is taken, the default of {}",
                source.config.path().display(),
                CONTEXT_LENGTH.exported,
                family.class
            ));
        }
        if let Some(checkpoint) = &source.checkpoint {
            source.warnings.extend(quantization::check(&source.config, checkpoint)?);
            source.warnings.extend(missing_head(&source.config, checkpoint));
            source.warnings.extend(family.losses(&source.config, &source.dims)?);
        }
        Ok(source)
    }

    /// The files of the checkpoint: all of its folder that are no GGUFs.
    pub fn files(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(&self.location.dir).into_iter().flatten().flatten();
        entries
            .map(|entry| entry.path())
            .filter(|path| path.extension().is_none_or(|e| e != "gguf"))
            .collect()
    }

    /// Where the file goes if the user names no place: into the folder, for a repository into the working directory.
    pub fn default_dir(&self) -> PathBuf {
        match self.location.repository {
            Some(_) => PathBuf::from("."),
            None => self.location.dir.clone(),
        }
    }

    /// Decides everything about the GGUF.
    pub fn convert(&self, options: &Options) -> Result<Conversion<'_>, ConvertError> {
        let mut metadata = Metadata::default();
        let architecture = MetadataValue::String(self.family.architecture.to_owned());
        metadata.set("general.architecture", architecture);
        let planned = match &self.checkpoint {
            Some(checkpoint) => {
                // First, so that what is generated is no larger than what the tensors were found to be.
                let stored = tensors::plan(self.family, &self.config, &self.dims, checkpoint)?;
                let generated = self.family.derive(&self.config, &self.dims, &mut metadata)?;
                let generated = generated.into_iter().map(|(name, values)| Planned::generated(name, values));
                generated.chain(stored).collect()
            }
            None => Vec::new(),
        };
        let file_type = match (options.out_type, &self.checkpoint) {
            (Some(file_type), _) => file_type,
            (None, Some(_)) => natural_type(&planned)?,
            (None, None) => stated_type(&self.config),
        };

        metadata.set("general.type", MetadataValue::String("model".to_owned()));
        let of_sampling = sampling::write(&self.location.dir, &options.overrides, &mut metadata)?;
        let n_params = planned.iter().map(|t| t.shape.iter().product::<u64>()).sum();
        let size = naming::size_label(planned.iter().map(|t| (t.name.clone(), t.shape.clone())));
        let general = General::collect(
            &self.location.dir,
            &self.location.name,
            &self.config,
            n_params,
            size,
            &options.overrides,
        )?;
        general.write(&mut metadata);
        self.family.write_keys(&self.config, &self.dims, file_type.id(), &mut metadata)?;
        metadata.set("general.quantization_version", MetadataValue::U32(2));
        let n_vocab = self.dims.n_vocab as usize;
        let (dir, pre) = (&self.location.dir, options.pre.as_deref());
        let of_tokenizer = tokenizer::write(dir, &self.config, self.family, n_vocab, pre, &mut metadata)?;

        let planned = typed(&metadata, planned, file_type)?;
        if !is_plain(file_type) {
            as_quantized(&mut metadata);
        }
        let tensors = planned
            .into_iter()
            .map(|(tensor, ty)| OutputTensor {
                spec: tensor.spec(ty),
                importance: None,
                source: tensor.rows(),
            })
            .collect();
        Ok(Conversion {
            file_name: format!(
                "{}.gguf",
                general.file_stem(self.checkpoint.as_ref().map(|_| file_type.name()))
            ),
            notes: of_tokenizer.notes,
            warnings: [self.warnings.clone(), of_sampling, general.warnings, of_tokenizer.warnings].concat(),
            metadata,
            tensors,
            file_type,
        })
    }
}

/// Tells of an output that has no weights of its own although the configuration says that it has.
fn missing_head(config: &Config, checkpoint: &Checkpoint) -> Option<String> {
    let has_head = checkpoint.tensors().any(|tensor| tensor.tensor.name.ends_with("lm_head.weight"));
    (config.get(&[TIED]) == Some(&Value::Bool(false)) && !has_head).then(|| {
        format!(
            "{}: {TIED} is false, but the checkpoint has no lm_head.weight, which transformers would begin at random: \
             the output will use the embeddings",
            config.path().display()
        )
    })
}

/// What [`natural_type`] will most likely be, by what the configuration says of the weights.
fn stated_type(config: &Config) -> FileType {
    match config.str(&["dtype", "torch_dtype"]) {
        Some("bfloat16") => FileType::BF16,
        _ => FileType::F16,
    }
}

/// That of the first 16-bit matrix. If there is none f16, or bf16 where f16 would make infinities of weights.
fn natural_type(planned: &[Planned<'_>]) -> Result<FileType, ConvertError> {
    let matrices = planned.iter().filter(|tensor| tensor.shape.len() >= 2);
    if matrices.map(Planned::stored).find(|&ty| ty != GgmlType::F32) == Some(GgmlType::BF16) {
        return Ok(FileType::BF16);
    }
    let narrowed = planned.par_iter().filter(|tensor| {
        tensor.stored() == GgmlType::F32 && plain_type(tensor, GgmlType::F16) == GgmlType::F16
    });
    let too_large = narrowed.map(exceeds_f16).try_reduce(|| false, |a, b| Ok(a || b));
    Ok(if too_large? { FileType::BF16 } else { FileType::F16 })
}

/// Weights looked at together, at least one row.
const STEP_WEIGHTS: u64 = 1 << 16;

/// Whether a tensor has finite weights that f16 has not.
fn exceeds_f16(tensor: &Planned<'_>) -> Result<bool, ConvertError> {
    let (n_columns, n_rows) = (tensor.shape[0], tensor.shape[1..].iter().product::<u64>());
    let (rows, step) = (tensor.rows(), (STEP_WEIGHTS / n_columns.max(1)).max(1));
    let mut weights = Vec::new();
    for start in (0..n_rows).step_by(step as usize) {
        let end = (start + step).min(n_rows);
        weights.resize(((end - start) * n_columns) as usize, 0.0);
        rows.read_rows(start..end, &mut weights)
            .map_err(|source| ConvertError::Source { tensor: tensor.name.clone(), source })?;
        if weights.iter().any(|&x| x.is_finite() && f16::from_f32(x).is_infinite()) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Whether llama.cpp's converter makes this type; everything else is a recipe of llama-quantize.
pub fn is_plain(file_type: FileType) -> bool {
    matches!(file_type, FileType::F32 | FileType::F16 | FileType::BF16 | FileType::Q8_0)
}

/// The tensors with their types. Those of a recipe are what llama-quantize makes of a file in which all matrices are as
/// they are stored.
fn typed<'a>(
    metadata: &Metadata,
    planned: Vec<Planned<'a>>,
    file_type: FileType,
) -> Result<Vec<(Planned<'a>, GgmlType)>, ConvertError> {
    if is_plain(file_type) {
        let typed = planned.into_iter().map(|tensor| {
            let ty = plain_type(&tensor, file_type.base());
            (tensor, ty)
        });
        return Ok(typed.collect());
    }
    let mut planned = planned;
    recipe::file_order(&mut planned, |tensor| &tensor.name);
    let stored: Vec<TensorSpec> = planned.iter().map(|t| t.spec(plain_type(t, t.stored()))).collect();
    let shape = ModelShape::from_metadata(metadata)?;
    let types = Recipe::new(Some(file_type)).types(&shape, &stored)?;
    Ok(planned.into_iter().zip(types).collect())
}

/// The order of keys in a file that llama-quantize wrote: the two that it sets come last.
fn as_quantized(metadata: &mut Metadata) {
    for key in ["general.quantization_version", "general.file_type"] {
        if let Some(value) = metadata.remove(key) {
            metadata.set(key, value);
        }
    }
}

/// Vectors, norms and routers stay f32; rows that blocks do not divide become f16.
fn plain_type(tensor: &Planned<'_>, ty: GgmlType) -> GgmlType {
    let name = &tensor.name;
    if tensor.shape.len() < 2
        || name.ends_with("_norm.weight")
        || name.contains("ffn_gate_inp")
        || !name.ends_with(".weight")
    {
        return GgmlType::F32;
    }
    if tensor.shape[0].is_multiple_of(ty.block_size() as u64) { ty } else { GgmlType::F16 }
}
