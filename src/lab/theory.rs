//! What group-wise quantization of Gaussian weights should cost.
//!
//! Rounding to a grid of step `s` leaves an error that is spread evenly over a step: its root mean square is `s / √12`.
//! The step of a group is its largest magnitude over 7 (or its range over 15), and how large that is expected to be
//! among `n` normal values is what order statistics say.

use super::int4::Scheme;

/// The relative error (in the Frobenius norm) that quantizing normal values in groups of `n` is expected to have:
/// the expected step over √12.
pub fn gaussian_error(n: usize, scheme: Scheme) -> f64 {
    let range = match scheme {
        Scheme::Symmetric => expected_absmax(n),
        Scheme::Asymmetric => 2.0 * expected_max(n),
    };
    range / f64::from(scheme.steps()) / 12f64.sqrt()
}

/// The same for rows of `n_cols`, whose last group may be shorter.
pub fn gaussian_row_error(n_cols: usize, group: usize, scheme: Scheme) -> f64 {
    let (whole, rest) = (n_cols / group, n_cols % group);
    let share = (whole * group) as f64 / n_cols as f64;
    let of_whole = if whole > 0 { share * gaussian_error(group, scheme).powi(2) } else { 0.0 };
    let of_rest = if rest > 0 { (1.0 - share) * gaussian_error(rest, scheme).powi(2) } else { 0.0 };
    (of_whole + of_rest).sqrt()
}

/// The expected largest magnitude among `n` standard normal values: the integral of `1 - P(|x| < t)^n`.
pub fn expected_absmax(n: usize) -> f64 {
    integral(|below| 1.0 - (2.0 * below - 1.0).max(0.0).powi(n as i32))
}

/// The expected largest of `n` standard normal values: the integral of `1 - F^n`, less that of `(1 - F)^n`.
fn expected_max(n: usize) -> f64 {
    integral(|below| 1.0 - below.powi(n as i32) - (1.0 - below).powi(n as i32))
}

/// The integral over `t` from 0 of a function of `P(x < t)`, which Simpson's rule sums up alongside.
fn integral(f: impl Fn(f64) -> f64) -> f64 {
    const STEP: f64 = 1.0 / 512.0;
    // Beyond, a normal value lies once in 10¹⁹.
    const END: usize = 9 * 512;
    let density = |t: f64| (-0.5 * t * t).exp() / (2.0 * std::f64::consts::PI).sqrt();
    let mut below = 0.5;
    let mut sum = 0.5 * f(below);
    for i in 0..END {
        let t = i as f64 * STEP;
        below += STEP / 6.0 * (density(t) + 4.0 * density(t + STEP / 2.0) + density(t + STEP));
        sum += f(below.min(1.0));
    }
    sum * STEP
}

/// Standard normal values from a seed.
#[cfg(test)]
pub(crate) fn normals(seed: u64, n: usize) -> Vec<f32> {
    use rand_chacha::ChaCha8Rng;
    use rand_chacha::rand_core::{Rng, SeedableRng};
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let mut uniform = || (f64::from(rng.next_u32()) + 0.5) / 2f64.powi(32);
    let normal = |u: f64, v: f64| (-2.0 * u.ln()).sqrt() * (2.0 * std::f64::consts::PI * v).cos();
    (0..n).map(|_| normal(uniform(), uniform()) as f32).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_extremes_of_normal_values_are_those_of_tables() {
        // Expected largest of n standard normal values: 1/√π for 2, then Harter (1961).
        let tables = [(2, 0.56419), (10, 1.53875), (32, 2.06967), (100, 2.50759)];
        for (n, expected) in tables {
            assert!((expected_max(n) - expected).abs() < 1e-4, "{n}: {}", expected_max(n));
        }
        assert!((expected_absmax(1) - (2.0 / std::f64::consts::PI).sqrt()).abs() < 1e-6);
    }

    #[test]
    fn shorter_last_groups_count_by_their_weights() {
        let s = Scheme::Symmetric;
        assert_eq!(gaussian_row_error(256, 64, s), gaussian_error(64, s));
        assert_eq!(gaussian_row_error(64, 256, s), gaussian_error(64, s));
        let mixed = gaussian_row_error(576, 128, s);
        assert!(gaussian_error(64, s) < mixed && mixed < gaussian_error(128, s), "{mixed}");
    }
}
