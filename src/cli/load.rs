//! Opening the model that a command runs, and saying what it is.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use qgguf::engine::EngineOptions;
use qgguf::model::{Model, ModelOptions};
use qgguf::session::Session;
use qgguf::tokenizer::TokenizerOptions;
use qgguf_kernels::{ISA_VARIABLE, Isa, Kernels};

use super::args::{ComputeArgs, ModelArgs};
use super::error::{Context, Failure, Result};
use super::memory;
use super::terminal::{self, note};
use super::trace::Trace;

/// The model in the repository that needs no download.
const TINY_MODEL: &str = "kjv-tiny-Q4_K_M.gguf";
/// The model that `./quickstart` fetches.
const QUICKSTART_MODEL: &str = "SmolLM2-135M-Instruct.Q4_1.gguf";

/// An opened model and a session on it.
pub struct Loaded {
    /// The file.
    pub path: PathBuf,
    /// The model.
    pub model: Arc<Model>,
    /// An empty session.
    pub session: Session,
    /// Where intermediates go, if anywhere.
    pub trace: Option<Trace>,
    /// Time from the start of the command until the session was there.
    pub load_time: Duration,
    /// The model was not named but is the built-in one.
    pub is_default: bool,
}

/// Opens the model of the flags, or the tiny one, and makes a session. Says so on stderr.
pub fn load(model: &ModelArgs, compute: &ComputeArgs, start: Instant) -> Result<Loaded> {
    load_trained(model, compute, true, start)
}

/// [`load`] for measurements, which mean little in a context longer than the model was trained with: that is refused
/// unless `beyond_training`.
pub fn load_trained(
    model: &ModelArgs,
    compute: &ComputeArgs,
    beyond_training: bool,
    start: Instant,
) -> Result<Loaded> {
    let kernels = kernels(compute.isa)?;
    let is_default = model.model.is_none();
    let path = match &model.model {
        Some(path) => path.clone(),
        None => default_model()?,
    };
    let options = ModelOptions {
        mlock: model.mlock,
        no_mmap: model.no_mmap,
        tokenizer: TokenizerOptions { pre_override: model.pre.clone() },
    };
    let opened = Arc::new(Model::open(&path, &options)?);
    let trained = opened.hparams().n_ctx_train;
    // `-c 0` asks for the trained context.
    let n_ctx = match model.ctx_size {
        Some(0) => trained,
        Some(n) => n,
        None => opened.hparams().default_n_ctx(),
    };
    if n_ctx > trained && !beyond_training {
        return Err(Failure::text(format!(
            "{}: expected a context of at most {trained}, which the model was trained with, found {n_ctx} \
             (--beyond-training to allow it)",
            path.display()
        )));
    }
    let mut session = Session::new(
        opened.clone(),
        Some(n_ctx),
        &EngineOptions {
            n_threads: compute.threads.unwrap_or_else(qgguf::threads::default_threads),
            n_threads_batch: compute.threads_batch.unwrap_or(0),
            n_ubatch: compute.ubatch_size,
            type_k: compute.cache_type_k,
            type_v: compute.cache_type_v,
            cache_bytes: None,
            kernels,
        },
    )
    .context(path.display())?;
    let trace = compute.trace.as_deref().map(|dir| Trace::start(dir, &mut session)).transpose()?;
    let loaded = Loaded { path, model: opened, session, trace, load_time: start.elapsed(), is_default };
    loaded.introduce(compute);
    Ok(loaded)
}

/// The kernels of `--isa`, of `QGGUF_ISA`, or the best ones.
pub fn kernels(isa: Option<Isa>) -> Result<Kernels> {
    match isa {
        Some(isa) => Kernels::new(isa).map_err(Failure::usage),
        None => Kernels::from_env().map_err(|e| Failure::usage(format!("{ISA_VARIABLE}: {e}"))),
    }
}

/// The tiny model: in `$QGGUF_MODELS`, in `models/` here, or in the checkout this was built from.
pub fn default_model() -> Result<PathBuf> {
    let dirs = match std::env::var_os("QGGUF_MODELS") {
        Some(dir) => vec![PathBuf::from(dir)],
        None => vec![PathBuf::from("models"), Path::new(env!("CARGO_MANIFEST_DIR")).join("models")],
    };
    let Some(dir) = dirs.iter().find(|dir| dir.join(TINY_MODEL).is_file()) else {
        let looked: Vec<_> = dirs.iter().map(|dir| dir.display().to_string()).collect();
        return Err(Failure::text(format!(
            "no model: give one with -m FILE ({TINY_MODEL}, which is used without -m, is not in {})",
            looked.join(" or ")
        )));
    };
    let larger = dir.join(QUICKSTART_MODEL);
    let hint = if larger.is_file() {
        format!("-m {} for the larger one that ./quickstart got", larger.display())
    } else {
        "-m FILE for another, ./quickstart to get a larger one".to_owned()
    };
    note!("qgguf: no -m given, using the tiny built-in model ({hint})");
    Ok(dir.join(TINY_MODEL))
}

impl Loaded {
    /// What was opened, and what is odd about it.
    fn introduce(&self, compute: &ComputeArgs) {
        let file = self.model.file();
        let hparams = self.model.hparams();
        let n_parameters = file.tensors().iter().map(|t| t.n_elements()).fold(0, u64::saturating_add);
        note!(
            "qgguf: {}: {}, {} parameters, {}, opened in {}",
            terminal::escape(&self.path.display().to_string()),
            terminal::escape(&hparams.arch),
            terminal::count(n_parameters),
            terminal::bytes(file.mapped_bytes()),
            milliseconds(self.load_time),
        );
        self.model
            .warnings()
            .iter()
            .for_each(|warning| note!("qgguf: warning: {}", terminal::escape(warning)));
        note!(
            "qgguf: context {} (trained {}), threads {}, {}",
            self.session.n_ctx(),
            hparams.n_ctx_train,
            match (self.session.options().n_threads, self.session.options().n_threads_batch) {
                (one, batch) if one == batch => one.to_string(),
                (one, batch) => format!("{one} ({batch} for prompts)"),
            },
            self.session.options().kernels.isa(),
        );
        if self.session.n_ctx() > hparams.n_ctx_train {
            note!(
                "qgguf: warning: the context is larger than the model was trained for; text beyond may be poor"
            );
        }
        if compute.verbose {
            note!(
                "qgguf: {} layers, width {}, vocabulary {}, keys {}, values {}, ubatch {}, up to {} of keys and values",
                hparams.n_layer,
                hparams.n_embd,
                hparams.n_vocab,
                compute.cache_type_k.name(),
                compute.cache_type_v.name(),
                compute.ubatch_size,
                terminal::bytes(self.full_kv_bytes(compute)),
            );
        }
    }

    /// Memory for keys and values once the context is full.
    fn full_kv_bytes(&self, compute: &ComputeArgs) -> u64 {
        let n_ctx = self.session.n_ctx();
        self.model.memory_bytes(n_ctx, compute.cache_type_k, compute.cache_type_v) as u64
    }

    /// Says what memory is in use.
    pub fn report_memory(&self) {
        memory::report(&self.session);
    }
}

/// `4.2 ms`, `1.53 s`.
pub fn milliseconds(time: Duration) -> String {
    let ms = time.as_secs_f64() * 1e3;
    if ms < 1000.0 { format!("{ms:.1} ms") } else { format!("{:.2} s", ms / 1e3) }
}
