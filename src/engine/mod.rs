//! Placeholder until the engine is merged: the types of its interface.

pub mod service;
