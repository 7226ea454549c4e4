//! End-to-end tests of the command and the library, in one binary.

mod attention;
mod bench;
mod chat;
mod command;
mod compare;
mod convert;
mod export;
mod fixtures;
mod gemma2;
#[cfg(feature = "grammar")]
mod grammar;
mod handmade;
mod imatrix;
mod inspect;
mod lab;
mod logits;
mod models;
mod perplexity;
mod quantize;
mod reference;
mod run;
mod service;
mod split;
mod support;
mod tokenize;
mod tokenizer;
mod tokenizer_rules;
mod yarn;
