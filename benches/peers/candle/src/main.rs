//! Measures candle on one GGUF file and prints one JSON object, as `llama_cpp_bench.py` does for llama.cpp.
//!
//!     candle-bench MODEL N_PROMPT N_GEN N_DEPTH
//!
//! Tokens per second; 0 leaves a part out. Threads are candle's own affair: `RAYON_NUM_THREADS`.

use std::error::Error;
use std::fs::File;
use std::io::BufReader;
use std::time::Instant;

use candle_core::quantized::gguf_file::Content;
use candle_core::{Device, Result, Tensor};
use candle_transformers::models::{quantized_llama, quantized_qwen3};

/// Tokens evaluated together, as in the other runtimes.
const N_BATCH: usize = 512;

enum Model {
    Llama(quantized_llama::ModelWeights),
    Qwen3(quantized_qwen3::ModelWeights),
}

impl Model {
    fn load(path: &str) -> std::result::Result<Model, Box<dyn Error>> {
        let mut file = BufReader::new(File::open(path)?);
        let content = Content::read(&mut file)?;
        let architecture = content.metadata.get("general.architecture").ok_or("no general.architecture")?;
        Ok(match architecture.to_string()?.as_str() {
            "llama" => {
                Model::Llama(quantized_llama::ModelWeights::from_gguf(content, &mut file, &Device::Cpu)?)
            }
            "qwen3" => {
                Model::Qwen3(quantized_qwen3::ModelWeights::from_gguf(content, &mut file, &Device::Cpu)?)
            }
            other => return Err(format!("architecture {other}: expected llama or qwen3").into()),
        })
    }

    /// Evaluates `tokens` after the `pos` before them, in batches; the logits of the last one are computed.
    fn decode(&mut self, tokens: &[u32], pos: usize) -> Result<()> {
        for (i, part) in tokens.chunks(N_BATCH).enumerate() {
            let input = Tensor::new(part, &Device::Cpu)?.unsqueeze(0)?;
            let pos = pos + i * N_BATCH;
            match self {
                Model::Llama(model) => model.forward(&input, pos)?,
                Model::Qwen3(model) => model.forward(&input, pos)?,
            };
        }
        Ok(())
    }

    fn clear(&mut self) {
        match self {
            Model::Llama(model) => model.clear_kv_cache(),
            Model::Qwen3(model) => model.clear_kv_cache(),
        }
    }
}

fn main() -> std::result::Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [path, n_prompt, n_gen, n_depth] = args.as_slice() else {
        return Err("usage: candle-bench MODEL N_PROMPT N_GEN N_DEPTH".into());
    };
    let (n_prompt, n_gen, n_depth): (usize, usize, usize) =
        (n_prompt.parse()?, n_gen.parse()?, n_depth.parse()?);
    let mut model = Model::load(path)?;
    // Any tokens will do: both vocabularies have more than 40,000.
    let tokens: Vec<u32> = (0..n_prompt.max(n_gen).max(n_depth) as u32).map(|i| i * 7919 % 40_000).collect();
    let mut found = serde_json::Map::new();
    if n_prompt > 0 {
        model.decode(&tokens[..n_prompt], 0)?;
        model.clear();
        let start = Instant::now();
        model.decode(&tokens[..n_prompt], 0)?;
        found.insert("pp".into(), (n_prompt as f64 / start.elapsed().as_secs_f64()).into());
    }
    if n_gen > 0 {
        model.clear();
        model.decode(&tokens[..1], 0)?;
        model.clear();
        model.decode(&tokens[..n_depth], 0)?;
        let start = Instant::now();
        for (i, token) in tokens[..n_gen].iter().enumerate() {
            model.decode(&[*token], n_depth + i)?;
        }
        found.insert("tg".into(), (n_gen as f64 / start.elapsed().as_secs_f64()).into());
    }
    println!("{}", serde_json::Value::Object(found));
    Ok(())
}
