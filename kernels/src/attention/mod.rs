//! Keys and values, and attention over them.
//!
//! Attention goes chunk by chunk of [`CHUNK`] positions: scores, softmax over the chunk, weighted sum of values, then
//! the chunk's result is merged into what came before. Chunks start at multiples of [`CHUNK`] and are merged in
//! ascending order, so the arithmetic of a token does not depend on what it was evaluated with, nor on which
//! thread took which chunk.

mod cache;
mod chunk;

use std::cell::RefCell;

pub use cache::{CHUNK, KvLayer, KvType, KvTypeError};
pub(crate) use cache::{Form, Rows, pack};
pub(crate) use chunk::{Queries, attend_chunk, finish, merge};
use chunk::{reset, scratch_len, state_len};

use crate::compute::Compute;
use crate::team::SharedSlice;

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

/// Queries of one key/value head that are computed together, if its group is no larger: enough to make widening a
/// block cheap, few enough for a block, scores and results to stay near the core.
const ROWS: usize = 32;
/// With fewer tasks per thread than this, the chunks of one head are shared out too.
const TASKS_PER_THREAD: usize = 4;
/// Values of results of single chunks that are kept at a time.
const PARTIALS: usize = 1 << 20;

/// Memory for the results of single chunks, and for what they are merged into.
#[derive(Default)]
pub(crate) struct AttentionScratch {
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

impl Compute {
    /// Writes keys and values (`[token][head][element]`) of `n_tokens` positions from `pos0` into the cache.
    pub fn kv_store(&mut self, kv: &mut KvLayer, pos0: usize, k: &[f32], v: &[f32], n_tokens: usize) {
        let (n_head, dim_k, dim_v) = kv.dims();
        assert!(k.len() == n_tokens * n_head * dim_k && v.len() == n_tokens * n_head * dim_v);
        kv.write((&self.team, self.kernels.table()), pos0, k, v, n_tokens);
    }

    /// Causal attention of `n_tokens` queries (`[token][head][element]`) at positions from `pos0`, whose keys
    /// and values are in the cache already; `out` is `[token][head][element of a value]`.
    pub fn attention(
        &mut self,
        kv: &KvLayer,
        q: &[f32],
        pos0: usize,
        n_tokens: usize,
        params: &AttentionParams,
        out: &mut [f32],
    ) {
        let (n_head_kv, dim_k, dim_v) = kv.dims();
        let n_head = params.n_head;
        assert!(n_head.is_multiple_of(n_head_kv) && pos0 + n_tokens <= kv.len());
        assert!(q.len() == n_tokens * n_head * dim_k && out.len() == n_tokens * n_head * dim_v);
        let group = n_head / n_head_kv;
        let tokens = (ROWS / group).max(1);
        let n_tasks = n_tokens.div_ceil(tokens) * n_head_kv;
        // The last tokens see the most: they come first, so that threads end at about the same time.
        let queries = |task: usize| {
            let first = (n_tasks - 1 - task) / n_head_kv * tokens;
            Queries {
                kv,
                head: task % n_head_kv,
                q: &q[first * n_head * dim_k..],
                n_tokens: tokens.min(n_tokens - first),
                pos0: pos0 + first,
                params,
            }
        };
        let state = state_len(dim_v);
        let out = SharedSlice::new(out);
        let table = self.kernels.table();
        let finish = |queries: &Queries<'_>, totals: &[f32]| {
            for (t, totals) in totals.chunks_exact(group * state).enumerate() {
                let at = (queries.pos0 - pos0 + t) * n_head + queries.head * group;
                // SAFETY: no two tasks have a head of a token in common; the table belongs to this CPU.
                unsafe { (table.attend_finish)(totals, out.range(at * dim_v, group * dim_v), dim_v) }
            }
        };

        if n_tasks >= self.team.n_threads() * TASKS_PER_THREAD || self.team.n_threads() == 1 {
            self.team.run(n_tasks, |task| {
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
        let (first, end) = (queries(n_tasks - 1).chunks().start, queries(0).chunks().end);
        let per_round = (PARTIALS / (n_tasks * n_states)).clamp(1, end - first);
        let AttentionScratch { partials, totals } = &mut self.attention;
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
            self.team.run(n_tasks * round.len(), |i| {
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
            self.team.run(n_tasks, |task| {
                let queries = queries(task);
                // SAFETY: every task has totals of its own; the table belongs to this CPU.
                let totals = unsafe { totals.range(task * n_states, queries.n_rows() * state) };
                for c in seen(&queries) {
                    // SAFETY: as above.
                    unsafe { (table.attend_merge)(totals, states(task, c, &queries), state) }
                }
                if round.end == end {
                    finish(&queries, totals);
                }
            });
        }
    }
}
