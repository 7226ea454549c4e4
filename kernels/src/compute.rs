//! The operations of a forward pass: kernels, the team that runs them, and reused memory.

use crate::attention::{AttentionParams, AttentionScratch, KvLayer, Span};
use crate::matmul::{MatmulJob, MatmulScratch};
use crate::matrix::Matrix;
use crate::rope::{RopeLayout, RopeTable};
use crate::team::Team;
use crate::{Isa, Kernels};

/// Kernels and a team of threads. Activations are f32, `[token][n]`.
///
/// The methods panic if lengths do not fit; they do nothing else that depends on who calls them.
pub struct Compute {
    pub(crate) kernels: Kernels,
    pub(crate) team: Team,
    matmul: MatmulScratch,
    attention: AttentionScratch,
}

/// Values that one task of an elementwise operation takes at least.
const TASK_VALUES: usize = 8192;

impl Compute {
    /// Starts a team of `n_threads`, the caller included.
    pub fn new(kernels: Kernels, n_threads: usize) -> Compute {
        Compute {
            kernels,
            team: Team::new(n_threads),
            matmul: MatmulScratch::default(),
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
        self.matmul.bytes() + self.attention.bytes()
    }

    /// Says that several operations follow each other closely, until [`Compute::end`].
    pub fn begin(&self) {
        self.team.begin();
    }

    /// Ends what [`Compute::begin`] began.
    pub fn end(&self) {
        self.team.end();
    }

    /// Multiplies `x` (`[n_tokens][n_cols]`) with every job's weights, which all have rows of `n_cols`.
    ///
    /// # Panics
    /// If lengths do not fit or there are more than four.
    pub fn matmul(&mut self, x: &[f32], n_tokens: usize, jobs: &mut [MatmulJob<'_, '_>]) {
        self.matmul.matmul((&self.team, self.kernels.table()), x, n_tokens, jobs);
    }

    /// Multiplies rows of `x` with the weights of chosen experts.
    ///
    /// Pair p uses expert `ids[p]` and row `p / (ids.len() / n_x)` of `x` (`[n_x][n_cols]`); its result is
    /// `out[p]`. Pairs of one expert are computed together, so its weights are read once. `expert(e)` gives the
    /// weights of expert e, all of one shape and type.
    ///
    /// # Panics
    /// If lengths do not fit or an id is not below `n_experts`.
    pub fn matmul_experts<'w>(
        &mut self,
        x: &[f32],
        ids: &[u32],
        n_experts: usize,
        expert: impl Fn(usize) -> Matrix<'w> + Sync,
        out: &mut [f32],
    ) {
        let tools = (&self.team, self.kernels.table());
        self.matmul.matmul_experts(tools, x, ids, n_experts, expert, out);
    }

    /// Appends keys and values (`[token][head][element]`) of `n_tokens` positions to the cache.
    ///
    /// # Panics
    /// If the cache's pool has no room; [`KvLayer::reserve`] makes it.
    pub fn kv_append(&mut self, kv: &mut KvLayer, k: &[f32], v: &[f32], n_tokens: usize) {
        let (n_head, dim_k, dim_v) = kv.dims();
        assert!(k.len() == n_tokens * n_head * dim_k && v.len() == n_tokens * n_head * dim_v);
        kv.append((&self.team, self.kernels.table()), k, v, n_tokens);
    }

    /// Causal attention of the queries of a batch (`[token][head][element]`). Span i sees the cache `kv(i)`, which
    /// holds its own keys and values already; all caches have the same layout. `out` is
    /// `[token][head][element of a value]`.
    pub fn attention<'a>(
        &mut self,
        spans: &[Span],
        kv: impl Fn(usize) -> &'a KvLayer + Sync,
        q: &[f32],
        params: &AttentionParams,
        out: &mut [f32],
    ) {
        self.attention.attend((&self.team, self.kernels.table()), spans, kv, q, params, out);
    }

    /// `out` = RMS norm of the rows of `x`, which are as long as `weight`.
    pub fn rms_norm(&mut self, x: &[f32], weight: &[f32], eps: f32, out: &mut [f32]) {
        let n = weight.len();
        assert!(x.len() == out.len() && x.len().is_multiple_of(n));
        let table = self.kernels.table();
        self.by_rows(out, n, |i, row| {
            row.copy_from_slice(&x[i * n..(i + 1) * n]);
            // SAFETY: the table belongs to this CPU.
            unsafe { (table.rms_norm)(row, weight, eps) }
        });
    }

    /// RMS norm of the rows of `x`, which are as long as `weight`.
    pub fn rms_norm_in_place(&mut self, x: &mut [f32], weight: &[f32], eps: f32) {
        let n = weight.len();
        assert!(x.len().is_multiple_of(n));
        let table = self.kernels.table();
        self.by_rows(x, n, |_, row| {
            // SAFETY: the table belongs to this CPU.
            unsafe { (table.rms_norm)(row, weight, eps) }
        });
    }

    /// `x += y`.
    pub fn add(&mut self, x: &mut [f32], y: &[f32]) {
        assert!(x.len() == y.len());
        let table = self.kernels.table();
        // SAFETY: the table belongs to this CPU.
        self.zip(x, y, |x, y| unsafe { (table.add)(x, y) });
    }

    /// Adds `bias` to every row of `x`.
    pub fn add_bias(&mut self, x: &mut [f32], bias: &[f32]) {
        assert!(x.len().is_multiple_of(bias.len()));
        let table = self.kernels.table();
        // SAFETY: the table belongs to this CPU.
        self.by_rows(x, bias.len(), |_, row| unsafe { (table.add)(row, bias) });
    }

    /// `x *= factor`.
    pub fn scale(&mut self, x: &mut [f32], factor: f32) {
        let table = self.kernels.table();
        // SAFETY: the table belongs to this CPU.
        self.team.run_chunks(x, TASK_VALUES, |_, x| unsafe { (table.scale)(x, factor) });
    }

    /// `gate = silu(gate) * up`.
    pub fn swiglu(&mut self, gate: &mut [f32], up: &[f32]) {
        assert!(gate.len() == up.len());
        let table = self.kernels.table();
        // SAFETY: the table belongs to this CPU.
        self.zip(gate, up, |gate, up| unsafe { (table.swiglu)(gate, up) });
    }

    /// `gate = gelu(gate) * up`, the tanh form.
    pub fn geglu(&mut self, gate: &mut [f32], up: &[f32]) {
        assert!(gate.len() == up.len());
        let table = self.kernels.table();
        // SAFETY: the table belongs to this CPU.
        self.zip(gate, up, |gate, up| unsafe { (table.geglu)(gate, up) });
    }

    /// `x = cap * tanh(x / cap)`.
    pub fn softcap(&mut self, x: &mut [f32], cap: f32) {
        let table = self.kernels.table();
        // SAFETY: the table belongs to this CPU.
        self.team.run_chunks(x, TASK_VALUES, |_, x| unsafe { (table.softcap)(x, cap) });
    }

    /// Softmax of every row of `n` values.
    pub fn softmax(&mut self, x: &mut [f32], n: usize) {
        assert!(x.len().is_multiple_of(n));
        let table = self.kernels.table();
        // SAFETY: the table belongs to this CPU.
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
            // SAFETY: the table belongs to this CPU.
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
