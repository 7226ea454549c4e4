//! What comes out of the parser: deltas for a stream, and the message that they add up to.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

/// A piece of an answer. Pieces of one kind are to be concatenated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Delta {
    /// More of what the model thinks.
    Reasoning(String),
    /// More of what it says.
    Content(String),
    /// A call begins. Its arguments follow.
    ToolCall {
        /// Number of the call in this answer, from 0.
        index: usize,
        /// Unique, and of the form that the model's template accepts.
        id: String,
        /// Name of the tool.
        name: String,
    },
    /// More of the JSON text of a call's arguments.
    ToolArguments {
        /// Which call.
        index: usize,
        /// The piece.
        text: String,
    },
}

/// A complete call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolCall {
    /// Number of the call in the deltas.
    pub index: usize,
    /// As in [`Delta::ToolCall`].
    pub id: String,
    /// Name of the tool.
    pub name: String,
    /// JSON text of an object.
    pub arguments: String,
}

/// A whole answer.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Message {
    /// What the model thought; empty if it did not.
    pub reasoning: String,
    /// What it says.
    pub content: String,
    /// Its calls; not empty means that the answer ends because of them, if nothing cut it short.
    pub tool_calls: Vec<ToolCall>,
}

/// What ids of calls look like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum IdStyle {
    /// `call_` and 24 letters or digits.
    Usual,
    /// Nine letters or digits, which Mistral's templates insist on.
    Mistral,
}

/// Collects deltas and the message.
#[derive(Debug)]
pub(super) struct Out {
    pub(super) message: Message,
    deltas: Vec<Delta>,
    /// The call that was announced and whose arguments are not complete.
    open: Option<ToolCall>,
    n_announced: usize,
    style: IdStyle,
    random: ChaCha8Rng,
}

impl Out {
    /// Ids are drawn from `seed`.
    pub(super) fn new(style: IdStyle, seed: u64) -> Out {
        Out {
            message: Message::default(),
            deltas: Vec::new(),
            open: None,
            n_announced: 0,
            style,
            random: ChaCha8Rng::seed_from_u64(seed),
        }
    }

    pub(super) fn take_deltas(&mut self) -> Vec<Delta> {
        std::mem::take(&mut self.deltas)
    }

    pub(super) fn has_calls(&self) -> bool {
        !self.message.tool_calls.is_empty()
    }

    pub(super) fn reasoning(&mut self, text: &str) {
        self.message.reasoning.push_str(text);
        match self.deltas.last_mut() {
            Some(Delta::Reasoning(last)) => last.push_str(text),
            _ if text.is_empty() => {}
            _ => self.deltas.push(Delta::Reasoning(text.to_owned())),
        }
    }

    pub(super) fn content(&mut self, text: &str) {
        self.message.content.push_str(text);
        match self.deltas.last_mut() {
            Some(Delta::Content(last)) => last.push_str(text),
            _ if text.is_empty() => {}
            _ => self.deltas.push(Delta::Content(text.to_owned())),
        }
    }

    /// A call whose name is known. The model's own id is kept if it has the right form.
    pub(super) fn announce(&mut self, name: &str, id: Option<&str>) {
        let id = id.filter(|id| self.is_proper_id(id)).map(str::to_owned);
        let id = id.unwrap_or_else(|| self.new_id());
        let index = self.n_announced;
        self.n_announced += 1;
        self.deltas.push(Delta::ToolCall { index, id: id.clone(), name: name.to_owned() });
        self.open = Some(ToolCall { index, id, name: name.to_owned(), arguments: String::new() });
    }

    /// More of the arguments of the announced call.
    pub(super) fn arguments(&mut self, text: &str) {
        let Some(open) = self.open.as_mut().filter(|_| !text.is_empty()) else { return };
        open.arguments.push_str(text);
        match self.deltas.last_mut() {
            Some(Delta::ToolArguments { text: last, .. }) => last.push_str(text),
            _ => self.deltas.push(Delta::ToolArguments { index: open.index, text: text.to_owned() }),
        }
    }

    /// The arguments of the announced call are complete.
    pub(super) fn complete(&mut self) {
        self.message.tool_calls.extend(self.open.take());
    }

    /// The announced call, if there is one, is none after all. What was told of it cannot be taken back; its arguments
    /// stay cut short, so that nobody takes it for a call.
    pub(super) fn abandon(&mut self) {
        self.open = None;
    }

    fn is_proper_id(&self, id: &str) -> bool {
        let sound = match self.style {
            IdStyle::Mistral => is_mistral_id(id),
            IdStyle::Usual => false,
        };
        sound && self.message.tool_calls.iter().all(|call| call.id != id)
    }

    fn new_id(&mut self) -> String {
        let (prefix, n) = match self.style {
            IdStyle::Usual => ("call_", 24),
            IdStyle::Mistral => ("", 9),
        };
        const CHARACTERS: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
        let mut id = prefix.to_owned();
        id.extend((0..n).map(|_| CHARACTERS[self.random.next_u32() as usize % 62] as char));
        id
    }
}

/// True for nine ASCII letters or digits.
pub(super) fn is_mistral_id(id: &str) -> bool {
    id.len() == 9 && id.bytes().all(|byte| byte.is_ascii_alphanumeric())
}
