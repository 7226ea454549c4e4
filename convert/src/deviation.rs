//! How far quantized weights are from what they were.

/// Sums over pairs of weights, before and after. Pairs that are not finite are only counted.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Deviation {
    /// Pairs of finite weights.
    pub n: u64,
    /// Pairs in which one is not finite.
    pub n_nonfinite: u64,
    /// Sum of squared differences.
    pub sum_squares: f64,
    /// Largest difference.
    pub max: f32,
}

/// Partial sums: as many as a vector register has lanes, the same on every machine.
const LANES: usize = 8;

impl Deviation {
    /// That of two equally long rows.
    pub(crate) fn between(before: &[f32], after: &[f32]) -> Deviation {
        let mut sums = [0f64; LANES];
        let mut max = [0f32; LANES];
        let mut finite = [0u32; LANES];
        for (before, after) in before.chunks(LANES).zip(after.chunks(LANES)) {
            for (i, (a, b)) in before.iter().zip(after).enumerate() {
                let difference = (a - b).abs();
                // An infinite or undefined difference has an operand that is so, or is beyond all finite weights.
                let known = difference < f32::INFINITY;
                let difference = if known { difference } else { 0.0 };
                sums[i] += f64::from(difference) * f64::from(difference);
                max[i] = max[i].max(difference);
                finite[i] += u32::from(known);
            }
        }
        let n = finite.iter().map(|&n| u64::from(n)).sum();
        Deviation {
            n,
            n_nonfinite: before.len() as u64 - n,
            sum_squares: sums.iter().sum(),
            max: max.into_iter().fold(0.0, f32::max),
        }
    }

    /// Adds that of other weights.
    pub fn add(&mut self, other: &Deviation) {
        self.n += other.n;
        self.n_nonfinite += other.n_nonfinite;
        self.sum_squares += other.sum_squares;
        self.max = self.max.max(other.max);
    }

    /// Root of the mean squared difference, 0 if there are no weights.
    pub fn rmse(&self) -> f64 {
        if self.n == 0 { 0.0 } else { (self.sum_squares / self.n as f64).sqrt() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_are_squared_and_averaged() {
        let before: Vec<f32> = (0..21).map(|i| i as f32).collect();
        let mut after = before.clone();
        after[3] += 2.0;
        after[20] -= 4.0;
        let found = Deviation::between(&before, &after);
        assert_eq!((found.n, found.n_nonfinite, found.sum_squares, found.max), (21, 0, 20.0, 4.0));
        assert_eq!(found.rmse(), (20.0f64 / 21.0).sqrt());
    }

    #[test]
    fn pairs_that_are_not_finite_are_counted_apart() {
        let before = [1.0, f32::NAN, f32::INFINITY, 70_000.0];
        let after = [1.5, 0.0, f32::INFINITY, f32::INFINITY];
        let found = Deviation::between(&before, &after);
        assert_eq!((found.n, found.n_nonfinite, found.max), (1, 3, 0.5));
    }
}
