//! Weights moved off the grid they were quantized to.
//!
//! Weights that come out of a quantized file lie on its grid: quantizing them again to the same type costs nothing, and
//! measures nothing. Noise of less than half a step of the grid, evenly spread as the lost parts of the original weights
//! were, gives weights that quantize to the same codes but lie where original weights may have been.

use qgguf_gguf::GgmlType;
use qgguf_gguf::dequantize::{DequantizeError, dequantize_row};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

/// Noise at most, in steps: what is left to a half is room for rounding to f16 afterwards.
pub const AMPLITUDE: f32 = 0.45;

/// Where a block has its codes, and a byte that stands for codes of 1.
fn codes(ty: GgmlType) -> Option<(std::ops::Range<usize>, u8)> {
    Some(match ty {
        GgmlType::Q4_0 => (2..18, 0x11),
        GgmlType::Q4_1 => (4..20, 0x11),
        GgmlType::Q5_0 => (6..22, 0x11),
        GgmlType::Q5_1 => (8..24, 0x11),
        GgmlType::Q8_0 => (2..34, 0x01),
        GgmlType::Q2_K => (16..80, 0x55),
        GgmlType::Q3_K => (32..96, 0x55),
        GgmlType::Q4_K => (16..144, 0x11),
        GgmlType::Q5_K => (48..176, 0x11),
        GgmlType::Q6_K => (0..128, 0x11),
        _ => return None,
    })
}

/// The types whose codes lie on an even grid, so that there is a step.
pub fn types() -> impl Iterator<Item = GgmlType> {
    GgmlType::all().filter(|&ty| codes(ty).is_some())
}

/// The distance between neighbouring codes at every weight: what a code more or less in the lowest bits makes.
///
/// # Errors
/// If the type has no even grid ([`types`] has one) or the bytes are not those of `out.len()` weights.
pub fn steps(ty: GgmlType, bytes: &[u8], out: &mut [f32]) -> Result<(), DequantizeError> {
    let (place, one) = codes(ty).ok_or(DequantizeError::Unsupported(ty))?;
    let with = |code: u8, out: &mut [f32]| {
        let mut blocks = bytes.to_vec();
        blocks.chunks_exact_mut(ty.block_bytes()).for_each(|block| block[place.clone()].fill(code));
        dequantize_row(ty, &blocks, out)
    };
    let mut low = vec![0.0; out.len()];
    with(0, &mut low)?;
    with(one, out)?;
    out.iter_mut().zip(low).for_each(|(out, low)| *out = (*out - low).abs());
    Ok(())
}

/// Noise that depends on a seed and the place of a tensor only.
pub struct Noise(ChaCha8Rng);

impl Noise {
    /// The noise of tensor number `index`.
    pub fn new(seed: u64, index: u64) -> Noise {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        rng.set_stream(index);
        Noise(rng)
    }

    /// Writes the weights of blocks, each moved by less than half a step.
    ///
    /// # Errors
    /// As [`steps`].
    pub fn dither(&mut self, ty: GgmlType, bytes: &[u8], out: &mut [f32]) -> Result<(), DequantizeError> {
        let mut step = vec![0.0; out.len()];
        steps(ty, bytes, &mut step)?;
        dequantize_row(ty, bytes, out)?;
        for (w, step) in out.iter_mut().zip(step) {
            // 24 bits from -1 to 1, both excluded, and symmetric.
            let even = ((self.0.next_u32() >> 8) as f32 + 0.5) / (1 << 23) as f32 - 1.0;
            *w += even * AMPLITUDE * step;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use qgguf_gguf::dequantize::dequantize_supported;

    /// Blocks of any codes with scales that are ordinary numbers: f16 fields would be anything otherwise.
    fn blocks(ty: GgmlType, n: usize) -> Vec<u8> {
        let mut rng = ChaCha8Rng::seed_from_u64(7);
        let mut bytes: Vec<u8> = (0..n * ty.block_bytes()).map(|_| rng.next_u32() as u8).collect();
        for (i, block) in bytes.chunks_exact_mut(ty.block_bytes()).enumerate() {
            for &at in ty.half_fields() {
                block[at..at + 2]
                    .copy_from_slice(&half::f16::from_f32(0.01 + i as f32 * 0.003).to_le_bytes());
            }
        }
        bytes
    }

    #[test]
    fn a_step_is_the_least_distance_between_weights_of_a_group() {
        for ty in types() {
            let bytes = blocks(ty, 8);
            let n = 8 * ty.block_size();
            let (mut step, mut w) = (vec![0.0; n], vec![0.0; n]);
            steps(ty, &bytes, &mut step).unwrap();
            dequantize_row(ty, &bytes, &mut w).unwrap();
            // Weights that share a step lie a whole number of steps apart.
            for (w, step) in w.chunks(16).zip(step.chunks(16)) {
                for i in 1..16 {
                    assert_eq!(step[0], step[i], "{ty}");
                    let apart = (w[i] - w[0]) / step[0];
                    assert!(step[0] == 0.0 || (apart - apart.round()).abs() < 1e-3, "{ty}: {apart} steps");
                }
            }
            // Some are one step apart: it is no multiple.
            let least = |(w, step): (&[f32], &[f32])| {
                let apart = w.iter().flat_map(|a| w.iter().map(move |b| (a - b).abs() / step[0]));
                apart.filter(|&d| d > 0.5).fold(f32::INFINITY, f32::min)
            };
            let closest = w.chunks(16).zip(step.chunks(16)).map(least).fold(f32::INFINITY, f32::min);
            assert!((closest - 1.0).abs() < 1e-3, "{ty}: {closest}");
        }
    }

    #[test]
    fn noise_stays_within_half_a_step_and_fills_it() {
        for ty in types() {
            let bytes = blocks(ty, 64);
            let n = 64 * ty.block_size();
            let (mut step, mut w, mut noisy) = (vec![0.0; n], vec![0.0; n], vec![0.0; n]);
            steps(ty, &bytes, &mut step).unwrap();
            dequantize_row(ty, &bytes, &mut w).unwrap();
            Noise::new(1, 2).dither(ty, &bytes, &mut noisy).unwrap();
            let (mut sum, mut squares, mut n) = (0.0, 0.0, 0.0);
            for ((w, noisy), step) in w.iter().zip(&noisy).zip(&step).filter(|(_, step)| **step > 0.0) {
                let rounded = half::f16::from_f32(*noisy).to_f32();
                let moved = (rounded - w) / step;
                assert!(moved.abs() < 0.5, "{ty}: {moved} steps");
                sum += f64::from(moved);
                squares += f64::from(moved * moved);
                n += 1.0;
            }
            // An even spread over ±0.45 has this deviation; the mean of n values is off by a few of it over √n.
            let deviation = 0.45 / 3f64.sqrt();
            assert!((sum / n).abs() < 5.0 * deviation / n.sqrt(), "{ty}");
            assert!(((squares / n).sqrt() / deviation - 1.0).abs() < 0.05, "{ty}");
        }
    }

    #[test]
    fn noise_is_that_of_the_seed_and_the_tensor() {
        let ty = GgmlType::Q4_1;
        let bytes = blocks(ty, 4);
        let noisy = |seed, index| {
            let mut out = vec![0.0; 128];
            Noise::new(seed, index).dither(ty, &bytes, &mut out).unwrap();
            out
        };
        assert_eq!(noisy(1, 2), noisy(1, 2));
        assert_ne!(noisy(1, 2), noisy(2, 2));
        assert_ne!(noisy(1, 2), noisy(1, 3));
    }

    #[test]
    fn types_without_an_even_grid_are_refused() {
        for ty in GgmlType::all().filter(|&ty| dequantize_supported(ty) && types().all(|known| known != ty)) {
            let bytes = vec![0; ty.block_bytes()];
            let error = Noise::new(1, 1).dither(ty, &bytes, &mut vec![0.0; ty.block_size()]).unwrap_err();
            assert_eq!(error, DequantizeError::Unsupported(ty));
        }
        assert!(steps(GgmlType::Q4_0, &[0; 17], &mut [0.0; 32]).is_err());
    }
}
