//! The mask of allowed tokens, at every token of real answers: mean, 99th percentile and maximum over the vocabulary of
//! Qwen 2 and 3 (151,936 logits), and what a grammar costs before the first.
//!
//! `cargo bench --bench grammar`; the vocabularies come from the reference data.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use criterion::{BatchSize, Criterion, criterion_group, criterion_main};
use qgguf::grammar::{Grammar, GrammarFactory, GrammarLimits};
use qgguf::tokenizer::{Tokenizer, TokenizerOptions};
use qgguf_gguf::GgufFile;
use serde_json::json;

/// Logits of Qwen 2 and 3; the vocabulary is padded.
const N_VOCAB: usize = 151_936;

fn tokenizer() -> Option<Arc<Tokenizer>> {
    let fixtures = std::env::var_os("QGGUF_FIXTURES")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/fixtures"), PathBuf::from);
    let file = GgufFile::open(fixtures.join("tokenizer/ggml-vocab-qwen2.gguf")).ok()?;
    Some(Arc::new(Tokenizer::from_metadata(file.metadata(), &TokenizerOptions::default()).ok()?))
}

/// An answer as models write it: nested, with texts, numbers and lists.
fn answer() -> String {
    let people: Vec<_> = (0..12)
        .map(|i| {
            json!({
                "name": format!("Ada Lovelace {i}"), "age": 36 + i, "score": 0.5 + f64::from(i), "member": i % 2 == 0,
                "about": "An English mathematician and writer, chiefly known for her work on Charles Babbage's proposed \
                          mechanical general-purpose computer, the \"Analytical Engine\". Größe: 1,65 m; 日本語も少し。",
                "tags": ["mathematics", "computing", "poetry"],
                "address": {"street": "12 St James's Square", "city": "London", "zip": null},
            })
        })
        .collect();
    serde_json::to_string_pretty(&json!({"people": people, "total": 12})).unwrap_or_default()
}

fn grammars() -> Vec<(&'static str, Grammar)> {
    let person = json!({
        "type": "object",
        "properties": {
            "name": {"type": "string", "maxLength": 40}, "age": {"type": "integer", "minimum": 0, "maximum": 150},
            "score": {"type": "number"}, "member": {"type": "boolean"}, "about": {"type": "string"},
            "tags": {"type": "array", "items": {"enum": ["mathematics", "computing", "poetry"]}, "maxItems": 5},
            "address": {"type": "object", "properties": {
                "street": {"type": "string"}, "city": {"type": "string"}, "zip": {"type": ["string", "null"]}}},
        },
        "required": ["name", "age", "about"], "additionalProperties": false,
    });
    let schema = json!({
        "type": "object",
        "properties": {"people": {"type": "array", "items": {"$ref": "#/$defs/person"}}, "total": {"type": "integer"}},
        "required": ["people"], "$defs": {"person": person},
    });
    let gbnf = r#"
root   ::= object
value  ::= object | array | string | number | ("true" | "false" | "null") ws
object ::= "{" ws ( string ":" ws value ("," ws string ":" ws value)* )? "}" ws
array  ::= "[" ws ( value ("," ws value)* )? "]" ws
string ::= "\"" ( [^"\\\x7F\x00-\x1F] | "\\" (["\\bfnrt] | "u" [0-9a-fA-F]{4}) )* "\"" ws
number ::= "-"? ([0-9] | [1-9] [0-9]{0,15}) ("." [0-9]+)? ([eE] [-+]? [0-9]+)? ws
ws     ::= | " " | "\n" [ \t]{0,20}
"#;
    vec![
        ("object", Grammar::JsonObject),
        ("schema", Grammar::JsonSchema(schema)),
        ("gbnf", Grammar::Gbnf(gbnf.to_owned())),
        ("regex", Grammar::Regex("(?s:.*)".to_owned())),
    ]
}

/// The time of the mask before every token of an answer.
fn mask_times(factory: &GrammarFactory, grammar: &Grammar, tokens: &[u32]) -> Vec<Duration> {
    let mut constraint = factory.compile(grammar).expect("a sound grammar");
    let time = |token: &u32| {
        let start = Instant::now();
        constraint.mask().expect("a mask");
        let time = start.elapsed();
        constraint.accept(*token).expect("the answer keeps to the grammar");
        time
    };
    tokens.iter().map(time).collect()
}

/// The least time of each mask over a few equal answers, ascending: what the machine did meanwhile is no part of it.
fn least_times(factory: &GrammarFactory, grammar: &Grammar, tokens: &[u32]) -> Vec<Duration> {
    let mut least = vec![Duration::MAX; tokens.len()];
    for _ in 0..7 {
        for (least, time) in least.iter_mut().zip(mask_times(factory, grammar, tokens)) {
            *least = time.min(*least);
        }
    }
    least.sort_unstable();
    least
}

fn benches(c: &mut Criterion) {
    let Some(tokenizer) = tokenizer() else { return eprintln!("SKIPPED: no reference data") };
    let tokens = tokenizer.encode_continuation(answer().as_bytes());
    let new = || GrammarFactory::new(tokenizer.clone(), N_VOCAB, GrammarLimits::default());
    let start = Instant::now();
    let factory = new();
    factory.compile(&Grammar::JsonObject).expect("a sound grammar");
    eprintln!("first grammar of a model: {:?}; {} tokens of an answer", start.elapsed(), tokens.len());
    let mut group = c.benchmark_group("grammar");
    group.sample_size(10).measurement_time(Duration::from_secs(3));
    for (name, grammar) in grammars() {
        let start = Instant::now();
        factory.compile(&grammar).expect("a sound grammar");
        let compiled = start.elapsed();
        let times = least_times(&factory, &grammar, &tokens);
        let mean = times.iter().sum::<Duration>() / times.len() as u32;
        let p99 = times[times.len() * 99 / 100];
        eprintln!(
            "{name}: compiled in {compiled:?}; mask: mean {mean:?}, p99 {p99:?}, max {:?}",
            times[times.len() - 1]
        );
        group.bench_function(format!("answer/{name}"), |b| {
            b.iter_batched(|| (), |()| mask_times(&factory, &grammar, &tokens), BatchSize::PerIteration);
        });
    }
    group.finish();
}

criterion_group!(all, benches);
criterion_main!(all);
