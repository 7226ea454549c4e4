//! A compiled grammar at work on one text.

use llguidance::Matcher;
use toktrie::{SimpleVob, TokEnv};

use super::factory::first_line;
use crate::sampler::{Constraint, ConstraintError};

/// A grammar and how far the text has come in it.
pub(super) struct GrammarConstraint {
    matcher: Matcher,
    mask: SimpleVob,
    vocabulary: TokEnv,
}

impl GrammarConstraint {
    /// Takes a matcher at the start of a text. Computes the first mask, so that a grammar that allows nothing is an error here.
    pub fn new(matcher: Matcher, vocabulary: TokEnv) -> Result<Self, ConstraintError> {
        let mut constraint = GrammarConstraint { matcher, mask: SimpleVob::new(), vocabulary };
        constraint.mask()?;
        Ok(constraint)
    }

    /// The same at the same place of another text; nothing is shared, so that no text's cost depends on another's.
    pub fn fresh(&self) -> Self {
        GrammarConstraint {
            matcher: self.matcher.deep_clone(),
            mask: SimpleVob::new(),
            vocabulary: self.vocabulary.clone(),
        }
    }
}

impl Constraint for GrammarConstraint {
    fn mask(&mut self) -> Result<&[u32], ConstraintError> {
        self.mask = self.matcher.compute_mask_or_eos().map_err(error)?;
        Ok(self.mask.as_slice())
    }

    fn accept(&mut self, token: u32) -> Result<(), ConstraintError> {
        let ends = self.vocabulary.tok_trie().eos_tokens().contains(&token);
        if ends && self.matcher.is_stopped() && !self.matcher.is_error() {
            return Ok(());
        }
        self.matcher.consume_token(token).map_err(error)
    }
}

fn error(error: impl std::fmt::Display) -> ConstraintError {
    ConstraintError(first_line(&error.to_string()))
}
