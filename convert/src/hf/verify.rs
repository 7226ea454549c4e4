//! Compares the tensors of a GGUF with the checkpoint that it was made from.

use qgguf_gguf::dequantize::dequantize_row;
use qgguf_gguf::{GgmlType, GgufFile};
use rayon::iter::{IntoParallelRefIterator, ParallelIterator};

use crate::deviation::Deviation;
use crate::pipeline::{OutputTensor, SourceError};

/// Weights compared at a time, at least one row.
const STEP_WEIGHTS: u64 = 1 << 16;

/// How a tensor compares with its source.
#[derive(Clone, Debug)]
pub struct Comparison {
    /// Its name.
    pub name: String,
    /// Its type.
    pub ty: GgmlType,
    /// Root mean square of the differences, as a part of that of the weights.
    pub relative: f64,
    /// The most that it may be.
    pub limit: f64,
}

impl Comparison {
    /// Whether it is as near as its type allows.
    pub fn is_near(&self) -> bool {
        self.relative <= self.limit
    }
}

/// What a type may lose: half a unit in the last place of numbers; of blocks a part that halves with every bit, with room
/// for the tails of real weights.
fn limit(ty: GgmlType) -> f64 {
    match ty {
        GgmlType::F32 => 0.0,
        GgmlType::F16 => 2f64.powi(-11),
        GgmlType::BF16 => 2f64.powi(-8),
        _ => {
            let bits = 8.0 * ty.block_bytes() as f64 / ty.block_size() as f64;
            2f64.powf(2.2 - bits).min(1.0)
        }
    }
}

/// Compares all tensors.
pub fn compare(
    file: &GgufFile,
    tensors: &[OutputTensor<'_>],
    n_threads: usize,
) -> Result<Vec<Comparison>, SourceError> {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(n_threads).build()?;
    pool.install(|| tensors.par_iter().map(|tensor| compare_one(file, tensor)).collect())
}

fn compare_one(file: &GgufFile, expected: &OutputTensor<'_>) -> Result<Comparison, SourceError> {
    let spec = &expected.spec;
    let found = file.require_tensor(&spec.name)?;
    if found.shape() != spec.shape || found.ty() != spec.ty {
        let (shape, ty) = (found.shape(), found.ty());
        let wanted = (&spec.shape, spec.ty);
        return Err(format!("tensor \"{}\": expected {wanted:?}, found {:?}", spec.name, (shape, ty)).into());
    }
    let columns = spec.shape.first().copied().unwrap_or(1).max(1);
    let row_bytes = spec.ty.row_bytes(columns as usize).expect("the file was read");
    let n_rows = found.info().n_rows();
    let step = (STEP_WEIGHTS / columns).max(1);
    let (mut weights, mut restored) = (Vec::new(), Vec::new());
    let (mut deviation, mut squares) = (Deviation::default(), 0.0);
    for start in (0..n_rows).step_by(step as usize) {
        let end = (start + step).min(n_rows);
        let n = ((end - start) * columns) as usize;
        weights.resize(n, 0.0);
        restored.resize(n, 0.0);
        expected.source.read_rows(start..end, &mut weights)?;
        let bytes = &found.bytes()[start as usize * row_bytes..end as usize * row_bytes];
        dequantize_row(spec.ty, bytes, &mut restored)?;
        deviation.add(&Deviation::between(&weights, &restored));
        squares += weights.iter().filter(|w| w.is_finite()).map(|&w| f64::from(w).powi(2)).sum::<f64>();
    }
    let rms = (squares / deviation.n.max(1) as f64).sqrt();
    let rmse = deviation.rmse();
    let relative = if rmse == 0.0 { 0.0 } else { rmse / rms };
    Ok(Comparison { name: spec.name.clone(), ty: spec.ty, relative, limit: limit(spec.ty) })
}
