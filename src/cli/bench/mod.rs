//! `qgguf bench`: tokens per second, with llama-bench's flags, tests and output formats, beside what the machine
//! allows.

mod chart;
mod compatibility;
mod cpu;
mod formats;
mod limits;
mod lists;
mod measure;
mod plan;
mod row;
mod subject;
mod work;

use std::collections::HashMap;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use qgguf_kernels::{Isa, Kernels, KvType};

use super::error::{Failure, Result};
use super::interrupt::{self, Generation};
use super::output::{check_plot, stdout, write_file};
use super::terminal::{self, note};
use super::{load, memory};
use compatibility::Ignored;
use formats::{Format, Printer};
use limits::Limits;
use lists::List;
use measure::Runner;
use plan::{Lists, LoadMode, Test};
use row::{Machine, Row};
use subject::Subject;

/// Measure tokens per second, and how much of what the machine allows that is
///
/// Flags, tests and output formats are those of llama.cpp's llama-bench. ppN evaluates a prompt of N random tokens,
/// tgN evaluates N tokens one by one; "@ dN" says that N positions were in the context before. Lists, like 1,2,4 or
/// 1-4 or 1-8*2, and repeated flags are all combined.
///
/// Beside each result stands the limit of the same threads, measured in the same process: reading the weights of a
/// token (and its keys and values) at the bandwidth of memory, or making its multiply-adds at the rate the
/// instruction set sustains, whichever takes longer; attention is counted with it.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  qgguf bench -m a.gguf -m b.gguf -t 4,8
  qgguf bench -m model.gguf -p 512 -n 128 -d 0,4096 -ctk f16,q8_0
  qgguf bench -m model.gguf -t 1-8 --plot threads.svg
  qgguf bench -m model.gguf -o json | jq '.[].avg_ts'")]
pub struct Args {
    /// GGUF files [default: the tiny model in models/]
    #[arg(short, long, value_name = "FILE,..", value_delimiter = ',', help_heading = "Tests")]
    model: Vec<PathBuf>,
    /// Tokens of a prompt, 0 for no such test [default: 512]
    #[arg(short = 'p', long, value_name = "N,..", value_parser = lists::counts, help_heading = "Tests")]
    n_prompt: Vec<List<usize>>,
    /// Tokens evaluated one by one, 0 for no such test [default: 128]
    #[arg(short, long, value_name = "N,..", value_parser = lists::counts, help_heading = "Tests")]
    n_gen: Vec<List<usize>>,
    /// Measure a prompt of P tokens and G tokens after it together (-pg)
    #[arg(long, value_name = "P,G", value_parser = lists::pair, help_heading = "Tests")]
    pg: Vec<(usize, usize)>,
    /// Tokens in the context before the test [default: 0]
    #[arg(short = 'd', long, value_name = "N,..", value_parser = lists::counts, help_heading = "Tests")]
    n_depth: Vec<List<usize>>,
    /// Times that each test is repeated
    #[arg(
        short,
        long,
        value_name = "N",
        default_value_t = 5,
        value_parser = clap::value_parser!(u32).range(1..),
        help_heading = "Tests"
    )]
    repetitions: u32,
    /// Seconds to wait before each test
    #[arg(long, value_name = "S", default_value_t = 0, help_heading = "Tests")]
    delay: u32,
    /// Start without running each test once unmeasured
    #[arg(long, help_heading = "Tests")]
    no_warmup: bool,

    /// Threads [default: physical cores that this process may use]
    #[arg(short, long, value_name = "N,..", value_parser = lists::threads, help_heading = "Computation")]
    threads: Vec<List<usize>>,
    /// Prompt tokens given to the model at once [default: 2048]
    #[arg(short, long, value_name = "N,..", value_parser = lists::sizes, help_heading = "Computation")]
    batch_size: Vec<List<usize>>,
    /// Prompt tokens evaluated together (-ub) [default: 512]
    #[arg(long, value_name = "N,..", value_parser = lists::sizes, help_heading = "Computation")]
    ubatch_size: Vec<List<usize>>,
    /// How keys are stored (-ctk) [default: f16]
    #[arg(long, value_name = "TYPE,..", value_parser = lists::kv_types, help_heading = "Computation")]
    cache_type_k: Vec<List<KvType>>,
    /// How values are stored (-ctv) [default: f16]
    #[arg(long, value_name = "TYPE,..", value_parser = lists::kv_types, help_heading = "Computation")]
    cache_type_v: Vec<List<KvType>>,
    /// How weights come into memory (-lm) [default: auto]
    #[arg(long, value_name = "MODE,..", value_delimiter = ',', help_heading = "Computation")]
    load_mode: Vec<LoadMode>,
    /// Older name of -lm auto (1) and -lm none (0) (-mmp)
    #[arg(long, value_parser = lists::mmap, conflicts_with = "load_mode", hide = true)]
    mmap: Vec<List<LoadMode>>,
    /// Instruction set, to force a lower one than the CPU has (so does the environment variable QGGUF_ISA)
    #[arg(long, value_name = "NAME", help_heading = "Computation")]
    isa: Option<Isa>,
    /// Changes nothing, attention is always fused; printed as given (-fa)
    #[arg(long, value_parser = lists::flash_attention, hide = true)]
    flash_attn: Vec<List<i64>>,
    /// Changes nothing, all layers stay here; printed as given (-ngl)
    #[arg(long, value_parser = lists::layers, allow_hyphen_values = true, hide = true)]
    n_gpu_layers: Vec<List<i64>>,
    #[command(flatten)]
    _ignored: Ignored,

    /// How results are printed on standard output
    #[arg(short, long, value_name = "FORMAT", default_value = "md", help_heading = "Output")]
    output: Format,
    /// How results are printed on standard error too (-oe)
    #[arg(long, value_name = "FORMAT", default_value = "none", help_heading = "Output")]
    output_err: Format,
    /// Neither measure nor print what the machine allows
    #[arg(long, help_heading = "Output")]
    no_limits: bool,
    /// Draw tokens per second over depth, or over threads if there is one depth, into an SVG file
    #[arg(long, value_name = "FILE.svg", help_heading = "Output")]
    plot: Option<PathBuf>,
    /// Say on standard error what is being done
    #[arg(long, help_heading = "Output")]
    progress: bool,
    /// Say more about the models and the memory in use
    #[arg(short, long, help_heading = "Output")]
    verbose: bool,
}

/// Runs the subcommand.
pub fn run(args: &Args) -> Result<()> {
    let kernels = load::kernels(args.isa)?;
    check_plot(args.plot.as_deref(), args.model.iter().map(PathBuf::as_path))?;
    let models = if args.model.is_empty() { vec![load::default_model()?] } else { args.model.clone() };
    let lists = Lists::new(args, models);
    let tests = lists.tests();
    if tests.is_empty() {
        return Err(Failure::usage("nothing to measure: -p and -n are 0, and no -pg is given"));
    }
    interrupt::listen();
    let running = Generation::begin();
    let machine = Machine { cpu: cpu::name(), isa: kernels.isa().name() };
    note!("qgguf: {}, {}", machine.cpu, machine.isa);

    let mut out = Printer::new(args.output, stdout(), &machine, &lists, !args.no_limits);
    let mut err = Printer::new(args.output_err, io::stderr(), &machine, &lists, !args.no_limits);
    out.header()?;
    err.header()?;
    let mut bench = Bench { args, kernels, n_tests: tests.len(), limits: HashMap::new() };
    let mut rows = Vec::new();
    let mut n_failed = 0;
    let mut number = 0;
    let mut interrupted = false;
    'models: for tests in tests.chunk_by(Test::same_model) {
        let subject = match bench.open(tests) {
            Ok(subject) => subject,
            Err(failure) => {
                note!("qgguf: {}", terminal::escape(&failure.line()));
                n_failed += tests.len();
                number += tests.len();
                continue;
            }
        };
        let mut runner = Runner::new(&subject, kernels, &running);
        for test in tests {
            number += 1;
            match bench.measure(&mut runner, test, number) {
                Ok(row) => {
                    out.row(&row)?;
                    err.row(&row)?;
                    rows.push(row);
                }
                Err(Failure::Interrupted) => {
                    interrupted = true;
                    break 'models;
                }
                Err(failure) => {
                    note!("qgguf: {}: {}", test.name(), terminal::escape(&failure.line()));
                    n_failed += 1;
                }
            }
        }
    }
    out.footer()?;
    err.footer()?;
    if let Some(path) = args.plot.as_ref().filter(|_| !rows.is_empty()) {
        let chart = chart::of(&rows).svg()?;
        write_file(path, |file| Ok(file.write_all(chart.as_bytes())?))?;
    }
    match n_failed {
        _ if interrupted => {
            note!("qgguf: interrupted after {} of {} tests", rows.len(), tests.len());
            Err(Failure::Interrupted)
        }
        0 => Ok(()),
        _ => Err(Failure::text(format!("{n_failed} of {} tests could not be run", tests.len()))),
    }
}

/// What is the same for all tests.
struct Bench<'a> {
    args: &'a Args,
    kernels: Kernels,
    n_tests: usize,
    /// What so many threads can do, measured when they are first used.
    limits: HashMap<usize, Limits>,
}

impl Bench<'_> {
    /// Opens the model of these tests, with room for the longest.
    fn open(&self, tests: &[Test]) -> Result<Subject> {
        let n_ctx = tests.iter().map(Test::n_ctx).max().unwrap_or(0);
        let subject = Subject::open(&tests[0].model, tests[0].load_mode, n_ctx)?;
        let model = &subject.model;
        for warning in model.warnings() {
            note!("qgguf: warning: {}", terminal::escape(warning));
        }
        if self.args.verbose {
            note!(
                "qgguf: {}: {}, {} mapped",
                terminal::escape(&tests[0].model.display().to_string()),
                terminal::escape(&subject.model_type),
                terminal::bytes(model.file().mapped_bytes()),
            );
        }
        Ok(subject)
    }

    /// Warms up and measures one test.
    fn measure(&mut self, runner: &mut Runner<'_>, test: &Test, number: usize) -> Result<Row> {
        let progress = |what: &str| {
            if self.args.progress {
                note!("qgguf bench: benchmark {number}/{}: {what}", self.n_tests);
            }
        };
        progress("starting");
        let limits = match self.args.no_limits {
            true => None,
            false => Some(limits_of(&mut self.limits, self.kernels, test.n_threads)?),
        };
        let limit = limits.map(|limits| {
            let passes = runner.subject().work.passes(test);
            (limits, limits.tokens_per_second(test.n_tokens(), passes))
        });
        let mut row = Row::new(test, runner.subject(), limit);
        runner.running.sleep(Duration::from_secs(self.args.delay.into()));
        let mut run = runner.prepare(test)?;
        if test.n_depth > 0 {
            progress("depth run");
        }
        run.fill()?;
        if !self.args.no_warmup {
            progress("warmup run");
            run.warm_up()?;
        }
        for i in 1..=self.args.repetitions {
            run.fill()?;
            progress(&format!("{} run {i}/{}", test.name(), self.args.repetitions));
            row.samples_ns.push(run.measure()?);
        }
        if self.args.verbose {
            memory::report(run.session());
        }
        Ok(row)
    }
}

/// What `n_threads` threads can do; measured and said once.
fn limits_of(known: &mut HashMap<usize, Limits>, kernels: Kernels, n_threads: usize) -> Result<Limits> {
    if let Some(&limits) = known.get(&n_threads) {
        return Ok(limits);
    }
    let limits = Limits::measure(kernels, n_threads)?;
    memory::forget_peak();
    note!(
        "qgguf: threads {n_threads}: {:.2} GB/s read, {:.1} G multiply-adds/s of int8, {:.1} G of f32",
        limits.read_bandwidth / 1e9,
        limits.multiply_add_rate / 1e9,
        limits.float_multiply_add_rate / 1e9,
    );
    known.insert(n_threads, limits);
    Ok(limits)
}
