//! A model file, opened: container, tokenizer, chat template and weights.

use std::path::Path;
use std::sync::Arc;

use qgguf_gguf::GgufFile;
use qgguf_kernels::{KvShape, KvType};

use crate::architectures::{self, Architecture, Hparams, LoadError, Loader};
use crate::chat_template::{ChatTemplate, SpecialTokens, TemplateError};
use crate::tokenizer::{Tokenizer, TokenizerError, TokenizerOptions};

/// Choices made when a model is opened.
#[derive(Clone, Debug, Default)]
pub struct ModelOptions {
    /// Lock the mapped file in memory.
    pub mlock: bool,
    /// Read the file into memory, in huge pages if there are any, instead of using it where it is mapped.
    pub no_mmap: bool,
    /// Pre-tokenizer and the like.
    pub tokenizer: TokenizerOptions,
}

/// Why a model cannot be used; the text names the file.
#[derive(Debug, thiserror::Error)]
#[error("{}", named(path, source))]
pub struct ModelError {
    path: String,
    source: Box<ModelErrorKind>,
}

/// The text of an error with the file in front, unless it begins with that already.
fn named(path: &str, source: &ModelErrorKind) -> String {
    let text = source.to_string();
    if text.starts_with(path) { text } else { format!("{path}: {text}") }
}

/// What is wrong.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ModelErrorKind {
    /// Weights or hyper-parameters.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// The vocabulary.
    #[error(transparent)]
    Tokenizer(#[from] TokenizerError),
    /// The chat template.
    #[error(transparent)]
    Template(#[from] TemplateError),
    /// `general.type` is something else than a model.
    #[error("this is a GGUF of type \"{0}\", not a model")]
    NotAModel(String),
    /// There are tokens and no weights.
    #[error(
        "this file has a vocabulary and no weights: texts can be tokenized with it, but no model is in it"
    )]
    VocabularyOnly,
    /// The vocabulary and the embeddings differ in size.
    #[error("the vocabulary has {tokens} tokens, but there are only {embeddings} token embeddings")]
    Vocabulary {
        /// Entries of `tokenizer.ggml.tokens`.
        tokens: usize,
        /// Rows of `token_embd.weight`.
        embeddings: usize,
    },
}

/// A model that can be run. Cheap to share through an [`Arc`]; sessions borrow nothing from each other.
pub struct Model {
    file: Arc<GgufFile>,
    architecture: Box<dyn Architecture>,
    hparams: Hparams,
    tokenizer: Tokenizer,
    memory: Vec<KvShape>,
    warnings: Vec<String>,
}

impl AsRef<Tokenizer> for Model {
    fn as_ref(&self) -> &Tokenizer {
        &self.tokenizer
    }
}

impl Model {
    /// Opens a GGUF (any shard of a split one) and checks that everything it needs is there.
    ///
    /// Weights stay in the mapped file; the time goes into the vocabulary. A file that the system has not cached is
    /// read first, see [`GgufFile::open_for_use`].
    pub fn open(path: impl AsRef<Path>, options: &ModelOptions) -> Result<Model, ModelError> {
        let path = path.as_ref();
        let named = |source| ModelError { path: path.display().to_string(), source };
        let file = GgufFile::open_for_use(path).map_err(|e| named(Box::new(LoadError::from(e).into())))?;
        Model::from_file(file, options).map_err(|kind| named(Box::new(kind)))
    }

    /// [`Model::open`] for a container that is open already.
    pub fn from_file(mut file: GgufFile, options: &ModelOptions) -> Result<Model, ModelErrorKind> {
        if options.no_mmap {
            file.copy_to_memory().map_err(LoadError::from)?;
        }
        let file = Arc::new(file);
        let metadata = file.metadata();
        let arch = file.architecture().map_err(LoadError::from)?.to_owned();
        if let Some(kind) = metadata.str("general.type").map_err(LoadError::from)?.filter(|t| *t != "model") {
            return Err(ModelErrorKind::NotAModel(kind.to_owned()));
        }
        if file.tensors().is_empty() && metadata.get("tokenizer.ggml.tokens").is_some() {
            return Err(ModelErrorKind::VocabularyOnly);
        }
        let mut loader = Loader::new(&file, &arch).map_err(|e| {
            // A file of an unknown family may lack the shared keys: the family is what matters then.
            let known = architectures::names().any(|name| name == arch);
            if known { e } else { architectures::unknown(&arch) }
        })?;
        let architecture = architectures::load(&arch, &mut loader)?;
        let (hparams, mut warnings) = loader.into_parts();
        let tokenizer = Tokenizer::from_metadata(metadata, &options.tokenizer)?;
        warnings.extend(tokenizer.warnings().iter().cloned());
        if tokenizer.n_vocab() > hparams.n_vocab {
            return Err(ModelErrorKind::Vocabulary {
                tokens: tokenizer.n_vocab(),
                embeddings: hparams.n_vocab,
            });
        }
        if tokenizer.n_vocab() < hparams.n_vocab {
            let (tokens, rows) = (tokenizer.n_vocab(), hparams.n_vocab);
            warnings.push(format!(
                "the vocabulary has {tokens} tokens, but there are {rows} token embeddings: ids from {tokens} on have no text"
            ));
        }
        if options.mlock {
            file.mlock().map_err(LoadError::from)?;
        }
        let memory = architecture.memory(&hparams);
        Ok(Model { architecture, hparams, tokenizer, memory, warnings, file })
    }

    /// The container.
    pub fn file(&self) -> &GgufFile {
        &self.file
    }

    /// The hyper-parameters.
    pub fn hparams(&self) -> &Hparams {
        &self.hparams
    }

    /// The tokenizer.
    pub fn tokenizer(&self) -> &Tokenizer {
        &self.tokenizer
    }

    /// The file's chat template, or the one called `name`; `None` if it has none.
    pub fn chat_template(&self, name: Option<&str>) -> Result<Option<ChatTemplate>, ModelErrorKind> {
        let key =
            name.map_or("tokenizer.chat_template".to_owned(), |n| format!("tokenizer.chat_template.{n}"));
        let source = self.file.metadata().str(&key).map_err(LoadError::from)?;
        source.map(|source| Ok(self.chat_template_from(source)?)).transpose()
    }

    /// A chat template for this model's special tokens.
    pub fn chat_template_from(&self, source: &str) -> Result<ChatTemplate, TemplateError> {
        let tokenizer = &self.tokenizer;
        let tokens = [("bos_token", tokenizer.bos()), ("eos_token", tokenizer.eos())];
        let named = tokens.into_iter().filter_map(|(name, id)| Some((name, tokenizer.token_text(id?))));
        let specials = named.fold(SpecialTokens::default(), |all, (name, text)| all.with(name, text));
        ChatTemplate::new(source, specials)
    }

    /// What each layer remembers of a sequence, first to last.
    pub fn memory(&self) -> &[KvShape] {
        &self.memory
    }

    /// Bytes that a sequence of `n` positions takes when its keys and values are stored as these types.
    pub fn memory_bytes(&self, n: usize, k: KvType, v: KvType) -> usize {
        let position = self.memory.iter().map(|shape| shape.position_bytes(k, v));
        position.fold(0, usize::saturating_add).saturating_mul(n)
    }

    /// Things about the file that the user should know.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    pub(crate) fn architecture(&self) -> &dyn Architecture {
        &*self.architecture
    }
}
