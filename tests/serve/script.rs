//! A server whose engine answers from a script.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, OnceLock};
use std::thread;
use std::time::Duration;

use qgguf::engine::generation::StopReason;
use qgguf::engine::service::{
    Event, Histogram, Logprob, Outcome, Request, Slot, SlotState, Stats, SubmitError, Task, TokenLogprobs,
};
use qgguf::grammar::{GrammarFactory, GrammarLimits};
use qgguf::model::Model;
use qgguf::server::backend::{Backend, Running};
use qgguf::server::{App, Defaults, Options, Served, Template, serve};
use qgguf::tokenizer::Detokenizer;
use serde_json::{Map, Value};
use tokio::sync::oneshot;

use super::client::{self, Reply};

/// The tiny model, whose tokenizer the scripts are written with.
pub fn model() -> Arc<Model> {
    static MODEL: OnceLock<Arc<Model>> = OnceLock::new();
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("models/kjv-tiny-Q4_K_M.gguf");
    MODEL.get_or_init(|| Arc::new(Model::open(path, &Default::default()).unwrap())).clone()
}

/// What the engine does with requests.
pub struct Script {
    model: Arc<Model>,
    /// The answers, in the order of the requests; the last one again and again.
    answers: Mutex<VecDeque<String>>,
    /// Requests are not answered before the gate is open.
    gate: (Mutex<bool>, Condvar),
    /// Requests taken at once; more are refused.
    capacity: usize,
    running: AtomicUsize,
    pub n_cancelled: AtomicUsize,
    /// The prompts that came.
    pub prompts: Mutex<Vec<Vec<u32>>>,
}

impl Script {
    pub fn new(answers: &[&str]) -> Script {
        Script {
            model: model(),
            answers: Mutex::new(answers.iter().map(|&text| text.to_owned()).collect()),
            gate: (Mutex::new(true), Condvar::new()),
            capacity: 64,
            running: AtomicUsize::new(0),
            n_cancelled: AtomicUsize::new(0),
            prompts: Mutex::default(),
        }
    }

    /// Takes so many requests at once.
    pub fn with_capacity(mut self, capacity: usize) -> Script {
        self.capacity = capacity;
        self
    }

    /// Answers nothing until [`Script::open`].
    pub fn closed(self) -> Script {
        *self.gate.0.lock().unwrap() = false;
        self
    }

    pub fn open(&self) {
        *self.gate.0.lock().unwrap() = true;
        self.gate.1.notify_all();
    }

    /// The prompts that came, as text.
    pub fn prompt_texts(&self) -> Vec<String> {
        let prompts = self.prompts.lock().unwrap();
        prompts.iter().map(|prompt| self.model.tokenizer().decode(prompt)).collect()
    }

    fn next_answer(&self) -> String {
        let mut answers = self.answers.lock().unwrap();
        if answers.len() > 1 {
            answers.pop_front().unwrap()
        } else {
            answers.front().cloned().unwrap_or_default()
        }
    }

    /// Plays one answer; false if it was broken off.
    fn play(&self, mut request: Request, answer: &str, cancelled: &AtomicBool) -> bool {
        let mut open = self.gate.0.lock().unwrap();
        while !*open && !cancelled.load(Ordering::SeqCst) {
            open = self.gate.1.wait_timeout(open, Duration::from_millis(5)).unwrap().0;
        }
        drop(open);
        let mut tell = |event| !cancelled.load(Ordering::SeqCst) && (request.sink)(event).is_continue();
        let n_prompt = request.prompt.len();
        let Task::Generate(generate) = request.task else {
            return tell(Event::Embedding(vec![3.0, 4.0]));
        };
        let n_cached = usize::from(n_prompt > 1);
        if !tell(Event::Started { n_cached }) || !tell(Event::Prompt { done: n_prompt, total: n_prompt }) {
            return false;
        }
        let logprobs = |token: u32| {
            let token = Logprob { token, logprob: -0.5 };
            TokenLogprobs { token, top: vec![token, Logprob { token: 0, logprob: f32::NEG_INFINITY }] }
        };
        if generate.prompt_logprobs {
            tell(Event::PromptLogprobs(request.prompt[1..].iter().map(|&token| logprobs(token)).collect()));
        }
        let tokenizer = self.model.tokenizer();
        let mut stream = Detokenizer::default();
        let mut tokens = tokenizer.encode(answer, false, true);
        let cut = generate.options.n_predict.filter(|&n| n < tokens.len());
        tokens.truncate(cut.unwrap_or(usize::MAX));
        for &token in &tokens {
            let logprobs = generate.n_logprobs.map(|_| logprobs(token));
            if !tell(Event::Token { token, text: stream.push(tokenizer, token), logprobs }) {
                return false;
            }
        }
        let eos = tokenizer.eos().unwrap();
        let stop = if cut.is_some() { StopReason::Length } else { StopReason::EndOfGeneration(eos) };
        tell(Event::Done(Outcome {
            stop,
            text: stream.finish(),
            n_prompt,
            n_cached,
            n_generated: tokens.len(),
            queued: Duration::from_millis(1),
            prompt: Duration::from_millis(2),
            decode: Duration::from_millis(4),
        }))
    }
}

/// The handle that the server has.
struct Engine(Arc<Script>);

struct Ticket(Arc<AtomicBool>);

impl Running for Ticket {
    fn cancel(&self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

impl Backend for Engine {
    fn n_ctx(&self) -> usize {
        self.0.model.hparams().n_ctx_train
    }

    fn submit(&self, request: Request) -> Result<Box<dyn Running>, SubmitError> {
        let script = self.0.clone();
        if script.running.fetch_add(1, Ordering::SeqCst) >= script.capacity {
            script.running.fetch_sub(1, Ordering::SeqCst);
            return Err(SubmitError::QueueFull { n_queue: script.capacity });
        }
        script.prompts.lock().unwrap().push(request.prompt.clone());
        let answer = script.next_answer();
        let cancelled = Arc::new(AtomicBool::new(false));
        let ticket = Ticket(cancelled.clone());
        thread::spawn(move || {
            if !script.play(request, &answer, &cancelled) {
                script.n_cancelled.fetch_add(1, Ordering::SeqCst);
            }
            script.running.fetch_sub(1, Ordering::SeqCst);
        });
        Ok(Box::new(ticket))
    }

    fn stats(&self) -> Stats {
        let n_running = self.0.running.load(Ordering::SeqCst);
        let state = |i: usize| if i < n_running { SlotState::Generating } else { SlotState::Idle };
        Stats {
            n_prompt: 10,
            n_cached: 2,
            prompt_time: Duration::from_secs(5),
            n_generated: 20,
            decode_time: Duration::from_secs(4),
            n_steps: 10,
            n_busy: 15,
            n_parked: 0,
            n_tokens_max: 30,
            n_waiting: 1,
            cache_bytes_in_use: 1,
            cache_bytes: 4,
            slots: (0..self.0.capacity).map(|i| Slot { state: state(i), ..Slot::default() }).collect(),
            queue_time: Histogram::default(),
            time_to_first_token: Histogram::default(),
            time_between_tokens: Histogram::default(),
        }
    }

    fn drain(&self) {}

    fn is_idle(&self) -> bool {
        self.0.running.load(Ordering::SeqCst) == 0
    }
}

/// A server that runs until it is dropped.
pub struct Server {
    pub address: SocketAddr,
    pub script: Arc<Script>,
    pub app: Arc<App>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<thread::JoinHandle<bool>>,
}

/// Messages as lines: the role, a colon, the text.
pub const TEMPLATE: &str = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}{% if add_generation_prompt %}assistant:{% endif %}";

/// The tiny model under a name, answered for by a script.
pub fn served(name: &str, script: Arc<Script>) -> Served {
    let model = model();
    Served {
        name: name.to_owned(),
        aliases: vec![format!("{name}-alias")],
        template: Template {
            template: model.chat_template_from(TEMPLATE).unwrap(),
            source: TEMPLATE.to_owned(),
            kwargs: Map::new(),
        },
        backend: Box::new(Engine(script)),
        grammars: GrammarFactory::new(model.clone(), model.hparams().n_vocab, GrammarLimits::default()),
        pooling: qgguf::engine::service::Pooling::Mean,
        defaults: Defaults::default(),
        describe: |_| Ok(b"{}".to_vec()),
        created: 1_700_000_000,
        model,
    }
}

impl Server {
    /// A server of one model called `tiny`.
    pub fn start(script: Script) -> Server {
        Server::with(script, quiet())
    }

    pub fn with(script: Script, options: Options) -> Server {
        let script = Arc::new(script);
        let server = Server::loading(script.clone(), options);
        server.app.ready(vec![served("tiny", script)]);
        server
    }

    /// A server whose model is not there yet.
    pub fn loading(script: Arc<Script>, options: Options) -> Server {
        let app = Arc::new(App::new(options));
        let (stop, stopped) = oneshot::channel();
        let (tell, told) = std::sync::mpsc::channel();
        let behind = app.clone();
        let thread = thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
                tell.send(listener.local_addr().unwrap()).unwrap();
                serve(behind, listener, async { drop(stopped.await) }).await.unwrap()
            })
        });
        Server { address: told.recv().unwrap(), script, app, stop: Some(stop), thread: Some(thread) }
    }

    /// Asks the server to end, and waits; whether all requests were finished.
    pub fn end(&mut self) -> bool {
        drop(self.stop.take());
        self.thread.take().is_none_or(|thread| thread.join().unwrap())
    }

    /// Asks the server to end.
    pub fn begin_to_end(&mut self) {
        drop(self.stop.take());
    }

    /// The pieces in which the script tells a text.
    pub fn script_pieces(&self, text: &str) -> Vec<String> {
        let model = model();
        let mut stream = Detokenizer::default();
        let tokenizer = model.tokenizer();
        let tokens = tokenizer.encode(text, false, true);
        tokens
            .into_iter()
            .map(|token| stream.push(tokenizer, token))
            .filter(|piece| !piece.is_empty())
            .collect()
    }

    pub fn get(&self, path: &str) -> Reply {
        client::send(self.address, "GET", path, &[], "")
    }

    pub fn post(&self, path: &str, body: &Value) -> Reply {
        client::send(self.address, "POST", path, &[("Content-Type", "application/json")], &body.to_string())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.script.open();
        drop(self.stop.take());
    }
}

/// Options of a server that writes no log.
pub fn quiet() -> Options {
    Options { log: qgguf::server::LogFormat::Off, ..Options::default() }
}

/// Waits until something holds, which must be soon.
pub fn eventually(what: &str, holds: impl Fn() -> bool) {
    for _ in 0..2000 {
        if holds() {
            return;
        }
        thread::sleep(Duration::from_millis(5));
    }
    panic!("never: {what}");
}
