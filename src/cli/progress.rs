//! Progress of long work on stderr: a bar with the time left on a terminal, plain text elsewhere.

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

use super::terminal::note;

/// Long work that can be counted.
pub struct Progress {
    /// On a terminal.
    bar: Option<ProgressBar>,
    n_units: usize,
    n_done: usize,
    start: Instant,
    unit: &'static str,
}

impl Progress {
    /// Work on so many of what is called `unit`.
    pub fn start(n_units: usize, unit: &'static str) -> Progress {
        let bar = std::io::stderr().is_terminal().then(|| {
            let bar = ProgressBar::new(n_units as u64);
            // Nothing is known about the time that is left.
            bar.set_style(style(unit, ""));
            bar.tick();
            bar
        });
        Progress { bar, n_units, n_done: 0, start: Instant::now(), unit }
    }

    /// So many more are done; `state` stands beside the bar, or is printed as it is.
    pub fn step(&mut self, n: usize, state: &str) {
        let is_first = self.n_done == 0;
        self.n_done += n;
        if let Some(bar) = &self.bar {
            if is_first {
                bar.set_style(style(self.unit, ", {eta} left"));
            }
            bar.inc(n as u64);
            return bar.set_message(state.trim().trim_end_matches(',').to_owned());
        }
        if is_first && self.n_done < self.n_units {
            let time = self.start.elapsed();
            let left = (self.n_units - self.n_done) as f64 / self.n_done.max(1) as f64;
            note!(
                "qgguf: {} of {} {}s in {:.2} s, about {} to go",
                self.n_done,
                self.n_units,
                self.unit,
                time.as_secs_f64(),
                duration(time.mul_f64(left))
            );
        }
        let _ = write!(std::io::stderr(), "{state}");
    }

    /// The work is over, or stops here. Says how much was done and how fast: `n` tokens a unit.
    pub fn finish(self, n: usize) {
        match &self.bar {
            Some(bar) => bar.finish_and_clear(),
            None => note!(""),
        }
        if self.n_done > 0 {
            let (tokens, time) = (self.n_done * n, self.start.elapsed());
            note!(
                "qgguf: {tokens} tokens in {}, {:.1} tok/s",
                duration(time),
                tokens as f64 / time.as_secs_f64()
            );
        }
        if self.n_done < self.n_units {
            note!("qgguf: interrupted after {} of {} {}s", self.n_done, self.n_units, self.unit);
        }
    }

    /// Time since the start.
    pub fn elapsed(&self) -> Duration {
        self.start.elapsed()
    }
}

/// How the bar looks.
fn style(unit: &str, left: &str) -> ProgressStyle {
    let template = format!("{{bar:30}} {{pos}}/{{len}} {unit}s{left}  {{wide_msg}}");
    ProgressStyle::with_template(&template).unwrap_or(ProgressStyle::default_bar())
}

/// `8.3 s`, `4 min 10 s`, `2 h 5 min`.
fn duration(time: Duration) -> String {
    match time.as_secs() {
        0..90 => format!("{:.1} s", time.as_secs_f64()),
        s @ 90..5400 => format!("{} min {} s", s / 60, s % 60),
        s => format!("{} h {} min", s / 3600, s % 3600 / 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_units() {
        let said = |ms| duration(Duration::from_millis(ms));
        assert_eq!([said(8_340), said(250_000), said(7_500_000)], ["8.3 s", "4 min 10 s", "2 h 5 min"]);
    }
}
