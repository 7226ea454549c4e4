//! Writing models: with progress, until it is done or Ctrl-C.

mod outcome;
mod progress;

use std::fs::File;
use std::io::{BufWriter, Write};
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use half::bf16;
use qgguf::architectures::{self, LoadError, Loader};
use qgguf_convert::file_type::FileType;
use qgguf_convert::pipeline::{
    Event, OutputFile, OutputTensor, PipelineError, TensorReport, WriteOptions, write_files, write_tensors,
};
use qgguf_gguf::{Metadata, TensorSpec, WriteError, planned};
use serde_json::Value;

use crate::cli::error::{Context, Failure, Result};
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
    let tensors = files.iter().flat_map(|file| &file.tensors);
    let paths = files.iter().map(|file| file.path.display().to_string()).collect();
    tell(tensors, paths, options, |observe| write_files(files, options, observe))
}

/// Writes tensors one after the other into a file that is open, and that will be called `path`, telling of it on stderr.
pub fn write_to(
    file: File,
    path: &Path,
    tensors: &[OutputTensor<'_>],
    options: &WriteOptions,
) -> Result<Written> {
    let mut out = BufWriter::with_capacity(1 << 20, file);
    let failed = |source| WriteError::Io { path: path.to_owned(), source };
    tell(tensors.iter(), vec![path.display().to_string()], options, |observe| {
        let reports =
            write_tensors(tensors, options, observe, &mut |bytes| out.write_all(bytes).map_err(failed))?;
        out.flush().map_err(failed)?;
        Ok(reports)
    })
}

/// Weights that are not finite are a fault of `input`, and the commands that take a checkpoint or make one have a flag
/// for them.
pub fn of_input(failure: Failure, input: &Path) -> Failure {
    match failure {
        Failure::Other(_, error) if matches!(error.downcast_ref(), Some(PipelineError::NonFinite { .. })) => {
            let input = input.display();
            Failure::text(format!("{input}: {error} (--allow-nonfinite takes them as they are)"))
        }
        other => other,
    }
}

/// Does the work that writes tensors, shows how far it is, and stops it on Ctrl-C.
fn tell<'t>(
    tensors: impl Iterator<Item = &'t OutputTensor<'t>>,
    paths: Vec<String>,
    options: &WriteOptions,
    work: impl FnOnce(
        &mut dyn FnMut(Event<'_>) -> ControlFlow<()>,
    ) -> std::result::Result<Vec<TensorReport>, PipelineError>,
) -> Result<Written> {
    let (n_tensors, n_elements) = tensors.fold((0, 0), |(n_tensors, n_elements), tensor| {
        (n_tensors + 1, n_elements + tensor.spec.shape.iter().product::<u64>())
    });
    let mut progress = Progress::new(n_tensors, n_elements);
    interrupt::listen();
    let generation = interrupt::Generation::begin();
    let result = work(&mut |event| {
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
    Ok(Written { reports, paths, elapsed, peak_resident })
}

/// Refuses a type for which there is no quantizer.
pub fn check_type(file_type: FileType) -> Result<()> {
    if file_type.can_be_made() {
        return Ok(());
    }
    let made = FileType::that_can_be_made().map(FileType::name).collect::<Vec<_>>().join(", ");
    Err(Failure::usage(format!("type {file_type} cannot be made yet (those that can: {made})")))
}

/// Fails if this runtime could not use the weights and hyper-parameters of a file that is going to be written: that should
/// not come out after the work. `path` is what errors name.
pub fn check_weights(path: &Path, metadata: &Metadata, specs: &[TensorSpec]) -> Result<()> {
    let Some(file) = planned::<Failure>(path, metadata, specs)? else { return Ok(()) };
    let (file, architecture) = (Arc::new(file), metadata.require_str("general.architecture")?);
    let mut loader = Loader::new(&file, architecture).context(path.display())?;
    match architectures::load(architecture, &mut loader) {
        Ok(_) => Ok(()),
        // That is no fault of the model: others can run it.
        Err(e @ LoadError::Type { .. }) => {
            let e = e.to_string();
            note!("qgguf: warning: this runtime will not be able to run the file: {}", terminal::escape(&e));
            Ok(())
        }
        Err(e) => Err(e).context(path.display()),
    }
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

    /// Warns of weights that are infinite now, and names the types of `--outtype` that have room for them.
    pub fn report_overflow(&self) {
        for report in self.reports.iter().filter(|report| report.overflow.n > 0) {
            let (weights, them) = match report.overflow.n {
                1 => ("1 weight is".to_owned(), "it"),
                n => (format!("{n} weights are"), "them"),
            };
            let room = match bf16::from_f32(report.overflow.largest).is_finite() {
                true => "bf16 and f32 have",
                false => "f32 has",
            };
            note!(
                "qgguf: warning: tensor \"{}\": {weights} beyond the range of {} and became infinite (--outtype {room} \
                 room for {them})",
                terminal::escape(&report.name),
                report.to
            );
        }
    }

    /// Adds what was written and what it took to an object for programs.
    pub fn json(&self, object: &mut Value) {
        object["outputs"] = self.paths.clone().into();
        object["seconds"] = self.elapsed.as_secs_f64().into();
        object["peak_resident_bytes"] = self.peak_resident.into();
    }
}
