//! Statistics of one tensor, in memory that does not depend on its size.

use qgguf_gguf::dequantize::{DequantizeError, dequantize_row};
use qgguf_gguf::{GgufFile, TensorView};

use super::similar;
use crate::cli::error::{Context, Failure, Result};

/// Weights dequantized at a time; a multiple of every block.
const CHUNK: usize = 8192;

/// What the values of a tensor are like. Sums and extremes are over the finite ones.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Statistics {
    pub n_values: u64,
    pub n_nan: u64,
    pub n_inf: u64,
    pub n_zero: u64,
    n_finite: u64,
    extremes: Option<(f32, f32)>,
    sum: f64,
    sum_of_squares: f64,
}

impl Statistics {
    fn add(&mut self, x: f32) {
        self.n_values += 1;
        if !x.is_finite() {
            self.n_nan += u64::from(x.is_nan());
            self.n_inf += u64::from(x.is_infinite());
            return;
        }
        self.n_finite += 1;
        self.n_zero += u64::from(x == 0.0);
        let (min, max) = self.extremes.unwrap_or((x, x));
        self.extremes = Some((min.min(x), max.max(x)));
        self.sum += f64::from(x);
        self.sum_of_squares += f64::from(x) * f64::from(x);
    }

    /// The smallest finite value.
    pub fn min(&self) -> Option<f32> {
        self.extremes.map(|(min, _)| min)
    }

    /// The largest finite value.
    pub fn max(&self) -> Option<f32> {
        self.extremes.map(|(_, max)| max)
    }

    /// The mean of the finite values.
    pub fn mean(&self) -> Option<f64> {
        (self.n_finite > 0).then(|| self.sum / self.n_finite as f64)
    }

    /// The root of the mean square of the finite values.
    pub fn rms(&self) -> Option<f64> {
        (self.n_finite > 0).then(|| (self.sum_of_squares / self.n_finite as f64).sqrt())
    }
}

/// The tensor called `name`, or an error that suggests others.
pub fn find<'a>(file: &'a GgufFile, name: &str) -> Result<TensorView<'a>> {
    let place = file.path().display();
    if file.tensor_index(name).is_none() {
        let hint = similar::hint(name, file.tensors().iter().map(|t| t.name.as_str()));
        return Err(Failure::text(format!("{place}: no tensor \"{name}\"{hint}")));
    }
    file.require_tensor(name).context(place)
}

/// Looks at every value.
pub fn statistics(view: &TensorView<'_>) -> Result<Statistics> {
    let mut statistics = Statistics::default();
    each_chunk(view, |values| {
        values.iter().for_each(|&x| statistics.add(x));
        true
    })
    .context(format!("tensor \"{}\"", view.name()))?;
    Ok(statistics)
}

/// Hands the first `n` values to `each`, in order, until it fails.
pub fn first_values<E>(
    view: &TensorView<'_>,
    mut n: u64,
    mut each: impl FnMut(f32) -> std::result::Result<(), E>,
) -> std::result::Result<(), E> {
    let mut result = Ok(());
    let read = each_chunk(view, |values| {
        for &x in &values[..values.len().min(usize::try_from(n).unwrap_or(usize::MAX))] {
            result = each(x);
            if result.is_err() {
                return false;
            }
            n -= 1;
        }
        n > 0
    });
    debug_assert!(read.is_ok(), "the statistics could be made");
    result
}

/// Dequantizes the tensor bit by bit, until `each` has had enough.
fn each_chunk(
    view: &TensorView<'_>,
    mut each: impl FnMut(&[f32]) -> bool,
) -> std::result::Result<(), DequantizeError> {
    let ty = view.ty();
    let mut values = [0.0; CHUNK];
    // Also for a tensor without values, so that its type is checked.
    dequantize_row(ty, &[], &mut [])?;
    for bytes in view.bytes().chunks(CHUNK / ty.block_size() * ty.block_bytes()) {
        let values = &mut values[..bytes.len() / ty.block_bytes() * ty.block_size()];
        dequantize_row(ty, bytes, values)?;
        if !each(values) {
            break;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_that_are_not_finite_are_counted_and_left_out() {
        let mut s = Statistics::default();
        assert_eq!((s.min(), s.max(), s.mean(), s.rms()), (None, None, None, None));
        [f32::NAN, f32::INFINITY, -3.0, 0.0, f32::NEG_INFINITY, -0.0, 4.0, 3.0]
            .into_iter()
            .for_each(|x| s.add(x));
        assert_eq!((s.n_values, s.n_nan, s.n_inf, s.n_zero), (8, 1, 2, 2));
        assert_eq!((s.min(), s.max()), (Some(-3.0), Some(4.0)));
        assert_eq!((s.mean(), s.rms()), (Some(0.8), Some((34f64 / 5.0).sqrt())));
    }

    #[test]
    fn squares_of_large_values_do_not_overflow() {
        let mut s = Statistics::default();
        s.add(f32::MAX);
        s.add(f32::MIN);
        assert_eq!(s.mean(), Some(0.0));
        assert_eq!(s.rms(), Some(f64::from(f32::MAX)));
    }
}
