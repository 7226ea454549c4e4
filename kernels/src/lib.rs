//! All arithmetic on blocks, and the threads that share it out.
//!
//! Every kernel has one generic body over [`simd::Simd`]; `isa/` stamps it once per instruction set into a
//! table of function pointers, and [`Kernels`] is the chosen table. Results are the same bits for every
//! instruction set, thread count and batch split: integer sums inside a block are exact, each output element
//! has one f32 accumulator that takes blocks in ascending order, f32 sums across lanes use 16 partial sums
//! and one fixed tree, and threads split rows, heads or tokens but never a sum.
//!
//! Nothing here knows a model, and only `isa/` names intrinsics.

mod isa;
mod norm;
pub mod simd;
mod table;

pub use isa::{Isa, IsaError};

/// The kernels of one instruction set that this CPU has.
#[derive(Clone, Copy)]
pub struct Kernels {
    isa: Isa,
    table: &'static table::Table,
}

impl Kernels {
    /// The kernels of the best instruction set of this CPU.
    pub fn best() -> Kernels {
        Isa::ALL.iter().rev().find_map(|&isa| Kernels::new(isa).ok()).expect("portable is always there")
    }

    /// The kernels of `isa`, or an error naming the feature that this CPU lacks.
    pub fn new(isa: Isa) -> Result<Kernels, IsaError> {
        Ok(Kernels { isa, table: isa.table()? })
    }

    /// The instruction set in use.
    pub fn isa(self) -> Isa {
        self.isa
    }

    /// RMS norm of one row: `out = x / sqrt(mean(x²) + eps) * weight`; all of one length.
    pub fn rms_norm(self, x: &[f32], weight: &[f32], eps: f32, out: &mut [f32]) {
        assert!(x.len() == weight.len() && x.len() == out.len());
        // SAFETY: `Isa::table` hands out a table only when the CPU has its features.
        unsafe { (self.table.rms_norm)(x, weight, eps, out) }
    }
}
