//! Experiments on models, for learning and for deciding.
//!
//! [`attention`] measures where attention goes.

pub mod attention;
