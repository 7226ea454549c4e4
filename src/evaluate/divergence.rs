//! How far the predictions of one model are from those of another, the base.

use qgguf_kernels::Kernels;
use serde::Serialize;

use super::base_logits::Record;
use super::predictions::{BLOCK, LANES};
use super::{Estimate, Mean, Prediction, Scored};

/// Tokens that the base finds less likely than e to this do not count.
const LEAST: f32 = -16.0;

/// The predictions of the base for some positions.
#[derive(Clone, Copy)]
pub enum Base<'a> {
    /// Out of a file.
    Records(&'a [Record<'a>]),
    /// Logits, `[position][n_vocab]`, and what follows from them.
    Logits(&'a [f32], &'a [Prediction]),
}

/// What the base predicts at one position.
#[derive(Clone, Copy)]
enum Row<'a> {
    Record(Record<'a>),
    Logits(&'a [f32], Prediction),
}

/// The two models at one position.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Sample {
    divergence: f64,
    nll: f64,
    base_nll: f64,
    same_top: bool,
}

/// The figures of what was compared so far.
#[derive(Debug, Clone, Default)]
pub struct Divergence {
    nll: Mean,
    base_nll: Mean,
    /// Sum of products of the two.
    product: f64,
    divergence: Mean,
    delta: Mean,
    squared_delta: Mean,
    n_same_top: u64,
    divergences: Vec<f64>,
    deltas: Vec<f64>,
}

/// All figures of a comparison; differences of probabilities and shares are in percent.
#[derive(Debug, Clone, Serialize)]
pub struct DivergenceReport {
    /// Positions compared.
    pub n: u64,
    /// Perplexity of the model.
    pub ppl: Estimate,
    /// Perplexity of the base.
    pub base_ppl: Estimate,
    /// Correlation of the two logarithms, in percent.
    pub correlation: f64,
    /// `ln(ppl / base_ppl)`.
    pub log_ratio: Estimate,
    /// `ppl / base_ppl`.
    pub ratio: Estimate,
    /// `ppl - base_ppl`.
    pub difference: Estimate,
    /// Kullback-Leibler divergence from the base, in nats.
    pub divergence: Distribution,
    /// Change of the probability of the token that really follows.
    pub delta: Distribution,
    /// Root mean square of that.
    pub rms_delta: Estimate,
    /// How often both have the same likeliest token.
    pub same_top: Estimate,
}

/// How values are spread.
#[derive(Debug, Clone, Serialize)]
pub struct Distribution {
    /// The mean.
    pub mean: Estimate,
    /// Share of the values in percent, and what they do not exceed; from 0 to 100.
    pub percentiles: Vec<(f64, f64)>,
}

impl Row<'_> {
    /// Log-probabilities of the tokens from `first` on.
    fn log_probabilities(&self, first: usize, out: &mut [f32]) {
        match self {
            Row::Record(record) => record.decode(first, out),
            Row::Logits(logits, prediction) => {
                for (out, &logit) in out.iter_mut().zip(&logits[first..]) {
                    *out = prediction.log_probability(logit) as f32;
                }
            }
        }
    }

    fn sample(&self, kernels: Kernels, logits: &[f32], own: &Prediction, target: u32) -> Sample {
        let mut lanes = [0.0; LANES];
        let (mut log_p, mut p) = ([0.0; BLOCK], [0.0; BLOCK]);
        for (b, logits) in logits.chunks(BLOCK).enumerate() {
            let (log_p, p) = (&mut log_p[..logits.len()], &mut p[..logits.len()]);
            self.log_probabilities(b * BLOCK, log_p);
            p.copy_from_slice(log_p);
            kernels.exp(p);
            for (i, ((&log_p, &p), &logit)) in log_p.iter().zip(&*p).zip(logits).enumerate() {
                let term = f64::from(p) * (f64::from(log_p) - own.log_probability(logit));
                lanes[i % LANES] += if log_p > LEAST { term } else { 0.0 };
            }
        }
        let (base_nll, base_likeliest) = match self {
            Row::Record(record) => (-f64::from(record.log_probability(target)), record.likeliest()),
            Row::Logits(_, prediction) => (prediction.nll, prediction.likeliest),
        };
        Sample {
            divergence: lanes.iter().sum(),
            nll: own.nll,
            base_nll,
            same_top: base_likeliest == own.likeliest,
        }
    }
}

impl Divergence {
    /// Takes what the model predicts, beside what the base does at the same positions.
    pub fn add(&mut self, scored: &Scored<'_>, base: Base<'_>) {
        let Scored { compute, logits, predictions, targets } = scored;
        let n_vocab = logits.len() / targets.len().max(1);
        let mut samples = vec![Sample::default(); targets.len()];
        compute.run_chunks(&mut samples, 1, |i, sample| {
            let row = i * n_vocab..(i + 1) * n_vocab;
            let base = match base {
                Base::Records(records) => Row::Record(records[i]),
                Base::Logits(logits, predictions) => Row::Logits(&logits[row.clone()], predictions[i]),
            };
            sample[0] = base.sample(compute.kernels(), &logits[row], &predictions[i], targets[i]);
        });
        samples.iter().for_each(|sample| self.push(sample));
    }

    fn push(&mut self, sample: &Sample) {
        self.nll.push(sample.nll);
        self.base_nll.push(sample.base_nll);
        self.product += sample.nll * sample.base_nll;
        let delta = (-sample.nll).exp() - (-sample.base_nll).exp();
        self.divergence.push(sample.divergence);
        self.delta.push(delta);
        self.squared_delta.push(delta * delta);
        self.n_same_top += u64::from(sample.same_top);
        self.divergences.push(sample.divergence);
        self.deltas.push(delta);
    }

    /// The mean divergence.
    pub fn mean(&self) -> Estimate {
        self.divergence.estimate()
    }

    /// Positions taken.
    pub fn n(&self) -> u64 {
        self.nll.n()
    }

    /// All figures.
    pub fn report(&self) -> DivergenceReport {
        let report = self.running();
        DivergenceReport {
            divergence: report.divergence.of(&self.divergences, 1.0),
            delta: report.delta.of(&self.deltas, 100.0),
            ..report
        }
    }

    /// The figures without percentiles, for which all values have to be sorted.
    pub fn running(&self) -> DivergenceReport {
        let n = self.n();
        let (nll, base_nll) = (self.nll.estimate(), self.base_nll.estimate());
        let covariance = match n {
            0..=10 => f64::NAN,
            _ => (self.product / n as f64 - nll.value * base_nll.value) / (n - 1) as f64,
        };
        let perplexity =
            |nll: Estimate| Estimate { value: nll.value.exp(), error: nll.value.exp() * nll.error };
        let (ppl, base_ppl) = (perplexity(nll), perplexity(base_nll));
        let log_ratio = Estimate {
            value: nll.value - base_nll.value,
            error: root(nll.error.powi(2) + base_nll.error.powi(2) - 2.0 * covariance),
        };
        let difference_variance =
            ppl.error.powi(2) + base_ppl.error.powi(2) - 2.0 * covariance * ppl.value * base_ppl.value;
        let rms = self.squared_delta.value().sqrt();
        let same_top = self.n_same_top as f64 / n.max(1) as f64;
        DivergenceReport {
            n,
            ppl,
            base_ppl,
            correlation: 100.0 * covariance / (nll.error * base_nll.error),
            log_ratio,
            ratio: perplexity(log_ratio),
            difference: Estimate { value: ppl.value - base_ppl.value, error: root(difference_variance) },
            divergence: Distribution::without_values(self.divergence.estimate(), 1.0),
            delta: Distribution::without_values(self.delta.estimate(), 100.0),
            rms_delta: Estimate {
                value: 100.0 * rms,
                error: match self.squared_delta.error() {
                    error if rms > 0.0 || error.is_nan() => 100.0 * 0.5 / rms * error,
                    _ => 0.0,
                },
            },
            same_top: Estimate {
                value: 100.0 * same_top,
                error: match n {
                    0..=10 => f64::NAN,
                    _ => 100.0 * (same_top * (1.0 - same_top) / (n - 1) as f64).sqrt(),
                },
            },
        }
    }
}

/// The root of a variance that rounding may have made negative; what is unknown stays so.
fn root(variance: f64) -> f64 {
    if variance < 0.0 { 0.0 } else { variance.sqrt() }
}

/// The shares, in percent, whose limits a [`Distribution`] has.
const PERCENTILES: [f64; 13] = [0.0, 0.1, 1.0, 5.0, 10.0, 25.0, 50.0, 75.0, 90.0, 95.0, 99.0, 99.9, 100.0];

impl Distribution {
    /// A mean alone, in units of `1 / factor`.
    fn without_values(mean: Estimate, factor: f64) -> Distribution {
        let mean = Estimate { value: factor * mean.value, error: factor * mean.error };
        Distribution { mean, percentiles: Vec::new() }
    }

    /// The same mean with the percentiles of `values`, in units of `1 / factor`.
    fn of(self, values: &[f64], factor: f64) -> Distribution {
        let mut sorted = values.to_vec();
        sorted.sort_unstable_by(f64::total_cmp);
        let percentiles =
            PERCENTILES.map(|share| (share, factor * percentile(&sorted, share / 100.0))).to_vec();
        Distribution { percentiles, ..self }
    }

    /// What `share` percent of the values do not exceed; NaN if that is not among the percentiles.
    pub fn percentile(&self, share: f64) -> f64 {
        self.percentiles.iter().find(|(s, _)| *s == share).map_or(f64::NAN, |(_, value)| *value)
    }

    /// The largest value.
    pub fn max(&self) -> f64 {
        self.percentile(100.0)
    }
}

/// Between the two values around position `fraction * (n - 1)` of sorted ones.
fn percentile(sorted: &[f64], fraction: f64) -> f64 {
    let Some(last) = sorted.len().checked_sub(1) else { return 0.0 };
    let at = fraction * last as f64;
    let i = at as usize;
    match sorted.get(i + 1) {
        Some(next) if at > i as f64 => sorted[i] + (at - i as f64) * (next - sorted[i]),
        _ => sorted[i.min(last)],
    }
}

#[cfg(test)]
mod tests {
    use qgguf_kernels::Compute;

    use super::*;

    /// Logits for a few positions, and the tokens that follow.
    fn rows(seed: usize) -> (Vec<f32>, Vec<u32>) {
        let logits = (0..40 * 700).map(|i| (i * 7919 % (983 + seed)) as f32 * 0.01).collect();
        (logits, (0..40).map(|i| i * 17).collect())
    }

    fn scored<'a>(compute: &'a Compute, logits: &'a [f32], targets: &'a [u32]) -> Scored<'a> {
        let predictions = crate::evaluate::predictions(compute, logits, targets).unwrap();
        Scored { compute, logits, predictions, targets }
    }

    #[test]
    fn a_model_does_not_differ_from_itself() {
        let compute = Compute::new(Kernels::best(), 2);
        let (logits, targets) = rows(0);
        let scored = scored(&compute, &logits, &targets);
        let mut divergence = Divergence::default();
        divergence.add(&scored, Base::Logits(&logits, &scored.predictions));
        let report = divergence.report();
        assert_eq!(report.n, 40);
        assert!(report.divergence.max().abs() < 1e-6, "{report:?}");
        assert_eq!(
            (report.log_ratio.value, report.same_top.value, report.rms_delta.value),
            (0.0, 100.0, 0.0)
        );
        assert!((report.correlation - 100.0).abs() < 1e-9);
    }

    #[test]
    fn the_divergence_is_the_sum_over_the_vocabulary() {
        let compute = Compute::new(Kernels::best(), 2);
        let ((base, targets), (logits, _)) = (rows(0), rows(6));
        let base_predictions = scored(&compute, &base, &targets).predictions;
        let mut divergence = Divergence::default();
        divergence.add(&scored(&compute, &logits, &targets), Base::Logits(&base, &base_predictions));
        let log_softmax = |row: &[f32]| -> Vec<f64> {
            let sum: f64 = row.iter().map(|&x| f64::from(x).exp()).sum();
            row.iter().map(|&x| f64::from(x) - sum.ln()).collect()
        };
        let expected = base.chunks(700).zip(logits.chunks(700)).map(|(base, own)| {
            log_softmax(base).iter().zip(log_softmax(own)).map(|(b, o)| b.exp() * (b - o)).sum::<f64>()
        });
        for (got, expected) in divergence.divergences.iter().zip(expected) {
            assert!((got - expected).abs() < 1e-5 * expected, "{got} for {expected}");
        }
    }

    #[test]
    fn percentiles_lie_between_values() {
        let sorted = [0.0, 1.0, 4.0];
        let got = [0.0, 0.25, 0.5, 0.75, 1.0].map(|fraction| percentile(&sorted, fraction));
        assert_eq!(got, [0.0, 0.5, 1.0, 2.5, 4.0]);
        assert_eq!(percentile(&[], 0.5), 0.0);
    }
}
