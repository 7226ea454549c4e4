//! Perplexity: e to the mean negative log-probability of the tokens that follow.

use super::{Estimate, Mean, Prediction};

/// The perplexity of what was scored so far.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Perplexity {
    nll: Mean,
}

impl Perplexity {
    /// Takes predictions in the order of the text.
    pub fn add(&mut self, predictions: &[Prediction]) {
        predictions.iter().for_each(|prediction| self.nll.push(prediction.nll));
    }

    /// Predictions taken.
    pub fn n(&self) -> u64 {
        self.nll.n()
    }

    /// The mean negative log-probability, in nats.
    pub fn nll(&self) -> &Mean {
        &self.nll
    }

    /// The perplexity, and its error to first order.
    pub fn estimate(&self) -> Estimate {
        let value = self.nll.value().exp();
        Estimate { value, error: value * self.nll.error() }
    }
}
