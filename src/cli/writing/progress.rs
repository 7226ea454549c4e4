//! How far the writing of a model is: a bar and a line for each tensor on a terminal, elsewhere lines as it
//! goes on.

use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use qgguf_convert::pipeline::{Event, TensorReport};
use qgguf_gguf::GgmlType;

use crate::cli::terminal::{escape, note};

/// So many tensors have a line each, also where nothing takes the lines away again.
const FEW: usize = 20;

/// Tells of tensors on stderr while they are written.
pub struct Progress {
    bar: ProgressBar,
    start: Instant,
    n_tensors: usize,
    n_done: usize,
    n_elements: u64,
    elements_done: u64,
    bytes_done: u64,
    /// Off a terminal, the last tenth that was told.
    tenths_shown: u64,
}

impl Progress {
    /// Begins with nothing done of so many tensors with so many weights.
    pub fn new(n_tensors: usize, n_elements: u64) -> Progress {
        // Without a terminal on stderr the bar shows nothing.
        let bar = ProgressBar::new(n_elements);
        let style = ProgressStyle::with_template("{bar:32} {percent:>3} % {msg}");
        bar.set_style(style.expect("the template is right"));
        Progress {
            bar,
            start: Instant::now(),
            n_tensors,
            n_done: 0,
            n_elements,
            elements_done: 0,
            bytes_done: 0,
            tenths_shown: 0,
        }
    }

    /// Shows what happened.
    pub fn show(&mut self, event: &Event<'_>) {
        match event {
            Event::Rows { spec, from, n_elements, n_bytes } => {
                self.elements_done += n_elements;
                self.bytes_done += source_bytes(*from, *n_elements).unwrap_or(*n_bytes);
                self.bar.set_position(self.elements_done);
                self.bar.set_message(format!("{}  {}", self.pace(), escape(&spec.name)));
            }
            Event::Tensor(report) => {
                self.n_done += 1;
                let line = self.line(report);
                if !self.bar.is_hidden() {
                    self.bar.println(line);
                } else if self.reaches_a_tenth() || self.n_tensors <= FEW {
                    note!("{line}, {}", self.pace());
                }
            }
        }
    }

    /// Whether another tenth of the weights is done since this was last true.
    fn reaches_a_tenth(&mut self) -> bool {
        let tenths = self.elements_done.saturating_mul(10) / self.n_elements.max(1);
        let reached = tenths > self.tenths_shown;
        self.tenths_shown = tenths;
        reached
    }

    /// Time since the beginning.
    pub fn elapsed(&self) -> Duration {
        self.start.elapsed()
    }

    /// Takes the bar away; returns millions of bytes read per second.
    pub fn finish(&self) -> f64 {
        self.bar.finish_and_clear();
        self.speed()
    }

    fn speed(&self) -> f64 {
        self.bytes_done as f64 / 1e6 / self.elapsed().as_secs_f64().max(1e-9)
    }

    /// `210 MB/s, 12 s left`.
    fn pace(&self) -> String {
        let left = (self.n_elements - self.elements_done.min(self.n_elements)) as f64;
        let seconds = self.elapsed().as_secs_f64() * left / self.elements_done.max(1) as f64;
        format!("{:.0} MB/s, {seconds:.0} s left", self.speed())
    }

    /// `[ 3/24] blk.0.attn_k.weight  bf16 -> q4_K  rmse 0.0021, max 0.011`.
    fn line(&self, report: &TensorReport) -> String {
        let width = self.n_tensors.to_string().len();
        let types = match report.from {
            Some(from) if from == report.to => from.to_string(),
            Some(from) => format!("{from} -> {}", report.to),
            None => report.to.to_string(),
        };
        let error = match report.deviation.n {
            0 => "copied".to_owned(),
            _ => format!("rmse {:.3e}, max {:.3e}", report.deviation.rmse(), report.deviation.max),
        };
        format!(
            "[{:>width$}/{}] {:<32} {types:<14} {error}",
            self.n_done,
            self.n_tensors,
            escape(&report.name)
        )
    }
}

/// Bytes of so many weights as they were stored.
pub fn source_bytes(from: Option<GgmlType>, n_elements: u64) -> Option<u64> {
    let ty = from?;
    Some(n_elements / ty.block_size() as u64 * ty.block_bytes() as u64)
}
