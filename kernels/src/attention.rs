//! Keys and values, and attention over them.
//!
//! Both are kept in chunks of [`CHUNK`] positions, `[head][position][element]`, and attention goes chunk by
//! chunk: scores, softmax over the chunk, weighted sum of values, then the chunk's result is merged into what
//! came before. Chunks start at multiples of [`CHUNK`], so the arithmetic of a token does not depend on what
//! it was evaluated with.

use crate::math::{exp1, tanh};
use crate::rows::exp_sum;
use crate::simd::{Simd, load_tail, map_in_place};

/// Positions per chunk.
pub const CHUNK: usize = 128;

/// How keys or values are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KvType {
    /// Half precision.
    F16,
    /// Single precision.
    F32,
}

impl KvType {
    /// The name, as `-ctk` and `-ctv` take it.
    pub fn name(self) -> &'static str {
        match self {
            KvType::F16 => "f16",
            KvType::F32 => "f32",
        }
    }

    /// Bytes per value.
    pub fn bytes(self) -> usize {
        match self {
            KvType::F16 => 2,
            KvType::F32 => 4,
        }
    }
}

impl std::str::FromStr for KvType {
    type Err = String;

    fn from_str(name: &str) -> Result<KvType, String> {
        match name.to_ascii_lowercase().as_str() {
            "f16" => Ok(KvType::F16),
            "f32" => Ok(KvType::F32),
            _ => Err(format!("unknown cache type \"{name}\" (known: f16, f32)")),
        }
    }
}

/// One of the two halves of a layer's cache.
#[derive(Debug)]
struct Store {
    ty: KvType,
    n_head: usize,
    dim: usize,
    chunks: Vec<Box<[u8]>>,
}

impl Store {
    fn reserve(&mut self, n: usize) {
        let bytes = self.n_head * CHUNK * self.dim * self.ty.bytes();
        while self.chunks.len() * CHUNK < n {
            self.chunks.push(vec![0; bytes].into_boxed_slice());
        }
    }

    /// The bytes of positions `from..to` of chunk `c` for one head.
    #[inline(always)]
    fn head(&self, c: usize, head: usize, from: usize, to: usize) -> &[u8] {
        let row = self.dim * self.ty.bytes();
        let start = head * CHUNK * row;
        &self.chunks[c][start + from * row..start + to * row]
    }
}

/// Keys and values of one layer.
#[derive(Debug)]
pub struct KvLayer {
    k: Store,
    v: Store,
    len: usize,
}

impl KvLayer {
    /// An empty cache for `n_head_kv` heads of `head_dim_k` and `head_dim_v` values.
    pub fn new(k: KvType, v: KvType, n_head_kv: usize, head_dim_k: usize, head_dim_v: usize) -> KvLayer {
        let store = |ty, dim| Store { ty, n_head: n_head_kv, dim, chunks: Vec::new() };
        KvLayer { k: store(k, head_dim_k), v: store(v, head_dim_v), len: 0 }
    }

    /// Positions held.
    pub fn len(&self) -> usize {
        self.len
    }

    /// True if no position is held.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Forgets positions from `n` on and gives back their memory.
    pub fn truncate(&mut self, n: usize) {
        self.len = self.len.min(n);
        let chunks = self.len.div_ceil(CHUNK);
        self.k.chunks.truncate(chunks);
        self.v.chunks.truncate(chunks);
    }

    /// Bytes held.
    pub fn bytes(&self) -> usize {
        [&self.k, &self.v].iter().flat_map(|store| &store.chunks).map(|chunk| chunk.len()).sum()
    }

    pub(crate) fn dims(&self) -> (usize, usize, usize) {
        (self.k.n_head, self.k.dim, self.v.dim)
    }

    /// Writes keys and values (`[token][head][element]`) of positions `pos0..`; the part before stays.
    pub(crate) fn write(
        &mut self,
        pos0: usize,
        k: &[f32],
        v: &[f32],
        convert: impl Fn(&[f32], KvType, &mut [u8]),
    ) {
        assert!(pos0 <= self.len, "positions are written without gaps");
        let n = k.len() / (self.k.n_head * self.k.dim);
        for (store, x) in [(&mut self.k, k), (&mut self.v, v)] {
            store.reserve(pos0 + n);
            let row = store.dim * store.ty.bytes();
            for (i, x) in x.chunks_exact(store.dim).enumerate() {
                let (pos, head) = (pos0 + i / store.n_head, i % store.n_head);
                let at = (head * CHUNK + pos % CHUNK) * row;
                convert(x, store.ty, &mut store.chunks[pos / CHUNK][at..at + row]);
            }
        }
        self.len = pos0 + n;
    }
}

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

/// Stores f32 values as `ty`.
#[inline(always)]
pub(crate) fn convert<S: Simd>(s: S, x: &[f32], ty: KvType, out: &mut [u8]) {
    match ty {
        KvType::F32 => {
            for (out, x) in out.as_chunks_mut::<4>().0.iter_mut().zip(x) {
                *out = x.to_le_bytes();
            }
        }
        KvType::F16 => {
            let (body, tail) = x.as_chunks::<16>();
            let (out_body, out_tail) = out.as_chunks_mut::<32>();
            for (x, out) in body.iter().zip(out_body) {
                s.store_f16(s.load(x), out);
            }
            if !tail.is_empty() {
                let mut last = [0; 32];
                s.store_f16(load_tail(s, tail), &mut last);
                out_tail.copy_from_slice(&last[..out_tail.len()]);
            }
        }
    }
}

/// Up to 16 stored values, the rest 0.
#[inline(always)]
fn stored<S: Simd>(s: S, bytes: &[u8], ty: KvType) -> S::F32 {
    match ty {
        KvType::F16 => {
            let mut padded = [0; 32];
            let bytes = match bytes.first_chunk::<32>() {
                Some(whole) => whole,
                None => {
                    padded[..bytes.len()].copy_from_slice(bytes);
                    &padded
                }
            };
            s.load_f16(bytes)
        }
        KvType::F32 => {
            let mut lanes = [0.0; 16];
            for (lane, b) in lanes.iter_mut().zip(bytes.as_chunks::<4>().0) {
                *lane = f32::from_le_bytes(*b);
            }
            s.load(&lanes)
        }
    }
}

/// Attention of one query head at position `pos`: `q` over the keys of `head_kv`, result in `out`.
#[inline(always)]
pub(crate) fn attend<S: Simd>(
    s: S,
    kv: &KvLayer,
    q: &[f32],
    head_kv: usize,
    pos: usize,
    params: &AttentionParams,
    out: &mut [f32],
) {
    let first = params.window.map_or(0, |window| (pos + 1).saturating_sub(window));
    let mut scores = [0.0; CHUNK];
    out.fill(0.0);
    let (mut max, mut sum) = (f32::NEG_INFINITY, 0.0f32);
    for c in first / CHUNK..=pos / CHUNK {
        let from = first.saturating_sub(c * CHUNK);
        let to = (pos + 1 - c * CHUNK).min(CHUNK);
        let scores = &mut scores[..to - from];
        score(s, &kv.k, q, (c, head_kv, from, to), params, scores);
        let (chunk_max, chunk_sum) = exp_sum(s, scores);
        let new_max = if chunk_max > max { chunk_max } else { max };
        let (keep, take) = (exp1(s, max - new_max), exp1(s, chunk_max - new_max));
        sum = chunk_sum.mul_add(take, sum * keep);
        mix(s, &kv.v, scores, (c, head_kv, from, to), (keep, take), out);
        max = new_max;
    }
    let inverse = s.splat(1.0 / sum);
    map_in_place(
        s,
        out,
        #[inline(always)]
        |x| s.mul(x, inverse),
    );
}

/// Where in a store: chunk, head, first position and end within the chunk.
type Place = (usize, usize, usize, usize);

/// `scores[i]` = scaled and capped dot product of `q` with key i of the place.
#[inline(always)]
fn score<S: Simd>(s: S, k: &Store, q: &[f32], at: Place, params: &AttentionParams, scores: &mut [f32]) {
    let keys = k.head(at.0, at.1, at.2, at.3);
    let (body, tail) = q.as_chunks::<16>();
    for (score, key) in scores.iter_mut().zip(keys.chunks_exact(k.dim * k.ty.bytes())) {
        let mut parts = key.chunks(16 * k.ty.bytes());
        let mut sums = s.splat(0.0);
        for (q, key) in body.iter().zip(&mut parts) {
            sums = s.mul_add(s.load(q), stored(s, key, k.ty), sums);
        }
        if let Some(key) = parts.next() {
            sums = s.mul_add(load_tail(s, tail), stored(s, key, k.ty), sums);
        }
        *score = s.sum(sums) * params.scale;
    }
    if let Some(cap) = params.softcap {
        let cap = s.splat(cap);
        map_in_place(
            s,
            scores,
            #[inline(always)]
            |x| s.mul(cap, tanh(s, s.div(x, cap))),
        );
    }
}

/// Elements of a value that are summed at a time: four vectors stay in registers.
const MIX: usize = 64;

/// `out = out * keep + take * Σ scores[i] * value i`, keys in ascending order for every element.
#[inline(always)]
fn mix<S: Simd>(s: S, v: &Store, scores: &[f32], at: Place, (keep, take): (f32, f32), out: &mut [f32]) {
    let values = v.head(at.0, at.1, at.2, at.3);
    let row = v.dim * v.ty.bytes();
    let (keep, take) = (s.splat(keep), s.splat(take));
    for (b, out) in out.chunks_mut(MIX).enumerate() {
        let from = b * MIX * v.ty.bytes();
        let mut sums = [s.splat(0.0); MIX / 16];
        for (&score, value) in scores.iter().zip(values.chunks_exact(row)) {
            let score = s.splat(score);
            let parts = value[from..].chunks(16 * v.ty.bytes()).take(out.len().div_ceil(16));
            for (sum, part) in sums.iter_mut().zip(parts) {
                *sum = s.mul_add(score, stored(s, part, v.ty), *sum);
            }
        }
        for (out, sum) in out.chunks_mut(16).zip(sums) {
            let mut lanes = [0.0; 16];
            s.store(s.mul_add(sum, take, s.mul(load_tail(s, out), keep)), &mut lanes);
            out.copy_from_slice(&lanes[..out.len()]);
        }
    }
}
