//! Logits as log-probabilities, without writing these down.

use qgguf_kernels::{Compute, Kernels};

/// Values that are worked on while they are in the nearest cache.
pub(super) const BLOCK: usize = 512;
/// Independent sums: one after the other they would wait for each other. Their number and order are fixed.
pub(super) const LANES: usize = 8;

/// What a row of logits says about the token that follows.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Prediction {
    /// The largest logit.
    pub largest: f32,
    /// The token that has it, the first of several.
    pub likeliest: u32,
    /// `ln Σ exp(logit - largest)`.
    pub log_sum: f64,
    /// The negative log-probability of the token that really follows.
    pub nll: f64,
}

impl Prediction {
    /// What `logits` say about `target`; `None` if they are no finite numbers (minus infinity is allowed).
    ///
    /// # Panics
    /// If there is no logit for `target`.
    pub fn new(kernels: Kernels, logits: &[f32], target: u32) -> Option<Prediction> {
        let (largest, nan) = kernels.largest_and_nan(logits);
        if nan || !largest.is_finite() {
            return None;
        }
        let mut lanes = [0.0; LANES];
        let mut block = [0.0; BLOCK];
        for logits in logits.chunks(BLOCK) {
            let block = &mut block[..logits.len()];
            block.iter_mut().zip(logits).for_each(|(x, logit)| *x = logit - largest);
            kernels.exp(block);
            add_to_lanes(&mut lanes, block, |x| f64::from(*x));
        }
        let likeliest = logits.iter().position(|&logit| logit == largest)? as u32;
        let mut prediction =
            Prediction { largest, likeliest, log_sum: lanes.iter().sum::<f64>().ln(), nll: 0.0 };
        prediction.nll = -prediction.log_probability(logits[target as usize]);
        Some(prediction)
    }

    /// The log-probability of a token with this logit.
    pub fn log_probability(&self, logit: f32) -> f64 {
        f64::from(logit - self.largest) - self.log_sum
    }
}

/// Adds `term(value i)` to lane `i mod LANES`.
pub(super) fn add_to_lanes<T>(lanes: &mut [f64; LANES], values: &[T], term: impl Fn(&T) -> f64) {
    let (body, tail) = values.as_chunks::<LANES>();
    for chunk in body {
        for (lane, value) in lanes.iter_mut().zip(chunk) {
            *lane += term(value);
        }
    }
    for (lane, value) in lanes.iter_mut().zip(tail) {
        *lane += term(value);
    }
}

/// The predictions of `logits` (`[targets.len()][n_vocab]`), computed by all threads.
///
/// # Errors
/// The index of the first row that is not made of finite numbers.
pub fn predictions(compute: &Compute, logits: &[f32], targets: &[u32]) -> Result<Vec<Prediction>, usize> {
    let n_vocab = logits.len() / targets.len().max(1);
    let mut out = vec![None; targets.len()];
    compute.run_chunks(&mut out, 1, |i, out| {
        out[0] = Prediction::new(compute.kernels(), &logits[i * n_vocab..(i + 1) * n_vocab], targets[i]);
    });
    let mut predictions = Vec::with_capacity(out.len());
    for (i, prediction) in out.into_iter().enumerate() {
        predictions.push(prediction.ok_or(i)?);
    }
    Ok(predictions)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_the_log_of_the_softmax() {
        let logits: Vec<f32> = (0..3000).map(|i| (i * 7919 % 997) as f32 * 0.02 - 400.0).collect();
        let sum: f64 = logits.iter().map(|&x| f64::from(x).exp()).sum();
        let prediction = Prediction::new(Kernels::best(), &logits, 17).unwrap();
        assert!((prediction.nll - (sum.ln() - f64::from(logits[17]))).abs() < 1e-6, "{prediction:?}");
        assert_eq!(logits[prediction.likeliest as usize], prediction.largest);
        assert_eq!(logits.iter().position(|&x| x == prediction.largest), Some(prediction.likeliest as usize));
    }

    #[test]
    fn what_is_not_finite_has_no_prediction() {
        for bad in [f32::NAN, f32::INFINITY] {
            let logits = [1.0, bad, 2.0];
            assert_eq!(Prediction::new(Kernels::best(), &logits, 0), None);
            let compute = Compute::new(Kernels::best(), 2);
            assert_eq!(predictions(&compute, &[[0.0; 3], logits].concat(), &[0, 0]), Err(1));
        }
        assert_eq!(Prediction::new(Kernels::best(), &[f32::NEG_INFINITY; 3], 0), None);
        let masked = Prediction::new(Kernels::best(), &[f32::NEG_INFINITY, 0.0], 0).unwrap();
        assert_eq!(masked.nll, f64::INFINITY);
    }
}
