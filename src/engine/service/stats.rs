//! What a service has done and is doing, for whoever watches it.

use std::time::Duration;

/// Counters since the start, and the state as of the last step.
#[derive(Clone, Debug)]
pub struct Stats {
    /// Tokens of prompts that were evaluated.
    pub n_prompt: u64,
    /// Tokens of prompts that need not be evaluated.
    pub n_cached: u64,
    /// Time from the start of work on requests until their prompts were evaluated.
    pub prompt_time: Duration,
    /// Tokens drawn.
    pub n_generated: u64,
    /// Time from then until they ended.
    pub decode_time: Duration,
    /// Forward passes.
    pub n_steps: u64,
    /// Sequences in them, all passes together.
    pub n_busy: u64,
    /// Times that a sequence had to give its memory to others, to be evaluated anew later.
    pub n_parked: u64,
    /// The most tokens that a sequence had.
    pub n_tokens_max: usize,
    /// Requests that wait.
    pub n_waiting: usize,
    /// Bytes of the cache in use.
    pub cache_bytes_in_use: usize,
    /// Bytes that it may use.
    pub cache_bytes: usize,
    /// Places for requests.
    pub slots: Vec<Slot>,
    /// Seconds in the queue.
    pub queue_time: Histogram,
    /// Seconds from the submission to the first token.
    pub time_to_first_token: Histogram,
    /// Seconds from one token of a request to the next.
    pub time_between_tokens: Histogram,
}

/// What a place for a request is doing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Slot {
    /// Whether and how a request is worked on.
    pub state: SlotState,
    /// The ticket's number.
    pub request: u64,
    /// Tokens of the prompt.
    pub n_prompt: usize,
    /// Those that were not evaluated.
    pub n_cached: usize,
    /// Positions evaluated so far.
    pub n_evaluated: usize,
    /// Tokens drawn.
    pub n_generated: usize,
}

/// What is happening in a slot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SlotState {
    /// Nothing.
    #[default]
    Idle,
    /// A prompt, or a parked text, is evaluated.
    Prompt,
    /// Tokens are drawn.
    Generating,
}

/// Counts of durations by upper bounds.
#[derive(Clone, Debug, Default)]
pub struct Histogram {
    /// How many were at most as long as each of [`Histogram::BOUNDS`], and longer than the bound before.
    pub counts: [u64; Histogram::BOUNDS.len()],
    /// How many there were, those longer than every bound included.
    pub n: u64,
    /// Seconds, all together.
    pub sum: f64,
}

impl Histogram {
    /// Upper bounds, in seconds.
    pub const BOUNDS: [f64; 15] =
        [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0];

    /// Counts a duration.
    pub fn add(&mut self, time: Duration) {
        let seconds = time.as_secs_f64();
        self.n += 1;
        self.sum += seconds;
        if let Some(at) = Histogram::BOUNDS.iter().position(|&bound| seconds <= bound) {
            self.counts[at] += 1;
        }
    }
}

impl Stats {
    pub(super) fn new(n_slots: usize, cache_bytes: usize) -> Stats {
        Stats {
            n_prompt: 0,
            n_cached: 0,
            prompt_time: Duration::ZERO,
            n_generated: 0,
            decode_time: Duration::ZERO,
            n_steps: 0,
            n_busy: 0,
            n_parked: 0,
            n_tokens_max: 0,
            n_waiting: 0,
            cache_bytes_in_use: 0,
            cache_bytes,
            slots: vec![Slot::default(); n_slots],
            queue_time: Histogram::default(),
            time_to_first_token: Histogram::default(),
            time_between_tokens: Histogram::default(),
        }
    }
}
