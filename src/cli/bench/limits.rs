//! How fast a test could be on this machine, from what its threads were measured to read and to multiply.

use std::io;

use qgguf_kernels::{Compute, Kernels, limits};

use super::cpu;
use super::work::Cost;

/// What so many threads can do.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Bytes of memory read per second.
    pub read_bandwidth: f64,
    /// Multiply-adds of bytes per second.
    pub multiply_add_rate: f64,
    /// Multiply-adds of f32 per second.
    pub float_multiply_add_rate: f64,
}

impl Limits {
    /// Measures `n_threads` threads; takes about a second.
    pub fn measure(kernels: Kernels, n_threads: usize) -> io::Result<Limits> {
        let compute = Compute::new(kernels, n_threads);
        Ok(Limits {
            read_bandwidth: limits::read_bandwidth(&compute, buffer_bytes())?,
            multiply_add_rate: limits::multiply_add_rate(&compute),
            float_multiply_add_rate: limits::float_multiply_add_rate(&compute),
        })
    }

    /// Tokens per second, if `n_tokens` are evaluated in these passes and a pass takes as long as its reading or
    /// its multiplying, whichever is longer.
    pub fn tokens_per_second(&self, n_tokens: usize, passes: impl Iterator<Item = Cost>) -> f64 {
        n_tokens as f64 / passes.map(|cost| self.seconds(cost)).sum::<f64>()
    }

    fn seconds(&self, cost: Cost) -> f64 {
        let reading = cost.bytes / self.read_bandwidth;
        reading.max(cost.int8 / self.multiply_add_rate + cost.f32 / self.float_multiply_add_rate)
    }
}

/// Several times the last cache, but no more than a small part of free memory.
fn buffer_bytes() -> usize {
    const MIB: usize = 1 << 20;
    let wanted = cpu::last_cache_bytes().unwrap_or(0).saturating_mul(4).clamp(256 * MIB, 1024 * MIB);
    cpu::available_bytes().map_or(wanted, |available| wanted.min(available / 4))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pass_takes_as_long_as_its_slower_half() {
        let limits = Limits { read_bandwidth: 10.0, multiply_add_rate: 100.0, float_multiply_add_rate: 50.0 };
        let reading = Cost { bytes: 20.0, int8: 50.0, f32: 25.0 };
        let multiplying = Cost { bytes: 20.0, int8: 500.0, f32: 50.0 };
        assert_eq!(limits.tokens_per_second(8, [reading, multiplying].into_iter()), 1.0);
    }
}
