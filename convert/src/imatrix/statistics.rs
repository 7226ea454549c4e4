//! What an importance matrix says about the inputs of tensors.

use super::{Imatrix, Sums};

/// Mean squares above this count as active.
const ACTIVE: f64 = 1e-5;

/// The mean squared inputs of one tensor, in figures.
#[derive(Debug, Clone, PartialEq)]
pub struct Statistics {
    /// The tensor.
    pub tensor: String,
    /// Columns, of all matrices together.
    pub n: usize,
    /// Sum of the mean squares.
    pub sum: f64,
    /// The smallest.
    pub min: f64,
    /// The largest.
    pub max: f64,
    /// Their mean.
    pub mean: f64,
    /// Their standard deviation.
    pub deviation: f64,
    /// Share of columns with noticeable inputs.
    pub active: f64,
    /// Entropy of the mean squares as shares of their sum, in bits.
    pub entropy: f64,
    /// The same as a share of the largest that so many columns can have.
    pub normalized_entropy: f64,
    /// Share of columns more than one standard deviation above the mean.
    pub outliers: f64,
    /// Cosine of the angle to the same tensor of the layer before, if there is one.
    pub similarity: Option<f64>,
}

/// The figures of every tensor, the one with the largest sum first.
pub fn statistics(imatrix: &Imatrix) -> Vec<Statistics> {
    let mut all: Vec<_> = imatrix
        .entries
        .iter()
        .map(|(name, entry)| {
            let before = previous(name).and_then(|name| imatrix.entries.get(&name));
            Statistics { similarity: before.and_then(|before| cosine(entry, before)), ..of(name, entry) }
        })
        .collect();
    all.sort_by(|a, b| b.sum.total_cmp(&a.sum));
    all
}

/// The name of the same tensor in the layer before.
fn previous(name: &str) -> Option<String> {
    let (layer, part) = name.strip_prefix("blk.")?.split_once('.')?;
    let layer = layer.parse::<u32>().ok()?.checked_sub(1)?;
    Some(format!("blk.{layer}.{part}"))
}

fn of(name: &str, entry: &Sums) -> Statistics {
    let values: Vec<f64> = entry.importance().into_iter().map(f64::from).collect();
    let n = values.len().max(1) as f64;
    let sum: f64 = values.iter().sum();
    let mean = sum / n;
    let deviation = (values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / n).sqrt();
    let shares = values.iter().map(|v| v / sum).filter(|&share| share > 0.0);
    let entropy = -shares.map(|share| share * share.log2()).sum::<f64>();
    let share = |wanted: &dyn Fn(f64) -> bool| values.iter().filter(|&&v| wanted(v)).count() as f64 / n;
    Statistics {
        tensor: name.to_owned(),
        n: values.len(),
        sum,
        min: values.iter().copied().fold(f64::INFINITY, f64::min),
        max: values.iter().copied().fold(f64::NEG_INFINITY, f64::max),
        mean,
        deviation,
        active: share(&|v| v > ACTIVE),
        entropy,
        normalized_entropy: if n > 1.0 { entropy / n.log2() } else { 0.0 },
        outliers: share(&|v| v - mean > deviation),
        similarity: None,
    }
}

fn cosine(a: &Sums, b: &Sums) -> Option<f64> {
    let (a, b) = (a.importance(), b.importance());
    let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(&a, &b)| f64::from(a) * f64::from(b)).sum::<f64>();
    (a.len() == b.len()).then(|| dot(&a, &b) / (dot(&a, &a) * dot(&b, &b)).sqrt())
}
