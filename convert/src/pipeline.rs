//! Streams tensors into files, most of them GGUF: rows are read, quantized and measured on all threads and written in order.
//!
//! Tensors are cut into chunks of rows by their shape alone, so the bytes and the statistics are the same for every
//! number of threads. Some chunks per thread are in flight, of one tensor or of several, and with them all the memory
//! that is needed: a chunk's output and a few rows of floats.

use std::collections::VecDeque;
use std::ops::{ControlFlow, Range};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, sync_channel};

use qgguf_gguf::dequantize::{DequantizeError, dequantize_supported};
use qgguf_gguf::{CompleteFile, GgmlType, GgufWriter, Metadata, TensorSpec, WriteError};
use qgguf_kernels::{Kernels, QuantizeError};

use crate::deviation::Deviation;

/// Weights that one task converts, at least one row.
const CHUNK_WEIGHTS: u64 = 1 << 18;
/// Weights that are floats at a time, at least one row: they stay in the cache of a core.
const STEP_WEIGHTS: u64 = 1 << 14;
/// Chunks in flight per thread: enough to go on with while one is being written.
const CHUNKS_PER_THREAD: usize = 4;

/// Whatever keeps a source from giving its rows.
pub type SourceError = Box<dyn std::error::Error + Send + Sync>;

/// Where the weights of a tensor come from. Rows are counted over all dimensions but the first.
pub trait RowSource: Send + Sync {
    /// Writes some rows as f32, one after the other; `out` has their exact length.
    fn read_rows(&self, rows: Range<u64>, out: &mut [f32]) -> Result<(), SourceError>;

    /// The type in which the rows are stored, if [`RowSource::read_bytes`] can give them so. A tensor that is to have
    /// this type is copied byte by byte.
    fn stored(&self) -> Option<GgmlType> {
        None
    }

    /// Writes the stored bytes of some rows; only called if [`RowSource::stored`] names a type.
    fn read_bytes(&self, rows: Range<u64>, out: &mut [u8]) -> Result<(), SourceError> {
        let _ = (rows, out);
        Err("the rows are not stored in a type of their own".into())
    }

    /// Says that these rows will be read soon.
    fn prefetch(&self, rows: Range<u64>) {
        let _ = rows;
    }
}

/// A tensor to be written.
pub struct OutputTensor<'a> {
    /// What it is called, its shape and the type it gets.
    pub spec: TensorSpec,
    /// How much each column matters: one row of weights for each matrix of the tensor.
    pub importance: Option<Vec<f32>>,
    /// Where it comes from.
    pub source: Box<dyn RowSource + 'a>,
}

/// A file to be written.
pub struct OutputFile<'a> {
    /// Where.
    pub path: PathBuf,
    /// Its metadata.
    pub metadata: Metadata,
    /// Its tensors, in order.
    pub tensors: Vec<OutputTensor<'a>>,
    /// Whether a file without tensors is padded to its alignment like all others, as ggml has it.
    pub pad_empty: bool,
}

/// How to write.
#[derive(Clone, Copy)]
pub struct WriteOptions {
    /// Threads that convert; one more, mostly idle, writes.
    pub n_threads: usize,
    /// What quantizes.
    pub kernels: Kernels,
    /// Take NaN and infinities as they are, and finite weights that are infinite as f16, instead of giving up.
    pub allow_nonfinite: bool,
    /// Count finite weights that are infinite as f16 instead of giving up.
    pub allow_overflow: bool,
}

impl WriteOptions {
    /// Refuses what is not finite, before or after.
    pub fn new(n_threads: usize, kernels: Kernels) -> WriteOptions {
        WriteOptions { n_threads, kernels, allow_nonfinite: false, allow_overflow: false }
    }

    /// Takes everything as it is.
    pub fn copying(n_threads: usize, kernels: Kernels) -> WriteOptions {
        WriteOptions { allow_nonfinite: true, ..WriteOptions::new(n_threads, kernels) }
    }
}

/// What became of a tensor.
#[derive(Clone, Debug)]
pub struct TensorReport {
    /// Its name.
    pub name: String,
    /// Its dimensions, row length first.
    pub shape: Vec<u64>,
    /// The type it had, if it had one.
    pub from: Option<GgmlType>,
    /// The type it has.
    pub to: GgmlType,
    /// Weights.
    pub n_elements: u64,
    /// Bytes in the file.
    pub n_bytes: u64,
    /// How far the new weights are from the old ones; nothing if they were copied.
    pub deviation: Deviation,
    /// Weights that were finite and are no longer.
    pub overflow: Overflow,
}

/// Finite weights that a type made infinite.
#[derive(Clone, Copy, Debug, Default)]
pub struct Overflow {
    /// How many.
    pub n: u64,
    /// The largest of their magnitudes.
    pub largest: f32,
}

impl Overflow {
    fn between(before: &[f32], after: &[f32]) -> Overflow {
        let mut overflow = Overflow::default();
        for (a, _) in before.iter().zip(after).filter(|(a, b)| a.is_finite() && !b.is_finite()) {
            overflow.add(&Overflow { n: 1, largest: a.abs() });
        }
        overflow
    }

    fn add(&mut self, other: &Overflow) {
        self.n += other.n;
        self.largest = self.largest.max(other.largest);
    }
}

/// What happens while files are written, in the order of the files.
pub enum Event<'e> {
    /// Some rows of a tensor were written.
    Rows {
        /// The tensor.
        spec: &'e TensorSpec,
        /// The type it had.
        from: Option<GgmlType>,
        /// Weights written just now.
        n_elements: u64,
        /// Bytes written just now.
        n_bytes: u64,
    },
    /// A tensor is complete.
    Tensor(&'e TensorReport),
}

/// Why files were not written. All targets are as they were.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PipelineError {
    /// A file cannot be written.
    #[error(transparent)]
    Write(#[from] WriteError),
    /// Weights cannot be had.
    #[error("tensor \"{tensor}\": {source}")]
    Source {
        /// The tensor.
        tensor: String,
        /// Why.
        source: SourceError,
    },
    /// Weights cannot be quantized.
    #[error("tensor \"{tensor}\": {source}")]
    Encode {
        /// The tensor.
        tensor: String,
        /// Why.
        source: QuantizeError,
    },
    /// What was written means nothing.
    #[error("tensor \"{tensor}\": {source}")]
    Decode {
        /// The tensor.
        tensor: String,
        /// Why.
        source: DequantizeError,
    },
    /// NaN or infinity among the weights.
    #[error("tensor \"{tensor}\": {value} in row {row}, column {column}; expected finite weights")]
    NonFinite {
        /// The tensor.
        tensor: String,
        /// The row, over all dimensions but the first.
        row: u64,
        /// The place in the row.
        column: u64,
        /// The weight.
        value: f32,
    },
    /// A finite weight that the new type cannot hold.
    #[error("tensor \"{tensor}\": {value} in row {row}, column {column} is out of the range of {ty}")]
    Overflow {
        /// The tensor.
        tensor: String,
        /// The row, over all dimensions but the first.
        row: u64,
        /// The place in the row.
        column: u64,
        /// The weight.
        value: f32,
        /// The type.
        ty: GgmlType,
    },
    /// Importance for another tensor.
    #[error(
        "tensor \"{tensor}\": {found} values of importance, expected {expected} ({columns} columns, {matrices} matrices)"
    )]
    Importance {
        /// The tensor.
        tensor: String,
        /// Values there should be.
        expected: u64,
        /// Values there are.
        found: usize,
        /// Row length.
        columns: u64,
        /// Matrices in the tensor.
        matrices: u64,
    },
    /// No threads to be had.
    #[error("cannot start threads: {0}")]
    Threads(#[from] rayon::ThreadPoolBuildError),
    /// The observer wanted no more.
    #[error("interrupted")]
    Interrupted,
}

/// Writes all files, then puts them in their places: all of them, or none if anything fails before that.
pub fn write_files(
    files: &[OutputFile<'_>],
    options: &WriteOptions,
    observe: &mut dyn FnMut(Event<'_>) -> ControlFlow<()>,
) -> Result<Vec<TensorReport>, PipelineError> {
    let tensors: Vec<_> = files.iter().flat_map(|file| &file.tensors).collect();
    let (complete, reports) = fly(&tensors, options, |flight| write_all(files, flight, observe))?;
    complete.into_iter().try_for_each(CompleteFile::persist)?;
    Ok(reports)
}

/// Gives the bytes of all tensors, one after the other, to `write`.
pub fn write_tensors(
    tensors: &[OutputTensor<'_>],
    options: &WriteOptions,
    observe: &mut dyn FnMut(Event<'_>) -> ControlFlow<()>,
    write: &mut dyn FnMut(&[u8]) -> Result<(), WriteError>,
) -> Result<Vec<TensorReport>, PipelineError> {
    let all: Vec<_> = tensors.iter().collect();
    fly(&all, options, |flight| all.iter().map(|tensor| flight.land(tensor, observe, write)).collect())
}

/// Does `work` with the tensors' chunks, which are converted meanwhile.
fn fly<T: Send>(
    tensors: &[&OutputTensor<'_>],
    options: &WriteOptions,
    work: impl FnOnce(&mut Flight<'_, '_>) -> Result<T, PipelineError>,
) -> Result<T, PipelineError> {
    tensors.iter().try_for_each(|tensor| tensor.check())?;
    let n_threads = options.n_threads.max(1);
    let pool = rayon::ThreadPoolBuilder::new()
        .num_threads(n_threads)
        .thread_name(|i| format!("qgguf-convert-{i}"))
        .build()?;
    let stop = AtomicBool::new(false);
    pool.in_place_scope(|scope| {
        let mut flight = Flight {
            scope,
            stop: &stop,
            options,
            tasks: Box::new(
                tensors.iter().flat_map(|&tensor| tensor.chunks().map(move |rows| (tensor, rows))),
            ),
            free: (0..n_threads * CHUNKS_PER_THREAD).map(|_| Buffers::default()).collect(),
            flying: VecDeque::new(),
        };
        let result = work(&mut flight);
        stop.store(true, Ordering::Relaxed);
        result
    })
}

fn write_all(
    files: &[OutputFile<'_>],
    flight: &mut Flight<'_, '_>,
    observe: &mut dyn FnMut(Event<'_>) -> ControlFlow<()>,
) -> Result<(Vec<CompleteFile>, Vec<TensorReport>), PipelineError> {
    let (mut complete, mut reports) = (Vec::new(), Vec::new());
    for file in files {
        let specs: Vec<TensorSpec> = file.tensors.iter().map(|tensor| tensor.spec.clone()).collect();
        let mut writer = GgufWriter::create(&file.path, 3, &file.metadata, &specs)?;
        if file.pad_empty {
            writer.pad_empty()?;
        }
        for tensor in &file.tensors {
            reports.push(flight.land(tensor, observe, &mut |bytes| writer.write(bytes))?);
        }
        complete.push(writer.complete()?);
    }
    Ok((complete, reports))
}

impl TensorReport {
    fn new(tensor: &OutputTensor<'_>) -> TensorReport {
        TensorReport {
            name: tensor.spec.name.clone(),
            shape: tensor.spec.shape.clone(),
            from: tensor.source.stored(),
            to: tensor.spec.ty,
            n_elements: tensor.spec.shape.iter().product(),
            n_bytes: 0,
            deviation: Deviation::default(),
            overflow: Overflow::default(),
        }
    }
}

impl OutputTensor<'_> {
    fn n_columns(&self) -> u64 {
        self.spec.shape.first().copied().unwrap_or(1)
    }

    /// Rows of one of its matrices.
    fn matrix_rows(&self) -> u64 {
        self.spec.shape.get(1).copied().unwrap_or(1)
    }

    fn n_rows(&self) -> u64 {
        if self.n_columns() == 0 { 0 } else { self.spec.shape.iter().skip(1).product() }
    }

    /// The rows that are converted together.
    fn chunks(&self) -> impl Iterator<Item = Range<u64>> + use<> {
        let n_rows = self.n_rows();
        let step = (CHUNK_WEIGHTS / self.n_columns().max(1)).max(1);
        (0..n_rows.div_ceil(step)).map(move |i| i * step..((i + 1) * step).min(n_rows))
    }

    fn is_copied(&self) -> bool {
        self.source.stored() == Some(self.spec.ty)
    }

    fn check(&self) -> Result<(), PipelineError> {
        let Some(importance) = &self.importance else { return Ok(()) };
        let (columns, matrices) = (self.n_columns(), self.spec.shape.iter().skip(2).product());
        let expected = columns * matrices;
        if importance.len() as u64 == expected {
            return Ok(());
        }
        let tensor = self.spec.name.clone();
        Err(PipelineError::Importance { tensor, expected, found: importance.len(), columns, matrices })
    }

    fn source_error(&self, source: SourceError) -> PipelineError {
        PipelineError::Source { tensor: self.spec.name.clone(), source }
    }

    /// Converts some rows into the buffers.
    fn convert(
        &self,
        rows: Range<u64>,
        options: &WriteOptions,
        mut buffers: Buffers,
    ) -> Result<Converted, PipelineError> {
        let n_columns = self.n_columns();
        let row_bytes = self.spec.ty.row_bytes(n_columns as usize).expect("checked for the header");
        buffers.bytes.resize((rows.end - rows.start) as usize * row_bytes, 0);
        let mut deviation = Deviation::default();
        let mut overflow = Overflow::default();
        if self.is_copied() {
            self.source.read_bytes(rows.clone(), &mut buffers.bytes).map_err(|e| self.source_error(e))?;
            if !options.allow_nonfinite {
                self.check_copied(rows.start, options, &mut buffers)?;
            }
            return Ok(Converted { buffers, deviation, overflow });
        }
        let step = (STEP_WEIGHTS / n_columns).max(1);
        let mut at = rows.start;
        let mut rest = buffers.bytes.as_mut_slice();
        while at < rows.end {
            // Rows of one step share their importance.
            let matrix_end = (at / self.matrix_rows() + 1) * self.matrix_rows();
            let end = (at + step).min(rows.end).min(matrix_end);
            let n = ((end - at) * n_columns) as usize;
            buffers.weights.resize(n, 0.0);
            buffers.restored.resize(n, 0.0);
            let (bytes, later) = rest.split_at_mut((end - at) as usize * row_bytes);
            rest = later;
            self.source.read_rows(at..end, &mut buffers.weights).map_err(|e| self.source_error(e))?;
            self.encode(at, &buffers.weights, options, bytes, &mut buffers.restored)?;
            let step = Deviation::between(&buffers.weights, &buffers.restored);
            if step.n_nonfinite > 0 {
                let is_fault =
                    |(a, b): (&f32, &f32)| !(a.is_finite() && (options.allow_overflow || b.is_finite()));
                let fault = buffers.weights.iter().zip(&buffers.restored).position(is_fault);
                if let Some(i) = fault.filter(|_| !options.allow_nonfinite) {
                    return Err(self.fault(at, i, &buffers.weights));
                }
                overflow.add(&Overflow::between(&buffers.weights, &buffers.restored));
            }
            deviation.add(&step);
            at = end;
        }
        Ok(Converted { buffers, deviation, overflow })
    }

    /// Whether copied rows are finite, as far as their type is understood.
    fn check_copied(
        &self,
        row: u64,
        options: &WriteOptions,
        buffers: &mut Buffers,
    ) -> Result<(), PipelineError> {
        let ty = self.spec.ty;
        if !dequantize_supported(ty) {
            return Ok(());
        }
        let step = (STEP_WEIGHTS / self.n_columns()).max(1);
        let row_bytes = ty.row_bytes(self.n_columns() as usize).expect("checked for the header");
        for (bytes, i) in buffers.bytes.chunks(step as usize * row_bytes).zip(0..) {
            buffers.restored.resize(bytes.len() / row_bytes * self.n_columns() as usize, 0.0);
            self.restore(options, bytes, &mut buffers.restored)?;
            if let Some(bad) = buffers.restored.iter().position(|x| !x.is_finite()) {
                return Err(self.fault(row + i * step, bad, &buffers.restored));
            }
        }
        Ok(())
    }

    fn restore(&self, options: &WriteOptions, bytes: &[u8], out: &mut [f32]) -> Result<(), PipelineError> {
        options
            .kernels
            .widen_rows(self.spec.ty, bytes, self.n_columns() as usize, out)
            .map_err(|source| PipelineError::Decode { tensor: self.spec.name.clone(), source })
    }

    /// Quantizes rows from `row` on, and reads what became of them.
    fn encode(
        &self,
        row: u64,
        weights: &[f32],
        options: &WriteOptions,
        bytes: &mut [u8],
        restored: &mut [f32],
    ) -> Result<(), PipelineError> {
        let n_columns = self.n_columns() as usize;
        let matrix = (row / self.matrix_rows()) as usize;
        let importance = self.importance.as_ref().map(|all| &all[matrix * n_columns..][..n_columns]);
        let failed = |source| PipelineError::Encode { tensor: self.spec.name.clone(), source };
        let (kernels, ty) = (options.kernels, self.spec.ty);
        kernels.quantize_rows_as_they_are(ty, weights, n_columns, importance, bytes).map_err(failed)?;
        self.restore(options, bytes, restored)
    }

    /// Says that weight `i`, counted from the start of row `row`, is not finite before or after. In a block that is the fault of
    /// its largest weight, or of one that is not finite.
    fn fault(&self, row: u64, i: usize, weights: &[f32]) -> PipelineError {
        let n_columns = self.n_columns();
        let size = self.spec.ty.block_size();
        let block = i / size * size..(i / size + 1) * size;
        let i = block.rev().max_by(|&a, &b| weights[a].abs().total_cmp(&weights[b].abs())).unwrap_or(i);
        let (row, column) = (row + i as u64 / n_columns, i as u64 % n_columns);
        let (tensor, value) = (self.spec.name.clone(), weights[i]);
        match value.is_finite() {
            true => PipelineError::Overflow { tensor, row, column, value, ty: self.spec.ty },
            false => PipelineError::NonFinite { tensor, row, column, value },
        }
    }
}

/// Memory that goes with a chunk, used again when the chunk is written.
#[derive(Default)]
struct Buffers {
    bytes: Vec<u8>,
    weights: Vec<f32>,
    restored: Vec<f32>,
}

struct Converted {
    buffers: Buffers,
    deviation: Deviation,
    overflow: Overflow,
}

type Answer = Result<Converted, PipelineError>;

/// Chunks under way, in order.
struct Flight<'s, 'e> {
    scope: &'s rayon::Scope<'e>,
    stop: &'e AtomicBool,
    options: &'e WriteOptions,
    tasks: Box<dyn Iterator<Item = (&'e OutputTensor<'e>, Range<u64>)> + 'e>,
    free: Vec<Buffers>,
    flying: VecDeque<Receiver<Answer>>,
}

impl Flight<'_, '_> {
    /// Waits for the chunks of a tensor, which must be the next one, and gives their bytes to `write`.
    fn land(
        &mut self,
        tensor: &OutputTensor<'_>,
        observe: &mut dyn FnMut(Event<'_>) -> ControlFlow<()>,
        write: &mut dyn FnMut(&[u8]) -> Result<(), WriteError>,
    ) -> Result<TensorReport, PipelineError> {
        let mut tell = |event: Event<'_>| match observe(event) {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(()) => Err(PipelineError::Interrupted),
        };
        let mut report = TensorReport::new(tensor);
        for rows in tensor.chunks() {
            let done = self.next()?;
            write(&done.buffers.bytes)?;
            report.n_bytes += done.buffers.bytes.len() as u64;
            report.deviation.add(&done.deviation);
            report.overflow.add(&done.overflow);
            tell(Event::Rows {
                spec: &tensor.spec,
                from: report.from,
                n_elements: (rows.end - rows.start) * tensor.n_columns(),
                n_bytes: done.buffers.bytes.len() as u64,
            })?;
            self.free.push(done.buffers);
        }
        tell(Event::Tensor(&report))?;
        Ok(report)
    }

    /// Starts as many chunks as there are buffers for, then waits for the first one.
    fn next(&mut self) -> Answer {
        while !self.free.is_empty() {
            let Some((tensor, rows)) = self.tasks.next() else { break };
            let buffers = self.free.pop().expect("there is one");
            tensor.source.prefetch(rows.clone());
            let (sender, receiver) = sync_channel(1);
            let (stop, options) = (self.stop, self.options);
            self.scope.spawn(move |_| {
                if !stop.load(Ordering::Relaxed) {
                    // Nobody listens any more after an error.
                    let _ = sender.send(tensor.convert(rows, options, buffers));
                }
            });
            self.flying.push_back(receiver);
        }
        let first = self.flying.pop_front().expect("as many chunks as the tensors have");
        // A task that panicked has no answer; the scope passes its panic on.
        first.recv().unwrap_or(Err(PipelineError::Interrupted))
    }
}
