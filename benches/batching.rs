//! Several texts at once: tokens per second of all of them together, for 1 to 32 texts, each behind a prompt of 128
//! tokens, beside what the machine can read and multiply at most.
//!
//! `cargo bench --bench batching -- model.gguf [-t THREADS] [-n TOKENS]` prints a Markdown table; without a model it
//! takes the tiny one. Tokens are drawn as a server draws them, most probable first.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::Parser;
use qgguf::architectures::Outputs;
use qgguf::engine::{Engine, EngineOptions, Segment, Sequence};
use qgguf::model::{Model, ModelOptions};
use qgguf_kernels::{Compute, limits};

/// Texts at once.
const PARALLEL: [usize; 6] = [1, 2, 4, 8, 16, 32];
/// Tokens of each text's prompt.
const PROMPT: usize = 128;
/// Rounds, of which the fastest counts.
const ROUNDS: usize = 3;
/// Bytes that are read to see how fast memory is.
const READ: usize = 512 << 20;

#[derive(Parser)]
struct Args {
    /// GGUF file
    #[arg(default_value = concat!(env!("CARGO_MANIFEST_DIR"), "/models/kjv-tiny-Q4_K_M.gguf"))]
    model: PathBuf,
    /// Threads
    #[arg(short, long, default_value_t = qgguf::threads::default_threads())]
    threads: usize,
    /// Tokens of each text
    #[arg(short, long, default_value_t = 32)]
    n_predict: usize,
    /// What cargo adds
    #[arg(long, hide = true)]
    bench: bool,
}

fn main() -> ExitCode {
    match run(&Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("batching: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &Args) -> Result<(), Box<dyn std::error::Error>> {
    let model = Arc::new(Model::open(&args.model, &ModelOptions::default())?);
    let tied = model.file().tensor("output.weight").is_none();
    // Of embeddings that are not the output matrix too only a few rows are read.
    let used = || model.file().tensors().iter().filter(|tensor| tied || tensor.name != "token_embd.weight");
    let weights: u64 = used().map(|tensor| tensor.n_bytes).sum();
    let multiply_adds: u64 =
        used().filter(|tensor| tensor.shape.len() > 1).map(|tensor| tensor.n_elements()).sum();
    let options = EngineOptions { n_threads: args.threads, ..EngineOptions::default() };
    let compute = Compute::new(options.kernels, args.threads);
    let (bandwidth, rate) = (limits::read_bandwidth(&compute, READ)?, limits::multiply_add_rate(&compute));
    drop(compute);
    let mut engine = Engine::new(model, &options)?;
    println!("{}, {} threads, {}\n", args.model.display(), args.threads, options.kernels.isa());
    println!("| texts | tok/s | × one | limit tok/s | of the limit |");
    println!("|---:|---:|---:|---:|---:|");
    let mut one = None;
    for k in PARALLEL {
        let time = (0..ROUNDS).map(|_| decode(&mut engine, k, args.n_predict)).min().unwrap_or_default();
        let tokens_per_second = (k * args.n_predict) as f64 / time.as_secs_f64();
        // A step reads the weights once and multiplies them with every text's token, whichever takes longer.
        let step = (weights as f64 / bandwidth).max(k as f64 * multiply_adds as f64 / rate);
        let limit = k as f64 / step;
        println!(
            "| {k} | {tokens_per_second:.1} | {:.2} | {limit:.1} | {:.0} % |",
            tokens_per_second / *one.get_or_insert(tokens_per_second),
            100.0 * tokens_per_second / limit,
        );
    }
    Ok(())
}

/// The time of `n_predict` tokens of each of `k` texts.
fn decode(engine: &mut Engine, k: usize, n_predict: usize) -> Duration {
    let n_vocab = engine.model().hparams().n_vocab;
    let prompt = |i: usize| (0..PROMPT).map(|t| ((i * 31 + t * 17) % n_vocab) as u32).collect::<Vec<u32>>();
    let mut texts: Vec<(Sequence, u32)> = (0..k)
        .map(|i| {
            let mut sequence = engine.sequence(PROMPT + n_predict);
            let tokens = prompt(i);
            let segment = Segment { sequence: &mut sequence, tokens: &tokens, outputs: Outputs::Last };
            let last = argmax(engine.eval(&mut [segment]).expect("room for a prompt").logits);
            (sequence, last)
        })
        .collect();
    let start = Instant::now();
    for _ in 0..n_predict {
        let mut segments: Vec<Segment<'_>> = texts
            .iter_mut()
            .map(|(sequence, last)| Segment {
                sequence,
                tokens: std::slice::from_ref(last),
                outputs: Outputs::Last,
            })
            .collect();
        let logits = engine.eval(&mut segments).expect("room for a token").logits;
        let next: Vec<u32> = logits.chunks_exact(n_vocab).map(argmax).collect();
        texts.iter_mut().zip(next).for_each(|((_, last), next)| *last = next);
    }
    start.elapsed()
}

fn argmax(logits: &[f32]) -> u32 {
    let best = (1..logits.len()).fold(0, |best, i| if logits[i] > logits[best] { i } else { best });
    best as u32
}
