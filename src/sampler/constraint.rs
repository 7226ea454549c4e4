//! What tokens a text may go on with: the side of grammars that the sampler knows.

/// Decides before every draw which tokens may come next, and follows the text as they come.
pub trait Constraint: Send {
    /// Bit `i % 32` of word `i / 32` is set if token `i` may come next; end-of-generation tokens only where the text may end.
    ///
    /// # Errors
    /// The constraint is too complex to be evaluated here, or the text has left it.
    fn mask(&mut self) -> Result<&[u32], ConstraintError>;

    /// Takes the token that was chosen.
    ///
    /// # Errors
    /// The token is not one that the mask allows.
    fn accept(&mut self, token: u32) -> Result<(), ConstraintError>;
}

/// Why a constraint cannot go on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the constraint on the text cannot be kept: {0}")]
pub struct ConstraintError(pub String);
