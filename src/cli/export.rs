//! `qgguf export`: a GGUF as a Hugging Face checkpoint.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use qgguf_convert::gguf_rows::Shards;
use qgguf_convert::hf::export::{self, Export};
use qgguf_convert::hf::safetensors;
use qgguf_convert::pipeline::WriteOptions;
use qgguf_gguf::{GgmlType, GgufFile, TemporaryFolder, TensorSpec};
use qgguf_kernels::Isa;

use super::args;
use super::error::{Context, Failure, Result};
use super::interrupt;
use super::load;
use super::output::stdout;
use super::terminal::{self, note};
use super::writing::{self, Outcome, Written};

/// Make a Hugging Face checkpoint of a GGUF
///
/// The folder gets config.json, generation_config.json, the tokenizer with its chat template, a model card, and all weights in
/// model.safetensors; transformers loads it, and `qgguf convert --outtype TYPE` makes the same tensors of it again if
/// TYPE is that of the weights and none of them had to be rounded. It appears when it is complete.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Types: f32, f16, bf16; auto keeps f32, f16 and bf16 as they are and makes f16 of quantized weights.
Vectors and norms are f32, as in every GGUF.

Examples:
  qgguf export model.gguf -o folder/
  qgguf export SmolLM2-135M-Instruct.Q4_1.gguf -o smollm2/ --outtype f32
  qgguf convert smollm2/ -o smollm2-q4_k_m.gguf --outtype q4_k_m")]
pub struct Args {
    /// Model file (GGUF; of a split model the first)
    #[arg(value_name = "MODEL")]
    model: PathBuf,
    /// Folder to make; it must not exist, or be empty
    #[arg(short, long, visible_aliases = ["output", "outfile"], value_name = "DIR")]
    out: PathBuf,
    /// Type of the weights
    #[arg(long, value_name = "TYPE", default_value = "auto", ignore_case = true)]
    outtype: OutType,
    /// Take NaN and infinities as they are
    #[arg(long)]
    allow_nonfinite: bool,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    /// Threads [default: physical cores that this process may use]
    #[arg(short, long, value_name = "N", allow_negative_numbers = true, value_parser = args::threads)]
    threads: Option<usize>,
    /// Instruction set, to force a lower one than the CPU has (so does the environment variable QGGUF_ISA)
    #[arg(long, value_name = "NAME")]
    isa: Option<Isa>,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum OutType {
    Auto,
    F32,
    F16,
    Bf16,
}

/// Runs the subcommand.
pub fn run(args: &Args) -> Result<()> {
    let kernels = load::kernels(args.isa)?;
    let file = GgufFile::open(&args.model)?;
    let shards = Shards::open(&file, kernels)?;
    let ty = match args.outtype {
        OutType::Auto => None,
        OutType::F32 => Some(GgmlType::F32),
        OutType::F16 => Some(GgmlType::F16),
        OutType::Bf16 => Some(GgmlType::BF16),
    };
    let export = Export::of(&file, &shards, ty).context(args.model.display())?;
    note!("qgguf: {}: {}", terminal::escape(&args.model.display().to_string()), export.family.class);
    export.warnings.iter().for_each(|warning| note!("qgguf: warning: {}", terminal::escape(warning)));
    let n_threads = args.threads.unwrap_or_else(qgguf::threads::default_threads);
    let options = WriteOptions {
        allow_nonfinite: args.allow_nonfinite,
        allow_overflow: true,
        ..WriteOptions::new(n_threads, kernels)
    };
    let written = write(&args.out, &file, &export, &options);
    let written = written.map_err(|failure| writing::of_input(failure, &args.model))?;
    written.report_overflow();

    let outcome = Outcome::of(&written.reports);
    let mut out = BufWriter::new(stdout());
    if args.json {
        let mut object = outcome.json();
        object["input"] = args.model.display().to_string().into();
        object["class"] = export.family.class.into();
        written.json(&mut object);
        serde_json::to_writer(&mut out, &object)?;
        writeln!(out)?;
    } else {
        writeln!(out, "{}: {}", terminal::escape(&written.names()), export.family.class)?;
        outcome.print(&mut out)?;
    }
    Ok(out.flush()?)
}

/// Writes all files into a folder that is hidden until they are complete: beside their place, or in it if that is an empty
/// folder already, which stays the same folder then.
fn write(dir: &Path, model: &GgufFile, export: &Export<'_>, options: &WriteOptions) -> Result<Written> {
    let exists = check_place(dir)?;
    let parent = match exists {
        true => dir,
        false => dir.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new(".")),
    };
    let failed = || format!("cannot write {}", dir.display());
    // From here on an interruption cleans up.
    interrupt::listen();
    let staging = TemporaryFolder::inside(parent).context(failed())?;
    // Unlike the staging folder itself it has the rights of any other.
    let folder = staging.path().join("checkpoint");
    fs::create_dir(&folder).context(failed())?;
    for (name, bytes) in &export.files {
        fs::write(folder.join(name), bytes).context(dir.join(name).display())?;
    }
    let lost = export::lost_keys(model, &folder).context("the checkpoint could not be converted again")?;
    if !lost.is_empty() {
        note!("qgguf: warning: keys without a place in a checkpoint: {}", terminal::escape(&list(&lost)));
    }
    let specs: Vec<TensorSpec> = export.tensors.iter().map(|tensor| tensor.spec.clone()).collect();
    let weights = dir.join(WEIGHTS);
    let mut file = File::create_new(folder.join(WEIGHTS)).context(weights.display())?;
    file.write_all(&safetensors::header(&specs)).context(weights.display())?;
    let written = writing::write_to(file, &weights, &export.tensors, options)?;
    if !exists {
        fs::rename(&folder, dir).context(failed())?;
        return Ok(written);
    }
    for name in export.files.iter().map(|(name, _)| *name).chain([WEIGHTS]) {
        fs::rename(folder.join(name), dir.join(name)).context(failed())?;
    }
    Ok(written)
}

/// A list that stays readable.
fn list(keys: &[String]) -> String {
    const SHOWN: usize = 20;
    let shown: Vec<String> = keys.iter().take(SHOWN).map(|key| key.chars().take(60).collect()).collect();
    match keys.len().saturating_sub(SHOWN) {
        0 => shown.join(", "),
        n => format!("{} and {n} more", shown.join(", ")),
    }
}

/// The file with the weights.
const WEIGHTS: &str = "model.safetensors";

/// Whether the folder is there already, which must have nothing in it then. If it is not, it must be possible to make it.
fn check_place(dir: &Path) -> Result<bool> {
    let failed = || format!("cannot write {}", dir.display());
    match fs::read_dir(dir) {
        Ok(mut entries) => match entries.next() {
            None => return Ok(true),
            Some(_) => {
                let reason = "the folder is not empty; name one that does not exist";
                return Err(Failure::text(format!("{}: {reason}", failed())));
            }
        },
        Err(e) if e.kind() == io::ErrorKind::NotFound => {}
        Err(e) => return Err(e).context(failed()),
    }
    // To see whether it can be made says more, and sooner, than all that could be asked.
    fs::create_dir(dir).context(failed())?;
    fs::remove_dir(dir).context(failed())?;
    Ok(false)
}
