//! `qgguf serve`: models over HTTP.

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use qgguf::engine::EngineOptions;
use qgguf::engine::service::{Pooling, Service, ServiceOptions};
use qgguf::grammar::{GrammarFactory, GrammarLimits};
use qgguf::model::{Model, ModelOptions};
use qgguf::server::{self, App, Defaults, Endpoints, Keys, Limits, LogFormat, Options, Served, Template};
use qgguf::tokenizer::TokenizerOptions;
use serde_json::{Map, Value};

use super::args::{ComputeArgs, positive, read_text};
use super::error::{Context, Failure, Result};
use super::inspect;
use super::load::{default_model, kernels};
use super::sampling::SamplingArgs;
use super::terminal::{self, note};

/// Threads that read requests and write answers; evaluation has its own.
const HTTP_THREADS: usize = 2;
/// Threads that prepare prompts, at most.
const BLOCKING_THREADS: usize = 32;
/// Where a model file has no chat template: texts one after the other, for models that only continue texts.
const PLAIN_TEMPLATE: &str = "{% for message in messages %}{{ message.content }}{% if not loop.last %}{{ '\\n' }}{% endif %}{% endfor %}";

/// Serve models over HTTP
///
/// OpenAI's, Anthropic's and ollama's interfaces and llama-server's own, for many clients at once. Each gets the same bits as if
/// it were alone.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  qgguf serve -m model.gguf                           http://127.0.0.1:8080/v1
  qgguf serve -m model.gguf --host 0.0.0.0 --api-key-file keys.txt -np 16
  qgguf serve -m small.gguf -a small -m large.gguf -a large")]
pub struct Args {
    /// GGUF file; may be repeated, requests then choose by name [default: the tiny model in models/]
    #[arg(short, long, value_name = "FILE", help_heading = "Model")]
    model: Vec<PathBuf>,
    /// Name of the model in the same place, with commas between several [default: the file's name]
    #[arg(short, long, value_name = "NAMES", help_heading = "Model")]
    alias: Vec<String>,
    /// Positions that all requests on a model may hold together, 0 for as many as it was trained with; a single request may
    /// use all of them [default: the trained context, or what fits 2 GiB of keys and values if that is less]
    #[arg(short, long, value_name = "N", help_heading = "Model")]
    ctx_size: Option<usize>,
    /// Memory for keys and values in MiB, an upper bound on what -c asks for (-cram)
    #[arg(long, value_name = "MIB", value_parser = positive, help_heading = "Model")]
    cache_ram: Option<usize>,
    /// Take this pre-tokenizer instead of the one the file names
    #[arg(long, value_name = "NAME", help_heading = "Model")]
    pre: Option<String>,
    /// Lock the model file in memory
    #[arg(long, conflicts_with = "no_mmap", help_heading = "Model")]
    mlock: bool,
    /// Read the model file into memory instead of using it where it is mapped
    #[arg(long, help_heading = "Model")]
    no_mmap: bool,
    #[command(flatten)]
    template: TemplateArgs,
    #[command(flatten)]
    http: HttpArgs,
    /// Requests evaluated at once (-np)
    #[arg(long, value_name = "N", default_value = "4", value_parser = positive, help_heading = "Batching")]
    parallel: usize,
    /// Tokens of a step, all requests together
    #[arg(short, long, value_name = "N", default_value = "256", value_parser = positive, help_heading = "Batching")]
    batch_size: usize,
    /// Requests that may wait; more are refused with 429
    #[arg(long, value_name = "N", default_value = "256", help_heading = "Batching")]
    queue: usize,
    /// How embeddings are made of the hidden states: mean, cls or last [default: what the file says, or mean]
    #[arg(long, value_name = "NAME", value_parser = pooling, help_heading = "Generation")]
    pooling: Option<Pooling>,
    /// Tokens of an answer at most where a request says nothing, -1 for as many as fit
    #[arg(
        short,
        long,
        value_name = "N",
        default_value = "-1",
        allow_negative_numbers = true,
        help_heading = "Generation"
    )]
    n_predict: i64,
    #[command(flatten)]
    sampling: SamplingArgs,
    #[command(flatten)]
    compute: ComputeArgs,
}

/// How messages become a prompt.
#[derive(clap::Args, Debug)]
#[command(next_help_heading = "Chat template")]
struct TemplateArgs {
    /// Take the chat template (Jinja) from FILE instead of the model file
    #[arg(long, visible_alias = "chat-template", value_name = "FILE")]
    chat_template_file: Option<PathBuf>,
    /// More variables for the template, e.g. '{"enable_thinking": false}'; requests may replace them
    #[arg(long, value_name = "JSON", value_parser = json_object)]
    chat_template_kwargs: Option<Map<String, Value>>,
    /// Answer a conversation that ends with an assistant's message instead of continuing that
    #[arg(long)]
    no_prefill_assistant: bool,
    /// The template is always rendered
    #[arg(long, hide = true)]
    jinja: bool,
}

/// Where and for whom the server listens.
#[derive(clap::Args, Debug)]
#[command(next_help_heading = "Server")]
struct HttpArgs {
    /// Address to listen on
    #[arg(long, value_name = "HOST", default_value = "127.0.0.1")]
    host: String,
    /// Port, 0 for any free one
    #[arg(long, value_name = "PORT", default_value = "8080")]
    port: u16,
    /// Keys, with commas between them; without any, everybody may ask
    #[arg(long, value_name = "KEYS", env = "LLAMA_API_KEY", hide_env_values = true)]
    api_key: Option<String>,
    /// File with a key on each line; # begins a comment
    #[arg(long, value_name = "FILE")]
    api_key_file: Option<PathBuf>,
    /// Names that clients may use for this machine besides addresses and localhost, with commas; * for any
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    allowed_hosts: Vec<String>,
    /// Origins whose pages may use the server, with commas; * for any
    #[arg(long, visible_alias = "cors-origins", value_name = "ORIGINS", value_delimiter = ',')]
    cors_origin: Vec<String>,
    /// What stands in front of every path
    #[arg(long, value_name = "PREFIX", default_value = "")]
    api_prefix: String,
    /// Answer /metrics
    #[arg(long)]
    metrics: bool,
    /// Do not answer /slots
    #[arg(long)]
    no_slots: bool,
    /// Serve no page at /
    #[arg(long, visible_alias = "no-webui")]
    no_ui: bool,
    /// Seconds for a request's body, and for a client that does not read on (-to)
    #[arg(long, value_name = "S", default_value = "60", value_parser = positive)]
    timeout: usize,
    /// Seconds for the head of a request
    #[arg(long, value_name = "S", default_value = "30", value_parser = positive)]
    header_timeout: usize,
    /// Seconds of silence in a stream after which a comment is sent, -1 for never
    #[arg(long, value_name = "S", default_value = "30", allow_negative_numbers = true)]
    sse_ping_interval: i64,
    /// Connections at once
    #[arg(long, value_name = "N", default_value = "2048", value_parser = positive)]
    max_connections: usize,
    /// Bytes of a request's body
    #[arg(long, value_name = "BYTES", default_value = "16777216", value_parser = positive)]
    max_body: usize,
    /// Answers that one request may ask for
    #[arg(long, value_name = "N", default_value = "64", value_parser = positive)]
    max_choices: usize,
    /// Seconds that running requests may take after SIGTERM
    #[arg(long, value_name = "S", default_value = "30")]
    drain_timeout: u64,
    /// How requests are logged on standard error: text, json or off
    #[arg(long, value_name = "FORMAT", default_value = "text", value_parser = log_format)]
    log_format: LogFormat,
}

fn json_object(text: &str) -> Result<Map<String, Value>, String> {
    serde_json::from_str(text).map_err(|e| format!("not a JSON object: {e}"))
}

fn log_format(text: &str) -> Result<LogFormat, String> {
    match text {
        "text" => Ok(LogFormat::Text),
        "json" => Ok(LogFormat::Json),
        "off" => Ok(LogFormat::Off),
        _ => Err("text, json or off".to_owned()),
    }
}

fn pooling(text: &str) -> Result<Pooling, String> {
    match text {
        "mean" => Ok(Pooling::Mean),
        "cls" => Ok(Pooling::Cls),
        "last" => Ok(Pooling::Last),
        _ => Err("mean, cls or last".to_owned()),
    }
}

/// llama.cpp's number for the pooling of an embedding model.
fn pooling_of(model: &Model) -> Pooling {
    match model.file().metadata().u32(&model.hparams().key("pooling_type")) {
        Ok(Some(2)) => Pooling::Cls,
        Ok(Some(3)) => Pooling::Last,
        _ => Pooling::Mean,
    }
}

/// Runs the subcommand.
pub fn run(args: &Args) -> Result<()> {
    if args.compute.trace.is_some() {
        return Err(Failure::usage("--trace: a server has no intermediates to write"));
    }
    let paths = match args.model.as_slice() {
        [] => vec![default_model()?],
        paths => paths.to_vec(),
    };
    if args.alias.len() > paths.len() {
        return Err(Failure::usage(format!("{} models have {} aliases", paths.len(), args.alias.len())));
    }
    let options = args.http.options(!args.template.no_prefill_assistant)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(HTTP_THREADS)
        .max_blocking_threads(BLOCKING_THREADS)
        .enable_all()
        .build()?;
    let drained = runtime.block_on(serve(args, paths, options))?;
    if !drained {
        note!("qgguf: requests were broken off after {} s", args.http.drain_timeout);
    }
    runtime.shutdown_timeout(Duration::from_millis(100));
    Ok(())
}

/// Listens at once, so that clients are told to wait; opens the models meanwhile.
async fn serve(args: &Args, paths: Vec<PathBuf>, options: Options) -> Result<bool> {
    let has_keys = !options.keys.is_empty();
    let app = Arc::new(App::new(options));
    let address = (args.http.host.as_str(), args.http.port);
    let listener = tokio::net::TcpListener::bind(address)
        .await
        .context(format!("cannot listen on {}:{}", args.http.host, args.http.port))?;
    let bound = listener.local_addr()?;
    if !bound.ip().is_loopback() && !has_keys {
        note!("qgguf: warning: {bound} can be reached from other machines, and no --api-key is set");
    }
    let signalled = signalled()?;
    let serving = server::serve(app.clone(), listener, signalled);
    let opening = async {
        let models = tokio::task::block_in_place(|| open_all(args, &paths))?;
        app.ready(models);
        announce(bound, &args.http);
        Ok::<_, Failure>(())
    };
    tokio::pin!(serving);
    tokio::select! {
        drained = &mut serving => return Ok(drained?),
        opened = opening => opened?,
    }
    Ok(serving.await?)
}

fn announce(bound: SocketAddr, http: &HttpArgs) {
    let host = match bound.ip() {
        IpAddr::V6(ip) => format!("[{ip}]"),
        ip => ip.to_string(),
    };
    note!("qgguf: listening on http://{host}:{}{}", bound.port(), http.api_prefix);
}

/// Done at the first signal that asks the server to end; the second one ends it at once.
#[cfg(unix)]
fn signalled() -> Result<impl Future<Output = ()>> {
    use tokio::signal::unix::{SignalKind, signal};
    let (mut term, mut int) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    Ok(async move {
        tokio::select! { _ = term.recv() => {}, _ = int.recv() => {} }
        note!("qgguf: finishing the running requests");
        tokio::spawn(async move {
            let code = tokio::select! { _ = term.recv() => 143, _ = int.recv() => 130 };
            std::process::exit(code);
        });
    })
}

/// Done at Ctrl-C.
#[cfg(not(unix))]
fn signalled() -> Result<impl Future<Output = ()>> {
    Ok(async {
        let _ = tokio::signal::ctrl_c().await;
        note!("qgguf: finishing the running requests");
    })
}

fn open_all(args: &Args, paths: &[PathBuf]) -> Result<Vec<Served>> {
    let mut models: Vec<Served> = Vec::new();
    for (i, path) in paths.iter().enumerate() {
        let names = args.alias.get(i).map_or("", String::as_str);
        let served = open(args, path, names)?;
        let taken = |name: &&String| models.iter().any(|other| other.is_called(name));
        if let Some(name) = served.aliases.iter().chain([&served.name]).find(taken) {
            return Err(Failure::usage(format!("two models are called {name} (--alias names them)")));
        }
        models.push(served);
    }
    Ok(models)
}

/// Opens a model and starts its engine; says what they will use.
fn open(args: &Args, path: &Path, names: &str) -> Result<Served> {
    let options = ModelOptions {
        mlock: args.mlock,
        no_mmap: args.no_mmap,
        tokenizer: TokenizerOptions { pre_override: args.pre.clone() },
    };
    let model = Arc::new(Model::open(path, &options)?);
    for warning in model.warnings() {
        note!("qgguf: warning: {}", terminal::escape(warning));
    }
    let service = start(args, &model).context(path.display())?;
    let settings = args.sampling.settings(&model, false)?;
    let mut names = names.split(',').map(str::trim).filter(|name| !name.is_empty()).map(str::to_owned);
    let file_name = || path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned();
    let name = names.next().unwrap_or_else(file_name);
    let stats = service.stats();
    note!(
        "qgguf: {}: {}, {} mapped; context {} (trained {}), up to {} of keys and values, {} requests at once, {} waiting",
        terminal::escape(&name),
        terminal::escape(&model.hparams().arch),
        terminal::bytes(model.file().mapped_bytes()),
        service.n_ctx(),
        model.hparams().n_ctx_train,
        terminal::bytes(stats.cache_bytes as u64),
        args.parallel,
        args.queue,
    );
    note!(
        "qgguf: {}: sampling: {}",
        terminal::escape(&name),
        terminal::escape(&settings.sampler.params().to_string())
    );
    Ok(Served {
        aliases: names.collect(),
        template: template(args, &model)?,
        grammars: GrammarFactory::new(model.clone(), model.hparams().n_vocab, GrammarLimits::default()),
        pooling: args.pooling.unwrap_or_else(|| pooling_of(&model)),
        defaults: Defaults {
            params: settings.sampler.params().clone(),
            seed: args.sampling.seed(),
            n_predict: usize::try_from(args.n_predict).ok(),
        },
        backend: Box::new(service),
        describe: inspect::file_as_json,
        created: server::now(),
        name,
        model,
    })
}

fn start(args: &Args, model: &Arc<Model>) -> Result<Service> {
    let compute = &args.compute;
    let options = ServiceOptions {
        engine: EngineOptions {
            n_threads: compute.threads.unwrap_or_else(qgguf::threads::default_threads),
            n_threads_batch: compute.threads_batch.unwrap_or(0),
            n_ubatch: compute.ubatch_size,
            type_k: compute.cache_type_k,
            type_v: compute.cache_type_v,
            cache_bytes: args.cache_ram.map(|mib| mib.saturating_mul(1 << 20)),
            kernels: kernels(compute.isa)?,
        },
        n_ctx: match args.ctx_size {
            Some(0) => Some(model.hparams().n_ctx_train),
            other => other,
        },
        n_parallel: args.parallel,
        n_batch: args.batch_size,
        n_queue: args.queue,
    };
    Ok(Service::start(model.clone(), &options)?)
}

fn template(args: &Args, model: &Model) -> Result<Template> {
    let kwargs = args.template.chat_template_kwargs.clone().unwrap_or_default();
    let given = args.template.chat_template_file.as_deref().map(read_text).transpose()?;
    let own = model.file().metadata().str("tokenizer.chat_template")?;
    let source = match (given, own) {
        (Some(text), _) => text,
        (None, Some(text)) => text.to_owned(),
        (None, None) => {
            note!(
                "qgguf: warning: {} has no chat template: conversations are texts that are continued \
                 (--chat-template-file gives one)",
                model.file().path().display()
            );
            PLAIN_TEMPLATE.to_owned()
        }
    };
    Ok(Template { template: model.chat_template_from(&source)?, source, kwargs })
}

impl HttpArgs {
    fn options(&self, prefill_assistant: bool) -> Result<Options> {
        let file = self.api_key_file.as_deref().map(read_text).transpose()?.unwrap_or_default();
        let lines = file.lines().map(str::trim).filter(|line| !line.starts_with('#'));
        let keys = self.api_key.iter().flat_map(|keys| keys.split(',')).map(str::trim).chain(lines);
        let keys = Keys::new(keys);
        if keys.is_empty() && (self.api_key.is_some() || self.api_key_file.is_some()) {
            return Err(Failure::usage("--api-key and --api-key-file: expected a key, found none"));
        }
        let prefix = self.api_prefix.trim_end_matches('/');
        if !prefix.is_empty() && (!prefix.starts_with('/') || prefix.contains(['{', '}', '*', '?', '#'])) {
            return Err(Failure::usage(format!("--api-prefix: expected a path like /llm, found {prefix}")));
        }
        let seconds = |n: usize| Duration::from_secs(n as u64);
        Ok(Options {
            keys,
            allowed_hosts: self.allowed_hosts.clone(),
            cors_origins: self.cors_origin.clone(),
            prefix: prefix.to_owned(),
            limits: Limits { body: self.max_body, choices: self.max_choices, ..Limits::default() },
            header_timeout: seconds(self.header_timeout),
            timeout: seconds(self.timeout),
            ping: u64::try_from(self.sse_ping_interval).ok().filter(|&n| n > 0).map(Duration::from_secs),
            connections: self.max_connections,
            drain_timeout: Duration::from_secs(self.drain_timeout),
            endpoints: Endpoints { metrics: self.metrics, slots: !self.no_slots, page: !self.no_ui },
            prefill_assistant,
            log: self.log_format,
        })
    }
}
