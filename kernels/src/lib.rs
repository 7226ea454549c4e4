//! All arithmetic on blocks, and the threads that share it out.
//!
//! Every kernel has one generic body over [`simd::Simd`]; `isa/` stamps it once per instruction set into a
//! table of function pointers, and [`Kernels`] is the chosen table. Results are the same bits for every
//! instruction set, thread count and batch split: integer sums inside a block are exact, each output element
//! has one f32 accumulator that takes blocks in ascending order, f32 sums across lanes use 16 partial sums
//! and one fixed tree, and threads split rows, heads or tokens but never a sum.
//!
//! Nothing here knows a model, and only `isa/` names intrinsics.

mod activations;
mod attention;
mod bits;
mod compute;
mod float_products;
mod formats;
mod isa;
mod layout;
pub mod limits;
mod math;
mod matmul;
mod matrix;
mod products;
mod quantize;
mod quantizers;
mod rope;
mod rows;
mod simd;
mod table;
mod team;
mod tile;
mod vocabulary;

pub use attention::{
    AttentionParams, CHUNK, KvLayer, KvLayout, KvPool, KvPoolFull, KvShape, KvType, KvTypeError, Span,
};
pub use compute::Compute;
pub use isa::{Isa, IsaError};
pub use math::sin_cos;
pub use matmul::MatmulJob;
pub use matrix::{Matrix, MatrixError};
pub use quantize::{QuantizeError, quantizable};
pub use rope::{RopeLayout, RopeParams, RopeTable};
pub use team::Team;
pub use vocabulary::Above;

/// The kernels of one instruction set that this CPU has.
#[derive(Clone, Copy)]
pub struct Kernels {
    isa: Isa,
    table: &'static table::Table,
}

/// The environment variable that names an instruction set to use instead of the best.
pub const ISA_VARIABLE: &str = "QGGUF_ISA";

impl Kernels {
    /// The kernels of the best instruction set of this CPU.
    pub fn best() -> Kernels {
        let best = Isa::ALL.iter().rev().find_map(|&isa| Kernels::new(isa).ok());
        best.expect("the portable kernels need nothing")
    }

    /// The kernels that [`ISA_VARIABLE`] asks for, the best ones if it is not set.
    pub fn from_env() -> Result<Kernels, IsaError> {
        match std::env::var_os(ISA_VARIABLE) {
            Some(name) if !name.is_empty() => Kernels::new(name.to_string_lossy().parse()?),
            _ => Ok(Kernels::best()),
        }
    }

    /// The kernels of `isa`, or an error naming the feature that this CPU lacks.
    pub fn new(isa: Isa) -> Result<Kernels, IsaError> {
        Ok(Kernels { isa, table: isa.table()? })
    }

    /// The instruction set in use.
    pub fn isa(self) -> Isa {
        self.isa
    }

    /// The largest value, NaN passed over; minus infinity if there is none.
    pub fn largest(self, x: &[f32]) -> f32 {
        // SAFETY: the table belongs to this CPU.
        unsafe { (self.table.largest)(x) }
    }

    /// `x = exp(x)`, the same bits on every CPU.
    pub fn exp(self, x: &mut [f32]) {
        // SAFETY: the table belongs to this CPU.
        unsafe { (self.table.exp)(x) }
    }

    fn table(self) -> &'static table::Table {
        self.table
    }
}
