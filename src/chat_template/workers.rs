//! The threads on which a template is rendered.
//!
//! The compiler and the engine recurse over the longest chain (`elif`, `a.b.c`) that a template can hold, so they need a
//! large stack. Each thread compiles the template once and renders one prompt after another. There is one at first; more
//! are started when renderings wait, so that a slow one does not hold up the others.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};

use minijinja::{Environment, Value};

use super::program::Program;
use super::{TemplateError, environment};
use crate::threads::lock;

/// Only reserved: pages that are never touched cost nothing.
const STACK: usize = 64 << 20;

/// More renderings wait for each other.
const MAX_THREADS: usize = 4;

/// The threads end with the last of their owners.
pub(super) struct Workers {
    jobs: Sender<Job>,
    shared: Arc<Shared>,
    n_threads: Mutex<usize>,
}

struct Shared {
    /// As [`super::source::for_engine`] makes it.
    source: String,
    queue: Mutex<Receiver<Job>>,
    /// Jobs that wait or are at work.
    pending: AtomicUsize,
}

/// One rendering.
struct Job {
    context: Value,
    fuel: u64,
    reply: Sender<Result<String, TemplateError>>,
}

impl Workers {
    /// Compiles a template.
    ///
    /// # Errors
    /// It does not compile, or no thread can be started.
    pub(super) fn start(source: String) -> Result<Workers, TemplateError> {
        let (jobs, queue) = channel();
        let shared = Arc::new(Shared { source, queue: Mutex::new(queue), pending: AtomicUsize::new(0) });
        let (compiled, result) = channel();
        shared.spawn(move |result| drop(compiled.send(result)))?;
        result.recv().unwrap_or_else(|_| Err(panicked()))?;
        Ok(Workers { jobs, shared, n_threads: Mutex::new(1) })
    }

    /// The template's text.
    pub(super) fn source(&self) -> &str {
        &self.shared.source
    }

    /// Renders with the variables of `context` and a budget of `fuel`.
    pub(super) fn render(&self, context: Value, fuel: u64) -> Result<String, TemplateError> {
        let (reply, result) = channel();
        self.add_thread(self.shared.pending.fetch_add(1, Ordering::Relaxed) + 1);
        let sent = self.jobs.send(Job { context, fuel, reply });
        let result = sent.ok().and_then(|()| result.recv().ok());
        self.shared.pending.fetch_sub(1, Ordering::Relaxed);
        result.unwrap_or_else(|| Err(panicked()))
    }

    /// Starts one more thread if there are fewer than `wanted`. Without one the rendering waits, which is no error.
    fn add_thread(&self, wanted: usize) {
        let mut n_threads = lock(&self.n_threads);
        if *n_threads < wanted.min(MAX_THREADS) && self.shared.spawn(drop).is_ok() {
            *n_threads += 1;
        }
    }
}

impl Shared {
    fn spawn(
        self: &Arc<Shared>,
        compiled: impl FnOnce(Result<(), TemplateError>) + Send + 'static,
    ) -> Result<(), TemplateError> {
        let shared = Arc::clone(self);
        let thread = std::thread::Builder::new().name("chat-template".into()).stack_size(STACK);
        let started = thread.spawn(move || shared.work(compiled));
        started.map(drop).map_err(|e| TemplateError::limit(None, format!("cannot start a thread: {e}")))
    }

    /// Renders until the last owner is gone.
    fn work(&self, compiled: impl FnOnce(Result<(), TemplateError>)) {
        let program = catch_unwind(|| Program::compile(&self.source)).unwrap_or_else(|_| Err(panicked()));
        compiled(program.as_ref().map(drop).map_err(Clone::clone));
        let environment = environment::environment();
        loop {
            let Ok(job) = lock(&self.queue).recv() else { return };
            let Job { context, fuel, reply } = job;
            let render = || match &program {
                Ok(program) => self.render(program, environment.clone(), context, fuel),
                Err(error) => Err(error.clone()),
            };
            // A panic would be a fault of the engine. It must not end the thread, and with it all renderings to come.
            let result = catch_unwind(AssertUnwindSafe(render)).unwrap_or_else(|_| Err(panicked()));
            // Nobody waits if the caller is gone.
            let _ = reply.send(result);
        }
    }

    fn render(
        &self,
        program: &Program,
        mut environment: Environment<'static>,
        context: Value,
        fuel: u64,
    ) -> Result<String, TemplateError> {
        environment.set_fuel(Some(fuel));
        program.run(&environment, context).map_err(|e| TemplateError::new(&e, &self.source))
    }
}

fn panicked() -> TemplateError {
    TemplateError::limit(None, "the template engine failed".to_owned())
}
