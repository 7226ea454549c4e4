//! What the machine can do at most, measured: how fast the threads read memory and how fast they multiply.
//!
//! Each measurement is the best of several passes over the same work, so that a busy neighbour lowers it little.
//! A benchmark holds its figures against these: a token cannot take less time than reading its weights does.

use std::hint::black_box;
use std::io;
use std::time::{Duration, Instant};

use memmap2::MmapMut;

use crate::Compute;
use crate::layout::{COLUMNS, Quad};
use crate::simd::Simd;

/// Bytes that a thread reads at a time.
const PART: usize = 1 << 20;
/// How long a measurement goes on, unless it has made fewer than [`MIN_PASSES`] by then.
const TIME: Duration = Duration::from_millis(250);
const MIN_PASSES: usize = 3;

/// A round multiplies these by one another: so many quads of weights and the codes of so many tokens, as many of
/// them at a time as meet a tile. It stays in the first-level cache, and 4-bit weights can be summed that long in
/// i16.
pub(crate) const TOKENS: usize = 8;
pub(crate) const QUADS: usize = 8;
/// Vectors of a round of floats.
pub(crate) const VECTORS: usize = 40;

/// Rounds of a task, and tasks of a thread in one pass: about a millisecond.
const ROUNDS: usize = 256;
const TASKS: usize = 64;

/// A vector that lies across two cache lines takes twice as long to load.
#[repr(align(64))]
struct Aligned<T>(T);

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
    let codes = [[1; COLUMNS]; TOKENS];
    let weights = Aligned([[1; 64]; QUADS]);
    let seconds = best_pass(|| {
        compute.team.run(TASKS * compute.n_threads(), |_| {
            // SAFETY: the table belongs to this CPU.
            black_box(unsafe { (table.multiply_bytes)(&codes, &weights.0, ROUNDS) });
        });
    });
    (TASKS * compute.n_threads() * ROUNDS * TOKENS * QUADS * 64) as f64 / seconds
}

/// Multiply-adds of f32 per second that the threads of `compute` sustain together, out of the first-level cache:
/// what weights are multiplied with that are not quantized.
pub fn float_multiply_add_rate(compute: &Compute) -> f64 {
    let table = compute.kernels.table();
    let values: Aligned<[[f32; 16]; VECTORS]> = Aligned(std::array::from_fn(|i| [i as f32 - 19.5; 16]));
    let seconds = best_pass(|| {
        compute.team.run(TASKS * compute.n_threads(), |_| {
            // SAFETY: the table belongs to this CPU.
            black_box(unsafe { (table.multiply_floats)(&values.0, &[1.0; 16], ROUNDS) });
        });
    });
    (TASKS * compute.n_threads() * ROUNDS * VECTORS * 16) as f64 / seconds
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

/// All bytes of whole groups of vectors of `x`, or-ed together.
#[inline(always)]
pub(crate) fn read<S: Simd>(s: S, x: &[u8]) -> u8 {
    const GROUP: usize = 4;
    let mut bits = [s.splat_i32(0); GROUP];
    for group in x.as_chunks::<64>().0.as_chunks::<GROUP>().0 {
        for (bits, vector) in bits.iter_mut().zip(group) {
            *bits = s.or(*bits, s.load_i32(vector));
        }
    }
    let mut bytes = [0; 64];
    s.store_i32(bits.into_iter().fold(s.splat_i32(0), |all, bits| s.or(all, bits)), &mut bytes);
    bytes.into_iter().fold(0, |all, byte| all | byte)
}

/// The sum of the products of every weight and the code of every token that it meets, `rounds` times over.
#[inline(always)]
pub(crate) fn multiply_bytes<S: Simd>(
    s: S,
    codes: &[[i8; COLUMNS]; TOKENS],
    weights: &[Quad; QUADS],
    rounds: usize,
) -> i32 {
    if S::TOKENS >= 8 {
        multiply_tokens::<S, 8>(s, codes, weights, rounds)
    } else {
        multiply_tokens::<S, 4>(s, codes, weights, rounds)
    }
}

#[inline(always)]
fn multiply_tokens<S: Simd, const T: usize>(
    s: S,
    codes: &[[i8; COLUMNS]; TOKENS],
    weights: &[Quad; QUADS],
    rounds: usize,
) -> i32 {
    let mut sums = [s.splat_i32(0); T];
    for _ in 0..rounds {
        // Each round reads everything anew, so that none of its work can be left out.
        let weights = black_box(weights);
        for codes in black_box(codes).as_chunks::<T>().0 {
            let mut chains = sums;
            for t in 0..T {
                chains[t] = s.chain_start(sums[t]);
            }
            s.chains(false, weights, 0, &codes.each_ref(), &mut chains);
            for t in 0..T {
                sums[t] = s.chain_end(sums[t], chains[t]);
            }
        }
    }
    let mut total = 0i32;
    for sum in sums {
        let mut lanes = [0; 64];
        s.store_i32(sum, &mut lanes);
        let lanes = lanes.as_chunks::<4>().0.iter().map(|&lane| i32::from_le_bytes(lane));
        total = lanes.fold(total, i32::wrapping_add);
    }
    total
}

/// The sum of `values[i][j] * weights[j]` over i and j, `rounds` times over.
#[inline(always)]
pub(crate) fn multiply_floats<S: Simd>(
    s: S,
    values: &[[f32; 16]; VECTORS],
    weights: &[f32; 16],
    rounds: usize,
) -> f32 {
    if S::TOKENS >= 8 {
        multiply_vectors::<S, 10>(s, values, weights, rounds)
    } else {
        multiply_vectors::<S, 5>(s, values, weights, rounds)
    }
}

#[inline(always)]
fn multiply_vectors<S: Simd, const N: usize>(
    s: S,
    values: &[[f32; 16]; VECTORS],
    weights: &[f32; 16],
    rounds: usize,
) -> f32 {
    let weights = s.load(weights);
    let mut sums = [s.splat(0.0); N];
    for _ in 0..rounds {
        for values in black_box(values).as_chunks::<N>().0 {
            for (sum, values) in sums.iter_mut().zip(values) {
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
        let codes: [[i8; COLUMNS]; TOKENS] =
            std::array::from_fn(|t| std::array::from_fn(|i| (((13 * t + 7 * i) % 255) as i16 - 127) as i8));
        let weights: [Quad; QUADS] =
            std::array::from_fn(|i| std::array::from_fn(|j| ((5 * i + 3 * j) % 16) as u8));
        let mut expected = 0;
        for codes in &codes {
            for (i, weights) in weights.iter().enumerate() {
                expected +=
                    (0..64).map(|j| i32::from(weights[j]) * i32::from(codes[4 * i + j % 4])).sum::<i32>();
            }
        }
        let values: [[f32; 16]; VECTORS] = std::array::from_fn(|i| std::array::from_fn(|j| (i + j) as f32));
        let factors: [f32; 16] = std::array::from_fn(|i| i as f32);
        let float_expected: f32 =
            values.iter().flat_map(|v| v.iter().zip(&factors).map(|(a, b)| a * b)).sum();
        for kernels in all_kernels() {
            let table = kernels.table();
            // SAFETY: the table belongs to this CPU.
            let sum = unsafe { (table.multiply_bytes)(&codes, &weights, 5) };
            assert_eq!(sum, 5 * expected, "{}", kernels.isa());
            // SAFETY: the table belongs to this CPU.
            let sum = unsafe { (table.multiply_floats)(&values, &factors, 3) };
            assert_eq!(sum, 3.0 * float_expected, "{}", kernels.isa());
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
