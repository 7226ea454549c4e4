//! `qgguf quantize`: another quantization of a model.

use std::collections::HashSet;
use std::ffi::OsString;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use qgguf::model::{Model, ModelOptions};
use qgguf_convert::file_type::FileType;
use qgguf_convert::imatrix::Imatrix;
use qgguf_convert::pipeline::{TensorReport, WriteOptions};
use qgguf_convert::quantize::{NamedImatrix, Plan, QuantizeOptions};
use qgguf_convert::recipe::Recipe;
use qgguf_gguf::{GgmlType, GgufFile, MetadataValue, TensorSpec, planned};
use qgguf_kernels::Isa;
use regex::Regex;

use super::args;
use super::error::{Context, Failure, Result};
use super::imatrix::report_unreached;
use super::load;
use super::output::stdout;
use super::terminal::{self, note};
use super::writing::{self, Outcome, Written};

/// Make another quantization of a model
///
/// The bytes are those of llama-quantize, whatever the number of threads and the instruction set. Tensors are streamed, so
/// that a model of any size takes little memory. The output appears when it is complete; until then, and if anything
/// goes wrong, an older file of that name stays as it is. If the output is a symbolic link, the file that it leads to is
/// replaced.
#[derive(clap::Args, Debug)]
#[command(
    override_usage = "qgguf quantize [OPTIONS] <IN.gguf> [OUT.gguf] <TYPE> [THREADS]",
    after_help = after_help()
)]
pub struct Args {
    /// The model, any shard of a split one
    #[arg(value_name = "IN.gguf")]
    input: PathBuf,
    /// The file to write, the type, and a number of threads
    #[arg(value_name = "[OUT.gguf] TYPE [THREADS]", num_args = 1..=3, required = true)]
    wishes: Vec<OsString>,
    /// Threads [default: physical cores that this process may use]
    #[arg(short, long, value_name = "N", allow_negative_numbers = true, value_parser = args::threads)]
    threads: Option<usize>,
    /// Instruction set, to force a lower one than the CPU has (so does the environment variable QGGUF_ISA)
    #[arg(long, value_name = "NAME")]
    isa: Option<Isa>,
    /// Give every tensor the base type instead of the mixture of TYPE
    #[arg(long, help_heading = "Types")]
    pure: bool,
    /// Leave output.weight as it is
    #[arg(long, help_heading = "Types")]
    leave_output_tensor: bool,
    /// The type of output.weight
    #[arg(long, value_name = "TYPE", value_parser = ggml_type, help_heading = "Types")]
    output_tensor_type: Option<GgmlType>,
    /// The type of token_embd.weight
    #[arg(long, value_name = "TYPE", value_parser = ggml_type, help_heading = "Types")]
    token_embedding_type: Option<GgmlType>,
    /// The type of tensors in whose names the regular expression PATTERN (in lower case) is found; the first one counts
    #[arg(long, value_name = "PATTERN=TYPE", value_parser = tensor_type, help_heading = "Types")]
    tensor_type: Vec<(Regex, GgmlType)>,
    /// A file of PATTERN=TYPE, with blanks or line breaks between them
    #[arg(long, value_name = "FILE", help_heading = "Types")]
    tensor_type_file: Option<PathBuf>,
    /// Quantize tensors that are quantized already
    #[arg(long, help_heading = "Types")]
    allow_requantize: bool,
    /// Importance matrix of llama-imatrix, in either format
    #[arg(long, value_name = "FILE", help_heading = "Importance")]
    imatrix: Option<PathBuf>,
    /// Use the importance of tensors with TEXT in their names and of no others; may be repeated
    #[arg(
        long,
        value_name = "TEXT",
        requires = "imatrix",
        conflicts_with = "exclude_weights",
        help_heading = "Importance"
    )]
    include_weights: Vec<String>,
    /// Do not use the importance of tensors with TEXT in their names; may be repeated
    #[arg(long, value_name = "TEXT", requires = "imatrix", help_heading = "Importance")]
    exclude_weights: Vec<String>,
    /// Leave out these layers (numbers with commas between them)
    #[arg(long, value_name = "N,N", value_delimiter = ',', help_heading = "Model")]
    prune_layers: Vec<usize>,
    /// Set metadata; TYPE is int, float, bool or str; may be repeated
    #[arg(long, value_name = "KEY=TYPE:VALUE", value_parser = override_kv, help_heading = "Model")]
    override_kv: Vec<(String, MetadataValue)>,
    /// Write as many shards as the input has, OUT-00001-of-0000N.gguf
    #[arg(long, help_heading = "Output")]
    keep_split: bool,
    /// Show what would become of each tensor, and write nothing
    #[arg(long, help_heading = "Output")]
    dry_run: bool,
    /// Print one JSON object
    #[arg(long, help_heading = "Output")]
    json: bool,
}

/// Runs the subcommand.
pub fn run(args: &Args) -> Result<()> {
    let job = Job::parse(&args.input, &args.wishes)?;
    let kernels = load::kernels(args.isa)?;
    if let Some(file_type) = job.file_type.filter(|_| !args.dry_run) {
        writing::check_type(file_type)?;
    }
    let options = options(args, &job)?;
    let model = GgufFile::open(&job.input)?;
    let plan = Plan::new(&model, &options).context(job.input.display())?;
    mention_idle_patterns(&plan, &options.recipe);
    if !(args.override_kv.is_empty() && args.prune_layers.is_empty()) {
        check_still_opens(&job.input, &plan)?;
    }
    mention_unreached(&plan, options.imatrix.as_ref());
    if args.dry_run {
        return dry_run(args, &job, &plan);
    }
    plan.check().context(job.input.display())?;
    mention_missing_importance(&plan, options.imatrix.as_ref());
    let files = plan.into_files(&job.output, kernels)?;
    let inputs = model.paths().chain(args.imatrix.as_deref());
    writing::refuse_overwriting(&files, inputs)?;
    let n_threads = job.n_threads.or(args.threads).unwrap_or_else(qgguf::threads::default_threads);
    let written = writing::write(&files, &WriteOptions::new(n_threads, kernels))?;
    print(args, &job, &written)
}

/// What the positional arguments say.
struct Job {
    input: PathBuf,
    output: PathBuf,
    /// `None` for COPY.
    file_type: Option<FileType>,
    n_threads: Option<usize>,
}

impl Job {
    fn parse(input: &Path, wishes: &[OsString]) -> Result<Job> {
        let text = |i: usize| wishes[i].to_string_lossy();
        let (output, i_type) = match file_type(&text(0)) {
            Some((_, name)) => (input.with_file_name(format!("ggml-model-{name}.gguf")), 0),
            None if wishes.len() == 1 => return Err(unknown_type(&text(0))),
            None if wishes[0].is_empty() => return Err(Failure::usage("the output has no name")),
            None => (PathBuf::from(&wishes[0]), 1),
        };
        let (file_type, _) = file_type(&text(i_type)).ok_or_else(|| unknown_type(&text(i_type)))?;
        let n_threads = match wishes.get(i_type + 1..).unwrap_or_default() {
            [] => None,
            [n] => Some(args::threads(&n.to_string_lossy()).map_err(|e| {
                Failure::usage(format!("number of threads \"{}\": {e}", n.to_string_lossy()))
            })?),
            [_, extra, ..] => {
                return Err(Failure::usage(format!("unexpected argument \"{}\"", extra.to_string_lossy())));
            }
        };
        Ok(Job { input: input.to_owned(), output, file_type, n_threads })
    }
}

/// The end of the help, with the types that can be made.
fn after_help() -> String {
    let types: Vec<&str> = FileType::that_can_be_made().map(FileType::name).collect();
    format!(
        "\
Types: {}, in upper or lower case or by their number in general.file_type; COPY keeps the types that there are.
Without OUT.gguf the output is ggml-model-TYPE.gguf beside the input.

Examples:
  qgguf quantize model-f16.gguf model-q4_k_m.gguf Q4_K_M
  qgguf quantize --imatrix imatrix.gguf model-bf16.gguf small.gguf IQ4_XS
  qgguf quantize --tensor-type 'ffn_down=q6_k' --output-tensor-type q8_0 f16.gguf mixed.gguf Q4_K_S
  qgguf quantize --dry-run model-f16.gguf Q5_K_M",
        types.join(" ")
    )
}

/// A file type (`None` for COPY) and how it is spelled in names of files; `None` if it is neither.
fn file_type(text: &str) -> Option<(Option<FileType>, String)> {
    let upper = text.to_ascii_uppercase();
    if upper == "COPY" {
        return Some((None, upper));
    }
    let ty = FileType::parse(text)?;
    // A number stands for the first name that llama-quantize has for it, and these are the short ones.
    let name = match ty {
        _ if text.parse::<u32>().is_err() => upper,
        FileType::Q3_K_M | FileType::Q4_K_M | FileType::Q5_K_M => ty.name().trim_end_matches("_M").to_owned(),
        ty => ty.name().to_owned(),
    };
    Some((Some(ty), name))
}

fn unknown_type(text: &str) -> Failure {
    let known: Vec<&str> = FileType::that_can_be_made().map(FileType::name).collect();
    Failure::usage(format!("no type \"{}\"; known are {} and COPY", terminal::escape(text), known.join(", ")))
}

fn options(args: &Args, job: &Job) -> Result<QuantizeOptions> {
    let mut tensor_types = args.tensor_type.clone();
    if let Some(path) = &args.tensor_type_file {
        for word in args::read_text(path)?.split_whitespace() {
            tensor_types.push(tensor_type(word).map_err(Failure::text).context(path.display())?);
        }
    }
    Ok(QuantizeOptions {
        recipe: Recipe {
            pure: args.pure,
            leave_output_tensor: args.leave_output_tensor,
            output_tensor_type: args.output_tensor_type,
            token_embedding_type: args.token_embedding_type,
            tensor_types,
            ..Recipe::new(job.file_type)
        },
        imatrix: args.imatrix.as_deref().map(|path| imatrix(args, path)).transpose()?,
        prune_layers: args.prune_layers.iter().copied().collect(),
        overrides: args.override_kv.clone(),
        keep_split: args.keep_split,
        allow_requantize: args.allow_requantize,
    })
}

/// The entries of an importance matrix that shall be used.
fn imatrix(args: &Args, path: &Path) -> Result<NamedImatrix> {
    let mut matrix = Imatrix::read(path)?;
    let has_one = |name: &str, parts: &[String]| parts.iter().any(|part| name.contains(part.as_str()));
    matrix.entries.retain(|name, _| {
        (args.include_weights.is_empty() || has_one(name, &args.include_weights))
            && !has_one(name, &args.exclude_weights)
    });
    Ok(NamedImatrix { name: path.display().to_string(), matrix })
}

fn mention_idle_patterns(plan: &Plan<'_>, recipe: &Recipe) {
    let specs: Vec<&TensorSpec> = plan.changes().iter().map(|change| &change.spec).collect();
    for (pattern, reason) in recipe.idle_patterns(&specs) {
        note!("qgguf: warning: --tensor-type {}: {reason}", terminal::escape(pattern));
    }
}

/// A model that this runtime can open must not become one that it cannot.
fn check_still_opens(input: &Path, plan: &Plan<'_>) -> Result<()> {
    let options = ModelOptions::default();
    if Model::from_file(GgufFile::open(input)?, &options).is_err() {
        return Ok(());
    }
    let specs: Vec<TensorSpec> = plan.changes().iter().map(|change| change.spec.clone()).collect();
    let Some(file) = planned::<Failure>(input, plan.metadata(), &specs)? else { return Ok(()) };
    match Model::from_file(file, &options) {
        Ok(_) => Ok(()),
        Err(e) => {
            let context =
                format!("{}: with --override-kv or --prune-layers it could not be opened", input.display());
            Err(e).context(context)
        }
    }
}

fn mention_missing_importance(plan: &Plan<'_>, imatrix: Option<&NamedImatrix>) {
    let Some(imatrix) = imatrix else { return };
    let names: Vec<&str> = plan.without_importance().map(|change| change.spec.name.as_str()).collect();
    if !names.is_empty() {
        note!(
            "qgguf: warning: {} has nothing for {}: quantized without",
            terminal::escape(&imatrix.name),
            terminal::escape(&names.join(", "))
        );
    }
}

/// Tells of experts that the matrix knows nothing about.
fn mention_unreached(plan: &Plan<'_>, imatrix: Option<&NamedImatrix>) {
    let Some(imatrix) = imatrix else { return };
    let tensors: HashSet<&str> = plan.changes().iter().map(|change| change.spec.name.as_str()).collect();
    let hint = "all of their columns count alike";
    report_unreached(&imatrix.matrix, |name| tensors.contains(name), hint);
}

fn dry_run(args: &Args, job: &Job, plan: &Plan<'_>) -> Result<()> {
    if let Err(missing) = plan.check_importance() {
        note!("qgguf: warning: {missing}");
    }
    let reports: Vec<TensorReport> = plan
        .changes()
        .iter()
        .map(|change| TensorReport {
            name: change.spec.name.clone(),
            shape: change.spec.shape.clone(),
            from: Some(change.info.ty),
            to: change.spec.ty,
            n_elements: change.info.n_elements(),
            n_bytes: change.n_bytes(),
            deviation: Default::default(),
            overflow: Default::default(),
        })
        .collect();
    let outcome = Outcome::of(&reports);
    let mut out = BufWriter::new(stdout());
    if args.json {
        let mut object = outcome.json();
        object["input"] = job.input.display().to_string().into();
        object["type"] = type_name(job).into();
        object["dry_run"] = true.into();
        serde_json::to_writer(&mut out, &object)?;
        writeln!(out)?;
    } else {
        outcome.print_tensors(&mut out)?;
        outcome.print(&mut out)?;
    }
    Ok(out.flush()?)
}

fn type_name(job: &Job) -> &'static str {
    job.file_type.map_or("COPY", FileType::name)
}

fn print(args: &Args, job: &Job, written: &Written) -> Result<()> {
    let outcome = Outcome::of(&written.reports);
    let mut out = BufWriter::new(stdout());
    if args.json {
        let mut object = outcome.json();
        object["input"] = job.input.display().to_string().into();
        object["type"] = type_name(job).into();
        written.json(&mut object);
        serde_json::to_writer(&mut out, &object)?;
        writeln!(out)?;
    } else {
        writeln!(out, "{}: {}", terminal::escape(&written.names()), type_name(job))?;
        outcome.print(&mut out)?;
    }
    Ok(out.flush()?)
}

fn ggml_type(text: &str) -> Result<GgmlType, String> {
    GgmlType::from_name(text).ok_or_else(|| {
        let known: Vec<&str> = GgmlType::all().map(GgmlType::name).collect();
        format!("no type \"{text}\"; known are {}", known.join(", "))
    })
}

fn tensor_type(text: &str) -> Result<(Regex, GgmlType), String> {
    let (pattern, ty) = text
        .split_once('=')
        .filter(|(pattern, _)| !pattern.is_empty())
        .ok_or_else(|| format!("expected PATTERN=TYPE, as in ffn_down=q6_K, found \"{text}\""))?;
    let regex = Regex::new(&pattern.to_lowercase()).map_err(|e| e.to_string())?;
    Ok((regex, ggml_type(ty)?))
}

fn override_kv(text: &str) -> Result<(String, MetadataValue), String> {
    /// Bytes of keys and of strings at most, as for llama.cpp.
    const MAX: usize = 127;
    let wrong = || format!("expected KEY=TYPE:VALUE with TYPE int, float, bool or str, found \"{text}\"");
    let (key, rest) = text.split_once('=').ok_or_else(wrong)?;
    let (ty, value) = rest.split_once(':').ok_or_else(wrong)?;
    if key.is_empty() || key.len() > MAX {
        return Err(format!("keys have 1 to {MAX} bytes, this one has {}", key.len()));
    }
    if key.starts_with("split.") {
        return Err("the files of a model are counted when they are written".to_owned());
    }
    let bad = |e: &dyn std::fmt::Display| format!("{ty} \"{value}\": {e}");
    let value = match ty {
        // That the sign is lost is llama-quantize's way.
        "int" => {
            let n: i64 = value.parse().map_err(|e| bad(&e))?;
            MetadataValue::U32(n.unsigned_abs().try_into().map_err(|_| bad(&"does not fit u32"))?)
        }
        "float" => MetadataValue::F32(value.parse().map_err(|e| bad(&e))?),
        "bool" => MetadataValue::Bool(value.parse().map_err(|e| bad(&e))?),
        "str" if value.len() > MAX => return Err(bad(&format!("more than {MAX} bytes"))),
        "str" => MetadataValue::String(value.to_owned()),
        _ => return Err(wrong()),
    };
    Ok((key.to_owned(), value))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(words: &str) -> Result<Job, String> {
        let words: Vec<OsString> = words.split(' ').map(OsString::from).collect();
        Job::parse(Path::new(&words[0]), &words[1..]).map_err(|failure| failure.line())
    }

    #[test]
    fn the_second_argument_may_be_the_type() {
        let found = |words| {
            let job = job(words).unwrap();
            (job.output.display().to_string(), job.file_type, job.n_threads)
        };
        assert_eq!(
            found("a/in.gguf q4_k"),
            ("a/ggml-model-Q4_K.gguf".to_owned(), Some(FileType::Q4_K_M), None)
        );
        assert_eq!(
            found("in.gguf 15 3"),
            ("ggml-model-Q4_K.gguf".to_owned(), Some(FileType::Q4_K_M), Some(3))
        );
        assert_eq!(found("in.gguf copy"), ("ggml-model-COPY.gguf".to_owned(), None, None));
        assert_eq!(found("in.gguf out Q6_K 2"), ("out".to_owned(), Some(FileType::Q6_K), Some(2)));
        assert!(job("in.gguf Q7").is_err_and(|e| e.starts_with("no type \"Q7\"; known are F32, F16, Q4_0")));
        assert!(job("in.gguf  Q6_K").is_err_and(|e| e == "the output has no name"));
        assert!(job("in.gguf out Q7").is_err_and(|e| e.starts_with("no type \"Q7\"")));
        assert!(job("in.gguf Q6_K 2 3").is_err_and(|e| e == "unexpected argument \"3\""));
        assert!(job("in.gguf Q6_K x").is_err_and(|e| e.starts_with("number of threads \"x\"")));
    }

    #[test]
    fn overrides_have_a_key_a_type_and_a_value() {
        let key = "a.b".to_owned();
        assert_eq!(override_kv("a.b=int:-7"), Ok((key.clone(), MetadataValue::U32(7))));
        assert_eq!(override_kv("a.b=float:0.5"), Ok((key.clone(), MetadataValue::F32(0.5))));
        assert_eq!(override_kv("a.b=bool:true"), Ok((key.clone(), MetadataValue::Bool(true))));
        assert_eq!(override_kv("a.b=str:x=y:z"), Ok((key, MetadataValue::String("x=y:z".to_owned()))));
        for bad in ["a.b", "a.b=7", "=int:7", "a=int:x", "a=int:99999999999", "a=bool:1", "a=u8:1"] {
            assert!(override_kv(bad).is_err(), "{bad}");
        }
        assert!(override_kv(&format!("a=str:{}", "x".repeat(128))).is_err());
    }
}
