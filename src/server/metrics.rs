//! Counters and histograms for `/metrics`, in Prometheus' text format with llama-server's names.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use crate::engine::service::{Histogram, SlotState, Stats};

/// What the server counts itself; the engines count the rest.
#[derive(Debug, Default)]
pub struct Metrics {
    cancelled: AtomicU64,
    /// Responses by status.
    statuses: Mutex<BTreeMap<u16, u64>>,
}

/// A figure of an engine: its name, whether it only ever grows, what it is, and where it stands.
type Figure = (&'static str, bool, &'static str, fn(&Stats) -> f64);

const FIGURES: [Figure; 17] = [
    ("prompt_tokens_total", true, "Prompt tokens evaluated.", |s| s.n_prompt as f64),
    ("prompt_tokens_cached_total", true, "Prompt tokens taken from the cache.", |s| s.n_cached as f64),
    ("prompt_seconds_total", true, "Time for prompts.", |s| s.prompt_time.as_secs_f64()),
    ("tokens_predicted_total", true, "Tokens generated.", |s| s.n_generated as f64),
    ("tokens_predicted_seconds_total", true, "Time for generated tokens.", |s| s.decode_time.as_secs_f64()),
    ("n_decode_total", true, "Forward passes.", |s| s.n_steps as f64),
    ("sequences_parked_total", true, "Sequences that gave their memory to others.", |s| s.n_parked as f64),
    ("n_tokens_max", true, "The most tokens that a sequence had.", |s| s.n_tokens_max as f64),
    ("prompt_tokens_seconds", false, "Prompt tokens evaluated per second.", |s| {
        rate(s.n_prompt, s.prompt_time)
    }),
    ("predicted_tokens_seconds", false, "Tokens generated per second.", |s| {
        rate(s.n_generated, s.decode_time)
    }),
    ("requests_processing", false, "Requests being evaluated.", |s| n_busy(s) as f64),
    ("requests_deferred", false, "Requests waiting in the queue.", |s| s.n_waiting as f64),
    ("slots", false, "Requests that can be evaluated at once.", |s| s.slots.len() as f64),
    ("n_busy_slots_per_decode", false, "Sequences in a forward pass, on average.", |s| {
        if s.n_steps == 0 { 0.0 } else { s.n_busy as f64 / s.n_steps as f64 }
    }),
    ("kv_cache_bytes", false, "Bytes of keys and values in use.", |s| s.cache_bytes_in_use as f64),
    ("kv_cache_limit_bytes", false, "Bytes of keys and values at most.", |s| s.cache_bytes as f64),
    ("kv_cache_usage_ratio", false, "Share of the memory for keys and values in use.", |s| {
        s.cache_bytes_in_use as f64 / s.cache_bytes.max(1) as f64
    }),
];

type Times = (&'static str, &'static str, fn(&Stats) -> &Histogram);

const TIMES: [Times; 3] = [
    ("queue_time_seconds", "Time of a request in the queue.", |s| &s.queue_time),
    ("time_to_first_token_seconds", "From submission to the first token.", |s| &s.time_to_first_token),
    ("inter_token_latency_seconds", "Between two tokens of an answer.", |s| &s.time_between_tokens),
];

fn rate(n: u64, time: Duration) -> f64 {
    if time.is_zero() { 0.0 } else { n as f64 / time.as_secs_f64() }
}

/// Slots at work.
pub fn n_busy(stats: &Stats) -> usize {
    stats.slots.iter().filter(|slot| slot.state != SlotState::Idle).count()
}

impl Metrics {
    /// Counts an answer that its client did not wait for.
    pub fn cancelled(&self) {
        self.cancelled.fetch_add(1, Relaxed);
    }

    /// Counts a response.
    pub fn responded(&self, status: u16) {
        *self.statuses.lock().unwrap_or_else(|e| e.into_inner()).entry(status).or_insert(0) += 1;
    }

    /// The text that Prometheus reads, with what the engine of each model says now. Several models are told apart by a
    /// label.
    pub fn text(&self, engines: &[(&str, Stats)]) -> String {
        let mut out = String::new();
        let label = |name: &str| match engines.len() {
            1 => String::new(),
            _ => format!("model=\"{}\"", name.escape_default()),
        };
        for (name, grows, help, value) in FIGURES {
            header(name, if grows { "counter" } else { "gauge" }, help, &mut out);
            for (model, stats) in engines {
                let _ = writeln!(out, "llamacpp:{name}{} {}", braced(&label(model)), value(stats));
            }
        }
        for (name, help, times) in TIMES {
            header(name, "histogram", help, &mut out);
            engines.iter().for_each(|(model, stats)| histogram(name, &label(model), times(stats), &mut out));
        }
        header(
            "requests_cancelled_total",
            "counter",
            "Answers that their client did not wait for.",
            &mut out,
        );
        let _ = writeln!(out, "llamacpp:requests_cancelled_total {}", self.cancelled.load(Relaxed));
        header("http_responses_total", "counter", "Responses by HTTP status.", &mut out);
        for (status, n) in self.statuses.lock().unwrap_or_else(|e| e.into_inner()).iter() {
            let _ = writeln!(out, "llamacpp:http_responses_total{{status=\"{status}\"}} {n}");
        }
        out
    }
}

fn header(name: &str, kind: &str, help: &str, out: &mut String) {
    let _ = writeln!(out, "# HELP llamacpp:{name} {help}\n# TYPE llamacpp:{name} {kind}");
}

fn braced(label: &str) -> String {
    if label.is_empty() { String::new() } else { format!("{{{label}}}") }
}

fn histogram(name: &str, label: &str, times: &Histogram, out: &mut String) {
    let comma = if label.is_empty() { "" } else { "," };
    let mut count = 0;
    for (bound, n) in Histogram::BOUNDS.iter().zip(times.counts) {
        count += n;
        let _ = writeln!(out, "llamacpp:{name}_bucket{{{label}{comma}le=\"{bound}\"}} {count}");
    }
    let _ = writeln!(out, "llamacpp:{name}_bucket{{{label}{comma}le=\"+Inf\"}} {}", times.n);
    let label = braced(label);
    let _ =
        writeln!(out, "llamacpp:{name}_sum{label} {}\nllamacpp:{name}_count{label} {}", times.sum, times.n);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_add_up_from_below() {
        let mut times = Histogram::default();
        for ms in [1, 3, 3, 400_000] {
            times.add(Duration::from_millis(ms));
        }
        let mut text = String::new();
        histogram("x", "", &times, &mut text);
        let lines: Vec<&str> = text.lines().collect();
        let start = ["1\"} 1", "25\"} 1", "5\"} 3"].map(|end| format!("llamacpp:x_bucket{{le=\"0.00{end}"));
        assert_eq!(lines[..3], start);
        let end =
            ["_bucket{le=\"+Inf\"} 4", "_sum 400.007", "_count 4"].map(|end| format!("llamacpp:x{end}"));
        assert_eq!(lines[15..], end);
    }
}
