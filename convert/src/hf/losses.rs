//! What `config.json` says and a GGUF has no place for: runtimes do what is usual for the architecture, and the user is
//! told.

use super::Config;
use super::config::describe;

/// Collects a warning for each such key.
pub(crate) struct Losses<'a> {
    pub config: &'a Config,
    architecture: &'static str,
    warnings: Vec<String>,
}

impl<'a> Losses<'a> {
    pub fn new(config: &'a Config, architecture: &'static str) -> Losses<'a> {
        Losses { config, architecture, warnings: Vec::new() }
    }

    /// A key is `found`, and the model will be run with `usual`.
    pub fn tell(&mut self, key: &str, found: &str, usual: &str) {
        let path = self.config.path().display();
        self.warnings.push(format!(
            "{path}: {key} is {found}, which a GGUF of {} cannot say: the model will be run with {usual}",
            self.architecture
        ));
    }

    /// The same if a key is there and not `usual`, both as JSON.
    pub fn unless(&mut self, key: &str, usual: &str) {
        if let Some(found) = self.config.get(&[key]).map(describe).filter(|found| found != usual) {
            self.tell(key, &found, usual);
        }
    }

    /// Something else that is not as it was.
    pub fn note(&mut self, text: &str) {
        self.warnings.push(format!("{}: {text}", self.config.path().display()));
    }

    /// All of them.
    pub fn warnings(self) -> Vec<String> {
        self.warnings
    }
}
