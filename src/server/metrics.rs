//! Counters and histograms for `/metrics`, in Prometheus' text format with llama-server's names.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use crate::engine::service::{Outcome, Stats};

/// Everything that is counted while the server runs.
#[derive(Debug, Default)]
pub struct Metrics {
    prompt_tokens: AtomicU64,
    cached_tokens: AtomicU64,
    prompt_time: Micros,
    predicted_tokens: AtomicU64,
    predicted_time: Micros,
    max_tokens: AtomicU64,
    cancelled: AtomicU64,
    /// From the submission until a request has left the queue.
    pub queue_time: Histogram,
    /// From the submission until the first token.
    pub first_token: Histogram,
    /// Between two tokens of one answer.
    pub between_tokens: Histogram,
    /// Answered requests by status.
    statuses: Mutex<BTreeMap<u16, u64>>,
}

/// A sum of times.
#[derive(Debug, Default)]
struct Micros(AtomicU64);

impl Micros {
    fn add(&self, time: Duration) {
        self.0.fetch_add(u64::try_from(time.as_micros()).unwrap_or(u64::MAX), Relaxed);
    }

    fn seconds(&self) -> f64 {
        self.0.load(Relaxed) as f64 / 1e6
    }
}

/// Upper ends of the buckets, in seconds: from a fast token to a long wait.
const BUCKETS: [f64; 16] =
    [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0];

/// How often a time fell into each bucket.
#[derive(Debug, Default)]
pub struct Histogram {
    buckets: [AtomicU64; BUCKETS.len()],
    /// Beyond the last bucket.
    above: AtomicU64,
    sum: Micros,
}

impl Histogram {
    /// Counts one time.
    pub fn observe(&self, time: Duration) {
        let seconds = time.as_secs_f64();
        let at = BUCKETS.iter().position(|&end| seconds <= end);
        at.map_or(&self.above, |at| &self.buckets[at]).fetch_add(1, Relaxed);
        self.sum.add(time);
    }

    fn write(&self, name: &str, help: &str, out: &mut String) {
        header(name, "histogram", help, out);
        let mut count = 0;
        for (end, bucket) in BUCKETS.iter().zip(&self.buckets) {
            count += bucket.load(Relaxed);
            let _ = writeln!(out, "{name}_bucket{{le=\"{end}\"}} {count}");
        }
        count += self.above.load(Relaxed);
        let _ = writeln!(out, "{name}_bucket{{le=\"+Inf\"}} {count}");
        let _ = writeln!(out, "{name}_sum {}\n{name}_count {count}", self.sum.seconds());
    }
}

fn header(name: &str, kind: &str, help: &str, out: &mut String) {
    let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} {kind}");
}

impl Metrics {
    /// Counts an answer that came to its end.
    pub fn finished(&self, outcome: &Outcome) {
        self.prompt_tokens
            .fetch_add((outcome.n_prompt - outcome.n_cached.min(outcome.n_prompt)) as u64, Relaxed);
        self.cached_tokens.fetch_add(outcome.n_cached as u64, Relaxed);
        self.prompt_time.add(outcome.prompt_time);
        self.predicted_tokens.fetch_add(outcome.n_generated as u64, Relaxed);
        self.predicted_time.add(outcome.decode_time);
        self.max_tokens.fetch_max((outcome.n_prompt + outcome.n_generated) as u64, Relaxed);
    }

    /// Counts an answer that its client did not wait for.
    pub fn cancelled(&self) {
        self.cancelled.fetch_add(1, Relaxed);
    }

    /// Counts a response.
    pub fn responded(&self, status: u16) {
        *self.statuses.lock().unwrap_or_else(|e| e.into_inner()).entry(status).or_insert(0) += 1;
    }

    /// The text that Prometheus reads; `stats` is what the engines say now.
    pub fn text(&self, stats: &Stats) -> String {
        let mut out = String::new();
        self.write_counters(&mut out);
        let rate = |n: &AtomicU64, time: &Micros| match time.seconds() {
            seconds if seconds > 0.0 => n.load(Relaxed) as f64 / seconds,
            _ => 0.0,
        };
        for (name, help, value) in [
            (
                "prompt_tokens_seconds",
                "Prompt tokens evaluated per second, on average.",
                rate(&self.prompt_tokens, &self.prompt_time),
            ),
            (
                "predicted_tokens_seconds",
                "Tokens generated per second, on average.",
                rate(&self.predicted_tokens, &self.predicted_time),
            ),
            ("requests_processing", "Requests being evaluated.", stats.n_running as f64),
            ("requests_deferred", "Requests waiting in the queue.", stats.n_queued as f64),
            ("slots", "Requests that can be evaluated at once.", stats.n_slots as f64),
        ] {
            let name = format!("llamacpp:{name}");
            header(&name, "gauge", help, &mut out);
            let _ = writeln!(out, "{name} {value}");
        }
        self.queue_time.write("llamacpp:queue_time_seconds", "Time of a request in the queue.", &mut out);
        self.first_token.write(
            "llamacpp:time_to_first_token_seconds",
            "From submission to the first token.",
            &mut out,
        );
        self.between_tokens.write(
            "llamacpp:inter_token_latency_seconds",
            "Between two tokens of an answer.",
            &mut out,
        );
        out
    }

    fn write_counters(&self, out: &mut String) {
        let count = |n: &AtomicU64| n.load(Relaxed) as f64;
        for (name, help, value) in [
            ("prompt_tokens_total", "Prompt tokens evaluated.", count(&self.prompt_tokens)),
            ("prompt_tokens_cached_total", "Prompt tokens taken from the cache.", count(&self.cached_tokens)),
            ("prompt_seconds_total", "Time for prompts.", self.prompt_time.seconds()),
            ("tokens_predicted_total", "Tokens generated.", count(&self.predicted_tokens)),
            ("tokens_predicted_seconds_total", "Time for generated tokens.", self.predicted_time.seconds()),
            ("n_tokens_max", "The most tokens that a sequence had.", count(&self.max_tokens)),
            (
                "requests_cancelled_total",
                "Answers that their client did not wait for.",
                count(&self.cancelled),
            ),
        ] {
            let name = format!("llamacpp:{name}");
            header(&name, "counter", help, out);
            let _ = writeln!(out, "{name} {value}");
        }
        let name = "llamacpp:http_responses_total";
        header(name, "counter", "Responses by HTTP status.", out);
        for (status, n) in self.statuses.lock().unwrap_or_else(|e| e.into_inner()).iter() {
            let _ = writeln!(out, "{name}{{status=\"{status}\"}} {n}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_add_up_from_below() {
        let histogram = Histogram::default();
        for ms in [1, 3, 3, 400_000] {
            histogram.observe(Duration::from_millis(ms));
        }
        let mut text = String::new();
        histogram.write("x", "Help.", &mut text);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(
            lines[..5],
            [
                "# HELP x Help.",
                "# TYPE x histogram",
                "x_bucket{le=\"0.001\"} 1",
                "x_bucket{le=\"0.0025\"} 1",
                "x_bucket{le=\"0.005\"} 3"
            ]
        );
        assert_eq!(
            lines[17..],
            ["x_bucket{le=\"300\"} 3", "x_bucket{le=\"+Inf\"} 4", "x_sum 400.007", "x_count 4"]
        );
    }

    #[test]
    fn rates_without_time_are_zero_and_not_nan() {
        let text = Metrics::default().text(&Stats::default());
        assert!(text.contains("\nllamacpp:predicted_tokens_seconds 0\n"), "{text}");
        assert!(!text.contains("NaN"));
    }
}
