//! A constraint that waits: the text is free until a trigger was seen, and held to a form from there on.

use memchr::memmem::Finder;
use toktrie::{TokEnv, TokTrie};

use super::{GrammarError, GrammarFactory};
use crate::sampler::{Constraint, ConstraintError};

/// What a [`Lazy`] constraint waits for.
#[derive(Clone, Debug, Default)]
pub struct LazyOptions {
    /// Texts; the first that appears arms the constraint, which holds for what follows it. A text that is a control token of
    /// the model is that token.
    pub triggers: Vec<String>,
    /// The text may not end before a trigger.
    pub must_come: bool,
    /// Tokens of white space that may stand between the trigger and what is constrained.
    pub blanks: usize,
}

/// Allows everything until a trigger, then what another constraint allows.
///
/// A trigger that is text always ends with a token: those that would go on behind it are not allowed where they would.
pub struct Lazy {
    vocabulary: TokEnv,
    inner: Box<dyn Constraint>,
    triggers: Vec<Trigger>,
    /// Everything that may come before a trigger.
    free: Vec<u32>,
    /// The end of the text so far, as much as triggers may begin in.
    tail: Vec<u8>,
    state: State,
    /// Tokens of white space, and how many of them may come.
    blanks: Vec<u32>,
    n_blanks: usize,
    mask: Vec<u32>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum State {
    Waiting,
    /// Armed; so many blanks may still come.
    Blank(usize),
    Armed,
}

struct Trigger {
    text: Vec<u8>,
    token: Option<u32>,
    /// By the bytes of the trigger that are there already: the tokens that would complete it and go on.
    beyond: Vec<Vec<u32>>,
}

impl Lazy {
    /// Makes `inner` wait.
    ///
    /// # Errors
    /// A vocabulary that cannot be constrained; no trigger, or an empty one.
    pub fn new(
        factory: &GrammarFactory,
        options: &LazyOptions,
        inner: Box<dyn Constraint>,
    ) -> Result<Lazy, GrammarError> {
        if options.triggers.is_empty() || options.triggers.iter().any(String::is_empty) {
            return Err(GrammarError::Rules(
                "a lazy grammar without a trigger, or with an empty one".to_owned(),
            ));
        }
        let vocabulary = factory.vocabulary()?;
        let trie = vocabulary.tok_trie();
        let mut free = vec![0; factory.n_vocab().div_ceil(32)];
        let mut blanks = free.clone();
        let mut triggers: Vec<Trigger> =
            options.triggers.iter().map(|text| Trigger::new(text, factory)).collect();
        for id in 0..factory.n_vocab() as u32 {
            let word = trie.token(id);
            set(&mut free, id, !(options.must_come && trie.eos_tokens().contains(&id)));
            let blank = options.blanks > 0 && !word.is_empty();
            set(&mut blanks, id, blank && word.iter().all(|byte| b" \t\r\n".contains(byte)));
            triggers.iter_mut().for_each(|trigger| trigger.meet(id, word));
        }
        let mask = free.clone();
        let (tail, state, n_blanks) = (Vec::new(), State::Waiting, options.blanks);
        Ok(Lazy { vocabulary, inner, triggers, free, tail, state, blanks, n_blanks, mask })
    }

    /// True once a trigger was seen.
    pub fn is_armed(&self) -> bool {
        self.state != State::Waiting
    }

    /// Follows free text; true if a trigger is complete.
    fn wait(&mut self, token: u32) -> Result<bool, ConstraintError> {
        let word = self.vocabulary.tok_trie().token(token);
        if word.first() == Some(&TokTrie::SPECIAL_TOKEN_MARKER) {
            self.tail.clear();
            return Ok(self.triggers.iter().any(|trigger| trigger.token == Some(token)));
        }
        if self.triggers.iter().any(|trigger| trigger.excluded(&self.tail).any(|list| list.contains(&token)))
        {
            return Err(ConstraintError(format!("token {token} goes on behind a trigger")));
        }
        self.tail.extend(word);
        let armed = self.triggers.iter().any(|trigger| self.tail.ends_with(&trigger.text));
        let longest = self.triggers.iter().map(|trigger| trigger.text.len()).max().unwrap_or(0);
        self.tail.drain(..self.tail.len().saturating_sub(longest - 1));
        Ok(armed)
    }
}

impl Trigger {
    fn new(text: &str, factory: &GrammarFactory) -> Trigger {
        let token = factory.tokenizer().token_id(text);
        Trigger { text: text.as_bytes().to_vec(), token, beyond: vec![Vec::new(); text.len()] }
    }

    /// Notes where a token would go on behind the trigger.
    fn meet(&mut self, id: u32, word: &[u8]) {
        let whole = Finder::new(&self.text).find(word);
        if whole.is_some_and(|at| at + self.text.len() < word.len()) {
            self.beyond[0].push(id);
        }
        for there in 1..self.text.len() {
            let rest = &self.text[there..];
            if word.len() > rest.len() && word.starts_with(rest) {
                self.beyond[there].push(id);
            }
        }
    }

    /// The tokens that would go on behind the trigger after text with this end.
    fn excluded(&self, tail: &[u8]) -> impl Iterator<Item = &Vec<u32>> {
        let there = |there: &usize| tail.ends_with(&self.text[..*there]);
        (0..self.text.len()).filter(there).map(|there| &self.beyond[there])
    }
}

impl Constraint for Lazy {
    fn mask(&mut self) -> Result<&[u32], ConstraintError> {
        match self.state {
            State::Armed => return self.inner.mask(),
            State::Waiting => {
                self.mask.copy_from_slice(&self.free);
                for trigger in &self.triggers {
                    for list in trigger.excluded(&self.tail) {
                        list.iter().for_each(|&id| set(&mut self.mask, id, false));
                    }
                }
            }
            State::Blank(_) => {
                let inner = self.inner.mask()?;
                for ((word, &inner), &blank) in self.mask.iter_mut().zip(inner).zip(&self.blanks) {
                    *word = inner | blank;
                }
            }
        }
        Ok(&self.mask)
    }

    fn accept(&mut self, token: u32) -> Result<(), ConstraintError> {
        match self.state {
            State::Waiting => {
                if self.wait(token)? {
                    self.state = if self.n_blanks > 0 { State::Blank(self.n_blanks) } else { State::Armed };
                }
                Ok(())
            }
            State::Blank(left) if is_set(&self.blanks, token) && !is_set(self.inner.mask()?, token) => {
                self.state = if left > 1 { State::Blank(left - 1) } else { State::Armed };
                Ok(())
            }
            State::Blank(_) | State::Armed => {
                self.state = State::Armed;
                self.inner.accept(token)
            }
        }
    }
}

fn set(mask: &mut [u32], id: u32, to: bool) {
    let bit = 1 << (id % 32);
    if let Some(word) = mask.get_mut(id as usize / 32) {
        *word = if to { *word | bit } else { *word & !bit };
    }
}

fn is_set(mask: &[u32], id: u32) -> bool {
    mask.get(id as usize / 32).is_some_and(|word| word >> (id % 32) & 1 == 1)
}
