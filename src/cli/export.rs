//! `qgguf export`: a GGUF as a Hugging Face checkpoint.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use qgguf_convert::gguf_rows::Shards;
use qgguf_convert::hf::export::Export;
use qgguf_convert::hf::safetensors;
use qgguf_convert::pipeline::WriteOptions;
use qgguf_gguf::{GgmlType, GgufFile, TensorSpec};
use qgguf_kernels::Isa;

use super::args;
use super::error::{Context, Failure, Result};
use super::load;
use super::output::stdout;
use super::terminal::{self, note};
use super::writing::{self, Outcome, Written};

/// Make a Hugging Face checkpoint of a GGUF
///
/// The folder gets config.json, generation_config.json, the tokenizer with its chat template, a model card, and all weights in
/// model.safetensors; transformers loads it, and `qgguf convert` makes the same tensors of it again if no weight had to
/// be rounded. It appears when it is complete.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Types: f32, f16, bf16; auto keeps f32, f16 and bf16 as they are and makes f16 of quantized weights. Vectors and norms
are f32, as in every GGUF.

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
    let written = write(&args.out, &export, &options)?;
    written.report_overflow("--outtype bf16 and f32 have room for them");

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

/// Writes all files into a folder beside its place, which is then taken.
fn write(dir: &Path, export: &Export<'_>, options: &WriteOptions) -> Result<Written> {
    check_place(dir)?;
    // A path that ends with `/..` or is `.` has its name elsewhere.
    let place = fs::canonicalize(dir).unwrap_or_else(|_| dir.to_owned());
    let name =
        place.file_name().ok_or_else(|| Failure::text(format!("{}: not a folder's name", dir.display())))?;
    let parent = place.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let failed = || format!("cannot write {}", dir.display());
    let staging = tempfile::Builder::new().prefix(".qgguf-").tempdir_in(parent).context(failed())?;
    let folder = staging.path().join(name);
    fs::create_dir(&folder).context(failed())?;
    for (name, bytes) in &export.files {
        fs::write(folder.join(name), bytes).context(dir.join(name).display())?;
    }
    let specs: Vec<TensorSpec> = export.tensors.iter().map(|tensor| tensor.spec.clone()).collect();
    let weights = dir.join("model.safetensors");
    let mut file = File::create_new(folder.join("model.safetensors")).context(weights.display())?;
    file.write_all(&safetensors::header(&specs)).context(weights.display())?;
    let written = writing::write_to(file, &weights, &export.tensors, options)?;
    if place.exists() {
        fs::remove_dir(&place).context(failed())?;
    }
    fs::rename(&folder, &place).context(failed())?;
    Ok(written)
}

/// The folder is new, or has nothing that could be lost.
fn check_place(dir: &Path) -> Result<()> {
    match fs::read_dir(dir) {
        Ok(mut entries) => match entries.next() {
            None => Ok(()),
            Some(_) => Err(Failure::text(format!(
                "cannot write {}: the folder is not empty; name one that does not exist",
                dir.display()
            ))),
        },
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(e) => Err(e).context(format!("cannot write {}", dir.display())),
    }
}
