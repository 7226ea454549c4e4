//! Keys and values, and attention over them.
//!
//! Attention goes chunk by chunk of [`CHUNK`] positions: scores, softmax over the chunk, weighted sum of values, then
//! the chunk's result is merged into what came before. Chunks start at multiples of [`CHUNK`] and are merged in
//! ascending order, so the arithmetic of a token does not depend on what it was evaluated with, nor on which
//! thread took which chunk.

mod cache;
mod chunk;
mod pages;

use std::cell::RefCell;

pub use cache::{CHUNK, KvLayer, KvLayout, KvShape, KvType, KvTypeError};
pub(crate) use cache::{Form, Rows, pack};
pub(crate) use chunk::{Queries, attend_chunk, finish, merge};
use chunk::{reset, scratch_len, state_len};
pub use pages::{KvPool, KvPoolFull};

use crate::table::Table;
use crate::team::{SharedSlice, Team};

/// Constants of one attention layer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AttentionParams {
    /// Query heads; a multiple of the key/value heads.
    pub n_head: usize,
    /// Factor on the dot products.
    pub scale: f32,
    /// Scores become `cap * tanh(score / cap)`.
    pub softcap: Option<f32>,
    /// A position sees itself and the `window - 1` before it.
    pub window: Option<usize>,
}

/// Successive tokens of one sequence within a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// Index of the first of them in the batch.
    pub first: usize,
    /// How many there are.
    pub n_tokens: usize,
    /// Position of the first of them in its sequence.
    pub pos0: usize,
}

impl Span {
    /// A batch of one sequence.
    pub fn whole(pos0: usize, n_tokens: usize) -> Span {
        Span { first: 0, n_tokens, pos0 }
    }

    /// The tokens, as a range of the batch's.
    pub fn tokens(self) -> std::ops::Range<usize> {
        self.first..self.first + self.n_tokens
    }
}

/// Queries of one key/value head that are computed together, if its group is no larger: enough to make widening a
/// block cheap, few enough for a block, scores and results to stay near the core.
const ROWS: usize = 32;
/// With fewer tasks per thread than this, the chunks of one head are shared out too.
const TASKS_PER_THREAD: usize = 4;
/// Values of results of single chunks that are kept at a time.
const PARTIALS: usize = 1 << 20;

/// Memory for the results of single chunks, for what they are merged into, and for the list of tasks.
#[derive(Default)]
pub(crate) struct AttentionScratch {
    tasks: Vec<Task>,
    partials: Vec<f32>,
    totals: Vec<f32>,
}

impl AttentionScratch {
    /// Bytes held.
    pub(crate) fn bytes(&self) -> usize {
        size_of::<f32>() * (self.partials.capacity() + self.totals.capacity())
    }
}

thread_local! {
    /// A widened block, scores and states of the queries that this thread works on.
    static LOCAL: RefCell<Vec<f32>> = const { RefCell::new(Vec::new()) };
}

/// `n` values of `memory`, which grows if it has to; they start at a cache line.
fn aligned(memory: &mut Vec<f32>, n: usize) -> &mut [f32] {
    const LINE: usize = 64;
    if memory.len() < n + LINE / 4 {
        memory.resize(n + LINE / 4, 0.0);
    }
    let at = memory.as_ptr().align_offset(LINE).min(LINE / 4);
    &mut memory[at..at + n]
}

/// Some successive tokens of a span: those whose queries are computed together.
#[derive(Clone, Copy)]
struct Task {
    span: usize,
    /// Index in the batch.
    first: usize,
    n_tokens: usize,
    pos0: usize,
}

/// Cuts the spans into tasks of at most `n` tokens. Those that see the most come first, so that threads end at about
/// the same time.
fn list_tasks(tasks: &mut Vec<Task>, spans: &[Span], n: usize) {
    tasks.clear();
    for (span, &Span { first, n_tokens, pos0 }) in spans.iter().enumerate() {
        tasks.extend((0..n_tokens).step_by(n).map(|at| Task {
            span,
            first: first + at,
            n_tokens: n.min(n_tokens - at),
            pos0: pos0 + at,
        }));
    }
    tasks.sort_unstable_by_key(|task| std::cmp::Reverse((task.pos0 + task.n_tokens, task.first)));
}

impl AttentionScratch {
    /// [`Compute::attention`](crate::Compute::attention).
    pub(crate) fn attend<'a>(
        &mut self,
        (team, table): (&Team, &Table),
        spans: &[Span],
        kv: impl Fn(usize) -> &'a KvLayer + Sync,
        q: &[f32],
        params: &AttentionParams,
        out: &mut [f32],
    ) {
        let (n_head_kv, dim_k, dim_v) = kv(0).dims();
        let n_head = params.n_head;
        assert!(n_head.is_multiple_of(n_head_kv));
        let mut n_tokens = 0;
        for (i, span) in spans.iter().enumerate() {
            assert!(kv(i).dims() == (n_head_kv, dim_k, dim_v) && span.pos0 + span.n_tokens <= kv(i).len());
            assert!(span.first == n_tokens && span.n_tokens > 0);
            n_tokens += span.n_tokens;
        }
        assert!(q.len() == n_tokens * n_head * dim_k && out.len() == n_tokens * n_head * dim_v);
        let group = n_head / n_head_kv;
        let tokens = (ROWS / group).max(1);
        let AttentionScratch { tasks, partials, totals } = self;
        list_tasks(tasks, spans, tokens);
        let n_tasks = tasks.len() * n_head_kv;
        let queries = |task: usize| {
            let Task { span, first, n_tokens, pos0 } = tasks[task / n_head_kv];
            let q = &q[first * n_head * dim_k..];
            Queries { kv: kv(span), head: task % n_head_kv, q, first, n_tokens, pos0, params }
        };
        let state = state_len(dim_v);
        let out = SharedSlice::new(out);
        let finish = |queries: &Queries<'_>, totals: &[f32]| {
            for (t, totals) in totals.chunks_exact(group * state).enumerate() {
                let at = (queries.first + t) * n_head + queries.head * group;
                // SAFETY: no two tasks have a head of a token in common; the table belongs to this CPU.
                unsafe { (table.attend_finish)(totals, out.range(at * dim_v, group * dim_v), dim_v) }
            }
        };

        if n_tasks >= team.n_threads() * TASKS_PER_THREAD || team.n_threads() == 1 {
            team.run(n_tasks, |task| {
                let queries = queries(task);
                let n_states = queries.n_rows() * state;
                LOCAL.with_borrow_mut(|local| {
                    let local = aligned(local, scratch_len(&queries) + 2 * n_states);
                    let (totals, local) = local.split_at_mut(n_states);
                    let (states, scratch) = local.split_at_mut(n_states);
                    totals.chunks_exact_mut(state).for_each(reset);
                    for c in queries.chunks() {
                        // SAFETY: the table belongs to this CPU.
                        unsafe {
                            (table.attend_chunk)(&queries, c, scratch, states);
                            (table.attend_merge)(totals, states, state);
                        }
                    }
                    finish(&queries, totals);
                });
            });
            return;
        }

        let n_states = tokens * group * state;
        let chunks = |task: usize| queries(task * n_head_kv).chunks();
        let first = (0..tasks.len()).map(|task| chunks(task).start).min().unwrap_or(0);
        let end = (0..tasks.len()).map(|task| chunks(task).end).max().unwrap_or(0);
        let per_round = (PARTIALS / (n_tasks * n_states)).clamp(1, end - first);
        let partials = SharedSlice::new(aligned(partials, n_tasks * per_round * n_states));
        let totals = aligned(totals, n_tasks * n_states);
        totals.chunks_exact_mut(state).for_each(reset);
        let totals = SharedSlice::new(totals);
        for start in (first..end).step_by(per_round) {
            let round = start..end.min(start + per_round);
            let seen = |queries: &Queries<'_>| {
                let seen = queries.chunks();
                seen.start.max(round.start)..seen.end.min(round.end)
            };
            // SAFETY: every task has chunks, every chunk a part of its own; they are read once all are written.
            let states = |task: usize, c: usize, queries: &Queries<'_>| unsafe {
                let at = task * round.len() + c - round.start;
                partials.range(at * n_states, queries.n_rows() * state)
            };
            team.run(n_tasks * round.len(), |i| {
                let (task, c) = (i / round.len(), round.start + i % round.len());
                let queries = queries(task);
                if seen(&queries).contains(&c) {
                    LOCAL.with_borrow_mut(|local| {
                        let scratch = aligned(local, scratch_len(&queries));
                        // SAFETY: the table belongs to this CPU.
                        unsafe { (table.attend_chunk)(&queries, c, scratch, states(task, c, &queries)) }
                    });
                }
            });
            team.run(n_tasks, |task| {
                let queries = queries(task);
                // SAFETY: every task has totals of its own; the table belongs to this CPU.
                let totals = unsafe { totals.range(task * n_states, queries.n_rows() * state) };
                for c in seen(&queries) {
                    // SAFETY: the totals belong to this task, the states are written by now; the table belongs to this CPU.
                    unsafe { (table.attend_merge)(totals, states(task, c, &queries), state) }
                }
                if round.end == end {
                    finish(&queries, totals);
                }
            });
        }
    }
}
