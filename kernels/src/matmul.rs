//! Matrix products: activations are quantized once per form, panels of 16 rows of weights are shared out to the team.

use std::cell::RefCell;
use std::ops::Range;

use crate::compute::Compute;
use crate::matrix::{Matrix, PanelKernel};
use crate::quantize::{Codes, CodesMut, Floats, Order, Partner};
use crate::table::Table;
use crate::team::{SharedSlice, Team};
use crate::tile::{PANEL, Panel};
use crate::weights::Tile;

/// One product: `out[token][row] = w[row] · x[token]`.
pub struct MatmulJob<'w, 'o> {
    /// The weights.
    pub w: Matrix<'w>,
    /// `[n_tokens][w.n_rows()]`.
    pub out: &'o mut [f32],
}

/// Products that one call takes at most.
pub const MAX_JOBS: usize = 4;

/// Rows of activations in one quantized form, reused from call to call.
#[derive(Default)]
struct Activations {
    /// Codes in a row: the activations, and what fills a tile.
    n_cols: usize,
    q: Vec<i8>,
    d: Vec<f32>,
    sums: Vec<i16>,
}

/// Memory for quantized activations and for the order of experts' tokens.
#[derive(Default)]
pub(crate) struct MatmulScratch {
    q8: Activations,
    q8k: Activations,
    /// Pairs, expert by expert; then the rows that they take; then where each expert's begin.
    pairs: Vec<u32>,
    rows: Vec<u32>,
    starts: Vec<u32>,
}

/// Memory of one thread.
struct Workspace {
    tile: Tile,
    /// Results of one panel before they are taken to their tokens.
    results: Vec<[f32; PANEL]>,
    /// A panel of a matrix with fewer rows than that.
    padded: Vec<u8>,
}

thread_local! {
    static WORKSPACE: RefCell<Workspace> =
        const { RefCell::new(Workspace { tile: Tile::EMPTY, results: Vec::new(), padded: Vec::new() }) };
}

/// Bytes of weights that one task takes at least: it should outlast the cost of taking a task.
const TASK_BYTES: usize = 16 << 10;
/// Tasks per thread, so that uneven cores end at about the same time.
const TASKS_PER_THREAD: usize = 8;

impl Activations {
    fn quantize(&mut self, team: &Team, table: &Table, partner: Partner, x: &[f32], n_cols: usize) {
        let (block, group) = (partner.block(), partner.group());
        let n_tokens = x.len() / n_cols;
        self.n_cols = n_cols.next_multiple_of(256) + 256;
        let (stride, n_values) = (self.n_cols, self.n_cols * n_tokens);
        self.q.resize(n_values, 0);
        self.d.resize(n_values / block, 0.0);
        self.sums.resize(n_values / group, 0);
        let (q, d, sums) =
            (SharedSlice::new(&mut self.q), SharedSlice::new(&mut self.d), SharedSlice::new(&mut self.sums));
        let quantize = if partner == Partner::Q8 { table.quantize_q8 } else { table.quantize_q8k };
        team.run(n_tokens, |t| {
            let at = t * stride;
            // SAFETY: every token has parts of its own; the table belongs to this CPU.
            unsafe {
                let out = CodesMut {
                    q: q.range(at, n_cols),
                    d: d.range(at / block, n_cols / block),
                    sums: sums.range(at / group, n_cols / group),
                };
                quantize(&x[t * n_cols..(t + 1) * n_cols], out);
            }
        });
    }

    fn codes(&self) -> Codes<'_> {
        Codes { n_cols: self.n_cols, q: &self.q, d: &self.d, sums: &self.sums, order: Order::default() }
    }
}

/// Activations in every form that a product may want, and which rows of them it takes.
#[derive(Clone, Copy)]
struct Inputs<'a> {
    x: &'a [f32],
    q8: Codes<'a>,
    q8k: Codes<'a>,
    order: Order<'a>,
}

impl MatmulScratch {
    fn quantize(&mut self, team: &Team, table: &Table, partners: &[Partner], x: &[f32], n_cols: usize) {
        for (partner, activations) in [(Partner::Q8, &mut self.q8), (Partner::Q8K, &mut self.q8k)] {
            if partners.contains(&partner) {
                activations.quantize(team, table, partner, x, n_cols);
            }
        }
    }
}

impl Compute {
    /// Multiplies `x` (`[n_tokens][n_cols]`) with every job's weights, which all have rows of `n_cols`.
    ///
    /// # Panics
    /// If lengths do not fit or there are more than [`MAX_JOBS`].
    pub fn matmul(&mut self, x: &[f32], n_tokens: usize, jobs: &mut [MatmulJob<'_, '_>]) {
        let Some(n_cols) = jobs.first().map(|job| job.w.n_cols()) else { return };
        assert!(jobs.len() <= MAX_JOBS);
        assert!(x.len() == n_tokens * n_cols, "{n_tokens} rows of {n_cols}, got {}", x.len());
        let mut partners = [Partner::F32; MAX_JOBS];
        for (job, partner) in jobs.iter().zip(&mut partners) {
            assert!(job.w.n_cols() == n_cols && job.out.len() == n_tokens * job.w.n_rows());
            *partner = job.w.partner();
        }
        if n_tokens == 0 {
            return;
        }
        let (team, table) = (&self.team, self.kernels.table());
        self.scratch.quantize(team, table, &partners, x, n_cols);
        let inputs = self.scratch.inputs(x);

        let n_bytes: usize = jobs.iter().map(|job| job.w.n_bytes()).sum();
        let mut jobs = jobs.iter_mut();
        let products: [Option<Product<'_>>; MAX_JOBS] = std::array::from_fn(|_| {
            let job = jobs.next()?;
            Some(Product {
                tasks: Tasks::new(&job.w, n_bytes, team.n_threads()),
                w: job.w,
                out: SharedSlice::new(job.out),
            })
        });
        let products = || products.iter().flatten();
        team.run(products().map(|product| product.tasks.n).sum(), |mut task| {
            for product in products() {
                if task < product.tasks.n {
                    let panels = product.tasks.panels(task);
                    return product.run(table, panels, inputs, n_tokens, Order::default());
                }
                task -= product.tasks.n;
            }
        });
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
        if ids.is_empty() {
            return;
        }
        let first = expert(0);
        let (n_cols, n_rows) = (first.n_cols(), first.n_rows());
        let n_x = x.len() / n_cols;
        assert!(x.len() == n_x * n_cols && n_x > 0 && ids.len().is_multiple_of(n_x));
        assert!(out.len() == ids.len() * n_rows && ids.iter().all(|&id| (id as usize) < n_experts));
        let (team, table) = (&self.team, self.kernels.table());
        self.scratch.quantize(team, table, &[first.partner()], x, n_cols);
        self.scratch.order(ids, n_experts, ids.len() / n_x);
        let scratch = &self.scratch;
        let inputs = scratch.inputs(x);

        let out = SharedSlice::new(out);
        let used = scratch.starts.windows(2).filter(|range| range[0] < range[1]).count();
        let tasks = Tasks::new(&first, first.n_bytes() * used, team.n_threads());
        team.run(n_experts * tasks.n, |task| {
            let e = task / tasks.n;
            let tokens = scratch.starts[e] as usize..scratch.starts[e + 1] as usize;
            if !tokens.is_empty() {
                let w = expert(e);
                assert!(w.n_cols() == n_cols && w.n_rows() == n_rows && w.ty() == first.ty());
                let inputs = Inputs { order: Order::new(&scratch.rows[tokens.clone()]), ..inputs };
                let product = Product { tasks, w, out: out.again() };
                let pairs = Order::new(&scratch.pairs[tokens.clone()]);
                product.run(table, tasks.panels(task % tasks.n), inputs, tokens.len(), pairs);
            }
        });
    }
}

impl MatmulScratch {
    /// Bytes held.
    pub(crate) fn bytes(&self) -> usize {
        let activations =
            [&self.q8, &self.q8k].map(|a| a.q.capacity() + 4 * a.d.capacity() + 2 * a.sums.capacity());
        let lists = [&self.pairs, &self.rows, &self.starts].map(|list| 4 * list.capacity());
        activations.iter().chain(&lists).sum()
    }

    fn inputs<'a>(&'a self, x: &'a [f32]) -> Inputs<'a> {
        Inputs { x, q8: self.q8.codes(), q8k: self.q8k.codes(), order: Order::default() }
    }

    /// Sorts pairs by expert.
    fn order(&mut self, ids: &[u32], n_experts: usize, per_row: usize) {
        self.starts.clear();
        self.starts.resize(n_experts + 1, 0);
        for &id in ids {
            self.starts[id as usize + 1] += 1;
        }
        for e in 0..n_experts {
            self.starts[e + 1] += self.starts[e];
        }
        self.pairs.resize(ids.len(), 0);
        self.rows.resize(ids.len(), 0);
        for (p, &id) in ids.iter().enumerate() {
            let at = &mut self.starts[id as usize];
            self.pairs[*at as usize] = p as u32;
            self.rows[*at as usize] = (p / per_row) as u32;
            *at += 1;
        }
        // Every start has moved to the end of its expert's pairs.
        self.starts.rotate_right(1);
        self.starts[0] = 0;
    }
}

/// How the panels of a matrix are cut into tasks.
#[derive(Clone, Copy)]
struct Tasks {
    n: usize,
    panels_each: usize,
    n_panels: usize,
}

impl Tasks {
    /// `n_bytes` is what all matrices of the operation have together.
    fn new(w: &Matrix<'_>, n_bytes: usize, n_threads: usize) -> Tasks {
        let task_bytes = (n_bytes / (n_threads * TASKS_PER_THREAD)).max(TASK_BYTES);
        let n_panels = w.n_rows().div_ceil(PANEL);
        let panels_each = (task_bytes / (w.n_bytes() / n_panels).max(1)).max(1);
        Tasks { n: n_panels.div_ceil(panels_each), panels_each, n_panels }
    }

    fn panels(&self, task: usize) -> Range<usize> {
        let start = task * self.panels_each;
        start..(start + self.panels_each).min(self.n_panels)
    }
}

/// One matrix and where its products go.
struct Product<'a> {
    tasks: Tasks,
    w: Matrix<'a>,
    out: SharedSlice<'a, f32>,
}

impl Product<'_> {
    /// Computes some panels for `n_tokens` tokens; the result of token t goes to row `to.row(t)`.
    fn run(&self, table: &Table, panels: Range<usize>, inputs: Inputs<'_>, n_tokens: usize, to: Order<'_>) {
        let n_rows = self.w.n_rows();
        WORKSPACE.with_borrow_mut(|Workspace { tile, results, padded }| {
            results.resize(n_tokens.max(results.len()), [0.0; PANEL]);
            let results = &mut results[..n_tokens];
            let end = n_rows.min(panels.end * PANEL);
            // Each panel asks for the next one; nobody has asked for the first.
            let first = self.w.row_bytes(panels.start * PANEL..end.min((panels.start + 1) * PANEL));
            // SAFETY: the table belongs to this CPU.
            unsafe { (table.prefetch)(first) };
            for panel in panels {
                let start = panel * PANEL;
                let n = PANEL.min(n_rows - start);
                let next = self.w.row_bytes(start + n..(start + n + PANEL).min(end));
                // The last panel reaches back over rows of the one before.
                let first = start.min(n_rows.saturating_sub(PANEL));
                let mut w = self.w.row_bytes(first..(first + PANEL).min(n_rows));
                if n_rows < PANEL {
                    padded.clear();
                    padded.extend_from_slice(w);
                    padded.resize(w.len() / n_rows * PANEL, 0);
                    w = padded;
                }
                self.multiply(table, Panel { w, n_cols: self.w.n_cols(), next }, inputs, tile, results);
                for (t, result) in results.iter().enumerate() {
                    // SAFETY: no two tasks have a row of a token in common.
                    let out = unsafe { self.out.range(to.row(t) * n_rows + start, n) };
                    match <&mut [f32; PANEL]>::try_from(&mut *out) {
                        Ok(out) => *out = *result,
                        Err(_) => out.copy_from_slice(&result[start - first..][..n]),
                    }
                }
            }
        });
    }

    fn multiply(
        &self,
        table: &Table,
        panel: Panel<'_>,
        inputs: Inputs<'_>,
        tile: &mut Tile,
        results: &mut [[f32; PANEL]],
    ) {
        let codes = if self.w.partner() == Partner::Q8 { inputs.q8 } else { inputs.q8k };
        let order = inputs.order;
        // SAFETY: the table belongs to this CPU.
        unsafe {
            match self.w.kernel(table) {
                PanelKernel::Codes(kernel) => kernel(panel, Codes { order, ..codes }, tile, results),
                PanelKernel::F32(kernel) => kernel(panel, Floats { x: inputs.x, order }, results),
            }
        }
    }
}
