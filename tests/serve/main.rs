//! The HTTP server over real connections: with an engine that answers from a script, so that every byte is known, and with
//! the real one on the tiny model.

mod chat;
mod client;
mod engine;
mod families;
mod guards;
mod script;
