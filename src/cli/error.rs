//! How the command fails: one line on stderr and an exit code.

use std::error::Error;
use std::fmt::Display;
use std::io;
use std::process::ExitCode;

use qgguf::engine::EvalError;

/// Why a subcommand gave up.
///
/// Deliberately not an [`Error`] itself, so that every error converts into it with `?`.
#[derive(Debug)]
pub enum Failure {
    /// The command line makes no sense: exit code 2.
    Usage(String),
    /// The command ended early at the user's wish (Ctrl-C); everything has been said: the exit code is the signal's, 130.
    Interrupted,
    /// Anything else: exit code 1. The texts in front say what was being done.
    Other(Vec<String>, Box<dyn Error + Send + Sync>),
}

/// What subcommands return.
pub type Result<T, E = Failure> = std::result::Result<T, E>;

impl<E: Error + Send + Sync + 'static> From<E> for Failure {
    fn from(error: E) -> Failure {
        Failure::Other(Vec::new(), Box::new(error))
    }
}

impl Failure {
    /// A failure that is only a text.
    pub fn text(text: impl Display) -> Failure {
        Failure::Other(Vec::new(), text.to_string().into())
    }

    /// A wrong command line.
    pub fn usage(text: impl Display) -> Failure {
        Failure::Usage(text.to_string())
    }

    /// Whoever read our output is gone; nobody is left to tell.
    pub fn is_broken_pipe(&self) -> bool {
        let Failure::Other(_, error) = self else { return false };
        chain(&**error).any(|cause| {
            cause.downcast_ref::<io::Error>().is_some_and(|e| e.kind() == io::ErrorKind::BrokenPipe)
        })
    }

    /// Prints the one line and returns the exit code.
    pub fn report(&self) -> ExitCode {
        match self {
            Failure::Interrupted => ExitCode::from(super::interrupt::exit_code()),
            _ if self.is_broken_pipe() => ExitCode::SUCCESS,
            Failure::Usage(text) => {
                super::note!("qgguf: {text} (see --help)");
                ExitCode::from(2)
            }
            Failure::Other(..) => {
                super::note!("qgguf: {}", super::terminal::escape(&shortened(self.line())));
                ExitCode::FAILURE
            }
        }
    }

    /// What was being done and the chain of causes, joined by colons.
    pub fn line(&self) -> String {
        match self {
            Failure::Usage(text) => text.clone(),
            Failure::Interrupted => "interrupted".to_owned(),
            Failure::Other(context, error) => {
                let mut line = context.iter().rev().map(|c| format!("{c}: ")).collect::<String>();
                let mut said = String::new();
                for cause in chain(&**error) {
                    let text = cause.to_string();
                    // Many errors quote their cause already.
                    if said.is_empty() || !said.contains(&text) {
                        line += if said.is_empty() { "" } else { ": " };
                        line += &text;
                        said = text;
                    }
                }
                line + chain(&**error).find_map(hint).unwrap_or_default()
            }
        }
    }
}

/// A text that may quote whatever a file has, without what nobody would read.
fn shortened(mut text: String) -> String {
    /// Longer than any text without such quotes.
    const MAX: usize = 2000;
    if let Some((end, _)) = text.char_indices().nth(MAX) {
        let rest = text[end..].chars().count();
        text.truncate(end);
        text += &format!("… ({rest} more characters)");
    }
    text
}

/// The flag that helps, which the library does not know.
fn hint(cause: &(dyn Error + 'static)) -> Option<&'static str> {
    match cause.downcast_ref()? {
        EvalError::ContextFull { .. } => Some(" (a larger one: --ctx-size)"),
        _ => None,
    }
}

fn chain<'a>(error: &'a (dyn Error + 'static)) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    std::iter::successors(Some(error), |&error| error.source())
}

/// Says what was being done when something failed.
pub trait Context<T> {
    /// Puts `context` in front of the error's text.
    fn context(self, context: impl Display) -> Result<T>;
}

impl<T, E: Into<Failure>> Context<T> for std::result::Result<T, E> {
    fn context(self, context: impl Display) -> Result<T> {
        self.map_err(|error| match error.into() {
            Failure::Other(mut contexts, error) => {
                contexts.push(context.to_string());
                Failure::Other(contexts, error)
            }
            other => other,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("layer: {source}")]
    struct Quoting {
        source: io::Error,
    }

    #[test]
    fn a_cause_that_was_quoted_is_not_repeated() {
        let failure = Failure::from(Quoting { source: io::Error::other("disk on fire") });
        assert_eq!(failure.line(), "layer: disk on fire");
    }

    #[test]
    fn long_texts_are_cut() {
        assert_eq!(shortened("é".repeat(2000)), "é".repeat(2000));
        assert_eq!(shortened("é".repeat(2017)), "é".repeat(2000) + "… (17 more characters)");
    }

    #[test]
    fn contexts_come_outermost_first() {
        let result: Result<()> = Err(io::Error::other("no")).context("inner").context("outer");
        assert_eq!(result.unwrap_err().line(), "outer: inner: no");
    }

    #[test]
    fn a_broken_pipe_is_found_below_other_errors() {
        let failure = Failure::from(Quoting { source: io::ErrorKind::BrokenPipe.into() });
        assert!(failure.is_broken_pipe());
        assert!(!Failure::text("broken pipe").is_broken_pipe());
    }
}
