//! The HTTP server behind `qgguf serve`.
//!
//! Every family of interfaces ([`api`]) turns its requests into a [`job::Job`] (prompts, settings, form) and writes the
//! [`run::Answer`]s of the [`run::Run`] that comes of it in its own way, whole or as a [`stream`]. Nothing here knows how tokens
//! are evaluated: a [`backend::Backend`] does that. Around the routes lie the [`layers`] (hosts, origins, keys, request ids, the
//! log) and the connections ([`connections`]: their number, time limits, the end of the server).

pub mod api;
mod auth;
pub mod backend;
mod body;
mod chat;
mod connections;
mod delivery;
mod embed;
mod error;
mod fields;
mod form;
mod job;
mod layers;
mod limits;
mod log;
mod logprobs;
mod metrics;
mod options;
mod page;
mod prompts;
mod routes;
mod run;
mod settings;
mod state;
mod stream;

pub use auth::Keys;
pub use connections::serve;
pub use limits::Limits;
pub use options::{Endpoints, LogFormat, Options};
pub use routes::router;
pub use settings::Defaults;
pub use state::{App, Served, Template, now};
