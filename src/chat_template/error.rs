//! Why a template could not be compiled or rendered.

use std::error::Error as _;
use std::fmt;

use minijinja::ErrorKind;

/// What went wrong, broadly.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TemplateErrorKind {
    /// The text is no template.
    Syntax,
    /// The template refused the messages (`raise_exception`).
    Raised,
    /// The template did what Jinja refuses, or what this engine does not know.
    Render,
    /// The template is too large, or works or writes far more than a chat template should.
    Limit,
}

/// A chat template that cannot be compiled or rendered. Displays as one line.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct TemplateError {
    kind: TemplateErrorKind,
    line: Option<usize>,
    detail: String,
}

impl TemplateError {
    /// What went wrong, broadly.
    pub fn kind(&self) -> TemplateErrorKind {
        self.kind
    }

    /// The line of the template, from 1.
    pub fn line(&self) -> Option<usize> {
        self.line
    }

    /// What went wrong; for [`TemplateErrorKind::Raised`] the text that the template gave.
    pub fn detail(&self) -> &str {
        &self.detail
    }

    pub(super) fn limit(line: Option<usize>, detail: String) -> TemplateError {
        TemplateError { kind: TemplateErrorKind::Limit, line, detail }
    }

    pub(super) fn render(detail: String) -> TemplateError {
        TemplateError { kind: TemplateErrorKind::Render, line: None, detail }
    }

    pub(super) fn syntax(line: Option<usize>, detail: &str) -> TemplateError {
        TemplateError { kind: TemplateErrorKind::Syntax, line, detail: format!("syntax error: {detail}") }
    }

    /// What the engine reports about a template, with the expression it is about.
    pub(super) fn new(error: &minijinja::Error, source: &str) -> TemplateError {
        let line = error.line();
        if let Some(Raised(message)) = raised(error) {
            return TemplateError { kind: TemplateErrorKind::Raised, line, detail: message.clone() };
        }
        let (kind, mut detail) = match error.kind() {
            ErrorKind::OutOfFuel => (
                TemplateErrorKind::Limit,
                "it works or writes more than its messages call for; stopped".to_owned(),
            ),
            kind => {
                let broad = match kind {
                    ErrorKind::SyntaxError | ErrorKind::BadEscape => TemplateErrorKind::Syntax,
                    _ => TemplateErrorKind::Render,
                };
                (broad, error.detail().map_or_else(|| kind.to_string(), |detail| format!("{kind}: {detail}")))
            }
        };
        if let Some(code) = error.range().and_then(|range| source.get(range)).filter(|code| !code.is_empty())
        {
            detail += &format!(", in `{}`", shortened(code));
        }
        TemplateError { kind, line, detail }
    }
}

/// The source text of an error, short enough for a message.
fn shortened(code: &str) -> String {
    const MAX: usize = 60;
    let mut words = code.split_whitespace().collect::<Vec<_>>().join(" ");
    if let Some((end, _)) = words.char_indices().nth(MAX) {
        words.truncate(end);
        words.push_str("...");
    }
    words
}

/// The error of `raise_exception`, however deep the engine wrapped it.
fn raised(error: &minijinja::Error) -> Option<&Raised> {
    let mut source = error.source();
    while let Some(inner) = source {
        if let Some(raised) = inner.downcast_ref() {
            return Some(raised);
        }
        source = inner.source();
    }
    None
}

impl fmt::Display for TemplateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("chat template")?;
        if let Some(line) = self.line {
            write!(f, ", line {line}")?;
        }
        f.write_str(match self.kind {
            TemplateErrorKind::Raised => ": the template says: ",
            _ => ": ",
        })?;
        for c in self.detail.chars() {
            if c.is_control() {
                write!(f, "{}", c.escape_default())?;
            } else {
                write!(f, "{c}")?;
            }
        }
        Ok(())
    }
}

/// Carries the text of `raise_exception` through the engine.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(super) struct Raised(pub(super) String);
