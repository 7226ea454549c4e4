//! Matrix products: activations are quantized once per form, rows of weights are shared out to the team.

use std::cell::RefCell;

use crate::compute::Compute;
use crate::matrix::{Matrix, RowsKernel};
use crate::quantize::{Codes, CodesMut, Partner};
use crate::table::Table;
use crate::team::{SharedSlice, Team};

/// One product: `out[token][row] = w[row] · x[token]`.
pub struct MatmulJob<'w, 'o> {
    /// The weights.
    pub w: Matrix<'w>,
    /// `[n_tokens][w.n_rows()]`.
    pub out: &'o mut [f32],
}

/// Rows of activations in one quantized form, reused from call to call.
#[derive(Default)]
struct Activations {
    q: Vec<i8>,
    d: Vec<f32>,
    sums: Vec<i16>,
}

/// Memory for quantized activations.
#[derive(Default)]
pub(crate) struct MatmulScratch {
    q8: Activations,
    q8k: Activations,
    gathered: Vec<f32>,
    products: Vec<f32>,
    order: Vec<u32>,
}

thread_local! {
    /// Results of one task before they are scattered to their tokens.
    static TILE: RefCell<Vec<f32>> = const { RefCell::new(Vec::new()) };
}

/// Bytes of weights that one task takes at least: it should outlast the cost of taking a task.
const TASK_BYTES: usize = 16 << 10;
/// Tasks per thread, so that uneven cores end at about the same time.
const TASKS_PER_THREAD: usize = 8;

impl Activations {
    fn quantize(&mut self, team: &Team, table: &Table, partner: Partner, x: &[f32], n_cols: usize) {
        let (n_blocks, n_sums) = (n_cols / partner.block(), n_cols / partner.group());
        let n_tokens = x.len() / n_cols;
        self.q.resize(x.len(), 0);
        self.d.resize(n_tokens * n_blocks, 0.0);
        self.sums.resize(n_tokens * n_sums, 0);
        let (q, d, sums) =
            (SharedSlice::new(&mut self.q), SharedSlice::new(&mut self.d), SharedSlice::new(&mut self.sums));
        let quantize = if partner == Partner::Q8 { table.quantize_q8 } else { table.quantize_q8k };
        team.run(n_tokens, |t| {
            // SAFETY: every token has parts of its own; the table belongs to this CPU.
            unsafe {
                let out = CodesMut {
                    q: q.range(t * n_cols, n_cols),
                    d: d.range(t * n_blocks, n_blocks),
                    sums: sums.range(t * n_sums, n_sums),
                };
                quantize(&x[t * n_cols..(t + 1) * n_cols], out);
            }
        });
    }

    fn codes(&self) -> Codes<'_> {
        Codes { q: &self.q, d: &self.d, sums: &self.sums }
    }
}

impl MatmulScratch {
    fn quantize(&mut self, team: &Team, table: &Table, jobs: &[MatmulJob<'_, '_>], x: &[f32], n_cols: usize) {
        for (partner, activations) in [(Partner::Q8, &mut self.q8), (Partner::Q8K, &mut self.q8k)] {
            if jobs.iter().any(|job| job.w.partner() == partner) {
                activations.quantize(team, table, partner, x, n_cols);
            }
        }
    }
}

impl Compute {
    /// Multiplies `x` (`[n_tokens][n_cols]`) with every job's weights, which all have rows of `n_cols`.
    ///
    /// # Panics
    /// If lengths do not fit.
    pub fn matmul(&mut self, x: &[f32], n_tokens: usize, jobs: &mut [MatmulJob<'_, '_>]) {
        let Some(n_cols) = jobs.first().map(|job| job.w.n_cols()) else { return };
        assert!(x.len() == n_tokens * n_cols, "{n_tokens} rows of {n_cols}, got {}", x.len());
        for job in &*jobs {
            assert!(job.w.n_cols() == n_cols && job.out.len() == n_tokens * job.w.n_rows());
        }
        if n_tokens == 0 {
            return;
        }
        let (team, table) = (&self.team, self.kernels.table());
        self.scratch.quantize(team, table, jobs, x, n_cols);
        let (q8, q8k) = (self.scratch.q8.codes(), self.scratch.q8k.codes());

        let n_bytes: usize = jobs.iter().map(|job| job.w.n_bytes()).sum();
        let task_bytes = (n_bytes / (team.n_threads() * TASKS_PER_THREAD)).max(TASK_BYTES);
        let parts: Vec<Part<'_>> = jobs
            .iter_mut()
            .map(|job| {
                let row = job.w.n_bytes() / job.w.n_rows();
                // Kernels take four rows at a time.
                let n_rows = (task_bytes / row).next_multiple_of(4).max(4);
                Part {
                    w: job.w,
                    n_rows,
                    n_tasks: job.w.n_rows().div_ceil(n_rows),
                    out: SharedSlice::new(job.out),
                }
            })
            .collect();
        team.run(parts.iter().map(|part| part.n_tasks).sum(), |mut task| {
            for part in &parts {
                if task < part.n_tasks {
                    let codes = if part.w.partner() == Partner::Q8 { q8 } else { q8k };
                    return part.run(table, task, x, codes, n_tokens);
                }
                task -= part.n_tasks;
            }
        });
    }

    /// Multiplies rows of `x` with the weights of chosen experts.
    ///
    /// Pair p uses expert `ids[p]` and row `p / (ids.len() / n_x)` of `x` (`[n_x][n_cols]`); its result is
    /// `out[p]`. Pairs of one expert are computed together, so its weights are read once.
    ///
    /// # Panics
    /// If lengths do not fit or an id names no expert.
    pub fn matmul_experts(&mut self, x: &[f32], ids: &[u32], experts: &[Matrix<'_>], out: &mut [f32]) {
        let first = experts.first().expect("at least one expert");
        let (n_cols, n_rows) = (first.n_cols(), first.n_rows());
        let n_x = x.len() / n_cols;
        if ids.is_empty() {
            return;
        }
        assert!(x.len() == n_x * n_cols && n_x > 0 && ids.len().is_multiple_of(n_x));
        assert!(out.len() == ids.len() * n_rows && ids.iter().all(|&id| (id as usize) < experts.len()));
        let per_row = ids.len() / n_x;
        let mut order = std::mem::take(&mut self.scratch.order);
        let mut gathered = std::mem::take(&mut self.scratch.gathered);
        let mut products = std::mem::take(&mut self.scratch.products);
        for (e, expert) in experts.iter().enumerate() {
            order.clear();
            order.extend((0..ids.len() as u32).filter(|&p| ids[p as usize] as usize == e));
            if order.is_empty() {
                continue;
            }
            gathered.clear();
            for &p in &order {
                gathered.extend_from_slice(&x[p as usize / per_row * n_cols..][..n_cols]);
            }
            products.resize(order.len() * n_rows, 0.0);
            self.matmul(&gathered, order.len(), &mut [MatmulJob { w: *expert, out: &mut products }]);
            for (&p, product) in order.iter().zip(products.chunks_exact(n_rows)) {
                out[p as usize * n_rows..][..n_rows].copy_from_slice(product);
            }
        }
        (self.scratch.order, self.scratch.gathered, self.scratch.products) = (order, gathered, products);
    }
}

/// The tasks of one job: `n_rows` rows each.
struct Part<'a> {
    w: Matrix<'a>,
    n_rows: usize,
    n_tasks: usize,
    out: SharedSlice<'a, f32>,
}

impl Part<'_> {
    fn run(&self, table: &Table, task: usize, x: &[f32], codes: Codes<'_>, n_tokens: usize) {
        let start = task * self.n_rows;
        let end = (start + self.n_rows).min(self.w.n_rows());
        let (n, n_cols) = (end - start, self.w.n_cols());
        let w = self.w.row_bytes(start..end);
        let kernel = self.w.kernel(table);
        let multiply = |out: &mut [f32]| {
            // SAFETY: the table belongs to this CPU.
            unsafe {
                match kernel {
                    RowsKernel::Codes(kernel) => kernel(w, n_cols, codes, out),
                    RowsKernel::F32(kernel) => kernel(w, n_cols, x, out),
                }
            }
        };
        // SAFETY: here and below, no two tasks have a row in common.
        let rows_of = |token: usize| unsafe { self.out.range(token * self.w.n_rows() + start, n) };
        if n_tokens == 1 {
            return multiply(rows_of(0));
        }
        TILE.with_borrow_mut(|tile| {
            tile.resize(n_tokens * n, 0.0);
            multiply(tile);
            for (token, row) in tile.chunks_exact(n).enumerate() {
                rows_of(token).copy_from_slice(row);
            }
        });
    }
}
