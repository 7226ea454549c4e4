//! Means and how uncertain they are.

use serde::Serialize;

/// Fewer values than this say nothing about their uncertainty.
const MIN_VALUES: u64 = 11;

/// A figure and its standard error.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Estimate {
    /// The figure.
    pub value: f64,
    /// One standard deviation of it, NaN if there are too few values to tell.
    pub error: f64,
}

/// The mean of values that come one by one.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Mean {
    n: u64,
    sum: f64,
    sum_of_squares: f64,
}

impl Mean {
    /// Takes a value.
    pub fn push(&mut self, value: f64) {
        self.n += 1;
        self.sum += value;
        self.sum_of_squares += value * value;
    }

    /// Number of values.
    pub fn n(&self) -> u64 {
        self.n
    }

    /// The mean, 0 of nothing.
    pub fn value(&self) -> f64 {
        self.sum / self.n.max(1) as f64
    }

    /// The standard error of the mean, NaN of fewer than 11 values.
    pub fn error(&self) -> f64 {
        if self.n < MIN_VALUES {
            return f64::NAN;
        }
        let variance = self.sum_of_squares / self.n as f64 - self.value() * self.value();
        (variance.max(0.0) / (self.n - 1) as f64).sqrt()
    }

    /// Both.
    pub fn estimate(&self) -> Estimate {
        Estimate { value: self.value(), error: self.error() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_error_is_that_of_the_mean() {
        let mut mean = Mean::default();
        (0..10).for_each(|i| mean.push(f64::from(i % 2)));
        assert_eq!(mean.value(), 0.5);
        assert!(mean.error().is_nan());
        (10..12).for_each(|i| mean.push(f64::from(i % 2)));
        assert_eq!(mean.estimate(), Estimate { value: 0.5, error: (0.25f64 / 11.0).sqrt() });
    }
}
