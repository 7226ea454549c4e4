//! The tests that the flags ask for, in llama-bench's order.

use std::path::PathBuf;

use qgguf_kernels::KvType;

use super::Args;
use super::lists::values;

/// How the weights come into memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum LoadMode {
    /// As the program likes best: mapped
    Auto,
    /// Mapped
    Mmap,
    /// Mapped and locked in memory
    #[value(alias = "mmap+mlock")]
    Mlock,
    /// Read into memory, in huge pages if there are any
    None,
}

impl LoadMode {
    /// The name that llama-bench prints.
    pub fn name(self) -> &'static str {
        match self {
            LoadMode::Auto => "auto",
            LoadMode::Mmap => "mmap",
            LoadMode::Mlock => "mlock",
            LoadMode::None => "none",
        }
    }
}

/// The values of every flag that takes several.
#[derive(Clone, Debug)]
pub struct Lists {
    pub models: Vec<PathBuf>,
    pub n_gpu_layers: Vec<i64>,
    pub load_mode: Vec<LoadMode>,
    pub n_batch: Vec<usize>,
    pub n_ubatch: Vec<usize>,
    pub type_k: Vec<KvType>,
    pub type_v: Vec<KvType>,
    pub flash_attn: Vec<i64>,
    pub n_threads: Vec<usize>,
    pub n_depth: Vec<usize>,
    pub n_prompt: Vec<usize>,
    pub n_gen: Vec<usize>,
    pub n_prompt_gen: Vec<(usize, usize)>,
}

impl Lists {
    /// What the flags say, llama-bench's defaults for the others. `models` are not empty.
    pub fn new(args: &Args, models: Vec<PathBuf>) -> Lists {
        Lists {
            models,
            n_gpu_layers: values(&args.n_gpu_layers, -1),
            load_mode: match args.load_mode.as_slice() {
                [] => values(&args.mmap, LoadMode::Auto),
                given => given.to_vec(),
            },
            n_batch: values(&args.batch_size, 2048),
            n_ubatch: values(&args.ubatch_size, 512),
            type_k: values(&args.cache_type_k, KvType::F16),
            type_v: values(&args.cache_type_v, KvType::F16),
            flash_attn: values(&args.flash_attn, -1),
            n_threads: values(&args.threads, qgguf::threads::default_threads()),
            n_depth: values(&args.n_depth, 0),
            n_prompt: values(&args.n_prompt, 512),
            n_gen: values(&args.n_gen, 128),
            n_prompt_gen: args.pg.clone(),
        }
    }

    /// Every combination of values, each with all prompts, then all generations, then all of both.
    pub fn tests(&self) -> Vec<Test> {
        let shapes: Vec<(usize, usize)> = (self.n_prompt.iter().map(|&p| (p, 0)))
            .chain(self.n_gen.iter().map(|&n| (0, n)))
            .chain(self.n_prompt_gen.iter().copied())
            .filter(|&shape| shape != (0, 0))
            .collect();
        let default = Test {
            model: PathBuf::new(),
            n_gpu_layers: -1,
            load_mode: LoadMode::Auto,
            n_batch: 0,
            n_ubatch: 0,
            type_k: KvType::F16,
            type_v: KvType::F16,
            flash_attn: -1,
            n_threads: 0,
            n_depth: 0,
            n_prompt: 0,
            n_gen: 0,
        };
        let mut tests = vec![default];
        multiply(&mut tests, &self.models, |test, model| test.model = model);
        multiply(&mut tests, &self.n_gpu_layers, |test, n| test.n_gpu_layers = n);
        multiply(&mut tests, &self.load_mode, |test, mode| test.load_mode = mode);
        multiply(&mut tests, &self.n_batch, |test, n| test.n_batch = n);
        multiply(&mut tests, &self.n_ubatch, |test, n| test.n_ubatch = n);
        multiply(&mut tests, &self.type_k, |test, ty| test.type_k = ty);
        multiply(&mut tests, &self.type_v, |test, ty| test.type_v = ty);
        multiply(&mut tests, &self.flash_attn, |test, on| test.flash_attn = on);
        multiply(&mut tests, &self.n_threads, |test, n| test.n_threads = n);
        multiply(&mut tests, &self.n_depth, |test, n| test.n_depth = n);
        multiply(&mut tests, &shapes, |test, (p, n)| (test.n_prompt, test.n_gen) = (p, n));
        tests
    }
}

/// Repeats every test for each of `values`.
fn multiply<T: Clone>(tests: &mut Vec<Test>, values: &[T], set: impl Fn(&mut Test, T)) {
    *tests = tests
        .iter()
        .flat_map(|test| {
            values.iter().map(|value| {
                let mut test = test.clone();
                set(&mut test, value.clone());
                test
            })
        })
        .collect();
}

/// One thing to measure.
#[derive(Clone, Debug)]
pub struct Test {
    pub model: PathBuf,
    pub n_gpu_layers: i64,
    pub load_mode: LoadMode,
    pub n_batch: usize,
    pub n_ubatch: usize,
    pub type_k: KvType,
    pub type_v: KvType,
    pub flash_attn: i64,
    pub n_threads: usize,
    /// Tokens in the context before the measured ones.
    pub n_depth: usize,
    /// Tokens of the prompt.
    pub n_prompt: usize,
    /// Tokens evaluated one by one after it.
    pub n_gen: usize,
}

impl Test {
    /// Tokens that are measured.
    pub fn n_tokens(&self) -> usize {
        self.n_prompt + self.n_gen
    }

    /// Positions that the context has to hold.
    pub fn n_ctx(&self) -> usize {
        self.n_depth + self.n_tokens()
    }

    /// Tokens that are evaluated together, at most.
    pub fn n_together(&self) -> usize {
        self.n_ubatch.min(self.n_batch).min(self.n_prompt.max(self.n_depth).max(1))
    }

    /// `pp512`, `tg128`, `pp512+tg128`.
    pub fn shape_name(&self) -> String {
        match (self.n_prompt, self.n_gen) {
            (p, 0) => format!("pp{p}"),
            (0, n) => format!("tg{n}"),
            (p, n) => format!("pp{p}+tg{n}"),
        }
    }

    /// The name with the depth: `tg128 @ d4096`.
    pub fn name(&self) -> String {
        match self.n_depth {
            0 => self.shape_name(),
            depth => format!("{} @ d{depth}", self.shape_name()),
        }
    }

    /// Whether two tests can use the model as it is open.
    pub fn same_model(&self, other: &Test) -> bool {
        self.model == other.model && self.load_mode == other.load_mode
    }
}
