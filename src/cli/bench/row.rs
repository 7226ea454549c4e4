//! A measured test with everything llama-bench says about one, under its names and in its order.

use jiff::Timestamp;

use super::limits::Limits;
use super::plan::Test;
use super::subject::Subject;

/// The name of the backend, as llama-bench has it; which instruction set it uses is a field of its own.
pub const BACKEND: &str = "CPU";
/// llama-bench names the commit here.
pub const BUILD_COMMIT: &str = env!("CARGO_PKG_VERSION");

/// The release as one number that grows, where llama-bench counts commits.
pub fn build_number() -> i64 {
    let part = |text: &str| text.parse::<i64>().unwrap_or(0);
    (part(env!("CARGO_PKG_VERSION_MAJOR")) * 100 + part(env!("CARGO_PKG_VERSION_MINOR"))) * 100
        + part(env!("CARGO_PKG_VERSION_PATCH"))
}

/// The value of a field. Its kind is the same in every row.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    Text(String),
    Integer(i64),
    Bool(bool),
    Real(f64),
}

impl Value {
    /// As llama-bench prints it, without quotes.
    pub fn plain(&self) -> String {
        match self {
            Value::Text(text) => text.clone(),
            Value::Integer(n) => n.to_string(),
            Value::Bool(on) => u8::from(*on).to_string(),
            Value::Real(x) => format!("{x:.6}"),
        }
    }
}

fn text(text: impl Into<String>) -> Value {
    Value::Text(text.into())
}

fn integer(n: impl TryInto<i64>) -> Value {
    Value::Integer(n.try_into().unwrap_or(i64::MAX))
}

/// A measured test.
pub struct Row {
    pub test: Test,
    pub model_type: String,
    pub model_size: u64,
    pub model_n_params: u64,
    /// When it began, in UTC.
    pub test_time: String,
    /// Nanoseconds of every repetition.
    pub samples_ns: Vec<u64>,
    /// What the machine can do and the tokens per second it allows, if that was measured.
    pub limit: Option<(Limits, f64)>,
}

impl Row {
    /// A row without samples.
    pub fn new(test: &Test, subject: &Subject, limit: Option<(Limits, f64)>) -> Row {
        Row {
            test: test.clone(),
            model_type: subject.model_type.clone(),
            model_size: subject.n_bytes,
            model_n_params: subject.n_params,
            test_time: Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
            samples_ns: Vec::new(),
            limit,
        }
    }

    /// Tokens per second of every repetition.
    pub fn samples_ts(&self) -> Vec<f64> {
        self.samples_ns.iter().map(|&ns| 1e9 * self.test.n_tokens() as f64 / ns.max(1) as f64).collect()
    }

    /// Mean and standard deviation of the tokens per second.
    pub fn tokens_per_second(&self) -> (f64, f64) {
        mean_and_deviation(&self.samples_ts())
    }

    /// The mean as a share of the limit, if that was measured.
    pub fn share_of_limit(&self) -> Option<f64> {
        self.limit.map(|(_, limit)| self.tokens_per_second().0 / limit)
    }

    /// All fields but the samples. The first ones are llama-bench's; what it does not have comes last.
    pub fn fields(&self, machine: &Machine) -> Vec<(&'static str, Value)> {
        let test = &self.test;
        let ns: Vec<f64> = self.samples_ns.iter().map(|&ns| ns as f64).collect();
        let ((avg_ns, stddev_ns), (avg_ts, stddev_ts)) = (mean_and_deviation(&ns), self.tokens_per_second());
        let mut fields = vec![
            ("build_commit", text(BUILD_COMMIT)),
            ("build_number", integer(build_number())),
            ("cpu_info", text(&machine.cpu)),
            ("gpu_info", text("")),
            ("backends", text(BACKEND)),
            ("model_filename", text(test.model.display().to_string())),
            ("model_type", text(&self.model_type)),
            ("model_size", integer(self.model_size)),
            ("model_n_params", integer(self.model_n_params)),
            ("n_batch", integer(test.n_batch)),
            ("n_ubatch", integer(test.n_ubatch)),
            ("n_threads", integer(test.n_threads)),
            ("cpu_mask", text("0x0")),
            ("cpu_strict", Value::Bool(false)),
            ("poll", integer(50)),
            ("type_k", text(test.type_k.name())),
            ("type_v", text(test.type_v.name())),
            ("n_gpu_layers", integer(test.n_gpu_layers)),
            ("n_cpu_moe", integer(0)),
            ("split_mode", text("layer")),
            ("main_gpu", integer(0)),
            ("no_kv_offload", Value::Bool(false)),
            ("flash_attn", integer(test.flash_attn)),
            ("devices", text("auto")),
            ("tensor_split", text("0.00")),
            ("tensor_buft_overrides", text("none")),
            ("load_mode", text(test.load_mode.name())),
            ("lazy_mode", text("auto")),
            ("embeddings", Value::Bool(false)),
            ("no_op_offload", integer(0)),
            ("no_host", Value::Bool(false)),
            ("repack", Value::Bool(true)),
            ("fit_target", integer(0)),
            ("fit_min_ctx", integer(0)),
            ("n_prompt", integer(test.n_prompt)),
            ("n_gen", integer(test.n_gen)),
            ("n_depth", integer(test.n_depth)),
            ("test_time", text(&self.test_time)),
            ("avg_ns", integer(avg_ns as u64)),
            ("stddev_ns", integer(stddev_ns as u64)),
            ("avg_ts", Value::Real(avg_ts)),
            ("stddev_ts", Value::Real(stddev_ts)),
            // llama-bench had this before `load_mode`, and scripts still ask for it.
            ("use_mmap", Value::Bool(test.load_mode != super::plan::LoadMode::None)),
            ("isa", text(machine.isa)),
        ];
        if let (Some((limits, limit)), Some(share)) = (self.limit, self.share_of_limit()) {
            fields.extend([
                ("read_bytes_per_second", Value::Real(limits.read_bandwidth)),
                ("int8_multiply_adds_per_second", Value::Real(limits.multiply_add_rate)),
                ("f32_multiply_adds_per_second", Value::Real(limits.float_multiply_add_rate)),
                ("limit_ts", Value::Real(limit)),
                ("limit_percent", Value::Real(100.0 * share)),
            ]);
        }
        fields
    }
}

/// What all rows were measured on.
pub struct Machine {
    /// The CPU's name.
    pub cpu: String,
    /// The instruction set of the kernels.
    pub isa: &'static str,
}

/// The mean and the sample standard deviation, 0 of a single value.
fn mean_and_deviation(values: &[f64]) -> (f64, f64) {
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n.max(1.0);
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    (mean, (squares / (n - 1.0).max(1.0)).sqrt())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_deviation_is_that_of_a_sample() {
        assert_eq!(mean_and_deviation(&[2.0, 4.0, 6.0]), (4.0, 2.0));
        assert_eq!(mean_and_deviation(&[7.0]), (7.0, 0.0));
        assert_eq!(mean_and_deviation(&[]), (0.0, 0.0));
    }
}
