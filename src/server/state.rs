//! What all requests share: the models that are served, the settings of the server, the counters.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{SystemTime, UNIX_EPOCH};

use qgguf_gguf::GgufFile;
use serde_json::{Map, Value};
use tokio::sync::Semaphore;

use crate::chat_template::ChatTemplate;
use crate::engine::service::Pooling;
use crate::grammar::GrammarFactory;
use crate::model::Model;

use super::backend::Backend;
use super::error::{ApiError, Result};
use super::metrics::Metrics;
use super::options::Options;
use super::settings::Defaults;

/// A model that is served, with what it needs beside its engine.
pub struct Served {
    /// The name that responses carry.
    pub name: String,
    /// Other names that select it.
    pub aliases: Vec<String>,
    /// Tokenizer, hyper-parameters, file.
    pub model: Arc<Model>,
    /// What evaluates.
    pub backend: Box<dyn Backend>,
    /// How messages become a prompt.
    pub template: Template,
    /// Compiles what answers are held to.
    pub grammars: GrammarFactory,
    /// How texts become vectors.
    pub pooling: Pooling,
    /// Settings where a request has none.
    pub defaults: Defaults,
    /// Writes what is in its file as JSON.
    pub describe: fn(&GgufFile) -> io::Result<Vec<u8>>,
    /// When it was opened, in seconds since 1970.
    pub created: u64,
}

/// A chat template and what is known about it.
pub struct Template {
    /// Its renderer.
    pub template: ChatTemplate,
    /// Its text.
    pub source: String,
    /// Variables that requests may replace.
    pub kwargs: Map<String, Value>,
}

impl Served {
    /// Whether a name selects this model.
    pub fn is_called(&self, name: &str) -> bool {
        self.name == name || self.aliases.iter().any(|alias| alias == name)
    }

    /// Number of parameters.
    pub fn n_params(&self) -> u64 {
        self.model.file().tensors().iter().map(|tensor| tensor.n_elements()).fold(0, u64::saturating_add)
    }

    /// Positions that a sequence may hold.
    pub fn n_ctx(&self) -> usize {
        self.backend.n_ctx()
    }
}

/// The state behind every handler.
pub struct App {
    /// How the server was started.
    pub options: Options,
    /// The counters.
    pub metrics: Arc<Metrics>,
    models: OnceLock<Vec<Arc<Served>>>,
    draining: AtomicBool,
    ids: Ids,
    /// Places for requests that are being prepared.
    preparing: Semaphore,
}

/// Requests prepared at once: templates and tokenizers keep a processor busy.
const PREPARING: usize = 8;

impl App {
    /// A server whose models are still being opened.
    pub fn new(options: Options) -> App {
        App {
            options,
            metrics: Arc::default(),
            models: OnceLock::new(),
            draining: AtomicBool::new(false),
            ids: Ids::default(),
            preparing: Semaphore::new(PREPARING),
        }
    }

    /// Does the work that precedes an answer (templates, tokens, grammars) on a thread where it keeps nobody waiting.
    ///
    /// # Errors
    /// Those of the work.
    pub async fn prepare<T: Send + 'static>(
        self: Arc<App>,
        work: impl FnOnce(&App) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let app = self.clone();
        let _place = self.preparing.acquire().await;
        let done = tokio::task::spawn_blocking(move || work(&app)).await;
        done.unwrap_or_else(|_| Err(ApiError::internal("the request could not be prepared")))
    }

    /// The models are there: requests are taken from now on. Only the first call counts.
    pub fn ready(&self, models: Vec<Served>) {
        let _ = self.models.set(models.into_iter().map(Arc::new).collect());
    }

    /// All models.
    ///
    /// # Errors
    /// 503 while they are being opened.
    pub fn models(&self) -> Result<&[Arc<Served>]> {
        let models = self.models.get().ok_or_else(|| ApiError::unavailable("Loading model"))?;
        Ok(models)
    }

    /// The model that a request names. Where there is only one, any name means it.
    ///
    /// # Errors
    /// 503 while models are being opened, 404 for an unknown name.
    pub fn model(&self, name: Option<&str>) -> Result<Arc<Served>> {
        let models = self.models()?;
        let [first, rest @ ..] = models else { return Err(ApiError::internal("no model is served")) };
        let Some(name) = name.filter(|_| !rest.is_empty()) else { return Ok(first.clone()) };
        models.iter().find(|served| served.is_called(name)).cloned().ok_or_else(|| {
            let names: Vec<&str> = models.iter().map(|served| served.name.as_str()).collect();
            let error =
                ApiError::not_found(format!("there is no model '{name}'; served: {}", names.join(", ")));
            ApiError { param: Some("model".to_owned()), ..error }
        })
    }

    /// Takes no new requests from now on.
    pub fn drain(&self) {
        self.draining.store(true, Ordering::SeqCst);
        for served in self.models.get().into_iter().flatten() {
            served.backend.drain();
        }
    }

    /// Whether [`App::drain`] was called.
    pub fn is_draining(&self) -> bool {
        self.draining.load(Ordering::SeqCst)
    }

    /// A new id with a prefix, unlike any other.
    pub fn id(&self, prefix: &str) -> String {
        self.ids.next(prefix)
    }
}

/// Ids that nobody else has: random bits, and a count.
#[derive(Debug)]
struct Ids {
    random: std::hash::RandomState,
    count: AtomicU64,
}

impl Default for Ids {
    fn default() -> Ids {
        Ids { random: std::hash::RandomState::new(), count: AtomicU64::new(0) }
    }
}

impl Ids {
    fn next(&self, prefix: &str) -> String {
        use std::hash::BuildHasher;
        let n = self.count.fetch_add(1, Ordering::Relaxed);
        format!("{prefix}{:016x}{:08x}", self.random.hash_one(n), n as u32)
    }
}

/// Seconds since 1970.
pub fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs())
}
