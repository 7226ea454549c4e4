//! el
