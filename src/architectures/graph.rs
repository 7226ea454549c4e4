//! The steps that architectures are written in.
//!
//! A [`Graph`] evaluates a batch eagerly: some tokens of one or more sequences. It has two activations, each `[token][n]`: `x`, the residual
//! stream, and `h`, what the current block is working on. Every step says what it reads and writes, and takes
//! the name under which its result can be traced. Buffers are reused from one evaluation to the next.

use qgguf_kernels::{AttentionParams, Compute, KvLayer, MatmulJob, RopeLayout, RopeTable};

use super::Weight;
use super::batch::Batch;
use super::layers::{Attention, Ffn, Mlp, Moe};

/// Receives named intermediates: `(name, layer, [rows, row length], values)`.
pub type TraceFn<'a> = dyn FnMut(&str, Option<usize>, [usize; 2], &[f32]) + Send + 'a;

/// One attention layer at work on one sequence: what its scores are made of.
pub struct AttentionStep<'a> {
    /// The layer.
    pub layer: usize,
    /// Its keys and values, those of the tokens being evaluated included.
    pub kv: &'a KvLayer,
    /// The queries as they meet the keys, `[token][head][element]`.
    pub q: &'a [f32],
    /// Position of the first token.
    pub pos0: usize,
    /// Tokens of the sequence that are evaluated together.
    pub n_tokens: usize,
    /// Heads, scale, window, soft cap.
    pub params: AttentionParams,
    /// Threads for whoever wants to compute.
    pub compute: &'a Compute,
}

/// Sees every attention layer of an evaluation, once for each sequence.
pub type AttentionProbe<'a> = dyn FnMut(&AttentionStep<'_>) + Send + 'a;

/// What some weights are about to be multiplied with.
pub struct Activations<'a> {
    /// The name of the tensor that the weights are in.
    pub tensor: &'a str,
    /// `[row][n_cols]`, before any rounding to the weights' needs.
    pub x: &'a [f32],
    /// Row length.
    pub n_cols: usize,
    /// For the weights of experts: how many there are, and the expert of each pair. Pair p takes row
    /// `p / (pairs / rows)` of `x`.
    pub experts: Option<(usize, &'a [u32])>,
    /// Threads for whoever wants to compute.
    pub compute: &'a Compute,
}

/// Sees what weights are multiplied with, once for each tensor and evaluation.
pub type ActivationsProbe<'a> = dyn FnMut(&Activations<'_>) + Send + 'a;

/// The activations, kept between evaluations so that nothing is allocated per token.
#[derive(Default)]
pub struct Buffers {
    x: Vec<f32>,
    h: Vec<f32>,
    next: Vec<f32>,
    q: Vec<f32>,
    k: Vec<f32>,
    v: Vec<f32>,
    gate: Vec<f32>,
    up: Vec<f32>,
    expert_ids: Vec<u32>,
    expert_weights: Vec<f32>,
    ropes: Vec<RopeTable>,
    /// The wanted logits, `[token][n_vocab]`.
    pub logits: Vec<f32>,
    /// The wanted hidden states, `[token][n_embd]`.
    pub hidden: Vec<f32>,
}

impl Buffers {
    /// Bytes held.
    pub fn bytes(&self) -> usize {
        [
            &self.x,
            &self.h,
            &self.next,
            &self.q,
            &self.k,
            &self.v,
            &self.gate,
            &self.up,
            &self.logits,
            &self.hidden,
        ]
        .iter()
        .map(|buffer| buffer.capacity() * size_of::<f32>())
        .sum()
    }
}

/// The activation function of a gated feed-forward network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gate {
    /// `x / (1 + exp(-x))`.
    Silu,
    /// The tanh form of GELU.
    Gelu,
}

/// How the scores of one attention layer are made.
#[derive(Clone, Copy, Debug)]
pub struct Scores {
    /// Factor on the dot products.
    pub scale: f32,
    /// A position sees itself and the `window - 1` before it.
    pub window: Option<usize>,
    /// Scores are bent to stay below.
    pub softcap: Option<f32>,
}

/// One evaluation of a batch.
pub struct Graph<'a> {
    compute: &'a mut Compute,
    buffers: &'a mut Buffers,
    batch: &'a mut Batch,
    trace: Option<&'a mut TraceFn<'a>>,
    probe: Option<&'a mut AttentionProbe<'a>>,
    activations_probe: Option<&'a mut ActivationsProbe<'a>>,
    layer: Option<usize>,
    /// Factor on what is added to the residual stream.
    pub residual_scale: f32,
}

impl<'a> Graph<'a> {
    /// Prepares the evaluation of `batch`.
    pub fn new(
        compute: &'a mut Compute,
        buffers: &'a mut Buffers,
        batch: &'a mut Batch,
        ropes: &[qgguf_kernels::RopeParams],
    ) -> Graph<'a> {
        buffers.ropes.resize_with(ropes.len(), RopeTable::default);
        for (table, rope) in buffers.ropes.iter_mut().zip(ropes) {
            rope.fill(table, batch.positions());
        }
        Graph {
            compute,
            buffers,
            batch,
            trace: None,
            probe: None,
            activations_probe: None,
            layer: None,
            residual_scale: 1.0,
        }
    }

    /// Sends every named intermediate to `trace`.
    pub fn set_trace(&mut self, trace: &'a mut TraceFn<'a>) {
        self.trace = Some(trace);
    }

    /// Shows every attention layer to `probe`.
    pub fn set_attention_probe(&mut self, probe: &'a mut AttentionProbe<'a>) {
        self.probe = Some(probe);
    }

    /// Shows `probe` what weights are multiplied with.
    pub fn set_activations_probe(&mut self, probe: &'a mut ActivationsProbe<'a>) {
        self.activations_probe = Some(probe);
    }

    /// Number of tokens evaluated together.
    pub fn n_tokens(&self) -> usize {
        self.batch.tokens().len()
    }

    /// Says which layer the following steps belong to.
    pub fn layer(&mut self, il: usize) {
        self.layer = Some(il);
    }

    /// `x` = the embeddings of the tokens, times `scale`.
    pub fn embed(&mut self, embeddings: &Weight, scale: f32) {
        let n_embd = embeddings.n_cols();
        let x = &mut self.buffers.x;
        x.resize(self.batch.tokens().len() * n_embd, 0.0);
        for (&token, row) in self.batch.tokens().iter().zip(x.chunks_exact_mut(n_embd)) {
            embeddings.row(token as usize, row);
        }
        if scale != 1.0 {
            self.compute.scale(&mut self.buffers.x, scale);
        }
        self.traced("inp_embd", |b| &b.x);
    }

    /// `h` = RMS norm of `x`.
    pub fn norm(&mut self, name: &str, weight: &[f32], eps: f32) {
        let b = &mut *self.buffers;
        b.h.resize(b.x.len(), 0.0);
        self.compute.rms_norm(&b.x, weight, eps, &mut b.h);
        self.traced(name, |b| &b.h);
    }

    /// `h` = `x`, for families without a norm before the block.
    pub fn read_residual(&mut self) {
        let b = &mut *self.buffers;
        b.h.clear();
        b.h.extend_from_slice(&b.x);
    }

    /// `h` = RMS norm of `h`.
    pub fn post_norm(&mut self, name: &str, weight: &[f32], eps: f32) {
        self.compute.rms_norm_in_place(&mut self.buffers.h, weight, eps);
        self.traced(name, |b| &b.h);
    }

    /// `q`, `k`, `v` = projections of `h`, with their biases.
    pub fn qkv(&mut self, attn: &Attention) {
        self.observed(&[&attn.wq, &attn.wk, &attn.wv], |b| &b.h, None);
        let n = self.n_tokens();
        let b = &mut *self.buffers;
        b.q.resize(n * attn.wq.n_rows(), 0.0);
        b.k.resize(n * attn.wk.n_rows(), 0.0);
        b.v.resize(n * attn.wv.n_rows(), 0.0);
        self.compute.matmul(
            &b.h,
            n,
            &mut [
                MatmulJob { w: attn.wq.matrix(), out: &mut b.q },
                MatmulJob { w: attn.wk.matrix(), out: &mut b.k },
                MatmulJob { w: attn.wv.matrix(), out: &mut b.v },
            ],
        );
        for (rows, bias) in [(&mut b.q, &attn.bq), (&mut b.k, &attn.bk), (&mut b.v, &attn.bv)] {
            if let Some(bias) = bias {
                self.compute.add_bias(rows, bias);
            }
        }
        self.traced("Qcur", |b| &b.q);
        self.traced("Kcur", |b| &b.k);
        self.traced("Vcur", |b| &b.v);
    }

    /// RMS norms of `q` and `k` over vectors of the weights' length: a head each, or all heads together.
    pub fn qk_norm(&mut self, q_norm: &[f32], k_norm: &[f32], eps: f32) {
        self.compute.rms_norm_in_place(&mut self.buffers.q, q_norm, eps);
        self.compute.rms_norm_in_place(&mut self.buffers.k, k_norm, eps);
        self.traced("Qcur_normed", |b| &b.q);
        self.traced("Kcur_normed", |b| &b.k);
    }

    /// Multiplies the queries of every token by `factor(position)`.
    pub fn scale_queries(&mut self, factor: impl Fn(usize) -> f32) {
        let n = self.n_tokens();
        let row = self.buffers.q.len() / n;
        for (q, (pos, _)) in self.buffers.q.chunks_exact_mut(row).zip(self.batch.positions()) {
            let factor = factor(pos);
            q.iter_mut().for_each(|q| *q *= factor);
        }
        self.traced("Qcur_scaled", |b| &b.q);
    }

    /// Rotates `q` and `k` by the family's rotary embedding number `rope`.
    pub fn rope(&mut self, rope: usize, attn: &Attention, layout: RopeLayout) {
        let b = &mut *self.buffers;
        let table = &b.ropes[rope];
        self.compute.rope(&mut b.q, attn.n_head, attn.head_dim_k, table, layout);
        self.compute.rope(&mut b.k, attn.n_head_kv, attn.head_dim_k, table, layout);
        self.traced("Qcur_rope", |b| &b.q);
        self.traced("Kcur_rope", |b| &b.k);
    }

    /// Appends `k` and `v` to the layer's cache, `h` = attention of `q` over it, then the output projection.
    pub fn attend(&mut self, attn: &Attention, scores: Scores) {
        let il = self.layer.expect("attention belongs to a layer");
        let n = self.n_tokens();
        let b = &mut *self.buffers;
        let (row_k, row_v) = (attn.n_head_kv * attn.head_dim_k, attn.n_head_kv * attn.head_dim_v);
        for (span, cache) in self.batch.caches_mut(il) {
            let tokens = span.tokens();
            let k = &b.k[tokens.start * row_k..tokens.end * row_k];
            let v = &b.v[tokens.start * row_v..tokens.end * row_v];
            self.compute.kv_append(cache, k, v, span.n_tokens);
        }
        b.h.resize(n * attn.n_head * attn.head_dim_v, 0.0);
        let params = AttentionParams {
            n_head: attn.n_head,
            scale: scores.scale,
            softcap: scores.softcap,
            window: scores.window,
        };
        if let Some(probe) = &mut self.probe {
            let row_q = attn.n_head * attn.head_dim_k;
            for (i, span) in self.batch.spans().iter().enumerate() {
                let tokens = span.tokens();
                probe(&AttentionStep {
                    layer: il,
                    kv: self.batch.cache(i, il),
                    q: &b.q[tokens.start * row_q..tokens.end * row_q],
                    pos0: span.pos0,
                    n_tokens: span.n_tokens,
                    params,
                    compute: self.compute,
                });
            }
        }
        let batch = &*self.batch;
        self.compute.attention(batch.spans(), |i| batch.cache(i, il), &b.q, &params, &mut b.h);
        self.traced("kqv_out", |b| &b.h);
        self.project("attn_out", &attn.wo, attn.bo.as_deref());
    }

    /// `h` = `w` · `h` + bias.
    fn project(&mut self, name: &str, w: &Weight, bias: Option<&[f32]>) {
        self.observed(&[w], |b| &b.h, None);
        let n = self.n_tokens();
        let b = &mut *self.buffers;
        b.next.resize(n * w.n_rows(), 0.0);
        self.compute.matmul(&b.h, n, &mut [MatmulJob { w: w.matrix(), out: &mut b.next }]);
        if let Some(bias) = bias {
            self.compute.add_bias(&mut b.next, bias);
        }
        std::mem::swap(&mut b.h, &mut b.next);
        self.traced(name, |b| &b.h);
    }

    /// `x` += `h` (times the residual scale).
    pub fn add_residual(&mut self, name: &str) {
        let b = &mut *self.buffers;
        if self.residual_scale != 1.0 {
            self.compute.scale(&mut b.h, self.residual_scale);
        }
        self.compute.add(&mut b.x, &b.h);
        self.traced(name, |b| &b.x);
    }

    /// `h` = down(gate(gate · `h`) ⊙ up · `h`).
    pub fn ffn(&mut self, ffn: &Ffn, gate: Gate) {
        self.observed(&[&ffn.gate, &ffn.up], |b| &b.h, None);
        let n = self.n_tokens();
        let b = &mut *self.buffers;
        b.gate.resize(n * ffn.gate.n_rows(), 0.0);
        b.up.resize(n * ffn.up.n_rows(), 0.0);
        self.compute.matmul(
            &b.h,
            n,
            &mut [
                MatmulJob { w: ffn.gate.matrix(), out: &mut b.gate },
                MatmulJob { w: ffn.up.matrix(), out: &mut b.up },
            ],
        );
        for (rows, bias) in [(&mut b.gate, &ffn.gate_bias), (&mut b.up, &ffn.up_bias)] {
            if let Some(bias) = bias {
                self.compute.add_bias(rows, bias);
            }
        }
        self.traced("ffn_gate", |b| &b.gate);
        self.traced("ffn_up", |b| &b.up);
        self.gated(gate);
        std::mem::swap(&mut self.buffers.h, &mut self.buffers.gate);
        self.project("ffn_out", &ffn.down, ffn.down_bias.as_deref());
    }

    /// [`Graph::ffn`] with SiLU, or [`Graph::moe`].
    pub fn mlp(&mut self, mlp: &Mlp) {
        match mlp {
            Mlp::Dense(ffn) => self.ffn(ffn, Gate::Silu),
            Mlp::Experts(moe) => self.moe(moe),
        }
    }

    /// `gate` = activation(`gate`) ⊙ `up`.
    fn gated(&mut self, gate: Gate) {
        let b = &mut *self.buffers;
        match gate {
            Gate::Silu => self.compute.swiglu(&mut b.gate, &b.up),
            Gate::Gelu => self.compute.geglu(&mut b.gate, &b.up),
        }
        self.traced("ffn_gate_par", |b| &b.gate);
    }

    /// `h` = the weighted sum of the chosen experts' gated networks (SiLU).
    ///
    /// The router's softmax picks the `n_used` largest probabilities (lowest expert on ties), which are
    /// then normalised to sum 1.
    pub fn moe(&mut self, moe: &Moe) {
        let n = self.n_tokens();
        self.route(moe);
        self.observed(&[&moe.gate[0], &moe.up[0]], |b| &b.h, Some(moe.gate.len()));
        let b = &mut *self.buffers;
        let n_pairs = b.expert_ids.len();
        let n_ff = moe.up[0].n_rows();
        b.gate.resize(n_pairs * n_ff, 0.0);
        b.up.resize(n_pairs * n_ff, 0.0);
        self.compute.matmul_experts(
            &b.h,
            &b.expert_ids,
            moe.gate.len(),
            |e| moe.gate[e].matrix(),
            &mut b.gate,
        );
        self.compute.matmul_experts(&b.h, &b.expert_ids, moe.up.len(), |e| moe.up[e].matrix(), &mut b.up);
        self.gated(Gate::Silu);
        self.observed(&[&moe.down[0]], |b| &b.gate, Some(moe.down.len()));
        let b = &mut *self.buffers;
        let n_embd = moe.down[0].n_rows();
        b.next.resize(n_pairs * n_embd, 0.0);
        self.compute.matmul_experts(
            &b.gate,
            &b.expert_ids,
            moe.down.len(),
            |e| moe.down[e].matrix(),
            &mut b.next,
        );
        b.h.resize(n * n_embd, 0.0);
        b.h.fill(0.0);
        let pairs = b.next.chunks_exact(n_embd).zip(&b.expert_weights);
        for (p, (y, &weight)) in pairs.enumerate() {
            let h = &mut b.h[p / moe.n_used * n_embd..][..n_embd];
            h.iter_mut().zip(y).for_each(|(h, &y)| *h = y.mul_add(weight, *h));
        }
        self.traced("ffn_moe_out", |b| &b.h);
    }

    /// Fills `expert_ids` and `expert_weights`, `[token][n_used]`.
    fn route(&mut self, moe: &Moe) {
        self.observed(&[&moe.router], |b| &b.h, None);
        let n = self.n_tokens();
        let b = &mut *self.buffers;
        let n_expert = moe.router.n_rows();
        b.next.resize(n * n_expert, 0.0);
        self.compute.matmul(&b.h, n, &mut [MatmulJob { w: moe.router.matrix(), out: &mut b.next }]);
        self.compute.softmax(&mut b.next, n_expert);
        b.expert_ids.clear();
        b.expert_weights.clear();
        for probs in b.next.chunks_exact(n_expert) {
            let first = b.expert_ids.len();
            for _ in 0..moe.n_used {
                let rest = (0..n_expert as u32).filter(|e| !b.expert_ids[first..].contains(e));
                let best = rest.reduce(|a, e| if probs[e as usize] > probs[a as usize] { e } else { a });
                b.expert_ids.push(best.expect("no more experts are used than there are"));
            }
            let chosen = b.expert_ids[first..].iter().map(|&e| probs[e as usize]);
            let sum = chosen.clone().sum::<f32>().max(MIN_EXPERT_SUM);
            b.expert_weights.extend(chosen.map(|p| p / sum));
        }
        self.traced("ffn_moe_probs", |b| &b.next);
    }

    /// The last norm and the output projection, for the wanted tokens only.
    pub fn output(&mut self, head: &super::layers::Head, eps: f32) {
        let n_embd = head.norm.len();
        self.layer = None;
        let b = &mut *self.buffers;
        gather(&b.x, n_embd, self.batch.hidden(), &mut b.hidden);
        self.compute.rms_norm_in_place(&mut b.hidden, &head.norm, eps);
        gather(&b.x, n_embd, self.batch.logits(), &mut b.h);
        let n = self.batch.logits().len();
        b.logits.resize(n * head.output.n_rows(), 0.0);
        if n == 0 {
            return;
        }
        self.compute.rms_norm_in_place(&mut b.h, &head.norm, eps);
        self.observed(&[&head.output], |b| &b.h, None);
        let b = &mut *self.buffers;
        let job = MatmulJob { w: head.output.matrix(), out: &mut b.logits };
        self.compute.matmul(&b.h, n, &mut [job]);
        if let Some(bias) = &head.bias {
            self.compute.add_bias(&mut b.logits, bias);
        }
        if head.logit_scale != 1.0 {
            self.compute.scale(&mut b.logits, head.logit_scale);
        }
        if let Some(cap) = head.softcap {
            self.compute.softcap(&mut b.logits, cap);
        }
        self.traced("result_norm", |b| &b.h);
        self.traced("result_output", |b| &b.logits);
    }

    /// Shows the rows `x` that `weights` are multiplied with; parts of one tensor are one.
    fn observed(&mut self, weights: &[&Weight], x: impl Fn(&Buffers) -> &Vec<f32>, n_experts: Option<usize>) {
        if let Some(probe) = &mut self.activations_probe {
            let x = x(self.buffers);
            let mut last = "";
            for weight in
                weights.iter().filter(|weight| std::mem::replace(&mut last, weight.name()) != weight.name())
            {
                probe(&Activations {
                    tensor: weight.name(),
                    x,
                    n_cols: weight.n_cols(),
                    experts: n_experts.map(|n| (n, self.buffers.expert_ids.as_slice())),
                    compute: self.compute,
                });
            }
        }
    }

    fn traced(&mut self, name: &str, values: impl Fn(&Buffers) -> &Vec<f32>) {
        if let Some(trace) = &mut self.trace {
            let values = values(self.buffers);
            let of_outputs = self.layer.is_none() && name.starts_with("result");
            let rows = if of_outputs { self.batch.logits().len() } else { self.batch.tokens().len() };
            trace(name, self.layer, [rows, values.len() / rows], values);
        }
    }
}

/// `out` = the rows of `x`, `n` values each, of these tokens.
fn gather(x: &[f32], n: usize, tokens: &[usize], out: &mut Vec<f32>) {
    out.clear();
    tokens.iter().for_each(|&token| out.extend_from_slice(&x[token * n..(token + 1) * n]));
}

/// The smallest sum by which expert weights are divided (2⁻¹⁴, as llama.cpp has it).
const MIN_EXPERT_SUM: f32 = 6.103_515_6e-5;
