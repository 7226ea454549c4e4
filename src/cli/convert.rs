//! `qgguf convert`: a Hugging Face checkpoint as a GGUF.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use qgguf::architectures;
use qgguf::chat_template::{ChatTemplate, SpecialTokens};
use qgguf::engine::EngineOptions;
use qgguf::model::{Model, ModelOptions};
use qgguf::sampler::SamplerParams;
use qgguf::session::Session;
use qgguf::tokenizer::{Tokenizer, TokenizerOptions};
use qgguf_convert::file_type::FileType;
use qgguf_convert::hf::convert::{Conversion, Options, Source, is_plain};
use qgguf_convert::hf::overrides::Overrides;
use qgguf_convert::hf::verify;
use qgguf_convert::pipeline::{OutputFile, OutputTensor, TensorReport, WriteOptions};
use qgguf_convert::split::{self, SplitKeyOrder};
use qgguf_gguf::{GgufFile, Metadata, TemporaryFolder, TensorSpec, follow_links};
use qgguf_kernels::{Isa, Kernels};

use super::args;
use super::error::{Context, Failure, Result};
use super::interrupt;
use super::load;
use super::output::{check_output, stdout};
use super::split::LimitArgs;
use super::terminal::{self, note};
use super::writing::{self, Outcome};

/// Make a GGUF of a Hugging Face checkpoint
///
/// Keys, values, tensors and bytes are those of llama.cpp's converter; with a recipe as q4_k_m, those of llama-quantize
/// after it. Rows are streamed, so that a model of any size takes little memory. The output appears when it is complete; until
/// then, and if anything goes wrong, an older file of that name stays as it is. If the output is a symbolic link, the file
/// that it leads to is replaced.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
INPUT is a folder with config.json and *.safetensors, a .safetensors file in such a folder, or the \
id of a repository that is in the local cache of Hugging Face (org/name).

Types: f32, f16, bf16, q8_0, or any other that `qgguf quantize` knows, as q4_k_m; auto is the type \
of the checkpoint's weights (if they are f32: f16, or bf16 if a weight is beyond f16). With f32, \
f16, bf16 and q8_0 the order of keys and tensors is the converter's; any other file is the one that \
`qgguf quantize` makes of the file with each matrix in the type that the checkpoint stores (--outtype \
bf16 for bf16 weights, f16 for f16, f32 for f32).

Examples:
  qgguf convert Qwen3-0.6B/
  qgguf convert Qwen3-0.6B/ -o qwen3-q4_k_m.gguf --outtype q4_k_m --verify
  qgguf convert HuggingFaceTB/SmolLM2-135M-Instruct --outtype f16
  qgguf convert my-finetune/ --pre qwen2 --metadata authors.json
  qgguf convert Qwen3-0.6B/ --vocab-only")]
pub struct Args {
    /// Folder, .safetensors file, or repository id
    #[arg(value_name = "INPUT")]
    input: PathBuf,
    /// File or folder to write; {ftype} in a name stands for the type [default: named after the model, in its folder]
    #[arg(short, long, visible_alias = "output", value_name = "FILE")]
    outfile: Option<PathBuf>,
    /// Type of the weights
    #[arg(long, value_name = "TYPE", default_value = "auto", value_parser = out_type)]
    outtype: OutType,
    /// Pre-tokenizer, for a tokenizer that is not recognized
    #[arg(long, value_name = "NAME")]
    pre: Option<String>,
    /// general.name, instead of the one that the model card or the folder says
    #[arg(long, value_name = "NAME")]
    model_name: Option<String>,
    /// JSON with general.* keys that stand over what the checkpoint says of itself (name, author, tags, …)
    #[arg(long, value_name = "FILE")]
    metadata: Option<PathBuf>,
    /// Write the vocabulary and no weights; the checkpoint may lack them
    #[arg(long, conflicts_with_all = ["verify", "split_max_size", "split_max_tensors", "no_tensor_first_split"])]
    vocab_only: bool,
    /// Take NaN and infinities as they are
    #[arg(long)]
    allow_nonfinite: bool,
    #[command(flatten)]
    limit: LimitArgs,
    /// Put the metadata into a first file without tensors
    #[arg(long)]
    no_tensor_first_split: bool,
    /// Open the result, compare it with the checkpoint, and run a short prompt
    #[arg(long)]
    verify: bool,
    /// Show what would be written, and write nothing
    #[arg(long)]
    dry_run: bool,
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

/// A type, `None` for that of the checkpoint.
#[derive(Clone, Copy, Debug)]
struct OutType(Option<FileType>);

fn out_type(text: &str) -> Result<OutType, String> {
    if text.eq_ignore_ascii_case("auto") {
        return Ok(OutType(None));
    }
    // Numbers are for files that say so, not for people.
    let ty = FileType::parse(text).filter(|_| text.parse::<u32>().is_err());
    ty.map(|ty| OutType(Some(ty))).ok_or_else(|| {
        let known: Vec<String> = FileType::that_can_be_made().map(|ty| ty.name().to_lowercase()).collect();
        format!("no type \"{text}\"; known are auto, {}", known.join(", "))
    })
}

/// Runs the subcommand.
pub fn run(args: &Args) -> Result<()> {
    let kernels = load::kernels(args.isa)?;
    if let Some(file_type) = args.outtype.0.filter(|_| !args.dry_run) {
        writing::check_type(file_type)?;
    }
    let source = match args.vocab_only {
        true => Source::open_vocabulary(&args.input)?,
        false => Source::open(&args.input)?,
    };
    let mut overrides = args.metadata.as_deref().map(Overrides::read).transpose()?.unwrap_or_default();
    if let Some(name) = &args.model_name {
        overrides.set_name(name);
    }
    let options = Options { out_type: args.outtype.0, pre: args.pre.clone(), overrides };
    let conversion = source.convert(&options)?;
    introduce(args, &source, &conversion)?;
    if args.dry_run {
        return dry_run(args, &conversion);
    }
    let path = output_path(args, &source, &conversion)?;
    let file_type = conversion.file_type;
    let mut files = files(args, conversion, path)?;
    let inputs = source.files();
    let inputs = inputs.iter().map(PathBuf::as_path).chain(args.metadata.as_deref());
    writing::refuse_overwriting(&files, inputs)?;
    let staging = if args.verify { Some(Staging::new(&mut files)?) } else { None };
    let n_threads = args.threads.unwrap_or_else(qgguf::threads::default_threads);
    let write_options = WriteOptions {
        allow_nonfinite: args.allow_nonfinite,
        // As with llama.cpp's converter; llama-quantize gives up.
        allow_overflow: is_plain(file_type),
        ..WriteOptions::new(n_threads, kernels)
    };
    let written = writing::write(&files, &write_options);
    let written = written.map_err(|failure| writing::of_input(failure, &args.input));
    let mut written = match &staging {
        Some(staging) => staging.named(written)?,
        None => written?,
    };
    written.report_overflow();
    let mut out = BufWriter::new(stdout());
    if let Some(staging) = staging {
        let verification = Verification { files: &files, kernels, n_threads };
        staging.named(match args.json {
            true => verification.run(&mut io::stderr()),
            false => verification.run(&mut out),
        })?;
        written.paths = staging.settle()?;
    }

    let outcome = Outcome::of(&written.reports);
    if args.json {
        let mut object = outcome.json();
        object["input"] = args.input.display().to_string().into();
        object["type"] = file_type.name().into();
        written.json(&mut object);
        serde_json::to_writer(&mut out, &object)?;
        writeln!(out)?;
    } else if args.vocab_only {
        writeln!(out, "{}: vocabulary", terminal::escape(&written.names()))?;
    } else {
        writeln!(out, "{}: {}", terminal::escape(&written.names()), file_type.name())?;
        outcome.print(&mut out)?;
    }
    Ok(out.flush()?)
}

/// A folder beside the places of files, where they wait until they are verified.
struct Staging {
    dir: TemporaryFolder,
    places: Vec<PathBuf>,
}

impl Staging {
    /// Sends the files there.
    fn new(files: &mut [OutputFile<'_>]) -> Result<Staging> {
        let mut places = Vec::new();
        for file in &*files {
            check_output(&file.path, [])?;
            // The target of a link is replaced, not the link.
            places.push(follow_links(&file.path).context(file.path.display())?);
            if places.iter().any(|place| place.metadata().is_ok_and(|m| !m.is_file())) {
                let reason = format!("cannot write {}: not a regular file", file.path.display());
                return Err(Failure::text(reason));
            }
        }
        let beside = places[0].parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
        interrupt::listen();
        let dir = TemporaryFolder::inside(beside).context(beside.display())?;
        for (file, place) in files.iter_mut().zip(&places) {
            file.path = dir.path().join(place.file_name().expect("a place that can be written"));
        }
        Ok(Staging { dir, places })
    }

    /// The same with files called what they will be called.
    fn named<T>(&self, result: Result<T>) -> Result<T> {
        result.map_err(|failure| match failure {
            Failure::Other(..) => {
                let staged = |place: &PathBuf| self.dir.path().join(place.file_name().unwrap_or_default());
                let text = self.places.iter().fold(failure.line(), |line, place| {
                    line.replace(&staged(place).display().to_string(), &place.display().to_string())
                });
                Failure::text(text)
            }
            other => other,
        })
    }

    /// Puts all files into their places.
    fn settle(self) -> Result<Vec<String>> {
        for place in &self.places {
            let name = place.file_name().expect("a place that can be written");
            fs::rename(self.dir.path().join(name), place).context(place.display())?;
        }
        Ok(self.places.iter().map(|place| place.display().to_string()).collect())
    }
}

/// What is converted, and what is odd about it.
fn introduce(args: &Args, source: &Source, conversion: &Conversion<'_>) -> Result<()> {
    note!(
        "qgguf: {}: {}, {} as {}",
        terminal::escape(&source.location.dir.display().to_string()),
        source.family.class,
        source.family.architecture,
        if args.vocab_only { "a vocabulary" } else { conversion.file_type.name() }
    );
    conversion.notes.iter().for_each(|text| note!("qgguf: {}", terminal::escape(text)));
    conversion.warnings.iter().for_each(|warning| note!("qgguf: warning: {}", terminal::escape(warning)));
    let tokenizer = Tokenizer::from_metadata(&conversion.metadata, &TokenizerOptions::default());
    match tokenizer {
        Ok(_) => {}
        Err(e) if args.pre.is_some() => return Err(e).context(args.input.display()),
        Err(e) => note!(
            "qgguf: warning: this runtime cannot use the tokenizer: {}",
            terminal::escape(&e.to_string())
        ),
    }
    if let Some(template) = conversion.metadata.str("tokenizer.chat_template")?
        && let Err(e) = ChatTemplate::new(template, SpecialTokens::default())
    {
        let e = e.to_string();
        note!("qgguf: warning: this runtime cannot use the chat template: {}", terminal::escape(&e));
    }
    if let Err(e) = SamplerParams::from_metadata(&conversion.metadata) {
        note!(
            "qgguf: warning: this runtime cannot use the sampling settings: {}",
            terminal::escape(&e.to_string())
        );
    }
    if architectures::names().all(|name| name != source.family.architecture) {
        note!("qgguf: warning: this runtime cannot run {}, only convert it", source.family.architecture);
        return Ok(());
    }
    if args.vocab_only {
        return Ok(());
    }
    let specs: Vec<TensorSpec> = conversion.tensors.iter().map(|tensor| tensor.spec.clone()).collect();
    writing::check_weights(&args.input, &conversion.metadata, &specs)
}

/// Where the file goes.
fn output_path(args: &Args, source: &Source, conversion: &Conversion<'_>) -> Result<PathBuf> {
    let Some(path) = &args.outfile else { return Ok(source.default_dir().join(&conversion.file_name)) };
    if path.is_dir() {
        return Ok(path.join(&conversion.file_name));
    }
    follow_links(path).context(path.display())?;
    let Some(name) = path.file_name().and_then(|name| name.to_str()) else {
        return Err(Failure::text(format!("{}: not the name of a file", path.display())));
    };
    let (upper, lower) = (conversion.file_type.name(), conversion.file_type.name().to_lowercase());
    let name = name.replace("{ftype}", &lower).replace("{outtype}", &lower);
    Ok(path.with_file_name(name.replace("{FTYPE}", upper).replace("{OUTTYPE}", upper)))
}

/// One file, or those of a split.
fn files<'a>(args: &Args, conversion: Conversion<'a>, path: PathBuf) -> Result<Vec<OutputFile<'a>>> {
    let specs: Vec<TensorSpec> = conversion.tensors.iter().map(|tensor| tensor.spec.clone()).collect();
    let file = OutputFile {
        path: path.clone(),
        metadata: conversion.metadata,
        tensors: conversion.tensors,
        pad_empty: false,
    };
    let Some(limit) = args.limit.get() else { return Ok(vec![file]) };
    let parts = split::parts(&specs, limit, args.no_tensor_first_split);
    if parts.len() < 2 {
        return Ok(vec![file]);
    }
    let prefix = if path.extension().is_some_and(|e| e == "gguf") { path.with_extension("") } else { path };
    Ok(split::split_file(file, &prefix, &parts, SplitKeyOrder::CountSecond)?)
}

fn dry_run(args: &Args, conversion: &Conversion<'_>) -> Result<()> {
    let report = |tensor: &OutputTensor<'_>| {
        let spec = &tensor.spec;
        let rows: u64 = spec.shape.iter().skip(1).product();
        TensorReport {
            name: spec.name.clone(),
            shape: spec.shape.clone(),
            from: tensor.source.stored(),
            to: spec.ty,
            n_elements: spec.shape.iter().product(),
            n_bytes: spec.ty.row_bytes(spec.shape[0] as usize).unwrap_or(0) as u64 * rows,
            deviation: Default::default(),
            overflow: Default::default(),
        }
    };
    let reports: Vec<TensorReport> = conversion.tensors.iter().map(report).collect();
    let outcome = Outcome::of(&reports);
    let mut out = BufWriter::new(stdout());
    if args.json {
        let mut object = outcome.json();
        object["input"] = args.input.display().to_string().into();
        object["type"] = conversion.file_type.name().into();
        object["dry_run"] = true.into();
        serde_json::to_writer(&mut out, &object)?;
        writeln!(out)?;
    } else if args.vocab_only {
        writeln!(out, "{} keys, no tensors", conversion.metadata.len())?;
    } else {
        outcome.print_tensors(&mut out)?;
        outcome.print(&mut out)?;
    }
    Ok(out.flush()?)
}

/// Looks at what was written as any program would.
struct Verification<'f> {
    files: &'f [OutputFile<'f>],
    kernels: Kernels,
    n_threads: usize,
}

/// What the model reads to show that it works.
const PROMPT: &str = "Once upon a time";

impl Verification<'_> {
    fn run(&self, out: &mut dyn Write) -> Result<()> {
        let path = &self.files[0].path;
        let file = GgufFile::open(path)?;
        self.metadata(&file, out).context(path.display())?;
        self.tensors(&file, out).context(path.display())?;
        self.prompt(path, out)
    }

    fn metadata(&self, file: &GgufFile, out: &mut dyn Write) -> Result<()> {
        let expected: &Metadata = &self.files[0].metadata;
        let same = expected.iter().eq(file.metadata().iter());
        if !same {
            return Err(Failure::text("the metadata differs from what was to be written"));
        }
        Ok(writeln!(out, "verify: metadata: {} keys as written", expected.len())?)
    }

    fn tensors(&self, file: &GgufFile, out: &mut dyn Write) -> Result<()> {
        let mut worst: BTreeMap<&str, (usize, f64, f64)> = BTreeMap::new();
        for part in self.files {
            let found = verify::compare(file, &part.tensors, self.n_threads);
            for one in found.map_err(|e| Failure::text(e.to_string()))? {
                if !one.is_near() {
                    return Err(Failure::text(format!(
                        "tensor \"{}\" ({}): relative error {:.3e}, expected at most {:.3e}",
                        one.name, one.ty, one.relative, one.limit
                    )));
                }
                let entry = worst.entry(one.ty.name()).or_insert((0, 0.0, one.limit));
                *entry = (entry.0 + 1, entry.1.max(one.relative), one.limit);
            }
        }
        for (ty, (n, relative, limit)) in worst {
            writeln!(
                out,
                "verify: {n} tensors of {ty}: relative error at most {relative:.3e} (allowed {limit:.3e})"
            )?;
        }
        Ok(())
    }

    fn prompt(&self, path: &Path, out: &mut dyn Write) -> Result<()> {
        let architecture = GgufFile::open(path)?.architecture()?.to_owned();
        if architectures::names().all(|name| name != architecture) {
            return Ok(writeln!(out, "verify: prompt: not run, this runtime has no {architecture}")?);
        }
        let model = Arc::new(Model::open(path, &ModelOptions::default())?);
        let tokens = model.tokenizer().encode(PROMPT, true, false);
        let options =
            EngineOptions { n_threads: self.n_threads, kernels: self.kernels, ..Default::default() };
        let mut session = Session::new(model.clone(), Some(64), &options)?;
        let logits = session.eval(&tokens)?;
        if let Some(i) = logits.iter().position(|x| !x.is_finite()) {
            return Err(Failure::text(format!(
                "{}: the logit of token {i} is {}",
                path.display(),
                logits[i]
            )));
        }
        Ok(writeln!(out, "verify: prompt: {} tokens give {} finite logits", tokens.len(), logits.len())?)
    }
}
