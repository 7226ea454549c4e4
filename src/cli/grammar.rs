//! Flags that hold the answer to a form.

use std::path::PathBuf;
use std::sync::Arc;

use qgguf::grammar::{Grammar, GrammarFactory, GrammarLimits};
use qgguf::model::Model;
use qgguf::sampler::Constraint;

use super::args::read_text;
use super::error::{Context, Failure, Result};

/// What the generated text has to be.
#[derive(clap::Args, Debug)]
#[command(next_help_heading = "Form of the text")]
pub struct GrammarArgs {
    /// Generate JSON that this JSON Schema describes; {} for any object
    #[arg(short, long, value_name = "SCHEMA", group = "form")]
    json_schema: Option<String>,
    /// Take the JSON Schema from FILE (-jf)
    #[arg(long, value_name = "FILE", group = "form")]
    json_schema_file: Option<PathBuf>,
    /// Generate text of this grammar, in llama.cpp's GBNF
    #[arg(long, value_name = "GBNF", group = "form")]
    grammar: Option<String>,
    /// Take the grammar from FILE
    #[arg(long, value_name = "FILE", group = "form")]
    grammar_file: Option<PathBuf>,
}

/// The form of every text that is to be generated.
pub struct Form {
    factory: GrammarFactory,
    grammar: Grammar,
    flag: &'static str,
}

impl GrammarArgs {
    /// The form, if one is asked for.
    pub fn form(&self, model: &Arc<Model>, ignore_eos: bool) -> Result<Option<Form>> {
        let Some((grammar, flag)) = self.grammar()? else { return Ok(None) };
        if ignore_eos {
            return Err(Failure::usage(format!("{flag}: the text has to end, which --ignore-eos forbids")));
        }
        let n_vocab = model.hparams().n_vocab;
        let factory = GrammarFactory::new(model.clone(), n_vocab, GrammarLimits::default());
        Ok(Some(Form { factory, grammar, flag }))
    }

    fn grammar(&self) -> Result<Option<(Grammar, &'static str)>> {
        let schema = |text: &str, flag: &'static str| {
            let schema = serde_json::from_str(text).context(format!("{flag}: not JSON"))?;
            Ok(Some((Grammar::JsonSchema(schema), flag)))
        };
        match self {
            GrammarArgs { json_schema: Some(text), .. } => schema(text, "--json-schema"),
            GrammarArgs { json_schema_file: Some(path), .. } => {
                schema(&read_text(path)?, "--json-schema-file")
            }
            GrammarArgs { grammar: Some(text), .. } => Ok(Some((Grammar::Gbnf(text.clone()), "--grammar"))),
            GrammarArgs { grammar_file: Some(path), .. } => {
                Ok(Some((Grammar::Gbnf(read_text(path)?), "--grammar-file")))
            }
            _ => Ok(None),
        }
    }
}

impl Form {
    /// A constraint at the start of a text.
    pub fn start(&self) -> Result<Box<dyn Constraint>> {
        self.factory.compile(&self.grammar).context(self.flag)
    }
}
