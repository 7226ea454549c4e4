//! End-to-end tests of the command, in one binary.

mod fixtures;
mod reference;
mod tokenizer;
mod tokenizer_rules;
