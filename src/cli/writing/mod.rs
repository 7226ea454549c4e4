//! Writing models: with progress, until it is done or Ctrl-C.

mod outcome;
mod progress;

use std::ops::ControlFlow;
use std::path::Path;
use std::time::Duration;

use qgguf_convert::pipeline::{OutputFile, PipelineError, TensorReport, WriteOptions, write_files};
use serde_json::Value;

use crate::cli::error::{Failure, Result};
use crate::cli::output;
use crate::cli::terminal::{self, note};
use crate::cli::{interrupt, memory};
pub use outcome::Outcome;
use progress::Progress;

/// Files that were written.
pub struct Written {
    /// What became of the tensors.
    pub reports: Vec<TensorReport>,
    /// Where they are.
    pub paths: Vec<String>,
    elapsed: Duration,
    peak_resident: Option<u64>,
}

/// Writes files, telling of it on stderr.
pub fn write(files: &[OutputFile<'_>], options: &WriteOptions) -> Result<Written> {
    let tensors = || files.iter().flat_map(|file| &file.tensors);
    let n_elements = tensors().map(|tensor| tensor.spec.shape.iter().product::<u64>()).sum();
    let mut progress = Progress::new(tensors().count(), n_elements);
    interrupt::listen();
    let generation = interrupt::Generation::begin();
    let result = write_files(files, options, &mut |event| {
        progress.show(&event);
        if generation.interrupted() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    let speed = progress.finish();
    let reports = match result {
        Ok(reports) => reports,
        Err(PipelineError::Interrupted) => {
            note!("qgguf: interrupted, nothing was written");
            return Err(Failure::Interrupted);
        }
        Err(error) => return Err(error.into()),
    };
    let (elapsed, peak_resident) = (progress.elapsed(), memory::peak_resident());
    let peak = peak_resident.map_or(String::new(), |n| format!(", at most {} of memory", terminal::bytes(n)));
    note!("qgguf: {:.1} s, {speed:.0} MB/s with {} threads{peak}", elapsed.as_secs_f64(), options.n_threads);
    let paths = files.iter().map(|file| file.path.display().to_string()).collect();
    Ok(Written { reports, paths, elapsed, peak_resident })
}

/// [`output::refuse_overwriting`] for several files.
pub fn refuse_overwriting<'p>(
    files: &[OutputFile<'_>],
    inputs: impl Iterator<Item = &'p Path>,
) -> Result<()> {
    let inputs: Vec<&Path> = inputs.collect();
    files.iter().try_for_each(|file| output::refuse_overwriting(&file.path, inputs.iter().copied()))
}

impl Written {
    /// The first file, and how many more there are.
    pub fn names(&self) -> String {
        let first = self.paths.first().map_or("", String::as_str);
        match self.paths.len() {
            0 | 1 => first.to_owned(),
            n => format!("{first} and {} more", n - 1),
        }
    }

    /// Adds what was written and what it took to an object for programs.
    pub fn json(&self, object: &mut Value) {
        object["outputs"] = self.paths.clone().into();
        object["seconds"] = self.elapsed.as_secs_f64().into();
        object["peak_resident_bytes"] = self.peak_resident.into();
    }
}
