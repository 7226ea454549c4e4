//! What the machine can do at most, measured: how fast the threads read memory and how fast they multiply.
//!
//! Each measurement is the best of several passes over the same work, so that a busy neighbour lowers it little.
//! A benchmark holds its figures against these: a token cannot take less time than reading its weights does.

use std::hint::black_box;
use std::io;
use std::time::{Duration, Instant};

use memmap2::MmapMut;

use crate::Compute;
use crate::simd::Simd;

/// Bytes that a thread reads at a time.
const PART: usize = 1 << 20;
/// How long a measurement goes on, unless it has made fewer than [`MIN_PASSES`] by then.
const TIME: Duration = Duration::from_millis(250);
const MIN_PASSES: usize = 3;

/// Vectors per step of the multiplying loops, each with a sum of its own: with [`WEIGHTS`] enough independent
/// sums to hide the latency of an addition, and few enough for 16 registers.
const VECTORS: usize = 5;
pub(crate) const WEIGHTS: usize = 2;
/// Steps through the activations of a round; they stay in the first-level cache.
const STEPS: usize = 12;
/// Values of the activations of a round.
pub(crate) const CODES: usize = STEPS * VECTORS * 32;
pub(crate) const FLOATS: usize = STEPS * VECTORS * 16;
/// Rounds of a task, and tasks of a thread in one pass: about a millisecond.
const ROUNDS: usize = 256;
const TASKS: usize = 64;

/// Bytes per second that the threads of `compute` read together from a buffer of `n_bytes`, which should be
/// much larger than the last cache. The buffer lies in huge pages where the system grants them.
pub fn read_bandwidth(compute: &Compute, n_bytes: usize) -> io::Result<f64> {
    let mut buffer = MmapMut::map_anon(n_bytes.max(PART))?;
    #[cfg(target_os = "linux")]
    // Where the system knows no huge pages the buffer lies in small ones.
    let _ = buffer.advise(memmap2::Advice::HugePage);
    // Untouched pages would all be the same page of zeros.
    compute.team.run_chunks(&mut buffer, PART, |_, part| part.fill(1));
    let table = compute.kernels.table();
    let parts: Vec<&[u8]> = buffer.chunks(PART).collect();
    let seconds = best_pass(|| {
        compute.team.run(parts.len(), |i| {
            // SAFETY: the table belongs to this CPU.
            black_box(unsafe { (table.read)(parts[i]) });
        });
    });
    Ok(buffer.len() as f64 / seconds)
}

/// Multiply-adds of bytes per second that the threads of `compute` sustain together, out of the first-level cache.
pub fn multiply_add_rate(compute: &Compute) -> f64 {
    let table = compute.kernels.table();
    let codes: [i8; CODES] = std::array::from_fn(|i| if i % 2 == 0 { 1 } else { -1 });
    let weights = [[1; 32]; WEIGHTS];
    let seconds = best_pass(|| {
        compute.team.run(TASKS * compute.n_threads(), |_| {
            // SAFETY: the table belongs to this CPU.
            black_box(unsafe { (table.multiply_bytes)(&codes, black_box(&weights), ROUNDS) });
        });
    });
    (TASKS * compute.n_threads() * ROUNDS * CODES * WEIGHTS) as f64 / seconds
}

/// Multiply-adds of f32 per second that the threads of `compute` sustain together, out of the first-level cache:
/// what weights are multiplied with that are not quantized.
pub fn float_multiply_add_rate(compute: &Compute) -> f64 {
    let table = compute.kernels.table();
    let values: [f32; FLOATS] = std::array::from_fn(|i| if i % 2 == 0 { 1.0 } else { -1.0 });
    let weights = [1.0; 16];
    let seconds = best_pass(|| {
        compute.team.run(TASKS * compute.n_threads(), |_| {
            // SAFETY: the table belongs to this CPU.
            black_box(unsafe { (table.multiply_floats)(&values, black_box(&weights), ROUNDS) });
        });
    });
    (TASKS * compute.n_threads() * ROUNDS * FLOATS) as f64 / seconds
}

/// The shortest time in seconds that `pass` took.
fn best_pass(mut pass: impl FnMut()) -> f64 {
    let start = Instant::now();
    let mut best = f64::INFINITY;
    let mut n_passes = 0;
    while n_passes < MIN_PASSES || start.elapsed() < TIME {
        let pass_start = Instant::now();
        pass();
        best = best.min(pass_start.elapsed().as_secs_f64());
        n_passes += 1;
    }
    // A clock may be too coarse to see a pass.
    best.max(1e-9)
}

/// Reads whole vectors of `x`; the result depends on every byte of them.
#[inline(always)]
pub(crate) fn read<S: Simd>(s: S, x: &[u8]) -> i32 {
    const AHEAD: usize = 8;
    let mut bits = [s.splat_byte(0); AHEAD];
    for line in x.as_chunks::<32>().0.as_chunks::<AHEAD>().0 {
        for (bits, vector) in bits.iter_mut().zip(line) {
            *bits = s.or(*bits, s.bytes(vector));
        }
    }
    let all = bits.into_iter().fold(s.splat_byte(0), |all, bits| s.or(all, bits));
    s.totals([s.dot_words(s.zero_sums(), all, s.splat_word(1)), s.zero_sums(), s.zero_sums(), s.zero_sums()])
        [0]
}

/// The sum of `codes[i] * weights[k][i % 32]` over i and k, `rounds` times over.
#[inline(always)]
pub(crate) fn multiply_bytes<S: Simd>(
    s: S,
    codes: &[i8; CODES],
    weights: &[[u8; 32]; WEIGHTS],
    rounds: usize,
) -> i32 {
    let one = s.splat_word(1);
    let weights = weights.map(|weights| s.bytes(&weights));
    let mut sums = [[s.zero_sums(); WEIGHTS]; VECTORS];
    for _ in 0..rounds {
        // Each round reads the codes anew, so none of its work can be left out.
        for step in black_box(codes).as_chunks::<32>().0.as_chunks::<VECTORS>().0 {
            for (sums, codes) in sums.iter_mut().zip(step) {
                let codes = s.signed_bytes(codes);
                for (sum, &weights) in sums.iter_mut().zip(&weights) {
                    *sum = s.dot_unsigned(*sum, weights, codes, one);
                }
            }
        }
    }
    let zero = s.zero_sums();
    sums.into_iter().map(|[a, b]| s.totals([a, b, zero, zero]).iter().sum::<i32>()).sum()
}

/// The sum of `values[i] * weights[i % 16]` over i, `rounds` times over.
#[inline(always)]
pub(crate) fn multiply_floats<S: Simd>(
    s: S,
    values: &[f32; FLOATS],
    weights: &[f32; 16],
    rounds: usize,
) -> f32 {
    let weights = s.load(weights);
    let mut sums = [s.splat(0.0); VECTORS];
    for _ in 0..rounds {
        for step in black_box(values).as_chunks::<16>().0.as_chunks::<VECTORS>().0 {
            for (sum, values) in sums.iter_mut().zip(step) {
                *sum = s.mul_add(s.load(values), weights, *sum);
            }
        }
    }
    sums.into_iter().map(|sum| s.sum(sum)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Isa, Kernels};

    fn all_kernels() -> impl Iterator<Item = Kernels> {
        Isa::available().map(|isa| Kernels::new(isa).unwrap())
    }

    #[test]
    fn the_measured_loops_do_the_work_they_are_counted_for() {
        let codes: [i8; CODES] = std::array::from_fn(|i| (i % 7) as i8 - 2);
        let weights: [[u8; 32]; WEIGHTS] =
            std::array::from_fn(|k| std::array::from_fn(|i| (3 * k + i) as u8));
        let products = (0..CODES).map(|i| {
            i32::from(codes[i]) * weights.iter().map(|weights| i32::from(weights[i % 32])).sum::<i32>()
        });
        let expected = 5 * products.sum::<i32>();
        let values: [f32; FLOATS] = std::array::from_fn(|i| (i % 7) as f32);
        let factors: [f32; 16] = std::array::from_fn(|i| i as f32);
        let float_expected = 3.0 * (0..FLOATS).map(|i| values[i] * factors[i % 16]).sum::<f32>();
        for kernels in all_kernels() {
            let table = kernels.table();
            // SAFETY: the table belongs to this CPU, as below.
            assert_eq!(unsafe { (table.multiply_bytes)(&codes, &weights, 5) }, expected, "{}", kernels.isa());
            // SAFETY: see above.
            let sum = unsafe { (table.multiply_floats)(&values, &factors, 3) };
            assert_eq!(sum, float_expected, "{}", kernels.isa());
        }
    }

    #[test]
    fn every_byte_is_read() {
        for kernels in all_kernels() {
            for at in 0..512 {
                let mut x = [0; 512];
                x[at] = 1;
                // SAFETY: the table belongs to this CPU.
                assert_ne!(unsafe { (kernels.table().read)(&x) }, 0, "{} byte {at}", kernels.isa());
            }
        }
    }

    #[test]
    fn limits_are_numbers_that_can_be_divided_by() {
        for kernels in all_kernels() {
            let compute = Compute::new(kernels, 2);
            let bandwidth = read_bandwidth(&compute, 4 << 20).unwrap();
            for limit in [bandwidth, multiply_add_rate(&compute), float_multiply_add_rate(&compute)] {
                assert!(limit.is_finite() && limit > 1e6, "{} {limit}", kernels.isa());
            }
        }
    }
}
