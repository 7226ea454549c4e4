//! The GGUF format: for each weight matrix W the tensors `W.in_sum2` and `W.counts`.

use std::collections::BTreeMap;
use std::path::Path;

use qgguf_gguf::{
    Error, GgmlType, GgufFile, GgufWriter, Metadata, MetadataArray, MetadataValue, TensorSpec, WriteError,
};

use super::{Imatrix, ImatrixError};

/// Reads a file from its bytes.
pub(super) fn read(path: &Path, bytes: Vec<u8>) -> Result<Imatrix, ImatrixError> {
    let file = GgufFile::from_bytes(path, bytes)?;
    let malformed = |reason: String| ImatrixError::Malformed { path: path.to_owned(), reason };
    let metadata = file.metadata();
    let named = |error: Error| malformed(error.to_string());
    let expected = "array of string: is this an importance matrix?";
    let datasets = metadata
        .strings("imatrix.datasets")
        .and_then(|found| found.ok_or(Error::MissingKey { key: "imatrix.datasets".to_owned(), expected }))
        .map_err(named)?;
    let mut imatrix = Imatrix {
        entries: BTreeMap::new(),
        datasets: datasets.iter().map(str::to_owned).collect(),
        n_chunks: metadata.require_u32("imatrix.chunk_count").map_err(named)?,
        chunk_size: metadata.require_u32("imatrix.chunk_size").map_err(named)?,
    };
    for tensor in file.tensors() {
        let Some((name, part)) = tensor.name.rsplit_once('.') else { continue };
        let entry = match part {
            "in_sum2" | "counts" => imatrix.entries.entry(name.to_owned()).or_default(),
            _ => continue,
        };
        let values = floats(&file, &tensor.name, &malformed)?;
        match part {
            "in_sum2" => entry.sums = values,
            // Counts are whole numbers, whatever rounding happened to them.
            _ => entry.counts = values.into_iter().map(f32::round).collect(),
        }
    }
    for (name, entry) in &imatrix.entries {
        let (n, counts) = (entry.sums.len(), entry.counts.len());
        if n == 0 || counts == 0 || n % counts != 0 {
            let reason = format!("\"{name}\": {n} sums and {counts} counts, expected some for each count");
            return Err(malformed(reason));
        }
    }
    if imatrix.entries.is_empty() {
        return Err(malformed("no tensors called *.in_sum2: is this an importance matrix?".to_owned()));
    }
    Ok(imatrix)
}

fn floats(
    file: &GgufFile,
    name: &str,
    malformed: &impl Fn(String) -> ImatrixError,
) -> Result<Vec<f32>, ImatrixError> {
    let view = file.require_tensor(name)?;
    if view.ty() != GgmlType::F32 {
        return Err(malformed(format!("\"{name}\": expected type f32, found {}", view.ty())));
    }
    Ok(view.bytes().as_chunks().0.iter().map(|&bytes| f32::from_le_bytes(bytes)).collect())
}

/// Writes a file in its place.
pub(super) fn write(imatrix: &Imatrix, path: &Path) -> Result<(), WriteError> {
    let mut metadata = Metadata::default();
    let datasets = MetadataArray::String(imatrix.datasets.iter().collect());
    for (key, value) in [
        ("general.type", MetadataValue::String("imatrix".to_owned())),
        ("imatrix.datasets", MetadataValue::Array(datasets)),
        ("imatrix.chunk_count", MetadataValue::U32(imatrix.n_chunks)),
        ("imatrix.chunk_size", MetadataValue::U32(imatrix.chunk_size)),
    ] {
        metadata.set(key, value);
    }
    let parts: Vec<_> = imatrix
        .reached()
        .flat_map(|(name, entry)| {
            let n_matrices = entry.counts.len();
            let part = |part: &str, values: &Vec<f32>| {
                let n_columns = (values.len() / n_matrices) as u64;
                let shape = if n_matrices > 1 { vec![n_columns, n_matrices as u64] } else { vec![n_columns] };
                let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
                (TensorSpec { name: format!("{name}.{part}"), shape, ty: GgmlType::F32 }, bytes)
            };
            [part("in_sum2", &entry.sums), part("counts", &entry.counts)]
        })
        .collect();
    let specs: Vec<_> = parts.iter().map(|(spec, _)| spec.clone()).collect();
    let mut writer = GgufWriter::create(path, 3, &metadata, &specs)?;
    parts.iter().try_for_each(|(_, bytes)| writer.write(bytes))?;
    writer.finish()
}
