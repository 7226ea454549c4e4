//! From one quantization of a model to another: what becomes of tensors and metadata.

use std::collections::BTreeSet;
use std::path::Path;

use qgguf_gguf::dequantize::dequantize_supported;
use qgguf_gguf::{GgmlType, GgufFile, Metadata, MetadataValue, TensorInfo, TensorSpec};
use qgguf_kernels::{Kernels, quantizable};

use crate::file_type::FileType;
use crate::gguf_rows::Shards;
use crate::imatrix::{Imatrix, ImatrixError};
use crate::model_shape::ModelShape;
use crate::pipeline::{OutputFile, OutputTensor};
use crate::recipe::{self, Recipe, RecipeError};
use crate::split::{self, SplitError, SplitKeyOrder, trimmed};

/// The layout of blocks, as `general.quantization_version` counts them.
const QUANTIZATION_VERSION: u32 = 2;
/// Bytes of a string that llama-quantize sets, at most.
const MAX_STRING: usize = 127;

/// An importance matrix and where it came from.
#[derive(Clone, Debug)]
pub struct NamedImatrix {
    /// The file, as it goes into the metadata.
    pub name: String,
    /// What is in it.
    pub matrix: Imatrix,
}

/// What to make of a model.
#[derive(Clone, Debug)]
pub struct QuantizeOptions {
    /// The types.
    pub recipe: Recipe,
    /// How much columns matter. One without entries counts as none.
    pub imatrix: Option<NamedImatrix>,
    /// Layers to leave out.
    pub prune_layers: BTreeSet<usize>,
    /// Metadata to set, in this order.
    pub overrides: Vec<(String, MetadataValue)>,
    /// As many files as there are now.
    pub keep_split: bool,
    /// Quantize what is quantized already.
    pub allow_requantize: bool,
}

/// Why a model cannot be quantized.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum QuantizeError {
    /// Not a model, or one that cannot be used.
    #[error(transparent)]
    Gguf(#[from] qgguf_gguf::Error),
    /// The recipe does not suit it.
    #[error(transparent)]
    Recipe(#[from] RecipeError),
    /// The importance matrix does not fit.
    #[error(transparent)]
    Imatrix(#[from] ImatrixError),
    /// It cannot be split.
    #[error(transparent)]
    Split(#[from] SplitError),
    /// Losses would add up.
    #[error(
        "tensor \"{tensor}\" is quantized already, from {from} to {to} it would lose more than from an unquantized \
         model (--allow-requantize does it all the same)"
    )]
    Requantize {
        /// The tensor.
        tensor: String,
        /// Its type.
        from: GgmlType,
        /// The type it would get.
        to: GgmlType,
    },
    /// A type that nobody can make.
    #[error("tensor \"{tensor}\": type {ty} cannot be made yet")]
    NotYet {
        /// The tensor.
        tensor: String,
        /// The type.
        ty: GgmlType,
    },
    /// A type that nobody can read.
    #[error("tensor \"{tensor}\": type {ty} cannot be read to make another of it")]
    Unreadable {
        /// The tensor.
        tensor: String,
        /// The type.
        ty: GgmlType,
    },
    /// A type that is too coarse without importance.
    #[error(
        "tensor \"{tensor}\": type {ty} in a {file_type} model needs an importance matrix (--imatrix) that has the tensor"
    )]
    NeedsImatrix {
        /// The tensor.
        tensor: String,
        /// The type.
        ty: GgmlType,
        /// The file type.
        file_type: FileType,
    },
    /// An importance matrix of another model.
    #[error(
        "{name}: none of the {n} tensors in this importance matrix is quantized here; it was made for another model"
    )]
    OtherImatrix {
        /// What the matrix is called.
        name: String,
        /// Tensors that it has.
        n: usize,
    },
    /// A value of another kind than the one it replaces.
    #[error("metadata key \"{key}\" cannot be set: expected {expected} as in the model, found {found}")]
    Override {
        /// The key.
        key: String,
        /// The kind of its value.
        expected: &'static str,
        /// The kind of the new value.
        found: &'static str,
    },
    /// Layers that are not there.
    #[error("layer {layer} cannot be left out: the model has {n_layer}")]
    Layer {
        /// The layer.
        layer: usize,
        /// Layers there are.
        n_layer: usize,
    },
}

/// What becomes of one tensor.
pub struct Change<'m> {
    /// The tensor as it is.
    pub info: &'m TensorInfo,
    /// The tensor as it will be; its name changes if layers before it are left out.
    pub spec: TensorSpec,
    /// How much its columns matter.
    pub importance: Option<Vec<f32>>,
}

/// What becomes of a model.
pub struct Plan<'m> {
    model: &'m GgufFile,
    file_type: Option<FileType>,
    allow_requantize: bool,
    keep_split: bool,
    metadata: Metadata,
    changes: Vec<Change<'m>>,
}

impl<'m> Plan<'m> {
    /// Decides what becomes of a model.
    pub fn new(model: &'m GgufFile, options: &QuantizeOptions) -> Result<Plan<'m>, QuantizeError> {
        let imatrix = options.imatrix.as_ref().filter(|named| !named.matrix.entries.is_empty());
        let recipe = Recipe { has_imatrix: imatrix.is_some(), ..options.recipe.clone() };
        let mut metadata = metadata(model, recipe.file_type)?;
        options.overrides.iter().try_for_each(|(key, value)| check_override(&metadata, key, value))?;
        override_all(&mut metadata, &options.overrides);
        let shape = ModelShape::from_metadata(&metadata)?;
        if let Some(&layer) = options.prune_layers.iter().find(|&&layer| layer >= shape.n_layer) {
            return Err(QuantizeError::Layer { layer, n_layer: shape.n_layer });
        }
        if let Some(named) = imatrix {
            override_all(&mut metadata, &imatrix_keys(named));
        }
        if !options.prune_layers.is_empty() {
            let n = (shape.n_layer - options.prune_layers.len()) as u32;
            let key = format!("{}.block_count", shape.architecture);
            override_all(&mut metadata, &[(key, MetadataValue::U32(n))]);
        }
        let mut changes = Vec::new();
        for info in model.tensors() {
            model.require_tensor(&info.name)?;
            let Some(name) = renumbered(&info.name, &options.prune_layers) else { continue };
            let spec = TensorSpec { name, shape: trimmed(&info.shape), ty: info.ty };
            changes.push(Change { info, spec, importance: None });
        }
        match options.keep_split {
            true => changes.sort_by_key(|change| (change.info.shard, change.info.offset)),
            false => recipe::file_order(&mut changes, |change| &change.spec.name),
        }
        let specs: Vec<TensorSpec> = changes.iter().map(|change| change.spec.clone()).collect();
        for (change, ty) in changes.iter_mut().zip(recipe.types(&shape, &specs)?) {
            change.spec.ty = ty;
            if change.is_converted()
                && let Some(named) = imatrix
            {
                let original = TensorSpec { name: change.info.name.clone(), ..change.spec.clone() };
                change.importance = named.matrix.importance(&original)?;
            }
        }
        if let Some(named) = imatrix
            && changes.iter().any(Change::is_converted)
            && changes.iter().all(|change| change.importance.is_none())
        {
            let (name, n) = (named.name.clone(), named.matrix.entries.len());
            return Err(QuantizeError::OtherImatrix { name, n });
        }
        let file_type = recipe.file_type;
        let (allow_requantize, keep_split) = (options.allow_requantize, options.keep_split);
        Ok(Plan { model, file_type, allow_requantize, keep_split, metadata, changes })
    }

    /// The metadata of the new file.
    pub fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    /// The tensors, in the order of the new file.
    pub fn changes(&self) -> &[Change<'m>] {
        &self.changes
    }

    /// Tensors that come out worse than they might because the importance matrix does not have them.
    pub fn without_importance(&self) -> impl Iterator<Item = &Change<'m>> {
        self.changes.iter().filter(|change| {
            change.is_converted() && change.spec.ty.block_size() > 1 && change.importance.is_none()
        })
    }

    /// Whether all this can be done.
    pub fn check(&self) -> Result<(), QuantizeError> {
        for change in self.changes.iter().filter(|change| change.is_converted()) {
            let (tensor, from, to) = (change.spec.name.clone(), change.info.ty, change.spec.ty);
            if from.block_size() > 1 && !self.allow_requantize {
                return Err(QuantizeError::Requantize { tensor, from, to });
            }
            if !quantizable(to) {
                return Err(QuantizeError::NotYet { tensor, ty: to });
            }
            if !dequantize_supported(from) {
                return Err(QuantizeError::Unreadable { tensor, ty: from });
            }
        }
        self.check_importance()
    }

    /// Whether all tensors have the importance that they cannot do without.
    pub fn check_importance(&self) -> Result<(), QuantizeError> {
        use GgmlType as T;
        let Some(file_type) = self.file_type else { return Ok(()) };
        for change in self.without_importance() {
            let needs = match change.spec.ty {
                T::IQ1_S | T::IQ1_M | T::IQ2_XXS | T::IQ2_XS | T::IQ2_S | T::IQ3_XXS => true,
                T::Q2_K => file_type == FileType::Q2_K_S,
                _ => false,
            };
            let is_vocabulary = matches!(
                change.spec.name.as_str(),
                "token_embd.weight" | "per_layer_token_embd.weight" | "output.weight"
            );
            if needs && !is_vocabulary {
                let (tensor, ty) = (change.spec.name.clone(), change.spec.ty);
                return Err(QuantizeError::NeedsImatrix { tensor, ty, file_type });
            }
        }
        Ok(())
    }

    /// The files to write: `path`, or `PATH-00001-of-0000N.gguf` if the split is kept.
    pub fn into_files(
        self,
        path: &Path,
        kernels: Kernels,
    ) -> Result<Vec<OutputFile<'static>>, QuantizeError> {
        let shards = Shards::open(self.model, kernels)?;
        let n_files = self.model.paths().len();
        let parts: Vec<_> = (0..n_files)
            .map(|no| {
                let place = |no| self.changes.partition_point(|change| change.info.shard < no);
                place(no)..place(no + 1)
            })
            .collect();
        let tensors = self.changes.into_iter().map(|change| OutputTensor {
            source: Box::new(shards.rows(change.info)),
            spec: change.spec,
            importance: change.importance,
        });
        let mut file = OutputFile {
            path: path.to_owned(),
            metadata: self.metadata,
            tensors: tensors.collect(),
            pad_empty: true,
        };
        if !self.keep_split {
            return Ok(vec![file]);
        }
        let prefix = without_extension(path);
        if n_files == 1 {
            file.path = qgguf_gguf::shard_path(&prefix, 0, 1);
            return Ok(vec![file]);
        }
        Ok(split::split_file(file, &prefix, &parts, SplitKeyOrder::CountSecond)?)
    }
}

impl Change<'_> {
    /// The tensor gets another type.
    pub fn is_converted(&self) -> bool {
        self.info.ty != self.spec.ty
    }

    /// Bytes in the new file.
    pub fn n_bytes(&self) -> u64 {
        let row = self.spec.ty.row_bytes(self.info.row_len() as usize).unwrap_or(0) as u64;
        row.saturating_mul(self.info.n_rows())
    }
}

/// `path` without `.gguf`, for the names of shards.
fn without_extension(path: &Path) -> std::path::PathBuf {
    match path.extension() {
        Some(extension) if extension == "gguf" => path.with_extension(""),
        _ => path.to_owned(),
    }
}

/// Whoever reads a key expects the kind of value that it has, of any width; a list may give way to one value for all.
fn check_override(metadata: &Metadata, key: &str, value: &MetadataValue) -> Result<(), QuantizeError> {
    let Some(old) = metadata.get(key) else { return Ok(()) };
    let old = match old {
        MetadataValue::Array(list) => list.get(0),
        value => Some(value.clone()),
    };
    let (Some(expected), found) = (old.as_ref().map(kind), kind(value)) else { return Ok(()) };
    if expected == found {
        return Ok(());
    }
    Err(QuantizeError::Override { key: key.to_owned(), expected, found })
}

/// What a value is, whatever its width.
fn kind(value: &MetadataValue) -> &'static str {
    match value {
        MetadataValue::F32(_) | MetadataValue::F64(_) => "a float",
        MetadataValue::Bool(_) => "a bool",
        MetadataValue::String(_) => "a str",
        MetadataValue::Array(_) => "an array",
        _ => "an int",
    }
}

/// Sets keys; each stands at the end then.
fn override_all(metadata: &mut Metadata, overrides: &[(String, MetadataValue)]) {
    for (key, value) in overrides {
        metadata.remove(key);
        metadata.set(key, value.clone());
    }
}

/// The model's metadata, for a file of another type.
fn metadata(model: &GgufFile, file_type: Option<FileType>) -> Result<Metadata, QuantizeError> {
    const FILE_TYPE: &str = "general.file_type";
    let mut metadata = model.metadata().clone();
    let id = match (file_type, metadata.u32(FILE_TYPE)?) {
        (Some(file_type), _) => file_type.id(),
        (None, Some(id)) => id,
        (None, None) => {
            let mut tensors: Vec<&TensorInfo> = model.tensors().iter().collect();
            recipe::file_order(&mut tensors, |tensor| &tensor.name);
            FileType::guess(tensors.iter().map(|tensor| tensor.ty))
        }
    };
    split::remove_split_keys(&mut metadata);
    metadata.remove("general.alignment");
    let version = ("general.quantization_version".to_owned(), MetadataValue::U32(QUANTIZATION_VERSION));
    override_all(&mut metadata, &[version, (FILE_TYPE.to_owned(), MetadataValue::U32(id))]);
    Ok(metadata)
}

/// What the metadata says of an importance matrix.
fn imatrix_keys(named: &NamedImatrix) -> Vec<(String, MetadataValue)> {
    let text = |text: &str| MetadataValue::String(text[..text.floor_char_boundary(MAX_STRING)].to_owned());
    let matrix = &named.matrix;
    let mut keys = vec![("file", text(&named.name))];
    keys.extend(matrix.datasets.first().map(|dataset| ("dataset", text(dataset))));
    keys.push(("entries_count", MetadataValue::U32(matrix.entries.len() as u32)));
    if matrix.n_chunks > 0 {
        keys.push(("chunks_count", MetadataValue::U32(matrix.n_chunks)));
    }
    keys.into_iter().map(|(key, value)| (format!("quantize.imatrix.{key}"), value)).collect()
}

/// The name of a tensor when some layers are left out; `None` if it is in one of them.
fn renumbered(name: &str, pruned: &BTreeSet<usize>) -> Option<String> {
    let Some(layer) = recipe::layer(name) else { return Some(name.to_owned()) };
    if pruned.contains(&layer) {
        return None;
    }
    let rest = name.splitn(3, '.').nth(2).unwrap_or_default();
    Some(format!("blk.{}.{rest}", layer - pruned.range(..layer).count()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layers_move_up_when_others_are_left_out() {
        let pruned = BTreeSet::from([1, 2]);
        let name = |name| renumbered(name, &pruned);
        assert_eq!(name("blk.0.attn_q.weight").as_deref(), Some("blk.0.attn_q.weight"));
        assert_eq!(name("blk.2.attn_q.weight"), None);
        assert_eq!(name("blk.12.ffn_up.0.weight").as_deref(), Some("blk.10.ffn_up.0.weight"));
        assert_eq!(name("output.weight").as_deref(), Some("output.weight"));
    }
}
