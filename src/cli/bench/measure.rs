//! Running a test: random tokens, the context filled to its depth, the clock.

use std::time::Instant;

use qgguf::engine::EngineOptions;
use qgguf::session::Session;
use qgguf::tokenizer::Tokenizer;
use qgguf_kernels::{Kernels, KvType};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

use super::cpu;
use super::plan::Test;
use super::subject::Subject;
use crate::cli::error::{Failure, Result};
use crate::cli::interrupt::Generation;
use crate::cli::terminal;

/// Runs the tests of one model, until Ctrl-C.
pub struct Runner<'a> {
    subject: &'a Subject,
    kernels: Kernels,
    /// What Ctrl-C ends.
    pub running: &'a Generation,
    tokens: Tokens,
    session: Option<(Setup, Session)>,
}

/// What a session is made for.
type Setup = (usize, usize, KvType, KvType);

impl<'a> Runner<'a> {
    /// A runner without a session yet.
    pub fn new(subject: &'a Subject, kernels: Kernels, running: &'a Generation) -> Runner<'a> {
        let tokens = Tokens::new(subject.model.tokenizer());
        Runner { subject, kernels, running, tokens, session: None }
    }

    /// The model.
    pub fn subject(&self) -> &'a Subject {
        self.subject
    }

    /// Makes a session for a test, unless that of the last one will do.
    ///
    /// # Errors
    /// If its keys and values cannot be stored as asked, or it takes more memory than there is.
    pub fn prepare<'b>(&'b mut self, test: &'b Test) -> Result<Run<'b>> {
        let setup = (test.n_threads, test.n_ubatch, test.type_k, test.type_v);
        let options = EngineOptions {
            n_threads: test.n_threads,
            n_threads_batch: 0,
            n_ubatch: test.n_ubatch,
            type_k: test.type_k,
            type_v: test.type_v,
            kernels: self.kernels,
            ..EngineOptions::default()
        };
        // The last session goes before the next one comes: together they would take twice the memory.
        self.session.take_if(|(last, _)| *last != setup);
        let model = &self.subject.model;
        let (_, session) = match &mut self.session {
            Some(last) => last,
            none => none.insert((setup, Session::new(model.clone(), Some(self.subject.n_ctx), &options)?)),
        };
        let needed = self.subject.work.memory_bytes(test);
        if let Some(available) = cpu::available_bytes() {
            let in_use = session.memory();
            let available = (available + in_use.kv + in_use.scratch) as u64;
            if needed > available {
                return Err(Failure::text(format!(
                    "{} positions, {} together, take {} of memory; {} can be had",
                    test.n_ctx(),
                    test.n_together(),
                    terminal::bytes(needed),
                    terminal::bytes(available),
                )));
            }
        }
        Ok(Run { test, running: self.running, session, tokens: &mut self.tokens })
    }
}

/// A test about to be run.
pub struct Run<'a> {
    test: &'a Test,
    running: &'a Generation,
    session: &'a mut Session,
    tokens: &'a mut Tokens,
}

impl Run<'_> {
    /// The session, for what it can tell.
    pub fn session(&self) -> &Session {
        self.session
    }

    /// Makes the context as long as the test's depth. What the last run left there is as good as anything.
    pub fn fill(&mut self) -> Result<()> {
        self.session.truncate(self.test.n_depth);
        let missing = self.test.n_depth - self.session.tokens().len();
        self.prompt(missing)
    }

    /// Does once what will be measured; of a generation, one token.
    pub fn warm_up(&mut self) -> Result<()> {
        self.prompt(self.test.n_prompt)?;
        self.generate(self.test.n_gen.min(1))
    }

    /// Does what is measured and returns the nanoseconds it took.
    pub fn measure(&mut self) -> Result<u64> {
        let start = Instant::now();
        self.prompt(self.test.n_prompt)?;
        self.generate(self.test.n_gen)?;
        Ok(start.elapsed().as_nanos() as u64)
    }

    fn prompt(&mut self, n_tokens: usize) -> Result<()> {
        let mut batch = Vec::with_capacity(n_tokens.min(self.test.n_batch));
        for start in (0..n_tokens).step_by(self.test.n_batch) {
            let n = self.test.n_batch.min(n_tokens - start);
            batch.clear();
            batch.extend(
                (start..start + n).map(|i| if i == 0 { self.tokens.first() } else { self.tokens.any() }),
            );
            self.eval(&batch)?;
        }
        Ok(())
    }

    fn generate(&mut self, n_tokens: usize) -> Result<()> {
        let mut token = self.tokens.first();
        for _ in 0..n_tokens {
            self.eval(&[token])?;
            token = self.tokens.any();
        }
        Ok(())
    }

    fn eval(&mut self, tokens: &[u32]) -> Result<()> {
        if self.running.interrupted() {
            return Err(Failure::Interrupted);
        }
        self.session.eval(tokens)?;
        Ok(())
    }
}

/// Random tokens of a vocabulary, the same in every run of the command.
struct Tokens {
    rng: ChaCha8Rng,
    n_vocab: u32,
    bos: Option<u32>,
}

impl Tokens {
    fn new(tokenizer: &Tokenizer) -> Tokens {
        let n_vocab = u32::try_from(tokenizer.n_vocab()).unwrap_or(u32::MAX).max(1);
        let bos = tokenizer.bos().filter(|_| tokenizer.add_bos());
        Tokens { rng: ChaCha8Rng::from_seed([0; 32]), n_vocab, bos }
    }

    /// What a sequence begins with.
    fn first(&mut self) -> u32 {
        self.bos.unwrap_or_else(|| self.any())
    }

    fn any(&mut self) -> u32 {
        self.rng.next_u32() % self.n_vocab
    }
}
