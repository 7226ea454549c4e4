//! Quantized weights times quantized activations, 16 rows at a time.
//!
//! 256 columns of 16 rows are unpacked once into a tile that stays in the L1 cache and meets every token. Rows are
//! in lanes: a quad of four weights of each row meets four codes of a token, the same in all lanes, so no sum ever
//! crosses lanes. Each output has one f32 accumulator that takes the blocks in ascending order:
//! `acc = fma(d * d_a, sum, acc)`, then for formats with a minimum `acc = fma(m * d_a, sum of codes, acc)`.

use std::marker::PhantomData;

use crate::activations::QuantizedRows;
use crate::layout::{COLUMNS, PANEL, Panel, PanelRows, Quad};
use crate::simd::{Simd, quad};
use crate::tile::{
    BlockFormat, BlockScales, CodeRange, Planes, Scales, Sink, SuperblockFormat, Tile, TileFormat,
    chain_steps, offset, planes,
};

/// Bytes of a cache line.
const LINE: usize = 64;

/// Passes quads on, and fetches the 16 blocks at `next` bit by bit meanwhile: all at once, they would keep the loads of
/// these quads waiting.
struct Fetching<'s, B, K> {
    next: *const u8,
    sink: &'s mut K,
    n_put: usize,
    format: PhantomData<B>,
}

impl<'s, B, K> Fetching<'s, B, K> {
    #[inline(always)]
    fn new(next: *const u8, sink: &'s mut K) -> Fetching<'s, B, K> {
        Fetching { next, sink, n_put: 0, format: PhantomData }
    }
}

impl<S: Simd, B: TileFormat, K: Sink<S>> Sink<S> for Fetching<'_, B, K> {
    #[inline(always)]
    fn put(&mut self, s: S, i: usize, w: S::I32) {
        let (lines, quads) = ((PANEL * size_of::<B>()).div_ceil(LINE), B::WEIGHTS / 4);
        for line in self.n_put * lines / quads..(self.n_put + 1) * lines / quads {
            s.prefetch(self.next.wrapping_add(LINE * line));
        }
        self.n_put += 1;
        self.sink.put(s, i, w);
    }
}

/// The parts of the codes of `T` tokens from `token` that meet columns from `column`.
struct TokenCodes<'a, const T: usize> {
    q: [&'a [i8; COLUMNS]; T],
    /// Where these columns of each token are in all codes.
    at: [usize; T],
    codes: QuantizedRows<'a>,
}

// Loops, because what `array::map` calls is not always inlined.
impl<'a, const T: usize> TokenCodes<'a, T> {
    #[inline(always)]
    fn new(codes: QuantizedRows<'a>, token: usize, column: usize) -> TokenCodes<'a, T> {
        let mut at = [0; T];
        let mut q = [&[0; COLUMNS]; T];
        for t in 0..T {
            at[t] = codes.map.row(token + t) * codes.n_cols + column;
            q[t] = codes.q[at[t]..][..COLUMNS].try_into().expect("padded");
        }
        TokenCodes { q, at, codes }
    }

    /// `N` scales, one for every `size` columns.
    #[inline(always)]
    fn d<const N: usize>(&self, size: usize) -> [&'a [f32; N]; T] {
        let mut d = [&[0.0; N]; T];
        for (d, at) in d.iter_mut().zip(self.at) {
            *d = self.codes.d[at / size..][..N].try_into().expect("padded");
        }
        d
    }

    /// `N` sums of codes, one for every `size` columns.
    #[inline(always)]
    fn sums<const N: usize>(&self, size: usize) -> [&'a [i16; N]; T] {
        let mut sums = [&[0; N]; T];
        for (sums, at) in sums.iter_mut().zip(self.at) {
            *sums = self.codes.sums[at / size..][..N].try_into().expect("padded");
        }
        sums
    }
}

/// Calls `$f::<S, B, T>` for as many tokens at a time as registers hold, then for the rest.
macro_rules! by_tokens {
    ($simd:ident, $f:ident::<$s:ident, $b:ident>($tile:expr, $codes:expr, $column:expr, $out:expr)) => {{
        let n = $out.len();
        let mut t = 0;
        if $s::TOKENS >= 8 {
            while n - t >= 8 {
                $f::<$s, $b, 8>($simd, $tile, TokenCodes::new($codes, t, $column), &mut $out[t..t + 8]);
                t += 8;
            }
        }
        while n - t >= 4 {
            $codes.prefetch($simd, t + 4..n.min(t + 8), $column);
            $f::<$s, $b, 4>($simd, $tile, TokenCodes::new($codes, t, $column), &mut $out[t..t + 4]);
            t += 4;
        }
        if n - t >= 2 {
            $f::<$s, $b, 2>($simd, $tile, TokenCodes::new($codes, t, $column), &mut $out[t..t + 2]);
            t += 2;
        }
        if n > t {
            $f::<$s, $b, 1>($simd, $tile, TokenCodes::new($codes, t, $column), &mut $out[t..t + 1]);
        }
    }};
}

/// The quads of a single token's weights meet it as they are unpacked, because one chain takes all of a scale.
const fn in_registers<S: Simd, B: TileFormat>() -> bool {
    in_i32::<S, B>() || chain_steps::<S>(B::CODES) >= B::QUADS
}

/// That chain is in i32, not in i16: signed bytes meet a single token whole.
const fn in_i32<S: Simd, B: TileFormat>() -> bool {
    planes::<S>(B::CODES) == 2
}

/// What is subtracted from the bytes that meet a single token.
const fn token_offset<S: Simd, B: TileFormat>() -> i32 {
    if in_i32::<S, B>() { 0 } else { offset::<S>(B::CODES) }
}

/// The quads of a tile are signed.
fn signed<S: Simd, B: TileFormat>() -> bool {
    B::CODES == CodeRange::Signed && planes::<S>(B::CODES) == 1
}

/// `out[token][row]` for formats whose scales are f32.
#[inline(always)]
pub(crate) fn blocks<S: Simd, B: BlockFormat>(
    s: S,
    panel: Panel<'_>,
    x: QuantizedRows<'_>,
    tile: &mut Tile,
    out: &mut [[f32; 16]],
) {
    let rows = PanelRows::new(panel.w, panel.w.len() / 16);
    let (per_tile, quads) = (COLUMNS / B::WEIGHTS, B::WEIGHTS / 4);
    let n_blocks = panel.n_cols / B::WEIGHTS;
    let n_tiles = n_blocks.div_ceil(per_tile);
    out.fill([0.0; 16]);
    for i in 0..n_tiles {
        let n = per_tile.min(n_blocks - i * per_tile);
        let rows = |b: usize| rows.block((i * per_tile + b) * size_of::<B>(), size_of::<B>());
        let next = |b: usize| panel.next::<B>(i * per_tile + b);
        if let ([out], true) = (&mut *out, in_registers::<S, B>()) {
            for b in 0..n {
                let x = TokenCodes::new(x, 0, i * COLUMNS + b * B::WEIGHTS);
                block_token::<S, B>(s, rows(b), next(b), x, out);
            }
            continue;
        }
        let scales = quads / B::QUADS;
        for b in 0..n {
            let out = BlockScales {
                d: &mut tile.scales.d[scales * b..scales * (b + 1)],
                m: &mut tile.scales.m[b % 8],
            };
            let at = quads * b..quads * (b + 1);
            let mut planes = Planes::<B>::new(&mut tile.w[at.clone()], &mut tile.high[at]);
            B::unpack(s, rows(b), out, &mut Fetching::<B, _>::new(next(b), &mut planes));
        }
        let tile = (&*tile, n * scales);
        by_tokens!(s, block_tokens::<S, B>(tile, x, i * COLUMNS, out));
    }
}

#[inline(always)]
fn block_tokens<S: Simd, B: BlockFormat, const T: usize>(
    s: S,
    (tile, n_scales): (&Tile, usize),
    x: TokenCodes<'_, T>,
    out: &mut [[f32; 16]],
) {
    let out: &mut [[f32; 16]; T] = out.try_into().expect("T tokens");
    let mut acc = [s.splat(0.0); T];
    for t in 0..T {
        acc[t] = s.load(&out[t]);
    }
    assert!(n_scales <= 64 / B::QUADS);
    for i in 0..n_scales {
        let first = i * B::QUADS;
        // The high nibbles come first, and count 16 times.
        let times = if planes::<S>(B::CODES) == 2 { 8 } else { offset::<S>(B::CODES) };
        let mut sums = block_starts::<S, B, T>(s, &x, first, times);
        if planes::<S>(B::CODES) == 2 {
            block_chains::<S, B, T>(s, &tile.high, &x, first, &mut sums);
            for sum in &mut sums {
                *sum = s.shl(*sum, 4);
            }
        }
        block_chains::<S, B, T>(s, &tile.w, &x, first, &mut sums);
        block_scaled::<S, B, T>(s, &tile.scales.d[i], &tile.scales.m[first / 8], &x, first, sums, &mut acc);
    }
    for (acc, out) in acc.into_iter().zip(out) {
        s.store(acc, out);
    }
}

/// Adds the products of the quads of a scale, from `first`.
#[inline(always)]
fn block_chains<S: Simd, B: BlockFormat, const T: usize>(
    s: S,
    w: &[Quad; COLUMNS / 4],
    x: &TokenCodes<'_, T>,
    first: usize,
    sums: &mut [S::I32; T],
) {
    for from in (first..first + B::QUADS).step_by(chain_steps::<S>(B::CODES)) {
        let to = (from + chain_steps::<S>(B::CODES)).min(first + B::QUADS);
        let mut chain = [s.splat_i32(0); T];
        for t in 0..T {
            chain[t] = s.chain_start(sums[t]);
        }
        s.chains(signed::<S, B>(), &w[from..to], from, &x.q, &mut chain);
        for t in 0..T {
            sums[t] = s.chain_end(sums[t], chain[t]);
        }
    }
}

/// [`block_tokens`] for a single token and one block: its weights need no tile.
#[inline(always)]
fn block_token<S: Simd, B: BlockFormat>(
    s: S,
    rows: PanelRows<'_>,
    next: *const u8,
    x: TokenCodes<'_, 1>,
    out: &mut [f32; 16],
) {
    let n_scales = B::WEIGHTS / 4 / B::QUADS;
    let zero = s.splat_i32(0);
    let mut starts = [[zero]; 16];
    for (i, start) in starts[..n_scales].iter_mut().enumerate() {
        *start = block_starts::<S, B, 1>(s, &x, i * B::QUADS, token_offset::<S, B>());
    }
    let mut sums = starts;
    for sum in &mut sums[..n_scales] {
        sum[0] = if in_i32::<S, B>() { sum[0] } else { s.chain_start(sum[0]) };
    }
    let mut chains = Chains::<S, B> { q: x.q, sums, format: PhantomData };
    let mut scales = Scales::EMPTY;
    let (d, m) = (&mut scales.d[..n_scales], &mut scales.m[0]);
    B::unpack(s, rows, BlockScales { d, m }, &mut Fetching::<B, _>::new(next, &mut chains));
    let mut acc = [s.load(out)];
    for (i, start) in starts[..n_scales].iter().enumerate() {
        let sum = chains.sums[i][0];
        let sums = [if in_i32::<S, B>() { sum } else { s.chain_end(start[0], sum) }];
        block_scaled::<S, B, 1>(s, &scales.d[i], &scales.m[0], &x, i * B::QUADS, sums, &mut acc);
    }
    s.store(acc[0], out);
}

/// What the sums of the scale of quads from `first` begin with: `times`, which is subtracted from the bytes.
#[inline(always)]
fn block_starts<S: Simd, B: BlockFormat, const T: usize>(
    s: S,
    x: &TokenCodes<'_, T>,
    first: usize,
    times: i32,
) -> [S::I32; T] {
    let mut starts = [s.splat_i32(0); T];
    if times != 0 {
        let sum_a = x.sums::<8>(32);
        for t in 0..T {
            // Sums are of 32 codes; a scale of fewer has its own.
            let sum = match B::QUADS {
                8 => i32::from(sum_a[t][first / 8]),
                quads => x.q[t][4 * first..4 * (first + quads)].iter().map(|&q| i32::from(q)).sum(),
            };
            starts[t] = s.splat_i32(-times * sum);
        }
    }
    starts
}

/// Adds the sums of the scale `d` and the minimum `m` of quads from `first` to the results.
#[inline(always)]
fn block_scaled<S: Simd, B: BlockFormat, const T: usize>(
    s: S,
    d: &[f32; 16],
    m: &[f32; 16],
    x: &TokenCodes<'_, T>,
    first: usize,
    sums: [S::I32; T],
    acc: &mut [S::F32; T],
) {
    let (d_a, sum_a) = (x.d::<8>(32), x.sums::<8>(32));
    let b = first / 8;
    let d = s.load(d);
    for t in 0..T {
        let scale = s.mul(d, s.splat(d_a[t][b]));
        acc[t] = s.mul_add(scale, s.i32_to_f32(sums[t]), acc[t]);
    }
    if B::MIN {
        let m = s.load(m);
        for t in 0..T {
            let scale = s.mul(m, s.splat(d_a[t][b]));
            acc[t] = s.mul_add(scale, s.splat(f32::from(sum_a[t][b])), acc[t]);
        }
    }
}

/// `out[token][row]` for formats whose scales are whole numbers.
#[inline(always)]
pub(crate) fn superblocks<S: Simd, B: SuperblockFormat>(
    s: S,
    panel: Panel<'_>,
    x: QuantizedRows<'_>,
    tile: &mut Tile,
    out: &mut [[f32; 16]],
) {
    let rows = PanelRows::new(panel.w, panel.w.len() / 16);
    let n_blocks = panel.n_cols / COLUMNS;
    out.fill([0.0; 16]);
    for i in 0..n_blocks {
        let next = panel.next::<B>(i);
        let rows = rows.block(i * size_of::<B>(), size_of::<B>());
        if let ([out], true) = (&mut *out, in_registers::<S, B>()) {
            super_token::<S, B>(s, rows, next, TokenCodes::new(x, 0, i * COLUMNS), out);
            continue;
        }
        let mut planes = Planes::<B>::new(&mut tile.w, &mut tile.high);
        B::unpack(s, rows, &mut tile.scales, &mut Fetching::<B, _>::new(next, &mut planes));
        by_tokens!(s, super_tokens::<S, B>(&*tile, x, i * COLUMNS, out));
    }
}

/// The chains of one token, continued with quads as they are unpacked.
struct Chains<'a, S: Simd, B> {
    q: [&'a [i8; COLUMNS]; 1],
    /// One for each scale.
    sums: [[S::I32; 1]; 16],
    format: PhantomData<B>,
}

impl<S: Simd, B: TileFormat> Sink<S> for Chains<'_, S, B> {
    #[inline(always)]
    fn put(&mut self, s: S, i: usize, w: S::I32) {
        let signed = S::SIGNED_CHAINS && B::CODES == CodeRange::Signed;
        let sum = &mut self.sums[i / B::QUADS][0];
        let a = quad(self.q[0], i);
        *sum = s.pinned(if signed { s.chain_signed(*sum, w, a) } else { s.chain(*sum, w, a) });
    }
}

/// [`super_tokens`] for a single token: its weights need no tile.
#[inline(always)]
fn super_token<S: Simd, B: SuperblockFormat>(
    s: S,
    rows: PanelRows<'_>,
    next: *const u8,
    x: TokenCodes<'_, 1>,
    out: &mut [f32; 16],
) {
    let zero = s.splat_i32(0);
    let sums = [[if in_i32::<S, B>() { zero } else { s.chain_start(zero) }]; 16];
    let mut chains = Chains::<S, B> { q: x.q, sums, format: PhantomData };
    let mut scales = Scales::EMPTY;
    B::unpack(s, rows, &mut scales, &mut Fetching::<B, _>::new(next, &mut chains));
    let mut sums = [zero];
    for g in 0..64 / B::QUADS {
        let (chain, scale) = (chains.sums[g][0], s.load_i32(&scales.whole[g]));
        sums[0] = match in_i32::<S, B>() {
            true => s.chain_scaled_i32(sums[0], chain, scale),
            false => s.chain_scaled(sums[0], chain, scale),
        };
    }
    scaled::<S, B, 1>(s, &scales, &x, sums, token_offset::<S, B>(), std::array::from_mut(out));
}

#[inline(always)]
fn super_tokens<S: Simd, B: SuperblockFormat, const T: usize>(
    s: S,
    tile: &Tile,
    x: TokenCodes<'_, T>,
    out: &mut [[f32; 16]],
) {
    let out: &mut [[f32; 16]; T] = out.try_into().expect("T tokens");
    let zero = s.splat_i32(0);
    let mut sums = [zero; T];
    if planes::<S>(B::CODES) == 2 {
        super_chains::<S, B, T>(s, &tile.high, &tile.scales, &x, &mut sums);
        for sum in &mut sums {
            *sum = s.shl(*sum, 4);
        }
    }
    super_chains::<S, B, T>(s, &tile.w, &tile.scales, &x, &mut sums);
    scaled::<S, B, T>(s, &tile.scales, &x, sums, offset::<S>(B::CODES), out);
}

/// Adds the products of a superblock's quads, times their scales.
#[inline(always)]
fn super_chains<S: Simd, B: SuperblockFormat, const T: usize>(
    s: S,
    w: &[Quad; COLUMNS / 4],
    scales: &Scales,
    x: &TokenCodes<'_, T>,
    sums: &mut [S::I32; T],
) {
    let steps = chain_steps::<S>(B::CODES).min(B::QUADS);
    s.scaled_chains(signed::<S, B>(), w, &x.q, &scales.whole[..64 / B::QUADS], steps, sums);
}

/// Adds a superblock's sums, of bytes from which `offset` is to be subtracted, to the results of `T` tokens.
#[inline(always)]
fn scaled<S: Simd, B: SuperblockFormat, const T: usize>(
    s: S,
    scales: &Scales,
    x: &TokenCodes<'_, T>,
    mut sums: [S::I32; T],
    offset: i32,
    out: &mut [[f32; 16]; T],
) {
    let (d_a, sum_a) = (x.d::<1>(256), x.sums::<16>(16));
    if offset != 0 {
        pairs(s, &scales.offsets, sum_a, &mut sums);
    }
    let d = s.load(&scales.d[0]);
    let mut acc = [d; T];
    for t in 0..T {
        let scale = s.mul(d, s.splat(d_a[t][0]));
        acc[t] = s.mul_add(scale, s.i32_to_f32(sums[t]), s.load(&out[t]));
    }
    if B::MIN {
        let mut mins = [s.splat_i32(0); T];
        pairs(s, &scales.mins, sum_a, &mut mins);
        let dmin = s.load(&scales.m[0]);
        for t in 0..T {
            let scale = s.sub(s.splat(0.0), s.mul(dmin, s.splat(d_a[t][0])));
            acc[t] = s.mul_add(scale, s.i32_to_f32(mins[t]), acc[t]);
        }
    }
    for (acc, out) in acc.into_iter().zip(out) {
        s.store(acc, out);
    }
}

/// Adds the products of offsets or minimums and the sums of codes that they belong to.
#[inline(always)]
fn pairs<S: Simd, const T: usize>(s: S, w: &[Quad; 8], codes: [&[i16; 16]; T], sums: &mut [S::I32; T]) {
    for (p, w) in w.iter().enumerate() {
        let w = s.load_i32(w);
        // By index: a zip is not always inlined.
        for t in 0..T {
            let (low, high) = (codes[t][2 * p] as u16, codes[t][2 * p + 1] as u16);
            sums[t] = s.dot_pairs(sums[t], w, (u32::from(high) << 16 | u32::from(low)) as i32);
        }
    }
}
