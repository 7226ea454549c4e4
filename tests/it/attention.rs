//! `qgguf attention`: the shares of attention, against the runtime's own results and against a softmax written out.

use std::collections::HashMap;
use std::fs;
use std::path::Path;
use std::sync::{Arc, Mutex};

use qgguf::engine::EngineOptions;
use qgguf::lab::attention::weights;
use qgguf::model::{Model, ModelOptions};
use qgguf::session::Session;
use qgguf_kernels::KvType;

use crate::fixtures::fixtures;
use crate::support::{failure, json, qgguf, stdout, tiny_model};

/// Tokens evaluated by the tests that need no text; longer than the windows of the tiny models.
const N_TOKENS: usize = 140;

fn tokens() -> Vec<u32> {
    (0..N_TOKENS as u32).map(|i| 3 + i * 37 % 600).collect()
}

/// A session that keeps keys and values as they are.
fn exact_session(model: &Path) -> Session {
    let model = Model::open(model, &ModelOptions::default()).unwrap();
    let options = EngineOptions { type_k: KvType::F32, type_v: KvType::F32, ..EngineOptions::default() };
    Session::new(Arc::new(model), Some(512), &options).unwrap()
}

type Traced = Arc<Mutex<HashMap<(String, Option<usize>), Vec<f32>>>>;

fn trace(session: &mut Session) -> Traced {
    let traced = Traced::default();
    let shared = traced.clone();
    session.engine_mut().set_trace(Some(Box::new(move |name, layer, _, values| {
        shared.lock().unwrap().insert((name.to_owned(), layer), values.to_vec());
    })));
    traced
}

#[test]
fn values_weighted_by_the_shares_are_what_attention_gives() {
    let Some(dir) = fixtures("values_weighted_by_the_shares_are_what_attention_gives") else { return };
    let mut n_models = 0;
    for entry in fs::read_dir(dir.join("gguf")).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        if !name.ends_with("-tiny-F16.gguf") {
            continue;
        }
        n_models += 1;
        let mut session = exact_session(&path);
        let traced = trace(&mut session);
        let mixed = Arc::new(Mutex::new(HashMap::new()));
        let (values, results) = (traced.clone(), mixed.clone());
        session.engine_mut().set_attention_probe(Some(Box::new(move |step| {
            let (n_head_kv, _, dim) = step.kv.dims();
            let values = values.lock().unwrap();
            let v = &values[&("Vcur".to_owned(), Some(step.layer))];
            let mut out = Vec::new();
            for token in 0..step.n_tokens {
                for head in 0..step.params.n_head {
                    let head_kv = head * n_head_kv / step.params.n_head;
                    let weights = weights(step, &step.kv.keys(head_kv), head, token);
                    assert_eq!(weights.len(), token + 1, "a position sees itself and what was before");
                    let value = |p: usize, e: usize| v[(p * n_head_kv + head_kv) * dim + e];
                    out.extend(
                        (0..dim)
                            .map(|e| weights.iter().enumerate().map(|(p, w)| w * value(p, e)).sum::<f32>()),
                    );
                }
            }
            results.lock().unwrap().insert(step.layer, out);
        })));
        session.eval(&tokens()).unwrap();
        let traced = traced.lock().unwrap();
        for (&layer, mixed) in mixed.lock().unwrap().iter() {
            let expected = &traced[&("kqv_out".to_owned(), Some(layer))];
            assert_eq!(mixed.len(), expected.len(), "{name} layer {layer}");
            let largest = expected.iter().fold(0f32, |m, x| m.max(x.abs()));
            let off = mixed.iter().zip(expected).fold(0f32, |m, (a, b)| m.max((a - b).abs()));
            // Sums of up to 140 products in another order.
            assert!(off <= 2e-6 * largest.max(1.0), "{name} layer {layer}: {off} of {largest}");
        }
        assert!(!mixed.lock().unwrap().is_empty());
    }
    assert_eq!(n_models, 10);
}

/// The share of the first token and of the position itself, by the definition of attention.
fn plain_shares(q: &[f32], k: &[f32], [n_head, n_head_kv, dim]: [usize; 3], head: usize) -> (f64, f64) {
    let from = 50;
    let (mut first, mut own) = (0.0, 0.0);
    for t in from..N_TOKENS {
        let score = |p: usize| {
            let q = &q[(t * n_head + head) * dim..][..dim];
            let k = &k[(p * n_head_kv + head * n_head_kv / n_head) * dim..][..dim];
            let dot: f64 = q.iter().zip(k).map(|(&q, &k)| f64::from(q) * f64::from(k)).sum();
            (dot / (dim as f64).sqrt()).exp()
        };
        let sum: f64 = (0..=t).map(score).sum();
        first += score(0) / sum;
        own += score(t) / sum;
    }
    (first / (N_TOKENS - from) as f64, own / (N_TOKENS - from) as f64)
}

#[test]
fn shares_are_those_of_a_plain_softmax() {
    // Words of the tiny model's vocabulary, one token each.
    let text = " and the".repeat(N_TOKENS / 2);
    let mut session = exact_session(&tiny_model());
    let ids = session.model().tokenizer().encode(&text, true, true);
    assert_eq!(ids.len(), N_TOKENS);
    let traced = trace(&mut session);
    session.eval(&ids).unwrap();
    let traced = traced.lock().unwrap();

    let all = json(qgguf("attention --json -ctk f32 -ctv f32 -p").arg(&text));
    assert_eq!((&all["from"], &all["n_positions"]), (&50.into(), &90.into()));
    let layers = all["layers"].as_array().unwrap();
    assert_eq!(layers.len(), 4);
    for (il, layer) in layers.iter().enumerate() {
        let of = |name: &str| &traced[&(name.to_owned(), Some(il))];
        let heads = layer["heads"].as_array().unwrap();
        for (head, share) in heads.iter().enumerate() {
            let (first, own) = plain_shares(of("Qcur_rope"), of("Kcur_rope"), [4, 2, 128], head);
            let off = |key: &str, value: f64| (share[key].as_f64().unwrap() - value).abs();
            assert!(
                off("first", first) < 1e-6 && off("self", own) < 1e-6,
                "{il} {head}: {share} {first} {own}"
            );
        }
        let mean = heads.iter().map(|head| head["first"].as_f64().unwrap()).sum::<f64>() / 4.0;
        assert!((layer["mean"]["first"].as_f64().unwrap() - mean).abs() < 1e-12);
        let even = (50..140).map(|p| 1.0 / f64::from(p + 1)).sum::<f64>() / 90.0;
        assert!((layer["even"]["self"].as_f64().unwrap() - even).abs() < 1e-12);
    }

    let split = json(qgguf("attention --json -ctk f32 -ctv f32 -ub 17 -t 1 --layer 3,1 -p").arg(&text));
    let split = split["layers"].as_array().unwrap();
    assert_eq!(split.iter().map(|layer| layer["layer"].as_u64().unwrap()).collect::<Vec<_>>(), [1, 3]);
    for head in 0..4 {
        let of = |layer: &serde_json::Value| layer["heads"][head]["first"].as_f64().unwrap();
        assert!((of(&split[1]) - of(&layers[3])).abs() < 1e-12, "the same however it is cut into ubatches");
    }
}

#[test]
fn a_window_hides_the_first_token() {
    let Some(dir) = fixtures("a_window_hides_the_first_token") else { return };
    let model = dir.join("gguf/gemma3-tiny-F16.gguf");
    let out = json(qgguf("attention --json -p").arg("word ".repeat(200)).arg("-m").arg(model));
    for (il, layer) in out["layers"].as_array().unwrap().iter().enumerate() {
        let first = layer["mean"]["first"].as_f64().unwrap();
        // Layer 6 of 7 sees everything, the others 32 positions.
        if il == 5 {
            assert!(layer["window"].is_null() && first > 0.0, "{layer}");
        } else {
            assert_eq!((layer["window"].as_u64(), first), (Some(32), 0.0), "{layer}");
            assert!((layer["even"]["self"].as_f64().unwrap() - 1.0 / 32.0).abs() < 1e-12);
        }
    }
}

#[test]
fn the_table_and_the_picture_have_every_layer() {
    let dir = tempfile::tempdir().unwrap();
    let svg = dir.path().join("a.svg");
    let text = " and the".repeat(40);
    let table = stdout(qgguf("attention --head 0,3 --from 10 -p").arg(&text).arg("--plot").arg(&svg));
    assert_eq!(table.lines().filter(|line| line.contains(" all ")).count(), 4, "{table}");
    assert!(table.starts_with("attention of positions 10 to 79, in %"), "{table}");
    assert!(table.contains("mean over 4 layers"), "{table}");
    let svg = fs::read_to_string(svg).unwrap();
    // A cell for each of 4 layers of 4 heads, twice, and the background.
    assert_eq!(svg.matches("<rect").count(), 33);
}

#[test]
fn what_cannot_be_measured_is_named() {
    let cases = [
        ("-p And", "the prompt has 1 tokens; shares from position 50 on need at least 51"),
        ("-p And --layer 4", "there is no layer 4: the model has 4, from 0 to 3"),
        ("-p And --head 0,7", "there is no head 7: the model has 4, from 0 to 3"),
        ("-p And --plot /nonexistent/a.svg --from 0", "cannot write /nonexistent/a.svg"),
        ("-p And --from 18446744073709551615", "need at least 18446744073709551616"),
        (
            "-p And --from 0 -c 2049",
            "kjv-tiny-Q4_K_M.gguf: expected a context of at most 2048, which the model was trained with, found 2049",
        ),
    ];
    for (args, expected) in cases {
        let line = failure(&mut qgguf(&format!("attention {args}")), 1);
        assert!(line.contains(expected), "{line}");
    }
    stdout(&mut qgguf("attention -p And --from 0 -c 2049 --beyond-training"));
    failure(&mut qgguf("attention -p And --layer first"), 2);
    failure(&mut qgguf("attention -p And --layer 1,,2"), 2);
}
