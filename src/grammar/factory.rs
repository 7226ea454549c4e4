//! From grammars to constraints: one factory per model, with limits and a deadline on what it compiles.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, mpsc};
use std::thread;
use std::time::Duration;

use llguidance::api::TopLevelGrammar;
use llguidance::{Matcher, ParserFactory};
use serde_json::Value;
use toktrie::TokEnv;

use super::cache::Cache;
use super::constraint::GrammarConstraint;
use super::vocabulary::{Owner, Vocabulary};
use super::{Grammar, GrammarError, gbnf, schema};
use crate::sampler::Constraint;
use crate::tokenizer::Tokenizer;

/// What a grammar may cost. The defaults are for text from strangers.
#[derive(Clone, Debug)]
pub struct GrammarLimits {
    /// Bytes of a schema, grammar or regular expression.
    pub text: usize,
    /// How deep a schema's values may be nested.
    pub depth: usize,
    /// Objects, arrays and plain values in a schema.
    pub nodes: usize,
    /// Time until a grammar is compiled.
    pub time: Duration,
    /// Grammars compiled at once, those whose time is over included.
    pub at_once: usize,
}

impl Default for GrammarLimits {
    fn default() -> Self {
        GrammarLimits { text: 256 << 10, depth: 64, nodes: 20_000, time: Duration::from_secs(5), at_once: 4 }
    }
}

/// Stack of a compiling thread: the engine recurses over nested schemas and expressions.
const STACK: usize = 64 << 20;

/// Compiles grammars for one model. To be shared; the vocabulary's tree is built at the first use.
pub struct GrammarFactory {
    owner: Owner,
    n_vocab: usize,
    limits: GrammarLimits,
    engine: OnceLock<Result<Engine, GrammarError>>,
    cache: Mutex<Cache<GrammarConstraint>>,
    running: Arc<AtomicUsize>,
}

/// The engine over the model's vocabulary.
#[derive(Clone)]
struct Engine {
    owner: Owner,
    vocabulary: TokEnv,
    parsers: Arc<ParserFactory>,
}

impl GrammarFactory {
    /// A factory for a model (or a tokenizer alone) whose logits are `n_vocab` numbers.
    pub fn new<T>(owner: Arc<T>, n_vocab: usize, limits: GrammarLimits) -> GrammarFactory
    where
        T: AsRef<Tokenizer> + Send + Sync + 'static,
    {
        GrammarFactory {
            owner,
            n_vocab,
            limits,
            engine: OnceLock::new(),
            cache: Mutex::new(Cache::new()),
            running: Arc::default(),
        }
    }

    /// A constraint at the start of a text.
    ///
    /// # Errors
    /// What cannot be taken, and where; too large, too complex, too slow; too many compilations at once.
    pub fn compile(&self, grammar: &Grammar) -> Result<Box<dyn Constraint>, GrammarError> {
        let key = grammar.text(self.limits.text)?;
        if let Some(kept) = self.cache().get(&key) {
            return Ok(Box::new(kept.fresh()));
        }
        let compiled = self.compile_in_time(grammar.clone())?;
        let fresh = compiled.fresh();
        self.cache().insert(key, compiled);
        Ok(Box::new(fresh))
    }

    /// The tokenizer of the model.
    pub fn tokenizer(&self) -> &Tokenizer {
        (*self.owner).as_ref()
    }

    /// Numbers in the logits, hence tokens in a mask.
    pub fn n_vocab(&self) -> usize {
        self.n_vocab
    }

    /// The limits in force.
    pub fn limits(&self) -> &GrammarLimits {
        &self.limits
    }

    /// Compiles on a thread of its own: with a stack that is large enough, and no longer than the caller wants to wait.
    fn compile_in_time(&self, grammar: Grammar) -> Result<GrammarConstraint, GrammarError> {
        let kind = grammar.kind();
        let engine = self.engine()?;
        let limits = self.limits.clone();
        let place = Place::take(&self.running, self.limits.at_once)?;
        let (send, receive) = mpsc::sync_channel(1);
        let work = move || {
            // Nobody may be waiting any more.
            let _ = send.send(engine.compile(&grammar, &limits));
            drop(place);
        };
        thread::Builder::new()
            .name("grammar".to_owned())
            .stack_size(STACK)
            .spawn(work)
            .map_err(|error| GrammarError::Compile { kind, reason: format!("no thread: {error}") })?;
        wait(&receive, kind, self.limits.time)
    }

    /// The tree of the model's tokens.
    pub(super) fn vocabulary(&self) -> Result<TokEnv, GrammarError> {
        self.engine().map(|engine| engine.vocabulary)
    }

    fn engine(&self) -> Result<Engine, GrammarError> {
        self.engine.get_or_init(|| Engine::new(self.owner.clone(), self.n_vocab)).clone()
    }

    fn cache(&self) -> MutexGuard<'_, Cache<GrammarConstraint>> {
        // What is cached is whole at every moment.
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What the compiling thread says within the time.
fn wait<T>(
    receive: &mpsc::Receiver<Result<T, GrammarError>>,
    kind: &'static str,
    limit: Duration,
) -> Result<T, GrammarError> {
    match receive.recv_timeout(limit) {
        Ok(result) => result,
        Err(mpsc::RecvTimeoutError::Timeout) => Err(GrammarError::TooSlow { kind, limit }),
        Err(mpsc::RecvTimeoutError::Disconnected) => {
            Err(GrammarError::Compile { kind, reason: "the engine failed".to_owned() })
        }
    }
}

impl Engine {
    fn new(owner: Owner, n_vocab: usize) -> Result<Engine, GrammarError> {
        let vocabulary: TokEnv = Arc::new(Vocabulary::new(owner.clone(), n_vocab)?);
        let mut parsers = ParserFactory::new_simple(&vocabulary)
            .map_err(|error| GrammarError::Vocabulary(first_line(&error.to_string())))?;
        parsers.quiet();
        let limits = parsers.limits_mut();
        limits.max_items_in_row = 1_000;
        limits.initial_lexer_fuel = 500_000;
        limits.max_lexer_states = 25_000;
        limits.max_grammar_size = 200_000;
        limits.verbose_errors = false;
        Ok(Engine { owner, vocabulary, parsers: Arc::new(parsers) })
    }

    fn compile(&self, grammar: &Grammar, limits: &GrammarLimits) -> Result<GrammarConstraint, GrammarError> {
        match grammar {
            Grammar::JsonObject => self.compile_schema(schema::any_object()),
            Grammar::JsonSchema(value) => self.compile_schema(schema::prepare(value, limits)?),
            Grammar::Gbnf(text) => {
                let tokenizer = (*self.owner).as_ref();
                let n_vocab = self.vocabulary.tok_trie().vocab_size();
                let lark = gbnf::to_lark(text, &|name| gbnf_token(tokenizer, n_vocab, name))?;
                self.start(TopLevelGrammar::from_lark(lark)).map_err(|reason| grammar.failed(reason))
            }
            Grammar::Regex(text) => {
                let error = |error| GrammarError::Regex(syntax_reason(&error));
                regex_syntax::parse(text).map_err(error)?;
                self.start(TopLevelGrammar::from_regex(text)).map_err(|reason| grammar.failed(reason))
            }
            Grammar::Lark(text) => {
                self.start(TopLevelGrammar::from_lark(text.clone())).map_err(|reason| grammar.failed(reason))
            }
        }
    }

    fn compile_schema(&self, schema: Value) -> Result<GrammarConstraint, GrammarError> {
        self.start(TopLevelGrammar::from_json_schema(schema.clone()))
            .map_err(|reason| schema::explain(&schema, reason))
    }

    /// A constraint at the start of a text, or the engine's reason why there is none.
    fn start(&self, grammar: TopLevelGrammar) -> Result<GrammarConstraint, String> {
        let matcher = Matcher::new(self.parsers.create_parser(grammar));
        match matcher.get_error() {
            Some(error) => Err(first_line(&error)),
            None => GrammarConstraint::new(matcher, self.vocabulary.clone()).map_err(|error| error.0),
        }
    }
}

impl Grammar {
    fn kind(&self) -> &'static str {
        match self {
            Grammar::JsonObject | Grammar::JsonSchema(_) => "the JSON schema",
            Grammar::Regex(_) => "the regular expression",
            Grammar::Gbnf(_) | Grammar::Lark(_) => "the grammar",
        }
    }

    fn failed(&self, reason: String) -> GrammarError {
        GrammarError::Compile { kind: self.kind(), reason }
    }

    /// What tells it from others of its kind, if that is no longer than `limit`.
    fn text(&self, limit: usize) -> Result<String, GrammarError> {
        let (name, text, what) = match self {
            Grammar::JsonObject => ("object", String::new(), "bytes of the JSON schema"),
            Grammar::JsonSchema(schema) => ("schema", schema.to_string(), "bytes of the JSON schema"),
            Grammar::Gbnf(text) => ("gbnf", text.clone(), "bytes of the grammar"),
            Grammar::Regex(text) => ("regex", text.clone(), "bytes of the regular expression"),
            Grammar::Lark(text) => ("lark", text.clone(), "bytes of the grammar"),
        };
        match text.len() {
            found if found > limit => Err(GrammarError::TooLarge { what, limit, found }),
            _ => Ok(format!("{name} {text}")),
        }
    }
}

/// One of the few compilations that may run at once.
struct Place(Arc<AtomicUsize>);

impl Place {
    fn take(running: &Arc<AtomicUsize>, limit: usize) -> Result<Place, GrammarError> {
        let place = Place(running.clone());
        // Counted before it is compared; the place is given back when it is dropped.
        if running.fetch_add(1, Ordering::Relaxed) < limit { Ok(place) } else { Err(GrammarError::Busy) }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// What is wrong with a regular expression, without the drawing of it.
pub(super) fn syntax_reason(error: &regex_syntax::Error) -> String {
    match error {
        regex_syntax::Error::Parse(error) => format!("{} (byte {})", error.kind(), error.span().start.offset),
        regex_syntax::Error::Translate(error) => {
            format!("{} (byte {})", error.kind(), error.span().start.offset)
        }
        _ => error.to_string(),
    }
}

/// The token that a GBNF grammar names: `<[7]>` by its id, `<think>` by its text.
fn gbnf_token(tokenizer: &Tokenizer, n_vocab: usize, name: &str) -> Option<u32> {
    let number = name.strip_prefix("<[").and_then(|rest| rest.strip_suffix("]>"));
    let id = match number {
        Some(number) => number.parse().ok(),
        None => tokenizer.token_id(name),
    };
    id.filter(|&id| (id as usize) < n_vocab)
}

/// The first line of the engine's message; what follows is its state, or a trace of a failure.
pub(super) fn first_line(text: &str) -> String {
    text.lines().next().unwrap_or_default().trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_takes_too_long_is_not_waited_for() {
        let (send, receive) = mpsc::sync_channel::<Result<(), GrammarError>>(1);
        let error = wait(&receive, "the grammar", Duration::from_millis(1)).unwrap_err();
        assert_eq!(error.to_string(), "the grammar is too complex: not compiled within 1 ms");
        drop(send);
        let error = wait(&receive, "the grammar", Duration::from_millis(1)).unwrap_err();
        assert_eq!(error.to_string(), "the grammar cannot be compiled: the engine failed");
    }

    #[test]
    fn a_place_is_given_back() {
        let running = Arc::default();
        let place = Place::take(&running, 1).unwrap();
        assert!(matches!(Place::take(&running, 1), Err(GrammarError::Busy)));
        drop(place);
        assert!(Place::take(&running, 1).is_ok());
    }
}
