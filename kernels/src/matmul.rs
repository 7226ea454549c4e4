//! Matrix products: activations are quantized once per form, panels of 16 rows of weights are shared out to the team.

use std::cell::RefCell;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::activations::{ActivationType, FloatRows, QuantizedRowMut, QuantizedRows, RowMap};
use crate::layout::{PANEL, Panel};
use crate::matrix::{Matrix, PanelKernel};
use crate::table::Table;
use crate::team::{SharedSlice, Team};
use crate::tile::Tile;

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
struct QuantizedActivations {
    /// QuantizedRows in a row: the activations, and what fills a tile.
    n_cols: usize,
    q: Vec<i8>,
    d: Vec<f32>,
    sums: Vec<i16>,
}

/// Memory for quantized activations and for the order of experts' tokens.
#[derive(Default)]
pub(crate) struct MatmulScratch {
    q8: QuantizedActivations,
    q8k: QuantizedActivations,
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

/// Tasks per thread, so that uneven cores end at about the same time.
const TASKS_PER_THREAD: usize = 32;

impl QuantizedActivations {
    fn quantize(&mut self, team: &Team, table: &Table, ty: ActivationType, x: &[f32], n_cols: usize) {
        let (block, group) = (ty.block(), ty.group());
        let n_tokens = x.len() / n_cols;
        self.n_cols = n_cols.next_multiple_of(256) + 256;
        let (stride, n_values) = (self.n_cols, self.n_cols * n_tokens);
        self.q.resize(n_values, 0);
        self.d.resize(n_values / block, 0.0);
        self.sums.resize(n_values / group, 0);
        let (q, d, sums) =
            (SharedSlice::new(&mut self.q), SharedSlice::new(&mut self.d), SharedSlice::new(&mut self.sums));
        let quantize = if ty == ActivationType::Q8 { table.quantize_q8 } else { table.quantize_q8k };
        team.run(n_tokens, |t| {
            let at = t * stride;
            // SAFETY: every token has parts of its own; the table belongs to this CPU.
            unsafe {
                let out = QuantizedRowMut {
                    q: q.range(at, n_cols),
                    d: d.range(at / block, n_cols / block),
                    sums: sums.range(at / group, n_cols / group),
                };
                quantize(&x[t * n_cols..(t + 1) * n_cols], out);
            }
        });
    }

    fn codes(&self) -> QuantizedRows<'_> {
        QuantizedRows {
            n_cols: self.n_cols,
            q: &self.q,
            d: &self.d,
            sums: &self.sums,
            map: RowMap::default(),
        }
    }
}

/// Activations in every form that a product may want, and which rows of them it takes.
#[derive(Clone, Copy)]
struct Inputs<'a> {
    x: &'a [f32],
    q8: QuantizedRows<'a>,
    q8k: QuantizedRows<'a>,
    map: RowMap<'a>,
}

impl MatmulScratch {
    fn quantize(&mut self, team: &Team, table: &Table, types: &[ActivationType], x: &[f32], n_cols: usize) {
        for (ty, activations) in [(ActivationType::Q8, &mut self.q8), (ActivationType::Q8K, &mut self.q8k)] {
            if types.contains(&ty) {
                activations.quantize(team, table, ty, x, n_cols);
            }
        }
    }
}

impl MatmulScratch {
    /// [`Compute::matmul`](crate::Compute::matmul).
    pub(crate) fn matmul(
        &mut self,
        (team, table): (&Team, &Table),
        x: &[f32],
        n_tokens: usize,
        jobs: &mut [MatmulJob<'_, '_>],
    ) {
        let Some(n_cols) = jobs.first().map(|job| job.w.n_cols()) else { return };
        assert!(jobs.len() <= MAX_JOBS);
        assert!(x.len() == n_tokens * n_cols, "{n_tokens} rows of {n_cols}, got {}", x.len());
        let mut types = [ActivationType::F32; MAX_JOBS];
        for (job, ty) in jobs.iter().zip(&mut types) {
            assert!(job.w.n_cols() == n_cols && job.out.len() == n_tokens * job.w.n_rows());
            *ty = job.w.activations();
        }
        if n_tokens == 0 {
            return;
        }
        self.quantize(team, table, &types, x, n_cols);
        let inputs = self.inputs(x);

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
        let locate = |mut task: usize| {
            products()
                .find_map(|product| match task.checked_sub(product.tasks.n) {
                    Some(rest) => {
                        task = rest;
                        None
                    }
                    None => Some((product, product.tasks.panels(task))),
                })
                .expect("a task of one of the products")
        };
        share_out(
            team,
            products().map(|product| product.tasks.n).sum(),
            |task| {
                let (product, panels) = locate(task);
                product.panel(panels.start)
            },
            |task, then| {
                let (product, panels) = locate(task);
                product.run(table, panels, inputs, n_tokens, RowMap::default(), then);
            },
        );
    }

    /// [`Compute::matmul_experts`](crate::Compute::matmul_experts).
    pub(crate) fn matmul_experts<'w>(
        &mut self,
        (team, table): (&Team, &Table),
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
        self.quantize(team, table, &[first.activations()], x, n_cols);
        self.order(ids, n_experts, ids.len() / n_x);
        let scratch = &*self;
        let inputs = scratch.inputs(x);

        let out = SharedSlice::new(out);
        let used = scratch.starts.windows(2).filter(|range| range[0] < range[1]).count();
        let tasks = Tasks::new(&first, first.n_bytes() * used, team.n_threads());
        let tokens = |e: usize| scratch.starts[e] as usize..scratch.starts[e + 1] as usize;
        let product = |e: usize| {
            let w = expert(e);
            assert!(w.n_cols() == n_cols && w.n_rows() == n_rows && w.ty() == first.ty());
            Product { tasks, w, out: out.again() }
        };
        share_out(
            team,
            n_experts * tasks.n,
            |task| match task / tasks.n {
                e if tokens(e).is_empty() => &[],
                e => product(e).panel(tasks.panels(task % tasks.n).start),
            },
            |task, then| {
                let e = task / tasks.n;
                let tokens = tokens(e);
                if tokens.is_empty() {
                    return;
                }
                let inputs = Inputs { map: RowMap::new(&scratch.rows[tokens.clone()]), ..inputs };
                let pairs = RowMap::new(&scratch.pairs[tokens.clone()]);
                product(e).run(table, tasks.panels(task % tasks.n), inputs, tokens.len(), pairs, then);
            },
        );
    }
}

/// Shares tasks out to the team. A thread claims a task before it has finished the one before, so that
/// `run(task, then)` knows which bytes will be wanted afterwards: `first(next task)`.
fn share_out<'a>(
    team: &Team,
    n_tasks: usize,
    first: impl Fn(usize) -> &'a [u8] + Sync,
    run: impl Fn(usize, &'a [u8]) + Sync,
) {
    let next = AtomicUsize::new(0);
    let claim = || Some(next.fetch_add(1, Ordering::Relaxed)).filter(|&task| task < n_tasks);
    team.run(team.n_threads(), |_| {
        let mut claimed = claim();
        while let Some(task) = claimed {
            claimed = claim();
            run(task, claimed.map_or(&[], &first));
        }
    });
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
        Inputs { x, q8: self.q8.codes(), q8k: self.q8k.codes(), map: RowMap::default() }
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
        let task_bytes = n_bytes / (n_threads * TASKS_PER_THREAD);
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

impl<'a> Product<'a> {
    /// The bytes of panel `i`, without the rows that it shares with the one before.
    fn panel(&self, i: usize) -> &'a [u8] {
        self.w.row_bytes(i * PANEL..self.w.n_rows().min((i + 1) * PANEL))
    }

    /// Computes some panels for `n_tokens` tokens; the result of token t goes to row `to.row(t)`. Meanwhile `then` is
    /// fetched.
    fn run(
        &self,
        table: &Table,
        panels: Range<usize>,
        inputs: Inputs<'_>,
        n_tokens: usize,
        to: RowMap<'_>,
        then: &[u8],
    ) {
        let n_rows = self.w.n_rows();
        WORKSPACE.with_borrow_mut(|Workspace { tile, results, padded }| {
            results.resize(n_tokens.max(results.len()), [0.0; PANEL]);
            let results = &mut results[..n_tokens];
            let last = panels.end - 1;
            for panel in panels {
                let start = panel * PANEL;
                let n = PANEL.min(n_rows - start);
                let next = if panel == last { then } else { self.panel(panel + 1) };
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
        let codes = if self.w.activations() == ActivationType::Q8 { inputs.q8 } else { inputs.q8k };
        let map = inputs.map;
        // SAFETY: the table belongs to this CPU.
        unsafe {
            match self.w.kernel(table) {
                PanelKernel::Quantized(kernel) => {
                    kernel(panel, QuantizedRows { map, ..codes }, tile, results)
                }
                PanelKernel::Float(kernel) => kernel(panel, FloatRows { x: inputs.x, map }, results),
            }
        }
    }
}
