//! The operations of a forward pass: kernels, the team that runs them, and reused memory.

use crate::attention::AttentionScratch;
use crate::matmul::MatmulScratch;
use crate::rope::{RopeLayout, RopeTable};
use crate::team::Team;
use crate::{Isa, Kernels};

/// Kernels and a team of threads. Activations are f32, `[token][n]`.
///
/// The methods panic if lengths do not fit; they do nothing else that depends on who calls them.
pub struct Compute {
    pub(crate) kernels: Kernels,
    pub(crate) team: Team,
    pub(crate) scratch: MatmulScratch,
    pub(crate) attention: AttentionScratch,
}

/// Values that one task of an elementwise operation takes at least.
const TASK_VALUES: usize = 8192;

impl Compute {
    /// Starts a team of `n_threads`, the caller included.
    pub fn new(kernels: Kernels, n_threads: usize) -> Compute {
        Compute {
            kernels,
            team: Team::new(n_threads),
            scratch: MatmulScratch::default(),
            attention: AttentionScratch::default(),
        }
    }

    /// The kernels in use.
    pub fn kernels(&self) -> Kernels {
        self.kernels
    }

    /// The instruction set in use.
    pub fn isa(&self) -> Isa {
        self.kernels.isa()
    }

    /// Threads in use.
    pub fn n_threads(&self) -> usize {
        self.team.n_threads()
    }

    /// Uses only the first `n` threads of the team from now on; at least 1.
    pub fn set_threads(&mut self, n: usize) {
        self.team.set_active(n);
    }

    /// Bytes held between operations.
    pub fn scratch_bytes(&self) -> usize {
        self.scratch.bytes() + self.attention.bytes()
    }

    /// Says that several operations follow each other closely, until [`Compute::end`].
    pub fn begin(&self) {
        self.team.begin();
    }

    /// Ends what [`Compute::begin`] began.
    pub fn end(&self) {
        self.team.end();
    }

    /// `out` = RMS norm of the rows of `x`, which are as long as `weight`.
    pub fn rms_norm(&mut self, x: &[f32], weight: &[f32], eps: f32, out: &mut [f32]) {
        let n = weight.len();
        assert!(x.len() == out.len() && x.len().is_multiple_of(n));
        let table = self.kernels.table();
        self.by_rows(out, n, |i, row| {
            row.copy_from_slice(&x[i * n..(i + 1) * n]);
            // SAFETY: the table belongs to this CPU, as in all calls below.
            unsafe { (table.rms_norm)(row, weight, eps) }
        });
    }

    /// RMS norm of the rows of `x`, which are as long as `weight`.
    pub fn rms_norm_in_place(&mut self, x: &mut [f32], weight: &[f32], eps: f32) {
        let n = weight.len();
        assert!(x.len().is_multiple_of(n));
        let table = self.kernels.table();
        self.by_rows(x, n, |_, row| {
            // SAFETY: see above.
            unsafe { (table.rms_norm)(row, weight, eps) }
        });
    }

    /// `x += y`.
    pub fn add(&mut self, x: &mut [f32], y: &[f32]) {
        assert!(x.len() == y.len());
        let table = self.kernels.table();
        // SAFETY: see above.
        self.zip(x, y, |x, y| unsafe { (table.add)(x, y) });
    }

    /// Adds `bias` to every row of `x`.
    pub fn add_bias(&mut self, x: &mut [f32], bias: &[f32]) {
        assert!(x.len().is_multiple_of(bias.len()));
        let table = self.kernels.table();
        // SAFETY: see above.
        self.by_rows(x, bias.len(), |_, row| unsafe { (table.add)(row, bias) });
    }

    /// `x *= factor`.
    pub fn scale(&mut self, x: &mut [f32], factor: f32) {
        let table = self.kernels.table();
        // SAFETY: see above.
        self.team.run_chunks(x, TASK_VALUES, |_, x| unsafe { (table.scale)(x, factor) });
    }

    /// `gate = silu(gate) * up`.
    pub fn swiglu(&mut self, gate: &mut [f32], up: &[f32]) {
        assert!(gate.len() == up.len());
        let table = self.kernels.table();
        // SAFETY: see above.
        self.zip(gate, up, |gate, up| unsafe { (table.swiglu)(gate, up) });
    }

    /// `gate = gelu(gate) * up`, the tanh form.
    pub fn geglu(&mut self, gate: &mut [f32], up: &[f32]) {
        assert!(gate.len() == up.len());
        let table = self.kernels.table();
        // SAFETY: see above.
        self.zip(gate, up, |gate, up| unsafe { (table.geglu)(gate, up) });
    }

    /// `x = cap * tanh(x / cap)`.
    pub fn softcap(&mut self, x: &mut [f32], cap: f32) {
        let table = self.kernels.table();
        // SAFETY: see above.
        self.team.run_chunks(x, TASK_VALUES, |_, x| unsafe { (table.softcap)(x, cap) });
    }

    /// Softmax of every row of `n` values.
    pub fn softmax(&mut self, x: &mut [f32], n: usize) {
        assert!(x.len().is_multiple_of(n));
        let table = self.kernels.table();
        // SAFETY: see above.
        self.by_rows(x, n, |_, row| unsafe { (table.softmax)(row) });
    }

    /// Rotates `n_heads` heads of `head_dim` values per token; `table` has the angles of each token.
    pub fn rope(
        &mut self,
        x: &mut [f32],
        n_heads: usize,
        head_dim: usize,
        table: &RopeTable,
        layout: RopeLayout,
    ) {
        let row = n_heads * head_dim;
        assert!(x.len() == table.n_tokens() * row && table.n_dims() <= head_dim);
        let kernels = self.kernels.table();
        self.by_rows(x, row, |token, row| {
            // SAFETY: see above.
            unsafe { (kernels.rotate)(row, head_dim, table.token(token), layout) }
        });
    }

    /// Calls `op(index, row)` for every row of `n` values, many rows a task.
    fn by_rows(&self, x: &mut [f32], n: usize, op: impl Fn(usize, &mut [f32]) + Sync) {
        let rows_per_task = (TASK_VALUES / n).max(1);
        self.team.run_chunks(x, rows_per_task * n, |task, rows| {
            for (i, row) in rows.chunks_exact_mut(n).enumerate() {
                op(task * rows_per_task + i, row);
            }
        });
    }

    /// Calls `op` for corresponding parts of `x` and `y`.
    fn zip(&self, x: &mut [f32], y: &[f32], op: impl Fn(&mut [f32], &[f32]) + Sync) {
        self.team.run_chunks(x, TASK_VALUES, |task, x| op(x, &y[task * TASK_VALUES..][..x.len()]));
    }

    /// Cuts `data` into chunks of `chunk` values and calls `task(index, chunk)` for each, on the team.
    pub fn run_chunks<T: Send>(&self, data: &mut [T], chunk: usize, task: impl Fn(usize, &mut [T]) + Sync) {
        self.team.run_chunks(data, chunk, task);
    }

    /// Runs `task(0)` to `task(n - 1)` on the team.
    pub fn run(&self, n: usize, task: impl Fn(usize) + Sync) {
        self.team.run(n, task);
    }
}
