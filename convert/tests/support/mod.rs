//! What several tests need; not every one needs all.
#![allow(dead_code)]

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use qgguf_convert::hf::convert::{Options, Source};
use qgguf_convert::pipeline::{OutputFile, PipelineError, WriteOptions, write_files};
use qgguf_kernels::Kernels;

/// The reference data, or nothing where there is none.
pub fn fixtures() -> Option<PathBuf> {
    qgguf_testing::fixtures("convert")
}

/// Converts a checkpoint; fails only if blocks of a type cannot be made.
pub fn convert(input: &Path, options: &Options, out: &Path) -> Result<(), PipelineError> {
    let source = Source::open(input).unwrap();
    let conversion = source.convert(options).unwrap();
    let file = OutputFile {
        path: out.to_owned(),
        metadata: conversion.metadata,
        tensors: conversion.tensors,
        pad_empty: false,
    };
    let options = WriteOptions::new(2, Kernels::best());
    match write_files(&[file], &options, &mut |_| ControlFlow::Continue(())) {
        Ok(_) => Ok(()),
        Err(error @ PipelineError::Encode { .. }) => Err(error),
        Err(error) => panic!("{error}"),
    }
}
