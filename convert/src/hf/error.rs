//! What can be wrong with a checkpoint; every text names the file, the place, what was expected and what was found.

use std::path::{Path, PathBuf};

/// Why a checkpoint cannot be read or converted.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HfError {
    /// The operating system says no.
    #[error("{path}: {source}", path = path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What it said.
        source: std::io::Error,
    },
    /// Something in a file is wrong, or a file is missing.
    #[error("{path}: {reason}", path = path.display())]
    File {
        /// The file or folder.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// Something about one tensor is wrong.
    #[error("{path}: tensor \"{tensor}\": {reason}", path = path.display())]
    Tensor {
        /// The file that has it.
        path: PathBuf,
        /// Its name in the checkpoint.
        tensor: String,
        /// What is wrong with it.
        reason: String,
    },
    /// Nobody here knows this architecture.
    #[error("{path}: architecture {found} is not supported (supported: {known})", path = path.display())]
    Architecture {
        /// `config.json`.
        path: PathBuf,
        /// What it names.
        found: String,
        /// What could be named.
        known: String,
    },
    /// The pre-tokenizer cannot be told from the tokenizer's behaviour.
    #[error(
        "{path}: unknown pre-tokenizer (fingerprint {fingerprint}); the nearest known one is {nearest}: {differences}; if \
         that makes no difference, name it with --pre NAME (known: {known})",
        path = path.display()
    )]
    PreTokenizer {
        /// `tokenizer.json`.
        path: PathBuf,
        /// SHA-256 of the tokens of a fixed text.
        fingerprint: String,
        /// The one whose structure is nearest.
        nearest: &'static str,
        /// In what the tokenizer differs from that.
        differences: String,
        /// The names there are.
        known: String,
    },
}

impl HfError {
    pub(crate) fn io(path: &Path) -> impl FnOnce(std::io::Error) -> HfError + '_ {
        |source| HfError::Io { path: path.to_owned(), source }
    }

    pub(crate) fn file(path: &Path, reason: impl ToString) -> HfError {
        HfError::File { path: path.to_owned(), reason: reason.to_string() }
    }

    pub(crate) fn tensor(path: &Path, tensor: &str, reason: impl ToString) -> HfError {
        HfError::Tensor { path: path.to_owned(), tensor: tensor.to_owned(), reason: reason.to_string() }
    }
}

/// Why a GGUF cannot become a checkpoint.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExportError {
    /// Nobody here knows this architecture.
    #[error("architecture \"{found}\" cannot be exported (possible: {known})")]
    Architecture {
        /// What the file has.
        found: String,
        /// What could be exported.
        known: String,
    },
    /// The file lacks something, or has something that no checkpoint of this family has.
    #[error("{0}")]
    Model(String),
    /// The metadata.
    #[error(transparent)]
    Metadata(#[from] qgguf_gguf::Error),
    /// The configuration that follows from the metadata is none.
    #[error("its configuration would be wrong: {0}")]
    Config(#[from] HfError),
}
