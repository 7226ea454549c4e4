//! Attention of some queries over one chunk of the cache, and the merging of chunks.
//!
//! A block of keys or values is widened to f32 once for all queries that need it; scores and results are then
//! two small matrix products, each element of which has one accumulator: a score takes the elements of its key
//! in ascending order, a result the positions of its chunk.

use std::ops::Range;

use super::AttentionParams;
use super::cache::{BLOCK, BLOCKS, CHUNK, KvLayer, unpack};
use crate::math::exp;
use crate::rows;
use crate::simd::Simd;

/// Vectors of scores per query.
const SCORES: usize = CHUNK / 16;
/// Queries that share a loaded key or value.
const TILE: usize = 4;

/// The queries of a few successive tokens that belong to one key/value head.
pub(crate) struct Queries<'a> {
    pub(super) kv: &'a KvLayer,
    /// The key/value head.
    pub(super) head: usize,
    /// `[token][head][element]`, from the first of the tokens on.
    pub(super) q: &'a [f32],
    /// Index of the first token in the batch.
    pub(super) first: usize,
    pub(super) n_tokens: usize,
    /// Position of the first token.
    pub(super) pos0: usize,
    pub(super) params: &'a AttentionParams,
}

impl Queries<'_> {
    /// Query heads per token.
    pub(super) fn group(&self) -> usize {
        self.params.n_head / self.kv.dims().0
    }

    /// Queries: row r is head `r % group` of token `r / group`.
    pub(super) fn n_rows(&self) -> usize {
        self.n_tokens * self.group()
    }

    /// The elements of a row.
    #[inline(always)]
    fn row(&self, r: usize) -> &[f32] {
        let (_, dim, _) = self.kv.dims();
        let group = self.group();
        let at = r / group * self.params.n_head + self.head * group + r % group;
        &self.q[at * dim..][..dim]
    }

    /// The positions that a row sees, as a range of the positions from `start` to `start + n`. Both ends grow with the
    /// row.
    #[inline(always)]
    fn visible(&self, r: usize, start: usize, n: usize) -> Range<usize> {
        let end = self.pos0 + r / self.group() + 1;
        let first = self.params.window.map_or(0, |window| end.saturating_sub(window));
        first.saturating_sub(start).min(n)..end.saturating_sub(start).min(n)
    }

    /// The chunks that any row sees.
    pub(super) fn chunks(&self) -> Range<usize> {
        let end = self.pos0 + self.n_tokens;
        let seen = self.visible(0, 0, end);
        seen.start / CHUNK..end.div_ceil(CHUNK)
    }
}

/// Length of what [`attend_chunk`] and [`merge`] keep for a query whose values have `dim` elements: 16 values of which
/// the first two are the largest score and the sum of the weights, then the sum of the weighted values, padded.
pub(super) fn state_len(dim: usize) -> usize {
    16 + dim.next_multiple_of(16)
}

/// A state that has seen nothing. The sum of one that has seen a position is at least 1 or NaN.
pub(super) fn reset(state: &mut [f32]) {
    state.fill(0.0);
    state[0] = f32::NEG_INFINITY;
}

/// Values of scratch memory that [`attend_chunk`] needs.
pub(super) fn scratch_len(queries: &Queries<'_>) -> usize {
    panel_len(queries.kv) + queries.n_rows() * CHUNK
}

fn panel_len(kv: &KvLayer) -> usize {
    kv.layout.k.panel().max(kv.layout.v.panel())
}

/// `states[row]` = attention of every row over chunk `c`.
#[inline(always)]
pub(crate) fn attend_chunk<S: Simd>(
    s: S,
    queries: &Queries<'_>,
    c: usize,
    scratch: &mut [f32],
    states: &mut [f32],
) {
    let kv = queries.kv;
    let (panel, scores) = scratch.split_at_mut(panel_len(kv));
    let (panel, _) = panel.as_chunks_mut::<16>();
    let (scores, _) = scores.as_chunks_mut::<16>();
    let (states, _) = states.as_chunks_mut::<16>();
    let state_len = 1 + kv.layout.v.width();
    score(s, queries, c, panel, scores);
    for (r, (scores, state)) in
        scores.chunks_exact_mut(SCORES).zip(states.chunks_exact_mut(state_len)).enumerate()
    {
        reset(state.as_flattened_mut());
        let visible = queries.visible(r, c * CHUNK, CHUNK);
        if !visible.is_empty() {
            [state[0][0], state[0][1]] = weigh(s, queries.params, visible, scores.as_flattened_mut());
        }
    }
    mix(s, queries, c, panel, scores, states);
}

/// `scores[row]` = dot products of the row with the keys; those of unseen blocks are 0.
#[inline(always)]
fn score<S: Simd>(s: S, queries: &Queries<'_>, c: usize, panel: &mut [[f32; 16]], scores: &mut [[f32; 16]]) {
    let (form, n_rows) = (queries.kv.layout.k, queries.n_rows());
    scores.fill([0.0; 16]);
    for b in 0..BLOCKS {
        let start = c * CHUNK + b * BLOCK;
        let seen = |first: usize, n: usize| {
            queries.visible(first, start, BLOCK).start < queries.visible(first + n - 1, start, BLOCK).end
        };
        if !seen(0, n_rows) {
            continue;
        }
        unpack(s, form, queries.kv.block(form, c, queries.head, b), panel);
        let panel = &panel[..form.panel() / 16];
        for first in (0..n_rows).step_by(TILE) {
            let n = TILE.min(n_rows - first);
            if seen(first, n) {
                let out = &mut scores[first * SCORES + b * (BLOCK / 16)..];
                multiply(s, n, |r| queries.row(first + r), panel, form.width(), out, SCORES);
            }
        }
    }
}

/// Turns the dot products of one row into weights, 0 where it sees nothing; returns the largest score and the sum of
/// the weights, position p in partial sum p mod 16.
#[inline(always)]
fn weigh<S: Simd>(s: S, params: &AttentionParams, visible: Range<usize>, scores: &mut [f32]) -> [f32; 2] {
    let start = visible.start / 16 * 16;
    let end = visible.end.next_multiple_of(16);
    let scores = &mut scores[start..end];
    rows::scale(s, scores, params.scale);
    if let Some(cap) = params.softcap {
        rows::softcap(s, scores, cap);
    }
    scores[..visible.start - start].fill(f32::NEG_INFINITY);
    scores[visible.end - start..].fill(f32::NEG_INFINITY);
    let (max, sum) = rows::exp_sum(s, scores);
    [max, sum]
}

/// Adds the weighted values to the states. Positions that a row does not see are left out, not weighted with 0: what is
/// stored there must not matter.
#[inline(always)]
fn mix<S: Simd>(
    s: S,
    queries: &Queries<'_>,
    c: usize,
    panel: &mut [[f32; 16]],
    weights: &[[f32; 16]],
    states: &mut [[f32; 16]],
) {
    let (form, n_rows) = (queries.kv.layout.v, queries.n_rows());
    let width = form.width();
    let weights = weights.as_flattened();
    for b in 0..BLOCKS {
        let visible = |r: usize| queries.visible(r, c * CHUNK + b * BLOCK, BLOCK);
        if visible(0).start >= visible(n_rows - 1).end {
            continue;
        }
        unpack(s, form, queries.kv.block(form, c, queries.head, b), panel);
        let mut first = 0;
        while first < n_rows {
            let seen = visible(first);
            let n = (1..TILE).take_while(|n| first + n < n_rows && visible(first + n) == seen).count() + 1;
            if !seen.is_empty() {
                let row = |r: usize| &weights[(first + r) * CHUNK + b * BLOCK..][seen.clone()];
                let panel = &panel[seen.start * width..seen.end * width];
                let out = &mut states[first * (1 + width) + 1..];
                multiply(s, n, row, panel, width, out, 1 + width);
            }
            first += n;
        }
    }
}

/// `out[r][j] += Σ a(r)[i] * b[i][j]` for `n` rows, i in ascending order; rows of `b` have `width` vectors, rows of
/// `out` are `stride` vectors apart.
#[inline(always)]
fn multiply<'a, S: Simd>(
    s: S,
    n: usize,
    a: impl Fn(usize) -> &'a [f32],
    b: &[[f32; 16]],
    width: usize,
    out: &mut [[f32; 16]],
    stride: usize,
) {
    match n {
        1 => multiply_rows::<S, 1>(s, [a(0)], b, width, out, stride),
        2 => multiply_rows::<S, 2>(s, [a(0), a(1)], b, width, out, stride),
        3 => multiply_rows::<S, 3>(s, [a(0), a(1), a(2)], b, width, out, stride),
        _ => multiply_rows::<S, 4>(s, [a(0), a(1), a(2), a(3)], b, width, out, stride),
    }
}

#[inline(always)]
fn multiply_rows<S: Simd, const R: usize>(
    s: S,
    a: [&[f32]; R],
    b: &[[f32; 16]],
    width: usize,
    out: &mut [[f32; 16]],
    stride: usize,
) {
    let mut column = 0;
    if 2 * R <= S::TOKENS {
        while column + 2 <= width {
            tile::<S, R, 2>(s, a, b, width, column, out, stride);
            column += 2;
        }
    }
    while column < width {
        tile::<S, R, 1>(s, a, b, width, column, out, stride);
        column += 1;
    }
}

/// `R` rows and `C` vectors of columns, all in registers.
#[inline(always)]
fn tile<S: Simd, const R: usize, const C: usize>(
    s: S,
    a: [&[f32]; R],
    b: &[[f32; 16]],
    width: usize,
    column: usize,
    out: &mut [[f32; 16]],
    stride: usize,
) {
    let n = a[0].len();
    let a = a.map(
        #[inline(always)]
        |a| &a[..n],
    );
    let mut sums = [[s.splat(0.0); C]; R];
    for (r, sums) in sums.iter_mut().enumerate() {
        for (c, sum) in sums.iter_mut().enumerate() {
            *sum = s.load(&out[r * stride + column + c]);
        }
    }
    for (i, b) in b.chunks_exact(width).enumerate().take(n) {
        let b = &b[column..column + C];
        for c in 0..C {
            let b = s.load(&b[c]);
            for r in 0..R {
                sums[r][c] = s.mul_add(s.splat(a[r][i]), b, sums[r][c]);
            }
        }
    }
    for (r, sums) in sums.into_iter().enumerate() {
        for (c, sum) in sums.into_iter().enumerate() {
            s.store(sum, &mut out[r * stride + column + c]);
        }
    }
}

/// Merges the next chunk's states into what the rows have so far.
#[inline(always)]
pub(crate) fn merge<S: Simd>(s: S, totals: &mut [f32], states: &[f32], state_len: usize) {
    for (total, state) in totals.chunks_exact_mut(state_len).zip(states.chunks_exact(state_len)) {
        if state[1] == 0.0 {
            continue;
        }
        let (max, sum) = (total[0], total[1]);
        let new_max = if state[0] > max { state[0] } else { max };
        let mut factors = [0.0; 16];
        factors[..2].copy_from_slice(&[max - new_max, state[0] - new_max]);
        s.store(exp(s, s.load(&factors)), &mut factors);
        let [keep, take, ..] = factors;
        let (keep_lanes, take_lanes) = (s.splat(keep), s.splat(take));
        for (total, x) in total.as_chunks_mut::<16>().0.iter_mut().zip(state.as_chunks::<16>().0).skip(1) {
            let sum = s.mul_add(s.load(x), take_lanes, s.mul(s.load(total), keep_lanes));
            s.store(sum, total);
        }
        (total[0], total[1]) = (new_max, state[1].mul_add(take, sum * keep));
    }
}

/// The results of rows that have seen all their positions, `[row][element]`.
#[inline(always)]
pub(crate) fn finish<S: Simd>(s: S, totals: &[f32], out: &mut [f32], dim: usize) {
    for (total, out) in totals.chunks_exact(state_len(dim)).zip(out.chunks_exact_mut(dim)) {
        out.copy_from_slice(&total[16..16 + dim]);
        rows::scale(s, out, 1.0 / total[1]);
    }
}
